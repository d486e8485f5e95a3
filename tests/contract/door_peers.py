"""Workers and clients of the four protocols, frame by frame, as they would be in any language.

Nothing of ours encodes or decodes anything here: what is said is what the protocols' pages say.
"""

import json
import struct
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import msgspec

Frames = Sequence[bytes]


class Link(Protocol):
    """What peers and a broker hear each other by."""

    def connect(self, peer: bytes) -> None:
        """Be there, under this name."""

    def say(self, peer: bytes, *frames: bytes) -> None:
        """Say something to the broker."""

    def heard(self, peer: bytes) -> list[list[bytes]]:
        """Return what the broker has said to this peer since the last look."""

    def vanish(self, peer: bytes) -> None:
        """Be gone, without a word."""

    def until(self, fact: Callable[[], Any], words: str) -> Any:
        """Wait for a fact, and return it."""


class Dealt(NamedTuple):
    """What a worker was dealt."""

    # Which document, as its own contents say; or a client's request.
    text: str
    # What the answer has to name it by.
    name: Any = None


def answer_to(text: str) -> bytes:
    """What comes of a document."""
    return f"done: {text}".encode()


class Peer:
    """Somebody who speaks one protocol with the broker."""

    def __init__(self, link: Link, name: bytes) -> None:
        self.link = link
        self.name = name

    def connect(self) -> None:
        self.link.connect(self.name)

    def say(self, *frames: bytes) -> None:
        self.link.say(self.name, *frames)

    def vanish(self) -> None:
        """End without a word."""
        self.link.vanish(self.name)


class Worker(Peer):
    """A worker, and what it has in hand."""

    # How many documents it can have in hand, if it wants several.
    most: ClassVar[int] = 10

    def __init__(self, link: Link, name: bytes) -> None:
        super().__init__(link, name)
        self.in_hand: list[Dealt] = []
        # What the broker said that is no document, each by its word.
        self.said: list[str] = []
        # Whether it says that it is there as long as it waits.
        self.lives = False
        self._slots = 0

    # What each protocol has words of its own for

    def greet(self, slots: int) -> str:
        """Say that it is there and takes so many; return by which word it will be answered."""
        raise NotImplementedError

    def take_in(self, frames: list[bytes]) -> None:
        """Understand one message."""
        raise NotImplementedError

    def report(self, dealt: Dealt, result: bytes | None) -> None:
        """Say what came of a document; None: it failed."""
        raise NotImplementedError

    def say_goodbye(self) -> None:
        """Say that it leaves."""
        raise NotImplementedError

    def say_it_lives(self) -> None:
        """Say so, and nothing else."""
        raise NotImplementedError

    # What any test does with it

    def join(self, slots: int = 1) -> None:
        """Be listed, with room for so many documents or for what the protocol allows."""
        self.lives = False
        self.connect()
        self._slots = min(slots, self.most)
        self.said.clear()
        self.in_hand.clear()
        word = self.greet(self._slots)
        self.link.until(lambda: word in self.look().said, f"{self.name!r} is answered {word}")
        self.lives = True

    def leaves(self) -> None:
        """Leave in good order."""
        self.lives = False
        self.say_goodbye()

    def vanish(self) -> None:
        self.lives = False
        super().vanish()

    def says_it_lives(self) -> None:
        """Say so, if it waits."""
        if self.lives and not self.look().in_hand:
            self.say_it_lives()

    def look(self) -> Self:
        """Take in what has come."""
        for frames in self.link.heard(self.name):
            self.take_in(frames)
        return self

    def has(self) -> list[str]:
        """What it has in hand."""
        return [dealt.text for dealt in self.look().in_hand]

    def gets(self, *texts: str) -> Dealt:
        """Wait until it has all of these in hand; return the first."""
        self.link.until(lambda: set(texts) <= set(self.has()), f"{self.name!r} has {texts}")
        return next(dealt for dealt in self.in_hand if dealt.text == texts[0])

    def gets_one(self) -> Dealt:
        """Wait until it has anything in hand; return the first of it."""
        self.link.until(self.has, f"{self.name!r} has something in hand")
        return self.in_hand[0]

    def answers(self, dealt: Dealt) -> None:
        """Say that a document is done, and be ready for another."""
        if dealt in self.in_hand:
            self.in_hand.remove(dealt)
        self.report(dealt, answer_to(dealt.text))

    def late(self, dealt: Dealt, result: bytes) -> None:
        """Say what came of a document that it may not have any more."""
        if dealt in self.in_hand:
            self.in_hand.remove(dealt)
        self.report(dealt, result)

    def fails(self, dealt: Dealt) -> None:
        """Say that a document failed, and be ready for another."""
        self.in_hand.remove(dealt)
        self.report(dealt, None)


class PingPong(Worker):
    most = 1

    def greet(self, slots: int) -> str:
        self.say(b"", b"READY")
        return "PONG"

    def take_in(self, frames: list[bytes]) -> None:
        match frames:
            case [b"", b"PONG" | b"EXIT" | b"PING" as word]:
                self.said.append(word.decode())
            case [b"", payload]:
                self.in_hand.append(Dealt(payload.decode()))

    def report(self, dealt: Dealt, result: bytes | None) -> None:
        if result is None:
            self.say(b"", b"ERROR", b"1", b"it failed")
        else:
            self.say(b"", result)

    def say_goodbye(self) -> None:
        self.say(b"", b"DISCONNECT")

    def say_it_lives(self) -> None:
        self.say(b"", b"PING")


LMQ = b"LMQv100"
PING, PONG, EXEC, TRACKEXEC, RESPONSE = b"\x01", b"\x02", b"\x03", b"\x04", b"\x06"
INCREMENT, REGISTER, DEREGISTER, DOCUMENT = b"\x07", b"\x08", b"\x09", b"\x0b"


class RoundRobin(Worker):
    def greet(self, slots: int) -> str:
        self.say(b"", LMQ, TRACKEXEC, b"r", REGISTER, b"%d" % slots, b"")
        return "RESPONSE"

    def take_in(self, frames: list[bytes]) -> None:
        _, _, command, id, *rest = frames
        end = len(rest) - 1 - rest[::-1].index(b"")
        arguments, way = rest[:end], rest[end + 1 :]
        match command, arguments:
            case b"\x04", [b"\x0b", _, _, payload]:
                self.in_hand.append(Dealt(payload.decode(), (id, tuple(reversed(way)))))
            case b"\x06", _:
                self.said.append("RESPONSE")
            case b"\x03", [b"\x08"]:
                self.said.append("REGISTER")
            case _:
                self.said.append("PING")

    def report(self, dealt: Dealt, result: bytes | None) -> None:
        id, way = dealt.name
        outcome = (b"1", b"it failed") if result is None else (b"0", b"", result)
        self.say(*way, b"", LMQ, RESPONSE, id, *outcome, b"")
        self.say(b"", LMQ, EXEC, b"i", INCREMENT, b"")

    def say_goodbye(self) -> None:
        self.say(b"", LMQ, EXEC, b"d", DEREGISTER, b"")

    def say_it_lives(self) -> None:
        self.say(b"", LMQ, PING, b"p", b"")


class Scale0(Worker):
    def greet(self, slots: int) -> str:
        self._options(b"CHECKCONFIG", config_type="JSON")
        self.link.until(lambda: "CONFIG" in self.look().said, "CONFIG")
        for _ in range(slots):
            self._options(b"READY", services=[""])
        return "READYOK"

    def take_in(self, frames: list[bytes]) -> None:
        command, options, *body = frames
        match command:
            case b"WORKREQUEST":
                name = json.loads(options)["work_request_identifier"]
                self.in_hand.append(Dealt(body[0].decode(), name))
            case b"DISCONNECTERROR":
                self.said.append(str(json.loads(options)["error_code"]))
            case _:
                self.said.append(command.decode())

    def report(self, dealt: Dealt, result: bytes | None) -> None:
        status = {} if result is not None else {"status": 1, "error_message": "it failed"}
        options = {"work_request_identifier": dealt.name, **status}
        self.say(b"WORKREPLY", json.dumps(options).encode(), result or b"")
        # One READY is one request.
        self._options(b"READY", services=[""])

    def say_goodbye(self) -> None:
        self._options(b"DISCONNECTERROR", error_code=503, error_message="it leaves")

    def say_it_lives(self) -> None:
        self._options(b"PING")

    def _options(self, command: bytes, **options: object) -> None:
        self.say(command, json.dumps(options).encode())


HEADER = struct.Struct("<HHII")
MAGIC = 0xC047
OK, JOB, UPDATE, STOP = 1, 2, 3, 4


class Fuq(Worker):
    """One with processors; each of its connections is a peer of its own."""

    _connections = 0

    def __init__(self, link: Link, name: bytes) -> None:
        super().__init__(link, name)
        self._came = b""
        # Reports are answered one by one.
        self._owed = 0
        self._closed = False

    def connect(self) -> None:
        Fuq._connections += 1
        self.name = b"%d" % Fuq._connections
        self._came = b""
        self._owed = 0
        self._closed = False
        super().connect()

    def greet(self, slots: int) -> str:
        self.link.until(lambda: "OK 0" in self.look().said, "OK(0)")
        self.say(HEADER.pack(MAGIC, OK, 0, slots))
        return f"OK {slots}"

    def take_in(self, frames: list[bytes]) -> None:
        # Nothing comes at the end of a connection.
        self._closed = not any(frames)
        self._came += b"".join(frames)
        while len(self._came) >= HEADER.size:
            _, kind, _, number = HEADER.unpack_from(self._came)
            size = number if kind in (JOB, UPDATE) else 0
            if len(self._came) < HEADER.size + size:
                break
            body = self._came[HEADER.size : HEADER.size + size]
            self._came = self._came[HEADER.size + size :]
            if kind == JOB:
                task = msgspec.msgpack.decode(body)
                job = task["JobDescription"]
                self.in_hand.append(Dealt(job["Name"], (job["JobId"], task["Task"])))
            elif kind == OK:
                self.said.append(f"OK {number}")
                self._owed = max(0, self._owed - 1)
            else:
                self.said.append(f"{kind}")

    def report(self, dealt: Dealt, result: bytes | None) -> None:
        job, task = dealt.name
        self.link.until(lambda: self.look()._owed == 0 or self._closed, "OK after the last UPDATE")
        self._owed += 1
        update = {
            "JobId": job,
            "Task": task,
            "Success": result is not None,
            "Status": "done" if result is not None else "it failed",
            "NewJob": {"NumProc": self._slots - len(self.in_hand)},
            "Log": (result or b"").decode(),
        }
        body = msgspec.msgpack.encode(update)
        self.say(HEADER.pack(MAGIC, UPDATE, 0, len(body)) + body)

    def late(self, dealt: Dealt, result: bytes) -> None:
        if self.look()._closed:
            self.join()
        super().late(dealt, result)

    def say_goodbye(self) -> None:
        self.vanish()

    def say_it_lives(self) -> None:
        self.say(HEADER.pack(MAGIC, OK, 0, 0))


WORKERS: dict[str, type[Worker]] = {
    "pingpong": PingPong,
    "roundrobin": RoundRobin,
    "scale0": Scale0,
    "fuq": Fuq,
}


# Clients


class Client(Peer):
    """A client: what it asks, and what it is answered."""

    def asks(self, text: str) -> None:
        raise NotImplementedError

    def answers(self) -> list[str]:
        """Return what it was answered since the last look; of a refusal why."""
        raise NotImplementedError

    def is_answered(self, text: str) -> bool:
        return answer_to(text).decode() in self.answers()

    def is_refused(self) -> bool:
        """Tell whether it was told that its request is not done."""
        answers = self.answers()
        assert not any(answer.startswith("done") for answer in answers)
        return bool(answers)

    def knocks(self) -> None:
        """Be there again: say anything."""
        raise NotImplementedError


class RoundRobinClient(Client):
    def asks(self, text: str) -> None:
        id = document = text.encode()
        self.say(b"", LMQ, TRACKEXEC, id, DOCUMENT, document, b"0", document, b"")

    def answers(self) -> list[str]:
        responses = [one for one in self.link.heard(self.name) if one[2] == RESPONSE]
        # What it became; of one that was not processed its code and why.
        return [(one[6] if one[4] == b"0" else one[4]).decode() for one in responses]

    def knocks(self) -> None:
        self.say(b"", LMQ, PING, b"p", b"")


class Scale0Client(Client):
    def asks(self, text: str) -> None:
        options = {"service": "", "message_id": text}
        self.say(b"WORKREQUEST", json.dumps(options).encode(), text.encode())

    def answers(self) -> list[str]:
        heard = self.link.heard(self.name)
        codes = (frames[1] for frames in heard if frames[0] == b"DISCONNECTERROR")
        refusals = [f"refused: {json.loads(options)['error_code']}" for options in codes]
        replies = [frames[2].decode() for frames in heard if frames[0] == b"WORKREPLY"]
        return refusals + replies

    def knocks(self) -> None:
        self.say(b"PING", b"{}")


CLIENTS: dict[str, type[Client]] = {"roundrobin": RoundRobinClient, "scale0": Scale0Client}
