"""Which queues feed a queue: it is done when all of them are done and drained.

A note for each, in the `.queuedriver/feeds/` of the queue that is fed, made before the first claim
of who feeds it.
"""

import os
import zlib

import msgspec

from queuedriver.disk.filesystem import Directory
from queuedriver.errors import explained
from queuedriver.format import names
from queuedriver.format.records import read_record

FEEDS = "feeds"
_PATH = os.path.join(names.PRIVATE, FEEDS)


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
