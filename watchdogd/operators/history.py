"""Keeps the history of each stage: a file of fixed size for each host with a watchdog.

    <root>/.watchdogd/history/<host>/<stage>.ring
        64 bytes       which format this is
        2,160 records  one each 10 s, of the last 6 hours
        10,080         one each minute, of the last 7 days

A record has 64 bytes, and its place is its time: that of a later round takes the place of an
earlier one, and its instant tells the two apart. So there is no index that a crash could leave
wrong, a period is one read, and where nobody wrote there is a gap, and no zero. Rates and durations
are of one host, and are summed; what waits is seen by all hosts alike, and counts once.
"""

import math
import operator
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from queuedriver.claims.counts import Counts
from queuedriver.disk.filesystem import Directory, open_fd, regular_size
from queuedriver.driving.measurements import BUCKETS, Counted, quantile
from watchdogd.control import CONTROL, HISTORY, host_file

if TYPE_CHECKING:
    from watchdogd.operators.view import View
    from watchdogd.report import HostReport

SUFFIX = ".ring"
# Seconds from one record to the next, and for how long they are kept.
FINE, COARSE = 10, 60
KEPT = {FINE: 6 * 3600, COARSE: 7 * 86400}
_MAGIC = b"watchdogd history 1\n".ljust(64, b"\0")
# When, of how many seconds; documents done, attempts failed, documents discarded; waiting, at hand,
# drivers; and which share of documents waited, and took, how long, in parts of 255.
_RECORD = struct.Struct(f"<If5IH{BUCKETS}s{BUCKETS}s")
_ALL = 255
_MOST, _MOST_DRIVERS = (1 << 32) - 1, (1 << 16) - 1
# One record may tell of so many seconds before it, in which its watchdog was slow: looks at queues
# that take long are made each half a minute.
_SLOW = 45.0
# Clocks of hosts and of file servers differ by less, in seconds.
_SPARED = 86400.0
# How rates went is told of so many minutes, a character each.
_TREND = 24
_HEIGHTS = "▁▂▃▄▅▆▇█"
# Of the hosts of a period, which may be as many as Slurm had elements, no more are read.
_MOST_HOSTS = 1000
# What nobody wrote, or only others may read, is a gap: it hides nothing else.
_UNREAD = (FileNotFoundError, NotADirectoryError, PermissionError)


# How many records there are of so many seconds; and where they begin, in bytes.
_COUNT = {step: kept // step for step, kept in KEPT.items()}
_START = {FINE: len(_MAGIC), COARSE: len(_MAGIC) + _RECORD.size * _COUNT[FINE]}
SIZE = _START[COARSE] + _RECORD.size * _COUNT[COARSE]


class Sample(NamedTuple):
    """A stage on one host at one moment."""

    # What its drivers there have counted since the watchdog runs.
    documents: int = 0
    counted: Counted = Counted()
    waiting: int = 0
    working: int = 0
    drivers: int = 0


class Shares(NamedTuple):
    """The share that each bucket has of so many documents per second, in parts of 255."""

    rate: float
    parts: bytes


class Moment(NamedTuple):
    """The doings of a stage until an instant: on one host, or on several together."""

    # In seconds since the epoch; and of how many seconds it tells.
    at: float
    seconds: float
    # Documents done, attempts that failed, documents discarded; per second.
    done: float
    failed: float
    discarded: float
    # Documents that wait, and that are at hand, on all hosts; and drivers.
    waiting: int
    working: int
    drivers: int
    # How long documents had waited, and how long they took, on each host.
    waits: tuple[Shares, ...]
    services: tuple[Shares, ...]

    def wait(self, share: float) -> float | None:
        """Return the seconds within which this share of documents was claimed; None of none."""
        return _within(self.waits, share)

    def service(self, share: float) -> float | None:
        """Return the seconds within which this share of documents was done; None of none."""
        return _within(self.services, share)

    def plus(self, other: "Moment") -> "Moment":
        """Return this moment on several hosts."""
        return Moment(
            max(self.at, other.at),
            max(self.seconds, other.seconds),
            self.done + other.done,
            self.failed + other.failed,
            self.discarded + other.discarded,
            # Each looked at it a little before or after the other.
            max(self.waiting, other.waiting),
            max(self.working, other.working),
            self.drivers + other.drivers,
            self.waits + other.waits,
            self.services + other.services,
        )


# Pure


def _packed(at: float, seconds: float, before: Sample, sample: Sample) -> bytes:
    """Return a record of what was counted in so many seconds."""
    more = sample.counted.minus(before.counted)
    done = sample.documents - before.documents
    numbers = done, sum(more.failed), sum(more.discarded), sample.waiting, sample.working
    counts = [max(0, min(number, _MOST)) for number in numbers]
    drivers, parts = min(sample.drivers, _MOST_DRIVERS), (more.waits, more.services)
    shares = (_shares(one.counts) for one in parts)
    return _RECORD.pack(int(at), seconds, *counts, drivers, *shares)


def _shares(counts: Sequence[int]) -> bytes:
    every = sum(counts)
    return bytes(max(0, round(_ALL * one / every)) if every > 0 else 0 for one in counts)


def _unpacked(fields: tuple[int, float, int, int, int, int, int, int, bytes, bytes]) -> Moment:
    at, seconds, documents, failed, discarded, waiting, working, drivers, waits, services = fields
    done, lost, dropped = (one / seconds for one in (documents, failed, discarded))
    shares = (Shares(done + lost, waits),), (Shares(done, services),)
    return Moment(at, seconds, done, lost, dropped, waiting, working, drivers, *shares)


def _within(hosts: Sequence[Shares], share: float) -> float | None:
    """Return the seconds within which this share of the documents of all hosts is."""
    if len(hosts) == 1:
        return quantile(hosts[0].parts, share)
    counts = [0.0] * BUCKETS
    for one in hosts:
        every = sum(one.parts) or 1
        counts = list(map(operator.add, counts, (part * one.rate / every for part in one.parts)))
    return quantile(counts, share)


# Write


def samples(report: "HostReport", queues: Mapping[str, Counts]) -> dict[str, Sample]:
    """Return what a watchdog and a look at the queues say of its stages."""
    found = {}
    for stage in report.stages:
        drivers = [one for one in report.drivers if one.stage == stage.name]
        looks = [queues[name] for name in stage.inputs if name in queues]
        found[stage.name] = Sample(
            documents=sum(one.documents for one in drivers),
            counted=stage.counted,
            waiting=sum(one.waiting for one in looks),
            working=sum(one.claimed for one in looks),
            drivers=sum(one.pid > 0 for one in drivers),
        )
    return found


class Writer:
    """Writes what the stages of one host do; all instants are in seconds since the epoch."""

    def __init__(self, host: str) -> None:
        self._host = host_file(host)
        # What each stage had counted when its last record of so many seconds was written.
        self._before: dict[tuple[str, int], tuple[float, Sample]] = {}
        self._written_at = dict.fromkeys(KEPT, -math.inf)

    def is_due(self, now: float) -> bool:
        """Tell whether there is something to write."""
        return bool(self._due(now))

    def _due(self, now: float) -> list[int]:
        # Also when a clock was set back.
        return [step for step, at in self._written_at.items() if now // step != at // step]

    def write(
        self, control: Directory, samples: Mapping[str, Sample], now: float, began_at: float
    ) -> None:
        """Append what is due to a control directory; the counts began with the watchdog. A crash
        leaves a record out."""
        due = self._due(now)
        for step in due:
            self._written_at[step] = now
        inside = os.path.join(HISTORY, self._host)
        with closing(control.subdirectory(inside, create=True)) as directory:
            for stage, sample in samples.items():
                records = [self._record(stage, sample, step, now, began_at) for step in due]
                _write(directory, stage + SUFFIX, [one for one in records if one is not None])

    def _record(
        self, stage: str, sample: Sample, step: int, now: float, began_at: float
    ) -> tuple[int, bytes] | None:
        """Return where a record belongs, and the record; None while it is not known since when it
        counts."""
        began = (began_at, Sample()) if now - began_at <= step else None
        known = self._before.get((stage, step), began)
        self._before[stage, step] = now, sample
        # Fewer than before: another watchdog counts from the beginning.
        if known is None or now <= known[0] or sample.documents < known[1].documents:
            return None
        at, before = known
        place = _START[step] + int(now // step) % _COUNT[step] * _RECORD.size
        return place, _packed(now, now - at, before, sample)


def _write(directory: Directory, name: str, records: Sequence[tuple[int, bytes]]) -> None:
    """Write records to their places; what is there and is no ring is replaced."""
    with open_fd(_open_ring(directory, name)) as fd:
        for place, record in records:
            os.pwrite(fd, record, place)


def _open_ring(directory: Directory, name: str) -> int:
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with suppress(FileNotFoundError):
        fd = os.open(name, flags, dir_fd=directory.fd)
        if os.pread(fd, len(_MAGIC), 0) == _MAGIC:
            return fd
        os.close(fd)
    # It grows as places in it are written.
    directory.write_aside(name, _MAGIC)
    return os.open(name, flags, dir_fd=directory.fd)


def tidy(control: Directory, now: float) -> None:
    """Remove rings of which all that is in them is too old to be read, as of a stage or a host that
    has another name by now. `now` is in seconds since the epoch."""
    if (hosts := control.look_into(HISTORY)) is None:
        return
    with closing(hosts):
        for host in list(hosts.names()):
            with suppress(NotADirectoryError), closing(hosts.subdirectory(host)) as directory:
                for name in list(directory.names()):
                    if now - directory.status(name).st_mtime > KEPT[COARSE] + _SPARED:
                        directory.remove(name)


# Read


def read(
    root: str,
    stage: str,
    since: float,
    until: float,
    step: int,
    hosts: Iterable[str] | None = None,
) -> list[Moment | None]:
    """Return what a stage of the pipeline with this root did on these hosts, or on all: one moment
    for each `step` (FINE or COARSE) from `since` to `until`, None where nobody wrote."""
    first, last = int(since // step), int(until // step)
    found: list[Moment | None] = [None] * max(0, last - first + 1)
    try:
        directory = Directory.open(os.path.join(root, CONTROL, HISTORY), inside=2)
    except _UNREAD:
        return found
    with closing(directory):
        every = islice(_writers(directory, stage, since), _MOST_HOSTS)
        for host in every if hosts is None else map(host_file, hosts):
            for slot, moment in _of_host(directory, f"{host}/{stage}{SUFFIX}", first, last, step):
                before = found[slot - first]
                found[slot - first] = moment if before is None else before.plus(moment)
    return found


def trends(view: "View") -> dict[str, tuple[float | None, ...]]:
    """Return how many documents each stage did per second in each of the last minutes."""
    root, since = view.chosen.pipeline.root, view.at - (_TREND - 1) * COARSE
    hosts = view.chosen.hosts.writers
    past = {one.name: read(root, one.name, since, view.at, COARSE, hosts) for one in view.stages}
    return {
        name: tuple(None if one is None else one.done for one in moments)
        for name, moments in past.items()
    }


def trend(rates: Sequence[float | None]) -> str:
    """Return numbers as a line of characters, the highest full; a gap where nobody wrote."""
    most = max((one for one in rates if one), default=0.0)
    return "".join(
        " " if one is None else _HEIGHTS[round(one / most * (len(_HEIGHTS) - 1)) if most else 0]
        for one in rates
    )


def _writers(directory: Directory, stage: str, since: float) -> Iterator[str]:
    """Yield the hosts that have written of a stage since an instant."""
    for host in directory.names():
        with suppress(*_UNREAD):
            if directory.status(f"{host}/{stage}{SUFFIX}").st_mtime >= since - _SPARED:
                yield host


def _of_host(
    directory: Directory, name: str, first: int, last: int, step: int
) -> Iterator[tuple[int, Moment]]:
    """Yield the moments of one ring, each for every slot that it tells of."""
    try:
        fd = directory.open_read(name)
    except _UNREAD:
        return
    with open_fd(fd):
        first = max(first, last - _COUNT[step] + 1)
        if first > last or regular_size(fd) is None:
            return
        data = _read_slots(fd, first, last, step)
    reached = first
    for fields in _RECORD.iter_unpack(data):
        at, seconds = fields[:2]
        slot = at // step
        if not (reached <= slot <= last and seconds > 0):
            # Of another round, or never written.
            continue
        moment = _unpacked(fields)
        begins = slot if seconds > _SLOW + step else int((at - seconds) // step) + 1
        for each in range(max(reached, min(slot, begins)), slot + 1):
            yield each, moment
        reached = slot + 1


def _read_slots(fd: int, first: int, last: int, step: int) -> bytes:
    """Return the records at the places of these slots, in the order of time, by one read."""
    count, size, start = _COUNT[step], _RECORD.size, _START[step]
    begin, wanted = first % count, last - first + 1
    if begin + wanted <= count:
        data = os.pread(fd, wanted * size, start + begin * size)
    else:
        every = os.pread(fd, count * size, start).ljust(count * size, b"\0")
        data = every[begin * size :] + every[: (begin + wanted - count) * size]
    return data[: len(data) // size * size]
