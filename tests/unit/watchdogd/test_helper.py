"""The watchdog hears its helper, notices when it is silent, and never waits for it."""

import os
import select
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from queuedriver.driving.measurements import CAUSES
from tests.holdings import open_files, without_collections
from tests.waiting import PATIENCE, until, until_ended
from watchdogd.children import Child, Children
from watchdogd.helper import (
    MOST_LEFT,
    PATIENCE_AT_START,
    RESTART_DEAD_AFTER,
    RESTART_EVERY,
    Helper,
)
from watchdogd.helper_messages import (
    Brief,
    Errands,
    Look,
    Message,
    QueueSeen,
    Read,
    Recovered,
    to_line,
)
from watchdogd.helper_process import HelperProcess, begin
from watchdogd.host import SILENCE
from watchdogd.pipeline.model import Drivers, Pipeline, Stage

LOOK = Errands(look=True)
ALIVE = r"{}\n"
PIPELINE = Pipeline(
    name="p",
    file="/p.toml",
    root="/queues",
    stages=(
        Stage(
            name="parse",
            inputs=("in",),
            outputs=("out",),
            drivers=Drivers(1, 1),
            kind="command",
            work=("true",),
        ),
    ),
)


class Bench:
    """Helpers that are shell scripts."""

    def __init__(self, place: Path) -> None:
        self.told: list[tuple[str, str]] = []
        self.children = Children()
        self._place = place
        self._made: list[Helper] = []

    @property
    def notes(self) -> list[str]:
        return [message for kind, message in self.told if kind == "note"]

    def helper(
        self, script: str, argv: Sequence[str] = (), begun: HelperProcess | None = None
    ) -> Helper:
        made = Helper(
            Brief(pipeline=PIPELINE, host="rose", local=str(self._place)),
            self.children,
            lambda kind, message="", **_: self.told.append((kind, message)),
            # It answers where it is told.
            argv or ("sh", "-c", f"exec >&0; {script}"),
            begun,
        )
        self._made.append(made)
        return made

    def start(self, script: str, argv: Sequence[str] = ()) -> Helper:
        """One that was started at 0.0."""
        helper = self.helper(script, argv)
        helper.tend(now=0.0)
        assert helper.pid
        return helper

    def close(self) -> None:
        for one in self._made:
            one.abandon()
        self.children.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.close()


def wait_for(helper: Helper) -> None:
    """Until there is something to hear, the end of the helper included."""
    poll = select.poll()
    poll.register(helper.fd, select.POLLIN)
    assert poll.poll(PATIENCE * 1000), "nothing is heard"


def hear(helper: Helper, now: float, count: int = 1) -> list[Message]:
    """So many messages, as they come."""
    heard: list[Message] = []
    until = time.monotonic() + PATIENCE
    while len(heard) < count:
        assert time.monotonic() < until, f"only {heard} were heard"
        wait_for(helper)
        heard += helper.receive(now)
    return heard


def test_helper_is_told_first_where_to_look_and_what_it_says_is_heard(bench: Bench) -> None:
    helper = bench.helper(f"read brief; printf '{ALIVE}'; read rest")
    assert helper.fd == -1
    assert helper.lost(now=0.0)
    assert helper.tend(now=0.0) == PATIENCE_AT_START
    pid = helper.pid
    assert hear(helper, now=0.5) == [Message()]
    assert helper.tend(now=0.5) == 0.5 + SILENCE
    assert helper.pid == pid


def test_brief_names_the_watchdog_without_which_the_helper_is_not_to_live(
    bench: Bench, tmp_path: Path
) -> None:
    script = f'read -r brief; printf "%s" "$brief" >&2; printf \'{ALIVE}\'; read x'
    helper = bench.start(script)
    hear(helper, now=0.0)
    brief = msgspec.json.decode((tmp_path / "io-helper.log").read_bytes(), type=Brief)
    assert brief == msgspec.structs.replace(helper.brief, parent=os.getpid())


def test_line_that_comes_in_parts_is_heard_once_it_is_whole(bench: Bench) -> None:
    half = 'read brief; printf \'{"no\'; read go; printf \'te":"y"}\\n{"note":"x"}\\n\'; read x'
    helper = bench.start(half)
    wait_for(helper)
    assert helper.receive(now=1.0) == []
    helper.ask(LOOK)
    assert hear(helper, now=2.0, count=2) == [Message(note="y"), Message(note="x")]


def test_line_that_is_not_understood_is_noted_and_the_others_count(bench: Bench) -> None:
    helper = bench.start(f"read brief; printf 'what?\\n{ALIVE}'; read x")
    assert hear(helper, now=0.0) == [Message()]
    assert bench.notes == ["not understood from the helper: b'what?'"]


# Silence


def test_helper_that_is_silent_is_lost_and_heard_again_is_not(bench: Bench) -> None:
    helper = bench.start(f"read brief; printf '{ALIVE}'; read go; printf '{ALIVE}'; read x")
    hear(helper, now=1.0)
    pid = helper.pid
    assert not helper.lost(now=1.0 + SILENCE)
    assert helper.tend(now=1.0) == 1.0 + SILENCE
    assert helper.lost(now=1.1 + SILENCE)
    # Perhaps it is only slow: nobody is left behind until another may be started.
    assert helper.tend(now=1.1 + SILENCE) == RESTART_EVERY
    assert helper.pid == pid
    helper.ask(LOOK)
    hear(helper, now=4.0)
    assert not helper.lost(now=4.0)


def test_helper_may_take_its_time_to_load(bench: Bench) -> None:
    helper = bench.start("read brief; read x")
    for second in range(int(PATIENCE_AT_START)):
        assert not helper.lost(now=float(second))
    assert helper.lost(now=PATIENCE_AT_START + 0.1)


def test_what_waits_to_be_heard_is_no_silence(bench: Bench) -> None:
    helper = bench.start(f"read brief; printf '{ALIVE}'; read x; printf '{ALIVE}'; read x")
    hear(helper, now=0.0)
    helper.ask(LOOK)
    wait_for(helper)
    assert not helper.lost(now=1.0 + SILENCE)


def test_watchdog_that_was_stopped_itself_does_not_blame_its_helper(bench: Bench) -> None:
    helper = bench.start(f"read brief; printf '{ALIVE}'; read x")
    hear(helper, now=0.0)
    # For an hour nobody has looked.
    assert helper.receive(now=3600.0) == []
    assert not helper.lost(now=3600.0)
    assert not helper.lost(now=3600.0 + SILENCE)
    assert helper.lost(now=3600.1 + SILENCE)


def test_file_system_that_does_not_answer_is_told_of_once_and_so_is_that_it_does_again(
    bench: Bench,
) -> None:
    look = to_line(Message(look=Look(queues={"in": QueueSeen()}))).decode()
    helper = bench.start(f"while read line; do printf '%s' '{look}'; done")
    assert not helper.listen(now=0.0)
    assert not helper.answered(now=0.0)
    wait_for(helper)
    assert helper.listen(now=1.0)
    assert helper.well(now=1.0)
    for now in (3.5, 4.0):
        helper.listen(now)
        assert helper.trouble(now) == "/queues does not answer"
    helper.ask(LOOK)
    wait_for(helper)
    helper.listen(now=5.0)
    assert helper.trouble(now=5.0) == ""
    assert bench.told == [("waiting-fs", "/queues does not answer"), ("fs-well", "")]


def test_helper_that_was_killed_is_no_file_system_that_does_not_answer(bench: Bench) -> None:
    look = to_line(Message(look=Look(queues={"in": QueueSeen()}))).decode()
    helper = bench.start(f"read brief; printf '%s' '{look}'; read go")
    assert (helper.well(0.0), helper.notes) == (False, [])
    until(lambda: helper.listen(now=0.0), "a look")
    os.kill(helper.pid, signal.SIGKILL)
    until(lambda: helper.listen(now=1.0) or not helper.pid, "its end")
    # Nothing of the file system has changed: drivers are started meanwhile.
    assert helper.well(now=1.0)
    assert helper.trouble(now=1.0) == ""
    assert [note for note in helper.notes if "is not there" in note]
    helper.tend(now=1.0 + RESTART_DEAD_AFTER)
    assert helper.pid
    assert (helper.well(now=7.0), helper.notes) == (True, [])
    # The next one is silent.
    assert helper.trouble(now=99.0) == "/queues does not answer"
    assert [kind for kind, _ in bench.told] == ["note"]


def test_helper_that_ends_before_it_has_seen_anything_is_said_to(
    bench: Bench, tmp_path: Path
) -> None:
    helper = bench.start("exit 1")
    until(lambda: helper.listen(now=0.0) or not helper.pid, "its end")
    log = tmp_path / "io-helper.log"
    assert (
        helper.trouble(now=0.0)
        == f"the process that looks after the queues is not there; see {log}"
    )
    assert not helper.well(now=0.0)
    helper.listen(now=0.0)
    assert bench.told[-1] == ("waiting-fs", helper.trouble(now=0.0))


def test_to_ask_whether_it_is_lost_changes_nothing(bench: Bench) -> None:
    helper = bench.start(f"read brief; printf '{ALIVE}'; read x")
    hear(helper, now=0.0)
    # An hour in which nobody has listened is no excuse for whoever only asks.
    for _ in range(2):
        assert helper.lost(now=3600.0)
    helper.receive(now=3600.0)
    assert not helper.lost(now=3600.0)


# Left behind


def test_silent_helper_is_left_behind_and_another_started_once_a_minute(bench: Bench) -> None:
    helper = bench.start(f"read brief; printf '{ALIVE}'; read x")
    hear(helper, now=0.0)
    first = helper.pid
    for second in range(1, int(RESTART_EVERY)):
        helper.tend(now=float(second))
        helper.lost(now=float(second))
        assert helper.pid == first
    assert helper.tend(now=RESTART_EVERY) == RESTART_EVERY + PATIENCE_AT_START
    assert helper.pid not in (0, first)
    until_ended(first)


def test_what_was_made_is_not_made_again_by_the_next_helper(bench: Bench, tmp_path: Path) -> None:
    seen = to_line(Message(look=Look(queues={"in": QueueSeen(), "out": QueueSeen()})))
    ill = to_line(Message(look=Look(trouble="full")))
    lines = (ill + seen).decode()
    tells = "read -r brief; printf '%s\\n' \"$brief\" >&2"
    helper = bench.start(f"{tells}; printf '%s' '{lines}'; read x")
    until(lambda: helper.listen(now=0.0) and helper.view.known, "both looks")
    helper.abandon()
    helper.tend(now=RESTART_EVERY)
    log = tmp_path / "io-helper.log"
    until(lambda: log.read_bytes().count(b"\n") == 2, "the second brief")
    briefs = [msgspec.json.decode(one, type=Brief) for one in log.read_bytes().splitlines()]
    assert [one.made for one in briefs] == [(), ("in", "out")]


def test_helper_that_ends_is_replaced_soon(bench: Bench) -> None:
    helper = bench.start(f"read brief; printf '{ALIVE}'; read go")
    hear(helper, now=0.0)
    helper.ask(LOOK)
    while helper.fd >= 0:
        wait_for(helper)
        helper.receive(now=1.0)
    assert bench.notes == ["the process that looks after the queues ended"]
    assert helper.lost(now=1.0)
    # Nobody is there to hear it.
    helper.ask(LOOK)
    assert helper.tend(now=1.0) == 1.0 + RESTART_DEAD_AFTER
    assert helper.pid == 0
    helper.tend(now=1.0 + RESTART_DEAD_AFTER)
    assert helper.pid


class Deaf(Children):
    """Starts processes that nothing ends, as a hung file system makes them."""

    def start(self, *args: Any, **more: Any) -> Child:
        child = super().start(*args, **more)
        child.send = lambda number: False  # type: ignore[method-assign]
        return child


def test_helpers_that_cannot_be_killed_do_not_pile_up(bench: Bench) -> None:
    bench.children = Deaf()
    helper = bench.helper("read brief; exec sleep 1000")
    now, started = 0.0, []
    for _ in range(MOST_LEFT + 3):
        helper.tend(now)
        started += [helper.pid] if helper.pid else []
        now += RESTART_EVERY
        # The supervisor looks oftener than the helper may be silent.
        for _ in range(10):
            helper.receive(now)
            now += SILENCE
    assert len(started) == len(set(started)) == MOST_LEFT
    os.kill(started[0], signal.SIGKILL)
    until(lambda: bench.children.reap(now), "its end")
    now += RESTART_EVERY
    helper.tend(now)
    assert helper.pid not in (0, *started)
    for pid in (*started[1:], helper.pid):
        os.kill(pid, signal.SIGKILL)


def test_program_that_is_not_there_is_noted(bench: Bench, tmp_path: Path) -> None:
    helper = bench.start("", argv=["/nowhere/python"])
    wait_for(helper)
    assert helper.receive(now=0.0) == []
    assert bench.notes[-1] == "the process that looks after the queues ended"
    assert "/nowhere/python cannot be run: No such" in (tmp_path / "io-helper.log").read_text()
    assert helper.lost(now=0.0)
    assert helper.fd == -1


@without_collections()
def test_process_that_cannot_be_started_is_noted(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "io-helper.log").mkdir()
    before = open_files()
    helper = bench.helper("")
    assert helper.tend(now=0.0) == RESTART_EVERY
    assert "cannot start" in bench.notes[0]
    assert helper.lost(now=0.0)
    assert helper.fd == -1
    assert open_files() == before


def test_helper_that_was_begun_before_is_the_first_and_another_follows_it(bench: Bench) -> None:
    script = f"read brief; printf '{ALIVE}'; read rest"
    begun = begin(bench.children, ("sh", "-c", f"exec >&0; {script}"))
    helper = bench.helper(script, begun=begun)
    helper.tend(now=0.0)
    assert helper.pid == begun.child.pid
    assert hear(helper, now=0.5) == [Message()]
    helper.abandon()
    helper.tend(now=RESTART_EVERY)
    assert helper.pid not in (0, begun.child.pid)


def test_helper_that_is_told_nothing_ends_when_it_is_not_wanted(bench: Bench) -> None:
    begun = begin(bench.children)
    begun.end()
    until(lambda: bench.children.reap(0.0), "reaped")
    assert begun.child.exit is not None


def test_before_the_first_helper_is_started_nothing_is_said_of_the_file_system(
    bench: Bench,
) -> None:
    helper = bench.helper("")
    assert not helper.listen(now=0.0)
    assert not helper.answered(now=0.0)
    assert bench.told == []


# Never waiting

_READER = """
import json, os, sys
os.write(0, b"{}\\n")
with open(sys.argv[1]) as fifo:
    fifo.read()
numbers = []
while 3 not in numbers:
    said = json.loads(sys.stdin.buffer.readline())
    numbers.append(len(said.get("recover", ["brief"])))
open(sys.argv[2], "w").write(repr(numbers))
"""


def test_helper_that_does_not_read_cannot_stop_the_watchdog_and_hears_all_in_the_end(
    bench: Bench, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "fifo")
    heard = tmp_path / "heard"
    argv = (sys.executable, "-c", _READER, str(tmp_path / "fifo"), str(heard))
    helper = bench.start("", argv=argv)
    hear(helper, now=0.0)
    for number in (1, 40_000, 2, 40_000):
        helper.ask(Errands(recover=("x" * 20,) * number))
    # It is to be tried again soon.
    assert helper.tend(now=0.0) < 1.0
    (tmp_path / "fifo").write_text("go")
    helper.ask(Errands(recover=("last",) * 3))
    until(lambda: helper.tend(now=0.0) > 1.0, "all is sent")
    until(lambda: heard.exists() and heard.read_text(), "all is heard")
    assert heard.read_text() == "[1, 1, 40000, 2, 40000, 3]"


# The pipeline's file


def test_reloaded_pipeline_is_that_of_the_next_helper(bench: Bench) -> None:
    other = msgspec.structs.replace(PIPELINE, name="other")
    helper = bench.helper("read brief; read x")
    helper.change(other)
    assert helper.brief.pipeline == other


def test_each_helper_is_told_which_processes_are_drivers(bench: Bench, tmp_path: Path) -> None:
    heard, told = tmp_path / "heard", to_line(Errands(drivers=(7, 8)))
    helper = bench.start(f"cat >> {heard}")
    helper.measure((7, 8))
    until(lambda: heard.exists() and heard.read_bytes().count(told) == 1)
    helper.abandon()
    helper.tend(now=RESTART_EVERY)
    until(lambda: heard.read_bytes().count(told) == 2)


def answers(read: Read) -> str:
    """A helper that answers each line but the first with this."""
    line = to_line(Message(read=read)).decode()
    return f"read brief; while read line; do printf '%s' '{line}'; done"


def take_read(helper: Helper) -> Read:
    """What came of reading the file."""
    while (read := helper.take_read()) is None:
        wait_for(helper)
        helper.listen(now=0.0)
    return read


def test_file_is_read_by_the_helper_and_what_it_says_is_taken_once(bench: Bench) -> None:
    helper = bench.start(answers(Read(number=1, pipeline=PIPELINE, notes=("odd",))))
    assert helper.take_read() is None
    helper.read_again()
    assert take_read(helper) == Read(number=1, pipeline=PIPELINE, notes=("odd",))
    assert helper.take_read() is None


def test_file_that_is_asked_for_again_while_it_is_read_is_what_it_was_last(bench: Bench) -> None:
    # It may have changed since.
    helper = bench.start(answers(Read(number=2, error="of the second")))
    helper.read_again()
    helper.read_again()
    assert take_read(helper).error == "of the second"
    helper = bench.start(answers(Read(number=1, error="of the first")))
    helper.read_again()
    helper.read_again()
    wait_for(helper)
    helper.listen(now=0.0)
    assert helper.take_read() is None


@pytest.mark.parametrize("change", [{"root": "/elsewhere"}, {"adopt": True}])
def test_file_that_a_watchdog_cannot_change_to_is_refused(
    bench: Bench, change: dict[str, object]
) -> None:
    other = msgspec.structs.replace(PIPELINE, **change)
    helper = bench.start(answers(Read(number=1, pipeline=other)))
    helper.read_again()
    read = take_read(helper)
    assert read.pipeline is None
    assert read.error == f"{next(iter(change))} has changed, which takes a restart of the watchdog"


def test_file_that_does_not_answer_is_given_up_with_the_helper_that_reads_it(
    bench: Bench,
) -> None:
    helper = bench.start(f"read brief; printf '{ALIVE}'; sleep 1000")
    helper.read_again()
    hear(helper, now=0.0)
    # The supervisor looks oftener than the helper may be silent.
    for second in range(int(RESTART_EVERY)):
        helper.tend(now=float(second))
        assert not helper.lost(now=float(second)) or second > SILENCE
    assert helper.take_read() is None
    helper.tend(now=RESTART_EVERY)
    assert take_read(helper).error == "/p.toml cannot be read: no answer"


def test_file_that_was_to_be_read_before_there_was_a_helper_is_read_by_the_next(
    bench: Bench,
) -> None:
    helper = bench.helper(answers(Read(number=1, error="bad")))
    helper.read_again()
    assert helper.take_read() is None
    helper.tend(now=0.0)
    assert take_read(helper).error == "bad"


def test_socket_is_closed_though_the_helper_cannot_be_killed(bench: Bench) -> None:
    # It touches nothing any more from that moment on, be it killed or not.
    bench.children = Deaf()
    helper = bench.start("read brief; read x; exec sleep 1000")
    pid = helper.pid
    helper.abandon()
    # The shell has met the end of its input.
    until(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n", "it goes on")
    os.kill(pid, signal.SIGKILL)


def test_failures_that_the_helper_charged_count_for_the_queue(bench: Bench) -> None:
    """No driver has lived to count them."""
    recovered = Message(recovered=Recovered("in", 2, ("a",), (("crashed", True), ("hung", False))))
    helper = bench.helper(f"read brief; printf '%s' '{to_line(recovered).decode()}'; read rest")
    helper.tend(now=0.0)
    wait_for(helper)
    helper.listen(now=0.5)
    counted = helper.view.failed["in"].counted
    assert dict(zip(CAUSES, counted.failed, strict=True))["hung"] == 1
    assert (sum(counted.failed), sum(counted.discarded)) == (2, 1)
