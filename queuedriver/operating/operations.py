"""What an operator does to the documents of a queue: retry, discard, recover.

    retry      discarded/d   → d.ready, its report gone      d.failed, d.<due>.later → d.ready
    replay     archive/d     → d.ready, too: a hard link, or a copy where there can be none
    discard    d.ready, .failed, .later → discarded/d, with a report: claimed first, as a driver
               would, so that no driver takes it meanwhile
    recover    what dead drivers left, where no driver runs that would do it (`recovery.py`)

Any number of operators may work beside any number of drivers: each move is one rename, and who
comes second finds nothing. One that is killed amid a discard leaves a claim like a dead driver's,
which is given back.
"""

import errno
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Literal, NamedTuple

from queuedriver.claims.attempts import Attempts, File, attempts_in, places_of, read_report
from queuedriver.claims.charging import charge
from queuedriver.claims.liveness import Observer, Roster
from queuedriver.disk.filesystem import Directory
from queuedriver.disk.journal import Journal, journal_path, submitter
from queuedriver.driving.setup import queue_of
from queuedriver.errors import AlreadyThere, BadArgument, explained
from queuedriver.format import names
from queuedriver.format.names import OPERATOR
from queuedriver.format.records import Event, Failure
from queuedriver.format.settings import Settings
from queuedriver.format.units import format_count
from queuedriver.operating.queue import Queue

# What is noted of an item that begins anew, by the state that it had.
_BEGUN = {"failed": "it had failed", "later": "it was not due"}

# Another file system, one without hard links or with too many of them, another user's file.
_NO_LINK = frozenset(
    {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES}
)


class Result(NamedTuple):
    """What came of one docid, and why when it is not what was asked for."""

    docid: str
    came: Literal["done", "nothing to do", "refused", "missing"]
    why: str = ""


@contextmanager
def journal_of(queue: Queue) -> Iterator[Journal]:
    """Open the journal in which the operators of this host note what they did."""
    host = Observer().me.host
    with closing(Journal(journal_path(queue.path), submitter(host, OPERATOR), host)) as journal:
        yield journal


# Retry


def resume(queue: Queue) -> None:
    """Let a stage go on that has stopped itself, and note it."""
    if queue.go_on():
        with journal_of(queue) as journal:
            journal.note("untripped", message="an operator has resumed it")


def retry(queue: Queue, docids: Collection[str], journal: Journal) -> list[Result]:
    """Let documents be tried again as if they never had been."""
    wanted = [docid for docid in docids if names.objection(docid) is None]
    came = {docid: Result(docid, "missing", f"no {docid!r} in {queue.path}") for docid in docids}
    with attempts_in(queue.directory) as attempts:
        attempts.settle()
        places = places_of(attempts.discarded, attempts.directory, set(wanted))
        moved = _from_discarded(queue, attempts, places.items(), came)
        moved |= _from_waiting(queue, attempts, set(wanted) - moved.keys(), came)
    return _begun(queue, moved, came, journal)


def retry_seen(queue: Queue, seen: Mapping[str, float], journal: Journal) -> list[Result]:
    """Retry just these documents: by their names in `discarded/`, each with when it was discarded,
    as somebody has seen it; 0 where its report was lost. One that has come since, under the name of
    one that has left, is another document, and stays."""
    left = "is not discarded any more as it was when it was listed"
    came = {docid: Result(docid, "refused", f"{docid!r} {left}") for docid in seen}
    with attempts_in(queue.directory) as attempts:
        attempts.settle()
        places = (
            (docid, [docid])
            for docid, discarded_at in seen.items()
            if names.objection(docid) is None
            and _discarded_at(attempts.discarded, docid) == discarded_at
        )
        moved = _from_discarded(queue, attempts, places, came)
    return _begun(queue, moved, came, journal)


def _discarded_at(discarded: Directory, place: str) -> float:
    report = read_report(discarded, place)
    return report.discarded_at if report is not None else 0.0


def _begun(
    queue: Queue, moved: Mapping[str, str], came: Mapping[str, Result], journal: Journal
) -> list[Result]:
    """Make what was moved safe, and note it."""
    if moved:
        queue.directory.sync()
    for docid, message in moved.items():
        journal.note("retried", docid, message=message)
    return list(came.values())


def _from_discarded(
    queue: Queue,
    attempts: Attempts,
    wanted: Iterable[tuple[str, list[str]]],
    came: dict[str, Result],
) -> dict[str, str]:
    """Take documents out of `discarded/`: of each docid the first of its names there, which is the
    newest, under the docid that was asked for. Return which, and what to note."""
    moved: dict[str, str] = {}
    restored: list[File] = []
    discarded = attempts.discarded
    for docid, places in wanted:
        ready = names.waiting_name(docid, 0)
        try:
            restored.append(attempts.restore(queue.directory, places[0], ready))
        except FileNotFoundError:
            continue
        except FileExistsError:
            why = f"another {docid!r} waits already; it stays in {discarded.path}"
            came[docid] = Result(docid, "refused", why)
        except PermissionError:
            why = f"{docid!r} may not be moved out of {discarded.path}: permission denied"
            came[docid] = Result(docid, "refused", why)
        else:
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


def _from_waiting(
    queue: Queue, attempts: Attempts, wanted: Collection[str], came: dict[str, Result]
) -> dict[str, str]:
    """Let what has failed, or is not due, begin anew; return which, and what to note."""
    moved: dict[str, str] = {}
    for name, item in [one for one in queue.items() if one[1].docid in wanted]:
        docid, ready = item.docid, names.waiting_name(item.docid, 0)
        if item.state not in _BEGUN:
            if came[docid].came == "missing":
                came[docid] = _not_waiting(name, item)
            continue
        try:
            if not queue.directory.present(ready):
                # Before it waits anew: what is noted from then on is not ours to remove.
                attempts.forget(docid, queue.directory.status(name).st_ino)
            queue.directory.rename_new(name, ready)
        except FileNotFoundError:
            came[docid] = Result(docid, "refused", f"{docid!r} was claimed just now")
        except FileExistsError:
            came[docid] = Result(docid, "refused", f"another {docid!r} waits already")
        else:
            moved[docid] = _BEGUN[item.state]
            came[docid] = Result(docid, "done")
    return moved


def _not_waiting(name: str, item: names.Item) -> Result:
    """Say why an item is not to be moved."""
    docid, driver = item.docid, names.parse_token(item.token).driver
    words = {
        "ready": f"{docid!r} waits already",
        "failed_twice": f"{docid!r} was discarded by another program, and its contents are gone: "
        f"{name}",
        "writing": f"{docid!r} is being written",
    }
    why = words.get(item.state, f"{docid!r} is claimed by driver {driver}")
    return Result(docid, "nothing to do" if item.state == "ready" else "refused", why)


# Replay


def replay(
    queue: Queue, archive: Directory, docids: Iterable[str], journal: Journal
) -> list[Result]:
    """Let documents that went through, and were archived, be processed once more. The archive keeps
    what it has: of one file there are two names then, until the document is archived again."""
    queue.check_open()
    here = {item.docid for _, item in queue.items()}
    came = []
    for docid in docids:
        if names.objection(docid) is not None or not _is_file(archive, docid):
            came.append(Result(docid, "missing", f"no {docid!r} in {archive.path}"))
        elif docid not in here and _put_again(queue, archive, docid):
            journal.note("submitted", docid, message=f"once more, from {archive.path}")
            came.append(Result(docid, "done"))
        else:
            came.append(Result(docid, "refused", f"a document {docid!r} is in the queue already"))
    queue.directory.sync()
    return came


def _is_file(directory: Directory, name: str) -> bool:
    with suppress(FileNotFoundError):
        return directory.is_regular(name)
    return False


def _put_again(queue: Queue, archive: Directory, docid: str) -> bool:
    """Give an archived file a name in its queue; return False where that is taken."""
    ready = names.waiting_name(docid, 0)
    try:
        os.link(docid, ready, src_dir_fd=archive.fd, dst_dir_fd=queue.directory.fd)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        try:
            queue.submit(docid, os.path.join(archive.path, docid))
        except AlreadyThere:
            return False
    return True


# Discard


def discard(
    queue: Queue, docids: Collection[str], states: Collection[str], reason: str, journal: Journal
) -> list[Result]:
    """Discard waiting documents: those named, and all in one of the states."""
    came = {docid: Result(docid, "missing", f"no {docid!r} in {queue.path}") for docid in docids}
    for docid in set(queue.discarded()) & came.keys():
        came[docid] = Result(docid, "nothing to do", f"{docid!r} is discarded already")
    chosen = [
        (name, item) for name, item in queue.items() if item.docid in came or item.state in states
    ]
    failure = Failure(cause=OPERATOR, message=reason, permanent=True)
    with queue_of(queue.directory, journal, Observer(), outputs=False) as one:
        for name, item in chosen:
            if item.state not in names.WAITING:
                came[item.docid] = _not_waiting(name, item)
                continue
            claims = list(one.claim([name]))
            if not claims or charge(claims[0], failure, time.time()) == "revoked":
                why = f"{item.docid!r} was claimed just now"
                came[item.docid] = Result(item.docid, "refused", why)
            else:
                came[item.docid] = Result(item.docid, "done")
    return list(came.values())


# Recover


class Unjudged(NamedTuple):
    """A claim of which nobody here can say yet whether its driver is alive."""

    docid: str
    name: str
    driver: str
    # Empty when the driver never registered.
    host: str


class Recovered(NamedTuple):
    """What became of the claims of dead drivers, and which claims may be a dead driver's."""

    events: list[Event]
    unjudged: list[Unjudged]
    # Attempts that were charged: for which cause, and whether the document was discarded.
    failed: list[tuple[str, bool]]


def recover(
    queue: Queue, journal: Journal, observer: Observer | None = None, outputs: Sequence[str] = ()
) -> Recovered:
    """Finish or take back what dead drivers left, as far as it is certain now.

    An `observer` may know how long silence may be life, instead of what the drivers say, and may
    have watched them for some time. `outputs` are where the outputs are, if these are no longer
    the directories that the settings lead to.
    """
    before = len(journal.pending)
    _check_outputs(queue, outputs)
    observer = observer or Observer()
    failed: list[tuple[str, bool]] = []
    with queue_of(queue.directory, journal, observer, elsewhere=outputs) as one:
        one.failed = lambda cause, *, discarded: failed.append((cause, discarded))
        one.recoverer.recover()
        unjudged = list(_unjudged(queue, one.recoverer.roster))
        return Recovered(journal.pending[before:], unjudged, failed)


def _check_outputs(queue: Queue, outputs: Sequence[str]) -> None:
    """Raise where these are not as many outputs as the queue has, or not there."""
    have = queue.settings() or Settings()
    if outputs and len(outputs) != len(have.outputs):
        number = format_count(len(have.outputs), "output")
        raise BadArgument(f"{queue.path} has {number}: name each, in their order")
    for path in outputs:
        with explained(path):
            Directory.open(path).close()


def _unjudged(queue: Queue, roster: Roster) -> Iterator[Unjudged]:
    for name, item in queue.items():
        if item.claimed:
            owner = roster.owner(names.parse_token(item.token))
            if not owner.here and queue.directory.present(name):
                yield Unjudged(item.docid, name, owner.id, owner.host)
