"""Taking copies from a folder that is to stay as it is. A crash leaves one of these:

    home/ledger/<key>.<N>.working    N is copying the file of this key, or was
    home/<key>.<N>.writing           its copy, on its way into the queue
    home/ledger/<key>                the file was taken, by the N that is in there

The key is made of the path and of what the file is: inode, size and times. So a file that was
replaced or written since is another drop. Renaming the first to the third without replacing decides
who takes it; it is done when the copy is whole, and the file is still what it was. Whoever recovers
removes the first before it looks who has won: from then on that N cannot win any more.

An entry is forgotten long after its file was taken, when that is gone from the very directory that
it was in, and not from what is below a mount point, or on a disk in the place of its own. Where no
number tells disks apart, a file does that is there as its entry says: what was taken by the same
intake was on the same disk.
"""

import hashlib
import os
import re
import time
from contextlib import suppress

import msgspec

from queuedriver.claims.handoff import move_aside
from queuedriver.claims.leftovers import DAY, Leftover, Swept, sweep_rows
from queuedriver.disk.filesystem import Directory, open_fd
from queuedriver.disk.mounts import filesystem_type
from queuedriver.format import names
from queuedriver.format.records import encodable, encode, read_record
from queuedriver.intake.folder import writers
from queuedriver.intake.handover import Claim, Handover
from queuedriver.intake.rules import Facts, facts_of

LEDGER = "ledger"
# Hexadecimal digits of a key.
_KEY = 40
# For so long what was taken is remembered whatever becomes of its file, in seconds: nobody is
# copying it any more who has looked at it before.
_REMEMBERED = 30 * DAY
# File systems whose number is of their own, and not of the disk that they are on for now.
_NUMBERED = ("ext2", "ext3", "ext4", "btrfs", "zfs")


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is noted of a file."""

    token: str
    docid: str
    path: str
    # What became of it, as the journal has it, and why.
    event: str = "submitted"
    why: str = ""
    # The inode of its directory, and what stands for the file system of that; "": nothing does.
    within: int = 0
    place: str = ""


def key_of(path: str, facts: Facts) -> str:
    """Return what stands for one drop."""
    said = f"{path}\0{facts.inode} {facts.size} {facts.mtime_ns} {facts.ctime_ns}"
    return hashlib.sha256(said.encode("utf-8", "surrogateescape")).hexdigest()[:_KEY]


class Ledger(Handover):
    """Takes from a folder that stays as it is, and remembers what."""

    # The keys of what was taken, as far as we know, with the N of what we took ourselves.
    known: dict[str, str] = msgspec.field(default_factory=dict)
    # How many parts of the keys were swept, by their first digits: not each time from the same one,
    # as an intake may leave before it has swept a second.
    parts: int = msgspec.field(default_factory=lambda: os.urandom(1)[0])
    # What stands for the folder's file system if that has no number: an N of ours, and what stood
    # for it before, as far as is known.
    places: set[str] = msgspec.field(default_factory=set)

    def __post_init__(self) -> None:
        self.known |= {name: "" for name in self.claims.names() if len(name) == _KEY}
        if filesystem_type(self.folder.directory.path) not in _NUMBERED:
            self.places.add(self.home.mint.next(time.time_ns() // 1000))

    def stays(self, path: str, facts: Facts) -> bool:
        """Return whether a file was taken, or refused, as it is."""
        key = key_of(path, facts)
        if len(self.places) == 1 and self.known.get(key) == "":
            # It was there before us: by it we know the file system again.
            self._may_come_back(None, None, key)
        return key in self.known

    def is_decided(self, claim: Claim) -> bool:
        """Return whether the copy of a claim is to be published, whatever becomes of its file."""
        return self.known.get(claim.stem) == claim.token

    def drop(self, path: str, docid: str, facts: Facts | None) -> Claim:
        """Return a drop of the folder that is to be claimed, or refused."""
        drop = super().drop(path, docid, facts)
        return drop._replace(stem=key_of(path, facts)) if facts is not None else drop

    def claim(self, drop: Claim) -> Claim:
        """Say that its file is about to be copied."""
        self.claims.write_first(drop.working, self._entry(drop), durable=True)
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
            self.known[claim.stem] = ""
            return False
        except FileNotFoundError:
            # We were taken for dead; or it happened, and the reply was lost.
            if self._won(claim) is None:
                return False
        self.known[claim.stem] = claim.token
        self.claims.sync()
        return True

    def _carry(self, claim: Claim) -> str | None:
        """Copy, decide and publish, or only publish what an earlier try had decided before it met
        trouble; None when the file has changed meanwhile."""
        if not self.is_decided(claim):
            return super()._carry(claim)
        self.claims.sync()
        # What we had not noted yet we have not ended either.
        is_new = claim.copy in self.begun
        return self._publish(claim) or (names.waiting_name(claim.docid, 0) if is_new else "")

    def refuse(self, claim: Claim, why: str, event: str = "refused") -> None:
        """Note that a file is not taken, and why; it is not looked at again as it is."""
        with suppress(FileExistsError):
            self.claims.write_first(claim.stem, self._entry(claim, event, why), durable=True)
            self.note(event, claim.docid, f"{self.origin(claim)}: {why}")
        self.claims.remove(claim.working)
        self.known[claim.stem] = ""

    # Recover

    def _recover(self, name: str, item: names.Item) -> None:
        claim = Claim(item.docid, item.token, "", "")
        self.claims.remove(claim.working)
        if (entry := self._won(claim)) is not None:
            self._publish(claim._replace(docid=entry.docid))
        else:
            move_aside(self.queue, self.copies, claim.copy)

    def _won(self, claim: Claim) -> Entry | None:
        """Return what is noted of a file that is this claim's; None where it is another's."""
        entry = read_record(self.claims, claim.stem, Entry)
        return entry if entry is not None and entry.token == claim.token else None

    # Forget

    def sweep(self) -> None:
        """Forget, of a part of the keys, what was taken long ago, and is gone."""
        is_one = re.compile(f"{self.parts % 16:x}[0-9a-f]{{{_KEY - 1}}}").fullmatch
        self.parts += 1
        row = Leftover("taken", "", _REMEMBERED, is_one, self._may_come_back, "remove")
        with suppress(OSError):
            sweep_rows(Swept(self.claims, self.claims), [row], most=None)
            unlisted = self.known.keys() - set(self.claims.names())
            for key in unlisted:
                if not self.claims.present(key):
                    del self.known[key]

    def _may_come_back(self, _swept: object, _where: object, key: str) -> bool:
        """Return whether a file may be there, or come back, for all that can be known. By one that
        is there as its entry says, its file system is known again."""
        entry = read_record(self.claims, key, Entry)
        if entry is None or not entry.place:
            return True
        at, name = os.path.split(entry.path)
        try:
            with self.folder.opened(at) as directory:
                places = self._places(directory)
                if directory.status().st_ino != entry.within:
                    return True
                if not directory.present(name):
                    return entry.place not in places
                facts = facts_of(directory.status(name))
        except OSError:
            return True
        if places is self.places and facts is not None and key_of(entry.path, facts) == key:
            self.places.add(entry.place)
        return True

    def _entry(self, claim: Claim, event: str = "submitted", why: str = "") -> bytes:
        with self.place(claim) as (directory, _):
            # A path that is no text is not kept as it is: nobody could look for it.
            is_text = encodable(claim.path) == claim.path
            place = min(self._places(directory), default="") if is_text else ""
            within = directory.status().st_ino
        return encode(Entry(claim.token, claim.docid, claim.path, event, why, within, place))

    def _places(self, directory: Directory) -> set[str]:
        """Return all that stands for the file system of a directory; nothing for one without a
        number that is not the folder's own."""
        if filesystem_type(directory.path) in _NUMBERED:
            number = os.fstatvfs(directory.fd).f_fsid
            return {f"{number:x}"} if number else set()
        is_own = directory.status().st_dev == self.folder.directory.status().st_dev
        return self.places if is_own else set()
