"""A pipeline at one moment, from what its queues, its drivers and its watchdogs say. Pure.

A watchdog that lives knows its drivers best. Of all others, those of a watchdog that is gone and
those somebody started by hand, is known what they registered in the queues.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from queuedriver.claims.picking import Counts
from queuedriver.operating.queue_view import DriverView, QueueView
from watchdogd.cli.hosts import Hosts, SeenHost
from watchdogd.cli.seen import Facts, SeenDriver, SeenStage, SeenWatchdog, View
from watchdogd.pipeline.model import Stage
from watchdogd.places import driver_id, short_host
from watchdogd.report import DriverReport, StageReport


def view_of(facts: Facts) -> View:
    """Put the facts together."""
    drivers = tuple(_drivers(facts))
    return View(
        name=facts.pipeline.name,
        file=facts.pipeline.file,
        root=facts.pipeline.root,
        at=facts.now,
        state=state_of(facts.hosts),
        paused=facts.controls.paused,
        quit=facts.controls.quit,
        file_error=facts.file_error,
        watchdogs=tuple(_watchdog(one) for one in facts.hosts.seen),
        stages=tuple(_stage(stage, facts, drivers) for stage in facts.pipeline.stages),
        drivers=drivers,
        results=facts.results,
        unreadable=facts.hosts.unreadable,
    )


def state_of(hosts: Hosts) -> str:
    """Whether the pipeline is looked after, as far as can be known from here."""
    if hosts.alive:
        return "running"
    silent = any(one.standing == "silent" for one in hosts.seen)
    return "unknown" if silent or hosts.unreadable else "not running"


def _watchdog(seen: SeenHost) -> SeenWatchdog:
    report = seen.report
    return SeenWatchdog(
        host=report.host,
        standing=seen.standing,
        state=report.state,
        pid=report.pid,
        started_at=report.started_at,
        at=report.at,
        trouble=report.trouble,
        reload_error=report.reload_error,
        crash=report.crash,
        notes=report.notes,
    )


# Drivers


def _drivers(facts: Facts) -> Iterable[SeenDriver]:
    """Those of living watchdogs, then whoever else is at work, each once."""
    views = {
        view.id: (view, stage.name)
        for stage in facts.pipeline.stages
        for view in _views(stage, facts.queues)
        if view.alive or view.at_hand
    }
    for host in facts.hosts.alive:
        for report in host.report.drivers:
            view, _ = views.pop(report.id, (None, ""))
            fields = msgspec.structs.asdict(report) | _at_hand(report, view)
            yield SeenDriver(**fields, host=host.report.host, kept=True)
    known = {
        report.id: (report.name, host.report.host)
        for host in facts.hosts.seen
        if not host.alive
        for report in host.report.drivers
    }
    for view, stage in views.values():
        # One that a watchdog started since it last said anything.
        kept = next((one for one in facts.hosts.alive if _keeps(one, stage, view.id)), None)
        if kept is not None:
            name = view.id.removeprefix(f"{short_host(kept.report.host)}-")
            yield _registered(view, stage, name, kept.report.host, kept=True)
        else:
            name, host_name = known.get(view.id, (view.id, view.host))
            yield _registered(view, stage, name, host_name, kept=False)


def _views(stage: Stage, queues: Mapping[str, QueueView]) -> Iterable[DriverView]:
    for queue in stage.inputs:
        if queue in queues:
            yield from queues[queue].drivers


def _keeps(host: SeenHost, stage: str, driver: str) -> bool:
    """Whether a driver's id is one that this host's watchdog gives to those of a stage."""
    _, _, slot = driver.rpartition("-")
    return slot.isdecimal() and driver == driver_id(host.report.host, stage, int(slot))


def _at_hand(report: DriverReport, view: DriverView | None) -> dict[str, Any]:
    """What a driver's claims tell, which are newer than what its watchdog said."""
    if view is None or not report.pid:
        return {}
    if not view.at_hand:
        return {"document": "", "since": 0.0} if report.document else {}
    if report.document in [one.docid for one in view.at_hand]:
        return {}
    busy = {"state": "busy", "why": ""} if report.state in ("starting", "ready") else {}
    return {"document": view.at_hand[0].docid, "since": view.at_hand[0].since, **busy}


def _registered(view: DriverView, stage: str, name: str, host: str, *, kept: bool) -> SeenDriver:
    """A driver that only its registration and its claims tell of."""
    counters = view.counters
    since = min((one.since for one in view.at_hand if one.since), default=0.0)
    return SeenDriver(
        name=name,
        id=view.id,
        stage=stage,
        host=host,
        kept=kept,
        state=view.state,
        why=view.why,
        pid=view.pid if view.alive else 0,
        document=view.at_hand[0].docid if view.at_hand else "",
        since=since,
        started_at=view.registration.started_at if view.registration is not None else 0.0,
        documents=counters.documents,
        failed=counters.failed,
        discarded=counters.discarded,
        memory=view.memory or 0,
        work=counters.work,
        wait=counters.wait,
        block=counters.block,
        overhead=counters.overhead,
    )


# Stages


def _stage(stage: Stage, facts: Facts, drivers: Sequence[SeenDriver]) -> SeenStage:
    queues = [facts.queues[queue] for queue in stage.inputs if queue in facts.queues]
    counts = sum((queue.counts for queue in queues), Counts())
    own = [one for one in drivers if one.stage == stage.name]
    reports = [
        one for host in facts.hosts.alive for one in host.report.stages if one.name == stage.name
    ]
    rate = sum(one.rate for one in reports) + _unkept_rate(stage, facts.queues, own)
    done = len(queues) == len(stage.inputs) and all(queue.done for queue in queues)
    state, why = _state(stage, facts, queues, reports, done and not _unfinished(counts))
    work, documents = sum(one.work for one in own), sum(one.documents for one in own)
    return SeenStage(
        name=stage.name,
        inputs=stage.inputs,
        outputs=stage.outputs,
        state=state,
        why=why,
        waiting=counts.waiting,
        working=counts.working + counts.written,
        failed=counts.failed,
        later=counts.later,
        discarded=counts.discarded,
        next_due=counts.next_due,
        done=done,
        drivers=sum(1 for one in own if one.pid),
        wanted=sum(one.wanted for one in reports),
        min=stage.drivers.min,
        max=stage.drivers.max,
        rate=rate,
        service=_service(reports, work, documents),
        memory=_memory(reports, own),
        work=work,
        wait=sum(one.wait for one in own),
        block=sum(one.block for one in own),
        overhead=sum(one.overhead for one in own),
        eta=counts.waiting / rate if rate else None,
    )


def _unfinished(counts: Counts) -> int:
    return counts.waiting + counts.later + counts.working + counts.written + counts.writing


def _state(
    stage: Stage,
    facts: Facts,
    queues: Sequence[QueueView],
    reports: Sequence[StageReport],
    finished: bool,
) -> tuple[str, str]:
    """One word, and why; "" while there is nothing to say."""
    for report in reports:
        if report.state == "degraded":
            return "degraded", report.why
    paused = [queue for queue in queues if queue.paused]
    if facts.controls.paused or (queues and len(paused) == len(stage.inputs)):
        return "paused", ""
    if any(queue.quit for queue in queues):
        return "quit", ""
    if tripped := next((queue.tripped for queue in queues if queue.tripped), ""):
        return "tripped", tripped
    if finished:
        return "done", ""
    return next(((one.state, one.why) for one in reports if one.state), ("", ""))


def _unkept_rate(
    stage: Stage, queues: Mapping[str, QueueView], drivers: Sequence[SeenDriver]
) -> float:
    """Of the drivers that no watchdog counts. One may drive several queues of its stage."""
    unkept = {one.id for one in drivers if not one.kept}
    rates = {view.id: view.rate for view in _views(stage, queues) if view.id in unkept}
    return sum(rates.values())


def _service(reports: Sequence[StageReport], work: int, documents: int) -> float | None:
    """Seconds of work in a document; of several hosts, by how many documents each does."""
    known = [(one.service, one.rate) for one in reports if one.service is not None]
    if known:
        rates = sum(rate for _, rate in known)
        if rates:
            return sum(service * rate for service, rate in known) / rates
        return sum(service for service, _ in known) / len(known)
    return work / 1000 / documents if documents else None


def _memory(reports: Sequence[StageReport], drivers: Sequence[SeenDriver]) -> int:
    unkept = sum(one.memory for one in drivers if not one.kept)
    return sum(one.memory for one in reports) + unkept
