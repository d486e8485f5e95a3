"""What Slurm says of a pipeline's elements: one question each ten seconds, whoever looks.

While it does not answer, what it said last stands, with its age: that is no error of the pipeline.
Those who do not see Slurm are told by the queues that people submit to.
"""

import os
import shlex
import time
from collections.abc import Iterable
from contextlib import suppress

from msgspec.structs import replace

from queuedriver.errors import QueueError, Unreachable, is_trouble
from queuedriver.format.units import format_count, format_duration, visible
from queuedriver.operating.queue import Queue
from watchdogd.pipeline.model import Pipeline
from watchdogd.slurm import programs
from watchdogd.slurm.elements import Element, key_of, read_elements
from watchdogd.slurm.ledger import ASK_EVERY, Facts, Ledger
from watchdogd.slurm.request import Request, requests
from watchdogd.slurm.script import job_name

# After so long people are told how old it is what they are told, in seconds.
_OLD = 60.0
_LOOK_EVERY = 0.5


def key(pipeline: Pipeline) -> str:
    """Return by what the elements of a pipeline are known."""
    return key_of(os.path.realpath(pipeline.root))


def seen(pipeline: Pipeline) -> Facts:
    """Return what Slurm says, asked now unless somebody has just asked; by whoever may not write
    below the root, what it said last."""
    try:
        with Ledger.open(pipeline.root) as ledger:
            # Elements that run decide by the answers to what they ask: they come first.
            runs = any(one.state == "running" for one in ledger.facts().elements)
            with suppress(OSError):
                # Who may not write there asks nobody.
                ask(ledger, pipeline, programs.SOON, ASK_EVERY * (2 if runs else 1))
            return ledger.facts()
    except OSError as error:
        if is_trouble(error):
            raise
        # Nothing was ever submitted, or is to be seen.
        return Facts()


def ask(
    ledger: Ledger, pipeline: Pipeline, limit: float = programs.LIMIT, every: float = ASK_EVERY
) -> bool:
    """Ask Slurm, unless somebody has within so many seconds; return whether it was us."""
    number = ledger.may_ask(every)
    if not number:
        return False
    # Those that are there may be called as the pipeline was before it was renamed.
    names = {one.job_name for one in ledger.facts().elements}
    names |= {job_name(pipeline, one) for one in requests(pipeline)}
    try:
        # Of these names are those that are told since 23.02, and before all there are.
        called = ",".join(sorted(filter(None, names)))
        told = programs.call(("squeue", "--json", f"--name={called}"), limit)
        elements = tuple(read_elements(told, key(pipeline)))
        facts = Facts(question=number, at=time.time(), elements=elements)
    except (QueueError, ValueError) as error:
        facts = replace(ledger.facts(), question=number, error=str(error))
    note(ledger, pipeline, facts)
    return True


def ask_anew(ledger: Ledger, pipeline: Pipeline) -> Facts:
    """Return what Slurm says from now on: wait until one may ask. Unreachable when it does not
    answer."""
    ends_at, asked = time.monotonic() + ASK_EVERY + programs.LIMIT, ledger.asked()
    while time.monotonic() < ends_at:
        ask(ledger, pipeline)
        facts = ledger.facts()
        if facts.question > asked:
            if facts.error:
                raise Unreachable(facts.error)
            return facts
        time.sleep(_LOOK_EVERY)
    raise Unreachable("Slurm has not answered; try again")


def note(ledger: Ledger, pipeline: Pipeline, facts: Facts) -> None:
    """Write down what Slurm said, and for `put` and `why` what that means while no driver is alive:
    what waits, or what to type."""
    ledger.answer(facts)
    words = waiting_words(facts, time.time()) or f"{start_of(pipeline)} has Slurm start some"
    if ledger.stopped:
        words = f"stopped by watchdogd slurm stop; {start_of(pipeline)} goes on"
    for name in pipeline.sources:
        # A queue that is not there yet, or not ours to write in, tells less.
        with suppress(QueueError, OSError), Queue.open(pipeline.path(name)) as queue:
            if queue.notice() != words:
                queue.set_notice(words)


# In words


def start_of(pipeline: Pipeline) -> str:
    """Return what to type for elements to come."""
    return f"watchdogd slurm start {shlex.quote(pipeline.file)}"


def waiting_words(facts: Facts, now: float) -> str:
    """Say what waits in Slurm, and why, in its own word; empty when nothing does."""
    pending = [one for one in facts.elements if one.state == "pending"]
    if not pending:
        return ""
    count = format_count(sum(one.count for one in pending), "element")
    why = ", ".join(dict.fromkeys(visible(one.reason) for one in pending if one.reason))
    first = min((one.starts_at for one in pending if one.starts_at > now), default=0.0)
    expected = f", first expected {_clock(first, now)}" if first else ""
    return f"waits for Slurm: {count} pending{f' ({why})' if why else ''}{expected}" + age_words(
        facts, now
    )


def age_words(facts: Facts, now: float) -> str:
    """Say how old that is, and why, where it is not of now."""
    age = max(0.0, now - facts.at)
    if not facts.error and (age < _OLD or not facts.at):
        return ""
    if not facts.at:
        return f" (not known: {visible(facts.error)})"
    why = f"; since then: {visible(facts.error)}" if facts.error else ""
    return f" (said {format_duration(age)} ago{why})"


def _clock(at: float, now: float) -> str:
    """Return an instant as people say it: today without its day."""
    day = "" if time.localtime(at)[:3] == time.localtime(now)[:3] else "%Y-%m-%d "
    return time.strftime(f"{day}%H:%M", time.localtime(at))


def count(elements: Iterable[Element], request: Request) -> int:
    """Return how many elements of a group are there, or may be there again: one that was requeued
    comes by itself."""
    ours = (one for one in elements if one.stage == request.name and one.state != "ending")
    return sum(one.count for one in ours)
