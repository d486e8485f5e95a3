"""The jobs of a queue that were taken up: a directory each, and in it an item per task.

    .queuedriver/jobs/<JobId>/        JobId is the serial of the claim by which it was taken up
        job.json                      what is to be done, and whose docid it had
        <docid>.ready                 the job file itself; its arrival here is the moment from which
                                      the job counts; it becomes the summary, at the end
        <docid>.<task>.ready, …       the tasks that have not ended, as items of a queue have states
        outcomes                      how the others ended
        PAUSE, CANCEL                 hold it; drop what was not begun

Taking up renames the job file from the queue into its directory, when all tasks are there: a crash
before leaves a directory that never counted, and the job in its queue. So it is one commit point,
as in the hand-off, but whither the file goes differs from job to job, which no settings could say.
"""

import shutil
import time
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

import msgspec

from queuedriver.claims.input_queue import InputQueue
from queuedriver.claims.liveness import Observer
from queuedriver.claims.recovery import Recoverer
from queuedriver.disk.filesystem import Directory
from queuedriver.errors import NotRegular
from queuedriver.format import names
from queuedriver.format.records import decode
from queuedriver.jobs.jobfile import JobFile, task_docid
from queuedriver.jobs.outcomes import Outcome, Outcomes

JOBS = "jobs"
RECORD = "job.json"
CANCEL = "CANCEL"
# Pending tasks are dropped so many at a time, and a job's items made: a broker does not fall silent
# for a million of them.
CHUNK = 500


class Record(msgspec.Struct, frozen=True):
    """What is known of a job while it is at work."""

    job: int
    docid: str
    # Seconds since the epoch, by the broker's clock.
    taken_up: float
    file: JobFile


def open_job(outer: InputQueue, directory: Directory, observer: Observer) -> InputQueue:
    """Open a job's directory as a queue inside another: its claims and their ends are those of any
    queue; but drivers, discards and the journal are the queue's that holds it."""
    private = directory.subdirectory(names.PRIVATE, create=True)
    queue = InputQueue(
        directory,
        private,
        outer.targets,
        outer.settings,
        outer.mint,
        outer.journal,
        outer=outer,
    )
    queue.recoverer = Recoverer(queue, observer)
    queue.at_hand = outer.at_hand
    return queue


class OpenJob:
    """One job that its broker deals from."""

    def __init__(self, queue: InputQueue, record: Record) -> None:
        self.queue = queue
        self.record = record
        self.outcomes = Outcomes(queue.directory, record.file.num_tasks)
        # Never tried, the next one last; and what was lost before, with how often.
        self._pending = _numbers()
        self._again: deque[tuple[int, int]] = deque()
        # Tasks that clients have.
        self.in_hand = 0
        self.held = False
        self.cancelled = False
        # Tasks in its directory that are not ours to deal now: postponed, or another broker's.
        self.others = 0
        self._prefix = f"{record.docid}."

    @property
    def id(self) -> int:
        return self.record.job

    @property
    def waiting(self) -> int:
        """How many tasks may be dealt."""
        return 0 if self.held or self.cancelled else len(self._pending) + len(self._again)

    @property
    def dropping(self) -> bool:
        """Whether there is something left to be dropped."""
        return self.cancelled and bool(self._pending or self._again)

    @property
    def stuck(self) -> bool:
        """Whether only others can go on with it, or time."""
        return bool(self.others) and not (self._pending or self._again or self.in_hand)

    @property
    def ended(self) -> bool:
        """Whether no task is left, as far as is known; a scan tells."""
        return not (self._pending or self._again or self.in_hand or self.others)

    def begin(self) -> None:
        """It was taken up just now: all its tasks are there."""
        self._pending = _numbers(range(self.record.file.num_tasks, 0, -1))

    def scan(self) -> None:
        """Take back what dead brokers left, then see what is there."""
        self.queue.recoverer.recover()
        pending: list[int] = []
        self._again, self.others = deque(), 0
        self.outcomes.load()
        now = time.time()
        for _, task, item in self._tasks():
            self.outcomes.reopen(task)
            if item.state == names.READY:
                pending.append(task)
            elif item.state == names.FAILED or (item.state == names.LATER and item.due <= now):
                self._again.append((task, item.attempt))
            elif item.token not in self.queue.at_hand:
                self.others += 1
        pending.sort(reverse=True)
        self._pending = _numbers(pending)

    def look(self) -> None:
        """At its control files."""
        present = self.queue.directory.present
        self.held = present(names.PAUSE)
        self.cancelled = present(CANCEL)

    def next(self) -> tuple[int, str] | None:
        """The task to be dealt next, and the name of its item."""
        if self._pending:
            task, attempt = self._pending.pop(), 0
        elif self._again:
            task, attempt = self._again.popleft()
        else:
            return None
        return task, names.waiting_name(task_docid(self.record.docid, task), attempt)

    def give_back(self, task: int, attempt: int) -> None:
        """It waits again; before all that were never tried, unless it has failed."""
        if attempt:
            self._again.append((task, attempt))
        else:
            self._pending.append(task)

    def drop_pending(self) -> None:
        """Cancelled: end some that were not begun."""
        some = [self._pending.pop() for _ in range(min(CHUNK, len(self._pending)))]
        again = [self._again.popleft() for _ in range(min(CHUNK, len(self._again)))]
        if not (some or again):
            return
        self.outcomes.note([*some, *(task for task, _ in again)], Outcome.CANCELLED)
        directory = self.queue.directory
        for task, attempt in [*((task, 0) for task in some), *again]:
            directory.remove(names.waiting_name(task_docid(self.record.docid, task), attempt))

    def own_item(self) -> str:
        """The name of the job file."""
        return names.waiting_name(self.record.docid, 0)

    def close(self) -> None:
        self.queue.close()
        self.queue.private.close()
        self.queue.directory.close()

    def _tasks(self) -> Iterator[tuple[str, int, names.Item]]:
        """The items of tasks."""
        for name in self.queue.directory.names():
            item = names.parse(name)
            if item is None or item.state == names.WRITING:
                continue
            task = self._number(item.docid)
            if task is not None:
                yield name, task, item

    def _number(self, docid: str) -> int | None:
        number = docid.removeprefix(self._prefix)
        if docid.startswith(self._prefix) and number.isdecimal() and number.isascii():
            task = int(number[:10])
            return task if 1 <= task <= self.record.file.num_tasks else None
        return None


def _numbers(found: Iterable[int] = ()) -> "array[int]":
    """Task numbers, four bytes each: there may be a million."""
    return array("I", found)


class Unfolding:
    """A job file that is being taken up: its tasks are made, some at a time."""

    def __init__(self, jobs: Directory, record: Record, durable: bool) -> None:
        self.record = record
        self._durable = durable
        self._made = 0
        self.directory = jobs.subdirectory(str(record.job), create=True)
        self.directory.write_aside(RECORD, msgspec.json.encode(record), durable)

    def step(self) -> bool:
        """Make some of the tasks; whether all are there."""
        record = self.record
        last = min(self._made + CHUNK, record.file.num_tasks)
        for task in range(self._made + 1, last + 1):
            self.directory.mark(names.waiting_name(task_docid(record.docid, task), 0))
        self._made = last
        return last == record.file.num_tasks

    def commit(self, queue: Directory, name: str) -> bool:
        """From now on it counts. False: the job file had been taken back."""
        if self._durable:
            self.directory.sync_all()
        own = names.waiting_name(self.record.docid, 0)
        try:
            queue.rename_new(name, own, self.directory)
        except FileNotFoundError:
            # Or a network file system lost the reply to a rename that happened.
            if not self.directory.present(own):
                return False
        if self._durable:
            self.directory.sync()
            queue.sync()
        return True

    def close(self) -> None:
        self.directory.close()


def read_record(directory: Directory) -> Record | None:
    """What a job's directory says of it; None when it says nothing."""
    try:
        return decode(directory.read(RECORD), Record)
    except (FileNotFoundError, NotRegular, msgspec.DecodeError):
        return None


def is_born(directory: Directory, record: Record) -> bool:
    """Whether the job file has arrived, and is not finished."""
    if directory.present(names.waiting_name(record.docid, 0)):
        return True
    items = (names.parse(name) for name in directory.names())
    return any(item is not None and item.docid == record.docid for item in items)


def job_ids(jobs: Directory) -> list[int]:
    """The jobs that have a directory, in the order in which they were taken up."""
    return sorted(int(name) for name in jobs.names() if name.isdecimal() and name.isascii())


def remove(jobs: Directory, job: int) -> None:
    """A job's directory, when it never counted or has ended."""
    with suppress(FileNotFoundError):
        shutil.rmtree(str(job), dir_fd=jobs.fd)


def sweep(jobs: Directory, queue: Directory, alone: bool) -> None:
    """Remove what never counted, or has ended. Only where no other broker may be at it."""
    if not alone:
        return
    claimed = _serials(queue.names())
    for job in job_ids(jobs):
        with suppress(FileNotFoundError, NotADirectoryError):
            directory = jobs.subdirectory(str(job))
            try:
                record = read_record(directory)
                gone = record is None or not is_born(directory, record)
            finally:
                directory.close()
            if gone and job not in claimed:
                remove(jobs, job)


def _serials(listed: Iterator[str] | Sequence[str]) -> set[int]:
    items = (names.parse(name) for name in listed if name.endswith(".working"))
    return {names.parse_token(item.token).serial for item in items if item is not None}
