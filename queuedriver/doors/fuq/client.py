"""The client's side of fuq: takes tasks for its processors, reports how each ended. Pure.

The client counts for itself, anew at each event: nproc = max(0, max_nproc - what runs). It leaves
when max_nproc is 0 and nothing runs, wherever that comes about. It lives longer than a connection:
tasks go on while the broker is away, what was not reported is reported to the next one, and the
greeting then offers only what is free.
"""

import hmac
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from queuedriver.doors.fuq import wire
from queuedriver.doors.fuq.wire import Code, JobStatusUpdate, Message, Task, Type
from queuedriver.doors.table import ELSE, SAME, Row, Table, ours
from queuedriver.doors.words import Close, Effects, Leave, Own, Say, Send, Session
from queuedriver.errors import RemoteProtocolError

# Seconds from the connection to the broker's last word of the greeting.
GREETING = 10.0
# EX_NOPERM: the other side does not know the secret.
_NOT_OURS = 77
STOPPED = "all its processors were stopped"
_GREETED = ("CL_LOOP0", "CL_UPDATE1")

# Conditions of the table.
FITS = "job_nproc <= nproc"
NOW = "n is immediate"
EMPTY = "max_nproc is 0, nothing runs"
MORE = "more reports wait"
ROOM = "fewer than max_proc wait"
RUNS = "the task runs already"
_GREETING = "CL_AUTH0 | CL_AUTH1 | CL_INIT0 | CL_INIT1"
_LOWER = "max_nproc = max(0, max_nproc - n), of STOP(0) 0"

CLIENT = Table(
    "the client",
    [
        ours("CL_AUTH0", "AUTH(nonce)", "", "send AUTH(nonce, proof)", "CL_AUTH1"),
        ours("CL_AUTH0", "OK", "", "leave: it asks for no secret", "CL_EXIT0"),
        ours("CL_INIT0", "AUTH(nonce)", "", "leave: it asks for a secret", "CL_EXIT0"),
        ours("CL_AUTH1", "AUTH(proof)", wire.HOLDS, "nothing", "CL_INIT0"),
        ours("CL_AUTH1", "AUTH(proof)", ELSE, "leave: not our broker", "CL_EXIT0"),
        Row("CL_INIT0", "OK", "", "send OK(nproc)", "CL_INIT1"),
        Row("CL_INIT1", "OK", "", "nothing", "CL_LOOP0"),
        Row("CL_LOOP0", "JOB", FITS, "nproc -= job_nproc, start job", "CL_LOOP0"),
        Row("CL_LOOP0", "JOB", ELSE, "send ERROR(cannot_run_job), report it", "CL_LOOP0"),
        ours("CL_LOOP0", "JOB", RUNS, "nothing", "CL_LOOP0"),
        Row("CL_LOOP0", "STOP", NOW, "kill the tasks", "CL_EXIT1"),
        Row("CL_LOOP0", "STOP", ELSE, _LOWER, "CL_LOOP0"),
        ours(f"{_GREETING} | CL_LOOP0", "STOP", EMPTY, "max_nproc = 0", "CL_EXIT0"),
        Row("CL_LOOP0", "job done", "", "nproc = max(0, max_nproc - running)", "CL_UPDATE0"),
        ours("CL_LOOP0", "OK", "", "a ping: nothing", "CL_LOOP0"),
        Row("CL_UPDATE0", "", "", "send UPDATE(nproc)", "CL_UPDATE1"),
        Row("CL_UPDATE1", "OK", EMPTY, "nothing", "CL_EXIT0"),
        Row("CL_UPDATE1", "OK", ELSE, "take up the jobs that wait", "CL_LOOP0"),
        ours("CL_UPDATE1", "OK", MORE, "take up the jobs that wait", "CL_UPDATE0"),
        ours("CL_UPDATE1", "JOB", ROOM, "it waits for OK", "CL_UPDATE1"),
        ours("CL_UPDATE1", "JOB", ELSE, "send ERROR(overflow), report it", "CL_UPDATE1"),
        ours("CL_UPDATE1", "STOP", NOW, "kill the tasks", "CL_EXIT1"),
        ours("CL_UPDATE1", "STOP", ELSE, _LOWER, "CL_UPDATE1"),
        ours("CL_UPDATE1", "job done", "", "its report waits for OK", "CL_UPDATE1"),
        ours(f"{_GREETING} | CL_LOOP0 | CL_UPDATE1", "ERROR", "", "note it", SAME),
        Row("CL_EXIT0", "", "", "normal exit", wire.END),
        Row("CL_EXIT1", "", "", "immediate exit", wire.END),
    ],
)


class Start(Own, frozen=True):
    """Run this task; the session is told by `ended`, or by `refused` when it cannot be begun."""

    task: Task


Key = tuple[int, int]


class Client(Session):
    """One client of one broker. `nonce` draws 32 random bytes; it is asked only with a secret."""

    def __init__(
        self, max_proc: int, secret: bytes | None = None, nonce: Callable[[], bytes] = bytes
    ) -> None:
        self.max_proc = max_proc
        self.max_nproc = max_proc
        self.state = "CL_INIT0"
        # Why it is to leave, when it does.
        self._why = STOPPED
        self._secret = secret
        self._nonce = nonce
        self._receiver = wire.Receiver()
        # The broker's, and ours.
        self._nonces = b"", b""
        self._greeting_until: float | None = None
        # What each task that runs takes.
        self._running: dict[Key, int] = {}
        # JOBs that came while we waited for OK.
        self._waiting: deque[Task] = deque()
        # Reports that no OK has answered, and what each of those tasks took, as the broker still
        # counts it; the first may be on its way.
        self._reports: deque[tuple[JobStatusUpdate, int]] = deque()

    @property
    def nproc(self) -> int:
        """Return how many processors are free."""
        return max(0, self.max_nproc - sum(self._running.values()))

    @property
    def greeted(self) -> bool:
        """Return whether its broker is there, and no other."""
        return self.state in _GREETED

    @property
    def over(self) -> bool:
        """Return whether there is nothing more to say, ever."""
        return self.state == wire.END

    # A connection

    def joined(self, peer: bytes, now: float) -> Effects:
        self._begin_anew()
        self._greeting_until = now + GREETING
        return []

    def gone(self, peer: bytes, now: float) -> Effects:
        self._begin_anew()
        return []

    def _begin_anew(self) -> None:
        if not self.over:
            self.state = "CL_INIT0" if self._secret is None else "CL_AUTH0"
        self._receiver = wire.Receiver()
        # The broker deals anew what we have not begun.
        self._waiting.clear()
        self._greeting_until = None

    def hear(self, peer: bytes, frames: Sequence[bytes], now: float, wall: float) -> Effects:
        """Take in one chunk of the broker's stream. After nonsense we connect anew."""
        effects: Effects = []
        try:
            for chunk in frames:
                for message in self._receiver.feed(chunk):
                    effects += self._take_in(message)
                    if self.over:
                        return effects
        except RemoteProtocolError as error:
            effects.append(_send(wire.encode(Type.ERROR, Code.BAD_MESSAGE)))
            effects += self._part(f"the broker: {error}")
        return effects

    def tick(self, now: float, wall: float) -> Effects:
        if self._greeting_until is None or now < self._greeting_until:
            return []
        return self._part("the broker does not greet")

    def next_tick_at(self) -> float | None:
        return self._greeting_until

    def _part(self, why: str) -> Effects:
        self._begin_anew()
        return [Say(1, why), Close(b"", why)]

    # Tasks

    def ended(self, update: JobStatusUpdate) -> Effects:
        """Report a task that has come to its end; `new_job` is filled in when it is sent."""
        need = self._running.pop((update.job_id, update.task), None)
        return [] if need is None else self._report(update, need)

    def refused(self, task: Task, why: str) -> Effects:
        """Report a task that was to be started and cannot be."""
        self._running.pop(_key(task), None)
        # Not an ERROR: that is for processors that lack, and ends an original broker's connection.
        return self._cannot_run(task, None, why)

    def lower(self, by: int, why: str = STOPPED) -> Effects:
        """Have so many processors less from now on, as STOP says it."""
        self._why = why
        self.max_nproc = 0 if by == wire.STOP_ALL else max(0, self.max_nproc - by)
        return self._may_exit()

    # Messages

    def _take_in(self, message: Message) -> Effects:
        match message.type:
            case Type.AUTH:
                return self._authenticate(message.body)
            case Type.OK:
                return self._ok()
            case Type.JOB:
                return self._job(wire.decode_task(message.body))
            case Type.STOP:
                return self._stop(message.arg0)
        refused = self.state == "CL_AUTH1"
        self.state = CLIENT.step(self.state, message.type.name)
        if refused:
            words = "the broker does not know our secret: see --secret-file on both sides"
            return [Say(0, words)]
        return [Say(1, f"the broker says ERROR({message.arg0})")]

    def _authenticate(self, body: bytes) -> Effects:
        if self._secret is None:
            self.state = CLIENT.step(self.state, "AUTH(nonce)")
            return [Leave("the broker asks for a secret: give it with --secret-file", _NOT_OURS)]
        if self.state == "CL_AUTH0" and len(body) == wire.NONCE:
            self.state = CLIENT.step(self.state, "AUTH(nonce)")
            self._nonces = body, self._nonce()
            proof = wire.client_proof(self._secret, *self._nonces)
            return [_send(wire.encode_body(Type.AUTH, self._nonces[1] + proof))]
        wanted = wire.broker_proof(self._secret, *self._nonces)
        when = wire.HOLDS if hmac.compare_digest(body, wanted) else ELSE
        self.state = CLIENT.step(self.state, "AUTH(proof)", when)
        if self.over:
            return [Leave("the broker does not know our secret", _NOT_OURS)]
        return []

    def _ok(self) -> Effects:
        """Its number is of no use: what is free, each side counts for itself."""
        was, when = self.state, ""
        if was == "CL_UPDATE1":
            self._reports.popleft()
            when = EMPTY if self._is_done else MORE if self._reports else ELSE
        self.state = CLIENT.step(was, "OK", when)
        if was == "CL_AUTH0":
            return [Leave("the broker did not ask for the secret: it may be another", _NOT_OURS)]
        if was == "CL_INIT0":
            return [_send(wire.encode(Type.OK, self.nproc))]
        if was == "CL_INIT1":
            self._greeting_until = None
            return self._next_report() if self._reports else self._may_exit()
        if was != "CL_UPDATE1":
            return []
        if self.over:
            return [Leave(self._why)]
        effects: Effects = []
        waiting, self._waiting = self._waiting, deque()
        for task in waiting:
            effects += self._begin(task)
        if when == MORE:
            return effects + self._send_report()
        return effects + (self._next_report() if self._reports else self._may_exit())

    def _job(self, task: Task) -> Effects:
        if self.state != "CL_UPDATE1":
            fits = task.description.num_proc <= self.nproc
            when = RUNS if _key(task) in self._running else FITS if fits else ELSE
            self.state = CLIENT.step(self.state, "JOB", when)
            return self._begin(task)
        room = len(self._waiting) < self.max_proc
        self.state = CLIENT.step(self.state, "JOB", ROOM if room else ELSE)
        if room:
            self._waiting.append(task)
            return []
        return self._cannot_run(task, Code.OVERFLOW, "more jobs wait than it has processors")

    def _begin(self, task: Task) -> Effects:
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

    def _stop(self, number: int) -> Effects:
        at_once = number == wire.STOP_NOW
        self.state = CLIENT.step(self.state, "STOP", NOW if at_once else ELSE)
        if not at_once:
            return self.lower(number)
        self._running.clear()
        return [Leave("the broker stopped it at once")]

    # Reports

    def _cannot_run(self, task: Task, code: Code | None, why: str) -> Effects:
        update = JobStatusUpdate(
            task.description.job_id, task.task, success=False, status=wire.CANNOT_RUN, log=why
        )
        said: Effects = []
        if code is not None and self.greeted:
            said.append(_send(wire.encode(Type.ERROR, code)))
        return said + self._report(update, task.description.num_proc)

    def _report(self, update: JobStatusUpdate, need: int) -> Effects:
        self._reports.append((update, need))
        if self.state == "CL_UPDATE1":
            self.state = CLIENT.own_step(self.state, "job done")
            return []
        return self._next_report()

    def _next_report(self) -> Effects:
        if self.state != "CL_LOOP0":
            return []
        self.state = CLIENT.own_step(self.state, "job done")
        return self._send_report()

    def _send_report(self) -> Effects:
        update, _ = self._reports[0]
        # What ended and is not reported yet is not free to the broker: it would count it twice.
        later = sum(need for _, need in self._reports) - self._reports[0][1]
        update = msgspec.structs.replace(update, new_job=wire.NewJob(max(0, self.nproc - later)))
        return [_send(wire.encode_body(Type.UPDATE, wire.encode_update(update)))]

    # The end

    @property
    def _is_done(self) -> bool:
        return not (self.max_nproc or self._running or self._reports or self._waiting)

    def _may_exit(self) -> Effects:
        if not self._is_done or self.over:
            return []
        self.state = CLIENT.own_step(self.state, "STOP", EMPTY)
        return [Leave(self._why)]


def _key(task: Task) -> Key:
    return task.description.job_id, task.task


def _send(message: bytes) -> Send:
    return Send(b"", (message,))
