"""The jobs of one queue as a broker's source of work: takes them up, says which task is dealt next,
ends what was dealt, and shows how all of it is.

A job is dealt from as long as our claim to its file stands. Jobs come in the order of their JobIds,
their tasks by number, what waits again first.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from queuedriver.claims import outcomes
from queuedriver.claims.charging import abandon
from queuedriver.claims.handoff import Claim
from queuedriver.claims.input_queue import InputQueue
from queuedriver.claims.outcomes import DONE, Failed, Released, Setback
from queuedriver.doors.fuq.broker import Broker
from queuedriver.doors.fuq.wire import Task, encode_task
from queuedriver.doors.service_queue import Head
from queuedriver.doors.words import Answer, Effects, How, Processed, Request, Work
from queuedriver.driving.limits import Limits
from queuedriver.driving.live_status import Tally
from queuedriver.errors import ProcessorFailed, TakenBack
from queuedriver.jobs import control
from queuedriver.jobs import job as jobs
from queuedriver.jobs.control import BrokerFiles, BrokerView
from queuedriver.jobs.job import JOBS, Job, view_of
from queuedriver.jobs.jobfile import ClientView, JobView, Summary
from queuedriver.jobs.outcomes import Outcome
from queuedriver.operating.queue import Queue

if TYPE_CHECKING:
    from queuedriver.doors.transports.tcp import Listener

# Jobs that are dealt from at a time, and those that are held besides; the next wait. Each costs
# some descriptors, and a byte for each of its tasks.
_MOST_OPEN = 64
_MOST_HELD = 512
# How long a queue without a job that waits is not listed again, in seconds: what wakes the broker
# meanwhile is nearly always a client. A hint, and the end of a nap, end it.
_REST = 1.0
# How often control files are looked at, in seconds.
_LOOK_EVERY = 0.25
# Seconds until a job is looked at again that cannot be told from one that is at work.
_LATER = 5.0
# Jobs that have ended are told of as long as they are among the last so many.
MOST_ENDED = 100
# Tasks that are named of one client.
_MOST_TASKS = 100


class _Dealt(msgspec.Struct, frozen=True):
    """A task that a client has."""

    claim: Claim
    job: Job
    # On the monotonic clock.
    since: float


class Scheduler:
    """The jobs that one broker deals from."""

    service = ""

    def __init__(
        self,
        queue: InputQueue,
        exchange: Broker,
        listener: "Listener",
        tally: Tally,
        limits: Limits,
        *,
        network: bool,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.queue = queue
        self._exchange = exchange
        self._listener = listener
        self._tally = tally
        self._limits = limits
        # Whether an old listing may be shown here.
        self._network = network
        # What tells the time of day.
        self._wall = wall
        self._directory = queue.private.subdirectory(JOBS, create=True)
        for name in jobs.ended(self._directory, queue.directory):
            jobs.remove(self._directory, name)
        self._files = BrokerFiles(Queue(queue.directory), queue.mint.driver)
        # The N of each of our jobs: what else carries our id in the queue was lost track of.
        self._claims: set[str] = set()
        queue.at_hand = self._claims
        # By JobId, in that order.
        self._jobs: dict[int, Job] = {}
        # What clients have, by claim.
        self.dealt: dict[str, _Dealt] = {}
        # The last jobs that have ended, and those of an earlier life.
        self.ended: deque[JobView] = deque(self._files.ended, MOST_ENDED)
        self._rest_until = self._look_at = 0.0
        # How many changes had been counted when all was written down that is to be seen.
        self._written = -1
        self._write_at = 0.0

    def __iter__(self) -> Iterator[Job]:
        return iter(self._jobs.values())

    @property
    def unfinished(self) -> int:
        """Return how many jobs are at work."""
        return len(self._jobs)

    # Take up

    def unpack(self, now: float) -> bool:
        """Take up a job, if one waits and there is room; return whether."""
        waiting = self.queue.waiting
        if now < self._rest_until:
            return False
        if not (waiting.names or waiting.list_more(now)):
            self._rest_until = now + _REST
            return False
        held = sum(job.held for job in self)
        if len(self._jobs) - held >= _MOST_OPEN or held >= _MOST_HELD:
            return False
        claims = self.queue.claim_some(1, now)
        for claim in claims:
            self._take_up(claim, now)
        return bool(claims)

    def _take_up(self, claim: Claim, now: float) -> None:
        """Begin, or go on, with the job whose file was claimed."""
        for job in list(self):
            # It may be this one: we were taken for dead, and are the first to claim it.
            if not job.stands():
                self._lose(job)
        try:
            job = jobs.take_up(self.queue, self._directory, claim, network=self._network)
        except (ProcessorFailed, TakenBack) as error:
            self._end_job_file(claim, outcomes.from_exception(error))
            return
        except OSError as error:
            abandon(claim, error)
            raise
        if job.id in self._jobs:
            # Two of one docid that cannot be told apart come one after the other.
            job.close()
            self._end_job_file(claim, outcomes.Postponed(_LATER, "a job of this docid is at work"))
            return
        job.queue.at_hand = self.dealt.keys()
        self._claims.add(claim.token)
        self._jobs = dict(sorted([*self._jobs.items(), (job.id, job)]))
        message = f"taken up as job {job.id}, with {job.record.file.num_tasks} tasks"
        self.queue.note("taken-up", claim, message=message)
        self._exchange.changes += 1
        # Before it is dealt from.
        self._look_at = 0.0
        job.look(now)

    def _end_job_file(self, claim: Claim, how: Setback) -> None:
        try:
            self.queue.end([claim], [how])
        finally:
            self._tally.book([claim.fate], 0)

    # Deal

    def heads(self, now: float) -> Iterator[Head]:
        """Yield of which jobs a task may be dealt now, in their order."""
        if self._exchange.busy and self._exchange.workers:
            # Nobody would take any: it is asked after each task.
            return iter(())
        wall = self._wall()
        return (Head(str(job.id), job.need) for job in list(self) if job.waits(wall))

    def take(self, head: Head, now: float) -> Work | None:
        """Claim the next task of a job; None when there is none after all."""
        job = self._jobs[int(head.service)]
        found = job.claim_next(self._wall())
        if found is None:
            return None
        task, claim = found
        self.dealt[claim.token] = _Dealt(claim, job, now)
        self._tally.began(claim.docid)
        self._exchange.changes += 1
        body = encode_task(Task(task, job.description))
        return Work(claim.token, claim.docid, claim.attempt, body, need=head.need)

    # End

    def end(self, claim: str, how: How, now: float) -> bool:
        """End a task that a client had; False when it is none of ours, or its job was taken away
        from us."""
        dealt = self.dealt.get(claim)
        if dealt is None:
            return False
        if isinstance(how, Processed):
            self._finish(dealt, how, now - dealt.since)
        elif not isinstance(how, Answer):
            dealt.job.set_back(dealt.claim, how)
        del self.dealt[claim]
        self._tally.book([dealt.claim.fate], 0.0)
        self._exchange.changes += 1
        if dealt.job.gone or not dealt.job.left:
            self._look_at = 0.0
        return True

    def _finish(self, dealt: _Dealt, how: Processed, seconds: float) -> None:
        claim, job = dealt.claim, dealt.job
        outcome = Outcome.DONE if how.success else Outcome.ERROR
        (result,) = how.results
        try:
            job.finish(claim, result.data, outcome, self._limits, seconds)
        except ProcessorFailed as error:
            # Its document cannot be named.
            job.set_back(claim, Failed(error.failure))

    def ask(self, request: Request, now: float) -> str:
        """Keep nothing: who has a job puts it into the queue."""
        return "jobs are submitted to the queue"

    # Look

    def turn(self, now: float) -> Effects:
        """Look at control files now and then, end jobs of which nothing is left, do what operators
        ask of clients, and show how all of it is."""
        if now < self._look_at:
            return []
        self._look_at = now + _LOOK_EVERY
        exchange = self._exchange
        for job in list(self):
            before = job.held, job.cancelled
            job.look(now)
            exchange.changes += (job.held, job.cancelled) != before
            if job.gone:
                self._lose(job)
            elif not job.left:
                self._end_job(job)
        effects: Effects = []
        for request in self._files.stops():
            to = (request.client.encode(),) if request.client else ()
            effects += exchange.stop(request.number, now, to)
        if exchange.changes != self._written and now >= self._write_at:
            self._write_at = now + control.WRITE_EVERY
            self._files.write(self._view())
            self._written = exchange.changes
        return effects

    def next_turn_at(self) -> float | None:
        """Return when `turn` is worth calling; None: not before somebody is there, or a job is."""
        is_untold = self._exchange.changes != self._written
        return self._look_at if self._jobs or self._exchange.workers or is_untold else None

    def _view(self) -> BrokerView:
        clients = tuple(
            ClientView(
                one.name.decode(),
                self._listener.address(one.name),
                one.slots,
                max(0, one.free),
                len(one.in_hand),
                tuple(work.docid for work, _ in list(one.in_hand.values())[:_MOST_TASKS]),
                tuple(sorted(one.refused)),
            )
            for one in self._exchange.workers.values()
            if one.greeted
        )
        seen = tuple(view_of(job, clients) for job in self)
        of = self._files.broker, time.time(), tuple(self._listener.endpoints)
        return BrokerView(*of, clients, seen, tuple(self.ended))

    def _lose(self, job: Job) -> None:
        """Drop a job that somebody else has by now, and all that we have in hand of it."""
        for token in [one for one, dealt in self.dealt.items() if dealt.job is job]:
            del self.dealt[token]
        self.queue.note("revoked", job.claim, outputs=())
        self._close(job)

    def _end_job(self, job: Job) -> None:
        """Turn a job into its summary, when nothing of it is left on disk either."""
        job.scan()
        if job.left:
            return
        claim = job.claim
        try:
            if self.queue.targets:
                claim.outputs.take(msgspec.json.encode(_summary(job)), self._limits)
            how: outcomes.Ending = DONE
        except ProcessorFailed as error:
            how = Failed(error.failure)
        try:
            self.queue.end([claim], [how])
        finally:
            self._close(job)
        if claim.fate in ("published", "finished"):
            self.ended.append(view_of(job))
            jobs.remove(self._directory, job.name)

    def _close(self, job: Job) -> None:
        del self._jobs[job.id]
        self._claims.discard(job.claim.token)
        self._exchange.changes += 1
        job.close()

    # Trouble, and leaving

    def wake(self) -> None:
        """Look at once: there may be something new."""
        self.queue.waiting.wake()
        self._rest_until = self._look_at = 0.0

    def clean(self) -> None:
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
                self.queue.end([job.claim], [Released("its directory is gone")])

    def give_back(self, why: str) -> None:
        """Give everything back, charged to nobody, and say for the last time how all of it is."""
        view = msgspec.structs.replace(self._view(), clients=())
        with suppress(OSError):
            for claim in list(self.dealt):
                self.end(claim, Released(why), 0.0)
            for job in list(self):
                self.queue.end([job.claim], [Released(why)])
                self._close(job)
        with suppress(OSError):
            self._files.write(view)

    def close(self) -> None:
        """Close what is open."""
        for job in list(self):
            self._close(job)
        self._files.close()
        self._directory.close()


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
        job.dropped,
        record.taken_up,
        time.time(),
        job.outcomes.failed(),
    )
