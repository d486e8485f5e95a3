"""Taking files away from a folder, each step one rename. A crash leaves one of these:

    FOLDER/<name>                                     a drop that nobody has taken
    home/<docid>.<N>.working                          claimed by N; no producer can open it by its
                                                      name any more, but one may have it open
    QUEUE/.queuedriver/intake/<docid>.<N>.writing     its copy, on its way
    QUEUE/.queuedriver/orphans/<docid>.<N>.writing    the same, when nobody seemed to want it
    home/<docid>.<N>.written                          its copy is whole, and N is about to publish
                                                      it, or has

A claim is *sealed* when nobody writes it any more, and enters then: on the queue's file system by
one rename; else it is copied, committed (`.working` to `.written`), published and finished. A claim
is never renamed back: under its name there may be a newer drop. Whoever finds claims of an intake
that is gone finishes those that are committed, and renames the others to claims of its own; of two
who do so, or of one that was taken for dead and is not, each finds the name gone that the other has
renamed. A copy that was committed is published from either of its places. Where it is in neither,
somebody has published it: copies are moved aside, and deleted by nobody but their own intake, which
makes them anew.
"""

import errno
import os
import time
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import NamedTuple

import msgspec

from queuedriver.claims.handoff import ORPHANS_INSIDE, make_visible, move_aside
from queuedriver.disk.filesystem import Directory, copy_all, move, open_fd
from queuedriver.disk.journal import Journal
from queuedriver.errors import is_trouble
from queuedriver.format import names
from queuedriver.format.records import encodable
from queuedriver.intake.folder import Folder
from queuedriver.intake.home import Home
from queuedriver.intake.options import REFUSED, IntakeOptions, Told, fill
from queuedriver.intake.rules import Facts, facts_of

# Bytes: beside a longer name there is no room for that of its report, or for a second file of it.
_LONGEST_REFUSED = 255 - len(names.REPORT) - len("~") - 18


class Claim(NamedTuple):
    """A drop that one N is to take, be it claimed or about to be."""

    # What its files are called, besides N and their state.
    stem: str
    token: str
    docid: str
    # What it is called below the folder; its docid where nobody knows that any more.
    path: str
    # As what it was examined; None where nobody knows.
    known: Facts | None = None
    # It is not in the folder any more, but among the claims.
    moved: bool = False

    @property
    def working(self) -> str:
        return names.working_name(self.stem, 0, self.token)

    @property
    def written(self) -> str:
        return names.written_name(self.stem, 0, self.token)

    @property
    def copy(self) -> str:
        """Return the name of its copy while that is not published."""
        return names.writing_name(self.stem, self.token)


# Where a file is: its directory, and its name there.
Place = tuple[Directory, str]


def kept_in(folder: Directory, where: str) -> Directory:
    """Open where files go for good: an absolute path, or, today, a form of a date below the
    folder."""
    if os.path.isabs(where):
        return Directory.open(where, create=True)
    return folder.subdirectory(time.strftime(where), create=True)


class Handover(msgspec.Struct, eq=False):
    """Takes from a folder that may be written, into one queue."""

    home: Home
    folder: Folder
    told: Told
    queue: Directory
    # Where copies are made, and where the names are that say who takes what.
    copies: Directory
    claims: Directory
    journal: Journal
    # Names of copies that were begun, and are not published.
    begun: set[str] = set()

    @property
    def options(self) -> IntakeOptions:
        return self.told.options

    def stays(self, path: str, facts: Facts) -> bool:
        """Return whether a file was taken, or refused, as it is, and stays."""
        return False

    def is_decided(self, claim: Claim) -> bool:
        """Return whether the copy of a claim is to be published, whatever becomes of its file."""
        return False

    def sweep(self) -> None:
        """Forget what was taken long ago, and is gone: of what is taken away nothing is kept."""

    # Claim

    def drop(self, path: str, docid: str, facts: Facts | None) -> Claim:
        """Return a drop of the folder that is to be claimed, or refused."""
        token = self.home.mint.next(time.time_ns() // 1000)
        return Claim(docid, token, docid, path, facts)

    @contextmanager
    def place(self, claim: Claim) -> Iterator[Place]:
        """Open where the file of a claim is now."""
        at, name = os.path.split(claim.path)
        where: AbstractContextManager[Directory] = nullcontext(self.claims)
        with where if claim.moved else self.folder.opened(at) as directory:
            yield directory, claim.working if claim.moved else name

    def origin(self, claim: Claim) -> str:
        """Return where a file was dropped."""
        return os.path.join(self.folder.directory.path, claim.path)

    def claim(self, drop: Claim) -> Claim | None:
        """Claim a drop, and remove its marker: a later one of its name has its own. None when it is
        gone."""
        with self.place(drop) as place:
            claim = self._claim(drop, place)
            if claim is not None:
                self._remove_marker(*place)
        return claim

    def _claim(self, drop: Claim, place: Place) -> Claim | None:
        claim, (directory, name) = drop._replace(moved=True), place
        try:
            os.rename(name, claim.working, src_dir_fd=directory.fd, dst_dir_fd=self.claims.fd)
        except FileNotFoundError:
            # Another intake was faster, or the reply to a rename that happened was lost.
            return claim if self.claims.present(claim.working) else None
        return claim

    def _remove_marker(self, directory: Directory, name: str) -> None:
        form, then = self.options.done, self.options.done_then
        if form is not None and "{" in form and then == "remove":
            directory.remove(fill(form, name))

    # Enter

    @contextmanager
    def durably(self, claims: Collection[Claim]) -> Iterator[None]:
        """Make safe what enters by a rename: the files before, the names after that."""
        renamed = [claim.working for claim in claims if self._enters_by_rename(claim)]
        self.claims.sync_files(renamed)
        try:
            yield
        finally:
            # What entered before trouble, too.
            if renamed:
                self.queue.sync()
                self.claims.sync()

    def enter(self, claim: Claim) -> bool:
        """Let a sealed claim into the queue; return False when it has changed meanwhile.
        FileNotFoundError when it is gone."""
        final = self._rename(claim) if self._enters_by_rename(claim) else self._carry(claim)
        # "": it had entered before, and that was noted.
        if final:
            self.note("submitted", claim.docid, f"from {self.origin(claim)}", final)
        return final is not None

    def _rename(self, claim: Claim) -> str | None:
        """Submit and finish by one rename."""
        final = names.waiting_name(claim.docid, 0)
        try:
            return move(self.claims, claim.working, self.queue, final, claim.token)
        except OSError as error:
            # A bind mount is another file system to a rename, though not by its number.
            if error.errno != errno.EXDEV:
                raise
            return self._carry(claim)

    def _carry(self, claim: Claim) -> str | None:
        """Copy, commit, publish and finish; None when it has changed meanwhile."""
        with self.place(claim) as (directory, name), open_fd(directory.open_read(name)) as source:
            before = facts_of(os.fstat(source))
            self._copy(source, claim.copy)
            if facts_of(os.fstat(source)) != before:
                # Somebody writes it yet: the next copy replaces this one.
                return None
            is_ours = self._commit(claim, source)
        if not is_ours:
            # To see no claim of it proves nothing.
            move_aside(self.queue, self.copies, claim.copy)
            self.begun.discard(claim.copy)
            raise FileNotFoundError(f"{claim.path} was taken by another, or is another by now")
        final = self._publish(claim)
        self._finish(claim, claim.written)
        return final or names.waiting_name(claim.docid, 0)

    def _enters_by_rename(self, claim: Claim) -> bool:
        """Return whether one rename takes the file and leaves nothing of it, as of one with a
        second name, which may be written by that."""
        if not claim.moved or self.options.archive:
            return False
        with suppress(FileNotFoundError):
            found = self.claims.status(claim.working)
            return found.st_nlink == 1 and found.st_dev == self.queue.status().st_dev
        return False

    def _commit(self, claim: Claim, source: int) -> bool:
        """Say that the copy of an open file is whole; return whether the claim was still ours. From
        here on the copy is published by whoever finds this."""
        try:
            self.claims.rename(claim.working, claim.written)
        except FileNotFoundError:
            # Taken back; or it happened, and the reply was lost.
            return self.claims.present(claim.written)
        finally:
            self.claims.sync()
        return True

    def _copy(self, source: int, name: str) -> None:
        """Write a copy of an open file, safely. A crash leaves a part of it, under a name that
        nobody has committed."""
        if name in self.begun:
            # Of our own last try. It may have been moved aside by who did not see the claim; and
            # there nobody is to find it in place of this one.
            self.copies.remove(name)
            with suppress(FileNotFoundError), self.queue.subdirectory(ORPHANS_INSIDE) as orphans:
                orphans.remove(name)
        self.begun.add(name)
        with open_fd(self.copies.open_new(name)) as target:
            copy_all(source, target)
            os.fsync(target)
        self.copies.sync()

    def _publish(self, claim: Claim) -> str | None:
        """Let a copy that was committed into the queue; return its name there, or None when
        somebody else has done so."""
        waiting = names.waiting_name(claim.docid, 0)
        final = make_visible(self.queue, self.copies, claim.copy, waiting, claim.token)
        if final is not None:
            self.queue.sync()
        self.begun.discard(claim.copy)
        return final

    def _finish(self, claim: Claim, name: str) -> None:
        """Remove the file, or move it to the archive; of a folder that stays there is nothing."""
        form = self.options.archive
        if not form:
            self.claims.remove(name)
            return
        with kept_in(self.folder.directory, form) as archive:
            move(self.claims, name, archive, os.path.basename(claim.path), claim.token)

    # What does not enter

    def refuse(self, claim: Claim, why: str, event: str = "refused") -> None:
        """Move a file to where people find what was refused, with a report. What is in the folder
        is not claimed first: whoever recovers a claim knows nothing against it. One that is
        "skipped", as its content is in the queue, or was, is finished."""
        origin = self.origin(claim)
        if event == "skipped":
            self.note(event, claim.docid, f"{origin}: {why}")
            self._finish(claim, claim.working)
            return
        where = self.options.refused or REFUSED
        with self.place(claim) as place, kept_in(self.folder.directory, where) as refused:
            name = os.path.basename(claim.path)
            if len(os.fsencode(name)) > _LONGEST_REFUSED:
                raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), name)
            final = move(*place, refused, name, claim.token)
            if final is None:
                return
            said = {"file": origin, "why": why, "refused_at": time.time()}
            report = msgspec.json.format(msgspec.json.encode(encodable(said)), indent=2)
            refused.write_aside(f"{final}{names.REPORT}", report)
            self.note(event, claim.docid, f"{origin}: {why}")
            if not claim.moved:
                self._remove_marker(*place)

    def note(self, event: str, docid: str, message: str, final: str | None = None) -> None:
        """Note what has happened to a document, and under which docid it goes on."""
        entered = names.parse(final) if final else None
        renamed = entered.docid if entered is not None and entered.docid != docid else None
        self.journal.note(event, docid, message=message, renamed=renamed)
        self.journal.flush_if_due(time.monotonic())

    # Recover

    def recover(self, held: Collection[str], now: float, *, blocked: bool) -> Iterator[Claim]:
        """Finish what intakes that are gone have left, or take it over: yield each claim that is
        ours now; none while nothing is to be taken. `held` are our own N."""
        # First the copies: what is claimed later has no copy among them.
        copies = [one for one in names.items(self.copies) if one[1].state == names.WRITING]
        claims = [*names.claims(self.claims.names())]
        claimed = {item.token for _, item in claims}
        for name, item in (*claims, *copies):
            # A copy goes with its claim; and others bring copies from folders of their own.
            is_copy = item.state == names.WRITING
            if is_copy and (item.token in claimed or not self.home.knows(item.token)):
                continue
            if (blocked and item.state == names.WORKING) or not self.home.is_gone(item.token, held):
                continue
            try:
                claim = self._recover(name, item)
            except OSError as error:
                # What may not be done to one, or somebody else has done, keeps nobody from others.
                if is_trouble(error):
                    raise
                continue
            if claim is not None:
                yield claim
        self.home.forget_the_gone(claimed.union(item.token for _, item in copies))

    def _recover(self, name: str, item: names.Item) -> Claim | None:
        """Take a claim over; finish one that was committed; move a copy of none aside."""
        if item.state == names.WORKING:
            return self._claim(self.drop(item.docid, item.docid, None), (self.claims, name))
        claim = Claim(item.docid, item.token, item.docid, item.docid, moved=True)
        if item.state == names.WRITTEN:
            final = self._publish(claim)
            self._finish(claim, name)
            self.note("recovered", item.docid, "its intake had committed it", final)
        elif not any(map(self.claims.present, (claim.working, claim.written))):
            move_aside(self.queue, self.copies, name)
        return None
