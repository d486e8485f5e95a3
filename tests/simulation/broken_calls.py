"""System calls that break a rule on behalf of the product.

A mutant is a call that does something else than it was asked for: it leaves a sync out, replaces
what it must not, does two things in the other order. So it says which rule it breaks in the words
of what is on the disk, and goes on meaning that however the product is written.
"""

from collections.abc import Callable
from typing import Any

from queuedriver.format import names
from tests.simulation.disk import Disk, Inode, Listing
from tests.simulation.kernel import Kernel
from tests.simulation.reckoning import output_directories
from tests.simulation.scene import INPUT, ROOT, entries, find

COMMITTED = f".{names.WRITTEN}"
CLAIMED = f".{names.WORKING}"
PUBLISHED = f".{names.READY}"
UNFINISHED = f".{names.WRITING}"

_rename, _fsync = Kernel.rename, Kernel.fsync


class Rename:
    """A rename as it was asked for, whichever call it is."""

    def __init__(self, kernel: Kernel, call: Callable[..., None], given: Any, named: Any) -> None:
        self.kernel, self._call, self._given, self._named = kernel, call, given, named
        self.old, self.new = given[:2]
        if len(given) > 2:
            self.source_fd, self.target_fd = given[2:]
        else:
            self.source_fd, self.target_fd = named.get("src_dir_fd"), named.get("dst_dir_fd")

    def __call__(self) -> None:
        self._call(self.kernel, *self._given, **self._named)

    @property
    def pid(self) -> int:
        return self.kernel.pid

    @property
    def source(self) -> Inode:
        return self.kernel._parent(self.old, self.source_fd)[0]

    @property
    def target(self) -> Inode:
        return self.kernel._parent(self.new, self.target_fd)[0]

    def there(self) -> bool:
        """Whether there is something to be renamed."""
        return self.old in entries(self.source)

    def replacing(self) -> None:
        _rename(
            self.kernel, self.old, self.new, src_dir_fd=self.source_fd, dst_dir_fd=self.target_fd
        )

    def linking(self) -> None:
        """The second name first, and then away with the first."""
        self.kernel.link(self.old, self.new, src_dir_fd=self.source_fd, dst_dir_fd=self.target_fd)
        self.kernel.unlink(self.old, dir_fd=self.source_fd)

    def removing(self) -> None:
        """There is nothing to be renamed any more."""
        self.kernel.unlink(self.old, dir_fd=self.source_fd)


def renames(replace: Callable[[Rename], None]) -> tuple[tuple[object, str, object], ...]:
    """Both calls that rename, done in another way."""

    def instead_of(name: str) -> tuple[object, str, object]:
        call = getattr(Kernel, name)

        def rename(self: Kernel, *given: Any, **named: Any) -> None:
            replace(Rename(self, call, given, named))

        return Kernel, name, rename

    return instead_of("rename"), instead_of("rename_noreplace")


def syncs(safe: Callable[[Kernel, Inode], bool]) -> tuple[tuple[object, str, object], ...]:
    """A sync does nothing but where it is said to be safe."""

    def sync(self: Kernel, fd: int) -> None:
        if safe(self, self._open(fd).inode):
            _fsync(self, fd)

    return ((Kernel, "fsync", sync),)


def memory(kernel: Kernel) -> dict[Any, Any]:
    """What a mutant remembers of a run."""
    found: dict[Any, Any] = kernel.__dict__.setdefault("_of_mutants", {})
    return found


def listed(kernel: Kernel, directory: Inode) -> set[str]:
    """What a process was shown when it last listed a directory, if `sees` is in force."""
    seen: set[str] = memory(kernel).get(("listed", kernel.pid, directory.number), set())
    return seen


_listed = Kernel.listed


def _list(self: Kernel, fd: int) -> Listing:
    found = _listed(self, fd)
    number = self._open(fd).inode.number
    memory(self)["listed", self.pid, number] = {name for name, _ in found}
    return found


SEES: tuple[object, str, object] = (Kernel, "listed", _list)


def token_of(name: str) -> str:
    """The N in a name; empty without one."""
    item = names.parse(name)
    return item.token if item is not None else ""


def outputs(disk: Disk) -> list[Inode]:
    return [directory for _, _, directory in output_directories(disk)]


def private(disk: Disk, name: str) -> Inode:
    """One of the directories that the input keeps."""
    return find(disk, f"{INPUT}/{names.PRIVATE}/{name}")


def orphans(disk: Disk) -> list[Inode]:
    places = entries(find(disk, ROOT))
    return [find(disk, f"{ROOT}/{place}/{names.PRIVATE}/orphans") for place in places]
