"""Durations and sizes as people write them: "10 min", "1.5 h", "2GB", "1 GiB". Pure.

    duration   90 = 90 s, or parts with units from us to weeks: "500ms", "1.5 h", "3 min 20 s"
    size       1000 = 1000 bytes, or one number with a unit: kB MB GB TB PB in powers of 1000,
               KiB MiB GiB TiB PiB in powers of 1024
    instant    "2031-05-01 14:00" in local time, or with its offset from UTC; or seconds since 1970

What is formatted here can be parsed here, to the digits that were shown.
"""

import math
import re
import time
from contextlib import suppress

_UNITS = {
    1e-6: "us µs",
    1e-3: "ms",
    1.0: "s sec secs second seconds",
    60.0: "m min mins minute minutes",
    3600.0: "h hr hrs hour hours",
    86400.0: "d day days",
    604800.0: "w week weeks",
}
_SECONDS = {unit: seconds for seconds, units in _UNITS.items() for unit in units.split()}
_PREFIXES = "kMGTP"
_BYTES = {"": 1, "b": 1, "byte": 1, "bytes": 1}
for _power, _prefix in enumerate(_PREFIXES.lower(), 1):
    _BYTES |= {f"{_prefix}b": 1000**_power, f"{_prefix}ib": 1024**_power}

# No queue waits for a century: a longer duration is a slip, and poll(2), timers and sums of
# instants overflow somewhere above it.
MAX_DURATION = 100 * 365.25 * 86400.0
# What the kernel can say of a file's size.
MAX_SIZE = 2**63 - 1

# Bounded digits: a number of a million digits is an attack or a wrong file, not a number.
_NUMBER = r"[0-9]{1,20}(?:\.[0-9]{0,20})?|\.[0-9]{1,20}"
_PART = re.compile(rf"\s*({_NUMBER})\s*([a-zµ]+)\s*")
_PLAIN = re.compile(_NUMBER)
_SIZE = re.compile(rf"({_NUMBER})\s*([a-z]*)")
_SHOWN = 40
# The first second of 2001: a smaller number is meant for a duration; and the last one of 9999: a
# larger one counts milliseconds.
_EARLIEST, _LATEST = 978_307_200.0, 253_402_300_799.0


def parse_duration(text: str) -> float:
    """Return seconds. A number without a unit is seconds."""
    # The Greek letter and the micro sign look alike, and keyboards have either.
    plain = text.strip().lower().replace("\u03bc", "µ")
    if _PLAIN.fullmatch(plain):
        seconds = float(plain)
    else:
        seconds, end = 0.0, 0
        while end < len(plain):
            part = _PART.match(plain, end)
            if part is None or part[2] not in _SECONDS:
                raise ValueError(_duration_objection(text, part[2] if part else ""))
            seconds += float(part[1]) * _SECONDS[part[2]]
            end = part.end()
        if not end:
            raise ValueError(_duration_objection(text))
    if seconds > MAX_DURATION:
        raise ValueError(f"{shown(text)} is longer than 100 years; leave a limit out to have none")
    return seconds


def _duration_objection(text: str, unit: str = "") -> str:
    unknown = "" if unit in _SECONDS else unit
    return _objection(
        text, unknown, "duration", "90, 1.5 h or 10 min", "90, 500 ms, 1.5 h or 10 min"
    )


def _objection(text: str, unknown: str, kind: str, like: str, right: str) -> str:
    """Return why a text is no duration or no size: its sign, or a unit that there is not."""
    if text.strip().startswith("-"):
        return f"{shown(text)} is negative; a {kind} is 0 or more, as in {like}"
    because = f": there is no unit {shown(unknown)}" if unknown else ""
    return f"{shown(text)} is not a {kind}{because}; right would be {right}"


def parse_size(text: str) -> int:
    """Return bytes. A number without a unit is bytes; a part of a byte is dropped."""
    found = _SIZE.fullmatch(text.strip().lower())
    if found is None or found[2] not in _BYTES:
        raise ValueError(_size_objection(text, found[2] if found else ""))
    # In whole numbers: a float has no room for the last bytes of a large size.
    whole, _, decimals = found[1].partition(".")
    size = int(whole + decimals) * _BYTES[found[2]] // int(10 ** len(decimals))
    if size > MAX_SIZE:
        raise ValueError(f"{shown(text)} is more than a file can hold; right would be 2 GB")
    return size


def _size_objection(text: str, unit: str) -> str:
    if unit and unit in _PREFIXES.lower():
        # A seventh to a fourteenth more or less, depending on who reads it.
        prefix = _PREFIXES[_PREFIXES.lower().index(unit)]
        decimal, binary = f"{prefix}B", f"{prefix.upper()}iB"
        number = text.strip()[:-1].rstrip()[:_SHOWN]
        return (
            f"{shown(text)} may mean powers of 1000 or of 1024; "
            f"right would be {number} {decimal} or {number} {binary}"
        )
    return _objection(text, unit, "size", "1000, 600 MB or 1.5 GiB", "1000, 600 MB, 2GB or 1.5 GiB")


def parse_instant(text: str) -> float:
    """Return seconds since the epoch: `$SLURM_JOB_END_TIME` has them, or a date and a time."""
    plain = text.strip()
    if _PLAIN.fullmatch(plain):
        if _EARLIEST <= float(plain) <= _LATEST:
            return float(plain)
    else:
        # Late: few commands have an instant to read.
        from datetime import datetime

        with suppress(ValueError, OverflowError, OSError):
            return datetime.fromisoformat(plain).timestamp()
    raise ValueError(
        f"{shown(text)} is no instant; right would be '2031-05-01 14:00', or seconds since 1970"
    )


def shown(text: str) -> str:
    """Return how a text that cannot be read stands in the words about it."""
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


def visible(text: str, kept: str = "") -> str:
    """Return text in which nothing but what is kept steers a terminal: control and format
    characters and bytes that are no text are written out."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in kept else char.encode("unicode_escape").decode()
        for char in text
    )


def first_line(text: str) -> str:
    """Return the first line that is not blank; "" when there is none."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def format_duration(seconds: float) -> str:
    """Return as much as a reader wants to know: "45 ms", "3.2 s", "3 min 20 s", "2 d 3 h"."""
    if not math.isfinite(seconds):
        # An ETA while nothing moves.
        return "unknown"
    if seconds < 0:
        # Two hosts' clocks differ; what comes of that is to be seen, not hidden.
        text = format_duration(-seconds)
        return text if text == "0 s" else f"-{text}"
    # Each bound is where rounding would show the next unit's first value.
    if seconds < 0.9995e-3:
        micros = round(seconds * 1e6)
        return f"{micros} us" if micros else "0 s"
    if seconds < 0.9995:
        return f"{_two_digits(seconds * 1e3)} ms"
    if seconds < 59.5:
        return f"{_two_digits(seconds)} s"
    if seconds < 3599.5:
        return _two(round(seconds), 60, "min", "s")
    if seconds < 86400 - 30:
        return _two(round(seconds / 60), 60, "h", "min")
    return _two(round(seconds / 3600), 24, "d", "h")


def _two_digits(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0") if value < 9.95 else str(round(value))


def _two(small_units: int, ratio: int, large: str, small: str) -> str:
    whole, rest = divmod(small_units, ratio)
    return f"{whole} {large} {rest} {small}" if rest else f"{whole} {large}"


def format_instant(at: float, *, precise: bool = False) -> str:
    """Return a moment (seconds since the epoch) in local time: "2031-05-01 14:03:22"; if precise
    with milliseconds."""
    try:
        clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    except (OverflowError, ValueError, OSError):
        # No calendar has it; a clock or a file name is wrong, and that is to be seen.
        return f"at {at:g}"
    return f"{clock}.{int(at * 1000) % 1000:03d}" if precise else clock


def format_size(size: int) -> str:
    """Return three digits and a decimal unit: "512 B", "1.5 GB", "600 MB"."""
    if size < 0:
        return f"-{format_size(-size)}"
    if size < 1000:
        return f"{size} B"
    value = float(size)
    for prefix in _PREFIXES:
        value /= 1000
        # 999.5 would show as 1000 of this unit: it is 1.00 of the next.
        if value < 999.5 or prefix == _PREFIXES[-1]:
            break
    decimals = 2 if value < 9.995 else 1 if value < 99.95 else 0
    number = f"{value:.{decimals}f}"
    if decimals:
        number = number.rstrip("0").rstrip(".")
    return f"{number} {prefix}B"


def format_count(count: int, noun: str, plural: str | None = None) -> str:
    """Return a number and its noun: "1 document", "20,000 documents"."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def format_rate(documents: float) -> str:
    """Return documents per second; slow work is counted by the hour, as people would."""
    if not documents:
        return ""
    return f"{documents:.1f}/s" if documents >= 0.1 else f"{documents * 3600:.1f}/h"
