"""What a processor sees of a claimed item."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

import msgspec

from queuedriver.disk.filesystem import Directory, regular_size
from queuedriver.errors import ProcessorFailed, TakenBack, is_trouble, trouble
from queuedriver.format.records import Failure


class Document(msgspec.Struct, gc=False, eq=False):
    """One claimed document. Read it; never write, rename or delete it."""

    docid: str
    # How often it failed before: 0 the first time.
    attempt: int
    # The name of its queue.
    queue: str
    # Where its file is now.
    directory: Directory
    name: str
    # Whether anybody has looked at the file, and so found it to be one.
    seen: bool = False

    def __repr__(self) -> str:
        return f"<Document {self.docid!r} of {self.queue}, attempt {self.attempt}>"

    @property
    def path(self) -> str:
        """Return where its file is while it is being processed, for programs that want a name."""
        with self._told():
            regular = self.directory.is_regular(self.name)
        if not regular:
            raise _not_a_file(self.docid)
        self.seen = True
        return os.path.join(self.directory.path, self.name)

    def check(self) -> None:
        """Look now, if its processor never did: what is no file must not be taken for done."""
        if not self.seen:
            # Taken back meanwhile: then there is nothing to say, and nothing to commit.
            with suppress(FileNotFoundError):
                _ = self.path

    def size(self) -> int:
        """Return how many bytes its file has; 0 when it is gone."""
        with suppress(FileNotFoundError):
            return self.directory.status(self.name).st_size
        return 0

    def descriptor(self) -> int:
        """Return an open descriptor, for whoever passes it on; the caller closes it."""
        with self._told():
            fd = self.directory.open_read(self.name)
        if regular_size(fd) is None:
            os.close(fd)
            raise _not_a_file(self.docid)
        self.seen = True
        return fd

    def open(self) -> BinaryIO:
        """Open its contents as a stream, for documents larger than memory."""
        return os.fdopen(self.descriptor(), "rb")

    def read(self) -> bytes:
        """Return its contents."""
        try:
            data = self.directory.read_regular(self.name)
        except OSError:
            with self._told():
                raise
        if data is None:
            raise _not_a_file(self.docid)
        self.seen = True
        return data

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Tell what it means that the document cannot be read."""
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):
                raise _not_a_file(self.docid) from None
            if isinstance(error, FileNotFoundError):
                raise TakenBack(error.errno, os.strerror(errno.ENOENT), self.name) from None
            if is_trouble(error):
                raise trouble(error, f"reading {self.docid!r}") from None
            raise


def _not_a_file(docid: str) -> ProcessorFailed:
    message = f"{docid!r} is not a regular file (a symlink, directory, FIFO or device): not read"
    return ProcessorFailed(Failure(cause="not-a-file", message=message, permanent=True))
