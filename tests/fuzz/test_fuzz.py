"""Bytes that somebody else wrote are read as a value or refused with one of our errors.

`python -m tests.fuzz TARGET --minutes N` looks for more.
"""

import os
import random
import sys
import time
import tracemalloc
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from queuedriver.disk.journal import read_events
from queuedriver.format.records import Event, describe_event
from queuedriver.processors import answers
from tests.cli.processes import command
from tests.fuzz.files import FILES, clean_up, yard
from tests.fuzz.memory import MEMORY
from tests.fuzz.mutate import mutated
from tests.fuzz.pages import PAGES
from tests.fuzz.targets import TARGETS
from tests.waiting import until
from watchdogd.children import Children
from watchdogd.driver_orders import Load
from watchdogd.template import Template

# Each of those in files takes some ten commands.
_FEW = 40


@pytest.fixture(autouse=True, scope="module")
def tidy() -> Iterator[None]:
    yield
    clean_up()


@pytest.mark.parametrize("name", TARGETS)
def test_samples_are_read_as_they_were_written(name: str) -> None:
    for sample in TARGETS[name].samples:
        TARGETS[name].read(sample)


@pytest.mark.parametrize("name", MEMORY)
@given(data=st.binary(max_size=300), seed=st.integers(0, 1 << 32))
def test_bytes_in_memory_are_read_or_refused(name: str, data: bytes, seed: int) -> None:
    target = TARGETS[name]
    target.read(data)
    target.read(mutated(target.samples, random.Random(seed)))


@pytest.mark.parametrize("name", [*FILES, *PAGES])
@settings(max_examples=_FEW)
@given(data=st.binary(max_size=100), seed=st.integers(0, 1 << 32))
# Each of these has been an exception of another kind, in one of the readers.
@example(data=b'{"publish":"\xff","id":"\xff","docid":"\xff","path":"\xff"}', seed=0)
@example(data=b'{"x":' + b"[" * 3000 + b"]" * 3000 + b"}", seed=0)
@example(data=b'{"outputs":["' + b"x" * 300 + b'"],"archive":"a\\u0000"}', seed=0)
@example(data=b'{"path":"' + b"x" * 300 + b'"}', seed=0)
@example(data=b'{"path":"a\\u0000"}', seed=0)
def test_files_of_others_are_read_or_refused(name: str, data: bytes, seed: int) -> None:
    target = TARGETS[name]
    target.read(mutated(target.samples, random.Random(seed)))
    target.read(data)


# The journal, damaged on purpose


LINES = [
    Event(at=float(number), event="published", docid=f"doc-{number}", message="m" * number)
    for number in range(1, 40)
]


def _written() -> bytes:
    return b"".join(msgspec.json.encode(one) + b"\n" for one in LINES)


def _read(data: bytes) -> list[float]:
    journal = yard().root / "some/journal"
    journal.mkdir(parents=True, exist_ok=True)
    (journal / "h-1.jsonl").write_bytes(data)
    found = read_events(str(journal))
    for one in found.events:
        describe_event(one)
    return [one.at for one in found.events]


@given(cut=st.integers(0, 4000))
def test_journal_that_was_cut_has_every_line_before_the_cut(cut: int) -> None:
    data = _written()
    whole = data[:cut].count(b"\n")
    found = _read(data[:cut])
    # What was cut at its very end may be whole without it.
    assert found[:whole] == [one.at for one in LINES[:whole]]
    assert len(found) <= whole + 1


@given(at=st.integers(0, len(_written()) - 1), bit=st.integers(0, 7))
def test_bit_that_flipped_in_a_journal_costs_two_lines_at_most(at: int, bit: int) -> None:
    data = bytearray(_written())
    data[at] ^= 1 << bit
    # A line end that is none joins two; any other damage is to one.
    hit = data[:at].count(b"\n")
    kept = [one.at for number, one in enumerate(LINES) if number not in (hit, hit + 1)]
    assert set(kept) <= set(_read(bytes(data)))


@pytest.mark.parametrize(
    "damage",
    [bytes(100 << 20), b"x" * (100 << 20), b'{"at":1,"event":"' + b"a" * (100 << 20) + b'"}'],
    ids=["NULs", "letters", "an event"],
)
def test_line_of_a_hundred_megabytes_costs_a_few_of_memory_and_no_other_line(damage: bytes) -> None:
    place = yard()
    place.fresh()
    place.put(".queuedriver/journal/h-1.jsonl", _written() + damage + b"\n" + _written())
    journal = str(place.queue / ".queuedriver/journal")
    tracemalloc.start()
    began_at = time.process_time()
    try:
        found = read_events(journal)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found.events) == 2 * len(LINES)
    assert found.skipped == 1
    assert peak < 16 << 20
    assert time.process_time() - began_at < 10


@given(seed=st.integers(0, 1 << 32))
def test_lines_that_two_writers_mixed_are_skipped_and_the_rest_is_there(seed: int) -> None:
    draw = random.Random(seed)
    lines = _written().splitlines(keepends=True)
    at = draw.randrange(len(lines) - 1)
    one, other = lines[at], lines[at + 1]
    cut = draw.randrange(1, len(one))
    lines[at : at + 2] = [one[:cut] + other + one[cut:]]
    kept = [one.at for number, one in enumerate(LINES) if number not in (at, at + 1)]
    assert set(kept) <= set(_read(b"".join(lines)))


# Protocols


@given(data=st.binary(max_size=200), sizes=st.lists(st.integers(1, 50), min_size=1))
@example(data=b'{"ok": true}\n\n', sizes=[1])
def test_answers_mean_the_same_however_they_come(data: bytes, sizes: list[int]) -> None:
    def heard(pieces: list[bytes]) -> list[object]:
        said, found = bytearray(), list[object]()
        try:
            for piece in pieces:
                said += piece
                while (line := answers.take_line(said)) is not None:
                    found.append(answers.parse(line))
        except answers.Fault as fault:
            found.append(str(fault))
        return found

    pieces: list[bytes] = []
    left = data
    while left:
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(left[:size])
        left = left[size:]
    assert heard([data]) == heard(pieces)


def test_answer_without_an_end_is_a_fault_before_it_fills_the_memory() -> None:
    said = bytearray()
    said += b"x" * answers.MAX_LINE
    assert answers.take_line(said) is None
    said += b"x"
    with pytest.raises(answers.Fault, match="more than"):
        answers.take_line(said)


_LOADER = """
import os, socket, sys
talk = socket.socket(fileno=os.dup(0))
talk.recv(100_000)
talk.send(bytes.fromhex(sys.argv[1]))
talk.recv(1)
"""


@pytest.mark.parametrize(
    "said",
    [b"\xff", b'{"type":"Unfit","why":"\xff"}', b"[" * 50_000, b"{}", b"nonsense", b"null"],
    ids=["no text", "no text inside", "nested", "empty", "nonsense", "null"],
)
def test_loader_that_talks_nonsense_fails_its_stage_and_not_the_watchdog(said: bytes) -> None:
    load = Load(stage="parse", directory="/", call="a:b", watchdog=os.getpid(), env={})
    children = Children()
    command = (sys.executable, "-c", _LOADER, said[:40_000].hex())
    template = Template(load, children, 0.0, command=command)

    def failed() -> bool:
        children.reap(0.0)
        template.receive(0.0)
        return template.has_failed

    until(failed, "it fails")
    assert "parse" in template.fork(b"{}", 0.0).failure
    template.leave(0.0)


# The command


def test_fuzzing_by_command_says_how_it_went() -> None:
    ran = command("names", "--minutes", "0.005", "--plain", program="tests.fuzz")
    assert ran.code == 0, ran.err
    assert "no promise broken" in ran.out
