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

from queuedriver.claims.document import Answer, Document, Outputs, Target, Written
from queuedriver.disk.filesystem import Directory
from queuedriver.doors.words import Result, Work
from queuedriver.driving.limits import Limits
from queuedriver.errors import BadDocid, ProcessorFailed
from queuedriver.format import names
from queuedriver.format.records import Failure
from queuedriver.format.settings import Publication

_PREFIX = "queuedriver-"
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


class PrivateDirectory:
    """A temporary directory of this process alone; those that killed processes left are removed by
    whoever makes the next."""

    def __init__(self, kind: str) -> None:
        prefix = f"{_PREFIX}{kind}-"
        with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
            for entry in entries:
                if entry.name.startswith(prefix) and _is_left(entry.path):
                    shutil.rmtree(entry.path, ignore_errors=True)
        self.path = tempfile.mkdtemp(prefix=prefix)
        self.inside = Directory.open(self.path)
        # For as long as we live: whoever sweeps sees by it that we do.
        fcntl.flock(self.inside.fd, fcntl.LOCK_EX)

    def close(self) -> None:
        """Remove it."""
        self.inside.close()
        shutil.rmtree(self.path, ignore_errors=True)


def _is_left(path: str) -> bool:
    """Tell whether nobody holds the lock of a directory any more."""
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


class Workspace:
    """One worker's directory, made anew at each start. `max_message` bounds, in bytes, what comes
    of a document."""

    def __init__(self, max_message: int) -> None:
        self._max_message = max_message
        self._payload: Payload | None = None
        self._outputs: MemoryOutputs | None = None
        # Whether a document was ever in a file here, or an output.
        self._used = False
        self._make()

    def _make(self) -> None:
        private = PrivateDirectory("worker")
        self._results = private.inside.subdirectory(_RESULTS, create=True)
        self._private, self.path = private, private.path
        self._targets = (Target(_RESULTS, self._results, Publication(names.DEFAULT_PUBLISH)),)

    def close(self) -> None:
        """Remove it."""
        self._results.close()
        self._private.close()

    def lay_out(self, work: Work) -> tuple["Payload", "MemoryOutputs"]:
        """Return what a processor gets; OSError where there can be no directory for it now, which
        `trouble` tells."""
        if self._results.moved():
            # Whoever tidies up /tmp has not seen that it is in use.
            before = self._results, self._private
            self._make()
            for one in before:
                one.close()
        docid = work.docid if names.objection(work.docid) is None else _NAMELESS
        self._payload = Payload(
            docid, work.attempt, work.service, self._private.inside, _INPUT, data=work.payload
        )
        self._outputs = MemoryOutputs(docid, _TOKEN, self._targets, most=self._max_message)
        return self._payload, self._outputs

    def trouble(self) -> str:
        """Return what is wrong with it, so that no document is to blame; empty when it is well."""
        if self._results.moved():
            return f"somebody has removed {self.path}"
        room = self._results.room()
        if room.read_only or room.free_bytes < _FULL_DISK:
            state = "read-only" if room.read_only else "full"
            return f"the file system of {self.path} is {state}"
        return ""

    def clear(self) -> None:
        """Leave nothing of the document that has ended to be found by the next. Where no file was
        ever wanted there is none, and to look costs as much as all else that is done here."""
        payload, outputs = self._payload, self._outputs
        self._payload = self._outputs = None
        if payload is not None and outputs is not None:
            self._used = self._used or payload.seen or outputs.in_files
        if self._used:
            self._private.inside.remove(_INPUT)
            for name in [*self._results.names()]:
                self._results.remove_all(name)


class Payload(Document, gc=False, eq=False):
    """A document that is in memory; in a file once somebody wants one (`seen`)."""

    data: bytes = b""

    @property
    def path(self) -> str:
        """Return where its file is, made now if it was not."""
        self._to_file()
        return super().path

    def check(self) -> None:
        """Look no more: it was a file's contents when it was dealt."""

    def descriptor(self) -> int:
        """Return an open descriptor, for whoever passes it on; the caller closes it."""
        self._to_file()
        return super().descriptor()

    def read(self) -> bytes:
        """Return its contents."""
        return self.data

    def _to_file(self) -> None:
        self.seen = True
        with suppress(FileExistsError):
            self.directory.write_new(self.name, self.data)


class MemoryOutputs(Outputs, gc=False, eq=False):
    """The outputs of one document, to be sent: in memory, but for those that were wanted as
    files."""

    # Bytes that all of them may have.
    most: int = 0
    kept: dict[str, bytes] = msgspec.field(default_factory=dict)

    @property
    def in_files(self) -> bool:
        """Tell whether any of them is in a file, or was wanted in one."""
        return self.elsewhere or len(self.kept) < len(self.noted)

    def take(self, answer: Answer, limits: Limits) -> None:
        """Keep what a processor answered."""
        if type(answer) is bytes and not (self.blind or self.noted):
            self.blind = True
            self.kept[f"{self.docid}.{self.token}.writing"] = answer
        else:
            super().take(answer, limits)

    def results(self) -> tuple[Result, ...]:
        """Return what is to be sent; ProcessorFailed when that is too much."""
        if self.blind:
            (data,) = self.kept.values()
            if len(data) <= self.most:
                return (Result(data),)
        size = sum(self._size(noted) for noted in self.written)
        if size > self.most:
            message = f"what came of it has {size} bytes; a message may have {self.most}"
            raise ProcessorFailed(Failure(cause="too-large", message=message, permanent=True))
        return tuple(self._result(noted) for noted in self.written)

    def discard(self) -> None:
        """Want nothing of it."""
        self.kept.clear()
        super().discard()

    def _write(self, data: bytes, noted: Written) -> None:
        self.kept[noted.writing] = data

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
