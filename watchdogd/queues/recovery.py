"""What the eyes do for drivers: recover what dead ones left, and beat for those that cannot."""

import time

import msgspec

from queuedriver.claims.liveness import (
    DRIVERS,
    NETWORK_BEAT,
    Observer,
    process_ticks,
    read_registrations,
)
from queuedriver.disk.filesystem import Directory
from queuedriver.format.records import Registration
from queuedriver.operating.queue import Queue
from watchdogd.messages import Recovered

# Seconds after which somebody beats for a driver that does not: long before its lease ends.
_SILENT = 2 * NETWORK_BEAT


class Rescuer:
    """Recovers queues where no driver lives that would. Of other hosts' drivers it must remember
    since when they are silent, so it lives as long as the eyes."""

    def __init__(self) -> None:
        self._observers: dict[str, Observer] = {}

    def recover(self, name: str, path: str) -> Recovered:
        """Finish or take back what dead drivers left in one queue."""
        # Half of queuedriver, which the eyes of a pipeline that is well never need.
        from queuedriver.operating import operations

        observer = self._observers.setdefault(name, Observer())
        with Queue.open(path) as queue, operations.journal_of(queue) as journal:
            events = operations.recover(queue, journal, observer).events
        discarded = tuple(one.docid for one in events if one.event == "discarded")
        return Recovered(name, len(events), discarded)


class Beats:
    """Beats for drivers of this host that live and are silent.

    A driver's own thread cannot beat while C code holds the interpreter's lock, which may be for
    hours; other hosts would take it for dead.
    """

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def beat(self, path: str) -> int:
        """For one queue; for how many drivers there was need."""
        with Queue.open(path) as queue:
            drivers = queue.inside(DRIVERS)
        if drivers is None:
            return 0
        try:
            return sum(self._beat_one(drivers, one) for one in read_registrations(drivers))
        finally:
            drivers.close()

    def _beat_one(self, drivers: Directory, one: Registration) -> bool:
        them = one.identity
        if one.last_word or not self._observer.is_here(one):
            return False
        key = f"{drivers.path}/{one.id}-{one.salt}"
        if self._observer.unchanged_for(key, one.beat) < _SILENT:
            return False
        if process_ticks(them.pid) != them.ticks:
            return False
        one.beat += 1
        one.beat_at = time.time()
        # Durably, as the driver may have done: nothing less may take its place.
        drivers.write_aside(f"{one.id}.json", msgspec.json.encode(one), durable=True)
        # Our own beat is none of its.
        self._observer.unchanged_for(key, one.beat)
        return True
