"""Rules of the hand-off, each broken on purpose: the simulation has to notice.

Each mutant is a small change of what the real code does, for as long as a `with` lasts. Its
docstring says which rule it breaks, and what comes of that; the decorator, what it takes the place
of, in which scenes it would show, and which interruptions are likely to bring it out.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from queuedriver import filesystem, handoff, names, recovery
from queuedriver.filesystem import Directory
from queuedriver.handoff import Claim, Completion, Handoff
from queuedriver.outputs import Outputs, Written
from queuedriver.setbacks import Fate, Setbacks
from queuedriver.settings import names_to_try
from tests.simulation.happenings import Interruption
from tests.simulation.scene import INPUT, OUTPUTS
from tests.simulation.schedules import KINDS, Schedule, hunt, hunt_for
from tests.simulation.seams import seam

_CRASHES = {"switch": 2, "crash": 3, "consume": 1}
_CUTS = {"switch": 1, "crash": 1, "cut": 2}
_LOST_REPLIES = {"switch": 1, "lose": 3}
_MISTAKES = {"switch": 3, "pause": 3, "silence": 1, "wake": 2}
_BAD_SIGHT = {"switch": 1, "crash": 2, "stale": 5, "lose": 3}


class Mutant(NamedTuple):
    """One rule broken."""

    name: str
    why: str
    changes: tuple[tuple[object, str, object], ...]
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

_sync, _sync_file = Directory.sync, Directory.sync_file


def mutant(
    *changes: tuple[object, str],
    kinds: Mapping[str, int] = KINDS,
    scenes: Sequence[str] = ("durable",),
    among: dict[str, Mutant] = MUTANTS,
    pattern: Sequence[tuple[int, str, int]] = (),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """What is decorated stands for all of these."""

    def note(instead: Callable[..., Any]) -> Callable[..., Any]:
        name = instead.__name__.replace("_", " ")
        why = " ".join((instead.__doc__ or "").split())
        each = tuple((where, attribute, instead) for where, attribute in changes)
        steps = tuple(Interruption(*one) for one in pattern)
        among[name] = Mutant(name, why, each, tuple(scenes), kinds, steps)
        return instead

    return note


@mutant((names.Mint, "next"), kinds=_MISTAKES)
def plain_driver_ids(self: names.Mint, now_us: int) -> str:
    """N is the driver's id, and not for one claim alone. Who was given up by mistake then takes the
    claim of somebody else's, or of its next life, for its own."""
    return f"1-{0:014x}{0:04x}"


@mutant((Handoff, "complete"), kinds=_CRASHES)
def publish_before_commit(self: Handoff, work: Sequence[tuple[Claim, Outputs]]) -> list[Completion]:
    """Outputs are visible before the claim is committed. Who dies in between, or was given up by
    mistake, has published what somebody else will publish again."""
    self._sync_outputs(work)
    completions = []
    for claim, outputs in work:
        published = self._publish_ours(claim, outputs.written)
        gone = not self._commit(claim, outputs)
        if not gone and outputs.written:
            self._finish(claim, planned=False)
        completions.append(Completion(claim, published, gone))
    return completions


@mutant((Directory, "sync_file"), kinds=_CUTS)
def outputs_are_not_synced(self: Directory, name: str) -> None:
    """The bytes of an output are not on disk when its name is: a power cut leaves some of them."""
    if self.path not in OUTPUTS:
        _sync_file(self, name)


@mutant((Directory, "sync"), kinds=_CUTS)
def output_directory_is_not_synced(self: Directory) -> None:
    """The name of an output is not on disk when the commit is: a power cut loses it."""
    if self.path not in OUTPUTS:
        _sync(self)


@mutant((Directory, "sync"), kinds=_CUTS)
def input_directory_is_not_synced(self: Directory) -> None:
    """The commit is not on disk when its output is visible: a power cut takes it back, and the
    document is done again."""
    if self.path != INPUT:
        _sync(self)


@mutant((Handoff, "claim"), kinds=_LOST_REPLIES)
def enoent_believed_at_claim(
    self: Handoff, name: str, docid: str, attempt: int, token: str
) -> Claim | None:
    """A claim whose reply was lost is taken for a lost race, and has to be taken back."""
    working = names.working_name(docid, attempt, token)
    try:
        self.queue.rename(name, working)
    except FileNotFoundError:
        return None
    return Claim(docid, attempt, token, working)


@mutant((Handoff, "committed"), (Handoff, "set_aside"), kinds=_LOST_REPLIES)
def enoent_believed_at_commit(self: Handoff, *work: Outputs) -> bool:
    """A commit whose reply was lost is taken for a claim that was taken back, and its outputs are
    removed."""
    for one in work:
        if isinstance(one, Outputs):
            one.discard()
    return False


@mutant((Handoff, "_publish"), scenes=("again",), kinds=_CRASHES)
def publish_replaces(self: Handoff, token: str, one: Written) -> str | None:
    """An output takes the place of one with its name that nobody has read yet."""
    directory = self.targets[one.queue].directory
    try:
        directory.rename_over(one.writing, one.final)
    except FileNotFoundError:
        return self._publish_orphan(directory, token, one)
    return one.final


@mutant((recovery, "move_aside"), pattern=[(0, "lose", 1), (4, "crash", 0), *[(4, "stale", 0)] * 3])
def sweeper_deletes(output: Directory, name: str) -> None:
    """Unfinished outputs whose claim cannot be seen are deleted, and not moved aside. But a claim
    that cannot be seen may be there, and committed: the reply to the commit was lost, the driver
    died of something else, and who recovers is shown an old listing, and misses both names."""
    output.remove(name)


@mutant((Handoff, "_planned"), kinds=_BAD_SIGHT)
def publishes_what_a_listing_shows(self: Handoff, claim: Claim) -> tuple[list[Written], bool]:
    """Who finishes a commit lists its outputs, and does not miss what the listing misses."""
    found = []
    for index, target in enumerate(self.targets):
        for name in target.directory.list():
            item = names.parse(name)
            if item is not None and (item.state, item.token) == (names.WRITING, claim.token):
                found.append(Written(index, name, target.publication.name(item.docid)))
    return found, True


@mutant((handoff, "_keep_both"), kinds=_CRASHES)
def publish_by_link_and_unlink(
    source: Directory, name: str, target: Directory, wanted: str, token: str
) -> str:
    """Between the two calls the output has two names, and may be published under both."""
    system = vars(filesystem)["os"]
    for final in names_to_try(wanted, token):
        try:
            system.link(name, final, src_dir_fd=source.fd, dst_dir_fd=target.fd)
        except FileExistsError:
            continue
        source.unlink(name)
        return final
    raise FileExistsError(wanted)


@mutant((Setbacks, "take_back"), kinds={"crash": 1, "reboot": 1})
def lease_counts_as_failure(
    self: Setbacks, claim: Claim, failure: Any, claimed_at: float, now: float, host: str
) -> Fate:
    """A driver that was silent for its lease is charged like one that crashed."""
    return self.charge(claim, failure, claimed_at, now, host)
