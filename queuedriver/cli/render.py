"""How results look: tables, colours, JSON, and names that cannot steer a terminal.

A file name may hold anything but '/' and NUL, and so may a message made of one. What is shown to
people goes through `escape` or `escape_name`; what programs read is JSON, where names are exact.
"""

import json
import os
import shutil
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TextIO

from queuedriver.format.units import format_count, visible

# What `--json` documents are; raised when a field changes its meaning or goes.
VERSION = 1
_MOST = 20
_GAP = "  "
_ELLIPSIS = "…"


def escape(text: str) -> str:
    """Return text of several lines in which nothing steers a terminal."""
    return visible(text, "\n\t")


def escape_name(text: str) -> str:
    """Return a name on one line: control and format characters, line ends, overrides of the
    direction of writing and bytes that are no text become visible."""
    return visible(text)


def width(text: str) -> int:
    """Return how many columns of a terminal a printable text takes."""
    if text.isascii():
        return len(text)
    return sum(_columns(char) for char in text)


def _columns(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def shorten(text: str, columns: int) -> str:
    """Return the text in so many columns; what does not fit is left out of its middle."""
    if width(text) <= columns:
        return text
    end = _take(text[::-1], (columns - 1) // 2)[::-1]
    return _take(text, columns // 2) + _ELLIPSIS + end


def _take(text: str, columns: int) -> str:
    taken = 0
    for index, char in enumerate(text):
        taken += _columns(char)
        if taken > columns:
            return text[:index]
    return text


def some(lines: Sequence[str], noun: str) -> list[str]:
    """Return the first lines of one kind, and how many more there are: all of them tell nobody
    more."""
    more = len(lines) - _MOST
    rest = [f"and {format_count(more, f'more {noun}')} likewise"] if more > 0 else []
    return [*lines[:_MOST], *rest]


class Paint(NamedTuple):
    """Colours, or none."""

    on: bool = False

    def bad(self, text: str) -> str:
        return self._in("31;1", text)

    def loud(self, text: str) -> str:
        return self._in("33;1", text)

    def head(self, text: str) -> str:
        return self._in("1", text)

    def _in(self, code: str, text: str) -> str:
        return f"\033[{code}m{text}\033[0m" if self.on and text else text


def paint_for(stream: TextIO, environ: Mapping[str, str] = os.environ) -> Paint:
    """Return colours on a terminal, unless its owner wants none."""
    wanted = not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
    return Paint(wanted and stream.isatty())


def columns_of(stream: TextIO) -> int | None:
    """Return how wide a line may be; None where nothing bounds it."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


class Column(NamedTuple):
    """One column of a table."""

    title: str
    # Numbers line up at their ends.
    right: bool = False
    # Of all columns, the one that gives way on a narrow terminal.
    elastic: bool = False


def table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], columns_wide: int | None = None
) -> list[str]:
    """Return aligned lines, the titles first. What is in the cells has been escaped."""
    cells = [tuple(column.title for column in columns), *rows]
    widths = [max(width(row[index]) for row in cells) for index in range(len(columns))]
    if columns_wide is not None:
        surplus = sum(widths) + len(_GAP) * (len(widths) - 1) - columns_wide
        for index, column in enumerate(columns):
            if column.elastic and surplus > 0:
                widths[index] = max(len(column.title), 8, widths[index] - surplus)
    return [
        _GAP.join(
            _pad(shorten(cell, size) if column.elastic else cell, size, column.right)
            for cell, size, column in zip(row, widths, columns, strict=True)
        ).rstrip()
        for row in cells
    ]


def _pad(text: str, size: int, right: bool) -> str:
    space = " " * (size - width(text))
    return space + text if right else text + space


def write(line: str = "", stream: TextIO | None = None) -> None:
    """Print one line of results. What the encoding of the stream lacks is shown as an escape."""
    try:
        print(line, file=stream)
    except UnicodeEncodeError as error:
        known = line.encode(error.encoding, "backslashreplace").decode(error.encoding)
        print(known, file=stream)


def write_json(document: dict[str, object]) -> None:
    """Print a whole result for programs. ASCII, so every name in it is exact."""
    print(json.dumps({"version": VERSION, **document}, indent=2))


def write_json_line(document: dict[str, object]) -> None:
    """Print one of many results."""
    sys.stdout.write(json.dumps({"version": VERSION, **document}) + "\n")
