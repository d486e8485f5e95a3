"""The directories of a pipeline: made once, and known again ever after.

A root that is not mounted looks like one that is empty, and to make queues there would be to work
beside the documents. So `.watchdogd/landmark` holds some random digits, and the watchdog's local
directory remembers them, and the kind of file system they were on. What is missing is made at a
watchdog's start, unless the kind differs; later, and when the digits differ, it is trouble.
"""

import contextlib
import os
from collections.abc import Collection

import msgspec

from queuedriver.disk.filesystem import Directory
from queuedriver.disk.mounts import UNKNOWN, filesystem_type
from queuedriver.errors import FileSystemTrouble
from queuedriver.format.records import decode
from queuedriver.format.settings import Publication
from queuedriver.operating.queue import Queue
from watchdogd import control
from watchdogd.pipeline.model import Pipeline

_LIMIT = 64
_MEMORY = "root.json"


class Known(msgspec.Struct, frozen=True):
    """What is remembered of a root."""

    landmark: str
    kind: str


class Root:
    """The root of a pipeline as this watchdog knows it."""

    def __init__(self, root: str, local: str, *, fresh: bool) -> None:
        self.root = root
        self._fresh = fresh
        self._memory = os.path.join(local, _MEMORY)
        self._known = _remembered(self._memory)
        # The root that was found to be the right one.
        self._identity: tuple[int, int] | None = None

    def check(self) -> None:
        """FileSystemTrouble when the root is not there, or another than it was."""
        try:
            found = os.stat(self.root)
        except FileNotFoundError:
            self._refuse_unless_fresh(f"{self.root} is not there")
            self._refuse_other_kind()
            self._settle()
            return
        landmark = self._landmark()
        known = self._known is not None and landmark == self._known.landmark
        if (found.st_dev, found.st_ino) == self._identity:
            if known:
                return
            # Somebody removed our files, and perhaps another host has made them anew.
        elif not known:
            if self._known is not None or not landmark:
                self._refuse_unless_fresh(f"{self.root} is not the directory that it was")
            if not landmark:
                self._refuse_other_kind()
        self._settle()

    def _refuse_unless_fresh(self, what: str) -> None:
        if not self._fresh:
            raise FileSystemTrouble(
                f"{what}; is it mounted? If it was removed on purpose, start watchdogd anew"
            )

    def _refuse_other_kind(self) -> None:
        """What is missing may be made, but not where a mount point shows through."""
        if self._known is None:
            return
        kind = filesystem_type(_existing(self.root))
        if kind != self._known.kind and UNKNOWN not in (kind, self._known.kind):
            raise FileSystemTrouble(
                f"{self.root} was on a file system of type {self._known.kind}, and {kind} is there "
                f"now; is it mounted? If it was moved on purpose, remove {self._memory}"
            )

    def _settle(self) -> None:
        """This is the root from now on."""
        path = os.path.join(self.root, control.CONTROL)
        directory = Directory.open(path, create=True, inside=1)
        try:
            with contextlib.suppress(FileExistsError):
                if not directory.present(control.LANDMARK):
                    directory.write_first(
                        control.LANDMARK, os.urandom(8).hex().encode(), durable=True
                    )
            for name in control.OUR_DIRECTORIES:
                directory.subdirectory(name, create=True).close()
        finally:
            directory.close()
        known = Known(self._landmark(), filesystem_type(self.root))
        if known != self._known:
            _remember(self._memory, known)
            self._known = known
        found = os.stat(self.root)
        self._identity = found.st_dev, found.st_ino
        self._fresh = False

    def _landmark(self) -> str:
        try:
            directory = Directory.open(os.path.join(self.root, control.CONTROL), inside=1)
        except (FileNotFoundError, NotADirectoryError):
            return ""
        try:
            return directory.read(control.LANDMARK, _LIMIT).decode(errors="replace")
        except FileNotFoundError:
            return ""
        finally:
            directory.close()


def prepare(pipeline: Pipeline, made: Collection[str] = ()) -> None:
    """Make the queues but those that were made before, and note which of them feed which before
    the first driver is there: a queue that knows but some of its feeds would be done too early."""
    for name in pipeline.queues:
        if name not in made:
            Directory.open(pipeline.path(name), create=True).close()
    for stage in pipeline.stages:
        is_queue = Publication(stage.publish).is_queue
        for name in stage.inputs + (stage.outputs if is_queue else ()):
            with Queue.open(pipeline.path(name)) as queue:
                _ = queue.private
                if name in stage.outputs:
                    for source in stage.inputs:
                        queue.add_feed(pipeline.path(source))


def _existing(path: str) -> str:
    """The nearest directory above that is there."""
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


def _remembered(path: str) -> Known | None:
    try:
        with open(path, "rb") as file:
            return decode(file.read(), Known)
    except (OSError, msgspec.DecodeError):
        return None


def _remember(path: str, known: Known) -> None:
    # Where this cannot be written, the next watchdog has only its eyes to go by.
    with contextlib.suppress(OSError):
        directory = Directory.open(os.path.dirname(path), create=True)
        try:
            directory.write_aside(_MEMORY, msgspec.json.encode(known))
        finally:
            directory.close()
