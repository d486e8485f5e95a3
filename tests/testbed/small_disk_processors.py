"""What is done to documents on a small disk."""

import functools
import time
from collections.abc import Callable
from pathlib import Path

from queuedriver.claims.document import Document

# How many documents the last stage does before it waits for the test to say `go`: or all might be
# through before anything goes wrong.
FREE = 30


def _double(beside: Path, document: Document) -> bytes:
    """Twice the text; with a note of it on another disk."""
    with open(beside / "begun", "a", encoding="utf-8") as file:
        file.write(f"{document.queue}/{document.docid}\n")
    if document.queue == "mid" and (beside / "begun").read_text().count("mid/") > FREE:
        while not (beside / "go").exists():
            time.sleep(0.005)
    return document.read() * 2


def double(beside: Path) -> Callable[[Document], bytes]:
    return functools.partial(_double, beside)
