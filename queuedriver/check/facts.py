"""What a look at a queue finds out, and what is said of it. Pure."""

from typing import NamedTuple

import msgspec

# Seconds for which a report is kept in `attempts/` though its document is not seen in `discarded/`.
KEPT = 7 * 86400.0

# What became of a driver, by its verdict.
GONE = {
    "left": "left",
    "dead": "ended without a word",
    "rebooted": "went down with its host",
    "lost": "was an earlier life of the driver of that name",
}


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is not as it should be (`broken`), or that somebody may want to know."""

    rule: str
    # The file, as a path in the queue where it is in there.
    subject: str
    message: str
    broken: bool = True
    # What --repair does about it; empty when that is left to people.
    repair: str = ""


class Driver(NamedTuple):
    """One registration. `beats_ago` is by the clocks."""

    id: str
    verdict: str
    host: str
    beats_ago: float
    # On another host, and its lease is over by the clocks.
    silent: bool = False


class Claim(NamedTuple):
    """A `.working` or `.written`. `driver` is None of one that never registered here."""

    name: str
    state: str
    owner: str
    driver: Driver | None
    verdict: str
    age: float


class Unfinished(NamedTuple):
    """A `.writing` whose driver is dead and whose claim is nowhere."""

    output: str
    name: str
    driver: Driver


class Leftover(NamedTuple):
    """A file that should have gone, and for how long it was not changed."""

    path: str
    age: float
    # What speaks for keeping it: its claim, its writer, its document.
    wanted: bool = False


class Odd(NamedTuple):
    """A file, and what is wrong with it."""

    path: str
    why: str


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """One look at a queue."""

    drivers: tuple[Driver, ...] = ()
    claims: tuple[Claim, ...] = ()
    # Directories of ours that are none; and those on another file system.
    wrong_types: tuple[Odd, ...] = ()
    elsewhere: tuple[str, ...] = ()
    settings: str = ""
    missing: tuple[str, ...] = ()
    unfinished: tuple[Unfinished, ...] = ()
    # `.writing` in this queue whose writer no queue that feeds it knows.
    strange_outputs: tuple[Leftover, ...] = ()
    plans: tuple[Leftover, ...] = ()
    damaged_plans: tuple[Odd, ...] = ()
    # Discarded documents whose reports are not beside them yet.
    interrupted: tuple[str, ...] = ()
    unreported: tuple[str, ...] = ()
    damaged_reports: tuple[str, ...] = ()
    lone_reports: tuple[str, ...] = ()
    attempts: tuple[Leftover, ...] = ()
    incoming: tuple[Leftover, ...] = ()
    scraps: tuple[Leftover, ...] = ()
    orphans: tuple[Leftover, ...] = ()
    damaged_registrations: tuple[Odd, ...] = ()
    not_files: tuple[Odd, ...] = ()
    unreadable: tuple[str, ...] = ()
    too_long: tuple[str, ...] = ()
    impossible: tuple[Odd, ...] = ()
    damaged_feeds: tuple[str, ...] = ()
    missing_feeds: tuple[Odd, ...] = ()
    # Notes.
    foreign: tuple[Odd, ...] = ()
    foreign_count: int = 0
    twice: tuple[str, ...] = ()
    overdue: int = 0
    next_due: int = 0
    given_up: int = 0
    controls: tuple[str, ...] = ()
    # Documents in a queue that is closed.
    closed_over: int = 0

    @property
    def living(self) -> bool:
        return any(one.verdict == "alive" for one in self.drivers)


def found(rule: str, subject: str, message: str, repair: str = "") -> Finding:
    return Finding(rule=rule, subject=subject, message=message, repair=repair)


def note(rule: str, subject: str, message: str) -> Finding:
    return Finding(rule=rule, subject=subject, message=message, broken=False)
