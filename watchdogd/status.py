"""What a watchdog publishes of itself: the facts it has, as `report.py` has them for readers."""

import os
import time
from typing import TYPE_CHECKING

from queuedriver.claims.liveness import identify
from queuedriver.format.units import format_count
from watchdogd.keeper import Keeper
from watchdogd.report import DriverReport, HostReport, StageReport
from watchdogd.slot import Slot

if TYPE_CHECKING:
    from watchdogd.supervisor import Supervisor

_NANOSECONDS = 1_000_000


def driver_report(slot: Slot, now: float) -> DriverReport:
    """One slot. `now` is monotonic; readers of other hosts get instants since the epoch."""
    epoch = time.time() - now
    glimpse, totals, rest = slot.glimpse, slot.totals, slot.rest
    process = slot.process
    until = rest.until if rest.until is not None and process is None else None
    return DriverReport(
        name=slot.name,
        id=slot.driver,
        stage=slot.stage,
        state=rest.state,
        why=rest.why or (glimpse.why if process is not None else ""),
        pid=process.pid if process is not None else 0,
        document=_visible(glimpse.docid) if process is not None else "",
        since=epoch + (min(glimpse.began_at, now) if process and glimpse.began_at else slot.since),
        until=epoch + until if until is not None else 0.0,
        started_at=epoch + slot.started_at if process is not None else 0.0,
        restarts=max(0, slot.starts - 1),
        documents=totals.documents,
        failed=totals.failed,
        discarded=totals.discarded,
        memory=slot.memory,
        work=totals.work // _NANOSECONDS,
        wait=totals.wait // _NANOSECONDS,
        block=totals.block // _NANOSECONDS,
        overhead=totals.overhead // _NANOSECONDS,
    )


def stage_report(keeper: Keeper) -> StageReport:
    """One stage on this host."""
    pace = keeper.pace
    state, why = "", keeper.degraded
    if why:
        state = "degraded"
    elif keeper.done:
        state = "done"
    elif keeper.paused:
        state = "paused"
    elif keeper.tripped:
        state, why = "tripped", keeper.tripped
    return StageReport(
        name=keeper.stage.name,
        inputs=keeper.stage.inputs,
        outputs=keeper.stage.outputs,
        wanted=keeper.size.drivers,
        min=min(keeper.stage.drivers.min, keeper.size.drivers),
        max=max(keeper.stage.drivers.max, keeper.size.drivers),
        state=state,
        why=why,
        rate=pace.rate,
        service=pace.service,
        startup=pace.startup,
        memory=sum(slot.memory for slot in keeper.living) + keeper.shared_memory,
    )


def host_report(watchdog: "Supervisor", now: float) -> HostReport:
    """This watchdog at this moment."""
    pipeline, room = watchdog.pipeline, watchdog.stages.room
    keepers = watchdog.stages.keepers.values()
    return HostReport(
        host=watchdog.host,
        pid=os.getpid(),
        identity=identify(os.getpid()),
        started_at=watchdog.started_at,
        at=time.time(),
        beat=watchdog.beat,
        pipeline=pipeline.file,
        name=pipeline.name,
        root=pipeline.root,
        local=watchdog.local,
        adopt=pipeline.adopt,
        state=watchdog.state,
        trouble=watchdog.helper.trouble(now),
        reload_error=watchdog.reload_error,
        served=watchdog.served,
        notes=(
            *watchdog.remarks,
            *watchdog.stages.notes,
            *watchdog.helper.view.controls.notes,
        ),
        memory=room.memory,
        cpus=room.cpus,
        stages=tuple(stage_report(keeper) for keeper in keepers),
        drivers=tuple(driver_report(slot, now) for slot in watchdog.stages.slots),
    )


def last_word(watchdog: "Supervisor", crash: str) -> HostReport:
    """A watchdog that an error has ended: of nothing but what it knew when it began, for the rest
    may be what is wrong."""
    pipeline = watchdog.pipeline
    return HostReport(
        host=watchdog.host,
        pid=os.getpid(),
        identity=identify(os.getpid()),
        started_at=watchdog.started_at,
        at=time.time(),
        beat=watchdog.beat + 1,
        pipeline=pipeline.file,
        name=pipeline.name,
        root=pipeline.root,
        local=watchdog.local,
        adopt=pipeline.adopt,
        state="stopped",
        crash=crash,
    )


def in_a_line(watchdog: "Supervisor") -> str:
    """All of it, for a service manager."""
    living = sum(slot.process is not None for slot in watchdog.stages.slots)
    waiting = sum(one.waiting for one in watchdog.helper.view.queues.values())
    return f"{watchdog.state}: {format_count(living, 'driver')}, {waiting:,} waiting"


def went_through(watchdog: "Supervisor") -> int:
    """How many documents have left the pipeline at its ends."""
    pipeline, view = watchdog.pipeline, watchdog.helper.view
    if watchdog.drain:
        inputs = {name for stage in pipeline.stages for name in stage.inputs}
        then, now = (
            sum(one.unfinished for name, one in queues.items() if name in inputs)
            for queues in (view.at_first, view.queues)
        )
        # Results may be more: a pipeline may part.
        return max(0, then - now - sum(view.discarded.values()))
    ends = set(pipeline.results)
    keepers = watchdog.stages.keepers.values()
    return sum(one.totals.documents for one in keepers if ends.issuperset(one.stage.outputs))


def _visible(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
