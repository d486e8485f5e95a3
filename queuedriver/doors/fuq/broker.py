"""The broker's side of fuq: its clients, which are workers of one exchange. Pure.

How many processors a client has free is counted here: its limit (`slots`), less what the tasks in
its hands take. The limit is what it offered in its greeting; what it reports later bounds it from
both sides. After a task, `reported` are free there. It may run all that it was dealt, or all but
what was sent since our last OK and may have crossed the report:

    reported + dealt - crossing  <=  its true maximum  <=  reported + dealt

So the limit only rises where the client said in its greeting less than it has, because it was still
at tasks of an earlier connection; and it never rises again after a STOP.
"""

import hmac
import math
from collections.abc import Callable, Collection, Sequence

import msgspec

from queuedriver.claims.outcomes import Released, Setback
from queuedriver.doors import exchange, words
from queuedriver.doors.exchange import LEFT, OVERDUE, SILENT, Exchange
from queuedriver.doors.fuq import wire
from queuedriver.doors.fuq.wire import Code, JobStatusUpdate, Message, Receiver, Type
from queuedriver.doors.table import ELSE, Row, Table, ours
from queuedriver.doors.transports.base import Refusals
from queuedriver.doors.words import Effects, End, Say, Send, Work, shown
from queuedriver.errors import RemoteProtocolError
from queuedriver.jobs.jobfile import result

# Seconds from the connection to the client's OK.
GREETING = 10.0
# How many refused jobs are remembered of one client; more is no client but a mistake.
_MOST_REFUSED = 10_000
# What is said of clients with another secret.
_REFUSED = "somebody is refused: it does not know our secret; see --secret-file on both sides"
# Seconds until a client is asked again that cannot run a job: doubled each time, up to the longest.
_FIRST_REFUSAL = 1.0
_LONGEST_REFUSAL = 300.0
# Seconds in which a client that has said ERROR may say which task it was; after that, and from one
# that knows no more than the protocol's own description, it was the last that was sent.
_SAYS_WHICH = 1.0
# Characters of a client's reason that are noted.
_MOST_REASON = 300

# A condition of the table.
PENDING = "npending > 0"

SERVER = Table(
    "the server",
    [
        ours("SV_AUTH0", "", "", "send AUTH(nonce)", "SV_AUTH1"),
        ours("SV_AUTH1", "AUTH(nonce, proof)", wire.HOLDS, "send AUTH(proof)", "SV_INIT0"),
        ours("SV_AUTH1", "AUTH(nonce, proof)", ELSE, "send ERROR", "SV_EXIT"),
        Row("SV_INIT0", "", "", "send OK(0)", "SV_INIT1"),
        Row("SV_INIT1", "OK", "", "record nproc = n", "SV_INIT2"),
        Row("SV_INIT2", "", "", "send OK(nproc)", "SV_LOOP0"),
        Row("SV_LOOP0", "", "", "request npending <= nproc pending tasks", "SV_LOOP1"),
        Row("SV_LOOP1", "", PENDING, "send JOB", "SV_LOOP2"),
        Row("SV_LOOP1", "", ELSE, "nothing", "SV_LOOP2"),
        Row("SV_LOOP2", "JOB_QUEUED", "", "nothing", "SV_LOOP0"),
        Row("SV_LOOP2", "UPDATE", "", "record task status, set nproc", "SV_LOOP3"),
        Row("SV_LOOP2", "STOP_REQ", "", "send STOP(n)", "SV_LOOP0"),
        Row("SV_LOOP2", "STOP_IMMED", "", "send STOP(immediate)", "SV_LOOP0"),
        Row("SV_LOOP2", "DISCONNECT", "", "its tasks are pending again, once", "SV_EXIT"),
        ours("SV_LOOP2", "TIMEOUT", "", "the same, of a task that takes too long", "SV_EXIT"),
        ours("SV_LOOP2", "OK", "", "a ping: nothing", "SV_LOOP2"),
        ours("SV_LOOP2", "ERROR", "", "of the last JOB, unless UPDATE says", "SV_LOOP2"),
        Row("SV_LOOP3", "", "", "send OK(nproc)", "SV_LOOP0"),
        ours("SV_AUTH1 | SV_INIT1", "DISCONNECT", "", "nothing", "SV_EXIT"),
        ours("SV_AUTH1 | SV_INIT1", "TIMEOUT", "", "send ERROR", "SV_EXIT"),
        Row("SV_EXIT", "", "", "exit server loop", wire.END),
    ],
)


class Worker(exchange.Worker):
    """A connection of a client; it is dealt something once it has greeted."""

    slots: int = 0
    receiver: Receiver = msgspec.field(default_factory=Receiver)
    nonce: bytes = b""
    # The claims that it has in hand, and their jobs' names, by job and task.
    tasks: dict[tuple[int, int], tuple[str, str]] = msgspec.field(default_factory=dict)
    # Those that were sent since our last OK: its next report may not know of them yet.
    crossing: set[str] = msgspec.field(default_factory=set)
    # Jobs it said it cannot run: not before when they are offered to it again, and the wait until
    # then. What was in the way may have been a moment's.
    refused: words.Recent[int, tuple[float, float]] = msgspec.field(
        default_factory=lambda: words.Recent(_MOST_REFUSED)
    )
    # Whether it was told to take less; and whether to drop everything: what it has is not its
    # fault.
    stopped: bool = False
    ended: bool = False

    @property
    def greeted(self) -> bool:
        return self.state == "SV_LOOP2"

    def may(self, job: int, now: float) -> bool:
        """Tell whether a job may be offered to it."""
        return job not in self.refused or self.refused[job][0] <= now


class Broker(Exchange[Worker]):
    """All clients of one broker. `nonce` draws 32 random bytes; it is asked only with a secret."""

    worker = Worker
    is_stream = True
    settling_frees = False
    one_process = False

    def __init__(
        self,
        secret: bytes | None = None,
        nonce: Callable[[], bytes] = bytes,
        *,
        job_timeout: float | None = None,
    ) -> None:
        super().__init__(silent_after=GREETING, job_timeout=job_timeout)
        self._secret = secret
        self._nonce = nonce
        # Tasks that an ERROR may have meant, until when the client may say which, and whose they
        # are; by claim, in the order in which their time ends.
        self._doubted: dict[str, tuple[float, Worker]] = {}
        self._refusals = Refusals()
        # Counts every change of who is there and what it has.
        self.changes = 0

    # What comes

    def joined(self, peer: bytes, now: float) -> Effects:
        worker = self.join(peer, now)
        if worker is None:
            return [_bad(peer), words.Close(peer, "there are as many clients as may be")]
        if self._secret is None:
            worker.state = SERVER.rest("SV_INIT0")
            return [_send(worker, wire.encode(Type.OK, 0))]
        worker.state = SERVER.rest("SV_AUTH0")
        worker.nonce = self._nonce()
        return [_send(worker, wire.encode_body(Type.AUTH, worker.nonce))]

    def hear(self, peer: bytes, frames: Sequence[bytes], now: float, wall: float) -> Effects:
        """Take in one chunk of a client's stream. Whoever sends nonsense is told so, and cut
        off."""
        worker = self.workers.get(peer)
        if worker is None:
            return []
        effects: Effects = []
        try:
            for chunk in frames:
                for message in worker.receiver.feed(chunk):
                    effects += self._take_in(worker, message, now)
                    if worker.state == wire.END:
                        return effects
        except RemoteProtocolError as error:
            effects += self._cut_off(worker, str(error))
        return effects

    def _take_in(self, worker: Worker, message: Message, now: float) -> Effects:
        if message.type is Type.UPDATE:
            return self._update(worker, wire.decode_update(message.body), now)
        if message.type is Type.AUTH:
            return self._authenticate(worker, message.body, now)
        is_greeting = not worker.greeted
        worker.state = SERVER.step(worker.state, message.type.name)
        if message.type is Type.ERROR:
            return self._hear_error(worker, message.arg0, now)
        return self._welcome(worker, message.arg0, now) if is_greeting else []

    def _authenticate(self, worker: Worker, body: bytes, now: float) -> Effects:
        nonces = worker.nonce, body[: wire.NONCE]
        secret = self._secret or b""
        proof, wanted = body[wire.NONCE :], wire.client_proof(secret, *nonces)
        when = wire.HOLDS if hmac.compare_digest(proof, wanted) else ELSE
        worker.state = SERVER.step(worker.state, "AUTH(nonce, proof)", when)
        if when == ELSE:
            refused = [Say(0, one.why) for one in self._refusals.news(_REFUSED, now)]
            return [*refused, *self._cut_off(worker, "it does not know our secret")]
        ours = wire.encode_body(Type.AUTH, wire.broker_proof(secret, *nonces))
        return [_send(worker, ours), _send(worker, wire.encode(Type.OK, 0))]

    def _welcome(self, worker: Worker, nproc: int, now: float) -> Effects:
        if nproc > wire.MAX_NPROC:
            raise RemoteProtocolError(f"OK offers {nproc} processors, more than {wire.MAX_NPROC}")
        worker.slots = nproc
        worker.silent_after = math.inf
        self.offer(worker, nproc, now)
        self.changes += 1
        return [_send(worker, wire.encode(Type.OK, nproc))]

    def _hear_error(self, worker: Worker, code: int, now: float) -> Effects:
        if code in (Code.OVERFLOW, Code.CANNOT_RUN_JOB):
            sent = [claim for claim in worker.in_hand if claim not in self._doubted]
            if sent:
                self._doubted[sent[-1]] = now + _SAYS_WHICH, worker
        return [Say(1, f"{shown(worker.name)}: ERROR({code})")]

    # Reports

    def _update(self, worker: Worker, update: JobStatusUpdate, now: float) -> Effects:
        worker.state = SERVER.step(worker.state, "UPDATE")
        claim, name = worker.tasks.pop((update.job_id, update.task), ("", ""))
        if self._doubted:
            self._clear_doubt(worker, claim, update)
        work = self.settle(worker, claim)
        worker.crossing.discard(claim)
        taken = worker.slots - worker.free - (work.need if work is not None else 0)
        if update.new_job is not None:
            worker.slots = self._limit(worker, update.new_job.num_proc, taken)
        self.offer(worker, worker.slots - taken, now)
        worker.crossing.clear()
        self.changes += 1
        answer = _send(worker, wire.encode(Type.OK, max(0, worker.free)))
        if work is None:
            text = f"{shown(worker.name)}: a late result, of nothing it has in hand"
            return [Say(2, text), answer]
        return [self._end(worker, work, name, update, now), answer]

    def _limit(self, worker: Worker, reported: int, taken: int) -> int:
        """Return how many processors a client has, of which it reports so many free."""
        most = reported + taken
        if worker.stopped:
            return min(worker.slots, most)
        crossing = sum(worker.in_hand[claim][0].need for claim in worker.crossing)
        least = min(most - crossing, wire.MAX_NPROC)
        return min(max(worker.slots, least), most)

    def _end(
        self, worker: Worker, work: Work, name: str, update: JobStatusUpdate, now: float
    ) -> End:
        if not update.success and update.status == wire.CANNOT_RUN:
            return self._refuse(worker, work, update, now)
        worker.refused.pop(update.job_id, None)
        data = result(name, shown(worker.name), update)
        return End(work.claim, words.Processed((words.Result(data),), update.success))

    def _refuse(self, worker: Worker, work: Work, update: JobStatusUpdate, now: float) -> End:
        """Release a task that a client did not begin."""
        # One that had room for it will not run it next time, either.
        if update.new_job is None or update.new_job.num_proc >= work.need:
            at, before = worker.refused.get(update.job_id, (0.0, 0.0))
            # Several tasks that were on their way are one refusal.
            if at <= now:
                wait = min(max(_FIRST_REFUSAL, 2 * before), _LONGEST_REFUSAL)
                worker.refused[update.job_id] = now + wait, wait
        reason = (update.log or "it gave no reason")[:_MOST_REASON]
        text = f"client {shown(worker.name)} cannot run it: {reason}"
        return End(work.claim, Released(text))

    def _clear_doubt(self, worker: Worker, claim: str, update: JobStatusUpdate) -> None:
        """Take what a client says after an ERROR for what that meant."""
        if claim not in self._doubted and update.status == wire.CANNOT_RUN:
            its = (one for one, (_, whose) in self._doubted.items() if whose is worker)
            claim = next(its, "")
        self._doubted.pop(claim, None)

    def _take_back(self, worker: Worker, claim: str, now: float) -> Effects:
        """Take a task back from a client that has said ERROR, and nothing else: it is not told that
        this has ended, and counts as if it had never come."""
        work = self.settle(worker, claim)
        if work is None:
            return []
        (key,) = (one for one, (its, _) in worker.tasks.items() if its == claim)
        del worker.tasks[key]
        worker.crossing.discard(claim)
        self.offer(worker, worker.free + work.need, now)
        self.changes += 1
        report = JobStatusUpdate(*key, success=False, status=wire.CANNOT_RUN)
        return [self._refuse(worker, work, report, now)]

    # What is dealt

    def pick(
        self, service: str, now: float, need: int = 1, *, alone: bool = False
    ) -> Worker | None:
        """Return which client would take a task of this job (`service`) now. Where none has room
        for it, the one that lacks least is kept from smaller tasks until it has."""
        job = int(service)
        picked = super().pick("", now, need, alone=alone)
        if picked is not None and not picked.may(job, now):
            everybody = self.workers.values()
            others = (one for one in everybody if one.free >= need and one.may(job, now))
            picked = next((one for one in others if one not in self.reserved), None)
        if picked is None and need > 1 and not self.reserved:
            large = [one for one in self.workers.values() if one.slots >= need]
            able = [one for one in large if one.may(job, now)]
            if able:
                self.reserved.add(min(able, key=lambda one: (need - one.free, one.name)))
        return picked

    def frames_of(self, worker: Worker, work: Work) -> tuple[bytes, ...]:
        task = wire.decode_task(work.payload)
        worker.state = SERVER.own_step(worker.state, "JOB_QUEUED", then=PENDING)
        job = task.description
        worker.tasks[job.job_id, task.task] = work.claim, job.name
        worker.crossing.add(work.claim)
        self.changes += 1
        return (wire.encode_body(Type.JOB, work.payload),)

    def stop(self, number: int, now: float, to: Collection[bytes] = ()) -> Effects:
        """Take so many processors from these clients, or from all: 0 is all they have, STOP_NOW all
        and at once."""
        effects: Effects = []
        at_once = number == wire.STOP_NOW
        for worker in self.workers.values():
            if not worker.greeted or (to and worker.name not in to):
                continue
            event = "STOP_IMMED" if at_once else "STOP_REQ"
            worker.state = SERVER.own_step(worker.state, event)
            worker.stopped = True
            worker.ended = worker.ended or at_once
            taken = worker.slots - worker.free
            all_of_it = at_once or number == wire.STOP_ALL
            worker.slots = 0 if all_of_it else max(0, worker.slots - number)
            self.offer(worker, worker.slots - taken, now)
            self.changes += 1
            effects.append(_send(worker, wire.encode(Type.STOP, number)))
        return effects

    # Time, and ends

    def tick(self, now: float, wall: float = 0.0) -> Effects:
        effects = super().tick(now, wall)
        late = [claim for claim, (until, _) in self._doubted.items() if until <= now]
        for claim in late:
            _, worker = self._doubted.pop(claim)
            effects += self._take_back(worker, claim, now)
        return effects

    def next_tick_at(self) -> float | None:
        soon = super().next_tick_at()
        for until, _ in self._doubted.values():
            return words.soonest(until, soon)
        return soon

    def lose(self, worker: Worker, why: str, how: Setback | None = None) -> Effects:
        if worker.ended:
            how = Released("its client was stopped")
        effects = super().lose(worker, why, how)
        if why != SILENT:
            return effects
        return [_bad(worker.name), words.Close(worker.name, "it did not greet in time"), *effects]

    def forget(self, worker: Worker, why: str) -> None:
        self.changes += 1
        for claim in worker.in_hand:
            self._doubted.pop(claim, None)
        if worker.state != wire.END:
            event = "TIMEOUT" if why in (SILENT, OVERDUE) else "DISCONNECT"
            worker.state = SERVER.own_step(worker.state, event)

    def _cut_off(self, worker: Worker, why: str) -> Effects:
        said = Say(1, f"{shown(worker.name)}: {why}; its connection is closed")
        return [_bad(worker.name), words.Close(worker.name, why), said, *self.lose(worker, LEFT)]


def _bad(peer: bytes) -> Send:
    return Send(peer, (wire.encode(Type.ERROR, Code.BAD_MESSAGE),))


def _send(worker: Worker, message: bytes) -> Send:
    return Send(worker.name, (message,))
