"""The hand-off: one document from its input queue to its outputs, with one commit point.

    I/d.ready ─claim→ I/d.N.working ─commit→ I/d.N.written ─finish→ gone, or in the archive
                       │  O/x.N.writing written before,  ─publish→ O/x.ready after the commit
                       ├─fail→     I/d.failed   on the last attempt: I/discarded/d, with its report
                       ├─release→  I/d.ready    uncharged, back to where it came from
                       └─postpone→ I/d.<due>.later

Every step that starts from a name with an N is one rename, and finding nothing there means that
somebody else has done it or taken it back. So any number of recoverers may work at once, and each
step may be repeated. What a crash leaves:

    before the commit   `.working` and perhaps `.writing`: the claim is charged or released, and the
                        outputs are moved to `orphans/`
    after the commit    `.written`: whoever finds it publishes and finishes
    amid a discard      the report in `attempts/`: who recovers puts it beside its document
"""

import os
from collections.abc import Sequence

import msgspec

from queuedriver.claims.attempts import ATTEMPTS, Attempts, File
from queuedriver.claims.outputs import Outputs, Target, Written
from queuedriver.disk.filesystem import SYNC_ALL_FROM, Directory
from queuedriver.errors import trouble
from queuedriver.format import names
from queuedriver.format.decoding import decode
from queuedriver.format.records import Plan
from queuedriver.format.settings import Settings, names_to_try

ORPHANS = "orphans"
CLAIMS = "claims"


class Claim(msgspec.Struct):
    """The sole right of one N to one item."""

    docid: str
    attempt: int
    token: str
    # Where the file is now.
    name: str

    @property
    def committed(self) -> bool:
        """Whether its outputs will be published, whatever happens to us now."""
        return self.name.endswith(".written")


class Completion(msgspec.Struct, frozen=True):
    """What became of a claim that was completed: the names published, or none if it was revoked."""

    claim: Claim
    published: tuple[str, ...]
    revoked: bool = False


class Handoff:
    """The transitions of one input queue."""

    def __init__(
        self,
        queue: Directory,
        private: Directory,
        targets: tuple[Target, ...],
        settings: Settings,
        archive: Directory | None = None,
        discarded: Directory | None = None,
    ) -> None:
        self.queue = queue
        self.targets = targets
        self.settings = settings
        self.archive = archive
        # Of a queue inside another: that one's, which is where people look.
        self._borrowed = discarded is not None
        self.discarded = discarded or queue.subdirectory(names.DISCARDED, create=True)
        self.attempts = Attempts(private.subdirectory(ATTEMPTS, create=True), self.discarded)
        self._plans = private.subdirectory(CLAIMS, create=True)
        self._replace = settings.existing == "replace"
        self._durable = settings.durable

    def directories(self) -> tuple[Directory, ...]:
        """Every directory this keeps open, the outputs among them."""
        own = (self.attempts.directory, self.discarded, self._plans)
        archive = (self.archive,) if self.archive is not None else ()
        return (*own, *(target.directory for target in self.targets), *archive)

    def close(self) -> None:
        for directory in (self.attempts.directory, self._plans):
            directory.close()
        if not self._borrowed:
            self.discarded.close()

    # Claim

    def claim(self, name: str, docid: str, attempt: int, token: str) -> Claim | None:
        """Take an item that waits; None when another driver was faster."""
        working = names.working_name(docid, attempt, token)
        try:
            self.queue.rename(name, working)
        except FileNotFoundError:
            # Or a network file system lost the reply to a rename that happened. `working` carries a
            # serial nobody else uses, so if it is there, it is ours.
            if not self.queue.present(working):
                return None
        return Claim(docid, attempt, token, working)

    def inode(self, claim: Claim) -> int:
        """Of the document, by which the records of its attempts are found; 0 when it is gone."""
        try:
            return self.queue.status(claim.name).inode
        except FileNotFoundError:
            # Taken back meanwhile: whatever follows will find nothing to do.
            return 0

    def outputs(self, claim: Claim) -> Outputs:
        return Outputs(claim.docid, claim.token, self.targets)

    # Complete: durable, plan, commit, publish, finish

    def complete(self, work: Sequence[tuple[Claim, Outputs]]) -> list[Completion]:
        """Hand over claims whose outputs are written; together, when there are several.

        An OSError leaves each claim as `committed` says: those that are will be finished by any
        later pass, those that are not may still be released.
        """
        if self._durable:
            self._sync_outputs(work)
        planned = [self._plan(claim, outputs) for claim, outputs in work]
        # Known as long as the document is there: without outputs the commit ends it.
        inodes = [self.inode(claim) if claim.attempt else 0 for claim, _ in work]
        revoked = [not self._commit(claim, outputs) for claim, outputs in work]
        if self._durable:
            self.queue.sync()
        published = [
            () if gone else self._publish_all(claim.token, outputs.written)
            for (claim, outputs), gone in zip(work, revoked, strict=True)
        ]
        if self._durable:
            for index in {one.queue for _, outputs in work for one in outputs.written}:
                self.targets[index].directory.sync()
        completions = []
        for (claim, outputs), inode, plan, gone, finals in zip(
            work, inodes, planned, revoked, published, strict=True
        ):
            if gone:
                # The plan stays: whoever finds it committed after all publishes by it from among
                # the orphans.
                pass
            elif outputs.written:
                self._finish(claim, plan)
            elif claim.attempt:
                self.attempts.forget(claim.docid, inode)
            completions.append(Completion(claim, finals, gone))
        return completions

    def complete_one(self, claim: Claim, outputs: Outputs) -> Completion:
        """The same for one claim: the usual case, without anything it does not need."""
        if self._durable or not outputs.usual:
            return self.complete(((claim, outputs),))[0]
        if not self._commit(claim, outputs):
            return Completion(claim, (), revoked=True)
        final = self._publish(claim.token, outputs.written[0])
        self._finish(claim, planned=False)
        return Completion(claim, (final,))

    def finish_written(self, item: names.Item, name: str) -> tuple[str, ...]:
        """Publish and finish what somebody committed; by whoever finds it, however often."""
        claim = Claim(item.docid, item.attempt, item.token, name)
        written, planned = self._planned(claim)
        if self._durable:
            # Whoever committed it may have died before this, and a power cut would take the commit
            # back, but not what was published.
            self.queue.sync()
        finals = self._publish_all(item.token, written)
        if self._durable:
            for index in {one.queue for one in written}:
                self.targets[index].directory.sync()
        self._finish(claim, planned)
        return finals

    def _sync_outputs(self, work: Sequence[tuple[Claim, Outputs]]) -> None:
        """Before the commit: a power cut must not leave a published name without its bytes."""
        by_target: dict[int, list[tuple[Claim, str]]] = {}
        for claim, outputs in work:
            for one in outputs.written:
                by_target.setdefault(one.queue, []).append((claim, one.writing))
        for index, writing in by_target.items():
            directory = self.targets[index].directory
            if len(writing) >= SYNC_ALL_FROM:
                directory.sync_all()
                continue
            for claim, name in writing:
                try:
                    directory.sync_file(name)
                except FileNotFoundError:
                    # Swept aside, because the claim was taken back: the commit will say so.
                    if self.queue.present(claim.name):
                        raise
            directory.sync()

    def _plan(self, claim: Claim, outputs: Outputs) -> bool:
        if not outputs.written or outputs.usual:
            return False
        plan = Plan(tuple((one.queue, one.writing, one.final) for one in outputs.written))
        self._plans.write_aside(f"{claim.token}.json", msgspec.json.encode(plan), self._durable)
        return True

    def _planned(self, claim: Claim) -> tuple[list[Written], bool]:
        """The outputs of somebody's commit, by exact name: a listing may be stale."""
        try:
            data = self._plans.read(f"{claim.token}.json")
        except FileNotFoundError:
            if not self.targets:
                return [], False
            final = self.targets[0].publication.name(claim.docid)
            return [Written(0, names.writing_name(claim.docid, claim.token), final)], False
        plan = decode(data, Plan)
        written = [Written(*one) for one in plan.outputs if 0 <= one[0] < len(self.targets)]
        for one in written:
            item = names.parse(one.writing)
            if item is None or (item.state, item.token) != (names.WRITING, claim.token):
                # Not ours: whoever wrote it wants somebody else's file to be moved.
                raise msgspec.ValidationError(f"the plan of {claim.name!r} names other files")
            if names.objection(one.final.removesuffix(".ready")) is not None:
                raise msgspec.ValidationError(f"the plan of {claim.name!r} publishes {one.final!r}")
        return written, True

    def _commit(self, claim: Claim, outputs: Outputs) -> bool:
        """The one atomic moment. False when the claim had been taken back."""
        try:
            if not outputs.written:
                self._put_away(claim)
            else:
                written = names.written_name(claim.docid, claim.attempt, claim.token)
                self.queue.rename(claim.name, written)
                claim.name = written
        except FileNotFoundError:
            if outputs.written and self.committed(claim):
                # It was the reply that was lost, not the rename.
                claim.name = names.written_name(claim.docid, claim.attempt, claim.token)
                return True
            self.set_aside(outputs)
            return False
        return True

    def set_aside(self, outputs: Outputs) -> None:
        """What was written under a claim that seems to have been taken back.

        Not deleted: a network file system that has lost the reply to our commit may also have told
        us, wrongly, that it did not happen. Then whoever publishes looks among the orphans.
        """
        for one in outputs.written:
            move_aside(self.targets[one.queue].directory, one.writing)
        outputs.written.clear()
        outputs.usual = False

    def committed(self, claim: Claim) -> bool:
        """Whether its commit happened, whatever the file system said about it."""
        return self.queue.present(names.written_name(claim.docid, claim.attempt, claim.token))

    def _publish_all(self, token: str, written: Sequence[Written]) -> tuple[str, ...]:
        return tuple(self._publish(token, one) for one in written)

    def _publish(self, token: str, one: Written) -> str:
        """Make one output visible; the name it got."""
        directory = self.targets[one.queue].directory
        try:
            if not self._replace:
                return _keep_both(directory, one.writing, directory, one.final, token)
            directory.rename_over(one.writing, one.final)
        except FileNotFoundError:
            return self._publish_orphan(directory, token, one)
        return one.final

    def _publish_orphan(self, directory: Directory, token: str, one: Written) -> str:
        """A sweeper that could not see our claim moved it aside; otherwise somebody has published
        it for us, as the commit entitles everybody to."""
        try:
            orphans = directory.subdirectory(os.path.join(names.PRIVATE, ORPHANS))
        except FileNotFoundError:
            return one.final
        try:
            if not self._replace:
                return _keep_both(orphans, one.writing, directory, one.final, token)
            orphans.rename_over(one.writing, one.final, directory)
        except FileNotFoundError:
            pass
        finally:
            orphans.close()
        return one.final

    def _finish(self, claim: Claim, planned: bool) -> None:
        """Drop the input. A crash before it leaves a `.written` that anyone finishes again."""
        inode = self.inode(claim) if claim.attempt else 0
        try:
            self._put_away(claim)
        except FileNotFoundError:
            # A recoverer was as fast as we; the outputs are published either way.
            pass
        if planned:
            self._plans.remove(f"{claim.token}.json")
        if claim.attempt:
            self.attempts.forget(claim.docid, inode)

    def _put_away(self, claim: Claim) -> None:
        if self.archive is None:
            self.queue.unlink(claim.name)
            return
        _keep_both(self.queue, claim.name, self.archive, claim.docid, claim.token)
        if self._durable:
            self.archive.sync()

    # Give back

    def release(self, claim: Claim) -> str | None:
        """Back to where it came from, uncharged. Its docid from now on; None if taken back."""
        return self._give_back(claim, claim.attempt)

    def forget(self, claim: Claim) -> None:
        """It was released: what had been written down for its end is nobody's."""
        self._plans.remove(f"{claim.token}.json")

    def postpone(self, claim: Claim, due: int) -> str | None:
        """Back uncharged, and not before `due`."""
        return self._give_back(claim, claim.attempt, due)

    def fail(self, claim: Claim, inode: int, due: int = 0) -> str | None:
        """Let the document wait for its next attempt, once this one is noted."""
        return self._noted(claim, inode, claim.attempt + 1, due)

    def strike(self, claim: Claim, inode: int) -> str | None:
        """Release, once it is noted that this was not the driver's wish: the third such counts."""
        return self._noted(claim, inode, claim.attempt)

    def _noted(self, claim: Claim, inode: int, attempt: int, due: int = 0) -> str | None:
        docid = self._give_back(claim, attempt, due)
        # When somebody was faster it stays: it may well be theirs.
        if docid is not None and docid != claim.docid:
            self.attempts.move(claim.docid, inode, docid)
        return docid

    def _give_back(self, claim: Claim, attempt: int, due: int = 0) -> str | None:
        for docid in names.docids_to_try(claim.docid, claim.token):
            name = (
                names.later_name(docid, attempt, due) if due else names.waiting_name(docid, attempt)
            )
            try:
                self.queue.rename_new(claim.name, name)
            except FileExistsError:
                continue
            except FileNotFoundError:
                return None
            if self._durable:
                self.queue.sync()
            return docid
        raise FileExistsError(f"no name is left for {claim.docid!r} in {self.queue.path}")

    # Discard

    def discard(self, claim: Claim, file: File) -> str | None:
        """Move the untouched input to `discarded/`, with the report that was noted. Its docid
        there; None if taken back."""
        return self.attempts.discard(self.queue, claim.name, claim.token, file)


def move_aside(output: Directory, name: str) -> None:
    """To the orphans of an output queue."""
    orphans = output.subdirectory(os.path.join(names.PRIVATE, ORPHANS), create=True)
    try:
        output.rename_new(name, name, orphans)
    except (FileNotFoundError, FileExistsError, PermissionError):
        # Somebody else swept, or its driver published after all; or it is another user's.
        pass
    finally:
        orphans.close()


def _keep_both(source: Directory, name: str, target: Directory, wanted: str, token: str) -> str:
    """Move to the wanted name, or to a second one where that is taken; the name it got."""
    try:
        source.rename_new(name, wanted, target)
    except FileExistsError:
        return _keep_beside(source, name, target, wanted, token)
    except FileNotFoundError as error:
        if source is not target and source.present(name):
            # What is not there is the directory it was to go to, removed by somebody.
            raise trouble(error, f"moving {name!r} to {target.path}") from None
        raise
    return wanted


def _keep_beside(source: Directory, name: str, target: Directory, wanted: str, token: str) -> str:
    for final in names_to_try(wanted, token):
        try:
            source.rename_new(name, final, target)
        except FileExistsError:
            continue
        return final
    raise FileExistsError(f"no name is left for {wanted!r} in {target.path}")
