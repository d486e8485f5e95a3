"""What an intake may be told: each option with its default, its unit and its help. Pure.

The command line and the tables `[[intake]]` of a pipeline's file are read by these rows.
"""

import re
import time
from collections.abc import Callable
from typing import Annotated, Literal, Self

import msgspec

from queuedriver.errors import ConfigError
from queuedriver.options import Said, check_ranges

LEAVE = "leave"
MOVE = "move"
# Where what cannot be taken goes, below the folder.
REFUSED = "refused"
_FIELD = re.compile(r"\{([^{}]*)\}")
_DAY = 86400.0
# Seconds that a file has to stand still: where a lease tells of writers on a file system that only
# this host changes; and elsewhere, where less is known.
_QUICK = 5.0
_SLOW = 30.0

Globs = tuple[str, ...]
Limit = float | None
Text = str | None


class IntakeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How an intake takes; times in seconds, sizes in bytes."""

    include: Annotated[Globs, Said("Take only such names; repeatable.", "GLOB")] = ("*",)
    exclude: Annotated[Globs, Said("Never take such names; repeatable.", "GLOB")] = ()
    temporary: Annotated[Globs, Said("More names of files in the making.", "GLOB")] = ()
    recursive: Annotated[bool, Said("Take from sub-directories, too.")] = False
    max_depth: Annotated[int, Said("So many levels of them.", "N", 1)] = 8
    docid: Annotated[str, Said("Its docid, of {name}, {stem} and {path}.", "NAME")] = "{name}"
    settle: Annotated[Limit, Said("How long it has to stand still; else 5 or 30 s.", "TIME")] = None
    min_size: Annotated[int, Said("Wait while it is smaller; 0 takes empty ones.", "SIZE", 0)] = 1
    max_size: Annotated[int | None, Said("Refuse what is larger.", "SIZE")] = None
    min_age: Annotated[float, Said("Wait until it was last written so long ago.", "TIME", 0)] = 0.0
    max_age: Annotated[Limit, Said("Leave what was last written before.", "TIME")] = None
    done: Annotated[Text, Said("Wait for {name}.done, {stem}.ok, or _SUCCESS.", "NAME")] = None
    done_then: Annotated[Literal["remove", "keep"], Said("What becomes of its marker.")] = "remove"
    complete: Annotated[Text, Said("Wait for its end: pdf, zip, jpeg; or a command.", "WORDS")] = (
        None
    )
    manifest: Annotated[Text, Said("Wait to be as SHA256SUMS or {name}.sha256 says.", "NAME")] = (
        None
    )
    after: Annotated[str, Said("What becomes of it: move, leave, archive/%Y-%m.", "WHERE")] = MOVE
    duplicates: Annotated[
        Literal["take", "skip", "set-aside"], Said("What becomes of content that was there.")
    ] = "take"
    remember: Annotated[float, Said("For how long content is known.", "TIME")] = 30 * _DAY
    refused: Annotated[Text, Said("Where refused files go; else FOLDER/refused.", "DIR")] = None
    poll: Annotated[float, Said("How often to look at least; up to 10 s when idle.", "TIME")] = 0.5
    stuck_after: Annotated[float, Said("Tell of a file that waits for so long.", "TIME")] = 3600.0
    limit: Annotated[int | None, Said("Take nothing while the queue holds so many.", "N", 1)] = None
    min_free: Annotated[int, Said("Leave so much of the queue's disk free.", "SIZE", 0)] = 10**9

    @property
    def leaves(self) -> bool:
        """Return whether the folder stays as it is."""
        return self.after == LEAVE

    @property
    def archive(self) -> str:
        """Return the directory for what was taken, as a form of a date; "" where there is none."""
        return "" if self.after in (LEAVE, MOVE) else self.after

    @property
    def markers(self) -> tuple[str, ...]:
        """Return the forms of the names of files that tell of others."""
        return tuple(filter(None, (self.done, self.manifest)))

    def check(self) -> Self:
        """Return the options themselves; ConfigError for what cannot be meant."""
        check_ranges(self)
        for name, object_to in OBJECTIONS.items():
            value = getattr(self, name)
            if value is not None and (problem := object_to(value)):
                raise ConfigError(f"--{name.replace('_', '-')} {value!r} {problem}")
        if self.is_empty_range:
            raise ConfigError("--max-size is less than min_size; right would be more")
        return self

    @property
    def is_empty_range(self) -> bool:
        """Return whether no file is neither too small nor too large."""
        return self.max_size is not None and self.max_size < self.min_size


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What the intakes of a folder were told last, and found out."""

    queue: str
    options: IntakeOptions
    # Whether leases tell of writers, and whether only this host changes the folder.
    leases: bool
    local: bool

    @property
    def quick(self) -> float:
        """Return for how many seconds a file has to stand still where a lease tells of writers."""
        return self.options.settle or (_QUICK if self.leases and self.local else _SLOW)

    @property
    def slow(self) -> float:
        """Return for how many seconds where nothing tells of them."""
        return self.options.settle or _SLOW


def fill(form: str, name: str, path: str = "") -> str:
    """Return a form with what it says of a file filled in."""
    stem = name.rpartition(".")[0] or name
    fields = {"name": name, "stem": stem, "path": path.replace("/", "_")}
    return _FIELD.sub(lambda field: fields[field[1]], form)


def _form(*known: str, needs_one: bool) -> Callable[[str], str]:
    def object_to(form: str) -> str:
        used = _FIELD.findall(form)
        if unknown := set(used) - set(known):
            there = " and ".join(f"{{{one}}}" for one in known)
            return f"has {{{min(unknown)}}}; right would be {there}"
        if needs_one and not used:
            return "names all documents alike; right would be {name} in it"
        return "is no name; right would be no '/' in it" if "/" in form or not form else ""

    return object_to


def _archive(form: str) -> str:
    if form in (LEAVE, MOVE):
        return ""
    where = time.strftime(form, time.gmtime(0)) if form else ""
    if not where or where.startswith(("/", ".")) or ".." in where.split("/"):
        return 'is no directory below the folder; right would be move, leave, or "archive/%Y-%m"'
    return ""


# Why a text cannot be an option, as the end of a sentence; "" when it can.
OBJECTIONS: dict[str, Callable[[str], str]] = {
    "docid": _form("name", "stem", "path", needs_one=True),
    "done": _form("name", "stem", needs_one=False),
    "manifest": _form("name", "stem", needs_one=False),
    "after": _archive,
    "complete": lambda words: "" if words.strip() else "is empty; right would be pdf",
}
