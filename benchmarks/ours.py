"""queuedriver in one process: its submission, and its Driver, one document or several at a time.

    python -m benchmarks.ours (driver|8|32) (submit|claim|cycle) DIRECTORY N [-d]

DIRECTORY has the queues `in` and `out`. The answer is the line of JSON that stagecycle.c prints.
The driver is timed by its processor, from the first document to the last: what lies between is the
whole loop, what lies before is its start, which has a table of its own.
"""

import argparse
import json
import time
from pathlib import Path

from queuedriver.claims.document import Document
from queuedriver.driving.driver import Driver
from queuedriver.operating.queue import Queue
from queuedriver.options import Options

OUTPUT = b"x" * 1024


class Stopwatch:
    """A processor that notes when its first and its latest document came."""

    def __init__(self) -> None:
        self.documents = 0
        self.first_ns = 0
        self.last_ns = 0

    def saw_one(self) -> None:
        self.last_ns = time.monotonic_ns()
        self.documents += 1
        if self.documents == 1:
            self.first_ns = self.last_ns

    def cycle(self, document: Document) -> bytes:
        self.saw_one()
        document.read()
        return OUTPUT

    def claim(self, document: Document) -> None:
        self.saw_one()

    @property
    def ns_per_document(self) -> float:
        """From document to document: one interval less than there were documents."""
        return (self.last_ns - self.first_ns) / max(1, self.documents - 1)


def submit(directory: Path, count: int, durable: bool) -> float:
    with Queue.open(directory / "in") as queue:
        began = time.monotonic_ns()
        for number in range(count):
            queue.submit(f"doc{number:07d}", OUTPUT, durable=durable)
        return (time.monotonic_ns() - began) / count


def driven(directory: Path, with_output: bool, count: int, durable: bool, batch: int) -> float:
    watch = Stopwatch()
    one = watch.cycle if with_output else watch.claim
    Driver(
        directory / "in",
        one if batch == 1 else lambda documents: [one(document) for document in documents],
        directory / "out" if with_output else (),
        options=Options(drain=True, durable=durable, batch=batch),
    ).run()
    if watch.documents != count:
        raise SystemExit(f"{watch.documents} of {count} documents")
    return watch.ns_per_document


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("batch", choices=["driver", "8", "32"])
    parser.add_argument("workload", choices=["submit", "claim", "cycle"])
    parser.add_argument("directory", type=Path)
    parser.add_argument("count", type=int)
    parser.add_argument("-d", "--durable", action="store_true")
    words = parser.parse_args()
    if words.workload == "submit":
        spent = submit(words.directory, words.count, words.durable)
    else:
        batch = 1 if words.batch == "driver" else int(words.batch)
        with_output = words.workload == "cycle"
        spent = driven(words.directory, with_output, words.count, words.durable, batch)
    print(json.dumps({"documents": words.count, "ns_per_document": spent}))


if __name__ == "__main__":
    main()
