"""Which pipeline, stage, driver and host the words of a command line mean."""

import os
import shlex
from collections.abc import Iterable, Iterator
from typing import NamedTuple, NoReturn

import msgspec

from queuedriver.errors import NotFound
from queuedriver.format.units import visible
from watchdogd.cli.arguments import USUAL, VARIABLE, pipeline_file, usual_files
from watchdogd.driver_ids import short_name, stage_of
from watchdogd.operators.hosts import Chosen, Hosts, hosts_here, no_answer, read_hosts
from watchdogd.pipeline import schema
from watchdogd.pipeline.model import Drivers, Pipeline, Stage
from watchdogd.pipeline.problems import BadPipeline, Wrong
from watchdogd.pipeline.read import load_bytes, read
from watchdogd.report import HOSTS, StageReport, known_files

# So many names are told of what there is.
_MOST_TOLD = 20


def choose(given: str | None, *, hung_too: bool = False) -> Chosen:
    """Return the pipeline that is meant; while its file is bad, what its watchdogs say it is. Where
    its file system does not answer, only what a watchdog of this host says, if that is wanted."""
    option = "" if given is None else f" -p {shlex.quote(given)}"
    known, here = _known_here(given)
    if _hangs(given, here):
        if not hung_too:
            raise no_answer(known)
        pipeline = _completed(None, here.seen[0].report.root, here)
        return Chosen(pipeline, here, known, option, hung=True)
    file = pipeline_file(given)
    if (path := os.path.abspath(file)) != known:
        # That one is not there any more.
        here = hosts_here(path)
    said, bad = None, None
    try:
        said = read(file)
    except BadPipeline as error:
        bad = error
    root = said.root if said else bad and bad.root
    wrong = str(bad) if bad else ""
    for one in here.alive:
        # Who runs goes on where it is, whatever the file says by now.
        if one.report.root != root:
            runs = f"a watchdog runs on {one.report.root}; stop that one to start it there"
            wrong = wrong or f"its root is {root} now, and {runs}"
            root = one.report.root
    hosts = read_hosts(root, here) if root else Hosts()
    if bad and not hosts.alive:
        raise bad
    return Chosen(_completed(said, root or "", hosts), hosts, file, option, wrong)


def answering_file(given: str | None) -> str:
    """Return the pipeline's file that is meant; FileSystemTrouble where it, or what is below its
    root, does not answer, as far as a watchdog of this host has told where that is."""
    known, here = _known_here(given)
    if _hangs(given, here):
        raise no_answer(known)
    return pipeline_file(given)


def _hangs(given: str | None, here: Hosts) -> bool:
    if not here.seen:
        return False
    from watchdogd.host import answers

    return not answers(lambda: _touch(given, here))


def _known_here(given: str | None) -> tuple[str, Hosts]:
    """Return the file that is meant, by its path as text, and its watchdogs on this host; nothing
    where it has none."""
    for file in _may_be_meant(given):
        path = os.path.abspath(file)
        if (hosts := hosts_here(path)).seen:
            return path, hosts
    return "", Hosts()


def _may_be_meant(given: str | None) -> Iterator[str]:
    """Yield the files that may be meant, as `pipeline_file` looks for them; of those that are
    called otherwise, the one in this directory that a watchdog was given."""
    if named := given or os.environ.get(VARIABLE):
        yield from (named, os.path.join(named, USUAL))
        return
    for file in usual_files():
        yield file
        if os.path.dirname(file) == os.getcwd() and len(others := known_files(os.getcwd())) == 1:
            yield from others


def _touch(given: str | None, here: Hosts) -> None:
    """Look at all that a command looks at first, and that may never answer."""
    file = pipeline_file(given)
    load_bytes(file)
    for root in [one.report.root for one in here.alive] or [read(file).root]:
        os.listdir(os.path.join(root, HOSTS))


def _completed(pipeline: Pipeline | None, root: str, hosts: Hosts) -> Pipeline:
    """Return it as it runs on a root: with the stages that it has no more, or all of them."""
    if pipeline is None:
        first = hosts.seen[0].report
        # Not the root that the document names: others may have written it.
        pipeline = Pipeline(name=first.name, file=first.pipeline, root=root, stages=())
    stages = {stage.name: stage for stage in pipeline.stages}
    for one in (stage for host in hosts.alive for stage in host.report.stages):
        if one.name not in stages and _may_be(one):
            stages[one.name] = Stage(
                name=one.name,
                inputs=one.inputs,
                outputs=one.outputs,
                drivers=Drivers(one.min, one.max),
                kind="call",
                work="",
            )
    return msgspec.structs.replace(pipeline, root=root, stages=tuple(stages.values()))


def _may_be(stage: StageReport) -> bool:
    """Return whether a pipeline may have such a stage: others may have written the document, and
    mean queues that are not in the root, or no queues at all."""
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


def stage_named(chosen: Chosen, name: str) -> Stage:
    """Return a stage, or raise NotFound with those that there are."""
    stage = chosen.pipeline.stage(name)
    if stage is None:
        _refuse(chosen, "stage", name, [one.name for one in chosen.pipeline.stages])
    return stage


def targets(chosen: Chosen, words: Iterable[str], host: str | None) -> list[Target]:
    """Return what is meant by `parse`, `parse-2` or `parse-2@rose`: on the host that was named
    besides, where the word names none. NotFound for what is not there."""
    return [_target(chosen, word, host or "") for word in words]


def _target(chosen: Chosen, text: str, host: str) -> Target:
    name, _, named_host = text.partition("@")
    if named_host:
        check_host(chosen, host := named_host)
    if stage := chosen.pipeline.stage(name):
        return Target(stage, host=host)
    known = _drivers_known(chosen)
    parts = stage_of(name)
    if name in known and parts and (stage := chosen.pipeline.stage(parts[0])):
        return Target(stage, name, host)
    names = [one.name for one in chosen.pipeline.stages]
    return _refuse(chosen, "stage or driver", name, [*names, *known])


def _drivers_known(chosen: Chosen) -> list[str]:
    """Return the short names of all drivers that there may be."""
    slots = ((one, slot) for one in chosen.pipeline.stages for slot in range(one.drivers.max))
    names = {short_name(stage.name, slot + 1): None for stage, slot in slots}
    for host in chosen.hosts.seen:
        names |= dict.fromkeys(driver.name for driver in host.report.drivers)
    return list(names)


def check_host(chosen: Chosen, host: str, also: Iterable[str] = ()) -> None:
    """Raise NotFound for a host that has no watchdog of this pipeline, nor ever had, and is not
    `also` known."""
    known = list(dict.fromkeys((*(one.report.host for one in chosen.hosts.seen), *also)))
    if host not in known:
        _refuse(chosen, "host", host, known)


def nearest_first(word: str, known: Iterable[str]) -> list[str]:
    """Return what there is, that which may have been meant before the rest."""
    # Late: most words are right.
    import difflib

    names = list(known)
    near = difflib.get_close_matches(word, names, n=len(names) or 1)
    return [*near, *(one for one in names if one not in near)]


def _refuse(chosen: Chosen, what: str, name: str, known: list[str]) -> NoReturn:
    names = nearest_first(name, known)
    shown = ", ".join(map(visible, names[:_MOST_TOLD])) + ", …" * (len(names) > _MOST_TOLD)
    raise NotFound(f"no {what} {name!r} in {chosen.given}; there are: {shown or 'none'}")
