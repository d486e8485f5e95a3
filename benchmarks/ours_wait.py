"""A driver that waits; benchmarks/idle.py starts it.

    python -m benchmarks.ours_wait IN OUT

Prints the instant (ns of the monotonic clock, which all processes share) at which it began on each
document, and its docid.
"""

import sys
import time

from queuedriver.claims.document import Document
from queuedriver.driving.driver import Driver

OUTPUT = b"x" * 1024


def process(document: Document) -> bytes:
    print(time.monotonic_ns(), document.docid, flush=True)
    document.read()
    return OUTPUT


def main() -> None:
    source, target = sys.argv[1:]
    Driver(source, process, target, id="waiting").run()


if __name__ == "__main__":
    main()
