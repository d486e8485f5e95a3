"""The elements of a pipeline, as `squeue --json` tells of all jobs, and in words. Pure.

An element is known by its comment, `<key>:<stage>:<number>`: the key is the pipeline's root, the
stage is empty of elements that share a node, and the number is the submission's. What later
versions of Slurm write otherwise (numbers as objects, states as lists) is read as well.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from queuedriver.format.units import format_count, format_duration, format_instant, visible
from watchdogd.driver_ids import digits_of

_MARK = "watchdogd-"
_DIGITS = 12
_COMMENT = re.compile(rf"(?P<key>{_MARK}[0-9a-f]+):(?P<stage>[^:]*):(?P<number>[0-9]*)")
_TASKS = re.compile(r"(?P<first>[0-9]+)(?:-(?P<last>[0-9]+)(?::(?P<step>[0-9]+))?)?")
# What the watchdog of an element is called (request.py); and how many bytes of it the ids of its
# drivers have room for.
HOST_FITS = 10
_HOST = re.compile(r"[0-9]+(_[0-9]+)?(r[0-9]+)?")
# Of one that is completing before 23.11 nobody knows whether it ends, or was requeued.
_State = Literal["pending", "running", "completing", "ending"]
# Every state but these, and the two that `_state_of` knows besides, is one that a job has ended in.
_PENDING = {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
_RUNNING = {"CONFIGURING", "RUNNING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING"}
# After so long people are told how old it is what they are told, in seconds.
_OLD = 60.0


class Element(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One element; or several of one array that are pending, and told of as one. Instants are in
    seconds since the epoch; 0: not known."""

    # What scancel is told: of one its array and task, 4711_3, for the array's number would mean all
    # of it, and is that of its last task, too. Of several their array, to which `jobs` adds each.
    job: str
    # What squeue calls all of its submission.
    job_name: str = ""
    # What its watchdog is called, as its script does (request.py).
    host: str = ""
    stage: str = ""
    # The number of its submission.
    number: int = 0
    # Of several: which of its array, as Slurm writes it, 1-5,9.
    tasks: str = ""
    state: _State
    # Slurm's own words: why it is pending.
    reason: str = ""
    # When it began, or is expected to; and when its time is over.
    starts_at: float = 0.0
    ends_at: float = 0.0
    node: str = ""

    @property
    def name(self) -> str:
        """Return what squeue calls it: 4711_3, or 4711_[1-5]."""
        return f"{self.job}_[{self.tasks}]" if self.tasks else self.job

    @property
    def jobs(self) -> list[str]:
        """Return what scancel is told, of each."""
        return [f"{self.job}_{task}" for task in tasks_of(self.tasks)] or [self.job]

    @property
    def count(self) -> int:
        """Return how many there are in this."""
        return len(self.jobs)


class Facts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What Slurm has said last."""

    # Which question this answers, or did not answer.
    question: int = 0
    # When it answered, on the clock of whoever asked.
    at: float = 0.0
    elements: tuple[Element, ...] = ()
    # Why it did not answer since.
    error: str = ""


def key_of(root: str) -> str:
    """Return by what all elements of a pipeline are known, of whichever host they were submitted:
    `root` without links in it."""
    return _MARK + digits_of(root, _DIGITS)


def is_element(host: str) -> bool:
    """Return whether a host is called like the watchdog of an element."""
    return _HOST.fullmatch(host) is not None


def count(elements: Iterable[Element], stage: str) -> int:
    """Return how many elements of a group are there, or may be there again: one that was requeued
    comes by itself."""
    return sum(one.count for one in elements if one.stage == stage and one.state != "ending")


# As squeue tells


def read_elements(data: bytes, key: str) -> list[Element]:
    """Return what squeue tells of the elements of a pipeline; ValueError where it is no answer."""
    try:
        told = json.loads(data)
        # While nobody answers it, squeue tells of no jobs and ends well.
        for error in told.get("errors") or ():
            raise ValueError(f"squeue: {error.get('description') or error.get('error')}")
        elements = (_element(job, key) for job in told["jobs"])
        return [one for one in elements if one is not None]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"squeue --json: not understood: {error!r}") from None


def _element(job: Mapping[str, Any], key: str) -> Element | None:
    found, said = _COMMENT.fullmatch(job.get("comment") or ""), job["job_state"]
    state = _state_of(said.split() if isinstance(said, str) else said)
    if found is None or found["key"] != key or state is None:
        return None
    number, array = _number(job["job_id"]), _number(job.get("array_job_id"))
    tasks = job.get("array_task_string") or ""
    name = f"{array or number}_{_number(job.get('array_task_id'))}"
    # Slurm gives each task a number of its own besides, which is shorter.
    host = name if len(name) <= HOST_FITS else str(number)
    if restarts := _number(job.get("restart_cnt")):
        host += f"r{restarts}"
    return Element(
        job=name if array and not tasks else str(array or number),
        job_name=str(job.get("name") or ""),
        host="" if tasks else host,
        stage=found["stage"],
        number=int(found["number"] or 0),
        tasks=tasks,
        state=state,
        reason="" if state != "pending" else str(job.get("state_reason") or ""),
        starts_at=_number(job.get("start_time")),
        ends_at=_number(job.get("end_time")),
        node=str(job.get("nodes") or ""),
    )


def _state_of(words: Sequence[str]) -> _State | None:
    """Return what a job is that is in these states; None of one that has ended."""
    if not _PENDING.isdisjoint(words):
        # It may be completing besides: it was requeued.
        return "pending"
    if "COMPLETING" in words:
        # With the state that it ends in, or before 23.11 without any.
        return "ending" if len(words) > 1 else "completing"
    if "STAGE_OUT" in words:
        return "ending"
    return None if _RUNNING.isdisjoint(words) else "running"


def tasks_of(text: str) -> list[int]:
    """Return which tasks `1-5,9,12-20:2%3` are."""
    found: list[int] = []
    for part in text.partition("%")[0].split(","):
        if one := _TASKS.fullmatch(part):
            first = int(one["first"])
            found += range(first, int(one["last"] or first) + 1, int(one["step"] or 1))
    return found


def _number(value: Any) -> int:
    """Return a number that may be an object which says whether it is set."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") and not value.get("infinite") else 0
    return int(value or 0)


# In words


def waiting_words(facts: Facts, now: float) -> str:
    """Say what waits in Slurm, and why, in its own word; empty when nothing does."""
    pending = [one for one in facts.elements if one.state == "pending"]
    if not pending:
        return ""
    words = f"{format_count(sum(one.count for one in pending), 'element')} pending"
    if why := ", ".join(dict.fromkeys(visible(one.reason) for one in pending if one.reason)):
        words += f" ({why})"
    if expected := [one.starts_at for one in pending if one.starts_at > now]:
        # Of today without the day, and never to the second.
        first = format_instant(min(expected)).removeprefix(format_instant(now)[:11])[:-3]
        words += f", first expected {first}"
    return f"waits for Slurm: {words}{age_words(facts, now)}"


def age_words(facts: Facts, now: float) -> str:
    """Say how old that is, and why, where it is not of now."""
    age = max(0.0, now - facts.at)
    if not facts.error and (age < _OLD or not facts.at):
        return ""
    if not facts.at:
        return f" (not known: {visible(facts.error)})"
    why = f"; since then: {visible(facts.error)}" if facts.error else ""
    return f" (said {format_duration(age)} ago{why})"
