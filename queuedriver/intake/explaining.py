"""Why a file of a folder was not taken yet, for whoever asks from outside: nothing is changed.

The rules are those that the intakes of the folder were told last. For how long a file has stood
still they know, and we go by its times, and by the clock.
"""

import os
import time
from collections.abc import Iterator
from contextlib import suppress

from queuedriver.disk.filesystem import Directory
from queuedriver.errors import NotFound
from queuedriver.format import names
from queuedriver.format.records import read_record
from queuedriver.intake.examining import NOT_REGULAR, examine
from queuedriver.intake.home import living, told_of
from queuedriver.intake.ledger import LEDGER, Entry, key_of
from queuedriver.intake.options import Told, fill
from queuedriver.intake.rules import SOMEBODY, Past, Refused, facts_of, of_name

_NOTHING = "nothing speaks against it"
# What an entry of the ledger says, by its event.
_ENTRIES = {
    "submitted": "entered as {entry.docid}",
    "refused": "refused: {entry.why}",
    "skipped": "skipped as a duplicate: {entry.why}",
}
# In the flags of an open file, as octal digits: not for reading alone.
_FOR_WRITING = os.O_WRONLY | os.O_RDWR


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
        facts = facts_of(directory.status(name))
        if facts is not None and (unwanted := of_name(path, told.options)):
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
    facts = facts_of(found)
    past = Past(facts, since, since) if facts is not None else None
    against = examine(told, directory, name, past, now, claimed=claimed).verdict
    if against is None:
        return _NOTHING
    if against is NOT_REGULAR and not claimed:
        return f"{against.why}, and stays"
    if against.why == SOMEBODY and (who := sorted({*_writers(found)})):
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
