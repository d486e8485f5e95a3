"""What a processor may raise, and what becomes of the document."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuedriver.claims.outcomes import MAX_LATER, Failed, Postponed, Released, from_exception
from queuedriver.errors import Interrupted, PermanentError, ProcessorFailed, TryLater
from queuedriver.format.records import Failure


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class NoText(Exception):
    def __str__(self) -> str:
        words: Any = 7
        return words  # type: ignore[no-any-return]


def raised(error: BaseException) -> BaseException:
    """With a traceback, as a processor raises it."""
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001 - whatever it is
        return caught


def test_any_exception_charges_the_document_and_tells_where_it_was_raised() -> None:
    outcome = from_exception(raised(ValueError("bad page")))
    assert isinstance(outcome, Failed)
    failure = outcome.failure
    assert (failure.cause, failure.message) == ("exception", "ValueError: bad page")
    assert not failure.permanent
    assert failure.traceback is not None
    assert "in raised" in failure.traceback


@pytest.mark.parametrize("error", [SystemExit(3), MemoryError(), RecursionError(), OSError(5, "x")])
def test_what_would_end_a_program_charges_the_document(error: BaseException) -> None:
    outcome = from_exception(raised(error))
    assert isinstance(outcome, Failed)
    assert outcome.failure.cause == "exception"


def test_an_exception_without_words_is_named_by_its_type() -> None:
    outcome = from_exception(ValueError())
    assert isinstance(outcome, Failed)
    assert outcome.failure.message == "ValueError"


@pytest.mark.parametrize("error", [Unprintable(), NoText()])
def test_an_exception_that_cannot_be_shown_fails_its_document_and_not_the_driver(
    error: Exception,
) -> None:
    outcome = from_exception(raised(error))
    assert isinstance(outcome, Failed)
    assert outcome.failure.message.startswith(f"{type(error).__name__}, which cannot be shown")


def test_a_permanent_error_says_that_trying_again_is_no_use() -> None:
    outcome = from_exception(raised(PermanentError("encrypted")))
    assert isinstance(outcome, Failed)
    assert outcome.failure.permanent
    assert (outcome.failure.cause, outcome.failure.message) == (
        "permanent",
        "PermanentError: encrypted",
    )


def test_a_failure_from_outside_this_process_is_passed_on_as_it_is() -> None:
    failure = Failure(cause="exit", message="ended with exit code 3", exit_code=3)
    assert from_exception(ProcessorFailed(failure)) == Failed(failure)


def test_an_interruption_is_a_time_out_unless_the_driver_is_leaving() -> None:
    assert from_exception(Interrupted("leaving")) == Released("the driver was asked to leave")
    outcome = from_exception(raised(Interrupted("timeout")))
    assert isinstance(outcome, Failed)
    assert outcome.failure.cause == "timeout"
    assert outcome.failure.stacks is not None
    assert "in raised" in outcome.failure.stacks


# Try later


def test_try_later_postpones_uncharged() -> None:
    assert from_exception(TryLater(30.0, "printer busy")) == Postponed(30.0, "printer busy")
    assert from_exception(TryLater()) == Postponed(60.0, "")
    assert from_exception(TryLater(MAX_LATER)) == Postponed(MAX_LATER, "")


def test_try_later_before_now_is_at_once() -> None:
    assert from_exception(TryLater(-5)) == Postponed(0.0, "")
    assert from_exception(TryLater(-math.inf)) == Postponed(0.0, "")


def test_whatever_is_given_as_the_reason_is_told_as_text() -> None:
    said: list[tuple[Any, str]] = [
        (ValueError("busy"), "ValueError: busy"),
        (None, ""),
        (503, "503"),
        (Unprintable(), "Unprintable, which cannot be shown (RuntimeError)"),
    ]
    for reason, told in said:
        assert from_exception(TryLater(30.0, reason)) == Postponed(30.0, told)


class Busy(TryLater):
    """A user's own, which does not know how one is made."""

    def __init__(self, printer: str) -> None:
        self.printer = printer


def test_a_class_derived_from_try_later_need_not_know_how_one_is_made() -> None:
    assert from_exception(Busy("third floor")) == Postponed(60.0, "")


@pytest.mark.parametrize("after", [math.nan, math.inf, 1e300, MAX_LATER + 1, "60", None])
def test_try_later_at_no_sensible_time_is_a_bad_answer(after: Any) -> None:
    outcome = from_exception(TryLater(after, "x"))
    assert isinstance(outcome, Failed)
    assert outcome.failure.cause == "bad-answer"
    assert repr(after) in outcome.failure.message


# Sizes


def test_a_message_with_a_whole_document_in_it_is_cut_in_the_middle() -> None:
    outcome = from_exception(raised(ValueError("start" + 10_000_000 * "x" + "end")))
    assert isinstance(outcome, Failed)
    message = outcome.failure.message
    assert message.startswith("ValueError: start")
    assert message.endswith("end")
    assert "characters left out" in message
    assert len(message) < 10_000
    assert outcome.failure.traceback is not None
    assert len(outcome.failure.traceback) < 40_000


def test_a_deep_recursion_shows_both_its_ends() -> None:
    def first(depth: int) -> None:
        if not depth:
            last()
        exec(f"first({depth - 1})", {"first": first})

    def last() -> None:
        raise ValueError("too deep")

    try:
        first(300)
    except ValueError as error:
        outcome = from_exception(error)
    assert isinstance(outcome, Failed)
    text = outcome.failure.traceback
    assert text is not None
    assert text.startswith("Traceback (most recent call last)")
    assert text.endswith("ValueError: too deep\n")
    assert "characters left out" in text
    assert len(text) < 40_000


@given(st.text(max_size=100), st.sampled_from([ValueError, PermanentError, KeyError, SystemExit]))
def test_whatever_is_raised_there_is_an_outcome(words: str, kind: type[BaseException]) -> None:
    assert isinstance(from_exception(kind(words)), Failed)
