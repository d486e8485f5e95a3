"""The words of a command line, read by the parameters of the command's function. Imports little.

    def put(
        queue: str = argument("QUEUE", "The queue's directory."),
        after: float | None = option("TIME", "Not before."),
        move: bool = flag("Take the files away."),
    ) -> int: ...

A line that is right is read here and nowhere else, so a command that works never waits for typer.
From the same rows `help.py` makes typer draw the help, complete words, and say what is wrong with a
line that cannot be read.
"""

from collections.abc import Callable, Mapping, Sequence
from getopt import GetoptError, gnu_getopt
from types import NoneType
from typing import Any, NamedTuple, get_args, get_origin

from queuedriver.errors import BadArgument
from queuedriver.format.units import parse_duration, parse_instant, parse_size

# What stands for the default of a value that must be given.
REQUIRED: Any = ...
# Numbers that are written otherwise than in digits alone, as in 10min and 2GB.
_UNITS: Mapping[str, Callable[[str], float]] = {
    "TIME": parse_duration,
    "SIZE": parse_size,
    "WHEN": parse_instant,
}
# The flags of an option that is called as its parameter is.
BY_NAME = ("--",)


class Row(NamedTuple):
    """One parameter of a command: where its value comes from, and what it may be."""

    help: str
    metavar: str
    default: Any
    # Empty: an argument, which is given by its place.
    flags: tuple[str, ...]
    # Flags that say no.
    off: tuple[str, ...] = ()
    name: str = ""
    kind: type = str
    # Whether it may be given more than once.
    many: bool = False
    choices: tuple[str, ...] = ()

    @property
    def unit(self) -> str:
        """Return TIME, SIZE or WHEN, where a number is written as one."""
        return self.metavar if self.kind in (int, float) and self.metavar in _UNITS else ""

    def of(self, name: str, annotation: Any) -> "Row":
        """Return the row for a parameter of this name and annotation."""
        default = self.default
        if NoneType in (kinds := get_args(annotation)):
            annotation = kinds[0]
            default = None if default is REQUIRED else default
        many = get_origin(annotation) in (list, tuple)
        choices = () if many else get_args(annotation)
        kind = str if many or choices else annotation
        flags, off = self.flags, self.off
        if flags == BY_NAME:
            words = name.replace("_", "-")
            flags = (f"--{words}",)
            # What is off anyway needs no flag that says so.
            off = (f"--no-{words}",) if kind is bool and default is not False else ()
        return Row(self.help, self.metavar, default, flags, off, name, kind, many, choices)


# Each stands as the default of a parameter, so they return what fits them all.


def argument(metavar: str, help: str) -> Any:
    """Return the row of a parameter that is given by its place; it must be, or may be None."""
    return Row(help, metavar, REQUIRED, ())


def option(metavar: str, help: str, *flags: str, default: Any = None) -> Any:
    """Return the row of a parameter that follows a flag: its own name when no other is said."""
    return Row(help, metavar, default, flags or BY_NAME)


def flag(help: str, *flags: str, default: bool | None = False) -> Any:
    """Return the row of a parameter that a flag alone turns on, or off."""
    return option("", help, *flags, default=default)


def rows_of(function: Callable[..., Any]) -> tuple[Row, ...]:
    """Return the rows of a command's function, in the order of its parameters.

    Keyword parameters that are not named one by one are annotated with their rows.
    """
    annotations = function.__annotations__
    given = zip(function.__code__.co_varnames, function.__defaults__ or (), strict=False)
    rows = [row.of(name, annotations[name]) for name, row in given]
    for annotation in annotations.values():
        rows += getattr(annotation, "__metadata__", ())
    return tuple(rows)


def read(rows: Sequence[Row], args: Sequence[str]) -> dict[str, Any] | None:
    """Return the value of each row; None when the line cannot be read. BadArgument for a number
    with a wrong unit."""
    flags = {flag: (row, True) for row in rows for flag in row.flags}
    flags |= {flag: (row, False) for row in rows for flag in row.off}
    takes = {flag: row.kind is not bool for flag, (row, _) in flags.items()}
    short = "".join(flag[1] + ":" * takes[flag] for flag in flags if len(flag) == 2)
    long = [flag[2:] + "=" * takes[flag] for flag in flags if len(flag) > 2]
    try:
        found, places = gnu_getopt(list(args), short, long)
    except GetoptError:
        return None
    written = {word.partition("=")[0] for word in args}
    given: dict[str, Any] = {}
    last = {flags[flag][0].name: at for at, (flag, _) in enumerate(found)}
    for at, (flag, word) in enumerate(found):
        row, says = flags[flag]
        # Beginnings of flags would mean another one as soon as there is one.
        if flag[1] == "-" and flag not in written:
            return None
        if row.kind is bool:
            given[row.name] = says
        elif (row.many or at == last[row.name]) and not _take(row, flag, word, given):
            # Of what may be said once the last counts, and what was said before may be anything.
            return None
    for row in rows:
        if not row.flags:
            taken = len(places) if row.many else 1
            if not all(_take(row, row.metavar, word, given) for word in places[:taken]):
                return None
            del places[:taken]
    values = {row.name: given.get(row.name, row.default) for row in rows}
    return None if places or REQUIRED in values.values() else values


def _take(row: Row, said: str, word: str, given: dict[str, Any]) -> bool:
    """Add what a word gives a row; return whether it may be given that."""
    value: Any = word
    if row.unit:
        try:
            value = _UNITS[row.unit](word)
        except ValueError as error:
            raise BadArgument(f"{said}: {error}") from None
    elif row.kind is int:
        if not (word.isascii() and word.removeprefix("-").isdigit() and len(word) < 20):
            return False
        value = int(word)
    elif row.choices and word not in row.choices:
        return False
    if row.many:
        given.setdefault(row.name, []).append(value)
    else:
        given[row.name] = value
    return True
