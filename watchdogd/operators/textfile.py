"""A host's metrics as a file, for the textfile collector of node_exporter.

It is written aside and renamed, without timestamps, for one would have the whole file passed over.
The instant of the watchdog's last report is a metric, and tells when it grows old.
"""

import os
import time
from contextlib import suppress

from queuedriver.disk.filesystem import open_fd, write_all
from queuedriver.errors import ConfigError
from watchdogd.operators.hosts import Chosen, Hosts, hosts_here, read_hosts
from watchdogd.pipeline.model import Pipeline

# Seconds from one time to the next.
EVERY = 15.0
NOT_INSTALLED = (
    "metrics need prometheus_client; install it with: pip install 'queuedriver[metrics]'"
)


class TextFile:
    """The file of one host."""

    def __init__(self, host: str) -> None:
        self._host = host
        # Where it was written last; empty: nowhere.
        self._path = ""

    def write(self, pipeline: Pipeline, trouble: str) -> None:
        """Write what there is to say of a pipeline, if it wants such a file. Amid trouble with the
        root only what the watchdog says of itself. A crash leaves a file that ends in `.new`."""
        if self._path != pipeline.metrics:
            self.remove()
        if not pipeline.metrics:
            return
        text = _exposition(pipeline, self._host, hung=bool(trouble))
        aside = f"{pipeline.metrics}.new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        # Whoever runs node_exporter is to read it.
        with open_fd(os.open(aside, flags, 0o644)) as fd:
            write_all(fd, text)
        os.replace(aside, pipeline.metrics)
        self._path = pipeline.metrics

    def remove(self) -> None:
        """Remove it: what was said last would stand for ever."""
        if self._path:
            with suppress(OSError):
                os.unlink(self._path)
            self._path = ""


def _exposition(pipeline: Pipeline, host: str, *, hung: bool) -> bytes:
    # Late: of all that the helper does only this needs them.
    from watchdogd.operators.oldest import oldest_waiting
    from watchdogd.operators.view import look

    try:
        from watchdogd.operators.metrics import exposition
    except ImportError:
        raise ConfigError(NOT_INSTALLED) from None
    here = hosts_here(pipeline.file)
    hosts = here if hung else read_hosts(pipeline.root, here)
    chosen = Chosen(pipeline, Hosts(hosts.seen), "", "", hung=hung)
    return exposition(look(chosen), oldest_waiting(chosen, time.time()), host=host)[0]
