"""A pipeline as everybody but its reader sees it: resolved, checked, frozen. Pure.

A queue is named by its directory below the pipeline's root. A stage takes documents from its input
queues, the first first, and publishes into its output queues; stages are joined by the names of
queues alone.
"""

import os
from typing import Literal

import msgspec

from queuedriver.intake.options import IntakeOptions
from queuedriver.options import Options, StageOptions

Kind = Literal["call", "command", "server", "broker", "intake"]

# Between stages a queue need not hold more than keeps its drivers busy; what the first stage gets
# and the last one publishes is the user's business.
BETWEEN_STAGES = 500
MINUTE = 60.0
HOUR = 3600.0
# What a driver id has room for, beside the name of the host.
MAX_STAGE_NAME = 16
MAX_DRIVERS = 9999
# What a command that is run for each event may be told of it.
EVENT_FIELDS = ("event", "stage", "driver", "message", "host")


class Drivers(msgspec.Struct, frozen=True):
    """A number of drivers on each host; the watchdog chooses one from `min` to `max`."""

    min: int
    max: int

    @property
    def fixed(self) -> bool:
        return self.min == self.max


class Slurm(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of Slurm for each element, and how many there are; times in seconds."""

    # Of the pipeline; or of one stage, each of whose drivers is an element.
    nodes: Drivers = Drivers(1, 1)
    # Empty, or None: as the cluster has it.
    partition: str = ""
    time: float | None = None
    account: str = ""
    qos: str = ""
    constraint: str = ""
    gres: str = ""
    # Further words for sbatch.
    extra: tuple[str, ...] = ()
    # How long what waits may take, and how long an element stays with nothing to do.
    target: float = HOUR
    idle: float | None = 5 * MINUTE


class Intake(msgspec.Struct, frozen=True, kw_only=True):
    """What an intake takes from, and into."""

    # Absolute.
    folder: str
    # One of the queues.
    queue: str
    options: IntakeOptions


class Stage(StageOptions, frozen=True, kw_only=True):
    """One stage; times in seconds, sizes in bytes. docs/pipeline-file.rst says what a key means."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    drivers: Drivers = Drivers(1, 1)
    kind: Kind
    # `package.module:function` or a plug-in's name of a call; the words of a command or a server;
    # the protocol of a broker, whose workers do it elsewhere.
    work: str | tuple[str, ...]
    # Where a broker listens.
    listen: tuple[str, ...] = ()
    # The protocol and the address of the broker whose documents are processed; such a stage has no
    # queues. Both are empty of others.
    worker: str = ""
    connect: str = ""
    # Load in one parent and fork the drivers from it; a text names a function that loads more.
    preload: bool | str = False
    # What one driver takes: for admission, not a limit.
    memory: int | None = None
    memory_per_driver: int | None = None
    cpus: float = 1.0
    env: dict[str, str] = msgspec.field(default_factory=dict)
    # "auto": learned from the stage's own history.
    timeout: float | Literal["auto"] | None = "auto"
    startup_timeout: float = 300.0
    durable: bool = True
    # Unhealthy runs in a row until a driver counts as crash-looped, and when it gets a trial then;
    # 0: never.
    max_unhealthy: int = 8
    trial_every: float = 15 * MINUTE
    log_size: int = 10_000_000
    log_keep: int = 5
    # Where each of its drivers is an element of its own; None: they share a node with others.
    slurm: Slurm | None = None
    # Of an intake, which has a driver and neither queues nor work.
    intake: Intake | None = None

    def options(self) -> Options:
        """Return how each driver of this stage drives."""
        shared = {name: getattr(self, name) for name in StageOptions.__struct_fields__}
        timeout = None if self.timeout == "auto" else self.timeout
        # Here `output = []` says so: a stage without the key has one.
        none = not self.outputs
        return Options(timeout=timeout, durable=self.durable, no_output=none, **shared)


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """Room that the watchdog may use on this host. None: all there is."""

    memory: int | None = None
    cpus: float | None = None
    # At most one driver moves in this time, or in three times what the stage takes to start.
    rebalance_every: float = 30.0


class Pipeline(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline on one host: overrides for that host are applied."""

    name: str
    # Absolute: of the file, and of the directory that holds the queues.
    file: str
    root: str
    stages: tuple[Stage, ...]
    host: Host = Host()
    # A command to run for each event, with its fields in braces.
    on_event: tuple[str, ...] = ()
    # The file that node_exporter is to read; empty: none is written.
    metrics: str = ""
    # Whether drivers outlive their watchdog, for the next one to adopt them.
    adopt: bool = False
    # None: its watchdogs are started by other means.
    slurm: Slurm | None = None

    @property
    def directory(self) -> str:
        """Return the directory of the file, where modules are found and relative commands start."""
        return os.path.dirname(self.file)

    @property
    def queues(self) -> tuple[str, ...]:
        """Return all queues, each once: inputs before the outputs they lead to."""
        every = (queue for one in self.stages for queue in (*one.inputs, *one.outputs))
        return tuple(dict.fromkeys(every))

    @property
    def inputs(self) -> tuple[str, ...]:
        """Return the queues that stages take from, each once."""
        return tuple(dict.fromkeys(queue for stage in self.stages for queue in stage.inputs))

    @property
    def feeds(self) -> dict[str, set[str]]:
        """Return from which queues documents come into each that a stage publishes into."""
        feeds: dict[str, set[str]] = {}
        for stage in self.stages:
            for name in stage.outputs:
                feeds.setdefault(name, set()).update(stage.inputs)
        return feeds

    @property
    def sources(self) -> tuple[str, ...]:
        """Return the queues that no stage publishes into: documents are submitted there."""
        fed = {queue for stage in self.stages for queue in stage.outputs}
        return tuple(queue for queue in self.queues if queue not in fed)

    @property
    def results(self) -> tuple[str, ...]:
        """Return the queues or directories that no stage takes from, where results are."""
        taken = set(self.inputs)
        return tuple(queue for queue in self.queues if queue not in taken)

    def stage(self, name: str) -> Stage | None:
        return next((stage for stage in self.stages if stage.name == name), None)

    def path(self, queue: str) -> str:
        """Return the directory of a queue."""
        return os.path.join(self.root, queue)
