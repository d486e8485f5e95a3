"""What `status` tells of a queue: counts, drivers, what each is doing since when, rate and ETA.

Only looks: nothing is created, and a queue on a read-only file system is as readable as another.
"""

import contextlib
import itertools
import math
import os
import stat
import time
from collections.abc import Iterator, Sequence

import msgspec

from queuedriver.claims.counts import Counts
from queuedriver.claims.liveness import Observer, Owner, owner_of
from queuedriver.disk.filesystem import Directory
from queuedriver.disk.mounts import mount_points
from queuedriver.disk.processes import resident_memory
from queuedriver.driving.closing import Controls
from queuedriver.errors import ConfigError
from queuedriver.format import names
from queuedriver.format.settings import Settings
from queuedriver.operating.queue import Queue

# So many claims, and files that are no items, are told of one by one.
_MOST_CLAIMS = 10_000
_MOST_FOREIGN = 10
# Of how many items it is asked whether they can be claimed, where that is in doubt.
_LOOKED_AT = 1_000
# A word for a driver that is not alive, where it is not its verdict.
_GONE = {"left": "stopped", "rebooted": "dead"}


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
    # Why the stage has stopped itself; empty while it has not.
    tripped: str = ""
    counts: Counts
    # Some of the files that are no items.
    foreign: tuple[Foreign, ...] = ()
    # Some of the items that nobody here can claim.
    unmovable: tuple[Foreign, ...] = ()
    # Everybody who registered, and everybody who has a claim; by id.
    drivers: tuple[DriverView, ...] = ()
    feeds: tuple[str, ...] = ()
    settings: Settings | None = None
    # Why the settings could not be read.
    trouble: str = ""
    # What whoever starts its drivers has to say; mostly nothing.
    notice: str = ""

    @property
    def controls(self) -> Controls:
        return Controls(self.done, self.paused, self.quit)

    @property
    def living(self) -> list[DriverView]:
        return [one for one in self.drivers if one.alive]

    @property
    def rate(self) -> float:
        """Return documents per second over the last minute, all living drivers together."""
        return sum(one.rate for one in self.living)

    @property
    def eta(self) -> float | None:
        """Return seconds for what waits, at that rate; None when it does not move."""
        return self.counts.waiting / self.rate if self.rate else None

    def holder(self, token: names.Token) -> DriverView:
        """Return the driver that has a claim."""
        owner = owner_of(token, {one.id: one for one in self.drivers})
        return owner if isinstance(owner, DriverView) else DriverView(id=owner.id)


def overview(queue: Queue, observer: Observer | None = None, now: float | None = None) -> QueueView:
    """Look at a queue once."""
    now = time.time() if now is None else now
    counts, claims, foreign = _count(queue, now)
    drivers = _drivers(claims, queue.drivers(observer or Observer()))
    counts.discarded = sum(1 for _ in queue.each_discarded())
    settings, trouble = None, ""
    try:
        settings = queue.settings()
    except ConfigError as error:
        trouble = str(error)
    trip = queue.stopped()
    return QueueView(
        queue=queue.path,
        at=now,
        **queue.controls()._asdict(),
        tripped=trip.words(queue.path) if trip is not None else "",
        counts=counts,
        foreign=foreign,
        unmovable=tuple(itertools.islice(_unmovable(queue), _MOST_FOREIGN)),
        drivers=tuple(sorted(drivers, key=lambda one: one.id)),
        feeds=tuple(queue.feeds()),
        settings=settings,
        trouble=trouble,
        notice=queue.notice(),
    )


def _count(queue: Queue, now: float) -> tuple[Counts, list[names.Item], tuple[Foreign, ...]]:
    """Count the items; return besides those that are claimed, and some of what is no item."""
    counts = Counts()
    claims: list[names.Item] = []
    strange: list[str] = []
    for name, item in names.walk(queue.directory):
        counts.see(name, item, now)
        if item is None:
            if len(strange) < _MOST_FOREIGN and not names.is_reserved(name):
                strange.append(name)
        elif item.claimed and len(claims) < _MOST_CLAIMS:
            claims.append(item)
    foreign = []
    for name in strange:
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISDIR(queue.directory.status(name).st_mode):
                # An output or an archive may well be inside the queue that it serves.
                counts.foreign -= 1
            else:
                foreign.append(Foreign(name, names.why_foreign(name)))
    return counts, claims, tuple(foreign)


def held_fast(
    directory: Directory, name: str, found: os.stat_result, mounted: frozenset[str]
) -> str:
    """Tell why the operating system will not let an item be renamed; "" as far as can be told."""
    if os.path.join(directory.path, name) in mounted:
        return "something is mounted on it; unmount that"
    queue = directory.status()
    owners = (found.st_uid, queue.st_uid, 0)
    if queue.st_mode & stat.S_ISVTX and os.geteuid() not in owners:
        return f"the directory is sticky, and it is user {found.st_uid}'s, who must move it"
    return ""


def _unmovable(queue: Queue) -> Iterator[Foreign]:
    """Yield items that wait and that nobody here can claim. Only where something speaks for it are
    items looked at one by one, and not more of them than a person would read of."""
    directory, mounted = queue.directory, mount_points()
    suspects = [os.path.basename(one) for one in mounted if os.path.dirname(one) == queue.path]
    if directory.status().st_mode & stat.S_ISVTX:
        suspects += itertools.islice(directory.names(), _LOOKED_AT)
    for name in dict.fromkeys(suspects):
        item = names.parse(name)
        if item is None or not item.waits(math.inf):
            continue
        with contextlib.suppress(FileNotFoundError):
            if why := held_fast(directory, name, directory.status(name), mounted):
                yield Foreign(name, why)


def _drivers(claimed: Sequence[names.Item], registered: dict[str, Owner]) -> Iterator[DriverView]:
    at_hand: dict[tuple[str, bool], list[AtHand]] = {}
    for item in claimed:
        token = names.parse_token(item.token)
        known = owner_of(token, registered).registration is not None
        one = AtHand(item.docid, item.state, token.claimed_at)
        at_hand.setdefault((token.driver, known), []).append(one)
    for driver, owner in registered.items():
        yield _driver(owner, tuple(at_hand.pop((driver, True), ())))
    for (driver, _), claims in at_hand.items():
        yield _driver(Owner(id=driver), tuple(claims))


def _driver(owner: Owner, at_hand: tuple[AtHand, ...]) -> DriverView:
    """Return a driver with what it does: where it is silent or gone, in words of ours."""
    registration, memory = owner.registration, None
    if registration is None or not owner.alive:
        state = _GONE.get(owner.verdict, owner.verdict)
        why = (registration.last_why if registration is not None else "") or f"it {owner.became}"
    else:
        state, why = registration.state, registration.why
        if owner.here:
            # It ended meanwhile, or is somebody else's on a host that hides those.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                memory = resident_memory(registration.identity.pid)
        if owner.silent:
            # Only seeing its beat stand still for the lease would prove it, and clocks may differ.
            state, why = "silent", "the clocks say that its lease is over"
        elif state == "busy" or (at_hand and state in ("starting", "ready")):
            # It registers its state every few seconds; its claims are newer.
            state, why = "busy", ""
    known = msgspec.structs.asdict(owner)
    return DriverView(**known, state=state, why=why, at_hand=at_hand, memory=memory)
