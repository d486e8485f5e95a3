"""What is known of the queues, whoever looked and whatever was amiss then."""

from watchdogd.messages import Controls, QueueSeen, Request, Snapshot
from watchdogd.sight import Sight

WELL = Snapshot(
    queues={"input": QueueSeen(ready=3, discarded=2), "one": QueueSeen()},
    controls=Controls(scale={"one": 2}, requests=(Request("reload", "", "00000000aa"),)),
    timeouts={"one": 30.0},
)


def test_nothing_counts_as_known_before_a_look_without_trouble() -> None:
    sight = Sight()
    assert (sight.heard, sight.known) == (False, False)
    sight.take(Snapshot(trouble="no space left"))
    assert (sight.heard, sight.known, sight.trouble) == (True, False, "no space left")
    sight.take(WELL)
    assert (sight.known, sight.trouble, sight.queues_at_first) == (True, "", WELL.queues)


def test_new_eyes_amid_trouble_do_not_make_what_is_known_forgotten() -> None:
    sight = Sight()
    sight.take(WELL)
    sight.take(Snapshot(trouble="stale file handle"))
    assert sight.queues == WELL.queues
    assert sight.controls == WELL.controls
    assert sight.snapshot.timeouts == WELL.timeouts
    assert sight.known


def test_eyes_that_still_see_something_amid_trouble_are_believed() -> None:
    sight = Sight()
    sight.take(WELL)
    some = {"one": QueueSeen(ready=7)}
    sight.take(Snapshot(queues=some, controls=Controls(quit="now"), trouble="input is gone"))
    assert sight.queues == WELL.queues | some
    assert sight.controls == Controls(quit="now")
    # All that is wanted is undone, by one who has seen the queues.
    sight.take(Snapshot(queues=some, trouble="input is gone"))
    assert sight.controls == Controls()


def test_queue_that_a_reload_removed_is_forgotten_with_the_next_look() -> None:
    sight = Sight()
    sight.take(WELL)
    sight.take(Snapshot(queues={"input": QueueSeen()}))
    assert list(sight.queues) == ["input"]


def test_documents_discarded_since_the_look_before_are_told_and_all_are_counted() -> None:
    def look(**discarded: int) -> Snapshot:
        return Snapshot(queues={name: QueueSeen(discarded=n) for name, n in discarded.items()})

    sight = Sight()
    # Those of earlier days.
    assert sight.take(look(input=5, one=0)) == {}
    assert sight.take(look(input=7, one=0)) == {"input": 2}
    assert sight.take(look(input=7, one=1)) == {"one": 1}
    assert sight.discarded == {"input": 2, "one": 1}
    # Somebody retries six of them, and then one is discarded again.
    assert sight.take(look(input=1, one=1)) == {}
    assert sight.discarded == {"one": 1}
    assert sight.take(look(input=2, one=1)) == {"input": 1}
    assert sight.discarded == {"input": 1, "one": 1}
    # A queue that comes with a reload has its own past.
    assert sight.take(look(input=2, one=1, new=9)) == {}
    assert sight.discarded == {"input": 1, "one": 1}
