"""A look at one file, and what the rules say of it. What costs little is asked first, and what a
file says of its end only when it has stood still."""

import errno
import os
import time
from typing import NamedTuple

from queuedriver.disk.filesystem import Directory, open_fd
from queuedriver.intake import contents, rules
from queuedriver.intake.leases import writers
from queuedriver.intake.options import IntakeOptions, Told, fill
from queuedriver.intake.rules import (
    WAITING_MARKER,
    Facts,
    Past,
    Refused,
    Verdict,
    Waits,
)

# How soon the content of a file that has not changed is asked again, in seconds.
_ASK_AGAIN = 10.0
# What a file says that is somebody's for now; that we may not have until somebody lets us; and what
# says that it is none.
_BUSY = (errno.EBUSY, errno.ETXTBSY, errno.EAGAIN)
_FORBIDDEN = (errno.EACCES, errno.EPERM)
_NO_FILE = (errno.ELOOP, errno.ENXIO, errno.EISDIR)

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
