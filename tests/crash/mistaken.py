"""Somebody who takes living drivers for dead ones."""

from pathlib import Path

from queuedriver.claims.liveness import Observer, Verdict
from queuedriver.driving.setup import queue_of
from queuedriver.format.records import Registration
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
    with (
        Queue.open(path) as queue,
        journal_of(queue) as journal,
        queue_of(queue.directory, journal, Mistaken()) as one,
    ):
        return one.recoverer.recover()
