"""What processes that were killed left goes when a driver starts, and nothing else does."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from queuedriver.claims import sweeping
from queuedriver.claims.attempts import Attempts
from queuedriver.claims.sweeping import (
    CLAIM_KEPT,
    JOURNAL_KEPT,
    JOURNAL_RECENT,
    JOURNALS_MAX,
    SCRAP_KEPT,
)
from queuedriver.disk.filesystem import Directory
from queuedriver.driving.driver import Driver
from queuedriver.format import names
from queuedriver.options import Options
from tests.unit.format.test_records import an_attempt

if TYPE_CHECKING:
    from tests.conftest import Bench

HOUR = 3600.0
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
    sweeping.sweep(bench.directory("in"), [bench.directory("out")])


@pytest.mark.parametrize("scrap", [SCRAP, ".probe-4711"])
def test_a_start_removes_what_was_begun_long_ago_and_leaves_what_may_be_in_work(
    bench: "Bench", scrap: str
) -> None:
    old = [left(bench, f"{place}/{scrap}", SCRAP_KEPT + HOUR) for place in PLACES]
    young = [left(bench, f"{place}/{scrap}1", SCRAP_KEPT - HOUR) for place in PLACES]
    Driver(bench.root / "in", len, bench.root / "out", id="d", options=Options(drain=True)).run()
    assert not any(one.exists() for one in old)
    assert all(one.exists() for one in young)


def test_a_sweep_removes_nothing_else_however_old(bench: "Bench") -> None:
    files = ["doc.ready", "notes.txt", ".hidden", ".asides", "discarded/doc"]
    inside = ["settings.json", "drivers/d.json", "attempts/doc.7.failed.json", "incoming/h-1-1-00"]
    kept = [
        left(bench, path, 1000 * SCRAP_KEPT)
        for path in (
            *(f"in/{name}" for name in files),
            *(f"in/.queuedriver/{name}" for name in inside),
            "in/.queuedriver/journal/notes.txt",
            "out/x.d-0605d3a1f2b0c05a17.writing",
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
    old = [left(bench, plan_of(bench.token()), CLAIM_KEPT + HOUR) for _ in range(2)]
    young = left(bench, plan_of(bench.token()), CLAIM_KEPT - HOUR)
    # Nobody has come by since to finish, or to take back.
    held = []
    for form in (names.working_name, names.written_name):
        token = bench.token()
        left(bench, f"in/{form('doc', 1, token)}", 2 * CLAIM_KEPT)
        held.append(left(bench, plan_of(token), 2 * CLAIM_KEPT))
    sweep(bench)
    assert not any(one.exists() for one in old)
    assert all(one.exists() for one in (young, *held))


def noted(bench: "Bench", docid: str, inode: int = 7, seconds: float = CLAIM_KEPT + HOUR) -> Path:
    """The report of a document that somebody began to discard."""
    directory = bench.directory("in/.queuedriver/attempts")
    attempts = Attempts(directory, bench.directory("in/discarded"))
    attempt = an_attempt(docid, bench.token())
    file = attempts.note(docid, inode, attempt, discarded_from="in").file
    path = bench.root / "in/.queuedriver/attempts" / str(file)
    age(path, seconds)
    return path


def test_a_report_goes_after_a_week_if_its_document_was_not_discarded(bench: "Bench") -> None:
    bench.directory("out")
    old = noted(bench, "elsewhere")
    bench.put("in/discarded/reported")
    bench.put("in/discarded/reported.report.json", b"its reason")
    reported = noted(bench, "reported")
    young = noted(bench, "elsewhere", 8, CLAIM_KEPT - HOUR)
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


class Distant(Directory):
    """On a host whose clock is wrong by days."""

    def write_new(self, name: str, data: bytes) -> None:
        super().write_new(name, data)
        age(Path(self.path, name), 3 * SCRAP_KEPT)


@contextmanager
def distant(bench: "Bench") -> Iterator[Directory]:
    directory = Distant.open(bench.directory("in").path)
    yield directory
    directory.close()


def test_how_old_a_file_is_its_own_file_system_says(bench: "Bench") -> None:
    young = left(bench, f"in/{SCRAP}", 3 * SCRAP_KEPT + HOUR)
    old = left(bench, f"in/{SCRAP}2", 4 * SCRAP_KEPT + HOUR)
    with distant(bench) as directory:
        sweeping.sweep_scraps(directory)
    assert (young.exists(), old.exists()) == (True, False)
    assert [name for name in os.listdir(bench.root / "in") if name.startswith(".probe-")] == []


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
    ages = [JOURNAL_RECENT + days * SCRAP_KEPT for days in (30, 20, -1, -2, -3, -4, 10)]
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
