"""Looks at a pipeline's queues and at what its watchdogs say. Changes nothing, creates nothing."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

from queuedriver.claims.liveness import Observer
from queuedriver.cli.program import say
from queuedriver.disk.filesystem import Directory
from queuedriver.errors import CannotUse, NotFound
from queuedriver.operating.queue import Queue
from queuedriver.operating.queue_view import QueueView, overview
from watchdogd import control
from watchdogd.cli.arguments import Chosen
from watchdogd.cli.seen import Facts, Result
from watchdogd.messages import Controls

# A file system that has not answered by then may not do so for long.
_PATIENCE = 3.0


def gather(chosen: Chosen, observer: Observer | None = None) -> Facts:
    """Look once."""
    pipeline = chosen.pipeline
    now = time.time()
    observer = observer or Observer()
    inputs = dict.fromkeys(queue for stage in pipeline.stages for queue in stage.inputs)
    queues = {}
    for queue in inputs:
        seen = _overview(pipeline.path(queue), observer, now)
        if seen is not None:
            queues[queue] = seen
    return Facts(
        pipeline=pipeline,
        hosts=chosen.hosts,
        controls=read_controls(pipeline.root),
        queues=queues,
        results=tuple(_result(queue, pipeline.path(queue), now) for queue in pipeline.results),
        now=now,
        file_error=chosen.error,
    )


def _overview(path: str, observer: Observer, now: float) -> QueueView | None:
    """None where nothing has made the queue yet."""
    try:
        with Queue.open(path) as queue:
            return overview(queue, observer, now)
    except NotFound:
        return None


def _result(queue: str, path: str, now: float) -> Result:
    try:
        with Queue.open(path) as opened:
            listing = opened.listing(now)
    except (NotFound, CannotUse):
        return Result(queue, 0, 0)
    return Result(queue, listing.ready + listing.failed + listing.later, listing.foreign)


def read_controls(root: str) -> Controls:
    """What is asked of all hosts."""
    try:
        directory = Directory.open(os.path.join(root, control.CONTROL), inside=1)
    except (FileNotFoundError, NotADirectoryError):
        return Controls()
    try:
        return control.read(directory, "")
    finally:
        directory.close()


@contextmanager
def impatiently() -> Iterator[None]:
    """Say what one waits for while a file system does not answer."""
    timer = Timer(_PATIENCE, say, ["the file system is slow to answer, or does not; still waiting"])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
