"""History is a ring of fixed size: what was written is read again, and where nobody wrote is a
gap."""

import os
import time
from contextlib import closing
from pathlib import Path

import pytest

from queuedriver.disk.filesystem import Directory
from queuedriver.driving.live_status import Counting
from queuedriver.driving.measurements import (
    BOUNDS,
    BUCKETS,
    CAUSES,
    Counted,
    Durations,
    quantile,
)
from tests.cli.pipelines import make, publish, report
from watchdogd.cli.pipeline_argument import choose
from watchdogd.operators import history
from watchdogd.operators.history import (
    COARSE,
    FINE,
    KEPT,
    SIZE,
    Sample,
    Writer,
    read,
    tidy,
)
from watchdogd.operators.hosts import Hosts, SeenHost
from watchdogd.operators.view import look, without_ended
from watchdogd.slurm.elements import Element, Facts

# A whole minute, long after the epoch.
START = 1_900_000_020.0


def durations(*seconds: float) -> Durations:
    counting = Counting()
    counting.took(seconds)
    return counting.counted.services


class Host:
    """A writer of one host, and what the drivers of its only stage have counted."""

    def __init__(self, root: Path, name: str = "rose") -> None:
        (root / ".watchdogd").mkdir(exist_ok=True)
        self.root, self.name = root, name
        self.writer, self.began_at = Writer(name), START
        self.documents, self.counted = 0, Counting()

    def turn(
        self, at: float, done: int = 0, failed: int = 0, took: float = 1.0, **more: int
    ) -> None:
        """Have so much happen until an instant, and be asked to write then."""
        self.documents += done
        self.counted.took([took] * done)
        self.counted.waited(took / 10, done + failed)
        for number in range(failed):
            self.counted.failed("exception", discarded=number % 2 > 0)
        if self.writer.is_due(at):
            with closing(Directory.open(self.root / ".watchdogd")) as control:
                sample = Sample(self.documents, self.counted.counted, **more)
                self.writer.write(control, {"parse": sample}, at, self.began_at)
            os.utime(self.ring, (at, at))

    @property
    def ring(self) -> Path:
        return self.root / ".watchdogd" / "history" / self.name / "parse.ring"


def test_what_was_written_is_read_again_with_its_rates_and_durations(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.turn(START)
    host.turn(START + 10, done=20, failed=10, took=3.0, waiting=7, working=2, drivers=4)
    before, moment = read(str(tmp_path), "parse", START, START + 10, FINE)
    assert before is None
    assert moment is not None
    assert (moment.at, moment.seconds) == (START + 10, 10.0)
    assert (moment.done, moment.failed, moment.discarded) == (2.0, 1.0, 0.5)
    assert (moment.waiting, moment.working, moment.drivers) == (7, 2, 4)
    # As near as their buckets tell: from 2.5 to 5, and from 0.25 to 0.5 seconds.
    assert moment.service(0.5) == pytest.approx(3.75)
    assert moment.service(0.95) == pytest.approx(4.875)
    assert moment.wait(0.5) == pytest.approx(0.375)


def test_nothing_done_is_a_zero_and_nobody_there_is_a_gap(tmp_path: Path) -> None:
    host = Host(tmp_path)
    for second in (0, 10, 20, 30):
        host.turn(START + second, waiting=3)
    # Another watchdog, of which nobody knows since when it counts.
    host.writer = Writer("rose")
    host.turn(START + 300)
    host.turn(START + 310, done=1)
    found = read(str(tmp_path), "parse", START + 10, START + 310, FINE)
    assert [one is None for one in found] == [False] * 3 + [True] * 27 + [False]
    assert all(one.done == 0 and one.wait(0.5) is None for one in found[:3] if one)


def test_counts_that_begin_anew_are_no_negative_rates(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.turn(START, done=500)
    host.turn(START + 10, done=500)
    host.documents, host.counted = 0, Counting()
    host.turn(START + 20, done=5)
    host.turn(START + 30, done=5)
    found = read(str(tmp_path), "parse", START + 10, START + 30, FINE)
    assert [one and one.done for one in found] == [50.0, None, 0.5]


def test_hosts_are_summed_and_what_waits_counts_once(tmp_path: Path) -> None:
    for name, done, took in (("rose", 10, 1.0), ("fern", 30, 100.0)):
        host = Host(tmp_path, name)
        host.turn(START)
        host.turn(START + 10, done=done, took=took, waiting=40, working=5, drivers=2)
    moment = read(str(tmp_path), "parse", START, START + 10, FINE)[-1]
    assert moment is not None
    assert (moment.done, moment.waiting, moment.working, moment.drivers) == (4.0, 40, 5, 4)
    # Of the four documents three took long.
    assert (moment.service(0.24) or 0) <= 1.0
    assert (moment.service(0.5) or 0) > 60.0


def test_watchdog_that_was_slow_leaves_no_gap_and_its_rate_is_right(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.turn(START)
    host.turn(START + 10, done=10)
    host.turn(START + 40, done=60)
    found = read(str(tmp_path), "parse", START + 10, START + 40, FINE)
    assert [one and one.done for one in found] == [1.0, 2.0, 2.0, 2.0]


def test_ring_keeps_its_size_and_the_latest_records(tmp_path: Path) -> None:
    host = Host(tmp_path)
    end = START + KEPT[FINE] * 2
    for second in range(0, KEPT[FINE] * 2 + 1, FINE):
        host.turn(START + second, done=second // 3600)
    assert host.ring.stat().st_size <= SIZE < 800_000
    found = read(str(tmp_path), "parse", end - KEPT[FINE] + FINE, end, FINE)
    assert len(found) == KEPT[FINE] / FINE
    assert [one and one.done for one in found[:-1:360]] == [0.6, 0.7, 0.8, 0.9, 1.0, 1.1]
    # What its place was taken of is not there, and not something else.
    older = read(str(tmp_path), "parse", START, end - KEPT[FINE] - FINE, FINE)
    assert set(older) == {None}
    by_minute = read(str(tmp_path), "parse", START + COARSE, end, COARSE)
    assert None not in by_minute


def test_day_of_one_stage_is_one_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it begins near the end of the ring."""
    host = Host(tmp_path)
    until = START + 10 * 86400
    host.began_at = until - 86400
    for second in range(0, 86401, COARSE):
        host.turn(until - 86400 + second, done=6)
    reads, pread = list[int](), os.pread

    def noted(fd: int, size: int, offset: int) -> bytes:
        reads.append(size)
        return pread(fd, size, offset)

    monkeypatch.setattr(os, "pread", noted)
    for shift in (0, 3600):
        found = read(str(tmp_path), "parse", until - 86400 + shift, until, COARSE)
        assert sum(one is not None for one in found) >= 1440 - shift // COARSE
    assert len(reads) == 2


@pytest.mark.parametrize("content", [b"", b"x" * 100, b"watchdogd history 9\n".ljust(64, b"\0")])
def test_file_that_is_no_ring_is_replaced(content: bytes, tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.ring.parent.mkdir(parents=True)
    host.ring.write_bytes(content)
    host.turn(START)
    host.turn(START + 10, done=1)
    assert read(str(tmp_path), "parse", START + 10, START + 10, FINE)[0] is not None


@pytest.mark.parametrize("data", [b"", b"\xff" * 5000, os.urandom(300_000)])
def test_ring_with_anything_in_it_is_read_without_an_error(data: bytes, tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.turn(START)
    with open(host.ring, "r+b") as file:
        file.seek(64)
        file.write(data)
    for step in (FINE, COARSE):
        assert len(read(str(tmp_path), "parse", START, START + 600, step)) == 600 // step + 1


def test_what_hosts_that_are_there_wrote_is_seen_however_many_others_once_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where each element of Slurm's was a host, thousands in a week."""
    file = make(tmp_path)
    publish(file, report())
    (tmp_path / "queues" / "values" / "doc.ready").touch()
    host, now = Host(tmp_path / "queues"), time.time()
    for second in range(-300, 1, 10):
        host.turn(now + second, waiting=1)
    monkeypatch.setattr(history, "_MOST_HOSTS", 0)
    view = look(choose(str(file)))
    (parse,) = [one for one in view.stages if one.name == "parse"]
    assert parse.outlook.kind == "stalled"
    assert any(rate is not None for rate in history.trends(view)["parse"])


def test_past_of_a_stage_is_that_of_the_hosts_that_wrote_then_however_many_did_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "_MOST_HOSTS", 2)
    for days, name in enumerate(("rose", "fern", *"abcdefgh")):
        host = Host(tmp_path, name)
        at = START - days * 86400
        host.began_at = at
        host.turn(at)
        host.turn(at + 60, done=6)
    _, found = read(str(tmp_path), "parse", START, START + 60, COARSE)
    assert found is not None
    assert found.done == pytest.approx(0.1)


def test_elements_that_have_ended_are_not_missed_and_what_they_wrote_is_seen() -> None:
    said = [report("rose"), report("4711_1", state="stopped"), report("4711_2", state="stopped")]
    seen = (SeenHost(one, "stopped" if one.state else "alive", here=False) for one in said)
    element = Element(name="4711_2", jobs=("4711_2",), host="4711_2", state="running")
    facts = Facts(elements=(element,))
    hosts = without_ended(Hosts(tuple(seen)), facts)
    assert [one.report.host for one in hosts.seen] == ["rose", "4711_2"]
    assert hosts.writers == ["rose", "4711_2", "4711_1"]


def test_where_nothing_was_ever_written_all_is_a_gap(tmp_path: Path) -> None:
    assert read(str(tmp_path), "parse", START, START + 30, FINE) == [None] * 4
    Host(tmp_path).turn(START)
    assert read(str(tmp_path), "other", START, START + 30, FINE) == [None] * 4
    (tmp_path / ".watchdogd" / "history" / "stray").touch()
    assert read(str(tmp_path), "parse", START + 30, START, FINE) == []


def test_ring_of_a_stage_that_is_no_more_is_removed_when_all_in_it_is_too_old(
    tmp_path: Path,
) -> None:
    host = Host(tmp_path)
    host.turn(START)
    strange = tmp_path / ".watchdogd" / "history" / "stray"
    strange.touch()
    written = host.ring.stat().st_mtime
    for days, left in ((7.5, True), (8.5, False)):
        with closing(Directory.open(tmp_path / ".watchdogd")) as control:
            tidy(control, written + days * 86400)
        assert host.ring.exists() == left
    assert strange.exists()


# Buckets


def test_quantile_lies_in_its_bucket() -> None:
    assert quantile(durations(0.06, 0.06, 0.3, 20.0).counts, 0.5) == pytest.approx(0.1)
    assert quantile(durations(*[0.06] * 99, 20.0).counts, 0.95) == pytest.approx(0.098, abs=0.001)
    assert quantile((0,) * BUCKETS, 0.5) is None
    # Longer than all bounds.
    assert quantile(durations(1e6).counts, 0.5) == BOUNDS[-1]


def test_duration_as_long_as_a_bound_is_within_it() -> None:
    """As in Prometheus: le."""
    assert durations(*BOUNDS).counts == (*[1] * len(BOUNDS), 0)
    assert durations(2.0, 0.5).total == 2_500_000_000


def test_failures_are_counted_by_their_causes_and_what_is_counted_can_be_summed() -> None:
    counting = Counting()
    counting.failed("hung", discarded=False)
    counting.failed("something new", discarded=True)
    counting.waited(0.3, 4)
    counting.took([2.0, 3.0])
    one = counting.counted
    assert dict(zip(CAUSES, one.failed, strict=True))["hung"] == 1
    assert (one.failed[-1], one.discarded[-1], sum(one.failed)) == (1, 1, 2)
    assert one.plus(one).minus(one) == one
    assert Counted.of(one.numbers) == one
    assert one.plus(one).waits.counts == durations(*[0.3] * 8).counts
