"""Other people's queues behind one small face, each used the way its own documentation says.

    python -m benchmarks.peers PEER (submit|claim|cycle) DIRECTORY N

The answer is the line of JSON that stagecycle.c prints. A peer hands over bytes, not a file, so
its claim reads the document; its `submit` is its own `put`, with whatever that writes or syncs.
"""

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol

DOCUMENT = b"x" * 1024


class Peer(Protocol):
    def __init__(self, directory: Path) -> None: ...
    def submit(self, data: bytes) -> object: ...
    def claim(self) -> Any:
        """The next document's handle, its bytes read; None when nothing waits."""

    def finish(self, handle: Any) -> object: ...


class Dirq:
    def __init__(self, directory: Path) -> None:
        self._queue = import_module("dirq.QueueSimple").QueueSimple(str(directory))
        self._names = iter(self._queue)
        self.submit = self._queue.add
        self.finish = self._queue.remove

    def claim(self) -> str | None:
        # next(), not a for loop: each new loop would list the whole queue again.
        while (name := next(self._names, None)) is not None:
            if self._queue.lock(name):
                self._queue.get(name)
                return str(name)
        return None


class Femtoqueue:
    def __init__(self, directory: Path) -> None:
        queue = import_module("femtoqueue").FemtoQueue(str(directory), node_id="node1")
        self.submit, self.claim, self.finish = queue.push, queue.pop, queue.done


class PersistSqlite:
    def __init__(self, directory: Path) -> None:
        package = import_module("persistqueue")
        self._empty = package.Empty
        self._queue = package.SQLiteAckQueue(str(directory))
        self.submit = self._queue.put

    def claim(self) -> Any:
        try:
            return self._queue.get(block=False, raw=True)
        except self._empty:
            return None

    def finish(self, handle: dict[str, Any]) -> None:
        self._queue.ack(id=handle["pqid"])


class PersistFile:
    def __init__(self, directory: Path) -> None:
        package = import_module("persistqueue")
        self._empty = package.Empty
        # Its temporary files must be on the queue's file system, or its rename is no rename.
        self._queue = package.Queue(str(directory), tempdir=str(directory.parent))
        self.submit = self._queue.put

    def claim(self) -> Any:
        try:
            return self._queue.get(block=False)
        except self._empty:
            return None

    def finish(self, handle: object) -> None:
        self._queue.task_done()


class HueyFile:
    def __init__(self, directory: Path) -> None:
        storage = import_module("huey.storage").FileStorage("benchmark", str(directory))
        self.submit, self.claim = storage.enqueue, storage.dequeue

    def finish(self, handle: object) -> None:
        """Its dequeue has removed the document already."""


class DiskcacheDeque:
    def __init__(self, directory: Path) -> None:
        self._deque = import_module("diskcache").Deque(directory=str(directory))
        self.submit = self._deque.append

    def claim(self) -> Any:
        try:
            return self._deque.popleft()
        except IndexError:
            return None

    def finish(self, handle: object) -> None:
        """Its popleft has removed the document already."""


class Listed(NamedTuple):
    package: str
    open: Callable[[Path], Any]
    promise: str  # of the cycle built below, in three words
    detail: str  # what a crash at the worst instruction leaves, and what else to know
    slow: bool = True  # severalfold beside the others
    most: int = 1_000_000  # documents per measurement, where the cost grows with the backlog


PEERS = {
    "dirq": Listed(
        "dirq",
        Dirq,
        "at least once",
        "a crash between add and remove publishes again; a lock expires after 600 s, also under "
        "a document that is still worked on",
        slow=False,
    ),
    "femtoqueue": Listed(
        "femtoqueue",
        Femtoqueue,
        "at least once",
        "a crash between push and done publishes again; a claim expires after 30 s, also under a "
        "document that is still worked on; finished documents stay in done/ for ever",
        slow=False,
    ),
    "persist-queue, sqlite": Listed(
        "persist-queue",
        PersistSqlite,
        "at least once",
        "SQLiteAckQueue: a crash between put and ack publishes again; opening the queue offers "
        "again what other processes hold; every commit is synced, so it belongs beside the durable "
        "cycle; finished documents stay in the table, and each claim reads past all of them",
    ),
    "persist-queue, file": Listed(
        "persist-queue",
        PersistFile,
        "at least once",
        "Queue: a crash between put and task_done publishes again; for a single process only",
    ),
    "huey FileStorage": Listed(
        "huey",
        HueyFile,
        "at most once",
        "the claim deletes the document; one lock around everything; each claim lists and sorts "
        "the whole queue, hence measured with at most 1,000 documents",
        most=1000,
    ),
    "diskcache.Deque": Listed(
        "diskcache", DiskcacheDeque, "at most once", "the claim deletes the document"
    ),
}


def submit(queue: Peer, count: int) -> None:
    for _ in range(count):
        queue.submit(DOCUMENT)


def claim_and_finish(queue: Peer) -> int:
    done = 0
    while (handle := queue.claim()) is not None:
        queue.finish(handle)
        done += 1
    return done


def cycle(source: Peer, target: Peer) -> int:
    done = 0
    while (handle := source.claim()) is not None:
        target.submit(DOCUMENT)
        source.finish(handle)
        done += 1
    return done


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("workload", choices=["submit", "claim", "cycle"])
    parser.add_argument("directory", type=Path)
    parser.add_argument("count", type=int)
    words = parser.parse_args()
    # dirq 1.8 opens files in ways that newer Pythons warn of; that is not what we measure.
    warnings.simplefilter("ignore")
    opener = PEERS[words.peer].open
    count = min(words.count, PEERS[words.peer].most)
    words.directory.mkdir(parents=True, exist_ok=True)
    source, target = opener(words.directory / "in"), opener(words.directory / "out")
    if words.workload != "submit":
        submit(source, count)
        source = opener(words.directory / "in")  # as another process would see it
    started = time.perf_counter_ns()
    if words.workload == "submit":
        submit(source, count)
        done = count
    elif words.workload == "claim":
        done = claim_and_finish(source)
    else:
        done = cycle(source, target)
    spent = time.perf_counter_ns() - started
    if done != count:
        sys.exit(f"{words.peer}: {count} documents went in, {done} came out")
    print(json.dumps({"documents": done, "ns": spent, "ns_per_document": spent / done}))


if __name__ == "__main__":
    main()
