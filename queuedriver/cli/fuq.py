"""`fuq`: jobs of many tasks, their state, and what an operator does to them."""

import os
import re
import shlex
import sys
import time

import msgspec

from queuedriver.cli import say
from queuedriver.cli.arguments import AS_JSON, QUEUE
from queuedriver.cli.operate import noting
from queuedriver.cli.render import columns_of, escape_name, table, write_json
from queuedriver.cli.words import argument, flag, option
from queuedriver.doors.fuq.wire import MAX_NPROC, STOP_ALL, STOP_NOW
from queuedriver.errors import BadArgument
from queuedriver.format.units import format_duration
from queuedriver.jobs import control
from queuedriver.jobs.jobfile import JobFile, encode
from queuedriver.operating.queue import opened

_LATER = 75
# How long `stop` waits for a broker to do it, in seconds.
_STOP_TIMEOUT = 10.0
_FIELDS = ("job", "docid", "state", "tasks", "pending", "running", "done", "errors", "why")
_HEAD = ("JOB", "DOCID", "STATE", ">TASKS", ">PENDING", ">RUNNING", ">DONE", ">ERRORS", "~WHY")
_JOBS = argument("JOB...", "Jobs, as fuq status names them.")


def submit(
    queue: str = QUEUE,
    command: list[str] = argument("-- COMMAND...", "What each task runs, with its number."),
    tasks: int = option("N", "How many tasks: 1 to N.", "-n", default=1),
    nproc: int = option("K", "Processors that each task takes.", default=1),
    name: str | None = option("NAME", "For its logs; else the command's."),
    dir: str = option("DIR", "Where it runs, beneath a root.", default=""),
    log: str = option("DIR", "Where it logs, beneath a log root.", default=""),
    docid: str | None = option("ID", "What its documents are called."),
    as_json: bool = AS_JSON,
) -> None:
    """Submit a job of N tasks, each of which runs COMMAND with its number; print its docid."""
    # One word is a command line; several are what a shell has split already.
    line = command[0] if len(command) == 1 else shlex.join(command)
    name = name or _name_of(line)
    job = JobFile(line, name, tasks, nproc, dir, log)
    data = encode(job)
    docid = docid or f"{name}-{time.time_ns() // 1000:x}-{os.urandom(2).hex()}"
    with opened(queue) as into:
        into.submit(docid, data)
    if as_json:
        write_json({"docid": docid, **msgspec.to_builtins(job)})
    else:
        print(docid)


def _name_of(command: str) -> str:
    """A name for its logs: the program's."""
    first = os.path.basename((command.split() or ["job"])[0])
    return re.sub(r"[^A-Za-z0-9_-]", "_", first)[:60] or "job"


def status(queue: str = QUEUE, as_json: bool = AS_JSON) -> None:
    """Show a queue's jobs, the clients of its brokers, and why a job waits."""
    with opened(queue) as found:
        seen = control.view(found)
    if as_json:
        write_json(msgspec.to_builtins(seen))
        return
    if seen.said_at:
        ago = format_duration(max(0.0, time.time() - seen.said_at))
        print(f"no broker runs; as the last one said {ago} ago:")
    for line in (*_table_of_jobs(seen), "", *_table_of_clients(seen)):
        print(line)


def _table_of_jobs(seen: control.View) -> list[str]:
    rows = [[escape_name(str(getattr(job, field))) for field in _FIELDS] for job in seen.jobs]
    return table(_HEAD, rows, columns_of(sys.stdout))


def _table_of_clients(seen: control.View) -> list[str]:
    rows = [
        [
            escape_name(f"{broker}/{one.client}"),
            escape_name(one.address),
            str(one.nproc),
            str(one.free),
            str(one.tasks),
        ]
        for broker, one in seen.clients
    ]
    return table(("CLIENT", "ADDRESS", ">NPROC", ">FREE", ">TASKS"), rows)


def hold(queue: str = QUEUE, jobs: list[str] = _JOBS) -> None:
    """Begin no further task of jobs; what runs goes on."""
    with opened(queue) as found:
        control.hold(found, jobs)


def release(queue: str = QUEUE, jobs: list[str] = _JOBS) -> None:
    """Go on with jobs that were held."""
    with opened(queue) as found:
        control.release(found, jobs)


def cancel(queue: str = QUEUE, jobs: list[str] = _JOBS) -> None:
    """Drop the tasks of jobs that were not begun; what runs goes on."""
    with opened(queue) as found, noting(found) as journal:
        control.cancel(found, jobs, journal)


def stop(
    queue: str = QUEUE,
    client: str | None = option("ID", "This client; else all of them."),
    number: int | None = option("N", "Take so many processors from each.", "-n"),
    everything: bool = flag("All of them; running tasks end first.", "--all"),
    now: bool = flag("All of them at once; running tasks are killed, uncharged."),
) -> int:
    """Take processors from clients; one that has none left leaves.

    \b
    exit 0   done
         66  no such queue or client
         69  no broker runs
         75  the broker has not done it yet; it will
    """
    if sum((number is not None, everything, now)) != 1:
        raise BadArgument("fuq stop: how much? one of -n N, --all and --now")
    if number is not None and not 1 <= number <= MAX_NPROC:
        raise BadArgument(f"-n {number}: 1 to {MAX_NPROC:,}; --all for all")
    wanted = STOP_NOW if now else number or STOP_ALL
    with opened(queue) as found:
        requests = control.stop(found, wanted, client)
        if control.taken(found, requests, _STOP_TIMEOUT):
            return 0
    say(f"the broker has not done it after {_STOP_TIMEOUT:g} s; it will when it looks")
    return _LATER
