"""Programs of their own, as a command is: they know paths, and nothing of queues.

What they do are steps of their driver's process, and what they are killed by kills it, too.
"""

import errno
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

from tests.simulation.kernel import Kernel
from tests.simulation.scene import LARGE, Submission, output

_READ = os.O_RDONLY | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
_LIMIT = 1 << 16


class Copy:
    """As `cp` from one path to another, but for what it does with the bytes."""

    def __init__(
        self,
        kernel: Kernel,
        submission: Submission,
        worked: Callable[[bytes], None],
        noting_faults: Callable[[bytes], AbstractContextManager[None]],
    ) -> None:
        self._kernel = kernel
        self._submission = submission
        self._worked = worked
        self._noting_faults = noting_faults

    def __call__(self, source: str, target: str) -> None:
        """It says what went wrong in words; and before it does, removes what is half done."""
        kernel = self._kernel
        try:
            with self._noting_faults(self._submission.data):
                data = read(kernel, source)
                self._worked(data)
                size = LARGE if self._submission.kind == "large" else 0
                write(kernel, target, output(data, 0), size)
                kernel.stat(target)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                with suppress(OSError):
                    kernel.unlink(target)
            raise RuntimeError(f"cp: {error.filename}: {error.strerror}") from None


def read(kernel: Kernel, path: str) -> bytes:
    fd = kernel.open(path, _READ)
    try:
        return kernel.read(fd, _LIMIT)
    finally:
        kernel.close(fd)


def write(kernel: Kernel, path: str, data: bytes, size: int = 0) -> None:
    """A file with these bytes, and with so many more of which nobody knows the value."""
    fd = kernel.open(path, _WRITE, 0o666)
    try:
        if size:
            kernel.posix_fallocate(fd, 0, size)
        while data:
            data = data[kernel.write(fd, data) :]
    finally:
        kernel.close(fd)
