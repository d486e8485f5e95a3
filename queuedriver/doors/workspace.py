"""Where a worker processes what came by the network: the same document and outputs as in a queue,
in memory for as long as a processor does not want files.

Nothing that a peer sent forms a path: a document's file has one fixed name in a fresh directory of
this worker alone, and the names of outputs are checked like any.
"""

import fcntl
import os
import shutil
import tempfile
import time
from contextlib import suppress

import msgspec

from queuedriver.claims.document import Document
from queuedriver.claims.outputs import Outputs, Target, Written
from queuedriver.disk.filesystem import Directory
from queuedriver.doors.words import Result, Work
from queuedriver.errors import BadDocid, ProcessorFailed
from queuedriver.format import names
from queuedriver.format.records import Failure
from queuedriver.format.settings import Publication

_PREFIX = "queuedriver-worker-"
# A directory so young may be about to be locked; in seconds.
_YOUNG = 60.0
_INPUT = "document"
_RESULTS = "results"
# By which a document goes that the protocol does not name, or not by a name we could use.
_NAMELESS = "document"
# Any N will do: nobody else ever looks into the directory.
_TOKEN = "worker-000000000000000000"
# With less than this left, in bytes, a failure is the disk's and not the document's.
_FULL_DISK = 1 << 20


class Workspace:
    """One worker's directory, made anew at each start."""

    def __init__(self) -> None:
        self._payload: Payload | None = None
        self._sheaf: Sheaf | None = None
        # Whether a document was ever in a file here, or an output.
        self._used = False
        self._make()

    def _make(self) -> None:
        _sweep(tempfile.gettempdir())
        self._path = tempfile.mkdtemp(prefix=_PREFIX)
        self._inputs = Directory.open(self._path)
        # For as long as we live: whoever sweeps sees by it that we do.
        fcntl.flock(self._inputs.fd, fcntl.LOCK_EX)
        publication = Publication(names.DEFAULT_PUBLISH)
        self._results = self._inputs.subdirectory(_RESULTS, create=True)
        self._targets = (Target(_RESULTS, self._results, publication),)

    def close(self) -> None:
        self._results.close()
        self._inputs.close()
        shutil.rmtree(self._path, ignore_errors=True)

    def lay_out(self, work: Work) -> tuple["Payload", "Sheaf"]:
        """What a processor gets."""
        if self._results.moved():
            # Whoever tidies up /tmp has not seen that it is in use.
            self.close()
            self._make()
        docid = work.docid if names.objection(work.docid) is None else _NAMELESS
        payload = Payload(
            docid, work.attempt, work.service, self._inputs, _INPUT, data=work.payload
        )
        sheaf = Sheaf(docid, _TOKEN, self._targets)
        self._payload, self._sheaf = payload, sheaf
        return payload, sheaf

    def trouble(self) -> str:
        """What is wrong with it, so that no document is to blame; empty when it is well."""
        if self._results.moved():
            return f"somebody has removed {self._path}"
        room = self._results.room()
        if room.read_only or room.free_bytes < _FULL_DISK:
            state = "read-only" if room.read_only else "full"
            return f"the file system of {self._path} is {state}"
        return ""

    def clear(self) -> None:
        """The document has ended: nothing of it is to be found by the next. Where no file was ever
        wanted there is none, and to look costs as much as all else that is done here."""
        for one in (self._payload, self._sheaf):
            self._used = self._used or (one is not None and one.in_files)
        self._payload = self._sheaf = None
        if not self._used:
            return
        self._inputs.remove(_INPUT)
        for name in [*self._results.names()]:
            self._results.remove_all(name)


def _sweep(where: str) -> None:
    """Remove what workers that were killed have left: nobody holds the lock of their directory."""
    with suppress(OSError), os.scandir(where) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX) and _is_left(entry.path):
                shutil.rmtree(entry.path, ignore_errors=True)


def _is_left(path: str) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        found = os.fstat(fd)
        if found.st_uid != os.geteuid() or found.st_mtime > time.time() - _YOUNG:
            return False
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


class Payload(Document, gc=False, eq=False):
    """A document that is in memory; in a file once somebody wants one."""

    data: bytes = b""
    in_files: bool = False

    @property
    def path(self) -> str:
        """Where its file is, made now if it was not."""
        self._to_file()
        return super().path

    def check(self) -> None:
        """It was a file's contents when it was dealt."""

    def descriptor(self) -> int:
        """An open descriptor, for whoever passes it on; the caller closes it."""
        self._to_file()
        return super().descriptor()

    def read(self) -> bytes:
        """Its contents."""
        return self.data

    def _to_file(self) -> None:
        self.in_files = True
        with suppress(FileExistsError):
            self.directory.write_new(self.name, self.data)


class Sheaf(Outputs, gc=False, eq=False):
    """The outputs of one document, to be sent."""

    kept: dict[str, bytes] = msgspec.field(default_factory=dict)
    in_files: bool = False

    def results(self, most: int) -> tuple[Result, ...]:
        """What is to be sent: not more bytes than so many, or ProcessorFailed."""
        size = sum(self._size(noted) for noted in self.written)
        if size > most:
            message = f"what came of it has {size} bytes; a message may have {most}"
            raise ProcessorFailed(Failure(cause="too-large", message=message, permanent=True))
        return tuple(self._result(noted) for noted in self.written)

    def discard(self) -> None:
        """Nothing of it is wanted."""
        self.kept.clear()
        super().discard()

    def open_reserved(self) -> int:
        """A descriptor of a further output under the document's own docid."""
        self.in_files = True
        return super().open_reserved()

    def _write(self, data: bytes, noted: Written) -> None:
        self.kept[noted.writing] = data

    def _path(self, noted: Written) -> str:
        self.in_files = True
        return super()._path(noted)

    def _move(self, path: str, noted: Written) -> None:
        self.in_files = True
        super()._move(path, noted)

    def _size(self, noted: Written) -> int:
        data = self.kept.get(noted.writing)
        if data is not None:
            return len(data)
        return self.targets[noted.queue].directory.status(noted.writing).st_size

    def _result(self, noted: Written) -> Result:
        data = self.kept.get(noted.writing)
        if data is None:
            data = self.targets[noted.queue].directory.read_regular(noted.writing)
        if data is None:
            raise BadDocid(noted.writing, "it is not a regular file")
        docid = noted.final.removesuffix(".ready")
        return Result(data, None if docid == self.docid else docid)
