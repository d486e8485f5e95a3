"""Recovers what dead drivers left, and shows that drivers live that cannot say so themselves."""

import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing

import msgspec

from queuedriver.claims.liveness import DRIVERS, NETWORK_BEAT, Observer, read_registrations
from queuedriver.disk.filesystem import Directory
from queuedriver.disk.processes import process_ticks
from queuedriver.format.records import Registration
from queuedriver.operating.queue import Queue
from watchdogd.helper_messages import Recovered

# Seconds after which somebody beats for a driver that does not: long before its lease ends.
_SILENT = 2 * NETWORK_BEAT


class Recovery:
    """Recoverer of all queues. It remembers since when drivers of other hosts are silent, so it
    lives as long as the helper."""

    def __init__(self, observer: Callable[[], Observer] = Observer) -> None:
        self._observers: defaultdict[str, Observer] = defaultdict(observer)

    def recover(self, name: str, path: str) -> Recovered:
        """Finish or take back what dead drivers left in a queue where nobody lives who would."""
        # Half of queuedriver, which the helper of a pipeline that is well never needs.
        from queuedriver.operating import operations

        with Queue.open(path) as queue, operations.journal_of(queue) as journal:
            found = operations.recover(queue, journal, self._observers[path])
        events = found.events
        discarded = tuple(one.docid for one in events if one.event == "discarded")
        return Recovered(name, len(events), discarded, tuple(found.failed))

    def beat(self, path: str) -> int:
        """Beat for the drivers of this host that live and are silent; return how many those are.

        A driver's own thread cannot beat while C code holds the interpreter's lock, which may be
        for hours; other hosts would take it for dead.
        """
        with Queue.open(path) as queue:
            drivers = queue.inside(DRIVERS)
        if drivers is None:
            return 0
        with closing(drivers):
            found = read_registrations(drivers)
            return sum(_beat(drivers, one, self._observers[path]) for one in found)


def _beat(drivers: Directory, one: Registration, observer: Observer) -> bool:
    if one.last_word or not observer.is_here(one):
        return False
    key = f"ours: {one.id}-{one.salt}"
    if observer.unchanged_for(key, one.beat) < _SILENT:
        return False
    if process_ticks(one.identity.pid) != one.identity.ticks:
        return False
    one.beat += 1
    one.beat_at = time.time()
    # Durably, as the driver may have done: nothing less may take its place.
    drivers.write_aside(f"{one.id}.json", msgspec.json.encode(one), durable=True)
    # Our own beat is none of its.
    observer.unchanged_for(key, one.beat)
    return True
