"""Every key of a pipeline file: how it is read, and where it may stand."""

from types import NoneType
from typing import Any, NamedTuple, get_args

from queuedriver.format.units import MAX_SIZE
from queuedriver.options import Said, StageOptions, rows
from watchdogd.pipeline.model import Kind
from watchdogd.pipeline.naming import queues, stage_name
from watchdogd.pipeline.values import (
    Reader,
    above_zero,
    choice,
    drivers,
    drivers_by_stage,
    duration,
    environment,
    optional,
    size,
    switch,
    text,
    whole,
)
from watchdogd.pipeline.works import call, command, hook, preload, program, publish

KINDS: tuple[Kind, ...] = ("call", "command", "server")


class Key(NamedTuple):
    """One key of a stage."""

    read: Reader
    # Whether [pipeline] may have it, too, for all stages that do not.
    shared: bool = True


def _reader(kind: Any, said: Said) -> Reader:
    """Return the reader of an option that `queuedriver run` has, too."""
    kinds = [one for one in get_args(kind) or (kind,) if one is not NoneType]
    if said.unit == "TIME":
        reader = duration(zero=said.least == 0)
    elif said.unit == "SIZE":
        reader = size()
    elif said.unit == "N":
        reader = whole(said.least or 0, said.most or MAX_SIZE)
    else:
        reader = switch if kinds == [bool] else choice(*kinds)
    return optional(reader) if NoneType in get_args(kind) else reader


STAGE = {
    "name": Key(stage_name, shared=False),
    "input": Key(queues(1), shared=False),
    "output": Key(queues(0), shared=False),
    "call": Key(call, shared=False),
    "command": Key(command, shared=False),
    "server": Key(program, shared=False),
    "preload": Key(preload, shared=False),
    "drivers": Key(drivers),
    "memory": Key(optional(size())),
    "memory_per_driver": Key(optional(size(zero=True)), shared=False),
    "cpus": Key(above_zero),
    "env": Key(environment),
    "timeout": Key(optional(duration(), "auto")),
    "startup_timeout": Key(duration()),
    "durable": Key(switch),
    "max_unhealthy": Key(whole(1)),
    "trial_every": Key(duration(zero=True)),
    "log_size": Key(size()),
    "log_keep": Key(whole(0, 1000)),
    # In a pipeline each of these two is of one stage.
    "publish": Key(publish, shared=False),
    "archive": Key(optional(text("archive/parsed")), shared=False),
}
STAGE |= {
    name: Key(_reader(kind, said))
    for name, (kind, said) in rows(StageOptions).items()
    if name not in STAGE
}
STAGE_KEYS = {name: key.read for name, key in STAGE.items()}
# What [pipeline] may say for all stages.
SHARED_KEYS = {name: key.read for name, key in STAGE.items() if key.shared}

PIPELINE_KEYS: dict[str, Reader] = {
    "name": text("serif"),
    "root": text("queues"),
    "on_event": hook,
    "adopt": switch,
    **SHARED_KEYS,
}
HOST_KEYS: dict[str, Reader] = {
    "memory": optional(size()),
    "cpus": optional(above_zero),
    "rebalance_every": duration(),
}
# What [hosts.NAME] may say.
OF_ONE_HOST: dict[str, Reader] = {**HOST_KEYS, "drivers": drivers_by_stage}
# What people call it elsewhere.
MEANT = {
    "workers": "drivers",
    "processes": "drivers",
    "instances": "drivers",
    "replicas": "drivers",
    "concurrency": "drivers",
    "function": "call",
    "python": "call",
    "cmd": "command",
    "exec": "command",
    "run": "command",
    "inputs": "input",
    "source": "input",
    "from": "input",
    "outputs": "output",
    "to": "output",
    "environment": "env",
    "mem": "memory",
    "ram": "memory",
    "attempts": "retries",
}
