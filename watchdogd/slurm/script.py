"""A script for sbatch: a plain one, that runs `watchdogd run` and needs nobody else. Pure.

    host=4711_3         the job and the task: what two elements on one node differ by
    host=4711_3r1       the same element, requeued once: what it was may still run elsewhere

A host's name begins the ids of its drivers, which have room for little of it. Where the two
numbers are longer, the element is called by the number that Slurm gives each task besides, which is
shorter, and no other's either.
"""

import math
import shlex
from collections.abc import Sequence

import msgspec

from queuedriver.errors import ConfigError
from queuedriver.format.units import MAX_DURATION, visible
from watchdogd.pipeline.model import Pipeline
from watchdogd.slurm.elements import HOST_FITS
from watchdogd.slurm.request import Request

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


def script(
    pipeline: Pipeline, request: Request, one: Submission, key: str, program: Sequence[str]
) -> str:
    """Return the script of a submission, of a pipeline with this key (elements.py); `program` is
    how watchdogd is started, here and on each node."""
    lines = [f"#SBATCH {option}" for option in _options(pipeline, request, one, key)]
    what = f"one driver of stage {request.name}" if request.name else "one node's share"
    head = f"# {pipeline.name}: each element runs {what}, as {pipeline.file} says."
    run = [*program, "run", pipeline.file]
    for name, drivers in request.drivers.items():
        if request.name or not drivers.max:
            run += ["--drivers", f"{name}={drivers.max}"]
    if one.drain:
        run.append("--drain")
    said = f"export {SUBMISSION}={shlex.quote(msgspec.json.encode(one).decode())}"
    command = f'exec {shlex.join(run)} --host "$host" ${{until:+--until "$until"}}'
    return "\n".join(["#!/bin/bash", visible(head), *lines, _BODY.rstrip(), said, command, ""])


def _options(pipeline: Pipeline, request: Request, one: Submission, key: str) -> list[str]:
    slurm = request.slurm
    log = f"{pipeline.root}/.watchdogd/{LOGS}/%A_%a.log"
    time = slurm.time if one.time is None else one.time
    said = {
        "job-name": job_name(pipeline, request),
        "comment": f"{key}:{request.name}:{one.number or ''}",
        "array": f"1-{one.elements}",
        "nodes": "1",
        "ntasks": "1",
        "cpus-per-task": str(request.cpus),
        "mem": "" if request.memory is None else f"{request.memory}M",
        "time": "" if time is None else clock(time),
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


def clock(seconds: float) -> str:
    """Return a time limit as Slurm has it: what is not a whole second, up to the next."""
    minutes, left = divmod(math.ceil(min(seconds, MAX_DURATION)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days}-{hours:02}:{minutes:02}:{left:02}"


def _word(text: str) -> str:
    """Return a word as sbatch reads it from a script."""
    if not text.isprintable() or '"' in text or "\\" in text:
        raise ConfigError(f"{text!r} cannot stand in a script for sbatch; rename it")
    return f'"{text}"' if set(text) & set(" '#") else text
