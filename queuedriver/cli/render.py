"""How results look: tables, colours, JSON, and names that cannot steer a terminal.

A file name may hold anything but '/' and NUL, and so may a message made of one. What is shown to
people goes through `escape` or `escape_name`; what programs read is JSON, where names are exact.
"""

import os
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, TextIO

from queuedriver.format.records import json_text
from queuedriver.format.units import visible

# Between two columns of a table, and the least that one has which gives way; in characters.
GAP = 2
NARROWEST = 8
_ELLIPSIS = "…"
_CLEAR = "\r\033[K"


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


class Paint(NamedTuple):
    """Colours, or none."""

    on: bool = False

    def bad(self, text: str) -> str:
        return self._in("31;1", text)

    def loud(self, text: str) -> str:
        return self._in("33;1", text)

    def head(self, text: str) -> str:
        return self._in("1", text)

    def chosen(self, text: str) -> str:
        return self._in("7", text)

    def _in(self, code: str, text: str) -> str:
        return f"\033[{code}m{text}\033[0m" if self.on and text else text


def paint_for(stream: TextIO, environ: Mapping[str, str] = os.environ) -> Paint:
    """Return colours on a terminal, unless its owner wants none."""
    wanted = not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
    return Paint(wanted and stream.isatty())


def columns_of(stream: TextIO) -> int | None:
    """Return how wide a line may be; None where nothing bounds it."""
    return size_of_terminal().columns if stream.isatty() else None


def size_of_terminal() -> os.terminal_size:
    """Return how many columns and lines the terminal has."""
    # Where nothing is drawn, nothing needs it.
    import shutil

    return shutil.get_terminal_size()


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    wide: int | None = None,
    *,
    without_empty: bool = False,
) -> list[str]:
    """Return aligned lines, the titles first, with or without columns that are empty. What is in
    the cells has been escaped.

    A title after ">" stands over numbers, which line up at their ends, and one after "~" over what
    gives way on a narrow terminal.
    """
    titles = [column.lstrip(">~") for column in columns]
    shown = [
        index
        for index, title in enumerate(titles)
        if not without_empty or any(row[index] for row in rows)
    ]
    cells = [[row[index] for index in shown] for row in (titles, *rows)]
    kinds = [columns[index][:1] for index in shown]
    widths = [max(map(width, column)) for column in zip(*cells, strict=True)]
    surplus = 0 if wide is None else sum(widths) + GAP * (len(widths) - 1) - wide
    for index, kind in enumerate(kinds):
        if kind == "~" and surplus > 0:
            widths[index] = max(width(cells[0][index]), NARROWEST, widths[index] - surplus)
    return [
        (" " * GAP)
        .join(
            _pad(shorten(cell, size), size, kind == ">")
            for cell, size, kind in zip(row, widths, kinds, strict=True)
        )
        .rstrip()
        for row in cells
    ]


def _pad(text: str, size: int, right: bool) -> str:
    space = " " * (size - width(text))
    return space + text if right else text + space


# What drivers spent their time on; `shares` are the cells.
SHARES = (">WORK", ">WAIT", ">BLOCK", ">OVERHEAD")


def shares(work: int, wait: int, block: int, overhead: int) -> tuple[str, ...]:
    """Return each part in percent of all; nothing where there is nothing."""
    parts = (work, wait, block, overhead)
    total = sum(parts)
    return tuple(f"{part / total:.0%}" if total else "" for part in parts)


def drawn_anew(line: str = "") -> str:
    """Return what has a line stand on the terminal where the last one stood, or nothing."""
    return _CLEAR + shorten(line, size_of_terminal().columns - 1)


def redraw(line: str = "") -> None:
    """Let a line stand on the terminal where the last one stood; without one, nothing."""
    # A terminal that was closed is no reason to end.
    with suppress(OSError, ValueError):
        print(drawn_anew(line), end="", file=sys.stderr, flush=True)


def write_json(document: dict[str, object], indent: int | None = 2) -> None:
    """Print a result for programs, on a line of its own without `indent`."""
    print(json_text(document, indent))
