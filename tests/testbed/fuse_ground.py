"""What the calls of a faulty file system have in common: its inodes, and the rules in force."""

import errno
import os
import stat
import threading
import time

import msgspec

from tests.testbed import fuse_wire as wire
from tests.testbed.fuse_inodes import Denied, Inodes
from tests.testbed.fuse_rules import Fault, Rule, Rules
from tests.testbed.fuse_wire import Valid


class Options(msgspec.Struct, frozen=True):
    """How a mount differs from a directory when there is no fault."""

    valid: Valid = Valid()
    # Whether RENAME_NOREPLACE is known. Network file systems refuse it.
    noreplace: bool = True


class Told(msgspec.Struct, frozen=True):
    """One line on stdin."""

    rules: tuple[Rule, ...] | None = None
    seed: int = 0


class Done(msgspec.Struct, frozen=True):
    """One line on stdout: how often each rule so far was met, and how often a file whose
    fsync had failed was synced again."""

    hits: tuple[int, ...] = ()
    synced_again: int = 0


class Ground:
    """A directory that is passed through, and what is told to go wrong with it."""

    def __init__(self, backing: str, options: Options) -> None:
        self._valid = options.valid
        self._noreplace = options.noreplace
        self._inodes = Inodes(backing)
        self._changed = threading.Condition()
        self._rules = Rules()
        # Names that came into being by this mount, and the inodes they were given to.
        self._own: set[tuple[str, int]] = set()
        # Files whose fsync failed.
        self._failed_syncs: set[tuple[int, int]] = set()
        self._synced_again = 0

    def tell(self, told: Told) -> Done:
        """New rules; what the old ones have done."""
        with self._changed:
            done = Done(tuple(self._rules.hits), self._synced_again)
            if told.rules is not None:
                self._rules = Rules(told.rules, told.seed)
                self._changed.notify_all()
        return done

    def _meet(self, op: str, path: str, size: int = 0) -> Fault:
        """What the rules say to a call, once its time has come; Denied before it is made."""
        rules = self._rules
        fault = rules.fault(op, path, size) or Fault()
        if fault.delay:
            time.sleep(fault.delay)
        if fault.hold:
            with self._changed:
                self._changed.wait_for(lambda: self._rules is not rules)
            return Fault()
        if fault.error and not fault.after:
            raise Denied(_number(fault))
        return fault

    def _lie(self, fault: Fault) -> None:
        """Denied after it was made, if that is the fault."""
        if fault.error:
            raise Denied(_number(fault))

    def _is_hidden(self, op: str, path: str, found: os.stat_result) -> bool:
        # What changes in a directory is its contents, not its name.
        hidden = None if stat.S_ISDIR(found.st_mode) else self._rules.hidden(op, path)
        if hidden is None or time.time() - found.st_ctime >= hidden.seconds:
            return False
        if hidden.foreign and (path, found.st_ino) in self._own:
            return False
        self._rules.hid(op)
        return True

    def _met(self, parent: int, name: str) -> bytes:
        """The answer of a call that made a name."""
        fd = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=parent)
        self._make_own(parent, name, fd)
        number, found = self._inodes.meet(fd)
        return wire.entry(number, found, self._valid)

    def _make_own(self, parent: int, name: str, fd: int) -> None:
        self._own.add((self._inodes.path(parent, name), os.fstat(fd).st_ino))


def _number(fault: Fault) -> int:
    number = getattr(errno, fault.error)
    assert isinstance(number, int)
    return number
