"""Which calls of a faulty file system go wrong, and how: rules as data, drawn by a seed.

A rename that is made and then denied, as when a reply was lost; a disk that is full until it is
not; a server that does not answer; and names that are not listed yet, since they are young:

Rule("rename", "* > *.written", error="ENOENT", after=True, count=1)
Rule("create|write", error="ENOSPC")
Rule("*", hold=True)
Rule("readdir", hide=5)
"""

import fnmatch
import random
import threading
from collections.abc import Sequence
from typing import NamedTuple

import msgspec


class Rule(msgspec.Struct, frozen=True, omit_defaults=True):
    """One fault. `op` is a word of the protocol, several with `|` between them, or `*`; `match` a
    pattern for the path below the mount, in which `*` also stands for slashes. The path of a rename
    is `old > new`."""

    op: str
    match: str = "*"
    # The name of an errno; and whether the call is made all the same, before it is answered so.
    error: str = ""
    after: bool = False
    # Of how many calls; and of how many in all, then never again.
    chance: float = 1.0
    count: int | None = None
    # Of `write`: accept this many bytes in all, and then no more.
    room: int | None = None
    # Of `write`: accept half of what is offered.
    short: bool = False
    # Seconds until the call is looked at; or until the rules change.
    delay: float = 0.0
    hold: bool = False
    # Of `lookup` and `readdir`: names that fit and were changed less than so many seconds ago are
    # not there yet; with `foreign`, only those that came into being by another mount.
    hide: float = 0.0
    foreign: bool = False


class Fault(NamedTuple):
    """What is to happen to one call."""

    error: str = ""
    after: bool = False
    short: bool = False
    delay: float = 0.0
    hold: bool = False


class Hidden(NamedTuple):
    """What is to be left out of an answer."""

    seconds: float
    foreign: bool


class Rules:
    """Rules in force. The first that fits a call decides about it."""

    def __init__(self, rules: Sequence[Rule] = (), seed: int = 0) -> None:
        self.rules = tuple(rules)
        self.hits = [0] * len(self.rules)
        self._written = [0] * len(self.rules)
        self._dice = random.Random(seed)
        self._lock = threading.Lock()

    def fault(self, op: str, path: str, size: int = 0) -> Fault | None:
        """What happens to this call; `size` is how much it writes."""
        if not self.rules:
            return None
        with self._lock:
            for index, rule in enumerate(self.rules):
                if not rule.hide and self._fits(index, op, path, size):
                    self.hits[index] += 1
                    return Fault(rule.error, rule.after, rule.short, rule.delay, rule.hold)
        return None

    def hides(self, op: str) -> bool:
        """Whether answers to these calls may leave something out."""
        return any(rule.hide and _names(rule.op, op) for rule in self.rules)

    def hidden(self, op: str, path: str) -> Hidden | None:
        """Since when this path must be there to be seen."""
        if not self.rules:
            return None
        with self._lock:
            for index, rule in enumerate(self.rules):
                if rule.hide and self._fits(index, op, path, 0):
                    return Hidden(rule.hide, rule.foreign)
        return None

    def hid(self, op: str) -> None:
        """Something was left out: a rule that hides has been met."""
        with self._lock:
            for index, rule in enumerate(self.rules):
                if rule.hide and _names(rule.op, op):
                    self.hits[index] += 1

    def _fits(self, index: int, op: str, path: str, size: int) -> bool:
        rule = self.rules[index]
        if not _names(rule.op, op):
            return False
        if not fnmatch.fnmatchcase(path, rule.match):
            return False
        if rule.count is not None and self.hits[index] >= rule.count:
            return False
        if rule.chance < 1.0 and self._dice.random() >= rule.chance:
            return False
        if rule.room is not None:
            self._written[index] += size
            return self._written[index] > rule.room
        return True


def _names(ops: str, op: str) -> bool:
    return ops == "*" or op in ops.split("|")
