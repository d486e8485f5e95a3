"""What is in a file: whether it is whole, by its end, by a command, or by a list of sums; and
whether it entered before, by `home/contents/<sha256>`, with the docid in it.

The last is noted when it is in the queue, so that nothing is lost by a crash in between; two
intakes that take the same content at the same moment may both let it in. What entered too long ago
is removed.
"""

import hashlib
import math
import os
import re
import subprocess
import time
from contextlib import suppress

from queuedriver.claims.leftovers import SWEEP_EVERY, Leftover, Swept, sweep_rows
from queuedriver.disk.filesystem import Directory, open_fd
from queuedriver.errors import LATER
from queuedriver.intake.rules import WAITING_MARKER, Refused, Verdict, Waits
from queuedriver.processors.program import split_command

# Bytes from the end of a file in which its format has its end: of a PDF much may be appended, and
# of a ZIP this is the longest comment.
_END = 65557
# How long a command may take to say whether a file is whole, in seconds.
_PATIENCE = 60.0
CONTENTS = "contents"
# A docid; in bytes.
_LONGEST = 4096
_is_sum = re.compile("[0-9a-f]{64}").fullmatch
# A list of sums of more than this is none; in bytes.
_LONGEST_SUMS = 64 << 20
# What of the words of a command is kept, in characters.
_SAID = 200


# By kind: how such a file begins, and what is near its end.
_WHOLE = {
    "pdf": (b"%PDF-", re.compile(rb"%%EOF(?s:.{,2043})\Z")),
    "zip": (b"PK", re.compile(rb"PK\x05\x06")),
    "jpeg": (b"\xff\xd8", re.compile(rb"\xff\xd9\0*\Z")),
}


def of_end(fd: int, path: str, complete: str) -> Verdict:
    """Return what the content of a file says against it; None when it is whole."""
    if complete not in _WHOLE:
        return _ask(complete, path)
    begins, ends = _WHOLE[complete]
    tail = os.pread(fd, _END, max(0, os.fstat(fd).st_size - _END))
    is_whole = os.pread(fd, len(begins), 0) == begins and ends.search(tail)
    return None if is_whole else Waits(f"{complete} has no end")


def _ask(words: str, path: str) -> Verdict:
    """Ask a command: 0 is yes, 75 not yet, and everything else no."""
    try:
        answer = subprocess.run(
            [*split_command(words), path],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Waits(f"complete could not be asked: {error}")
    if not answer.returncode:
        return None
    said = (answer.stdout + answer.stderr).decode(errors="replace").strip()[:_SAID]
    why = f"complete says {answer.returncode}{': ' if said else ''}{said}"
    return Waits(why) if answer.returncode == LATER else Refused(why)


def of_sums(directory: Directory, name: str, fd: int, manifest: str) -> Waits | None:
    """Return how a file differs from what the manifest beside it says; None when it does not."""
    try:
        sums = directory.read(manifest, _LONGEST_SUMS).decode(errors="replace")
    except FileNotFoundError:
        return Waits(f"waits for {manifest}", state=WAITING_MARKER)
    lines = (line.split(maxsplit=1) for line in sums.splitlines())
    listed = {parts[-1].lstrip("*"): parts[0].lower() for parts in lines if len(parts) == 2}
    if (wanted := listed.get(name)) is None:
        return Waits(f"waits to be listed in {manifest}", state=WAITING_MARKER)
    return None if digest(fd) == wanted else Waits(f"is not what {manifest} says")


def digest(fd: int) -> str:
    """Return the SHA-256 of a file."""
    with open(fd, "rb", closefd=False) as file:
        file.seek(0)
        return hashlib.file_digest(file, "sha256").hexdigest()


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
            sweep_rows(Swept(self._directory, self._directory), [row], most=None)

    def look(self, directory: Directory, name: str) -> tuple[str, str]:
        """Return the content of a file, as one sum, and what that is a duplicate of, in words; ""
        when of nothing."""
        with open_fd(directory.open_read(name)) as fd:
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
