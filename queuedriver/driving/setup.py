"""What must be so before a driver's first claim: its queues, its outputs and the archive, opened,
looked at and agreed upon.

One driver at a time starts on a queue, under a lock: choose an id nobody alive has, agree with the
other drivers on where outputs go, recover what the id's last life left, register. Whatever cannot
work is said here, once, with an exit code that tells a supervisor not to try again.
"""

import contextlib
import errno
import os
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from filelock import FileLock, Timeout

from queuedriver.claims.handoff import ORPHANS
from queuedriver.claims.input_queue import InputQueue
from queuedriver.claims.leftovers import sweep
from queuedriver.claims.liveness import Observer, Owner, draw_salt, host_id, owner_of
from queuedriver.claims.outputs import Target
from queuedriver.claims.recovery import Recoverer
from queuedriver.claims.waiting import Waiting
from queuedriver.disk.filesystem import Directory
from queuedriver.disk.journal import Journal
from queuedriver.disk.mounts import RENAME_NOT_ATOMIC, filesystem_type
from queuedriver.disk.output_id import landmark, note, strangers
from queuedriver.errors import (
    BadArgument,
    CannotUse,
    ConfigError,
    FileSystemTrouble,
    IdHeld,
    NotPermitted,
    NotRegular,
    QueueError,
    is_trouble,
    leads_nowhere,
    trouble,
)
from queuedriver.format import names
from queuedriver.format.names import JOURNAL, OPERATOR
from queuedriver.format.records import Registration
from queuedriver.format.settings import FILE, Publication, Settings, check_publish, save
from queuedriver.operating.queue import Queue, check_path, resolve
from queuedriver.options import Options
from queuedriver.processors.base import Processor

# A start takes milliseconds; one that recovers a large queue takes longer.
_LOCK_TIMEOUT = 120.0
_MAX_SLOTS = 10_000
# How often a holder of our id is looked at whose process cannot be seen from here.
_SILENCE_LOOK = 0.5


def check_output(processor: Processor, given: bool, *, no_output: bool) -> None:
    """Raise BadArgument for a processor that has nowhere to put what it writes, unless somebody has
    said that there is to be no output.

    A processor may have `writes_output`, for what is lost without one, and `needs_output`, for what
    cannot be done without.
    """
    if given:
        if no_output:
            raise BadArgument("--to and --no-output: there is an output, or there is none")
        return
    if getattr(processor, "needs_output", False):
        raise BadArgument(
            f"{processor.name}: {{output}} has nowhere to go; name a queue or a directory by --to"
        )
    if not no_output and getattr(processor, "writes_output", False):
        raise BadArgument(
            f"{processor.name}: what it writes would be lost, and each document with it; name a "
            "queue or a directory by --to, or say --no-output"
        )


class Opened(NamedTuple):
    """The queues of one driver, opened and agreed upon."""

    queues: list[InputQueue]
    targets: tuple[Target, ...]
    mint: names.Mint
    observer: Observer
    # Salts of earlier lives of the driver, the latest first, with what each opened its outputs as;
    # and salts of those of them that left in order.
    past: dict[str, tuple[str, ...]]
    left: tuple[str, ...]


@contextlib.contextmanager
def opened(
    inputs: Sequence[str | os.PathLike[str]],
    outputs: Sequence[str | os.PathLike[str]],
    driver: str | None,
    options: Options,
    observer: Observer,
    register: Callable[[Opened], object],
    mint: names.Mint | None = None,
    *,
    follows: bool = False,
) -> Iterator[Opened]:
    """Open and agree on everything, and register; close what was opened at the end.

    Registering is the last that is done while nobody else can start. A broker of several services
    is one driver of them all, with one mint. A driver that `follows` an output that was replaced
    has seen that no mount is missing.
    """
    with contextlib.ExitStack() as at_end:
        with _descriptors_told(), contextlib.ExitStack() as locks:
            queues = []
            for path in inputs:
                queues.append(Queue.open(path))
                at_end.callback(queues[-1].close)
            for path in (*outputs, options.archive or ""):
                check_path(path)
            targets = open_targets(outputs, options.publish)
            for target in targets:
                at_end.callback(target.directory.close)
            archive = Directory.open(options.archive, create=True) if options.archive else None
            if archive is not None:
                at_end.callback(archive.close)
            check_directories(queues, targets, archive)
            if driver is not None:
                _await_silence(queues, driver, observer)
            for queue in sorted(queues, key=lambda queue: queue.path):
                locks.enter_context(_lock(queue))
            driver = _choose_id(queues, driver, observer)
            mint = mint or names.Mint(driver, draw_salt())
            found = Opened([], targets, mint, observer, {}, ())
            for queue in queues:
                with our_directories(queue):
                    found = _agreed(found, queue, archive, options, follows=follows)
                at_end.callback(found.queues[-1].close)
                at_end.callback(found.queues[-1].journal.close)
            others = [target.directory for target in targets] + ([archive] if archive else [])
            for queue in queues:
                sweep(queue.directory, others)
            # Before registering: nothing may fail afterwards, while its beats say it lives.
            for queue in queues:
                for target in targets:
                    if target.publication.is_queue:
                        with Queue.open(target.directory.path) as output:
                            output.add_feed(queue.path)
            with our_directories(queues[0]):
                register(found)
        yield found


def _agreed(
    found: Opened, queue: Queue, archive: Directory | None, options: Options, *, follows: bool
) -> Opened:
    """Agree on the settings of one queue, and recover what the last life of our id left there,
    while its registration still tells of it."""
    mint, observer = found.mint, found.observer
    have = queue.settings()
    settings = _settings(queue, have, found.targets, options)
    _agree(queue, have, settings, mint.driver, observer)
    marks = _marks(settings, found.targets)
    if not follows:
        _check_landmarks(queue, marks, observer)
    note(queue.private, marks)
    journal = Journal(os.path.join(queue.private.path, JOURNAL), mint.driver, observer.me.host)
    one = InputQueue(
        queue.directory, queue.private, found.targets, settings, mint, journal, archive
    )
    one.recoverer = Recoverer(one, observer)
    # Who is there already, before we register.
    roster = one.recoverer.roster
    roster.refresh()
    order, drivers = options.order, one.recoverer.drivers
    one.waiting = Waiting(
        one.directory,
        one.attempts,
        mint.driver,
        order,
        drivers,
        await_writing=options.await_writing,
    )
    found.queues.append(one)
    owner = roster.named(mint.driver)
    if owner is None or (last := owner.registration) is None:
        return found
    left = last.left
    if owner.verdict == "left":
        left = (last.salt, *left)
    else:
        one.recoverer.recover()
    past = {salt: last.made_for(salt) for salt in (last.salt, *last.past)}
    return found._replace(past=found.past | past, left=found.left + left)


@contextlib.contextmanager
def queue_of(queue: Queue, journal: Journal, observer: Observer) -> Iterator[InputQueue]:
    """Open a queue as its drivers do, on behalf of who is none: recovers, or mends."""
    settings = queue.settings() or Settings()
    with contextlib.ExitStack() as at_end:
        with our_directories(queue):
            if settings.outputs or settings.archive:
                check_trusted(queue)
            archive = None
            if settings.archive:
                archive = Directory.open(resolve(queue.path, settings.archive), create=True)
                at_end.callback(archive.close)
            targets = targets_of(queue, settings)
            for target in targets:
                at_end.callback(target.directory.close)
            mint = names.Mint(OPERATOR, draw_salt())
            one = InputQueue(
                queue.directory, queue.private, targets, settings, mint, journal, archive
            )
            at_end.callback(one.close)
        one.recoverer = Recoverer(one, observer)
        yield one


@contextlib.contextmanager
def _descriptors_told() -> Iterator[None]:
    """Raise ConfigError where this process may not open as many files as a driver needs."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EMFILE or isinstance(error, FileSystemTrouble):
            raise
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        raise ConfigError(
            f"this process may have {most} files open (ulimit -n), and that is not enough for a "
            "driver, or what its processor opens is never closed; raise it to 256 or more"
        ) from error


def _relative(path: str, queue: str) -> str:
    """Return a path as settings have it: the same for all who name the queue, or what is above
    the directory, through symlinks. If it is one itself, it is kept: it may be turned."""
    above, name = os.path.dirname(path), os.path.basename(path)
    return os.path.relpath(os.path.join(os.path.realpath(above), name), os.path.realpath(queue))


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
    """Return what the living driver of this id says of itself, or None when there is none."""
    owner = queue.driver(driver, observer)
    return owner.registration if owner is not None and owner.alive else None


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
    """Return the first id of this host that nobody alive has in any of these queues."""
    host = host_id()
    ids = (f"{host}-{slot}" for slot in range(1, _MAX_SLOTS))
    return next(one for one in ids if not any(_holder(queue, one, observer) for queue in queues))


def _settings(
    queue: Queue, have: Settings | None, targets: Sequence[Target], options: Options
) -> Settings:
    """Return what this driver wants; where it does not mind, what others have agreed on."""
    archive = options.archive
    durable = options.durable
    if durable is None:
        durable = have is not None and have.durable
    return Settings(
        outputs=tuple(_relative(target.directory.path, queue.path) for target in targets),
        publish=options.publish,
        existing=options.existing,
        retries=options.retries,
        retry_delay=options.retry_delay,
        archive=_relative(os.path.abspath(archive), queue.path) if archive else None,
        durable=durable,
    )


def _agree(
    queue: Queue, have: Settings | None, settings: Settings, driver: str, observer: Observer
) -> None:
    """Write the settings down, unless claims are about that were made under other ones."""
    if have == settings:
        return
    if have is not None:
        known = queue.drivers(observer).values()
        others = [one.id for one in known if one.alive and one.id != driver]
        if others:
            raise ConfigError(_difference(queue, have, settings, f"driver {others[0]} runs with"))
        if queue.listing(0).claimed:
            raise ConfigError(
                _difference(queue, have, settings, "there are claims left from drivers with")
                + f", or queuedriver recover {queue.path}"
            )
    save(queue.private, settings)


def _marks(settings: Settings, targets: Sequence[Target]) -> dict[str, str]:
    """Return the landmark of each output, by its path in the settings."""
    return {path: target.landmark for path, target in zip(settings.outputs, targets, strict=True)}


def _check_landmarks(queue: Queue, marks: dict[str, str], observer: Observer) -> None:
    """Refuse to recover claims into other directories than they were made for. Those apart of
    drivers that live, and have said for which: they are recovered into no other."""
    moved = strangers(queue.private, marks)
    if moved and any(map(_is_unsaid, _owners(queue, observer))):
        path = resolve(queue.path, moved[0])
        raise ConfigError(
            f"{path} is not the directory that the claims left in {queue.path} were made for; "
            f"mount the file system that is missing there, or see queuedriver check {queue.path}"
        )


def _owners(queue: Queue, observer: Observer) -> Iterator[tuple[Owner, str]]:
    """Return who has each claim, and with which salt."""
    known = queue.drivers(observer)
    for _, item in queue.items():
        if item.claimed:
            token = names.parse_token(item.token)
            yield owner_of(token, known), token.salt


def _is_unsaid(owned: tuple[Owner, str]) -> bool:
    """Tell whether a claim is a dead driver's, or was never said to be for which directories."""
    owner, salt = owned
    return not (owner.alive and owner.registration and owner.registration.made_for(salt))


def _difference(queue: Queue, have: Settings, want: Settings, who: str) -> str:
    found = ((key, getattr(have, key), getattr(want, key)) for key in Settings.__struct_fields__)
    words = ", ".join(f"{key} = {old!r} (not {new!r})" for key, old, new in found if old != new)
    return f"{queue.path}: {who} {words}; all drivers of a queue must agree: use the same options"


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
            directory = Directory.open(resolve(queue.path, path))
        except OSError as error:
            if not leads_nowhere(error):
                raise
            break
        targets.append(Target(_name(directory.path), directory, publication, landmark(directory)))
    marks = dict(zip(settings.outputs, (target.landmark for target in targets), strict=False))
    if len(targets) == len(settings.outputs) and not strangers(queue.private, marks):
        return tuple(targets)
    for target in targets:
        target.directory.close()
    return ()


def check_trusted(queue: Queue) -> None:
    """NotPermitted where somebody else has said whereto documents are moved: on behalf of whoever
    drives a queue that is its driver, but anybody who may write there could move what they like
    to wherever we may write."""
    path = os.path.join(queue.private.path, FILE)
    owner = queue.private.status(FILE).st_uid
    if owner not in (0, os.geteuid(), queue.directory.status().st_uid):
        raise NotPermitted(
            f"{path} belongs to user {owner}, who is neither you nor the owner of {queue.path}: "
            "what it says of outputs is not obeyed; let that user do it, or look at the file and "
            "chown it"
        )


@contextlib.contextmanager
def our_directories(queue: Queue) -> Iterator[None]:
    """CannotUse where something else has the name of a directory or a file that a queue keeps."""
    try:
        yield
    except NotADirectoryError as error:
        where = os.fsdecode(error.filename or queue.path)
        raise CannotUse(
            f"{where!r} is not a directory, but a file or a link; queuedriver check --repair moves "
            "it aside"
        ) from None
    except NotRegular as error:
        raise CannotUse(f"{error.filename!r} is not a regular file; remove it") from None


def check_directories(
    queues: Sequence[Queue], targets: Sequence[Target], archive: Directory | None
) -> None:
    """Refuse what can never work, before anything is claimed."""
    seen: dict[tuple[int, int], str] = {}
    everything = [queue.directory for queue in queues] + [target.directory for target in targets]
    for directory in everything + ([archive] if archive else []):
        found = directory.status()
        first = seen.setdefault((found.st_dev, found.st_ino), directory.path)
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
        _check_renames(queue, archive)


def _name(path: str | os.PathLike[str]) -> str:
    return os.path.basename(os.path.abspath(path)) or os.fspath(path)


def _open_output(path: str | os.PathLike[str], publication: Publication) -> Target:
    try:
        directory = Directory.open(path, create=True)
        # Made before anybody asks for it: a network file system may remember for a while that it
        # is not there, and what was swept into it would seem to be published.
        directory.subdirectory(os.path.join(names.PRIVATE, ORPHANS), create=True).close()
        return Target(_name(path), directory, publication, landmark(directory, create=True))
    except (NotADirectoryError, FileExistsError, NotRegular) as error:
        named = os.path.abspath(path)
        if (where := os.fsdecode(error.filename or named)).startswith(f"{named}/"):
            raise CannotUse(
                f"the output {os.fspath(path)!r} cannot be used: {where!r} is something else than "
                "it should be, or a link; remove it"
            ) from None
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
        directory.check_writable()
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM):
            raise NotPermitted(
                f"{directory.path} may not be written: permission denied; a driver renames items "
                "in its input and writes into its outputs"
            ) from None
        if is_trouble(error):
            raise trouble(error, f"cannot write in {directory.path}") from None
        raise


def _check_renames(queue: Queue, archive: Directory | None) -> None:
    """Try whether documents can be renamed to where they are to go: two mounts of one file system
    have one device, and nothing can be renamed across."""
    if archive is not None and not _can_rename(queue.directory, archive):
        raise ConfigError(
            f"the archive {archive.path} is on another file system than {queue.path}, or mounted; "
            "a document cannot be renamed across"
        )
    try:
        discarded = queue.directory.subdirectory(names.DISCARDED)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        if queue.directory.is_regular(names.DISCARDED):
            where = f"{queue.path}/{names.DISCARDED}"
            raise ConfigError(f"{where} is a file; move it away") from None
        return
    try:
        if not _can_rename(queue.directory, discarded):
            raise ConfigError(f"{discarded.path} is on another file system, or mounted; unmount it")
    finally:
        discarded.close()


def _can_rename(source: Directory, to: Directory) -> bool:
    name = f".probe-{os.getpid()}"
    source.write_aside(name, b"")
    try:
        source.rename_over(name, name, to)
    except OSError as error:
        source.remove(name)
        if error.errno != errno.EXDEV:
            raise
        return False
    to.remove(name)
    return True
