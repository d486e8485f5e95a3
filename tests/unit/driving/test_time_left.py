"""What fits into the time until a driver is to be gone."""

import pytest

from queuedriver.driving.lifetime import LEAVING_TAKES, REMEMBERED, TimeLeft, expected, time_left

NOW = 2e9
HOUR = 3600.0


def of(left: float, took: list[float], **facts: float) -> TimeLeft:
    """Return that of a driver with so many seconds left, which has done these documents."""
    timeout = facts.get("timeout")
    known = TimeLeft(NOW + LEAVING_TAKES + left, timeout, facts.get("grace", 60.0))
    known.learn(took)
    return known


def test_what_leaving_takes_is_not_time_for_documents() -> None:
    assert time_left(NOW + LEAVING_TAKES + 5, NOW) == 5
    assert of(0.0, [0.001] * 9).documents(NOW) == 0


@pytest.mark.parametrize(
    ("took", "timeout", "first", "seconds"),
    [
        # The longest but one of twenty; of fewer the longest.
        ([10.0] * 95 + [500.0] * 5, None, False, 10.0),
        ([10.0] * 94 + [500.0] * 6, None, False, 500.0),
        ([1.0, 2.0, 30.0], None, False, 30.0),
        # Who has done none yet: or a tenth of long documents would keep all the others from it.
        ([10.0] * 94 + [500.0] * 6, None, True, 10.0),
        ([10.0] * 4 + [500.0] * 6, None, True, 500.0),
        # What takes longer than its time-out is ended by that.
        ([100.0] * 9, 60.0, False, 60.0),
        # Nothing is known: nobody risks more than at the end of any driver.
        ([], None, True, 60.0),
        ([], 7200.0, True, 60.0),
        ([], 5.0, True, 5.0),
    ],
)
def test_a_document_is_expected_to_take_as_long_as_nearly_all_did(
    took: list[float], timeout: float | None, first: bool, seconds: float
) -> None:
    assert expected(took, timeout, 60.0, first=first) == seconds


def test_one_giant_among_many_says_nothing_of_the_others() -> None:
    assert of(30.0, [10.0] * 50 + [5 * HOUR]).over(NOW) == ""


def test_documents_of_a_batch_fit_one_after_the_other() -> None:
    known = of(35.0, [10.0] * 50)
    assert known.documents(NOW) == 3
    assert known.documents(NOW + 20) == 1
    assert known.documents(NOW + 26) == 0


def test_start_of_a_processor_takes_its_part_of_the_time() -> None:
    known = of(35.0, [10.0] * 50)
    assert known.documents(NOW, starting=20.0) == 1
    assert "may take 50 s" in known.over(NOW, starting=40.0)


def test_who_leaves_says_when_its_time_ends_and_what_does_not_fit() -> None:
    known = of(5.0, [10.0] * 50)
    assert known.over(NOW).startswith("its time ends at 20")
    assert known.over(NOW).endswith(", and a document may take 10 s")
    assert of(0.0, []).over(NOW).endswith(":30")


def test_documents_of_long_ago_say_nothing() -> None:
    known = of(30.0, [HOUR] * REMEMBERED)
    assert known.over(NOW)
    known.learn([1.0] * REMEMBERED)
    assert not known.over(NOW)


def test_documents_of_others_are_known_at_the_start() -> None:
    known = TimeLeft(NOW + LEAVING_TAKES + 300, None, 60.0, [100.0] * 90 + [400.0] * 10)
    # None of its own yet: half of them would be done.
    assert known.documents(NOW) == 3
    known.learn([])
    assert known.documents(NOW) == 3
    known.learn([100.0])
    assert known.documents(NOW) == 0


def test_documents_that_take_no_time_fit_until_the_end() -> None:
    assert of(1e-6, [0.0] * 9).documents(NOW) == REMEMBERED
    assert of(1e9, [1e-9]).documents(NOW) == REMEMBERED
