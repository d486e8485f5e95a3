"""From fork to exec: a program is started, and nobody waits for the disk that it is on.

posix_spawn and subprocess return once the program has been found and mapped, which on a mount that
hangs is never, and not even SIGKILL ends who waits for it. Here the child does that alone. It has
let go of everything of its parent's by then, its locks above all, so that it is in nobody's way for
as long as it hangs; and what keeps it from executing is its exit code, and a line on its stderr.
"""

import os
import signal
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NoReturn

from queuedriver.errors import BUG, NotPermitted, exit_code_of
from watchdogd.linux import die_with_parent

# A child begins as if nobody had ever touched its signals.
_SIGNALS = [number for number in signal.valid_signals() if number < signal.SIGRTMIN]
_FIXED = (signal.SIGKILL, signal.SIGSTOP)
_STDERR = 2


def code_of(error: OSError) -> int:
    """Return the exit code of a start that failed. What is not permitted may be in a minute, as
    while Python is installed anew: that counts like any start that failed."""
    code = exit_code_of(error)
    return BUG if code is None or code == NotPermitted.exit_code else code


def launch(
    argv: Sequence[str],
    environ: Mapping[str, str],
    stdio: Sequence[int],
    directory: str = "",
    *,
    tied: bool = False,
) -> int:
    """Start a program, found in PATH, in a process group of its own; return its pid. `stdio` are
    three descriptors above 2; it begins in `directory`, if given. If `tied`, the kernel tells it to
    leave when this process dies."""
    parent = os.getpid() if tied else 0
    # What is sent to the child at once is for the program, not for our handlers in it.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        with warnings.catch_warnings():
            # Threads: nothing that they may have locked is needed until exec.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if not pid:
            _execute(argv, environ, stdio, directory, parent)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    # The child does so too: whoever is first.
    with suppress(OSError):
        os.setpgid(pid, pid)
    return pid


def _execute(
    argv: Sequence[str],
    environ: Mapping[str, str],
    stdio: Sequence[int],
    directory: str,
    parent: int,
) -> NoReturn:
    """Become the program; in the child."""
    code = BUG
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        for one in _SIGNALS:
            if one not in _FIXED:
                signal.signal(one, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for number, fd in enumerate(stdio):
            os.dup2(fd, number)
        # At once, though exec would do so: it may take for ever.
        os.closerange(_STDERR + 1, os.sysconf("SC_OPEN_MAX"))
        if parent:
            die_with_parent(parent)
        if directory:
            os.chdir(directory)
        os.execvpe(argv[0], list(argv), dict(environ))
    except OSError as error:
        code = code_of(error)
        with suppress(OSError):
            os.write(_STDERR, f"{argv[0]} cannot be run: {error.strerror}\n".encode())
    finally:
        os._exit(code)
