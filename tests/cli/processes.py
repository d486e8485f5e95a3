"""The command in a process of its own, as people run it."""

import codecs
import contextlib
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.cli.queues import PATIENCE, Called

QUEUEDRIVER = (sys.executable, "-m", "queuedriver")
# Where `python -m queuedriver` finds what this very Python has.
ENVIRON = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

_READ_ONLY = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" || exit 99; shift; exec "$@"'
_BUSY = 'mount --bind "$1" "$1" || exit 99; shift; exec "$@"'
_FULL = 'mount -t tmpfs -o size=256k none "$1" || exit 99; shift; exec "$@"'


def command(
    *args: str | bytes | Path,
    cwd: Path | None = None,
    stdin: bytes = b"",
    prefix: Sequence[str | Path] = (),
    program: str = "queuedriver",
    **environ: str,
) -> Called:
    """Run a command to its end."""
    ran = subprocess.run(
        [*prefix, sys.executable, "-m", program, *args],
        cwd=cwd,
        input=stdin,
        env={**ENVIRON, **environ},
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    return Called(ran.returncode, ran.stdout.decode(), ran.stderr.decode())


def start(
    *args: str | Path, cwd: Path | None = None, stderr: int = subprocess.PIPE
) -> subprocess.Popen[bytes]:
    """Start a command whose end the test awaits or brings about."""
    return subprocess.Popen(
        [*QUEUEDRIVER, *args],
        cwd=cwd,
        env=ENVIRON,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        preexec_fn=heed_signals,  # noqa: PLW1509 - the test has one thread
    )


@contextlib.contextmanager
def on_terminal(
    *args: str | Path, cwd: Path | None = None, program: str = "queuedriver"
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A command with a terminal of its own, as a person calls it, and the person's side of that."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", program, *args],
        cwd=cwd,
        env={**ENVIRON, "TERM": "xterm", "COLUMNS": "70"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=heed_signals,  # noqa: PLW1509 - the test has one thread
    )
    os.close(theirs)
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def read_until(terminal: int, pattern: str) -> str:
    """What the terminal shows, up to where it shows what is waited for."""
    seen, decoder = "", codecs.getincrementaldecoder("utf-8")()
    until = time.monotonic() + PATIENCE
    poll = select.poll()
    poll.register(terminal, select.POLLIN)
    while not re.search(pattern, seen):
        assert poll.poll(max(0.0, until - time.monotonic()) * 1000), seen
        try:
            seen += decoder.decode(os.read(terminal, 4096))
        except OSError:
            # The last process that had it open is gone.
            raise AssertionError(f"{pattern!r} never came: {seen!r}") from None
    return seen


def heed_signals() -> None:
    """A test run in the background has SIGINT ignored, and so would have what it starts."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def ended(process: subprocess.Popen[bytes]) -> Called:
    """How a command that was started ended."""
    out, err = process.communicate(timeout=PATIENCE)
    return Called(process.returncode, out.decode(), err.decode())


def unprivileged() -> list[str]:
    """What to put before a command for permissions to hold for it, as they do not for root."""
    if os.geteuid():
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("root, and no setpriv(1) to be less")
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]


def read_only(directory: Path) -> list[str | Path]:
    """What to put before a command for a directory to be on a read-only file system."""
    return _in_namespace(_READ_ONLY, directory)


def full(directory: Path) -> list[str | Path]:
    """What to put before a command for a directory to be a small file system of its own."""
    return _in_namespace(_FULL, directory)


def mounted_upon(file: Path) -> list[str | Path]:
    """What to put before a command for a file to be one that cannot be renamed."""
    return _in_namespace(_BUSY, file)


def _in_namespace(script: str, directory: Path) -> list[str | Path]:
    prefix = ["unshare", "--mount", *(["--map-root-user"] if os.geteuid() else [])]
    try:
        subprocess.run(
            [*prefix, "mount", "--bind", directory, directory], capture_output=True, check=True
        )
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("nothing can be mounted here, not even in a namespace of its own")
    return [*prefix, "sh", "-c", script, "sh", directory]


def submitted(queue: Path) -> list[dict[str, object]]:
    """What the journal has of submissions."""
    lines = [
        json.loads(line)
        for file in sorted((queue / ".queuedriver/journal").glob("*.jsonl"))
        for line in file.read_text().splitlines()
    ]
    return [line for line in lines if line["event"] == "submitted"]
