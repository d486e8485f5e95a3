"""When a file is taken, and why it is not yet. Pure: facts of a file and of its past, and the time.

All of these hold of a file that is taken: it is a regular file; its name is wanted, and not one of
a file in the making; it has the size and the age that were asked for; its size, its times and its
inode have stood still for as long as it has to settle, its ctime too, which nobody can set back; no
file beside it says that it is being written; its marker is there; nobody has it open for writing,
where that can be known; and its content is whole, where that was asked for.

No file is ever given up: what is not taken waits, and a sentence says for what.
"""

import os
import stat
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple

from queuedriver.driving.measurements import FILES
from queuedriver.format.units import format_duration, format_size
from queuedriver.intake.options import IntakeOptions, fill

# As long as the settling of one that comes back again and again may grow, in seconds.
LONGEST = 600.0
_HIDDEN = "."
# Names of files in the making, of locks, and of what file managers leave, in lower case.
_TEMPORARY = (
    *("*~", "*.part", "*.partial", "*.filepart", "*.crdownload", "*.download", "*.tmp", "*.temp"),
    *("*.swp", "*.aria2", "*.opdownload", "*.ocTransferId*.part", "~syncthing~*", "~$*"),
    *("#recycle", "@eadir", "icon\r", "thumbs.db", "desktop.ini", "*.upload", "*.filling"),
)
# Beside a file, what tells that it is being written.
BESIDE = ("{name}.part", "{name}.filepart", ".~lock.{name}#")

# Why a file waits that is being written, where it is not known by whom.
SOMEBODY = "somebody has it open for writing"

Writers = Literal["none", "some", "unknown"]
# States of files that wait.
SETTLING, WAITING_MARKER, _, STUCK = FILES


class Facts(NamedTuple):
    """One look at a file: all that changes when somebody writes it."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @property
    def content(self) -> tuple[int, int, int]:
        """Return what stays when it is renamed, and not when it is written."""
        return self.size, self.mtime_ns, self.inode


class Past(NamedTuple):
    """What is known of a file from earlier looks; instants are monotonic."""

    facts: Facts
    # Since when they are these, and since when the file is there.
    since: float
    first: float
    # How often it was written again after it had looked settled.
    came_back: int = 0
    looked_settled: bool = False


class Waits(NamedTuple):
    """It is not taken yet."""

    why: str
    # How long until that may be over by itself; None: when something changes.
    seconds: float | None = None
    # Which of FILES it is counted as.
    state: str = SETTLING
    # For how long it is not asked again by itself: that may cost much.
    at_least: float = 0.0


class Refused(NamedTuple):
    """It will never do as it is."""

    why: str


# What speaks against a file; None: nothing.
Verdict = Waits | Refused | None


def facts_of(found: os.stat_result) -> Facts | None:
    """Return what the system says of a regular file; None of anything else."""
    if not stat.S_ISREG(found.st_mode):
        return None
    return Facts(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


def of_name(path: str, options: IntakeOptions) -> str:
    """Return why a file is never taken under its name; "" when it is wanted. A name hidden by its
    directory is hidden, too."""
    name = os.path.basename(path)
    if any(part.startswith(_HIDDEN) for part in path.split("/")):
        return "hidden files are never taken"
    for form in (*_TEMPORARY, *options.temporary):
        if fnmatchcase(name.lower(), form.lower()):
            return f"{form!r} is the name of a file in the making"
    for form in options.markers:
        if fnmatchcase(name, fill(form, "*")):
            return "it tells of other files"
    for at, glob in enumerate(options.exclude):
        if _matches(path, glob):
            return f"excluded by exclude[{at}], {glob!r}"
    if not any(_matches(path, glob) for glob in options.include):
        return f"not included by {' '.join(map(repr, options.include))}"
    return ""


def _matches(path: str, glob: str) -> bool:
    return fnmatchcase(path if "/" in glob else os.path.basename(path), glob)


def remember(past: Past | None, facts: Facts, now: float) -> Past:
    """Return what is known of a file after another look."""
    if past is None:
        return Past(facts, now, now)
    if past.facts == facts:
        return past
    return Past(facts, now, past.first, past.came_back + past.looked_settled)


def settling(past: Past, settle: float, now: float) -> Waits | None:
    """Return for how long a file has to stand still yet; None when it has."""
    patience = min(settle * 2.0**past.came_back, max(LONGEST, settle))
    left = past.since + patience - now
    if left <= 0:
        return None
    again = f", for it came back {past.came_back} times" if past.came_back else ""
    changed = f"changed {format_duration(now - past.since)} ago, {format_duration(left)} more"
    return Waits(changed + again, left)


def of_size(past: Past, options: IntakeOptions, now: float) -> Verdict:
    """Return what the size of a file says against it; None when nothing. An empty one is whole
    for who says so alone: too many writers begin with one."""
    facts = past.facts
    if facts.size == 0 < options.min_size:
        return Waits(f"empty for {format_duration(now - past.since)}")
    if facts.size < options.min_size:
        least = format_size(options.min_size)
        return Waits(f"{format_size(facts.size)} is less than min_size, {least}")
    if options.max_size is not None and facts.size > options.max_size:
        most = format_size(options.max_size)
        return Refused(f"{format_size(facts.size)} is more than max_size, {most}")
    return None


def of_age(facts: Facts, options: IntakeOptions, clock: float) -> Waits | None:
    """Return what the age of a file says against it; None when nothing. `clock` is in seconds since
    the epoch. A writer whose clock is ahead has not written later than the file says by itself."""
    age = max(0.0, clock - min(facts.mtime_ns, facts.ctime_ns) / 1e9)
    if age < options.min_age:
        left = options.min_age - age
        return Waits(f"min_age is {format_duration(options.min_age)}", left)
    if options.max_age is not None and age > options.max_age:
        return Waits(f"{format_duration(age)} old, more than max_age: it is left")
    return None


def of_writers(past: Past, writers: Writers, slow: float, now: float) -> Waits | None:
    """Return whether somebody may be writing a file that has stood still; None when nobody is. Only
    that somebody has it open is believed: where nobody can tell, it has to stand still for
    longer."""
    if writers == "some":
        return Waits(SOMEBODY, 1.0)
    return None if writers == "none" else settling(past, slow, now)
