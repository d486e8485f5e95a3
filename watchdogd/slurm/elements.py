"""The elements of a pipeline, as `squeue --json` tells of all jobs. Pure.

An element is known by its comment, `<key>:<stage>:<number>`: the key is the pipeline's root, the
stage is empty of elements that share a node, and the number is the submission's. What later
versions of Slurm write otherwise (numbers as objects, states as lists) is read as well.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from watchdogd.driver_ids import digits_of

_MARK = "watchdogd-"
_DIGITS = 12
_COMMENT = re.compile(rf"(?P<key>{_MARK}[0-9a-f]+):(?P<stage>[^:]*):(?P<number>[0-9]*)")
_TASKS = re.compile(r"(?P<first>[0-9]+)(?:-(?P<last>[0-9]+)(?::(?P<step>[0-9]+))?)?")
# What the watchdog of an element is called (script.py); and how many bytes of it the ids of its
# drivers have room for.
HOST_FITS = 10
_HOST = re.compile(r"[0-9]+(_[0-9]+)?(r[0-9]+)?")
# Of one that is completing before 23.11 nobody knows whether it ends, or was requeued.
_State = Literal["pending", "running", "completing", "ending"]
# Every other state is one that a job has ended in.
_STANDING: dict[str, _State] = {
    "PENDING": "pending",
    "REQUEUED": "pending",
    "REQUEUE_HOLD": "pending",
    "REQUEUE_FED": "pending",
    "SPECIAL_EXIT": "pending",
    "RESV_DEL_HOLD": "pending",
    "CONFIGURING": "running",
    "RUNNING": "running",
    "SUSPENDED": "running",
    "STOPPED": "running",
    "RESIZING": "running",
    "SIGNALING": "running",
    "STAGE_OUT": "ending",
    "COMPLETING": "completing",
}


class Element(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One element; or several of one array that are pending, and told of as one. Instants are in
    seconds since the epoch; 0: not known."""

    # As squeue shows it: 4711_3, or 4711_[1-5].
    name: str
    # What scancel is told: of one its array and task, 4711_3, for the array's number would mean all
    # of it, and is that of its last task, too. Of several their array, to which `jobs` adds each.
    job: str
    # What squeue calls all of its submission.
    job_name: str = ""
    # What its watchdog is called, as its script does (script.py).
    host: str = ""
    stage: str = ""
    # The number of its submission.
    number: int = 0
    # Of several: which of its array.
    tasks: tuple[int, ...] = ()
    state: _State
    # Slurm's own words: why it is pending.
    reason: str = ""
    # When it began, or is expected to; and when its time is over.
    starts_at: float = 0.0
    ends_at: float = 0.0
    node: str = ""

    @property
    def count(self) -> int:
        """Return how many there are in this."""
        return len(self.tasks) or 1

    @property
    def jobs(self) -> list[str]:
        """Return what scancel is told, of each."""
        return [f"{self.job}_{task}" for task in self.tasks] or [self.job]


def key_of(root: str) -> str:
    """Return by what all elements of a pipeline are known, of whichever host they were submitted:
    `root` without links in it."""
    return _MARK + digits_of(root, _DIGITS)


def is_element(host: str) -> bool:
    """Return whether a host is called like the watchdog of an element."""
    return _HOST.fullmatch(host) is not None


def read_elements(data: bytes, key: str) -> list[Element]:
    """Return what squeue tells of the elements of a pipeline; ValueError where it is no answer."""
    try:
        told = json.loads(data)
        # While nobody answers it, squeue tells of no jobs and ends well.
        for error in told.get("errors") or ():
            raise ValueError(f"squeue: {error.get('description') or error.get('error')}")
        return [one for job in told["jobs"] for one in _elements(job, key)]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"squeue --json: not understood: {error!r}") from None


def _elements(job: Mapping[str, Any], key: str) -> Iterator[Element]:
    found = _COMMENT.fullmatch(job.get("comment") or "")
    states = job["job_state"]
    state = states if isinstance(states, str) else " ".join(states)
    words = state.split()
    standing = _STANDING.get(words[0] if words else "")
    if "COMPLETING" in words and len(words) > 1:
        # With the state that it ends in, or begins anew in.
        standing = "pending" if "PENDING" in words else "ending"
    if found is None or found["key"] != key or standing is None:
        return
    array, number = _number(job.get("array_job_id")), _number(job["job_id"])
    task = job.get("array_task_id")
    tasks = job.get("array_task_string") or ""
    if array and tasks:
        name, target = f"{array}_[{tasks}]", str(array)
    elif array:
        name = target = f"{array}_{_number(task)}"
    else:
        name, target = f"{number}_0", str(number)
    # Slurm gives each task a number of its own besides, which is shorter.
    host = name if len(name) <= HOST_FITS else str(number)
    if restarts := _number(job.get("restart_cnt")):
        host += f"r{restarts}"
    yield Element(
        name=name,
        job=target,
        job_name=str(job.get("name") or ""),
        host=host,
        stage=found["stage"],
        number=int(found["number"] or 0),
        tasks=tasks_of(tasks),
        state=standing,
        reason="" if standing != "pending" else str(job.get("state_reason") or ""),
        starts_at=_number(job.get("start_time")),
        ends_at=_number(job.get("end_time")),
        node=str(job.get("nodes") or ""),
    )


def tasks_of(text: str) -> tuple[int, ...]:
    """Return which tasks `1-5,9,12-20:2%3` are."""
    found: list[int] = []
    for part in text.partition("%")[0].split(","):
        if one := _TASKS.fullmatch(part):
            first = int(one["first"])
            found += range(first, int(one["last"] or first) + 1, int(one["step"] or 1))
    return tuple(found)


def _number(value: Any) -> int:
    """Return a number that may be an object which says whether it is set."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") and not value.get("infinite") else 0
    return int(value or 0)
