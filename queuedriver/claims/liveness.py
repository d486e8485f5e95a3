"""Which drivers a queue has, which of them are alive, and how each shows that it lives.

A registration is `.queuedriver/drivers/<id>.json`, written aside and renamed, so it is read
whole. On the same host a process is there or it is not: certain, at once. Of another host only its
beat is known: dead means that it has not changed for the lease, on the *observer's own* monotonic
clock. A host that was started anew is known by its machine and its name; but hosts cloned from one
image share both, so on a file system that several hosts may use its beat must have stood still
besides. No two clocks are ever compared.
"""

import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache, cached_property
from typing import Literal, NamedTuple
from zlib import crc32

import msgspec

from queuedriver.disk.filesystem import Directory
from queuedriver.disk.mounts import filesystem_type, is_network
from queuedriver.disk.processes import HIDDEN, process_ticks
from queuedriver.format import names
from queuedriver.format.records import Counters, Identity, Registration, encodable, read_record

DRIVERS = "drivers"
# Seconds between two beats of a driver that has nothing new to tell; on a network mount each is a
# few requests to the server.
BEAT = 5.0
NETWORK_BEAT = 30.0
# What is new is told so soon, in seconds: `status` reads it, and a beat is one small file. Some
# hundred drivers of a network file system would keep it busy with that.
NEWS = 1.0
NETWORK_NEWS = 5.0
# Self-fencing: with no beat written for this part of the lease, write one or do not commit.
FENCE = 2 / 3
_RATE_WINDOW = 60.0
# Seconds for which the beat of a host that seems to be this one, before it was started anew, must
# have stood still where a clone of it might use the same queue.
REBOOTED_AFTER = 2 * NETWORK_BEAT
# Seconds for which the registration of a driver that is gone is kept for whoever wants to know.
EXPIRY = 86400.0
# Salts of earlier lives that a registration remembers, for sweeping what they left.
PAST = 64
# A few kB, and every driver reads those of all others again and again; in bytes.
_MAX_REGISTRATION = 1 << 20
# The last word of a driver that ended by an error of its own: what it had is charged, or a document
# that brings it about would be given back for ever.
CRASHED = "crashed"
# The number that each kernel gives to the namespace of clocks that it starts with.
_FIRST_CLOCKS = 0xEFFFFFFA
# Seconds that pass between two readings of all registrations, for each of a living driver and for
# each of one that is gone. As every driver reads, all of them together read so many a second
# whatever their number, and somebody still looks every quarter of a second.
_FOR_EACH_ALIVE = 0.25
_FOR_EACH_GONE = 0.01
# So few may be read whenever somebody asks; in the seconds of the two above.
_NO_WAIT = 2.0
# Up to so many registrations a driver reads those of all. Of more it reads those of a few others,
# and so does each of these: of so many that live, once on its own host and once among all, and so
# seldom, in seconds. That none of them is left when one dies is as good as impossible.
_ALL = 64
_NEIGHBOURS = 8
_NEIGHBOURS_EVERY = 60.0

Verdict = Literal["alive", "left", "dead", "rebooted", "lost"]
# What became of a driver, by its verdict.
_GONE = {
    "left": "left",
    "dead": "ended without a word",
    "rebooted": "went down with its host",
    "lost": "fell silent",
    "unknown": "never registered here",
}


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """A driver as far as it can be known from here."""

    id: str
    # None when it never registered, or as another life than the one that was asked for.
    registration: Registration | None = None
    verdict: Verdict | Literal["unknown"] = "unknown"
    # Its process can be seen from here, so that nobody has to wait for its silence.
    here: bool = False
    # It is on another host, and by the clocks its last beat is older than its lease.
    silent: bool = False

    @property
    def alive(self) -> bool:
        return self.verdict == "alive"

    @property
    def became(self) -> str:
        """Return what became of one that is not alive, in words."""
        return _GONE[self.verdict]

    @property
    def host(self) -> str:
        return self.registration.identity.host if self.registration is not None else ""

    @property
    def pid(self) -> int:
        return self.registration.identity.pid if self.registration is not None else 0

    @property
    def rate(self) -> float:
        """Return documents per second over the last minute; none of one that is gone."""
        return self.registration.rate if self.alive and self.registration is not None else 0.0

    @property
    def counters(self) -> Counters:
        return self.registration.counters if self.registration is not None else Counters()

    @property
    def is_broker(self) -> bool:
        return self.registration is not None and self.registration.broker


class Observer:
    """Judges registrations; remembers since when the beats of other hosts stand still."""

    def __init__(
        self, monotonic: Callable[[], float] = time.monotonic, lease: float | None = None
    ) -> None:
        self.me = identify(os.getpid())
        # An operator's, who knows better than the drivers how long silence may be life.
        self.lease = lease
        self.monotonic = monotonic
        self._seen: dict[str, tuple[object, float]] = {}

    def judge(
        self, registration: Registration, still_for: float = 0.0, shared: bool = True
    ) -> Verdict:
        """Judge whether the driver that registered is there.

        `still_for` is for how long its beat is known to have stood still without this observer;
        `shared` is false where no other host uses the queue.
        """
        them = registration.identity
        ticks = process_ticks(them.pid) if self.is_here(registration) else None
        key = names.life_name(registration.id, registration.salt)
        unchanged = max(self.unchanged_for(key, registration.beat), still_for)
        if self.lease is not None:
            registration = msgspec.structs.replace(registration, lease=self.lease)
        return judge(registration, self.me, ticks, unchanged, shared)

    def is_here(self, registration: Registration) -> bool:
        """Tell whether its process can be seen from here."""
        them = registration.identity
        return (them.boot, them.namespace) == (self.me.boot, self.me.namespace)

    def unchanged_for(self, key: str, value: object) -> float:
        """Return for how many seconds this has been the same, as far as this observer knows."""
        now = self.monotonic()
        before = self._seen.get(key)
        if before is None or before[0] != value:
            self._seen[key] = (value, now)
            return 0.0
        return now - before[1]

    def forget(self, key: str) -> None:
        self._seen.pop(key, None)


def judge(
    registration: Registration,
    me: Identity,
    ticks: int | None,
    unchanged_for: float,
    shared: bool = True,
) -> Verdict:
    """Draw the verdict from the facts. `ticks` is the start of the process with that pid here."""
    them = registration.identity
    if registration.last_word:
        return "dead" if registration.last_word == CRASHED else "left"
    same = (them.boot, them.namespace) == (me.boot, me.namespace)
    if same and ticks != HIDDEN:
        return "alive" if ticks == them.ticks else "dead"
    before = me.machine and (them.machine, them.host) == (me.machine, me.host)
    if before and them.boot != me.boot:
        silence = min(REBOOTED_AFTER, registration.lease) if shared else 0.0
        return "rebooted" if unchanged_for >= silence else "alive"
    return "lost" if unchanged_for >= registration.lease else "alive"


class Roster:
    """The drivers that registered in one queue.

    All are read anew when that is due (`refresh`): the more there are, the less often. Whoever
    seems to be gone, or unknown, by a reading that is not new is read once more by name.

    A driver of a crowd reads those that follow it, in an order that scatters hosts, until a few
    live; so each is read by the few before it, whoever of them lives. Of those on its own host it
    reads some besides, as only from here is it seen at once that their processes are gone.
    """

    def __init__(self, drivers: Directory, observer: Observer, me: str = "") -> None:
        self.observer = observer
        # By id.
        self.owners: dict[str, Owner] = {}
        # Who has registered, where others look after a part of them; None where we do of all.
        self._crowd: Crowd | None = None
        self._me = me
        self._drivers = drivers
        self._due = float("-inf")
        # Those read since the last `refresh`; None when all were.
        self._confirmed: set[str] | None = set()

    @property
    def alive(self) -> list[Owner]:
        return [one for one in self.owners.values() if one.alive]

    @property
    def others(self) -> frozenset[str]:
        """Return the ids of those whom others look after; none of a roster that is nobody's (`me`
        is "")."""
        crowd = self._crowd
        return crowd.ids.difference(self.owners) if crowd is not None else frozenset()

    def leaves_to_others(self, driver: str) -> bool:
        """Tell whether others look after a driver."""
        crowd = self._crowd
        return crowd is not None and driver in crowd.ids and driver not in self.owners

    def refresh(self) -> None:
        """Read all registrations, or those of a crowd that are ours to look after, if that is
        due."""
        now = self.observer.monotonic()
        self._confirmed = set()
        if now < self._due:
            self._see_who_is_gone()
            return
        ids = registered_ids(self._drivers)
        self.owners, self._crowd = {}, None
        if self._me and len(ids) > _ALL:
            self._crowd = crowd_of(ids)
            self._read_neighbours(self._crowd)
            self._due = now + _NEIGHBOURS_EVERY
            return
        for driver in sorted(ids):
            self.named(driver)
        self._confirmed = None
        alive = len(self.alive)
        gone = len(self.owners) - alive
        wait = alive * _FOR_EACH_ALIVE + gone * _FOR_EACH_GONE - _NO_WAIT
        self._due = now + max(wait, 0.0)

    def meet(self) -> None:
        """Look who has registered since; nobody is read whom others look after."""
        ids = registered_ids(self._drivers)
        if self._crowd is not None:
            if not ids <= self._crowd.ids:
                self._crowd = crowd_of(self._crowd.ids | ids)
            return
        for driver in ids.difference(self.owners):
            self.named(driver)

    def _read_neighbours(self, crowd: "Crowd") -> None:
        """Read those of a crowd that are ours to look after."""
        # Late: only who drives in a crowd needs it.
        from bisect import bisect

        self.named(self._me)
        first = bisect(crowd.scattered, _place(self._me), key=_place)
        followers = [*crowd.scattered[first:], *crowd.scattered[:first]]
        near = f"{self._me.partition('-')[0]}-"
        for some in ([one for one in followers if one.startswith(near)], followers):
            living = 0
            for driver in some:
                if living >= _NEIGHBOURS:
                    break
                if driver != self._me:
                    known = self.owners.get(driver) or self.named(driver)
                    living += known is not None and known.alive

    def _see_who_is_gone(self) -> None:
        """Read those of a crowd once more whose processes are gone from this host."""
        for one in self.alive if self._crowd is not None else ():
            said = one.registration
            if one.here and said is not None and not self.judged(said).alive:
                self.named(one.id)

    def owner(self, token: names.Token) -> Owner:
        """Return the driver that has a claim; "unknown" when it never registered as that life."""
        owner = owner_of(token, self.owners)
        if owner.alive or self._confirmed is None or token.driver in self._confirmed:
            return owner
        self._confirmed.add(token.driver)
        self.named(token.driver)
        return owner_of(token, self.owners)

    def named(self, driver: str) -> Owner | None:
        """Read one registration by its name, as a listing may be from before it was there; return
        its driver, or None."""
        found = read_registration(self._drivers, driver)
        if found is None or found.id != driver:
            self.owners.pop(driver, None)
            return None
        owner = self.owners[driver] = self.judged(found)
        return owner

    def holder(self, driver: str) -> Registration | None:
        """Return what the living driver of this id says of itself, or None when there is none."""
        owner = self.named(driver)
        return owner.registration if owner is not None and owner.alive else None

    def remove(self, gone: Registration) -> None:
        """Remove the registration of a driver that is gone, unless it has come back since."""
        still = self.named(gone.id)
        if still is not None and not still.alive and still.registration == gone:
            # Another user's, in a sticky directory, is for that user to remove.
            with suppress(PermissionError):
                self._drivers.remove(registration_name(gone.id))

    def judged(self, one: Registration) -> Owner:
        """Return the driver that registered like this, judged alive or not."""
        here = self.observer.is_here(one)
        age = time.time() - one.beat_at
        still_for = 0.0
        if not here and age > EXPIRY:
            # Its clock may be wrong; that of the file system tells when it, and when somebody, last
            # wrote here.
            still_for = self._still_for(one.id)
        shared = here or one.network or self._shared
        verdict = self.observer.judge(one, still_for if still_for > EXPIRY else 0.0, shared)
        silent = verdict == "alive" and not here and age > one.lease
        return Owner(id=one.id, registration=one, verdict=verdict, here=here, silent=silent)

    def _still_for(self, driver: str) -> float:
        """Return for how long others have written here since this driver last did, in seconds."""
        latest = self._drivers.status().st_mtime_ns
        try:
            return (latest - self._drivers.status(registration_name(driver)).st_mtime_ns) / 1e9
        except FileNotFoundError:
            return 0.0

    @cached_property
    def _shared(self) -> bool:
        return is_network(filesystem_type(self._drivers.path))


class Crowd(NamedTuple):
    """Drivers of whom each looks after a few."""

    ids: frozenset[str]
    # In an order that scatters those of a host.
    scattered: list[str]


def crowd_of(ids: frozenset[str]) -> Crowd:
    """Return the crowd that these drivers are."""
    return Crowd(ids, sorted(ids, key=_place))


def _place(driver: str) -> int:
    return crc32(driver.encode())


def owner_of(token: names.Token, owners: Mapping[str, Owner]) -> Owner:
    """Return the driver of an N, from drivers by id."""
    owner = owners.get(token.driver)
    registration = owner.registration if owner is not None else None
    if owner is None or registration is None or token.salt == registration.salt:
        return owner or Owner(id=token.driver)
    if token.salt in registration.past:
        # An earlier life, and two lives of one id are never at once.
        verdict: Verdict = "left" if token.salt in registration.left else "lost"
        return msgspec.structs.replace(owner, verdict=verdict, silent=False)
    return Owner(id=token.driver)


@cache
def _host() -> tuple[str, str, str, int]:
    return (
        os.uname().nodename,
        _line("/etc/machine-id"),
        _line("/proc/sys/kernel/random/boot_id"),
        _namespace(),
    )


def _namespace() -> int:
    """Return a number that is the same for all processes that see each other by the same ids, and
    the starts of each other by the same clock."""
    pids = os.stat("/proc/self/ns/pid").st_ino
    try:
        clocks = os.stat("/proc/self/ns/time").st_ino
    except FileNotFoundError:
        # Before Linux 5.6 there is one clock for all.
        return pids
    return pids if clocks == _FIRST_CLOCKS else clocks << 32 | pids


def _line(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.readline().strip()
    except OSError:
        return ""


def identify(pid: int) -> Identity:
    """Return the identity of a process of this host."""
    return Identity(*_host(), pid, process_ticks(pid) or 0)


def host_id(host: str | None = None) -> str:
    """Return the host's name in the alphabet of driver ids, with room for `-<slot>`."""
    plain = re.sub(r"[^A-Za-z0-9_]+", "_", host or os.uname().nodename).strip("_")
    return plain[: names.MAX_DRIVER_ID - 8] or "host"


def draw_salt() -> str:
    """Draw four random digits that tell one life of a driver id from the next."""
    return os.urandom(2).hex()


def registration_name(driver: str) -> str:
    """Return the name of the file in which a driver says what it is."""
    return f"{driver}.json"


def registered_id(name: str) -> str:
    """Return whose registration a file is by its name; "" where it is none."""
    return name[:-5] if name.endswith(".json") and name[0] != "." else ""


def registered_ids(drivers: Directory) -> frozenset[str]:
    """Return the ids of those who have registered."""
    return frozenset(filter(None, map(registered_id, drivers.names())))


def read_registration(drivers: Directory, driver: str) -> Registration | None:
    """Read what a driver says of itself; return None when it never registered, or unreadably."""
    return read_record(drivers, registration_name(driver), Registration, _MAX_REGISTRATION)


def any_alive(queue: Directory, observer: Observer) -> bool:
    """Tell whether a driver of a queue lives, by reading no more than until there is one."""
    if (drivers := queue.look_into(os.path.join(names.PRIVATE, DRIVERS))) is None:
        return False
    with drivers:
        roster = Roster(drivers, observer)
        return any(roster.judged(one).alive for one in read_registrations(drivers))


def read_registrations(drivers: Directory) -> Iterator[Registration]:
    """Read what each driver says of itself, in the order of their ids."""
    for driver in sorted(registered_ids(drivers)):
        found = read_registration(drivers, driver)
        if found is not None and found.id == driver:
            yield found


class Heartbeat:
    """One driver's registration in its input queues, kept fresh by a small daemon thread.

    The thread runs beside a document however long that takes, so what else must not wait for its
    end is looked at there, too (`look`). It is silent while C code holds the interpreter's lock.
    """

    def __init__(
        self,
        registration: Registration,
        directories: list[Directory],
        report: Callable[[], tuple[str, str, Counters]],
        look: Callable[[], object] = lambda: None,
        durable: bool = False,
    ) -> None:
        registration.processor = encodable(registration.processor)
        self.registration = registration
        self.last_at = time.monotonic()
        self._directories = directories
        self._report = report
        # From beat to beat, and from look to look whether there is news; in seconds.
        self.interval = NETWORK_BEAT if registration.network else BEAT
        self.news = NETWORK_NEWS if registration.network else NEWS
        # What else is to be seen to as often, also while a document is at hand.
        self._look = look
        # After a power cut, too, somebody must know whose unfinished outputs those are.
        self._durable = durable
        self._stop = threading.Event()
        self._writing = threading.Lock()
        self._history: list[tuple[float, int]] = []
        self._thread = threading.Thread(target=self._run, name="beat", daemon=True)

    def start(self) -> None:
        self.write()
        self._thread.start()

    def write(self) -> None:
        """Beat once, now. Raises OSError when that could not be written."""
        with self._writing:
            registration = self.registration
            registration.state, why, registration.counters = self._report()
            registration.why = encodable(why)
            registration.rate = self._rate(registration.counters.documents)
            registration.beat += 1
            registration.beat_at = time.time()
            data = msgspec.json.encode(registration)
            for directory in self._directories:
                directory.write_aside(registration_name(registration.id), data, self._durable)
            self.last_at = time.monotonic()

    def fresh(self) -> None:
        """Beat before a commit, if that is long ago: others may have declared us dead."""
        if time.monotonic() - self.last_at > self.registration.lease * FENCE:
            self.write()

    def leave(self, word: str, why: str) -> None:
        """Say the last word, so that nobody takes our absence for a crash."""
        self.stop()
        self.registration.last_word = word
        self.registration.last_why = encodable(why)
        self.write()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self.news):
            silent = time.monotonic() - self.last_at
            if silent > self.interval - self.news or self._has_news():
                # The loop finds out by itself when it next commits (`fresh`); a beat only shows.
                with suppress(OSError):
                    self.write()
            with suppress(OSError):
                self._look()

    def _has_news(self) -> bool:
        state, _, now = self._report()
        told = self.registration.counters
        was = self.registration.state, told.documents, told.failed, told.discarded
        return (state, now.documents, now.failed, now.discarded) != was

    def _rate(self, documents: int) -> float:
        now = time.monotonic()
        self._history = [one for one in self._history if one[0] > now - _RATE_WINDOW]
        self._history.append((now, documents))
        first_at, first = self._history[0]
        return (documents - first) / (now - first_at) if now > first_at else 0.0
