"""Promises, each broken on purpose: the simulation has to notice.

Each mutant is a small change for as long as a `with` lasts, mostly of what a system call does
(`broken_calls.py`). Its docstring says which rule it breaks, and what comes of that; the decorator,
what it changes, in which scenes it would show, and which interruptions are likely to bring it out.
"""

import errno
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple

from queuedriver.claims import liveness
from queuedriver.claims.attempts import Attempts, File
from queuedriver.disk import filesystem
from queuedriver.disk.filesystem import Directory
from queuedriver.format import names
from tests.simulation.broken_calls import (
    CLAIMED,
    COMMITTED,
    PUBLISHED,
    SEES,
    UNFINISHED,
    Rename,
    listed,
    memory,
    orphans,
    outputs,
    renames,
    syncs,
    token_of,
)
from tests.simulation.disk import Inode
from tests.simulation.happenings import Interruption
from tests.simulation.kernel import Kernel
from tests.simulation.scene import INPUT, entries, find
from tests.simulation.schedules import KINDS, Schedule, hunt, hunt_for
from tests.simulation.seams import seam

_CRASHES = {"switch": 2, "crash": 3, "consume": 1}
_CUTS = {"switch": 1, "crash": 1, "cut": 2}
_LOST_REPLIES = {"switch": 1, "lose": 3}
_MISTAKES = {"switch": 3, "pause": 3, "silence": 1, "wake": 2}

# Of what, which attribute, and what stands for it.
Changes = Sequence[tuple[object, str, object]]


class Mutant(NamedTuple):
    """One rule broken."""

    name: str
    why: str
    changes: Changes
    scenes: tuple[str, ...]
    kinds: Mapping[str, int]
    # What chance would hardly put together: interruptions by how many steps they come later.
    pattern: tuple[Interruption, ...] = ()

    def hunt(self) -> Schedule | None:
        """A schedule that breaks a promise; to be called while this mutant is in force."""
        if self.pattern:
            return hunt_for(self.pattern, self.scenes)
        return hunt(self.scenes, self.kinds)

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with ExitStack() as changed:
            for where, name, instead in self.changes:
                changed.enter_context(seam(where, name, instead))
            yield


MUTANTS: dict[str, Mutant] = {}


def mutant(
    changes: Callable[[Any], Changes],
    kinds: Mapping[str, int] = KINDS,
    scenes: Sequence[str] = ("durable",),
    among: dict[str, Mutant] = MUTANTS,
    pattern: Sequence[tuple[int, str, int]] = (),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """What is decorated is done instead; `changes` says of it, where."""

    def note(instead: Callable[..., Any]) -> Callable[..., Any]:
        name = instead.__name__.replace("_", " ")
        why = " ".join((instead.__doc__ or "").split())
        steps = tuple(Interruption(*one) for one in pattern)
        among[name] = Mutant(name, why, changes(instead), tuple(scenes), kinds, steps)
        return instead

    return note


def of(*attributes: tuple[object, str]) -> Callable[[Any], Changes]:
    """These stand for something else."""
    return lambda instead: [(where, name, instead) for where, name in attributes]


def _claims(rename: Rename) -> dict[str, int]:
    """Which process claimed, by the N; to be told of each rename."""
    claims: dict[str, int] = memory(rename.kernel).setdefault("claims", {})
    if rename.new.endswith(CLAIMED):
        claims[token_of(rename.new)] = rename.pid
    return claims


@mutant(of((names, "token_form")), kinds=_MISTAKES)
def one_n_for_all_claims(driver: str, salt: str) -> Callable[[int], str]:
    """N is the driver's id, and not for one claim alone. Who was given up by mistake then takes the
    claim of somebody else's, or of its next life, for its own."""
    return lambda serial: f"1-{0:014x}{0:04x}"


_open, _unlink = Kernel.open, Kernel.unlink


def _commit_late(commit: Callable[[Rename], None]) -> Changes:
    """The commit waits until somebody looks for it, or at it."""

    def now(kernel: Kernel) -> None:
        waiting = memory(kernel).pop(("commit", kernel.pid), None)
        if waiting is not None:
            waiting()

    def opened(self: Kernel, path: str, *given: Any, **named: Any) -> int:
        if path.endswith(COMMITTED):
            now(self)
        return _open(self, path, *given, **named)

    def unlinked(self: Kernel, path: str, **named: Any) -> None:
        if path.endswith(COMMITTED):
            now(self)
        _unlink(self, path, **named)

    def renamed(rename: Rename) -> None:
        if not rename.new.endswith(PUBLISHED):
            now(rename.kernel)
        commit(rename)

    return [*renames(renamed), (Kernel, "open", opened), (Kernel, "unlink", unlinked)]


@mutant(_commit_late, kinds=_CRASHES)
def publish_before_commit(rename: Rename) -> None:
    """Outputs are visible before the claim is committed. Who dies in between, or was given up by
    mistake, has published what somebody else will publish again."""
    if rename.new.endswith(COMMITTED) and rename.there():
        memory(rename.kernel)["commit", rename.pid] = rename
    else:
        rename()


@mutant(syncs, kinds=_CUTS)
def outputs_are_not_synced(kernel: Kernel, inode: Inode) -> bool:
    """The bytes of an output are not on disk when its name is: a power cut leaves some of them."""
    return not any(
        inode is one for place in outputs(kernel.disk) for one in entries(place).values()
    )


@mutant(syncs, kinds=_CUTS)
def output_directory_is_not_synced(kernel: Kernel, inode: Inode) -> bool:
    """The name of an output is not on disk when the commit is: a power cut loses it."""
    return not any(inode is place for place in outputs(kernel.disk))


@mutant(of((Kernel, "syncfs")), kinds=_CUTS, scenes=("synced as one",))
def nothing_is_synced_as_one(kernel: Kernel, fd: int) -> None:
    """Neither the bytes nor the name of an output are on disk when the commit is."""


_fsync, _sync_all = Kernel.fsync, Directory.sync_all
_WORN = {"switch": 1, "unwritten": 2, "cut": 2}


@mutant(of((Kernel, "fsync")), kinds=_WORN, scenes=("unwritten",))
def a_sync_that_fails_is_not_heard(self: Kernel, fd: int) -> None:
    """Bytes that the disk did not take are published, and gone after a power cut."""
    with suppress(OSError):
        _fsync(self, fd)


@mutant(of((Directory, "sync_all")), kinds=_WORN, scenes=("unwritten as one",))
def a_sync_that_failed_is_made_again(self: Directory) -> None:
    """What the disk did not take is told once. Who asks again is told that all is well, and
    publishes what a power cut takes away."""
    try:
        _sync_all(self)
    except OSError:
        _sync_all(self)


@mutant(syncs, kinds=_CUTS)
def input_directory_is_not_synced(kernel: Kernel, inode: Inode) -> bool:
    """The commit is not on disk when its output is visible: a power cut takes it back, and the
    document is done again."""
    return inode is not find(kernel.disk, INPUT)


def _disbelieving(state: str) -> Callable[[Callable[[Rename], None]], Changes]:
    """A name in this state is not seen by whoever was told that it could not be made."""

    def changes(instead: Callable[[Rename], None]) -> Changes:
        def renamed(rename: Rename) -> None:
            try:
                instead(rename)
            except FileNotFoundError:
                if rename.new.endswith(state):
                    memory(rename.kernel)["doubted", rename.pid] = rename.new
                raise

        def opened(self: Kernel, path: str, *given: Any, **named: Any) -> int:
            if memory(self).get(("doubted", self.pid)) == path:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            return _open(self, path, *given, **named)

        return [*renames(renamed), (Kernel, "open", opened)]

    return changes


@mutant(_disbelieving(CLAIMED), kinds=_LOST_REPLIES)
def enoent_believed_at_claim(rename: Rename) -> None:
    """A claim whose reply was lost is taken for a lost race, and has to be taken back."""
    rename()


@mutant(_disbelieving(COMMITTED), kinds=_LOST_REPLIES)
def enoent_believed_at_commit(rename: Rename) -> None:
    """A commit whose reply was lost is taken for a claim that was taken back, and its outputs are
    removed."""
    if any(rename.target is one for one in orphans(rename.kernel.disk)):
        rename.removing()
    else:
        rename()


@mutant(renames, scenes=("again",), kinds=_CRASHES)
def publish_replaces(rename: Rename) -> None:
    """An output takes the place of one with its name that nobody has read yet."""
    if rename.new.endswith(PUBLISHED) and rename.old.endswith(UNFINISHED):
        rename.replacing()
    else:
        rename()


@mutant(
    lambda instead: [*renames(instead), SEES],
    pattern=[(0, "lose", 1), (6, "crash", 0), *[(6, "stale", 0)] * 3],
)
def sweeper_deletes(rename: Rename) -> None:
    """Unfinished outputs whose claim cannot be seen are deleted, and not moved aside. But a claim
    that cannot be seen may be there, and committed: the reply to the commit was lost, the driver
    died of something else, and who recovers is shown an old listing, and misses both names."""
    aside = any(rename.target is one for one in orphans(rename.kernel.disk))
    if aside and rename.old in listed(rename.kernel, rename.source):
        rename.removing()
    else:
        rename()


@mutant(renames, scenes=("one host",), kinds={"crash": 1, "stale": 3})
def publishes_what_a_listing_shows(rename: Rename) -> None:
    """Who finishes a commit lists its outputs, and does not miss what the listing misses."""
    claims = _claims(rename)
    theirs = rename.old.endswith(UNFINISHED) and claims.get(token_of(rename.old)) != rename.pid
    if theirs and rename.new.endswith(PUBLISHED) and rename.source_fd is not None:
        seen = dict(rename.kernel.listed(rename.source_fd))
        if rename.old not in seen:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), rename.old)
    rename()


@mutant(renames, kinds=_CRASHES)
def publish_by_link_and_unlink(rename: Rename) -> None:
    """Between the two calls the output has two names, and may be published under both."""
    if rename.new.endswith(PUBLISHED) and rename.old.endswith(UNFINISHED):
        rename.linking()
    else:
        rename()


_judge = liveness.Observer.judge


@mutant(of((liveness.Observer, "judge")), kinds={"crash": 1, "reboot": 1})
def lease_counts_as_failure(self: liveness.Observer, *given: Any) -> str:
    """A driver that was silent for its lease is charged like one that crashed."""
    verdict = _judge(self, *given)
    return "dead" if verdict in ("lost", "rebooted") else verdict


@mutant(of((Attempts, "discard")), scenes=("poison",), pattern=[(0, "crash", 0)])
def report_before_its_document(
    self: Attempts, queue: Directory, name: str, token: str, file: File
) -> str | None:
    """The report leaves `attempts/` before its document is discarded. Who recovers a crash in
    between finds the document as one that was never tried, and its report tells of the last attempt
    alone."""
    self._show(file, file.docid)
    return filesystem.move(queue, name, self.discarded, file.docid, token)
