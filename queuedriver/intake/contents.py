"""Whether the content of a file is whole: by its end, by a command, or by a list of sums."""

import hashlib
import os
import subprocess
from collections.abc import Callable

from queuedriver.disk.filesystem import Directory
from queuedriver.errors import LATER
from queuedriver.intake.rules import WAITING_MARKER, Refused, Verdict, Waits
from queuedriver.processors.program import split_command

# Bytes from the end of a file in which its format has its end: what is appended to a PDF, and the
# longest comment of a ZIP.
_PDF_END = 2048
_ZIP_END = 65557
# How long a command may take to say whether a file is whole, in seconds.
_PATIENCE = 60.0
# A list of sums of more than this is none; in bytes.
_LONGEST_SUMS = 64 << 20
# What of the words of a command is kept, in characters.
_SAID = 200


def _is_pdf(head: bytes, tail: bytes) -> bool:
    return head.startswith(b"%PDF-") and b"%%EOF" in tail[-_PDF_END:]


def _is_zip(head: bytes, tail: bytes) -> bool:
    return head.startswith(b"PK") and b"PK\x05\x06" in tail


def _is_jpeg(head: bytes, tail: bytes) -> bool:
    return head.startswith(b"\xff\xd8") and tail.rstrip(b"\0").endswith(b"\xff\xd9")


_WHOLE: dict[str, Callable[[bytes, bytes], bool]] = {
    "pdf": _is_pdf,
    "zip": _is_zip,
    "jpeg": _is_jpeg,
}


def of_end(fd: int, path: str, complete: str) -> Verdict:
    """Return what the content of a file says against it; None when it is whole."""
    is_whole = _WHOLE.get(complete)
    if is_whole is None:
        return _ask(complete, path)
    size = os.fstat(fd).st_size
    tail = os.pread(fd, _ZIP_END, max(0, size - _ZIP_END))
    return None if is_whole(os.pread(fd, 8, 0), tail) else Waits(f"{complete} has no end")


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
