"""What the queues that feed a queue know of the files in it."""

import contextlib
import os
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from queuedriver.check.facts import Leftover, Odd
from queuedriver.check.items import Seen
from queuedriver.check.shelves import File, Shelves
from queuedriver.claims.handoff import ORPHANS
from queuedriver.disk.upstreams import FEEDS, Feed
from queuedriver.errors import CannotUse, NotFound, NotPermitted, NotRegular
from queuedriver.format import names
from queuedriver.format.decoding import decode
from queuedriver.operating.queue import Queue

_FEEDS = f"{names.PRIVATE}/{FEEDS}"


class Feeding(NamedTuple):
    """Their records here, their drivers, and the N of every claim in them."""

    damaged: list[str]
    missing: list[Odd]
    drivers: set[str]
    tokens: set[str]


def feeding(queue: Queue, shelves: Shelves) -> Feeding:
    """Ask every queue that feeds this one."""
    known = Feeding([], [], set(), set())
    for name, _ in shelves.files(_FEEDS):
        if name[0] == "." or not name.endswith(".json"):
            continue
        path = f"{_FEEDS}/{name}"
        try:
            record = decode(queue.directory.read(path), Feed)
        except FileNotFoundError:
            continue
        except (NotRegular, msgspec.DecodeError):
            known.damaged.append(path)
            continue
        _ask(os.path.normpath(os.path.join(queue.path, record.path)), path, known)
    return known


def _ask(feed: str, path: str, known: Feeding) -> None:
    try:
        queue = Queue.open(feed)
    except (NotFound, CannotUse):
        known.missing.append(Odd(path, feed))
        return
    except NotPermitted:
        # It is there, and others may look.
        return
    with queue, contextlib.suppress(CannotUse, NotPermitted):
        known.tokens.update(
            item.token for _, item in queue.items() if item.state in ("working", "written")
        )
        known.drivers.update(one.id for one in queue.registrations())


def strange_outputs(seen: Seen, known: Feeding) -> Iterator[Leftover]:
    """What is being written here by nobody that a feed knows."""
    for name, item, age in seen.writing:
        # Also one who never registered may have a claim, and take its time.
        claimed = item.token in known.tokens
        if not claimed and names.parse_token(item.token).driver not in known.drivers:
            yield Leftover(name, age)


def orphans(files: list[File], known: Feeding) -> Iterator[Leftover]:
    """What was moved aside here; wanted is what a claim in a feed may still publish."""
    for name, age in files:
        item = names.parse(name)
        wanted = item is not None and item.token in known.tokens
        yield Leftover(f"{names.PRIVATE}/{ORPHANS}/{name}", age, wanted)
