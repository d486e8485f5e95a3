"""What arguments mean that more than one command takes, and which pipeline's file is meant.

Imports little: `run` has its helper load before it imports the rest.
"""

import os
import re
from collections.abc import Iterable, Iterator

from queuedriver.cli.words import argument, option
from queuedriver.errors import BadArgument, NotFound, QueueError
from queuedriver.format.units import visible

VARIABLE = "WATCHDOGD_PIPELINE"
USUAL = "pipeline.toml"
# No stage has as many drivers, or elements, as have five digits.
_NUMBER = re.compile(r"(?:(?P<stage>.+)=)?(?:(?P<number>[0-9]{1,4})|auto)", re.DOTALL)
_TABLE = re.compile(rb"^\s*\[\s*pipeline\s*\]", re.MULTILINE)

PIPELINE_FILE = option(
    "FILE", f"The pipeline's file; else ${VARIABLE}, {USUAL}.", "--pipeline", "-p"
)
PIPELINE = argument("[PIPELINE]", f"The same as -p; else ${VARIABLE}, {USUAL} here or above.")


def either(argument: str | None, option: str | None) -> str | None:
    """Return the file of a command that may be told it in two ways."""
    if argument is not None and option is not None and argument != option:
        raise BadArgument(f"{visible(argument)} or -p {visible(option)}: name one of them")
    return argument if argument is not None else option


def numbers_of(words: Iterable[str], *, alone: bool = False) -> dict[str, int | None]:
    """Return the numbers in words such as `parse=4`; None of `parse=auto`: as the file says. Where
    one may stand `alone`, it has an empty name."""
    found: dict[str, int | None] = {}
    for word in words:
        said = _NUMBER.fullmatch(word)
        if said is None or not (said["stage"] or alone):
            right = "parse=4, parse=auto" + ", 4 or auto" * alone
            raise BadArgument(f"{word!r} is not understood; right would be {right}")
        if (name := said["stage"] or "") in found:
            raise BadArgument(f"{word!r}: another number was given before; give one of them")
        found[name] = int(said["number"]) if said["number"] else None
    return found


def checked_host(host: str | None) -> str | None:
    """Return what `--host` says; BadArgument where nobody could read it."""
    if host is not None and not host.isprintable():
        raise BadArgument(f"--host {host!r}: a name is printable; choose another")
    return host


def pipeline_file(given: str | None) -> str:
    """Return the pipeline's file: the one that was named, or the one that must be meant."""
    if named := given or os.environ.get(VARIABLE):
        if not os.path.isdir(named):
            return named
        if not os.path.exists(inside := os.path.join(named, USUAL)):
            raise NotFound(f"there is no {USUAL} in {named}; name a file")
        return inside
    if os.path.exists(USUAL):
        return USUAL
    found = [name for name in sorted(os.listdir()) if name.endswith(".toml") and _is_one(name)]
    if len(found) == 1:
        return found[0]
    how = f"name one with -p FILE, or set {VARIABLE}"
    if found:
        raise BadArgument(f"{', '.join(found)}: which of them? {how}")
    for file in usual_files():
        if os.path.exists(file):
            return file
    raise NotFound(f"there is no {USUAL} here or above, nor another pipeline's file here; {how}")


def _is_one(name: str) -> bool:
    from watchdogd.pipeline.read import load_bytes

    try:
        return _TABLE.search(load_bytes(name)) is not None
    except (QueueError, OSError):
        # Another file, perhaps a pipe that nobody writes into.
        return False


def usual_files() -> Iterator[str]:
    """Yield where the file may be when nobody says: here, and above."""
    directory = os.getcwd()
    while directory not in (os.sep, ""):
        yield os.path.join(directory, USUAL)
        directory = os.path.dirname(directory)
