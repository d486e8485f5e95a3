"""What is asked of Slurm for each element of a pipeline, and that as a script for sbatch: a plain
one, that runs `watchdogd run` and needs nobody else. Pure.

The stages that share a node are one group, with an empty name; each stage whose drivers are
elements of their own is another, with the stage's name. A script calls its element

    host=4711_3         by the job and the task: what two elements on one node differ by
    host=4711_3r1       the same element, requeued once: what it was may still run elsewhere

A host's name begins the ids of its drivers, which have room for little of it. Where the two
numbers are longer, the element is called by the number that Slurm gives each task besides, which is
shorter, and no other's either.
"""

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from queuedriver.errors import BadArgument, ConfigError
from queuedriver.format.units import MAX_DURATION, format_duration, visible
from watchdogd.pipeline.model import MINUTE, Pipeline, Slurm, Stage
from watchdogd.pipeline.slurms import leaves_before
from watchdogd.sizes import memory_of
from watchdogd.slurm.elements import HOST_FITS

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
host=${{job%_*}}_${{SLURM_ARRAY_TASK_ID:-0}}
[ ${{#host}} -le {HOST_FITS} ] || host=$SLURM_JOB_ID
[ "${{SLURM_RESTART_COUNT:-0}}" -eq 0 ] || host=${{host}}r$SLURM_RESTART_COUNT
# When its time is over, if it has a limit; before Slurm 23.02 only scontrol tells.
asked="timeout 20 scontrol -o show job $job"
until=${{SLURM_JOB_END_TIME:-$($asked | grep -o ' EndTime=[0-9][^ ]*')}}
until=${{until#*=}}
"""


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

    # By which it is known (ledger.py); 0 of what people submit by hand.
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
    memory, cpus = float(_WATCHDOG_TAKES), 0.0
    for stage in stages:
        count = drivers[stage.name] = 1 if name else stage.drivers.max
        memory += memory_of(stage).of(count)
        cpus += count * stage.cpus
    is_said, room = all(stage.memory is not None for stage in stages), pipeline.host
    if not name:
        cpus = min(cpus, room.cpus or cpus)
        if room.memory is not None:
            # Then it is what all drivers together may take, whatever they say.
            most = room.memory + _WATCHDOG_TAKES
            memory, is_said = (min(memory, most) if is_said else most), True
    return Request(
        name=name,
        slurm=slurm,
        drivers=drivers,
        memory=math.ceil(memory / _MIB) if is_said else None,
        cpus=max(1, math.ceil(cpus)),
        leaves_before=leaves_before(stages),
    )


def script(
    pipeline: Pipeline, request: Request, one: Submission, key: str, program: Sequence[str]
) -> str:
    """Return the script of a submission, of a pipeline with this key (elements.py); `program` is
    how watchdogd is started, here and on each node."""
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
    log = f"{pipeline.root}/.watchdogd/{LOGS}/%A_%a.log"
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
        "time": "" if time is None else str(math.ceil(min(time, MAX_DURATION) / MINUTE)),
        "partition": one.partition or slurm.partition,
        "account": one.account or slurm.account,
        "qos": slurm.qos,
        "constraint": slurm.constraint,
        "gres": slurm.gres,
        "signal": f"B:TERM@{request.leaves_before}",
        "open-mode": "append",
        "output": log.replace("%A_%a", "\0").replace("%", "%%").replace("\0", "%A_%a"),
        "chdir": pipeline.directory,
    }
    # Each as a word: others may have written down what was chosen (ledger.py).
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
