"""queuedriver in one process: its hand-off in a straight loop, and its Driver.

    python -m benchmarks.ours (handoff|driver) (submit|claim|cycle) DIRECTORY N [-d]

DIRECTORY has the queues `in` and `out`. The answer is the line of JSON that stagecycle.c prints.
The driver is timed by its processor, from the first document to the last: what lies between is the
whole loop, what lies before is its start, which has a table of its own.
"""

import argparse
import json
import os
import time
from pathlib import Path

from queuedriver.claims.document import Document
from queuedriver.claims.handoff import Handoff
from queuedriver.claims.outputs import Target
from queuedriver.claims.picking import Picker
from queuedriver.disk.filesystem import Directory
from queuedriver.driving.driver import Driver
from queuedriver.driving.limits import Limits
from queuedriver.format import names
from queuedriver.format.settings import DEFAULT_PUBLISH, Publication, Settings
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


def handed_off(directory: Path, with_output: bool, count: int, durable: bool) -> float:
    """The driver's own parts, without its loop: no controls, limits, counters or journal."""
    queue = Queue.open(directory / "in")
    out = Directory.open(directory / "out")
    target = Target("out", out, Publication(DEFAULT_PUBLISH))
    settings = Settings(outputs=("../out",), durable=durable)
    handoff = Handoff(queue.directory, queue.private, (target,), settings)
    picker = Picker(queue.directory)
    mint = names.Mint("1", os.urandom(2).hex())
    limits = Limits(None, 0.0, 0.0, None)
    done = 0
    began = time.monotonic_ns()
    while waiting := picker.names(1, time.monotonic()):
        token = mint.next(time.time_ns() // 1000)
        docid = waiting[0].removesuffix(".ready")
        claim = handoff.claim(waiting[0], docid, 0, token)
        if claim is None:
            continue
        outputs = handoff.outputs(claim)
        if with_output:
            Document(claim.docid, 0, queue.name, queue.directory, claim.name).read()
            outputs.take(OUTPUT, limits)
        handoff.complete_one(claim, outputs)
        done += 1
    spent = time.monotonic_ns() - began
    if done != count:
        raise SystemExit(f"{done} of {count} documents")
    return spent / count


def driven(directory: Path, with_output: bool, count: int, durable: bool) -> float:
    watch = Stopwatch()
    Driver(
        directory / "in",
        watch.cycle if with_output else watch.claim,
        directory / "out" if with_output else (),
        options=Options(drain=True, durable=durable),
    ).run()
    if watch.documents != count:
        raise SystemExit(f"{watch.documents} of {count} documents")
    return watch.ns_per_document


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=["handoff", "driver"])
    parser.add_argument("workload", choices=["submit", "claim", "cycle"])
    parser.add_argument("directory", type=Path)
    parser.add_argument("count", type=int)
    parser.add_argument("-d", "--durable", action="store_true")
    words = parser.parse_args()
    if words.workload == "submit":
        spent = submit(words.directory, words.count, words.durable)
    else:
        measured = handed_off if words.part == "handoff" else driven
        with_output = words.workload == "cycle"
        spent = measured(words.directory, with_output, words.count, words.durable)
    print(json.dumps({"documents": words.count, "ns_per_document": spent}))


if __name__ == "__main__":
    main()
