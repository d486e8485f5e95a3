"""All that is known of one document, for `show`, `why` and `history`.

Looked up by name in the queue, in `discarded/`, in the records of its attempts and in the journal.
Nothing is created or changed.
"""

import os
import stat
import time
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from queuedriver.claims.attempts import ATTEMPTS, Discarded, attempts_of
from queuedriver.claims.liveness import Observer, Registration, Verdict
from queuedriver.disk.filesystem import Directory
from queuedriver.errors import BadDocid, ConfigError, leads_nowhere
from queuedriver.format import names
from queuedriver.format.records import Attempt, Report
from queuedriver.format.settings import Publication, Settings
from queuedriver.operating.chronicle import Reading, read_history
from queuedriver.operating.queue import JOURNAL, Controls, Queue

# Of several items of one docid, the one that is farthest comes first.
_RANK = ("written", "working", "ready", "failed", "later", "discarded", "writing", "failed_twice")


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the document, and what its name and the file system say."""

    name: str
    state: str
    attempt: int = 0
    token: str = ""
    due: int = 0
    size: int = 0
    modified_at: float = 0.0
    # What it is when it is no regular file.
    kind: str = ""
    # Bytes of its usual output so far; None when there is none.
    written: int | None = None


class Dossier(NamedTuple):
    """One document at one moment."""

    docid: str
    queue: str
    at: float
    places: tuple[Place, ...]
    # Why a file of just this name is no item.
    foreign: str
    # Items of others that wait and may be tried now; and the drivers that have claims.
    others: int
    at_work: frozenset[str]
    controls: Controls
    known: dict[str, tuple[Registration, Verdict]]
    # The boot and the pid namespace of whoever looks.
    here: tuple[str, int]
    attempts: tuple[Attempt, ...]
    # Of the newest that was discarded, if several were.
    report: Report | None
    journal: Reading
    found: tuple[str, ...]

    @property
    def unknown(self) -> bool:
        """Whether nobody has ever heard of it."""
        return not (
            self.places or self.foreign or self.attempts or self.journal.events or self.found
        )


def docid_of(text: str) -> str:
    """The docid that somebody means who typed it, or the name or the path of its file."""
    name = os.path.basename(text)
    item = names.parse(name)
    return item.docid if item is not None else name


def gather(
    queue: Queue, docid: str, observer: Observer | None = None, now: float | None = None
) -> Dossier:
    """Look everywhere."""
    now = time.time() if now is None else now
    observer = observer or Observer()
    settings = _settings(queue)
    items, at_work, others = _items(queue, docid, now)
    places = [place for name, item in items if (place := _place(queue, name, item, settings))]
    discarded = _discarded(queue, docid)
    places += [place for one in discarded if (place := _discarded_place(queue, one.place))]
    places.sort(key=lambda place: _RANK.index(place.state))
    return Dossier(
        docid=docid,
        queue=queue.path,
        at=now,
        places=tuple(places),
        foreign="" if places else _foreign(queue, docid),
        others=others,
        at_work=at_work,
        controls=queue.controls(),
        known={one.id: (one, observer.judge(one)) for one in queue.registrations()},
        here=(observer.me.boot, observer.me.namespace),
        attempts=_attempts(queue, docid),
        report=discarded[0].report if discarded else None,
        journal=read_history(os.path.join(queue.path, names.PRIVATE, JOURNAL), docid),
        found=() if places else tuple(_found(queue, docid, settings)),
    )


def _settings(queue: Queue) -> Settings:
    try:
        return queue.settings() or Settings()
    except ConfigError:
        # `status` and `check` say so.
        return Settings()


def _items(
    queue: Queue, docid: str, now: float
) -> tuple[list[tuple[str, names.Item]], frozenset[str], int]:
    """The items of the docid; the drivers that have anything in hand; and how many other items
    could be tried now."""
    own = []
    at_work = set()
    others = 0
    for name, item in names.walk(queue.directory):
        if item is None:
            continue
        if item.claimed:
            at_work.add(names.parse_token(item.token).driver)
        if item.docid == docid:
            own.append((name, item))
        elif item.waits(now):
            others += 1
    return own, frozenset(at_work), others


def _place(queue: Queue, name: str, item: names.Item, settings: Settings) -> Place | None:
    try:
        found = queue.directory.inspect(name)
    except FileNotFoundError:
        return None
    return Place(
        name=name,
        state=item.state,
        attempt=item.attempt,
        token=item.token,
        due=item.due,
        size=found.st_size,
        modified_at=found.st_mtime,
        kind=kind_of(found.st_mode),
        written=_written_size(queue, item, settings) if item.state == "working" else None,
    )


def kind_of(mode: int) -> str:
    """What a file is that is not regular; "" of one that is."""
    if stat.S_ISREG(mode):
        return ""
    tests = {
        "symlink": stat.S_ISLNK,
        "directory": stat.S_ISDIR,
        "FIFO": stat.S_ISFIFO,
        "socket": stat.S_ISSOCK,
    }
    return next((kind for kind, is_kind in tests.items() if is_kind(mode)), "device")


def _written_size(queue: Queue, item: names.Item, settings: Settings) -> int | None:
    name = names.writing_name(item.docid, item.token)
    for path in settings.outputs[:1]:
        try:
            return os.stat(os.path.join(queue.path, path, name), follow_symlinks=False).st_size
        except OSError:
            return None
    return None


def _discarded(queue: Queue, docid: str) -> list[Discarded]:
    return queue.discarded_of(docid) if names.objection(docid) is None else []


def _discarded_place(queue: Queue, docid: str) -> Place | None:
    name = os.path.join(names.DISCARDED, docid)
    try:
        found = queue.directory.inspect(name)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return Place(
        name=name,
        state="discarded",
        size=found.st_size,
        modified_at=found.st_mtime,
        kind=kind_of(found.st_mode),
    )


def _foreign(queue: Queue, docid: str) -> str:
    if docid in ("", ".", "..") or "/" in docid or "\0" in docid:
        return ""
    if docid in (names.DISCARDED, names.PRIVATE, *names.CONTROLS):
        return f"it belongs to the queue itself, as every {docid!r} does"
    try:
        mode = queue.directory.inspect(docid).st_mode
    except OSError as error:
        if not leads_nowhere(error):
            raise
        return ""
    kind = kind_of(mode)
    return f"it is a {kind}" if kind else names.why_foreign(docid)


def _attempts(queue: Queue, docid: str) -> tuple[Attempt, ...]:
    directory = queue.inside(ATTEMPTS)
    if directory is None:
        return ()
    try:
        return attempts_of(directory, docid)
    finally:
        directory.close()


def _found(queue: Queue, docid: str, settings: Settings) -> Iterator[str]:
    """Where it would be if it were finished, and is."""
    for path in settings.outputs:
        try:
            final = Publication(settings.publish).name(docid)
        except BadDocid:
            return
        if _is_there(os.path.join(queue.path, path), final):
            yield os.path.join(path, final)
    if settings.archive is not None and _is_there(
        os.path.join(queue.path, settings.archive), docid
    ):
        yield os.path.join(settings.archive, docid)


def _is_there(path: str, name: str) -> bool:
    try:
        directory = Directory.open(path)
    except OSError as error:
        # What cannot be looked into may well have it.
        if not leads_nowhere(error):
            raise
        return False
    try:
        return directory.present(name)
    finally:
        directory.close()
