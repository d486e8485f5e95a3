"""How many elements there are to be by the work that waits, and which of them may leave. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from watchdogd.pipeline.model import Drivers, Pipeline
from watchdogd.report import HostReport
from watchdogd.sizes import coming
from watchdogd.slurm.elements import Element
from watchdogd.slurm.request import Request


class Work(NamedTuple):
    """What a stage has to do, and how fast one element does it."""

    # Documents that wait for it, those that are still upstream included.
    documents: int
    # Seconds that one takes; None while that is not known.
    service: float | None
    # Of one element.
    drivers: float


def works_of(
    pipeline: Pipeline,
    request: Request,
    unfinished: Mapping[str, int],
    reports: Sequence[HostReport],
) -> list[Work]:
    """Return the work of the stages of a group, by what is in the queues that may be claimed from,
    and by what watchdogs have said of the stages, the living and the gone."""
    upstream = coming(pipeline, unfinished)
    found = []
    for stage in pipeline.stages:
        bounds = request.drivers[stage.name]
        if not bounds.max or not stage.inputs:
            continue
        documents = sum(unfinished.get(queue, 0) for queue in stage.inputs) + upstream[stage.name]
        told = [one for report in reports for one in report.stages if one.name == stage.name]
        drivers = _mean(one.wanted for one in told if 0 < one.wanted <= bounds.max)
        service = _mean(one.service for one in told if one.service is not None)
        found.append(Work(documents, service, drivers or bounds.max))
    return found


def _mean(numbers: Iterable[float]) -> float | None:
    found = list(numbers)
    return sum(found) / len(found) if found else None


def wanted(works: Iterable[Work], bounds: Drivers, target: float) -> int:
    """Return how many elements are to be there for all that waits to be done within the target.
    Where nobody knows how long a document takes, one is to find out."""
    seconds = [one.documents * (one.service or 0.0) / one.drivers for one in works if one.documents]
    most = max((max(1, math.ceil(one / target)) for one in seconds), default=0)
    return min(max(most, bounds.min), bounds.max)


def may_leave(elements: Iterable[Element], own: str, number: int) -> bool:
    """Return whether an element may leave, of those that run in its group, when so many are to
    stay. Those that began last do: everybody who sees the same decides the same."""
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

    def see(self, report: HostReport | None, now: float) -> float:
        """Return for how many seconds there has been nothing to do."""
        drivers = () if report is None else report.drivers
        done = sum(one.documents + one.failed for one in drivers)
        rests = report is not None and all(
            one.state in _AT_REST and not one.document for one in drivers
        )
        if not rests or done != self._done or self.since is None:
            self.since, self._done = (now if rests else None), done
        return 0.0 if self.since is None else now - self.since
