"""`fuq`: jobs of many tasks, their state, and what an operator does to them."""

import os
import re
import shlex
import sys
import time
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from queuedriver.cli import say
from queuedriver.cli.arguments import opened
from queuedriver.cli.operate import noting
from queuedriver.cli.render import columns_of, escape_name, table, write_json
from queuedriver.cli.words import argument, flag, option
from queuedriver.errors import BadArgument

if TYPE_CHECKING:
    from queuedriver.jobs.control import View

_LATER = 75
# How long `stop` waits for a broker to do it, in seconds.
_STOP_TIMEOUT = 10.0
_FIELDS = ("job", "docid", "state", "tasks", "pending", "running", "done", "errors", "why")
_JOBS = ("JOB", "DOCID", "STATE", ">TASKS", ">PENDING", ">RUNNING", ">DONE", ">ERRORS", "~WHY")

# Which options each action takes.
_TAKES: dict[str, tuple[str, ...]] = {
    "submit": ("tasks", "nproc", "name", "dir", "log", "docid", "as_json"),
    "status": ("as_json",),
    "hold": (),
    "release": (),
    "cancel": (),
    "stop": ("client", "number", "everything", "now"),
}


def fuq(
    action: Literal["submit", "status", "hold", "release", "cancel", "stop"] = argument(
        "ACTION", "submit, status, hold, release, cancel or stop."
    ),
    queue: str = argument("QUEUE", "The queue's directory."),
    words: list[str] | None = argument("[JOB... | -- COMMAND...]", "Jobs; or what a new one runs."),
    tasks: int | None = option(
        "N", "submit: tasks, 1 to N; else 1. stop: take N processors.", "-n"
    ),
    nproc: int | None = option("K", "submit: processors that each task takes."),
    name: str | None = option("NAME", "submit: for its logs; else the command's."),
    dir: str | None = option("DIR", "submit: where it runs, beneath a root."),
    log: str | None = option("DIR", "submit: where it logs, beneath a log root."),
    docid: str | None = option("ID", "submit: what its documents are called."),
    client: str | None = option("ID", "stop: this client; else all of them."),
    everything: bool = flag("stop: all processors; running tasks end first.", "--all"),
    now: bool = flag("stop: at once; running tasks are killed, uncharged."),
    as_json: bool = flag("Print it for programs.", "--json"),
) -> int:
    """Run a command many times on the machines of a pool.

    \b
    submit QUEUE [-n N] [--nproc K] [--name NAME] [--dir D] [--log L] -- COMMAND...
                     a job of N tasks; each runs COMMAND with its number
    status QUEUE     jobs, clients, and why a job waits
    hold, release, cancel QUEUE JOB...
                     begin no task of it; go on; drop what was not begun
    stop QUEUE [--client ID] [-n N | --all | --now]
                     take processors from clients; one without any leaves

    \b
    exit 0   done
         66  no such queue, job or client
         69  no broker runs
         75  stop: the broker has not done it yet; it will
    """
    given = dict(locals())
    if action == "stop":
        given["number"], given["tasks"] = tasks, None
    _refuse(action, given)
    if action == "submit":
        return _submit(queue, words or [], given)
    if action == "status":
        _none(words)
        return _status(queue, as_json)
    if action == "stop":
        _none(words)
        return _stop(queue, client, tasks, everything, now)
    return _operate(action, queue, words or [])


def _refuse(action: str, given: dict[str, Any]) -> None:
    """BadArgument for an option that another action has."""
    taken = _TAKES[action]
    for name in {name for names in _TAKES.values() for name in names}:
        if given.get(name) not in (None, False) and name not in taken:
            words = {"tasks": "-n", "number": "-n", "everything": "--all", "as_json": "--json"}
            raise BadArgument(f"{words.get(name, f'--{name}')} is not for fuq {action}")


def _none(words: list[str] | None) -> None:
    if words:
        raise BadArgument(f"{words[0]!r}: nothing is expected there")


def _submit(queue: str, words: list[str], given: dict[str, Any]) -> int:
    from queuedriver.jobs.jobfile import JobFile, encode

    if not words:
        raise BadArgument("what is it to run? fuq submit QUEUE -- COMMAND...")
    # One word is a command line; several are what a shell has split already.
    command = words[0] if len(words) == 1 else shlex.join(words)
    name = given["name"] or _name_of(command)
    job = JobFile(
        command,
        name,
        1 if given["tasks"] is None else given["tasks"],
        1 if given["nproc"] is None else given["nproc"],
        given["dir"] or "",
        given["log"] or "",
    )
    data = encode(job)
    docid = given["docid"] or f"{name}-{time.time_ns() // 1000:x}-{os.urandom(2).hex()}"
    with opened(queue) as into:
        into.submit(docid, data)
    if given["as_json"]:
        write_json({"docid": docid, **msgspec.to_builtins(job)})
    else:
        print(docid)
    return 0


def _name_of(command: str) -> str:
    """A name for its logs: the program's."""
    first = os.path.basename((command.split() or ["job"])[0])
    return re.sub(r"[^A-Za-z0-9_-]", "_", first)[:60] or "job"


def _status(queue: str, as_json: bool) -> int:
    from queuedriver.jobs import control as fuq_control

    with opened(queue) as found:
        seen = fuq_control.view(found)
    if as_json:
        write_json(msgspec.to_builtins(seen))
        return 0
    for line in (*_jobs(seen), "", *_clients(seen)):
        print(line)
    return 0


def _jobs(seen: "View") -> list[str]:
    rows = [[escape_name(str(getattr(job, field))) for field in _FIELDS] for job in seen.jobs]
    return table(_JOBS, rows, columns_of(sys.stdout))


def _clients(seen: "View") -> list[str]:
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


def _operate(action: str, queue: str, jobs: list[str]) -> int:
    from queuedriver.jobs import control as fuq_control

    if not jobs:
        raise BadArgument(f"fuq {action}: which jobs? name them as fuq status does")
    with opened(queue) as found:
        if action == "cancel":
            with noting(found) as journal:
                fuq_control.cancel(found, jobs, journal)
        elif action == "hold":
            fuq_control.hold(found, jobs)
        else:
            fuq_control.release(found, jobs)
    return 0


def _stop(queue: str, client: str | None, number: int | None, everything: bool, now: bool) -> int:
    from queuedriver.doors.fuq.wire import MAX_NPROC, STOP_ALL, STOP_NOW
    from queuedriver.jobs import control as fuq_control

    if sum((number is not None, everything, now)) != 1:
        raise BadArgument("fuq stop: how much? one of -n N, --all and --now")
    if number is not None and not 1 <= number <= MAX_NPROC:
        raise BadArgument(f"-n {number}: 1 to {MAX_NPROC:,}; --all for all")
    wanted = STOP_NOW if now else STOP_ALL if everything else number
    with opened(queue) as found:
        wishes = fuq_control.stop(found, wanted or STOP_ALL, client)
        if fuq_control.taken(found, wishes, _STOP_TIMEOUT):
            return 0
    say(f"the broker has not done it after {_STOP_TIMEOUT:g} s; it will when it looks")
    return _LATER
