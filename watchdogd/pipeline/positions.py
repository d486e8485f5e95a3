"""On which line of a TOML file each key stands: tomllib does not tell. Pure.

Only for text that tomllib has taken. Nothing is checked here, and of values no more is understood
than where they end and which keys are in them.
"""

import re
import tomllib
from typing import Any

from watchdogd.pipeline.complaints import Path

_SPACE = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
# A text of several lines ends at the first three quotes, and up to two more belong to it.
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}'
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\])*"'
    r"|'[^']*'",
    re.DOTALL,
)
# Numbers, instants, true and false.
_PLAIN = re.compile(r"[^,\]}#\n]*")


def find_lines(text: str) -> dict[Path, int]:
    """The line, counted from 1, of every key and of everything in a list."""
    return _Scan(text.replace("\r\n", "\n")).run()


class _Scan:
    """One walk through a text, from its beginning to its end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        # The line of a place that we have passed: counted on from there.
        self._counted = (0, 1)
        self._lines: dict[Path, int] = {}
        # How many tables each `[[array]]` has so far.
        self._arrays: dict[Path, int] = {}

    def run(self) -> dict[Path, int]:
        table: Path = ()
        while self._peek():
            table = self._header() if self._peek() == "[" else self._pair(table)
        return self._lines

    def _header(self) -> Path:
        double = self._text.startswith("[[", self._at)
        self._at += 2 if double else 1
        path = self._enter((), in_array=double)
        self._at += 2 if double else 1
        return path

    def _pair(self, table: Path) -> Path:
        path = self._enter(table)
        # The `=`.
        self._at += 1
        self._value(path)
        return table

    def _enter(self, path: Path, *, in_array: bool = False) -> Path:
        """Read a key of one or more parts, and note where it is."""
        while True:
            self._peek()
            self._note(path := (*path, self._key_part()))
            if self._peek() != ".":
                break
            self._at += 1
            path = self._latest(path)
        if not in_array:
            return self._latest(path)
        count = self._arrays.get(path, 0)
        self._arrays[path] = count + 1
        self._note(path := (*path, count))
        return path

    def _latest(self, path: Path) -> Path:
        """What is said of an array of tables is said of its last one."""
        return (*path, self._arrays[path] - 1) if path in self._arrays else path

    def _key_part(self) -> str:
        if bare := _BARE_KEY.match(self._text, self._at):
            self._at = bare.end()
            return bare[0]
        quoted = self._string()
        value: Any = tomllib.loads(f"key = {quoted}")["key"]
        return str(value)

    def _value(self, path: Path) -> None:
        match self._peek():
            case "[":
                self._inside("]", path)
            case "{":
                self._inside("}", path)
            case '"' | "'":
                self._string()
            case "":
                raise ValueError("not TOML: it ends too early")
            case _:
                self._at = _end(_PLAIN.match(self._text, self._at), self._at)

    def _inside(self, close: str, path: Path) -> None:
        """A list or an inline table, from its opening bracket to its closing one."""
        self._at += 1
        count = 0
        while (char := self._peek()) != close:
            if char == ",":
                self._at += 1
            elif close == "}":
                self._pair(path)
            else:
                self._note((*path, count))
                self._value((*path, count))
                count += 1
        self._at += 1

    def _string(self) -> str:
        begin = self._at
        self._at = _end(_STRING.match(self._text, begin), begin)
        return self._text[begin : self._at]

    def _peek(self) -> str:
        """The next character that is neither space nor comment; empty at the end."""
        self._at = _end(_SPACE.match(self._text, self._at), self._at)
        return self._text[self._at : self._at + 1]

    def _note(self, path: Path) -> None:
        at, line = self._counted
        self._counted = (self._at, line + self._text.count("\n", at, self._at))
        self._lines.setdefault(path, self._counted[1])


def _end(found: re.Match[str] | None, at: int) -> int:
    if found is None or found.end() < at:
        raise ValueError(f"not TOML, at character {at}")
    return found.end()
