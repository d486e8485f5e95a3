"""One of several driver processes on one queue; benchmarks/many.py starts them.

    python -m benchmarks.ours_shared DIRECTORY NUMBER ARRIVED GATE

At its first document it writes a byte to the descriptor ARRIVED and waits until GATE is closed, so
that all drivers are registered and running when the clock starts. Answers with one line of JSON.
"""

import json
import os
import sys
import time
from pathlib import Path

from queuedriver.claims.document import Document
from queuedriver.driving.driver import Driver
from queuedriver.options import Options

OUTPUT = b"x" * 1024


class Gated:
    """A processor that begins when all its fellows do, and keeps account."""

    def __init__(self, arrived: int, gate: int) -> None:
        self._arrived = arrived
        self._gate = gate
        self.docids: list[str] = []
        self.first_ns = 0
        self.last_ns = 0

    def __call__(self, document: Document) -> bytes:
        if not self.docids:
            os.write(self._arrived, b".")
            os.read(self._gate, 1)
            self.first_ns = time.monotonic_ns()
        document.read()
        self.docids.append(document.docid)
        self.last_ns = time.monotonic_ns()
        return OUTPUT


def main() -> None:
    directory, number, arrived, gate = sys.argv[1:]
    processor = Gated(int(arrived), int(gate))
    left = Driver(
        Path(directory) / "in",
        processor,
        Path(directory) / "out",
        id=number,
        options=Options(drain=True),
    ).run()
    report = {
        "docids": processor.docids,
        "first_ns": processor.first_ns,
        "last_ns": processor.last_ns,
        "lost": left.counters.lost_races,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
