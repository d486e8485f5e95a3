"""The words of a command line, read by the annotations of the command's function. Imports little.

    def put(
        queue: Annotated[str, Argument("QUEUE", "The queue's directory.")],
        after: Annotated[float | None, Option(metavar="TIME", help="Not before.")] = None,
    ) -> int: ...

A line that is right is read here and nowhere else, so a command that works never waits for typer.
From the same rows `help.py` makes typer draw the help, complete words, and say what is wrong with a
line that cannot be read.
"""

from collections.abc import Callable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from queuedriver.errors import BadArgument
from queuedriver.format.units import parse_duration, parse_size

# What stands for the default of a value that must be given.
REQUIRED: Any = ...
# Numbers of these units are written with them, as in 10min and 2GB.
_UNITS: Mapping[str, Callable[[str], float]] = {"TIME": parse_duration, "SIZE": parse_size}


class Argument:
    """A parameter that is given by its place."""

    def __init__(self, metavar: str, help: str) -> None:
        self.flags: tuple[str, ...] = ()
        self.metavar = metavar
        self.help = help


class Option:
    """A parameter that is given by a flag; by its own name when no other is said."""

    def __init__(self, *flags: str, metavar: str = "", help: str = "") -> None:
        self.flags = flags
        self.metavar = metavar
        self.help = help


class Row(NamedTuple):
    """One parameter of a command: where its value comes from, and what it may be."""

    name: str
    kind: type
    default: Any
    # Empty: an argument.
    flags: tuple[str, ...]
    # Flags that say no.
    off: tuple[str, ...]
    metavar: str
    help: str
    # Whether it may be given more than once.
    many: bool
    choices: tuple[str, ...]

    @property
    def unit(self) -> str:
        """Return TIME or SIZE, where a number is written with a unit."""
        return self.metavar if self.kind in (int, float) and self.metavar in _UNITS else ""


def row(name: str, annotation: Any, said: Argument | Option, default: Any = REQUIRED) -> Row:
    """Return the row of a parameter with this annotation."""
    kinds = [annotation]
    if get_origin(annotation) in (Union, UnionType):
        kinds = [one for one in get_args(annotation) if one is not NoneType]
    kind = kinds[0]
    many = get_origin(kind) is list
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    flags = said.flags
    off: tuple[str, ...] = ()
    if isinstance(said, Option) and not flags:
        words = name.replace("_", "-")
        flags = (f"--{words}",)
        off = (f"--no-{words}",) if kind is bool else ()
    kind = str if many or choices else kind
    return Row(name, kind, default, flags, off, said.metavar, said.help, many, choices)


def rows_of(function: Callable[..., Any]) -> tuple[Row, ...]:
    """Return the rows of a command's function, in the order of its parameters.

    Keyword parameters that are not named one by one are annotated with their rows.
    """
    code, annotations = function.__code__, function.__annotations__
    names = code.co_varnames[: code.co_argcount]
    defaults = function.__defaults__ or ()
    without = len(names) - len(defaults)
    rows: list[Row] = []
    for index, name in enumerate(names):
        default = defaults[index - without] if index >= without else REQUIRED
        annotation = annotations[name]
        rows.append(row(name, annotation.__origin__, annotation.__metadata__[0], default))
    for name, annotation in annotations.items():
        if name not in names and name != "return":
            rows += annotation.__metadata__[0]
    return tuple(rows)


def read(rows: Sequence[Row], args: Sequence[str]) -> dict[str, Any] | None:
    """Return the value of each row; None when the line cannot be read. BadArgument for a number
    with a wrong unit."""
    flags = {flag: (one, True) for one in rows for flag in one.flags}
    flags |= {flag: (one, False) for one in rows for flag in one.off}
    given: dict[str, Any] = {}
    places: list[str] = []
    words = list(args[::-1])
    while words:
        word = words.pop()
        if word == "--":
            places += words[::-1]
            break
        if len(word) < 2 or word[0] != "-":
            places.append(word)
            continue
        flag, attached, value = word.partition("=")
        if word[1] != "-":
            # -n5, and -qf for -q -f.
            flag, attached = word[:2], word[2:]
            value = attached
        if flag not in flags:
            return None
        one, says = flags[flag]
        if one.kind is bool:
            given[one.name] = says
            if attached and word[1] == "-":
                return None
            if attached:
                words.append(f"-{attached}")
        elif not (attached or words) or not _take(
            one, flag, value if attached else words.pop(), given
        ):
            return None
    return _placed(rows, places, given)


def _placed(rows: Sequence[Row], places: list[str], given: dict[str, Any]) -> dict[str, Any] | None:
    """Return all values, the arguments among them; None when there are too many or too few."""
    for one in rows:
        if one.flags:
            continue
        taken = len(places) if one.many else 1
        for word in places[:taken]:
            if not _take(one, one.metavar, word, given):
                return None
        places = places[taken:]
    values = {one.name: given.get(one.name, one.default) for one in rows}
    return None if places or REQUIRED in values.values() else values


def _take(one: Row, said: str, word: str, given: dict[str, Any]) -> bool:
    """Add what a word gives a row; return whether it may be given that."""
    value: Any = word
    if one.unit:
        try:
            value = _UNITS[one.unit](word)
        except ValueError as error:
            raise BadArgument(f"{said}: {error}") from None
    elif one.kind is int:
        if not (word.isascii() and word.removeprefix("-").isdigit() and len(word) < 20):
            return False
        value = int(word)
    elif one.choices and word not in one.choices:
        return False
    if one.many:
        given.setdefault(one.name, []).append(value)
    else:
        given[one.name] = value
    return True
