"""What may befall a worker at a front door, and what it costs."""

from functools import partial

from tests.contract.door_peers import answer_to
from tests.contract.door_scene import Door

# More than any protocol allows somebody to be silent, in seconds; and less than a broker may be so
# itself before others take its claims.
SILENCE = 16.0
# Seconds that a worker may have a document; and what of it is left, at least, to a busy machine.
TIMEOUT = 60.0
LEEWAY = 20.0


def test_worker_that_answers_gets_its_document_published_once(door: Door) -> None:
    door.broker()
    docids = [f"d{number}" for number in range(5)]
    door.bring(*docids)
    worker = door.worker(slots=2)
    for _ in docids:
        worker.answers(worker.gets_one())
    door.until_published(*docids)
    assert door.leave() == 0
    assert door.account() == []


def test_documents_that_never_reached_their_workers_cost_nothing(door: Door) -> None:
    door.broker()
    idle = [door.worker(f"idle{number}") for number in range(door.many)]
    for worker in idle:
        worker.vanish()
    # What is handed to a connection that ends a moment later may have been begun.
    door.turns()
    docids = [f"d{number:02}" for number in range(20)]
    door.bring(*docids)
    door.turns()
    there = door.worker("there", slots=10)
    for _ in docids:
        there.answers(there.gets_one())
    door.until_published(*docids)
    assert door.leave() == 0
    assert door.charged() == {}


def test_worker_that_is_killed_costs_its_document_an_attempt(door: Door) -> None:
    door.broker()
    door.bring("doc")
    for attempt in (0, 1):
        worker = door.worker(f"w{attempt}")
        worker.gets("doc")
        door.lose(worker)
        door.until(partial(lambda done: door.charges("doc") > done, attempt), "it is charged")
    assert all("was lost" in words for words in door.blamed("doc"))
    assert door.is_discarded("doc")
    # Nobody else is blamed.
    door.bring("next")
    there = door.worker("there")
    there.answers(there.gets("next"))
    door.until_published("next")
    assert door.leave() == 0
    assert door.charged().keys() == {"doc"}


def test_poison_document_costs_those_beside_it_nothing(door: Door) -> None:
    door.broker()
    innocents = [f"d{number}" for number in range(9)]
    door.bring("a-poison", *innocents)
    if door.differs:
        worker = door.worker(slots=10)
        worker.gets("a-poison", *innocents)
        worker.vanish()
        door.until(lambda: door.charges(innocents[-1]), "all are charged")
        another = door.worker("another", slots=10)
        for docid in innocents:
            another.answers(another.gets(docid))
        door.until_published(*innocents)
        return
    lives = 0
    while not door.is_discarded("a-poison"):
        lives += 1
        assert lives < 20
        _live_until_poisoned(door, f"w{lives}")
    # What was beside it the last time.
    worker = door.worker("last")
    while len(door.published()) < len(innocents):
        door.until(lambda: worker.has() or len(door.published()) == len(innocents), "one is dealt")
        for dealt in worker.in_hand[:]:
            worker.answers(dealt)
    assert door.leave() == 0
    assert door.charged().keys() == {"a-poison"}


def _live_until_poisoned(door: Door, name: str) -> None:
    """Be a worker that answers what it gets until it gets what ends it."""
    worker = door.worker(name, slots=10)
    while True:
        worker.gets_one()
        door.turns()
        if "a-poison" in worker.has():
            break
        worker.answers(worker.in_hand[0])
    before = door.lost("a-poison")
    door.lose(worker)
    door.until(lambda: door.lost("a-poison") > before, "the worker is lost")


def test_document_that_failed_is_dealt_alone_from_then_on(door: Door) -> None:
    door.broker()
    door.bring("bad")
    worker = door.worker(slots=2)
    bad = worker.gets("bad")
    if door.differs:
        worker.fails(bad)
        door.until(lambda: door.is_failed("bad"), "its failure is published")
        return
    if worker.most > 1:
        door.bring("slow")
        worker.gets("slow")
    worker.fails(bad)
    door.until(lambda: door.charges("bad"), "it is charged")
    door.bring("next")
    door.turns()
    if worker.most > 1:
        # The only worker has something in hand: it gets nothing new before it has nothing.
        assert worker.has() == ["slow"]
        worker.answers(worker.in_hand[0])
    worker.gets("bad")
    door.turns()
    assert worker.has() == ["bad"]
    worker.answers(worker.in_hand[0])
    worker.answers(worker.gets("next"))
    door.until_published("bad", "next")


def test_late_result_is_dropped(door: Door) -> None:
    door.broker(job_timeout=TIMEOUT)
    door.bring("doc")
    slow = door.worker("slow")
    taken = slow.gets("doc")
    door.later(TIMEOUT)
    door.until(lambda: door.charges("doc"), "it is taken from the slow one")
    quick = door.worker("quick")
    given = quick.gets("doc")
    slow.late(taken, b"late")
    door.turns()
    assert door.published() == []
    quick.answers(given)
    door.until_published("doc")
    assert door.leave() == 0
    assert door.account() == []


def test_overdue_document_is_charged_and_dealt_to_another(door: Door) -> None:
    door.broker(job_timeout=TIMEOUT)
    door.bring("doc")
    slow = door.worker("slow")
    slow.gets("doc")
    door.later(TIMEOUT - LEEWAY)
    assert door.charged() == {}
    assert slow.has() == ["doc"]
    door.later(LEEWAY)
    door.until(lambda: door.charges("doc") == 1, "it is overdue")
    assert "overdue" in door.blamed("doc")[0]
    quick = door.worker("quick")
    quick.answers(quick.gets("doc"))
    door.until_published("doc")


def test_idle_worker_that_is_silent_is_dealt_nothing(door: Door) -> None:
    door.broker()
    silent = door.worker("silent")
    silent.lives = False
    door.later(SILENCE)
    door.bring("doc")
    door.turns()
    if door.differs:
        silent.answers(silent.gets("doc"))
    else:
        assert silent.has() == []
        there = door.worker("there")
        there.answers(there.gets("doc"))
    door.until_published("doc")
    if not door.differs:
        # It is listed again when it speaks as one that is new.
        silent.join()
        door.bring("next")
        door.until(lambda: silent.has() or there.has(), "the next one is dealt")


def test_slow_worker_keeps_its_document_however_silent_it_is(door: Door) -> None:
    door.broker()
    door.bring("doc")
    slow = door.worker("slow")
    dealt = slow.gets("doc")
    for _ in range(3):
        door.later(SILENCE)
    door.worker("idle")
    door.turns()
    slow.answers(dealt)
    door.until_published("doc")
    assert door.leave() == 0
    assert door.charged() == {}


def test_worker_that_answers_twice_is_heard_once(door: Door) -> None:
    door.broker()
    door.bring("doc")
    worker = door.worker()
    dealt = worker.gets("doc")
    worker.answers(dealt)
    door.until_published("doc")
    worker.late(dealt, b"something else")
    door.turns()
    door.bring("next")
    worker.answers(worker.gets("next"))
    door.until_published("doc", "next")
    assert door.leave() == 0
    assert door.account() == []


def test_worker_that_leaves_is_dealt_nothing_more(door: Door) -> None:
    door.broker()
    leaves, stays = door.worker("leaves"), door.worker("stays")
    leaves.leaves()
    door.turns()
    door.bring("a", "b")
    for _ in range(2):
        stays.answers(stays.gets_one())
    door.until_published("a", "b")
    assert leaves.has() == []


def test_document_of_a_worker_that_leaves_is_given_back_uncharged(door: Door) -> None:
    door.broker()
    door.bring("doc")
    leaves = door.worker("leaves")
    dealt = leaves.gets("doc")
    leaves.leaves()
    door.turns()
    other = door.worker("other")
    if door.differs and door.protocol == "roundrobin":
        door.turns()
        assert other.has() == []
        leaves.report(dealt, answer_to(dealt.text))
    else:
        other.answers(other.gets("doc"))
    door.until_published("doc")
    assert door.leave() == 0
    assert door.charges("doc") == (door.protocol == "fuq")
