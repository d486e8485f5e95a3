"""The stages of benchmarks/alternatives.py as tasks of huey, with its queue in SQLite.

As its pages say for work that must not get lost: tasks that a shutdown interrupts are submitted
again; those of a worker that is killed are gone, for huey gives each task out at most once.
"""

import os
from typing import Any

from huey import SqliteHuey
from huey.signals import SIGNAL_INTERRUPTED

from benchmarks import alternatives_work

huey = SqliteHuey("work", filename="huey.db", results=False)
LIMIT = float(os.environ.get("WORK_LIMIT", "0")) or None


@huey.task(retries=1, timeout=LIMIT)
def one(docid: str) -> str:
    return alternatives_work.carry(1, docid)


@huey.task(retries=1, timeout=LIMIT)
def two(docid: str) -> str:
    return alternatives_work.carry(2, docid)


@huey.task(retries=1, timeout=LIMIT)
def three(docid: str) -> str:
    return alternatives_work.carry(3, docid)


@huey.signal(SIGNAL_INTERRUPTED)
def on_interrupted(signal: str, task: Any, *args: object, **kwargs: object) -> None:
    huey.enqueue(task)


@huey.on_startup()
def on_startup() -> None:
    if "WORK_MODEL" in os.environ:
        alternatives_work.load()


def submit(docid: str) -> None:
    task = one.s(docid, id=f"{docid}-1")
    if os.environ.get("WORK_STAGES") != "1":
        task.then(two, id=f"{docid}-2").then(three, id=f"{docid}-3")
    huey.enqueue(task)
