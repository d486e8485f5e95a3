"""`slurm`: have Slurm start the watchdogs of a pipeline, each an element of a job array."""

import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from msgspec.structs import replace

from queuedriver.cli.arguments import AS_JSON
from queuedriver.cli.program import say
from queuedriver.cli.render import columns_of, escape_name, table, write_json
from queuedriver.cli.words import argument, flag, option
from queuedriver.errors import BadArgument, ConfigError, NotFound
from queuedriver.format.units import format_count, format_duration, format_size, visible
from watchdogd.cli.arguments import PIPELINE, PIPELINE_FILE, either, numbers_of
from watchdogd.cli.pipeline_argument import answering_file
from watchdogd.cli.status import status as pipeline_status
from watchdogd.host import program
from watchdogd.pipeline.model import Pipeline
from watchdogd.pipeline.read import read
from watchdogd.slurm import elements, programs, submissions
from watchdogd.slurm.elements import Element, Facts, Request, Submission
from watchdogd.slurm.submissions import Ledger, key

_WORDS = argument("[PIPELINE] [STAGE=N]...", "The file, as -p; and elements of stages.")
_GROUPS = ("ELEMENTS", "NUMBER", "DRIVERS", ">MEMORY", ">CPUS", "GRES", ">TIME", "PARTITION")
_ELEMENTS = ("ELEMENT", "STAGE", "STATE", "NODE", ">FOR", ">LEFT", "~WHY")


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
    asked = elements.requests(found)
    wrong = [one for request in asked for one in _mistakes(found, request)]
    _print_table(_GROUPS, map(_group, asked))
    unsaid = [one.drivers for one in asked if one.memory is None]
    for stage in found.stages:
        if stage.memory is None and any(drivers[stage.name] for drivers in unsaid):
            given = "an element gets what the cluster gives a job that says nothing"
            say(f"{stage.name} does not say memory, so none is asked for: {given}")
    for one in wrong:
        say(one)
    return ConfigError.exit_code if wrong else 0


def _group(request: Request) -> tuple[str, ...]:
    slurm, nodes = request.slurm, request.slurm.nodes
    return (
        request.shown,
        str(nodes.max) if nodes.fixed else f"{nodes.min} to {nodes.max}",
        ", ".join(f"{most} {name}" for name, most in request.drivers.items() if most),
        "the cluster's" if request.memory is None else format_size(request.memory << 20),
        str(request.cpus),
        slurm.gres,
        "the cluster's" if slurm.time is None else format_duration(slurm.time),
        slurm.partition or "the cluster's",
    )


def _mistakes(pipeline: Pipeline, request: Request) -> list[str]:
    """Return all that this cluster does not have: what it says against each option alone, or
    against all of them together."""
    time, found = request.slurm.time, []
    most = programs.longest(request.slurm.partition)
    if time and most and time > most:
        words = f"jobs may take {format_duration(most)} there at most"
        found.append(f"time = {format_duration(time)}: {words}")
    every = elements.options(pipeline, request, Submission(), key(pipeline))
    if why := programs.try_out(every):
        where = [one for one in every if one.startswith("--partition=")]
        # What it limits, it limits for all others.
        there = [] if programs.try_out(where) else where
        against = {one: programs.try_out([*there, one]) for one in every}
        found += [f"{one}: {words}" for one, words in against.items() if words] or [why]
    return [f"{request.shown}: {one}" for one in found]


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
) -> None:
    """Submit the elements that are missing: by the work that waits, or up to a number.

    Elements that are pending or running count, so this may be typed again, or stand in cron. No
    need is served twice, whoever sees it, nor when a submitter dies on the way.

    \b
    Exit codes:
      0   submitted, or none are missing
      69  there is no Slurm, or it does not answer
      75  somebody else submits, or stops, at this moment
      78  mistakes in the file, or Slurm does not take it
    """
    found, said = _split(words, pipeline)
    numbers = _numbers(found, said if nodes is None else [*said, str(nodes)])
    asked = {name: number for name, number in numbers.items() if number is not None}
    if len(asked) < len(numbers):
        raise BadArgument("auto: without a number start goes by the work that waits; leave it out")
    chosen = Submission(drain=drain, partition=partition, time=time_limit, account=account)
    texts = []
    for request in elements.requests(found):
        least = 0 if asked else max(1, request.slurm.nodes.min)
        one = replace(chosen, stage=request.name, elements=asked.get(request.name, least))
        # Before anything is done, or shown: what is chosen may be refused.
        text = elements.script(found, request, one, key(found), program())
        texts += [text] if one.elements else []
    if dry_run:
        print(*texts, sep="", end="")
        return
    os.makedirs(found.root, exist_ok=True)
    with Ledger.open(found, create=True) as ledger:
        if not unless_stopped:
            ledger.stop(stopped=False)
        elif ledger.stopped:
            say("stopped by `watchdogd slurm stop`; without --unless-stopped this starts it again")
            return
        groups = {request.name: chosen for request in elements.requests(found)}
        _submit(ledger, ledger.ask_anew(), groups, asked)


def _submit(
    ledger: Ledger, facts: Facts, chosen: Mapping[str, Submission], asked: Mapping[str, int]
) -> None:
    words = ""
    for words in submissions.submit_missing(ledger, facts, chosen, asked):
        say(words)
    if not words:
        say("none are missing; watchdogd slurm status shows which are pending or running")


def status(
    pipeline: str | None = PIPELINE, option: str | None = PIPELINE_FILE, as_json: bool = AS_JSON
) -> None:
    """Show what runs where, what waits in Slurm and why, and the queues' status beside it.

    Slurm is asked once in ten seconds, whoever looks; while it does not answer, what it said last
    is shown, with its age.
    """
    file = either(pipeline, option)
    found = _read(file)
    facts, now = submissions.seen(found), time.time()
    if as_json:
        write_json({"at": facts.at, "error": facts.error, "elements": facts.elements})
        return
    if facts.elements:
        _print_table(_ELEMENTS, [_element(one, now) for one in facts.elements])
    elif facts.error and not facts.at:
        print(f"which elements there are is not known: {visible(facts.error)}")
    else:
        print(f"no element is pending or running; {submissions.start_of(found)}")
    print()
    pipeline_status(file, None, as_json=False)


def _element(one: Element, now: float) -> tuple[str, ...]:
    runs = one.state != "pending"
    return (
        one.name,
        one.stage,
        one.state if len(one.jobs) == 1 else f"{len(one.jobs)} {one.state}",
        one.node,
        format_duration(now - one.starts_at) if runs and one.starts_at else "",
        format_duration(one.ends_at - now) if runs and one.ends_at > now else "",
        one.reason,
    )


def _print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    cells = [[escape_name(cell) for cell in row] for row in rows]
    print(*table(columns, cells, columns_of(sys.stdout)), sep="\n")


def scale(
    words: list[str] | None = argument("[PIPELINE] N|auto|STAGE=N...", "How many elements."),
    pipeline: str | None = PIPELINE_FILE,
) -> None:
    """Say how many elements there are to be, until it is said otherwise; auto: as the file says.

    Those that are missing are submitted, those that are too many leave after the documents at hand.
    """
    found, said = _split(words, pipeline)
    if not said:
        raise BadArgument("how many? right would be 4, auto or ocr=2")
    numbers = _numbers(found, said)
    with Ledger.open(found, create=True) as ledger:
        for name, number in numbers.items():
            ledger.scale(name, number)
        ledger.stop(stopped=False)
        facts = ledger.ask_anew()
        surplus: list[str] = []
        for request in elements.requests(found):
            over = facts.count(request.name) - submissions.bounds(ledger, request).max
            if request.name in numbers and over > 0:
                ours = [one for one in facts.elements if one.stage == request.name]
                surplus += _pending(ours)[-over:]
        try:
            programs.cancel(surplus)
        finally:
            _submit(ledger, facts, {}, {})


def stop(pipeline: str | None = PIPELINE, option: str | None = PIPELINE_FILE) -> None:
    """Take away what is pending, and let all elements leave after the documents at hand."""
    found = _read(either(pipeline, option))
    with Ledger.open(found, create=True) as ledger:
        # First: nobody is to submit others.
        ledger.stop(stopped=True)
        ledger.note(ledger.facts())
        there = _of_all(ledger).elements
    # One that runs sees by itself that it is to leave; a signal besides would be its second, by
    # which documents are given back at once.
    programs.cancel(_pending(there))
    number = format_count(sum(len(one.jobs) for one in there), "element")
    say(f"{number} told to leave" if there else "no element is pending or running now")


def _of_all(ledger: Ledger) -> Facts:
    """Return what Slurm says when it is known what came of all submissions: wait for those that
    somebody makes at this moment."""
    while True:
        facts = ledger.ask_anew()
        with suppress(submissions.UnderWay):
            submissions.settle(ledger, facts)
            return facts


def _pending(there: Iterable[Element]) -> list[str]:
    """Return what scancel is told of those that are pending."""
    return [job for one in there if one.state == "pending" for job in one.jobs]


# What the words mean


def _read(given: str | None) -> Pipeline:
    found = read(os.path.abspath(answering_file(given)))
    if found.slurm is None:
        raise ConfigError(f"{found.file} has no [slurm], which says what to ask for; add one")
    return found


def _split(words: Sequence[str] | None, option: str | None) -> tuple[Pipeline, list[str]]:
    """Return the pipeline and the numbers of a line that may have both."""
    said = list(words or ())
    is_number = bool(said) and ("=" in said[0] or said[0] == "auto" or said[0].isdecimal())
    file = None if not said or (is_number and not os.path.exists(said[0])) else said.pop(0)
    return _read(either(file, option)), said


def _numbers(pipeline: Pipeline, said: Iterable[str]) -> dict[str, int | None]:
    """Return the numbers of elements in words such as `ocr=2`, and 8 for the nodes; None: auto."""
    found = numbers_of(said, alone=True)
    groups = [request.name for request in elements.requests(pipeline)]
    for name in found.keys() - set(groups):
        shown = f"stage {name!r}" if name else "stages that share a node"
        right = " or ".join(f"{group}=4" if group else "4" for group in groups)
        raise NotFound(f"no elements are for {shown}; right would be {right}")
    return found
