"""Tells Prometheus of one look at a pipeline: one series for what a stage does on a host.

Labels are the pipeline, the stage, the host, and words of which there are few: no document and no
driver has a series. Counts are those of the stage since its watchdog on that host runs, so what a
driver has counted stays when it is gone. What is in a queue is seen by all hosts alike: of several
that export what they see, the living one whose name comes first tells it.

`prometheus_client` forms the text; it is the extra `metrics`, and imported only here.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
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
from watchdogd.operators.hosts import Chosen, SeenHost
from watchdogd.operators.sentences import MEANINGS
from watchdogd.operators.view import View
from watchdogd.policy import OUTPUT_FULL, SENTENCES, UNWANTED
from watchdogd.report import SHARES, DriverReport

# How runs of drivers end, of which there is a series by itself. Anybody who may register can say
# others, and other states of drivers: there are no more series for that.
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
# Of a queue, so many names are looked at for the oldest.
_LOOKED_AT = 1000
_GAUGE, _COUNTER, _HISTOGRAM = GaugeMetricFamily, CounterMetricFamily, HistogramMetricFamily
# What each metric says, by what it is and its labels beside the pipeline.
_METRICS: Mapping[tuple[Callable[..., Any], str], Mapping[str, str]] = {
    (_GAUGE, "host"): {
        "watchdog_up": "Whether the watchdog lives.",
        "watchdog_last_report_timestamp_seconds": "When the watchdog last said anything.",
        "file_system_trouble": "Whether the file system of the queues is not well.",
    },
    (_GAUGE, "host version"): {"build_info": "The version that tells this; always 1."},
    # What all hosts see alike.
    (_GAUGE, "stage queue state"): {"documents": "Items in the queues of a stage."},
    (_GAUGE, "stage"): {
        "oldest_waiting_seconds": "For how long the document waits that waits longest.",
        "paused": "Whether the stage claims nothing, as somebody said so.",
        "output_full": "Whether a driver waits for room in what the stage publishes into.",
    },
    # What each stage has counted on each host.
    (_HISTOGRAM, "stage host"): {
        "wait_seconds": "How long documents had waited when they were claimed.",
        "service_seconds": "How long documents took that were done.",
    },
    (_COUNTER, "stage host"): {
        "published": "Documents done.",
        "intake_taken": "Files that an intake took.",
    },
    (_COUNTER, "stage host cause"): {
        "failed": "Attempts that failed.",
        "discarded": "Documents discarded.",
    },
    (_COUNTER, "stage host by"): {"retried": "Documents to be tried again."},
    (_COUNTER, "stage host why"): {
        "driver_starts": "Drivers started, by how the one before had ended."
    },
    (_COUNTER, "stage host doing"): {"driver_seconds": "What drivers spent their time on."},
    (_GAUGE, "stage host"): {
        "drivers_wanted": "How many drivers there are to be.",
        "memory_bytes": "What all drivers of the stage take.",
        "longest_at_hand_seconds": "For how long the document is at hand that is so the longest.",
    },
    (_GAUGE, "stage host state"): {
        "drivers": "Drivers, by what they do.",
        "intake_files": "Files in the folder of an intake that it has not taken.",
    },
}
# The series of each metric: the value, None where nobody knows it, and the labels of each.
_Series = defaultdict[str, list[tuple[Any, ...]]]


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
        self._hosts = view.chosen.hosts.meant(host).seen
        alive = sorted(one.report.host for one in view.chosen.hosts.alive)
        # Whether what is of no host is to be told here.
        self._tells_shared = host is None or alive[:1] == [host]

    def collect(self) -> Iterator[Metric]:
        """Yield each metric with all its series."""
        series = _Series(list)
        for one in self._hosts:
            _add_host(series, one)
        if self._tells_shared:
            _add_shared(series, self._view, self._oldest)
        _add_drivers(series, self._view, self._hosts)
        pipeline = self._view.chosen.pipeline.name
        for (kind, labels), metrics in _METRICS.items():
            for name, about in metrics.items():
                metric = kind(f"queuedriver_{name}", about, labels=("pipeline", *labels.split()))
                for value, *words in series[name]:
                    if value is not None:
                        told = value if isinstance(value, dict) else {"value": value}
                        metric.add_metric(_labels(pipeline, *words), **told)
                yield metric


def _labels(*words: str) -> tuple[str, ...]:
    # A name is no way to steer the terminal of whoever looks at it.
    return words if all(map(str.isprintable, words)) else tuple(map(visible, words))


def _add_host(series: _Series, seen: SeenHost) -> None:
    """Add what there is to say of a watchdog, and what each stage has counted since it runs."""
    report, host = seen.report, seen.report.host
    series["watchdog_up"].append((seen.alive, host))
    series["watchdog_last_report_timestamp_seconds"].append((report.at, host))
    series["file_system_trouble"].append((bool(report.trouble), host))
    series["build_info"].append((1, host, __version__))
    by_stage = defaultdict[str, list[DriverReport]](list)
    for driver in report.drivers:
        by_stage[driver.stage].append(driver)
    # The counts of one that is gone stand still.
    for stage in report.stages if seen.alive else ():
        where, counted, drivers = (stage.name, host), stage.counted, by_stage[stage.name]
        done = sum(one.documents for one in drivers)
        series["published"].append((done, *where))
        series["wait_seconds"].append((_histogram(counted.waits), *where))
        series["service_seconds"].append((_histogram(counted.services), *where))
        failed, discarded = counted.failed, counted.discarded
        series["failed"] += [(n, *where, cause) for cause, n in zip(CAUSES, failed, strict=True)]
        series["discarded"] += [
            (n, *where, cause) for cause, n in zip(CAUSES, discarded, strict=True)
        ]
        series["retried"].append((sum(failed) - sum(discarded), *where, "rule"))
        starts = _known(stage.starts, _ENDS)
        series["driver_starts"] += [(n, *where, why) for why, n in starts.items()]
        series["driver_seconds"] += [
            (sum(getattr(one, doing) for one in drivers) / 1000, *where, doing) for doing in SHARES
        ]
        series["drivers_wanted"].append((stage.wanted, *where))
        series["memory_bytes"].append((stage.memory, *where))
        if stage.files is not None:
            series["intake_taken"].append((done, *where))
            series["intake_files"] += [(stage.files.get(one, 0), *where, one) for one in FILES]


def _add_shared(series: _Series, view: View, oldest: Mapping[str, float]) -> None:
    """Add what all hosts see alike."""
    series["documents"] += [
        (getattr(view.items[queue], state), stage.name, queue, state)
        for stage in view.chosen.pipeline.stages
        for queue in stage.inputs
        if queue in view.items
        for state in STATES
    ]
    # Whether there is a PAUSE cannot be known of a root that does not answer.
    otherwise = view.controls.paused or (None if view.chosen.hung else False)
    full = {one.stage for one in view.drivers if one.why == OUTPUT_FULL}
    for stage in view.stages:
        series["oldest_waiting_seconds"].append((oldest.get(stage.name), stage.name))
        series["paused"].append((stage.state == "paused" or otherwise, stage.name))
        series["output_full"].append((stage.name in full, stage.name))


def _add_drivers(series: _Series, view: View, hosts: Collection[SeenHost]) -> None:
    """Add what drivers do, those of these hosts, whoever tells of them."""
    states = defaultdict[tuple[str, str], Counter[str]](Counter)
    # Since when a document is at hand, of those that there are; 0 where none is.
    since = {
        (stage.name, one.report.host): 0.0
        for one in hosts
        if one.alive
        for stage in one.report.stages
    }
    known = {one.report.host for one in hosts}
    for one in view.drivers:
        if one.host in known:
            where = one.stage, one.host
            states[where][one.state] += 1
            if one.document and one.since:
                since[where] = min(since.get(where) or one.since, one.since)
    for where, counts in states.items():
        series["drivers"] += [(n, *where, state) for state, n in _known(counts, MEANINGS).items()]
    for where, began in sorted(since.items()):
        longest = max(0.0, view.at - began) if began else 0.0
        series["longest_at_hand_seconds"].append((longest, *where))


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
