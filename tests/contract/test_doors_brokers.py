"""What may befall the broker of a front door, and what it costs."""

import time
from collections.abc import Callable

from queuedriver.driving.lifetime import LEAVING_TAKES
from tests.contract.door_peers import Worker
from tests.contract.door_scene import Door

# How workers are told to leave, where there is a word for it.
TOLD = {"pingpong": "EXIT", "scale0": "503"}
# Seconds that a broker has.
MINUTES = 180.0


def test_broker_that_drains_ends_when_all_is_done_and_tells_its_workers(door: Door) -> None:
    door.bring("a", "b")
    door.broker(drain=True)
    worker = door.worker()
    for _ in range(2):
        worker.answers(worker.gets_one())
    assert door.ended() == 0
    assert door.account() == []
    is_told(door, worker)


def is_told(door: Door, worker: Worker) -> None:
    """Wait until a worker has heard that it is to leave, where there is a word for it. That is on
    its way when the broker has ended."""
    if not door.differs:
        door.until(lambda: TOLD[door.protocol] in worker.look().said, "the worker is told")


def test_broker_that_is_asked_to_leave_waits_for_what_is_at_hand(door: Door) -> None:
    worker = leaves_after_what_is_at_hand(door, door.signal)
    assert not {*worker.said} & {*TOLD.values()}


def test_broker_that_finds_a_quit_file_waits_for_what_is_at_hand(door: Door) -> None:
    is_told(door, leaves_after_what_is_at_hand(door, door.quit))


def leaves_after_what_is_at_hand(door: Door, ask: Callable[[], None]) -> Worker:
    door.broker()
    door.bring("doc")
    worker = door.worker(slots=2)
    dealt = worker.gets("doc")
    ask()
    door.turns()
    door.bring("next")
    door.turns()
    assert worker.has() == ["doc"]
    worker.answers(dealt)
    assert door.ended() == 0
    assert door.published() == ["doc"]
    assert door.charged() == {}
    return worker.look()


def test_broker_whose_time_ends_gives_back_what_is_at_hand_and_leaves(door: Door) -> None:
    # Its workers may use all that is left, whatever the grace.
    door.broker(grace=0.1, until=time.time() + LEAVING_TAKES + MINUTES)
    door.bring("doc")
    slow = door.worker("slow")
    slow.gets("doc")
    door.turns()
    assert door.runs
    door.later(MINUTES)
    assert door.ended() == 0
    assert door.charged() == {}
    door.broker()
    quick = door.worker("quick")
    quick.answers(quick.gets("doc"))
    door.until_published("doc")


def test_broker_whose_grace_is_over_gives_back_what_is_at_hand(door: Door) -> None:
    door.broker(grace=0.1)
    door.bring("doc")
    door.worker("slow").gets("doc")
    door.quit()
    door.turns()
    assert door.ended() == 0
    assert door.charged() == {}
    door.quit(wanted=False)
    door.broker()
    quick = door.worker("quick")
    quick.answers(quick.gets("doc"))
    door.until_published("doc")


def test_broker_that_is_paused_deals_nothing_and_takes_in_results(door: Door) -> None:
    door.broker()
    door.bring("doc")
    worker = door.worker(slots=2)
    dealt = worker.gets("doc")
    door.pause()
    door.turns()
    door.bring("next")
    door.turns()
    assert worker.has() == ["doc"]
    worker.answers(dealt)
    door.until_published("doc")
    assert worker.has() == []
    door.pause(wanted=False)
    worker.answers(worker.gets("next"))
    door.until_published("next")


def test_broker_that_is_killed_costs_nothing(door: Door) -> None:
    docids = [f"d{number}" for number in range(6)]
    door.bring(*docids)
    for life in range(3):
        door.broker()
        worker = door.worker(f"w{life}", slots=3)
        worker.gets_one()
        door.turns()
        door.kill()
    door.broker()
    worker = door.worker("last", slots=3)
    for _ in docids:
        worker.answers(worker.gets_one())
    door.until_published(*docids)
    assert door.leave() == 0
    assert door.account() == []
    assert door.charged() == {}


def test_results_for_a_broker_that_was_killed_are_dropped(door: Door) -> None:
    door.broker()
    door.bring("doc")
    slow = door.worker("slow")
    dealt = slow.gets("doc")
    door.kill()
    slow.vanish()
    door.broker()
    slow.connect()
    slow.late(dealt, b"for nobody")
    door.turns()
    assert door.published() == []
    assert "doc.ready" not in door.files()
    quick = door.worker("quick")
    # The one that was late may be taken for one that waits.
    has = door.until(lambda: next((one for one in (quick, slow) if one.has()), None), "one has it")
    has.answers(has.gets("doc"))
    door.until_published("doc")
    assert door.leave() == 0
    assert door.account() == []
    assert door.charged() == {}


NONSENSE = (b"", b"nonsense", b"\x00" * 13, b"\xff" * 300)


def test_nonsense_ends_no_broker_and_costs_no_other_worker(door: Door) -> None:
    door.broker()
    door.bring("doc")
    worker = door.worker()
    dealt = worker.gets("doc")
    for number, one in enumerate(NONSENSE):
        hostile = b"9000%d" % number
        door.connect(hostile)
        door.say(hostile, one)
        door.say(hostile, b"", one)
        door.say(hostile, *[one] * 9)
    door.turns()
    worker.answers(dealt)
    door.until_published("doc")
    assert door.leave() == 0
    assert door.account() == []
    assert door.charged() == {}
