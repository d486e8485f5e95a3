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
from queuedriver.grounds import check_directories, open_targets, our_directories
from queuedriver.landmarks import note, strangers
from queuedriver.lane import Lane, Owner
from queuedriver.liveness import (
    DRIVERS,
    Observer,
    Registration,
    draw_salt,
    host_id,
    read_registration,
)
from queuedriver.options import Options
from queuedriver.outputs import Target
from queuedriver.queue import Queue, check_path
from queuedriver.settings import Settings, save
from queuedriver.sweeping import sweep

# A start takes milliseconds; one that recovers a large queue takes longer.
_LOCK_TIMEOUT = 120.0
_MAX_SLOTS = 10_000
# How often a holder of our id is looked at whose process cannot be seen from here.
_SILENCE_LOOK = 0.5


class Crew(NamedTuple):
    """A driver's lanes, opened, agreed upon and registered for."""

    driver: str
    salt: str
    # The salts of earlier lives, the latest first, with what each opened its outputs as.
    past: dict[str, tuple[str, ...]]
    lanes: list[Lane]
    targets: tuple[Target, ...]
    observer: Observer

    @property
    def output_ids(self) -> tuple[str, ...]:
        """What the outputs were opened as."""
        return tuple(target.identity for target in self.targets)


@contextlib.contextmanager
def assemble(
    inputs: Sequence[str | os.PathLike[str]],
    outputs: Sequence[str | os.PathLike[str]],
    driver: str | None,
    options: Options,
    observer: Observer,
    held: set[str],
    salt: str = "",
) -> Iterator[Crew]:
    """Open and agree on everything; yields under the lock, for the caller to register.

    What was opened is the caller's to close, once it has it.
    """
    with contextlib.ExitStack() as opened, contextlib.ExitStack() as locks:
        queues = []
        for path in inputs:
            queues.append(Queue.open(path))
            opened.callback(queues[-1].close)
        for path in (*outputs, options.archive or ""):
            check_path(path)
        targets = open_targets(outputs, options.publish)
        for target in targets:
            opened.callback(target.directory.close)
        archive = Directory.open(options.archive, create=True) if options.archive else None
        if archive is not None:
            opened.callback(archive.close)
        check_directories(queues, targets, archive)
        if driver is not None:
            _await_silence(queues, driver, observer)
        for queue in sorted(queues, key=lambda queue: queue.path):
            locks.enter_context(_lock(queue))
        driver = _choose_id(queues, driver, observer)
        salt = salt or draw_salt()
        past: dict[str, tuple[str, ...]] = {}
        owner = Owner(driver, salt, observer.me.host, held)
        lanes = []
        for queue in queues:
            settings = _settings(queue, targets, options)
            with our_directories(queue):
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
                opened.callback(lane.close)
                past |= _bury(lane, driver, observer)
            lanes.append(lane)
        others = [target.directory for target in targets] + ([archive] if archive else [])
        for queue in queues:
            sweep(queue.directory, others)
        # Before the caller registers: nothing may fail afterwards, while its beats say it lives.
        for queue in queues:
            for target in targets:
                if target.publication.is_queue:
                    with Queue.open(target.directory.path) as output:
                        output.add_feed(queue.path)
        opened.pop_all()
        with our_directories(queues[0]):
            yield Crew(driver, salt, past, lanes, targets, observer)


@contextlib.contextmanager
def _lock(queue: Queue) -> Iterator[None]:
    path = os.path.join(queue.private.path, "start.lock")
    lock = FileLock(path, timeout=_LOCK_TIMEOUT, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        raise QueueError(
            f"another driver has been starting on {queue.path} for {_LOCK_TIMEOUT:g} s (it holds "
            f"{path}); see whether it hangs"
        ) from None
    except OSError as error:
        if is_trouble(error) and error.errno != errno.ENXIO:
            raise trouble(error, f"cannot lock {path}") from None
        kind = NotPermitted if isinstance(error, PermissionError) else CannotUse
        raise kind(
            f"{path} cannot be locked: {error.strerror}; remove it while no driver is starting, or "
            "mend its permissions"
        ) from None
    try:
        yield
    finally:
        lock.release()


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
    """Who alive goes by this id, as far as the observer knows. Asked by name: a listing may be one
    from before it registered."""
    directory = queue.inside(DRIVERS)
    if directory is None:
        return None
    try:
        found = read_registration(directory, driver)
    finally:
        directory.close()
    return found if found and found.id == driver and observer.judge(found) == "alive" else None


def _choose_id(queues: Sequence[Queue], wanted: str | None, observer: Observer) -> str:
    """The id that was asked for, or the first of this host that nobody alive has."""
    if wanted is None:
        return free_id(queues, observer)
    names.check_driver_id(wanted)
    holders = (_holder(queue, wanted, observer) for queue in queues)
    if holder := next(filter(None, holders), None):
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


def free_id(queues: Sequence[Queue], observer: Observer) -> str:
    """The first id of this host that nobody alive has in any of these queues."""
    registered = (one for queue in queues for one in queue.registrations())
    held = {one.id for one in registered if observer.judge(one) == "alive"}
    host = host_id()
    return next(f"{host}-{slot}" for slot in range(1, _MAX_SLOTS) if f"{host}-{slot}" not in held)


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


def _bury(lane: Lane, driver: str, observer: Observer) -> dict[str, tuple[str, ...]]:
    """Recover what the last life of this id left, while its registration still tells of it; all
    salts that it tells of, with what each opened its outputs as."""
    last = read_registration(lane.drivers, driver)
    if last is None or last.id != driver:
        return {}
    if observer.judge(last) != "left":
        lane.recoverer.recover()
    return {salt: last.made_for(salt) for salt in (last.salt, *last.past)}
