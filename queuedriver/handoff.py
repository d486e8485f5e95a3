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
    amid a discard      `discarded/.N.report` without its document: `check` drops it; with its
                        document beside it: `check` gives it its name
"""

import os
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from queuedriver import names
from queuedriver.filesystem import SYNC_ALL_FROM, Directory
from queuedriver.outputs import Outputs, Target, Written
from queuedriver.records import Attempt, Attempts, Plan, Report, encode_report, hidden_report
from queuedriver.settings import Settings, second_name

ORPHANS = "orphans"
CLAIMS = "claims"
ATTEMPTS = "attempts"


class Claim:
    """The sole right of one N to one item. `name` is where the file is now."""

    __slots__ = ("attempt", "docid", "name", "token")

    def __init__(self, docid: str, attempt: int, token: str, name: str) -> None:
        self.docid = docid
        self.attempt = attempt
        self.token = token
        self.name = name

    @property
    def committed(self) -> bool:
        """Whether its outputs will be published, whatever happens to us now."""
        return self.name.endswith(".written")


class Completion(NamedTuple):
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
    ) -> None:
        self.queue = queue
        self.targets = targets
        self.settings = settings
        self.archive = archive
        self.attempts = Attempts(private.subdirectory(ATTEMPTS, create=True))
        self.discarded = queue.subdirectory(names.DISCARDED, create=True)
        self._plans = private.subdirectory(CLAIMS, create=True)
        self._replace = settings.existing == "replace"
        self._durable = settings.durable

    def directories(self) -> tuple[Directory, ...]:
        """Every directory this keeps open, the outputs among them."""
        own = (self.attempts.directory, self.discarded, self._plans)
        archive = (self.archive,) if self.archive is not None else ()
        return (*own, *(target.directory for target in self.targets), *archive)

    def close(self) -> None:
        for directory in (self.attempts.directory, self.discarded, self._plans):
            directory.close()

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
        for (claim, outputs), plan, gone, finals in zip(
            work, planned, revoked, published, strict=True
        ):
            if not gone and outputs.written:
                self._finish(claim, plan)
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
        finals = self._publish_all(item.token, written)
        if self._durable:
            for index in {one.queue for one in written}:
                self.targets[index].directory.sync()
        self._finish(claim, planned)
        return finals

    def _sync_outputs(self, work: Sequence[tuple[Claim, Outputs]]) -> None:
        """Before the commit: a power cut must not leave a published name without its bytes."""
        by_target: dict[int, list[str]] = {}
        for _, outputs in work:
            for one in outputs.written:
                by_target.setdefault(one.queue, []).append(one.writing)
        for index, writing in by_target.items():
            directory = self.targets[index].directory
            if len(writing) >= SYNC_ALL_FROM:
                directory.sync_all()
                continue
            for name in writing:
                directory.sync_file(name)
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
        plan = msgspec.json.decode(data, type=Plan)
        return [Written(*one) for one in plan.outputs if one[0] < len(self.targets)], True

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
            written = names.written_name(claim.docid, claim.attempt, claim.token)
            if outputs.written and self.queue.present(written):
                # It was the reply that was lost, not the rename.
                claim.name = written
                return True
            outputs.discard()
            return False
        return True

    def _publish_all(self, token: str, written: Sequence[Written]) -> tuple[str, ...]:
        return tuple(self._publish(token, one) for one in written)

    def _publish(self, token: str, one: Written) -> str:
        """Make one output visible; the name it got."""
        directory = self.targets[one.queue].directory
        try:
            return self._publish_from(directory, directory, one.writing, one.final, token)
        except FileNotFoundError:
            pass
        # A sweeper that could not see our claim moved it aside; otherwise somebody has published
        # it for us, as the commit entitles everybody to.
        try:
            orphans = directory.subdirectory(os.path.join(names.PRIVATE, ORPHANS))
        except FileNotFoundError:
            return one.final
        try:
            return self._publish_from(orphans, directory, one.writing, one.final, token)
        except FileNotFoundError:
            return one.final
        finally:
            orphans.close()

    def _publish_from(
        self, source: Directory, target: Directory, writing: str, final: str, token: str
    ) -> str:
        if self._replace:
            source.rename_over(writing, final, target)
            return final
        try:
            source.rename_new(writing, final, target)
        except FileExistsError:
            final = second_name(final, token)
            source.rename_new(writing, final, target)
        return final

    def _finish(self, claim: Claim, planned: bool) -> None:
        """Drop the input. A crash before it leaves a `.written` that anyone finishes again."""
        try:
            self._put_away(claim)
        except FileNotFoundError:
            # A recoverer was as fast as we; the outputs are published either way.
            pass
        if planned:
            self._plans.remove(f"{claim.token}.json")
        if claim.attempt:
            self.attempts.forget(claim.docid)

    def _put_away(self, claim: Claim) -> None:
        if self.archive is None:
            self.queue.unlink(claim.name)
            return
        second = names.second_docid(claim.docid, claim.token)
        _keep_both(self.queue, claim.name, self.archive, claim.docid, second)
        if self._durable:
            self.archive.sync()

    # Give back

    def release(self, claim: Claim) -> str | None:
        """Back to where it came from, uncharged. Its docid from now on; None if taken back."""
        return self._give_back(claim, claim.attempt)

    def postpone(self, claim: Claim, due: int) -> str | None:
        """Back uncharged, and not before `due`."""
        return self._give_back(claim, claim.attempt, due)

    def fail(self, claim: Claim, record: Attempt, due: int = 0) -> str | None:
        """Charge the attempt and let the document wait for its next."""
        self.attempts.write(record, self._durable)
        docid = self._give_back(claim, claim.attempt + 1, due)
        if docid is None:
            self.attempts.remove(claim.docid, claim.token)
        return docid

    def record_release(self, claim: Claim, record: Attempt) -> str | None:
        """Release, and remember that it was not the driver's wish: the third such counts."""
        self.attempts.write(record, self._durable)
        return self.release(claim)

    def _give_back(self, claim: Claim, attempt: int, due: int = 0) -> str | None:
        for docid in (claim.docid, names.second_docid(claim.docid, claim.token)):
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
        raise FileExistsError(f"{claim.docid!r} and its second name both wait in {self.queue.path}")

    # Give up

    def discard(self, claim: Claim, report: Report) -> str | None:
        """Set the untouched input aside with its report. Its docid there; None if taken back.

        The report is on disk first, hidden, so no document is ever in `discarded/` without a
        reason somewhere; the rename of the document decides.
        """
        hidden = hidden_report(claim.token)
        # Left by an attempt of ours at this same discard, which the file system interrupted.
        self.discarded.remove(hidden)
        self.discarded.write_new(hidden, encode_report(report))
        self.discarded.sync_file(hidden)
        second = names.second_docid(claim.docid, claim.token)
        try:
            docid = _keep_both(self.queue, claim.name, self.discarded, claim.docid, second)
        except FileNotFoundError:
            self.discarded.remove(hidden)
            return None
        self.discarded.rename_over(hidden, docid + names.REPORT)
        self.discarded.sync()
        self.queue.sync()
        self.attempts.forget(claim.docid)
        return docid


def _keep_both(source: Directory, name: str, target: Directory, wanted: str, second: str) -> str:
    """Move to the wanted name, or to the second where that is taken; the name it got."""
    try:
        source.rename_new(name, wanted, target)
    except FileExistsError:
        source.rename_new(name, second, target)
        return second
    return wanted
