"""What `run` shows a terminal: how far it is, what each stage has to do, when it will be done."""

import time

from queuedriver.cli.render import redraw
from queuedriver.format.units import format_duration
from watchdogd.stage_drivers import StageDrivers
from watchdogd.supervisor import Supervisor

_EVERY = 0.25
_WIDTH = 24


class Bar:
    """One line on stderr, drawn again and again; only for a terminal."""

    def __init__(self) -> None:
        self._draw_at = 0.0
        self._drawn = False

    def __call__(self, watchdog: Supervisor, now: float) -> None:
        """A turn of the watchdog's loop was done."""
        if now >= self._draw_at:
            self._draw_at = now + _EVERY
            redraw(line_of(watchdog))
            self._drawn = True

    def clear(self) -> None:
        """Make room for something that stays."""
        if self._drawn:
            redraw()
            self._drawn = False
            self._draw_at = 0.0


def line_of(watchdog: Supervisor) -> str:
    """The whole pipeline in one line."""
    stages = watchdog.stages.everyone
    loads = watchdog.stages.loads()
    # A document that has three stages before it is three times to do.
    left = sum(load.backlog + load.coming for load in loads)
    done = sum(one.totals.documents for one in stages)
    share = done / (done + left) if done + left else 0.0
    filled = round(share * _WIDTH)
    parts = [f"[{'#' * filled}{'.' * (_WIDTH - filled)}] {share:4.0%}"]
    if trouble := watchdog.helper.trouble(time.monotonic()):
        parts.append(trouble)
    times = [
        _time_left(load.backlog + load.coming, one) for load, one in zip(loads, stages, strict=True)
    ]
    known = [one for one in times if one is not None]
    if left and known and len(known) == len(times):
        parts.append(f"ETA {format_duration(max(known))}")
    parts += [
        f"{one.stage.name} {load.backlog:,} × {len(one.living)}"
        for load, one in zip(loads, stages, strict=True)
    ]
    return "  ".join(parts)


def _time_left(documents: int, stage: StageDrivers) -> float | None:
    service, drivers = stage.pace.service, len(stage.living)
    if not documents:
        return 0.0
    return documents * service / drivers if service is not None and drivers else None
