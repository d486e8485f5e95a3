"""How documents go through the queues of a pipeline. Pure."""

from collections.abc import Mapping

from watchdogd.messages import QueueSeen
from watchdogd.pipeline.model import Pipeline


def coming(pipeline: Pipeline, queues: Mapping[str, QueueSeen]) -> dict[str, int]:
    """How many documents are upstream of each stage, as far as can be counted: those of each queue
    once, however many ways lead from it."""
    feeders: dict[str, set[str]] = {}
    for stage in pipeline.stages:
        for queue in stage.outputs:
            feeders.setdefault(queue, set()).update(stage.inputs)
    found = {}
    for stage in pipeline.stages:
        seen = set(stage.inputs)
        to_see = list(stage.inputs)
        while to_see:
            more = feeders.get(to_see.pop(), set()) - seen
            seen |= more
            to_see += more
        upstream = seen.difference(stage.inputs)
        found[stage.name] = sum(queues[name].unfinished for name in upstream if name in queues)
    return found


def through(before: Mapping[str, QueueSeen], now: Mapping[str, QueueSeen], lost: int) -> int:
    """How many documents have gone through, when none came since: those there were at first, less
    those that are left and those that were discarded. Results may be more: a pipeline may part."""
    return max(0, _unfinished(before) - _unfinished(now) - lost)


def _unfinished(queues: Mapping[str, QueueSeen]) -> int:
    return sum(one.unfinished for one in queues.values())
