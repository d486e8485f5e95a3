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
_CLOCK = re.compile(r"(?:([0-9]+)-)?([0-9]+):([0-9]+):([0-9]+)")
# A day, an hour, a minute, a second.
_TAKES = (86400, 3600, 60, 1)
# What programs say when nobody has answered, or when the answer was lost.
_SILENT = (
    *("timed out", "unable to contact", "communication", "connection", "connect failure"),
    *("missing socket", "zero bytes", "message receive", "message send"),
)
# Of these, when nobody was asked.
_UNASKED = "connect failure"
# The lowest number that no task may have; as a rule tasks go up to the other.
_LARGEST = re.compile(rb"MaxArraySize\s*=\s*([0-9]+)")
_USUAL_ARRAY = 1000
# Which cluster is meant; and what people choose for all their jobs, where a script does not say it.
_KEPT = ("SLURM_CONF", "SLURM_CLUSTERS")
_CHOSEN = ("account", "partition", "qos", "reservation")
# What a job is told of itself is not for those that it submits, to which sbatch gives all else.
# What people have set for the programs would hold in place of what a script says. By the marks of
# what a watchdog and a driver have started jobs would be killed on that node when it ends.
_DROPPED = ("SLURM_", "SBATCH_", "SQUEUE_", "SCANCEL_", "SCONTROL_", LIFE, MARKER)
# In the last line, after what a cluster has its users told; with several clusters its name follows.
_JOB = re.compile(rb"^([0-9]+)(?:;.*)?\s*\Z", re.MULTILINE)
# What scancel says of elements that have ended since somebody has looked.
_ENDED = ("invalid job id", "already completing or completed")
# Of what they say, characters.
_MOST_SAID = 300


class Refused(ConfigError):
    """Slurm does not take it."""


class Silent(Unreachable):
    """Slurm does not answer: what was asked may have been done."""


def call(
    argv: Sequence[str], limit: float = LIMIT, given: str = "", ignored: Sequence[str] = ()
) -> bytes:
    """Run one of the programs; return what it prints. Unreachable where it is not installed, or
    does not answer in time; Refused for what Slurm does not take, but for complaints with words
    that are ignored."""
    unsaid = (word for word in _CHOSEN if f"#SBATCH --{word}=" not in given)
    kept = {*_KEPT, *(f"SBATCH_{word.upper()}" for word in unsaid)}
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_DROPPED) or name in kept
    }
    # All tasks of an array, however many they are.
    environ["SLURM_BITSTR_LEN"] = "0"
    try:
        done = subprocess.run(
            argv, input=given.encode(), capture_output=True, timeout=limit, env=environ, check=False
        )
    except OSError as error:
        words = "there is no Slurm here: sbatch, squeue, scancel and scontrol are needed"
        raise Unreachable(f"{argv[0]} cannot be run: {error.strerror}; {words}") from None
    except subprocess.TimeoutExpired:
        raise Silent(f"{argv[0]} has not answered in {format_duration(limit)}") from None
    if done.returncode:
        complaint = done.stderr or done.stdout
        said = _said(complaint, ignored)
        if complaint.strip() and not said:
            return done.stdout
        words = f"{argv[0]}: {said or f'exit code {done.returncode}'}"
        if any(word in said.lower() for word in _SILENT):
            raise Unreachable(words) if _UNASKED in said.lower() else Silent(words)
        raise Refused(words)
    return done.stdout


def _said(data: bytes, ignored: Sequence[str] = ()) -> str:
    """Return what a program complains of in one line, without what is ignored."""
    lines = data.decode(errors="replace").strip().splitlines()
    lines = [line for line in lines if not any(word in line.lower() for word in ignored)]
    # "sbatch: error: …", each.
    plain = [line.partition(": error: ")[2] or line for line in lines]
    return visible("; ".join(plain)[:_MOST_SAID])


def submit(script: str) -> str:
    """Submit a script; return the job. Silent where what is printed is none."""
    said = call(("sbatch", "--parsable"), given=script)
    if found := _JOB.search(said):
        return found[1].decode()
    raise Silent(f"sbatch has printed no number of a job: {_said(said) or 'nothing'}")


def try_out(options: Iterable[str]) -> str:
    """Return why this cluster cannot run what asks for this; empty when it can."""
    try:
        script = "\n".join(["#!/bin/sh", *(f"#SBATCH {one}" for one in options), ""])
        call(("sbatch", "--test-only"), given=script)
    except Refused as error:
        return str(error).removeprefix("sbatch: ")
    return ""


def longest(partition: str) -> float | None:
    """Return the seconds that a job may take in a partition, or in the usual one; None where that
    is not said. What takes longer is pending for ever on most clusters, and not refused."""
    told = call(("scontrol", "-o", "show", "partition")).decode(errors="replace")
    for line in told.splitlines():
        said = dict(word.split("=", 1) for word in line.split() if "=" in word)
        key, value = ("PartitionName", partition) if partition else ("Default", "YES")
        meant = said.get(key) == value
        if meant and (clock := _CLOCK.fullmatch(said.get("MaxTime", ""))):
            parts = zip(clock.groups(default="0"), _TAKES, strict=True)
            return float(sum(int(part) * takes for part, takes in parts))
    return None


def largest_array() -> int:
    """Return how many elements one array may have, from the first on."""
    found = _LARGEST.search(call(("scontrol", "show", "config")))
    return max(1, int(found[1]) - 1) if found else _USUAL_ARRAY


def cancel(jobs: Sequence[str], *, pending: bool = True) -> None:
    """Take away elements that have not ended, and only those `pending` unless all are meant."""
    if jobs:
        # Without any it would take away all that the user has.
        call(("scancel", *(["--state=PENDING"] if pending else []), *jobs), ignored=_ENDED)
