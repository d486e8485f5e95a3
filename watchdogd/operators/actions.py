"""Makes the moves of operators, whoever asks for them, and notes each.

    .watchdogd/events/operators@<host>-<uid>.jsonl     who asked for what, and when

What is asked has been looked up already: hosts and drivers are some that there were. A move returns
what whoever asked should be told besides, mostly nothing. A note that cannot be written stops
nobody, and is told of, too.
"""

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any, Literal, NamedTuple

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


def carry_out(chosen: Chosen, asked: Sequence[Asked], who: str) -> list[str]:
    """Do what was asked: one thing, of one stage or driver or of several. NotFound for a stage that
    the file has no more since it was asked for: a number for it would be of any later one."""
    _check_root(chosen)
    for one in asked:
        stages_of(chosen, one.stage)
    told = _MOVES[asked[0].do](chosen, asked)
    for one in asked:
        told += _note(chosen, who, one.words, stage=one.stage, driver=one.driver)
    return told


def stages_of(chosen: Chosen, name: str) -> list[Stage]:
    """Return the stage that is named, looked up in the pipeline; none where none is."""
    if name and chosen.pipeline.stage(name) is None:
        raise NotFound(f"no stage {name!r} in this pipeline")
    return [one for one in chosen.pipeline.stages if one.name == name]


def many_drivers(chosen: Chosen, asked: Sequence[Asked]) -> str:
    """Return what is to be asked back where very many drivers are wanted; else nothing."""
    alive = chosen.hosts.meant(asked[0].host or None).alive
    least = min(filter(None, (one.report.processors for one in alive)), default=0) or processors()
    many = [
        f"{format_count(one.number, 'driver')} for {one.stage}"
        for one in asked
        if one.number is not None and one.number > _PER_PROCESSOR * least
    ]
    has = format_count(least, "processor")
    return f"start {', '.join(many)}, where a host has {has}" if many else ""


# Moves


def _pause(chosen: Chosen, asked: Sequence[Asked]) -> list[str]:
    """Let nothing new be claimed in some stages, or in all when none is named."""
    queues = _queues(chosen, asked)
    control.pause(chosen.pipeline.root, queues)
    return [] if queues else warning(chosen, otherwise="drivers that run without one go on")


def _resume(chosen: Chosen, asked: Sequence[Asked]) -> list[str]:
    """Undo `pause`; also what a stage did that has stopped itself, and `queuedriver quit`."""
    pipeline, queues = chosen.pipeline, _queues(chosen, asked)
    control.resume(pipeline.root, queues)
    for name in queues:
        with Queue.open(pipeline.path(name)) as queue:
            operations.resume(queue)
    if not queues:
        # So would a watchdog, if there is one.
        pauses = {one: os.path.join(pipeline.path(one), control.PAUSE) for one in pipeline.inputs}
        seen = {one: QueueSeen(paused=True) for one in pauses if os.path.lexists(pauses[one])}
        spread_pause(pipeline, seen, paused=False)
    elif read_controls(pipeline.root).paused:
        return [f"the whole pipeline is paused all the same; {chosen.command('resume')}"]
    return []


def _scale(chosen: Chosen, asked: Sequence[Asked]) -> list[str]:
    """Say how many drivers stages are to have, on one host or on each."""
    host = asked[0].host or None
    control.scale(chosen.pipeline.root, {one.stage: one.number for one in asked}, host)
    return warning(chosen, host, "it holds once one does")


def _restart(chosen: Chosen, asked: Sequence[Asked]) -> list[str]:
    """Start drivers anew, each on a host or on all."""
    told = [
        words for at in dict.fromkeys(one.host for one in asked) for words in warning(chosen, at)
    ]
    every = [one.name for one in chosen.pipeline.stages]
    for one in asked:
        name = one.driver or one.stage
        for each in [name] if name else every:
            control.restart(chosen.pipeline.root, each, time.time_ns() // 1000, one.host)
    return told


_MOVES: Mapping[str, Callable[[Chosen, Sequence[Asked]], list[str]]] = {
    **{"pause": _pause, "resume": _resume, "scale": _scale, "restart": _restart}
}


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
    return _moved(chosen, moves, batch.who, batch.kind, f": {batch.words}", batch=batch.id)


def retry(chosen: Chosen, wanted: Mapping[str, Collection[str]], who: str) -> Came:
    """Let documents be tried again, by the paths of their queues, whatever they wait for there."""
    moves = {
        path: partial(operations.retry, docids=docids) for path, docids in wanted.items() if docids
    }
    return _moved(chosen, moves, who, "retry")


def _moved(
    chosen: Chosen,
    moves: Mapping[str, Callable[..., list[Result]]],
    who: str,
    kind: str,
    words: str = "",
    **about: str,
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
    if done or about:
        count = format_count(len(done), "document") if len(done) != 1 else repr(done[0])
        came.told.extend(_note(chosen, who, f"{kind} {count}{words}", **about))
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


def _queues(chosen: Chosen, asked: Iterable[Asked]) -> list[str]:
    """Return what the stages take from that are named; NotFound for one that has none."""
    stages = [stage for one in asked for stage in stages_of(chosen, one.stage)]
    if without := [one.name for one in stages if not one.inputs]:
        words = "has no queue, but a broker; pause and resume that"
        raise NotFound(f"stage {without[0]!r} {words}")
    return [queue for one in stages for queue in one.inputs]


# Who asked


def _at(words: str, host: str | None) -> str:
    return f"{words} on {host}" if host else words


def _note(chosen: Chosen, who: str, message: str, **about: Any) -> list[str]:
    """Write down who asked for what; return what is to be said where that could not be."""
    at, host = time.time(), os.uname().nodename
    event = Event(at=at, host=host, event="asked", who=who, message=message, **about)
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
