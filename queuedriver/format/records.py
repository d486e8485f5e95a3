"""What is written down about attempts, and the report beside a discarded document.

`attempts/<docid>.<inode>.<what>.json` is one attempt that ended badly or was taken back:

    failed, failed2, …     charged; the state that the document went on in
    released, released2    taken back uncharged; a third is charged

The inode is the document's: a later one may have its docid, and must not inherit its strikes. So a
document's records are found by exact names, however many documents have failed. Records named
`<docid>.<N>.json`, as they once were, are found by one listing for all.

`discarded/<docid>.report.json` says why a document was given up, with all its attempts.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import TypeVar

import msgspec

from queuedriver.claims.outcomes import Failure
from queuedriver.disk.filesystem import Directory
from queuedriver.errors import NotRegular, is_trouble
from queuedriver.format import names
from queuedriver.format.decoding import decode
from queuedriver.format.event import encodable

# More than the stacks and stderr of a hundred attempts; a limit all the same, for a file that
# others may have written.
_MAX_RECORD = 64 << 20

_RECORD = re.compile(r"(?s)(?P<docid>[^.].*)\.[0-9]+\.(?:failed[0-9]*|released2?)\.json")
_FORMER = re.compile(r"(?s)(?P<docid>[^.].*)\.[A-Za-z0-9_-]{1,51}\.json")
# How nearly all of them end.
_USUAL = (".failed.json", ".released.json")
_TAKEN_BACK = (".released.json", ".released2.json")

_Kind = TypeVar("_Kind")
_Record = TypeVar("_Record", "Attempt", "Report")


def read_record(
    directory: Directory, name: str, kind: type[_Kind], limit: int = 16 << 20
) -> _Kind | None:
    """A small file of ours as what it should be; None when it is not there, or nothing of the kind.
    What speaks of the file system is raised."""
    try:
        return decode(directory.read(name, limit), kind)
    except OSError as error:
        if is_trouble(error):
            raise
        return None
    except msgspec.DecodeError:
        return None


class Attempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One try at a document."""

    docid: str
    token: str
    attempt: int
    driver: str
    host: str
    claimed_at: float
    ended_at: float
    # Whether it was charged. Three that were not, for causes outside the driver, count as one.
    counted: bool
    failure: Failure
    # Of the document. 0: unknown, in records of others.
    inode: int = 0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Why a document was given up."""

    version: int = 1
    docid: str
    queue: str
    discarded_at: float
    driver: str
    host: str
    failure: Failure
    attempts: tuple[Attempt, ...]


class Plan(msgspec.Struct, frozen=True):
    """The outputs of a claim that has not just the usual one: (queue, writing name, final name)."""

    outputs: tuple[tuple[int, str, str], ...]


class Attempts:
    """The attempts directory of one queue."""

    def __init__(self, directory: Directory) -> None:
        self.directory = directory
        # The records under their former names, by docid; None until somebody asks.
        self._former: dict[str, list[str]] | None = None

    def write(self, attempt: Attempt, durable: bool) -> None:
        """The first word on an attempt stands: of several who recover one claim, all may write."""
        data = msgspec.json.encode(_writable(attempt))
        if not attempt.counted:
            for name in _released(attempt.docid, attempt.inode):
                if self._write_first(name, attempt.token, data, durable):
                    return
            # Two others know of it: a third is charged, and who comes so late finds no claim.
            return
        name = _name(attempt.docid, attempt.inode, _failed(attempt.attempt + 1))
        if not self._write_first(name, attempt.token, data, durable):
            # Of an attempt that was given back before it was charged, or of a document that is gone
            # and whose inode this one got.
            # What nobody can replace is none of ours, and the report will do without.
            with suppress(NotRegular, PermissionError):
                self.directory.write_aside(name, data, durable)

    def _write_first(self, name: str, token: str, data: bytes, durable: bool) -> bool:
        """Whether there is a record of that claim under this name now."""
        try:
            self.directory.write_first(name, data, durable)
        except FileExistsError:
            return any(one.token == token for one in self._read([name]))
        return True

    def move(self, docid: str, inode: int, attempt: int, new_docid: str) -> None:
        """The document goes on under another docid, as its own was taken."""
        old, new = (_names(one, inode, attempt) for one in (docid, new_docid))
        for here, there in zip(old, new, strict=True):
            with suppress(FileNotFoundError):
                self.directory.rename(here, there)

    def of(self, docid: str, inode: int, attempt: int) -> list[Attempt]:
        """What there was before this attempt at one document, oldest first."""
        former = self._read(self._formerly().get(docid, ()))
        ours = (one for one in former if one.inode in (inode, 0))
        return _in_order((*ours, *self._read(_names(docid, inode, attempt))))

    def listed(self, docid: str) -> list[Attempt]:
        """The attempts at all documents that had this docid, for who has but one to look at."""
        return _in_order(
            self._read(name for name in self.directory.names() if docid_of(name) == docid)
        )

    def forget(self, docid: str, inode: int, attempt: int) -> None:
        """The document ended: what is to be kept of its attempts is in its report, or nowhere."""
        self._remove((*self._formerly().pop(docid, ()), *_names(docid, inode, attempt)))

    def docids(self) -> set[str]:
        """Of which documents there are records."""
        return {docid for name in self.directory.names() if (docid := docid_of(name))}

    def taken_back(self) -> Iterator[str]:
        """Which documents were taken back uncharged before; one may be named twice."""
        for name in self.directory.names():
            match = _RECORD.fullmatch(name)
            if match and name.endswith(_TAKEN_BACK):
                yield match["docid"]

    def forget_all(self, docids: Collection[str]) -> None:
        """The same for all documents with these docids, in one listing."""
        self._remove([name for name in self.directory.names() if docid_of(name) in docids])

    def _remove(self, files: Iterable[str]) -> None:
        for name in files:
            # Another user's, in a sticky directory, or no record at all.
            with suppress(IsADirectoryError, PermissionError):
                self.directory.remove(name)

    def _formerly(self) -> dict[str, list[str]]:
        if self._former is None:
            found: dict[str, list[str]] = {}
            for name in self.directory.names():
                if not name.endswith(_USUAL) and not _RECORD.fullmatch(name):
                    found.setdefault(docid_of(name), []).append(name)
            self._former = found
        return self._former

    def _read(self, files: Iterable[str]) -> list[Attempt]:
        found = (read_record(self.directory, name, Attempt, _MAX_RECORD) for name in files)
        # Somebody else's file, or a damaged one: a report without it is still a report.
        return [one for one in found if one is not None]


def docid_of(record: str) -> str:
    """Whose attempt a file of the attempts directory is; empty when it is none."""
    match = _RECORD.fullmatch(record) or _FORMER.fullmatch(record)
    return match["docid"] if match else ""


def _in_order(attempts: Iterable[Attempt]) -> list[Attempt]:
    """Oldest first, each once: it may have been charged by one, and taken back by another."""
    once = {one.token: one for one in attempts}
    return sorted(once.values(), key=lambda attempt: attempt.claimed_at)


def _names(docid: str, inode: int, attempt: int) -> list[str]:
    """Under which names there may be a record of a document that has failed so often."""
    failed = [_name(docid, inode, _failed(times)) for times in range(1, attempt + 1)]
    return [*_released(docid, inode), *failed]


def _released(docid: str, inode: int) -> list[str]:
    return [_name(docid, inode, what) for what in ("released", "released2")]


def _failed(times: int) -> str:
    return "failed" if times == 1 else f"failed{times}"


def _name(docid: str, inode: int, what: str) -> str:
    return f"{docid}.{inode}.{what}.json"


def encode_report(report: Report) -> bytes:
    return msgspec.json.format(msgspec.json.encode(_writable(report)), indent=2)


def read_report(discarded: Directory, docid: str) -> Report | None:
    """The report beside a discarded document; None when there is none that can be read."""
    return read_record(discarded, docid + names.REPORT, Report, _MAX_RECORD)


def hidden_report(token: str) -> str:
    """Where a report is until its document is beside it."""
    return f".{token}.report"


def read_hidden_reports(discarded: Directory) -> list[tuple[str, str]]:
    """The token and the docid of each report that has not got its name yet."""
    found = []
    for name in discarded.list():
        if name.startswith(".") and name.endswith(".report"):
            report = read_record(discarded, name, Report, _MAX_RECORD)
            # Whoever forged one may want a file elsewhere to be renamed.
            if report is not None and names.objection(report.docid) is None:
                found.append((name[1:-7], report.docid))
    return found


def _writable(record: _Record) -> _Record:
    """The same, with what JSON cannot hold (lone surrogates in a message) made visible."""
    try:
        msgspec.json.encode(record)
    except UnicodeEncodeError:
        plain = msgspec.to_builtins(record)
        return msgspec.convert(encodable(plain), type(record))
    return record
