"""What is written down about attempts, and the report beside a discarded document.

`attempts/<docid>.<N>.json` is one attempt that ended badly or was taken back. The docid leads the
name so that one listing finds a document's attempts without opening any other's.
`discarded/<docid>.report.json` says why a document was given up, with all its attempts.
"""

from contextlib import suppress
from typing import TypeVar

import msgspec

from queuedriver import names
from queuedriver.errors import is_trouble
from queuedriver.filesystem import Directory
from queuedriver.outcome import Failure

# More than the stacks and stderr of a hundred attempts; a limit all the same, for a file that
# others may have written.
_MAX_RECORD = 64 << 20

_Record = TypeVar("_Record", "Attempt", "Report")


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
    # The inode of the document: a later one may have its docid, and must not inherit its strikes.
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

    def write(self, attempt: Attempt, durable: bool) -> None:
        """The first word on an attempt stands: of several who recover one claim, all may write."""
        data = msgspec.json.encode(_writable(attempt))
        with suppress(FileExistsError):
            self.directory.write_first(_name(attempt.docid, attempt.token), data, durable)

    def move(self, docid: str, token: str, new_docid: str) -> None:
        """The document goes on under another docid, as its own was taken."""
        with suppress(FileNotFoundError):
            self.directory.rename(_name(docid, token), _name(new_docid, token))

    def of(self, docid: str) -> list[Attempt]:
        """The attempts at one document, oldest first."""
        found = []
        for name in self._names(docid):
            try:
                data = self.directory.read(name, _MAX_RECORD)
                found.append(msgspec.json.decode(data, type=Attempt))
            except OSError as error:
                if is_trouble(error):
                    raise
            except msgspec.DecodeError:
                # Somebody else's file, or a damaged one: a report without it is still a report.
                continue
        return sorted(found, key=lambda attempt: attempt.claimed_at)

    def forget(self, docid: str) -> None:
        """The document ended: what is to be kept of its attempts is in its report, or nowhere."""
        for name in self._names(docid):
            self.directory.remove(name)

    def _names(self, docid: str) -> list[str]:
        prefix = f"{docid}."
        # A longer docid may begin alike.
        return [
            name
            for name in self.directory.names()
            if name.startswith(prefix) and name.endswith(".json") and docid_of(name) == docid
        ]


def docid_of(record: str) -> str:
    """Whose attempt a file of the attempts directory is."""
    return record.removesuffix(".json").rpartition(".")[0]


def _name(docid: str, token: str) -> str:
    return f"{docid}.{token}.json"


def encode_report(report: Report) -> bytes:
    return msgspec.json.format(msgspec.json.encode(_writable(report)), indent=2)


def read_report(discarded: Directory, docid: str) -> Report | None:
    """The report beside a discarded document; None when there is none that can be read."""
    try:
        return msgspec.json.decode(discarded.read(docid + names.REPORT, _MAX_RECORD), type=Report)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def hidden_report(token: str) -> str:
    """Where a report is until its document is beside it."""
    return f".{token}.report"


def read_hidden_reports(discarded: Directory) -> list[tuple[str, str]]:
    """The token and the docid of each report that has not got its name yet."""
    found = []
    for name in discarded.list():
        if name.startswith(".") and name.endswith(".report"):
            try:
                report = msgspec.json.decode(discarded.read(name, _MAX_RECORD), type=Report)
            except (FileNotFoundError, msgspec.DecodeError):
                continue
            found.append((name[1:-7], report.docid))
    return found


def _writable(record: _Record) -> _Record:
    """The same, with what JSON cannot hold (lone surrogates in a message) made visible."""
    try:
        msgspec.json.encode(record)
    except UnicodeEncodeError:
        plain = msgspec.to_builtins(record)
        return msgspec.convert(_escaped(plain), type(record))
    return record


def _escaped(value: object) -> object:
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case dict():
            return {key: _escaped(item) for key, item in value.items()}
        case list() | tuple():
            return [_escaped(item) for item in value]
    return value
