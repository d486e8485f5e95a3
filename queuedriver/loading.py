"""What a process of ours does before it imports anything else, so that it loads sooner.

A pipeline begins when all of its programs have loaded, on as many processors as there are.
"""

import gc
import os
import sys
import typing
from contextlib import suppress


def begin() -> None:
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


def end() -> None:
    """Go on as usual: all is loaded."""
    gc.enable()
