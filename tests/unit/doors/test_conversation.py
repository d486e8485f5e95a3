"""The loop that workers, clients and consoles have in common: what is heard, said and missed."""

import math
import os
from collections.abc import Iterator, Sequence

from queuedriver.doors.conversation import PATIENCE, Conversation, sleep
from queuedriver.doors.exchange import HEARS_OUT
from queuedriver.doors.transports.base import Arrival, Gone, Joined, Message
from queuedriver.doors.words import (
    Close,
    Effect,
    Effects,
    Leave,
    Reconnect,
    Say,
    Send,
    Session,
)
from queuedriver.errors import RemoteProtocolError


class Wires:
    """A transport of lists."""

    def __init__(self) -> None:
        self.came: list[Arrival] = []
        self.sent: list[tuple[bytes, tuple[bytes, ...]]] = []
        self.dropped: list[bytes] = []
        self.reachable = True
        self.why_missing = ""
        self.ticked_at: list[float] = []
        self.tick_at: float | None = None
        self.closed = False

    def arrivals(self) -> Iterator[Arrival]:
        while self.came:
            yield self.came.pop(0)

    def pending(self) -> bool:
        return bool(self.came)

    def send(self, peer: bytes, frames: tuple[bytes, ...]) -> bool:
        if self.reachable:
            self.sent.append((peer, frames))
        return self.reachable

    def drop(self, peer: bytes) -> None:
        self.dropped.append(peer)

    def fds(self) -> list[int]:
        return []

    def missing(self) -> str:
        return self.why_missing

    def next_tick_at(self) -> float | None:
        return self.tick_at

    def tick(self, now: float) -> None:
        self.ticked_at.append(now)
        self.tick_at = None

    def close(self) -> None:
        self.closed = True


class Script(Session):
    """Answers with what the test wants."""

    def __init__(self) -> None:
        self.answers: list[Effects] = []
        self.heard: list[object] = []
        self.tick_at: float | None = None

    def _next(self, what: object) -> Effects:
        self.heard.append(what)
        return self.answers.pop(0) if self.answers else []

    def hear(self, peer: bytes, frames: Sequence[bytes], now: float, wall: float) -> Effects:
        if frames == [b"nonsense"]:
            raise RemoteProtocolError("it is nonsense")
        return self._next((peer, frames))

    def joined(self, peer: bytes, now: float) -> Effects:
        return self._next(f"{peer.decode()} joined")

    def gone(self, peer: bytes, now: float) -> Effects:
        return self._next(f"{peer.decode()} is gone")

    def was_deaf(self, seconds: float, now: float) -> None:
        self.heard.append(("deaf", seconds))

    def tick(self, now: float, wall: float) -> Effects:
        self.tick_at = None
        return self._next("tick")

    def next_tick_at(self) -> float | None:
        return self.tick_at


class Scene:
    def __init__(self, level: int = 0, deaf_after: float = math.inf) -> None:
        self.session, self.wires = Script(), Wires()
        self.done: list[Effect] = []
        self.said: list[str] = []
        told = self.done.append, self.said.append, level
        self.talk = Conversation(self.session, self.wires, *told, deaf_after=deaf_after)

    def hears(self, *came: Arrival, now: float = 0.0) -> None:
        self.wires.came += came
        self.talk.turn(now, now)


def a_message(*frames: bytes, peer: bytes = b"") -> Message:
    return Message(peer, [*frames])


def test_what_is_held_for_a_peer_leaves_right_before_what_it_is_dealt() -> None:
    scene = Scene()
    scene.session.answers += [[Send(peer, (b"answer",))] for peer in (b"v", b"w")]
    scene.talk.hold()
    scene.hears(a_message(b"result", peer=b"v"), a_message(b"result", peer=b"w"))
    assert not scene.wires.sent
    assert scene.talk.send(b"w", (b"document",))
    assert scene.wires.sent == [(b"w", (b"answer",)), (b"w", (b"document",))]
    scene.talk.flush(0.0)
    assert scene.wires.sent[2:] == [(b"v", (b"answer",))]
    # Nothing is held any more.
    scene.session.answers.append([Send(b"v", (b"more",))])
    scene.hears(a_message(b"?", peer=b"v"))
    assert scene.wires.sent[3:] == [(b"v", (b"more",))]


def test_whoever_cannot_be_sent_what_was_held_is_gone() -> None:
    scene = Scene()
    scene.session.answers.append([Send(b"w", (b"answer",))])
    scene.talk.hold()
    scene.hears(a_message(b"result", peer=b"w"))
    scene.wires.reachable = False
    assert not scene.talk.send(b"w", (b"document",))
    scene.session.answers.append([Send(b"v", (b"answer",))])
    scene.hears(a_message(b"result", peer=b"v"))
    scene.talk.flush(0.0)
    assert scene.session.heard[-1] == "v is gone"


def test_effects_are_carried_out_in_their_order_and_what_is_no_frame_is_left_to_the_loop() -> None:
    scene = Scene(level=1)
    leave = Leave("done")
    scene.session.answers.append(
        [Send(b"w", (b"1",)), Say(1, "shown"), Say(2, "hidden"), leave, Close(b"w", "why")]
    )
    scene.hears(a_message(b"hello", peer=b"w"))
    assert scene.session.heard == [(b"w", [b"hello"])]
    assert scene.wires.sent == [(b"w", (b"1",))]
    assert (scene.said, scene.done, scene.wires.dropped) == (["shown"], [leave], [b"w"])


def test_session_and_transport_are_told_the_time_when_it_is_due() -> None:
    scene = Scene()
    scene.session.tick_at, scene.wires.tick_at = 5.0, 4.0
    assert scene.talk.next_turn_at() == 4.0
    scene.hears(now=3.9)
    assert (scene.session.heard, scene.wires.ticked_at) == ([], [])
    scene.hears(now=5.0)
    assert (scene.session.heard, scene.wires.ticked_at) == (["tick"], [5.0])
    assert scene.talk.next_turn_at() is None


def test_who_was_deaf_for_a_while_hears_all_out_before_anybody_is_overdue_or_silent() -> None:
    scene = Scene(deaf_after=5.0)
    scene.session.tick_at = 1.0
    scene.hears(now=0.0)
    scene.hears(a_message(b"result", peer=b"w"), now=60.0)
    assert scene.session.heard == [("deaf", 60.0), (b"w", [b"result"])]
    scene.session.heard.clear()
    assert scene.talk.next_turn_at() == 60.0 + HEARS_OUT
    # What was on its way needs a moment.
    scene.hears(a_message(b"late", peer=b"v"), now=60.5)
    assert scene.session.heard == [(b"v", [b"late"])]
    for now in (62.0, 65.0, 60.0 + HEARS_OUT):
        scene.hears(now=now)
    assert scene.session.heard[1:] == ["tick"]
    scene.session.tick_at = 67.5
    scene.hears(now=68.0)
    assert scene.session.heard[2:] == ["tick"]


def test_peer_that_cannot_be_sent_to_is_gone() -> None:
    scene = Scene()
    scene.wires.reachable = False
    scene.session.answers.append([Send(b"w", (b"1",))])
    scene.hears(a_message(b"hello", peer=b"w"), Joined(b"v"), Gone(b"v", "why"))
    assert scene.session.heard[1:] == ["w is gone", "v joined", "v is gone"]


def test_nonsense_of_the_one_peer_is_always_said_and_that_of_many_only_when_asked_for() -> None:
    scene = Scene()
    scene.hears(a_message(b"nonsense"), a_message(b"nonsense", peer=b"w"), a_message(b"hello"))
    assert scene.said == ["the broker sent what it may not: it is nonsense"]
    assert scene.session.heard == [(b"", [b"hello"])]


def test_what_an_old_connection_brought_is_forgotten_with_it() -> None:
    scene = Scene()
    anew = Wires()
    scene.talk._act = lambda effect: scene.talk.reopen(anew)
    scene.session.answers.append([Reconnect("why"), Send(b"", (b"late",))])
    scene.session.tick_at = 0.0
    scene.hears(a_message(b"first"), a_message(b"second"))
    assert scene.wires.closed
    assert scene.session.heard == [(b"", [b"first"])]
    assert scene.wires.sent == anew.sent == []
    scene.talk.turn(0.0, 0.0)
    assert scene.session.heard[1:] == ["tick"]


def test_that_nobody_is_there_is_said_within_five_seconds_and_once() -> None:
    scene = Scene()
    scene.wires.why_missing = "nobody answers"
    assert scene.talk.next_turn_at() == 0.0
    scene.hears(now=10.0)
    at = scene.talk.next_turn_at()
    assert at == 10.0 + PATIENCE < 15.0
    scene.hears(now=at - 0.1)
    assert scene.said == []
    for now in (at, at + 1.0, at + 100.0):
        scene.hears(now=now)
    assert scene.said == ["nobody answers (trying on)"]
    assert scene.talk.next_turn_at() is None


def test_that_somebody_is_away_again_is_said_again() -> None:
    scene = Scene()
    for start in (0.0, 100.0):
        scene.wires.why_missing = "nobody answers"
        scene.hears(now=start)
        scene.hears(now=start + PATIENCE)
        scene.wires.why_missing = ""
        scene.hears(a_message(b"hello"), now=start + 10.0)
    assert len(scene.said) == 2


def test_another_reason_why_nobody_is_there_is_said_too_and_each_once() -> None:
    scene = Scene()
    # It is started at last, and refuses our key; then it ends, and so on.
    for start in (0.0, 100.0, 200.0):
        for now, why in ((start, "nobody answers"), (start + 50, "it refuses our key")):
            scene.wires.why_missing = why
            scene.hears(now=now)
            # A reason that goes again at once is none.
            scene.hears(now=now + PATIENCE - 0.1)
            assert len(scene.said) == (2 if start else int(now > start))
            at = scene.talk.next_turn_at()
            assert at == (None if start else now + PATIENCE)
            scene.hears(now=now + PATIENCE)
    assert scene.said == ["nobody answers (trying on)", "it refuses our key (trying on)"]


def test_who_is_there_in_time_is_not_missed() -> None:
    scene = Scene()
    for now in range(100):
        scene.wires.why_missing = "nobody answers" if now % 4 else ""
        scene.hears(now=float(now))
    assert scene.said == []


def test_sleep_ends_for_a_descriptor_and_when_something_has_come_already() -> None:
    scene = Scene()
    reads, writes = os.pipe()
    try:
        os.write(writes, b"x")
        assert sleep([scene.talk], [reads]) == [reads]
        os.read(reads, 1)
        scene.wires.came.append(a_message(b"hello"))
        assert sleep([scene.talk], [reads]) == []
        scene.wires.came.clear()
        scene.session.tick_at = 0.0
        assert sleep([scene.talk], [reads]) == []
    finally:
        os.close(reads)
        os.close(writes)
