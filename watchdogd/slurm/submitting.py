"""Submits elements, each submission once, whoever dies on the way. `ledger` has the files.

    settle    the latest submission has an end, or gets one, or is under way
    begin     the next number: of many who see one need, one makes it
    sbatch    with the number in each element's comment
    end       the job; or `void` when Slurm refused, or when nobody has seen the number in time

Only what was said after the latest end tells how many elements there are: so whoever decides first
reads the latest number, then asks, then begins the next.
"""

import os
import shlex
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from msgspec.structs import replace

from queuedriver.disk.filesystem import Directory
from queuedriver.errors import FileSystemTrouble, NotFound, QueueError
from queuedriver.operating.queue import Queue
from watchdogd import control
from watchdogd.pipeline.model import HOUR, Drivers, Pipeline
from watchdogd.report import HOSTS, Alien, HostReport, decode
from watchdogd.slurm import programs
from watchdogd.slurm.elements import Element, is_element
from watchdogd.slurm.ledger import GIVEN_UP, VOID, Facts, Latest, Ledger, Submission
from watchdogd.slurm.request import Request, requests
from watchdogd.slurm.scaling import wanted, works_of
from watchdogd.slurm.script import LOGS, Chosen, Words, script
from watchdogd.slurm.squeue import count, key

# Nobody submits who was stopped for so long since he began, in seconds: by then others may decide.
_TOO_LATE = GIVEN_UP / 2
# What elements have said is kept so long after they have ended.
_WEEK = 7 * 24 * HOUR


class Need(NamedTuple):
    """So many more elements of a group."""

    request: Request
    elements: int


# Facts


class Sight(NamedTuple):
    """What there is to do, and what watchdogs have said of how fast it is done."""

    # Documents of each queue that are to be done and may be claimed.
    unfinished: dict[str, int]
    reports: list[HostReport]


def look(pipeline: Pipeline) -> Sight:
    """Look at all queues, and read what the watchdogs of all hosts have said."""
    found = {}
    for name in pipeline.inputs:
        with suppress(NotFound), Queue.open(pipeline.path(name)) as queue:
            controls = queue.controls()
            if not (controls.paused or controls.quit or queue.stopped()):
                found[name] = queue.listing(time.time()).waiting
    return Sight(found, _read_reports(pipeline.root))


def _read_reports(root: str) -> list[HostReport]:
    """Return what watchdogs have said; where some run, only those."""
    found = []
    path = os.path.join(root, HOSTS)
    if not os.path.isdir(path):
        return []
    with Directory.open(path, inside=2) as directory:
        for name in directory.names():
            with suppress(FileNotFoundError, Alien):
                if name.endswith(".json") and name[0] != ".":
                    found.append(decode(directory.read(name)))
    return [one for one in found if one.state != "stopped"] or found


def bounds(ledger: Ledger, request: Request) -> Drivers:
    """Return how many elements of a group there are to be: as somebody asked, else by the file."""
    number = ledger.scaled(request.name)
    return request.slurm.nodes if number is None else Drivers(number, number)


def number_of(pipeline: Pipeline, ledger: Ledger, request: Request, sight: Sight) -> int:
    """Return how many elements of a group there are to be, by the work that waits."""
    works = works_of(pipeline, request, sight.unfinished, sight.reports)
    return wanted(works, bounds(ledger, request), request.slurm.target)


def needs(
    pipeline: Pipeline, ledger: Ledger, facts: Facts, asked: dict[str, int] | None = None
) -> list[Need]:
    """Return which elements are missing, by the work that waits; or up to how many were `asked` for
    of each group."""
    found = []
    sight = look(pipeline) if asked is None else Sight({}, [])
    for request in requests(pipeline):
        if asked is None:
            number = number_of(pipeline, ledger, request, sight)
        else:
            number = asked.get(request.name, 0)
        there = count(facts.elements, request, "pending", "running")
        if number > there:
            found.append(Need(request, number - there))
    return found


# Acts


def settle(ledger: Ledger, facts: Facts) -> Latest | None:
    """Return the latest submission once it has an end; None while it is under way, and where it has
    ended since Slurm was asked: of its elements these facts say nothing."""
    latest = ledger.latest()
    if latest.end:
        return latest if facts.asked_at > latest.ended_at or not latest.number else None
    there = next((one.job for one in facts.elements if one.number == latest.number), "")
    if there:
        ledger.end(latest.number, f"job {there}")
    elif facts.asked_at > latest.began_at + GIVEN_UP:
        ledger.end(latest.number, VOID)
    else:
        return None
    return ledger.latest()


def submit(
    pipeline: Pipeline,
    ledger: Ledger,
    latest: Latest,
    need: Need,
    program: Sequence[str],
    chosen: Chosen,
) -> Latest | None:
    """Submit the elements of a need; return that submission, or None when somebody else is about
    to. What Slurm says against it is raised."""
    began_at = time.monotonic()
    number = latest.number + 1
    text = script(pipeline, need.request, words_of(pipeline, need, program, chosen, str(number)))
    _subdirectory(pipeline.root, LOGS).close()
    one = Submission(
        number=number,
        stage=need.request.name,
        elements=need.elements,
        at=time.time(),
        by=f"process {os.getpid()} on {os.uname().nodename}",
        chosen=chosen,
    )
    if not ledger.begin(one, text):
        return None
    if time.monotonic() - began_at > _TOO_LATE:
        raise FileSystemTrouble(f"{ledger.path('')}: it took too long; nothing was submitted")
    try:
        job = programs.submit(text)
    except programs.Silent as error:
        if not error.asked:
            ledger.end(number, f"{VOID} {error}")
        raise
    except QueueError as error:
        ledger.end(number, f"{VOID} {error}")
        raise
    if ledger.end(number, f"job {job}").startswith(VOID):
        # Somebody had given it up, and may have submitted others.
        programs.cancel(job)
        return None
    # Until Slurm is asked again.
    tasks = tuple(range(1, need.elements + 1))
    name = f"{job}_[1-{need.elements}]"
    element = Element(
        name=name, job=job, stage=need.request.name, number=number, tasks=tasks, state="pending"
    )
    facts = ledger.facts()
    ledger.answer(replace(facts, elements=(*facts.elements, element)))
    return Latest(number, f"job {job}")


def serve(
    pipeline: Pipeline,
    ledger: Ledger,
    missing: Iterable[Need],
    latest: Latest,
    program: Sequence[str],
    chosen: Chosen,
) -> Iterator[tuple[Need, Latest]]:
    """Submit what is missing, as long as nobody else submits; yield what was. It is missing by what
    Slurm has said since the latest submission ended."""
    for need in missing:
        submitted = submit(pipeline, ledger, latest, need, program, chosen)
        if submitted is None:
            return
        latest = submitted
        yield need, latest


def words_of(
    pipeline: Pipeline, need: Need, program: Sequence[str], chosen: Chosen, number: str
) -> Words:
    """Return what the script of a need has beside what is asked for."""
    return Words(program, key(pipeline), number, need.elements, chosen)


def _subdirectory(root: str, place: str) -> Directory:
    """Open what is below the control directory, made if it is not there."""
    path = os.path.join(root, control.CONTROL, place)
    return Directory.open(path, create=True, inside=place.count("/") + 2)


def tidy(root: str, there: Collection[str], now: float) -> None:
    """Remove what elements that have ended have left below the root; `now` is the file system's.
    Of some nobody may have told Slurm's last word: what still runs writes it anew."""
    for place, kept in (
        (control.HOSTS, HOUR),
        (control.EVENTS, _WEEK),
        (control.LOGS, _WEEK),
        (control.HISTORY, _WEEK),
        (LOGS, _WEEK),
    ):
        with _subdirectory(root, place) as directory:
            for name in list(directory.names()):
                host = name.partition(".")[0]
                if not is_element(host) or host in there:
                    continue
                if now - directory.status(name).st_mtime > kept:
                    directory.remove_all(name)


# What those are told who do not see Slurm


def nothing_runs(pipeline: Pipeline) -> str:
    """Say so, and what to type."""
    start = f"watchdogd slurm start {shlex.quote(pipeline.file)}"
    return f"nothing runs; {start} has Slurm start what is needed"


def notice(pipeline: Pipeline, words: str) -> None:
    """Leave word in the queues that people submit to, for `put` and `why`; empty: take it away."""
    for name in pipeline.sources:
        with suppress(NotFound), Queue.open(pipeline.path(name)) as queue:
            queue.set_notice(words)
