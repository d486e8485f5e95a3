"""What an operator sees of a queue's jobs, and does to them: by files, so from any host that mounts
the queue, and whether or not a broker runs.

    status           `.queuedriver/fuq/<broker id>.json`, written by each broker: its clients, and
                     its jobs with those that ended last. It stays when the broker has left
    hold, release    PAUSE in the job's directory
    cancel           CANCEL there; the broker drops what was not begun
    stop             `.queuedriver/fuq/stop-<serial>.json`: the broker does it, and removes it

All are written aside and renamed in, so each is read whole. A request that a broker did not live to
do is dropped by its next life: its clients' numbers mean others by then.
"""

import os
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, suppress

import msgspec

from queuedriver.claims.liveness import Observer
from queuedriver.disk.filesystem import Directory
from queuedriver.disk.journal import Journal
from queuedriver.errors import NotFound, ProcessorFailed, Unreachable
from queuedriver.format import names
from queuedriver.format.records import read_record
from queuedriver.jobs.job import CANCEL, JOBS, RECORD, Record
from queuedriver.jobs.jobfile import MAX_JOB_FILE, ClientView, JobFile, JobView, decode
from queuedriver.operating import operations
from queuedriver.operating.queue import Queue

DIRECTORY = "fuq"
# How often at most a broker says what there is to see, in seconds.
WRITE_EVERY = 0.5
# Job files that wait and are read at most.
_MOST_QUEUED = 1000
_NOBODY = "no broker runs"


class BrokerView(msgspec.Struct, frozen=True):
    """What a broker says: who is connected to it, and how its jobs are."""

    broker: str
    # When it was written, in seconds since the epoch.
    at: float
    endpoints: tuple[str, ...] = ()
    clients: tuple[ClientView, ...] = ()
    # In the order in which they were taken up; and those that ended, the latest last.
    jobs: tuple[JobView, ...] = ()
    ended: tuple[JobView, ...] = ()


class StopRequest(msgspec.Struct, frozen=True):
    """Take so many processors: 0 is all, 0xFFFFFFFF all and at once."""

    number: int
    # Of whose clients, and of which; empty: of all.
    broker: str
    client: str = ""


# The broker's side


class BrokerFiles:
    """One broker's files."""

    def __init__(self, queue: Queue, broker: str) -> None:
        self._directory = queue.private.subdirectory(DIRECTORY, create=True)
        self.broker = broker
        living = {one.id for one in queue.drivers(Observer()).values() if one.alive}
        former = [one for one in _views(self._directory) if one.broker not in living - {broker}]
        former.sort(key=lambda one: one.at)
        # Jobs that ended under brokers that are gone, the latest last. Killed before it removed
        # their files, an earlier life said the same.
        ended = {job.job: job for one in former for job in one.ended}
        self.ended = list(ended.values())
        self._former = [one.broker for one in former if one.broker != broker]
        # An earlier life's.
        list(self.stops())

    def write(self, view: BrokerView) -> None:
        """Say how all of it is; then what brokers said that are gone is not needed any more."""
        self._directory.write_aside(f"{self.broker}.json", msgspec.json.encode(view))
        while self._former:
            self._directory.remove(f"{self._former.pop()}.json")

    def stops(self) -> Iterator[StopRequest]:
        """Yield the requests for this broker in the order in which they were made, and remove
        them."""
        for name in sorted(self._directory.names()):
            if name.startswith("stop-") and name.endswith(".json"):
                request = read_record(self._directory, name, StopRequest)
                if request is None or request.broker != self.broker:
                    continue
                self._directory.remove(name)
                if 0 <= request.number <= 0xFFFFFFFF:
                    yield request

    def close(self) -> None:
        self._directory.close()


# The operator's side


class View(msgspec.Struct, frozen=True, kw_only=True):
    """All that is to be seen."""

    queue: str
    # Those that live.
    brokers: tuple[BrokerView, ...]
    jobs: tuple[JobView, ...]
    # When the latest broker said this that is gone, in seconds since the epoch; 0 while one lives.
    said_at: float = 0.0

    @property
    def clients(self) -> list[tuple[str, ClientView]]:
        """Return each with the broker it is connected to."""
        return [(one.broker, client) for one in self.brokers for client in one.clients]


def view(queue: Queue) -> View:
    """Return the jobs of a queue, those that ended first and those that wait last, and who is there
    to run them."""
    brokers, gone = _brokers(queue)
    left = {job.docid for one in gone for job in one.jobs}
    served = {job.docid for one in brokers for job in one.jobs}
    there: set[str] = set()
    queued: list[tuple[str, str]] = []
    for name, item in queue.items():
        if item.docid in left:
            there.add(item.docid)
        elif not (item.claimed and item.docid in served) and len(queued) < _MOST_QUEUED:
            queued.append((name, item.docid))
    jobs = {job.job: job for one in gone for job in one.ended}
    # What a dead broker dealt waits for the next one.
    jobs |= {
        job.job: msgspec.structs.replace(
            job, pending=job.pending + job.running, running=0, why=_NOBODY
        )
        for one in gone
        for job in one.jobs
        if job.docid in there
    }
    jobs |= {job.job: job for one in brokers for job in (*one.ended, *one.jobs)}
    ordered = sorted(jobs.values(), key=lambda job: (job.state != "finished", job.job))
    why = "it waits for its turn" if brokers else _NOBODY
    ordered += [_queued(queue, name, docid, why) for name, docid in queued]
    said_at = 0.0 if brokers else max((one.at for one in gone), default=0.0)
    return View(queue=queue.path, brokers=tuple(brokers), jobs=tuple(ordered), said_at=said_at)


def _brokers(queue: Queue) -> tuple[list[BrokerView], list[BrokerView]]:
    """Return what the brokers say that live, and what those said that are gone."""
    owners = queue.drivers(Observer()).values()
    alive = sorted(one.id for one in owners if one.alive and one.is_broker)
    directory = queue.inside(DIRECTORY)
    if directory is None:
        return [], []
    with closing(directory):
        views = {one.broker: one for one in _views(directory)}
    # One that has just started has said nothing yet.
    living = [views.get(one) or BrokerView(one, time.time()) for one in alive]
    return living, [one for broker, one in views.items() if broker not in alive]


def _views(directory: Directory) -> list[BrokerView]:
    found = (
        read_record(directory, name, BrokerView)
        for name in directory.names()
        if name.endswith(".json") and not name.startswith((".", "stop-"))
    )
    return [one for one in found if one is not None]


def _queued(queue: Queue, name: str, docid: str, why: str) -> JobView:
    """Return a job that no broker has taken up."""
    try:
        job = decode(docid, queue.directory.read(name, MAX_JOB_FILE + 1))
    except (OSError, ProcessorFailed):
        # Taken up just now, or none.
        job = JobFile("?")
    return JobView(
        job=0,
        docid=docid,
        name=job.name,
        state="waiting",
        command=job.command,
        tasks=job.num_tasks,
        num_proc=job.num_proc,
        pending=job.num_tasks,
        why=why,
    )


# What is done to jobs


def hold(queue: Queue, jobs: Sequence[str]) -> None:
    """Begin no task of these, named by their JobIds or docids; what runs goes on."""
    for directory in _meant(queue, jobs):
        directory.mark(names.PAUSE)
        directory.sync()


def release(queue: Queue, jobs: Sequence[str]) -> None:
    """Undo `hold`."""
    for directory in _meant(queue, jobs):
        directory.remove(names.PAUSE)
        directory.sync()


def cancel(queue: Queue, jobs: Sequence[str], journal: Journal) -> None:
    """Drop what was not begun; what runs goes on to its end."""
    for job in jobs:
        if not _at_work(queue, job):
            reason = "cancelled before it was taken up"
            [came] = operations.discard(queue, [job], [], reason, journal)
            if came.came == "done":
                continue
        for directory in _meant(queue, [job]):
            directory.mark(CANCEL)
            directory.sync()


def _meant(queue: Queue, jobs: Sequence[str]) -> Iterator[Directory]:
    """Yield the directories of jobs that are at work; all are found before any is used."""
    meant: dict[str, None] = {}
    for job in jobs:
        meant |= dict.fromkeys(found := _at_work(queue, job))
        if not found and any(item.docid == job for _, item in queue.items()):
            raise NotFound(
                f"{job!r} waits in {queue.path}, and no broker has taken it up yet; start one, or "
                f"use queuedriver pause {queue.path}"
            )
        if not found:
            raise NotFound(
                f"no job {job!r} in {queue.path}; see queuedriver fuq status {queue.path}"
            )
    for name in meant:
        with suppress(FileNotFoundError), queue.private.subdirectory(name) as directory:
            yield directory


def _at_work(queue: Queue, job: str) -> list[str]:
    """Return the directories of the jobs that have this JobId or docid and were taken up."""
    jobs = queue.inside(JOBS)
    if jobs is None:
        return []
    with jobs:
        named = [(name, read_record(jobs, f"{name}/{RECORD}", Record)) for name in jobs.names()]
    return [
        f"{JOBS}/{name}"
        for name, record in named
        if record is not None and job in (str(record.job), record.docid)
    ]


def stop(queue: Queue, number: int, client: str | None) -> list[str]:
    """Ask that a client, named as `status` shows it, or all have so many processors less; return
    the names of the requests."""
    brokers, _ = _brokers(queue)
    if not brokers:
        raise Unreachable(f"no broker runs on {queue.path}, so no client is connected")
    requests = [StopRequest(number, one.broker) for one in brokers]
    if client is not None:
        requests = [
            StopRequest(number, one.broker, seen.client)
            for one in brokers
            for seen in one.clients
            if f"{one.broker}/{seen.client}" == client
        ]
        if not requests:
            raise NotFound(f"no client {client!r}; see queuedriver fuq status {queue.path}")
    written = []
    with queue.private.subdirectory(DIRECTORY, create=True) as directory:
        for request in requests:
            written.append(f"stop-{time.time_ns() // 1000:014x}-{os.urandom(2).hex()}.json")
            directory.write_aside(written[-1], msgspec.json.encode(request))
    return written


def taken(queue: Queue, requests: Collection[str], seconds: float) -> bool:
    """Wait until a broker has taken these requests."""
    until = time.monotonic() + seconds
    with queue.private.subdirectory(DIRECTORY, create=True) as directory:
        while any(directory.present(name) for name in requests):
            if time.monotonic() >= until:
                return False
            time.sleep(0.02)
        return True
