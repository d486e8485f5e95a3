"""Which queues feed a queue: it is done when all of them are done and drained.

A note for each, in the `.queuedriver/feeds/` of the queue that is fed, made before the first claim
of who feeds it.
"""

import os
import zlib

import msgspec

from queuedriver.disk.filesystem import Directory
from queuedriver.format.records import read_record

FEEDS = "feeds"


class Feed(msgspec.Struct, frozen=True):
    """A queue whose outputs come here; its path is relative to this queue."""

    path: str

    def __post_init__(self) -> None:
        if "\0" in self.path:
            raise ValueError("a path has no NUL")


def note_feed(directory: Directory, queue: str, source: str) -> None:
    """Note that the outputs of the queue at `source` come to `queue`."""
    path = os.path.relpath(source, queue)
    name = f"{zlib.crc32(os.fsencode(path)):08x}.json"
    if not directory.present(name):
        directory.write_aside(name, msgspec.json.encode(Feed(path)), durable=True)


def read_feeds(directory: Directory, queue: str) -> list[str | None]:
    """Return the absolute paths of the queues that feed `queue`; None for an unreadable note."""
    found: list[str | None] = []
    for name in sorted(directory.names()):
        if name.endswith(".json") and name[0] != ".":
            feed = read_record(directory, name, Feed)
            found.append(feed if feed is None else os.path.normpath(os.path.join(queue, feed.path)))
    return found
