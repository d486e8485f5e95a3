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
    amid a discard      `discarded/.N.report`: who recovers gives it the name of its document; where
                        that is elsewhere, it is swept after a week
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from queuedriver import names
from queuedriver.decoding import decode
from queuedriver.errors import FileSystemTrouble, OutputMissing, trouble
from queuedriver.filesystem import SYNC_ALL_FROM, Directory
from queuedriver.landmarks import identity
from queuedriver.mounts import is_local
from queuedriver.outputs import Outputs, Target, Written
from queuedriver.records import (
    Attempt,
    Attempts,
    Plan,
    Report,
    encode_report,
    hidden_report,
    read_report,
)
from queuedriver.settings import Settings, names_to_try

ORPHANS = "orphans"
CLAIMS = "claims"
ATTEMPTS = "attempts"


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
        self.attempts = Attempts(private.subdirectory(ATTEMPTS, create=True))
        # Of a queue inside another: that one's, which is where people look.
        self._borrowed = discarded is not None
        self.discarded = discarded or queue.subdirectory(names.DISCARDED, create=True)
        self._plans = private.subdirectory(CLAIMS, create=True)
        # Outputs that were gone when this process was to publish them, by the names they had.
        self._missing: set[str] = set()
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
            () if gone else self._publish_ours(claim, outputs.written)
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
                self.attempts.forget(claim.docid, inode, claim.attempt)
            completions.append(Completion(claim, finals, gone))
        return completions

    def complete_one(self, claim: Claim, outputs: Outputs) -> Completion:
        """The same for one claim: the usual case, without anything it does not need."""
        if self._durable or not outputs.usual:
            return self.complete(((claim, outputs),))[0]
        if not self._commit(claim, outputs):
            return Completion(claim, (), revoked=True)
        finals = self._publish_ours(claim, outputs.written)
        self._finish(claim, planned=False)
        return Completion(claim, finals)

    def finish_written(
        self, item: names.Item, name: str, made_for: Sequence[str] = ()
    ) -> tuple[str, ...]:
        """Publish and finish what somebody committed; by whoever finds it, however often.

        `made_for` is what its driver opened its outputs as; empty when that is not known.
        OutputMissing when it cannot be finished here.
        """
        claim = Claim(item.docid, item.attempt, item.token, name)
        written, planned = self._planned(claim)
        for one in written if made_for else ():
            directory = self.targets[one.queue].directory
            if made_for[one.queue : one.queue + 1] != (identity(directory),):
                # Another directory: that the output is not in it says nothing.
                raise OutputMissing(directory.path, one.writing)
        if self._durable:
            # Whoever committed it may have died before this, and a power cut would take the commit
            # back, but not what was published.
            self.queue.sync()
        finals = tuple(self._publish_for(item.token, one) for one in written)
        if self._durable:
            for index in {one.queue for one in written}:
                self.targets[index].directory.sync()
        self._finish(claim, planned)
        return finals

    def _publish_for(self, token: str, one: Written) -> str:
        """Publish what somebody committed; the name it got, or was to get."""
        final = self._publish(token, one)
        if final is not None:
            return final
        # Published before a crash, and perhaps taken by now. Unless this process knows better, or
        # has another directory than whoever went by its path.
        directory = self.targets[one.queue].directory
        if one.writing in self._missing or directory.gone():
            raise OutputMissing(directory.path, one.writing)
        return one.final

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

    def _publish_ours(self, claim: Claim, written: Sequence[Written]) -> tuple[str, ...]:
        """Publish what we have just committed; the names it got.

        An output that is nowhere was published by a recoverer only if our `.written` is gone, too.
        Else somebody has taken it away, and the document is all that there is.
        """
        finals = []
        for one in written:
            final = self._publish(claim.token, one)
            directory = self.targets[one.queue].directory
            # Somebody else's kernel may have renamed it for us, and the reply been lost.
            if final is None and self.committed(claim) and is_local(directory.status().device):
                self._missing.add(one.writing)
                raise FileSystemTrouble(
                    f"{directory.path}/{one.writing} is gone, and {claim.docid!r} is committed: "
                    f"it stays in {self.queue.path} as {claim.name} until that is put back"
                )
            finals.append(final or one.final)
        return tuple(finals)

    def _publish(self, token: str, one: Written) -> str | None:
        """Make one output visible; the name it got, or None when it is nowhere."""
        directory = self.targets[one.queue].directory
        try:
            if not self._replace:
                return _keep_both(directory, one.writing, directory, one.final, token)
            directory.rename_over(one.writing, one.final)
        except FileNotFoundError:
            return self._publish_orphan(directory, token, one)
        return one.final

    def _publish_orphan(self, directory: Directory, token: str, one: Written) -> str | None:
        """A sweeper that could not see our claim may have moved it aside; otherwise somebody has
        published it for us, as the commit entitles everybody to, or taken it away."""
        try:
            orphans = directory.subdirectory(os.path.join(names.PRIVATE, ORPHANS))
        except FileNotFoundError:
            return None
        try:
            if not self._replace:
                return _keep_both(orphans, one.writing, directory, one.final, token)
            orphans.rename_over(one.writing, one.final, directory)
        except FileNotFoundError:
            return None
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
            self.attempts.forget(claim.docid, inode, claim.attempt)

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
        self.discarded.remove(hidden_report(claim.token))

    def postpone(self, claim: Claim, due: int) -> str | None:
        """Back uncharged, and not before `due`."""
        return self._give_back(claim, claim.attempt, due)

    def fail(self, claim: Claim, record: Attempt, due: int = 0) -> str | None:
        """Charge the attempt and let the document wait for its next."""
        return self._recorded(claim, record, claim.attempt + 1, due)

    def record_release(self, claim: Claim, record: Attempt) -> str | None:
        """Release, and remember that it was not the driver's wish: the third such counts."""
        return self._recorded(claim, record, claim.attempt)

    def _recorded(self, claim: Claim, record: Attempt, attempt: int, due: int = 0) -> str | None:
        self.attempts.write(record, self._durable)
        docid = self._give_back(claim, attempt, due)
        # When somebody was faster the record stays: it may well be theirs.
        if docid is not None and docid != claim.docid:
            self.attempts.move(claim.docid, record.inode, claim.attempt + 1, docid)
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

    # Give up

    def discard(self, claim: Claim, report: Report) -> str | None:
        """Set the untouched input aside with its report. Its docid there; None if taken back.

        The report is on disk first, hidden, so no document is ever in `discarded/` without a
        reason somewhere; the rename of the document decides.
        """
        hidden = hidden_report(claim.token)
        inode = self.inode(claim)
        # Several may recover one claim at once, and so discard it: the first report stands.
        with suppress(FileExistsError):
            self.discarded.write_first(hidden, encode_report(report), durable=True)
        try:
            docid = _keep_both(self.queue, claim.name, self.discarded, claim.docid, claim.token)
        except FileNotFoundError:
            self.settle_report(claim.docid, claim.token)
            return None
        self._show_report(hidden, docid)
        self.discarded.sync()
        self.queue.sync()
        # Somebody may have noted this attempt as one that was not the last.
        self.attempts.forget(claim.docid, inode, claim.attempt + 1)
        return docid

    def settle_report(self, docid: str, token: str) -> None:
        """The claim is gone: show the report if its document was discarded.

        Somebody was faster, the reply to our own rename was lost, or a driver died in between. Not
        to see the document proves nothing, as a look may be old; so what is not settled stays
        hidden, for whoever sees more, and is swept after a week.
        """
        there = self.discarded.present
        if there(hidden_report(token)) and not self._settled(docid, token, there):
            # A file system that remembers that a name was not there may list it all the same.
            self._settled(docid, token, set(self.discarded.names()).__contains__)

    def _settled(self, docid: str, token: str, there: Callable[[str], bool]) -> bool:
        hidden = hidden_report(token)
        for name in (names.second_docid(docid, token), docid):
            if not there(name):
                continue
            if not there(name + names.REPORT):
                self._show_report(hidden, name)
                return True
            shown = read_report(self.discarded, name)
            if shown is not None and any(one.token == token for one in shown.attempts):
                # Whoever else discarded this claim has shown a report of it.
                self.discarded.remove(hidden)
                return True
        return False

    def _show_report(self, hidden: str, docid: str) -> None:
        # Whoever else discards this claim may be faster here, too.
        with suppress(FileNotFoundError):
            self.discarded.rename_over(hidden, docid + names.REPORT)


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
