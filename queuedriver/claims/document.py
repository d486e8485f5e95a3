"""What a processor sees of a claimed item."""

import errno
import os
from contextlib import suppress
from typing import BinaryIO

from queuedriver.claims.outcomes import Failure
from queuedriver.disk.filesystem import Directory, regular_size
from queuedriver.errors import ProcessorFailed, TakenBack, is_trouble, trouble


class Document:
    """One claimed document. Read it; never write, rename or delete it."""

    __slots__ = ("_directory", "_name", "_seen", "attempt", "docid", "queue")

    def __init__(
        self, docid: str, attempt: int, queue: str, directory: Directory, name: str
    ) -> None:
        self.docid = docid
        # How often it failed before: 0 the first time.
        self.attempt = attempt
        self.queue = queue
        self._directory = directory
        self._name = name
        # Whether anybody has looked at the file, and so found it to be one.
        self._seen = False

    def __repr__(self) -> str:
        return f"<Document {self.docid!r} of {self.queue}, attempt {self.attempt}>"

    @property
    def path(self) -> str:
        """Where its file is while it is being processed, for programs that want a name."""
        try:
            regular = self._directory.status(self._name).regular
        except FileNotFoundError as error:
            raise self._cannot(error) from None
        if not regular:
            raise _not_a_file(self.docid)
        self._seen = True
        return os.path.join(self._directory.path, self._name)

    def check(self) -> None:
        """Look now, if its processor never did: what is no file must not be taken for done."""
        if not self._seen:
            # Taken back meanwhile: then there is nothing to say, and nothing to commit.
            with suppress(FileNotFoundError):
                _ = self.path

    def descriptor(self) -> int:
        """An open descriptor, for whoever passes it on; the caller closes it."""
        try:
            fd = self._directory.open_read(self._name)
        except OSError as error:
            raise self._cannot(error) from None
        if regular_size(fd) is None:
            os.close(fd)
            raise _not_a_file(self.docid)
        self._seen = True
        return fd

    def open(self) -> BinaryIO:
        """Its contents as a stream, for documents larger than memory."""
        return os.fdopen(self.descriptor(), "rb")

    def read(self) -> bytes:
        """Its contents."""
        try:
            data = self._directory.read_regular(self._name)
        except OSError as error:
            raise self._cannot(error) from None
        if data is None:
            raise _not_a_file(self.docid)
        self._seen = True
        return data

    def _cannot(self, error: OSError) -> Exception:
        """What it means that the document could not be read."""
        if error.errno in (errno.ELOOP, errno.ENXIO):
            return _not_a_file(self.docid)
        if isinstance(error, FileNotFoundError):
            return TakenBack(error.errno, os.strerror(errno.ENOENT), self._name)
        return trouble(error, f"reading {self.docid!r}") if is_trouble(error) else error


def _not_a_file(docid: str) -> ProcessorFailed:
    message = f"{docid!r} is not a regular file (a symlink, directory, FIFO or device): not read"
    return ProcessorFailed(Failure(cause="not-a-file", message=message, permanent=True))
