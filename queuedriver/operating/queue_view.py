"""What `status` tells of a queue: counts, drivers, what each is doing since when, rate and ETA.

Only looks: nothing is created, and a queue on a read-only file system is as readable as another.
"""

import stat
import time
from collections.abc import Iterable, Mapping

import msgspec

from queuedriver.claims.liveness import Counters, Observer, Registration, Verdict, whose
from queuedriver.claims.picking import Counts
from queuedriver.driving.recycling import resident_memory
from queuedriver.errors import ConfigError
from queuedriver.format import names
from queuedriver.format.settings import Settings
from queuedriver.operating.queue import Queue

# So many claims, and files that are no items, are told of one by one.
_MOST_CLAIMS = 10_000
_MOST_FOREIGN = 10
# One word for a driver that is not there.
_GONE = {"left": "stopped", "dead": "dead", "rebooted": "dead", "lost": "lost"}
_WHY_GONE = {
    "dead": "its process ended by itself",
    "rebooted": "its host went down",
    "lost": "it has shown no life for its lease",
}


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
    counts, claims, strange = _count(queue, now)
    known = {one.id: (one, observer.judge(one)) for one in queue.registrations()}
    drivers = tuple(see_drivers(claims, known, observer, now))
    foreign, directories = _foreign(queue, strange)
    counts.foreign -= directories
    counts.discarded = sum(1 for _ in queue.each_discarded())
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
        foreign=foreign,
        drivers=drivers,
        rate=rate,
        eta=counts.waiting / rate if rate else None,
        feeds=tuple(queue.feeds()),
        settings=settings,
        trouble=trouble,
    )


def _count(queue: Queue, now: float) -> tuple[Counts, list[tuple[str, names.Item]], list[str]]:
    """Count the items; return besides those that are claimed, and some of the names that are no
    items."""
    counts = Counts()
    claims: list[tuple[str, names.Item]] = []
    strange: list[str] = []
    for name, item in names.walk(queue.directory):
        counts.see(name, item, now)
        if item is None:
            if len(strange) < _MOST_FOREIGN and not names.is_reserved(name):
                strange.append(name)
        elif item.claimed and len(claims) < _MOST_CLAIMS:
            claims.append((name, item))
    return counts, claims, strange


def _foreign(queue: Queue, strange: list[str]) -> tuple[tuple[Foreign, ...], int]:
    """The foreign files of these names, and how many are directories."""
    found = []
    directories = 0
    for name in strange:
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
    known: Mapping[str, tuple[Registration, Verdict]],
    observer: Observer,
    now: float,
) -> list[DriverView]:
    """Everybody who registered, and everybody whose claims are there; by id."""
    at_hand: dict[str, list[AtHand]] = {}
    strangers: dict[str, list[AtHand]] = {}
    for _, item in claimed:
        token = names.parse_token(item.token)
        registration, _ = whose(token, known)
        by = strangers if registration is None else at_hand
        one = AtHand(item.docid, item.state, token.claimed_at)
        by.setdefault(token.driver, []).append(one)
    views = [
        _see(one, verdict, tuple(at_hand.get(one.id, ())), observer, now)
        for one, verdict in known.values()
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


def _see(
    registration: Registration,
    verdict: Verdict,
    at_hand: tuple[AtHand, ...],
    observer: Observer,
    now: float,
) -> DriverView:
    alive = verdict == "alive"
    them = registration.identity
    here = (them.boot, them.namespace) == (observer.me.boot, observer.me.namespace)
    state, why = registration.state, registration.why
    if not alive:
        state = _GONE[verdict]
        why = registration.last_why or _WHY_GONE.get(verdict, "")
    elif not here and now - registration.beat_at > registration.lease:
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
        memory=_memory(them.pid) if alive and here else None,
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
