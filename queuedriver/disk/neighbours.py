"""The directories that a queue is joined to: is each output still the one that it was, and which
queues feed it?

Where a file system is not mounted there is another directory. A `.written` whose output is nowhere
to be found was published by somebody, and its input may go: that is so only in the directory it was
written to. So each output has a landmark, some random digits in `.queuedriver/landmark`, and each
input notes those of its outputs in `.queuedriver/landmarks.json` before its first claim. Where the
two differ nothing is recovered.

That is so of the queue. Of its claims, each driver's registration says what it opened its outputs
as: one that was moved away while the driver ran has its descriptor still, and another has its path.

A queue is done when all that feed it are done and drained. There is a note for each of them in the
`.queuedriver/feeds/` of the queue that is fed, made before the first claim of who feeds it.
"""

import os
import zlib
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from queuedriver.disk.filesystem import Directory
from queuedriver.errors import NotRegular, explained, trouble
from queuedriver.format import names
from queuedriver.format.records import decode, read_record

_FILE = "landmark"
_NOTED = "landmarks.json"
_LIMIT = 64
FEEDS = "feeds"
_PATH = os.path.join(names.PRIVATE, FEEDS)


# Outputs


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


# Feeds


class Feed(msgspec.Struct, frozen=True):
    """A queue whose outputs come here; its path is relative to this queue."""

    path: str

    def __post_init__(self) -> None:
        if "\0" in self.path:
            raise ValueError("a path has no NUL")


def note_feed(queue: Directory, source: str) -> None:
    """Note that the outputs of the queue at `source` come to `queue`."""
    path = os.path.relpath(source, queue.path)
    name = f"{zlib.crc32(os.fsencode(path)):08x}.json"
    with explained(queue.path), queue.subdirectory(_PATH, create=True) as feeds:
        if not feeds.present(name):
            feeds.write_aside(name, msgspec.json.encode(Feed(path)), durable=True)


def read_feeds(queue: Directory) -> list[str | None]:
    """Return the absolute paths of the queues that feed `queue`; None for an unreadable note."""
    found: list[str | None] = []
    if (feeds := queue.look_into(_PATH)) is not None:
        with feeds:
            for name in sorted(feeds.names()):
                if name.endswith(".json") and name[0] != ".":
                    feed = read_record(feeds, name, Feed)
                    path = None if feed is None else os.path.join(queue.path, feed.path)
                    found.append(path and os.path.normpath(path))
    return found
