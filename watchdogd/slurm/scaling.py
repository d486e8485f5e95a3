"""How many elements there are to be by the work that waits, and which of them may leave. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence

from watchdogd.pipeline.model import Drivers, Pipeline
from watchdogd.report import HostReport
from watchdogd.sizes import coming
from watchdogd.slurm.elements import Element
from watchdogd.slurm.request import Request


def works_of(
    pipeline: Pipeline,
    request: Request,
    unfinished: Mapping[str, int],
    reports: Sequence[HostReport],
) -> list[float]:
    """Return the seconds in which one element would do what waits for each stage of a group that
    has something to do: by the documents that are in the queues and may be claimed, those that are
    still upstream included, and by what watchdogs have said of how fast that is done, the living
    and the gone. 0 where nobody knows."""
    upstream = coming(pipeline, unfinished)
    found = []
    for stage in pipeline.stages:
        most = request.drivers[stage.name].max
        documents = sum(unfinished.get(queue, 0) for queue in stage.inputs) + upstream[stage.name]
        if most and stage.inputs and documents:
            told = [one for report in reports for one in report.stages if one.name == stage.name]
            drivers = _mean(one.wanted for one in told if 0 < one.wanted <= most) or most
            service = _mean(one.service for one in told if one.service is not None) or 0.0
            found.append(documents * service / drivers)
    return found


def _mean(numbers: Iterable[float]) -> float | None:
    found = list(numbers)
    return sum(found) / len(found) if found else None


def wanted(works: Iterable[float], bounds: Drivers, target: float) -> int:
    """Return how many elements are to be there for all that waits to be done within the target.
    Where nobody knows how long a document takes, one is to find out."""
    most = max((max(1, math.ceil(seconds / target)) for seconds in works), default=0)
    return min(max(most, bounds.min), bounds.max)


def may_leave(elements: Iterable[Element], own: str, number: int) -> bool:
    """Return whether an element may leave, of those that run in its group, when so many are to
    stay. Those that began first leave: everybody who sees the same decides the same."""
    running = sorted(
        (one.starts_at, one.number, one.host) for one in elements if one.state == "running"
    )
    return own in (host for _, _, host in running[: max(0, len(running) - number)])


# What a driver says while it has nothing to do.
_AT_REST = frozenset({"ready", "stopped"})


class Idle:
    """How long an element has had nothing to do, by what its watchdog says of its drivers."""

    def __init__(self) -> None:
        # Since when; None while there is something to do.
        self.since: float | None = None
        # How many documents were done by then.
        self._done = 0

    def note(self, report: HostReport | None, now: float) -> float:
        """Note what a watchdog says; return for how many seconds there was nothing to do."""
        drivers = () if report is None else report.drivers
        done = sum(one.documents + one.failed for one in drivers)
        rests = report is not None and all(
            one.state in _AT_REST and not one.document for one in drivers
        )
        if not rests or done != self._done or self.since is None:
            self.since, self._done = (now if rests else None), done
        return 0.0 if self.since is None else now - self.since
