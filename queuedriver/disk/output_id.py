"""Is a directory still the one it was? Where a file system is not mounted there is another.

A `.written` whose output is nowhere to be found was published by somebody, and its input may go:
that is so only in the directory it was written to. So each output has a landmark, some random
digits in `.queuedriver/landmark`, and each input notes those of its outputs in
`.queuedriver/landmarks.json` before its first claim. Where the two differ nothing is recovered.

That is so of the queue. Of its claims, each driver's registration says what it opened its outputs
as: one that was moved away while the driver ran has its descriptor still, and another has its path.
"""

import os
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from queuedriver.disk.filesystem import Directory
from queuedriver.errors import NotRegular, trouble
from queuedriver.format import names
from queuedriver.format.records import decode

_FILE = "landmark"
_NOTED = "landmarks.json"
_LIMIT = 64


def landmark(directory: Directory, create: bool = False, within: str = names.PRIVATE) -> str:
    """Return the landmark of a directory; empty where there is none."""
    try:
        with directory.subdirectory(within, create) as private:
            if create and not private.present(_FILE):
                # Another driver may be as new here as we are; its landmark is as good.
                with suppress(FileExistsError):
                    private.write_first(_FILE, os.urandom(8).hex().encode(), durable=True)
            return private.read(_FILE, _LIMIT).decode(errors="replace")
    except FileNotFoundError as error:
        if create:
            # It was there a moment ago. To note that there is none would make a stranger of it.
            raise trouble(error, "reading the landmark") from None
        return ""


def noted(private: Directory) -> dict[str, str]:
    """Return the landmarks that a queue knows of its outputs, by their paths in the settings."""
    try:
        return decode(private.read(_NOTED), dict[str, str])
    except (FileNotFoundError, NotRegular, msgspec.DecodeError):
        return {}


def note(private: Directory, marks: Mapping[str, str]) -> None:
    """Note the landmarks of outputs; durable before it returns, as the settings are."""
    if noted(private) != marks:
        private.write_aside(_NOTED, msgspec.json.encode(marks), durable=True)


def strangers(private: Directory, marks: Mapping[str, str]) -> list[str]:
    """Return the paths at which there is another directory than there was."""
    known = noted(private)
    return [path for path, mark in marks.items() if known.get(path, mark) != mark]
