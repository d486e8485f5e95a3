"""Who is ready, busy or silent, and whose turn it is. Pure.

A worker has slots, and claims in hand; the two are counted apart, because a client's request that
nobody waits for takes a slot without a claim. Whose turn it is follows the order:

    ASSIGNED   who was given work longest ago            (roundrobin, fuq)
    HEARD      who has been heard of longest ago         (pingpong)
    LISTED     who offered itself first; once per offer  (scale0)

A busy worker may be exempt from silence: a long document must not look like a death. What a lost
worker had in hand is said once, by `Lost`, whatever the reason; of several, any may have ended it,
and none is known to have. So what has done so may be dealt alone: to a worker with nothing in hand,
and nothing is dealt to that one until it has settled.
"""

import heapq
from collections import Counter
from collections.abc import Iterable
from enum import Enum

import msgspec

from queuedriver.doors.words import Lost

# A queue may hold so many entries for each worker, most of them out of date, before it is cleaned.
_STALE = 4


class Order(Enum):
    """Whose turn it is."""

    ASSIGNED = "assigned"
    HEARD = "heard"
    LISTED = "listed"


class Policy(msgspec.Struct, frozen=True):
    """What one protocol wants of its roster."""

    order: Order
    # Seconds without a word after which a worker is lost; None: never by silence.
    silent_after: float | None = None
    # Whether that holds while it has work, too.
    busy_silent: bool = False
    # Whether all that a worker has in hand is in one process, which any of it may end.
    one_process: bool = True
    max_workers: int = 10_000


class _Worker(msgspec.Struct):
    name: bytes
    slots: int
    services: frozenset[str]
    silent_after: float | None
    heard_at: float
    # Its place among the others: the lowest is next.
    turn: int = 0
    # Slots taken, with a claim or without.
    taken: int = 0
    # What each claim takes, and until when it has time.
    claims: dict[str, tuple[int, float | None]] = msgspec.field(default_factory=dict)
    # The claim that it was given alone; nothing goes behind it.
    alone: str = ""
    # LISTED: how many times it offered itself and was not given work since.
    turns: int = 0
    # When it is next looked whether it is silent.
    alarm_at: float = 0.0

    @property
    def free(self) -> int:
        return self.slots - self.taken


class Roster:
    """The workers of one broker. `now` is the caller's monotonic clock, in seconds."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._workers: dict[bytes, _Worker] = {}
        # Those who may be picked, by service: (turn, name); entries out of date are dropped when
        # they come up.
        self._queues: dict[str, list[tuple[int, bytes]]] = {}
        # How many workers offer a service: one that nobody does has no queue.
        self._offered: Counter[str] = Counter()
        # Instants at which somebody may be silent or overdue: (instant, name). When there are so
        # many, those of workers that left and of claims that ended are dropped.
        self._alarms: list[tuple[float, bytes]] = []
        self._most_alarms = _STALE
        self._turn = 0
        # Services for which something waits that goes alone.
        self._sparing: set[str] = set()

    def __len__(self) -> int:
        return len(self._workers)

    def __contains__(self, worker: bytes) -> bool:
        return worker in self._workers

    def names(self) -> tuple[bytes, ...]:
        """Every worker, in the order in which they would be picked."""
        found = sorted(self._workers.values(), key=lambda one: one.turn)
        return tuple(one.name for one in found)

    def free(self, worker: bytes) -> int:
        """Its free slots; 0 for one nobody knows, and below for one whose slots were taken away."""
        found = self._workers.get(worker)
        return found.free if found else 0

    def claims(self, worker: bytes) -> tuple[str, ...]:
        """What it has in hand."""
        found = self._workers.get(worker)
        return tuple(found.claims) if found else ()

    def turns(self, worker: bytes) -> int:
        """LISTED: how many times it offered itself and was not given work since."""
        found = self._workers.get(worker)
        return found.turns if found else 0

    def busy(self, worker: bytes) -> bool:
        """Whether it has work in hand."""
        found = self._workers.get(worker)
        return bool(found and found.taken)

    def who_is_busy(self) -> tuple[bytes, ...]:
        """Those with work in hand, for whoever probes them."""
        return tuple(one.name for one in self._workers.values() if one.taken)

    # A worker's life

    def join(
        self,
        worker: bytes,
        now: float,
        slots: int,
        services: Iterable[str] = ("",),
        silent_after: float | None = None,
    ) -> bool:
        """List it; again: with other slots, and what it has in hand stays. False: no room."""
        found = self._workers.get(worker)
        if found is None:
            if len(self._workers) >= self._policy.max_workers:
                return False
            wait = silent_after or self._policy.silent_after
            found = _Worker(worker, slots, frozenset(services), wait, now)
            self._workers[worker] = found
            self._offered.update(found.services)
            self._to_the_end(found)
            self._watch(found, now)
        else:
            found.slots = slots
            if (wanted := frozenset(services)) != found.services:
                self._offered.update(wanted)
                self._unlist_services(found.services)
                found.services = wanted
            if self._policy.order is not Order.HEARD:
                # Being heard of, it goes to the end in any case.
                self._enqueue(found)
            if silent_after and silent_after != found.silent_after:
                found.silent_after, found.heard_at = silent_after, now
                self._watch(found, now)
        self.heard(worker, now)
        return True

    def offer(self, worker: bytes, now: float, turns: int = 1) -> bool:
        """It offers itself for so many requests more, behind all who did before. LISTED only."""
        found = self._workers.get(worker)
        if found is None:
            return False
        if not found.turns:
            self._to_the_end(found)
        found.turns = min(found.turns + turns, found.slots)
        self._enqueue(found)
        return self.heard(worker, now)

    def withdraw(self, worker: bytes) -> bool:
        """It takes its offers back; what is in hand stays. LISTED only. False: nobody knows it."""
        found = self._workers.get(worker)
        if found is None:
            return False
        found.turns = 0
        return True

    def limit(self, worker: bytes, slots: int) -> bool:
        """So many slots from now on; what is in hand stays. False: nobody knows it."""
        found = self._workers.get(worker)
        if found is None:
            return False
        found.slots = slots
        self._enqueue(found)
        return True

    def heard(self, worker: bytes, now: float) -> bool:
        """It showed life. False: nobody knows it."""
        found = self._workers.get(worker)
        if found is None:
            return False
        found.heard_at = now
        if self._policy.order is Order.HEARD:
            self._to_the_end(found)
        return True

    def leave(self, worker: bytes, why: str) -> Lost | None:
        """It is gone; what it had in hand is lost. None: nobody knows it."""
        found = self._workers.pop(worker, None)
        if found is None:
            return None
        self._unlist_services(found.services)
        needs = [need for need, _ in found.claims.values()]
        # A request that nobody waits for is in hand as well, without a claim.
        several = len(needs) > 1 or found.taken > sum(needs)
        doubted = bool(needs) and several and self._policy.one_process
        return Lost(worker, tuple(found.claims), why, doubted)

    # Work

    def spare(self, service: str, wanted: bool) -> None:
        """From now on one worker is kept for what goes alone: that with the least in hand, which
        soon has nothing. Or no longer."""
        if wanted:
            self._sparing.add(service)
        else:
            self._sparing.discard(service)

    def pick(self, service: str = "", need: int = 1, alone: bool = False) -> bytes | None:
        """Whose turn it is, of those with so many free slots; `alone`: and with no claim in hand.
        It stays first until `assign`."""
        queue = self._queues.get(service)
        if not queue:
            return None
        spared = self._spared() if self._sparing and not alone else frozenset()
        small: list[tuple[int, bytes]] = []
        picked: bytes | None = None
        while queue:
            turn, name = queue[0]
            found = self._workers.get(name)
            if found is None or found.turn != turn or not self._may(found, service):
                heapq.heappop(queue)
                continue
            if found.free >= need and name not in spared and not (alone and found.claims):
                picked = name
                break
            # Free, but not for this: it keeps its place.
            small.append(heapq.heappop(queue))
        for entry in small:
            heapq.heappush(queue, entry)
        return picked

    def assign(
        self,
        worker: bytes,
        claim: str | None,
        now: float,
        need: int = 1,
        deadline: float | None = None,
        alone: bool = False,
    ) -> None:
        """Give it a claim, or (None) only take its slots."""
        found = self._workers[worker]
        if alone and claim is not None:
            found.alone = claim
        found.taken += need
        found.turns = max(0, found.turns - 1)
        if claim is not None:
            found.claims[claim] = (need, deadline)
            if deadline is not None:
                self._alarm(deadline, worker)
        if self._policy.order is not Order.HEARD:
            self._to_the_end(found)

    def settle(self, worker: bytes, claim: str, free_slot: bool = True) -> bool:
        """It has ended a claim. False: it had not been given that, or not any more.

        Without `free_slot` the slot stays taken until `increment`.
        """
        found = self._workers.get(worker)
        if found is None or claim not in found.claims:
            return False
        need, _ = found.claims.pop(claim)
        if found.alone == claim:
            found.alone = ""
            self._enqueue(found)
        if free_slot:
            self._give_back(found, need)
        return True

    def increment(self, worker: bytes) -> bool:
        """One slot back, never above the limit. False: nobody knows it."""
        found = self._workers.get(worker)
        if found is None:
            return False
        self._give_back(found, 1)
        return True

    # Time

    def expire(self, now: float) -> tuple[Lost, ...]:
        """Drop who has been silent for too long, or has had a document for too long."""
        lost: list[Lost] = []
        while self._alarms and self._alarms[0][0] <= now:
            at, name = heapq.heappop(self._alarms)
            found = self._workers.get(name)
            if found is None:
                continue
            if (why := self._reason(found, now)) and (gone := self.leave(name, why)):
                lost.append(gone)
            elif at == found.alarm_at:
                self._watch(found, now)
        return tuple(lost)

    def next_tick_at(self) -> float | None:
        """When `expire` is worth calling."""
        return self._alarms[0][0] if self._alarms else None

    def _reason(self, worker: _Worker, now: float) -> str:
        if any(limit is not None and limit <= now for _, limit in worker.claims.values()):
            return "overdue"
        at = self._silent_at(worker)
        return "silent" if at is not None and at <= now else ""

    def _silent_at(self, worker: _Worker) -> float | None:
        if worker.silent_after is None or (worker.taken and not self._policy.busy_silent):
            return None
        return worker.heard_at + worker.silent_after

    def _watch(self, worker: _Worker, now: float) -> None:
        """Each worker has one alarm for its silence, moved on when it comes: to set one at every
        word would cost more than to look. A busy one is looked at again as much later."""
        if worker.silent_after is not None:
            worker.alarm_at = self._silent_at(worker) or now + worker.silent_after
            self._alarm(worker.alarm_at, worker.name)

    def _alarm(self, at: float, name: bytes) -> None:
        heapq.heappush(self._alarms, (at, name))
        if len(self._alarms) > self._most_alarms:
            self._alarms = [
                (at, worker.name) for worker in self._workers.values() for at in _alarms(worker)
            ]
            heapq.heapify(self._alarms)
            self._most_alarms = 2 * len(self._alarms) + _STALE

    # Order

    def _to_the_end(self, worker: _Worker) -> None:
        self._turn += 1
        worker.turn = self._turn
        self._enqueue(worker)

    def _offers(self, worker: _Worker) -> bool:
        return worker.turns > 0 if self._policy.order is Order.LISTED else True

    def _may(self, worker: _Worker, service: str) -> bool:
        listed = self._offers(worker) and not worker.alone
        return listed and worker.free > 0 and service in worker.services

    def _spared(self) -> frozenset[bytes]:
        """Who is kept for what goes alone."""
        found = []
        for service in self._sparing:
            able = (
                one
                for one in self._workers.values()
                if service in one.services
                and self._offers(one)
                and one.slots > 0
                and not one.alone
                # One whose every slot was lost would be kept for ever.
                and (one.claims or one.free > 0)
            )
            first = min(able, key=lambda one: (len(one.claims), one.turn), default=None)
            if first is not None:
                found.append(first.name)
        return frozenset(found)

    def _enqueue(self, worker: _Worker) -> None:
        if worker.free <= 0 or (self._policy.order is Order.LISTED and not worker.turns):
            return
        for service in worker.services:
            queue = self._queues.setdefault(service, [])
            if len(queue) > _STALE * self._offered[service] + _STALE:
                queue[:] = sorted({entry for entry in queue if self._current(entry)})
            heapq.heappush(queue, (worker.turn, worker.name))

    def _unlist_services(self, services: Iterable[str]) -> None:
        """One worker less offers these."""
        for service in services:
            self._offered[service] -= 1
            if not self._offered[service]:
                del self._offered[service]
                self._queues.pop(service, None)

    def _current(self, entry: tuple[int, bytes]) -> bool:
        found = self._workers.get(entry[1])
        return found is not None and found.turn == entry[0]

    def _give_back(self, worker: _Worker, need: int) -> None:
        was_free = worker.free
        worker.taken = max(0, worker.taken - need)
        if was_free <= 0:
            self._enqueue(worker)


def _alarms(worker: _Worker) -> list[float]:
    """When it is to be looked at, whatever happens meanwhile."""
    found = [limit for _, limit in worker.claims.values() if limit is not None]
    if worker.silent_after is not None:
        found.append(worker.alarm_at)
    return found
