"""What does not go together within one stage."""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from watchdogd.pipeline.complaints import Slip
from watchdogd.pipeline.model import Stage
from watchdogd.pipeline.works import output_queues

# What a command has for each document.
_PLACE = re.compile(r"\{(?:input|output)\b[^{}]*\}")


class Rule(NamedTuple):
    """Two keys or more, and when they do not go together. The complaint is at the first."""

    keys: tuple[str, ...]
    broken: Callable[[Stage], bool]
    problem: str
    right: str


RULES = (
    Rule(
        ("preload", "call", "command", "server"),
        lambda stage: bool(stage.preload) and stage.kind != "call",
        "loads a Python module, and this stage has none",
        "leave it out: a command is started for each document, a server loads by itself",
    ),
    Rule(
        ("memory_per_driver", "preload"),
        lambda stage: stage.memory_per_driver is not None and not stage.preload,
        "says what a driver takes beside what is loaded once, and nothing is",
        "set preload = true, or say memory alone: it is what one driver takes",
    ),
    Rule(
        ("memory_per_driver", "memory", "preload"),
        lambda stage: (
            stage.memory_per_driver is not None and bool(stage.preload) and stage.memory is None
        ),
        "is not enough to go by",
        "say memory, too: what is loaded once, for all drivers of the stage",
    ),
    Rule(
        ("batch", "retries"),
        lambda stage: stage.batch > 1 and not stage.retries,
        "needs retries",
        "set retries to 1 or more: when a batch crashes its driver, each of its documents is tried "
        "again alone to find out which did it",
    ),
    Rule(
        ("publish", "output"),
        lambda stage: not stage.outputs,
        "names what there is none of: the stage has no output",
        "leave it out, or give the stage an output",
    ),
)


def slips_of(stage: Stage, said: frozenset[str], bad: frozenset[str]) -> Iterator[Slip]:
    """What is wrong with a stage as a whole: with keys of which it has some `said`, and of which
    those that are `bad` have had their complaint."""
    for rule in RULES:
        if rule.keys[0] in said and not bad & set(rule.keys) and rule.broken(stage):
            yield Slip((rule.keys[0],), rule.problem, rule.right)
    if stage.kind == "command" and not bad & {"command", "output"}:
        yield from _command(stage)
    if stage.kind == "server" and (place := _PLACE.search(" ".join(stage.work))):
        yield Slip(
            ("server",),
            f"has {place[0]}, and a server is not started for a document",
            "leave it out: it is told of each document in a line of JSON on its stdin",
        )


def _command(stage: Stage) -> Iterator[Slip]:
    """A command says in its words which output goes where."""
    used = output_queues(stage.work)
    known = ", ".join(stage.outputs)
    unknown = sorted(queue for queue in used if queue and queue not in stage.outputs)
    for queue in unknown:
        right = f"its outputs are {known}" if known else "it has no output at all"
        yield Slip(("command",), f"has {{output:{queue}}}, which is no output of the stage", right)
    if unknown:
        # One of them may be what is missing below.
        return
    if not stage.outputs and None in used:
        yield Slip(
            ("command",),
            "has {output}, and the stage has no output",
            "leave it out, or give the stage an output",
        )
    # Without any {output} its stdout is the output; a plain one is the first queue's.
    first = stage.outputs[:1] if not used or None in used else ()
    for queue in stage.outputs:
        if queue not in used and queue not in first:
            yield Slip(
                ("output",),
                f"has {queue!r}, into which the command puts nothing",
                f"write {{output:{queue}}} where the command is to write it",
            )
