"""What `run` tells of itself: how far it is, what each stage has to do, when it will be done."""

import math
import sys
import time

from queuedriver.cli.program import line_of
from queuedriver.cli.render import drawn_anew
from queuedriver.cli.stderr_thread import StderrThread
from queuedriver.format.units import format_duration, format_rate
from watchdogd.events import Event, Kind, describe
from watchdogd.stage_drivers import StageDrivers
from watchdogd.stages import LAST_WORDS
from watchdogd.supervisor import Supervisor

# A terminal is drawn anew so often; a file gets a line so often, while the pipeline drains.
_DRAW_EVERY = 0.25
_SAY_EVERY = 60.0
_WIDTH = 24


# What a person who sits before it wants to be told of while it runs.
_LOUD: tuple[Kind, ...] = (
    *("crash-looped", "trial", "hung", "killed", "unkillable", "degraded", "reload-refused"),
    *("waiting-fs", "fs-well", "note"),
)


class Progress:
    """Tells on stderr how it is going: a terminal in one line that is drawn again and again."""

    def __init__(self, *, quiet: bool, drain: bool) -> None:
        self._quiet = quiet
        self._terminal = not quiet and sys.stderr is not None and sys.stderr.isatty()
        self._every = _SAY_EVERY if drain and not quiet else math.inf
        if self._terminal:
            self._every = _DRAW_EVERY
        self._due_at = 0.0 if self._terminal else time.monotonic() + self._every
        self._stderr = StderrThread(elsewhere="; see events.jsonl")

    def __call__(self, watchdog: Supervisor, now: float) -> None:
        """Tell how far it is, if that is due, after a turn of the watchdog's loop."""
        if now >= self._due_at:
            self._due_at = now + self._every
            # What a terminal has yet to take is not to be an old line once it takes it.
            if self._stderr.is_through:
                words = _line(watchdog)
                self._stderr.put(drawn_anew(words) if self._terminal else line_of(words))

    def hear(self, event: Event) -> None:
        """Tell of an event, if it is worth it."""
        bad_end = event.event == "exited" and (event.signal or event.exit_code)
        if bad_end or event.event in _LOUD:
            self.tell(describe(event))

    def tell(self, words: str) -> None:
        """Say what stays to be read, if anybody wants to."""
        if not self._quiet:
            self.say(words)

    def say(self, words: str) -> None:
        """Say what stays to be read."""
        self.clear()
        self._stderr.say(words)

    def clear(self) -> None:
        """Make room for something that stays."""
        if self._terminal:
            self._stderr.put(drawn_anew(), counts=False)
            self._due_at = 0.0

    def close(self) -> None:
        """Let what was said be read, for as long as anybody may be waited for."""
        self._stderr.finish(LAST_WORDS)


def ends(watchdog: Supervisor) -> list[StageDrivers]:
    """Return the stages that documents leave the pipeline from. One without inputs has none."""
    results = set(watchdog.pipeline.results)
    stages = (one for one in watchdog.stages.managed.values() if one.stage.inputs)
    return [one for one in stages if results.issuperset(one.stage.outputs)]


def _line(watchdog: Supervisor) -> str:
    """Return the whole pipeline in one line."""
    stages, loads = watchdog.stages.everyone, watchdog.stages.loads()
    # A document that has three stages before it is three times to do.
    to_do = [load.backlog + load.coming for load in loads]
    left, done = sum(to_do), sum(one.totals.documents for one in stages)
    share = done / (done + left) if done + left else 0.0
    filled = round(share * _WIDTH)
    parts = [f"[{'#' * filled}{'.' * (_WIDTH - filled)}] {share:4.0%}"]
    if trouble := watchdog.helper.trouble(time.monotonic()):
        parts.append(trouble)
    if pace := format_rate(sum(one.pace.rate for one in ends(watchdog))):
        parts.append(pace)
    times = [_time_left(*one) for one in zip(to_do, stages, strict=True)]
    if 0.0 < max(times, default=0.0) < math.inf:
        parts.append(f"{format_duration(max(times))} left")
    parts += [
        f"{one.stage.name} {load.backlog:,} × {len(one.living)}"
        for load, one in zip(loads, stages, strict=True)
    ]
    return "  ".join(parts)


def _time_left(documents: int, stage: StageDrivers) -> float:
    """Return the seconds that documents take a stage; infinite while that is not known."""
    service, drivers = stage.pace.service, len(stage.living)
    if not documents:
        return 0.0
    return documents * service / drivers if service is not None and drivers else math.inf
