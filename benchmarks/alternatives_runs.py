"""The measurements of benchmarks/alternatives.py, each of one tool in one new directory."""

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks import pipelines
from benchmarks.alternatives_reckoning import Log, left_over, spread
from benchmarks.alternatives_tools import FUNCTION, MODEL, Job, Running, Tool
from benchmarks.alternatives_work import HANG, POISON
from benchmarks.measuring import Failed, Sample

# Seconds: a tool that adds nothing for so long while documents are missing is at rest.
QUIET = 12.0
PATIENCE = 60.0
# Looks at the results while others work, in seconds, and at one result that is waited for.
_LOOK_EVERY = 0.02
_LOOK_SOON = 0.0005


class Sizes(NamedTuple):
    """What the documents of each measurement are."""

    model: int = 512 << 20
    load: float = 2.0
    model_documents: int = 40
    model_seconds: float = 0.05
    kills: int = 10
    kill_documents: int = 600
    kill_seconds: float = 0.01
    bad_documents: int = 200
    limit: float = 2.0


def through(tool: Tool, directory: Path, kind: str, documents: int) -> Sample:
    """From the command to the last result, with all documents there before."""
    with _at_work(tool, directory, Job(kind), _docids(documents)) as (running, began):
        lost = documents - _wait_done(running, documents)
        return Sample(1e9 * (running.ended_at() - began), {"lost": lost})


def model(tool: Tool, directory: Path, sizes: Sizes) -> Sample:
    """The same with one stage that loads something large; and what memory all of it takes."""
    job = Job(MODEL, 2, sizes.model_seconds, model=sizes.model, load=sizes.load)
    documents = sizes.model_documents
    most = 0
    with _at_work(tool, directory, job, _docids(documents)) as (running, began):
        while running.done() < documents:
            _check(running, began)
            most = max(most, sum(map(_pss, running.pids())))
            time.sleep(0.1)
        took = running.ended_at() - began
    return Sample(1e9 * took, {"memory": most})


def rest(tool: Tool, directory: Path, wakes: int) -> Sample:
    """From just before a document is submitted to its result, each time after a pause."""
    waits = []
    with contextlib.ExitStack() as stack:
        running = stack.enter_context(tool.prepared(directory, Job(waits=True), ["warm"]))
        stack.enter_context(tool.started(running))
        submit = stack.enter_context(tool.submitting(directory, running.job))
        _wait_done(running, 1)
        place, suffix = tool.results(running.job)
        for number in range(wakes):
            time.sleep(random.uniform(0.3, 0.8))
            docid = f"wake{number}"
            began = time.monotonic()
            submit(docid)
            while not (directory / place / f"{docid}{suffix}").exists():
                if time.monotonic() > began + pipelines.PATIENCE:
                    raise Failed(f"{docid} has not come through")
                time.sleep(_LOOK_SOON)
            waits.append(time.monotonic() - began)
    return Sample(1e9 * median(waits), {"waits": waits})


def killed(tool: Tool, directory: Path, sizes: Sizes, kills: int) -> Sample:
    """Workers killed in the midst of a stage; what is missing and what was done twice then."""
    job = Job(FUNCTION, seconds=sizes.kill_seconds, noted=True)
    docids = _docids(sizes.kill_documents)
    total = len(job.stages) * len(docids)
    due = spread(total, [random.random() for _ in range(kills)])
    with _at_work(tool, directory, job, docids) as (running, began):
        log = Log(directory / "log")
        rested = began
        while not _at_rest(running, docids, rested):
            if log.look():
                rested = time.time()
            if due and log.course.ended.total() >= due[0] and _kill(log, running):
                del due[0]
            time.sleep(0.002)
        log.look()
        if due:
            raise Failed(f"only {kills - len(due)} of {kills} workers could be killed")
        missing = set(docids) - running.results()
        facts = {
            "missing": len(missing),
            "named": len(running.named(sorted(missing))),
            "twice": log.course.ended_twice(),
            "left": left_over(directory / "queues", "s3") if tool.ours and not missing else [],
        }
        took = running.ended_at() - began
    return Sample(1e9 * took, facts)


def bad(tool: Tool, directory: Path, sizes: Sizes) -> Sample:
    """One document that kills its worker and one that hangs, among others that are well."""
    job = Job(FUNCTION, limit=sizes.limit, noted=True)
    docids = _docids(sizes.bad_documents - 2)
    # A third and two thirds of the way in.
    third = len(docids) // 3
    order = [*docids[:third], POISON, *docids[third : 2 * third], HANG, *docids[2 * third :]]
    with _at_work(tool, directory, job, order) as (running, began):
        log = Log(directory / "log")
        rested = began
        while not _at_rest(running, order, rested):
            if log.look():
                rested = time.time()
            time.sleep(_LOOK_EVERY)
        log.look()
        results = running.results()
        facts = {
            "missing": len(set(docids) - results),
            "poison": log.course.begun_by(POISON),
            "hang": log.course.begun_by(HANG),
            "named": len(running.named([POISON, HANG])),
        }
        took = running.ended_at() - began
    return Sample(1e9 * took, facts)


@contextlib.contextmanager
def _at_work(
    tool: Tool, directory: Path, job: Job, docids: list[str]
) -> Iterator[tuple[Running, float]]:
    with tool.prepared(directory, job, docids) as running:
        began = time.time()
        with tool.started(running):
            yield running, began


def _docids(count: int) -> list[str]:
    return [f"doc{number:05d}" for number in range(count)]


def _wait_done(running: Running, documents: int) -> int:
    """Wait until all have come out, or nothing more does; return how many have."""
    rested, done = time.time(), 0
    while done < documents:
        _check(running, rested)
        now = running.done()
        if now > done:
            rested, done = time.time(), now
        if done and time.time() > rested + QUIET:
            break
        time.sleep(_LOOK_EVERY if documents > 1 else _LOOK_SOON)
    return done


def _check(running: Running, began: float) -> None:
    if running.has_left and not running.done():
        lines = (running.directory / "tool.log").read_text().strip().splitlines()
        raise Failed(f"it has left: {(lines or ['no words'])[-1]}")
    if time.time() > began + PATIENCE:
        raise Failed(f"{running.done()} documents after {PATIENCE:g} s")


def _at_rest(running: Running, docids: list[str], rested: float) -> bool:
    """Whether nothing more will come of it."""
    if running.has_left or time.time() > rested + QUIET:
        return True
    done = running.results()
    # One may be both: killed when its result was there, and its end not yet noticed.
    return len(done) >= len(docids) or len(done | running.named(docids)) >= len(docids)


def _kill(log: Log, running: Running) -> bool:
    """Kill one that has a document at hand; return whether there was one."""
    hands = list(log.course.at_hand)
    random.shuffle(hands)
    for pid in hands:
        del log.course.at_hand[pid]
        with contextlib.suppress(OSError):
            # Not a number that something else has by now.
            if pid in running.pids():
                os.kill(pid, signal.SIGKILL)
                return True
    return False


def _pss(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)
