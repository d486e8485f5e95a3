"""What signals ask of the watchdog; real ones, sent to this process."""

import os
import select
import signal
import time
from collections.abc import Iterator

import pytest

from tests.drivers import PATIENCE
from watchdogd.requests import Signals


@pytest.fixture
def signals() -> Iterator[Signals]:
    signals = Signals()
    signals.install()
    yield signals
    signals.restore()


def send(signals: Signals, number: signal.Signals) -> None:
    """And see that the loop would have woken up."""
    os.kill(os.getpid(), number)
    poll = select.poll()
    poll.register(signals.wake_fd, select.POLLIN)
    assert poll.poll(PATIENCE * 1000)
    signals.clear()
    assert not poll.poll(0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_first_asks_to_leave_and_the_second_to_hurry(
    signals: Signals, number: signal.Signals
) -> None:
    send(signals, number)
    assert (bool(signals.leaving_at), signals.hurried) == (True, False)
    assert signals.asked_at is not None
    signals.asked_at -= 1.0
    send(signals, signal.SIGTERM)
    assert signals.hurried


def test_one_wish_that_comes_by_two_ways_is_one(signals: Signals) -> None:
    send(signals, signal.SIGINT)
    # As if it had come this very moment.
    signals.asked_at = time.monotonic() + PATIENCE
    send(signals, signal.SIGTERM)
    assert not signals.hurried


def test_quit_hurries_at_once(signals: Signals) -> None:
    send(signals, signal.SIGQUIT)
    assert (bool(signals.leaving_at), signals.hurried) == (True, True)


def test_hang_up_asks_for_a_reload_and_nothing_else(signals: Signals) -> None:
    send(signals, signal.SIGHUP)
    assert (signals.reload, signals.leaving_at, signals.hurried) == (True, None, False)


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGCHLD])
def test_what_asks_for_nothing_ends_nothing(signals: Signals, number: signal.Signals) -> None:
    send(signals, number)
    assert (signals.reload, signals.leaving_at, signals.hurried) == (False, None, False)


def test_signals_are_given_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]
    signals = Signals()
    signals.install()
    signals.restore()
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)] == before
