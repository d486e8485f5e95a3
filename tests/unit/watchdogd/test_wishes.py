"""What is asked of a watchdog is done once; what was asked before it began is not done at all."""

from collections.abc import Iterator

import pytest

from watchdogd.messages import Controls, Request
from watchdogd.signals import Signals
from watchdogd.wishes import Wishes

ONE, OTHER = Request("restart", "parse", "1111111111"), Request("reload", "", "2222222222")


@pytest.fixture
def signals() -> Iterator[Signals]:
    signals = Signals()
    yield signals
    signals.close()


def test_request_is_news_once_and_only_if_it_came_after_the_first_look(signals: Signals) -> None:
    wishes = Wishes(signals)
    assert wishes.news() == []
    wishes.learn(Controls(requests=(ONE,)))
    assert wishes.news() == []
    wishes.learn(Controls(requests=(ONE, OTHER)))
    assert wishes.news() == [OTHER]
    assert wishes.news() == []
    # One that is removed and made anew is another one, though it looks the same.
    wishes.learn(Controls(requests=(ONE,)))
    assert wishes.news() == []
    wishes.learn(Controls(requests=(ONE, OTHER)))
    assert wishes.news() == [OTHER]


def test_quit_that_was_there_before_is_outdated(signals: Signals) -> None:
    wishes = Wishes(signals)
    assert wishes.learn(Controls(quit="now"))
    assert (wishes.leaving, wishes.hurried) == ("", False)
    assert not wishes.learn(Controls(quit="now"))
    assert wishes.leaving == ""
    wishes.learn(Controls())
    assert not wishes.learn(Controls(quit="drain"))
    assert (wishes.leaving, wishes.hurried) == ("a QUIT file", False)
    wishes.learn(Controls(quit="now"))
    assert wishes.hurried


def test_signals_are_heard_before_anything_was_seen(signals: Signals) -> None:
    wishes = Wishes(signals)
    signals.reload = True
    assert wishes.reload()
    assert not wishes.reload()
    signals.ask(100.0)
    assert (wishes.leaving, wishes.hurried) == ("a signal", False)
    signals.ask(101.0)
    assert wishes.hurried


def test_the_latest_that_were_served_are_remembered(signals: Signals) -> None:
    wishes = Wishes(signals)
    for number in range(12):
        wishes.serve(str(number))
    wishes.serve("x", "y")
    assert wishes.served == (*map(str, range(4, 12)), "x", "y")
