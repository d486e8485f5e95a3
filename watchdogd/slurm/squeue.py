"""What Slurm says of a pipeline's elements: one question each ten seconds, whoever looks.

While it does not answer, what it said last stands, with its age: that is no error of the pipeline.
"""

import os
import time
from collections.abc import Iterable
from contextlib import suppress

from msgspec.structs import replace

from queuedriver.errors import QueueError, Unreachable, is_trouble
from queuedriver.format.units import format_count, format_duration, visible
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
            with suppress(OSError):
                # Who may not write there asks nobody.
                ask(ledger, pipeline, programs.SOON)
            return ledger.facts()
    except OSError as error:
        if is_trouble(error):
            raise
        # Nothing was ever submitted, or is to be seen.
        return Facts()


def ask(ledger: Ledger, pipeline: Pipeline, limit: float = programs.LIMIT) -> bool:
    """Ask Slurm, unless somebody has a moment ago; return whether it was us."""
    mine = ledger.may_ask()
    if mine is None:
        return False
    number, asked_at = mine
    names = ",".join(dict.fromkeys(job_name(pipeline, one) for one in requests(pipeline)))
    try:
        told = programs.call(programs.questions(names), limit)
        elements = tuple(read_elements(told, key(pipeline)))
        facts = Facts(question=number, asked_at=asked_at, at=time.time(), elements=elements)
    except (QueueError, ValueError) as error:
        facts = replace(ledger.facts(), question=number, error=str(error))
    ledger.answer(facts)
    return True


def ask_after(ledger: Ledger, pipeline: Pipeline, instant: float) -> Facts:
    """Return what Slurm says after an instant of the file system's clock: wait until one may ask.
    Unreachable when it does not answer."""
    ends_at = time.monotonic() + ASK_EVERY + programs.LIMIT
    first = ledger.facts().question
    while time.monotonic() < ends_at:
        ask(ledger, pipeline)
        facts = ledger.facts()
        if facts.error and facts.question != first:
            raise Unreachable(facts.error)
        if facts.asked_at > instant:
            return facts
        time.sleep(_LOOK_EVERY)
    raise Unreachable("Slurm has not answered; try again")


# In words


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
    """Return how many elements of a group are pending or running."""
    ours = (one for one in elements if one.stage == request.name and one.state != "ending")
    return sum(one.count for one in ours)
