"""What drivers, and what they are forked from, are told; and a file of this host with a copy.

A driver whose order is not the one that it would get now is *stale*, and another one takes its
place: after a reload, a restart, or under the watchdog that adopts it. So nothing that is measured
or learned is in an order, nor is an infinity, which JSON has no word for.

The order itself comes by a descriptor that the driver inherits: a full disk keeps no driver from
starting. The copy, `orders/<id>.json`, is for the next watchdog; one that is missing says nothing.
"""

import os
from contextlib import suppress

import msgspec

from queuedriver.format.settings import Settings
from queuedriver.options import Options
from watchdogd.driver_ids import board_path, driver_id, log_path, short_name
from watchdogd.pipeline.model import Pipeline, Stage

DIRECTORY = "orders"
# In the environment of a driver: how many seconds its document may take once it is to leave.
GRACE = "WATCHDOGD_GRACE"
# Bytes of one message to a template: half of what a socket holds by default, and far more than an
# order has.
LIMIT = 100_000
# What is its watchdog's own business. Of how long it loads only a server is told.
_OWN = {"drivers", "memory", "memory_per_driver", "cpus", "max_unhealthy", "trial_every", "slurm"}
# Its watchdog lets it go before, if it is there: when nobody is, nothing is to wait for ever.
_LINGER = 3600.0


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What one driver process is told; paths are absolute."""

    id: str
    # What people call it: `parse-2`.
    name: str
    # Where the pipeline's file is: modules and relative commands are found there.
    directory: str
    # Queues by their paths; and what only concerns the watchdog left at its default.
    stage: Stage
    board: str
    log: str
    # The watchdog's pid; 0: outlive it.
    parent: int
    # Until when it may be there, in seconds since the epoch; None: for ever.
    until: float | None = None
    # The request by which the driver before it was replaced; empty: none.
    restart: str = ""

    @property
    def options(self) -> Options:
        """Return how it drives."""
        return msgspec.structs.replace(self.stage.options(), linger=_LINGER, until=self.until)

    def begun_for(self, stage: Stage) -> Stage:
        """Return the stage that a driver with this order was begun for, which is `stage` by now."""
        told = self.stage
        if stage.timeout == "auto" and told.timeout is None:
            told = msgspec.structs.replace(told, timeout="auto")
        return with_own(told, stage)

    @property
    def settled(self) -> tuple[object, ...]:
        """Return what all drivers of a queue must agree on."""
        said = {**msgspec.structs.asdict(self.options), "outputs": self.stage.outputs}
        return tuple(said[name] for name in Settings.__struct_fields__)


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What a template is told first: what the drivers of a stage have in common."""

    stage: str
    # Where the pipeline's file is: modules are found there.
    directory: str
    # What is done to documents: `package.module:function`, or a plug-in.
    call: str
    # A function that loads more, if any: `package.module:function`.
    function: str = ""
    # The pid of whoever wants it.
    watchdog: int
    # What its environment, and that of its forks, has besides the watchdog's own.
    env: dict[str, str]
    # The request for another one than there was; empty: none.
    restart: str = ""


class Fork(msgspec.Struct, frozen=True):
    """What a template is told from then on: to fork a driver."""

    # The answer has it, too.
    serial: int
    # The mark of the driver, and of all that it starts.
    life: str
    order: msgspec.Raw


class Loaded(msgspec.Struct, frozen=True, tag="loaded"):
    """It is ready to fork. Memory in bytes."""

    pss: int


class Unfit(msgspec.Struct, frozen=True, tag="unfit"):
    """It will end now, and why; its exit code says whether to try again."""

    why: str


class Came(msgspec.Struct, frozen=True, tag="came"):
    """A driver is there, a child of the watchdog's."""

    serial: int
    pid: int


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """There is no driver this time. The exit code says whether another try is of use."""

    serial: int
    why: str
    exit_code: int


Answer = Loaded | Unfit | Came | Failed


class StageOrders:
    """What the drivers of one stage, and what they are forked from, are told now."""

    def __init__(
        self, stage: Stage, pipeline: Pipeline, host: str, local: str, until: float | None = None
    ) -> None:
        self.stage = stage
        self.pipeline = pipeline
        # The latest request by which all were replaced; empty: none.
        self.restart = ""
        self._host = host
        self._local = local
        # Until when a driver may be there; None: for ever.
        self._until = until

    def of(self, number: int, restart: str = "") -> Order:
        """Return the order of the driver in this slot, which was restarted by this request."""
        stage = self.stage.name
        driver, name = driver_id(self._host, stage, number), short_name(stage, number)
        return Order(
            id=driver,
            name=name,
            directory=self.pipeline.directory,
            stage=self._told,
            board=board_path(self._local, driver),
            log=log_path(self._local, name),
            parent=0 if self.pipeline.adopt else os.getpid(),
            until=self._until,
            restart=restart or self.restart,
        )

    @property
    def _told(self) -> Stage:
        """Return what a driver has to know of the stage."""
        stage, path, own = self.stage, self.pipeline.path, _own(self.stage)
        told = {name: getattr(stage, name) for name in Stage.__struct_fields__ if name not in own}
        told |= {name: tuple(map(path, told[name])) for name in ("inputs", "outputs")}
        if stage.intake is not None:
            queue = path(stage.intake.queue)
            told["intake"] = msgspec.structs.replace(stage.intake, queue=queue)
        return Stage(**told | {"env": self._environment, "timeout": stage.options().timeout})

    @property
    def load(self) -> Load | None:
        """Return what a template is told; None for drivers that begin anew."""
        stage = self.stage
        if not stage.preload:
            return None
        return Load(
            stage=stage.name,
            directory=self.pipeline.directory,
            call=str(stage.work),
            function=stage.preload if isinstance(stage.preload, str) else "",
            watchdog=os.getpid(),
            env=self._environment,
            restart=self.restart,
        )

    @property
    def _environment(self) -> dict[str, str]:
        """Return what a driver has in its environment besides the watchdog's own."""
        return {**self.stage.env, GRACE: f"{self.stage.grace:g}"}


def _own(stage: Stage) -> set[str]:
    return _OWN if stage.kind == "server" else {*_OWN, "startup_timeout"}


def with_own(told: Stage, stage: Stage) -> Stage:
    """Return the stage that a driver was begun for; what it was not told is as `stage` has it."""
    own = {name: getattr(stage, name) for name in _own(told)}
    return msgspec.structs.replace(told, **own)


def encode(order: Order) -> bytes:
    return msgspec.json.encode(order)


def decode(data: bytes) -> Order:
    return msgspec.json.decode(data, type=Order)


def keep(local: str, order: Order) -> None:
    """Write the copy; a crash or a full disk leaves none, rather than that of an earlier driver."""
    path = _path(local, order.id)
    aside = f"{path}.new"
    with suppress(FileNotFoundError):
        os.unlink(path)
    with suppress(OSError):
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:
            file.write(encode(order))
        os.rename(aside, path)


def read(local: str, driver: str) -> Order | None:
    """Return what a driver of an earlier watchdog was told; None where nobody knows."""
    try:
        with open(_path(local, driver), "rb") as file:
            return decode(file.read())
    except (OSError, msgspec.MsgspecError):
        # Another version's, too.
        return None


def _path(local: str, driver: str) -> str:
    return os.path.join(local, DIRECTORY, f"{driver}.json")
