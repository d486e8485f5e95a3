"""The elements of a pipeline: what is asked of Slurm for each, as a script for sbatch, and how
`squeue --json` tells of them. Pure.

The stages that share a node are one group, with an empty name; each stage whose drivers are
elements of their own is another, with the stage's name. An element is known by its comment,
`<key>:<stage>:<number>`: the key is the pipeline's root, the stage its group, and the number that
of its submission. Its watchdog is called

    4711_3         by the job and the task: what two elements on one node differ by
    4711_3r1       the same element, requeued once: what it was may still run elsewhere

A host's name begins the ids of its drivers, which have room for little of it. Where the two
numbers are longer, the element is called by the number that Slurm gives each task besides, which is
shorter, and no other's either.

The scripts are plain ones, that run `watchdogd run` and need nobody else. What later versions of
Slurm write otherwise than the first (numbers as objects, states as lists) is read as well.
"""

import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from queuedriver.errors import BadArgument, ConfigError
from queuedriver.format.units import format_count, format_duration, format_instant, visible
from watchdogd.pipeline.model import MINUTE, Pipeline, Slurm, Stage
from watchdogd.pipeline.slurms import leaves_before
from watchdogd.sizes import memory_of

_TASKS = re.compile(r"(?P<first>[0-9]+)(?:-(?P<last>[0-9]+)(?::(?P<step>[0-9]+))?)?")
# What the watchdog of an element is called (_BODY); and how many bytes of it the ids of its
# drivers have room for.
_HOST_FITS = 10
_HOST = re.compile(r"[0-9]+(_[0-9]+)?(r[0-9]+)?")
# Of one that is completing before 23.11 nobody knows whether it ends, or was requeued.
_State = Literal["pending", "running", "completing"]
# Every state but these, and the one that `_state_of` knows besides, is one that a job has ended in.
_PENDING = {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
_RUNNING = {"CONFIGURING", "RUNNING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING"}
# After so long people are told how old it is what they are told, in seconds.
_OLD = 60.0
# What a watchdog with its helper takes, and each driver beside its documents: bytes. It need not be
# exact: where memory is a limit, one that is too tight ends all of an element at once.
_WATCHDOG_TAKES = 100 << 20
_MIB = 1 << 20
# Below the pipeline's control directory: where elements say what they have to say.
LOGS = "logs/slurm"
# What an element was submitted as, in its environment: it outlives what the ledger keeps.
SUBMISSION = "WATCHDOGD_SLURM_SUBMISSION"

_BODY = f"""\
# What this element is called: its job and task, and how often it was started again.
job=$SLURM_JOB_ID
# By its number alone the last element of an array would be all of it.
[ -z "${{SLURM_ARRAY_JOB_ID:-}}" ] || job=${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID
again=
[ "${{SLURM_RESTART_COUNT:-0}}" -eq 0 ] || again=r$SLURM_RESTART_COUNT
host=${{job%_*}}_${{SLURM_ARRAY_TASK_ID:-0}}$again
[ ${{#host}} -le {_HOST_FITS} ] || host=$SLURM_JOB_ID$again
# When its time is over, if it has a limit; before Slurm 23.02 only scontrol tells.
asked="timeout 20 scontrol -o show job $job"
until=${{SLURM_JOB_END_TIME:-$($asked | grep -o ' EndTime=[0-9][^ ]*')}}
until=${{until#*=}}
"""


# As Slurm is asked for them


class Request(NamedTuple):
    """One group of elements: what each runs, and what it asks for."""

    # The stage; empty: all stages that share a node.
    name: str
    slurm: Slurm
    # How many drivers of each stage an element has, at most.
    drivers: Mapping[str, int]
    # In MiB; None: whatever the cluster gives, as some stage does not say what a driver takes.
    memory: int | None
    cpus: int
    # Seconds before its end at which it is told to leave.
    leaves_before: int

    @property
    def shown(self) -> str:
        """Return what people call it."""
        return self.name or "nodes"


class Submission(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Elements of one group that are submitted at once."""

    # By which it is known (submissions.py); 0 of what people submit by hand.
    number: int = 0
    # The group, as its request has it.
    stage: str = ""
    elements: int = 1
    # What somebody chose in place of what the file says.
    drain: bool = False
    partition: str = ""
    time: float | None = None
    account: str = ""


def requests(pipeline: Pipeline) -> list[Request]:
    """Return all groups of a pipeline: those that share a node first."""
    if pipeline.slurm is None:
        return []
    shared = [stage for stage in pipeline.stages if stage.slurm is None and stage.drivers.max]
    found = [_request(pipeline, "", pipeline.slurm, shared)] if shared else []
    for stage in pipeline.stages:
        if stage.slurm is not None:
            found.append(_request(pipeline, stage.name, stage.slurm, [stage]))
    return found


def _request(pipeline: Pipeline, name: str, slurm: Slurm, stages: list[Stage]) -> Request:
    drivers = dict.fromkeys((stage.name for stage in pipeline.stages), 0)
    memory = cpus = 0.0
    for stage in stages:
        count = drivers[stage.name] = 1 if name else stage.drivers.max
        # Nobody knows what drivers take that do not say it.
        memory += math.inf if stage.memory is None else memory_of(stage).of(count)
        cpus += count * stage.cpus
    if not name:
        # Whatever they say, all of them together may take no more.
        memory = min(memory, pipeline.host.memory or math.inf)
        cpus = min(cpus, pipeline.host.cpus or cpus)
    return Request(
        name=name,
        slurm=slurm,
        drivers=drivers,
        memory=None if memory == math.inf else math.ceil((memory + _WATCHDOG_TAKES) / _MIB),
        cpus=max(1, math.ceil(cpus)),
        leaves_before=leaves_before(stages),
    )


def script(
    pipeline: Pipeline, request: Request, one: Submission, key: str, program: Sequence[str]
) -> str:
    """Return the script of a submission; `key` is the pipeline's, and `program` how watchdogd is
    started, here and on each node."""
    lines = [f"#SBATCH {option}" for option in options(pipeline, request, one, key)]
    what = f"one driver of stage {request.name}" if request.name else "one node's share"
    head = f"# {pipeline.name}: each element runs {what}, as {pipeline.file} says."
    run = [*program, "run", pipeline.file]
    for name, drivers in request.drivers.items():
        if request.name or not drivers:
            run += ["--drivers", f"{name}={drivers}"]
    if one.drain:
        run.append("--drain")
    said = f"export {SUBMISSION}={shlex.quote(msgspec.json.encode(one).decode())}"
    command = f'exec {shlex.join(run)} --host "$host" ${{until:+--until "$until"}}'
    return "\n".join(["#!/bin/bash", visible(head), *lines, _BODY.rstrip(), said, command, ""])


def options(pipeline: Pipeline, request: Request, one: Submission, key: str) -> list[str]:
    """Return the options of sbatch for a submission."""
    slurm = request.slurm
    time = slurm.time if one.time is None else one.time
    if time is not None and time <= request.leaves_before:
        least = format_duration(request.leaves_before)
        raise BadArgument(f"--time: an element leaves {least} before its end; say more")
    said = {
        "job-name": job_name(pipeline, request),
        "comment": f"{key}:{request.name}:{one.number or ''}",
        "array": f"1-{one.elements}",
        "nodes": "1",
        "ntasks": "1",
        "cpus-per-task": str(request.cpus),
        "mem": "" if request.memory is None else f"{request.memory}M",
        # In minutes: Slurm counts those that have begun.
        "time": "" if time is None else str(math.ceil(time / MINUTE)),
        "partition": one.partition or slurm.partition,
        "account": one.account or slurm.account,
        "qos": slurm.qos,
        "constraint": slurm.constraint,
        "gres": slurm.gres,
        "signal": f"B:TERM@{request.leaves_before}",
        "open-mode": "append",
        "output": f"{pipeline.root.replace('%', '%%')}/.watchdogd/{LOGS}/%A_%a.log",
        "chdir": pipeline.directory,
    }
    # Each as a word: others may have written down what was chosen (submissions.py).
    found = [f"--{name}={_word(value)}" for name, value in said.items() if value]
    return [*found, "--requeue", *map(_word, slurm.extra)]


def job_name(pipeline: Pipeline, request: Request) -> str:
    """Return what squeue calls the elements of a group."""
    name = f"{pipeline.name}-{request.name}" if request.name else pipeline.name
    return "".join(one if one.isalnum() or one in "._-" else "_" for one in name)


def _word(text: str) -> str:
    """Return a word as sbatch reads it from a script."""
    if not text.isprintable() or '"' in text or "\\" in text:
        raise ConfigError(f"{text!r} cannot stand in a script for sbatch; rename it")
    return f'"{text}"' if set(text) & set(" '#") else text


# As squeue tells of them


class Element(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One element; or several of one array that are pending, and told of as one. Instants are in
    seconds since the epoch; 0: not known."""

    # What squeue calls it: 4711_3, or 4711_[1-5].
    name: str
    # What scancel is told of each, 4711_3: the array's number would mean all of it, and is that of
    # its last task, too.
    jobs: tuple[str, ...]
    # What its watchdog is called, as its script does (_BODY).
    host: str = ""
    stage: str = ""
    # The number of its submission.
    number: int = 0
    state: _State
    # Slurm's own words: why it is pending.
    reason: str = ""
    # When it began, or is expected to; and when its time is over.
    starts_at: float = 0.0
    ends_at: float = 0.0
    node: str = ""


class Facts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What Slurm has said last."""

    # Which question this answers, or did not answer.
    question: int = 0
    # When it answered, on the clock of whoever asked.
    at: float = 0.0
    elements: tuple[Element, ...] = ()
    # Of which names it was asked; elements outlive that of their pipeline.
    names: tuple[str, ...] = ()
    # Why it did not answer since.
    error: str = ""

    def count(self, stage: str) -> int:
        """Return how many elements of a group are there, or may be there again: one that was
        requeued comes by itself."""
        return sum(len(one.jobs) for one in self.elements if one.stage == stage)


def is_element(host: str) -> bool:
    """Return whether a host is called like the watchdog of an element."""
    return _HOST.fullmatch(host) is not None


def read_elements(data: bytes, key: str) -> tuple[Element, ...]:
    """Return what squeue tells of the elements of a pipeline; ValueError where it is no answer."""
    try:
        told = json.loads(data, object_hook=_plain)
        # While nobody answers it, squeue tells of no jobs and ends well.
        for error in told.get("errors") or ():
            raise ValueError(f"squeue: {error.get('description') or error.get('error')}")
        elements = (_element(job, key) for job in told["jobs"])
        return tuple(one for one in elements if one is not None)
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"squeue --json: not understood: {error!r}") from None


def _plain(told: dict[str, Any]) -> Any:
    """Return the number that an object is in later versions, which says whether it is set."""
    is_number = {"set", "infinite", "number"} == told.keys()
    return (told["set"] and not told["infinite"] and told["number"]) if is_number else told


def _element(job: Mapping[str, Any], key: str) -> Element | None:
    found = re.fullmatch(rf"{key}:([^:]*):([0-9]*)", job.get("comment") or "")
    said = job["job_state"]
    state = _state_of(said.split() if isinstance(said, str) else said)
    if found is None or state is None:
        return None
    number, array = job["job_id"], job.get("array_job_id") or 0
    tasks = str(job.get("array_task_string") or "")
    name = f"{array or number}_{job.get('array_task_id') or 0}"
    again = f"r{job['restart_cnt']}" if job.get("restart_cnt") else ""
    # Slurm gives each task a number of its own besides, which is shorter.
    host = (name if len(name + again) <= _HOST_FITS else str(number)) + again
    one = name if array and not tasks else str(array or number)
    return Element(
        name=f"{one}_[{tasks}]" if tasks else one,
        jobs=tuple(f"{one}_{task}" for task in tasks_of(tasks)) or (one,),
        host="" if tasks else host,
        stage=found[1],
        number=int(found[2] or 0),
        state=state,
        reason="" if state != "pending" else str(job.get("state_reason") or ""),
        starts_at=int(job.get("start_time") or 0),
        ends_at=int(job.get("end_time") or 0),
        node=str(job.get("nodes") or ""),
    )


def _state_of(words: Sequence[str]) -> _State | None:
    """Return what a job is that is in these states; None of one that has ended, or is ending."""
    if not _PENDING.isdisjoint(words):
        # It may be completing besides: it was requeued.
        return "pending"
    if "COMPLETING" in words:
        # With the state that it ends in, or before 23.11 without any.
        return None if len(words) > 1 else "completing"
    return None if _RUNNING.isdisjoint(words) else "running"


def tasks_of(text: str) -> list[int]:
    """Return which tasks `1-5,9,12-20:2%3` are."""
    found: list[int] = []
    for part in text.partition("%")[0].split(","):
        if one := _TASKS.fullmatch(part):
            first = int(one["first"])
            found += range(first, int(one["last"] or first) + 1, int(one["step"] or 1))
    return found


# In words


def waiting_words(facts: Facts, now: float) -> str:
    """Say what waits in Slurm, and why, in its own word; empty when nothing does."""
    pending = [one for one in facts.elements if one.state == "pending"]
    if not pending:
        return ""
    words = f"{format_count(sum(len(one.jobs) for one in pending), 'element')} pending"
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
