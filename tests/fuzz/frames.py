"""A target that talks: a broker and its peers over a hostile wire.

The bytes are a script. It says which message comes next, and what becomes of it on its way: it
arrives, or is dropped, repeated, given to another, overtaken; its frames are dropped, repeated,
exchanged, cut, flipped, added to; or it is made up. Real sessions talk meanwhile, so that
conversations get somewhere. Whatever comes, a session answers with effects or RemoteProtocolError,
and a claim ends once at most.
"""

import random
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

from queuedriver.doors import words
from queuedriver.doors.words import Asked, Close, Request, Say, Send, Work
from queuedriver.errors import RemoteProtocolError
from tests.fuzz.promise import Target, check
from tests.fuzz.talks import PIECES, TALKS, End, Talk

# Messages under way between two, each way; the oldest are lost.
_UNDER_WAY = 20
# Requests and documents at a time.
_WAITING = 5
_TICKS = (0.0, 0.01, 0.1, 0.5, 0.5, 1.0, 1.0, 1.0, 3.0, 40.0)
_MOST_WORDS = 1000
# Of 256 messages so many are left as they are; which of these it is, a script begins with.
_HONEST = (100, 200, 240, 252)

# Messages and frames that sessions were given, and messages that they refused.
COUNTED: Counter[str] = Counter()


class _Over(Exception):
    """The script has been played."""


class _Script:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def byte(self) -> int:
        if self._at >= len(self._data):
            raise _Over
        self._at += 1
        return self._data[self._at - 1]

    def choose(self, count: int) -> int:
        return self.byte() % count

    def piece(self) -> bytes:
        """A frame that somebody made up."""
        which = self.choose(len(PIECES) + 4)
        if which < len(PIECES):
            return PIECES[which]
        start, self._at = self._at, self._at + which
        return self._data[start : self._at]


class _Street:
    """Everybody, and what is under way between them."""

    def __init__(self, talk: Talk, script: _Script) -> None:
        self._talk = talk
        self._script = script
        self._now = 1000.0
        self._honest = _HONEST[script.choose(len(_HONEST))]
        self._broker: Any = talk.broker()
        self._ends: dict[bytes, End] = {b"p%d" % at: make() for at, make in enumerate(talk.ends)}
        # To the broker, and from it, by peer.
        self._up: dict[bytes, deque[Sequence[bytes]]] = {}
        self._down: dict[bytes, deque[Sequence[bytes]]] = {}
        # What is dealt, and whether it is a request; requests that wait.
        self._dealt: set[str] = set()
        self._asked: deque[Request] = deque(maxlen=_WAITING)
        self._serial = 0
        for peer in self._ends:
            self._up[peer] = deque(maxlen=_UNDER_WAY)
            self._down[peer] = deque(maxlen=_UNDER_WAY)

    def play(self) -> None:
        for peer, end in self._ends.items():
            self._carry_out(self._broker.joined(peer, self._now))
            self._up[peer].extend(end.start(self._now))
        try:
            while True:
                self._step()
        except _Over:
            pass

    def _step(self) -> None:
        script = self._script
        what = script.choose(16)
        peer = b"p%d" % script.choose(len(self._ends))
        if what < 10:
            self._deliver(peer, upwards=what < 6)
        elif what < 12:
            self._up[peer].extend(self._ends[peer].act(script.choose, self._now))
        elif what < 14:
            self._deal()
        elif what == 14:
            self._pass_time()
        elif not script.choose(16):
            self._carry_out(self._broker.gone(peer, self._now))
            if self._talk.is_stream:
                self._join_again(peer)

    # Messages

    def _deliver(self, peer: bytes, upwards: bool) -> None:
        wire = (self._up if upwards else self._down)[peer]
        for frames in self._on_its_way(wire):
            COUNTED["messages"] += 1
            COUNTED["frames"] += len(frames)
            try:
                if upwards:
                    received = self._broker.hear(peer, frames, self._now, self._now)
                    self._carry_out(received)
                else:
                    end = self._ends[peer]
                    self._up[peer].extend(end.receive(frames, self._now))
                    self._listen_to(end)
            except RemoteProtocolError as error:
                COUNTED["refused"] += 1
                _check_words(str(error))

    def _on_its_way(self, wire: deque[Sequence[bytes]]) -> list[Sequence[bytes]]:
        """What becomes of the next message."""
        script = self._script
        harm = script.byte()
        if harm < self._honest:
            return [wire.popleft()] if wire else []
        if not wire or harm % 8 == 0:
            return [[script.piece() for _ in range(script.choose(8))]]
        frames = wire.popleft()
        match harm % 8:
            case 1:
                return []
            case 2:
                return [frames] * 2
            case 3 if wire:
                return [wire.popleft(), frames]
            case 4:
                # Somebody else gets it.
                self._down[b"p%d" % script.choose(len(self._ends))].append(frames)
                return []
        return [self._garbled(list(frames))]

    def _garbled(self, frames: list[bytes]) -> list[bytes]:
        script = self._script
        for _ in range(1 + script.choose(2)):
            at = script.choose(len(frames) + 1)
            match script.choose(8):
                case 0:
                    del frames[at : at + 1]
                case 1:
                    frames[at:at] = frames[at : at + 1] * (1 + script.choose(70))
                case 2:
                    frames.insert(at, script.piece())
                case 3:
                    frames[at : at + 1] = [script.piece()]
                case 4:
                    frames[at : at + 1] = [one[: script.byte()] for one in frames[at : at + 1]]
                case 5:
                    frames[at : at + 1] = [self._flipped(one) for one in frames[at : at + 1]]
                case 6:
                    frames[at : at + 2] = frames[at : at + 2][::-1]
                case 7:
                    # Of a stream, this is another way to cut it; else one frame becomes two.
                    cut = script.byte()
                    frames[at : at + 1] = [
                        part for one in frames[at : at + 1] for part in (one[:cut], one[cut:])
                    ]
        return frames

    def _flipped(self, frame: bytes) -> bytes:
        changed = bytearray(frame)
        if changed:
            changed[self._script.byte() % len(changed)] ^= 1 << self._script.choose(8)
        return bytes(changed)

    # Effects

    def _carry_out(self, effects: Sequence[object]) -> None:
        todo = deque(effects)
        while todo:
            effect = todo.popleft()
            match effect:
                case Send():
                    check(all(type(one) is bytes for one in effect.frames), effect)
                    if effect.peer in self._down:
                        self._down[effect.peer].append(effect.frames)
                    else:
                        todo.extend(self._broker.gone(effect.peer, self._now))
                case words.End():
                    self._end(effect.claim)
                case Asked():
                    self._asked.append(effect.request)
                case Close() if self._talk.is_stream:
                    # ZeroMQ has no connections that could be named.
                    todo.extend(self._broker.gone(effect.peer, self._now))
                    self._join_again(effect.peer)
                case Say():
                    _check_words(effect.words)

    def _end(self, claim: str) -> None:
        check(claim in self._dealt, f"{claim} ends, and is not dealt")
        self._dealt.discard(claim)

    def _deal(self) -> None:
        service, need = self._talk.asks(self._serial + 1)
        worker = self._broker.pick(service, self._now, need)
        if worker is None:
            return
        self._serial += 1
        request = self._asked.popleft() if self._asked else None
        payload = self._talk.payload(self._serial, self._script.piece())
        claim = f"h-1-{self._serial:018x}"
        work = Work(claim, "doc", 0, payload, service, request, need=need)
        if request is None or request.answered:
            self._dealt.add(claim)
        self._carry_out([self._broker.deal(worker, work, self._now)])

    def _pass_time(self) -> None:
        self._now += _TICKS[self._script.choose(len(_TICKS))]
        at = self._broker.next_tick_at()
        if at is not None and at <= self._now:
            self._carry_out(self._broker.tick(self._now, self._now))
        for peer, end in self._ends.items():
            self._up[peer].extend(end.tick(self._now))
            self._listen_to(end)

    def _listen_to(self, end: End) -> None:
        for said in end.words:
            _check_words(said)
        end.words.clear()

    def _join_again(self, peer: bytes) -> None:
        self._up[peer].clear()
        self._down[peer].clear()
        self._carry_out(self._broker.joined(peer, self._now))
        self._up[peer].extend(self._ends[peer].start(self._now))


def _check_words(words: str) -> None:
    """A frame may have megabytes: what is said of it has not. (What could steer a terminal is left
    out by whoever writes to one.)"""
    check(len(words) < _MOST_WORDS, words[:_MOST_WORDS])


def play(data: bytes) -> None:
    """One script: its first byte says which protocol it is for."""
    script = _Script(data)
    names = list(TALKS)
    try:
        street = _Street(TALKS[names[script.choose(len(names))]], script)
    except _Over:
        return
    street.play()


def scripts(count: int, seed: int, length: int = 2000) -> list[bytes]:
    """Some of which each is played by another protocol than the one before."""
    draw = random.Random(seed)
    return [bytes([number % len(TALKS)]) + draw.randbytes(length) for number in range(count)]


def counted() -> str:
    """What was played."""
    return (
        f"{COUNTED['frames']:,} frames in {COUNTED['messages']:,} messages, "
        f"{COUNTED['refused']:,} of them refused"
    )


FRAMES = {"frames": Target(play, tuple(scripts(30, 0)), counted)}
