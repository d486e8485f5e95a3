"""What is wrong with a pipeline file: found as slips, told as complaints, all at once. Pure.

A slip knows its place in the file's tables, as in `("stage", 2, "timeout")`; a complaint knows the
file and the line.
"""

import difflib
import json
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from queuedriver.errors import ConfigError

# A place in the file: keys of tables, and numbers of what stands in lists.
Path = tuple[str | int, ...]

# What stands for a value that a slip does not show.
NOTHING = object()
_NOT_FOUND = 66
_NOT_PERMITTED = 77
_CONFIG = 78
# Longer values are cut: a complaint is one line.
_SHOWN = 40


class Slip(NamedTuple):
    """One mistake: where, and in words what is wrong and what would be right."""

    path: Path
    problem: str
    right: str
    found: Any = NOTHING
    exit_code: int = _CONFIG
    # Further lines for people: the end of a traceback.
    detail: tuple[str, ...] = ()

    def below(self, *parts: str | int) -> "Slip":
        """The same, seen from further up."""
        return self._replace(path=(*parts, *self.path))


class Wrong(Exception):
    """What a value cannot be read as; several slips where it has several parts."""

    def __init__(self, *slips: Slip) -> None:
        super().__init__("; ".join(slip.problem for slip in slips))
        self.slips = slips


class Complaint(msgspec.Struct, frozen=True, kw_only=True):
    """One mistake as its author is told it."""

    file: str
    # From 1; 0: the file as a whole.
    line: int
    # The table: `stage "parse"`, `[pipeline]`; empty at the top.
    where: str = ""
    key: str = ""
    # The value, as the file has it or nearly so.
    found: str = ""
    problem: str
    # What would be right, or what to do.
    right: str
    exit_code: int = _CONFIG
    detail: tuple[str, ...] = ()

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        what = " = ".join(part for part in (self.key, self.found) if part)
        sentence = f"{what} {self.problem}".lstrip()
        head = ": ".join(part for part in (place, self.where, sentence) if part)
        return "\n    ".join((_one_line(f"{head}; {self.right}"), *map(_one_line, self.detail)))


def _one_line(text: str) -> str:
    """A key or the file's name may have line ends in it, which would look like another complaint,
    and what steers a terminal."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


class BadPipeline(ConfigError):
    """A pipeline file that cannot be run; every mistake in it is told."""

    def __init__(self, complaints: Iterable[Complaint]) -> None:
        self.complaints = tuple(sorted(complaints, key=lambda one: (one.line, one.where, one.key)))
        super().__init__("\n".join(map(str, self.complaints)))
        self.exit_code = exit_code_of(self.complaints)


def exit_code_of(complaints: Iterable[Complaint]) -> int:
    """The code that says what they have in common: permissions only, or configuration."""
    codes = {one.exit_code for one in complaints}
    return codes.pop() if len(codes) == 1 else _CONFIG


def missing(file: str) -> Complaint:
    return Complaint(
        file=file,
        line=0,
        problem="there is no such file",
        right="name a pipeline file",
        exit_code=_NOT_FOUND,
    )


def denied(file: str) -> Complaint:
    return Complaint(
        file=file,
        line=0,
        problem="it may not be read: permission denied",
        right="chmod or chown it, or its directories",
        exit_code=_NOT_PERMITTED,
    )


def show(value: Any) -> str:
    """A value much as the file has it, on one line."""
    match value:
        case bool():
            text = "true" if value else "false"
        case str():
            text = json.dumps(value, ensure_ascii=False)
        case list():
            text = f"[{', '.join(map(show, value[:_SHOWN]))}]"
        case dict():
            inner = ", ".join(f"{key} = {show(value[key])}" for key in list(value)[:_SHOWN])
            text = f"{{ {inner} }}" if inner else "{}"
        case _:
            text = str(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def nearest(word: str, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """The one that was probably meant, if any is that much alike."""
    by_plain = {_plain(one): one for one in known}
    near = difflib.get_close_matches(_plain(word), by_plain, n=1, cutoff=likeness)
    return by_plain[near[0]] if near else None


def _plain(word: str) -> str:
    return word.lower().replace("-", "_")
