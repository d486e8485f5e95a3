"""Somebody who takes living drivers for dead ones."""

from pathlib import Path

from queuedriver.grounds import handoff_of
from queuedriver.liveness import DRIVERS, Observer, Registration, Verdict
from queuedriver.operator import journal_of
from queuedriver.queue import Queue
from queuedriver.recovery import Recoverer
from queuedriver.setbacks import Setbacks


class Mistaken(Observer):
    """Sees no life in anybody."""

    def judge(self, registration: Registration) -> Verdict:
        return "lost"


def give_up(path: Path) -> int:
    """Take every driver's claims back; how many there were."""
    with Queue.open(path) as queue, journal_of(queue) as journal:
        drivers = queue.private.subdirectory(DRIVERS, create=True)
        handoff = handoff_of(queue)
        setbacks = Setbacks(handoff, queue.name, journal.host, journal)
        recoverer = Recoverer(queue.directory, drivers, handoff, setbacks, journal, Mistaken())
        try:
            return recoverer.recover()
        finally:
            for target in handoff.targets:
                target.directory.close()
            handoff.close()
            drivers.close()
