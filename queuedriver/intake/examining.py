"""A look at one file, what the rules say of it, and what is in it: to an intake, and to whoever
asks from outside why a file was not taken yet.

What costs little is asked first, and what a file says of its end only when it has stood still. What
entered is remembered by `home/contents/<sha256>`, with the docid in it. That is noted when it is in
the queue, so that nothing is lost by a crash in between; two intakes that take the same content at
the same moment may both let it in.

For whoever asks nothing is changed. The rules are those that the intakes of the folder were told
last. For how long a file has stood still they know, and we go by its times, and by the clock.
"""

import errno
import hashlib
import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from queuedriver.claims.leftovers import Leftover, Swept, sweep_rows
from queuedriver.disk.filesystem import Directory, open_fd
from queuedriver.errors import LATER, NotFound
from queuedriver.format import names
from queuedriver.format.records import read_record
from queuedriver.intake import rules
from queuedriver.intake.folder import writers
from queuedriver.intake.home import living, told_of
from queuedriver.intake.ledger import LEDGER, Entry, key_of
from queuedriver.intake.options import IntakeOptions, Told, fill
from queuedriver.intake.rules import WAITING_MARKER, Facts, Past, Refused, Verdict, Waits
from queuedriver.processors.program import split_command

# How soon the content of a file that has not changed is asked again, in seconds.
_ASK_AGAIN = 10.0
# What a file says that is somebody's for now; that we may not have until somebody lets us; and what
# says that it is none.
_BUSY = (errno.EBUSY, errno.ETXTBSY, errno.EAGAIN)
_FORBIDDEN = (errno.EACCES, errno.EPERM)
_NO_FILE = (errno.ELOOP, errno.ENXIO, errno.EISDIR)

_NOTHING = "nothing speaks against it"
# In the flags of an open file, as octal digits: not for reading alone.
_FOR_WRITING = os.O_WRONLY | os.O_RDWR

NOT_REGULAR = Refused("is not a regular file")

# Bytes from the end of a file in which its format has its end: of a PDF much may be appended, and
# of a ZIP this is the longest comment.
_END = 65557
# How long a command may take to say whether a file is whole, in seconds.
_ANSWERS_WITHIN = 60.0
CONTENTS = "contents"
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


def examine(
    told: Told,
    directory: Directory,
    name: str,
    past: Past | None,
    now: float,
    *,
    claimed: bool = False,
    known: Facts | None = None,
) -> tuple[Past | None, Verdict]:
    """Return what is known of a file now, and what speaks against it. Once it is `claimed` other
    files say nothing of it any more; nor does it settle again, or say of its end, as long as it is
    what is `known` since then. But somebody may have it open."""
    try:
        fd = directory.open_read(name)
    except OSError as error:
        if error.errno in _NO_FILE:
            return past, NOT_REGULAR
        if error.errno in (*_BUSY, *_FORBIDDEN):
            seconds = 1.0 if error.errno in _BUSY else None
            return past, Waits(f"cannot be read: {error.strerror}", seconds)
        raise
    with open_fd(fd):
        facts = rules.facts_of(os.fstat(fd))
        if facts is None:
            return None, NOT_REGULAR
        past = rules.remember(past, facts, now)
        is_same = known is not None and known.content == facts.content
        against: Verdict = None
        if not is_same:
            by_size = rules.of_size(past, told.options, now)
            against = by_size or rules.settling(past, told.quick, now)
        if against is None and not claimed:
            by_age = rules.of_age(facts, told.options, time.time())
            against = by_age or _of_others(told.options, directory, name)
        if against is None:
            past = past._replace(looked_settled=True)
            found = writers(fd) if told.leases else "unknown"
            against = rules.of_writers(past, found, told.slow, now)
        if against is None and not is_same:
            against = _of_content(told.options, directory, name, fd, claimed=claimed)
            if isinstance(against, Waits):
                against = against._replace(at_least=_ASK_AGAIN)
    return past, against


def _of_others(options: IntakeOptions, directory: Directory, name: str) -> Waits | None:
    """Return what other files say of this one."""
    for form in rules.BESIDE:
        if directory.present(other := fill(form, name)):
            return Waits(f"{other} is beside it: it is being written")
    if options.done is not None:
        marker = fill(options.done, name)
        if not directory.present(marker):
            return Waits(f"waits for {marker}", state=WAITING_MARKER)
    return None


def _of_content(
    options: IntakeOptions, directory: Directory, name: str, fd: int, *, claimed: bool
) -> Verdict:
    """Return what a file says of its end, and a list of sums of it."""
    against: Verdict = None
    if (complete := options.complete) is not None:
        against = _of_end(fd, os.path.join(directory.path, name), complete)
    if against is None and (form := options.manifest) is not None and not claimed:
        against = _of_sums(directory, name, fd, fill(form, name))
    return against


# What is in a file


def _of_end(fd: int, path: str, complete: str) -> Verdict:
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
            timeout=_ANSWERS_WITHIN,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Waits(f"complete could not be asked: {error}")
    if not answer.returncode:
        return None
    said = (answer.stdout + answer.stderr).decode(errors="replace").strip()[:_SAID]
    why = f"complete says {answer.returncode}{': ' if said else ''}{said}"
    return Waits(why) if answer.returncode == LATER else Refused(why)


def _of_sums(directory: Directory, name: str, fd: int, manifest: str) -> Waits | None:
    """Return how a file differs from what the manifest beside it says; None when it does not."""
    try:
        sums = directory.read(manifest, _LONGEST_SUMS).decode(errors="replace")
    except FileNotFoundError:
        return Waits(f"waits for {manifest}", state=WAITING_MARKER)
    lines = (line.split(maxsplit=1) for line in sums.splitlines())
    pairs = (parts for parts in lines if len(parts) == 2)
    listed = {path.lstrip("*").removeprefix("./"): sum.lower() for sum, path in pairs}
    if (wanted := listed.get(name)) is None:
        return Waits(f"waits to be listed in {manifest}", state=WAITING_MARKER)
    return None if _digest(fd) == wanted else Waits(f"is not what {manifest} says")


def _digest(fd: int) -> str:
    """Return the SHA-256 of a file."""
    with open(fd, "rb", closefd=False) as file:
        file.seek(0)
        return hashlib.file_digest(file, "sha256").hexdigest()


class Contents(NamedTuple):
    """What entered lately, and for how many seconds it is remembered."""

    directory: Directory
    remember: float

    def sweep(self) -> None:
        """Remove what is not remembered any longer."""
        row = Leftover("content", "", self.remember, _is_sum, lambda *_: False, "remove")
        with suppress(OSError):
            sweep_rows(Swept(self.directory, self.directory), [row], most=None)

    def look(self, directory: Directory, name: str) -> tuple[str, str]:
        """Return the content of a file, as one sum, and what that is a duplicate of, in words; ""
        when of nothing."""
        with open_fd(directory.open_read(name)) as fd:
            found = _digest(fd)
        with suppress(FileNotFoundError):
            age = time.time() - self.directory.status(found).st_mtime
            if age < self.remember:
                docid = self.directory.read(found, names.MAX_DOCID).decode(errors="replace")
                return found, f"its content entered before, as {docid}"
        return found, ""

    def entered(self, found: str, docid: str) -> None:
        """Note the content of what is in the queue now."""
        self.directory.write_aside(found, docid.encode())


# For whoever asks


def why(folder: Directory, path: str) -> str:
    """Return why a file is where it is, in a sentence; "" where no intake takes from its folder."""
    if (known := told_of(folder)) is None:
        return ""
    told, opened = known
    with opened as home:
        found = _of_drop(folder, home, path, told) or _of_claim(home, path, told)
        # Where a folder stays as it is, its intakes are among those of others.
        alive = living(home, of=folder.path if told.options.leaves else "")
    if not found:
        raise NotFound(
            f"no file {path!r} in {folder.path}; queuedriver list {told.queue} shows "
            "what has entered"
        )
    if not alive:
        return f"{found}; no intake lives that takes from {folder.path}"
    if not found.endswith(_NOTHING):
        return found
    # What keeps it from taking anything only an intake knows.
    says = (f"intake {one.id} says: {one.why}" for one in alive if one.why)
    return f"{found}; {next(says, 'it is taken with the next look')}"


def _of_drop(folder: Directory, home: Directory, path: str, told: Told) -> str:
    """Return why a file waits that is in the folder; "" when it is not there."""
    at, name = os.path.split(path)
    with suppress(FileNotFoundError), folder.subdirectory(at) as directory:
        facts = rules.facts_of(directory.status(name))
        if facts is None:
            return f"{NOT_REGULAR.why}, and stays"
        if unwanted := rules.of_name(path, told.options):
            return unwanted
        if told.options.leaves:
            with home.subdirectory(LEDGER) as ledger:
                entry = read_record(ledger, key_of(path, facts), Entry)
            if entry is not None:
                return f"{entry.event}: {entry.why}" if entry.why else f"entered as {entry.docid}"
        return _words(told, directory, name, facts, claimed=False)
    return ""


def _of_claim(home: Directory, path: str, told: Told) -> str:
    docid = fill(told.options.docid, os.path.basename(path), path)
    for name, item in names.claims(home.names()):
        if item.docid == docid:
            facts = rules.facts_of(home.status(name))
            if facts is None or item.state == names.WRITTEN:
                return "enters"
            return f"claimed; {_words(told, home, name, facts, claimed=True)}"
    return ""


def _words(told: Told, directory: Directory, name: str, facts: Facts, *, claimed: bool) -> str:
    now = time.monotonic()
    since = now - max(0.0, time.time() - facts.ctime_ns / 1e9)
    past = Past(facts, since, since)
    _, against = examine(told, directory, name, past, now, claimed=claimed)
    if against is None:
        return _NOTHING
    if against.why == rules.SOMEBODY and (who := sorted({*_writers(directory.status(name))})):
        return f"{' and '.join(who)} has it open for writing"
    return f"to be refused: {against.why}" if isinstance(against, Refused) else against.why


def _writers(found: os.stat_result) -> Iterator[str]:
    """Yield which programs of this host have a file open for writing, as far as we may know."""
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        # Another user's, or gone.
        with suppress(OSError):
            for fd in os.listdir(f"/proc/{pid}/fd"):
                there = os.stat(f"/proc/{pid}/fd/{fd}")
                if (there.st_dev, there.st_ino) != (found.st_dev, found.st_ino):
                    continue
                with open(f"/proc/{pid}/fdinfo/{fd}", encoding="ascii") as info:
                    flags = int(info.read().partition("flags:")[2].split()[0], 8)
                if flags & _FOR_WRITING:
                    with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as comm:
                        yield comm.read().strip()
