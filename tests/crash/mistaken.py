"""Somebody who takes living drivers for dead ones."""

from pathlib import Path

from queuedriver.claims.liveness import DRIVERS, Observer, Registration, Verdict
from queuedriver.claims.recovery import Recoverer
from queuedriver.claims.setbacks import Setbacks
from queuedriver.driving.grounds import handoff_of
from queuedriver.operating.operations import journal_of
from queuedriver.operating.queue import Queue


class Mistaken(Observer):
    """Sees no life in anybody."""

    def judge(
        self, registration: Registration, still_for: float = 0.0, shared: bool = True
    ) -> Verdict:
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
