"""What is written down in JSON: attempts at a document, its report, the plan of a claim."""

from typing import TypeVar

import msgspec

from queuedriver.claims.outcomes import Failure
from queuedriver.disk.filesystem import Directory
from queuedriver.errors import is_trouble
from queuedriver.format.decoding import decode
from queuedriver.format.event import encodable

# More than the stacks and stderr of a hundred attempts; a limit all the same, for a file that
# others may have written.
MAX_RECORD = 64 << 20

_Kind = TypeVar("_Kind")


def read_record(
    directory: Directory, name: str, kind: type[_Kind], limit: int = 16 << 20
) -> _Kind | None:
    """Read a small file of ours; return None when it is not there, or nothing of the kind. What
    speaks of the file system is raised."""
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


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is remembered of the attempts at a document that has not ended, oldest first."""

    docid: str
    attempts: tuple[Attempt, ...] = ()
    # When it was decided to discard the document: then this is its report, and has all that a
    # report has. Seconds since the epoch; 0 while the document is to be tried again.
    discarded_at: float = 0.0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Why a document was discarded."""

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


def encode_report(report: Report | Record) -> bytes:
    """Return JSON for people to read."""
    return msgspec.json.format(msgspec.json.encode(_writable(report)), indent=2)


def _writable(record: Report | Record) -> Report | Record:
    """Make visible what JSON cannot hold (lone surrogates in a message)."""
    try:
        msgspec.json.encode(record)
    except UnicodeEncodeError:
        plain = msgspec.to_builtins(record)
        return msgspec.convert(encodable(plain), type(record))
    return record
