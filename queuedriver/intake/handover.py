"""Taking files away from a folder, each step one rename. A crash leaves one of these:

    FOLDER/<name>                     a drop that nobody has taken
    home/<docid>.<N>.working          claimed by N; no producer can open it by its name any more,
                                      but one may have it open
    home/<docid>.<N>.written          its copy is whole, and N is about to publish it, or has
    home/<docid>.ready                given back: for any intake to claim

A claim is *sealed* when nobody writes it any more, and enters then: on the queue's file system by
one rename; else it is copied, committed (`.working` to `.written`), published and finished. A claim
is never renamed back: under its name there may be a newer drop. Whoever finds claims of an intake
that is gone finishes those that are committed, and gives back the others; of two who do so, or of
one that was taken for dead and is not, each finds the name gone that the other has renamed.
"""

import errno
import os
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import NamedTuple

import msgspec

from queuedriver.disk.filesystem import Directory, move, open_fd
from queuedriver.errors import is_trouble
from queuedriver.format import names
from queuedriver.format.records import encodable
from queuedriver.intake.folder import Folder, facts_of
from queuedriver.intake.home import Home
from queuedriver.intake.into import Into, by_itself
from queuedriver.intake.options import REFUSED, IntakeOptions, fill


def archive_of(folder: Directory, form: str) -> Directory:
    """Open where files go today that were taken."""
    return folder.subdirectory(time.strftime(form), create=True)


def refused_of(folder: Directory, where: str | None) -> Directory:
    """Open where files go that were refused."""
    if where is None:
        return folder.subdirectory(REFUSED, create=True)
    return Directory.open(where, create=True)


class Claim(NamedTuple):
    """A file that is ours alone to take."""

    docid: str
    token: str
    # What it was called below the folder; its docid where nobody knows that any more.
    path: str

    @property
    def working(self) -> str:
        return names.working_name(self.docid, 0, self.token)

    @property
    def written(self) -> str:
        return names.written_name(self.docid, 0, self.token)

    @property
    def copy(self) -> str:
        """Return the name of its copy while that is not published."""
        return names.writing_name(self.docid, self.token)


class Handover:
    """Takes from one folder into one queue."""

    def __init__(self, folder: Folder, home: Home, into: Into, options: IntakeOptions) -> None:
        self.home = home
        self._folder = folder
        self._into = into
        self._options = options

    # Claim

    def claim(self, path: str, docid: str) -> Claim | None:
        """Claim a file of the folder, and remove its marker: a later one of its name has its own.
        None when it is gone."""
        at, name = os.path.split(path)
        with self._folder.opened(at) as directory:
            claim = self._claim(directory, name, docid, path)
            if claim is not None:
                self._remove_marker(directory, name)
        return claim

    def _remove_marker(self, directory: Directory, name: str) -> None:
        form, then = self._options.done, self._options.done_then
        if form is not None and "{" in form and then == "remove":
            directory.remove(fill(form, name))

    def claim_given_back(self) -> Iterator[Claim]:
        """Claim what was given back."""
        for name, item in list(names.walk(self.home.directory)):
            if item is not None and item.state == names.READY:
                claim = None
                with by_itself():
                    claim = self._claim(self.home.directory, name, item.docid, item.docid)
                if claim is not None:
                    yield claim

    def _claim(self, source: Directory, name: str, docid: str, path: str) -> Claim | None:
        claim = Claim(docid, self._next(), path)
        home = self.home.directory
        try:
            os.rename(name, claim.working, src_dir_fd=source.fd, dst_dir_fd=home.fd)
        except FileNotFoundError:
            # Another intake was faster, or the reply to a rename that happened was lost.
            return claim if home.present(claim.working) else None
        return claim

    def _next(self) -> str:
        return self.home.mint.next(time.time_ns() // 1000)

    # Enter

    def enter(self, claims: Collection[Claim]) -> dict[Claim, OSError | None]:
        """Let sealed claims into the queue; return those that are in, each with None, and those
        that cannot enter, or are gone, with the reason. What is missing has changed meanwhile."""
        home, renamed = self.home.directory, set()
        entered: dict[Claim, OSError | None] = {}
        for claim in claims:
            with suppress(FileNotFoundError):
                if self._can_rename(claim):
                    renamed.add(claim)
        if self._into.durable:
            home.sync_files(claim.working for claim in renamed)
        for claim in claims:
            try:
                final = self._rename(claim) if claim in renamed else self._carry(claim)
            except OSError as error:
                if is_trouble(error):
                    raise
                entered[claim] = error
                continue
            if final is not None:
                entered[claim] = None
                self._into.note("submitted", claim.docid, f"from {self.origin(claim)}", final)
        if self._into.durable and renamed:
            self._into.queue.sync()
            home.sync()
        return entered

    def origin(self, claim: Claim) -> str:
        """Return where a claimed file was."""
        return os.path.join(self._folder.directory.path, claim.path)

    def _can_rename(self, claim: Claim) -> bool:
        """Return whether one rename takes the file and leaves nothing of it, as of one with a
        second name, which may be written by that."""
        found = self.home.directory.status(claim.working)
        here = found.st_dev == self._into.queue.status().st_dev
        return here and found.st_nlink == 1 and not self._options.archive

    def _rename(self, claim: Claim) -> str | None:
        try:
            return self._into.enter(self.home.directory, claim.working, claim.docid, claim.token)
        except OSError as error:
            # A bind mount is another file system to a rename, though not by its number.
            if error.errno != errno.EXDEV:
                raise
            return self._carry(claim)

    def _carry(self, claim: Claim) -> str | None:
        """Copy, commit, publish and finish."""
        with open_fd(self.home.directory.open_read(claim.working)) as source:
            before = facts_of(os.fstat(source))
            self._into.copy(source, claim.copy)
            if facts_of(os.fstat(source)) != before:
                # Somebody writes it yet: the next copy replaces this one.
                return None
        if not self._commit(claim):
            self._into.set_aside(claim.copy)
            return None
        final = self._into.publish(claim.copy, claim.docid, claim.token)
        self._finish(claim, claim.written)
        return final or names.waiting_name(claim.docid, 0)

    def _commit(self, claim: Claim) -> bool:
        """Say that the copy is whole; return whether the claim was still ours. From here on the
        copy is published by whoever finds this."""
        home = self.home.directory
        try:
            home.rename(claim.working, claim.written)
        except FileNotFoundError:
            # Taken back; or it happened, and the reply was lost.
            return home.present(claim.written)
        finally:
            if self._into.durable:
                home.sync()
        return True

    def _finish(self, claim: Claim, name: str) -> None:
        """Remove the file, or move it to the archive: its document is in the queue."""
        form = self._options.archive
        if not form:
            self.home.directory.remove(name)
            return
        with archive_of(self._folder.directory, form) as archive:
            move(self.home.directory, name, archive, _kept(claim, archive), claim.token)

    # What does not enter

    def skip(self, claim: Claim, why: str) -> None:
        """Finish a claim whose content is in the queue, or was."""
        self._into.note("skipped", claim.docid, f"{self.origin(claim)}: {why}")
        self._finish(claim, claim.working)

    def refuse_drop(self, path: str, docid: str, why: str) -> None:
        """Refuse a file of the folder. It is not claimed: whoever recovers a claim knows nothing
        against it."""
        at, name = os.path.split(path)
        with self._folder.opened(at) as directory:
            if self._refuse(directory, name, Claim(docid, self._next(), path), why):
                self._remove_marker(directory, name)

    def refuse(self, claim: Claim, why: str) -> None:
        """Refuse a file that was claimed."""
        self._refuse(self.home.directory, claim.working, claim, why)

    def _refuse(self, source: Directory, name: str, claim: Claim, why: str) -> bool:
        """Move a file to where people find what was refused, with a report; return whether it was
        there."""
        with refused_of(self._folder.directory, self._options.refused) as refused:
            final = move(source, name, refused, _kept(claim, refused), claim.token)
            if final is not None:
                origin = self.origin(claim)
                said = {"file": origin, "why": why, "refused_at": time.time()}
                report = msgspec.json.format(msgspec.json.encode(encodable(said)), indent=2)
                refused.write_aside(f"{final}{names.REPORT}", report)
                self._into.note("refused", claim.docid, f"{origin}: {why}")
        return final is not None

    # Recover

    def recover(self, held: Collection[str]) -> None:
        """Finish or give back what intakes that are gone had claimed; `held` are our own N."""
        home = self.home.directory
        # First the copies: what is claimed later has no copy among them.
        copies = [one for _, one in names.walk(self._into.copies) if one is not None]
        seen: set[str] = set()
        for name, item in list(names.walk(home)):
            if item is None or not item.claimed:
                continue
            seen.add(item.token)
            if self.home.is_gone(item.token, held):
                with by_itself():
                    self._recover(name, item)
        for copy in copies:
            with by_itself():
                if copy.token not in seen and self._is_unclaimed(copy, held):
                    self._into.set_aside(names.writing_name(copy.docid, copy.token))
        self.home.forget_the_gone(seen)

    def _recover(self, name: str, item: names.Item) -> None:
        """Finish a claim that was committed; give back another."""
        home = self.home.directory
        if item.state == names.WORKING:
            move(home, name, home, names.waiting_name(item.docid, 0), item.token)
            return
        claim = Claim(item.docid, item.token, item.docid)
        final = self._into.publish(claim.copy, item.docid, item.token)
        self._finish(claim, name)
        self._into.note("recovered", item.docid, "its intake had committed it", final)

    def _is_unclaimed(self, copy: names.Item, held: Collection[str]) -> bool:
        """Return whether an unpublished copy is of an intake that is gone and has no claim, as far
        as one can see."""
        if copy.state != names.WRITING or not self.home.knows(copy.token):
            return False
        claim = Claim(copy.docid, copy.token, "")
        claimed = any(map(self.home.directory.present, (claim.working, claim.written)))
        return not claimed and self.home.is_gone(copy.token, held)


def _kept(claim: Claim, directory: Directory) -> str:
    """Return the name that a file is to have in a directory for good: its own, shortened where that
    leaves no room for a report beside it, or for a second file of that name."""
    name = os.path.basename(claim.path)
    second = names.second_docid(name, claim.token)
    room = directory.longest_name() - len(names.REPORT)
    if len(os.fsencode(second)) <= room:
        return name
    stem, _, end = second.rpartition("~")
    cut = os.fsencode(stem)[: room - len(os.fsencode(end)) - 1]
    return f"{cut.decode(errors='ignore')}~{end}"
