"""What an operator does to the documents of a queue: retry, discard, recover.

    retry      discarded/d   → d.ready, its report gone      d.failed, d.<due>.later → d.ready
    discard    d.ready, .failed, .later → discarded/d, with a report: claimed first, as a driver
               would, so that no driver takes it meanwhile
    recover    what dead drivers left, where no driver runs that would do it (`recovery.py`)

Any number of operators may work beside any number of drivers: each move is one rename, and who
comes second finds nothing. One that is killed amid a discard leaves a claim like a dead driver's,
which is given back.
"""

import os
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

from queuedriver.claims.attempts import ATTEMPTS, Attempts, File, places_of
from queuedriver.claims.handoff import Handoff
from queuedriver.claims.liveness import DRIVERS, LEASE, Observer, Registration, draw_salt, whose
from queuedriver.claims.outcomes import Failure
from queuedriver.claims.recovery import Recoverer
from queuedriver.claims.setbacks import Setbacks
from queuedriver.disk.journal import Journal, operator
from queuedriver.driving.grounds import handoff_of
from queuedriver.format import names
from queuedriver.format.event import Event
from queuedriver.format.settings import Settings
from queuedriver.operating.queue import JOURNAL, OPERATOR, Queue

Came = Literal["done", "nothing to do", "refused", "missing"]


class Result(NamedTuple):
    """What came of one docid, and why when it is not what was asked for."""

    docid: str
    came: Came
    why: str = ""


@contextmanager
def journal_of(queue: Queue) -> Iterator[Journal]:
    """Where the operators of this host note what they did."""
    host = Observer().me.host
    journal = Journal(os.path.join(queue.private.path, JOURNAL), operator(host), host)
    try:
        yield journal
    finally:
        journal.close()


# Retry


def retry(queue: Queue, docids: Collection[str], journal: Journal) -> list[Result]:
    """Let documents be tried again as if they never had been."""
    wanted = [docid for docid in docids if names.objection(docid) is None]
    came = {docid: Result(docid, "missing", f"no {docid!r} in {queue.path}") for docid in docids}
    moved = _from_discarded(queue, wanted, came)
    moved |= _from_waiting(queue, set(wanted) - moved.keys(), came)
    if moved:
        queue.directory.sync()
    for docid, message in moved.items():
        journal.note("retried", docid, message=message)
    return list(came.values())


def _from_discarded(
    queue: Queue, docids: Collection[str], came: dict[str, Result]
) -> dict[str, str]:
    """Take documents out of `discarded/`; which, and what to note. Of several of one docid the
    newest, under the docid that they had."""
    moved: dict[str, str] = {}
    restored: list[File] = []
    with _attempts_of(queue) as attempts:
        attempts.settle()
        discarded = attempts.discarded
        for docid, places in places_of(discarded, attempts.directory, set(docids)).items():
            try:
                restored.append(
                    attempts.restore(queue.directory, places[0], names.waiting_name(docid, 0))
                )
            except FileNotFoundError:
                continue
            except (FileExistsError, PermissionError) as error:
                why = f"another {docid!r} waits already; it stays in {discarded.path}"
                if isinstance(error, PermissionError):
                    why = f"{docid!r} may not be moved out of {discarded.path}: permission denied"
                came[docid] = Result(docid, "refused", why)
                continue
            older = ", ".join(map(repr, places[1:]))
            why = f"retried {places[0]!r}, the newest of its docid; still discarded: {older}"
            moved[docid] = why if older else "it was discarded"
            came[docid] = Result(docid, "done", why if older else "")
        if moved:
            queue.directory.sync()
            discarded.sync()
        # Now nobody will ask for these. Whoever recovers drops those that a crash leaves.
        for file in restored:
            attempts.remove(file)
    return moved


def _from_waiting(queue: Queue, wanted: Collection[str], came: dict[str, Result]) -> dict[str, str]:
    """Let what has failed, or is not due, begin anew; which, and what to note."""
    moved: dict[str, str] = {}
    with _attempts_of(queue) as attempts:
        for name, item in [one for one in queue.items() if one[1].docid in wanted]:
            docid, ready = item.docid, names.waiting_name(item.docid, 0)
            if item.state not in ("failed", "later"):
                if came[docid].came == "missing":
                    came[docid] = _not_waiting(name, item)
                continue
            try:
                if not queue.directory.present(ready):
                    # Before it waits anew: what is noted from then on is not ours to remove.
                    attempts.forget(docid, queue.directory.status(name).inode)
                queue.directory.rename_new(name, ready)
            except FileNotFoundError:
                came[docid] = Result(docid, "refused", f"{docid!r} was claimed just now")
            except FileExistsError:
                came[docid] = Result(docid, "refused", f"another {docid!r} waits already")
            else:
                moved[docid] = "it had failed" if item.state == "failed" else "it was not due"
                came[docid] = Result(docid, "done")
    return moved


def _not_waiting(name: str, item: names.Item) -> Result:
    """What there is to say of an item that is not to be moved."""
    docid = item.docid
    match item.state:
        case "ready":
            return Result(docid, "nothing to do", f"{docid!r} waits already")
        case "failed_twice":
            why = f"{docid!r} was given up by another program, and its contents are gone: {name}"
            return Result(docid, "refused", why)
        case "writing":
            return Result(docid, "refused", f"{docid!r} is being written")
    driver = names.parse_token(item.token).driver
    return Result(docid, "refused", f"{docid!r} is claimed by driver {driver}")


@contextmanager
def _attempts_of(queue: Queue) -> Iterator[Attempts]:
    directory = queue.private.subdirectory(ATTEMPTS, create=True)
    discarded = queue.directory.subdirectory(names.DISCARDED, create=True)
    try:
        yield Attempts(directory, discarded)
    finally:
        discarded.close()
        directory.close()


# Discard


def discard(
    queue: Queue, docids: Collection[str], states: Collection[str], reason: str, journal: Journal
) -> list[Result]:
    """Set waiting documents aside: those named, and all in one of the states."""
    came = {docid: Result(docid, "missing", f"no {docid!r} in {queue.path}") for docid in docids}
    for docid in set(queue.discarded()) & came.keys():
        came[docid] = Result(docid, "nothing to do", f"{docid!r} is discarded already")
    chosen = [
        (name, item) for name, item in queue.items() if item.docid in came or item.state in states
    ]
    # No outputs: discarding needs none, and they may be where this host cannot see them.
    handoff = Handoff(queue.directory, queue.private, (), queue.settings() or Settings())
    setbacks = Setbacks(handoff, queue.name, journal.host, journal)
    mint = names.Mint(OPERATOR, draw_salt())
    failure = Failure(cause=OPERATOR, message=reason, permanent=True)
    try:
        for name, item in chosen:
            if item.state not in ("ready", "failed", "later"):
                came[item.docid] = _not_waiting(name, item)
                continue
            token = mint.next(time.time_ns() // 1000)
            claim = handoff.claim(name, item.docid, item.attempt, token)
            now = time.time()
            if claim is None or setbacks.charge(claim, failure, now, now) == "revoked":
                why = f"{item.docid!r} was claimed just now"
                came[item.docid] = Result(item.docid, "refused", why)
            else:
                came[item.docid] = Result(item.docid, "done")
    finally:
        handoff.close()
    return list(came.values())


# Recover


class Unjudged(NamedTuple):
    """A claim of whom nobody here can say yet whether they are alive."""

    docid: str
    name: str
    driver: str
    # Empty when the driver never registered.
    host: str
    # Whether it has shown life since we look.
    stirs: bool


class Rescue:
    """Recovers one queue on an operator's behalf; `lease` overrides how long silence is life, and
    `observer` has watched the drivers for some time."""

    def __init__(
        self,
        queue: Queue,
        journal: Journal,
        lease: float | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._queue = queue
        self._journal = journal
        self._lease = lease
        self._observer = observer or Observer(lease=lease)
        self._drivers = queue.private.subdirectory(DRIVERS, create=True)
        self._handoff = handoff_of(queue)
        self._recoverer = Recoverer(
            queue.directory,
            self._drivers,
            self._handoff,
            Setbacks(self._handoff, queue.name, journal.host, journal),
            journal,
            self._observer,
        )
        # What each claimer showed when first seen.
        self._first: dict[str, object] = {}

    def close(self) -> None:
        for directory in (*self._handoff.directories(), self._drivers):
            directory.close()

    def recover(self) -> list[Event]:
        """Deal with whatever is certain now; what became of it."""
        before = len(self._journal.pending)
        self._recoverer.recover()
        return list(self._journal.pending[before:])

    def unjudged(self) -> list[Unjudged]:
        """Claims that may be a dead driver's, for all that is known here."""
        known = {one.id: (one, verdict) for one, verdict in self._recoverer.registrations()}
        me = self._observer.me
        found = []
        for name, item in self._queue.items():
            if item.state not in ("working", "written"):
                continue
            token = names.parse_token(item.token)
            registration, _ = whose(token, known)
            if registration is not None:
                them = registration.identity
                if (them.boot, them.namespace) == (me.boot, me.namespace):
                    continue
            shown = self._shown(name, registration)
            if shown is None:
                continue
            stirs = self._first.setdefault(item.token, shown) != shown
            host = registration.identity.host if registration else ""
            found.append(Unjudged(item.docid, name, token.driver, host, stirs))
        return found

    def patience(self) -> float:
        """After how long every silent driver is known to be dead."""
        if self._lease is not None:
            return self._lease
        return max([LEASE, *(one.lease for one, _ in self._recoverer.registrations())])

    def _shown(self, name: str, registration: Registration | None) -> object:
        """What changes while a claimer is alive; None when its claim is gone."""
        if registration is not None:
            return registration.beat
        try:
            return self._queue.directory.status(name).mtime_ns
        except FileNotFoundError:
            return None
