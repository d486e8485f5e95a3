"""Mistakes in a pipeline file, each with its line and what would be right. Pure.

A mistake is found at a path in the tables of the file, as `("stage", 2, "timeout")`. Its line is
looked for when there is one to tell.
"""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import msgspec

from queuedriver.errors import ConfigError
from queuedriver.format.units import visible

# Keys of tables, and numbers of what stands in lists.
Path = tuple[str | int, ...]

# In place of a value that is not shown.
NOTHING = object()
# Longer values are cut: a problem is one line.
_SHOWN = 40
# Characters that are parsed to find lines: the longest file has so many. A value of several lines
# is parsed with each of them; where it has many hundreds, the lines behind it may stay unknown.
_MOST_PARSED = 1_000_000


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One mistake as the author of the file is told it."""

    file: str
    # From 1; 0: the file as a whole.
    line: int = 0
    # The table: `stage "parse"`, `[pipeline]`; empty at the top.
    where: str = ""
    key: str = ""
    # The value, as the file has it or nearly so.
    found: str = ""
    problem: str
    # What would be right, or what to do.
    right: str
    exit_code: int = ConfigError.exit_code
    # Further lines for people: the end of a traceback.
    detail: tuple[str, ...] = ()

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        what = " = ".join(part for part in (self.key, self.found) if part)
        sentence = f"{what} {self.problem}".lstrip()
        head = ": ".join(part for part in (place, self.where, sentence) if part)
        # Keys, and the file's name, may have line ends in them, which would look like another one.
        return "\n    ".join(map(visible, (f"{head}; {self.right}", *self.detail)))


class BadPipeline(ConfigError):
    """A pipeline file that cannot be run, with every mistake in it."""

    def __init__(self, problems: Iterable[Problem], root: str | None = None) -> None:
        self.problems = tuple(sorted(problems, key=lambda one: (one.line, one.where, one.key)))
        # Where its queues are, as far as that can be made out.
        self.root = root
        super().__init__("\n".join(map(str, self.problems)))
        # What they have in common: permissions only, or configuration.
        codes = {one.exit_code for one in self.problems}
        self.exit_code = codes.pop() if len(codes) == 1 else ConfigError.exit_code


class Wrong(Exception):
    """A value that cannot be read, or a part of it, at a path within the value."""

    def __init__(self, found: Any, problem: str, right: str, path: Path = ()) -> None:
        super().__init__(problem)
        self.found = found
        self.problem = problem
        self.right = right
        self.path = path
        # Further mistakes in the same value.
        self.others: list[Wrong] = []


class Problems:
    """The mistakes found in one file so far. Whoever finds one adds it."""

    def __init__(self, file: str, text: str, document: Mapping[str, Any]) -> None:
        # As its reader named it.
        self.file = file
        self.found: list[Problem] = []
        self._text = text
        stages = document.get("stage")
        # What stages are called, by their numbers; one whose name is no text is not there.
        self.names: dict[int, str] = {
            index: stage["name"]
            for index, stage in enumerate(stages if isinstance(stages, list) else ())
            if isinstance(stage, dict) and isinstance(stage.get("name"), str)
        }

    def add(
        self,
        path: Path,
        problem: str,
        right: str,
        exit_code: int = ConfigError.exit_code,
        found: Any = NOTHING,
        detail: tuple[str, ...] = (),
    ) -> None:
        """Add the mistake at a path of the file."""
        where, key = self._table(path)
        self.found.append(
            Problem(
                file=self.file,
                line=self._line(path),
                where=where,
                key=_dotted(key),
                found="" if found is NOTHING else _show(found),
                problem=problem,
                right=right,
                exit_code=exit_code,
                detail=detail,
            )
        )

    @cached_property
    def lines(self) -> Mapping[Path, int]:
        """Return the line, from 1, of every key and of every part of a list."""
        return {path: line for path, line, _ in [*places(self._text)][::-1]}

    def _line(self, path: Path) -> int:
        """Return the line of a place, or of the nearest above it; of what a stage does not say
        itself, the line where it is said for all."""
        while path and path not in self.lines:
            shared = ("pipeline", *path[2:])
            # Their names are the one thing that stages do not have from there.
            if path[0] == "stage" and path[2:] and path[2] != "name" and shared in self.lines:
                return self.lines[shared]
            path = path[:-1]
        return self.lines.get(path, 0)

    def _table(self, path: Path) -> tuple[str, Path]:
        """Return the table that a place is in, for people, and its key there."""
        match path:
            case ("stage", int(index), *key):
                name = self.names.get(index)
                return f'stage "{name}"' if name else f"stage {index + 1}", tuple(key)
            case ("intake", int(index), *key):
                return f"[[intake]] {index + 1}", tuple(key)
            case ("hosts", str(name), *key):
                return f"[hosts.{name}]", tuple(key)
            case ("pipeline" | "host" | "slurm" as table, *key):
                return f"[{table}]", tuple(key)
        return "", path


class Table:
    """One table of the file: its values, and where the mistakes in it go."""

    def __init__(self, path: Path, problems: Problems) -> None:
        self.path = path
        self.values: dict[str, Any] = {}
        # The keys that are there, or should be, and cannot be relied upon.
        self.bad: set[str] = set()
        self._problems = problems

    def add(self, key: str | Path, problem: str, right: str, found: Any = NOTHING) -> None:
        """Add a mistake at a key of the table, or at a path in it; "": in all of it."""
        inside = key if isinstance(key, tuple) else (key,) if key else ()
        self._problems.add((*self.path, *inside), problem, right, found=found)


def places(text: str) -> Iterator[tuple[Path, int, Any]]:
    """Yield every key and every part of a list, with its line, from 1, and its value, up to the
    first mistake in the TOML.

    tomllib does not tell lines. But a text is TOML after each whole statement: it is fed line by
    line until tomllib takes the statement, or the part of a list that it has so far. What is new
    began there. In a list within another one, that is the line of the outer part.
    """
    # How many tables each [[array]] has so far.
    arrays: dict[Path, int] = {}
    table: Path = ()
    statement, began, parsed = "", 1, 0
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        statement += f"{line}\n"
        parsed += len(statement)
        if parsed > _MOST_PARSED:
            return
        for close in ("", "]"):
            if (found := _taken(statement + close)) is not None:
                break
        else:
            continue
        if statement.lstrip().startswith("["):
            table = ()
            while isinstance(found, dict) and found:
                ((key, found),) = found.items()
                table = (*_latest(table, arrays), key)
                yield table, began, found
            if isinstance(found, list):
                arrays[table] = arrays.get(table, 0) + 1
            table = _latest(table, arrays)
            yield table, began, found
        else:
            yield from ((path, began, value) for path, value in _parts(found, table))
        began = number + 1
        if not close:
            statement = ""


def _taken(text: str) -> Any:
    """Return what tomllib finds in a text; None when that is no TOML, or not yet."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        return None


def _latest(path: Path, arrays: Mapping[Path, int]) -> Path:
    """Return the path of the last table, where that of an array of tables is given."""
    return (*path, arrays[path] - 1) if path in arrays else path


def _parts(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """Yield everything within a value, each after what it is in."""
    inner: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    for part, found in inner:
        yield (*path, part), found
        yield from _parts(found, (*path, part))


def _dotted(key: Path) -> str:
    text = ""
    for part in key:
        text += f"[{part + 1}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _show(value: Any) -> str:
    """Return a value much as the file has it, on one line."""
    match value:
        case bool():
            text = "true" if value else "false"
        case str():
            text = msgspec.json.encode(value).decode()
        case list():
            text = f"[{', '.join(map(_show, value[:_SHOWN]))}]"
        case dict():
            inner = ", ".join(f"{key} = {_show(value[key])}" for key in list(value)[:_SHOWN])
            text = f"{{ {inner} }}" if inner else "{}"
        case _:
            text = str(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def nearest(word: str, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """Return the word that was probably meant; None when none is that much alike."""
    # Late: most files have no mistake.
    import difflib

    by_plain = {_plain(one): one for one in known}
    near = difflib.get_close_matches(_plain(word), by_plain, n=1, cutoff=likeness)
    return by_plain[near[0]] if near else None


def _plain(word: str) -> str:
    return word.lower().replace("-", "_")
