"""Check whether a pipeline can run on this host: all that its file alone does not tell, at once.

Programs, modules, the file systems of the queues, permissions, memory. Nothing is made and nothing
is changed. What does not keep the pipeline from running is a note. Modules are imported only where
somebody asks for it, each in a process of its own, which is `programs/import_check.py`.
"""

import os
import signal
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Self

import msgspec

from queuedriver.disk.mounts import RENAME_NOT_ATOMIC, filesystem_type
from queuedriver.disk.processes import KILL_WAIT, MARKER, kill_marked, signal_name
from queuedriver.errors import ConfigError, FileSystemTrouble, NotPermitted, is_trouble
from queuedriver.format.records import decode
from watchdogd import driver_ids
from watchdogd.host import physical_memory, processors
from watchdogd.pipeline.model import Pipeline, Stage
from watchdogd.pipeline.problems import NOTHING, BadPipeline, Path, Problem, Problems
from watchdogd.pipeline.read import NO_NUMBERS, Numbers, study
from watchdogd.pipeline.rules import remarks_on
from watchdogd.sizes import admit

if TYPE_CHECKING:
    from watchdogd.programs.import_check import Outcome

# What the kernel reads of a program's first line.
_FIRST_LINE = 256
# Seconds for one module. Long for an import that fails, short for somebody who waits.
IMPORT_LIMIT = 5.0

# Imports what stages call; adds what is wrong, and returns notes.
Imports = Callable[[Pipeline, Problems], list[str]]


class Fault(NamedTuple):
    """Something that the file names and that is not as it should be, with what to do."""

    problem: str
    right: str
    exit_code: int = ConfigError.exit_code
    found: object = NOTHING


# With the path in the file that each is told of.
Faults = Iterator[tuple[Path, Fault]]


class Here(NamedTuple):
    """The host that a pipeline is held against."""

    memory: int
    kind_of: Callable[[str], str] = filesystem_type


class Findings(NamedTuple):
    """A pipeline, and what was found."""

    pipeline: Pipeline
    # In the order of the file.
    problems: tuple[Problem, ...]
    # What people should know all the same.
    notes: tuple[str, ...]

    def check(self) -> Self:
        """Return them; BadPipeline when the pipeline cannot run here."""
        if self.problems:
            raise BadPipeline(self.problems, self.pipeline.root)
        return self


def examine(
    file: str,
    host: str | None = None,
    imports: Imports | None = None,
    here: Here | None = None,
    drivers: Numbers = NO_NUMBERS,
) -> Findings:
    """Read a pipeline and hold it against this host; BadPipeline when it cannot be read. Without
    `imports`, nothing that its stages call is imported."""
    here = here or Here(physical_memory())
    pipeline, problems = study(file, host, drivers)
    slow = [] if imports is None else imports(pipeline, problems)
    for path, fault in (
        *_programs(pipeline),
        *_directories(pipeline, here),
        *_archives(pipeline, here),
        *_folders(pipeline, here),
        *_state(pipeline),
    ):
        problems.add(path, *fault)
    admission = admit(pipeline, here.memory)
    for refusal in admission.refusals:
        problem, _, right = refusal.rpartition("; ")
        problems.add(("host",) if ("host",) in problems.lines else (), problem, right)
    notes = (*admission.words, *remarks_on(pipeline), *slow, *_hints(here))
    return Findings(pipeline, BadPipeline(problems.found).problems, notes)


def _hints(here: Here) -> Iterator[str]:
    chosen, state = driver_ids.chosen_directory(), driver_ids.state_directory(here.kind_of)
    kind = driver_ids.kind_there(chosen, here.kind_of)
    local = f"set {driver_ids.STATE_VARIABLE} to a directory on a local disk"
    if state != chosen:
        yield (
            f"{chosen} is on a {kind} file system, for which a watchdog must not wait: it keeps "
            f"its logs in {state}, which may be gone when the host is started anew; {local}"
        )
    elif driver_ids.may_hang(kind):
        yield (
            f"{state}, where the watchdog keeps its logs, is on a {kind} file system: while that "
            f"does not answer, neither does the watchdog; {local}"
        )


# Programs


def _programs(pipeline: Pipeline) -> Faults:
    usual = os.environ.get("PATH", os.defpath)
    programs: list[tuple[Path, str, str]] = [
        (("stage", index, stage.kind), stage.work[0], stage.env.get("PATH", usual))
        for index, stage in enumerate(pipeline.stages)
        # A stage without drivers here need not have its program here.
        if isinstance(stage.work, tuple) and stage.drivers.max
    ]
    if pipeline.on_event:
        programs.append((("pipeline", "on_event"), pipeline.on_event[0], usual))
    for path, word, search in programs:
        if fault := _program(word, pipeline.directory, search):
            yield path, fault


def _program(word: str, directory: str, search: str) -> Fault | None:
    """Return what is wrong with a program; None when it can be run."""
    # A driver's current directory is the pipeline's, so what is relative in PATH starts there, too.
    ways = [""] if os.sep in word else search.split(os.pathsep)
    paths = [os.path.join(directory, way, word) for way in ways]
    for path in paths:
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return _interpreter(path)
    if there := next(filter(os.path.exists, paths), ""):
        return Fault(f"names {there}, which is no file that may be run", f"chmod +x {there}")
    if os.sep in word:
        return Fault(f"names {paths[0]}, which does not exist", "correct the path")
    problem = f"names {word!r}, which is not on the PATH ({search})"
    return Fault(problem, "install it, or give its path")


def _interpreter(path: str) -> Fault | None:
    """Return what is wrong with the first line of a script."""
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
    problem = f"names {path}, whose first line names {missing!r}, which does not exist"
    return Fault(problem, "install that, or correct the first line")


# Directories


def _directories(pipeline: Pipeline, here: Here) -> Faults:
    """Yield what is wrong with the root or, where it is as it should be, with every queue in it
    that is there already."""
    root = pipeline.root
    parent = os.path.dirname(root)
    if os.path.lexists(root) or os.path.lexists(parent):
        fault = _directory(root if os.path.lexists(root) else parent, here)
    else:
        problem = f"is {root}, and {parent} does not exist either"
        fault = Fault(problem, "mkdir it, or mount what is to be there")
    if fault is not None:
        yield ("pipeline", "root"), fault
        return
    for queue in pipeline.queues:
        path = pipeline.path(queue)
        if os.path.lexists(path) and (fault := _directory(path, here)):
            yield _mention(pipeline.stages, queue), fault


def _directory(path: str, here: Here) -> Fault | None:
    """Return what keeps a directory from holding queues, or from being one."""
    try:
        mode = os.stat(path).st_mode
        read_only = os.statvfs(path).f_flag & os.ST_RDONLY
    except FileNotFoundError:
        return Fault(f"leads to {path}, a symbolic link to nowhere", "correct or remove it")
    except PermissionError:
        return _denied(path)
    except OSError as error:
        if not is_trouble(error):
            raise
        problem = f"is at {path}, where the file system says: {error.strerror}"
        return Fault(problem, "try again when it is well", FileSystemTrouble.exit_code)
    kind = here.kind_of(path)
    if not stat.S_ISDIR(mode):
        return Fault(f"leads to {path}, which is no directory", "move it away, or name another")
    if kind in RENAME_NOT_ATOMIC:
        problem = f"is on a {kind} file system ({path}), where a rename is not atomic"
        return Fault(problem, "put it on another: documents would be lost there")
    if read_only:
        problem = f"is on a file system that is mounted read-only ({path})"
        return Fault(problem, "remount it, or put the queues elsewhere")
    return None if os.access(path, os.R_OK | os.W_OK | os.X_OK) else _denied(path)


def _denied(path: str) -> Fault:
    problem = f"leads to {path}, which may not be changed: permission denied"
    return Fault(problem, "chmod or chown it", NotPermitted.exit_code)


def _mention(stages: tuple[Stage, ...], queue: str) -> Path:
    """Return where the file first speaks of a queue."""
    for index, stage in enumerate(stages):
        if queue in stage.inputs:
            return ("stage", index, "input")
        if queue in stage.outputs:
            return ("stage", index, "output")
    return ()


def _archives(pipeline: Pipeline, here: Here) -> Faults:
    """Yield what is wrong with archives: a finished document is renamed into one, and so stays on
    its file system."""
    for index, stage in enumerate(pipeline.stages):
        if stage.archive is None:
            continue
        archive = driver_ids.existing(stage.archive)
        fault = _directory(archive, here)
        for queue in map(pipeline.path, stage.inputs):
            there = driver_ids.existing(queue)
            # What is no directory has had its problem.
            if fault or not os.path.isdir(there):
                continue
            if os.stat(archive).st_dev != os.stat(there).st_dev:
                problem = f"is on another file system than {queue}"
                right = "right would be a directory on the same"
                fault = Fault(problem, right, found=stage.archive)
        if fault is not None:
            yield ("stage", index, "archive"), fault


def _folders(pipeline: Pipeline, here: Here) -> Faults:
    """Yield what is wrong with the folders of intakes."""
    intakes = [stage for stage in pipeline.stages if stage.intake is not None]
    for index, stage in enumerate(intakes):
        if stage.intake is None or not stage.drivers.max:
            continue
        folder, options = stage.intake.folder, stage.intake.options
        if not os.path.lexists(folder):
            fault: Fault | None = Fault(f"names {folder}, which does not exist", "mkdir it")
        else:
            fault = _folder(folder) if options.leaves else _directory(folder, here)
        if fault is not None:
            yield ("intake", index, "from"), fault


def _folder(path: str) -> Fault | None:
    """Return what keeps a folder from being read that is to stay as it is."""
    return None if os.access(path, os.R_OK | os.X_OK) else _denied(path)


def _state(pipeline: Pipeline) -> Faults:
    """Yield what is wrong with where the watchdog keeps what is its own."""
    state = driver_ids.state_directory()
    right = f"set {driver_ids.STATE_VARIABLE} to a directory of yours on a local disk"
    if os.path.commonpath((state, pipeline.root)) == pipeline.root:
        problem = f"the watchdog would keep its logs in {state}, below the root"
        yield (), Fault(problem, right)
    elif not os.access(driver_ids.existing(state), os.W_OK | os.X_OK):
        problem = f"the watchdog cannot keep its logs in {state}: permission denied"
        yield (), Fault(problem, right, NotPermitted.exit_code)


# Modules


def other_than_in(running: Pipeline) -> Callable[[Stage], bool]:
    """Choose the stages that load something else than any stage of a running pipeline."""
    loaded = [(stage.work, stage.preload, stage.env) for stage in running.stages]
    return lambda stage: (stage.work, stage.preload, stage.env) not in loaded


def check_imports(
    pipeline: Pipeline,
    problems: Problems,
    chosen: Callable[[Stage], bool] = lambda _: True,
    limit: float = IMPORT_LIMIT,
) -> list[str]:
    """Import what stages call that get drivers here, a few at a time; return a note for each of
    which that does not tell in time. What is wrong shows at once, and models load for minutes."""
    stages = {
        index: stage
        for index, stage in enumerate(pipeline.stages)
        if stage.kind == "call" and stage.drivers.max and chosen(stage)
    }
    if not stages:
        return []
    # Late: a watchdog that runs never imports anything here.
    import secrets
    from concurrent.futures import ThreadPoolExecutor

    marker = f"check-{os.getpid()}-{secrets.token_hex(4)}"
    notes = []
    try:
        with ThreadPoolExecutor(max(processors(), 2)) as threads:
            outcomes = threads.map(
                lambda stage: _import(stage, pipeline.directory, marker, limit), stages.values()
            )
            for (index, stage), outcome in zip(stages.items(), outcomes, strict=True):
                if outcome is None:
                    notes.append(
                        f"stage {stage.name!r}: whether its module can be imported is not known; "
                        f"it takes more than {limit:g} s, for which nobody waited, or was killed"
                    )
                elif outcome.problem:
                    path = ("stage", index, outcome.key)
                    problems.add(path, outcome.problem, outcome.right, detail=outcome.detail)
    finally:
        # What they have started, and have not ended.
        kill_marked([marker])
    return notes


def _import(stage: Stage, directory: str, marker: str, limit: float) -> "Outcome | None":
    """Import what a stage calls, as a driver would; return what came of it, or None when that is
    not known: it takes long, or somebody killed it, as when memory is short."""
    import subprocess
    import tempfile

    from watchdogd.programs.import_check import Outcome, last_lines

    with tempfile.TemporaryFile() as report, tempfile.TemporaryFile() as printed:
        preload = stage.preload if isinstance(stage.preload, str) else ""
        order = (directory, str(stage.work), preload, str(report.fileno()), str(os.getpid()))
        process = subprocess.Popen(
            (sys.executable, "-P", "-m", "watchdogd.programs.import_check", *order),
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=printed,
            env={**os.environ, **stage.env, MARKER: marker},
            pass_fds=(report.fileno(),),
        )
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            process.kill()
            # One that hangs in a file system is left to it.
            with suppress(subprocess.TimeoutExpired):
                process.wait(KILL_WAIT)
        report.seek(0)
        with suppress(msgspec.DecodeError):
            return decode(report.read(), Outcome)
        if process.returncode in (None, -signal.SIGKILL):
            return None
        printed.seek(0)
        code = process.returncode
        ended = f"ended by {signal_name(-code)}" if code < 0 else f"exit code {code}"
        return Outcome(
            key="call",
            problem=f"cannot work: importing it ended the process: {ended}",
            right="see what the module does while it is imported",
            detail=last_lines(printed.read().decode(errors="backslashreplace").splitlines()),
        )
