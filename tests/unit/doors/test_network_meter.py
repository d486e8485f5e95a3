"""Nobody sends so much that others are not heard."""

from hypothesis import given
from hypothesis import strategies as st

from queuedriver.doors.meter import Meter


def count(meter: Meter, peer: bytes, now: float, messages: int) -> int:
    return sum(meter.allow(peer, now) for _ in range(messages))


def test_burst_is_allowed_and_then_the_rate() -> None:
    meter = Meter(rate=10, burst=30)
    assert count(meter, b"a", 0.0, 100) == 30
    assert count(meter, b"a", 1.0, 100) == 10
    # Whoever was silent for long has no more than a burst.
    assert count(meter, b"a", 1000.0, 100) == 30


def test_one_peer_takes_nothing_from_another() -> None:
    meter = Meter(rate=10, burst=30)
    count(meter, b"a", 0.0, 100)
    assert count(meter, b"b", 0.0, 30) == 30


def test_peer_that_is_gone_is_forgotten() -> None:
    meter = Meter(rate=10, burst=30)
    count(meter, b"a", 0.0, 100)
    meter.forget(b"a")
    meter.forget(b"nobody")
    assert count(meter, b"a", 0.0, 100) == 30


def test_memory_does_not_depend_on_how_many_names_somebody_makes_up() -> None:
    meter = Meter()
    for number in range(50_000):
        assert meter.allow(b"%d" % number, 0.0)
    assert len(meter._buckets) <= 20_000


@given(st.lists(st.floats(0.0, 0.2), max_size=300))
def test_no_more_than_burst_and_rate_are_allowed_in_any_span(pauses: list[float]) -> None:
    meter = Meter(rate=10, burst=5)
    now, allowed = 0.0, 0
    for pause in pauses:
        now += pause
        allowed += meter.allow(b"a", now)
    assert allowed <= 5 + 10 * now + 1e-6


@given(st.lists(st.floats(0.1, 5.0), max_size=100))
def test_who_stays_below_the_rate_never_notices(pauses: list[float]) -> None:
    meter = Meter(rate=10.0, burst=1)
    now = 0.0
    for pause in pauses:
        assert meter.allow(b"a", now)
        now += pause + 1e-6
