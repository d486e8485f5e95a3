"""How many elements there are to be by the work that waits, and which of them may leave. Pure."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from watchdogd.pipeline.model import Drivers, Pipeline
from watchdogd.report import HostReport, StageReport
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
        found.append(Work(documents, _service(told), drivers or bounds.max))
    return found


def _service(told: Iterable[StageReport]) -> float | None:
    return _mean(one.service for one in told if one.service is not None)


def _mean(numbers: Iterable[float]) -> float | None:
    found = list(numbers)
    return sum(found) / len(found) if found else None


def wanted(works: Iterable[Work], bounds: Drivers, target: float) -> int:
    """Return how many elements are to be there for all that waits to be done within the target.
    Where nobody knows how long a document takes, one is to find out."""
    most = 0
    for work in works:
        if work.documents:
            takes = work.documents * (work.service or 0.0) / work.drivers
            most = max(most, 1, math.ceil(takes / target))
    return min(max(most, bounds.min), bounds.max)


def may_leave(elements: Iterable[Element], own: str, number: int) -> bool:
    """Return whether an element may leave, of those that run in its group, when so many are to
    stay. Those that began last do: everybody who sees the same decides the same."""
    running = [one.host for one in began_first(elements)]
    return own in running[: max(0, len(running) - number)]


def goes_last(
    elements: Iterable[Element], own: str, busy: Collection[str], stay: Collection[str]
) -> bool:
    """Return whether an element, which began last, is to see all others go before: somebody has to
    say that nothing runs. Not while one of them is `busy`, or of a group that is to `stay`: such a
    one is there for longer."""
    *others, last = began_first(elements)
    lasting = any(one.host in busy or one.stage in stay for one in others)
    return bool(others) and last.host == own and not lasting


def began_first(elements: Iterable[Element]) -> list[Element]:
    """Return the elements that run, the one that began last at the end."""
    running = (one for one in elements if one.state == "running")
    return sorted(running, key=lambda one: (one.starts_at, one.number, one.host))


# What a driver says while it has nothing to do.
_AT_REST = frozenset({"ready", "stopped"})


def at_rest(report: HostReport) -> bool:
    """Return whether no driver has anything to do."""
    return all(one.state in _AT_REST and not one.document for one in report.drivers)


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
        rests = report is not None and at_rest(report)
        if not rests or done != self._done or self.since is None:
            self.since, self._done = (now if rests else None), done
        return 0.0 if self.since is None else now - self.since
