"""What the drivers of benchmarks/overhead.py do: next to nothing."""

from queuedriver.claims.document import Document


def process(document: Document) -> bytes:
    return document.read()
