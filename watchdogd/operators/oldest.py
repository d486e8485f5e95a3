"""The document of each stage that waits longest."""

import itertools
from collections.abc import Iterator
from contextlib import suppress

from queuedriver.errors import NotFound
from queuedriver.format import names
from queuedriver.operating.queue import Queue
from watchdogd.operators.hosts import Chosen

# Of a queue, so many names are looked at.
_LOOKED_AT = 1000


def oldest_waiting(chosen: Chosen, now: float) -> dict[str, float]:
    """Return the seconds for which the document waits that waits longest, by stage: of the first
    thousand names of each queue, so that a million of them cost no more. None waits: 0. Of a stage
    whose queue watchdogs made, and that is not there, nothing is known."""
    found = {}
    for stage in chosen.pipeline.stages if not chosen.hung else ():
        ages = [0.0]
        try:
            for name in stage.inputs:
                with Queue.open(chosen.pipeline.path(name)) as queue:
                    ages += _ages(queue, now)
        except NotFound:
            if chosen.hosts.seen:
                continue
        found[stage.name] = max(ages)
    return found


def _ages(queue: Queue, now: float) -> Iterator[float]:
    with queue.directory.scan() as entries:
        for entry in itertools.islice(entries, _LOOKED_AT):
            item = names.parse(entry.name)
            if item is not None and item.waits(now):
                with suppress(FileNotFoundError):
                    yield now - max(queue.directory.status(entry.name).st_ctime, item.due)
