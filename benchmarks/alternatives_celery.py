"""The stages of benchmarks/alternatives.py as tasks of Celery, with Redis between them.

As its pages say for work that must not get lost: a task is acknowledged when it is done, one whose
process is lost is sent again, at most as often as its retries, and a worker reserves no more than
it works on. The server keeps what it is told in a file (alternatives_tools.py starts it).
"""

import os

from celery import Celery, chain
from celery.signals import worker_process_init

from benchmarks import alternatives_work

LIMIT = float(os.environ.get("WORK_LIMIT", "0")) or None
# Seconds: longer than any task here may take.
VISIBILITY = 30

app = Celery("work", broker=os.environ["WORK_BROKER"])
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    # What limits how often that happens; the delay before it would be three minutes.
    task_retry_on_worker_lost=True,
    task_annotations={"*": {"max_retries": 1, "default_retry_delay": 1}},
    task_time_limit=LIMIT,
    task_ignore_result=True,
    worker_prefetch_multiplier=1,
    broker_transport_options={"visibility_timeout": VISIBILITY},
    visibility_timeout=VISIBILITY,
    broker_connection_retry_on_startup=True,
)


@app.task(name="one")
def one(docid: str) -> str:
    return alternatives_work.carry(1, docid)


@app.task(name="two")
def two(docid: str) -> str:
    return alternatives_work.carry(2, docid)


@app.task(name="three")
def three(docid: str) -> str:
    return alternatives_work.carry(3, docid)


@worker_process_init.connect
def on_process_init(**kwargs: object) -> None:
    if "WORK_MODEL" in os.environ:
        alternatives_work.load()


def submit(docid: str) -> None:
    first = one.s(docid).set(task_id=f"{docid}-1")
    if os.environ.get("WORK_STAGES") == "1":
        first.apply_async()
    else:
        second = two.s().set(task_id=f"{docid}-2")
        chain(first, second, three.s().set(task_id=f"{docid}-3")).apply_async()
