"""Submits elements, each submission once, whoever dies on the way. `ledger` has the files.

    settle    the latest submission has an end, or gets one, or is under way
    begin     the next number: of many who see one need, one makes it
    sbatch    with the number in each element's comment
    end       the job; or `void` when Slurm refused, or when nobody has seen the number in time

Only the answer to a question after the latest end tells how many elements there are: so whoever
decides asks first, then settles the latest number, and begins the next, as nobody else has since.
"""

import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from msgspec.structs import replace

from queuedriver.disk.filesystem import Directory
from queuedriver.errors import LATER, NotFound, QueueError
from queuedriver.format.units import format_count, format_duration
from queuedriver.operating.queue import Queue
from watchdogd import control
from watchdogd.host import program
from watchdogd.operators.hosts import read_hosts
from watchdogd.pipeline.model import HOUR, Drivers, Pipeline
from watchdogd.report import HostReport
from watchdogd.sizes import coming
from watchdogd.slurm import programs
from watchdogd.slurm.elements import Element, Facts, count, is_element
from watchdogd.slurm.ledger import ASK_EVERY, GIVEN_UP, VOID, Ledger, below, key
from watchdogd.slurm.request import LOGS, Request, Submission, job_name, requests, script

# What elements have said is kept so long after they have ended.
_WEEK = 7 * 24 * HOUR
# A submission whose elements have gone so soon, in seconds, is not followed by another at once.
_SHORT = 60.0
_OTHERS = "somebody else submits at this moment; see watchdogd slurm status"
_STOPPED = "stopped by watchdogd slurm stop at this moment; nothing more is submitted"


class UnderWay(QueueError):
    """Somebody else submits at this moment, or stops all."""

    exit_code = LATER


# Facts

# Documents of each queue that are to be done and may be claimed; and what watchdogs have said of
# how fast that is done: where some run, those alone.
Workload = tuple[Mapping[str, int], Sequence[HostReport]]


def look(pipeline: Pipeline) -> Workload:
    """Look at all queues, and read what the watchdogs of all hosts have said."""
    found = {}
    for name in pipeline.inputs:
        with suppress(NotFound), Queue.open(pipeline.path(name)) as queue:
            controls = queue.controls()
            if not (controls.paused or controls.quit or queue.stopped()):
                found[name] = queue.listing(time.time()).waiting
    reports = [one.report for one in read_hosts(pipeline.root).seen]
    return found, [one for one in reports if one.state != "stopped"] or reports


def bounds(ledger: Ledger, request: Request) -> Drivers:
    """Return how many elements of a group there are to be: as somebody asked, else by the file."""
    number = ledger.scaled(request.name)
    return request.slurm.nodes if number is None else Drivers(number, number)


def wanted(pipeline: Pipeline, request: Request, limits: Drivers, workload: Workload) -> int:
    """Return how many elements of a group are to be there for all that waits to be done within the
    target: by the documents that may be claimed, those that are still upstream included, and by how
    fast that is done. Where nobody knows how long a document takes, one is to find out."""
    unfinished, reports = workload
    upstream, most = coming(pipeline, unfinished), limits.min
    for stage in pipeline.stages:
        drivers = request.drivers[stage.name]
        documents = sum(unfinished.get(queue, 0) for queue in stage.inputs) + upstream[stage.name]
        if drivers and stage.inputs and documents:
            told = [one for report in reports for one in report.stages if one.name == stage.name]
            working = _mean(one.wanted for one in told if 0 < one.wanted <= drivers) or drivers
            service = _mean(one.service for one in told if one.service is not None) or 0.0
            most = max(most, 1, math.ceil(documents * service / working / request.slurm.target))
    return min(most, limits.max)


def _mean(numbers: Iterable[float]) -> float | None:
    found = list(numbers)
    return sum(found) / len(found) if found else None


def missing(
    ledger: Ledger, facts: Facts, asked: Mapping[str, int]
) -> Iterator[tuple[Request, int]]:
    """Yield how many elements of each group are missing: up to how many were `asked` for of some;
    of none: by the work that waits."""
    workload = ({}, []) if asked else look(ledger.pipeline)
    for request in requests(ledger.pipeline):
        number = asked.get(request.name, 0)
        if not asked:
            number = wanted(ledger.pipeline, request, bounds(ledger, request), workload)
        there = count(facts.elements, request.name)
        if number > there:
            yield request, number - there


def ended_at_once(ledger: Ledger, facts: Facts) -> bool:
    """Return whether a new submission has lost all its elements: others would not stay either."""
    number = ledger.latest()
    age = ledger.now() - ledger.made_at(f"{number}.end")
    # A clock that was set back must not keep everybody from submitting.
    return all(one.number != number for one in facts.elements) and 0 <= age < _SHORT


# Acts


def settle(ledger: Ledger, facts: Facts) -> int:
    """Return the number of the latest submission, which has an end by now. UnderWay while it has
    none, and where it has ended since Slurm was asked: of its elements these facts say nothing."""
    number = ledger.latest()
    end = ledger.end_of(number)
    if not number or (end is not None and end.asked < facts.question):
        return number
    there = next((one.job for one in facts.elements if one.number == number), "")
    asked_at = ledger.made_at(f"asked-{facts.question}")
    given_up = asked_at > ledger.made_at(f"{number}.sh") + GIVEN_UP
    if end is not None or not (there or given_up):
        soon, late = format_duration(ASK_EVERY), format_duration(GIVEN_UP)
        raise UnderWay(
            f"Slurm has not told yet what came of submission {number}; try again in {soon}, or "
            f"{late} when whoever made it has died"
        )
    ledger.end(number, f"job {there}" if there else VOID)
    return number


def submit_missing(
    ledger: Ledger,
    facts: Facts,
    chosen: Mapping[str, Submission],
    asked: Mapping[str, int] | None = None,
) -> Iterator[str]:
    """Submit what is missing, in arrays that the cluster takes, as it was `chosen` for each group;
    yield what to say of each submission. UnderWay while somebody else submits; what Slurm says
    against a group is raised when all others are submitted."""
    number, refused = settle(ledger, facts), None
    for request, elements in missing(ledger, facts, asked or {}):
        most = programs.largest_array()
        for first in range(0, elements, most):
            number += 1
            size = min(most, elements - first)
            one = chosen.get(request.name, Submission())
            try:
                job = submit(
                    ledger, request, replace(one, number=number, stage=request.name, elements=size)
                )
            except programs.Refused as error:
                refused = refused or error
                break
            yield f"submitted {format_count(size, 'element')} for {request.shown}: job {job}"
    if refused is not None:
        raise refused


def submit(ledger: Ledger, request: Request, one: Submission) -> str:
    """Make one submission; return its job."""
    pipeline = ledger.pipeline
    text = script(pipeline, request, one, key(pipeline), program())
    # It is Slurm that writes there.
    below(pipeline.root, LOGS).close()
    if not ledger.begin(one.number, text):
        raise UnderWay(_OTHERS)
    try:
        if ledger.stopped:
            # Since somebody has looked: Slurm may have been asked for long.
            raise UnderWay(_STOPPED)
        job = programs.submit(text)
    except programs.Silent:
        # It may have been: whoever comes next looks for it.
        raise
    except QueueError as error:
        ledger.end(one.number, f"{VOID} {error}")
        raise
    if not ledger.end(one.number, f"job {job}"):
        # Somebody had given it up, and may have submitted others.
        programs.cancel([job], pending=False)
        raise UnderWay(_OTHERS)
    element = Element(
        job=job,
        job_name=job_name(pipeline, request),
        stage=one.stage,
        number=one.number,
        tasks=f"1-{one.elements}" if one.elements > 1 else "1",
        state="pending",
    )
    # Until Slurm is asked again.
    facts = ledger.facts()
    ledger.note(replace(facts, elements=(*facts.elements, element)))
    return job


def tidy(root: str, elements: Iterable[Element], now: float) -> None:
    """Remove what elements that are not there have left below the root; `now` is the file system's.
    Of some nobody may have told Slurm's last word: what still runs writes it anew."""
    # By their hosts; logs, which Slurm names, by the job and task (request.py).
    there = {name for one in elements for name in (one.host, *one.jobs)}
    for place in (*control.OUR_DIRECTORIES, LOGS):
        kept = HOUR if place == control.HOSTS else _WEEK
        path = os.path.join(root, control.CONTROL, place)
        inside = 2 + place.count("/")
        with suppress(FileNotFoundError), Directory.open(path, inside=inside) as directory:
            for name in list(directory.names()):
                host = name.partition(".")[0]
                is_left = is_element(host) and host not in there
                if is_left and now - directory.status(name).st_mtime > kept:
                    directory.remove_all(name)
