"""Taking copies from a folder that is to stay as it is. A crash leaves one of these:

    home/ledger/<key>.<N>     N is copying the file of this key, or was
    home/<key>.<N>.copy       its copy, on its way into the queue
    home/ledger/<key>         the file was taken, by the N that is in there

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
import itertools
import math
import os
import time
from collections.abc import Iterator
from contextlib import suppress

import msgspec

from queuedriver.disk.filesystem import Directory, open_fd
from queuedriver.errors import NotRegular
from queuedriver.format.records import encode, read_record
from queuedriver.intake.folder import Folder, facts_of, look_at
from queuedriver.intake.home import Home
from queuedriver.intake.into import Into, by_itself
from queuedriver.intake.leases import writers
from queuedriver.intake.rules import Facts

LEDGER = "ledger"
_COPY = ".copy"
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


class Ledger:
    """Takes from one folder into one queue, and remembers what."""

    def __init__(self, folder: Folder, home: Home, into: Into, ledger: Directory) -> None:
        self.home = home
        self._folder = folder
        self._into = into
        self._ledger = ledger
        # The keys of what was taken, as far as we know.
        self._known = {name for name in ledger.names() if len(name) == _KEY}
        self._device = folder.directory.status().st_dev
        # What is known to be on the file system that the folder is on.
        self._places = {next(self._recognised(), self._next())}
        # Keys whose files were gone when they were last looked for.
        self._missing: set[str] = set()
        self._parts = itertools.cycle(_PARTS)
        self._forget_at = -math.inf

    def has(self, path: str, facts: Facts) -> bool:
        """Return whether a file was taken, or refused, as it is."""
        return key_of(path, facts) in self._known

    def take(self, path: str, docid: str, facts: Facts, *, ask: bool) -> bool:
        """Take a file that has settled as these facts, unless it has changed, or somebody else has
        it; return whether it was taken. `ask`: whether leases tell of writers."""
        key, token = key_of(path, facts), self._next()
        entry = encode(self._noted(path, docid, token))
        self._ledger.write_first(_entry(key, token), entry, self._into.durable)
        at, name = os.path.split(path)
        with (
            self._folder.opened(at) as directory,
            open_fd(directory.open_read(name)) as source,
        ):
            self._into.copy(source, _copy(key, token))
            is_same = facts_of(os.fstat(source)) == look_at(directory, name) == facts
            is_same = is_same and not (ask and writers(source) == "some")
        if not (is_same and self._set(key, token)):
            self._drop(key, token)
            return False
        final = self._into.publish(_copy(key, token), docid, token)
        message = f"from {os.path.join(self._folder.directory.path, path)}"
        self._into.note("submitted", docid, message, final)
        return True

    def leave(self, path: str, docid: str, facts: Facts, event: str, why: str) -> None:
        """Note that a file is refused, or skipped, and why; it is not looked at again as it is."""
        key, token = key_of(path, facts), self._next()
        entry = self._noted(path, docid, token)
        entry = msgspec.structs.replace(entry, event=event, why=why)
        with suppress(FileExistsError):
            self._ledger.write_first(key, encode(entry), self._into.durable)
            origin = os.path.join(self._folder.directory.path, path)
            self._into.note(event, docid, f"{origin}: {why}")
        self._known.add(key)

    def _noted(self, path: str, docid: str, token: str) -> Entry:
        with self._folder.opened(os.path.dirname(path)) as directory:
            found = directory.status()
        within = found.st_ino if found.st_dev == self._device else 0
        place = min(self._places)
        return Entry(
            token=token, docid=docid, path=path, at=time.time(), within=within, place=place
        )

    # Forget

    def forget(self, now: float) -> None:
        """Remove entries of a part of the keys whose files have been gone for two looks, if that is
        due; `now` is monotonic."""
        if now < self._forget_at:
            return
        self._forget_at = now + _FORGET_EVERY
        part = next(self._parts)
        keys = {one for one in self._ledger.names() if len(one) == _KEY and one.startswith(part)}
        self._known -= {one for one in self._known if one.startswith(part) and one not in keys}
        entries = {key: entry for key in keys if (entry := self._winner(key)) is not None}
        there = {key: self._is_there(key, entry) for key, entry in entries.items()}
        self._places |= {entries[key].place for key, is_there in there.items() if is_there}
        gone = {key for key, is_there in there.items() if is_there is False}
        missed = {key for key in gone & self._missing if entries[key].place in self._places}
        self._missing = {key for key in self._missing if not key.startswith(part)} | gone
        # Whoever begins after this finds no file.
        begun = {key for key, _ in self._begun()} if missed else set()
        for key in missed - begun:
            self._ledger.remove(key)
            self._known.discard(key)

    def _recognised(self) -> Iterator[str]:
        """Yield the place of each file that is there as the ledger says."""
        for key in self._known:
            entry = self._winner(key)
            if entry is not None and self._is_there(key, entry):
                yield entry.place

    def _is_there(self, key: str, entry: Entry) -> bool | None:
        """Return whether a file is there, and as it was; None where its directory is another one,
        or cannot be read."""
        at, name = os.path.split(entry.path)
        with suppress(OSError), self._folder.opened(at) as directory:
            here = directory.status()
            if (here.st_dev, here.st_ino) == (self._device, entry.within):
                if not directory.present(name):
                    return False
                facts = facts_of(directory.status(name))
                return facts is not None and key_of(entry.path, facts) == key
        return None

    def recover(self) -> None:
        """Finish what intakes that are gone have won, and forget what they have not."""
        for key, token in sorted({*self._begun()}):
            if self.home.knows(token) and self.home.is_gone(token):
                with by_itself():
                    self._recover(key, token)

    def _recover(self, key: str, token: str) -> None:
        self._ledger.remove(_entry(key, token))
        entry = self._winner(key)
        if entry is not None and entry.token == token:
            self._into.publish(_copy(key, token), entry.docid, token)
        else:
            self._into.set_aside(_copy(key, token))

    def _begun(self) -> Iterator[tuple[str, str]]:
        """Yield the key and the N of everything that is on its way, or was."""
        for name in self._into.copies.names():
            if name.endswith(_COPY):
                key, _, token = name.removesuffix(_COPY).partition(".")
                yield key, token
        for name in self._ledger.names():
            key, dot, token = name.partition(".")
            if key and dot:
                yield key, token

    def _set(self, key: str, token: str) -> bool:
        """Decide who takes a file; return whether that is this N."""
        try:
            self._ledger.rename_new(_entry(key, token), key)
        except FileExistsError:
            self._known.add(key)
            return False
        except FileNotFoundError:
            # We were taken for dead; or it happened, and the reply was lost.
            entry = self._winner(key)
            if entry is None or entry.token != token:
                return False
        self._known.add(key)
        if self._into.durable:
            self._ledger.sync()
        return True

    def _winner(self, key: str) -> Entry | None:
        with suppress(NotRegular):
            return read_record(self._ledger, key, Entry)
        return None

    def _drop(self, key: str, token: str) -> None:
        """Forget a try that has not won and never will: first what could still make it win."""
        self._ledger.remove(_entry(key, token))
        self._into.set_aside(_copy(key, token))

    def _next(self) -> str:
        return self.home.mint.next(time.time_ns() // 1000)


def _entry(key: str, token: str) -> str:
    return f"{key}.{token}"


def _copy(key: str, token: str) -> str:
    return f"{key}.{token}{_COPY}"
