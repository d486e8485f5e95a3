"""The jobs of one queue on behalf of one broker: takes them up, says which task is dealt next, and
ends what was dealt.

A job is dealt from as long as our claim to its file stands. Jobs come in the order of their JobIds,
their tasks by number, what waits again first.
"""

import time
from collections import deque
from collections.abc import Iterable, Iterator

import msgspec

from queuedriver.claims.charging import abandon
from queuedriver.claims.handoff import Claim
from queuedriver.claims.input_queue import InputQueue
from queuedriver.claims.outcomes import (
    DONE,
    Doubted,
    Ending,
    Failed,
    Postponed,
    Released,
    Setback,
    from_exception,
)
from queuedriver.disk.filesystem import Directory
from queuedriver.doors.fuq.broker import Finished
from queuedriver.doors.fuq.wire import Task, encode_task
from queuedriver.doors.words import Lost, SetBack, Work
from queuedriver.driving.limits import Limits
from queuedriver.driving.live_status import Tally
from queuedriver.errors import ProcessorFailed, TakenBack
from queuedriver.format.records import Failure
from queuedriver.jobs import job as jobs
from queuedriver.jobs.job import Job
from queuedriver.jobs.jobfile import JobView, Summary, description, result
from queuedriver.jobs.outcomes import Outcome

# Jobs that are dealt from at a time, and those that are held besides; the next wait. Each costs
# some descriptors, and a byte for each of its tasks.
_MOST_OPEN = 64
_MOST_HELD = 512
# How often control files are looked at, in seconds.
_LOOK_EVERY = 0.25
# Seconds until a job is looked at again that cannot be told from one that is at work.
_LATER = 5.0
# Jobs that have ended are told of as long as they are among the last so many.
MOST_ENDED = 100


class _Dealt(msgspec.Struct, frozen=True):
    """A task that a client has."""

    claim: Claim
    job: Job
    began: int


class Scheduler:
    """The jobs that one broker deals from."""

    def __init__(
        self,
        queue: InputQueue,
        directory: Directory,
        tally: Tally,
        limits: Limits,
        *,
        network: bool,
    ) -> None:
        self._queue = queue
        self._directory = directory
        self.tally = tally
        self._limits = limits
        # Whether an old listing may be shown here.
        self._network = network
        # The N of every claim at hand: what else carries our id on disk was lost track of.
        self._at_hand: set[str] = set()
        queue.at_hand = self._at_hand
        # By JobId, in that order.
        self._jobs: dict[int, Job] = {}
        self._dealt: dict[str, _Dealt] = {}
        # What has ended, and is yet to be written down.
        self._ends: deque[Finished | SetBack | Lost] = deque()
        # The last jobs that have ended, and those of an earlier life.
        self.ended: deque[JobView] = deque(maxlen=MOST_ENDED)
        self._look_at = 0.0
        # Outputs of jobs that are closed.
        self._published = 0
        # Counts every change that is to be seen.
        self.changes = 0

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[Job]:
        return iter(self._jobs.values())

    @property
    def at_hand(self) -> int:
        """Return how many tasks clients have."""
        return len(self._dealt)

    @property
    def published(self) -> int:
        """Return how many outputs of tasks have become visible."""
        return self._published + sum(job.queue.published for job in self)

    @property
    def has_room(self) -> bool:
        """Tell whether another job may be taken up."""
        held = sum(job.held for job in self)
        return len(self._jobs) - held < _MOST_OPEN and held < _MOST_HELD

    def docids(self, claims: Iterable[str]) -> list[str]:
        """Return which tasks these are."""
        found = (self._dealt.get(claim) for claim in claims)
        return [dealt.claim.docid for dealt in found if dealt is not None]

    # Take up

    def take_up(self, claim: Claim) -> None:
        """Begin, or go on, with the job whose file was claimed."""
        for job in list(self):
            # It may be this one: we were taken for dead, and are the first to claim it.
            if not job.stands():
                self._lose(job)
        self._at_hand.add(claim.token)
        try:
            job = jobs.take_up(self._queue, self._directory, claim, network=self._network)
        except (ProcessorFailed, TakenBack) as error:
            self._end_job_file(claim, from_exception(error))
            return
        except OSError as error:
            self._at_hand.discard(claim.token)
            abandon(claim, error)
            raise
        if job.id in self._jobs:
            # Two of one docid that cannot be told apart come one after the other.
            job.close()
            self._end_job_file(claim, Postponed(_LATER, "a job of this docid is at work"))
            return
        # Before it is dealt from.
        self._look_at = 0.0
        self._jobs = dict(sorted([*self._jobs.items(), (job.id, job)]))
        message = f"taken up as job {job.id}, with {job.record.file.num_tasks} tasks"
        self._queue.note("taken-up", claim, message=message)
        self.changes += 1

    def _end_job_file(self, claim: Claim, how: Setback) -> None:
        self._at_hand.discard(claim.token)
        try:
            self._queue.end([claim], [how])
        finally:
            self.tally.book([claim.fate], 0)

    # Deal

    def heads(self, wall: float) -> Iterator[Job]:
        """Yield the jobs of which a task may be dealt now, in their order."""
        return (job for job in list(self) if job.waits(wall))

    def take(self, job: Job, wall: float) -> Work | None:
        """Claim the next task of a job; None when there is none after all."""
        claim = job.claim_next(wall)
        if claim is None:
            return None
        self._dealt[claim.token] = _Dealt(claim, job, time.perf_counter_ns())
        self._at_hand.add(claim.token)
        self.tally.began(claim.docid)
        self.changes += 1
        body = encode_task(Task(job.task_of(claim.docid), description(job.id, job.record.file)))
        return Work(claim.token, claim.docid, claim.attempt, body, str(job.id))

    # End

    def end(self, effect: Finished | SetBack | Lost) -> None:
        """Note that a task has ended one way or another; `settle` writes it down."""
        self._ends.append(effect)

    def settle(self) -> None:
        """Write down what has ended. After an OSError the rest waits until it is called again."""
        while self._ends:
            self._settle(self._ends[0])
            self._ends.popleft()

    def _settle(self, effect: Finished | SetBack | Lost) -> None:
        if isinstance(effect, Finished):
            self._finish(effect)
        elif isinstance(effect, SetBack):
            self._set_back(effect.claim, effect.how)
        else:
            for token in effect.claims:
                self._set_back(token, Failed(_loss(effect)))

    def _finish(self, effect: Finished) -> None:
        dealt = self._dealt.get(effect.claim)
        if dealt is None:
            # Of a job that was taken away from us.
            return
        claim, job, update = dealt.claim, dealt.job, effect.update
        seconds = (time.perf_counter_ns() - dealt.began) / 1e9
        outcome = Outcome.DONE if update.success else Outcome.ERROR
        data = result(job.record.file.name, effect.client.decode(), update)
        try:
            job.finish(claim, data, outcome, self._limits, seconds)
        except ProcessorFailed as error:
            # Its document cannot be named.
            job.set_back(claim, Failed(error.failure))
        self._put_down(dealt, seconds)

    def _set_back(self, token: str, how: Setback | Doubted) -> None:
        dealt = self._dealt.get(token)
        if dealt is not None:
            dealt.job.set_back(dealt.claim, how)
            self._put_down(dealt, 0.0)

    def _put_down(self, dealt: _Dealt, seconds: float) -> None:
        del self._dealt[dealt.claim.token]
        self._at_hand.discard(dealt.claim.token)
        self.tally.book([dealt.claim.fate], seconds)
        self.changes += 1

    # Look

    def look(self, now: float) -> None:
        """Look at control files now and then; end jobs of which nothing is left."""
        due = now >= self._look_at
        if due:
            self._look_at = now + _LOOK_EVERY
        for job in list(self):
            if due:
                before = job.held, job.cancelled
                job.look(now)
                self.changes += (job.held, job.cancelled) != before
            if job.gone:
                self._lose(job)
            elif job.ended:
                self._end_job(job)

    def _lose(self, job: Job) -> None:
        """Drop a job that somebody else has by now, and all that we have in hand of it."""
        for token in [one for one, dealt in self._dealt.items() if dealt.job is job]:
            del self._dealt[token]
            self._at_hand.discard(token)
        self._queue.note("revoked", job.claim, outputs=())
        self._close(job)

    def _end_job(self, job: Job) -> None:
        """Turn a job into its summary, when nothing of it is left on disk either."""
        job.scan()
        if not job.ended:
            return
        claim = job.claim
        try:
            if self._queue.targets:
                claim.outputs.take(msgspec.json.encode(_summary(job)), self._limits)
            how: Ending = DONE
        except ProcessorFailed as error:
            how = Failed(error.failure)
        try:
            self._queue.end([claim], [how])
        finally:
            self._close(job)
        if claim.fate in ("published", "finished"):
            self.ended.append(job.view())
            jobs.remove(self._directory, job.name)

    def _close(self, job: Job) -> None:
        del self._jobs[job.id]
        self._at_hand.discard(job.claim.token)
        self._published += job.queue.published
        self.changes += 1
        job.close()

    def reopen(self) -> None:
        """Open everything anew: the file system is well again."""
        self._directory.reopen(create=True)
        for job in list(self):
            if not job.stands():
                # Whoever has it may have ended it, and removed its directory.
                self._lose(job)
                continue
            try:
                job.queue.reopen()
                job.scan()
            except FileNotFoundError:
                # Removed by hand: from the beginning, then.
                self._lose(job)
                self._queue.end([job.claim], [Released("its directory is gone")])

    def give_back(self, why: str) -> None:
        """Give everything back, charged to nobody: we leave."""
        self.settle()
        for token in list(self._dealt):
            self._set_back(token, Released(why))
        for job in list(self):
            self._queue.end([job.claim], [Released(why)])
            self._close(job)

    def close(self) -> None:
        for job in list(self):
            self._close(job)


def _summary(job: Job) -> Summary:
    record, count = job.record, job.outcomes.count
    lost = count(Outcome.LOST)
    return Summary(
        record.job,
        record.file.name,
        record.file.command,
        record.file.num_tasks,
        count(Outcome.DONE),
        count(Outcome.ERROR) + lost,
        lost,
        count(Outcome.CANCELLED),
        record.taken_up,
        time.time(),
        job.outcomes.failed(),
    )


def _loss(lost: Lost) -> Failure:
    message = f"client {lost.worker.decode()} was lost ({lost.why}) while it had the task"
    return Failure(cause="worker-lost", message=message)
