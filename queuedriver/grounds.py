"""The directories of a driver: inputs, outputs and the archive, and what can never work with them.

They are opened as the queue's settings or a driver's options say. Whatever is wrong with them is
said before anything is claimed.
"""

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence

from queuedriver import names
from queuedriver.errors import (
    CannotUse,
    ConfigError,
    NotPermitted,
    NotRegular,
    is_trouble,
    leads_nowhere,
    trouble,
)
from queuedriver.filesystem import Directory
from queuedriver.handoff import ORPHANS, Handoff
from queuedriver.landmarks import identity, landmark, strangers
from queuedriver.mounts import RENAME_NOT_ATOMIC, filesystem_type
from queuedriver.outputs import Target
from queuedriver.queue import Queue
from queuedriver.settings import FILE, Publication, Settings, check_publish


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


def handoff_of(queue: Queue) -> Handoff:
    """The hand-off as the queue's drivers do it; for those who are not drivers."""
    settings = queue.settings() or Settings()
    with our_directories(queue):
        if settings.outputs or settings.archive:
            check_trusted(queue)
        archive = settings.archive
        path = os.path.join(queue.path, archive or "")
        directory = Directory.open(path, create=True) if archive else None
        targets = targets_of(queue, settings)
        return Handoff(queue.directory, queue.private, targets, settings, directory)


def check_trusted(queue: Queue) -> None:
    """NotPermitted where somebody else has said whereto documents are moved: on behalf of whoever
    drives a queue that is its driver, but anybody who may write there could move what they like
    to wherever we may write."""
    path = os.path.join(queue.private.path, FILE)
    owner = queue.private.inspect(FILE).st_uid
    if owner not in (0, os.geteuid(), queue.directory.inspect(".").st_uid):
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


def _name(path: str | os.PathLike[str]) -> str:
    return os.path.basename(os.path.abspath(path)) or os.fspath(path)


def _open_output(path: str | os.PathLike[str], publication: Publication) -> Target:
    try:
        directory = Directory.open(path, create=True)
        # Made before anybody asks for it: a network file system may remember for a while that it
        # is not there, and what was swept into it would seem to be published.
        directory.subdirectory(os.path.join(names.PRIVATE, ORPHANS), create=True).close()
        mark = landmark(directory, create=True)
        return Target(_name(path), directory, publication, mark, identity(directory))
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
