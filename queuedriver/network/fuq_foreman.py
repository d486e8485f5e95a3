"""Takes jobs up, deals their tasks to clients, and ends them: what a broker of fuq does.

One job file is taken up at a time. Tasks are dealt by ascending JobId, then number; a job that no
client has room for right now keeps one client from smaller tasks until it has, and one that no
client is large enough for keeps nobody from anything.
"""

import time
from collections import deque
from collections.abc import Iterable, Iterator

import msgspec

from queuedriver import names
from queuedriver.errors import ConfigError, ProcessorFailed
from queuedriver.filesystem import Directory
from queuedriver.hands import Hands, Job
from queuedriver.lane import Lane, Owner
from queuedriver.limits import Limits
from queuedriver.liveness import Observer
from queuedriver.network import fuq_jobs as dirs
from queuedriver.network.fuq_jobfile import Summary, description, result
from queuedriver.network.fuq_jobfile import decode as decode_job
from queuedriver.network.fuq_jobs import JobLane, OpenJob, Record, Unfolding
from queuedriver.network.fuq_outcomes import Outcome
from queuedriver.outcome import Failed, Failure, Released, Setback, from_exception
from queuedriver.picking import Candidate
from queuedriver.protocols.dealing import Lost, SetBack, Work
from queuedriver.protocols.fuq import Broker, Finished, FuqEffects
from queuedriver.protocols.fuq_wire import Task, encode_task
from queuedriver.queue import Queue

# Jobs that are dealt from at a time; the next wait. Each costs some descriptors.
MAX_OPEN = 64
# How often control files are looked at, in seconds.
_LOOK_EVERY = 0.25


class _Dealt(msgspec.Struct, frozen=True):
    """A task that a client has."""

    job: Job
    of: OpenJob
    task: int
    began: int


class Foreman:
    """The jobs of one lane, on behalf of one broker."""

    def __init__(
        self,
        lane: Lane,
        jobs: Directory,
        owner: Owner,
        observer: Observer,
        hands: Hands,
        limits: Limits,
        session: Broker,
    ) -> None:
        self._lane = lane
        self.directory = jobs
        self._owner = owner
        self._observer = observer
        self._hands = hands
        self._limits = limits
        self._session = session
        self._open: dict[int, OpenJob] = {}
        self._unfolding: Unfolding | None = None
        # The claim by which that is taken up.
        self._taking: Job | None = None
        self._dealt: dict[str, _Dealt] = {}
        self._effects: FuqEffects = []
        self._look_at = 0.0
        # What ended while a queue was not well, and is yet to be written down.
        self._ends: deque[Finished | SetBack | Lost] = deque()
        # Jobs, be they open or not.
        self.known = 0
        # Counts what was dealt, for whoever waits for something to do.
        self.deals = 0

    @property
    def published(self) -> int:
        """How many outputs have become visible."""
        return self._hands.published

    @property
    def at_hand(self) -> int:
        """How many tasks clients have, and job files are being taken up."""
        return len(self._dealt) + (self._taking is not None)

    @property
    def waiting(self) -> int:
        """How many tasks wait for a client."""
        return sum(one.waiting for one in self._open.values())

    @property
    def busy(self) -> bool:
        """Whether there is something to go on with at once."""
        return bool(
            self._unfolding or self._ends or any(one.dropping for one in self._open.values())
        )

    def jobs(self) -> Iterator[OpenJob]:
        """Those that are dealt from, in their order."""
        return (self._open[job] for job in sorted(self._open))

    def docids(self, claims: Iterable[str]) -> list[str]:
        """Which tasks these are."""
        found = (self._dealt.get(claim) for claim in claims)
        return [dealt.job.claim.docid for dealt in found if dealt is not None]

    # What a loop calls for an item of the queue

    def work(self, lane: Lane, candidate: Candidate) -> Candidate | None:
        """Begin to take a job file up; `step` goes on with it. None: nothing else was seen."""
        job = self._hands.claim(lane, candidate)
        if job is None:
            return None
        claim = job.claim
        try:
            file = decode_job(claim.docid, job.document.read())
        except ProcessorFailed as error:
            self._hands.end_by(job, from_exception(error))
            self._hands.put_down(job)
            return None
        except OSError as error:
            self._hands.abandon(job, error)
            self._hands.put_down(job)
            raise
        serial = names.parse_token(claim.token).serial
        self._taking = job
        try:
            record = Record(serial, claim.docid, time.time(), file)
            self._unfolding = Unfolding(self.directory, record, lane.handoff.settings.durable)
        except OSError as error:
            self._give_up_taking(error)
            raise
        return None

    @property
    def has_room(self) -> bool:
        """Whether another job file may be taken up."""
        return self._taking is None and len(self._open) < MAX_OPEN

    def clean(self) -> None:
        """The file system is well again."""
        self._hands.clean()
        self.directory.reopen()
        for one in self._open.values():
            one.lane.queue.directory.reopen()
            one.scan(self._owner.held)
            one.in_hand = sum(dealt.of is one for dealt in self._dealt.values())

    # One turn

    def step(self, now: float, dealing: bool) -> None:
        """Go on with everything that can be gone on with; `take` has what is to be sent then, also
        after an OSError."""
        self.settle()
        if self._unfolding is not None and dealing:
            self._unfold(self._unfolding)
        if now >= self._look_at:
            self._look_at = now + _LOOK_EVERY
            self._look()
        for one in list(self._open.values()):
            if one.dropping:
                one.drop_pending()
            if one.ended:
                self._finish(one)
        if dealing:
            self._deal(now)

    def take(self) -> FuqEffects:
        """What was dealt, and is to be sent."""
        effects, self._effects = self._effects, []
        return effects

    def end(self, effect: Finished | SetBack | Lost) -> None:
        """A task has ended one way or another; `step` writes it down."""
        self._ends.append(effect)

    def settle(self) -> None:
        """Write down what has ended. An OSError says that the queue is not well."""
        while self._ends:
            effect = self._ends.popleft()
            self._end(effect)

    def give_back(self, why: str) -> None:
        """We leave: what clients still have is others' from now on, and charged to nobody."""
        self.settle()
        if self._taking is not None:
            self._drop_unfolding()
            self._hands.end_by(self._taking, Released(why))
            self._hands.put_down(self._taking)
            self._taking = None
        for claim in list(self._dealt):
            self._set_back(claim, Released(why))

    def close(self) -> None:
        for one in self._open.values():
            one.close()
        self._open.clear()

    # Taking up

    def _unfold(self, unfolding: Unfolding) -> None:
        job = self._taking
        if job is None:
            return
        try:
            if not unfolding.step():
                return
            born = unfolding.commit(self._lane.queue.directory, job.claim.name)
        except OSError as error:
            self._give_up_taking(error)
            raise
        record = unfolding.record
        self._taking = self._unfolding = None
        unfolding.close()
        self._hands.put_down(job)
        if not born:
            dirs.remove(self.directory, record.job)
            return
        message = f"taken up as job {record.job}, with {record.file.num_tasks} tasks"
        self._lane.journal.note("taken-up", record.docid, token=job.claim.token, message=message)
        self._enter(record.job, fresh=True)

    def _give_up_taking(self, error: OSError) -> None:
        job, self._taking = self._taking, None
        self._drop_unfolding()
        if job is not None:
            self._hands.abandon(job, error)
            self._hands.put_down(job)

    def _drop_unfolding(self) -> None:
        if self._unfolding is not None:
            self._unfolding.close()
            try:
                dirs.remove(self.directory, self._unfolding.record.job)
            except OSError:
                # It never counted; the next start sweeps it.
                pass
            self._unfolding = None

    def _look(self) -> None:
        """At control files, and for jobs that are not open."""
        found = dirs.job_ids(self.directory)
        self.known = len(found)
        for one in list(self._open.values()):
            one.look()
            if one.stuck:
                one.scan(self._owner.held)
            if one.held and not (one.in_hand or one.cancelled or one.ended):
                # Others may be dealt from meanwhile.
                self._open.pop(one.id).close()
        taking = self._unfolding.record.job if self._unfolding is not None else None
        for job in found:
            if len(self._open) >= MAX_OPEN:
                return
            if job not in self._open and job != taking:
                self._enter(job)

    def _enter(self, job: int, *, fresh: bool = False) -> None:
        """Deal from a job, unless it is held, or does not count."""
        present = self.directory.present
        if present(f"{job}/{names.PAUSE}") and not present(f"{job}/{dirs.CANCEL}"):
            return
        try:
            queue = Queue(self.directory.subdirectory(str(job)))
        except (FileNotFoundError, NotADirectoryError):
            return
        record = dirs.read_record(queue.directory)
        if record is None or record.job != job or not dirs.is_born(queue.directory, record):
            queue.close()
            return
        one = OpenJob(JobLane(self._lane, queue, self._owner, self._observer), record)
        one.look()
        if fresh:
            one.begin()
        else:
            one.scan(self._owner.held)
        self._open[job] = one
        self.known = max(self.known, len(self._open))

    # Dealing

    def _deal(self, now: float) -> None:
        session = self._session
        if not session.ready():
            return
        reserved: bytes | None = None
        for one in self.jobs():
            need = one.record.file.num_proc
            while one.waiting:
                to = session.takes(one.id, need, now, reserved)
                if to is None:
                    if reserved is None:
                        reserved = session.reserve(one.id, need, now)
                    break
                self._effects += self._deal_one(one, to, now)
            if not session.ready():
                return

    def _deal_one(self, one: OpenJob, to: bytes, now: float) -> FuqEffects:
        found = one.next()
        if found is None:
            return []
        task, candidate = found
        job = self._hands.claim(one.lane, candidate)
        if job is None:
            # Another broker's, or cancelled by hand.
            return []
        self._dealt[job.claim.token] = _Dealt(job, one, task, time.perf_counter_ns())
        one.in_hand += 1
        self.deals += 1
        self._hands.tally.began(job.claim.docid, 1)
        body = encode_task(Task(task, description(one.id, one.record.file)))
        claim = job.claim
        return self._session.deal(Work(claim.token, claim.docid, claim.attempt, body), now, to)

    # Ends

    def _end(self, effect: Finished | SetBack | Lost) -> None:
        if isinstance(effect, Finished):
            self._finished(effect)
        elif isinstance(effect, SetBack):
            self._set_back(effect.claim, effect.how)
        else:
            for claim in effect.claims:
                dealt = self._dealt.get(claim)
                if dealt is not None:
                    self._set_back(claim, Failed(_loss(effect, dealt.task)))

    def _finished(self, effect: Finished) -> None:
        dealt = self._dealt.get(effect.claim)
        if dealt is None:
            return
        update, one, job = effect.update, dealt.of, dealt.job
        work = time.perf_counter_ns() - dealt.began
        try:
            outcome = Outcome.DONE if update.success else Outcome.ERROR
            one.outcomes.note([dealt.task], outcome)
            data = result(one.record.file.name, effect.client.decode(), update)
            job.outputs.take(data, self._limits)
        except (ProcessorFailed, ConfigError, OSError) as error:
            self._put_down(dealt)
            one.give_back(dealt.task, job.claim.attempt)
            self._hands.set_back(job, error)
            return
        self._put_down(dealt)
        try:
            completion = self._hands.complete(job, work)
        except OSError:
            if not job.claim.committed:
                one.give_back(dealt.task, job.claim.attempt)
            raise
        self._hands.tally.worked(work, 1)
        if completion.revoked:
            one.scan(self._owner.held)

    def _set_back(self, claim: str, how: Setback) -> None:
        dealt = self._dealt.get(claim)
        if dealt is None:
            return
        one, job = dealt.of, dealt.job
        self._put_down(dealt)
        charged = isinstance(how, Failed)
        attempt = job.claim.attempt
        last = charged and attempt >= self._lane.handoff.settings.retries
        if last:
            one.outcomes.note([dealt.task], Outcome.LOST)
        else:
            one.give_back(dealt.task, attempt + 1 if charged else attempt)
        self._hands.end_by(job, how)
        self._hands.tally.worked(time.perf_counter_ns() - dealt.began, 0)

    def _put_down(self, dealt: _Dealt) -> None:
        del self._dealt[dealt.job.claim.token]
        dealt.of.in_hand -= 1
        self._hands.put_down(dealt.job)

    def _finish(self, one: OpenJob) -> None:
        """No task is known to be left. If none is there, the job becomes its summary."""
        one.scan(self._owner.held)
        if not one.ended:
            return
        job = self._hands.claim(one.lane, one.own_item())
        if job is None:
            self._open.pop(one.id).close()
            return
        try:
            job.outputs.take(msgspec.json.encode(_summary(one)), self._limits)
            self._hands.complete(job, 0)
        finally:
            self._hands.put_down(job)
        self._open.pop(one.id).close()
        dirs.remove(self.directory, one.id)
        self.known -= 1


def _summary(one: OpenJob) -> Summary:
    record, count = one.record, one.outcomes.count
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
        one.outcomes.failed(),
    )


def _loss(lost: Lost, task: int) -> Failure:
    message = f"client {lost.worker.decode()} was lost ({lost.why}) while it had task {task}"
    return Failure(cause="worker-lost", message=message)
