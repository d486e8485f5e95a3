"""Makes the moves of operators, whoever asks for them, and notes each.

    .watchdogd/events/operators@<host>-<uid>.jsonl     who asked for what, and when

What is asked has been looked up already: stages and drivers are some that there are. A move returns
what whoever asked should be told besides, mostly nothing. A note that cannot be written stops
nobody, and is told of, too.
"""

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Literal, NamedTuple

from queuedriver.disk.filesystem import Directory, open_fd, write_all
from queuedriver.errors import NotFound, Unreachable
from queuedriver.format.records import encode
from queuedriver.format.units import format_count
from queuedriver.operating import operations
from queuedriver.operating.operations import Result
from queuedriver.operating.queue import Queue, opened
from watchdogd import control
from watchdogd.events import Event
from watchdogd.helper_messages import QueueSeen, Request
from watchdogd.host import processors
from watchdogd.operators import batches
from watchdogd.operators.batches import Batch
from watchdogd.operators.hosts import Chosen, read_controls, user
from watchdogd.pipeline.model import Stage
from watchdogd.queues.control_files import spread_pause

# More drivers than so many for each processor are asked back.
_PER_PROCESSOR = 16
# Of what was asked so many names are noted.
_NAMED = 20
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def operator() -> str:
    """Return what the events call whoever runs this process."""
    return user(os.getuid())


class Asked(NamedTuple):
    """Something that is asked of a pipeline, of one of its stages, or of a driver."""

    do: Literal["pause", "resume", "scale", "restart"]
    stage: str = ""
    driver: str = ""
    # Empty: on each.
    host: str = ""
    # How many drivers the stage is to have; None: as the file says.
    number: int | None = None

    @property
    def words(self) -> str:
        """Return it for people: `scale parse to 4 drivers on rose`."""
        words = f"{self.do} {self.driver or self.stage or 'the whole pipeline'}"
        if self.do == "scale":
            number = None if self.number is None else format_count(self.number, "driver")
            words += f" to {number or 'as many drivers as the file says'}"
        return words if self.do in ("pause", "resume") else _at(words, self.host or "each host")


def carry_out(chosen: Chosen, asked: Asked, who: str) -> list[str]:
    """Do what was asked."""
    stages = stages_of(chosen, asked.stage)
    match asked.do:
        case "pause":
            return pause(chosen, stages, who)
        case "resume":
            return resume(chosen, stages, who)
        case "scale":
            return scale(
                chosen, {one.name: asked.number for one in stages}, asked.host or None, who
            )
    names = [one.name for one in stages or chosen.pipeline.stages]
    targets = [asked.driver] if asked.driver else names
    return restart(chosen, [(name, asked.host) for name in targets], who)


def stages_of(chosen: Chosen, name: str) -> list[Stage]:
    """Return the stage that is named, looked up in the pipeline; none where none is."""
    if name and chosen.pipeline.stage(name) is None:
        raise NotFound(f"no stage {name!r} in this pipeline")
    return [one for one in chosen.pipeline.stages if one.name == name]


# Moves


def pause(chosen: Chosen, stages: Sequence[Stage], who: str) -> list[str]:
    """Let nothing new be claimed in some stages, or in all when none is named."""
    _check_root(chosen)
    control.pause(chosen.pipeline.root, _queues(stages))
    told = [] if stages else warning(chosen, otherwise="drivers that run without one go on")
    return told + _note(chosen, who, "pause", stages)


def resume(chosen: Chosen, stages: Sequence[Stage], who: str) -> list[str]:
    """Undo `pause`; also what a stage did that has stopped itself, and `queuedriver quit`."""
    _check_root(chosen)
    pipeline, queues, told = chosen.pipeline, _queues(stages), []
    control.resume(pipeline.root, queues)
    for name in queues:
        with Queue.open(pipeline.path(name)) as queue:
            operations.resume(queue)
    if stages and read_controls(pipeline.root).paused:
        told = [f"the whole pipeline is paused all the same; {chosen.command('resume')}"]
    if not stages:
        # So would a watchdog, if there is one.
        pauses = {one: os.path.join(pipeline.path(one), control.PAUSE) for one in pipeline.inputs}
        seen = {one: QueueSeen(paused=True) for one in pauses if os.path.lexists(pauses[one])}
        spread_pause(pipeline, seen, paused=False)
    return told + _note(chosen, who, "resume", stages)


def scale(
    chosen: Chosen, wanted: Mapping[str, int | None], host: str | None, who: str
) -> list[str]:
    """Say how many drivers stages are to have; None: as the pipeline's file says."""
    _check_root(chosen)
    control.scale(chosen.pipeline.root, wanted, host)
    told = warning(chosen, host, "it holds once one does")
    for stage, number in wanted.items():
        words = f"{stage}={control.AUTO if number is None else number}"
        told += _note(chosen, who, _at(f"scale {words}", host), named=stage)
    return told


def many_drivers(chosen: Chosen, wanted: Mapping[str, int | None], host: str | None) -> str:
    """Return what is to be asked back where very many drivers are wanted; else nothing."""
    known = [one.report.processors for one in chosen.hosts.meant(host).alive]
    least = min(filter(None, known), default=0) or processors()
    many = [
        f"{format_count(number, 'driver')} for {stage}"
        for stage, number in wanted.items()
        if number is not None and number > _PER_PROCESSOR * least
    ]
    has = format_count(least, "processor")
    return f"start {', '.join(many)}, where a host has {has}" if many else ""


def restart(chosen: Chosen, targets: Iterable[tuple[str, str]], who: str) -> list[str]:
    """Start drivers anew: stages or drivers by their names, each on a host, or on all (empty)."""
    _check_root(chosen)
    targets = list(targets)
    told = [one for at in dict.fromkeys(at for _, at in targets) for one in warning(chosen, at)]
    for name, at in targets:
        control.restart(chosen.pipeline.root, name, time.time_ns() // 1000, at)
        told += _note(chosen, who, _at(f"restart {name}", at), named=name)
    return told


def reload(chosen: Chosen, who: str) -> tuple[Request, list[str]]:
    """Have the watchdogs read the pipeline's file again; return what they were asked, too."""
    _check_root(chosen)
    told = warning(chosen)
    request = control.reload(chosen.pipeline.root, time.time_ns() // 1000)
    return request, told + _note(chosen, who, "reload")


def stop(chosen: Chosen, who: str, *, now: bool = False) -> list[str]:
    """Let the watchdogs of all hosts leave."""
    _check_root(chosen)
    told = warning(chosen)
    control.stop(chosen.pipeline.root, now=now)
    return told + _note(chosen, who, "stop --now" if now else "stop")


class Came(NamedTuple):
    """The fates of documents, each with the path of its queue; what is to be said besides."""

    results: list[tuple[str, Result]]
    told: list[str]


def put_back(chosen: Chosen, batch: Batch) -> Came:
    """Put the documents of a batch back."""
    batches.write(chosen.pipeline.root, batch)
    moves = {
        chosen.pipeline.path(name): partial(batches.put_back, kind=batch.kind, members=members)
        for name, members in batch.queues.items()
    }
    return _moved(chosen, moves, batch.who, f"{batch.kind} {{}}: {batch.words}", batch.id)


def retry(chosen: Chosen, wanted: Mapping[str, Collection[str]], who: str) -> Came:
    """Let documents be tried again, by the paths of their queues, whatever they wait for there."""
    moves = {
        path: partial(operations.retry, docids=docids) for path, docids in wanted.items() if docids
    }
    return _moved(chosen, moves, who, "retry {}")


def _moved(
    chosen: Chosen,
    moves: Mapping[str, Callable[..., list[Result]]],
    who: str,
    words: str,
    batch: str | None = None,
) -> Came:
    """Move documents of some queues, by their paths; note how many were put back, and say where the
    journal of a queue could not be written."""
    came = Came([], [])
    for path, move in moves.items():
        with opened(path) as queue, operations.journal_of(queue) as journal:
            came.results.extend((path, one) for one in move(queue, journal=journal))
        if journal.unnoted:
            came.told.append(journal.unnoted)
    done = [one.docid for _, one in came.results if one.came == "done"]
    if done or batch:
        count = format_count(len(done), "document") if len(done) != 1 else repr(done[0])
        came.told.extend(_note(chosen, who, words.format(count), batch=batch))
    return came


# What whoever asks is told


def warning(chosen: Chosen, host: str | None = None, otherwise: str = "") -> list[str]:
    """Return that nobody may be there to obey, and what that means. Unreachable where it is
    certain, and means nothing `otherwise`: a request must not wait for whoever comes next."""
    meant = chosen.hosts.meant(host or None)
    if meant.alive:
        return []
    there = [one.report.host for one in meant.seen if one.standing in ("silent", "hung")]
    silent = f"nothing is heard of the watchdog on {', '.join(there)}" if there else ""
    words = silent or _at("no watchdog runs", host)
    if meant.state == "not running" and not otherwise:
        raise Unreachable(words)
    return [f"{words}: {otherwise}" if otherwise else words]


def _check_root(chosen: Chosen) -> None:
    if not os.path.isdir(chosen.pipeline.root):
        words = f"there is no {chosen.pipeline.root} yet, where its queues are to be"
        raise NotFound(f"{words}; {chosen.start} makes it")


def _queues(stages: Iterable[Stage]) -> list[str]:
    """Return what these stages take from; NotFound for one that has none."""
    stages = list(stages)
    if without := [one.name for one in stages if not one.inputs]:
        words = "has no queue, but a broker; pause and resume that"
        raise NotFound(f"stage {without[0]!r} {words}")
    return [queue for one in stages for queue in one.inputs]


# Who asked


def _at(words: str, host: str | None) -> str:
    return f"{words} on {host}" if host else words


def _note(
    chosen: Chosen,
    who: str,
    message: str,
    stages: Sequence[Stage] = (),
    *,
    named: str = "",
    batch: str | None = None,
) -> list[str]:
    """Write down who asked for what; return what is to be said where that could not be."""
    names = [one.name for one in stages]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    event = Event(
        at=time.time(),
        host=os.uname().nodename,
        event="asked",
        stage=names[0] if len(names) == 1 else named,
        who=who,
        message=" ".join((message, *names[:_NAMED])) + more,
        batch=batch,
    )
    path = os.path.join(chosen.pipeline.root, control.CONTROL, control.EVENTS)
    file = f"operators@{control.host_file(event.host)}-{os.getuid()}.jsonl"
    try:
        with (
            closing(Directory.open(path, create=True, inside=2)) as directory,
            # One host and one user write a file: what two of them append, a server may lose.
            open_fd(os.open(file, _APPEND, 0o644, dir_fd=directory.fd)) as fd,
        ):
            write_all(fd, encode(event) + b"\n")
    except OSError as error:
        why = f"could not be written ({error.strerror}): who did this is not noted"
        return [f"{os.path.join(path, file)} {why}"]
    return []
