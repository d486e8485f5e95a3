"""How Sphinx builds these pages; `sh tests/run` does, with warnings as errors."""

import importlib
import sys
import tomllib
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent.parent))

_project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]

project = "queuedriver"
author = "the queuedriver authors"
copyright = f"2026, {author}"
release = _project["version"]

extensions: list[str] = []
exclude_patterns = ["_build"]
# A reference to a page or a label that does not exist is an error, not a word in italics.
nitpicky = True
smartquotes = False  # `--drain` is typed with two hyphens
html_theme = "alabaster"
html_theme_options = {"description": _project["description"]}


class CodeTable(Directive):
    """Prints a table of the code, named as `module:NAME`."""

    required_arguments = 1
    widths = ""

    def run(self) -> list[nodes.Node]:
        module, _, name = self.arguments[0].partition(":")
        table = getattr(importlib.import_module(module), name)
        lines = [
            f".. list-table:: {table.title}",
            "   :header-rows: 1",
            f"   :widths: {self.widths}",
            "",
            *self.rows(table),
        ]
        holder = nodes.Element()
        text = StringList(lines, self.arguments[0])
        self.state.nested_parse(text, self.content_offset, holder)
        return holder.children

    def rows(self, table: Any) -> list[str]:
        """Return the lines of the head and of all rows."""
        raise NotImplementedError


class TransitionTable(CodeTable):
    """Prints a protocol's steps: `.. transition-table:: queuedriver.doors.fuq.client:CLIENT`."""

    widths = "14 22 40 14 10"

    def rows(self, table: Any) -> list[str]:
        lines = _row("State", "Event", "What is done", "Next state", "")
        for row in table.rows:
            event = f"{row.event}, {row.when}" if row.when else row.event
            lines += _row(row.state, event, row.action, row.to, "ours" if row.ours else "")
        return lines


class EventTable(CodeTable):
    """Prints rows of the contract: `.. event-table:: tests.contract.watchdog_events:HOST`."""

    widths = "42 48 10"

    def rows(self, table: Any) -> list[str]:
        lines = _row(table.heading, "What happens", "Within")
        for row in table.rows:
            if not row.instead:
                lines += _row(row.befalls, row.happens, f"{row.seconds:g} s")
        return lines


class DoorTable(CodeTable):
    """Prints rows of the contract: `.. door-table:: tests.contract.door_events:WORKERS`."""

    widths = "30 35 35"

    def rows(self, table: Any) -> list[str]:
        lines = _row(table.heading, "What happens", "Otherwise")
        for row in table.rows:
            others = {**row.differs, **row.not_yet}.items()
            otherwise = "; ".join(f"{protocol}: {words}" for protocol, words in others)
            lines += _row(row.befalls, row.happens, otherwise)
        return lines


def _row(*cells: str) -> list[str]:
    marks = ["   * - ", *["     - "] * (len(cells) - 1)]
    return [f"{mark}{cell}".rstrip() for mark, cell in zip(marks, cells, strict=True)]


def setup(app: Sphinx) -> None:
    app.add_directive("transition-table", TransitionTable)
    app.add_directive("event-table", EventTable)
    app.add_directive("door-table", DoorTable)
