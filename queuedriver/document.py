"""What a processor sees of a claimed item."""

import errno
import os
from typing import BinaryIO

from queuedriver.errors import ProcessorFailed, is_trouble, trouble
from queuedriver.filesystem import Directory, read_up_to, regular_size
from queuedriver.outcome import Failure


class Document:
    """One claimed document. Read it; never write, rename or delete it."""

    __slots__ = ("_directory", "_name", "attempt", "docid", "queue")

    def __init__(
        self, docid: str, attempt: int, queue: str, directory: Directory, name: str
    ) -> None:
        self.docid = docid
        # How often it failed before: 0 the first time.
        self.attempt = attempt
        self.queue = queue
        self._directory = directory
        self._name = name

    def __repr__(self) -> str:
        return f"<Document {self.docid!r} of {self.queue}, attempt {self.attempt}>"

    @property
    def path(self) -> str:
        """Where its file is while it is being processed, for programs that want a name."""
        if not self._directory.status(self._name).regular:
            raise _not_a_file(self.docid)
        return os.path.join(self._directory.path, self._name)

    def descriptor(self) -> int:
        """An open descriptor, for whoever passes it on; the caller closes it."""
        try:
            fd = self._directory.open_read(self._name)
        except OSError as error:
            raise self._cannot(error) from None
        if regular_size(fd) is None:
            os.close(fd)
            raise _not_a_file(self.docid)
        return fd

    def open(self) -> BinaryIO:
        """Its contents as a stream, for documents larger than memory."""
        return os.fdopen(self.descriptor(), "rb")

    def read(self) -> bytes:
        """Its contents."""
        fd = -1
        try:
            fd = self._directory.open_read(self._name)
            size = regular_size(fd)
            if size is None:
                raise _not_a_file(self.docid)
            return read_up_to(fd, size)
        except OSError as error:
            raise self._cannot(error) from None
        finally:
            if fd >= 0:
                os.close(fd)

    def _cannot(self, error: OSError) -> Exception:
        """What it means that the document could not be read."""
        if error.errno in (errno.ELOOP, errno.ENXIO):
            return _not_a_file(self.docid)
        return trouble(error, f"reading {self.docid!r}") if is_trouble(error) else error


def _not_a_file(docid: str) -> ProcessorFailed:
    message = f"{docid!r} is not a regular file (a symlink, directory, FIFO or device): not read"
    return ProcessorFailed(Failure(cause="not-a-file", message=message, permanent=True))
