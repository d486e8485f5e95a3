"""What benchmarks/restart.py has its drivers do; each document adds a line when it is begun.

The first document of a life is done at once, for a run that finishes nothing is no healthy one;
with the second in its hands it waits to be killed. With RESTART_MODEL it is something that takes
RESTART_LOAD seconds to load, and so many bytes of memory.
"""

import os
import time

from queuedriver.claims.document import Document


def _load(size: int, seconds: float) -> bytearray:
    ends_at = time.monotonic() + seconds
    model = bytearray(b"x") * size
    # What a real one reads, computes and unpacks meanwhile.
    time.sleep(max(0.0, ends_at - time.monotonic()))
    return model


MODEL = _load(int(os.environ.get("RESTART_MODEL", "0")), float(os.environ.get("RESTART_LOAD", "0")))
_documents = 0


def process(document: Document) -> None:
    global _documents  # noqa: PLW0603 - what a life has done is what this module is about
    line = f"{time.time_ns()} {os.getpid()} {document.docid}\n".encode()
    # One write to a file that is appended to: lines of several lives do not mix.
    fd = os.open(os.environ["RESTART_BEGUN"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, line)
    os.close(fd)
    _documents += 1
    while _documents > 1:
        time.sleep(60)
