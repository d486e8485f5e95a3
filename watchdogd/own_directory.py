"""The directory of a watchdog on its host: made at the start, and again when somebody removes it.

Who removes it, as a program that tidies up does, leaves drivers that cannot be replaced: each has a
board there. One that is moved away, or on a disk that goes away, comes back with what is in it, and
is waited for.
"""

import os
from contextlib import suppress

from watchdogd.driver_ids import BOARDS, LOGS


class OwnDirectory:
    """That of one watchdog, with what is to be in it from the start."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = self._make()

    def keep(self) -> bool:
        """Make again what was removed of it; return whether that was all."""
        # Only of what was removed, not of what was moved, nothing is linked any more.
        is_removed = not os.fstat(self._fd).st_nlink
        if is_removed:
            before, self._fd = self._fd, self._make()
            os.close(before)
        else:
            self._fill()
        return is_removed

    def _make(self) -> int:
        os.makedirs(self._path, mode=0o700, exist_ok=True)
        self._fill()
        return os.open(self._path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def _fill(self) -> None:
        for name in (LOGS, BOARDS):
            # It may be moved away just now.
            with suppress(FileExistsError, FileNotFoundError):
                os.mkdir(os.path.join(self._path, name), 0o700)
