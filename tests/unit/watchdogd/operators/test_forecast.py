"""Will it drain, and when: by what was seen of the last minutes and of the last hour."""

from collections.abc import Callable

import pytest

from queuedriver.driving.measurements import BOUNDS, BUCKETS
from watchdogd.operators.forecast import LONG, SHORT, Outlook, outlook
from watchdogd.operators.history import COARSE, FINE, Moment, Shares

NOW = 1_900_000_000.0


def moments(
    waiting: Callable[[float], float], span: float, step: int, done: float, took: float
) -> list[Moment | None]:
    """Return what was seen; `waiting` is of the seconds before now."""
    bucket = next(number for number, bound in enumerate(BOUNDS) if took <= bound)
    services = (Shares(done, bytes(255 * (number == bucket) for number in range(BUCKETS))),)
    ages = [step * number for number in reversed(range(int(span / step) + 1))]
    return [
        Moment(NOW - age, step, done, 0, 0, round(waiting(age)), 1, 1, services, services)
        for age in ages
    ]


def seen(
    waiting: Callable[[float], float], done: float = 1.0, took: float = 1.0, hours: float = 1.0
) -> Outlook:
    short = moments(waiting, min(SHORT, hours * 3600), FINE, done, took)
    long = moments(waiting, LONG * hours, COARSE, done, took)
    return outlook(short, long, round(waiting(0)), NOW)


@pytest.mark.parametrize(
    ("waiting", "sentence"),
    [
        # Two less each second.
        (lambda age: 4200 + 2 * age, "clear in 35 min"),
        (lambda age: 5000 - 0.2 * age, "growing 12/min, will not drain"),
        # A thousand were brought a minute ago, and three a second are done since.
        (lambda age: 900 + 3 * age if age < 60 else 0, "clear in 5 min"),
        # Somebody has been bringing twenty a second for three minutes.
        (lambda age: 4000 - 20 * age if age < 200 else 0, "growing 1,200/min"),
        # As many come as are done, now one more and now one less.
        (lambda age: 50 + int(age / 10) % 2, "steady: as many come as are done"),
        # A document in five minutes; that tells nothing within three.
        (lambda age: 100 + age // 300, "clear in 8 h 20 min"),
        # The same after a hundred were brought half an hour ago: five in 29 minutes.
        (lambda age: 100 + age // 300 if age < 1800 else 0, "clear in 9 h 40 min"),
        (lambda age: 0, ""),
    ],
)
def test_outlook_says_how_it_goes_on(waiting: Callable[[float], float], sentence: str) -> None:
    assert seen(waiting).sentence == sentence


def test_stage_that_does_nothing_for_a_while_is_stalled() -> None:
    assert seen(lambda age: 70, done=0.0).sentence == "stalled for 1 h 1 min"
    assert seen(lambda age: 70 if age < 150 else 0, done=0.0).kind == "stalled"
    # What waits since a minute is not late.
    assert seen(lambda age: 70 if age < 60 else 0, done=0.0).kind == "unknown"


def test_stage_whose_documents_take_long_is_not_stalled_between_two_of_them() -> None:
    hour = moments(lambda age: 70, LONG, COARSE, 0.0, 1.0)
    done = moments(lambda age: 70, LONG, COARSE, 0.01, 600.0)
    quiet = moments(lambda age: 70, SHORT, FINE, 0.0, 1.0)
    # One of ten minutes was done five minutes ago.
    assert outlook(quiet, [*done[:55], *hour[55:]], 70, NOW).kind != "stalled"
    # Forty minutes and more are four times as long.
    assert outlook(quiet, [*done[:15], *hour[15:]], 70, NOW).kind == "stalled"


def test_nothing_is_said_where_nobody_wrote() -> None:
    assert outlook([], [], 5, NOW) == Outlook("unknown")
    assert outlook([None] * 19, [None] * 61, 5, NOW).sentence == "unknown"
    # Then by what was done in the last minute.
    assert outlook([], [], 5, NOW, rate=0.5).sentence == "clear in 10 s"
    # The watchdog is gone for two minutes.
    written = moments(lambda age: 5 + age, SHORT, FINE, 1.0, 1.0)
    assert outlook([*written[:7], *[None] * 12], [], 5, NOW) == Outlook("unknown")


def test_slow_watchdog_counts_each_of_its_moments_once() -> None:
    written = moments(lambda age: 100 + age, 300, 30, 1.0, 1.0)
    repeated = [one for one in written for _ in range(3)]
    assert outlook(repeated, [], 100, NOW).sentence == "clear in 1 min 40 s"
