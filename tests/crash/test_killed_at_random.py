"""Drivers that are killed all the time, many documents, and no schedule."""

import itertools
import os
import random
import signal
import time

from queuedriver.format import names
from queuedriver.operating.queue import Queue
from tests.crash.mistaken import give_up
from tests.drivers import Running, Site
from tests.openings import registrations
from tests.processors import doze, gate
from tests.waiting import until

DOCUMENTS = 2000
DRIVERS = 3
# Seconds a driver lives after it has registered, so that some work gets done on any machine; one
# in five dies so soon after its start that it may not get as far.
LIFE = (0.02, 0.4)


class Consumer:
    """Takes outputs as they become visible."""

    def __init__(self, site: Site) -> None:
        self._out = site.queue("out")
        self.taken: dict[str, bytes] = {}

    def take(self) -> None:
        for name in os.listdir(self._out):
            if name.endswith(".ready"):
                assert name not in self.taken, f"{name} was published twice"
                self.taken[name] = (self._out / name).read_bytes()
                (self._out / name).unlink()


class Victim:
    """A driver, and when it is to be killed."""

    def __init__(self, site: Site, driver: str, life: float, early: bool) -> None:
        self.id = driver
        before = self._salt(site)
        self.running: Running = site.start(doze, driver=driver, drain=True)
        if not early:
            until(
                lambda: not self.running.alive or self._salt(site) != before,
                "it registers, or finds nothing to do",
            )
        self.dies_at = time.monotonic() + life

    def _salt(self, site: Site) -> str | None:
        # In one look: it may leave, or be forgotten, between two.
        with Queue.open(site.queue()) as queue:
            return next((one.salt for one in registrations(queue) if one.id == self.id), None)


def test_of_many_documents_none_is_lost_and_none_comes_out_twice(site: Site) -> None:
    chance = random.Random(2)
    docids = [f"doc-{number}" for number in range(DOCUMENTS)]
    site.submit(*docids, content=b"text")
    consumer = Consumer(site)
    fresh = (f"d-{number}" for number in itertools.count())

    def start(driver: str) -> Victim:
        return Victim(site, driver, chance.uniform(*LIFE), early=chance.random() < 0.2)

    victims = [start(next(fresh)) for _ in range(DRIVERS)]
    killed = 0
    while site.items():
        victim = min(victims, key=lambda one: one.dies_at)
        time.sleep(max(0.0, victim.dies_at - time.monotonic()))
        killed += victim.running.alive
        victim.running.kill()
        victims.remove(victim)
        # The same driver comes back, or another in its place.
        victims.append(start(victim.id if chance.random() < 0.5 else next(fresh)))
        consumer.take()
    for victim in victims:
        assert victim.running.ended().exit_code in (0, 1)
    consumer.take()
    assert killed > 30
    discarded = site.discarded()
    assert sorted(consumer.taken) == sorted(f"{one}.ready" for one in {*docids} - {*discarded})
    assert len(consumer.taken) + len(discarded) == DOCUMENTS
    assert {*consumer.taken.values()} <= {b"attempt 0: text", b"attempt 1: text"}
    for docid in discarded:
        causes = [attempt.failure.cause for attempt in site.report(docid).attempts]
        assert causes == ["crashed", "crashed"]
    assert site.items() == site.items("out") == []


def test_wrong_guesses_all_the_time_cost_time_and_no_document(site: Site) -> None:
    docids: list[str] = []
    consumer = Consumer(site)
    drivers = [site.start(doze, driver=f"d-{number}", retries=50) for number in (1, 2)]
    until(lambda: len(site.drivers()) == 2, "both are there")
    taken_back = 0
    # However many they do between two guesses.
    while taken_back < 100 or site.items():
        if taken_back < 100 and len(site.items()) < 100:
            more = [f"doc-{number}" for number in range(len(docids), len(docids) + 100)]
            site.submit(*more, content=b"text")
            docids += more
        taken_back += give_up(site.queue())
        consumer.take()
        time.sleep(0.03)
    for driver in drivers:
        driver.signal()
    ends = [driver.ended() for driver in drivers]
    consumer.take()
    assert [ended.exit_code for ended in ends] == [0, 0]
    assert sorted(consumer.taken) == sorted(f"{docid}.ready" for docid in docids)
    assert {data.partition(b": ")[2] for data in consumer.taken.values()} == {b"text"}
    assert site.items() == site.items("out") == []
    assert site.discarded() == []


def test_a_driver_that_stands_still_and_is_taken_back_by_hand_publishes_nothing_twice(
    site: Site,
) -> None:
    site.submit("one", "two")
    first = site.start(gate, driver="first", drain=True)
    until(lambda: "working" in site.states().values(), "a document is claimed")
    (claimed,) = [item for item in site.items() if item.state == names.WORKING]
    site.wait_at(claimed.docid)
    first.signal(signal.SIGSTOP)
    working = names.working_name(claimed.docid, 0, claimed.token)
    # A person is certain that the driver is dead, and wrong.
    os.rename(site.queue() / working, site.queue() / f"{claimed.docid}.ready")
    assert site.drive(driver="second").exit_code == 0
    consumer = Consumer(site)
    consumer.take()
    site.open_gate()
    first.signal(signal.SIGCONT)
    assert first.ended().exit_code == 0
    consumer.take()
    assert consumer.taken == {"one.ready": b"SOME TEXT", "two.ready": b"SOME TEXT"}
    assert site.items() == site.items("out") == []
    assert [event.event for event in site.events(claimed.docid)][-1] == "revoked"
