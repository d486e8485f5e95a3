"""Makes the directories of a pipeline, and knows its root again ever after.

A root that is not mounted looks like one that is empty, and to make queues there would be to work
beside the documents. So `.watchdogd/landmark` holds some random digits, and the watchdog's local
directory remembers them, and the kind of file system they were on. What is missing is made at a
watchdog's start, unless the kind differs; later, and when the digits differ, it is trouble.
"""

import os
from collections.abc import Collection
from contextlib import suppress

import msgspec

from queuedriver.disk.filesystem import Directory
from queuedriver.disk.mounts import UNKNOWN, filesystem_type
from queuedriver.disk.neighbours import landmark
from queuedriver.errors import FileSystemTrouble
from queuedriver.format.records import read_record
from queuedriver.format.settings import Publication
from queuedriver.operating.queue import Queue
from watchdogd import control
from watchdogd.pipeline.model import Pipeline

_MEMORY = "root.json"
# What to do about what is not there any more.
REMOVED = "is it mounted? If it was removed on purpose, start watchdogd anew"


class Known(msgspec.Struct, frozen=True):
    """The marks by which a root is known again."""

    landmark: str
    kind: str


class Root:
    """The root of a pipeline as this watchdog knows it."""

    def __init__(self, root: str, local: str, made: Collection[str] = ()) -> None:
        self.root = root
        # Queues that were made or found: what is missing of these went away.
        self._made = made
        # Whether the root itself may be made.
        self._fresh = not made
        self._local = local
        self._known = self._remembered()
        # The root that was found to be the right one.
        self._identity: tuple[int, int] | None = None

    def check(self) -> None:
        """Raise FileSystemTrouble when the root is not there, or another than it was."""
        # One open directory from here on: the root may go away, or be mounted, between two calls.
        with self._opened() as root:
            found = os.fstat(root.fd)
            mark = landmark(root, within=control.CONTROL)
            known = self._known is not None and mark == self._known.landmark
            if (found.st_dev, found.st_ino) == self._identity:
                if known:
                    self._remember(self._known, anew=False)
                    return
                # Somebody removed our files, and perhaps another host has made them anew.
            elif not known:
                if self._known is not None or not mark:
                    self._refuse_unless_fresh(f"{self.root} is not the directory that it was")
                if not mark:
                    self._refuse_other_kind()
            self._settle(root)
        self._identity = found.st_dev, found.st_ino
        self._fresh = False

    def prepare(self, pipeline: Pipeline) -> None:
        """Make the queues but those that were made before, and note which of them feed which
        before the first driver is there: a queue that knows but some of its feeds would be done
        too early."""
        for name in pipeline.queues:
            if name not in self._made:
                Directory.open(pipeline.path(name), create=True).close()
        for stage in pipeline.stages:
            is_queue = Publication(stage.publish).is_queue
            for name in stage.inputs + (stage.outputs if is_queue else ()):
                with Queue.open(pipeline.path(name)) as queue:
                    _ = queue.private
                    if name in stage.outputs:
                        for source in stage.inputs:
                            queue.add_feed(pipeline.path(source))
        self._made = pipeline.queues

    def _opened(self) -> Directory:
        """Open the root; make it first where it may be made."""
        with suppress(FileNotFoundError):
            return Directory.open(self.root)
        self._refuse_unless_fresh(f"{self.root} is not there")
        self._refuse_other_kind()
        return Directory.open(self.root, create=True)

    def _refuse_unless_fresh(self, what: str) -> None:
        if not self._fresh:
            raise FileSystemTrouble(f"{what}; {REMOVED}")

    def _refuse_other_kind(self) -> None:
        """Refuse where a mount point shows through: what is missing may be made elsewhere."""
        there = self.root
        while not os.path.isdir(there):
            there = os.path.dirname(there)
        kind = filesystem_type(there)
        known = self._known
        if known is not None and known.kind != kind and UNKNOWN not in (known.kind, kind):
            raise FileSystemTrouble(
                f"{self.root} was on a file system of type {known.kind}, and {kind} is there "
                "now; is it mounted? If it was moved on purpose, remove "
                f"{os.path.join(self._local, _MEMORY)}"
            )

    def _settle(self, root: Directory) -> None:
        """Make what is missing of the control directory: this is the root from now on."""
        mark = landmark(root, create=True, within=control.CONTROL)
        for name in control.OUR_DIRECTORIES:
            root.subdirectory(f"{control.CONTROL}/{name}", create=True).close()
        known = Known(mark, filesystem_type(self.root))
        self._remember(known, anew=known != self._known)

    def _remembered(self) -> Known | None:
        with suppress(OSError), Directory.open(self._local) as here:
            return read_record(here, _MEMORY, Known)
        return None

    def _remember(self, known: Known | None, *, anew: bool) -> None:
        """Write down what the next watchdog is to know the root by, if it is new or was removed."""
        self._known = known
        if not anew and os.path.exists(os.path.join(self._local, _MEMORY)):
            return
        # Where this cannot be written, the next watchdog has only what it finds to go by. A local
        # directory that was removed, or moved away, is made again with the next report (report.py).
        with suppress(OSError), Directory.open(self._local, create=anew) as here:
            here.write_aside(_MEMORY, msgspec.json.encode(known))
