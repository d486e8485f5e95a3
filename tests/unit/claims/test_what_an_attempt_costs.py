"""What an attempt that did not work costs a document, and what it is told when it was the last."""

import json
import math
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuedriver.claims.charging import UNCOUNTED_STRIKES, charge, due_at, give_back
from queuedriver.claims.handoff import Claim, Fate
from queuedriver.claims.outcomes import MAX_LATER
from queuedriver.disk.journal import Journal, read_history
from queuedriver.format import names
from queuedriver.format.records import Attempt, Failure, Report
from queuedriver.format.settings import Settings

if TYPE_CHECKING:
    from tests.conftest import Bench

NOW = 1_700_000_060.0
BAD = Failure(cause="exception", message="ValueError: bad")
LOST = Failure(cause="lost", message="it showed no life")


class Desk:
    """An open queue and what is decided about its claims."""

    def __init__(self, bench: "Bench", settings: Settings) -> None:
        self.bench = bench
        self.queue = bench.open(settings=settings)
        self.journal = Journal(str(bench.root / "journal"), "d", "alpha")
        self.journal.interval = 0.0
        self.queue.journal = self.journal

    def claim(self, attempt: int = 0) -> Claim:
        return self.bench.claim(self.queue, attempt=attempt)

    def note(self, claim: Claim, *, counted: bool, last: bool = False) -> None:
        """What somebody else notes of a claim, and dies before its rename."""
        attempt = Attempt(
            docid=claim.docid,
            token=claim.token,
            attempt=claim.attempt,
            driver="other",
            host="beta",
            claimed_at=claimed_at(claim),
            ended_at=NOW - 5,
            counted=counted,
            failure=LOST,
        )
        inode = claim.inode()
        self.queue.attempts.note(inode, attempt, discarded_from="in" if last else "")

    def report(self) -> Report:
        found = self.bench.queue().report("doc")
        assert found is not None
        return found


def claimed_at(claim: Claim) -> float:
    return names.parse_token(claim.token).claimed_at


# Retries


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_document_is_tried_as_often_as_was_said_and_then_discarded(
    bench: "Bench", retries: int
) -> None:
    desk = Desk(bench, Settings(retries=retries))
    claims = []
    for attempt in range(retries):
        claims.append(claim := desk.claim(attempt))
        failure = Failure(cause="exit", message=f"bad {attempt}", exit_code=attempt)
        assert charge(claim, failure, NOW) == "failed"
        assert bench.ls() == [names.waiting_name("doc", attempt + 1)]
    claims.append(claim := desk.claim(retries))
    assert charge(claim, BAD, NOW) == "discarded"
    assert bench.ls() == bench.ls("in/.queuedriver/attempts") == []
    assert bench.read("in/discarded/doc") == b"content of doc"
    report = desk.report()
    assert (report.docid, report.queue, report.host, report.driver) == ("doc", "in", "alpha", "d")
    assert report.failure == BAD
    # Each attempt, in its order, with its times.
    assert [one.token for one in report.attempts] == [one.token for one in claims]
    assert [one.attempt for one in report.attempts] == list(range(retries + 1))
    assert [one.claimed_at for one in report.attempts] == [claimed_at(one) for one in claims]
    assert [one.failure.exit_code for one in report.attempts[:-1]] == list(range(retries))
    assert all(one.counted and one.ended_at == NOW for one in report.attempts)


def test_a_report_is_json_that_a_person_can_read(bench: "Bench") -> None:
    desk = Desk(bench, Settings(retries=0))
    claim = desk.claim()
    failure = Failure(
        cause="exit", message="ended with exit code 3", exit_code=3, stderr_tail="é\n"
    )
    charge(claim, failure, NOW)
    text = bench.read("in/discarded/doc.report.json").decode()
    assert text.startswith('{\n  "')
    report = json.loads(text)
    assert report["failure"]["exit_code"] == 3
    assert report["attempts"][0]["failure"]["stderr_tail"] == "é\n"
    # What is not known is not there.
    assert "signal" not in report["failure"]


@pytest.mark.parametrize("attempt", [0, 1])
def test_a_permanent_failure_is_the_last(bench: "Bench", attempt: int) -> None:
    desk = Desk(bench, Settings(retries=3))
    claim = desk.claim(attempt)
    failure = Failure(cause="permanent", message="encrypted", permanent=True)
    assert charge(claim, failure, NOW) == "discarded"
    assert desk.report().failure == failure


def test_fewer_retries_than_a_document_has_had_are_none(bench: "Bench") -> None:
    desk = Desk(bench, Settings(retries=1))
    claim = desk.claim(5)
    assert charge(claim, BAD, NOW) == "discarded"


def test_no_document_is_given_an_attempt_that_its_name_cannot_tell(bench: "Bench") -> None:
    # Settings are a file that others may have written.
    desk = Desk(bench, Settings(retries=10**6))
    claim = desk.claim(98)
    assert charge(claim, BAD, NOW) == "failed"
    assert bench.ls() == ["doc.failed99"]
    claim = desk.claim(99)
    assert charge(claim, BAD, NOW) == "discarded"


def test_a_document_that_was_recovered_half_way_has_each_attempt_once_in_its_report(
    bench: "Bench",
) -> None:
    desk = Desk(bench, Settings(retries=0))
    claim = desk.claim()
    # Whoever recovered it first noted the attempt, and died before its rename.
    desk.note(claim, counted=True, last=True)
    assert charge(claim, BAD, NOW) == "discarded"
    assert [one.token for one in desk.report().attempts] == [claim.token]
    assert desk.report().failure == LOST


@pytest.mark.parametrize(("counted", "fate"), [(True, "failed"), (False, "released")])
def test_of_two_who_judge_a_claim_otherwise_the_first_decides(
    bench: "Bench", counted: bool, fate: Fate
) -> None:
    desk = Desk(bench, Settings(retries=1))
    claim = desk.claim()
    desk.note(claim, counted=counted)
    assert charge(claim, BAD, NOW, doubted=counted) == fate
    assert len(bench.ls("in/.queuedriver/attempts")) == 1


# Delays


def test_the_next_try_waits_for_its_delay_and_not_less(bench: "Bench") -> None:
    desk = Desk(bench, Settings(retries=1, retry_delay=0.5))
    claim = desk.claim()
    assert charge(claim, BAD, NOW + 0.4) == "failed"
    assert bench.ls() == [f"doc.failed.{int(NOW) + 1:x}.later"]


@given(st.floats(0, 1e11), st.floats(allow_nan=False))
def test_nothing_is_due_before_its_time_nor_later_than_a_year_and_a_day(
    now: float, after: float
) -> None:
    due = due_at(now, after)
    assert due >= now
    assert due >= now + min(after, MAX_LATER)
    assert due <= math.ceil(now + MAX_LATER)
    assert names.parse(names.later_name("doc", 0, due)) is not None


@pytest.mark.parametrize("attempt", [0, 1])
def test_a_postponed_document_is_not_charged(bench: "Bench", attempt: int) -> None:
    desk = Desk(bench, Settings(retries=0))
    claim = desk.claim(attempt)
    assert give_back(claim, "printer busy", due_at(NOW, 30.0)) == "later"
    assert bench.ls() == [names.later_name("doc", attempt, int(NOW) + 30)]
    assert bench.ls("in/.queuedriver/attempts") == []


# Uncounted strikes


def test_a_release_is_not_charged_and_not_remembered(bench: "Bench") -> None:
    desk = Desk(bench, Settings(retries=0))
    for _ in range(UNCOUNTED_STRIKES + 2):
        claim = desk.claim()
        assert give_back(claim, "the driver was asked to leave") == "released"
        assert bench.ls() == ["doc.ready"]
    assert bench.ls("in/.queuedriver/attempts") == []


def test_the_third_time_that_nobody_is_at_fault_the_document_is_charged(bench: "Bench") -> None:
    desk = Desk(bench, Settings(retries=1))
    fates: list[Fate] = []
    attempt = 0
    while bench.ls() or not fates:
        claim = desk.claim(attempt)
        fates.append(charge(claim, LOST, NOW, doubted=True))
        attempt = 1 if bench.ls() == ["doc.failed"] else attempt
    assert fates[:3] == ["released", "released", "failed"]
    # It ends, too.
    assert fates[-1] == "discarded"
    assert len(fates) <= 2 * UNCOUNTED_STRIKES
    report = desk.report()
    assert len(report.attempts) == len(fates)
    assert [one.counted for one in report.attempts[:3]] == [False, False, True]
    assert report.attempts[-1].counted


def test_one_strike_is_noted_once_however_many_recover_it(bench: "Bench") -> None:
    desk = Desk(bench, Settings(retries=1))
    for _ in range(UNCOUNTED_STRIKES - 1):
        claim = desk.claim()
        for died_before_its_rename in (True, True, False):
            if died_before_its_rename:
                desk.note(claim, counted=False)
            else:
                fate = charge(claim, LOST, NOW, doubted=True)
        assert fate == "released"
        assert charge(claim, LOST, NOW, doubted=True) == "revoked"


def test_strikes_of_another_document_do_not_count(bench: "Bench") -> None:
    desk = Desk(bench, Settings(retries=1))
    for docid in ("a", "a.b", "b"):
        claim = bench.claim(desk.queue, docid)
        assert charge(claim, LOST, NOW, doubted=True) == "released"


# Taken back


@pytest.mark.parametrize("step", ["charge", "discard", "take_back", "release", "postpone"])
def test_what_somebody_else_took_back_is_left_as_it_is(bench: "Bench", step: str) -> None:
    desk = Desk(bench, Settings(retries=0 if step == "discard" else 1))
    claim = desk.claim()
    os.rename(bench.root / "in" / claim.name, bench.root / "in/doc.ready")
    match step:
        case "take_back":
            fate = charge(claim, LOST, NOW, doubted=True)
        case "release":
            fate = give_back(claim, "leaving")
        case "postpone":
            fate = give_back(claim, "later", due_at(NOW, 1.0))
        case _:
            fate = charge(claim, BAD, NOW)
    assert fate == "revoked"
    assert bench.ls() == ["doc.ready"]
    assert os.listdir(bench.root / "in/discarded") == []


# The journal


def test_each_fate_is_noted_with_what_it_was_about(bench: "Bench") -> None:
    desk = Desk(bench, Settings(retries=1))
    first, second = desk.claim(), desk.claim()
    bench.put("in/doc.failed", b"another")
    charge(first, BAD, NOW)
    give_back(second, "leaving")
    third = desk.claim(1)
    charge(third, BAD, NOW)
    # Taken back by now: whoever was faster has noted it.
    give_back(second, "leaving")
    desk.journal.close()
    events = read_history(str(bench.root / "journal"), "doc").events
    assert [(one.event, one.token, one.attempt) for one in events] == [
        ("failed", first.token, 0),
        ("released", second.token, 0),
        ("discarded", third.token, 1),
    ]
    assert events[0].message == "ValueError: bad"
    assert events[0].renamed == names.second_docid("doc", first.token)
    assert events[0].seconds == pytest.approx(NOW - claimed_at(first))
