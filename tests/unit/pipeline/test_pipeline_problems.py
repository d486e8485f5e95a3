"""Where the keys of a TOML file are, held against what tomllib finds in it."""

import random
import time
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdogd.pipeline.problems import Path, places

SCALARS = (
    *("1", "-0.5", "1_000", "0xff", "inf", "true", "1979-05-27 07:32:00", "07:32:00", '""', "''"),
    r'"a # \" [b] = \\"',
    r"'a # \ [b] = '",
    '"""\n[no.header]\nno = "key" # ""\\" \\\n   """',
    '"""ends in two quotes"""""',
    "'''\n[no]\nno = ''[]\n'''",
    "'''ends in a quote''''",
)
KEYS = ("{}", "{}-x", '"{} [=]#"', r'"{}\t\"\u00e9"', "'{} \"#'", '"{}.x"')
GAPS = ("", "", "\n", "\n\n", "# a = [1\n", "  \n\t# [[x]]\n", "\r\n")


class Writer:
    """Writes a file with some of everything in it, and notes where the keys are."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.text = ""
        self.lines: dict[Path, int] = {}
        # Of what is in a list or an inline table: the line of its key, which is told where values
        # of several lines are within others.
        self.earliest: dict[Path, int] = {}
        self.key_line = 0
        self.count = 0

    def put(self, text: str) -> None:
        self.text += text

    def note(self, path: Path) -> Path:
        line = self.lines.setdefault(path, 1 + self.text.count("\n"))
        self.earliest.setdefault(path, self.key_line or line)
        return path

    def key(self) -> tuple[str, str]:
        """A new key, as it is written and as it is meant."""
        self.count += 1
        written = self.dice.choice(KEYS).format(f"k{self.count}")
        (meant,) = tomllib.loads(f"{written} = 1")
        return written, meant

    def file(self) -> None:
        self.pairs((), 2)
        for _ in range(self.dice.randrange(4)):
            self.table((), "")

    def table(self, above: Path, before: str) -> None:
        """A table or an array of them, and some below each."""
        written, meant = self.key()
        dot = self.dice.choice((".", " . "))
        name = f"{before}{dot}{written}" if before else written
        is_array = self.dice.random() < 0.5
        for index in range(self.dice.randrange(1, 3) if is_array else 1):
            for length in range(1, len(above) + 1):
                self.note(above[:length])
            path = self.note((*above, meant))
            if is_array:
                path = self.note((*path, index))
            self.put(f"[[{name}]]" if is_array else f"[ {name} ]")
            self.put(self.dice.choice(("\n", " # ]\n")))
            self.pairs(path, 2)
            if len(path) < 4 and self.dice.random() < 0.4:
                self.table(path, name)

    def pairs(self, path: Path, depth: int) -> None:
        self.put(self.dice.choice(GAPS))
        for _ in range(self.dice.randrange(4)):
            self.pair(path, depth)
            self.put(self.dice.choice(("\n", "  # = {\n")) + self.dice.choice(GAPS))

    def pair(self, path: Path, depth: int) -> None:
        for last in self.dice.choice(((True,), (True,), (False, True))):
            written, meant = self.key()
            path = self.note((*path, meant))
            self.put(written + ("" if last else self.dice.choice((".", " . "))))
        self.put(self.dice.choice((" = ", "=")))
        self.value(path, depth)

    def value(self, path: Path, depth: int) -> None:
        outermost, self.key_line = self.key_line, self.key_line or self.lines[path]
        kind = self.dice.randrange(5) if depth else 0
        count = self.dice.randrange(4)
        if kind == 3:
            self.put("[" + self.dice.choice(GAPS))
            for index in range(count):
                self.value(self.note((*path, index)), depth - 1)
                self.put(self.dice.choice(GAPS))
                if index < count - 1 or self.dice.random() < 0.5:
                    self.put("," + self.dice.choice(GAPS))
            self.put("]")
        elif kind == 4:
            self.put("{ ")
            for index in range(count):
                self.pair(path, depth - 1)
                self.put(" , " if index < count - 1 else " ")
            self.put("}")
        else:
            self.put(self.dice.choice(SCALARS))
        self.key_line = outermost


def everything_in(value: Any, path: Path = ()) -> Iterator[Path]:
    """Every place in what tomllib found."""
    parts: Any = ()
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, list):
        parts = enumerate(value)
    for part, inner in parts:
        yield (*path, part)
        yield from everything_in(inner, (*path, part))


def find_lines(text: str) -> dict[Path, int]:
    """The line of each place."""
    lines: dict[Path, int] = {}
    for path, line, _ in places(text):
        lines.setdefault(path, line)
    return lines


@given(st.randoms(use_true_random=False))
def test_every_key_that_tomllib_sees_has_the_line_it_was_written_on(dice: random.Random) -> None:
    writer = Writer(dice)
    writer.file()
    lines = find_lines(writer.text)
    assert set(lines) == set(everything_in(tomllib.loads(writer.text)))
    for path, line in writer.lines.items():
        assert writer.earliest.get(path, line) <= lines[path] <= line


@pytest.mark.parametrize(
    ("text", "path", "line"),
    [
        ("a = 1\r\nb = 2\r\n", ("b",), 2),
        ("[x]\n[y]\n[x.z]\na = 1", ("x", "z", "a"), 4),
        ("[[s]]\n[s.env]\na = 1\n[[s]]\n[s.env]\na = 2", ("s", 1, "env", "a"), 6),
        ("[[s]]\nenv.a = 1\nenv.b = 2", ("s", 0, "env"), 2),
        ("[[s]]\nenv.a = 1\nenv.b = 2", ("s", 0, "env", "b"), 3),
        ('a = [\n  "x",\n  # no\n  3\n]', ("a", 1), 4),
        ('a = [\n  { x = 1 }, { x = 2 },\n  """\n""", { x = 3 }\n]', ("a", 3, "x"), 3),
        # Of lists within others that take several lines, the line of the outer part.
        ("a = { b = [ { c = 1 }, { c = [\n2 ] } ] }", ("a", "b", 1, "c", 0), 1),
        ("a = [\n1,\n[ 2,\n3 ] ]", ("a", 1, 1), 3),
    ],
)
def test_a_key_is_found_where_it_is(text: str, path: Path, line: int) -> None:
    assert find_lines(text)[path] == line


@pytest.mark.parametrize("text", ["a = [", "a = {", 'a = "', "[", "[[a]", "a", "a.", "a = [1, {"])
def test_what_stands_before_a_mistake_in_the_toml_is_found(text: str) -> None:
    found = list(places(f'[pipeline]\nroot = "x"\n{text}\nmore = 1\n'))
    assert found[:2] == [(("pipeline",), 1, {}), (("pipeline",), 1, {})]
    assert found[2] == (("pipeline", "root"), 2, "x")
    assert ("more",) not in {path[-1:] for path, _, _ in found}


def test_looking_for_lines_ends_however_large_a_value_is() -> None:
    text = "a = 1\nb = [\n" + "[1, 2],\n" * 100_000 + "]\nc = 1\n"
    began = time.process_time()
    lines = find_lines(text)
    assert time.process_time() - began < 60
    assert (lines[("a",)], lines[("b",)], lines[("b", 10)]) == (1, 2, 13)
