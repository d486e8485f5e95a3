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

import msgspec

from queuedriver.claims.document import Target
from queuedriver.claims.handoff import ORPHANS
from queuedriver.claims.input_queue import InputQueue
from queuedriver.claims.leftovers import sweep
from queuedriver.claims.liveness import DRIVERS, Heartbeat, Observer, Roster, draw_salt, host_id
from queuedriver.claims.picking import Lookahead, Picker, count
from queuedriver.claims.recovery import Recoverer
from queuedriver.disk.filesystem import Directory
from queuedriver.disk.journal import Journal, journal_path
from queuedriver.disk.lock import Held, locked
from queuedriver.disk.mounts import RENAME_NOT_ATOMIC, filesystem_type, is_network
from queuedriver.disk.neighbours import landmark, note, note_feed, strangers
from queuedriver.errors import (
    BadArgument,
    CannotUse,
    ConfigError,
    Disagreement,
    FileSystemTrouble,
    IdHeld,
    NotFound,
    NotPermitted,
    QueueError,
    explained,
    is_trouble,
)
from queuedriver.format import names, settings
from queuedriver.format.settings import Publication, Settings
from queuedriver.options import Options
from queuedriver.processors.base import Processor

# A start takes milliseconds; one that recovers a large queue takes longer.
_LOCK_TIMEOUT = 120.0
_MAX_SLOTS = 10_000
# How often a holder of our id is looked at whose process cannot be seen from here.
_SILENCE_LOOK = 0.5

Path = str | os.PathLike[str]


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
    # How it shows that it lives, once it has registered.
    beats: Heartbeat = None  # type: ignore[assignment]
    # Since when the id is its own, in seconds since the epoch.
    since: float = 0.0

    @property
    def network(self) -> bool:
        """Return whether other hosts may have an input, too."""
        return any(is_network(filesystem_type(queue.path)) for queue in self.queues)


class Place:
    """An input as a start finds it: its directories, and who drives it."""

    def __init__(self, path: Path, observer: Observer, at_end: contextlib.ExitStack) -> None:
        self.directory = open_named(path, at_end)
        self.path = self.directory.path
        with explained(self.path):
            self.private = _part(self.directory, names.PRIVATE, at_end)
            self.roster = Roster(_part(self.private, DRIVERS, at_end), observer)


def open_named(
    path: Path, at_end: contextlib.ExitStack, role: str = "a queue", *, create: bool = False
) -> Directory:
    """Open a directory that somebody has named as this."""
    settings.check_path(path)
    with explained(os.fspath(path), role):
        return at_end.enter_context(Directory.open(path, create))


def _part(directory: Directory, name: str, at_end: contextlib.ExitStack) -> Directory:
    return at_end.enter_context(directory.subdirectory(name, create=True))


@contextlib.contextmanager
def opened(
    inputs: Sequence[Path],
    outputs: Sequence[Path],
    driver: str | None,
    options: Options,
    register: Callable[[Opened], Heartbeat],
    mint: names.Mint | None = None,
    *,
    follows: bool = False,
) -> Iterator[Opened]:
    """Open and agree on everything, and register; close what was opened at the end.

    Registering is the last that is done while nobody else can start. A broker of several services
    is one driver of them all, with one mint. A driver that `follows` an output that was replaced
    has seen that no mount is missing.
    """
    observer = Observer()
    with contextlib.ExitStack() as at_end:
        with _descriptors_told(), contextlib.ExitStack() as locks:
            places = [Place(path, observer, at_end) for path in inputs]
            targets = _open_outputs(outputs, options.publish, at_end, create=True)
            archive = None
            if (path := options.archive) is not None:
                archive = open_named(path, at_end, "an archive", create=True)
            others = [target.directory for target in targets] + ([archive] if archive else [])
            check_directories([place.directory for place in places] + others)
            rosters = [place.roster for place in places]
            if driver is not None:
                await_silence(rosters, driver)
            for place in sorted(places, key=lambda place: place.path):
                lock_start(place.private, locks)
            driver = choose_id(rosters, driver)
            mint = mint or names.Mint(driver, draw_salt())
            found = Opened([], targets, mint, observer, {}, (), since=time.time())
            for place in places:
                with explained(place.path):
                    have = settings.load(place.private, place.path)
                    queue = _open(place, found, archive, options, have, at_end)
                    _agree(queue, have, follows=follows)
                found.queues.append(queue)
                found = _recover_previous_life(found, queue)
            for place in places:
                sweep(place.directory, others)
            # Before registering: nothing may fail afterwards, while its beats say it lives.
            for target in targets:
                for place in places if target.publication.is_queue else ():
                    note_feed(target.directory, place.path)
            with explained(places[0].path):
                found = found._replace(beats=register(found))
        yield found


def _open(
    place: Place,
    found: Opened,
    archive: Directory | None,
    options: Options,
    have: Settings | None,
    at_end: contextlib.ExitStack,
) -> InputQueue:
    """Open one queue as this driver wants it, and see whether its documents can be moved."""
    targets, mint, host = found.targets, found.mint, found.observer.me.host
    journal = Journal(journal_path(place.path), mint.driver, host)
    at_end.callback(journal.close)
    wanted = _wanted(place.path, targets, options, have)
    queue = InputQueue(place.directory, place.private, targets, wanted, mint, journal, archive)
    at_end.callback(queue.close)
    check_renames(queue)
    queue.recoverer = Recoverer(queue, found.observer, drives=True)
    # Who is there already, before we register.
    queue.recoverer.roster.refresh()
    picker = Picker(queue.directory, options.order, mint.driver, queue.recoverer.drivers)
    await_writing = options.await_writing
    queue.waiting = Lookahead(queue.directory, queue.attempts, picker, await_writing=await_writing)
    return queue


def _recover_previous_life(found: Opened, queue: InputQueue) -> Opened:
    """Recover what the last life of our id left in a queue, while its registration still tells of
    it; return what is known of earlier lives."""
    owner = queue.recoverer.roster.named(queue.mint.driver)
    if owner is None or (last := owner.registration) is None:
        return found
    left = last.left
    if owner.verdict == "left":
        left = (last.salt, *left)
    else:
        queue.recoverer.recover()
    past = {salt: last.made_for(salt) for salt in (last.salt, *last.past)}
    return found._replace(past=found.past | past, left=found.left + left)


@contextlib.contextmanager
def queue_of(
    directory: Directory,
    journal: Journal,
    observer: Observer,
    *,
    outputs: bool = True,
    elsewhere: Sequence[str] = (),
) -> Iterator[InputQueue]:
    """Open a queue as its drivers do, on behalf of who is none: recovers, mends or discards. The
    last needs no `outputs`, and they may be where this host cannot see them. They are `elsewhere`
    when an operator says so."""
    with contextlib.ExitStack() as at_end:
        with explained(directory.path):
            private = _part(directory, names.PRIVATE, at_end)
            have = settings.load(private, directory.path) or Settings()
            if not outputs:
                have = msgspec.structs.replace(have, outputs=(), archive=None)
            if elsewhere:
                have = msgspec.structs.replace(have, outputs=tuple(map(os.path.abspath, elsewhere)))
            if have.outputs or have.archive:
                check_trusted(directory, private)
            path = have.archive and settings.resolve(directory.path, have.archive)
            archive = open_named(path, at_end, "an archive", create=True) if path else None
            targets = _mounted_outputs(private, directory.path, have, at_end)
            mint = names.Mint(names.OPERATOR, draw_salt())
            queue = InputQueue(directory, private, targets, have, mint, journal, archive)
            at_end.callback(queue.close)
            check_renames(queue)
        queue.recoverer = Recoverer(queue, observer, elsewhere=bool(elsewhere))
        yield queue


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


def lock_start(home: Directory, locks: contextlib.ExitStack) -> None:
    """Let nobody else start who registers in this directory until the locks are let go."""
    path = os.path.join(home.path, "start.lock")
    try:
        locks.enter_context(locked(path, _LOCK_TIMEOUT))
    except Held:
        raise QueueError(
            f"another one has been starting for {_LOCK_TIMEOUT:g} s (it holds {path}); see "
            "whether it hangs"
        ) from None
    except OSError as error:
        if is_trouble(error) and error.errno != errno.ENXIO:
            raise
        kind = NotPermitted if isinstance(error, PermissionError) else CannotUse
        raise kind(
            f"{path} cannot be locked: {error.strerror}; remove it while nobody is starting, or "
            "mend its permissions"
        ) from None


# Which id


def await_silence(rosters: Sequence[Roster], driver: str) -> None:
    """Wait until whoever has this id elsewhere has been silent for a lease, or beats: it may be
    dead, as a container that was started anew, or a host that was replaced."""
    for roster in rosters:
        first = held = roster.holder(driver)
        while first and held and not roster.observer.is_here(held):
            if (held.salt, held.beat) != (first.salt, first.beat):
                break
            time.sleep(_SILENCE_LOOK)
            held = roster.holder(driver)


def choose_id(rosters: Sequence[Roster], wanted: str | None, who: str = "driver") -> str:
    """Return the id that was asked for, or the first of this host that nobody alive has; `who` is
    what those are that register there."""
    if wanted is None:
        return free_id(rosters)
    names.check_driver_id(wanted)
    for roster in rosters:
        if (held := roster.holder(wanted)) is not None:
            where = f"process {held.identity.pid} on {held.identity.host}"
            if not roster.observer.is_here(held):
                silent_for = max(0.0, time.time() - held.beat_at)
                where += f", last seen alive {silent_for:.0f} s ago by its clock"
            raise IdHeld(
                f"{who} {wanted!r} is running already: {where}; stop it, or choose another --id"
            )
    return wanted


def free_id(rosters: Sequence[Roster]) -> str:
    """Return the first id of this host that nobody alive has in any of these queues."""
    ids = (f"{host_id()}-{slot}" for slot in range(1, _MAX_SLOTS))
    return next(one for one in ids if not any(roster.holder(one) for roster in rosters))


# What all drivers of a queue agree on


def _wanted(
    queue: str, targets: Sequence[Target], options: Options, have: Settings | None
) -> Settings:
    """Return what this driver wants; where it does not mind, what others have agreed on."""
    durable = options.durable
    if durable is None:
        durable = have is not None and have.durable
    return Settings(
        outputs=tuple(settings.relative(target.directory.path, queue) for target in targets),
        publish=options.publish,
        existing=options.existing,
        retries=options.retries,
        retry_delay=options.retry_delay,
        archive=None if options.archive is None else settings.relative(options.archive, queue),
        durable=durable,
    )


def _agree(queue: InputQueue, have: Settings | None, *, follows: bool) -> None:
    """Write down how claims end here and what the outputs are, unless claims are about that were
    made under other settings, or for other directories."""
    marks = _marks(queue.settings, queue.targets)
    if have is not None and have != queue.settings:
        roster = queue.recoverer.roster
        others = sorted({*queue.recoverer.drivers(anew=False)} - {queue.mint.driver})
        if other := next(filter(roster.holder, others), None):
            raise Disagreement(_difference(queue, have, f"driver {other} runs with"))
        if count(queue.directory, 0).claimed:
            raise Disagreement(
                _difference(queue, have, "there are claims left from drivers with")
                + f", or queuedriver recover {queue.path}"
            )
    moved = [] if follows else strangers(queue.private, marks)
    if moved and _has_unsaid(queue):
        raise Disagreement(
            f"{settings.resolve(queue.path, moved[0])} is not the directory that the claims left "
            f"in {queue.path} were made for; mount the file system that is missing there, or see "
            f"queuedriver check {queue.path}"
        )
    if have != queue.settings:
        settings.save(queue.private, queue.settings)
    note(queue.private, marks)


def _has_unsaid(queue: InputQueue) -> bool:
    """Tell whether a claim is a dead driver's, or was never said to be for which directories. The
    others are recovered into no other."""
    for _, item in names.claims(queue.directory.names()):
        token = names.parse_token(item.token)
        owner = queue.recoverer.roster.owner(token)
        said = owner.registration if owner.alive else None
        if said is None or not said.made_for(token.salt):
            return True
    return False


def _difference(queue: InputQueue, have: Settings, who: str) -> str:
    want = queue.settings
    found = ((key, getattr(have, key), getattr(want, key)) for key in Settings.__struct_fields__)
    words = ", ".join(f"{key} = {old!r} (not {new!r})" for key, old, new in found if old != new)
    return f"{queue.path}: {who} {words}; all drivers of a queue must agree: use the same options"


def _marks(have: Settings, targets: Sequence[Target]) -> dict[str, str]:
    """Return the landmark of each output, by its path in the settings."""
    return {path: target.landmark for path, target in zip(have.outputs, targets, strict=True)}


# Outputs


def _open_outputs(
    paths: Sequence[Path], publish: str, at_end: contextlib.ExitStack, *, create: bool
) -> tuple[Target, ...]:
    """Open the output directories; with `create`, make those that are missing."""
    publication = Publication(settings.check_publish(publish))
    targets = []
    for path in paths:
        directory = open_named(path, at_end, "an output", create=create)
        with explained(directory.path, "an output"):
            if create:
                # Before anybody asks for it: a network file system may remember for a while that it
                # is not there, and what was swept into it would seem to be published.
                _part(directory, os.path.join(names.PRIVATE, ORPHANS), at_end).close()
            name = os.path.basename(directory.path) or directory.path
            targets.append(Target(name, directory, publication, landmark(directory, create)))
    if len({target.name for target in targets}) < len(targets):
        raise ConfigError("two output queues have the same name; outputs could not tell them apart")
    return tuple(targets)


def _mounted_outputs(
    private: Directory, queue: str, have: Settings, at_end: contextlib.ExitStack
) -> tuple[Target, ...]:
    """Open the outputs that a queue's settings name, or none unless all are there.

    One that is missing, or another than it was, is not mounted: what was committed cannot be
    published now, and nobody must think that it has been.
    """
    paths = [settings.resolve(queue, path) for path in have.outputs]
    try:
        targets = _open_outputs(paths, have.publish, at_end, create=False)
    except (NotFound, CannotUse):
        return ()
    return () if strangers(private, _marks(have, targets)) else targets


# What can never work


def check_trusted(directory: Directory, private: Directory) -> None:
    """Raise NotPermitted unless settings.json belongs to root, to us or to the queue's owner: a
    stranger's settings could make us move files anywhere."""
    owner = private.status(settings.FILE).st_uid
    if owner not in (0, os.geteuid(), directory.status().st_uid):
        path = os.path.join(private.path, settings.FILE)
        raise NotPermitted(
            f"{path} belongs to user {owner}, who is neither you nor the owner of "
            f"{directory.path}: what it says of outputs is not obeyed; let that user do it, or "
            "look at the file and chown it"
        )


def check_directories(directories: Sequence[Directory]) -> None:
    """Refuse what can never work, before anything is claimed."""
    seen: dict[tuple[int, int], str] = {}
    for directory in directories:
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
        with explained(directory.path):
            directory.check_writable()


def check_renames(queue: InputQueue) -> None:
    """Raise ConfigError where documents cannot be renamed to where they are to go."""
    for to in filter(None, (queue.archive, queue.discarded)):
        # Not in the queue itself: that nothing has changed there proves it drained.
        check_rename(queue.private, to, queue.path)


def check_rename(source: Directory, to: Directory, path: str) -> None:
    """Raise ConfigError where nothing can be renamed from one directory, of this path for people,
    to another. It is tried: two mounts of one file system have one device, and nothing can be
    renamed across."""
    name = f".probe-{os.getpid()}"
    source.write_aside(name, b"")
    try:
        source.rename_over(name, name, to)
    except OSError as error:
        source.remove(name)
        if error.errno != errno.EXDEV:
            raise
        raise ConfigError(
            f"{to.path} is on another file system than {path}, or mounted; a document cannot be "
            "renamed across: unmount it, or name another"
        ) from None
    to.remove(name)
