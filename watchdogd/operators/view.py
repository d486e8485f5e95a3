"""Looks at a pipeline at one moment: at its queues, its drivers and its watchdogs.

A watchdog that lives knows its drivers best. Of all others, those of a watchdog that is gone and
those somebody started by hand, is known what they registered in the queues. A look changes nothing
and creates nothing.
"""

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import msgspec

from queuedriver.claims.counts import Counts
from queuedriver.claims.liveness import Observer
from queuedriver.driving.measurements import FILTERED, Counted
from queuedriver.errors import CannotUse, NotFound, NotPermitted
from queuedriver.format.units import format_count
from queuedriver.operating.queue import Queue
from queuedriver.operating.queue_view import DriverView, QueueView, overview
from watchdogd import control
from watchdogd.driver_ids import driver_id, short_host
from watchdogd.helper_messages import Controls
from watchdogd.operators.forecast import LONG, SHORT, Outlook, outlook
from watchdogd.operators.hosts import Chosen, Hosts, SeenHost, paused_by, read_controls
from watchdogd.pipeline.model import Intake, Stage
from watchdogd.report import SHARES, DriverReport, StageReport, most
from watchdogd.stage_words import StageFacts

if TYPE_CHECKING:
    from watchdogd.slurm.elements import Facts

# Seconds between two looks: at least this, and so long that looking takes a twentieth of the time.
_EVERY, _SHARE = 1.0, 20
# What of a watchdog's report is told of the watchdog itself.
_OF_WATCHDOG = (
    *("host", "state", "pid", "started_at", "at", "trouble", "reload_error", "crash", "hopeless"),
    "notes",
)
# What the word of a host that does nothing now weighs beside others', in documents per second.
_IDLE = 1e-9
# What of the counts of its queues is told of a stage.
_COUNTED = ("waiting", "failed", "later", "discarded", "next_due")


class SeenDriver(DriverReport, frozen=True, kw_only=True):
    """A driver, and whether a living watchdog keeps it."""

    host: str
    kept: bool


class SeenStage(StageReport, frozen=True, kw_only=True):
    """One stage on all hosts; times in seconds, sizes in bytes, shares of time in milliseconds."""

    # The folder that an intake takes from, whose output is the queue that it takes into; and what
    # files there wait for. Empty of others.
    folder: str = ""
    waits_for: str = ""
    # None where its queues do not answer, or one that watchdogs made is not there; of an intake the
    # files in its folder that wait, None while no watchdog says.
    waiting: int | None = None
    working: int | None = None
    failed: int | None = None
    later: int | None = None
    discarded: int | None = None
    # When the first that was postponed is due; 0 when none is.
    next_due: int = 0
    done: bool
    drivers: int
    # The number that an operator asked for on this host; None: as the file says.
    scaled: int | None
    work: int
    wait: int
    block: int
    overhead: int
    # How it goes on with what waits.
    outlook: Outlook


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """A queue or a directory that no stage takes from: what is there to be collected."""

    queue: str
    # None where it is not there though watchdogs made it, or cannot be looked at.
    items: int | None
    # Files that are no items: results that were published under plain names.
    files: int
    # Why it cannot be looked at, where it is there.
    why: str = ""

    @property
    def words(self) -> str:
        """Return it in words."""
        if self.items is None:
            return "cannot be looked at" if self.why else "is not there"
        files = [format_count(self.files, "file")] if self.files else []
        items = [f"{self.items:,} to collect"] if self.items or not files else []
        return ", ".join((*items, *files))


class View(msgspec.Struct, frozen=True, kw_only=True):
    """One look at a pipeline."""

    chosen: Chosen
    at: float
    controls: Controls
    stages: tuple[SeenStage, ...]
    drivers: tuple[SeenDriver, ...]
    results: tuple[Result, ...]
    # What is in the queues that stages take from, as far as they answer.
    items: Mapping[str, Counts]
    # Why others of them cannot be looked at, though something is there.
    unseen: Mapping[str, str] = {}
    # What Slurm says of the elements, where it starts the watchdogs.
    slurm: "Facts | None" = None

    @property
    def stuck(self) -> list[str]:
        """Return the stages with documents to do that no driver can do before somebody helps."""
        return [
            stage.name
            for stage in self.stages
            if stage.waiting
            and (states := {one.state for one in self.drivers if one.stage == stage.name})
            and states <= {"crash-looped", "stopped"}
            and "crash-looped" in states
        ]

    def as_json(self) -> dict[str, object]:
        """Return all of it for programs."""
        pipeline, hosts = self.chosen.pipeline, self.chosen.hosts
        watchdogs = [
            {"standing": one.standing} | {key: getattr(one.report, key) for key in _OF_WATCHDOG}
            for one in hosts.seen
        ]
        return {
            **{key: getattr(pipeline, key) for key in ("name", "file", "root")},
            **{"at": self.at, "state": hosts.state},
            **{"paused": self.controls.paused, "quit": self.controls.quit},
            **{"file_error": self.chosen.error, "hung": self.chosen.hung},
            **{"watchdogs": watchdogs, "stages": self.stages, "drivers": self.drivers},
            **{"results": self.results, "unreadable": hosts.unreadable, "slurm": self.slurm},
        }


def pause_after(took: float) -> float:
    """Return the seconds until one looks again, after a look that took so long."""
    return max(_EVERY, took * _SHARE)


def look(chosen: Chosen, observer: Observer | None = None) -> View:
    """Look at a pipeline once; where its file system does not answer, at nothing of it."""
    pipeline, now = chosen.pipeline, time.time()
    observer = observer or Observer()
    controls, slurm = Controls(), None
    queues: dict[str, QueueView] = {}
    unseen: dict[str, str] = {}
    results: tuple[Result, ...] = ()
    if not chosen.hung:
        for name in pipeline.inputs:
            try:
                with Queue.open(pipeline.path(name)) as queue:
                    queues[name] = overview(queue, observer, now)
            except NotFound:
                # Nothing has made it yet, or it was moved away.
                continue
            except (CannotUse, NotPermitted) as error:
                unseen[name] = str(error)
        controls = read_controls(pipeline.root, chosen.hosts.own_name)
        results = tuple(_result(queue, chosen, now) for queue in pipeline.results)
        if pipeline.slurm is not None:
            from watchdogd.slurm.submissions import seen as seen_by_slurm

            slurm = seen_by_slurm(pipeline)
            chosen = chosen._replace(hosts=without_ended(chosen.hosts, slurm))
    drivers = tuple(_drivers(pipeline.stages, chosen.hosts, queues))
    stages = (_stage(one, chosen, controls, queues, unseen, drivers) for one in pipeline.stages)
    return View(
        slurm=slurm,
        chosen=chosen,
        at=now,
        controls=controls,
        stages=tuple(stages),
        drivers=drivers,
        results=results,
        items={name: seen.counts for name, seen in queues.items()},
        unseen=unseen,
    )


def without_ended(hosts: Hosts, slurm: "Facts") -> Hosts:
    """Return the watchdogs but for those of elements that have ended: they are not missed."""
    from watchdogd.slurm.elements import is_element

    there = {one.host for one in slurm.elements}

    def has_ended(one: SeenHost) -> bool:
        return not one.alive and one.report.host not in there and is_element(one.report.host)

    left = tuple(one for one in hosts.seen if not has_ended(one))
    return hosts._replace(seen=left, ended=tuple(filter(has_ended, hosts.seen)))


def _result(queue: str, chosen: Chosen, now: float) -> Result:
    try:
        with Queue.open(chosen.pipeline.path(queue)) as opened:
            found = opened.listing(now)
    except NotFound:
        return Result(queue, None if chosen.hosts.seen else 0, 0)
    except (CannotUse, NotPermitted) as error:
        return Result(queue, None, 0, str(error))
    return Result(queue, found.ready + found.failed + found.later, found.foreign)


# Drivers


def _drivers(
    stages: Iterable[Stage], hosts: Hosts, queues: Mapping[str, QueueView]
) -> Iterator[SeenDriver]:
    """Yield those of living watchdogs, then whoever else is at work, each once."""
    others = {
        view.id: (view, stage.name)
        for stage in stages
        for view in _views(stage, queues)
        if view.alive or view.at_hand
    }
    # What those that are gone called their drivers.
    known = {}
    for host in hosts.seen:
        for report in host.report.drivers:
            if host.alive:
                view, _ = others.pop(report.id, (None, ""))
                fields = msgspec.structs.asdict(report) | _at_hand(report, view)
                # Thousands have the same, and a server keeps all of it.
                fields |= {key: sys.intern(fields[key]) for key in ("stage", "state", "why")}
                yield SeenDriver(**fields, host=host.report.host, kept=True)
            else:
                known[report.id] = (report.name, host.report.host)
    for view, stage_name in others.values():
        # One that a watchdog started since it last said anything.
        kept = next((one for one in hosts.alive if _keeps(one, stage_name, view.id)), None)
        name, host_name = known.get(view.id, (view.id, view.host))
        if kept is not None:
            host_name = kept.report.host
            name = view.id.removeprefix(f"{short_host(host_name)}-")
        yield _registered(view, stage_name, name, host_name, kept=kept is not None)


def _views(stage: Stage, queues: Mapping[str, QueueView]) -> Iterator[DriverView]:
    for queue in stage.inputs:
        if queue in queues:
            yield from queues[queue].drivers


def _keeps(host: SeenHost, stage: str, driver: str) -> bool:
    """Return whether an id is one that this host's watchdog gives to the drivers of a stage."""
    _, _, slot = driver.rpartition("-")
    return slot.isdecimal() and driver == driver_id(host.report.host, stage, int(slot))


def _at_hand(report: DriverReport, view: DriverView | None) -> dict[str, Any]:
    """Return what a driver's claims tell, which are newer than what its watchdog said."""
    if view is None or not report.pid:
        return {}
    if not view.at_hand:
        return {"document": "", "since": 0.0} if report.document else {}
    if report.document in [one.docid for one in view.at_hand]:
        return {}
    busy = {"state": "busy", "why": ""} if report.state in ("starting", "ready") else {}
    return {"document": view.at_hand[0].docid, "since": view.at_hand[0].since, **busy}


def _registered(view: DriverView, stage: str, name: str, host: str, *, kept: bool) -> SeenDriver:
    """Return a driver that only its registration and its claims tell of."""
    fields = msgspec.structs.asdict(view.counters)
    del fields["lost_races"]
    fields |= {"name": name, "stage": stage, "host": host, "kept": kept}
    fields |= {key: getattr(view, key) for key in ("id", "state", "why")}
    return SeenDriver(
        **fields,
        pid=view.pid if view.alive else 0,
        document=view.at_hand[0].docid if view.at_hand else "",
        since=min((one.since for one in view.at_hand if one.since), default=0.0),
        started_at=view.registration.started_at if view.registration is not None else 0.0,
        memory=view.memory or 0,
    )


# Stages


def _stage(
    stage: Stage,
    chosen: Chosen,
    controls: Controls,
    queues: Mapping[str, QueueView],
    unseen: Mapping[str, str],
    drivers: Iterable[SeenDriver],
) -> SeenStage:
    looks = [queues.get(queue) for queue in stage.inputs]
    seen = [one for one in looks if one is not None]
    counts = sum((queue.counts for queue in seen), Counts())
    own = [one for one in drivers if one.stage == stage.name]
    unkept = {one.id: one for one in own if not one.kept}
    every = [one for host in chosen.hosts.alive for one in host.report.stages]
    reports = [one for one in every if one.name == stage.name]
    # One may drive several queues of its stage.
    rates = {view.id: view.rate for view in _views(stage, queues) if view.id in unkept}
    rate = sum(one.rate for one in reports) + sum(rates.values())
    done = 0 < len(looks) == len(seen) and all(queue.done for queue in seen)
    # What is known from the watchdogs alone.
    told = {one.state: one.why for one in reports}
    facts = StageFacts(
        degraded=told.get("degraded", ""),
        done="done" in told or (done and not counts.unfinished),
        # Who has no end, or a later one, may begin more.
        late=told["late"] if [*told] == ["late"] else "",
    ).with_inputs(looks, paused=controls.paused)
    state, why = _word(stage, chosen, controls, facts, told)
    living = sum(1 for one in own if one.pid)
    fields: dict[str, Any] = {share: sum(getattr(one, share) for one in own) for share in SHARES}
    fields |= {"state": state, "why": why, "done": done, "drivers": living}
    fields |= {"min": stage.drivers.min, "max": stage.drivers.max}
    # Before a watchdog ever ran nobody has made them, and nothing waits.
    unknown = chosen.hosts.seen or not unseen.keys().isdisjoint(stage.inputs)
    if not chosen.hung and not (unknown and len(seen) < len(looks)):
        fields |= {key: getattr(counts, key) for key in _COUNTED} | {"working": counts.claimed}
    waiting = counts.waiting if facts.has_work else 0
    told_of = [one.files for one in reports if one.files is not None]
    files = most(told_of) if told_of else None
    if stage.intake is not None or files is not None:
        fields |= _of_intake(stage.intake, own, files)
    return SeenStage(
        name=stage.name,
        inputs=stage.inputs,
        outputs=stage.outputs if stage.intake is None else (stage.intake.queue,),
        wanted=sum(one.wanted for one in reports),
        scaled=controls.scale.get(stage.name),
        rate=rate,
        service=_service(reports, own),
        startup=max((one.startup for one in reports if one.startup is not None), default=None),
        hard_limit=max((one.hard_limit for one in reports if one.hard_limit), default=None),
        memory=sum(one.memory for one in reports) + sum(one.memory for one in unkept.values()),
        outlook=_outlook(chosen, stage.name, waiting, rate if living else 0.0),
        counted=reduce(Counted.plus, (one.counted for one in reports), Counted()),
        starts=dict(sum((Counter(one.starts) for one in reports), Counter[str]())),
        files=files,
        **fields,
    )


def _word(
    stage: Stage, chosen: Chosen, controls: Controls, facts: StageFacts, told: Mapping[str, str]
) -> tuple[str, str]:
    """Return the word for a stage, and why, of one that is paused by whom; while nothing answers,
    what watchdogs told."""
    if chosen.hung:
        return next(filter(any, told.items()), ("", ""))
    word, why = facts.word
    if word == "paused":
        directory = control.CONTROL if controls.paused else stage.inputs[0]
        why = paused_by(chosen.pipeline.path(directory))
    return word, why


def _of_intake(
    intake: Intake | None, drivers: Iterable[SeenDriver], files: Mapping[str, int] | None
) -> dict[str, Any]:
    """Return what a stage says besides that is an intake; the file may have it no more."""
    return {
        "folder": intake.folder if intake is not None else "",
        "waits_for": next((one.why for one in drivers if one.why), ""),
        "waiting": None if files is None else sum(files.values()) - files.get(FILTERED, 0),
    }


def _outlook(chosen: Chosen, stage: str, waiting: int, rate: float) -> Outlook:
    """Return how it goes on with what waits, by what all hosts wrote down; where nothing waits, or
    the file system does not answer, nobody reads that."""
    if not waiting:
        return Outlook()
    # Late: most stages have nothing that waits.
    from watchdogd.operators.history import COARSE, FINE, read

    root, hosts, now = chosen.pipeline.root, chosen.hosts.writers, time.time()
    short = read(root, stage, now - SHORT, now, FINE, hosts)
    return outlook(short, read(root, stage, now - LONG, now, COARSE, hosts), waiting, now, rate)


def _service(reports: Sequence[StageReport], drivers: Iterable[SeenDriver]) -> float | None:
    """Return seconds of work in a document; of several hosts, by how many documents each does."""
    # Others may write reports, with rates that nobody can have.
    known = [(one.service, max(one.rate, _IDLE)) for one in reports if one.service is not None]
    if known:
        return sum(service * rate for service, rate in known) / sum(rate for _, rate in known)
    documents = sum(one.documents for one in drivers)
    return sum(one.work for one in drivers) / 1000 / documents if documents else None
