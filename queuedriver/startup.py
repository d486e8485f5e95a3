"""Everything a driver makes sure of before its first claim.

One at a time per queue, under a lock: choose an id nobody alive has, agree with the other drivers
on where outputs go, recover what the id's last life left, register. Whatever cannot work is said
here, once, with an exit code that tells a supervisor not to try again.
"""

import contextlib
import errno
import os
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from filelock import FileLock, Timeout

from queuedriver import names
from queuedriver.errors import (
    CannotUse,
    ConfigError,
    IdHeld,
    NotPermitted,
    QueueError,
    is_trouble,
    trouble,
)
from queuedriver.filesystem import Directory
from queuedriver.handoff import Handoff
from queuedriver.landmarks import landmark, note, strangers
from queuedriver.lane import Lane, Owner
from queuedriver.liveness import Observer, Registration, draw_salt, host_id
from queuedriver.mounts import RENAME_NOT_ATOMIC, filesystem_type
from queuedriver.options import Options
from queuedriver.outputs import Target
from queuedriver.queue import Queue, check_path
from queuedriver.settings import Publication, Settings, check_publish, save

# A start takes milliseconds; one that recovers a large queue takes longer.
_LOCK_TIMEOUT = 120.0
_MAX_SLOTS = 10_000
# How often a holder of our id is looked at whose process cannot be seen from here.
_SILENCE_LOOK = 0.5


class Crew(NamedTuple):
    """A driver's lanes, opened, agreed upon and registered for."""

    driver: str
    salt: str
    past: tuple[str, ...]
    lanes: list[Lane]
    targets: tuple[Target, ...]
    observer: Observer


def open_targets(paths: Sequence[str | os.PathLike[str]], publish: str) -> tuple[Target, ...]:
    """The output directories, made where they are missing."""
    publication = Publication(check_publish(publish))
    targets = [_open_output(path, publication) for path in paths]
    if len({target.name for target in targets}) < len(targets):
        raise ConfigError("two output queues have the same name; outputs could not tell them apart")
    return tuple(targets)


def targets_of(queue: Queue, settings: Settings) -> tuple[Target, ...]:
    """The output directories that a queue's settings name; none unless all are there.

    One that is missing, or another than it was, is not mounted: what was committed cannot be
    published now, and nobody must think that it has been.
    """
    publication = Publication(check_publish(settings.publish))
    targets: list[Target] = []
    for path in settings.outputs:
        try:
            directory = Directory.open(os.path.normpath(os.path.join(queue.path, path)))
        except (FileNotFoundError, NotADirectoryError):
            break
        targets.append(Target(_name(directory.path), directory, publication, landmark(directory)))
    marks = dict(zip(settings.outputs, (target.landmark for target in targets), strict=False))
    if len(targets) == len(settings.outputs) and not strangers(queue.private, marks):
        return tuple(targets)
    for target in targets:
        target.directory.close()
    return ()


def handoff_of(queue: Queue) -> Handoff:
    """The hand-off as the queue's drivers do it; for those who are not drivers."""
    settings = queue.settings() or Settings()
    archive = settings.archive
    directory = Directory.open(os.path.join(queue.path, archive), create=True) if archive else None
    return Handoff(queue.directory, queue.private, targets_of(queue, settings), settings, directory)


def check_directories(
    queues: Sequence[Queue], targets: Sequence[Target], archive: Directory | None
) -> None:
    """Refuse what can never work, before anything is claimed."""
    seen: dict[tuple[int, int], str] = {}
    everything = [queue.directory for queue in queues] + [target.directory for target in targets]
    for directory in everything + ([archive] if archive else []):
        found = directory.status()
        first = seen.setdefault((found.device, found.inode), directory.path)
        if first is not directory.path:
            raise ConfigError(
                f"{directory.path} and {first} are one directory; inputs, outputs and the archive "
                "of a driver must all differ"
            )
        kind = filesystem_type(directory.path)
        if kind in RENAME_NOT_ATOMIC:
            raise ConfigError(
                f"{directory.path} is on a {kind} file system, where a rename is not atomic: a "
                "queue there would lose documents; put it on another"
            )
        _check_writable(directory)
    for queue in queues:
        _check_same_device(queue, archive)


@contextlib.contextmanager
def assemble(
    inputs: Sequence[str | os.PathLike[str]],
    outputs: Sequence[str | os.PathLike[str]],
    driver: str | None,
    options: Options,
    observer: Observer,
    held: set[str],
) -> Iterator[Crew]:
    """Open and agree on everything; yields under the lock, for the caller to register."""
    queues = [Queue.open(path) for path in inputs]
    for path in (*outputs, options.archive or ""):
        check_path(path)
    targets = open_targets(outputs, options.publish)
    archive = Directory.open(options.archive, create=True) if options.archive else None
    check_directories(queues, targets, archive)
    if driver is not None:
        _await_silence(queues, driver, observer)
    with contextlib.ExitStack() as locks:
        for queue in sorted(queues, key=lambda queue: queue.path):
            locks.enter_context(_lock(queue))
        driver = _choose_id(queues, driver, observer)
        salt = draw_salt()
        past: tuple[str, ...] = ()
        owner = Owner(driver, salt, observer.me.host, held)
        lanes = []
        for queue in queues:
            settings = _settings(queue, targets, options)
            _agree(queue, settings, driver, observer)
            _check_landmarks(queue, settings, targets)
            lane = Lane(
                queue,
                targets,
                settings,
                owner,
                observer,
                options.order,
                archive,
                options.await_writing,
            )
            past += _bury(lane, driver)
            lanes.append(lane)
        yield Crew(driver, salt, past, lanes, targets, observer)
    for queue in queues:
        for target in targets:
            if target.publication.is_queue:
                with Queue.open(target.directory.path) as output:
                    output.add_feed(queue.path)


def _name(path: str | os.PathLike[str]) -> str:
    return os.path.basename(os.path.abspath(path)) or os.fspath(path)


def _open_output(path: str | os.PathLike[str], publication: Publication) -> Target:
    try:
        directory = Directory.open(path, create=True)
        return Target(_name(path), directory, publication, landmark(directory, create=True))
    except (NotADirectoryError, FileExistsError):
        raise CannotUse(f"the output {os.fspath(path)!r} is a file; name a directory") from None
    except PermissionError as error:
        raise NotPermitted(
            f"the output {os.fspath(path)!r} may not be used: permission denied on "
            f"{error.filename!r}"
        ) from None
    except OSError as error:
        if is_trouble(error):
            raise trouble(error, f"cannot use the output {os.fspath(path)!r}") from None
        raise


def _check_writable(directory: Directory) -> None:
    try:
        name = f".probe-{os.getpid()}"
        directory.write_aside(name, b"")
        directory.remove(name)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM):
            raise NotPermitted(
                f"{directory.path} may not be written: permission denied; a driver renames items "
                "in its input and writes into its outputs"
            ) from None
        if is_trouble(error):
            raise trouble(error, f"cannot write in {directory.path}") from None
        raise


def _check_same_device(queue: Queue, archive: Directory | None) -> None:
    device = queue.directory.status().device
    if archive is not None and archive.status().device != device:
        raise ConfigError(
            f"the archive {archive.path} is on another file system than {queue.path}; a document "
            "cannot be renamed across"
        )
    try:
        discarded = queue.directory.status(names.DISCARDED)
    except FileNotFoundError:
        return
    if discarded.device != device:
        raise ConfigError(f"{queue.path}/{names.DISCARDED} is on another file system; unmount it")
    if discarded.regular:
        raise ConfigError(f"{queue.path}/{names.DISCARDED} is a file; move it away")


@contextlib.contextmanager
def _lock(queue: Queue) -> Iterator[None]:
    path = os.path.join(queue.private.path, "start.lock")
    try:
        with FileLock(path, timeout=_LOCK_TIMEOUT, thread_local=False):
            yield
    except Timeout:
        raise QueueError(
            f"another driver has been starting on {queue.path} for {_LOCK_TIMEOUT:g} s (it holds "
            f"{path}); see whether it hangs"
        ) from None


def _await_silence(queues: Sequence[Queue], driver: str, observer: Observer) -> None:
    """Whoever has this id elsewhere may be dead: a container that was started anew, a host that was
    replaced. Only its silence for a whole lease tells; its next beat tells that it is not so."""
    for queue in queues:
        first = _holder(queue, driver, observer)
        holder = first
        while holder is not None and not observer.is_here(holder):
            if first is None or (holder.salt, holder.beat) != (first.salt, first.beat):
                break
            time.sleep(_SILENCE_LOOK)
            holder = _holder(queue, driver, observer)


def _holder(queue: Queue, driver: str, observer: Observer) -> Registration | None:
    """Who alive goes by this id, as far as the observer knows."""
    found = (one for one in queue.registrations() if one.id == driver)
    return next((one for one in found if observer.judge(one) == "alive"), None)


def _choose_id(queues: Sequence[Queue], wanted: str | None, observer: Observer) -> str:
    """The id that was asked for, or the first of this host that nobody alive has."""
    held = {
        one.id: one
        for queue in queues
        for one in queue.registrations()
        if observer.judge(one) == "alive"
    }
    if wanted is None:
        host = host_id()
        return next(
            f"{host}-{slot}" for slot in range(1, _MAX_SLOTS) if f"{host}-{slot}" not in held
        )
    names.check_driver_id(wanted)
    if holder := held.get(wanted):
        them = holder.identity
        where = f"process {them.pid} on {them.host}"
        if them.boot != observer.me.boot:
            where += (
                f", last seen alive {max(0.0, time.time() - holder.beat_at):.0f} s ago by its clock"
            )
        raise IdHeld(
            f"driver {wanted!r} is running already: {where}; stop it, or choose another --id"
        )
    return wanted


def _settings(queue: Queue, targets: Sequence[Target], options: Options) -> Settings:
    archive = options.archive
    return Settings(
        outputs=tuple(os.path.relpath(target.directory.path, queue.path) for target in targets),
        publish=options.publish,
        existing=options.existing,
        retries=options.retries,
        retry_delay=options.retry_delay,
        archive=os.path.relpath(archive, queue.path) if archive else None,
        durable=options.durable,
    )


def _agree(queue: Queue, settings: Settings, driver: str, observer: Observer) -> None:
    """Write the settings down, unless claims are about that were made under other ones."""
    have = queue.settings()
    if have == settings:
        return
    if have is not None:
        others = [
            one.id
            for one in queue.registrations()
            if one.id != driver and observer.judge(one) == "alive"
        ]
        if others:
            raise ConfigError(_difference(queue, have, settings, f"driver {others[0]} runs with"))
        if queue.listing(0).claimed:
            raise ConfigError(
                _difference(queue, have, settings, "there are claims left from drivers with")
                + f", or queuedriver recover {queue.path}"
            )
    save(queue.private, settings)


def _check_landmarks(queue: Queue, settings: Settings, targets: Sequence[Target]) -> None:
    """Refuse to recover claims into other directories than they were made for."""
    marks = {path: target.landmark for path, target in zip(settings.outputs, targets, strict=True)}
    if (moved := strangers(queue.private, marks)) and queue.listing(0).claimed:
        path = os.path.normpath(os.path.join(queue.path, moved[0]))
        raise ConfigError(
            f"{path} is not the directory that the claims left in {queue.path} were made for; "
            f"mount the file system that is missing there, or see queuedriver check {queue.path}"
        )
    note(queue.private, marks)


def _difference(queue: Queue, have: Settings, want: Settings, who: str) -> str:
    found = ((key, getattr(have, key), getattr(want, key)) for key in Settings.__struct_fields__)
    words = ", ".join(f"{key} = {old!r} (not {new!r})" for key, old, new in found if old != new)
    return f"{queue.path}: {who} {words}; all drivers of a queue must agree: use the same options"


def _bury(lane: Lane, driver: str) -> tuple[str, ...]:
    """Recover what the last life of this id left, while its registration still tells of it."""
    last: Registration | None
    last, verdict = next(
        (one for one in lane.recoverer.registrations() if one[0].id == driver), (None, "left")
    )
    if last is None:
        return ()
    if verdict != "left":
        lane.recoverer.recover()
    return (last.salt, *last.past)
