"""What can be seen of a pipeline: the facts, and the view made of them. Pure."""

from collections.abc import Mapping

import msgspec

from queuedriver.operating.queue_view import QueueView
from watchdogd.cli.hosts import Hosts
from watchdogd.messages import Controls
from watchdogd.pipeline.model import Pipeline
from watchdogd.report import DriverReport, Standing

# The states in which a driver, or what one would be, needs somebody to look after it.
AMISS = ("crash-looped", "hung", "unkillable", "backoff")


class SeenDriver(DriverReport, frozen=True, kw_only=True):
    """A driver, and whether a living watchdog keeps it."""

    host: str
    kept: bool


class SeenStage(msgspec.Struct, frozen=True, kw_only=True):
    """One stage on all hosts; times in seconds, sizes in bytes, shares of time in milliseconds."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    state: str
    why: str
    waiting: int
    working: int
    failed: int
    later: int
    discarded: int
    # When the first that was postponed is due; 0 when none is.
    next_due: int
    done: bool
    drivers: int
    wanted: int
    min: int
    max: int
    rate: float
    service: float | None
    memory: int
    work: int
    wait: int
    block: int
    overhead: int
    # Seconds for what waits, at that rate; None when it does not move.
    eta: float | None


class SeenWatchdog(msgspec.Struct, frozen=True, kw_only=True):
    """One host's watchdog."""

    host: str
    standing: Standing
    state: str
    pid: int
    started_at: float
    at: float
    trouble: str
    reload_error: str
    crash: str
    notes: tuple[str, ...]


class Result(msgspec.Struct, frozen=True):
    """A queue or a directory that no stage takes from: what is there to be collected."""

    queue: str
    items: int
    # Files that are no items: results that were published under plain names.
    files: int


class View(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. `state`: running, not running, unknown."""

    name: str
    file: str
    root: str
    at: float
    state: str
    paused: bool
    quit: str
    file_error: str
    watchdogs: tuple[SeenWatchdog, ...]
    stages: tuple[SeenStage, ...]
    drivers: tuple[SeenDriver, ...]
    results: tuple[Result, ...]
    unreadable: tuple[str, ...]


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What was found; a queue that nobody made yet is not in `queues`."""

    pipeline: Pipeline
    hosts: Hosts
    controls: Controls
    queues: Mapping[str, QueueView]
    results: tuple[Result, ...]
    now: float
    file_error: str = ""
