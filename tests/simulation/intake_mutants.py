"""The rules of how an intake takes, each broken on purpose: the simulation has to notice."""

import itertools
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any, NamedTuple

from queuedriver.disk.filesystem import Directory
from queuedriver.format import names
from queuedriver.format.records import read_record
from queuedriver.intake import ledger
from queuedriver.intake.examining import Examined, Examiner
from queuedriver.intake.handover import Claim, Handover
from queuedriver.intake.into import Into
from queuedriver.intake.ledger import Ledger
from queuedriver.intake.rules import Facts, Past, Taken, Waits
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


_of_claim = Examiner.of_claim


@mutant((Examiner, "of_claim"), kinds={"switch": 1})
def no_seal(
    self: Examiner, home: Directory, name: str, known: Facts | None, past: Past | None, now: float
) -> Examined:
    """A claimed file enters without a look whether its writer is done."""
    return Examined(_of_claim(self, home, name, known, past, now).past, Taken())


@mutant((Examiner, "of_claim"), kinds={"switch": 1})
def back_over_the_name(
    self: Examiner, home: Directory, name: str, known: Facts | None, past: Past | None, now: float
) -> Examined:
    """A claim that is not sealed is renamed back, over what has been dropped meanwhile."""
    found = _of_claim(self, home, name, known, past, now)
    item = names.parse(name)
    if isinstance(found.verdict, Waits) and item is not None:
        with closing(Directory.open(os.path.dirname(home.path))) as folder:
            home.rename_over(name, item.docid, folder)
        raise FileNotFoundError
    return found


@mutant((names, "token_form"), kinds={**_CRASHES, "pause": 4, "silence": 2, "wake": 2})
def names_without_n(driver: str, salt: str) -> Callable[[int], str]:
    """Claims and copies are named by the file alone: who was taken for dead goes on with what is
    another's by now."""
    return lambda serial: f"1-{0:014x}{0:04x}"


@mutant((Handover, "_commit"), scenes=_COPIES[:1], kinds={"crash": 3, "consume": 1})
def no_commit(self: Handover, claim: Claim) -> bool:
    """A copy is published before its claim is committed: who dies in between brings it again."""
    self._into.publish(claim.copy, claim.docid, claim.token)
    self.home.directory.rename(claim.working, claim.written)
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


def _unseen(self: Handover, copy: names.Item, held: Collection[str]) -> bool:
    """Whether a listing did not show a claim of this copy, which nobody asks for by its name."""
    is_ours = copy.state == names.WRITING and self.home.knows(copy.token)
    return is_ours and self.home.is_gone(copy.token, held)


@mutant(
    (Into, "set_aside"),
    scenes=("two on one host",),
    hunts=_stale_after_commit,
    also=((Handover, "_is_unclaimed", _unseen),),
)
def sweeper_deletes(self: Into, aside: str) -> None:
    """A copy whose claim a listing does not show is deleted, and not moved aside: it may have been
    committed."""
    self.copies.remove(aside)


_recover = Handover.recover


@mutant((Handover, "recover"), kinds=_CRASHES)
def asks_the_queue(self: Handover, held: set[str]) -> None:
    """Whoever recovers a claim looks whether its document is in the queue already: a newer one of
    its name may be there."""
    home = self.home.directory
    for name, item in list(names.walk(home)):
        if item is not None and item.state == names.WORKING and item.token not in held:
            there = self._into.queue.present(names.waiting_name(item.docid, 0))
            if there and self.home.is_gone(item.token):
                home.remove(name)
    _recover(self, held)


_set = Ledger._set


@mutant((Ledger, "_set"), scenes=_LEAVES, kinds=_CRASHES)
def ledger_after_publishing(self: Ledger, key: str, token: str) -> bool:
    """A copy is published before the ledger says that it was taken."""
    self._into.publish(ledger._copy(key, token), _docid(self, key, token), token)
    return _set(self, key, token)


def _docid(one: Ledger, key: str, token: str) -> str:
    entry = read_record(one._ledger, ledger._entry(key, token), ledger.Entry)
    return entry.docid if entry is not None else "gone"


_copy = Into.copy


@mutant((Into, "copy"), scenes=_LEAVES, kinds=_CRASHES)
def ledger_before_the_copy(self: Into, source: int, aside: str) -> None:
    """The ledger says that a file was taken before it is copied: nobody knows how far that got."""
    key, _, token = aside.removesuffix(ledger._COPY).partition(".")
    with closing(self.copies.subdirectory(ledger.LEDGER)) as place:
        place.rename(ledger._entry(key, token), key)
    _copy(self, source, aside)


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


_forget = Ledger.forget


def _late_to_win(scenes: tuple[str, ...], _: Mapping[str, int]) -> IntakeSchedule | None:
    """Have an intake stand still right before it would win, until another has won, and forgotten
    that."""
    scene = SCENES[scenes[0]]
    run = IntakeSchedule(scene, ()).run()
    tries: list[float] = []

    def late(self: Ledger, key: str, token: str) -> bool:
        tries.append(run.world.kernel.taken)
        return _set(self, key, token)

    with seam(Ledger, "_set", late):
        run()
    for before, which, tidied in itertools.product((0, 1), range(3), range(20, 160, 10)):
        at = int(tries[0]) + before
        both = Interruption(at, "pause", which), Interruption(at + tidied, "tidy", 0)
        if broken(IntakeSchedule(scene, both)):
            return IntakeSchedule(scene, both)
    return None


@mutant((Ledger, "forget"), scenes=_LEAVES, hunts=_late_to_win)
def forgets_while_it_is_copied(self: Ledger, now: float) -> None:
    """What is gone is forgotten while somebody copies it, who has looked for the last time."""
    with seam(Ledger, "_begun", lambda _: iter(())):
        _forget(self, now)


class _AsItWas(tuple[object, ...]):
    """Equal to everything."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = tuple.__hash__


_take = Ledger.take


@mutant((Ledger, "take"), scenes=_LEAVES)
def no_verify(self: Ledger, path: str, docid: str, facts: Facts, *, ask: bool) -> bool:
    """What was copied is not compared with what had settled, nor is asked who writes."""
    with seam(ledger, "look_at", lambda *_: _AsItWas()):
        return _take(self, path, docid, facts, ask=False)
