"""Taking copies from a folder that is to stay as it is. A crash leaves one of these:

    home/ledger/<key>.<N>.working    N is copying the file of this key, or was
    home/<key>.<N>.writing           its copy, on its way into the queue
    home/ledger/<key>                the file was taken, by the N that is in there

The key is made of the path and of what the file is: inode, size and times. So a file that was
replaced or written since is another drop. Renaming the first to the third without replacing decides
who takes it; it is done when the copy is whole, and the file is still what it was. Whoever recovers
removes the first before it looks who has won: from then on that N cannot win any more.

An entry is forgotten long after its file was taken, when that is gone from the very directory that
it was in, and not from what is below a mount point, or on a disk in the place of its own.
"""

import hashlib
import os
import re
from contextlib import suppress

import msgspec

from queuedriver.claims.handoff import move_aside
from queuedriver.claims.leftovers import DAY, Leftover, Swept, sweep_rows
from queuedriver.disk.filesystem import Directory, open_fd
from queuedriver.disk.mounts import filesystem_type
from queuedriver.format import names
from queuedriver.format.records import encode, read_record
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
    # Its directory: the number that the file system has for good, and the inode; 0 without any.
    within: tuple[int, int] = (0, 0)


def key_of(path: str, facts: Facts) -> str:
    """Return what stands for one drop."""
    said = f"{path}\0{facts.inode} {facts.size} {facts.mtime_ns} {facts.ctime_ns}"
    return hashlib.sha256(said.encode("utf-8", "surrogateescape")).hexdigest()[:_KEY]


class Ledger(Handover):
    """Takes from a folder that stays as it is, and remembers what."""

    # The keys of what was taken, as far as we know, with the N of what we took ourselves.
    known: dict[str, str] = msgspec.field(default_factory=dict)
    # How many parts of the keys were swept, by their first digits.
    parts: int = 0

    def __post_init__(self) -> None:
        self.known |= {name: "" for name in self.claims.names() if len(name) == _KEY}

    def stays(self, path: str, facts: Facts) -> bool:
        """Return whether a file was taken, or refused, as it is."""
        return key_of(path, facts) in self.known

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
        if self.known.get(claim.stem) != claim.token:
            return super()._carry(claim)
        return self._publish(claim) or names.waiting_name(claim.docid, 0)

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

    def _may_come_back(self, _swept: Swept, _where: Directory, key: str) -> bool:
        """Return whether a file may be there, or come back, for all that can be known."""
        entry = read_record(self.claims, key, Entry)
        if entry is None or not entry.within[0]:
            return True
        at, name = os.path.split(entry.path)
        try:
            with self.folder.opened(at) as directory:
                return _identity(directory) != entry.within or directory.present(name)
        except OSError:
            return True

    def _entry(self, claim: Claim, event: str = "submitted", why: str = "") -> bytes:
        with self.place(claim) as (directory, _):
            is_numbered = filesystem_type(directory.path) in _NUMBERED
            within = _identity(directory) if is_numbered else (0, 0)
        return encode(Entry(claim.token, claim.docid, claim.path, event, why, within))


def _identity(directory: Directory) -> tuple[int, int]:
    return os.fstatvfs(directory.fd).f_fsid, directory.status().st_ino
