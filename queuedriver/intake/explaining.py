"""Why a file of a folder was not taken yet, for whoever asks from outside: nothing is changed.

The rules are those that the intakes of the folder were told last. For how long a file has stood
still they know, and we go by its times, and by the clock.
"""

import os
import time
from collections.abc import Iterator
from contextlib import suppress

from queuedriver.disk.filesystem import Directory
from queuedriver.disk.runtime import runtime_directory
from queuedriver.errors import NotFound, QueueError
from queuedriver.format import names
from queuedriver.format.records import read_record
from queuedriver.intake.examining import Examiner
from queuedriver.intake.folder import facts_of
from queuedriver.intake.home import INSIDE, PRIVATE, Told, living, name_of, told_of
from queuedriver.intake.ledger import LEDGER, Entry, key_of
from queuedriver.intake.options import fill
from queuedriver.intake.rules import SOMEBODY, Facts, Past, Taken, Verdict, Waits, of_name

_LONGEST_PATH = 4096
_NOTHING = "nothing speaks against it"
# What an entry of the ledger says, by its event.
_ENTRIES = {
    "submitted": "entered as {entry.docid}",
    "refused": "refused: {entry.why}",
    "skipped": "skipped as a duplicate: {entry.why}",
}
# In the flags of an open file, as octal digits: not for reading alone.
_FOR_WRITING = os.O_WRONLY | os.O_RDWR


def note_where(folder: Directory, queue: Directory) -> None:
    """Note on this host where the intakes of a folder keep what is theirs, which is to stay as it
    is. Without it only `why` knows less."""
    with suppress(OSError, QueueError), Directory.open(runtime_directory()) as here:
        here.write_aside(name_of(folder), queue.path.encode())


def home_of(folder: Directory) -> Directory | None:
    """Open where the intakes of a folder keep what is theirs; None where nobody knows of any."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return folder.subdirectory(PRIVATE)
    with suppress(OSError, QueueError), Directory.open(runtime_directory()) as here:
        queue = here.read(name_of(folder), _LONGEST_PATH).decode()
        with Directory.open(queue) as opened:
            return opened.subdirectory(INSIDE)
    return None


def why(folder: Directory, home: Directory, path: str) -> str:
    """Return why a file is where it is, in a sentence."""
    told = told_of(home, folder)
    if told is None:
        raise NotFound(f"{home.path} does not say what the intakes of {folder.path} were told")
    found = _of_drop(folder, home, path, told) or _of_claim(home, path, told)
    if found is None:
        raise NotFound(
            f"no file {path!r} in {folder.path}; queuedriver list {told.queue} shows "
            "what has entered"
        )
    # Where a folder stays as it is, its intakes are among those of others.
    alive = living(home, of=folder.path if told.options.leaves else "")
    if not alive:
        return f"{found}; no intake lives that takes from {folder.path}"
    if not found.endswith(_NOTHING):
        return found
    # What keeps it from taking anything only an intake knows.
    says = (f"intake {one.id} says: {one.why}" for one in alive if one.why)
    return f"{found}; {next(says, 'it is taken with the next look')}"


def _of_drop(folder: Directory, home: Directory, path: str, told: Told) -> str | None:
    """Return why a file waits that is in the folder; None when it is not there."""
    at, name = os.path.split(path)
    with folder.subdirectory(at) as directory:
        try:
            facts = facts_of(directory.status(name))
        except FileNotFoundError:
            return None
        if facts is None:
            return "is not a regular file, and stays"
        if hidden := of_name(path, told.options):
            return hidden
        if told.options.leaves and (entry := _entry(home, path, facts)):
            return _ENTRIES[entry.event].format(entry=entry)
        now = time.monotonic()
        examiner = Examiner(told.options, leases=told.leases, local=told.local)
        verdict = examiner.of_drop(directory, name, _past(facts, now), now).verdict
        return _words(verdict, directory, name)


def _of_claim(home: Directory, path: str, told: Told) -> str | None:
    docid = fill(told.options.docid, os.path.basename(path), path)
    for name, item in names.walk(home):
        if item is None or item.docid != docid:
            continue
        if item.state != names.WORKING:
            return "given back, and about to be claimed" if item.state == names.READY else "enters"
        facts, now = facts_of(home.status(name)), time.monotonic()
        if facts is not None:
            examiner = Examiner(told.options, leases=told.leases, local=told.local)
            examined = examiner.of_claim(home, name, None, _past(facts, now), now)
            return f"claimed; {_words(examined.verdict, home, name)}"
    return None


def _entry(home: Directory, path: str, facts: Facts) -> Entry | None:
    with home.subdirectory(LEDGER) as ledger:
        return read_record(ledger, key_of(path, facts), Entry)


def _past(facts: Facts, now: float) -> Past:
    age = max(0.0, time.time() - facts.ctime_ns / 1e9)
    return Past(facts, now - age, now - age)


def _words(verdict: Verdict, directory: Directory, name: str) -> str:
    if isinstance(verdict, Taken):
        return _NOTHING
    why = verdict.why if isinstance(verdict, Waits) else f"to be refused: {verdict.why}"
    if why == SOMEBODY:
        who = sorted({*_writers(directory.status(name))})
        return f"{' and '.join(who)} has it open for writing" if who else why
    return why


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
