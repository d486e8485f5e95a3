"""The program of a command or a server: found once, started without a shell, and how it failed.

posix_spawn starts it as the leader of a process group of its own. No preexec_fn: that needs a fork,
which copies the page tables of a parent of gigabytes. Every signal is back at its default: that a
driver records SIGTERM and Python ignores SIGPIPE is not for a child to inherit.
"""

import contextlib
import errno
import os
import shlex
import signal
from collections.abc import Mapping, Sequence

from queuedriver.claims.document import Outputs
from queuedriver.disk.processes import MARKER, kill_marked
from queuedriver.errors import ConfigError, ProcessorFailed, TryLater, is_trouble, trouble
from queuedriver.format.records import Failure
from queuedriver.processors.child import Child, Ended, Tail

# What spawn says when the machine is short of something; it says nothing about the document.
_SHORTAGES = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY, errno.EINTR}
# In seconds: long enough for a build or a neighbour to finish.
_SHORTAGE_DELAY = 10.0
_DEFAULT_SIGNALS = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
# As os.environ and os.environb have one.
Environ = Mapping[str, str] | Mapping[bytes, bytes]


class Program:
    """A processor that is a program: how it is found, how it is started, and how it failed."""

    writes_output = True
    # From SIGTERM to SIGKILL, in seconds: what supervisors of long standing give.
    grace = 5.0

    def __init__(self, command: str | Sequence[str]) -> None:
        self.arguments = split_command(command)
        self.name = shlex.join(self.arguments)

    def start(self, marker: str) -> None:
        """Find the executable, and make the environment that its children get."""
        # In bytes, because posix_spawn would encode all of it for each document.
        self._environ = {**os.environb, MARKER.encode(): os.fsencode(marker)}
        self._path = _find(self.arguments[0], os.environ.get("PATH", os.defpath))
        prepare()

    def stop(self) -> None:
        """Kill what its children have left running outside of their process groups."""
        kill_marked([os.fsdecode(self._environ[MARKER.encode()])])

    def spawn(self, arguments: list[str], stdin: int | None, stdout: int, stderr: int) -> Child:
        """Start it once. Without `stdin` it reads an empty one."""
        try:
            return spawn(self._path, arguments, self._environ, stdin, stdout, stderr)
        except OSError as error:
            raise _cannot_start(error, self._path) from None

    def failed(self, cause: str, words: str, stderr: Tail, ended: Ended) -> ProcessorFailed:
        """Return what to raise for a document at whose processing it ended, or was ended."""
        if ended.hung:
            cause, words = "hung", stderr.after("does not end, not even by SIGKILL")
        return ProcessorFailed(
            Failure(
                cause=cause,
                message=f"{self.arguments[0]} {words}",
                permanent=cause == "permanent",
                exit_code=ended.exit_code,
                signal=ended.signal,
                stderr_tail=stderr.text(),
                peak_memory=ended.peak_memory,
            )
        )

    def has_written(
        self, outputs: Outputs, path: str, place: str, missing: str, stderr: Tail, ended: Ended
    ) -> bool:
        """Return whether it left a file at the path that it was given; raise for anything else
        there, called `place`. Nothing there is wrong only where it is said what is `missing`."""
        wrong = f"left something that is not a regular file at {place}"
        try:
            if outputs.is_file(path):
                return True
        except FileNotFoundError:
            wrong = missing
        if wrong:
            raise self.failed("bad-answer", stderr.after(wrong), stderr, ended)
        return False


def prepare() -> None:
    """Let the kernel tell how children end, and let them inherit nothing that is not for them."""
    # Whoever started us may have left SIGCHLD ignored; then the kernel throws away how our children
    # end. Not in the main thread: whoever runs processors there has to see to it.
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        with contextlib.suppress(ValueError):
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # Where we were started with one of the three standard descriptors closed, a pipe of ours could
    # become it, and be overwritten while a child's own are put in place.
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)
    # Python's own are not inherited. What our starter left open would be: a child that stays would
    # hold a lock of somebody's, or keep a pipe from ending.
    for fd in sorted(map(int, os.listdir("/proc/self/fd")))[3:]:
        # The listing's own descriptor is gone by now.
        with contextlib.suppress(OSError):
            os.set_inheritable(fd, False)  # noqa: FBT003 - the name says what it sets


def spawn(
    path: str, arguments: list[str], environ: Environ, stdin: int | None, stdout: int, stderr: int
) -> Child:
    """Start a program once, in the directory that we are in. Without `stdin` it reads an empty one.
    OSError where it cannot be started."""
    null = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0)
    pid = os.posix_spawn(
        path,
        arguments,
        environ,
        file_actions=(
            null if stdin is None else (os.POSIX_SPAWN_DUP2, stdin, 0),
            (os.POSIX_SPAWN_DUP2, stdout, 1),
            (os.POSIX_SPAWN_DUP2, stderr, 2),
        ),
        setpgroup=0,
        setsigmask=(),
        setsigdef=_DEFAULT_SIGNALS,
    )
    return Child(pid)


def split_command(command: str | Sequence[str]) -> list[str]:
    """Return the arguments of a command; a string is split as a shell would, and not run by one."""
    try:
        arguments = shlex.split(command) if isinstance(command, str) else list(command)
    except ValueError as error:
        raise ConfigError(f"the command {command!r} cannot be split: {error}") from None
    for one in arguments if isinstance(command, str) else ():
        if one in ("|", "||", "&&", "&", ">", ">>", "<", "2>", "2>&1"):
            raise ConfigError(
                f"the command {command!r} has {one!r}, which only a shell understands, and no "
                "shell runs it; put it into a script"
            )
    if not arguments or not arguments[0]:
        raise ConfigError("the command is empty; give a program and its arguments")
    if any("\0" in one for one in arguments):
        raise ConfigError(f"the command {arguments!r} has a NUL byte in it")
    return arguments


def _find(name: str, search: str) -> str:
    # Late: it brings along what reads archives, and not every driver has a command.
    import shutil

    found = shutil.which(name, path=search)
    if found is not None:
        return os.path.abspath(found)
    if os.sep in name:
        where = os.path.abspath(name)
        what = "is not an executable file" if os.path.exists(where) else "does not exist"
        raise ConfigError(f"the program {where} {what}; correct the command, or chmod +x it")
    raise ConfigError(
        f"the program {name!r} is not on the PATH ({search}); install it, or give its full path"
    )


def cannot_start_now(program: str, reason: str) -> TryLater:
    """Return what to raise where the machine is short of something."""
    return TryLater(_SHORTAGE_DELAY, f"{program} cannot be started now: {reason}")


def _cannot_start(error: OSError, path: str) -> Exception:
    number = error.errno or 0
    reason = os.strerror(number)
    if number in _SHORTAGES:
        return cannot_start_now(path, reason)
    if is_trouble(error):
        return trouble(error, f"starting {path}")
    hint = {
        errno.ENOENT: "it was removed, or the interpreter its first line names is missing",
        errno.ENOEXEC: "its first line must name its interpreter, as in #!/bin/sh",
        errno.ENOSYS: "the kernel is older than 5.3, which was the first to have pidfds",
        errno.E2BIG: "the environment and the arguments are larger than the system passes on",
    }.get(number, "look at its permissions")
    return ConfigError(f"{path} cannot be started: {reason}; {hint}")
