"""Tasks as child processes: which program a job may run, where, and what is left of it.

A job names a program; the client's own list says which file that is, and nothing else is ever run:
no shell, no search along PATH. It gets the task's number as its last argument, nothing on stdin, an
environment of a few words, and a process group of its own. Directories are looked for beneath the
client's roots, one part after another, and no symlink is followed on the way.
"""

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping

import msgspec

from queuedriver.disk.filesystem import Directory
from queuedriver.disk.processes import signal_name
from queuedriver.doors.fuq.wire import JobStatusUpdate, Task
from queuedriver.errors import ConfigError
from queuedriver.jobs.jobfile import NAME

# How many logs of one name are kept apart, as in the original.
_MOST_LOGS = 10_000
# Bytes of the end of a log that go into the report.
LOG_TAIL = 64 * 1024
# Read back when it is reported; nobody else reads it unless its owner lets them.
_LOG = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}


class CannotRun(Exception):
    """This client cannot run this task; another may."""


class Site(msgspec.Struct, frozen=True):
    """What a client lets jobs do."""

    # Programs by the name that a job calls them.
    allow: Mapping[str, str]
    root: str
    log_root: str


def parse_allow(given: tuple[str, ...]) -> dict[str, str]:
    """Return programs by their names, each said as `NAME=/path`; ConfigError for what can never
    be run."""
    if not given:
        raise ConfigError("no job could run anything: say what they may, as --allow sim=/opt/sim")
    found = {}
    for text in given:
        name, _, path = text.partition("=")
        if not name or not os.path.isabs(path):
            raise ConfigError(f"--allow {text}: write NAME=/absolute/path")
        if not os.access(path, os.X_OK) or os.path.isdir(path):
            raise ConfigError(f"--allow {text!r}: {path!r} is no program that may be run")
        found[name] = path
    return found


class Running:
    """One task that runs."""

    def __init__(self, task: Task, child: "subprocess.Popen[bytes]", log: int) -> None:
        self.task = task
        self.key = (task.description.job_id, task.task)
        self.started = time.time()
        self.began = time.monotonic()
        self.overdue = False
        self._child = child
        self._log = log
        try:
            self.pidfd = os.pidfd_open(child.pid)
        except OSError:
            self.kill()
            child.wait()
            os.close(log)
            raise

    def kill(self) -> None:
        """End it, and whatever it has started in its process group."""
        try:
            os.killpg(self._child.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass

    def collect(self) -> JobStatusUpdate:
        """Return the report of a task that has ended."""
        # What is left of its group; until the leader is collected its number is nobody else's.
        self.kill()
        code = self._child.wait()
        seconds = time.monotonic() - self.began
        log = _tail(self._log)
        self.close()
        return JobStatusUpdate(
            *self.key,
            success=code == 0 and not self.overdue,
            status=_status(code, self.overdue),
            exit_code=code,
            started=self.started,
            seconds=seconds,
            log=log,
        )

    def abandon(self) -> None:
        """End it; nobody wants to know how it went."""
        self.kill()
        self._child.wait()
        self.close()

    def close(self) -> None:
        os.close(self.pidfd)
        os.close(self._log)


def start(task: Task, site: Site) -> Running:
    """Run a task; CannotRun where this client may or can not."""
    job = task.description
    arguments = _arguments(task, site)
    if not NAME.fullmatch(job.name):
        raise CannotRun(f"{job.name!r} is no name for a log")
    directory = _beneath(site.root, job.working_dir, create=False)
    try:
        logs = _beneath(site.log_root, job.logging_dir, create=True)
        try:
            log = open_log(logs, job.name, task.task)
        finally:
            logs.close()
        environment = {
            **_ENVIRONMENT,
            "FUQ_JOB": str(job.job_id),
            "FUQ_NAME": job.name,
            "FUQ_TASK": str(task.task),
        }
        try:
            child = subprocess.Popen(
                arguments,
                # The directory that was found, whatever its name means by now.
                cwd=f"/proc/self/fd/{directory.fd}",
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )
        except (OSError, ValueError) as error:
            os.close(log)
            raise CannotRun(f"{arguments[0]}: {error}") from None
        return Running(task, child, log)
    finally:
        directory.close()


def open_log(directory: Directory, name: str, task: int) -> int:
    """Return a new file for what a task says; none that is there is ever touched."""
    base = f"{name}_{task}"
    for more in range(_MOST_LOGS + 1):
        try:
            return os.open(
                f"{base}-{more}.log" if more else f"{base}.log", _LOG, 0o600, dir_fd=directory.fd
            )
        except FileExistsError:
            continue
        except OSError as error:
            raise CannotRun(f"no log can be made in {directory.path}: {error.strerror}") from None
    raise CannotRun(f"there are {_MOST_LOGS} logs of {base} in {directory.path} already")


def _arguments(task: Task, site: Site) -> list[str]:
    try:
        words = shlex.split(task.description.command)
    except ValueError as error:
        raise CannotRun(f"its command cannot be split: {error}") from None
    if not words or words[0] not in site.allow:
        named = repr(words[0]) if words else "nothing"
        raise CannotRun(f"it names {named}, which is not allowed here")
    return [site.allow[words[0]], *words[1:], str(task.task)]


def _parts(root: str, path: str) -> list[str]:
    """Return a path of a job's as parts beneath a root; an absolute one has to begin with it."""
    if os.path.isabs(path):
        inside = os.path.join(root, "")
        if path != root and not path.startswith(inside):
            raise CannotRun(f"{path} is not beneath {root}")
        path = path[len(inside) :]
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in path:
        raise CannotRun(f"{path!r} may not be used: it leads elsewhere")
    return parts


def _beneath(root: str, path: str, *, create: bool) -> Directory:
    parts = _parts(root, path)
    whole = os.path.join(root, *parts)
    try:
        return Directory.open(whole, create, inside=len(parts))
    except (OSError, UnicodeEncodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no path"
        raise CannotRun(f"{whole} cannot be used: {why}") from None


def _tail(log: int) -> str:
    size = os.fstat(log).st_size
    data = os.pread(log, LOG_TAIL, max(0, size - LOG_TAIL))
    text = data.decode("utf-8", "replace")
    # What could not be read takes more room than it had.
    return text.encode()[-LOG_TAIL:].decode("utf-8", "ignore")


def _status(code: int, overdue: bool) -> str:
    if overdue:
        return "error encountered: it took longer than its time-out"
    if code == 0:
        return "done"
    signal = signal_name(-code).removeprefix("signal ") if code < 0 else ""
    return f"error encountered: {f'signal {signal}' if signal else f'exit status {code}'}"
