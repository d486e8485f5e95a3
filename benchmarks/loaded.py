"""What benchmarks/preload.py has its drivers load and do.

The model has LOADED_BYTES, made as LOADED_AS says. Each document adds a line to LOADED_BEGUN when
it is begun: when, by which process, and the docid. Then all of the model is read. Unless
LOADED_READ is set, the second document of a life is held until the driver is killed.
"""

import array
import mmap
import os
import time
from collections.abc import Callable
from typing import Any

from queuedriver.claims.document import Document

_PAGE = 4096
# What one of the objects below takes, in bytes.
_OBJECT = 380


def _mapped(size: int) -> mmap.mmap:
    made = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for start in range(0, size, 1 << 20):
        made[start : start + (1 << 20)] = b"x" * (1 << 20)
    return made


MAKE: dict[str, Callable[[int], Any]] = {
    "bytearray": lambda size: bytearray(b"x") * size,
    "array": lambda size: array.array("d", [1.0]) * (size // 8),
    "mmap": _mapped,
    "objects": lambda size: [
        {"word": str(number), "weight": number / 3} for number in range(size // _OBJECT)
    ],
}
KIND = os.environ["LOADED_AS"]
MODEL = MAKE[KIND](int(os.environ["LOADED_BYTES"]))
_documents = 0


def process(document: Document) -> None:
    global _documents  # noqa: PLW0603 - what a life has done is what this is about
    line = f"{time.time_ns()} {os.getpid()} {document.docid}\n".encode()
    # One write to a file that is appended to: lines of several drivers do not mix.
    fd = os.open(os.environ["LOADED_BEGUN"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, line)
    os.close(fd)
    if KIND == "objects":
        sum(one["weight"] for one in MODEL)
    else:
        sum(memoryview(MODEL).cast("B")[::_PAGE])
    _documents += 1
    while _documents > 1 and "LOADED_READ" not in os.environ:
        time.sleep(60)
