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
from queuedriver.intake.handover import Place

CONTENTS = "contents"
_LONGEST = 4096
_is_sum = re.compile("[0-9a-f]{64}").fullmatch


class Contents:
    """What entered lately."""

    def __init__(self, directory: Directory, remember: float) -> None:
        self._directory = directory
        self._remember = remember
        self._sweep_at = -math.inf

    def sweep(self, now: float) -> None:
        """Remove what is not remembered any longer, if that is due; `now` is monotonic."""
        if now < self._sweep_at:
            return
        self._sweep_at = now + SWEEP_EVERY
        row = Leftover("content", "", self._remember, _is_sum, lambda *_: False, "remove")
        with suppress(OSError):
            sweep_row(Swept(self._directory, self._directory), row, most=None)

    def look(self, place: Place) -> tuple[str, str]:
        """Return the content of a file, as one sum, and what that is a duplicate of, in words; ""
        when of nothing."""
        with open_fd(place.directory.open_read(place.name)) as fd:
            found = digest(fd)
        with suppress(FileNotFoundError):
            age = time.time() - self._directory.status(found).st_mtime
            if age < self._remember:
                docid = self._directory.read(found, _LONGEST).decode(errors="replace")
                return found, f"its content entered before, as {docid}"
        return found, ""

    def entered(self, found: str, docid: str) -> None:
        """Note the content of what is in the queue now."""
        self._directory.write_aside(found, docid.encode())
