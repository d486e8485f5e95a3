"""Drivers that die, and who notices."""

import signal
from collections.abc import Callable

import pytest

from queuedriver.disk.processes import process_ticks
from queuedriver.operating import operations
from queuedriver.operating.queue import Queue
from tests.drivers import Ended, Site
from tests.processors import count, gate, judge
from tests.waiting import until


def test_an_id_that_somebody_alive_has_is_refused_and_its_holder_named(site: Site) -> None:
    site.submit("one")
    holder = site.start(gate, driver="same")
    site.wait_at("one")
    refused = site.drive(driver="same")
    assert refused.exit_code == 69
    assert f"process {holder.pid} on " in refused.why
    assert "choose another --id" in refused.why
    site.open_gate()
    until(lambda: site.files() == {"one.ready": b"SOME TEXT"}, "the holder goes on")


def test_the_id_of_a_dead_driver_is_free(site: Site) -> None:
    site.submit("one")
    dead = site.start(gate, driver="same")
    site.wait_at("one")
    dead.kill()
    assert site.drive(driver="same").exit_code == 0


def test_drivers_without_an_id_find_one_each(site: Site) -> None:
    site.submit("one", "two", "three")
    for _ in range(3):
        site.start(gate)
    for docid in ("one", "two", "three"):
        site.wait_at(docid)
    assert len({item.token.rpartition("-")[0] for item in site.items()}) == 3
    site.open_gate()
    until(lambda: len(site.files()) == 3, "each hands over its document")


def by_its_own_restart(site: Site) -> Ended:
    return site.drive(count, driver="first")


def by_another_driver(site: Site) -> Ended:
    return site.drive(count, driver="second")


def by_recover(site: Site) -> Ended:
    with Queue.open(site.queue()) as queue, operations.journal_of(queue) as journal:
        (event,) = operations.recover(queue, journal).events
    assert (event.event, event.docid) == ("failed", "one")
    assert site.states() == {"one": "failed 1"}
    return site.drive(count, driver="second")


@pytest.mark.quick
@pytest.mark.parametrize("found", [by_its_own_restart, by_another_driver, by_recover])
def test_item_of_a_dead_driver_is_offered_again_with_its_attempt_counted(
    site: Site, found: Callable[[Site], Ended]
) -> None:
    site.submit("one")
    first = site.start(gate, driver="first")
    site.wait_at("one")
    first.kill()
    assert site.states() == {"one": "working"}
    assert found(site).exit_code == 0
    assert site.files() == {"one.ready": b"attempt 1"}
    assert site.items() == []
    failed = next(event for event in site.events("one") if event.event == "failed")
    assert failed.message == "the driver's process ended while it had the document"


def test_a_driver_that_waits_notices_the_death_of_another(site: Site) -> None:
    site.submit("one")
    first = site.start(gate, driver="first")
    site.wait_at("one")
    site.start(count, driver="second")
    until(lambda: "second" in site.drivers(), "the second one has registered")
    first.kill()
    until(lambda: site.files() == {"one.ready": b"attempt 1"}, "the second one has taken over")


def test_a_document_that_ends_its_driver_is_set_aside_and_takes_no_other_along(site: Site) -> None:
    innocent = [f"doc-{number}" for number in range(20)]
    site.submit("poison", *innocent)
    ends = [site.drive(judge, driver="d").exit_code for _ in range(3)]
    assert ends == [-signal.SIGKILL, -signal.SIGKILL, 0]
    assert site.files() == {f"{docid}.ready": b"attempt 0" for docid in innocent}
    assert site.discarded() == ["poison"]
    report = site.report("poison")
    assert report.failure.cause == "crashed"
    assert [(one.attempt, one.failure.cause) for one in report.attempts] == [
        (0, "crashed"),
        (1, "crashed"),
    ]
    assert all(one.ended_at >= one.claimed_at for one in report.attempts)


def test_a_command_does_not_outlive_its_dead_driver_beyond_recovery(site: Site) -> None:
    site.submit("one")
    pid_file = site.root / "pid"
    script = f"echo $$ > {pid_file}.new; mv {pid_file}.new {pid_file}; exec sleep 600"
    first = site.start(["sh", "-c", script], driver="first")
    until(pid_file.exists, "the command runs")
    pid = int(pid_file.read_text())
    first.kill()
    assert process_ticks(pid) is not None
    assert site.drive(count, driver="second").exit_code == 0
    assert process_ticks(pid) is None
    assert site.files() == {"one.ready": b"attempt 1"}


def test_an_unfinished_output_of_a_dead_driver_is_kept_aside_and_never_seen(site: Site) -> None:
    site.submit("one")
    begun = site.root / "begun"
    # It writes half of its output and waits.
    script = f"echo half; touch {begun}; exec sleep 600"
    first = site.start(["sh", "-c", script], driver="first")
    until(begun.exists, "the command runs")
    first.kill()
    assert site.states("out") == {"one": "writing"}
    assert site.drive(count, driver="second").exit_code == 0
    assert site.files() == {"one.ready": b"attempt 1"}
    (orphan,) = (site.root / "out/.queuedriver/orphans").iterdir()
    assert orphan.read_bytes() == b"half\n"


def test_a_drain_ends_where_a_claim_cannot_be_recovered_and_says_what_to_type(site: Site) -> None:
    site.submit("one")
    dead = site.start(gate, driver="first")
    site.wait_at("one")
    dead.kill()
    # A power cut without durability may leave a commit whose plan is empty.
    (claim,) = (site.root / "in").glob("*.working")
    written = claim.rename(claim.with_suffix(".written"))
    token = claim.name.split(".")[1]
    (site.root / f"in/.queuedriver/claims/{token}.json").write_bytes(b"")
    ended = site.drive(count, driver="second")
    assert (ended.exit_code, ended.word) == (75, "blocked")
    assert ended.why == "1 claim cannot be recovered: run queuedriver check"
    assert written.exists()
