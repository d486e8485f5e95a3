"""Tells Prometheus of one look at a pipeline: one series for what a stage does on a host.

Labels are the pipeline, the stage, the host, and words of which there are few: no document and no
driver has a series. Counts are those of the stage since its watchdog on that host runs, so what a
driver has counted stays when it is gone. What is in a queue is seen by all hosts alike: of several
that export what they see, the living one whose name comes first tells it.

`prometheus_client` forms the text; it is the extra `metrics`, and imported only here.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from queuedriver import __version__
from queuedriver.driving.measurements import BOUNDS, CAUSES, FILES, OTHER, Durations
from queuedriver.errors import CannotUse, Disagreement, NotFound, NotPermitted
from queuedriver.format import names
from queuedriver.format.units import visible
from queuedriver.operating.queue import Queue
from watchdogd.operators.hosts import Chosen
from watchdogd.operators.view import View
from watchdogd.policy import OUTPUT_FULL, SENTENCES, UNWANTED
from watchdogd.report import SHARES, DriverReport

# States of drivers, and how runs of drivers end, of which there is a series by itself. Anybody who
# may register can say others: there are no more series for that.
_DRIVER_STATES = frozenset(
    {
        *("starting", "ready", "busy", "blocked", "paused", "draining", "stopped", "backoff"),
        *("crash-looped", "hung", "waiting-fs", "tripped", "unkillable", "dead", "lost"),
    }
)
_ENDS = frozenset(
    {
        *("first", "adopted", "crashed", "recycled", "quit", "drained", "failed", "replaced"),
        Disagreement.last_word,
        *(*SENTENCES, *UNWANTED),
    }
)
# The states of items of which a gauge tells.
STATES = ("ready", "failed", "later", "working", "written", "discarded")
_LE = [*map(str, BOUNDS), "+Inf"]
_STAGE = ("stage",)
_HOST = ("stage", "host")
# Of a queue, so many names are looked at for the oldest.
_LOOKED_AT = 1000
# The value of a series, then its labels; None: nobody knows it.
_Row = tuple[Any, ...]


def exposition(
    view: View, oldest: Mapping[str, float], accept: str = "", host: str | None = None
) -> tuple[bytes, str]:
    """Return what a scrape is answered, and its content type, by what the scraper accepts.

    `oldest` has the seconds for which the first document of a stage waits. `host`: only what the
    watchdog of that host is to tell, where each tells of itself; None: of all hosts.
    """
    encode, content_type = choose_encoder(accept)
    return encode(PipelineCollector(view, oldest, host)), content_type


class PipelineCollector(Collector):
    """All metrics of one look at a pipeline."""

    def __init__(self, view: View, oldest: Mapping[str, float], host: str | None) -> None:
        self._view, self._oldest = view, oldest
        self._pipeline = view.chosen.pipeline.name
        self._hosts = view.chosen.hosts.meant(host).seen
        # Each stage and its host, and what the watchdog there says of it, if that lives: the counts
        # of another stand still.
        self._told = [
            ((stage.name, one.report.host), stage)
            for one in self._hosts
            if one.alive
            for stage in one.report.stages
        ]
        self._drivers = defaultdict[tuple[str, str], list[DriverReport]](list)
        for one in self._hosts:
            for driver in one.report.drivers:
                self._drivers[driver.stage, one.report.host].append(driver)
        alive = sorted(one.report.host for one in view.chosen.hosts.alive)
        # Whether what is of no host is to be told here.
        self._tells_shared = host is None or alive[:1] == [host]

    def collect(self) -> Iterator[Metric]:
        """Yield each metric with all its series."""
        yield from self._of_watchdogs()
        if self._tells_shared:
            yield from self._shared()
        yield from self._durations()
        yield from self._counts()
        yield from self._of_intakes()
        yield from self._of_drivers()

    def _gauge(self, name: str, about: str, labels: Sequence[str], rows: Iterable[_Row]) -> Metric:
        return self._metric(GaugeMetricFamily, name, about, labels, rows)

    def _counter(self, name: str, about: str, rows: Iterable[_Row], *labels: str) -> Metric:
        return self._metric(CounterMetricFamily, name, about, (*_HOST, *labels), rows)

    def _metric(
        self,
        kind: Callable[..., Any],
        name: str,
        about: str,
        labels: Sequence[str],
        rows: Iterable[_Row],
    ) -> Metric:
        """Return a metric with a series for each row."""
        metric: Metric = kind(f"queuedriver_{name}", about, labels=("pipeline", *labels))
        for value, *words in rows:
            if value is not None:
                told = value if isinstance(value, dict) else {"value": value}
                metric.add_metric(self._labels(words), **told)  # type: ignore[attr-defined]
        return metric

    def _labels(self, labels: Iterable[str]) -> tuple[str, ...]:
        # A name is no way to steer the terminal of whoever looks at it.
        words = self._pipeline, *labels
        return words if all(map(str.isprintable, words)) else tuple(map(visible, words))

    def _of_watchdogs(self) -> Iterator[Metric]:
        hosts = [(one.report.host, one.alive, one.report) for one in self._hosts]
        rows: list[_Row] = [(alive, host) for host, alive, _ in hosts]
        yield self._gauge("watchdog_up", "Whether the watchdog lives.", ("host",), rows)
        rows = [(said.at, host) for host, _, said in hosts]
        about = "When the watchdog last said anything."
        yield self._gauge("watchdog_last_report_timestamp_seconds", about, ("host",), rows)
        about = "Whether the file system of the queues is not well."
        rows = [(bool(said.trouble), host) for host, _, said in hosts]
        yield self._gauge("file_system_trouble", about, ("host",), rows)
        about = "The version that tells this; always 1."
        rows = [(1, host, __version__) for host, *_ in hosts]
        yield self._gauge("build_info", about, ("host", "version"), rows)

    # What all hosts see alike

    def _shared(self) -> Iterator[Metric]:
        view = self._view
        items = (
            (getattr(counts, state), stage.name, queue, state)
            for stage in view.chosen.pipeline.stages
            for queue in stage.inputs
            if (counts := view.items.get(queue)) is not None
            for state in STATES
        )
        about = "Items in the queues of a stage."
        yield self._gauge("documents", about, (*_STAGE, "queue", "state"), items)
        about = "For how long the document waits that waits longest."
        names = [one.name for one in view.stages]
        ages = ((self._oldest.get(name), name) for name in names)
        yield self._gauge("oldest_waiting_seconds", about, _STAGE, ages)
        # Whether there is a PAUSE cannot be known of a root that does not answer.
        otherwise = view.controls.paused or (None if view.chosen.hung else False)
        paused = ((one.state == "paused" or otherwise, one.name) for one in view.stages)
        about = "Whether the stage claims nothing, as somebody said so."
        yield self._gauge("paused", about, _STAGE, paused)
        full = {one.stage for one in view.drivers if one.why == OUTPUT_FULL}
        about = "Whether a driver waits for room in what the stage publishes into."
        yield self._gauge("output_full", about, _STAGE, ((name in full, name) for name in names))

    # What each stage has counted on each host

    def _durations(self) -> Iterator[Metric]:
        for name, about, of in (
            ("wait_seconds", "How long documents had waited when they were claimed.", "waits"),
            ("service_seconds", "How long documents took that were done.", "services"),
        ):
            rows = ((_histogram(getattr(one.counted, of)), *where) for where, one in self._told)
            yield self._metric(HistogramMetricFamily, name, about, _HOST, rows)

    def _counts(self) -> Iterator[Metric]:
        told = self._told
        yield self._counter("published", "Documents done.", self._done())
        for name, about, of in (
            ("failed", "Attempts that failed.", "failed"),
            ("discarded", "Documents discarded.", "discarded"),
        ):
            causes = (
                (number, *where, cause)
                for where, stage in told
                for cause, number in zip(CAUSES, getattr(stage.counted, of), strict=True)
            )
            yield self._counter(name, about, causes, "cause")
        retried = (
            (sum(stage.counted.failed) - sum(stage.counted.discarded), *where, "rule")
            for where, stage in told
        )
        yield self._counter("retried", "Documents to be tried again.", retried, "by")
        starts = (
            (number, *where, why)
            for where, stage in told
            for why, number in _known(stage.starts, _ENDS).items()
        )
        about = "Drivers started, by how the one before had ended."
        yield self._counter("driver_starts", about, starts, "why")
        spent = (
            (sum(getattr(one, doing) for one in self._drivers[where]) / 1000, *where, doing)
            for where, _ in told
            for doing in SHARES
        )
        about = "What drivers spent their time on."
        yield self._counter("driver_seconds", about, spent, "doing")

    def _done(self, *, taken: bool = False) -> Iterator[_Row]:
        """Yield how many documents the drivers of each stage have done; or only of each intake."""
        for where, stage in self._told:
            if stage.files is not None or not taken:
                yield sum(one.documents for one in self._drivers[where]), *where

    def _of_intakes(self) -> Iterator[Metric]:
        files = (
            (stage.files.get(state, 0), *where, state)
            for where, stage in self._told
            if stage.files is not None
            for state in FILES
        )
        about = "Files in the folder of an intake that it has not taken."
        yield self._gauge("intake_files", about, (*_HOST, "state"), files)
        yield self._counter("intake_taken", "Files that an intake took.", self._done(taken=True))

    # Drivers

    def _of_drivers(self) -> Iterator[Metric]:
        for name, about, of in (
            ("drivers_wanted", "How many drivers there are to be.", "wanted"),
            ("memory_bytes", "What all drivers of the stage take.", "memory"),
        ):
            rows = ((getattr(stage, of), *where) for where, stage in self._told)
            yield self._gauge(name, about, _HOST, rows)
        hosts = {one.report.host for one in self._hosts}
        states = defaultdict[tuple[str, str], Counter[str]](Counter)
        # Since when a document is at hand, of those that there are; 0 where none is.
        since = {where: 0.0 for where, _ in self._told}
        for one in self._view.drivers:
            where = one.stage, one.host
            if one.host in hosts:
                states[where][one.state] += 1
            if one.host in hosts and one.document and one.since:
                since[where] = min(since.get(where) or one.since, one.since)
        there = (
            (number, *where, state)
            for where, counts in states.items()
            for state, number in _known(counts, _DRIVER_STATES).items()
        )
        yield self._gauge("drivers", "Drivers, by what they do.", (*_HOST, "state"), there)
        at, known = self._view.at, sorted(since.items())
        longest = ((max(0.0, at - one) if one else 0.0, *where) for where, one in known)
        about = "For how long a driver has had a document that has had it longest."
        yield self._gauge("longest_at_hand_seconds", about, _HOST, longest)


def _histogram(durations: Durations) -> dict[str, object]:
    """Return the series of durations, as `add_metric` takes them."""
    sums = map(float, itertools.accumulate(durations.counts))
    return {"buckets": list(zip(_LE, sums, strict=True)), "sum_value": durations.total / 1e9}


def _known(numbers: Mapping[str, int], words: Collection[str]) -> Counter[str]:
    """Return numbers by words, all others together."""
    found = Counter[str]()
    for word, number in numbers.items():
        found[word if word in words else OTHER] += number
    return found


# What no look has


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
        except (NotFound, CannotUse, NotPermitted) as error:
            if chosen.hosts.seen or not isinstance(error, NotFound):
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
