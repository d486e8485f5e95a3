"""What people ask of the watchdogs and of stages, whichever way they ask it.

Each makes files below `<root>/.watchdogd/` or in queues, or takes them away; control.py has those
that need no more than that.
"""

import os
from collections.abc import Sequence

from queuedriver.errors import NotFound
from queuedriver.operating import operations
from queuedriver.operating.queue import Queue
from watchdogd import control
from watchdogd.helper_messages import QueueSeen
from watchdogd.operators.hosts import Chosen
from watchdogd.pipeline.model import Stage
from watchdogd.queues.control_files import spread_pause


def pause(chosen: Chosen, stages: Sequence[Stage] = ()) -> None:
    """Let the drivers of some stages, or of all, claim nothing new."""
    control.pause(chosen.pipeline.root, inputs_of(stages))


def resume(chosen: Chosen, stages: Sequence[Stage] = ()) -> None:
    """Undo `pause`, of the same stages; and let stages go on that have stopped themselves."""
    pipeline = chosen.pipeline
    queues = inputs_of(stages)
    control.resume(pipeline.root, queues)
    for queue in queues:
        with Queue.open(pipeline.path(queue)) as opened:
            operations.resume(opened)
    if not stages:
        # So would a watchdog, if there is one.
        paused = [one for one in pipeline.inputs if _is_paused(pipeline.path(one))]
        spread_pause(pipeline, dict.fromkeys(paused, QueueSeen(paused=True)), paused=False)


def inputs_of(stages: Sequence[Stage]) -> list[str]:
    """Return what these stages take from; NotFound for one that has no queue."""
    found: list[str] = []
    for stage in stages:
        if not stage.inputs:
            raise NotFound(
                f"stage {stage.name!r} has no queue, but a broker; pause and resume that"
            )
        found += stage.inputs
    return found


def _is_paused(queue: str) -> bool:
    return os.path.lexists(os.path.join(queue, control.PAUSE))
