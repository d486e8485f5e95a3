"""What an operator sees of a queue's jobs, and does to them: by files, so from any host that mounts
the queue, and whether or not a broker runs.

    hold, release    PAUSE in the job's directory
    cancel           CANCEL there; the broker drops what was not begun
    stop             a wish in `.queuedriver/fuq/` (`fuq_board.py`)
"""

import os
import time
from collections.abc import Iterator, Sequence

import msgspec

from queuedriver.claims.liveness import Observer
from queuedriver.disk.filesystem import Directory
from queuedriver.disk.journal import Journal
from queuedriver.doors.fuq import board as fuq_board
from queuedriver.doors.fuq.board import Presence, Seen, Wish
from queuedriver.errors import BadArgument, NotFound, NotRegular, ProcessorFailed, Unreachable
from queuedriver.format import names
from queuedriver.format.records import decode
from queuedriver.jobs import job as fuq_jobs
from queuedriver.jobs.job import Record
from queuedriver.jobs.jobfile import MAX_JOB_FILE, JobFile
from queuedriver.jobs.jobfile import decode as decode_job
from queuedriver.jobs.outcomes import Outcome, Outcomes
from queuedriver.operating import operations
from queuedriver.operating.queue import Queue

# The states of a job, as the original calls them; "finished" ones have no directory any more.
WAITING, RUNNING, PAUSED, CANCELLED = "waiting", "running", "paused", "cancelled"
# Directories that are read for their clients at most.
_MOST_QUEUED = 1000


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """One job, for whoever looks."""

    # 0 until it is taken up.
    job: int
    docid: str
    name: str
    state: str
    command: str
    tasks: int
    num_proc: int
    pending: int
    running: int
    done: int
    errors: int
    cancelled: int
    # Why nothing of it runs; empty when something does, or nothing is left to.
    why: str = ""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """All that is to be seen."""

    queue: str
    brokers: tuple[Presence, ...]
    jobs: tuple[JobView, ...]

    @property
    def clients(self) -> list[tuple[str, Seen]]:
        """Each with the broker it is connected to."""
        return [(one.broker, client) for one in self.brokers for client in one.clients]


def view(queue: Queue) -> View:
    """The jobs of a queue, those that were taken up first, and who is there to run them."""
    brokers = _brokers(queue)
    clients = [client for one in brokers for client in one.clients]
    jobs: list[JobView] = []
    for directory in _directories(queue):
        try:
            found = _view_of(directory, bool(brokers), clients)
        finally:
            directory.close()
        if found is not None:
            jobs.append(found)
    jobs += _queued(queue, bool(brokers))
    return View(queue=queue.path, brokers=tuple(brokers), jobs=tuple(jobs))


def _brokers(queue: Queue) -> list[Presence]:
    """Those that live, and what they say of their clients."""
    observer = Observer()
    alive = [one.id for one in queue.drivers(observer).values() if one.alive and one.is_broker]
    directory = queue.inside(fuq_board.DIRECTORY)
    if directory is None:
        return []
    found = []
    try:
        for broker in sorted(alive):
            try:
                found.append(decode(directory.read(f"{broker}.json"), Presence))
            except (FileNotFoundError, NotRegular, msgspec.DecodeError):
                # It is about to be there.
                found.append(Presence(broker, (), ()))
    finally:
        directory.close()
    return found


def _directories(queue: Queue) -> Iterator[Directory]:
    jobs = queue.inside(fuq_jobs.JOBS)
    if jobs is None:
        return
    try:
        for job in fuq_jobs.job_ids(jobs):
            try:
                directory = jobs.subdirectory(str(job))
            except (FileNotFoundError, NotADirectoryError):
                continue
            yield directory
    finally:
        jobs.close()


def _view_of(directory: Directory, served: bool, clients: Sequence[Seen]) -> JobView | None:
    record = fuq_jobs.read_record(directory)
    if record is None or not fuq_jobs.is_born(directory, record):
        return None
    outcomes = Outcomes(directory, record.file.num_tasks)
    pending = running = 0
    for item in map(names.parse, directory.names()):
        if item is None or item.docid == record.docid or item.state == names.WRITING:
            continue
        claimed = item.state in (names.WORKING, names.WRITTEN)
        running += claimed
        pending += not claimed
        number = item.docid.rpartition(".")[2]
        if number.isdecimal() and number.isascii():
            outcomes.reopen(int(number[:10]))
    state = _state(directory, running, outcomes)
    # What a dead broker dealt waits for the next one.
    waits = pending and not running if served else pending or running
    return JobView(
        job=record.job,
        docid=record.docid,
        name=record.file.name,
        state=state,
        command=record.file.command,
        tasks=record.file.num_tasks,
        num_proc=record.file.num_proc,
        pending=pending,
        running=running,
        done=outcomes.count(Outcome.DONE),
        errors=outcomes.count(Outcome.ERROR) + outcomes.count(Outcome.LOST),
        cancelled=outcomes.count(Outcome.CANCELLED),
        why=_why(record, state, served, clients) if waits else "",
    )


def _state(directory: Directory, running: int, outcomes: Outcomes) -> str:
    if directory.present(fuq_jobs.CANCEL):
        return CANCELLED
    if directory.present(names.PAUSE):
        return PAUSED
    begun = running or outcomes.count(Outcome.OPEN) < outcomes.tasks
    return RUNNING if begun else WAITING


def _why(record: Record, state: str, served: bool, clients: Sequence[Seen]) -> str:
    """Why none of a job's tasks runs. Pure."""
    need = record.file.num_proc
    if state == PAUSED:
        return "it is held; release it"
    if not served:
        return "no broker runs"
    if not clients:
        return "no client is connected"
    willing = [one for one in clients if record.job not in one.refused]
    if not willing:
        return "every client refuses it: see their --allow, --root and --log-root"
    largest = max(one.nproc for one in willing)
    if need > largest:
        return (
            f"each of its tasks takes {need} processors, and the largest client that would run "
            f"it has {largest}"
        )
    return "all processors are taken"


def _queued(queue: Queue, served: bool) -> Iterator[JobView]:
    """Job files that no broker has taken up."""
    why = "it waits for its turn" if served else "no broker runs"
    for count, (name, item) in enumerate(queue.items()):
        if item.state not in (names.READY, names.LATER, names.FAILED) or count >= _MOST_QUEUED:
            continue
        try:
            job = decode_job(item.docid, queue.directory.read(name, MAX_JOB_FILE + 1))
        except (FileNotFoundError, NotRegular, ProcessorFailed):
            job = JobFile("?")
        yield JobView(
            job=0,
            docid=item.docid,
            name=job.name,
            state=WAITING,
            command=job.command,
            tasks=job.num_tasks,
            num_proc=job.num_proc,
            pending=job.num_tasks,
            running=0,
            done=0,
            errors=0,
            cancelled=0,
            why=why,
        )


# What is done to jobs


def hold(queue: Queue, jobs: Sequence[str]) -> None:
    """Begin no task of these; what runs goes on."""
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
    queued = {item.docid for _, item in queue.items()}
    for job in jobs:
        if job in queued:
            reason = "cancelled before it was taken up"
            [came] = operations.discard(queue, [job], [], reason, journal)
            if came.came == "done":
                continue
        for directory in _meant(queue, [job]):
            directory.mark(fuq_jobs.CANCEL)
            directory.sync()


def _meant(queue: Queue, jobs: Sequence[str]) -> Iterator[Directory]:
    """The directories of jobs named by their JobIds or docids; all are found before any is used."""
    found: list[Directory] = []
    known = list(_directories(queue))
    try:
        for job in jobs:
            these = [one for one in known if _is(one, job)]
            if not these:
                raise _missing(queue, job)
            found += [one for one in these if one not in found]
        yield from found
    finally:
        for one in known:
            one.close()


def _is(directory: Directory, job: str) -> bool:
    if os.path.basename(directory.path) == job:
        return True
    record = fuq_jobs.read_record(directory)
    return record is not None and record.docid == job


def _missing(queue: Queue, job: str) -> NotFound:
    if any(item.docid == job for _, item in queue.items()):
        return NotFound(
            f"{job!r} waits in {queue.path}, and no broker has taken it up yet; start one, or use "
            f"queuedriver pause {queue.path}"
        )
    return NotFound(f"no job {job!r} in {queue.path}; see queuedriver fuq status {queue.path}")


def stop(queue: Queue, number: int, client: str | None) -> list[str]:
    """Wish that clients have so many processors less; the names of the wishes."""
    brokers = _brokers(queue)
    if not brokers:
        raise Unreachable(f"no broker runs on {queue.path}, so no client is connected")
    wishes = [Wish(number, one.broker) for one in brokers]
    if client is not None:
        broker, _, name = client.rpartition("/")
        wishes = [
            Wish(number, one.broker, seen.client)
            for one in brokers
            for seen in one.clients
            if seen.client == name and broker in ("", one.broker)
        ]
        if not wishes:
            raise NotFound(f"no client {client!r}; see queuedriver fuq status {queue.path}")
        if len(wishes) > 1:
            raise BadArgument(f"{client!r} may be one of {len(wishes)}: write BROKER/{client}")
    directory = queue.private.subdirectory(fuq_board.DIRECTORY, create=True)
    try:
        return [fuq_board.write_wish(directory, wish) for wish in wishes]
    finally:
        directory.close()


def taken(queue: Queue, wishes: Sequence[str], seconds: float) -> bool:
    """Wait until a broker has taken these wishes."""
    until = time.monotonic() + seconds
    directory = queue.private.subdirectory(fuq_board.DIRECTORY, create=True)
    try:
        while any(directory.present(name) for name in wishes):
            if time.monotonic() >= until:
                return False
            time.sleep(0.02)
        return True
    finally:
        directory.close()
