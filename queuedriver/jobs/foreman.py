"""Takes jobs up, deals their tasks to clients, and ends them: what a broker of fuq does.

One job file is taken up at a time. Tasks are dealt by ascending JobId, then number; a job that no
client has room for right now keeps one client from smaller tasks until it has, and one that no
client is large enough for keeps nobody from anything.
"""

import time
from collections import deque
from collections.abc import Iterable, Iterator

import msgspec

from queuedriver.claims.charging import abandon, give_back_later
from queuedriver.claims.handoff import Claim
from queuedriver.claims.input_queue import InputQueue
from queuedriver.claims.liveness import Observer
from queuedriver.claims.outcomes import (
    DONE,
    Doubted,
    Ending,
    Failed,
    Released,
    Setback,
    from_exception,
)
from queuedriver.disk.filesystem import Directory
from queuedriver.doors.fuq.broker import Broker, Finished, FuqEffects
from queuedriver.doors.fuq.wire import Task, encode_task
from queuedriver.doors.words import Lost, SetBack, Work
from queuedriver.driving.limits import Limits
from queuedriver.driving.live_status import Tally
from queuedriver.errors import ConfigError, ProcessorFailed
from queuedriver.format import names
from queuedriver.format.records import Failure
from queuedriver.jobs import job as dirs
from queuedriver.jobs.job import OpenJob, Record, Unfolding, open_job
from queuedriver.jobs.jobfile import Summary, description, result
from queuedriver.jobs.jobfile import decode as decode_job
from queuedriver.jobs.outcomes import Outcome

# Jobs that are dealt from at a time; the next wait. Each costs some descriptors.
MAX_OPEN = 64
# How often control files are looked at, in seconds.
_LOOK_EVERY = 0.25


class _Dealt(msgspec.Struct, frozen=True):
    """A task that a client has."""

    claim: Claim
    of: OpenJob
    task: int
    began: int


class Foreman:
    """The jobs of one queue, on behalf of one broker."""

    def __init__(
        self,
        queue: InputQueue,
        jobs: Directory,
        observer: Observer,
        tally: Tally,
        limits: Limits,
        session: Broker,
    ) -> None:
        self._queue = queue
        self.directory = jobs
        self._observer = observer
        self._tally = tally
        # The N of every claim at hand: what else carries our id on disk was lost track of.
        self._held: set[str] = set()
        queue.at_hand = self._held
        # Outputs of jobs that are closed.
        self._published = 0
        self._limits = limits
        self._session = session
        self._open: dict[int, OpenJob] = {}
        self._unfolding: Unfolding | None = None
        # The claim by which that is taken up.
        self._taking: Claim | None = None
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
        return self._published + sum(one.queue.published for one in self._open.values())

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
        return [dealt.claim.docid for dealt in found if dealt is not None]

    # What a loop calls for an item of the queue

    def work(self, claim: Claim) -> None:
        """Begin to take a job file up; `step` goes on with it."""
        try:
            file = decode_job(claim.docid, claim.read())
        except (ProcessorFailed, OSError) as error:
            self._end_claim(claim, from_exception(error))
            return
        serial = names.parse_token(claim.token).serial
        self._taking = claim
        self._held.add(claim.token)
        try:
            record = Record(serial, claim.docid, time.time(), file)
            self._unfolding = Unfolding(self.directory, record, self._queue.durable)
        except OSError as error:
            self._give_up_taking(error)
            raise

    def _end_claim(self, claim: Claim, ending: Ending, work: int = 0) -> None:
        """End a claim, and count what became of it."""
        self._held.discard(claim.token)
        try:
            claim.of.end([claim], [ending], work / 1e9)
        finally:
            self._tally.book([claim.fate], work / 1e9)

    @property
    def has_room(self) -> bool:
        """Whether another job file may be taken up."""
        return self._taking is None and len(self._open) < MAX_OPEN

    def clean(self) -> None:
        """The file system is well again."""
        self.directory.reopen()
        for one in self._open.values():
            one.queue.reopen()
            give_back_later(one.queue.later)
            one.scan()
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
            self._end_claim(self._taking, Released(why))
            self._taking = None
        for claim in list(self._dealt):
            self._set_back(claim, Released(why))

    def close(self) -> None:
        for job in list(self._open):
            self._close(job)

    def _close(self, job: int) -> None:
        one = self._open.pop(job)
        self._published += one.queue.published
        one.close()

    # Taking up

    def _unfold(self, unfolding: Unfolding) -> None:
        claim = self._taking
        if claim is None:
            return
        try:
            if not unfolding.step():
                return
            born = unfolding.commit(self._queue.directory, claim.name)
        except OSError as error:
            self._give_up_taking(error)
            raise
        record = unfolding.record
        self._taking = self._unfolding = None
        unfolding.close()
        self._held.discard(claim.token)
        if not born:
            dirs.remove(self.directory, record.job)
            return
        message = f"taken up as job {record.job}, with {record.file.num_tasks} tasks"
        self._queue.note("taken-up", claim, message=message)
        self._enter(record.job, fresh=True)

    def _give_up_taking(self, error: OSError) -> None:
        claim, self._taking = self._taking, None
        self._drop_unfolding()
        if claim is not None:
            self._held.discard(claim.token)
            abandon(claim, error)

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
                one.scan()
            if one.held and not (one.in_hand or one.cancelled or one.ended):
                # Others may be dealt from meanwhile.
                self._close(one.id)
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
            directory = self.directory.subdirectory(str(job))
        except (FileNotFoundError, NotADirectoryError):
            return
        record = dirs.read_record(directory)
        if record is None or record.job != job or not dirs.is_born(directory, record):
            directory.close()
            return
        one = OpenJob(open_job(self._queue, directory, self._observer), record)
        one.look()
        if fresh:
            one.begin()
        else:
            one.scan()
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
        task, name = found
        claims = list(one.queue.claim([name]))
        if not claims:
            # Another broker's, or cancelled by hand.
            return []
        claim = claims[0]
        self._dealt[claim.token] = _Dealt(claim, one, task, time.perf_counter_ns())
        self._held.add(claim.token)
        one.in_hand += 1
        self.deals += 1
        self._tally.began(claim.docid, 1)
        body = encode_task(Task(task, description(one.id, one.record.file)))
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
        update, one, claim = effect.update, dealt.of, dealt.claim
        work = time.perf_counter_ns() - dealt.began
        ending: Ending = DONE
        try:
            outcome = Outcome.DONE if update.success else Outcome.ERROR
            one.outcomes.note([dealt.task], outcome)
            data = result(one.record.file.name, effect.client.decode(), update)
            claim.outputs.take(data, self._limits)
        except (ProcessorFailed, ConfigError, OSError) as error:
            ending = from_exception(error)
        self._put_down(dealt)
        try:
            self._end_claim(claim, ending, work)
        finally:
            if claim.fate == "failed":
                one.give_back(dealt.task, claim.attempt + 1)
            elif not (claim.committed or claim.fate in ("finished", "discarded", "revoked")):
                one.give_back(dealt.task, claim.attempt)
        if claim.fate == "revoked":
            one.scan()

    def _set_back(self, claim: str, how: Setback | Doubted) -> None:
        dealt = self._dealt.get(claim)
        if dealt is None:
            return
        one = dealt.of
        self._put_down(dealt)
        charged = isinstance(how, Failed)
        attempt = dealt.claim.attempt
        last = charged and attempt >= self._queue.settings.retries
        if last:
            one.outcomes.note([dealt.task], Outcome.LOST)
        else:
            one.give_back(dealt.task, attempt + 1 if charged else attempt)
        self._end_claim(dealt.claim, how)

    def _put_down(self, dealt: _Dealt) -> None:
        del self._dealt[dealt.claim.token]
        self._held.discard(dealt.claim.token)
        dealt.of.in_hand -= 1

    def _finish(self, one: OpenJob) -> None:
        """No task is known to be left. If none is there, the job becomes its summary."""
        one.scan()
        if not one.ended:
            return
        for claim in one.queue.claim([one.own_item()]):
            claim.outputs.take(msgspec.json.encode(_summary(one)), self._limits)
            one.queue.end([claim], [DONE])
            dirs.remove(self.directory, one.id)
            self.known -= 1
        self._close(one.id)


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
