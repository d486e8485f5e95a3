"""One job that a broker deals from: its claim, its directory and its tasks.

    <docid>.<N>.working, in the queue    the job file: claimed by its broker until the job has ended
    .queuedriver/jobs/<docid>.<inode>-<when it was written>/
        job.json                         what is to be done; and the JobId, the serial of the claim
                                         by which it was taken up first
        <docid>.<task>.<N>.working, …    tasks that clients have, and those that wait again, as
                                         items of a queue have states
        outcomes.<salt>                  how the others ended (`outcomes.py`)
        PAUSE, CANCEL                    hold it; what was not begun is dropped

A task has a file from when it is dealt: before, it is a number. Only the broker whose claim to the
job file stands deals the job. It makes, or renames, a task's file first and looks for its own claim
after; whoever takes the job away renames that claim first and lists the files after. So a task is
found by him, or was not begun. What he finds is a fencing token: renamed by him, it cannot be
committed by the other any more.

A task ends by a commit, the publication, a line in `outcomes`, and the end of its file. What a
crash leaves in between:

    .working    nobody knows how it went: it waits again, charged to nobody; unless a line says that
                it was lost for the last time: then it is discarded
    .written    to be published, whatever the lines say; a failed task says so in the file
    a line      and another file of the task: that goes
"""

import errno
import heapq
import os
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress

import msgspec

from queuedriver.claims import charging, handoff
from queuedriver.claims.handoff import Claim
from queuedriver.claims.input_queue import InputQueue
from queuedriver.claims.outcomes import Failed, Setback
from queuedriver.claims.recovery import BEYOND_US
from queuedriver.disk.filesystem import Directory, open_fd, write_all
from queuedriver.driving.limits import Limits
from queuedriver.format import names
from queuedriver.format.records import Failure, read_record
from queuedriver.format.units import format_instant
from queuedriver.jobs.jobfile import ClientView, JobFile, JobView, decode, description, task_docid
from queuedriver.jobs.outcomes import Outcome, Outcomes

JOBS = "jobs"
RECORD = "job.json"
CANCEL = "CANCEL"
# Seconds for which a network file system may go on showing an old listing (acdirmax of NFS).
_OLD_LISTINGS = 60.0
# How often a job's directory is listed of which some tasks are nowhere to be found.
_LIST_EVERY = 5.0
_EMPTY = os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
# What the file of a task says that has failed, when it is committed.
_FAILED = b"failed"


class Record(msgspec.Struct, frozen=True):
    """What is known of a job while it is at work."""

    job: int
    docid: str
    # Seconds since the epoch, by the broker's clock.
    taken_up: float
    file: JobFile


def take_up(outer: InputQueue, jobs: Directory, claim: Claim, *, network: bool) -> "Job":
    """Begin, or go on, with the job whose file was claimed. ProcessorFailed when it is none."""
    file = decode(claim.docid, claim.read())
    status = outer.directory.status(claim.name)
    inode = status.st_ino if outer.attempts.inodes_last else 0
    # An inode number is used again, but by then it is another time.
    name = f"{names.first_docid(claim.docid)}.{inode}-{status.st_mtime_ns:x}"
    record = Record(names.parse_token(claim.token).serial, claim.docid, time.time(), file)
    with ExitStack() as undo:
        directory = undo.enter_context(jobs.subdirectory(name, create=True))
        try:
            directory.write_first(RECORD, msgspec.json.encode(record), outer.durable)
            is_new = True
        except FileExistsError:
            record = read_record(directory, RECORD, Record) or record
            is_new = False
        private = undo.enter_context(directory.subdirectory(names.PRIVATE, create=True))
        settings, mint, journal = outer.settings, outer.mint, outer.journal
        queue = InputQueue(directory, private, outer.targets, settings, mint, journal, outer=outer)
        undo.callback(queue.close)
        job = Job(claim, record, queue)
        if not is_new:
            job.take_over(network=network)
        undo.pop_all()
    return job


def remove(jobs: Directory, name: str) -> None:
    """Remove the directory of a job that has ended."""
    with suppress(FileNotFoundError), jobs.subdirectory(name) as directory:
        for one in list(directory.names()):
            try:
                directory.remove(one)
            except IsADirectoryError:
                remove(directory, one)
        try:
            os.rmdir(name, dir_fd=jobs.fd)
        except OSError as error:
            # NFS keeps what somebody has open, under another name; the next sweep finds it.
            if error.errno != errno.ENOTEMPTY:
                raise


def ended(jobs: Directory, queue: Directory) -> list[str]:
    """Return the directories of jobs that have ended: whose files are nowhere in the queue. One
    listing may miss what is being renamed."""
    docids = {name: name.rpartition(".")[0] for name in jobs.names()}
    for _ in range(2 if docids else 0):
        there = {names.first_docid(item.docid) for _, item in names.items(queue)}
        docids = {name: docid for name, docid in docids.items() if docid not in there}
    return list(docids)


class Job:
    """One job that its broker deals from."""

    def __init__(self, claim: Claim, record: Record, queue: InputQueue) -> None:
        # To the job file.
        self.claim = claim
        self.record = record
        # Its JobId, and how many processors each of its tasks takes.
        self.id, self.need = record.job, record.file.num_proc
        # As its clients see it.
        self.description = description(record.job, record.file)
        # Its directory, as a queue inside the queue that the job came from.
        self.queue = queue
        self.name = os.path.basename(queue.directory.path)
        tasks, salt = record.file.num_tasks, queue.mint.salt
        self.outcomes = Outcomes(queue.directory, tasks, salt, durable=queue.durable)
        # How many tasks clients have.
        self.in_hand = 0
        self.held = False
        self.cancelled = False
        # Whether somebody has taken it away from us.
        self.gone = False
        # What waits again: when it is due (seconds since the epoch, or 0), the task, its attempt.
        self._again: list[tuple[int, int, int]] = []
        # No task before this one is open.
        self._next = 1
        # When its directory is to be listed once more before anything is dealt.
        self._sure_at: float | None = None
        self._list_at = 0.0
        # Files of tasks that were committed and cannot be finished here.
        self._stuck: set[str] = set()

    @property
    def dropped(self) -> int:
        """Return how many tasks nobody will run any more, as the job was cancelled: those that were
        never begun, and those that wait again."""
        if not self.cancelled or self._sure_at is not None:
            return 0
        return self.outcomes.count(Outcome.OPEN) + len(self._again)

    @property
    def left(self) -> int:
        """Return how many tasks are yet to end."""
        return self.outcomes.left - self.dropped

    def waits(self, wall: float) -> bool:
        """Tell whether a task may be dealt now. `wall` is the time of day."""
        if self.held or self.cancelled or self.gone or self._sure_at is not None:
            return False
        return self._is_due(wall) or self._next_open() > 0

    def _is_due(self, wall: float) -> bool:
        return bool(self._again) and self._again[0][0] <= wall

    def _next_open(self) -> int:
        """Return the first task that was never begun; -1 when there is none."""
        found = self.outcomes.first(Outcome.OPEN, self._next)
        # What was looked through need not be again.
        self._next = found if found > 0 else self.record.file.num_tasks + 1
        return found

    @property
    def _adrift(self) -> bool:
        """Return whether some tasks are nowhere: committed and stuck, or removed by hand."""
        return self.outcomes.count(Outcome.BEGUN) > self.in_hand + len(self._again)

    def stands(self) -> bool:
        """Tell whether our claim to the job file stands; asked by name, and of the file system."""
        if not self.gone and not self.claim.of.directory.present(self.claim.name):
            self.gone = True
        return not self.gone

    # Deal

    def claim_next(self, wall: float) -> tuple[int, Claim] | None:
        """Claim the task that is next; return its number, and the claim. None when there is none
        after all, or the job is not ours any more."""
        if self._is_due(wall):
            due, task, attempt = heapq.heappop(self._again)
            name = _waiting_name(task_docid(self.record.docid, task), attempt, due)
            claim = next(self.queue.claim([name]), None)
            if claim is None:
                # Removed by hand, or taken by whoever has the job now.
                self._list_at = 0.0
                return None
            # How it went the last time, if whoever had it did not live to commit it.
            os.close(_open_to_write(self.queue, claim.name))
        else:
            task = self._next_open()
            if task < 0:
                # The clock was set back since it was seen to be due.
                return None
            claim = _claim_new(self.queue, task_docid(self.record.docid, task))
        if not self.stands():
            charging.give_back(claim, "its job was taken over")
            return None
        self.outcomes.mark(task, Outcome.BEGUN)
        self.in_hand += 1
        return task, claim

    # End

    def finish(
        self, claim: Claim, data: bytes, outcome: Outcome, limits: Limits, seconds: float
    ) -> None:
        """Commit, publish and note a task that was run, and drop its file: the claim's fate says
        what came of it. After an OSError it may be called again, and goes on."""
        queue = self.queue
        if claim.committed and (item := names.parse(claim.name)) is not None:
            # What we were told of it then need not have been so.
            claim.fate = "published" if self._finish_written(item, claim.name) else "stuck"
        else:
            claim.outputs.discard()
            if queue.targets:
                claim.outputs.take(data, limits)
            self._prepare(claim, outcome)
            if self.stands():
                self._complete(claim, outcome)
            else:
                claim.outputs.discard()
                claim.fate = "revoked"
            if claim.fate != "revoked":
                self.claim.of.published += len(claim.published)
                queue.note(claim.fate, claim, seconds=seconds, outputs=claim.published)
        self.in_hand -= 1

    def _prepare(self, claim: Claim, outcome: Outcome) -> None:
        """Write down in the file of a task that it has failed; make safe what was written."""
        queue = self.queue
        if outcome is Outcome.ERROR:
            # Never made anew: that it is there under this name is our right to it.
            with suppress(FileNotFoundError), open_fd(_open_to_write(queue, claim.name)) as fd:
                write_all(fd, _FAILED)
                if queue.durable:
                    os.fsync(fd)
        if queue.durable:
            handoff.sync_outputs(queue, [claim])

    def _complete(self, claim: Claim, outcome: Outcome) -> None:
        """Commit, publish, note, and drop the file of a task."""
        handoff.commit_by_name(self.queue, claim)
        if not claim.fate:
            self._conclude(claim, outcome, ours=True)

    def _conclude(self, claim: Claim, outcome: Outcome, *, ours: bool) -> None:
        """Publish what was committed, note it, and drop its file."""
        queue = self.queue
        if queue.durable:
            queue.directory.sync()
        handoff.publish(queue, claim, ours=ours)
        if claim.fate:
            return
        if queue.durable:
            for target in queue.targets:
                target.directory.sync()
        task = self.task_of(claim.docid)
        self.outcomes.note(task, outcome)
        inode = claim.inode() if claim.attempt else 0
        handoff.finish(queue, claim, inode)

    def set_back(self, claim: Claim, how: Setback) -> None:
        """End a task that was not run to its end. After an OSError it may be called again."""
        task = self.task_of(claim.docid)
        if not self.stands():
            claim.fate = "revoked"
        else:
            if isinstance(how, Failed) and charging.is_last(claim, how.failure):
                # First: a task without a file and without a line would be run again.
                self.outcomes.note(task, Outcome.LOST)
            charging.set_back(claim, how)
        self.in_hand -= 1
        if (item := names.parse(claim.waits_as)) is not None:
            heapq.heappush(self._again, (item.due, task, item.attempt))

    # Look

    def look(self, now: float) -> None:
        """Look at its control files, and whether it is still ours; list it where that is due."""
        present = self.queue.directory.present
        self.held, self.cancelled = present(names.PAUSE), present(CANCEL)
        if not self.stands():
            return
        if self._sure_at is not None:
            if now < self._sure_at:
                return
            self._sure_at = None
            self.scan(load=True)
        elif self._adrift and now >= self._list_at:
            self._list_at = now + _LIST_EVERY
            self.scan()

    def take_over(self, *, network: bool) -> None:
        """Find out what earlier brokers left. One listing may miss what is being renamed."""
        self.scan(load=True)
        if network:
            self._sure_at = time.monotonic() + _OLD_LISTINGS
        else:
            self.scan(load=True)

    def scan(self, *, load: bool = False) -> None:
        """Find the files of its tasks. As the job is ours, so are all that are not in hand: what
        was committed is finished, and the others wait again."""
        found: dict[int, list[tuple[names.Item, str]]] = {}
        for name, item in names.walk(self.queue.directory):
            if item is not None and (task := self.task_of(item.docid)):
                found.setdefault(task, []).append((item, name))
        if load:
            # After the listing: whose file is gone by then has its line.
            self.outcomes.load()
        self._again = []
        for task, files in found.items():
            self._sort_out(task, files)
        heapq.heapify(self._again)
        task = 0
        while (task := self.outcomes.first(Outcome.BEGUN, task + 1)) > 0:
            if task not in found:
                self.outcomes.mark(task, Outcome.OPEN)
                self._next = 1
        # A task whose discarding was interrupted gets its report.
        self.queue.attempts.settle()

    def _sort_out(self, task: int, files: list[tuple[names.Item, str]]) -> None:
        """See to the files of one task. There is more than one where a broker died, or was stopped,
        before it found that the job was not its own any more; the first by this order counts."""
        at_hand = self.queue.at_hand

        def rank(one: tuple[names.Item, str]) -> tuple[bool, bool, int, bool]:
            item, _ = one
            written = item.state == names.WRITTEN
            return item.token in at_hand, written, item.attempt, not item.claimed

        kept = False
        for item, name in sorted(files, key=rank, reverse=True):
            if item.token in at_hand:
                kept = True
            elif item.state == names.WRITTEN:
                kept = not self._finish_written(item, name)
            elif item.claimed and self.outcomes[task] is Outcome.LOST:
                _discard(self.queue.claim_of(item, name))
            elif kept or self.outcomes[task] > Outcome.BEGUN:
                self.queue.directory.remove(name)
            elif not item.claimed:
                self._again.append((item.due, task, item.attempt))
                kept = True
            else:
                claim = self.queue.claim_of(item, name)
                charging.give_back(claim, "the broker that dealt it is gone")
                if claim.waits_as:
                    self._again.append((0, task, item.attempt))
                kept = True
        if kept and self.outcomes[task] is Outcome.OPEN:
            self.outcomes.mark(task, Outcome.BEGUN)

    def _finish_written(self, item: names.Item, name: str) -> bool:
        """Publish, note and finish what another broker committed, or we could not finish; return
        whether it is done."""
        queue, token = self.queue, names.parse_token(item.token)
        owner = self.claim.of.recoverer.roster.named(token.driver)
        made_for = owner.registration.made_for(token.salt) if owner and owner.registration else ()
        try:
            outcome = Outcome.ERROR if queue.directory.read(name) == _FAILED else Outcome.DONE
            claim = handoff.find_written(queue, item, name, made_for)
            self._conclude(claim, outcome, ours=False)
        except FileNotFoundError:
            # Its broker lives, and was as fast: the next listing tells.
            return False
        except BEYOND_US as error:
            if name not in self._stuck:
                message = f"cannot be recovered: {type(error).__name__}: {error}"
                queue.note("stuck", item, message=message)
            self._stuck.add(name)
            return False
        self.claim.of.published += len(claim.published)
        message = "the broker that dealt it had committed it"
        queue.note("recovered", item, message=message, outputs=claim.published)
        return True

    def task_of(self, docid: str) -> int:
        """Return the number of the task that has this docid; 0 where none has."""
        stem, _, number = docid.rpartition(".")
        if stem != self.record.docid or not number.isdecimal() or not number.isascii():
            return 0
        task = int(number[:10])
        known = task <= self.record.file.num_tasks and str(task) == number
        return task if known else 0

    def close(self) -> None:
        self.queue.close()
        self.queue.private.close()
        self.queue.directory.close()


def _open_to_write(queue: InputQueue, name: str) -> int:
    return os.open(name, _EMPTY, dir_fd=queue.directory.fd)


def view_of(job: Job, clients: Sequence[ClientView] = ()) -> JobView:
    """Return what there is to see of a job."""
    record, count = job.record, job.outcomes.count
    if not job.left:
        state = "finished"
    elif job.cancelled or job.held:
        state = "cancelled" if job.cancelled else "paused"
    else:
        begun = job.in_hand or count(Outcome.OPEN) < record.file.num_tasks
        state = "running" if begun else "waiting"
    return JobView(
        job=record.job,
        docid=record.docid,
        name=record.file.name,
        state=state,
        command=record.file.command,
        tasks=record.file.num_tasks,
        num_proc=job.need,
        pending=job.left - job.in_hand,
        running=job.in_hand,
        done=count(Outcome.DONE),
        errors=count(Outcome.ERROR) + count(Outcome.LOST),
        cancelled=job.dropped,
        why="" if job.in_hand or not job.left else _why(job, clients),
    )


def _why(job: Job, clients: Sequence[ClientView]) -> str:
    """Return why none of a job's tasks runs, with these clients."""
    if job.held:
        return "it is held; release it"
    if job._sure_at is not None:
        return "it was taken over: nothing is dealt before old listings have expired"
    never_begun = job._next_open() > 0
    if job.cancelled or not (never_begun or job._again):
        return "what was committed cannot be published here; see queuedriver check"
    if not never_begun and (due := job._again[0][0]) > time.time():
        return f"what was lost is tried again at {format_instant(due)}"
    if not clients:
        return "no client is connected"
    willing = [one for one in clients if job.id not in one.refused]
    if not willing:
        return "every client refuses it: see their --allow, --root and --log-root"
    largest = max(one.nproc for one in willing)
    if job.need > largest:
        return (
            f"each of its tasks takes {job.need} processors, and the largest client that would run "
            f"it has {largest}"
        )
    return "all processors are taken"


def _claim_new(queue: InputQueue, docid: str) -> Claim:
    """Make the file of a task that is begun; return the claim that it is."""
    token = queue.mint.next(time.time_ns() // 1000)
    stem = f"{docid}.{token}"
    name = f"{stem}.working"
    os.close(queue.directory.open_new(name))
    claim = queue.claim_of(names.Item(docid, names.WORKING, token=token), name)
    claim.outputs.plain, claim.outputs.stem = queue.plain, stem
    return claim


def _waiting_name(docid: str, attempt: int, due: int) -> str:
    return names.later_name(docid, attempt, due) if due else names.waiting_name(docid, attempt)


def _discard(claim: Claim) -> None:
    """Discard a task that its broker noted as lost for the last time, before it died."""
    message = "its client was lost, and then the broker that dealt it"
    failure = Failure(cause="worker-lost", message=message, permanent=True)
    charging.set_back(claim, Failed(failure))
