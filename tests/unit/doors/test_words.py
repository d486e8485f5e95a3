"""A code and a text say how a document ended, and come back as that."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuedriver.claims.outcomes import Failed, Postponed, Released, Setback
from queuedriver.doors.words import MAX_TEXT, setback, status
from queuedriver.errors import LATER_AFTER
from queuedriver.format.records import Failure


@pytest.mark.parametrize(
    ("how", "code"),
    [
        (Failed(Failure(cause="permanent", message="why", permanent=True)), 65),
        (Failed(Failure(cause="exception", message="why")), 1),
        (Postponed(5.0, "why"), 75),
        (Released("why"), 75),
    ],
)
def test_each_setback_has_its_code_and_its_words(how: Setback, code: int) -> None:
    assert status(how) == (code, "why")


@pytest.mark.parametrize(
    ("code", "how"),
    [
        (65, Failed(Failure(cause="permanent", message="t", permanent=True, exit_code=65))),
        (75, Postponed(LATER_AFTER, "t")),
        (1, Failed(Failure(cause="exit", message="t", exit_code=1))),
        (-9, Failed(Failure(cause="exit", message="t", exit_code=-9))),
    ],
)
def test_each_code_is_what_a_command_s_exit_code_would_be(code: int, how: Setback) -> None:
    assert setback(code, "t") == how


@given(st.sampled_from([1, 65, 75]), st.text(min_size=1))
def test_code_and_text_come_back_as_themselves(code: int, text: str) -> None:
    assert status(setback(code, text)) == (code, text)


def test_text_is_bounded_and_never_missing() -> None:
    assert status(setback(1, "ä" * 100_000)) == (1, "ä" * MAX_TEXT)
    assert status(setback(1, ""))[1]
