"""The hand-off: one document from its input queue to its outputs, with one commit point.

    I/d.ready ─claim→ I/d.N.working ─commit→ I/d.N.written ─finish→ gone, or in the archive
                       │  O/x.N.writing written before,  ─publish→ O/x.ready after the commit
                       ├─fail→     I/d.failed   on the last attempt: I/discarded/d, with its report
                       ├─release→  I/d.ready    uncharged, back to where it came from
                       └─postpone→ I/d.<due>.later

Every step that starts from a name with an N is one rename, and finding nothing there means that
somebody else has done it or taken it back. So any number of recoverers may work at once, and each
step may be repeated. `hand_over` takes the usual document through the last three steps without a
look; whatever stops it, `complete` goes on where the claim's name says. What a crash leaves:

    before the commit   `.working` and perhaps `.writing`: the claim is charged or released, and the
                        outputs are moved to `orphans/`
    after the commit    `.written`: whoever finds it publishes and finishes
    amid a discard      the report in `attempts/`: who recovers puts it beside its document
"""

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

import msgspec

from queuedriver.claims.document import Document, Outputs, Written
from queuedriver.claims.outcomes import OF_THE_ITEM
from queuedriver.disk.filesystem import NOREPLACE, Directory, c_name, move, sync_written
from queuedriver.disk.mounts import is_local
from queuedriver.errors import FileSystemTrouble, OutputMissing
from queuedriver.format import names
from queuedriver.format.records import Plan, decode

if TYPE_CHECKING:
    from queuedriver.claims.input_queue import InputQueue

ORPHANS = "orphans"
ORPHANS_INSIDE = os.path.join(names.PRIVATE, ORPHANS)
CLAIMS = "claims"


# How a claim ended. "" while it is at hand; "stuck": it is left to whoever recovers it, as its
# output cannot be published, or not even its attempts can be read.
Fate = Literal[
    "", "published", "finished", "failed", "discarded", "released", "later", "revoked", "stuck"
]


def plan_name(token: str) -> str:
    """Return the name of the file that says what a claim's outputs will be called."""
    return f"{token}.json"


def planned_by(name: str) -> str:
    """Return whose N a plan is of, by its name."""
    return name.removesuffix(".json")


class Claim(Document, gc=False, eq=False):
    """The sole right of one N to one item; to its processor, a document."""

    token: str = ""
    of: "InputQueue" = None  # type: ignore[assignment]
    outputs: Outputs = None  # type: ignore[assignment]
    fate: Fate = ""
    # The names under which its outputs became visible.
    published: tuple[str, ...] = ()
    # The name under which it waits again.
    waits_as: str = ""

    @property
    def committed(self) -> bool:
        """Return whether its outputs will be published, whatever happens to us now."""
        return self.name.endswith(".written")

    @property
    def written_name(self) -> str:
        """Return its name once it is committed."""
        return names.written_name(self.docid, self.attempt, self.token)

    def inode(self) -> int:
        """Return the inode of the document, by which the records of its attempts are found; 0 when
        it is gone."""
        try:
            return self.directory.status(self.name).st_ino
        except FileNotFoundError:
            # Taken back meanwhile: whatever follows will find nothing to do.
            return 0


# The usual document


def hand_over(claim: Claim) -> bool:
    """Commit, publish and finish a claim of which all is as usual, without a look. False: not all
    of it was done, and `complete` goes on from the name that the claim has then.

    Usual is: one output under the default name, written here or looked for since, of a document
    that never failed nor was troubled, in a queue that is not durable, has no archive and keeps
    both of two equal names, where a rename can refuse to replace (`InputQueue.plain`,
    `Outputs.make_blind`).
    """
    stem = claim.outputs.stem
    source, output, rename_new = claim.of.handing
    written = stem + ".written"
    final = claim.docid + ".ready"
    try:
        os.rename(claim.name, written, src_dir_fd=source, dst_dir_fd=source)
        claim.name = written
        if rename_new(output, c_name(stem + ".writing"), output, c_name(final), NOREPLACE):
            return False
        claim.published = (final,)
        os.unlink(written, dir_fd=source)
    except OSError:
        return False
    claim.fate = "published"
    return True


# Any document


def complete(queue: "InputQueue", claims: Sequence[Claim]) -> None:
    """Commit, publish and finish claims whose outputs are written: every step for all of them
    before the next. Each claim's `fate` says what became of it.

    An OSError leaves each claim as its name says: those that are committed will be finished by any
    later pass, those that are not may still be released.
    """
    if queue.durable:
        sync_outputs(queue, claims)
    for claim in claims:
        write_plan(queue, claim)
    # Known as long as the document is there: without outputs the commit ends it.
    inodes = [claim.inode() if claim.attempt else 0 for claim in claims]
    for claim in claims:
        commit(queue, claim)
    _conclude(queue, claims, inodes)


def _conclude(
    queue: "InputQueue", claims: Sequence[Claim], inodes: Sequence[int], *, ours: bool = True
) -> None:
    """Publish and finish what is committed."""
    if queue.durable:
        # A power cut would take the commit back, but not what was published.
        queue.directory.sync()
    for claim in claims:
        if not claim.fate:
            publish(queue, claim, ours=ours)
    if queue.durable:
        for index in set().union(*(claim.outputs.queues for claim in claims)):
            queue.targets[index].directory.sync()
    for claim, inode in zip(claims, inodes, strict=True):
        # Of one that was taken back the plan stays: whoever finds it committed after all publishes
        # by it from among the orphans.
        if claim.fate in ("", "finished"):
            finish(queue, claim, inode)
    if queue.durable and queue.archive is not None:
        # Of all of them at once: what a power cut takes back of this is finished again.
        queue.archive.sync()


def sync_outputs(queue: "InputQueue", claims: Sequence[Claim]) -> None:
    """Make outputs safe before the commit: a power cut must not leave a published name without its
    bytes."""
    for index, target in enumerate(queue.targets):
        claims_of = {name: claim for claim in claims for name in claim.outputs.writing(index)}
        if not claims_of:
            continue
        # Bytes that were written here need no look; what else was written is looked for.
        usual = all(claim.outputs.blind for claim in claims)
        sync = sync_written if usual else Directory.sync_files
        for name in sync(target.directory, list(claims_of)):
            # Swept aside, because the claim was taken back: the commit will say so.
            if queue.directory.present(claims_of[name].name):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        # Also after all was synced, of which kernels say that it went well on a file system that
        # they have made read-only, or whose disk is gone.
        target.directory.sync()


def write_plan(queue: "InputQueue", claim: Claim) -> None:
    """Write down which outputs a claim has, unless recovery can tell without."""
    if claim.outputs.need_plan and not claim.committed:
        outputs = claim.outputs.written
        plan = Plan(tuple((one.queue, one.writing, one.final) for one in outputs))
        queue.plans.write_aside(plan_name(claim.token), msgspec.json.encode(plan), queue.durable)


def commit(queue: "InputQueue", claim: Claim) -> None:
    """Commit: the one atomic moment. The fate is "revoked" when the claim had been taken back, and
    "finished" of one without an output: that has ended, whatever becomes of others."""
    outputs = claim.outputs
    if claim.committed:
        return
    if not (outputs.blind or outputs.noted):
        claim.fate = "finished" if put_away(queue, claim) else "revoked"
        return
    commit_by_name(queue, claim)


def commit_by_name(queue: "InputQueue", claim: Claim) -> None:
    """Commit a claim, be it without an output: its file stays until `finish`."""
    written = claim.written_name
    try:
        queue.directory.rename(claim.name, written)
    except FileNotFoundError:
        # Or it was the reply that was lost, not the rename.
        if not committed(queue, claim):
            set_aside(queue, claim.outputs)
            claim.fate = "revoked"
            return
    claim.name = written


def committed(queue: "InputQueue", claim: Claim) -> bool:
    """Tell whether its commit happened, whatever the file system said about it."""
    return queue.directory.present(claim.written_name)


def set_aside(queue: "InputQueue", outputs: Outputs) -> None:
    """Move to the orphans what was written under a claim that seems to have been taken back.

    Not deleted: a network file system that has lost the reply to our commit may also have told us,
    wrongly, that it did not happen. Then whoever publishes looks among the orphans.
    """
    for one in outputs.written:
        output = queue.targets[one.queue].directory
        move_aside(output, output, one.writing)
    outputs.clear()


def publish(queue: "InputQueue", claim: Claim, *, ours: bool = True) -> None:
    """Make a claim's outputs visible. The fate of one of ours is "stuck" where the operating system
    lets us not, as where another user's file is in the way: whoever recovers it will see."""
    if claim.published:
        return
    try:
        claim.published = tuple(
            _publish(queue, claim, one, ours=ours) for one in claim.outputs.written
        )
    except OSError as error:
        if not ours or error.errno not in OF_THE_ITEM:
            raise
        # Raises where the output is to blame.
        queue.check_writable()
        claim.fate = "stuck"
        why = error.strerror
        message = f"its output cannot be published ({why}); whoever recovers it tries again"
        queue.note("stuck", claim, message=message)


def _publish(queue: "InputQueue", claim: Claim, one: Written, *, ours: bool) -> str:
    """Make one output visible; return the name it got."""
    directory, token = queue.targets[one.queue].directory, claim.token
    replace = queue.settings.existing == "replace"
    final = make_visible(directory, directory, one.writing, one.final, token, replace=replace)
    if final is None and ours and queue.directory.present(claim.name):
        # Nobody else has published it who would not finish it, too, so it is not where we wrote it;
        # unless somebody else's kernel has renamed it for us, and the reply was lost.
        if is_local(directory.status().st_dev):
            queue.missing.add(one.writing)
        raise FileSystemTrouble(
            errno.ENOENT, f"{one.writing} is not in {directory.path}, and nobody has published it"
        )
    if final is None and not ours and (one.writing in queue.missing or directory.moved()):
        # We know better than to believe that it was published; or whoever wrote it went by the
        # path, and that leads elsewhere.
        raise OutputMissing(directory.path, one.writing)
    # Otherwise somebody has published it for us, as the commit entitles everybody to.
    return final or one.final


def make_visible(
    output: Directory,
    source: Directory,
    name: str,
    final: str,
    token: str,
    *,
    replace: bool = False,
) -> str | None:
    """Rename what was written to where it is an item of an output queue, or from the orphans, where
    a sweeper moved it who could not see its claim; return its name there. None: it is in neither.
    """
    found = move(source, name, output, final, token, replace)
    if found is None:
        with suppress(FileNotFoundError), output.subdirectory(ORPHANS_INSIDE) as orphans:
            found = move(orphans, name, output, final, token, replace)
    return found


def finish(queue: "InputQueue", claim: Claim, inode: int = 0) -> None:
    """Drop the input, and what was written down for its end. A crash before it leaves a `.written`
    that anyone finishes again."""
    if claim.committed:
        # Gone: a recoverer was as fast as we; the outputs are published either way.
        put_away(queue, claim)
    if claim.outputs.need_plan:
        queue.plans.remove(plan_name(claim.token))
    if claim.attempt:
        queue.attempts.forget(claim.docid, inode)
    claim.fate = "published" if claim.published else "finished"


def put_away(queue: "InputQueue", claim: Claim) -> bool:
    """Remove the input, or move it to the archive. False when it was gone."""
    if queue.archive is None or _is_archived(queue, claim):
        return queue.directory.remove(claim.name)
    return move(queue.directory, claim.name, queue.archive, claim.docid, claim.token) is not None


def _is_archived(queue: "InputQueue", claim: Claim) -> bool:
    """Return whether the archive has this very file under its docid: a document that is replayed.
    Numbers of files alone do not say so: some file systems give many files one."""
    if queue.archive is None:
        return False
    try:
        ours = queue.directory.status(claim.name)
        if ours.st_nlink == 1:
            return False
        theirs = queue.archive.status(claim.docid)
    except FileNotFoundError:
        return False
    telling = ("st_dev", "st_ino", "st_nlink", "st_size", "st_mtime_ns")
    return all(getattr(ours, one) == getattr(theirs, one) for one in telling)


# What somebody else committed


def finish_written(
    queue: "InputQueue", item: names.Item, name: str, made_for: Sequence[str] = ()
) -> tuple[str, ...]:
    """Publish and finish what somebody committed; by whoever finds it, however often.

    `made_for`: see `find_written`.
    """
    claim = find_written(queue, item, name, made_for)
    inode = claim.inode() if claim.attempt else 0
    _conclude(queue, [claim], [inode], ours=False)
    # It may have one that it did not need.
    queue.plans.remove(plan_name(claim.token))
    return claim.published


def find_written(
    queue: "InputQueue", item: names.Item, name: str, made_for: Sequence[str] = ()
) -> Claim:
    """Return what somebody committed, as a claim with its outputs.

    `made_for` is what its driver opened its outputs as; empty when that is not known.
    OutputMissing when it cannot be finished here.
    """
    claim = queue.claim_of(item, name)
    claim.outputs.noted = planned_outputs(queue, claim)
    for one in claim.outputs.noted if made_for else ():
        target = queue.targets[one.queue]
        if made_for[one.queue : one.queue + 1] != (target.identity,):
            # Another directory: that the output is not in it says nothing.
            raise OutputMissing(target.directory.path, one.writing)
    return claim


def planned_outputs(queue: "InputQueue", claim: Claim) -> list[Written]:
    """Return the outputs of somebody's commit by exact name, as a listing may be stale."""
    try:
        data = queue.plans.read(plan_name(claim.token))
    except FileNotFoundError:
        return [claim.outputs.expected] if queue.targets else []
    plan = decode(data, Plan)
    written = [Written(*one) for one in plan.outputs if 0 <= one[0] < len(queue.targets)]
    for one in written:
        item = names.parse(one.writing)
        if item is None or (item.state, item.token) != (names.WRITING, claim.token):
            # Not ours: whoever wrote it wants somebody else's file to be moved.
            raise msgspec.ValidationError(f"the plan of {claim.name!r} names other files")
        if names.objection(one.final.removesuffix(".ready")) is not None:
            raise msgspec.ValidationError(f"the plan of {claim.name!r} publishes {one.final!r}")
    return written


# Give back


def rename_back(queue: "InputQueue", claim: Claim, attempt: int, due: int = 0) -> str | None:
    """Rename a claim to one that waits. Return its docid then; None when it was taken back."""
    docid = claim.docid
    name = names.later_name(docid, attempt, due) if due else names.waiting_name(docid, attempt)
    final = move(queue.directory, claim.name, queue.directory, name, claim.token)
    if final is None:
        return None
    claim.waits_as = final
    if queue.durable:
        queue.directory.sync()
    return final[: len(final) - len(name) + len(docid)]


def move_aside(output: Directory, source: Directory, name: str) -> None:
    """Move what was written to the orphans of an output queue."""
    # Somebody else swept, or its driver published after all; or it is another user's.
    with (
        suppress(FileNotFoundError, FileExistsError, PermissionError),
        output.subdirectory(ORPHANS_INSIDE, create=True) as orphans,
    ):
        source.rename_new(name, name, orphans)
