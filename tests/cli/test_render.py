"""What is shown to people: nothing in it steers their terminal, and columns line up."""

import io
import json
import os
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuedriver.cli.render import (
    Paint,
    escape,
    escape_name,
    paint_for,
    shorten,
    table,
    width,
    write_json,
)

# Lone surrogates included: they stand for the bytes of names that are no text.
ANYTHING = st.text(st.characters(codec=None))


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("scan 1.pdf", "scan 1.pdf"),
        ("größe-文書", "größe-文書"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("two\nlines\ttab\r", r"two\nlines\ttab\r"),
        ("txt.\u202eexe.fdp", r"txt.\u202eexe.fdp"),
        ("zero\u200bwidth", r"zero\u200bwidth"),
        ("\udcff\udcfe", r"\udcff\udcfe"),
        ("bell\x07 del\x7f c1\x9b31m", r"bell\x07 del\x7f c1\x9b31m"),
    ],
)
def test_name_that_could_steer_a_terminal_is_shown_as_escapes(name: str, shown: str) -> None:
    assert escape_name(name) == shown


@given(ANYTHING)
def test_nothing_unprintable_is_left_in_a_name_or_a_message(text: str) -> None:
    assert escape_name(text).isprintable()
    assert escape(text).replace("\n", "").replace("\t", "").isprintable()


def test_message_of_several_lines_keeps_its_lines() -> None:
    assert escape("a\n\tb\x1bc") == "a\n\tb\\x1bc"


def test_columns_line_up_also_under_wide_and_combining_characters() -> None:
    rows = [("文書", "1"), ("e\u0301", "22"), ("plain", "333")]
    lines = table(("NAME", ">N"), rows)
    assert lines == ["NAME     N", "文書     1", "e\u0301       22", "plain  333"]
    assert {width(line) for line in lines} == {10}


def test_only_the_elastic_column_gives_way_on_a_narrow_terminal() -> None:
    columns = ("DRIVER", "~DOCUMENT", ">N")
    rows = [("host-1", "a-very-long-name-of-a-document.pdf", "7")]
    assert table(columns, rows)[1] == "host-1  a-very-long-name-of-a-document.pdf  7"
    line = table(columns, rows, 30)[1]
    assert width(line) == 30
    assert line.startswith("host-1  a-very-")
    assert line.endswith(".pdf  7")


@given(ANYTHING.map(escape_name), st.integers(1, 40))
def test_shortened_text_fits(text: str, columns: int) -> None:
    assert width(shorten(text, columns)) <= columns


@pytest.mark.parametrize(
    ("stream", "environ", "coloured"),
    [
        (Terminal(), {"TERM": "xterm"}, True),
        (Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}, False),
        (Terminal(), {"TERM": "xterm", "NO_COLOR": ""}, True),
        (Terminal(), {"TERM": "dumb"}, False),
        (io.StringIO(), {"TERM": "xterm"}, False),
    ],
)
def test_colours_are_for_terminals_whose_owner_wants_them(
    stream: io.StringIO, environ: dict[str, str], coloured: bool
) -> None:
    assert paint_for(stream, environ).on is coloured


def test_paint_without_colours_changes_nothing() -> None:
    assert Paint().bad("x") + Paint().loud("x") + Paint().head("x") == "xxx"
    assert Paint(on=True).bad("x") == "\033[31;1mx\033[0m"


@given(st.binary().map(os.fsdecode))
def test_names_in_json_are_exact_whatever_their_bytes(name: str) -> None:
    stdout, sys.stdout = sys.stdout, io.StringIO()
    try:
        write_json({"name": name})
        whole = sys.stdout.getvalue()
        write_json({"name": name}, indent=None)
        line = sys.stdout.getvalue()[len(whole) :]
    finally:
        sys.stdout = stdout
    assert json.loads(whole) == json.loads(line) == {"version": 1, "name": name}
    assert whole.isascii()
    assert line.count("\n") == 1
