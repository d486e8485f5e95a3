"""What is done to documents on a small disk."""

import functools
import time
from collections.abc import Callable
from pathlib import Path

from queuedriver.claims.document import Document


def _double(beside: Path, document: Document) -> bytes:
    """Twice the text; with a note of it on another disk."""
    with open(beside / "begun", "a", encoding="utf-8") as file:
        file.write(f"{document.queue}/{document.docid}\n")
    # Time for the disk to become full meanwhile.
    time.sleep(0.005)
    return document.read() * 2


def double(beside: Path) -> Callable[[Document], bytes]:
    return functools.partial(_double, beside)
