"""What a process of ours asks of its interpreter, so that it begins and ends sooner.

A pipeline begins when all of its programs have loaded, on as many processors as there are.
"""

import atexit
import gc
import os
import sys
import typing
from contextlib import suppress
from typing import NoReturn


def begin_loading() -> None:
    """Prepare to load; in a process that has but this thread, and is a program of ours."""
    # While it loads there is no garbage, and to look for it takes a twentieth of the time.
    gc.disable()


def import_msgspec() -> None:
    """Import msgspec, which nearly everything needs, without what it can do without."""
    if "msgspec" in sys.modules:
        return
    # Where typing_extensions is installed, as for typer, msgspec takes from it what typing has by
    # now; to import it, and what it imports, takes some of the time, and a megabyte.
    sys.modules.setdefault("typing_extensions", typing)
    # Another msgspec may need more of it, and then gets it a little later.
    with suppress(ImportError):
        import msgspec  # noqa: F401
    if sys.modules["typing_extensions"] is typing:
        del sys.modules["typing_extensions"]


def enter(directory: str) -> None:
    """Go where the pipeline's file is: modules and relative commands are found there."""
    os.chdir(directory)
    if sys.path[:1] != [directory]:
        sys.path.insert(0, directory)


def end_loading() -> None:
    """Go on as usual: all is loaded."""
    gc.enable()


def flush() -> None:
    """Write what is printed, as far as somebody takes it."""
    for stream in (sys.stdout, sys.stderr):
        # Closed, or None, or a disk that is full.
        with suppress(AttributeError, OSError, ValueError):
            stream.flush()


def leave(code: int) -> NoReturn:
    """End this process as the interpreter does, but destroy no objects, as the kernel takes it all:
    that is a tenth of what a short command takes, and long with gigabytes of them."""
    try:
        atexit._run_exitfuncs()
        flush()
    finally:
        os._exit(code)
