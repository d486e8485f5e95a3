"""The directories of a queue beside its items, read as they are; what is no directory is noted."""

from typing import NamedTuple

from queuedriver.check.facts import Leftover, Odd
from queuedriver.check.items import age_of
from queuedriver.claims.leftovers import SCRAPS
from queuedriver.disk.filesystem import Directory
from queuedriver.errors import is_trouble
from queuedriver.operating.document_view import kind_of
from queuedriver.operating.queue import Queue


class File(NamedTuple):
    """A name, and for how long its file was neither written nor touched nor renamed."""

    name: str
    age: float


class Shelves:
    """Opens and lists, and remembers what was odd about that."""

    def __init__(self, queue: Queue, now: float) -> None:
        self.now = now
        self.wrong_types: list[Odd] = []
        self.scraps: list[Leftover] = []
        self._queue = queue
        self._device = queue.directory.status().device
        self.elsewhere: list[str] = []

    def open(self, path: str) -> Directory | None:
        """A directory of the queue; None where there is none."""
        try:
            opened = self._queue.directory.subdirectory(path)
        except (FileNotFoundError, NotADirectoryError):
            self._note_type(path)
            return None
        if opened.status().device != self._device and path not in self.elsewhere:
            self.elsewhere.append(path)
        return opened

    def files(self, path: str) -> list[File]:
        """What is in there; what somebody began to write and left is noted as such."""
        directory = self.open(path)
        if directory is None:
            return []
        try:
            return self.listed(directory, path)
        finally:
            directory.close()

    def listed(self, directory: Directory, path: str) -> list[File]:
        found = []
        for name in directory.names():
            try:
                age = age_of(directory.inspect(name), self.now)
            except FileNotFoundError:
                continue
            if name.startswith(SCRAPS):
                self.scraps.append(Leftover(f"{path}/{name}", age))
            else:
                found.append(File(name, age))
        return found

    def _note_type(self, path: str) -> None:
        try:
            mode = self._queue.directory.inspect(path).st_mode
        except OSError as error:
            if is_trouble(error):
                raise
            # Not there; or in something that is no directory, which is noted by itself.
            return
        odd = Odd(path, f"a {kind_of(mode) or 'file'}")
        if odd not in self.wrong_types:
            self.wrong_types.append(odd)
