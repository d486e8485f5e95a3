"""A look at one file, and what the rules say of it: to an intake, and to whoever asks from outside
why a file was not taken yet.

What costs little is asked first, and what a file says of its end only when it has stood still. For
whoever asks nothing is changed. The rules are those that the intakes of the folder were told last.
For how long a file has stood still they know, and we go by its times, and by the clock.
"""

import errno
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from queuedriver.disk.filesystem import Directory, open_fd
from queuedriver.errors import NotFound
from queuedriver.format import names
from queuedriver.format.records import read_record
from queuedriver.intake import contents, rules
from queuedriver.intake.folder import writers
from queuedriver.intake.home import living, told_of
from queuedriver.intake.ledger import LEDGER, Entry, key_of
from queuedriver.intake.options import IntakeOptions, Told, fill
from queuedriver.intake.rules import WAITING_MARKER, Facts, Past, Refused, Verdict, Waits

# How soon the content of a file that has not changed is asked again, in seconds.
_ASK_AGAIN = 10.0
# What a file says that is somebody's for now; that we may not have until somebody lets us; and what
# says that it is none.
_BUSY = (errno.EBUSY, errno.ETXTBSY, errno.EAGAIN)
_FORBIDDEN = (errno.EACCES, errno.EPERM)
_NO_FILE = (errno.ELOOP, errno.ENXIO, errno.EISDIR)

_NOTHING = "nothing speaks against it"
# What an entry of the ledger says, by its event.
_ENTRIES = {
    "submitted": "entered as {entry.docid}",
    "refused": "refused: {entry.why}",
    "skipped": "skipped as a duplicate: {entry.why}",
}
# In the flags of an open file, as octal digits: not for reading alone.
_FOR_WRITING = os.O_WRONLY | os.O_RDWR

NOT_REGULAR = Refused("is not a regular file")


class Examined(NamedTuple):
    """What is known of a file now, and what speaks against it."""

    past: Past | None
    verdict: Verdict


def examine(
    told: Told,
    directory: Directory,
    name: str,
    past: Past | None,
    now: float,
    *,
    claimed: bool = False,
    known: Facts | None = None,
) -> Examined:
    """Look at a file. Once it is `claimed` other files say nothing of it any more; nor does it
    settle again, or say of its end, as long as it is what is `known` since then. But somebody may
    have it open."""
    try:
        fd = directory.open_read(name)
    except OSError as error:
        return Examined(past, _of_no_descriptor(error))
    with open_fd(fd):
        facts = rules.facts_of(os.fstat(fd))
        if facts is None:
            return Examined(None, NOT_REGULAR)
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
            if now >= past.asked_until:
                against = _of_content(told.options, directory, name, fd, claimed=claimed)
                past = past._replace(objection=against, asked_until=now + _ASK_AGAIN)
            against = past.objection
    return Examined(past, against)


def _of_others(options: IntakeOptions, directory: Directory, name: str) -> Waits | None:
    """Return what other files say of this one."""
    for other in rules.beside(name):
        if directory.present(other):
            return Waits(f"{other} is beside it: it is being written")
    if (form := options.done) is not None:
        marker = fill(form, name)
        if not directory.present(marker):
            return Waits(f"waits for {marker}", state=WAITING_MARKER)
    return None


def _of_content(
    options: IntakeOptions, directory: Directory, name: str, fd: int, *, claimed: bool
) -> Verdict:
    """Return what a file says of its end, and a list of sums of it."""
    against: Verdict = None
    if (complete := options.complete) is not None:
        against = contents.of_end(fd, os.path.join(directory.path, name), complete)
    if against is None and (form := options.manifest) is not None and not claimed:
        against = contents.of_sums(directory, name, fd, fill(form, name))
    return against


def _of_no_descriptor(error: OSError) -> Waits | Refused:
    """Return what it says of a file that it cannot be opened; raise what says nothing of it."""
    if error.errno in _NO_FILE:
        return NOT_REGULAR
    if error.errno in _FORBIDDEN:
        return Waits(f"may not be read: {error.strerror}")
    if error.errno in _BUSY:
        return Waits(f"cannot be read: {error.strerror}", 1.0)
    raise error


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
        if facts is not None and (unwanted := rules.of_name(path, told.options)):
            return unwanted
        if facts is not None and told.options.leaves:
            with home.subdirectory(LEDGER) as ledger:
                entry = read_record(ledger, key_of(path, facts), Entry)
            if entry is not None:
                return _ENTRIES[entry.event].format(entry=entry)
        return _words(told, directory, name, claimed=False)
    return ""


def _of_claim(home: Directory, path: str, told: Told) -> str:
    docid = fill(told.options.docid, os.path.basename(path), path)
    for name, item in names.claims(home.names()):
        if item.docid == docid:
            if item.state == names.WORKING:
                return f"claimed; {_words(told, home, name, claimed=True)}"
            return "enters"
    return ""


def _words(told: Told, directory: Directory, name: str, *, claimed: bool) -> str:
    found, now = directory.status(name), time.monotonic()
    since = now - max(0.0, time.time() - found.st_ctime)
    facts = rules.facts_of(found)
    past = Past(facts, since, since) if facts is not None else None
    against = examine(told, directory, name, past, now, claimed=claimed).verdict
    if against is None:
        return _NOTHING
    if against is NOT_REGULAR and not claimed:
        return f"{against.why}, and stays"
    if against.why == rules.SOMEBODY and (who := sorted({*_writers(found)})):
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
