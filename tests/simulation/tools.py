"""Programs of their own, as a command is: they know paths, and nothing of queues.

What they do are steps of their driver's process, and what they are killed by kills it, too.
"""

import errno
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any

from queuedriver.processors.call import CallProcessor
from tests.simulation.kernel import Kernel
from tests.simulation.scene import LARGE, initial, kind_of, output

_READ = os.O_RDONLY | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
_LIMIT = 1 << 16


class Tool(CallProcessor):
    """Calls a function, but where the docid says that a program does the work."""

    def __init__(
        self,
        function: Callable[..., Any],
        kernel: Kernel,
        worked: Callable[[bytes], None],
        noting: Callable[[bytes], AbstractContextManager[None]],
    ) -> None:
        super().__init__(function)
        self._kernel = kernel
        self._worked = worked
        self._noting = noting

    def process(self, document: Any, outputs: Any, limits: Any) -> None:
        kind = kind_of(document.docid)
        if kind not in ("tool", "large"):
            super().process(document, outputs, limits)
            return
        size = LARGE if kind == "large" else 0
        data = initial(document.docid).data
        limits.run(self._copy, document.path, outputs.reserve(), data, size)

    def _copy(self, source: str, target: str, data: bytes, size: int) -> None:
        """As `cp` does, but for what it does with the bytes. It says what went wrong in words."""
        try:
            with self._noting(data):
                self._worked(read(self._kernel, source))
                write(self._kernel, target, output(data, 0), size)
                self._kernel.stat(target)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                # What is half of it is removed first: then there is room again.
                with suppress(OSError):
                    self._kernel.unlink(target)
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
