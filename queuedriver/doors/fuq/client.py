"""The client's side of fuq: takes tasks for its processors, reports how each ended. Pure.

The client counts for itself, anew at each event: nproc = max(0, max_nproc - what runs). It leaves
when max_nproc is 0 and nothing runs, wherever that comes about. It lives longer than a connection:
tasks go on while the broker is away, what was not reported is reported to the next one, and the
greeting then offers only what is free.
"""

from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from queuedriver.doors.fuq import auth, tables, wire
from queuedriver.doors.fuq.broker import CANNOT_RUN
from queuedriver.doors.fuq.tables import CLIENT
from queuedriver.doors.fuq.wire import Code, JobStatusUpdate, Message, NewJob, Task, Type
from queuedriver.doors.table import Table
from queuedriver.doors.words import Leave, Reconnect, Say, Send
from queuedriver.errors import LocalProtocolError, RemoteProtocolError

# Seconds from the connection to the broker's last word of the greeting.
GREETING = 10.0
# EX_NOPERM: the other side does not know the secret.
_NOT_OURS = 77
STOPPED = "all its processors were stopped"


class Start(msgspec.Struct, frozen=True):
    """Run this task; the session is told by `ended`, or by `refused` when it cannot be begun."""

    task: Task


class KillAll(msgspec.Struct, frozen=True):
    """End all tasks at once, with whatever they have started."""


ClientEffect = Send | Start | KillAll | Reconnect | Leave | Say
ClientEffects = list[ClientEffect]
Key = tuple[int, int]


class Client:
    """One client of one broker. `nonce` draws 32 random bytes; it is asked only with a secret."""

    def __init__(
        self,
        max_proc: int,
        secret: bytes | None = None,
        nonce: Callable[[], bytes] | None = None,
        *,
        greeting: float = GREETING,
        max_body: int = wire.MAX_BODY,
        table: Table = CLIENT,
    ) -> None:
        self._table = table
        self.max_proc = max_proc
        self.max_nproc = max_proc
        self.state = "CL_INIT0"
        # Why it is to leave, when it does.
        self._why = STOPPED
        self._secret = secret
        if secret is not None and nonce is None:
            raise LocalProtocolError("a secret needs nonces")
        self._nonce = nonce or bytes
        self._greeting = greeting
        self._max_body = max_body
        self._receiver = wire.Receiver(max_body)
        self._broker_nonce = b""
        self._client_nonce = b""
        self._greeting_until: float | None = None
        # What each task that runs takes.
        self._running: dict[Key, int] = {}
        # JOBs that came while we waited for OK.
        self._waiting: deque[Task] = deque()
        # Reports that no OK has answered; the first may be on its way.
        self._reports: deque[JobStatusUpdate] = deque()
        # What each of those tasks took, as the broker still counts it.
        self._took: deque[int] = deque()

    @property
    def nproc(self) -> int:
        """The processors that are free."""
        return max(0, self.max_nproc - sum(self._running.values()))

    @property
    def idle(self) -> bool:
        """Nothing runs, and nothing is left to say."""
        return not (self._running or self._reports)

    # A connection

    def start(self, now: float) -> ClientEffects:
        """A connection is there, for the first time or again."""
        self.state = "CL_INIT0" if self._secret is None else "CL_AUTH0"
        self._receiver = wire.Receiver(self._max_body)
        # The broker deals anew what we have not begun.
        self._waiting.clear()
        self._greeting_until = now + self._greeting
        return []

    def disconnected(self) -> None:
        """The connection is no more; `start` comes with the next."""
        self._greeting_until = None

    def receive(self, frames: Sequence[bytes], now: float) -> ClientEffects:
        """One chunk of the broker's stream. After nonsense we connect anew."""
        effects: ClientEffects = []
        try:
            for chunk in frames:
                for message in self._receiver.feed(chunk):
                    effects += self._hear(message)
                    if self.over:
                        return effects
        except RemoteProtocolError as error:
            bad = _send(wire.encode(Type.ERROR, Code.BAD_MESSAGE))
            effects += [bad, Reconnect(f"the broker: {error}")]
        return effects

    def tick(self, now: float) -> ClientEffects:
        """Time has passed."""
        if self._greeting_until is None or now < self._greeting_until:
            return []
        self._greeting_until = None
        return [Reconnect("the broker does not greet")]

    def next_tick_at(self) -> float | None:
        return self._greeting_until

    @property
    def over(self) -> bool:
        """Whether there is nothing more to say, ever."""
        return self.state in ("CL_EXIT0", "CL_EXIT1")

    # Tasks

    def ended(self, update: JobStatusUpdate) -> ClientEffects:
        """A task has come to its end; `new_job` is filled in when it is sent."""
        need = self._running.pop((update.job_id, update.task), None)
        return [] if need is None else self._report(update, need)

    def refused(self, task: Task, why: str) -> ClientEffects:
        """A task that was to be started cannot be."""
        self._running.pop(_key(task), None)
        # Not an ERROR: that is for processors that lack, and ends an original broker's connection.
        return self._cannot_run(task, None, why)

    def lower(self, by: int, why: str = STOPPED) -> ClientEffects:
        """Have so many processors less from now on, as STOP says it."""
        self._why = why
        self.max_nproc = 0 if by == wire.STOP_ALL else max(0, self.max_nproc - by)
        if self.max_nproc or not self.idle or self._waiting or self.over:
            return []
        return self._exit()

    # Messages

    def _hear(self, message: Message) -> ClientEffects:
        match message.type:
            case Type.AUTH:
                return self._authenticate(message.body)
            case Type.OK:
                return self._ok()
            case Type.JOB:
                return self._job(wire.decode_task(message.body))
            case Type.STOP:
                return self._stop(message.arg0)
            case Type.ERROR:
                return self._error(message.arg0)
        raise RemoteProtocolError(f"{message.type.name} is not for a client", Code.BAD_MESSAGE)

    def _error(self, code: int) -> ClientEffects:
        refused = self.state == "CL_AUTH1"
        self.state = self._table.step(self.state, "ERROR")
        if refused:
            words = "the broker does not know our secret: see --secret-file on both sides"
            return [Say(0, words)]
        return [Say(1, f"the broker says ERROR({code})")]

    def _authenticate(self, body: bytes) -> ClientEffects:
        if self._secret is None:
            self.state = self._table.step(self.state, "AUTH(nonce)")
            return [Leave("the broker asks for a secret: give it with --secret-file", _NOT_OURS)]
        if self.state == "CL_AUTH0" and len(body) == auth.NONCE:
            self.state = self._table.step(self.state, "AUTH(nonce)")
            self._broker_nonce, self._client_nonce = body, self._nonce()
            proof = auth.client_proof(self._secret, body, self._client_nonce)
            return [_send(wire.encode_body(Type.AUTH, self._client_nonce + proof))]
        wanted = auth.broker_proof(self._secret, self._broker_nonce, self._client_nonce)
        when = tables.HOLDS if auth.holds(body, wanted) else tables.ELSE
        self.state = self._table.step(self.state, "AUTH(proof)", when)
        if self.over:
            return [Leave("the broker does not know our secret", _NOT_OURS)]
        return []

    def _ok(self) -> ClientEffects:
        """Its number is of no use: what is free, each side counts for itself."""
        if self.state == "CL_AUTH0":
            self.state = self._table.step(self.state, "OK")
            return [Leave("the broker did not ask for the secret: it may be another", _NOT_OURS)]
        if self.state == "CL_INIT0":
            self.state = self._table.step(self.state, "OK")
            return [_send(wire.encode(Type.OK, self.nproc))]
        if self.state == "CL_INIT1":
            self.state = self._table.step(self.state, "OK")
            self._greeting_until = None
            return self._next_report() if self._reports else self._may_exit()
        if self.state != "CL_UPDATE1":
            self.state = self._table.step(self.state, "OK")
            return []
        self._reports.popleft()
        self._took.popleft()
        empty = self.max_nproc == 0 and self.idle and not self._waiting
        when = tables.EMPTY if empty else tables.MORE if self._reports else tables.ELSE
        self.state = self._table.step(self.state, "OK", when)
        if self.over:
            return [Leave(self._why)]
        effects: ClientEffects = []
        waiting, self._waiting = self._waiting, deque()
        for task in waiting:
            effects += self._begin(task)
        if when == tables.MORE:
            return effects + self._send_report()
        return effects + (self._next_report() if self._reports else self._may_exit())

    def _job(self, task: Task) -> ClientEffects:
        if self.state != "CL_UPDATE1":
            fits = task.description.num_proc <= self.nproc
            runs = _key(task) in self._running
            when = tables.RUNS if runs else tables.FITS if fits else tables.ELSE
            self.state = self._table.step(self.state, "JOB", when)
            return self._begin(task)
        room = len(self._waiting) < self.max_proc
        self.state = self._table.step(self.state, "JOB", tables.ROOM if room else tables.ELSE)
        if room:
            self._waiting.append(task)
            return []
        return self._cannot_run(task, Code.OVERFLOW, "more jobs wait than it has processors")

    def _begin(self, task: Task) -> ClientEffects:
        """Start a task, if there is room for it."""
        need, key = task.description.num_proc, _key(task)
        if key in self._running:
            # Dealt anew by a broker that does not know it: we are at it.
            return []
        if need > self.nproc:
            why = f"it takes {need} processors, and {self.nproc} are free"
            return self._cannot_run(task, Code.CANNOT_RUN_JOB, why)
        self._running[key] = need
        return [Start(task)]

    def _stop(self, number: int) -> ClientEffects:
        if number == wire.STOP_NOW:
            self.state = self._table.step(self.state, "STOP", tables.NOW)
            self._running.clear()
            return [KillAll(), Leave("the broker stopped it at once")]
        self.state = self._table.step(self.state, "STOP", tables.ELSE)
        return self.lower(number)

    # Reports

    def _cannot_run(self, task: Task, code: Code | None, why: str) -> ClientEffects:
        update = JobStatusUpdate(
            task.description.job_id, task.task, success=False, status=CANNOT_RUN, log=why
        )
        said: ClientEffects = []
        if code is not None and self.state in ("CL_LOOP0", "CL_UPDATE0", "CL_UPDATE1"):
            said.append(_send(wire.encode(Type.ERROR, code)))
        return said + self._report(update, task.description.num_proc)

    def _report(self, update: JobStatusUpdate, need: int) -> ClientEffects:
        self._reports.append(update)
        self._took.append(need)
        if self.state == "CL_UPDATE1":
            self.state = self._table.own_step(self.state, "job done")
        return self._next_report() if self.state == "CL_LOOP0" else []

    def _next_report(self) -> ClientEffects:
        if self.state != "CL_LOOP0":
            return []
        self.state = self._table.own_step(self.state, "job done")
        return self._send_report()

    def _send_report(self) -> ClientEffects:
        self.state = self._table.own_step(self.state, "")
        # What ended and is not reported yet is not free to the broker: it would count it twice.
        free = max(0, self.nproc - (sum(self._took) - self._took[0]))
        update = msgspec.structs.replace(self._reports[0], new_job=NewJob(free))
        return [_send(wire.encode_body(Type.UPDATE, wire.encode_update(update)))]

    # The end

    def _may_exit(self) -> ClientEffects:
        if self.max_nproc or not self.idle or self._waiting:
            return []
        return self._exit()

    def _exit(self) -> ClientEffects:
        if self.state == "CL_LOOP0":
            self.state = self._table.own_step(self.state, "STOP", tables.EMPTY)
        else:
            # There is no connection, or it is new: nothing is owed to it.
            self.state = "CL_EXIT0"
        return [Leave(self._why)]


def _key(task: Task) -> Key:
    return task.description.job_id, task.task


def _send(message: bytes) -> Send:
    return Send(b"", (message,))
