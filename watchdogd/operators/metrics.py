"""What a pipeline's look says, for Prometheus: one series for what a stage does on a host.

Labels are the pipeline, the stage, the host, and words of which there are few: no document and no
driver has a series. Counts are those of the stage since its watchdog on that host runs, so what a
driver has counted stays when it is gone. What is in a queue is seen by all hosts alike: of several
that export what they see, the living one whose name comes first tells it.

`prometheus_client` forms the text; it is the extra `metrics`, and imported only here.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector, CollectorRegistry

from queuedriver import __version__
from queuedriver.driving.counted import BOUNDS, CAUSES, FILES, OTHER, Durations
from queuedriver.errors import Disagreement
from queuedriver.format.units import visible
from watchdogd.operators.hosts import SeenHost
from watchdogd.operators.view import SeenDriver, SeenStage, View
from watchdogd.policy import OUTPUT_FULL, SENTENCES, UNWANTED
from watchdogd.report import SHARES, StageReport

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
_STAGE = ("pipeline", "stage")
_HOST = ("pipeline", "stage", "host")


def exposition(
    view: View, oldest: Mapping[str, float], accept: str = "", host: str | None = None
) -> tuple[bytes, str]:
    """Return what a scrape is answered, and its content type, by what the scraper accepts.

    `oldest` has the seconds for which the first document of a stage waits. `host`: only what the
    watchdog of that host is to tell, where each tells of itself; None: of all hosts.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(PipelineCollector(view, oldest, host))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


class PipelineCollector(Collector):
    """All metrics of one look at a pipeline."""

    def __init__(self, view: View, oldest: Mapping[str, float], host: str | None) -> None:
        self._view, self._oldest, self._host = view, oldest, host
        self._pipeline = view.chosen.pipeline.name
        self._hosts = [
            one for one in view.chosen.hosts.seen if host is None or one.report.host == host
        ]
        alive = sorted(one.report.host for one in view.chosen.hosts.alive)
        # Whether what is of no host is to be told here.
        self._tells_shared = host is None or alive[:1] == [host]

    def collect(self) -> Iterator[Metric]:
        """Yield each metric with all its series."""
        yield from self._watchdogs()
        if self._tells_shared:
            yield from self._shared()
        yield from self._durations()
        yield from self._counts()
        yield from self._intakes()
        yield from self._drivers()

    def _family(
        self, kind: Callable[..., Metric], name: str, about: str, labels: Sequence[str]
    ) -> "_Family":
        return _Family(kind(f"queuedriver_{name}", about, labels=labels), self._pipeline)

    # Watchdogs

    def _watchdogs(self) -> Iterator[Metric]:
        rows: Sequence[tuple[str, str, Callable[[SeenHost], float]]] = (
            ("watchdog_up", "Whether the watchdog lives.", lambda one: one.alive),
            (
                "watchdog_last_report_timestamp_seconds",
                "When the watchdog last said anything.",
                lambda one: one.report.at,
            ),
            (
                "file_system_trouble",
                "Whether the file system of the queues is not well.",
                lambda one: bool(one.report.trouble),
            ),
        )
        for name, about, value in rows:
            family = self._family(GaugeMetricFamily, name, about, ("pipeline", "host"))
            for one in self._hosts:
                family.add(value(one), one.report.host)
            yield family.metric
        family = self._family(
            GaugeMetricFamily,
            "build_info",
            "The version that tells this; always 1.",
            ("pipeline", "host", "version"),
        )
        for one in self._hosts:
            family.add(1, one.report.host, __version__)
        yield family.metric

    # What all hosts see alike

    def _shared(self) -> Iterator[Metric]:
        view = self._view
        family = self._family(
            GaugeMetricFamily,
            "documents",
            "Items in the queues of a stage.",
            (*_STAGE, "queue", "state"),
        )
        for stage in view.chosen.pipeline.stages:
            for queue in stage.inputs:
                if (counts := view.items.get(queue)) is not None:
                    for state in STATES:
                        family.add(getattr(counts, state), stage.name, queue, state)
        yield family.metric
        rows: Sequence[tuple[str, str, Callable[[SeenStage], float | None]]] = (
            (
                "oldest_waiting_seconds",
                "For how long the document waits that waits longest.",
                lambda stage: self._oldest.get(stage.name),
            ),
            (
                "paused",
                "Whether the stage claims nothing, as somebody said so.",
                lambda stage: (
                    view.controls.paused
                    or stage.state == "paused"
                    # Whether there is a PAUSE cannot be known then.
                    or (None if view.chosen.hung else False)
                ),
            ),
            (
                "output_full",
                "Whether a driver waits for room in what the stage publishes into.",
                lambda stage: any(
                    one.stage == stage.name and one.why == OUTPUT_FULL for one in view.drivers
                ),
            ),
        )
        for name, about, value in rows:
            family = self._family(GaugeMetricFamily, name, about, _STAGE)
            for seen in view.stages:
                if (number := value(seen)) is not None:
                    family.add(number, seen.name)
            yield family.metric

    # What each stage has counted on each host

    def _stages(self) -> Iterator[tuple[SeenHost, StageReport]]:
        """Yield the stages of each host whose watchdog lives: the counts of another stand still."""
        for host in self._hosts:
            if host.alive:
                for stage in host.report.stages:
                    yield host, stage

    def _durations(self) -> Iterator[Metric]:
        for name, about, of in (
            ("wait_seconds", "How long documents had waited when they were claimed.", "waits"),
            ("service_seconds", "How long documents took that were done.", "services"),
        ):
            family = self._family(HistogramMetricFamily, name, about, _HOST)
            for host, stage in self._stages():
                family.add_durations(getattr(stage.counted, of), stage.name, host.report.host)
            yield family.metric

    def _counts(self) -> Iterator[Metric]:
        done = self._family(CounterMetricFamily, "published", "Documents done.", _HOST)
        failed = self._family(
            CounterMetricFamily, "failed", "Attempts that failed.", (*_HOST, "cause")
        )
        discarded = self._family(
            CounterMetricFamily, "discarded", "Documents discarded.", (*_HOST, "cause")
        )
        retried = self._family(
            CounterMetricFamily, "retried", "Documents to be tried again.", (*_HOST, "by")
        )
        starts = self._family(
            CounterMetricFamily,
            "driver_starts",
            "Drivers started, by how the one before had ended.",
            (*_HOST, "why"),
        )
        spent = self._family(
            CounterMetricFamily,
            "driver_seconds",
            "What drivers spent their time on.",
            (*_HOST, "doing"),
        )
        for host, stage in self._stages():
            where = stage.name, host.report.host
            drivers = [one for one in host.report.drivers if one.stage == stage.name]
            done.add(_documents(host, stage), *where)
            counted = stage.counted
            for cause, lost, last in zip(CAUSES, counted.failed, counted.discarded, strict=True):
                failed.add(lost, *where, cause)
                discarded.add(last, *where, cause)
            retried.add(sum(counted.failed) - sum(counted.discarded), *where, "rule")
            for why, number in _known(stage.starts, _ENDS).items():
                starts.add(number, *where, why)
            for doing in SHARES:
                spent.add(sum(getattr(one, doing) for one in drivers) / 1000, *where, doing)
        for family in (done, failed, discarded, retried, starts, spent):
            yield family.metric

    def _intakes(self) -> Iterator[Metric]:
        files = self._family(
            GaugeMetricFamily,
            "intake_files",
            "Files in the folder of an intake that it has not taken.",
            (*_HOST, "state"),
        )
        taken = self._family(
            CounterMetricFamily, "intake_taken", "Files that an intake took.", _HOST
        )
        for host, stage in self._stages():
            if stage.files is not None:
                where = stage.name, host.report.host
                for state in FILES:
                    files.add(stage.files.get(state, 0), *where, state)
                taken.add(_documents(host, stage), *where)
        yield files.metric
        yield taken.metric

    # Drivers

    def _drivers(self) -> Iterator[Metric]:
        wanted = self._family(
            GaugeMetricFamily, "drivers_wanted", "How many drivers there are to be.", _HOST
        )
        memory = self._family(
            GaugeMetricFamily, "memory_bytes", "What all drivers of the stage take.", _HOST
        )
        for host, stage in self._stages():
            wanted.add(stage.wanted, stage.name, host.report.host)
            memory.add(stage.memory, stage.name, host.report.host)
        yield wanted.metric
        yield memory.metric
        hosts = {one.report.host for one in self._hosts}
        drivers = [one for one in self._view.drivers if one.host in hosts]
        there = self._family(
            GaugeMetricFamily, "drivers", "Drivers, by what they do.", (*_HOST, "state")
        )
        for place, states in _states(drivers).items():
            for state, number in _known(states, _DRIVER_STATES).items():
                there.add(number, *place, state)
        yield there.metric
        longest = self._family(
            GaugeMetricFamily,
            "longest_at_hand_seconds",
            "For how long a driver has had a document that has had it longest.",
            _HOST,
        )
        for (name, at), since in sorted(self._at_hand(drivers).items()):
            longest.add(max(0.0, self._view.at - since) if since else 0.0, name, at)
        yield longest.metric

    def _at_hand(self, drivers: Sequence[SeenDriver]) -> dict[tuple[str, str], float]:
        """Return since when a document is at hand, by stage and host; 0 where none is."""
        found = {(stage.name, host.report.host): 0.0 for host, stage in self._stages()}
        for one in drivers:
            if one.document and one.since:
                where = one.stage, one.host
                found[where] = min(found.get(where) or one.since, one.since)
        return found


def _documents(host: SeenHost, stage: StageReport) -> int:
    """Count what the drivers of a stage have done, or taken, on a host."""
    return sum(one.documents for one in host.report.drivers if one.stage == stage.name)


def _states(drivers: Iterable[SeenDriver]) -> dict[tuple[str, str], Counter[str]]:
    """Count the drivers of each stage and host by their states."""
    found = defaultdict[tuple[str, str], Counter[str]](Counter)
    for one in drivers:
        found[one.stage, one.host][one.state] += 1
    return found


def _known(numbers: Mapping[str, int], words: Collection[str]) -> Counter[str]:
    """Return numbers by words, all others together."""
    found = Counter[str]()
    for word, number in numbers.items():
        found[word if word in words else OTHER] += number
    return found


class _Family:
    """One metric of a pipeline."""

    def __init__(self, metric: Metric, pipeline: str) -> None:
        self.metric = metric
        self._pipeline = pipeline

    def add(self, value: float, *labels: str) -> None:
        """Add a series."""
        self.metric.add_metric(self._labels(labels), value)  # type: ignore[attr-defined]

    def _labels(self, labels: Iterable[str]) -> tuple[str, ...]:
        # A name is no way to steer the terminal of whoever looks at it.
        words = self._pipeline, *labels
        return words if all(map(str.isprintable, words)) else tuple(map(visible, words))

    def add_durations(self, durations: Durations, *labels: str) -> None:
        """Add the series of a histogram."""
        sums = itertools.accumulate(durations.counts)
        buckets = list(zip(_LE, map(float, sums), strict=True))
        self.metric.add_metric(  # type: ignore[attr-defined]
            self._labels(labels), buckets=buckets, sum_value=durations.total / 1e9
        )
