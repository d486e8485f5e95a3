"""sbatch, squeue, scancel and scontrol: the only programs of Slurm's that are used, each called
with a limit of time.

What is refused is told from what does not answer: a submission that was refused was not made, and
one that was not answered may have been.
"""

import os
import re
import subprocess
from collections.abc import Iterable, Sequence

from queuedriver.disk.processes import MARKER
from queuedriver.errors import ConfigError, Unreachable
from queuedriver.format.units import format_duration, visible
from watchdogd.children import LIFE

# Seconds. Whoever waits at a terminal waits less.
LIMIT = 30.0
SOON = 4.0
_LONGEST = re.compile(r" MaxTime=(?:([0-9]+)-)?([0-9]+):([0-9]+):([0-9]+)")
# What programs say when nobody has answered, or when the answer was lost.
_SILENT = re.compile(
    "timed out|unable to contact|communication|connection|connect failure|missing socket|"
    "zero bytes|message receive|message send"
)
# Which cluster is meant; and what people choose for all their jobs, where a script does not say it.
_KEPT = ("SLURM_CONF", "SLURM_CLUSTERS")
_CHOSEN = ("account", "partition", "qos", "reservation")
# What a job is told of itself is not for those that it submits, to which sbatch gives all else.
# What people have set for the programs would hold in place of what a script says. By the marks of
# what a watchdog and a driver have started jobs would be killed on that node when it ends.
_DROPPED = ("SLURM_", "SBATCH_", "SQUEUE_", "SCANCEL_", "SCONTROL_", LIFE, MARKER)
# In the last line, after what a cluster has its users told; with several clusters its name follows.
_JOB = re.compile(rb"^([0-9]+)(?:;.*)?\s*\Z", re.MULTILINE)
# Of what they say, characters.
_MOST_SAID = 300


class Refused(ConfigError):
    """Slurm does not take it."""


class Silent(Unreachable):
    """Slurm does not answer: what was asked may have been done."""


def call(argv: Sequence[str], limit: float = LIMIT, given: bytes = b"") -> bytes:
    """Run one of the programs; return what it prints. Unreachable where it is not installed, or
    does not answer in time; Refused for what Slurm does not take."""
    unsaid = (word for word in _CHOSEN if f"#SBATCH --{word}=".encode() not in given)
    kept = {*_KEPT, *(f"SBATCH_{word.upper()}" for word in unsaid)}
    # All tasks of an array are to be told, however many they are.
    environ = {"SLURM_BITSTR_LEN": "0"} | {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_DROPPED) or name in kept
    }
    try:
        done = subprocess.run(
            argv, input=given, capture_output=True, timeout=limit, env=environ, check=False
        )
    except OSError as error:
        words = "there is no Slurm here: sbatch, squeue, scancel and scontrol are needed"
        raise Unreachable(f"{argv[0]} cannot be run: {error.strerror}; {words}") from None
    except subprocess.TimeoutExpired:
        raise Silent(f"{argv[0]} has not answered in {format_duration(limit)}") from None
    if done.returncode:
        said = _said(done.stderr or done.stdout)
        words = f"{argv[0]}: {said or f'exit code {done.returncode}'}"
        if _SILENT.search(said.lower()):
            # Who could not connect has asked nobody.
            raise Unreachable(words) if "connect failure" in said.lower() else Silent(words)
        raise Refused(words)
    return done.stdout


def _said(data: bytes) -> str:
    """Return what a program complains of in one line."""
    lines = data.decode(errors="replace").strip().splitlines()
    # "sbatch: error: …", each.
    plain = [line.partition(": error: ")[2] or line for line in lines]
    return visible("; ".join(plain)[:_MOST_SAID])


def submit(script: bytes) -> str:
    """Submit a script; return the job. Silent where what is printed is none."""
    said = call(("sbatch", "--parsable"), given=script)
    if found := _JOB.search(said):
        return found[1].decode()
    raise Silent(f"sbatch has printed no number of a job: {_said(said) or 'nothing'}")


def try_out(options: Iterable[str]) -> str:
    """Return why this cluster cannot run what asks for this; empty when it can."""
    try:
        script = "\n".join(["#!/bin/sh", *(f"#SBATCH {one}" for one in options), ""])
        call(("sbatch", "--test-only"), given=script.encode())
    except Refused as error:
        return str(error).removeprefix("sbatch: ")
    return ""


def longest(partition: str) -> float | None:
    """Return the seconds that a job may take in a partition, or in the usual one; None where that
    is not said. What takes longer is pending for ever on most clusters, and not refused."""
    told = call(("scontrol", "-o", "show", "partition")).decode(errors="replace")
    meant = f"PartitionName={partition}" if partition else "Default=YES"
    for line in told.splitlines():
        if meant in line.split() and (clock := _LONGEST.search(line)):
            days, hours, minutes, seconds = map(int, clock.groups(default="0"))
            return ((days * 24.0 + hours) * 60 + minutes) * 60 + seconds
    return None


def cancel(jobs: Sequence[str]) -> None:
    """Take away elements; of those that have ended nothing is said."""
    if jobs:
        # Without any it would take away all that the user has; and with --state=PENDING, for one
        # task of an array, all that are pending of it.
        call(("scancel", *jobs))
