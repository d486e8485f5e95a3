"""Import what the stages of a pipeline call, to see whether it can be.

Each in a process of its own, which is `programs/import_check.py`.
"""

import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import msgspec

from queuedriver.disk.processes import KILL_WAIT, MARKER, kill_marked, signal_name
from queuedriver.format.records import decode
from watchdogd.host import processors
from watchdogd.pipeline.model import Pipeline, Stage
from watchdogd.pipeline.problems import Problems
from watchdogd.programs.import_check import Outcome, last_lines

# Seconds for one module. Long for an import that fails, short for somebody who waits.
LIMIT = 5.0


def other_than_in(running: Pipeline) -> Callable[[Stage], bool]:
    """Choose the stages that load something else than any stage of a running pipeline."""
    loaded = [(stage.work, stage.preload, stage.env) for stage in running.stages]
    return lambda stage: (stage.work, stage.preload, stage.env) not in loaded


def check_imports(
    pipeline: Pipeline,
    problems: Problems,
    chosen: Callable[[Stage], bool] = lambda _: True,
    limit: float = LIMIT,
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


def _import(stage: Stage, directory: str, marker: str, limit: float) -> Outcome | None:
    """Import what a stage calls, as a driver would; return what came of it, or None when that is
    not known: it takes long, or somebody killed it, as when memory is short."""
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
