"""What `status` tells of a queue: counts, drivers, what each is doing since when, rate and ETA.

Only looks: nothing is created, and a queue on a read-only file system is as readable as another.
"""

import stat
import time
from collections.abc import Iterator, Sequence

import msgspec

from queuedriver.claims.liveness import Observer, Owner, owner_of
from queuedriver.claims.picking import Listing
from queuedriver.driving.tally import resident_memory
from queuedriver.errors import ConfigError
from queuedriver.format import names
from queuedriver.format.settings import Settings
from queuedriver.operating.queue import Queue

# A word for a driver that is not alive, and why, where it said nothing itself.
_GONE = {
    "left": ("stopped", ""),
    "dead": ("dead", "its process ended by itself"),
    "rebooted": ("dead", "its host went down"),
    "lost": ("lost", "it has shown no life for its lease"),
    "unknown": ("unknown", "it never registered here"),
}


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How many items are in each state; `due` are those of `later` whose time has come."""

    ready: int = 0
    failed: int = 0
    later: int = 0
    working: int = 0
    written: int = 0
    writing: int = 0
    discarded: int = 0
    failed_twice: int = 0
    due: int = 0
    foreign: int = 0

    @property
    def waiting(self) -> int:
        """What a driver could claim now."""
        return self.ready + self.failed + self.due


class AtHand(msgspec.Struct, frozen=True):
    """A claimed document, and since when; 0 when its N does not say."""

    docid: str
    state: str
    since: float


class Foreign(msgspec.Struct, frozen=True):
    """A file that is no item, and why."""

    name: str
    why: str


class DriverView(Owner, frozen=True, kw_only=True):
    """A driver, what it does and what it has in hand."""

    state: str = "unknown"
    why: str = ""
    at_hand: tuple[AtHand, ...] = ()
    # Bytes; None when its process is not on this host.
    memory: int | None = None


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """One queue at one moment."""

    queue: str
    at: float
    paused: bool = False
    quit: bool = False
    done: bool = False
    counts: Counts = Counts()
    # The earliest instant at which something postponed is due; 0 when nothing is postponed.
    next_due: int = 0
    # Some of the files that are no items.
    foreign: tuple[Foreign, ...] = ()
    # Everybody who registered, and everybody who has a claim; by id.
    drivers: tuple[DriverView, ...] = ()
    feeds: tuple[str, ...] = ()
    settings: Settings | None = None
    # Why the settings could not be read.
    trouble: str = ""

    @property
    def living(self) -> list[DriverView]:
        return [one for one in self.drivers if one.alive]

    @property
    def rate(self) -> float:
        """Documents per second over the last minute, all living drivers together."""
        return sum(one.rate for one in self.living)

    @property
    def eta(self) -> float | None:
        """Seconds for what waits, at that rate; None when it does not move."""
        return self.counts.waiting / self.rate if self.rate else None

    def holder(self, token: names.Token) -> DriverView:
        """Return the driver that has a claim."""
        owner = owner_of(token, {one.id: one for one in self.drivers})
        return owner if isinstance(owner, DriverView) else DriverView(id=owner.id)


def overview(queue: Queue, observer: Observer | None = None, now: float | None = None) -> QueueView:
    """Look at a queue once."""
    now = time.time() if now is None else now
    listing, due = _count(queue, now)
    drivers = _drivers(listing.claimed, queue.drivers(observer or Observer()))
    foreign, directories = _foreign(queue, listing)
    counts = Counts(
        ready=listing.ready,
        failed=listing.failed,
        later=listing.later,
        working=listing.working,
        written=listing.written,
        writing=listing.writing,
        discarded=sum(1 for _ in queue.each_discarded()),
        failed_twice=listing.failed_twice,
        due=due,
        foreign=listing.foreign - directories,
    )
    settings, trouble = None, ""
    try:
        settings = queue.settings()
    except ConfigError as error:
        trouble = str(error)
    controls = queue.controls()
    return QueueView(
        queue=queue.path,
        at=now,
        paused=controls.paused,
        quit=controls.quit,
        done=controls.done,
        counts=counts,
        next_due=listing.next_due,
        foreign=foreign,
        drivers=tuple(sorted(drivers, key=lambda one: one.id)),
        feeds=tuple(queue.feeds()),
        settings=settings,
        trouble=trouble,
    )


def _count(queue: Queue, now: float) -> tuple[Listing, int]:
    listing = Listing()
    due = 0
    for name in queue.directory.names():
        if listing.see(name, now) is not None and name.endswith(".later"):
            due += 1
    return listing, due


def _foreign(queue: Queue, listing: Listing) -> tuple[tuple[Foreign, ...], int]:
    """Return the foreign files of those that the listing remembers, and how many of them are
    directories."""
    found = []
    directories = 0
    for name in listing.foreign_names:
        try:
            mode = queue.directory.inspect(name).st_mode
        except FileNotFoundError:
            continue
        if stat.S_ISDIR(mode):
            # An output or an archive may well be inside the queue that it serves.
            directories += 1
        else:
            found.append(Foreign(name, names.why_foreign(name)))
    return tuple(found), directories


def _drivers(
    claimed: Sequence[tuple[str, names.Item]], registered: dict[str, Owner]
) -> Iterator[DriverView]:
    at_hand: dict[tuple[str, bool], list[AtHand]] = {}
    for _, item in claimed:
        token = names.parse_token(item.token)
        known = owner_of(token, registered).registration is not None
        one = AtHand(item.docid, item.state, token.claimed_at)
        at_hand.setdefault((token.driver, known), []).append(one)
    for driver, owner in registered.items():
        yield _driver(owner, tuple(at_hand.pop((driver, True), ())))
    for (driver, _), claims in at_hand.items():
        yield _driver(Owner(id=driver), tuple(claims))


def _driver(owner: Owner, at_hand: tuple[AtHand, ...]) -> DriverView:
    registration = owner.registration
    memory = None
    if registration is None:
        state, why = _GONE["unknown"]
    elif not owner.alive:
        state, why = _GONE[owner.verdict]
        why = registration.last_why or why
    else:
        state, why = registration.state, registration.why
        if owner.here:
            memory = _memory(registration.identity.pid)
        if owner.silent:
            # Only seeing its beat stand still for the lease would prove it, and clocks may differ.
            state, why = "silent", "the clocks say that its lease is over"
        elif state == "busy" or (at_hand and state in ("starting", "ready")):
            # It registers its state every few seconds; its claims are newer.
            state, why = "busy", ""
    known = msgspec.structs.asdict(owner)
    return DriverView(**known, state=state, why=why, at_hand=at_hand, memory=memory)


def _memory(pid: int) -> int | None:
    try:
        return resident_memory(pid)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        # It ended meanwhile, or is somebody else's on a host that hides those.
        return None
