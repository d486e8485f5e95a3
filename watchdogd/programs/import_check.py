"""Import what a stage calls, like a driver, and report in one line of JSON what is wrong.

    python -m watchdogd.programs.import_check DIRECTORY CALL PRELOAD REPORT PARENT

Modules are found in DIRECTORY; PRELOAD, a further function that is to be there, may be empty.
REPORT is the descriptor that takes the outcome, PARENT the process without which there is none.
"""

import faulthandler
import importlib
import inspect
import os
import signal
import sys
import traceback
from collections.abc import Iterable
from typing import NoReturn

import msgspec

from queuedriver import interpreter
from queuedriver.errors import ConfigError, QueueError
from queuedriver.processors.call import load
from watchdogd.linux import die_with_parent, set_name

# How many lines of a traceback, and how much of each, are worth reading beside the file.
_LINES = 8
_WIDTH = 200
# Their lines of a traceback tell nobody anything.
_IMPORTERS = ("<frozen ", importlib.__file__, load.__code__.co_filename, __file__)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """An import that failed, and why; one that did not when `problem` is empty."""

    key: str = ""
    problem: str = ""
    right: str = ""
    detail: tuple[str, ...] = ()


def main() -> NoReturn:
    """Import, report, and end, whatever the modules have left running."""
    directory, call, preload, report, parent = sys.argv[1:]
    die_with_parent(int(parent), signal.SIGKILL)
    set_name("import check")
    os.set_inheritable(int(report), False)  # noqa: FBT003 - the name says what it sets
    # A crash shows where.
    faulthandler.enable()
    # All that a driver has before the user's modules, which may be called like some of it; and no
    # words for them to read.
    import watchdogd.programs.driver  # noqa: F401

    del sys.argv[1:]
    interpreter.enter(directory)
    outcome = _try("call", call, arguments=1)
    if not outcome.problem and preload:
        outcome = _try("preload", preload, arguments=0)
    os.write(int(report), msgspec.json.encode(outcome))
    # No thread is waited for, and nothing of the user's runs at exit.
    os._exit(0)


def _try(key: str, reference: str, arguments: int) -> Outcome:
    """Import a function, and see whether it could be called."""
    try:
        function = load(reference, said=key).function
    except (QueueError, OSError) as error:
        return _failed(key, reference, error)
    try:
        inspect.signature(function).bind(*(None,) * arguments)
    except TypeError:
        right = "right would be one, the document" if arguments else "right would be none"
        problem = f"takes other arguments: {reference}{inspect.signature(function)}"
        return Outcome(key=key, problem=problem, right=right)
    except ValueError:
        # Of some that are written in C nobody knows.
        pass
    return Outcome()


def _failed(key: str, reference: str, error: Exception) -> Outcome:
    problem, where = str(error).removeprefix(f"{key} {reference}: "), ""
    if isinstance(error, ConfigError) and "; " in problem:
        problem, _, where = problem.rpartition("; ")
    problem = f"cannot work: {problem}"
    if cause := error.__cause__:
        right = f"{where}, with {sys.executable}" if where else "see what it does when imported"
        return Outcome(key=key, problem=problem, right=right, detail=_traceback(cause))
    module = sys.modules.get(reference.partition(":")[0])
    file = getattr(module, "__file__", None) or "a module of Python's own"
    return Outcome(key=key, problem=problem, right=where or f"right would be a function of {file}")


def _traceback(error: BaseException) -> tuple[str, ...]:
    """Return its last lines, but for those of whoever imported, and the last, which is told."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_IMPORTERS)
    ]
    parts = [*traceback.format_list(frames), *traceback.format_exception_only(error)[:-1]]
    return last_lines("".join(parts).splitlines())


def last_lines(lines: Iterable[str]) -> tuple[str, ...]:
    """Return what is worth reading of a traceback, or of what a crash has printed."""
    said = [
        line[:_WIDTH].rstrip()
        for line in lines
        if line.strip() and not any(f'File "{file}' in line for file in _IMPORTERS)
    ]
    return tuple(said[-_LINES:])


if __name__ == "__main__":
    main()
