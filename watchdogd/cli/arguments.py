"""What arguments mean that more than one command takes: the pipeline, its stages, its drivers."""

import difflib
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import NamedTuple, NoReturn

import msgspec

from queuedriver.cli.words import argument, option
from queuedriver.errors import BadArgument, NotFound, QueueError
from watchdogd.cli.hosts import Hosts, SeenHost, read_hosts
from watchdogd.pipeline import schema
from watchdogd.pipeline.model import Drivers, Pipeline, Stage
from watchdogd.pipeline.problems import BadPipeline, Wrong
from watchdogd.pipeline.read import load_bytes, read
from watchdogd.report import StageReport

VARIABLE = "WATCHDOGD_PIPELINE"
USUAL = "pipeline.toml"
_TABLE = re.compile(rb"^\s*\[\s*pipeline\s*\]", re.MULTILINE)

PIPELINE_FILE = option(
    "FILE", f"The pipeline's file; else ${VARIABLE}, {USUAL}.", "--pipeline", "-p"
)
PIPELINE = argument("[PIPELINE]", f"The pipeline's file; else ${VARIABLE}, or {USUAL} here.")


class Chosen(NamedTuple):
    """A pipeline that commands are about, and its watchdogs."""

    pipeline: Pipeline
    hosts: Hosts
    # The file as it is best typed again, and the option that does; empty when it is found anyway.
    given: str
    option: str
    # What is wrong with the file, when the watchdogs' older understanding of it is all there is.
    error: str = ""

    @property
    def start(self) -> str:
        """What starts it."""
        return f"watchdogd run {shlex.quote(self.given)}"

    def command(self, words: str) -> str:
        """What to type for this pipeline."""
        return f"watchdogd {words}{self.option}"


def choose(given: str | None) -> Chosen:
    """The pipeline that is meant. While its file is bad, it is what its watchdogs say it is."""
    file = pipeline_file(given)
    option = f" -p {shlex.quote(file)}" if given is not None else ""
    try:
        pipeline = read(file)
    except BadPipeline as error:
        root = error.root
        hosts = Hosts() if root is None else read_hosts(root)
        if root is None or not hosts.alive:
            raise
        first = hosts.alive[0].report
        # Not the root that the document names: others may have written it.
        pipeline = Pipeline(name=first.name, file=first.pipeline, root=root, stages=())
        return Chosen(_completed(pipeline, hosts.alive), hosts, file, option, str(error))
    hosts = read_hosts(pipeline.root)
    return Chosen(_completed(pipeline, hosts.alive), hosts, file, option)


def either(argument: str | None, option: str | None) -> str | None:
    """The file of a command that may be told it in two ways."""
    if argument is not None and option is not None and argument != option:
        raise BadArgument(f"{argument} or -p {option}: name one of them")
    return argument if argument is not None else option


def pipeline_file(given: str | None, environ: Mapping[str, str] = os.environ) -> str:
    """The pipeline's file: the one that was named, or the one that must be meant."""
    named = given or environ.get(VARIABLE)
    if named:
        inside = os.path.join(named, USUAL)
        return inside if os.path.isdir(named) and os.path.exists(inside) else named
    if os.path.exists(USUAL):
        return USUAL
    found = [name for name in sorted(os.listdir()) if name.endswith(".toml") and _is_one(name)]
    if len(found) == 1:
        return found[0]
    how = f"name one with -p FILE, or set {VARIABLE}"
    if found:
        raise BadArgument(f"{', '.join(found)}: which of them? {how}")
    raise NotFound(f"there is no {USUAL} here, nor another pipeline's file; {how}")


def _is_one(name: str) -> bool:
    try:
        return _TABLE.search(load_bytes(name)) is not None
    except (QueueError, OSError):
        # Another file, perhaps a pipe that nobody writes into.
        return False


def _completed(pipeline: Pipeline, alive: Iterable[SeenHost]) -> Pipeline:
    """With the stages that run although the file, as it is now, has them no more."""
    stages = {stage.name: stage for stage in pipeline.stages}
    for host in alive:
        for one in host.report.stages:
            if one.name not in stages and _may_be(one):
                stages[one.name] = Stage(
                    name=one.name,
                    inputs=one.inputs,
                    outputs=one.outputs,
                    drivers=Drivers(one.min, one.max),
                    kind="call",
                    work="",
                )
    return msgspec.structs.replace(pipeline, stages=tuple(stages.values()))


def _may_be(stage: StageReport) -> bool:
    """Whether a pipeline may have such a stage: others may have written the document, and mean
    queues that are not in the root, or no queues at all."""
    try:
        for queue in (*stage.inputs, *stage.outputs):
            schema.queue(queue)
        schema.stage_name(stage.name)
    except Wrong:
        return False
    return True


# Stages and drivers


class Target(NamedTuple):
    """A stage, or one of its drivers, on one host or on each."""

    stage: Stage
    # parse-2; empty: all of them.
    driver: str = ""
    host: str = ""

    @property
    def name(self) -> str:
        return self.driver or self.stage.name


def stage_named(chosen: Chosen, name: str) -> Stage:
    """A stage, or NotFound with those that there are."""
    stage = chosen.pipeline.stage(name)
    if stage is None:
        _refuse(chosen, "stage", name, [one.name for one in chosen.pipeline.stages])
    return stage


def target(chosen: Chosen, text: str) -> Target:
    """What somebody means by `parse`, `parse-2` or `parse-2@rose`; else NotFound."""
    name, _, host = text.partition("@")
    if host:
        check_host(chosen, host)
    if stage := chosen.pipeline.stage(name):
        return Target(stage, host=host)
    known = drivers_known(chosen)
    stage_name, _, _ = name.rpartition("-")
    if name in known and (stage := chosen.pipeline.stage(stage_name)):
        return Target(stage, name, host)
    names = [one.name for one in chosen.pipeline.stages]
    return _refuse(chosen, "stage or driver", name, [*names, *known])


def drivers_known(chosen: Chosen) -> list[str]:
    """The short names of all drivers that there may be."""
    names = {
        f"{stage.name}-{slot}": None
        for stage in chosen.pipeline.stages
        for slot in range(1, stage.drivers.max + 1)
    }
    for host in chosen.hosts.seen:
        names |= dict.fromkeys(driver.name for driver in host.report.drivers)
    return list(names)


def check_host(chosen: Chosen, host: str) -> None:
    """NotFound for a host that has no watchdog of this pipeline, nor ever had."""
    known = [one.report.host for one in chosen.hosts.seen]
    if host not in known:
        _refuse(chosen, "host", host, known)


def nearest_first(word: str, known: Iterable[str]) -> list[str]:
    """What there is, that which may have been meant before the rest."""
    names = list(known)
    near = difflib.get_close_matches(word, names, n=len(names) or 1)
    return [*near, *(one for one in names if one not in near)]


def _refuse(chosen: Chosen, what: str, name: str, known: list[str]) -> NoReturn:
    names = nearest_first(name, known)
    shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "") if names else "none"
    raise NotFound(f"no {what} {name!r} in {chosen.given}; there are: {shown}")
