"""`slurm`: have Slurm start the watchdogs of a pipeline, each an element of a job array."""

import os
import shlex
import sys
import time
from collections.abc import Sequence
from typing import Any

from queuedriver.cli.arguments import AS_JSON
from queuedriver.cli.program import say
from queuedriver.cli.render import columns_of, escape_name, table, write_json
from queuedriver.cli.words import argument, flag, option
from queuedriver.errors import BadArgument, ConfigError, NotFound, QueueError
from queuedriver.format.units import format_count, format_duration, format_size
from watchdogd.cli.arguments import PIPELINE, PIPELINE_FILE, either
from watchdogd.cli.pipeline_argument import answering_file
from watchdogd.cli.status import status as pipeline_status
from watchdogd.cli.unit import program
from watchdogd.pipeline.model import Pipeline, Slurm
from watchdogd.pipeline.read import read
from watchdogd.slurm import programs
from watchdogd.slurm.elements import Element
from watchdogd.slurm.ledger import GIVEN_UP, Facts, Ledger
from watchdogd.slurm.request import Request, requests
from watchdogd.slurm.script import Chosen, clock, script
from watchdogd.slurm.squeue import ask_after, count, seen, waiting_words
from watchdogd.slurm.submitting import (
    Need,
    bounds,
    needs,
    nothing_runs,
    notice,
    serve,
    settle,
    words_of,
)

_MOST = 100_000
_AS_THE_FILE_SAYS = Chosen()
_WORDS = argument("[PIPELINE] [STAGE=N]...", "The file, as -p; and elements of stages.")
_ELEMENT_COLUMNS = ("ELEMENT", "STAGE", "STATE", "NODE", ">FOR", ">LEFT", "~WHY")


class UnderWay(QueueError):
    """Somebody else submits at this moment."""

    exit_code = 75


def check(pipeline: str | None = PIPELINE, option: str | None = PIPELINE_FILE) -> int:
    """Show what would be asked of Slurm for each stage, and whether this cluster has it.

    Every mistake is named at once. Nothing is submitted.

    \b
    Exit codes:
      0   it can run             66  there is no such file
      69  there is no Slurm, or it does not answer
      78  mistakes in the file, or something that the cluster does not have
    """
    found = _read(either(pipeline, option))
    rows, wrong = [], []
    for request in requests(found):
        slurm = request.slurm
        rows.append(
            (
                request.shown,
                _bounds_words(request),
                ", ".join(f"{one.max} {name}" for name, one in request.drivers.items() if one.max),
                "the cluster's" if request.memory is None else format_size(request.memory << 20),
                str(request.cpus),
                slurm.gres,
                "the cluster's" if slurm.time is None else clock(slurm.time),
                slurm.partition or "the cluster's",
            )
        )
        wrong += _mistakes(found, request)
    titles = ("ELEMENTS", "NUMBER", "DRIVERS", ">MEMORY", ">CPUS", "GRES", ">TIME", "PARTITION")
    for line in table(titles, [[escape_name(one) for one in row] for row in rows], _columns()):
        print(line)
    for request in requests(found):
        if request.unbounded:
            say(
                f"{', '.join(request.unbounded)} does not say memory, so none is asked for: an "
                "element gets what the cluster gives a job that says nothing"
            )
    for one in wrong:
        say(one)
    return ConfigError.exit_code if wrong else 0


def _mistakes(pipeline: Pipeline, request: Request) -> list[str]:
    """Return all that this cluster does not have: what it says against each part alone, or against
    all of them together."""

    def told(**parts: Any) -> str:
        return programs.try_out(_script(pipeline, request._replace(**parts)))

    said, found = request.slurm, []
    below = "[stage.slurm]" if request.name else "[slurm]"
    most = programs.longest(said.partition) if said.time else None
    if most and (said.time or 0) > most:
        words = f"jobs may take {clock(most)} there at most"
        found.append(f"{request.shown}: {below} time = {clock(said.time or 0)}: {words}")
    if not (why := told()):
        return found
    alone: dict[str, Any] = {}
    for name in ("partition", "account", "qos", "constraint", "gres", "time", "extra"):
        if value := getattr(said, name):
            slurm = Slurm(**{**alone, name: value})
            if against := told(slurm=slurm, memory=None, cpus=1):
                found.append(f"{request.shown}: {below} {name} = {value}: {against}")
            elif name == "partition":
                # What it limits, it limits for all others.
                alone[name] = value
    if request.memory and (against := told(slurm=Slurm(**alone), cpus=1)):
        what = f"drivers times memory = {format_size(request.memory << 20)}"
        found.append(f"{request.shown}: {what}: {against}")
    if against := told(slurm=Slurm(**alone), memory=None):
        found.append(f"{request.shown}: drivers times cpus = {request.cpus}: {against}")
    return found or [f"{request.shown}: {why}"]


def start(
    words: list[str] | None = _WORDS,
    nodes: int | None = option("N", "So many elements of stages that share a node."),
    partition: str = option("P", "Instead of the file's.", default=""),
    time_limit: float | None = option("TIME", "Instead of the file's.", "--time"),
    account: str = option("A", "Instead of the file's.", default=""),
    drain: bool = flag("Each ends when all is through; the queues stay open."),
    dry_run: bool = flag("Print the scripts that would be submitted; submit nothing."),
    unless_stopped: bool = flag("Do nothing after `slurm stop`: for cron."),
    pipeline: str | None = PIPELINE_FILE,
) -> int:
    """Submit the elements that are missing: by the work that waits, or up to a number.

    Elements that are pending or running count, so this may be typed again, or stand in cron. No
    need is served twice, whoever sees it, nor when a submitter dies on the way.

    \b
    Exit codes:
      0   submitted, or none are missing
      69  there is no Slurm, or it does not answer
      75  somebody else submits at this moment
      78  mistakes in the file, or Slurm does not take it
    """
    file, said = _split(words, pipeline)
    found = _read(file)
    asked = _numbers(found, said, nodes)
    if time_limit is not None:
        _check_time(found, time_limit)
    chosen = Chosen(drain, partition, time_limit, account)
    if dry_run:
        for request in requests(found):
            number = (asked or {}).get(request.name, max(1, request.slurm.nodes.min))
            if asked is None or request.name in asked:
                print(_script(found, request, number, chosen), end="")
        return 0
    os.makedirs(found.root, exist_ok=True)
    with Ledger.open(found.root, create=True) as ledger:
        if unless_stopped and ledger.stopped:
            say("stopped by `watchdogd slurm stop`; without --unless-stopped this starts it again")
            return 0
        ledger.stop(stopped=False)
        _submit(found, ledger, asked, chosen)
        _leave_notice(found, ledger.facts())
    return 0


def _submit(
    pipeline: Pipeline, ledger: Ledger, asked: dict[str, int] | None, chosen: Chosen
) -> None:
    before = ledger.latest()
    facts = ask_after(ledger, pipeline, before.ended_at or before.began_at)
    latest = settle(ledger, facts)
    if latest is None:
        raise UnderWay(
            f"submission {before.number} is under way: it is known what came of it within "
            f"{format_duration(GIVEN_UP)}; try again then"
        )
    missing = needs(pipeline, ledger, facts, asked)
    served = 0
    for need, submitted in serve(pipeline, ledger, missing, latest, program(), chosen):
        elements = format_count(need.elements, "element")
        say(f"submitted {elements} for {need.request.shown}: {submitted.end}")
        served += 1
    if served < len(missing):
        raise UnderWay("somebody else submits at this moment; watchdogd slurm status")
    if not missing:
        there = format_count(sum(one.count for one in facts.elements), "element")
        say(f"none are missing: {there} pending or running")


def _leave_notice(pipeline: Pipeline, facts: Facts) -> None:
    """Leave word for those who submit while nothing runs."""
    running = any(one.state == "running" for one in facts.elements)
    words = waiting_words(facts, time.time()) or nothing_runs(pipeline)
    notice(pipeline, "" if running else words)


def _start(pipeline: Pipeline) -> str:
    return f"watchdogd slurm start {shlex.quote(pipeline.file)}"


def status(
    pipeline: str | None = PIPELINE, option: str | None = PIPELINE_FILE, as_json: bool = AS_JSON
) -> int:
    """Show what runs where, what waits in Slurm and why, and the queues' status beside it.

    Slurm is asked once in ten seconds, whoever looks; while it does not answer, what it said last
    is shown, with its age.
    """
    file = either(pipeline, option)
    found = _read(file)
    facts, now = seen(found), time.time()
    if as_json:
        write_json({"at": facts.at, "error": facts.error, "elements": facts.elements})
        return 0
    if facts.elements:
        rows = [_element(one, now) for one in facts.elements]
        for line in table(_ELEMENT_COLUMNS, rows, _columns()):
            print(line)
    else:
        print(f"no element is pending or running; {_start(found)}")
    print()
    pipeline_status(file, None, as_json=False)
    return 0


def _element(one: Element, now: float) -> tuple[str, ...]:
    runs = one.state != "pending"
    return tuple(
        escape_name(cell)
        for cell in (
            one.name,
            one.stage,
            one.state if one.count == 1 else f"{one.count} {one.state}",
            one.node,
            format_duration(now - one.starts_at) if runs and one.starts_at else "",
            format_duration(one.ends_at - now) if runs and one.ends_at > now else "",
            one.reason,
        )
    )


def scale(
    words: list[str] | None = argument("[PIPELINE] N|auto|STAGE=N...", "How many elements."),
    pipeline: str | None = PIPELINE_FILE,
) -> None:
    """Say how many elements there are to be, until it is said otherwise; auto: as the file says.

    Those that are missing are submitted, those that are too many leave after the documents at hand.
    """
    file, said = _split(words, pipeline)
    found = _read(file)
    numbers = _scaled(found, said)
    with Ledger.open(found.root, create=True) as ledger:
        for name, number in numbers.items():
            ledger.scale(name, number)
        ledger.stop(stopped=False)
        facts = ask_after(ledger, found, ledger.now())
        for request in requests(found):
            most = bounds(ledger, request).max
            over = count(facts.elements, request, "pending", "running") - most
            jobs = [
                job
                for one in facts.elements
                if one.stage == request.name and one.state == "pending"
                for job in one.jobs
            ]
            if surplus := jobs[max(0, len(jobs) - max(0, over)) :]:
                programs.cancel_pending(*surplus)
        _submit(found, ledger, None, _AS_THE_FILE_SAYS)


def stop(
    now: bool = flag("Give the documents at hand back, uncounted."),
    pipeline: str | None = PIPELINE,
    option: str | None = PIPELINE_FILE,
) -> None:
    """Take away what is pending, and let all elements leave after the documents at hand."""
    found = _read(either(pipeline, option))
    with Ledger.open(found.root, create=True) as ledger:
        # First: nobody is to submit others.
        ledger.stop(stopped=True)
        notice(found, f"stopped by watchdogd slurm stop; {_start(found)} goes on")
        told: set[str] = set()
        # At once those that are known, and then whoever else is there.
        for facts in (ledger.facts, lambda: ask_after(ledger, found, ledger.now())):
            for one in (one for one in facts().elements if not told.issuperset(one.jobs)):
                _dismiss(one, now=now)
                told.update(one.jobs)
    total = format_count(len(told), "element")
    say(f"{total} told to leave" if told else "no element is pending or running now")


def _dismiss(one: Element, *, now: bool) -> None:
    """Take away an element that is pending. One that runs sees by itself that it is to leave; a
    signal besides would be its second, by which documents are given back at once."""
    try:
        if now:
            programs.cancel(*one.jobs)
        elif one.state == "pending":
            programs.cancel_pending(*one.jobs)
    except programs.Refused as error:
        # It may have ended at this moment.
        if "invalid job id" not in str(error).lower():
            say(f"{one.name}: {error}")


# What the words mean


def _read(given: str | None) -> Pipeline:
    found = read(os.path.abspath(answering_file(given)))
    if found.slurm is None:
        raise ConfigError(f"{found.file} has no [slurm], which says what to ask for; add one")
    return found


def _split(words: Sequence[str] | None, option: str | None) -> tuple[str | None, list[str]]:
    """Return the file and the numbers of a line that may have both."""
    said = list(words or ())
    is_number = bool(said) and ("=" in said[0] or said[0] == "auto" or said[0].isdecimal())
    file = None if not said or (is_number and not os.path.exists(said[0])) else said.pop(0)
    return either(file, option), said


def _numbers(pipeline: Pipeline, said: list[str], nodes: int | None) -> dict[str, int] | None:
    """Return how many elements of each group were asked for; None: none were named."""
    if not said and nodes is None:
        return None
    asked = {name: number or 0 for name, number in _scaled(pipeline, said).items()}
    if nodes is not None:
        asked[""] = _known(pipeline, "", str(nodes)) or 0
    return asked


def _scaled(pipeline: Pipeline, said: Sequence[str]) -> dict[str, int | None]:
    if not said:
        return {}
    found = {}
    for word in said:
        name, sign, number = word.rpartition("=")
        if sign and not name:
            raise BadArgument(f"{word!r} names no stage; right would be ocr=4, or 4 for the nodes")
        found[name] = _known(pipeline, name, number)
    return found


def _known(pipeline: Pipeline, name: str, number: str) -> int | None:
    groups = {request.name: request.shown for request in requests(pipeline)}
    if name not in groups:
        shown = f"stage {name!r}" if name else "stages that share a node"
        raise NotFound(f"no elements are for {shown}; there are: {', '.join(groups.values())}")
    if number == "auto":
        return None
    if not number.isdecimal() or int(number) > _MOST:
        raise BadArgument(f"{number!r} is not understood; right would be 4, or auto")
    return int(number)


def _check_time(pipeline: Pipeline, seconds: float) -> None:
    for request in requests(pipeline):
        if seconds <= request.leaves_before:
            least = format_duration(request.leaves_before)
            raise BadArgument(f"--time: an element leaves {least} before its end; say more")


def _script(
    pipeline: Pipeline, request: Request, number: int = 1, chosen: Chosen = _AS_THE_FILE_SAYS
) -> str:
    words = words_of(pipeline, Need(request, number), program(), chosen, "")
    return script(pipeline, request, words)


def _bounds_words(request: Request) -> str:
    nodes = request.slurm.nodes
    return str(nodes.max) if nodes.fixed else f"{nodes.min} to {nodes.max}"


def _columns() -> int | None:
    return columns_of(sys.stdout)
