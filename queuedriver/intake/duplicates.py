"""Which content entered before: `home/contents/<sha256>`, with the docid in it.

Noted when it is in the queue, so that nothing is lost by a crash in between; two intakes that take
the same content at the same moment may both let it in. What entered too long ago is removed.
"""

import math
import re
import time
from contextlib import suppress

from queuedriver.claims.leftovers import SWEEP_EVERY, Leftover, Swept, sweep_row
from queuedriver.disk.filesystem import Directory, open_fd
from queuedriver.intake.contents import digest

CONTENTS = "contents"
_LONGEST = 4096
_is_sum = re.compile("[0-9a-f]{64}").fullmatch


class Contents:
    """What entered lately; without a directory nothing is remembered, and nothing a duplicate."""

    def __init__(self, directory: Directory | None, remember: float) -> None:
        self._directory = directory
        self._remember = remember
        # The sums of what is about to enter, each by what tells it from the others.
        self._entering: dict[str, str] = {}
        self._sweep_at = -math.inf

    def sweep(self, now: float) -> None:
        """Remove what is not remembered any longer, if that is due; `now` is monotonic."""
        if self._directory is None or now < self._sweep_at:
            return
        self._sweep_at = now + SWEEP_EVERY
        row = Leftover("content", "", self._remember, _is_sum, lambda *_: False, "remove")
        with suppress(OSError):
            sweep_row(Swept(self._directory, self._directory), row, most=None)

    def why(self, directory: Directory, name: str, one: str) -> str:
        """Return what a file that is about to enter is a duplicate of, in words; "" when of
        nothing."""
        if self._directory is None:
            return ""
        with open_fd(directory.open_read(name)) as fd:
            found = digest(fd)
        with suppress(FileNotFoundError):
            age = time.time() - self._directory.status(found).st_mtime
            if age < self._remember:
                docid = self._directory.read(found, _LONGEST).decode(errors="replace")
                return f"its content entered before, as {docid}"
            self._directory.remove(found)
        twin = next((other for other, sum in self._entering.items() if sum == found), one)
        self._entering.setdefault(one, found)
        return "" if twin == one else f"its content is entering, as {twin}"

    def entered(self, one: str, docid: str) -> None:
        """Note the content of what is in the queue now."""
        found = self._entering.pop(one, None)
        if found is not None and self._directory is not None:
            self._directory.write_aside(found, docid.encode())

    def gone(self, one: str) -> None:
        """Forget what did not enter."""
        self._entering.pop(one, None)
