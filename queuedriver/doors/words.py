"""What a session and its loop say to each other, whatever the protocol. Pure.

A session is told what happened (frames came, a worker is gone, time has passed, a document waits)
and answers with effects, which its loop carries out in their order. Time is an argument:
`now` is the loop's monotonic clock. A session raises RemoteProtocolError for what a peer may not
send, and nothing else, whatever that was.

A broker deals *work*: a document of an input queue, or a client's request that was kept there. Its
`claim` is what all that is said of it later goes by. How a document ended workers say as a code and
a text, as a command's exit code would (`status`, `setback`).

Clients of all protocols repeat a request under its id, so that a broker knows it for the same one,
until it is answered; when that has been in vain for too long, it is given up (`ClientSession`).
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import ClassVar, Protocol, TypeVar

import msgspec

from queuedriver.claims.outcomes import Failed, Postponed, Released, Setback
from queuedriver.errors import LATER, LATER_AFTER
from queuedriver.format.records import Failure

K = TypeVar("K")
V = TypeVar("V")
# What workers say of a document; LATER is another.
DONE = 0
FAILED = 1
PERMANENT = 65
# Bytes, or characters, of a text: a report is for reading.
MAX_TEXT = 8 * 1024
# Seconds after which a client sends again what has no answer.
REPEAT_AFTER = 5.0


class Request(msgspec.Struct, frozen=True):
    """What a client wants done. It is on disk before anything else happens to it."""

    # The return path and the client's own id: the same again is the same request.
    key: bytes
    # The frames as they came, for whichever worker gets them, and the way back.
    frames: tuple[bytes, ...]
    service: str = ""
    # Whether it is kept until it is answered; without, it is finished before it is sent.
    answered: bool = True


class Work(msgspec.Struct, frozen=True, gc=False):
    """A claimed document, or a client's request, to be dealt to a worker."""

    claim: str
    docid: str
    attempt: int
    payload: bytes
    service: str = ""
    request: Request | None = None
    # Whether its worker may have nothing else in hand, before it or after it: it has failed before,
    # or was in the hands of a worker that was lost, and others must not pay for it.
    alone: bool = False
    # How much of what a worker has free it takes.
    need: int = 1


class Result(msgspec.Struct, frozen=True, gc=False):
    """One output of a document; without a name it gets the document's."""

    data: bytes
    name: str | None = None


class Processed(msgspec.Struct, frozen=True, gc=False):
    """A document was processed: publish its results."""

    results: tuple[Result, ...]
    # False: it failed, and its results, which say so, are published all the same.
    success: bool = True


class Answer(msgspec.Struct, frozen=True, gc=False):
    """A client's request was answered: keep the answer, finish the request, then send it."""

    peer: bytes
    frames: tuple[bytes, ...]


# How a claim ends: its results are published, its answer is kept, or it is charged, released or
# postponed.
How = Processed | Answer | Setback

# What is to be done. By the transport:


class Send(msgspec.Struct, frozen=True, gc=False):
    """Frames for a peer. One that cannot be reached is `gone`."""

    peer: bytes
    frames: tuple[bytes, ...]


class Close(msgspec.Struct, frozen=True):
    """Drop the peer's connection, once what was sent before has left."""

    peer: bytes
    why: str


# By the broker's queues:


class End(msgspec.Struct, frozen=True, gc=False):
    """End a claim."""

    claim: str
    how: How


class Asked(msgspec.Struct, frozen=True):
    """A client's request: keep it, then deal it like a document."""

    request: Request


# By the worker's loop:


class Process(msgspec.Struct, frozen=True):
    """Process this; the session is told how it went by `finished` or `failed`."""

    work: Work


class Reconnect(msgspec.Struct, frozen=True):
    """The broker is silent: close the connection, open a new one, and call `start` again."""

    why: str
    # The address of another broker; empty: the same one.
    to: str = ""


class Leave(msgspec.Struct, frozen=True):
    """Nothing more is to be done: end with this exit code."""

    why: str
    exit_code: int = 0


class Own(msgspec.Struct, frozen=True):
    """What only the loop of one protocol does."""


# By a client's loop:


class Ended(msgspec.Struct, frozen=True):
    """A client's request is over."""

    id: bytes
    results: tuple[Result, ...] = ()
    # Why there is none; empty when all went well.
    why: str = ""


# By whoever looks on:


class Say(msgspec.Struct, frozen=True, gc=False):
    """Something a person may want to know, from this level of `-d` on."""

    level: int
    words: str


def shown(peer: bytes) -> str:
    """Return a peer's name for people."""
    return peer[:80].decode("ascii", "backslashreplace")


def soonest(*instants: float | None) -> float | None:
    """Return the first of these instants; None where there is none."""
    found = None
    for at in instants:
        if at is not None and (found is None or at < found):
            found = at
    return found


def setback(code: int, text: str) -> Setback:
    """Return what a code other than 0 means."""
    text = text[:MAX_TEXT] or "its worker did not say why"
    if code == LATER:
        return Postponed(LATER_AFTER, text)
    permanent = code == PERMANENT
    cause = "permanent" if permanent else "exit"
    return Failed(Failure(cause=cause, message=text, permanent=permanent, exit_code=code))


def status(how: Setback) -> tuple[int, str]:
    """Return the code and the text that say so."""
    match how:
        case Failed(failure=failure):
            code, text = PERMANENT if failure.permanent else FAILED, failure.message
        case Postponed(reason=text) | Released(reason=text):
            code = LATER
    return code, text[:MAX_TEXT]


class Recent(OrderedDict[K, V]):
    """What was set last, by key: of more than so many the oldest is forgotten."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self.most:
            self.popitem(last=False)


Effect = Send | Close | End | Asked | Process | Reconnect | Leave | Own | Ended | Say
Effects = list[Effect]


class Session(Protocol):
    """One side of a protocol, as the loop that carries its frames knows it (`conversation.py`).

    A peer of a side that connects, and has only one, is called b\"\".
    """

    # Whether frames are but bytes, so that those of several messages may go as one.
    is_stream: ClassVar[bool] = False

    def hear(self, peer: bytes, frames: Sequence[bytes], now: float, wall: float) -> Effects:
        """Take in the frames of one message; of a stream, one chunk of bytes. `wall` is the time of
        day."""

    def joined(self, peer: bytes, now: float) -> Effects:
        """Take note of a connection that was made; by a ZeroMQ worker, of one that broke and is
        there again: what was on its way, to or fro, may be lost."""
        return []

    def gone(self, peer: bytes, now: float) -> Effects:
        """Take note of a peer that cannot be reached any more."""
        return []

    def was_deaf(self, seconds: float, now: float) -> None:
        """Take note that nothing was heard for so long, by our own fault: what is heard for some
        seconds from now on may be so old."""
        return

    def tick(self, now: float, wall: float) -> Effects:
        """Do what time has brought."""
        return []

    def next_tick_at(self) -> float | None:
        """Return when `tick` is worth calling; None: not before something else happens."""
        return None


class WorkerSession(Session, Protocol):
    """A worker's side of a protocol."""

    def start(self, now: float, wall: float) -> Effects:
        """Begin: a connection is being made, for the first time or after `Reconnect`."""

    def finished(self, claim: str, results: tuple[Result, ...], now: float) -> Effects:
        """Report a document that `Process` asked for and that was processed."""

    def failed(self, claim: str, how: Setback, now: float) -> Effects:
        """Report one that was not: it failed, is to be tried later, or was interrupted."""

    def leave(self, now: float) -> Effects:
        """Say goodbye, as we were asked to leave. `Leave` comes when nothing is in hand."""


class Awaited(msgspec.Struct):
    """A request that is under way."""

    # What was asked, as the protocol calls it.
    kind: str
    # What is said again when no answer comes.
    send: Send
    timeout: float
    due_at: float = 0.0
    give_up_at: float = 0.0

    def wait(self, now: float) -> None:
        """Wait as long as for a new request, from now on."""
        self.due_at = now + REPEAT_AFTER
        self.give_up_at = now + self.timeout


class ClientSession(Session):
    """A client's side of a protocol."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self.under_way: dict[bytes, Awaited] = {}

    def ask(self, docid: str, payload: bytes, now: float) -> tuple[bytes, Effects]:
        """Request what is done to documents; return the id by which the request's `Ended` goes."""
        raise NotImplementedError

    def begin(self, id: bytes, kind: str, send: Send, now: float) -> Effects:
        """Send a request, and await its answer."""
        self.under_way[id] = one = Awaited(kind, send, self._timeout)
        one.wait(now)
        return [send]

    def end(self, id: bytes, results: tuple[Result, ...] = (), why: str = "") -> Effects:
        """Await a request no more."""
        del self.under_way[id]
        return [Ended(id, results, why)]

    def tick(self, now: float, wall: float) -> Effects:
        effects: Effects = []
        for id, one in [*self.under_way.items()]:
            if one.give_up_at <= now:
                effects += self.end(id, why="there was no answer")
            elif one.due_at <= now:
                one.due_at = now + REPEAT_AFTER
                effects.append(one.send)
        return effects

    def next_tick_at(self) -> float | None:
        instants = (min(one.due_at, one.give_up_at) for one in self.under_way.values())
        return min(instants, default=None)
