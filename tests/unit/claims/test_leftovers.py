"""What processes that were killed left goes when a driver starts, and nothing else does."""

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from queuedriver.claims import leftovers
from queuedriver.claims.attempts import Attempts
from queuedriver.claims.leftovers import (
    DAY,
    HOUR,
    JOURNAL_KEPT,
    JOURNAL_RECENT,
    JOURNALS_MAX,
    LATE,
    WEEK,
)
from queuedriver.disk.filesystem import Directory
from queuedriver.driving.driver import Driver
from queuedriver.format import names
from queuedriver.operating.queue import Queue
from queuedriver.options import Options
from tests.unit.format.test_records import an_attempt

if TYPE_CHECKING:
    from tests.conftest import Bench

SCRAP = ".aside-4711-0-abcdef12"
# Where something is written aside.
PLACES = [
    "in",
    "in/discarded",
    "in/.queuedriver",
    "in/.queuedriver/drivers",
    "in/.queuedriver/claims",
    "in/.queuedriver/attempts",
    "in/.queuedriver/feeds",
    "out",
    "out/.queuedriver",
]


def age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def left(bench: "Bench", path: str, seconds: float) -> Path:
    """A file that was not written to for so long."""
    file = bench.put(path)
    age(file, seconds)
    return file


def sweep(bench: "Bench") -> None:
    leftovers.sweep(bench.directory("in"), [bench.directory("out")])


@pytest.mark.parametrize("scrap", [SCRAP, ".probe-4711"])
def test_a_start_removes_what_was_begun_long_ago_and_leaves_what_may_be_in_work(
    bench: "Bench", scrap: str
) -> None:
    old = [left(bench, f"{place}/{scrap}", DAY + HOUR) for place in PLACES]
    young = [left(bench, f"{place}/{scrap}1", DAY - HOUR) for place in PLACES]
    Driver(bench.root / "in", len, bench.root / "out", id="d", options=Options(drain=True)).run()
    assert not any(one.exists() for one in old)
    assert all(one.exists() for one in young)


def test_a_start_lists_no_directory_twice(bench: "Bench", monkeypatch: pytest.MonkeyPatch) -> None:
    """However many kinds of leftovers there are: of a queue in which many wait it is most of it."""
    bench.put("in/waits.ready")
    Driver(bench.root / "in", len, bench.root / "out", options=Options(drain=True)).run()
    names, listed = Directory.names, Counter[int]()

    def count(directory: Directory) -> Iterator[str]:
        listed[directory.status().st_ino] += 1
        return names(directory)

    monkeypatch.setattr(Directory, "names", count)
    sweep(bench)
    assert listed[(bench.root / "in").stat().st_ino] == 1
    # What is remembered of attempts is settled first.
    assert max(listed.values()) <= 2


def test_what_waits_is_taken_for_no_kind_of_leftover_without_a_closer_look(bench: "Bench") -> None:
    for docid in ("doc", "paper.pdf"):
        bench.put(f"in/{docid}.ready")
    bench.put("in/notes.txt")
    looked_at: list[str] = []
    row = leftovers.OF_DRIVEN[0]._replace(is_one=looked_at.append)
    queue = bench.directory("in")
    leftovers.sweep_rows(leftovers.Swept(queue, queue), [row])
    assert looked_at == ["notes.txt"]


def test_a_sweep_removes_nothing_else_however_old(bench: "Bench") -> None:
    files = ["doc.ready", "notes.txt", ".hidden", ".asides", "discarded/doc"]
    inside = ["settings.json", "drivers/d.json", "attempts/doc.7.failed.json"]
    kept = [
        left(bench, path, 1000 * DAY)
        for path in (
            *(f"in/{name}" for name in files),
            *(f"in/.queuedriver/{name}" for name in inside),
            "in/.queuedriver/journal/notes.txt",
            "in/.queuedriver/feeds/1.json",
        )
    ]
    link, directory = (bench.root / "in" / f"{SCRAP}-{kind}" for kind in ("link", "directory"))
    link.symlink_to(kept[0])
    directory.mkdir()
    for one in (link, directory):
        os.utime(one, (0, 0), follow_symlinks=False)
    sweep(bench)
    assert all(one.exists() for one in (*kept, link, directory))


def plan_of(token: str) -> str:
    return f"in/.queuedriver/claims/{token}.json"


def test_a_plan_goes_a_week_after_its_claim_was_taken_back(bench: "Bench") -> None:
    bench.directory("out")
    old = [left(bench, plan_of(bench.token()), WEEK + HOUR) for _ in range(2)]
    young = left(bench, plan_of(bench.token()), WEEK - HOUR)
    # Nobody has come by since to finish, or to take back.
    held = []
    for form in (names.working_name, names.written_name):
        token = bench.token()
        left(bench, f"in/{form('doc', 1, token)}", 2 * WEEK)
        held.append(left(bench, plan_of(token), 2 * WEEK))
    sweep(bench)
    assert not any(one.exists() for one in old)
    assert all(one.exists() for one in (young, *held))


def noted(bench: "Bench", docid: str, inode: int = 7, seconds: float = WEEK + HOUR) -> Path:
    """The report of a document that somebody began to discard."""
    directory = bench.directory("in/.queuedriver/attempts")
    attempts = Attempts(directory, bench.directory("in/discarded"))
    attempt = an_attempt(docid, bench.token())
    file = attempts.note(inode, attempt, discarded_from="in").file
    path = bench.root / "in/.queuedriver/attempts" / str(file)
    age(path, seconds)
    return path


def test_a_report_goes_after_a_week_if_its_document_was_not_discarded(bench: "Bench") -> None:
    bench.directory("out")
    old = noted(bench, "elsewhere")
    bench.put("in/discarded/reported")
    bench.put("in/discarded/reported.report.json", b"its reason")
    reported = noted(bench, "reported")
    young = noted(bench, "elsewhere", 8, WEEK - HOUR)
    claimed = noted(bench, "claimed")
    bench.put(f"in/{names.working_name('claimed', 0, bench.token())}")
    # However long a document waits.
    waiting = noted(bench, "waiting")
    bench.put("in/waiting.failed")
    sweep(bench)
    kept = [one for one in (old, reported, young, claimed, waiting) if one.exists()]
    assert kept == [young, claimed, waiting]
    assert bench.read("in/discarded/reported.report.json") == b"its reason"


def test_a_report_whose_document_waits_for_it_gets_its_place_however_old(bench: "Bench") -> None:
    bench.directory("out")
    alone = noted(bench, "doc", bench.put("in/discarded/doc").stat().st_ino)
    sweep(bench)
    assert not alone.exists()
    assert (bench.root / "in/discarded/doc.report.json").exists()


def test_attempts_at_documents_that_are_not_in_the_queue_go_but_no_report_that_may_be_wanted(
    bench: "Bench",
) -> None:
    """Not to see a document in `discarded/` proves nothing."""
    queue = bench.directory("in")
    attempts = Attempts(bench.directory("in/.queuedriver/attempts"), queue)
    for docid in ("a", "a.b", "a.", "waiting"):
        attempts.note(7, an_attempt(docid))
    report = noted(bench, "elsewhere", seconds=0.0)
    bench.put("in/waiting.failed")
    bench.put(f"in/{names.working_name('a', 1, bench.token())}")
    leftovers.sweep_rows(leftovers.Swept(queue, queue), [leftovers.ENDED])
    kept = ["a.7.1.json", report.name, "waiting.7.1.json"]
    assert bench.ls("in/.queuedriver/attempts") == sorted(kept)


class Distant(Directory):
    """On a host whose clock is wrong by days."""

    def write_new(self, name: str, data: bytes) -> None:
        super().write_new(name, data)
        age(Path(self.path, name), 3 * DAY)


@contextmanager
def distant(bench: "Bench") -> Iterator[Directory]:
    directory = Distant.open(bench.directory("in").path)
    yield directory
    directory.close()


def test_how_old_a_file_is_its_own_file_system_says(bench: "Bench") -> None:
    young = left(bench, f"in/{SCRAP}", 3 * DAY + HOUR)
    old = left(bench, f"in/{SCRAP}2", 4 * DAY + HOUR)
    with distant(bench) as directory:
        leftovers.sweep(directory, [])
    assert (young.exists(), old.exists()) == (True, False)
    assert [name for name in os.listdir(bench.root / "in") if name.startswith(".probe-")] == []


# Outputs


class Later(Directory):
    """A directory as it will be found some time later."""

    after = 0.0

    def write_new(self, name: str, data: bytes) -> None:
        super().write_new(name, data)
        age(Path(self.path, name), -self.after)


def sweep_later(bench: "Bench", seconds: float, queue: str = "in", *others: str) -> None:
    Later.after = seconds
    opened = [Later.open(bench.directory(name).path) for name in (queue, *others)]
    try:
        leftovers.sweep(opened[0], opened[1:])
    finally:
        for one in opened:
            one.close()


def feed(bench: "Bench", driver: str = "d") -> None:
    """A queue whose outputs go to another, and its driver."""
    with Queue.open(bench.root / "out", create=True) as output:
        output.add_feed(str(bench.root / "in"))
    bench.put(f"in/.queuedriver/drivers/{driver}.json", b"{}")


def writing(bench: "Bench", driver: str = "d") -> tuple[str, str]:
    """The name of an unfinished output, and the name that its claim would have."""
    token = bench.token(driver)
    return names.writing_name("doc", token), names.working_name("doc", 0, token)


@pytest.mark.parametrize("queue", ["in", "out"])
def test_an_orphan_goes_a_week_after_it_was_moved_there_however_old_it_was(
    bench: "Bench", queue: str
) -> None:
    feed(bench)
    name, _ = writing(bench)
    orphan = left(bench, f"out/.queuedriver/orphans/{name}", 10 * WEEK)
    others = ["out"] if queue == "in" else []
    sweep_later(bench, WEEK - HOUR, queue, *others)
    assert orphan.exists()
    sweep_later(bench, WEEK + HOUR, queue, *others)
    assert not orphan.exists()


@pytest.mark.parametrize("queue", ["in", "out"])
def test_an_orphan_that_a_claim_may_still_publish_is_kept(bench: "Bench", queue: str) -> None:
    feed(bench)
    name, claim = writing(bench)
    orphan = bench.put(f"out/.queuedriver/orphans/{name}")
    bench.put(f"in/{claim}")
    sweep_later(bench, 2 * WEEK, queue, *(["out"] if queue == "in" else []))
    assert orphan.exists()


def test_an_output_written_after_its_claim_ended_does_not_keep_the_queue_from_draining(
    bench: "Bench",
) -> None:
    feed(bench)
    name, _ = writing(bench)
    late = bench.put(f"out/{name}")
    sweep_later(bench, LATE - 60, "out")
    assert late.exists()
    sweep_later(bench, LATE + 60, "out")
    assert not late.exists()
    assert (bench.root / "out/.queuedriver/orphans" / name).exists()


@pytest.mark.parametrize("case", ["claimed", "stranger", "unreadable feed"])
def test_an_output_that_may_still_be_written_is_left_alone(bench: "Bench", case: str) -> None:
    feed(bench)
    name, claim = writing(bench, "stranger" if case == "stranger" else "d")
    late = bench.put(f"out/{name}")
    if case == "claimed":
        bench.put(f"in/{claim}")
    if case == "unreadable feed":
        bench.put("out/.queuedriver/feeds/2.json", b"{")
    sweep_later(bench, DAY - 60, "out")
    assert late.exists()
    sweep_later(bench, DAY + 60, "out")
    # A driver that does not register works for a day at most, or has a claim that can be seen.
    assert late.exists() == (case != "stranger")


def test_what_a_submitter_left_that_was_killed_goes_to_the_orphans_and_then_for_good(
    bench: "Bench",
) -> None:
    left = bench.put("in/.queuedriver/incoming/elsewhere-1-1-0a1b2c3d")
    sweep_later(bench, DAY - 60)
    assert left.exists()
    sweep_later(bench, DAY + 60)
    assert not left.exists()
    assert (bench.root / "in/.queuedriver/orphans" / left.name).exists()
    sweep_later(bench, WEEK + HOUR)
    assert os.listdir(bench.root / "in/.queuedriver/orphans") == []


# Journals


def test_journals_that_nobody_has_written_to_for_months_go(bench: "Bench") -> None:
    journal = "in/.queuedriver/journal"
    bench.directory("out")
    old = [
        left(bench, f"{journal}/{name}.jsonl", JOURNAL_KEPT + HOUR)
        for name in ("gone", "put-gone", "d.0605d3a1f2b0c0")
    ]
    young = left(bench, f"{journal}/d.jsonl", JOURNAL_KEPT - HOUR)
    sweep(bench)
    assert not any(one.exists() for one in old)
    assert young.exists()


def test_where_journals_take_too_much_the_oldest_go_but_none_of_the_last_week(
    bench: "Bench",
) -> None:
    bench.directory("out")
    ages = [JOURNAL_RECENT + days * DAY for days in (30, 20, -1, -2, -3, -4, 10)]
    files = [
        left(bench, f"in/.queuedriver/journal/d-{number}.jsonl", 0.0) for number in range(len(ages))
    ]
    for file, seconds in zip(files, ages, strict=True):
        # Holes: nothing is written.
        os.truncate(file, JOURNALS_MAX // 4)
        age(file, seconds)
    sweep(bench)
    # Seven quarters of what they may take: the three oldest go.
    assert [one.exists() for one in files] == [False, False, True, True, True, True, False]
    for file in files[4:6]:
        os.truncate(file, JOURNALS_MAX)
        age(file, JOURNAL_RECENT - HOUR)
    sweep(bench)
    assert all(one.exists() for one in files[2:6])


def test_what_cannot_be_swept_keeps_nobody_from_driving(bench: "Bench") -> None:
    bench.put("in/.queuedriver/journal")
    bench.put("in/.queuedriver/feeds", b"")
    bench.directory("out")
    sweep(bench)
