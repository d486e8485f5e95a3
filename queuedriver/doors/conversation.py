"""A conversation: one session over one transport, as every loop of the doors has it.

What comes is heard, what the session wants said is said, and both are told the time; all that is
neither frames nor words is left to the loop, in its order. A loop is then no more than

    talk = Conversation(session, transport, act, say)
    while …:
        sleep([talk], fds, until)
        talk.turn(time.monotonic(), time.time())

where `act` is called with each effect that is not `Send`, `Close` or `Say`: a broker ends claims, a
worker processes, a client counts. What a loop wants said out of turn goes through `carry_out`. A
worker or a client, which has one peer, may open another transport at any moment, in `act` too: the
rest of what the old one brought is forgotten with it.

A broker that is about to deal lets what its session says wait for that (`hold`, `send`, `flush`):
an answer and the next document wake their worker once.
"""

import functools
import math
import select
import time
from collections.abc import Callable, Iterable, Sequence

import msgspec

from queuedriver.doors.exchange import HEARS_OUT
from queuedriver.doors.transports.base import Arrival, Joined, Message, Refused, Transport
from queuedriver.doors.words import Close, Effect, Effects, Say, Send, Session, soonest
from queuedriver.errors import RemoteProtocolError

# Seconds after which it is said that nobody is there; before that it may be about to come.
PATIENCE = 4.0
# Longest sleep in seconds.
_LONGEST = 60.0


class Conversation(msgspec.Struct, eq=False):
    """What one session hears and says."""

    session: Session
    transport: Transport
    _act: Callable[[Effect], None]
    _say: Callable[[str], None]
    _level: int = 0
    # After so many seconds without a turn peers are heard out before the session judges them.
    deaf_after: float = math.inf
    fds: list[int] = []
    # What waits for `flush`, by peer; None: nothing has to wait.
    _held: dict[bytes, list[tuple[bytes, ...]]] | None = None
    # Since when nobody has been at the other end; why, and what was said of it until now.
    _missed_at: float | None = None
    _missed: str = ""
    _complaints: set[str] = set()
    # The time of day of the last turn, and before when the session is not told the time.
    _turned_at: float = math.inf
    _tick_from: float = 0.0

    def __post_init__(self) -> None:
        self.fds = self.transport.fds()

    def turn(self, now: float, wall: float) -> None:
        """Hear what has come, and do what time has brought."""
        session, transport = self.session, self.transport
        if (passed := wall - self._turned_at) > self.deaf_after:
            self._tick_from = now + HEARS_OUT
            session.was_deaf(passed, now)
        self._turned_at = wall
        for arrival in transport.arrivals():
            try:
                if type(arrival) is Message:
                    if self._complaints and not transport.missing():
                        self._complaints.clear()
                    effects = session.hear(arrival.peer, arrival.frames, now, wall)
                else:
                    effects = self._notice(arrival, now)
                self.carry_out(effects, now)
            except RemoteProtocolError as error:
                self._refuse(arrival.peer, error)
            if self.transport is not transport:
                return
        if (at := session.next_tick_at()) is not None and at <= now >= self._tick_from:
            self.carry_out(session.tick(now, wall), now)
        if (at := self.transport.next_tick_at()) is not None and at <= now:
            self.transport.tick(now)
        if (missing := self.transport.missing()) or self._missed_at is not None:
            self._miss(missing, now)

    def next_turn_at(self) -> float | None:
        """Return when there is something to do, whatever comes; None: not before something does."""
        complain_at = None
        if (missing := self.transport.missing()) and missing not in self._complaints:
            complain_at = 0.0 if self._missed_at is None else self._missed_at + PATIENCE
        tick_at = self.session.next_tick_at()
        if tick_at is not None:
            tick_at = max(tick_at, self._tick_from)
        return soonest(tick_at, self.transport.next_tick_at(), complain_at)

    def carry_out(self, effects: Effects, now: float) -> None:
        """Send and say what is to be sent and said; hand the rest over."""
        transport = self.transport
        for effect in effects:
            if type(effect) is Send:
                if self._held is not None:
                    self._held.setdefault(effect.peer, []).append(effect.frames)
                elif not transport.send(effect.peer, effect.frames):
                    self.carry_out(self.session.gone(effect.peer, now), now)
            elif type(effect) is Say:
                self.say(effect.level, effect.words)
            elif type(effect) is Close:
                self._send_held(effect.peer)
                transport.drop(effect.peer)
            else:
                self._act(effect)
            if self.transport is not transport:
                # What else was to be done was for a connection that is no more.
                return

    def hold(self) -> None:
        """Let what is to be sent from now on wait for `flush`."""
        self._held = self._held or {}

    def send(self, peer: bytes, frames: tuple[bytes, ...]) -> bool:
        """Send to a peer at once, behind what is held for it; return whether it is there."""
        if self._held:
            if self.session.is_stream:
                for held in reversed(self._held.pop(peer, ())):
                    frames = held + frames
            elif not self._send_held(peer):
                return False
        return self.transport.send(peer, frames)

    def flush(self, now: float) -> None:
        """Send what is held, and hold no more."""
        held, self._held = self._held, None
        if held:
            for peer, messages in held.items():
                self.carry_out([Send(peer, frames) for frames in messages], now)

    def _send_held(self, peer: bytes) -> bool:
        for frames in self._held.pop(peer, ()) if self._held else ():
            if not self.transport.send(peer, frames):
                return False
        return True

    def say(self, level: int, words: str) -> None:
        """Tell whoever wants to know so much."""
        if level <= self._level:
            self._say(words)

    def complain(self, why: str) -> None:
        """Say what is wrong with the other end: once, until it is heard of again."""
        if not self._complaints:
            self._complaints |= {why, self.transport.missing()}
            self._say(why)

    def reopen(self, transport: Transport) -> None:
        """Go on over another connection."""
        self.transport.close()
        self.transport = transport
        self.fds = transport.fds()

    def close(self) -> None:
        """End all connections; what was sent has a moment to leave."""
        self.transport.close()

    def _notice(self, arrival: Arrival, now: float) -> Effects:
        peer = arrival.peer
        if type(arrival) is Joined:
            return self.session.joined(peer, now)
        if type(arrival) is Refused:
            return [Say(0, arrival.why)]
        return self.session.gone(peer, now)

    def _refuse(self, peer: bytes, error: RemoteProtocolError) -> None:
        if peer:
            # Whoever sends nonsense may send much of it.
            self.say(1, f"{peer!r}: {error}")
        else:
            self.say(0, f"the broker sent what it may not: {error}")

    def _miss(self, missing: str, now: float) -> None:
        """Say why nobody is at the other end, when that has been so for a while: each reason once,
        until somebody is."""
        if not missing:
            self._missed_at = None
        elif self._missed_at is None or (self._complaints and missing != self._missed):
            self._missed_at = now
        elif now - self._missed_at >= PATIENCE and missing not in self._complaints:
            self._complaints.add(missing)
            self._say(f"{missing} (trying on)")
        self._missed = missing


def sleep(
    conversations: Sequence[Conversation],
    fds: Iterable[int] = (),
    until: float | None = None,
) -> list[int]:
    """Wait until there is something to hear or to do, one of `fds` is readable, or it is `until`;
    return which descriptors are readable."""
    looked_at, pending = [*fds], False
    for one in conversations:
        until = soonest(until, one.next_turn_at())
        pending = pending or one.transport.pending()
        looked_at += one.fds
    now = time.monotonic()
    seconds = _LONGEST if until is None else min(max(0.0, until - now), _LONGEST)
    # Rounded up: to wake before it is due is to turn in vain.
    poll = _poll_over(tuple(looked_at))
    return [fd for fd, _ in poll.poll(0 if pending else seconds * 1000 + 1)]


@functools.lru_cache
def _poll_over(fds: tuple[int, ...]) -> select.poll:
    """Return a poll over these numbers, whatever they are of by now."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return poll
