"""What clients of all protocols do: a request is repeated under its id, so that a broker knows it
for the same one, until it is answered; when that has been in vain for too long, it is given up.
Pure.
"""

import msgspec

from queuedriver.doors.table import Table
from queuedriver.doors.words import Effects, Ended, Result, Send, Session

# Seconds after which what has no answer is sent again.
REPEAT_AFTER = 5.0
# States, events and conditions in the tables of clients.
NEW = "new"
_TIME_OUT, _TOO_OFTEN = "time-out", "too often"


class Awaited(msgspec.Struct):
    """A request that is under way."""

    # What was asked, as the protocol calls it.
    kind: str
    state: str
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

    def __init__(self, table: Table, timeout: float) -> None:
        self.table = table
        self._timeout = timeout
        self.under_way: dict[bytes, Awaited] = {}

    def ask(self, docid: str, payload: bytes, now: float) -> tuple[bytes, Effects]:
        """Request what is done to documents; return the id by which the request's `Ended` goes."""
        raise NotImplementedError

    def begin(self, id: bytes, kind: str, when: str, send: Send, now: float) -> Effects:
        """Send a request, and await its answer."""
        state = self.table.own_step(NEW, "ask", when)
        self.under_way[id] = one = Awaited(kind, state, send, self._timeout)
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
                one.state = self.table.own_step(one.state, _TIME_OUT, _TOO_OFTEN)
                effects += self.end(id, why="there was no answer")
            elif one.due_at <= now:
                one.state = self.table.own_step(one.state, _TIME_OUT)
                one.due_at = now + REPEAT_AFTER
                effects.append(one.send)
        return effects

    def next_tick_at(self) -> float | None:
        instants = (min(one.due_at, one.give_up_at) for one in self.under_way.values())
        return min(instants, default=None)
