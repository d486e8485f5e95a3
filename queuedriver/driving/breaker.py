"""The circuit breaker: a stage whose last documents all failed for one cause stops itself.

    charged    a document was charged: the streak of one cause grows, or begins anew
    worked     a document was done: the streak is over, and so is the stop
    look       what the other drivers have found out, at each look of the loop
    claim      one document, now and then, while the stage is stopped: does it work again?

That a stage is stopped is one file, `.queuedriver/breaker.json`, made without replacing: the first
word stands, whoever removes it lets all go on, and no restart forgets it. Each driver says in its
registration how many of its documents failed in a row, and for which cause: together they stop
after as many failures as one alone would. Who is not alone makes sure first: it claims nothing
until the others had time to tell of a success.
"""

import contextlib
import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from queuedriver.claims.handoff import Claim
from queuedriver.claims.input_queue import InputQueue
from queuedriver.claims.liveness import Heartbeat
from queuedriver.claims.outcomes import cause_key, first_line, is_own_fault
from queuedriver.driving.closing import Trip, read_trip
from queuedriver.format import names
from queuedriver.format.records import Failure, Registration, encodable

_MOST_MESSAGE = 500
# So many of its own must have failed in a row before a driver asks the others; and twice as many
# each time that these turn out to be successful: where some always fail, all would be held up.
_FEWEST = 3
# A document is tried so many seconds after the stop, then after twice as many, at the most so many;
# by the stage as a whole, not by each of its drivers.
FIRST_TRIAL = 30.0
LONGEST_PAUSE = 600.0
_MOST_DOUBLINGS = 10
# So many times as long as drivers take to tell their news, they are given to tell of a success; and
# once more, as who began to make sure a moment before us may find one, and be late: on a busy
# machine.
_TIME_TO_TELL = 1.5
_LOOKS = 2


def in_a_row(own: Registration, peers: Iterable[Registration]) -> int:
    """Return how many documents of the stage failed in a row for the cause of our own streak. Those
    of other drivers do not count while one of them fails for another cause."""
    if any(one.streak and one.streak_of != own.streak_of for one in peers):
        return own.streak
    return own.streak + sum(one.streak for one in peers)


def has_worked(before: Mapping[str, Registration], peers: Iterable[Registration]) -> bool:
    """Tell whether a peer has done documents since it registered like that, or has found that
    another peer had: then its streak is over. Lives are told by their ids and salts. Documents of
    which it had not told yet count, too: then the stage is suspected once more, which costs less
    than to stop one that works."""
    for one in peers:
        was = before.get(_life(one))
        if was is None:
            # Who came meanwhile may have been successful before.
            continue
        if one.counters.documents > was.counters.documents or (was.streak and not one.streak):
            return True
    return False


def _life(one: Registration) -> str:
    return names.life_name(one.id, one.salt)


def pause_after(trials: int, drivers: int) -> float:
    """Return how long one of so many drivers waits for its next trial, in seconds."""
    return min(FIRST_TRIAL * 2.0 ** min(trials, _MOST_DOUBLINGS), LONGEST_PAUSE) * drivers


class Breaker:
    """The breaker of the stage that a driver, or a broker, works for. Instants are of its clock."""

    def __init__(
        self,
        queues: Sequence[InputQueue],
        after: int,
        clock: Callable[[], float],
        look_soon: Callable[[], None],
    ) -> None:
        # Why nothing is claimed but for trials; None while all is well.
        self.trip: Trip | None = None
        # Of which queue that is said, which people are to resume.
        self.path = ""
        # Those who say to the other drivers how many documents failed in a row, and of what.
        self.beats: Sequence[Heartbeat] = ()
        # When to try a document.
        self.trial_at = 0.0
        self._trials = 0
        self._queues = queues
        self._after = after
        self._fewest = _FEWEST
        self._clock = clock
        self._look_soon = look_soon
        # The latest failure, and where.
        self._failed: tuple[InputQueue, Failure] | None = None
        # When we look whether the others have succeeded meanwhile, how often we have looked, and
        # what they said before.
        self._sure_at: float | None = None
        self._looks = 0
        self._before: dict[str, Registration] = {}
        for queue in queues:
            queue.charged = self.charged

    @property
    def holds(self) -> bool:
        """Return whether nothing is claimed while we make sure."""
        return self._sure_at is not None

    @property
    def stops(self) -> bool:
        """Return whether nothing is to be claimed."""
        return self.trip is not None or self.holds

    @property
    def fails(self) -> bool:
        """Return whether our latest document failed, as far as was noted: what is done after it is
        to be noted at once, for others count our failures."""
        return self._own.streak > 0

    # What became of documents

    def worked(self) -> None:
        """Note that documents were done."""
        if self._own.streak:
            self._say()
        if self.trip is not None:
            for queue in self._queues:
                if queue.private.remove(names.BREAKER):
                    queue.journal.note("untripped", message="a document was done again")
        if self.stops:
            self._go_on()

    def charged(self, queue: InputQueue, failure: Failure) -> None:
        """Note that a document was charged for a failure."""
        if not self._after or self.trip is not None or is_own_fault(failure):
            return
        for one in self._queues:
            one.note_handed_over()
        self._failed = queue, failure
        own, key = self._own, encodable(cause_key(failure))
        self._say(key, own.streak + 1 if key == own.streak_of else 1)
        drivers = len(self._drivers(anew=True))
        enough = max(self._fewest, self._after / drivers)
        if self.holds or own.streak < min(enough, self._after):
            return
        if drivers > 1:
            self._tell()
        peers = self._peers()
        if in_a_row(self._own, peers) >= self._after:
            self._before = {_life(one): one for one in peers}
            # Who is alone has nobody to wait for.
            self._looks = 0 if peers else _LOOKS - 1
            self._sure_at = self._clock() + (self._time_to_tell() if peers else 0.0)
            self._halt()

    def _time_to_tell(self) -> float:
        return _TIME_TO_TELL * max(beats.news for beats in self.beats)

    def _peers(self) -> Collection[Registration]:
        """Read what the other living drivers say of themselves."""
        found = {}
        for queue in self._queues:
            for driver in {*queue.recoverer.drivers(anew=True)} - {queue.mint.driver}:
                if (said := queue.recoverer.roster.holder(driver)) is not None:
                    found[_life(said)] = said
        return found.values()

    @property
    def _own(self) -> Registration:
        return self.beats[0].registration

    def _say(self, key: str = "", failures: int = 0) -> None:
        for beats in self.beats:
            beats.registration.streak, beats.registration.streak_of = failures, key

    def _tell(self) -> None:
        """Let the others know at once."""
        for beats in self.beats:
            # Shown with the next beat, then.
            with contextlib.suppress(OSError):
                beats.write()

    # Stop, and go on

    def look(self, now: float) -> None:
        """See whether the stage is to stop, or is stopped: by whomever, and still."""
        if self._sure_at is not None and now >= self._sure_at:
            self._looks += 1
            self._make_sure(now)
        trips = ((queue.path, read_trip(queue.private)) for queue in self._queues)
        path, found = next((one for one in trips if one[1] is not None), ("", None))
        if found is not None and self.trip is None:
            self.trip, self.path, self._sure_at = found, path, None
            self._trials = 0
            rank = sorted(self._drivers()).index(self._queues[0].mint.driver)
            self.trial_at = now + FIRST_TRIAL * (rank + 1)
            self._halt()
        elif found is None and self.trip is not None:
            # Somebody was successful, or has removed it by hand.
            self._say()
            self._tell()
            self._go_on()

    def _make_sure(self, now: float) -> None:
        """Stop the stage, unless another driver has had a success meanwhile; who has left may have
        been successful until then."""
        peers = self._peers()
        failures = in_a_row(self._own, peers)
        if has_worked(self._before, peers):
            self._say()
            # Others may be making sure, too, and claim as little as we did.
            self._tell()
            self._fewest *= 2
        elif self._before.keys() <= {_life(one) for one in peers} and failures >= self._after:
            if self._looks < _LOOKS:
                self._sure_at = now + self._time_to_tell()
            else:
                self._stop(failures)
            return
        self._go_on()

    def _stop(self, failures: int) -> None:
        """Stop the stage: for all drivers of the queue, until the file is gone."""
        if self._failed is None:
            return
        queue, failure = self._failed
        trip = Trip(
            key=self._own.streak_of[:_MOST_MESSAGE],
            cause=failure.cause,
            message=encodable(first_line(failure)[:_MOST_MESSAGE]),
            since=time.time(),
            failures=failures,
            driver=queue.mint.driver,
        )
        data, durable = msgspec.json.encode(trip), queue.durable
        try:
            queue.private.write_first(names.BREAKER, data, durable)
        except FileExistsError:
            if read_trip(queue.private) is not None:
                # Another was faster.
                return
            # It is none of ours.
            queue.private.write_aside(names.BREAKER, data, durable)
        queue.journal.note("tripped", cause=trip.cause, message=trip.words(queue.path))

    def _halt(self) -> None:
        for queue in self._queues:
            queue.stopped, queue.plain = True, False
        self._look_soon()

    def _go_on(self) -> None:
        self.trip = self._sure_at = None
        for queue in self._queues:
            queue.stopped = False
            # What was listed before is out of date.
            queue.waiting.restart()
        self._look_soon()

    # Trials

    def due(self, now: float) -> bool:
        """Tell whether it is time to try a document."""
        return self.trip is not None and now >= self.trial_at

    def tried(self, now: float) -> None:
        """Note that a document is tried; the next one comes later."""
        self._trials += 1
        self.trial_at = now + pause_after(self._trials, len(self._drivers()))

    def claim(self, now: float, queues: Iterable[InputQueue]) -> list[Claim]:
        """Claim one of all that wait in these queues, drawn at random; none where nothing waits."""
        self.tried(now)
        for queue in queues:
            items = names.items(queue.directory)
            waiting = (name for name, item in items if item.waits(time.time()))
            name = max(waiting, key=lambda _: random.uniform(0.0, 1.0), default="")
            if name and (claims := list(queue.claim([name]))):
                return claims
        return []

    def _drivers(self, *, anew: bool = False) -> set[str]:
        """Return the ids of those who share the stage, with our own."""
        return {
            driver
            for queue in self._queues
            for driver in (queue.mint.driver, *queue.recoverer.drivers(anew=anew))
        }
