"""Metrics for scrapers; and those of a host as a file, for the textfile collector of node_exporter.

It is written aside and renamed, without timestamps, for one would have the whole file passed over.
The instant of the watchdog's last report is a metric, and tells when it grows old.
"""

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from queuedriver.disk.filesystem import open_fd, write_all
from queuedriver.errors import ConfigError
from watchdogd.pipeline.model import Pipeline

if TYPE_CHECKING:
    from watchdogd.operators.view import View

# Seconds from one time to the next.
EVERY = 15.0


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
        text, _ = exposition_of(_look(pipeline, hung=bool(trouble)), host=self._host)
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


def exposition_of(view: "View", accept: str = "", host: str | None = None) -> tuple[bytes, str]:
    """Return what a scrape is answered, as `metrics.exposition` does, by a look at a pipeline."""
    try:
        # The library is an extra of its own, and takes a tenth of a second to load.
        from watchdogd.operators.metrics import exposition, oldest_waiting
    except ImportError:
        raise ConfigError(
            "metrics need prometheus_client; install it with: pip install 'queuedriver[metrics]'"
        ) from None
    return exposition(view, oldest_waiting(view.chosen, time.time()), accept, host)


def _look(pipeline: Pipeline, *, hung: bool) -> "View":
    # Late: of all that the helper does only this needs it, and most write no such file.
    from watchdogd.operators.hosts import Chosen, Hosts, hosts_here, read_hosts
    from watchdogd.operators.view import look

    here = hosts_here(pipeline.file)
    hosts = here if hung else read_hosts(pipeline.root, here)
    return look(Chosen(pipeline, Hosts(hosts.seen), "", "", hung=hung))
