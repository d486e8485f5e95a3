"""What `status` tells of a queue: counts, drivers, what each is doing since when, rate and ETA.

Only looks: nothing is created, and a queue on a read-only file system is as readable as another.
"""

import stat
import time
from collections.abc import Iterable, Mapping

import msgspec

from queuedriver.claims.liveness import Counters, Observer, Owner, Registration, owner_of
from queuedriver.claims.picking import Listing
from queuedriver.driving.tally import resident_memory
from queuedriver.errors import ConfigError
from queuedriver.format import names
from queuedriver.format.settings import Settings
from queuedriver.operating.queue import Queue

# One word for a driver that is not there.
_GONE = {"left": "stopped", "dead": "dead", "rebooted": "dead", "lost": "lost"}
_WHY_GONE = {
    "dead": "its process ended by itself",
    "rebooted": "its host went down",
    "lost": "it has shown no life for its lease",
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


class DriverView(msgspec.Struct, frozen=True, kw_only=True):
    """A driver as far as it can be known from here. `registered` is false of one that only its
    claims tell of; such a driver's process and verdict are unknown."""

    id: str
    state: str
    why: str = ""
    registered: bool = True
    alive: bool = True
    verdict: str = "alive"
    host: str = ""
    pid: int = 0
    processor: str = ""
    started_at: float = 0.0
    beat_at: float = 0.0
    at_hand: tuple[AtHand, ...] = ()
    counters: Counters = Counters()
    rate: float = 0.0
    # Bytes; None when its process is not on this host.
    memory: int | None = None


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """One queue at one moment."""

    queue: str
    at: float
    paused: bool
    quit: bool
    done: bool
    counts: Counts
    # The earliest instant at which something postponed is due; 0 when nothing is postponed.
    next_due: int
    # Some of the files that are no items.
    foreign: tuple[Foreign, ...]
    drivers: tuple[DriverView, ...]
    # Documents per second over the last minute, all living drivers together.
    rate: float
    # Seconds for what waits, at that rate; None when it does not move.
    eta: float | None
    feeds: tuple[str, ...]
    settings: Settings | None
    # Why the settings could not be read.
    trouble: str = ""


def overview(queue: Queue, observer: Observer | None = None, now: float | None = None) -> Overview:
    """Look at a queue once."""
    now = time.time() if now is None else now
    observer = observer or Observer()
    listing, due = _count(queue, now)
    drivers = tuple(see_drivers(listing.claimed, queue.drivers(observer)))
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
    rate = sum(one.rate for one in drivers if one.alive)
    return Overview(
        queue=queue.path,
        at=now,
        paused=controls.paused,
        quit=controls.quit,
        done=controls.done,
        counts=counts,
        next_due=listing.next_due,
        foreign=foreign,
        drivers=drivers,
        rate=rate,
        eta=counts.waiting / rate if rate else None,
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
    """The foreign files of those that the listing remembers, and how many are directories."""
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


def see_drivers(
    claimed: Iterable[tuple[str, names.Item]],
    known: Mapping[str, Owner],
) -> list[DriverView]:
    """Everybody who registered, and everybody whose claims are there; by id."""
    at_hand: dict[str, list[AtHand]] = {}
    strangers: dict[str, list[AtHand]] = {}
    for _, item in claimed:
        token = names.parse_token(item.token)
        by = strangers if owner_of(token, known).registration is None else at_hand
        one = AtHand(item.docid, item.state, token.claimed_at)
        by.setdefault(token.driver, []).append(one)
    views = [
        _see(one, one.registration, tuple(at_hand.get(one.id, ())))
        for one in known.values()
        if one.registration is not None
    ]
    views += [
        DriverView(
            id=driver,
            state="unknown",
            why="it never registered here",
            registered=False,
            alive=False,
            verdict="unknown",
            at_hand=tuple(documents),
        )
        for driver, documents in strangers.items()
    ]
    return sorted(views, key=lambda view: view.id)


def _see(owner: Owner, registration: Registration, at_hand: tuple[AtHand, ...]) -> DriverView:
    alive, verdict, them = owner.alive, owner.verdict, registration.identity
    state, why = registration.state, registration.why
    if not alive:
        state = _GONE[verdict]
        why = registration.last_why or _WHY_GONE.get(verdict, "")
    elif owner.silent:
        # Only seeing its beat stand still for the lease would prove it, and clocks may differ.
        state, why = "silent", "the clocks say that its lease is over"
    elif (state := state_now(registration, at_work=bool(at_hand))) == "busy":
        why = ""
    return DriverView(
        id=registration.id,
        state=state,
        why=why,
        alive=alive,
        verdict=verdict,
        host=them.host,
        pid=them.pid,
        processor=registration.processor,
        started_at=registration.started_at,
        beat_at=registration.beat_at,
        at_hand=at_hand,
        counters=registration.counters,
        rate=registration.rate if alive else 0.0,
        memory=_memory(them.pid) if alive and owner.here else None,
    )


def state_now(registration: Registration, *, at_work: bool) -> str:
    """A driver registers its state every few seconds; its claims are newer."""
    if at_work and registration.state in ("starting", "ready"):
        return "busy"
    return registration.state


def _memory(pid: int) -> int | None:
    try:
        return resident_memory(pid)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        # It ended meanwhile, or is somebody else's on a host that hides those.
        return None
