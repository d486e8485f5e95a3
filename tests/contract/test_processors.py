"""Every kind of processor keeps every promise: one document or a batch, durable or not."""

import json
import signal
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from queuedriver.claims.liveness import DRIVERS
from queuedriver.disk.runtime import note_ending
from queuedriver.driving.lifetime import LEAVING_TAKES
from queuedriver.format.names import PRIVATE
from queuedriver.operating.operations import resume
from queuedriver.operating.queue import Queue
from tests.contract.kinds import DIFFERENT, KINDS, Kind
from tests.contract.work import LARGE
from tests.disks import Disk
from tests.drivers import Ended, Running, Site
from tests.openings import registrations
from tests.waiting import until

# In the order in which they are listed, so that a batch has them all.
DOCUMENTS = 5
BATCH = 4
ONE = ("out",)
SEVERAL = ("left", "right")
NONE: tuple[str, ...] = ()


class Case(NamedTuple):
    """One kind, driven in one way."""

    kind: Kind
    batch: int = 1
    durable: bool = False
    outputs: Sequence[str] = ONE

    def __str__(self) -> str:
        words = [self.kind.name, "batch" if self.batch > 1 else "single"]
        words += ["durable"] if self.durable else []
        words += {SEVERAL: ["several"], NONE: ["none"]}.get(tuple(self.outputs), [])
        return "-".join(words)


CASES = [
    Case(kind, batch, durable, outputs)
    for kind in KINDS
    for batch in (1, BATCH)
    for durable in (False, True)
    for outputs in (ONE, SEVERAL, NONE)
]
# Of what does not depend on how many outputs there are, nor on syncs.
PLAIN = [Case(kind, batch) for kind in KINDS for batch in (1, BATCH)]
every_case = pytest.mark.parametrize("case", CASES, ids=str)
plain_case = pytest.mark.parametrize("case", PLAIN, ids=str)


def submit(site: Site, *first: str, copies: int = DOCUMENTS) -> list[str]:
    """Submit what goes wrong, and innocents beside it; return the innocents."""
    innocents = [f"good{number}" for number in range(copies)]
    for docid in innocents:
        site.submit(docid, content=f"copy text of {docid}".encode())
    for words in first:
        site.submit(words.split()[0], content=f"{words} text".encode())
    return innocents


def start(site: Site, case: Case, **options: Any) -> Running:
    options.setdefault("no_output", not case.outputs)
    return site.start(
        case.kind.make(case.batch > 1, case.outputs),
        outputs=" ".join(case.outputs),
        batch=case.batch,
        durable=case.durable,
        **options,
    )


def drive(site: Site, case: Case, **options: Any) -> Ended:
    return start(site, case, drain=True, **options).ended()


def assert_published(site: Site, case: Case, docids: Sequence[str]) -> None:
    """Each is in every output once, byte for byte, and nothing else is."""
    for queue in case.outputs:
        expected = {f"{docid}.ready": f"TEXT OF {docid.upper()}".encode() for docid in docids}
        assert site.files(queue) == expected


def state_of_driver(site: Site) -> str:
    """Return what the one driver says that it does; empty before it has registered."""
    with Queue.open(site.queue()) as queue:
        return next((one.state for one in registrations(queue)), "")


@every_case
def test_each_document_is_published_once_and_byte_for_byte(site: Site, case: Case) -> None:
    docids = submit(site)
    ended = drive(site, case)
    assert (ended.exit_code, ended.counters.documents, ended.counters.failed) == (0, DOCUMENTS, 0)
    assert_published(site, case, docids)
    assert site.states() == {}
    for docid in docids:
        last = site.events(docid)[-1]
        assert last.event == ("published" if case.outputs else "finished")
        assert len(last.outputs or ()) == len(case.outputs)


@every_case
def test_a_failure_is_charged_to_its_document_alone(site: Site, case: Case) -> None:
    docids = submit(site, "fail")
    ended = drive(site, case)
    assert_published(site, case, docids)
    assert site.discarded() == ["fail"]
    assert [one.attempt for one in site.report("fail").attempts] == [0, 1]
    counters = ended.counters
    assert (counters.documents, counters.failed, counters.discarded) == (DOCUMENTS, 2, 1)
    assert [one.event for one in site.events("fail")] == ["failed", "discarded"]
    assert ended.exit_code == 1


@plain_case
def test_what_failed_once_may_succeed_at_its_second_attempt(site: Site, case: Case) -> None:
    submit(site, "once-fail", copies=0)
    assert drive(site, case).exit_code == 0
    assert site.files() == {"once-fail.ready": b"TEXT"}


@plain_case
def test_a_permanent_error_discards_at_once(site: Site, case: Case) -> None:
    docids = submit(site, "permanent")
    ended = drive(site, case)
    assert_published(site, case, docids)
    assert [one.attempt for one in site.report("permanent").attempts] == [0]
    assert (ended.counters.failed, ended.counters.discarded) == (1, 1)


@plain_case
def test_what_is_to_be_tried_later_is_charged_nothing(site: Site, case: Case) -> None:
    docids = submit(site, "later")
    ended = drive(site, case)
    assert_published(site, case, docids)
    assert site.states() == {"later": "later"}
    assert (ended.exit_code, ended.counters.failed) == (75, 0)


@plain_case
def test_a_soft_time_out_is_charged_to_the_slow_document_alone(site: Site, case: Case) -> None:
    docids = submit(site, "slow")
    drive(site, case, timeout=1.0)
    assert_published(site, case, docids)
    assert [one.failure.cause for one in site.report("slow").attempts] == ["timeout", "timeout"]


@plain_case
def test_a_deaf_document_is_ended_and_charged_alone(site: Site, case: Case) -> None:
    docids = submit(site, "deaf")
    ends_driver = (case.kind.name, "deaf") in DIFFERENT
    for _ in range(3 if ends_driver else 1):
        drive(site, case, timeout=1.0, hard_after=0.3)
    assert_published(site, case, docids)
    causes = [one.failure.cause for one in site.report("deaf").attempts if one.counted]
    assert causes == ["hung" if ends_driver else "timeout"] * 2


@plain_case
def test_a_document_that_ends_its_process_is_charged_and_no_other(site: Site, case: Case) -> None:
    docids = submit(site, "die")
    ends_driver = (case.kind.name, "die") in DIFFERENT
    for _ in range(3 if ends_driver else 1):
        drive(site, case)
    assert_published(site, case, docids)
    assert site.discarded() == ["die"]


@plain_case
def test_a_stage_whose_documents_fail_for_one_cause_stops_and_goes_on_when_it_is_told(
    site: Site, case: Case
) -> None:
    docids = [f"doc{number}" for number in range(8)]
    site.submit(*docids, content=b"fail text")
    for _ in range(2):
        ended = drive(site, case, trip_after=3)
        assert (ended.word, ended.exit_code) == ("tripped", 75)
        assert "3 documents in a row failed for one cause" in ended.why
        assert sorted(site.states().values()) == ["failed 1"] * 3 + ["ready"] * 5
    with Queue.open(site.queue()) as queue:
        resume(queue)
    assert drive(site, case, trip_after=0).word == "drained"
    assert site.discarded() == docids


# Nobody is charged who is not at fault


@plain_case
def test_a_document_that_the_driver_had_to_leave_is_charged_nothing(site: Site, case: Case) -> None:
    submit(site, "wait", copies=0)
    running = start(site, case)
    site.wait_at("wait")
    running.hurry()
    assert running.ended().word == "quit"
    assert site.states() == {"wait": "ready"}
    site.open_gate()
    assert drive(site, case).exit_code == 0
    assert site.files() == {"wait.ready": b"TEXT"}


@plain_case
def test_a_document_in_hand_is_finished_within_the_grace(site: Site, case: Case) -> None:
    submit(site, "wait", copies=0)
    running = start(site, case)
    site.wait_at("wait")
    running.signal()
    site.open_gate()
    assert running.ended().word == "quit"
    assert site.files() == {"wait.ready": b"TEXT"}


@plain_case
def test_a_document_that_is_not_done_when_its_driver_must_be_gone_is_charged_nothing(
    site: Site, case: Case
) -> None:
    submit(site, "wait", copies=0)
    # Of no document is known how long it takes: more than the grace must be left to claim one.
    running = start(site, case, until=time.time() + LEAVING_TAKES + 5.0, grace=0.1)
    site.wait_at("wait")
    left = running.ended()
    assert (left.word, left.exit_code, left.counters.failed) == ("out-of-time", 0, 0)
    assert site.states() == {"wait": "ready"}
    site.open_gate()
    assert drive(site, case).exit_code == 0
    assert site.files() == {"wait.ready": b"TEXT"}


@plain_case
def test_a_document_whose_driver_is_killed_while_it_leaves_is_charged_nothing(
    site: Site, case: Case
) -> None:
    submit(site, "wait", copies=0)
    # More often than what may be a document's fault is forgiven.
    for _ in range(4):
        (site.root / "at-wait").unlink(missing_ok=True)
        running = start(site, case, driver="d")
        site.wait_at("wait")
        running.signal()
        until(lambda: site.registration("d").leaving, "it has told that it is to leave")
        running.kill()
    site.open_gate()
    assert drive(site, case, driver="d").exit_code == 0
    assert site.files() == {"wait.ready": b"TEXT"}
    assert [one.event for one in site.events("wait")] == ["released"] * 4 + ["published"]


@plain_case
def test_a_document_of_a_host_that_is_gone_is_charged_nothing(site: Site, case: Case) -> None:
    submit(site, "wait", copies=0)
    running = start(site, case, driver="gone")
    site.wait_at("wait")
    running.kill()
    claim_elsewhere(site, "gone", lease=0.5)
    site.open_gate()
    assert drive(site, case).exit_code == 0
    assert site.files() == {"wait.ready": b"TEXT"}
    assert [one.event for one in site.events("wait")] == ["released", "published"]


@plain_case
def test_a_document_whose_driver_its_watchdog_ended_gets_a_strike_and_the_third_is_charged(
    site: Site, case: Case
) -> None:
    for life in range(3):
        # A time-out, so that there is a file in which the watchdog says why it ended the driver.
        submit(site, "wait", copies=0) if life == 0 else None
        (site.root / "at-wait").unlink(missing_ok=True)
        running = start(site, case, driver="d", timeout=300.0)
        site.wait_at("wait")
        note_ending(site.registration("d").dump, "ended", "it was stopped for the test")
        running.kill()
    start(site, case, driver="d", timeout=300.0)
    until(lambda: site.states().get("wait", "").endswith("1"), "the third strike is charged")
    site.open_gate()
    until(lambda: site.files() == {"wait.ready": b"TEXT"}, "it is done")


@plain_case
def test_a_document_in_trouble_waits_for_its_file_system_and_is_charged_nothing(
    site: Site, case: Case
) -> None:
    docids = submit(site, "wait")
    running = start(site, case)
    site.wait_at("wait")
    (site.root / "out").rename(site.root / "moved")
    site.open_gate()
    until(lambda: not site.items() or state_of_driver(site) == "waiting-fs", "it is noticed")
    running.signal()
    running.ended()
    drive(site, case)
    assert site.discarded() == []
    found = {**site.files("moved"), **site.files("out")}
    assert sorted(found) == sorted(f"{docid}.ready" for docid in [*docids, "wait"])


@plain_case
def test_a_driver_that_was_killed_takes_its_programs_along(site: Site, case: Case) -> None:
    submit(site, "wait", copies=0)
    running = start(site, case)
    site.wait_at("wait")
    running.kill()
    site.open_gate()
    assert drive(site, case).exit_code == 0
    assert site.files() == {"wait.ready": b"TEXT"}
    # The death itself is charged: nobody can tell who brought it about.
    assert [one.event for one in site.events("wait")][-1] == "published"


def claim_elsewhere(site: Site, driver: str, lease: float) -> None:
    """Make a driver's registration say that it runs on another host, whose beats come seldom."""
    path = site.root / "in" / PRIVATE / DRIVERS / f"{driver}.json"
    said = json.loads(path.read_text())
    said["identity"] |= {"host": "elsewhere", "machine": "another", "boot": "another"}
    path.write_text(json.dumps({**said, "lease": lease}))


@plain_case
def test_a_driver_that_was_given_up_wrongly_publishes_nothing_and_costs_nothing(
    site: Site, case: Case
) -> None:
    submit(site, "wait", copies=0)
    asleep = start(site, case, driver="asleep")
    site.wait_at("wait")
    asleep.stop()
    claim_elsewhere(site, "asleep", lease=0.5)
    site.open_gate()
    awake = start(site, case, driver="awake")
    until(lambda: site.files() == {"wait.ready": b"TEXT"}, "another driver has done it")
    asleep.signal(signal.SIGCONT)
    until(lambda: any(one.event == "revoked" for one in site.events("wait")), "it is told")
    for running in (asleep, awake):
        running.signal()
        left = running.ended()
        assert (left.counters.failed, left.counters.discarded) == (0, 0)
        assert left.counters.documents == (1 if running is awake else 0)
    assert site.files() == {"wait.ready": b"TEXT"}
    assert site.items() == []


@plain_case
def test_a_full_disk_charges_nobody_and_work_goes_on_when_there_is_room(
    tmp_path: Path, case: Case
) -> None:
    with closing(Disk(tmp_path / "disk", "size=8m")) as disk, Site(disk.path) as site:
        site.queue()
        (disk.path / "filler-0").write_bytes(bytes(5 << 20))
        submit(site, "large", copies=0)
        running = start(site, case, driver="d")
        until(lambda: state_of_driver(site) == "waiting-fs", "it waits for room")
        disk.empty()
        until(lambda: "large.ready" in site.files(), "it goes on")
        running.signal()
        left = running.ended()
        assert (left.counters.failed, left.counters.documents) == (0, 1)
        assert len(site.files()["large.ready"]) == LARGE
        assert site.discarded() == []


# Limits and what is refused


@plain_case
def test_a_full_output_stops_a_batch_as_it_stops_single_documents(site: Site, case: Case) -> None:
    submit(site)
    running = start(site, case, max_output_items=2)
    until(lambda: len(site.files()) >= 2, "the limit is reached")
    until(lambda: state_of_driver(site) == "blocked", "it is blocked")
    assert len(site.files()) == 2
    running.signal(signal.SIGTERM)
    running.ended()
    assert len(site.items()) == DOCUMENTS - 2


@plain_case
def test_work_without_an_output_is_refused_and_charged_to_nobody(site: Site, case: Case) -> None:
    submit(site)
    late = (case.kind.name, "silent") in DIFFERENT
    for _ in range(2):
        # Nobody has said that there is to be no output.
        does = case.kind.make(case.batch > 1, ONE)
        ended = site.drive(does, outputs="", batch=case.batch, durable=case.durable)
        assert (ended.word, ended.exit_code) == ("failed", 78 if late else 2)
        assert "--to" in ended.why
    assert set(site.states().values()) == {"ready"}
    assert ended.counters.failed == 0
    for docid in site.states():
        assert {one.event for one in site.events(docid)} <= ({"released"} if late else set())


def test_a_function_that_answers_nothing_needs_no_output(site: Site) -> None:
    submit(site)
    assert site.drive(KINDS[0].make(PLAIN[0].batch > 1, NONE), outputs="").exit_code == 0
    assert site.states() == {}
