"""A driver's loop over real queues: what it takes, in which order, when it waits, how it leaves."""

import importlib
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from queuedriver.claims import liveness
from queuedriver.driving.closing import FED
from queuedriver.driving.driver import Driver
from queuedriver.format import names
from queuedriver.operating.queue import Queue
from queuedriver.operating.queue_view import overview
from queuedriver.options import Options
from queuedriver.processors.call import load
from tests.drivers import Ended, Site
from tests.processors import count, doze, gate, judge, record, record_at_gate, shout, sort
from tests.waiting import PATIENCE, until

# Seconds: a busy driver looks for control files less often than that.
GLANCE = 0.15


def control(site: Site, name: str, wanted: bool = True) -> None:
    with Queue.open(site.queue()) as queue:
        queue.set_control(name, wanted=wanted)


# Drain, done, later


@pytest.mark.quick
def test_a_drained_driver_leaves_with_0(site: Site) -> None:
    site.submit("one", "two")
    assert site.drive()[:2] == (0, "drained")
    assert site.files() == {"one.ready": b"SOME TEXT", "two.ready": b"SOME TEXT"}
    assert site.items() == []


def test_a_drained_driver_that_gave_a_document_up_leaves_with_1(site: Site) -> None:
    site.submit("bad", "good")
    ended = site.drive(judge)
    assert ended.exit_code == 1
    assert (ended.counters.documents, ended.counters.failed, ended.counters.discarded) == (1, 2, 1)
    report = site.report("bad")
    assert (report.failure.cause, report.failure.message) == (
        "exception",
        "ValueError: this one never works",
    )
    assert report.failure.traceback is not None
    assert "tests/processors.py" in report.failure.traceback
    assert len(report.attempts) == 2


def test_a_permanent_error_is_not_tried_again(site: Site) -> None:
    site.submit("hopeless")
    site.drive(judge)
    assert [one.failure.cause for one in site.report("hopeless").attempts] == ["permanent"]


def test_a_driver_of_a_queue_that_is_done_leaves_when_it_is_drained(site: Site) -> None:
    site.submit("one")
    driver = site.start(gate)
    site.wait_at("one")
    control(site, names.DONE)
    site.open_gate()
    assert driver.ended()[:2] == (0, "done")
    # What it fed is done, too.
    assert site.files() == {"one.ready": b"SOME TEXT", "done": FED}


def test_what_is_not_due_is_left_by_who_drains(site: Site) -> None:
    site.submit("later", "good")
    assert site.drive(judge)[:2] == (75, "later")
    assert site.states() == {"later": "later"}
    assert [event.event for event in site.events("later")] == ["later"]


def test_what_is_postponed_is_processed_when_it_is_due_and_not_before(site: Site) -> None:
    due = int(time.time()) + 2
    with Queue.open(site.queue()) as queue:
        queue.submit("one", b"some text", due=due)
    site.start(shout)
    until(site.files, "it is due")
    assert time.time() >= due


# Control files


def test_a_paused_queue_is_left_alone_until_it_goes_on(site: Site) -> None:
    control(site, names.PAUSE)
    site.submit("one")
    driver = site.start(shout, driver="d", drain=True)
    until(lambda: "d" in site.drivers(), "it runs")
    # There is no fact to wait for: nothing must happen.
    time.sleep(0.3)
    assert driver.alive
    assert site.states() == {"one": "ready"}
    control(site, names.PAUSE, wanted=False)
    assert driver.ended().word == "drained"
    assert site.files() == {"one.ready": b"SOME TEXT"}


def test_a_queue_is_paused_between_two_documents(site: Site) -> None:
    site.submit("one")
    driver = site.start(gate)
    site.wait_at("one")
    site.submit("two")
    control(site, names.PAUSE)
    time.sleep(GLANCE)
    site.open_gate()
    until(lambda: site.states() == {"two": "ready"}, "the document at hand is finished")
    assert site.files() == {"one.ready": b"SOME TEXT"}
    # There is no fact to wait for: nothing must happen.
    time.sleep(0.3)
    assert site.states() == {"two": "ready"}
    # Leaving ranks before pausing.
    driver.signal()
    assert driver.ended()[:2] == (0, "quit")


def test_a_driver_goes_on_with_the_inputs_that_are_not_paused(site: Site) -> None:
    control(site, names.PAUSE)
    site.submit("held")
    site.submit("other", queue="more")
    driver = site.start(inputs="in more", drain=True)
    until(site.files, "what is not paused is done")
    # There is no fact to wait for: nothing must happen.
    time.sleep(0.3)
    assert driver.alive
    assert site.states() == {"held": "ready"}
    control(site, names.PAUSE, wanted=False)
    assert driver.ended().word == "drained"
    assert sorted(site.files()) == ["held.ready", "other.ready"]


def test_a_quit_file_makes_drivers_leave_after_the_document_at_hand(site: Site) -> None:
    site.submit("one")
    driver = site.start(gate)
    site.wait_at("one")
    site.submit("two")
    control(site, names.QUIT)
    time.sleep(GLANCE)
    site.open_gate()
    ended = driver.ended()
    assert ended[:3] == (0, "quit", "there is a QUIT file")
    assert site.files() == {"one.ready": b"SOME TEXT"}
    assert site.states() == {"two": "ready"}


# Signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_driver_that_is_asked_to_leave_finishes_its_document(
    site: Site, number: signal.Signals
) -> None:
    site.submit("one")
    driver = site.start(gate, driver="d")
    site.wait_at("one")
    site.submit("two")
    driver.signal(number)
    site.open_gate()
    assert driver.ended()[:2] == (0, "quit")
    assert site.files() == {"one.ready": b"SOME TEXT"}
    assert site.states() == {"two": "ready"}
    assert site.registration("d").last_word == "quit"


def test_a_driver_that_waits_leaves_at_once(site: Site) -> None:
    site.submit("one")
    driver = site.start(shout)
    until(site.files, "it has nothing to do")
    driver.signal()
    assert driver.ended().exit_code == 0


def test_a_hang_up_is_a_wish_for_a_new_start(site: Site) -> None:
    site.submit("one")
    driver = site.start(shout)
    until(site.files, "it runs")
    driver.signal(signal.SIGHUP)
    assert driver.ended()[:2] == (0, "reload")


def test_after_its_grace_the_document_is_given_back_uncounted(site: Site) -> None:
    site.submit("one")
    driver = site.start(gate, grace=0.2)
    site.wait_at("one")
    driver.signal()
    assert driver.ended().exit_code == 0
    assert site.states() == {"one": "ready"}
    assert [event.event for event in site.events("one")] == ["released"]
    assert site.drive(count).exit_code == 0
    assert site.files() == {"one.ready": b"attempt 0"}


def test_a_second_signal_gives_the_document_back_at_once(site: Site) -> None:
    site.submit("one")
    driver = site.start(gate)
    site.wait_at("one")
    driver.hurry()
    assert driver.ended().exit_code == 0
    assert site.states() == {"one": "ready"}


# Several queues


def test_the_first_queue_that_has_something_comes_first(site: Site) -> None:
    site.submit("a", "b", "c", queue="normal")
    site.submit("x", "y", "z", queue="urgent")
    site.drive(record, inputs="urgent normal", outputs="")
    order = (site.root / "order").read_text().split()
    assert [one.partition("/")[0] for one in order] == ["urgent"] * 3 + ["normal"] * 3


def test_what_is_urgent_overtakes_what_waits_already(site: Site) -> None:
    site.submit(*(f"doc-{number:02}" for number in range(40)), queue="normal")
    site.queue("urgent")
    driver = site.start(record_at_gate, inputs="urgent normal", outputs="", drain=True)
    until((site.root / "order").exists, "it has begun")
    site.submit("now", queue="urgent")
    site.open_gate()
    assert driver.ended().exit_code == 0
    order = (site.root / "order").read_text().split()
    assert len(order) == 41
    assert order.index("urgent/now") < 40


def test_outputs_go_to_the_queues_that_the_processor_names(site: Site) -> None:
    site.submit("a-left", "b-right", "c-left-right", "d")
    ended = site.drive(sort, outputs="left right")
    assert (ended.exit_code, ended.counters.documents) == (0, 4)
    assert sorted(site.files("left")) == ["a-left.ready", "c-left-right.ready"]
    assert sorted(site.files("right")) == ["b-right.ready", "c-left-right.ready"]
    assert site.items() == []


@pytest.mark.parametrize("order", ["age", "name"])
def test_documents_are_tried_in_the_order_that_was_asked_for(site: Site, order: str) -> None:
    for age, docid in enumerate(("b", "d", "a", "c")):
        site.submit(docid)
        os.utime(site.queue() / f"{docid}.ready", (0, 1000 - age))
    site.drive(record, outputs="", order=order)
    tried = (site.root / "order").read_text().split()
    wanted = "abcd" if order == "name" else "cadb"
    assert tried == [f"in/{docid}" for docid in wanted]


def test_several_drivers_share_a_queue_without_losing_races(site: Site) -> None:
    docids = [f"doc-{number}" for number in range(300)]
    site.submit(*docids)
    drivers = [site.start(gate, drain=True) for _ in range(4)]
    # Who starts late is to find something, too.
    until(lambda: len(list(site.root.glob("at-*"))) == 4, "each has one in its hands")
    site.open_gate()
    counters = [driver.ended().counters for driver in drivers]
    assert sum(one.documents for one in counters) == 300
    assert all(one.documents for one in counters)
    assert sorted(site.files()) == sorted(f"{docid}.ready" for docid in docids)


# Names of what is published


@pytest.mark.parametrize(
    ("publish", "final"),
    [
        ("{docid}.ready", "scan.pdf.ready"),
        ("{docid}.xml.ready", "scan.pdf.xml.ready"),
        ("{stem}.txt.ready", "scan.txt.ready"),
        ("{docid}.xml", "scan.pdf.xml"),
    ],
)
def test_outputs_get_the_names_that_were_asked_for(site: Site, publish: str, final: str) -> None:
    site.submit("scan.pdf")
    site.drive(publish=publish)
    assert site.files() == {final: b"SOME TEXT"}


def test_of_two_outputs_of_one_name_both_are_kept(site: Site) -> None:
    for content in (b"first", b"second"):
        site.submit("one", content=content)
        site.drive()
    assert sorted(site.files().values()) == [b"FIRST", b"SECOND"]


def test_the_newer_output_stays_where_that_was_chosen(site: Site) -> None:
    for content in (b"first", b"second"):
        site.submit("one", content=content)
        site.drive(existing="replace")
    assert site.files() == {"one.ready": b"SECOND"}


def test_finished_inputs_go_to_the_archive(site: Site) -> None:
    site.submit("one", "bad")
    site.drive(judge, archive=str(site.root / "old"))
    assert site.files("old") == {"one": b"some text"}
    assert site.discarded() == ["bad"]


# Plug-ins, counters


def test_a_processor_may_be_a_plug_in(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site/echo_plug_in-1.0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: echo-plug-in\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(
        "[queuedriver.processors]\nshouting = tests.processors:shout\n"
    )
    monkeypatch.setattr(sys, "path", [str(package.parent), *sys.path])
    importlib.invalidate_caches()
    site.submit("one")
    left = Driver(
        site.queue(), load("shouting"), tmp_path / "out", options=Options(drain=True)
    ).run()
    assert left.exit_code == 0
    assert site.files() == {"one.ready": b"SOME TEXT"}


def test_what_a_driver_spent_its_time_on_adds_up(site: Site) -> None:
    site.submit(*(f"doc-{number}" for number in range(20)))
    began_at = time.monotonic()
    ended: Ended = site.drive(doze, driver="d")
    lasted = (time.monotonic() - began_at) * 1000
    found = ended.counters
    assert found.documents == 20
    assert found.work >= 200
    assert found.wait >= 50
    assert found.block == found.failed == found.discarded == 0
    assert found.work + found.wait + found.overhead <= lasted
    assert site.registration("d").counters == found


def test_a_queue_that_is_removed_ends_its_drivers(site: Site) -> None:
    site.submit("one")
    driver = site.start(shout)
    until(site.files, "it runs")
    os.rename(site.queue(), site.root / "elsewhere")
    ended = driver.ended()
    assert ended.exit_code == 66
    assert str(site.root / "in") in ended.why


def _beat_seldom() -> None:
    """Show life never again, where there is no news."""
    liveness.BEAT = 10 * PATIENCE


def test_status_knows_what_was_done_a_moment_ago_while_the_next_document_takes_long(
    site: Site,
) -> None:
    site.submit("one", "two")
    driver = site.start(gate, order="name", prepare=_beat_seldom)
    site.wait_at("one")
    site.open_gate("one")
    site.wait_at("two")

    def seen() -> tuple[str, int]:
        with Queue.open(site.queue()) as queue:
            (view,) = overview(queue).drivers
        return view.state, view.counters.documents

    until(lambda: seen() == ("busy", 1), "it is seen")
    site.open_gate("two")
    driver.signal()
    assert driver.ended().exit_code == 0
