"""A table of results, as aligned text or as reStructuredText."""

import textwrap
from dataclasses import dataclass, field

WIDTH = 100  # columns of prose around a table


@dataclass
class Group:
    """Rows that may be compared with each other; the heading says what they have in common."""

    heading: str
    rows: list[list[str]] = field(default_factory=list)


@dataclass
class Table:
    title: str
    lead: str
    columns: list[str]
    groups: list[Group]
    notes: list[str] = field(default_factory=list)

    def _widths(self) -> list[int]:
        rows = [self.columns, *(row for group in self.groups for row in group.rows)]
        return [max(len(row[i]) for row in rows) for i in range(len(self.columns))]

    def text(self) -> str:
        widths = self._widths()
        lines = ["", self.title, "=" * len(self.title), *textwrap.wrap(self.lead, WIDTH), ""]
        lines.append(_line(self.columns, widths))
        for group in self.groups:
            if group.heading:
                lines.append(f"-- {group.heading}")
            lines += [_line(row, widths) for row in group.rows]
        for note in self.notes:
            lines += textwrap.wrap(note, WIDTH, initial_indent="* ", subsequent_indent="  ")
        return "\n".join(lines)

    def rst(self) -> str:
        widths = self._widths()
        rule = "  ".join("=" * width for width in widths)
        lines = ["", self.title, "-" * len(self.title), "", *textwrap.wrap(self.lead, WIDTH), ""]
        for group in self.groups:
            if group.heading:
                lines += [f"{group.heading[0].upper()}{group.heading[1:]}:", ""]
            lines += [rule, _line(self.columns, widths), rule]
            lines += [_line(row, widths) for row in group.rows]
            lines += [rule, ""]
        for note in self.notes:
            lines += textwrap.wrap(note, WIDTH, initial_indent="* ", subsequent_indent="  ")
        return "\n".join(lines)


def _line(cells: list[str], widths: list[int]) -> str:
    """The first column is words, the others are numbers under their heading's end."""
    first, *rest = zip(cells, widths, strict=True)
    return "  ".join([first[0].ljust(first[1]), *(cell.rjust(w) for cell, w in rest)]).rstrip()
