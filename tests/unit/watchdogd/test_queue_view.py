"""What is known of the queues, whoever looked and whatever was amiss then."""

from watchdogd.helper import QueueView
from watchdogd.helper_messages import Controls, Look, QueueSeen, Request

WELL = Look(
    queues={"input": QueueSeen(ready=3, discarded=2), "one": QueueSeen()},
    controls=Controls(scale={"one": 2}, requests=(Request("reload", "", "00000000aa"),)),
)


def test_nothing_counts_as_known_before_a_look_without_trouble() -> None:
    view = QueueView()
    assert (view.heard, view.known) == (False, False)
    view.take(Look(trouble="no space left"), 1.0)
    assert (view.heard, view.known, view.trouble) == (True, False, "no space left")
    view.take(WELL, 1.0)
    assert (view.known, view.trouble, view.at_first) == (True, "", WELL.queues)


def test_new_helper_amid_trouble_does_not_make_what_is_known_forgotten() -> None:
    view = QueueView()
    view.take(WELL, 1.0)
    view.take(Look(trouble="stale file handle"), 1.0)
    assert view.queues == WELL.queues
    assert view.controls == WELL.controls
    assert view.known


def test_helper_that_still_sees_something_amid_trouble_is_believed() -> None:
    view = QueueView()
    view.take(WELL, 1.0)
    some = {"one": QueueSeen(ready=7)}
    view.take(Look(queues=some, controls=Controls(quit="now"), trouble="input is gone"), 1.0)
    assert view.queues == WELL.queues | some
    assert view.controls == Controls(quit="now")
    # All that is wanted is undone, by one who has seen the queues.
    view.take(Look(queues=some, controls=Controls(), trouble="input is gone"), 1.0)
    assert view.controls == Controls()


def test_queue_that_a_reload_removed_is_forgotten_with_the_next_look() -> None:
    view = QueueView()
    view.take(WELL, 1.0)
    view.take(Look(queues={"input": QueueSeen()}), 1.0)
    assert list(view.queues) == ["input"]


def test_documents_discarded_since_the_look_before_are_told_and_all_are_counted() -> None:
    def look(**discarded: int) -> Look:
        return Look(queues={name: QueueSeen(discarded=n) for name, n in discarded.items()})

    view = QueueView()
    # Those of earlier days.
    assert view.take(look(input=5, one=0), 1.0) == {}
    assert view.take(look(input=7, one=0), 1.0) == {"input": 2}
    assert view.take(look(input=7, one=1), 1.0) == {"one": 1}
    assert view.discarded == {"input": 2, "one": 1}
    # Somebody retries six of them, and then one is discarded again.
    assert view.take(look(input=1, one=1), 1.0) == {}
    assert view.discarded == {"one": 1}
    assert view.take(look(input=2, one=1), 1.0) == {"input": 1}
    assert view.discarded == {"input": 1, "one": 1}
    # A queue that comes with a reload has its own past.
    assert view.take(look(input=2, one=1, new=9), 1.0) == {}
    assert view.discarded == {"input": 1, "one": 1}
