"""Whether a pipeline can run on this host: everything that its file alone does not tell, at once.

Programs, modules, the file systems of the queues, permissions, memory. Nothing is made and nothing
is changed. What does not keep the pipeline from running is a note.
"""

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from queuedriver.disk.mounts import RENAME_NOT_ATOMIC, filesystem_type, is_network
from queuedriver.errors import is_trouble
from watchdogd import places
from watchdogd.host import physical_memory
from watchdogd.pipeline.complaints import BadPipeline, Complaint, Path, Slip
from watchdogd.pipeline.graph import remarks_on
from watchdogd.pipeline.model import Pipeline, Stage
from watchdogd.pipeline.reading import Study, study
from watchdogd.sizes import admit
from watchdogd.trial import LIMIT, try_calls

_TROUBLE = 74
_NOT_PERMITTED = 77
# What the kernel reads of a program's first line.
_FIRST_LINE = 256


class Findings(NamedTuple):
    """What was found."""

    complaints: tuple[Complaint, ...]
    # What people should know all the same.
    notes: tuple[str, ...]
    # How many drivers a stage may have here at most, where that is less than its maximum.
    caps: Mapping[str, int]


class Here(NamedTuple):
    """What a pipeline is held against."""

    memory: int
    cpus: float
    environ: Mapping[str, str] = os.environ
    kind_of: Callable[[str], str] = filesystem_type
    # Seconds that are waited for each module.
    patience: float = LIMIT


def this_host() -> Here:
    return Here(physical_memory(), len(os.sched_getaffinity(0)))


def check_host(pipeline: Pipeline, host: str | None = None) -> Findings:
    """What was found; BadPipeline when the pipeline cannot run here."""
    # Once more, for the lines that complaints are about.
    found = examine(study(pipeline.file, host), this_host())
    if found.complaints:
        raise BadPipeline(found.complaints)
    return found


def examine(studied: Study, here: Here) -> Findings:
    """Hold a pipeline against a host, which has to be this one."""
    pipeline, source = studied
    admission = admit(pipeline, here.memory, here.cpus)
    trials = try_calls(pipeline, here.patience)
    home: Path = ("host",) if ("host",) in source.lines else ()
    slips = [
        *_programs(pipeline, here.environ),
        *trials.slips,
        *_directories(pipeline, here),
        *_archives(pipeline, here),
        *_state(pipeline),
        *(_refusal(words, home) for words in admission.refusals),
    ]
    slow = (
        f"stage {name!r}: whether its module can be imported is not known; it takes more than "
        f"{here.patience:g} s, for which nobody waited, or was killed"
        for name in trials.slow
    )
    notes = (*admission.words, *remarks_on(pipeline), *slow, *_hints(pipeline, here))
    return Findings(source.complaints(slips), notes, admission.caps)


def _refusal(words: str, home: Path) -> Slip:
    problem, _, right = words.rpartition("; ")
    return Slip(home, problem, right)


def _hints(pipeline: Pipeline, here: Here) -> Iterator[str]:
    for stage in pipeline.stages:
        if stage.preload and stage.memory_per_driver is None:
            yield (
                f"stage {stage.name!r}: its drivers share what is loaded while it is in buffers "
                "(arrays, mapped files, bytes); graphs of Python objects are copied as they are "
                "touched. Say memory_per_driver once you know what each driver adds"
            )
    state = places.state_directory()
    kind = here.kind_of(_existing(state))
    if is_network(kind):
        yield (
            f"{state}, where the watchdog keeps its logs, is on a {kind} file system: while that "
            f"does not answer, neither does the watchdog; set {places.STATE_VARIABLE} to a "
            "directory on a local disk"
        )


# Programs


def _programs(pipeline: Pipeline, environ: Mapping[str, str]) -> Iterator[Slip]:
    for index, stage in enumerate(pipeline.stages):
        # A stage without drivers here need not have its program here.
        if stage.kind != "call" and stage.drivers.max:
            found = _program(stage.work[0], pipeline, {**environ, **stage.env})
            if found:
                yield Slip(("stage", index, stage.kind), *found)
    if pipeline.on_event and (found := _program(pipeline.on_event[0], pipeline, environ)):
        yield Slip(("pipeline", "on_event"), *found)


def _program(word: str, pipeline: Pipeline, environ: Mapping[str, str]) -> tuple[str, str] | None:
    """What is wrong with a program, and what to do; None when it can be run."""
    search = environ.get("PATH", os.defpath)
    # A driver's current directory is the pipeline's, so what is relative in PATH starts there, too.
    ways = [""] if os.sep in word else search.split(os.pathsep)
    paths = [os.path.join(pipeline.directory, way, word) for way in ways]
    runnable = next((path for path in paths if _may_run(path)), None)
    if runnable is not None:
        return _interpreter(runnable)
    there = next((path for path in paths if os.path.exists(path)), None)
    if there is not None:
        return f"names {there}, which is no file that may be run", f"chmod +x {there}"
    if os.sep in word:
        return f"names {paths[0]}, which does not exist", "correct the path"
    return f"names {word!r}, which is not on the PATH ({search})", "install it, or give its path"


def _may_run(path: str) -> bool:
    return os.path.isfile(path) and _may(path, os.X_OK)


def _may(path: str, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def _interpreter(path: str) -> tuple[str, str] | None:
    """What is wrong with the first line of a script."""
    try:
        with open(path, "rb") as file:
            first = file.read(_FIRST_LINE).partition(b"\n")[0]
    except OSError:
        # It may be run and not read: then it is no script.
        return None
    words = first[2:].split()
    if not first.startswith(b"#!") or not words or os.path.exists(words[0]):
        return None
    missing = os.fsdecode(words[0])
    return f"names {path}, whose first line names {missing!r}, which does not exist", (
        "install that, or correct the first line"
    )


# Directories


def _directories(pipeline: Pipeline, here: Here) -> Iterator[Slip]:
    """The root and, where it is as it should be, every queue in it that is there already."""
    root = _root(pipeline.root, here)
    if root is not None:
        yield root._replace(path=("pipeline", "root"))
        return
    for queue in pipeline.queues:
        path = pipeline.path(queue)
        if os.path.lexists(path) and (slip := _directory(path, here)):
            yield slip._replace(path=_mention(pipeline.stages, queue))


def _root(root: str, here: Here) -> Slip | None:
    if os.path.lexists(root):
        return _directory(root, here)
    parent = os.path.dirname(root)
    if not os.path.lexists(parent):
        problem = f"is {root}, and {parent} does not exist either"
        return Slip((), problem, "mkdir it, or mount what is to be there")
    return _directory(parent, here)


def _directory(path: str, here: Here) -> Slip | None:
    """What keeps a directory from holding queues, or from being one."""
    try:
        mode = os.stat(path).st_mode
        read_only = os.statvfs(path).f_flag & os.ST_RDONLY
    except FileNotFoundError:
        return Slip((), f"leads to {path}, a symbolic link to nowhere", "correct or remove it")
    except PermissionError:
        return _denied(path)
    except OSError as error:
        if not is_trouble(error):
            raise
        words = f"is at {path}, where the file system says: {error.strerror}"
        return Slip((), words, "try again when it is well", exit_code=_TROUBLE)
    kind = here.kind_of(path)
    if not stat.S_ISDIR(mode):
        return Slip((), f"leads to {path}, which is no directory", "move it away, or name another")
    if kind in RENAME_NOT_ATOMIC:
        words = f"is on a {kind} file system ({path}), where a rename is not atomic"
        return Slip((), words, "put it on another: documents would be lost there")
    if read_only:
        words = f"is on a file system that is mounted read-only ({path})"
        return Slip((), words, "remount it, or put the queues elsewhere")
    return None if _may(path, os.R_OK | os.W_OK | os.X_OK) else _denied(path)


def _denied(path: str) -> Slip:
    words = f"leads to {path}, which may not be changed: permission denied"
    return Slip((), words, "chmod or chown it", exit_code=_NOT_PERMITTED)


def _mention(stages: tuple[Stage, ...], queue: str) -> Path:
    """Where the file first speaks of a queue."""
    for index, stage in enumerate(stages):
        if queue in stage.inputs:
            return ("stage", index, "input")
        if queue in stage.outputs:
            return ("stage", index, "output")
    return ()


def _archives(pipeline: Pipeline, here: Here) -> Iterator[Slip]:
    """A finished document is renamed into the archive, and so stays on its file system."""
    for index, stage in enumerate(pipeline.stages):
        if stage.archive is None:
            continue
        place = ("stage", index, "archive")
        archive = _existing(stage.archive)
        if slip := _directory(archive, here):
            yield slip._replace(path=place)
            continue
        for queue in stage.inputs:
            # What is no directory has had its complaint.
            path = _existing(pipeline.path(queue))
            if os.path.isdir(path) and os.stat(archive).st_dev != os.stat(path).st_dev:
                problem = f"is on another file system than {pipeline.path(queue)}"
                yield Slip(place, problem, "right would be a directory on the same", stage.archive)
                break


def _state(pipeline: Pipeline) -> Iterator[Slip]:
    """Where the watchdog keeps what is its own."""
    state = places.state_directory()
    right = f"set {places.STATE_VARIABLE} to a directory of yours on a local disk"
    if os.path.commonpath((state, pipeline.root)) == pipeline.root:
        yield Slip((), f"the watchdog would keep its logs in {state}, below the root", right)
    elif not _may(_existing(state), os.W_OK | os.X_OK):
        problem = f"the watchdog cannot keep its logs in {state}: permission denied"
        yield Slip((), problem, right, exit_code=_NOT_PERMITTED)


def _existing(path: str) -> str:
    """The path itself, or the nearest above it that is there."""
    while not os.path.lexists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path
