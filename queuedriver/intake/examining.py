"""A look at one file, and what the rules say of it. What costs little is asked first, and what a
file says of its end only when it has stood still."""

import os
import time
from typing import NamedTuple

from queuedriver.disk.filesystem import Directory, open_fd
from queuedriver.intake import contents, rules
from queuedriver.intake.folder import BUSY, FORBIDDEN, NO_FILE, facts_of
from queuedriver.intake.leases import writers
from queuedriver.intake.options import IntakeOptions, fill
from queuedriver.intake.rules import QUICK, SLOW, Facts, Past, Refused, Taken, Verdict, Waits

# A list of sums of more than this is none; in bytes.
_LONGEST_SUMS = 64 << 20
# How soon the content of a file that has not changed is asked again, in seconds.
_ASK_AGAIN = 10.0

NOT_REGULAR = Refused("is not a regular file")


def _opened(directory: Directory, name: str) -> int | Waits | Refused:
    """Return a descriptor for reading, or why there is none."""
    try:
        return directory.open_read(name)
    except OSError as error:
        if error.errno in NO_FILE:
            return NOT_REGULAR
        if error.errno in FORBIDDEN:
            return Waits(f"may not be read: {error.strerror}")
        if error.errno in BUSY:
            return Waits(f"cannot be read: {error.strerror}", 1.0)
        raise


class Examined(NamedTuple):
    """What is known of a file now."""

    past: Past | None
    verdict: Verdict


class Examiner:
    """Looks at files by the rules of one folder. `leases`: whether they tell of writers there;
    `local`: whether only this host changes it."""

    def __init__(self, options: IntakeOptions, *, leases: bool, local: bool) -> None:
        self.leases = leases
        self.options = options
        quick = QUICK if leases and local else SLOW
        # Seconds that a file has to stand still where a lease tells of writers, and where not.
        self.quick, self.slow = options.settle or quick, options.settle or SLOW

    def of_drop(self, directory: Directory, name: str, past: Past | None, now: float) -> Examined:
        """Look at a file of the folder."""
        fd = _opened(directory, name)
        if not isinstance(fd, int):
            return Examined(past, fd)
        with open_fd(fd):
            facts = facts_of(os.fstat(fd))
            if facts is None:
                return Examined(None, NOT_REGULAR)
            past = rules.remember(past, facts, now)
            verdict = self._of_itself(past, now) or rules.of_age(facts, self.options, time.time())
            verdict = verdict or self._of_others(directory, name)
            if verdict is None:
                past = past._replace(looked_settled=True)
                verdict = self._of_writers(fd, past, now)
            if verdict is None:
                past = self._with_content(directory, name, fd, past, now)
                verdict = past.objection
        return Examined(past, verdict or Taken())

    def of_claim(
        self, home: Directory, name: str, known: Facts | None, past: Past | None, now: float
    ) -> Examined:
        """Look at a file that was claimed; `known` is what it was then, or None where nobody knows.
        Nobody can open it by its name any more, but somebody may have it open."""
        fd = _opened(home, name)
        if not isinstance(fd, int):
            return Examined(past, fd)
        with open_fd(fd):
            facts = facts_of(os.fstat(fd))
            if facts is None:
                return Examined(None, NOT_REGULAR)
            past = rules.remember(past, facts, now)
            is_same = known is not None and known.content == facts.content
            verdict = None if is_same else self._of_itself(past, now)
            if verdict is None:
                past = past._replace(looked_settled=True)
                verdict = self._of_writers(fd, past, now)
            if verdict is None and not is_same and self.options.complete is not None:
                verdict = contents.of_end(fd, os.path.join(home.path, name), self.options.complete)
        return Examined(past, verdict or Taken())

    def _of_itself(self, past: Past, now: float) -> Verdict | None:
        by_size = rules.of_size(past.facts, past, self.options, now)
        return by_size or rules.settling(past, self.quick, now)

    def _of_others(self, directory: Directory, name: str) -> Waits | None:
        """Return what other files say of this one."""
        for other in rules.beside(name):
            if directory.present(other):
                return Waits(f"{other} is beside it: it is being written")
        if self.options.done is not None:
            marker = fill(self.options.done, name)
            if not directory.present(marker):
                return Waits(f"waits for {marker}", for_marker=True)
        return None

    def _of_writers(self, fd: int, past: Past, now: float) -> Waits | None:
        found = writers(fd) if self.leases else "unknown"
        return rules.of_writers(past, found, self.slow, now)

    def _with_content(
        self, directory: Directory, name: str, fd: int, past: Past, now: float
    ) -> Past:
        """Return what is known of a file, with what its content says against it."""
        if now < past.asked_until:
            return past
        options = self.options
        objection: Waits | Refused | None = None
        if options.complete is not None:
            path = os.path.join(directory.path, name)
            objection = contents.of_end(fd, path, options.complete)
        if objection is None and options.manifest is not None:
            manifest = fill(options.manifest, name)
            objection = contents.of_sums(fd, name, manifest, _sums(directory, manifest))
        until = now + _ASK_AGAIN if isinstance(objection, Waits) else now
        return past._replace(objection=objection, asked_until=until)


def _sums(directory: Directory, manifest: str) -> bytes | None:
    try:
        return directory.read(manifest, _LONGEST_SUMS)
    except FileNotFoundError:
        return None
