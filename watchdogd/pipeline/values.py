"""What a value of a pipeline file may be, and what it is read as. Pure.

A reader takes what tomllib found and returns what we mean by it, or raises Wrong, which says what
is wrong with it and what would be right.
"""

import datetime
import math
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeGuard

from queuedriver.format.units import MAX_DURATION, MAX_SIZE, parse_duration, parse_size, shown
from watchdogd.pipeline.complaints import Path, Slip, Wrong, nearest
from watchdogd.pipeline.model import MAX_DRIVERS, Drivers

Reader = Callable[[Any], Any]

_DURATION = 'right would be 90 (seconds), "500 ms", "1.5 h" or "10 min"'
_SIZE = 'right would be 1000 (bytes), "600 MB" or "1.5 GiB"'
_BOUNDS = ("min", "max")
_DRIVERS = "right would be 3, or { min = 1, max = 8 }"


def wrong(found: Any, problem: str, right: str, path: Path = ()) -> NoReturn:
    raise Wrong(Slip(path, problem, right, found))


def kind_of(value: Any) -> str:
    """What somebody wrote, in a word."""
    match value:
        case bool():
            return "a truth value"
        case str():
            return "a text"
        case float() if not math.isfinite(value):
            return "no finite number"
        case int() | float():
            return "a number"
        case list():
            return "a list"
        case dict():
            return "a table"
        case datetime.date() | datetime.time():
            return "a date or a time"
    return "something else"


def each(parts: Iterable[tuple[str | int, Any]], reader: Reader) -> list[Any]:
    """All parts read, or everything that is wrong with any of them."""
    read: list[Any] = []
    slips: list[Slip] = []
    for part, value in parts:
        try:
            read.append(reader(value))
        except Wrong as error:
            slips += [slip.below(part) for slip in error.slips]
    if slips:
        raise Wrong(*slips)
    return read


def text(example: str) -> Reader:
    """Any text with something in it."""

    def read(value: Any) -> str:
        if not isinstance(value, str):
            wrong(value, f"is {kind_of(value)}", f'right would be a text, as in "{example}"')
        if not value.strip() or not value.isprintable():
            problem = "has control characters in it" if value.strip() else "is empty"
            wrong(value, problem, f'right would be as in "{example}"')
        return value

    return read


def switch(value: Any) -> bool:
    if not isinstance(value, bool):
        wrong(value, f"is {kind_of(value)}", "right would be true or false, without quotes")
    return value


def choice(*words: str) -> Reader:
    known = " or ".join(f'"{word}"' for word in words)

    def read(value: Any) -> str:
        if value in words:
            return str(value)
        near = nearest(value, words) if isinstance(value, str) else None
        right = f'right would be "{near}"' if near else f"right would be {known}"
        wrong(value, "is none of the words it may be", right)

    return read


def whole(least: int, most: int = MAX_SIZE) -> Reader:
    """A whole number."""
    bound = f"{least} or more" if most == MAX_SIZE else f"{least} to {most}"

    def read(value: Any) -> int:
        right = f"right would be a whole number, {bound}"
        if not _is_number(value):
            wrong(value, f"is {kind_of(value)}", right)
        if value != value // 1 or not least <= value <= most:
            wrong(value, "is out of bounds" if value == value // 1 else "is not whole", right)
        return int(value)

    return read


def above_zero(value: Any) -> float:
    """A number of something there must be some of."""
    right = "right would be a number above 0, as in 1 or 0.5"
    if not _is_number(value):
        wrong(value, f"is {kind_of(value)}", right)
    if not 0 < value <= MAX_SIZE:
        wrong(value, "is out of bounds", right)
    return float(value)


def duration(*, zero: bool = False) -> Reader:
    """Seconds."""

    def read(value: Any) -> float:
        seconds = _amount(value, parse_duration, MAX_DURATION, _DURATION)
        if not seconds and not zero:
            wrong(value, "is no time at all", _DURATION)
        return float(seconds)

    return read


def size(*, zero: bool = False) -> Reader:
    """Bytes."""

    def read(value: Any) -> int:
        bytes_ = _amount(value, parse_size, MAX_SIZE, _SIZE)
        if not bytes_ and not zero:
            wrong(value, "is nothing at all", _SIZE)
        return int(bytes_)

    return read


def _amount(value: Any, parse: Callable[[str], float], most: float, right: str) -> float:
    if isinstance(value, str):
        try:
            return parse(value)
        except ValueError as error:
            # The units show the value and what would be right in the same sentence.
            problem, _, better = str(error).removeprefix(f"{shown(value)} ").rpartition("; ")
            wrong(value, problem, better if "right would be" in better else right)
    if not _is_number(value):
        wrong(value, f"is {kind_of(value)}", right)
    if not 0 <= value <= most:
        wrong(value, "is negative" if value < 0 else "is too much to be meant", right)
    return value


def _is_number(value: Any) -> TypeGuard[int | float]:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def optional(reader: Reader, *words: str) -> Reader:
    """What may be "none", or false; or one of the words, which stand for themselves."""

    def read(value: Any) -> Any:
        if value is False or value == "none":
            return None
        return value if isinstance(value, str) and value in words else reader(value)

    return read


def either(switch_or: Reader) -> Reader:
    """True, false, or something that says more."""
    return lambda value: value if isinstance(value, bool) else switch_or(value)


def drivers(value: Any) -> Drivers:
    """How many drivers: a number, or the two between which the watchdog chooses."""
    count = whole(0, MAX_DRIVERS)
    if not isinstance(value, dict):
        if not _is_number(value):
            wrong(value, f"is {kind_of(value)}", _DRIVERS)
        return Drivers(count(value), count(value))
    slips = [
        Slip((key,), "is no key of drivers, which has min and max", _DRIVERS)
        for key in value
        if key not in _BOUNDS
    ]
    slips += [Slip((), f"has no {key}", _DRIVERS, value) for key in _BOUNDS if key not in value]
    if slips:
        raise Wrong(*slips)
    least, most = each(((key, value[key]) for key in _BOUNDS), count)
    if least > most:
        wrong(value, "has a min that is more than its max", _DRIVERS)
    return Drivers(least, most)


def drivers_by_stage(value: Any) -> dict[str, Drivers]:
    """How many drivers some of the stages get."""
    if not isinstance(value, dict):
        right = "right would be { parse = 3, ocr = { min = 0, max = 2 } }"
        wrong(value, f"is {kind_of(value)}", right)
    return dict(zip(value, each(value.items(), drivers), strict=True))


def environment(value: Any) -> dict[str, str]:
    """Variables of the environment; whole numbers may go without quotes."""
    if not isinstance(value, dict):
        right = 'right would be { OMP_NUM_THREADS = 1, LANG = "C.UTF-8" }'
        wrong(value, f"is {kind_of(value)}", right)
    slips = [
        Slip((name,), "cannot be the name of a variable", "right would be a name as in LANG")
        for name in value
        if not name or "=" in name or "\0" in name
    ]
    try:
        texts = each(value.items(), _variable)
    except Wrong as error:
        slips += error.slips
    if slips:
        raise Wrong(*slips)
    return dict(zip(value, texts, strict=True))


def _variable(value: Any) -> str:
    right = 'right would be a text, as in "1"'
    if isinstance(value, bool) or not isinstance(value, str | int):
        wrong(value, f"is {kind_of(value)}", right)
    if isinstance(value, str) and "\0" in value:
        wrong(value, "has a NUL in it, which no variable can", right)
    return str(value)
