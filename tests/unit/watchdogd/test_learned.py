"""A stage's own history says when a document counts as hung."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdogd.learned import ENOUGH, LEAST, REMEMBERED, hard_limit


@pytest.mark.parametrize(
    ("durations", "limit"),
    [
        # Too few to tell.
        ([], None),
        ([3.0] * 19, None),
        # Ten times what all but one in twenty take, and ten minutes at least.
        ([3.0] * 20, 600.0),
        ([90.0] * 20, 900.0),
        ([90.0] * 19 + [10_000.0], 900.0),
        ([90.0] * 18 + [10_000.0] * 2, 100_000.0),
        ([float(took) for took in range(1, 201)], 1900.0),
        # The last two hundred count.
        ([5000.0] * 1000 + [90.0] * 200, 900.0),
        ([5000.0] * 1000 + [90.0] * 180, 50_000.0),
        ([5.0] * 1000 + [90.0] * 20, 900.0),
    ],
)
def test_the_hard_limit_that_is_learned(durations: list[float], limit: float | None) -> None:
    assert hard_limit(durations) == limit


@given(st.lists(st.floats(0, 1e6), min_size=ENOUGH, max_size=2 * REMEMBERED))
def test_hardly_any_document_of_the_history_would_have_been_ended(durations: list[float]) -> None:
    limit = hard_limit(durations)
    assert limit is not None
    assert limit >= LEAST
    latest = durations[-REMEMBERED:]
    assert sum(took > limit for took in latest) <= 0.05 * len(latest)
