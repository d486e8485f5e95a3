"""The doors by which the product is entered here: what a shell, watchdogd or a person would start.

All that is called of it is here; what it must not do for real is in `seams.py`.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from queuedriver import Driver, Options, Queue
from queuedriver.claims.liveness import Observer
from queuedriver.doors.broker import Broker
from queuedriver.doors.fuq.settings import BrokerSettings
from queuedriver.errors import AlreadyThere, QueueError
from queuedriver.operating import operations
from queuedriver.processors.call import CallProcessor
from watchdogd.queues.recovery import Recovery


class Processor(CallProcessor):
    """Calls a function with the document; or with two paths, where a program is to do the work."""

    def __init__(
        self,
        function: Callable[..., Any],
        by_path: Callable[[str], Callable[[str, str], None] | None],
    ) -> None:
        super().__init__(function)
        self._by_path = by_path

    def process(self, document: Any, outputs: Any, limits: Any) -> None:
        program = self._by_path(document.docid)
        if program is None:
            super().process(document, outputs, limits)
        else:
            limits.run(program, document.path, outputs.reserve())


def drive(
    path: str, processor: Processor, outputs: Sequence[str], name: str, options: Options
) -> object:
    """`queuedriver run`; how it left."""
    return Driver(path, processor, outputs, id=name, options=options).run()


def make(path: str, outputs: Sequence[str], name: str, options: Options) -> Queue:
    """A new queue at which a driver has been."""
    queue = Queue.open(path, create=True)
    try:
        Driver(path, bytes, outputs, id=name, options=options).run()
    except BaseException:
        queue.close()
        raise
    return queue


def deal_jobs(path: str, outputs: Sequence[str], name: str, options: Options) -> object:
    """`queuedriver broker fuq`; how it left."""
    told = BrokerSettings(input=path, outputs=tuple(outputs), id=name, options=options)
    return Broker(told, lambda words: None).run()


def submit(path: str, docid: str, data: bytes, durable: bool) -> bool:
    """`queuedriver put`; False when there is one of this docid."""
    with Queue.open(path) as queue, suppress(AlreadyThere):
        queue.submit(docid, data, durable=durable)
        return True
    return False


def retry(path: str, docid: str) -> bool:
    """`queuedriver retry`; whether it did anything."""
    with Queue.open(path) as queue, operations.journal_of(queue) as journal:
        (result,) = operations.retry(queue, [docid], journal)
        return result.came == "done"


def recover(path: str, outputs: Sequence[str]) -> None:
    """`queuedriver recover --lease 0 --output …`, by somebody who knows that all are gone."""
    with (
        suppress(OSError, QueueError),
        Queue.open(path) as queue,
        operations.journal_of(queue) as journal,
    ):
        operations.recover(queue, journal, Observer(lease=0.0), outputs)


class Watchdog:
    """What watchdogd has done every now and then: recover what dead drivers left."""

    def __init__(self, path: str) -> None:
        self._recovery = Recovery()
        self._path = path

    def look(self) -> None:
        # It tries again when the file system is well again, as the helper does.
        with suppress(OSError, QueueError):
            self._recovery.recover(os.path.basename(self._path), self._path)
