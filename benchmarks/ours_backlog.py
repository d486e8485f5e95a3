"""A driver that takes some of many waiting items and leaves; benchmarks/backlog.py starts it.

    python -m benchmarks.ours_backlog QUEUE CLAIMS

Answers with one line of JSON; `first_ms` is from the start of its loop to its first document.
"""

import json
import os
import signal
import sys
import time

from benchmarks.memory import peak_rss
from benchmarks.ours import Stopwatch
from queuedriver.claims.document import Document
from queuedriver.driving.driver import Driver


def main() -> None:
    queue, claims = sys.argv[1], int(sys.argv[2])
    watch = Stopwatch()

    def process(document: Document) -> None:
        watch.claim(document)
        if watch.documents == claims:
            # Finish this one and leave: max_documents is spread by some percent, so not exact.
            os.kill(os.getpid(), signal.SIGTERM)

    began = time.monotonic_ns()
    Driver(queue, process, id="backlog").run()
    report = {
        "documents": watch.documents,
        "ns_per_document": watch.ns_per_document,
        "first_ms": (watch.first_ns - began) / 1e6,
        "peak_rss": peak_rss(os.getpid()),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
