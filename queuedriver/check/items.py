"""One pass over the items of a queue, keeping only what is odd: memory is for the broken things,
not for the million that are well."""

import os
import stat
from collections.abc import Collection

import msgspec

from queuedriver.check.facts import Leftover, Odd
from queuedriver.claims.leftovers import SCRAPS
from queuedriver.disk.filesystem import Directory
from queuedriver.format import names
from queuedriver.operating.document_view import kind_of

# What a claim adds to a docid at most: `.failed99`, an N with its dot, `.working`.
_CLAIM_ADDS = len(".failed99") + 1 + names.MAX_DRIVER_ID + 1 + 18 + len(".working")
# So many files that are no items are named; the rest are counted.
_SHOWN = 10
_WAITING = (names.READY, names.FAILED, names.LATER)


class Seen(msgspec.Struct):
    """What a pass saw."""

    # Name, item, and for how long the file was not changed.
    claims: list[tuple[str, names.Item, float]] = msgspec.field(default_factory=list)
    writing: list[tuple[str, names.Item, float]] = msgspec.field(default_factory=list)
    # Those of the wanted docids that have an item.
    present: set[str] = msgspec.field(default_factory=set)
    twice: list[str] = msgspec.field(default_factory=list)
    not_files: list[Odd] = msgspec.field(default_factory=list)
    unreadable: list[str] = msgspec.field(default_factory=list)
    too_long: list[str] = msgspec.field(default_factory=list)
    impossible: list[Odd] = msgspec.field(default_factory=list)
    foreign: list[Odd] = msgspec.field(default_factory=list)
    foreign_count: int = 0
    scraps: list[Leftover] = msgspec.field(default_factory=list)
    overdue: int = 0
    next_due: int = 0
    given_up: int = 0


class Pass:
    """Looks at each name of a queue once."""

    def __init__(self, directory: Directory, now: float, wanted: Collection[str]) -> None:
        self.seen = Seen()
        self._directory = directory
        self._now = now
        self._wanted = wanted
        self._longest = directory.longest_name()
        # Docids that wait in another state than `.ready`: few, as a rule.
        self._second: dict[str, int] = {}

    def run(self) -> Seen:
        for name in self._directory.names():
            try:
                self._see(name, self._directory.inspect(name))
            except FileNotFoundError:
                # It has moved on, as items do.
                continue
        for docid, count in self._second.items():
            if count > 1 or self._directory.present(names.waiting_name(docid, 0)):
                self.seen.twice.append(docid)
        return self.seen

    def _see(self, name: str, found: os.stat_result) -> None:
        age = age_of(found, self._now)
        if name[0] == ".":
            if name.startswith(SCRAPS):
                self.seen.scraps.append(Leftover(name, age))
            return
        item = names.parse(name)
        if item is None:
            self._see_foreign(name, found)
            return
        if item.docid in self._wanted:
            self.seen.present.add(item.docid)
        if item.state in _WAITING:
            self._see_waiting(name, item, found)
        elif item.state == names.WRITING:
            self.seen.writing.append((name, item, age))
        elif item.state == names.FAILED_TWICE:
            self.seen.given_up += 1
        else:
            self.seen.claims.append((name, item, age))

    def _see_foreign(self, name: str, found: os.stat_result) -> None:
        if name in names.CONTROLS or name == names.DISCARDED:
            return
        if names.looks_like_item(name):
            self.seen.impossible.append(Odd(name, names.why_foreign(name)))
        elif not stat.S_ISDIR(found.st_mode):
            # Directories are not: an output or an archive may be in here.
            self.seen.foreign_count += 1
            if len(self.seen.foreign) < _SHOWN:
                self.seen.foreign.append(Odd(name, names.why_foreign(name)))

    def _see_waiting(self, name: str, item: names.Item, found: os.stat_result) -> None:
        if kind := kind_of(found.st_mode):
            self.seen.not_files.append(Odd(name, f"a {kind}"))
        elif not self._readable(name):
            self.seen.unreadable.append(name)
        if len(os.fsencode(item.docid)) + _CLAIM_ADDS > self._longest:
            self.seen.too_long.append(name)
        if item.state != names.READY:
            self._second[item.docid] = self._second.get(item.docid, 0) + 1
        if item.state == names.LATER and item.due <= self._now:
            self.seen.overdue += 1
            self.seen.next_due = min(self.seen.next_due or item.due, item.due)

    def _readable(self, name: str) -> bool:
        try:
            os.close(self._directory.open_read(name))
        except PermissionError:
            return False
        return True


def age_of(found: os.stat_result, now: float) -> float:
    """For how long a file was neither written nor touched nor renamed."""
    return now - max(found.st_mtime, found.st_ctime)
