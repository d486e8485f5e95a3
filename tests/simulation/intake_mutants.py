"""The rules of how an intake takes, each broken on purpose: the simulation has to notice."""

import itertools
import math
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any, NamedTuple

from queuedriver.disk.filesystem import Directory
from queuedriver.format import names
from queuedriver.intake import handover, ledger, watcher
from queuedriver.intake.examining import examine
from queuedriver.intake.handover import Claim, Handover
from queuedriver.intake.ledger import Ledger
from queuedriver.intake.options import Told
from queuedriver.intake.rules import Facts, Past, Verdict, Waits
from tests.simulation.happenings import Interruption
from tests.simulation.intakes import KINDS, SCENES, IntakeSchedule, draw
from tests.simulation.kernel import Kernel
from tests.simulation.schedules import broken
from tests.simulation.seams import seam

_MOVES = ("one file system", "two file systems", "two on one host")
_COPIES = ("two file systems", "two on one host")
_LEAVES = ("leave", "leave on one host")
_CRASHES = {"switch": 4, "crash": 6, "consume": 3}
_RACES = {"switch": 10, "pause": 3, "wake": 2}

Hunt = Callable[[tuple[str, ...], Mapping[str, int]], IntakeSchedule | None]
# Of what, which attribute, and what stands for it.
Changes = Sequence[tuple[object, str, object]]


def hunt(
    scenes: Sequence[str], kinds: Mapping[str, int] = KINDS, seeds: int = 4000
) -> IntakeSchedule | None:
    """The first schedule that breaks a promise."""
    return next((one for seed in range(seeds) if broken(one := draw(seed, scenes, kinds))), None)


class Mutant(NamedTuple):
    """One rule broken."""

    why: str
    changes: Changes
    scenes: tuple[str, ...]
    kinds: Mapping[str, int]
    # What chance would hardly put together.
    hunts: Hunt = hunt

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with ExitStack() as changed:
            for where, name, instead in self.changes:
                changed.enter_context(seam(where, name, instead))
            yield

    def hunt(self) -> IntakeSchedule | None:
        """A schedule that breaks a promise; to be called while this mutant is in force."""
        return self.hunts(self.scenes, self.kinds)


INTAKE_MUTANTS: dict[str, Mutant] = {}


def mutant(
    *places: tuple[object, str],
    scenes: tuple[str, ...] = _MOVES,
    kinds: Mapping[str, int] = KINDS,
    also: Changes = (),
    hunts: Hunt = hunt,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """What is decorated stands for these; and others, for what they say."""

    def note(instead: Callable[..., Any]) -> Callable[..., Any]:
        name = instead.__name__.strip("_").replace("_", " ")
        why = " ".join((instead.__doc__ or "").split())
        changes = [*((where, attribute, instead) for where, attribute in places), *also]
        INTAKE_MUTANTS[name] = Mutant(why, changes, scenes, kinds, hunts)
        return instead

    return note


@mutant((watcher, "examine"), kinds={"switch": 1})
def no_seal(
    told: Told, home: Directory, name: str, past: Past | None, now: float, **said: Any
) -> tuple[Past | None, Verdict]:
    """A claimed file enters without a look whether its writer is done."""
    past, verdict = examine(told, home, name, past, now, **said)
    return past, None if said else verdict


@mutant((watcher, "examine"))
def back_over_the_name(
    told: Told, home: Directory, name: str, past: Past | None, now: float, **said: Any
) -> tuple[Past | None, Verdict]:
    """A claim that is not sealed is renamed back, over what has been dropped meanwhile."""
    past, verdict = examine(told, home, name, past, now, **said)
    item = names.parse(name)
    if said and isinstance(verdict, Waits) and item is not None:
        with closing(Directory.open(os.path.dirname(home.path))) as folder:
            home.rename_over(name, item.docid, folder)
        raise FileNotFoundError
    return past, verdict


@mutant((names, "token_form"), kinds={**_CRASHES, "pause": 4, "silence": 2, "wake": 2})
def names_without_n(driver: str, salt: str) -> Callable[[int], str]:
    """Claims and copies are named by the file alone: who was taken for dead goes on with what is
    another's by now."""
    return lambda serial: f"1-{0:014x}{0:04x}"


@mutant((Handover, "_commit"), scenes=_COPIES[:1], kinds={"crash": 3, "consume": 1})
def no_commit(self: Handover, claim: Claim, source: int) -> bool:
    """A copy is published before its claim is committed: who dies in between brings it again."""
    self._publish(claim)
    self.claims.rename(claim.working, claim.written)
    return True


_rename = Kernel.rename


def _stale_after_commit(scenes: tuple[str, ...], _: Mapping[str, int]) -> IntakeSchedule | None:
    """Kill an intake right after its first commit, and show whoever recovers an old listing."""
    scene = SCENES[scenes[0]]
    commits: list[float] = []

    def rename(self: Kernel, src: str, dst: str, **named: int | None) -> None:
        if dst.endswith(f".{names.WRITTEN}"):
            commits.append(self.taken)
        _rename(self, src, dst, **named)

    with seam(Kernel, "rename", rename):
        # With what never comes, so that old listings are kept as in those below.
        broken(IntakeSchedule(scene, (Interruption(1 << 30, "stale", 0),)))
    for killed, shown, age in itertools.product((2, 1, 3), range(1, 60), (2, 1)):
        at = int(commits[0]) + killed
        both = Interruption(at, "crash", 0), Interruption(at + shown, "stale", age)
        if broken(IntakeSchedule(scene, both)):
            return IntakeSchedule(scene, both)
    return None


_recover_one = Handover._recover


def _deletes(output: Directory, source: Directory, name: str) -> None:
    source.remove(name)


@mutant(
    (Handover, "_recover"),
    scenes=("two on one host",),
    hunts=_stale_after_commit,
    also=((handover, "move_aside", _deletes),),
)
def sweeper_deletes(self: Handover, name: str, item: names.Item) -> Claim | None:
    """A copy whose claim a listing does not show, and nobody asks for by its name, is deleted, and
    not moved aside: it may have been committed."""
    if item.state != names.WRITING:
        return _recover_one(self, name, item)
    self.copies.remove(name)
    return None


_recover = Handover.recover


@mutant((Handover, "recover"), kinds=_CRASHES)
def asks_the_queue(
    self: Handover, held: Collection[str], now: float, *, blocked: bool
) -> Iterator[Claim]:
    """Whoever recovers a claim looks whether its document is in the queue already: a newer one of
    its name may be there."""
    home = self.home.directory
    for name, item in list(names.walk(home)):
        if item is not None and item.state == names.WORKING and item.token not in held:
            there = self.queue.present(names.waiting_name(item.docid, 0))
            if there and self.home.is_gone(item.token):
                home.remove(name)
    yield from _recover(self, held, now, blocked=blocked)


_set = Ledger._set


@mutant((Ledger, "_set"), scenes=_LEAVES, kinds=_CRASHES)
def ledger_after_publishing(self: Ledger, claim: Claim) -> bool:
    """A copy is published before the ledger says that it was taken."""
    self._publish(claim)
    return _set(self, claim)


_copy = Handover._copy


@mutant((Handover, "_copy"), scenes=_LEAVES, kinds=_CRASHES)
def ledger_before_the_copy(self: Handover, source: int, name: str) -> None:
    """The ledger says that a file was taken before it is copied: nobody knows how far that got."""
    item = names.parse(name)
    assert item is not None
    self.claims.rename(names.working_name(item.docid, 0, item.token), item.docid)
    _copy(self, source, name)


_rename_new = Directory.rename_new


@mutant((Directory, "rename_new"), scenes=_LEAVES, kinds=_RACES)
def no_test_and_set(self: Directory, old: str, new: str, to: Directory | None = None) -> None:
    """Whoever writes into the ledger replaces what is there: both take the file."""
    if self.path.endswith(ledger.LEDGER):
        self.rename_over(old, new)
    else:
        _rename_new(self, old, new, to)


@mutant((ledger, "key_of"), scenes=_LEAVES, kinds={"switch": 1})
def paths_alone(path: str, facts: Facts) -> str:
    """The ledger knows paths, and not what was there: a second drop is taken for the first."""
    return path.encode().hex().ljust(40, "0")


_sweep = Ledger.sweep


def _late_to_win(scenes: tuple[str, ...], _: Mapping[str, int]) -> IntakeSchedule | None:
    """Have an intake stand still right before it would win, until another has won, and forgotten
    that."""
    scene = SCENES[scenes[0]]
    run = IntakeSchedule(scene, ()).run()
    tries: list[float] = []

    def late(self: Ledger, claim: Claim) -> bool:
        tries.append(run.world.kernel.taken)
        return _set(self, claim)

    with seam(Ledger, "_set", late):
        run()
    for before, which, tidied in itertools.product((0, 1), range(3), range(20, 160, 10)):
        at = int(tries[0]) + before
        both = Interruption(at, "pause", which), Interruption(at + tidied, "tidy", 0)
        if broken(IntakeSchedule(scene, both)):
            return IntakeSchedule(scene, both)
    return None


@mutant(
    (Ledger, "sweep"),
    scenes=_LEAVES,
    hunts=_late_to_win,
    also=(
        (watcher, "SWEEP_EVERY", 0.0),
        (ledger, "_REMEMBERED", -math.inf),
        # As the simulated one is called.
        (ledger, "_NUMBERED", ("nfs4",)),
    ),
)
def forgets_at_once(self: Ledger) -> None:
    """What is gone is forgotten while somebody copies it, who has looked for the last time."""
    for part in sorted({int(key[0], 16) for key in self.known}):
        self.parts = part
        _sweep(self)


@mutant((Ledger, "_is_as_it_was"), scenes=_LEAVES)
def no_verify(self: Ledger, claim: Claim, source: int) -> bool:
    """What was copied is not compared with what had settled, nor is asked who writes."""
    return True
