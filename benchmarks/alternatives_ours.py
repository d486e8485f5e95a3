"""The stages of benchmarks/alternatives.py as calls of a pipeline of ours.

It and alternatives_work.py are copied beside the pipeline's file, where drivers find them, of
whichever commit these are.
"""

import os

from alternatives_work import load, work

from queuedriver.claims.document import Document


def one(document: Document) -> bytes:
    return _do(1, document)


def two(document: Document) -> bytes:
    return _do(2, document)


def three(document: Document) -> bytes:
    return _do(3, document)


def _do(stage: int, document: Document) -> bytes:
    work(stage, document.docid)
    return document.read()


# A model is loaded with its module; without one this is nothing.
if "WORK_MODEL" in os.environ:
    load()
