"""People and programs beside the queue, who take outputs, move directories, and fill the disk.

What they do is done at once and is no step. What they will undo again, they undo a while later; at
the end of a run at once.
"""

import errno
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from queuedriver.format import names
from tests.simulation.disk import Inode
from tests.simulation.reckoning import Ledger, output_directories
from tests.simulation.scene import INPUT, ROOT, TODAY, Scene, entries, find
from tests.simulation.world import World

# Seconds until a directory that was moved away is put back, and until a full disk has room.
_AWAY = 30.0
_FULL = 300.0


class Shade(NamedTuple):
    """How full a disk is."""

    # How many bytes can be written yet, and whether files can be made.
    room: int
    takes_files: bool = True
    says: int = errno.ENOSPC


# No byte; a name's worth; a record or two; what a probe writes, but no large output; no more names.
SHADES = (
    Shade(0),
    Shade(12),
    Shade(700),
    Shade(3 << 20),
    Shade(0, says=errno.EDQUOT),
    Shade(1 << 20, takes_files=False),
)


class Outsiders:
    """Acts by the kinds of their interruptions; each returns what a story says of it."""

    def __init__(self, world: World, scene: Scene, ledger: Ledger) -> None:
        self._world = world
        self._scene = scene
        self._ledger = ledger
        self._undone: list[Callable[[], None]] = []
        self._number = 0
        self.acts: Mapping[str, Callable[[int], str]] = {
            "consume": self._consume,
            "turn": self._turn,
            "replace": self._replace,
            "away": self._away,
            "fill": self._fill,
        }

    def end(self) -> None:
        """What was to be undone later, is undone."""
        while self._undone:
            self._undone.pop()()

    def restart(self) -> None:
        """After a power cut, which ends everybody."""
        for act in self._undone:
            self._start(act, _AWAY)

    def outputs(self) -> Iterator[tuple[str, ...]]:
        """Where the outputs may be by now, for whoever is told that a claim cannot be recovered."""
        label = {"today": "out"}
        found = [(name, kind) for name, kind, _ in output_directories(self._world.disk)]
        of_each = [
            [
                f"{ROOT}/{name}"
                for name, kind in found
                if kind == label.get(_name(path), _name(path))
            ]
            for path in self._scene.outputs
        ]
        return itertools.product(*of_each)

    # Acts

    def _consume(self, which: int) -> str:
        """Somebody who takes outputs, durably, and does not give them back."""
        disk = self._world.disk
        for _, label, directory in output_directories(disk):
            for name, inode in list(entries(directory).items()):
                if name.endswith(f".{names.READY}"):
                    disk.change((directory, name, None))
                    self._ledger.take(label, inode.data)
            disk.sync(directory)
        return "somebody takes all outputs"

    def _turn(self, which: int) -> str:
        """At midnight, the symlink that is the output leads to the next day's directory."""
        self._number += 1
        day = f"day-{self._number}"
        self._change(day, self._world.disk.new(directory=True))
        self._lead(f"{ROOT}/{day}")
        return f"ln -sfn {day} today"

    def _replace(self, which: int) -> str:
        """`mv out out.1; mkdir out`, some time between the two or none."""
        name = _name(self._scene.outputs[which % len(self._scene.outputs)])
        if not self._move(name):
            return "nothing is there to be moved"

        def make() -> None:
            if name not in self._root():
                self._change(name, self._world.disk.new(directory=True))

        if which // 2 % 2:
            self._later(make)
            return f"mv {name} {name}.{self._number}"
        make()
        return f"mv {name} {name}.{self._number}; mkdir {name}"

    def _away(self, which: int) -> str:
        """A directory is moved away, and is put back."""
        name = _name((INPUT, *self._scene.outputs)[which % (1 + len(self._scene.outputs))])
        if not self._move(name):
            return "nothing is there to be moved"
        moved = f"{name}.{self._number}"

        def put_back() -> None:
            if name not in self._root() or self._move(name):
                self._rename(moved, name)

        self._later(put_back)
        return f"mv {name} {moved}"

    def _fill(self, which: int) -> str:
        """Somebody else's files leave little room, for a while."""
        disk, shade = self._world.disk, SHADES[which % len(SHADES)]
        disk.capacity = disk.used + shade.room
        disk.takes_files, disk.says_full = shade.takes_files, shade.says

        def make_room() -> None:
            disk.capacity, disk.takes_files = None, True

        self._later(make_room, _FULL)
        files = "" if shade.takes_files else " and no file"
        return f"the disk is full, but for {shade.room} bytes{files}"

    # How

    def _later(self, act: Callable[[], None], seconds: float = _AWAY) -> None:
        """Undo something when so much time has passed, or at the end of the run."""
        self._undone.append(act)
        self._start(act, seconds)

    def _start(self, act: Callable[[], None], seconds: float) -> None:
        def undo() -> None:
            self._world.sleep(seconds)
            if act in self._undone:
                self._undone.remove(act)
                act()

        # On no host of the queue's: none goes down with one of those.
        self._world.start("somebody", self._world.host("elsewhere"), undo, works=False)

    def _root(self) -> dict[str, Inode]:
        return entries(find(self._world.disk, ROOT))

    def _change(self, name: str, inode: Inode | None) -> None:
        """Durably: who does this by hand is not one to lose it."""
        disk = self._world.disk
        root = find(disk, ROOT)
        disk.change((root, name, inode))
        disk.sync(root)

    def _rename(self, old: str, new: str) -> None:
        disk = self._world.disk
        root = find(disk, ROOT)
        disk.change((root, old, None), (root, new, entries(root)[old]))
        disk.sync(root)

    def _move(self, name: str) -> bool:
        """Move a directory away, if it is there."""
        if name not in self._root():
            return False
        self._number += 1
        self._rename(name, f"{name}.{self._number}")
        return True

    def _lead(self, path: str) -> None:
        self._change(_name(TODAY), self._world.disk.new(target=path))


def _name(path: str) -> str:
    return path.rpartition("/")[2]
