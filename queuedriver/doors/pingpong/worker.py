"""Pingpong, a worker: one document at a time. Pure."""

from collections.abc import Sequence

from queuedriver.claims.outcomes import Released, Setback
from queuedriver.doors import words
from queuedriver.doors.pingpong import wire
from queuedriver.doors.table import SAME, Row, Table, ours
from queuedriver.doors.words import Effects, Leave, Process, Reconnect, Say, Send, Work
from queuedriver.errors import LocalProtocolError

CLOSED, HELLO, IDLE, WORKING, LEFT = "closed", "hello", "idle", "working", "left"

WORKER = Table(
    "pingpong: a worker",
    [
        Row(CLOSED, "connected", "", "READY", HELLO),
        ours(f"{HELLO} | {IDLE}", "connected", "", "READY", HELLO),
        ours(WORKING, "connected", "", "nothing: the result will say that we live", WORKING),
        Row(f"{HELLO} | {IDLE}", "PONG", "", "the broker lives", IDLE),
        Row(WORKING, "PONG", "", "the broker lives", WORKING),
        ours(HELLO, "document", "", "dropped: it was sent before the READY", HELLO),
        Row(IDLE, "document", "", "it is processed", WORKING),
        Row(f"{HELLO} | {IDLE}", "EXIT", "", "we leave", LEFT),
        ours(WORKING, "EXIT", "", "we leave after the result", WORKING),
        Row(WORKING, "processed", "", "the result, or ERROR; the timers start anew", IDLE),
        ours(WORKING, "processed", "leaving", "the result, or ERROR; we leave", LEFT),
        ours(WORKING, "interrupted", "", "DISCONNECT; we leave", LEFT),
        Row(f"{HELLO} | {IDLE}", "each second", "", "PING", SAME),
        Row(f"{HELLO} | {IDLE}", "N_TIMEOUTS", "", "the connection is closed and opened", CLOSED),
        ours(f"{HELLO} | {IDLE} | {WORKING}", "joined again", "", "an empty frame alone", SAME),
        ours(CLOSED, "leave", "", "we leave", LEFT),
        ours(f"{HELLO} | {IDLE}", "leave", "", "DISCONNECT; we leave", LEFT),
        ours(WORKING, "leave", "", "we leave after the result", WORKING),
    ],
)

# A worker's one peer.
_BROKER = b""


class Worker(words.WorkerSession):
    """One worker, with one document at a time."""

    def __init__(self, broker_timeout: float = 1.0, n_timeouts: int = 3) -> None:
        # So often it says PING while it waits; and so long it is patient with a silent broker.
        self._period = broker_timeout
        self._patience = n_timeouts * broker_timeout
        self._state = CLOSED
        self._claim = 0
        self._silent_at = 0.0
        self._ping_at = 0.0
        # Why we leave, once we are to; and whether the broker wants it.
        self._leaving = ""
        self._told_to = False

    def start(self, now: float, wall: float) -> Effects:
        """Say READY, unless a document is in hand."""
        self._state = WORKER.own_step(self._state, "connected")
        self._restart_timers(now)
        return [] if self._state == WORKING else [Send(_BROKER, wire.READY)]

    def joined(self, peer: bytes, now: float) -> Effects:
        """Say an empty frame alone: what was on its way may be lost, and our PINGs will tell. No
        READY: a document, or a PONG, that came before it could be taken for one that came after it,
        and each result from then on for another document's."""
        if self._state in (CLOSED, LEFT):
            return []
        self._state = WORKER.own_step(self._state, "joined again")
        return [Send(_BROKER, wire.BACK)]

    def hear(self, peer: bytes, frames: Sequence[bytes], now: float, wall: float) -> Effects:
        """Take in one message of the broker."""
        said = wire.decode(frames)
        was, event = self._state, "document" if said.event == "payload" else said.event
        self._state = WORKER.step(was, event)
        self._silent_at = now + self._patience
        if event == "EXIT":
            self._leaving, self._told_to = "the broker says EXIT", True
            return [Leave(self._leaving)] if self._state == LEFT else []
        if event != "document":
            return []
        if was == HELLO:
            # The broker counts it lost when it sees our READY; its answer to that comes first.
            return [Say(1, "a document that was sent before our READY is dropped")]
        self._claim += 1
        claim = str(self._claim)
        return [Process(Work(claim, f"document-{claim}", 0, said.data))]

    def finished(self, claim: str, results: tuple[words.Result, ...], now: float) -> Effects:
        """Say the result; anything but exactly one cannot be said."""
        if len(results) != 1:
            text = f"it has {len(results)} outputs; a worker of pingpong has exactly one"
            return self._processed(claim, wire.error(words.PERMANENT, text), now)
        return self._processed(claim, wire.payload(results[0].data), now)

    def failed(self, claim: str, how: Setback, now: float) -> Effects:
        """Say ERROR; interrupted because we leave, DISCONNECT: that is charged to nobody."""
        if isinstance(how, Released) and self._leaving:
            self._require(claim)
            self._state = WORKER.own_step(self._state, "interrupted")
            return [Send(_BROKER, wire.DISCONNECT), Leave(self._leaving)]
        return self._processed(claim, wire.error(*words.status(how)), now)

    def leave(self, now: float) -> Effects:
        """Say DISCONNECT, at once or after the result."""
        if self._leaving:
            return []
        was, self._leaving = self._state, "asked to leave"
        self._state = WORKER.own_step(was, "leave")
        if self._state != LEFT:
            return []
        goodbye: Effects = [] if was == CLOSED else [Send(_BROKER, wire.DISCONNECT)]
        return [*goodbye, Leave(self._leaving)]

    def tick(self, now: float, wall: float) -> Effects:
        """Say PING, whether or not the broker is heard of; after too much silence, reconnect."""
        if self._state not in (HELLO, IDLE):
            return []
        if now >= self._silent_at:
            self._state = WORKER.own_step(self._state, "N_TIMEOUTS")
            return [Reconnect(f"the broker has been silent for {self._patience:g} s")]
        if now >= self._ping_at:
            self._state = WORKER.own_step(self._state, "each second")
            self._ping_at = now + self._period
            return [Send(_BROKER, wire.PING)]
        return []

    def next_tick_at(self) -> float | None:
        """Return when the next PING is due, or our patience ends."""
        if self._state not in (HELLO, IDLE):
            return None
        return min(self._silent_at, self._ping_at)

    def _processed(self, claim: str, frames: tuple[bytes, ...], now: float) -> Effects:
        self._require(claim)
        when = "leaving" if self._leaving else ""
        self._state = WORKER.own_step(self._state, "processed", when)
        # While we worked we read nothing: that the broker was silent is not known.
        self._restart_timers(now)
        effects: Effects = [Send(_BROKER, frames)]
        if self._leaving:
            if not self._told_to:
                effects.append(Send(_BROKER, wire.DISCONNECT))
            effects.append(Leave(self._leaving))
        return effects

    def _require(self, claim: str) -> None:
        if self._state != WORKING or claim != str(self._claim):
            raise LocalProtocolError(f"document {claim} is not in hand")

    def _restart_timers(self, now: float) -> None:
        self._silent_at = now + self._patience
        self._ping_at = now + self._period
