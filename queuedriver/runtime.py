"""A directory on this host, for what must be written even when the queues' disk is not well.

`$XDG_RUNTIME_DIR/queuedriver-<uid>`, or the same in the temporary directory. A hung driver's stacks
go there: `<random>.stacks`, written by faulthandler as it ends the process.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO

from queuedriver.errors import ConfigError
from queuedriver.filesystem import Directory

# The stacks of a driver with many threads.
_MAX_STACKS = 1 << 20
# How faulthandler names the driver's own thread, and a call of ours to the file system.
_LOOP = os.path.join("queuedriver", "loop.py")
_FILES = os.path.join("queuedriver", "filesystem.py")


def runtime_directory() -> str:
    """A directory on this host for what must be written even when the queues' disk is not well."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    path = os.path.join(base or tempfile.gettempdir(), f"queuedriver-{os.getuid()}")
    os.makedirs(path, mode=0o700, exist_ok=True)
    if os.stat(path, follow_symlinks=False).st_uid != os.getuid():
        raise ConfigError(
            f"{path} belongs to another user; set XDG_RUNTIME_DIR to a directory of yours"
        )
    return path


@contextmanager
def stacks_file() -> Iterator[FileIO]:
    """Where faulthandler is to write; gone with a driver that leaves by itself."""
    number, path = tempfile.mkstemp(".stacks", dir=runtime_directory())
    os.close(number)
    try:
        with FileIO(path, "w") as file:
            yield file
    finally:
        os.unlink(path)


def read_stacks(name: str) -> str | None:
    """What a driver of this host left when its hard limit ended it; None when that is not how."""
    if not name.endswith(".stacks") or "/" in name:
        # A registration is a file that others may have written.
        return None
    with suppress(FileNotFoundError):
        directory = Directory.open(runtime_directory())
        try:
            return directory.read(name, _MAX_STACKS).decode(errors="replace").strip() or None
        finally:
            directory.close()
    return None


def waited_for_files(stacks: str) -> bool:
    """Whether a hung driver was in a call of ours to the file system, not in its processor."""
    threads = stacks.split("most recent call first):")
    ours = next((one for one in threads if _LOOP in one), "")
    innermost = ours.strip().partition("\n")[0]
    return _FILES in innermost


def forget_stacks(name: str) -> None:
    """They are in the reports now."""
    if name.endswith(".stacks") and "/" not in name:
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(runtime_directory(), name))
