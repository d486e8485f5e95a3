"""Taking copies from a folder that is to stay as it is. A crash leaves one of these:

    home/ledger/<key>.<N>.working    N is copying the file of this key, or was
    home/<key>.<N>.writing           its copy, on its way into the queue
    home/ledger/<key>                the file was taken, by the N that is in there

The key is made of the path and of what the file is: inode, size and times. So a file that was
replaced or written since is another drop. Renaming the first to the third without replacing decides
who takes it; it is done when the copy is whole, and the file is still what it was. Whoever recovers
removes the first before it looks who has won: from then on that N cannot win any more.

An entry is forgotten when its file is gone from the very directory that it was in. That this is
there, and not what is below its mount point or on a disk in its place, the files tell: one that is
as the ledger says proves that entries of its `place` are of this file system. Whoever could yet win
by what it saw before has its own entry there; the other one stays then.
"""

import hashlib
import math
import os
import time
from collections.abc import Collection, Iterator
from contextlib import suppress

import msgspec

from queuedriver.claims.handoff import move_aside
from queuedriver.disk.filesystem import open_fd
from queuedriver.errors import NotRegular
from queuedriver.format import names
from queuedriver.format.records import encode, read_record
from queuedriver.intake.folder import writers
from queuedriver.intake.handover import Claim, Handover
from queuedriver.intake.rules import Facts, facts_of

LEDGER = "ledger"
# Hexadecimal digits of a key.
_KEY = 40
# The entries of keys that begin with one of these are looked at so often, in seconds.
_PARTS = "0123456789abcdef"
_FORGET_EVERY = 60.0


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is noted of a file."""

    token: str
    docid: str
    path: str
    at: float
    # What became of it, as the journal has it, and why.
    event: str = "submitted"
    why: str = ""
    # The inode of its directory, and the first N that knew the file system of the folder; 0 for a
    # directory on another one.
    within: int = 0
    place: str = ""


def key_of(path: str, facts: Facts) -> str:
    """Return what stands for one drop."""
    said = f"{path}\0{facts.inode} {facts.size} {facts.mtime_ns} {facts.ctime_ns}"
    return hashlib.sha256(said.encode("utf-8", "surrogateescape")).hexdigest()[:_KEY]


class Ledger(Handover):
    """Takes from a folder that stays as it is, and remembers what."""

    # The file system that the folder is on, and what is known to be on it.
    device: int = 0
    places: set[str] = msgspec.field(default_factory=set)
    # The keys of what was taken, as far as we know, and of what was gone when it was last looked
    # for.
    known: set[str] = msgspec.field(default_factory=set)
    missing: set[str] = msgspec.field(default_factory=set)
    # Which part of the keys comes next, and when.
    part: int = 0
    forget_at: float = -math.inf

    def __post_init__(self) -> None:
        self.known.update(name for name in self.claims.names() if len(name) == _KEY)
        self.device = self.folder.directory.status().st_dev
        self.places.add(next(self._recognised(), self._next()))

    def stays(self, path: str, facts: Facts) -> bool:
        """Return whether a file was taken, or refused, as it is."""
        return key_of(path, facts) in self.known

    def drop(self, path: str, docid: str, facts: Facts | None) -> Claim:
        """Return a drop of the folder that is to be claimed, or refused."""
        drop = super().drop(path, docid, facts)
        return drop._replace(stem=key_of(path, facts)) if facts is not None else drop

    def claim(self, drop: Claim) -> Claim:
        """Say that its file is about to be copied."""
        self.claims.write_first(drop.working, self._entry(drop), self.options.durable)
        return drop

    def _commit(self, claim: Claim, source: int) -> bool:
        """Decide who takes a file, unless it has changed, or somebody writes it."""
        if self._is_as_it_was(claim, source) and self._set(claim):
            return True
        # First what could still make it win.
        self.claims.remove(claim.working)
        return False

    def _is_as_it_was(self, claim: Claim, source: int) -> bool:
        with self.place(claim) as (directory, name), open_fd(directory.open_read(name)) as fd:
            there = facts_of(os.fstat(fd))
        if not facts_of(os.fstat(source)) == there == claim.known:
            return False
        return not self.told.leases or writers(source) != "some"

    def _set(self, claim: Claim) -> bool:
        try:
            self.claims.rename_new(claim.working, claim.stem)
        except FileExistsError:
            self.known.add(claim.stem)
            return False
        except FileNotFoundError:
            # We were taken for dead; or it happened, and the reply was lost.
            if self._won(claim) is None:
                return False
        self.known.add(claim.stem)
        if self.options.durable:
            self.claims.sync()
        return True

    def refuse(self, claim: Claim, why: str, event: str = "refused") -> None:
        """Note that a file is not taken, and why; it is not looked at again as it is."""
        with suppress(FileExistsError):
            entry = self._entry(claim, event, why)
            self.claims.write_first(claim.stem, entry, self.options.durable)
            self.note(event, claim.docid, f"{self.origin(claim)}: {why}")
        self.claims.remove(claim.working)
        self.known.add(claim.stem)

    def skip(self, claim: Claim, why: str) -> None:
        """Note that the content of a file is in the queue, or was."""
        self.refuse(claim, why, "skipped")

    def _finish(self, claim: Claim, name: str) -> None:
        """Leave all as it is: the ledger says for good that it was taken."""

    def _enters_by_rename(self, claim: Claim) -> bool:
        return False

    def _entry(self, claim: Claim, event: str = "submitted", why: str = "") -> bytes:
        with self.place(claim) as (directory, _):
            found = directory.status()
        entry = Entry(
            token=claim.token,
            docid=claim.docid,
            path=claim.path,
            at=time.time(),
            event=event,
            why=why,
            within=found.st_ino if found.st_dev == self.device else 0,
            place=min(self.places),
        )
        return encode(entry)

    # Recover

    def recover(self, held: Collection[str], now: float, *, blocked: bool) -> Iterator[Claim]:
        """Finish what intakes that are gone have won, and forget what they have not; and, if that
        is due, what is gone from the folder."""
        yield from super().recover(held, now, blocked=blocked)
        self.forget(now)

    def _recover(self, name: str, item: names.Item) -> None:
        claim = Claim(item.docid, item.token, "", "")
        self.claims.remove(claim.working)
        if (entry := self._won(claim)) is not None:
            self._publish(claim._replace(docid=entry.docid))
        else:
            move_aside(self.queue, self.copies, claim.copy)

    def _won(self, claim: Claim) -> Entry | None:
        """Return what is noted of a file that is this claim's; None where it is another's."""
        entry = self._winner(claim.stem)
        return entry if entry is not None and entry.token == claim.token else None

    def _winner(self, key: str) -> Entry | None:
        with suppress(NotRegular):
            return read_record(self.claims, key, Entry)
        return None

    # Forget

    def forget(self, now: float) -> None:
        """Remove entries of a part of the keys whose files have been gone for two looks, if that is
        due; `now` is monotonic."""
        if now < self.forget_at:
            return
        self.forget_at = now + _FORGET_EVERY
        part = _PARTS[self.part % len(_PARTS)]
        self.part += 1
        keys = {one for one in self.claims.names() if len(one) == _KEY and one.startswith(part)}
        self.known -= {one for one in self.known if one.startswith(part) and one not in keys}
        entries = {key: entry for key in keys if (entry := self._winner(key)) is not None}
        there = {key: self._is_there(key, entry) for key, entry in entries.items()}
        self.places |= {entries[key].place for key, is_there in there.items() if is_there}
        gone = {key for key, is_there in there.items() if is_there is False}
        missed = {key for key in gone & self.missing if entries[key].place in self.places}
        self.missing = {key for key in self.missing if not key.startswith(part)} | gone
        # Whoever begins after this finds no file.
        for key in missed - (self._begun() if missed else set()):
            self.claims.remove(key)
            self.known.discard(key)

    def _begun(self) -> set[str]:
        """Return the keys of all that is on its way into the queue."""
        begun = (*names.claims(self.claims.names()), *names.items(self.copies))
        return {item.docid for _, item in begun}

    def _recognised(self) -> Iterator[str]:
        """Yield the place of each file that is there as the ledger says."""
        for key in self.known:
            entry = self._winner(key)
            if entry is not None and self._is_there(key, entry):
                yield entry.place

    def _is_there(self, key: str, entry: Entry) -> bool | None:
        """Return whether a file is there, and as it was; None where its directory is another one,
        or cannot be read."""
        at, name = os.path.split(entry.path)
        with suppress(OSError), self.folder.opened(at) as directory:
            here = directory.status()
            if (here.st_dev, here.st_ino) == (self.device, entry.within):
                if not directory.present(name):
                    return False
                facts = facts_of(directory.status(name))
                return facts is not None and key_of(entry.path, facts) == key
        return None
