"""Command lines are read as typer, which draws their help and says what is wrong, reads them."""

import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

from queuedriver.cli import PROGRAM
from queuedriver.cli.help import make
from queuedriver.cli.program import Command
from queuedriver.cli.words import Row, argument, flag, option, read, rows_of
from queuedriver.errors import BadArgument
from queuedriver.format.units import parse_duration, parse_instant, parse_size
from tests.cli.processes import ENVIRON
from tests.cli.queues import PATIENCE
from watchdogd.cli import PROGRAM as WATCHDOGD

ROOT = Path(__file__).parents[2]
UNITS: Mapping[str, Callable[[str], float]] = {
    "TIME": parse_duration,
    "SIZE": parse_size,
    "WHEN": parse_instant,
}
_PROGRAMS = {"queuedriver": PROGRAM, "watchdogd": WATCHDOGD}


def paths_of(commands: Mapping[str, Command]) -> Iterator[tuple[str, ...]]:
    """The words that call each command."""
    for name, command in commands.items():
        if command.commands:
            yield from ((name, *path) for path in paths_of(command.commands))
        else:
            yield (name,)


_COMMANDS = [(name, path) for name, one in _PROGRAMS.items() for path in paths_of(one.commands)]


def by_typer(program: str, command: tuple[str, ...], args: list[str]) -> dict[str, Any] | None:
    """What typer makes of a line; None for a line that it refuses, or answers with help."""
    made = make(_PROGRAMS[program], command)
    try:
        values = made.main([*command, *args], prog_name=program, standalone_mode=False)
    except (typer.TyperException, typer.Abort, typer.Exit):
        return None
    return values if isinstance(values, dict) else None


def typed(row: Row, value: Any) -> Any:
    if row.many and value is not None:
        return tuple(value)
    if row.unit and isinstance(value, str):
        return UNITS[row.unit](value)
    return value


def words_for(rows: tuple[Row, ...]) -> st.SearchStrategy[str]:
    flags = [flag for one in rows for flag in (*one.flags, *one.off)]
    choices = [choice for one in rows for choice in one.choices]
    usual = ["x", "q", "3", "-3", "0", "10min", "2 GB", "-", "--", "", "-x", "--frob", "a=b", "5.5"]
    usual += ["1795107600", "2031-05-01 14:00"]
    joined = [f"{flag}={value}" for flag in flags for value in ("3", "x", "1h", "")]
    short = [f"{flag}{more}" for flag in flags if len(flag) == 2 for more in ("5", "q", "f7")]
    return st.sampled_from([*flags, *flags, *choices, *usual, *joined, *short])


def rows_for(program: str, words: Sequence[str]) -> tuple[tuple[Row, ...], Sequence[str]]:
    """The rows of the command that a line calls, and the words that are for it."""
    command, rest = _PROGRAMS[program].find(words)
    assert command is not None, words
    return rows_of(_PROGRAMS[program].function(command)), rest


@pytest.mark.parametrize(("program", "command"), _COMMANDS)
def test_a_line_is_read_as_typer_reads_it(program: str, command: tuple[str, ...]) -> None:
    rows, _ = rows_for(program, command)

    @settings(max_examples=60, deadline=None)
    @given(st.lists(words_for(rows), max_size=7))
    def check(args: list[str]) -> None:
        try:
            ours = read(rows, args)
        except BadArgument:
            return
        theirs = by_typer(program, command, args)
        if ours is None:
            assert theirs is None
            return
        assert theirs is not None
        for one in rows:
            assert typed(one, ours[one.name]) == typed(one, theirs[one.name])

    check()


def test_flags_values_and_places_may_be_mixed() -> None:
    def command(
        queue: str = argument("QUEUE", ""),
        files: list[str] | None = argument("[FILE]...", ""),
        after: float | None = option("TIME", ""),
        count: int = option("N", "", "-n", default=1),
        durable: bool = flag("", default=True),
        quiet: bool = flag("", "--quiet", "-q"),
        **_: Annotated[Any, option("SIZE", "", default=5).of("size", int)],
    ) -> None: ...

    rows = rows_of(command)
    usual = {"files": None, "after": None, "count": 1, "durable": True, "quiet": False, "size": 5}
    assert read(rows, ["in"]) == {"queue": "in", **usual}
    assert read(rows, ["-qn7", "in", "a", "--after=2min", "--no-durable", "--", "-b"]) == {
        "queue": "in",
        "files": ["a", "-b"],
        "after": 120.0,
        "count": 7,
        "durable": False,
        "quiet": True,
        "size": 5,
    }
    assert read(rows, ["in", "-nx", "-n7"]) == {"queue": "in", **usual, "count": 7}
    assert read(rows, ["in", "-n7", "-nx"]) is None
    assert read(rows, []) is None
    assert read(rows, ["in", "--no-dur"]) is None
    assert read(rows, ["in", "--after"]) is None
    with pytest.raises(BadArgument, match="--size: '2G' may mean"):
        read(rows, ["in", "--size", "2G"])


# A command in a block of a page, or at its prompt; words after two blanks are about it.
_SHOWN = re.compile(r"^ +(?:\$ )?((?:queuedriver|watchdogd) \S+(?: (?! )|\\\n|\S)*)", re.M)


def test_every_command_that_the_pages_show_can_be_read() -> None:
    pages = [
        ROOT / "README.rst",
        *(ROOT / "docs").rglob("*.rst"),
        *ROOT.glob("sample_queues/**/*.rst"),
    ]
    shown = [line for page in pages for line in _SHOWN.findall(page.read_text())]
    unreadable = []
    for line in shown:
        program, *words = shlex.split(line)
        rows, args = rows_for(program, words)
        end = next((at for at, word in enumerate(args) if word in ("|", "&")), len(args))
        if read(rows, args[:end]) is None:
            unreadable.append(line)
    assert not unreadable
    assert len(shown) > 80


@pytest.mark.parametrize(
    "args", [["put", "q", "a"], ["status", "q"], ["list", "q"], ["pause", "q"], ["check", "q"]]
)
def test_a_command_that_works_never_waits_for_typer(args: list[str], tmp_path: Path) -> None:
    (tmp_path / "q").mkdir()
    (tmp_path / "a").touch()
    script = (
        "import sys; from queuedriver.cli import run; code = run(sys.argv[1:]); "
        "print('imported', code, *[one for one in ('typer', 'pydantic') if one in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, *args],
        cwd=tmp_path,
        env=ENVIRON,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert ran.stdout.splitlines()[-1] == "imported 0"
