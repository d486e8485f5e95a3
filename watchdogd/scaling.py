"""How many drivers operators want, as files of `.watchdogd/` say it. Pure.

    scale-parse          `4`, or `auto`: on each host
    scale-parse@fern     the same on this host alone; outdoes what is said for all
    scale                lines `parse=4`, `parse=4@fern`, for stages without such files

Each number has a file of its own, so that two people who change two numbers at one moment do not
undo each other. Numbers come from anybody: what is not understood is a note, and the others count.
"""

import re
from collections.abc import Collection, Iterable, Mapping

SCALE = "scale"
AUTO = "auto"
MOST_DRIVERS = 9999

# For each stage a number, or (None) as the pipeline's file says.
Numbers = dict[str, int | None]

_NAME = re.compile(rf"(?s){SCALE}-(?P<stage>[^=@\s]+)(?:@(?P<host>.+))?")
_NUMBER = re.compile(rf"[0-9]{{1,4}}|{AUTO}")
_LINE = re.compile(
    rf"\s*(?P<stage>[^=@\s]+)\s*=\s*(?P<number>{_NUMBER.pattern})(?:@(?P<host>\S+))?\s*"
)
_MOST_NAMED = 5


def parse_name(name: str) -> tuple[str, str] | None:
    """The stage and the host (empty: all) that a file's name is about; None when about none."""
    found = _NAME.fullmatch(name)
    if found is None or not name.isprintable():
        return None
    return found["stage"], found["host"] or ""


def form_name(stage: str, host: str = "") -> str:
    """The inverse."""
    return f"{SCALE}-{stage}" + (f"@{host}" if host else "")


def form_number(number: int | None) -> str:
    """What such a file says."""
    return f"{AUTO if number is None else number}\n"


def wanted_here(files: Mapping[str, str], lines: str, host: str) -> tuple[Numbers, list[str]]:
    """What files by their names, and `scale` by its lines, say for this host; and what of that
    cannot be understood. What names the host outdoes what names none."""
    everywhere, here, notes = _parse_lines(lines, host)
    for name, text in files.items():
        stage, at = parse_name(name) or ("", "")
        said = _uncommented(text)
        if not _NUMBER.fullmatch(said):
            what = visible(said) or "an empty file"
            notes.append(f"{name}: {what} is not understood; it says 4, or {AUTO}")
        elif not at:
            everywhere[stage] = _number(said)
        elif at == host:
            here[stage] = _number(said)
    return everywhere | here, notes


def strangers(numbers: Iterable[str], stages: Collection[str]) -> list[str]:
    """What to say of numbers for stages that there are not."""
    unknown = sorted(set(numbers) - set(stages))
    there_are = ", ".join(stages)
    return [
        f"{SCALE}: no stage is called {visible(name)}; there are: {there_are}"
        for name in unknown[:_MOST_NAMED]
    ]


def _parse_lines(text: str, host: str) -> tuple[Numbers, Numbers, list[str]]:
    """For all, and for this host. Of two lines alike the last counts."""
    everywhere: Numbers = {}
    here: Numbers = {}
    notes = []
    for line in filter(None, map(_uncommented, text.splitlines())):
        found = _LINE.fullmatch(line)
        if found is None:
            notes.append(
                f"{SCALE}: {visible(line)} is not understood; a line is stage=4, stage=4@host or "
                f"stage={AUTO}"
            )
        elif found["host"] is None:
            everywhere[found["stage"]] = _number(found["number"])
        elif found["host"] == host:
            here[found["stage"]] = _number(found["number"])
    return everywhere, here, notes


def _uncommented(line: str) -> str:
    return line.partition("#")[0].strip()


def _number(text: str) -> int | None:
    return None if text == AUTO else int(text)


def visible(text: str) -> str:
    """What anybody may have written, fit for a terminal and for JSON."""
    short = text[:80]
    return short if short.isprintable() else short.encode("unicode_escape").decode()
