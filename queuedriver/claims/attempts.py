"""What is remembered of the attempts at a document, and the report that it becomes.

    attempts/<docid>.<inode>.<k>.json       the first k attempts that were charged or taken back
    discarded/<docid>.report.json           the last of these, when the document was discarded

The inode is the document's: a later one may have its docid, and must not inherit its strikes. So
what is remembered of a document is found by exact names, however many others have failed. Where the
file system changes inode numbers it is 1, and the docid alone tells.

Each file but 0 is made once, never replaced, and has all attempts before it: of several who recover
one claim the first decides what becomes of it, and the others follow. What is decided is written
down before it is done:

    charged, struck    the file, then the document's rename back to where it waits
    discarded          the file with the report's end, synced; the document's rename to discarded/,
                       synced; this very file's rename to the report beside it
    retried            the same backwards: the report becomes file 0, the document is renamed back,
                       the file is removed

A crash in between leaves a document in `discarded/` whose report is still in `attempts/`, under the
document's inode. `settle` puts it where it belongs; whoever only looks reads it where it is.
"""

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import NamedTuple

import msgspec

from queuedriver.disk.filesystem import Directory, move
from queuedriver.disk.mounts import filesystem_type, keeps_inodes
from queuedriver.errors import NotRegular
from queuedriver.format import names
from queuedriver.format.records import (
    MAX_RECORD,
    Attempt,
    Record,
    Report,
    decode,
    encode_report,
    read_record,
)

ATTEMPTS = "attempts"

_FILE = re.compile(
    r"(?s)(?P<docid>[^.].*)\.(?P<inode>[0-9]{1,20})\.(?P<number>0|[1-9][0-9]{0,4})\.json"
)


_RETRIED = 0
# Instead of an inode, where numbers change: no file has this one.
_ANY = 1


class File(NamedTuple):
    """The name of a file in `attempts/`, taken apart."""

    docid: str
    # Of the document.
    inode: int
    # How many attempts are in it; more where a file before it could not be read; 0 of the report of
    # a document that is being retried, and has no attempts.
    number: int

    def __str__(self) -> str:
        return f"{self.docid}.{self.inode}.{self.number}.json"


class Noted(NamedTuple):
    """What stands of a document's attempts, and where."""

    file: File
    record: Record

    def attempt(self, token: str) -> Attempt | None:
        """Return the attempt made under an N."""
        return next((one for one in self.record.attempts if one.token == token), None)


class Discarded(NamedTuple):
    """A document in `discarded/`: its name there, and why it is there, if anybody knows."""

    place: str
    report: Report | None


class Attempts:
    """The attempts at the documents of one queue, and the reports of those it discarded."""

    def __init__(self, directory: Directory, discarded: Directory) -> None:
        self.directory = directory
        self.discarded = discarded
        self._docids: frozenset[str] = frozenset()
        # When the directory had changed last as it was listed, in nanoseconds.
        self._listed_at = -1

    # Remember

    def of(self, docid: str, inode: int) -> tuple[Attempt, ...]:
        """Return what is remembered of one document, oldest first."""
        return self._newest(docid, inode).record.attempts

    def note(
        self, inode: int, attempt: Attempt, *, durable: bool = False, discarded_from: str = ""
    ) -> Noted:
        """Write down an attempt, and with the name of its queue that the document is discarded for
        it. Return what stands: somebody else may have had the first word on it."""
        taken = 0
        while True:
            noted = self._newest(attempt.docid, inode)
            if noted.attempt(attempt.token) is not None:
                if noted.record.discarded_at:
                    # Whoever wrote it may have died before its name was safe.
                    self.directory.sync()
                return noted
            file = noted.file._replace(number=max(noted.file.number, taken) + 1)
            attempts = (*noted.record.attempts, attempt)
            record = Record(attempt.docid, attempts, attempt.ended_at if discarded_from else 0.0)
            report = Report(
                docid=attempt.docid,
                queue=discarded_from,
                discarded_at=attempt.ended_at,
                driver=attempt.driver,
                host=attempt.host,
                failure=attempt.failure,
                attempts=attempts,
            )
            data = encode_report(report if discarded_from else record)
            try:
                self.directory.write_first(str(file), data, durable or bool(discarded_from))
            except FileExistsError:
                # Noted by another just now; or it was there, and a network file system hides it.
                taken = file.number
                continue
            self._docids |= {attempt.docid}
            return Noted(file, record)

    def move(self, docid: str, inode: int, new_docid: str) -> None:
        """Let a document go on under another docid, as its own was taken."""
        for old in self._files_of(docid, inode)[1:]:
            with suppress(FileNotFoundError):
                self.directory.rename(str(old), str(old._replace(docid=new_docid)))

    def forget(self, docid: str, inode: int) -> None:
        """Remove what is remembered of a document that ended."""
        # The first one last: without it the others would not be found.
        for file in reversed(self._files_of(docid, inode)):
            self.remove(file)

    def _files_of(self, docid: str, inode: int) -> list[File]:
        newest = self._newest(docid, inode).file
        return [newest._replace(number=number) for number in range(_RETRIED, newest.number + 1)]

    def docids(self) -> frozenset[str]:
        """Return the docids of which anything is remembered; listed when something has changed."""
        changed_at = self.directory.status().st_mtime_ns
        if changed_at != self._listed_at:
            self._docids = frozenset(file.docid for file in _files(self.directory))
            self._listed_at = changed_at
        return self._docids

    # Discard

    def discard(self, queue: Directory, name: str, token: str, file: File) -> str | None:
        """Move a document claimed by this N to `discarded/`, and then the report that was noted.

        Return its name there; None when it was not this process that discarded it.
        """
        place = move(queue, name, self.discarded, file.docid, token)
        if place is not None:
            # Before its report: this must not be there without the document.
            self.discarded.sync()
            queue.sync()
            self._show(file, place)
            return place
        # Taken back, discarded by somebody else, or the reply to our own rename was lost.
        place = self.settle().get(file)
        if place is None and self.is_reported(file, token):
            # What we wrote down came too late.
            self.forget(file.docid, file.inode)
        return place

    def settle(self) -> dict[File, str]:
        """Give each document whose discarding was interrupted its report; return to which file this
        was left to do, and where its document is."""
        shown: dict[File, str] = {}
        for discarded, file in list(interrupted(self.directory, self.discarded)):
            # Whoever moved the document may have died before that was safe.
            self.discarded.sync()
            if self._show(file, discarded.place):
                shown[file] = discarded.place
        return shown

    def is_reported(self, file: File, token: str) -> bool:
        """Tell whether the attempt under this N is in a report beside its document."""
        places = [file.docid]
        if names.is_token(token):
            # One that was read may be forged, to lead elsewhere.
            places.append(names.second_docid(file.docid, token))
        reports = (read_report(self.discarded, place) for place in places)
        return any(one.token == token for found in reports if found for one in found.attempts)

    def _show(self, file: File, place: str) -> bool:
        """Give a report its name; tell whether that was left to do."""
        try:
            # What may be there is of a document that was here under that name, and is gone.
            self.directory.rename_over(str(file), place + names.REPORT, self.discarded)
        except FileNotFoundError:
            return False
        for number in range(file.number - 1, _RETRIED, -1):
            self.remove(file._replace(number=number))
        return True

    # Retry

    def restore(self, queue: Directory, place: str, name: str) -> File:
        """Move a discarded document back into its queue, to a name that is not taken.

        Return its report, which is out of the way of its next, to be removed when both directories
        are safe. A crash leaves what one amid a discard does.
        """
        file = File(place, self._known_by(self.discarded.status(place).st_ino), _RETRIED)
        with suppress(FileNotFoundError):
            # Over one of an earlier retry that was interrupted, and is of no use any more.
            self.discarded.rename_over(place + names.REPORT, str(file), self.directory)
        try:
            self.discarded.rename_new(place, name, queue)
        except OSError:
            with suppress(FileNotFoundError, PermissionError):
                self.directory.rename_over(str(file), place + names.REPORT, self.discarded)
            raise
        return file

    # Files

    @cached_property
    def inodes_last(self) -> bool:
        """Tell whether a document keeps its inode number here, as far as can be known."""
        return keeps_inodes(filesystem_type(self.directory.path))

    def _known_by(self, inode: int) -> int:
        return inode if self.inodes_last else _ANY

    def _newest(self, docid: str, inode: int) -> Noted:
        """Find what stands of a document's attempts; number 0 where nothing does."""
        newest = Noted(File(docid, self._known_by(inode), 0), Record(docid))
        while True:
            file = newest.file._replace(number=newest.file.number + 1)
            try:
                record = decode(self.directory.read(str(file), MAX_RECORD), Record)
            except FileNotFoundError:
                return newest
            except (NotRegular, IsADirectoryError, PermissionError, msgspec.DecodeError):
                # Damaged, or another's: what comes after it was written without it.
                record = newest.record
            newest = Noted(file, record)

    def remove(self, file: File) -> None:
        """Remove one file that nobody wants any more."""
        # Another user's, in a sticky directory, or none of ours.
        with suppress(IsADirectoryError, PermissionError):
            self.directory.remove(str(file))


@contextmanager
def attempts_in(queue: Directory) -> Iterator[Attempts]:
    """Open what is remembered of a queue's documents, and its discarded ones."""
    with (
        queue.subdirectory(f"{names.PRIVATE}/{ATTEMPTS}", create=True) as directory,
        queue.subdirectory(names.DISCARDED, create=True) as discarded,
    ):
        yield Attempts(directory, discarded)


# Look: nothing is changed by it


def interrupted(attempts: Directory, discarded: Directory) -> Iterator[tuple[Discarded, File]]:
    """Find the discarded documents whose reports are still in `attempts/`, and where there."""
    newest: dict[tuple[str, int], File] = {}
    for file in _files(attempts):
        key = names.first_docid(file.docid), file.inode
        newest[key] = max(newest.get(key, file), file, key=lambda one: one.number)
    docids = {docid for docid, _ in newest}
    listed = {
        name
        for name in (discarded.names() if docids else ())
        if names.first_docid(name.removesuffix(names.REPORT)) in docids
    }
    for place in sorted(listed):
        if place.endswith(names.REPORT) or place + names.REPORT in listed:
            continue
        with suppress(FileNotFoundError):
            docid, inode = names.first_docid(place), discarded.status(place).st_ino
            file_of = newest.get((docid, inode)) or newest.get((docid, _ANY))
            if file_of is not None:
                report = read_record(attempts, str(file_of), Report, MAX_RECORD)
                if report is not None:
                    yield Discarded(place, report), file_of


def attempts_of(attempts: Directory, docid: str) -> tuple[Attempt, ...]:
    """Return the attempts at all documents that had this docid, oldest first."""
    found: dict[str, Attempt] = {}
    for file in sorted(one for one in _files(attempts) if one.docid == docid):
        record = read_record(attempts, str(file), Record, MAX_RECORD)
        found |= {one.token: one for one in (record.attempts if record else ())}
    return tuple(sorted(found.values(), key=lambda one: one.claimed_at))


def find_report(discarded: Directory, attempts: Directory | None, place: str) -> Report | None:
    """Return the report of a discarded document, wherever it is."""
    report = read_report(discarded, place)
    if report is not None or attempts is None:
        return report
    found = (one.report for one, _ in interrupted(attempts, discarded) if one.place == place)
    return next(found, None)


def places_of(
    discarded: Directory, attempts: Directory | None, docids: Collection[str]
) -> dict[str, list[str]]:
    """Find the documents discarded under these docids, the newest of each first: the second has a
    docid made of the first's. One that is asked for by its own name is nobody else's second."""
    found: dict[str, list[str]] = {}
    for name in discarded.names():
        docid = name if name in docids else names.first_docid(name)
        if docid in docids:
            found.setdefault(docid, []).append(name)

    def discarded_at(place: str) -> float:
        report = find_report(discarded, attempts, place)
        return report.discarded_at if report is not None else 0.0

    for places in found.values():
        if len(places) > 1:
            places.sort(key=discarded_at, reverse=True)
    return found


def read_report(discarded: Directory, place: str) -> Report | None:
    """Read the report beside a discarded document; None when there is none that can be read."""
    return read_record(discarded, place + names.REPORT, Report, MAX_RECORD)


def parse(name: str) -> File | None:
    """Take the name of a file in `attempts/` apart; None when it is none of ours."""
    found = _FILE.fullmatch(name)
    return File(found["docid"], int(found["inode"]), int(found["number"])) if found else None


def _files(attempts: Directory) -> Iterator[File]:
    for name in attempts.names():
        if (file := parse(name)) is not None:
            yield file
