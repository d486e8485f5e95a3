"""Closes and reopens, pauses and resumes queues; removes old requests; publishes the report. Each
move is harmless when it is made twice, or by the helpers of several hosts at once."""

from collections.abc import Mapping
from contextlib import closing, suppress

from queuedriver.disk.filesystem import Directory
from queuedriver.driving.closing import close_if_fed, reopen_if_fed
from queuedriver.format import names
from queuedriver.operating.queue import Queue
from watchdogd import control
from watchdogd.helper_messages import QueueSeen
from watchdogd.pipeline.model import Pipeline

# Who asked for something an hour ago has asked again, or done without.
_REQUEST_AGE = 3600.0
_SMALL = 64


def cascade(pipeline: Pipeline, seen: Mapping[str, QueueSeen]) -> bool:
    """Close each queue whose feeds are all through: its drivers would, but there may be none. And
    reopen each that was closed so, of which a feed is open again. Return whether any was changed.

    Others than our stages may feed a queue, too: it knows them itself.
    """
    through = {name for name, one in seen.items() if one.done and one.drained}
    still_open = {name for name, one in seen.items() if not one.done}
    changed = False
    for name, feeds in pipeline.feeds.items():
        if name in seen and (feeds & still_open if seen[name].done else feeds <= through):
            move = reopen_if_fed if seen[name].done else close_if_fed
            with Queue.open(pipeline.path(name)) as queue:
                changed |= move(queue.directory)
    return changed


def spread_pause(pipeline: Pipeline, seen: Mapping[str, QueueSeen], *, paused: bool) -> bool:
    """Pause what the stages take from while the whole pipeline is paused; then resume it, but not
    what somebody paused by itself; return whether anything changed."""
    changed = False
    for name in pipeline.inputs:
        if name not in seen or seen[name].paused == paused:
            continue
        with closing(Directory.open(pipeline.path(name))) as directory:
            if not paused:
                changed |= _is_ours(directory) and directory.remove(names.PAUSE)
                continue
            with suppress(FileExistsError):
                directory.write_first(names.PAUSE, control.MARK)
                changed = True
    return changed


def _is_ours(queue: Directory) -> bool:
    try:
        return queue.read(names.PAUSE, _SMALL) == control.MARK
    except OSError:
        # A symlink, or one we may not read: somebody's.
        return False


def expire(directory: Directory) -> None:
    """Remove requests that are an hour old, by the clock of the file system that stamped them."""
    asked = [name for name in directory.names() if control.parse_request(name)]
    if not asked:
        return
    clock = ".clock"
    directory.write_aside(clock, b"")
    now_ns = directory.status(clock).st_mtime_ns
    for name in asked:
        try:
            age = (now_ns - directory.status(name).st_mtime_ns) / 1e9
        except FileNotFoundError:
            continue
        if age > _REQUEST_AGE:
            directory.remove(name)


def publish(directory: Directory, host: str, document: bytes) -> None:
    """Let everybody see a watchdog's report."""
    with directory.subdirectory(control.HOSTS, create=True) as hosts:
        hosts.write_aside(control.report_name(host), document)
