"""The clients of one broker: what each has in hand, and whose turn it is. Pure.

The next task goes to whoever was given one longest ago, of those with room for it. Each task is a
process of its own, so whatever a lost client had in hand is lost with it.
"""

import heapq

import msgspec

from queuedriver.doors.words import Lost

# A heap may hold so many entries for each client, most of them out of date, before it is cleaned.
_STALE = 4


class _Client(msgspec.Struct):
    name: bytes
    # Processors, and how many of them are taken.
    slots: int
    taken: int = 0
    # Its place among the others: the lowest is next.
    turn: int = 0
    # What each claim takes, and until when it has time.
    claims: dict[str, tuple[int, float | None]] = msgspec.field(default_factory=dict)

    @property
    def free(self) -> int:
        return self.slots - self.taken


class Roster:
    """The clients of one broker. `now` is the caller's monotonic clock, in seconds."""

    def __init__(self, max_clients: int = 10_000) -> None:
        self._max_clients = max_clients
        self._clients: dict[bytes, _Client] = {}
        # Those who may be picked: (turn, name); entries out of date are dropped when they come up.
        self._queue: list[tuple[int, bytes]] = []
        # When some claim's time may be over: (instant, name).
        self._alarms: list[tuple[float, bytes]] = []
        self._most_alarms = _STALE
        self._turn = 0

    def __len__(self) -> int:
        return len(self._clients)

    def names(self) -> tuple[bytes, ...]:
        """Return every client, in the order in which they would be picked."""
        found = sorted(self._clients.values(), key=lambda one: one.turn)
        return tuple(one.name for one in found)

    def free(self, client: bytes) -> int:
        """Return its free processors; 0 for an unknown client, below 0 when some were withdrawn."""
        found = self._clients.get(client)
        return found.free if found else 0

    def claims(self, client: bytes) -> tuple[str, ...]:
        """Return what it has in hand."""
        found = self._clients.get(client)
        return tuple(found.claims) if found else ()

    # A client's life

    def join(self, client: bytes, slots: int) -> bool:
        """List a client; return whether there was room for it."""
        if client in self._clients:
            return self.limit(client, slots)
        if len(self._clients) >= self._max_clients:
            return False
        found = self._clients[client] = _Client(client, slots)
        self._to_the_end(found)
        return True

    def limit(self, client: bytes, slots: int) -> bool:
        """Set how many processors it has, whatever it has in hand; return whether it is known."""
        found = self._clients.get(client)
        if found is None:
            return False
        found.slots = slots
        self._enqueue(found)
        return True

    def leave(self, client: bytes, why: str) -> Lost | None:
        """Strike a client off; return what is lost with it, or None of an unknown one."""
        found = self._clients.pop(client, None)
        return None if found is None else Lost(client, tuple(found.claims), why)

    # Work

    def pick(self, need: int = 1) -> bytes | None:
        """Return whose turn it is, of those with so many processors free. It stays first until
        `assign`."""
        small: list[tuple[int, bytes]] = []
        picked: bytes | None = None
        while self._queue:
            found = self._current(self._queue[0])
            if found is None or found.free <= 0:
                heapq.heappop(self._queue)
            elif found.free >= need:
                picked = found.name
                break
            else:
                # Free, but not for this: it keeps its place.
                small.append(heapq.heappop(self._queue))
        for entry in small:
            heapq.heappush(self._queue, entry)
        return picked

    def assign(self, client: bytes, claim: str, need: int, deadline: float | None) -> None:
        """Give it a claim; it is behind all others then."""
        found = self._clients[client]
        found.taken += need
        found.claims[claim] = (need, deadline)
        if deadline is not None:
            heapq.heappush(self._alarms, (deadline, client))
            if len(self._alarms) > self._most_alarms:
                self._alarms = [
                    (until, one.name)
                    for one in self._clients.values()
                    for _, until in one.claims.values()
                    if until is not None
                ]
                heapq.heapify(self._alarms)
                self._most_alarms = 2 * len(self._alarms) + _STALE
        self._to_the_end(found)

    def settle(self, client: bytes, claim: str) -> bool:
        """Take a claim out of its hands; return whether it had it."""
        found = self._clients.get(client)
        if found is None or claim not in found.claims:
            return False
        need, _ = found.claims.pop(claim)
        found.taken -= need
        self._enqueue(found)
        return True

    # Time

    def expire(self, now: float) -> tuple[Lost, ...]:
        """Strike off, and return, those that have had a claim for too long."""
        lost: list[Lost] = []
        while self._alarms and self._alarms[0][0] <= now:
            _, name = heapq.heappop(self._alarms)
            found = self._clients.get(name)
            limits = () if found is None else (until for _, until in found.claims.values())
            late = any(until is not None and until <= now for until in limits)
            if late and (gone := self.leave(name, "overdue")):
                lost.append(gone)
        return tuple(lost)

    def next_tick_at(self) -> float | None:
        """Return when `expire` is worth calling; None: not before something is given."""
        return self._alarms[0][0] if self._alarms else None

    # Order

    def _to_the_end(self, client: _Client) -> None:
        self._turn += 1
        client.turn = self._turn
        self._enqueue(client)

    def _enqueue(self, client: _Client) -> None:
        if client.free > 0:
            if len(self._queue) > _STALE * (len(self._clients) + 1):
                self._queue[:] = sorted({one for one in self._queue if self._current(one)})
            heapq.heappush(self._queue, (client.turn, client.name))

    def _current(self, entry: tuple[int, bytes]) -> _Client | None:
        found = self._clients.get(entry[1])
        return found if found is not None and found.turn == entry[0] else None
