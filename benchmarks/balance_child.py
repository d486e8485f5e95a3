"""What the stages of benchmarks/balance.py do: take the time that they are said to take."""

import os
import time

from queuedriver.claims.document import Document

# Seconds for a document; the memory is declared in the pipeline's file, and not used.
SERVICE = {"values": 0.02, "parse": 0.06, "output": 0.04}


def _take(stage: str, document: Document) -> bytes:
    time.sleep(SERVICE[stage])
    # One write to a file that is appended to: lines of several drivers do not mix.
    fd = os.open(os.environ["BALANCE_TIMES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, f"{stage} {time.monotonic_ns()} {document.docid}\n".encode())
    os.close(fd)
    return document.read()


def values(document: Document) -> bytes:
    return _take("values", document)


def parse(document: Document) -> bytes:
    return _take("parse", document)


def output(document: Document) -> bytes:
    return _take("output", document)
