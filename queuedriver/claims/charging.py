"""What an attempt that is not done costs: its document, or nobody where the disk is to blame.

    set_back    end a claim as was decided: charged, postponed or given back
    charge      count the attempt: the document waits for its next, or is discarded after its last
    give_back   let it wait again, uncharged
    abandon     give it back as something is not well, now or when all is well again
    blame       raise where the file systems, and not the document, are to blame for a failure

Whoever recovers a claim of the dead charges it here, too, and of several the first decides: what is
noted in `attempts/` is done.
"""

import errno
import math
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from queuedriver.claims import handoff
from queuedriver.claims.handoff import Claim, Fate, plan_name
from queuedriver.claims.outcomes import (
    MAX_LATER,
    OF_THE_ITEM,
    Doubted,
    Ending,
    Failed,
    Postponed,
    Released,
    first_line,
    is_own_fault,
    says_full,
)
from queuedriver.disk.filesystem import A_LITTLE
from queuedriver.errors import FileSystemTrouble, is_trouble
from queuedriver.format import names
from queuedriver.format.records import Attempt, Failure

# Of attempts that a document may not be to blame for, as when its host went down, it is charged the
# third, and each after that: one that panics hosts must end, too.
UNCOUNTED_STRIKES = 3
# How long an item is left alone that could be claimed, but whose end could not be carried out.
_LEFT_ALONE = 60.0
# Bytes. With less than this left, a failure is the disk's and not the document's.
_FULL = 1 << 20
# With less than this left, and less than twice what the document needs, a failure that speaks of a
# full disk is believed.
_SCARCE = 16 << 20


def set_back(claim: Claim, ending: Ending) -> None:
    """End a claim that is not done. An OSError says that the file system is not well, and nothing
    was charged; or, EMFILE, that the attempt was taken down, or charged from the third on."""
    queue, now = claim.of, time.time()
    if isinstance(ending, Failed):
        error = ending.error
        if error is not None and error.errno == errno.EMFILE:
            # It may be the one for which too many files are open, or those before it were. With no
            # file left to open there is no way to go on.
            claim.outputs.discard()
            try:
                charge(claim, ending.failure, now, doubted=True)
            except OSError:
                # Not even what is remembered of it can be read: left to whoever recovers it.
                claim.fate = "stuck"
            raise error
        # Before what it wrote is removed: that may be what the disk is full of.
        blame(claim, ending.failure, error)
        if queue.stopped and not is_own_fault(ending.failure):
            why = f"its stage has stopped itself, and it failed: {first_line(ending.failure)}"
            ending = Released(why)
    claim.outputs.discard()
    try:
        if isinstance(ending, Failed):
            doubted = isinstance(ending, Doubted)
            if charge(claim, ending.failure, now, doubted=doubted) != "revoked" and not doubted:
                queue.charged(queue, ending.failure)
        elif isinstance(ending, Postponed):
            give_back(claim, ending.reason, due_at(now, ending.after))
        elif isinstance(ending, Released):
            give_back(claim, ending.reason)
    except OSError as refused:
        if refused.errno not in OF_THE_ITEM:
            raise
        # As a directory of another user's, that only its owner can move elsewhere.
        name = names.waiting_name(claim.docid, claim.attempt)
        queue.refuse(name, claim.docid, refused, time.monotonic() + _LEFT_ALONE)
        give_back(claim, f"it cannot be discarded: {refused.strerror}")
    if claim.fate == "revoked":
        queue.note("revoked", claim, outputs=())


def charge(
    claim: Claim, failure: Failure, now: float, host: str | None = None, *, doubted: bool = False
) -> Fate:
    """Charge an attempt that failed: the document waits for its next, or is discarded after its
    last. One that is doubted to be at fault is only taken down, but charged from the third on."""
    queue, token = claim.of, names.parse_token(claim.token)
    inode = claim.inode()
    if not inode:
        # Somebody was faster, and has noted it.
        return _ended(claim, "revoked", None)
    # Whoever recovered this claim and died may have noted it.
    before = queue.attempts.of(claim.docid, inode) if doubted else ()
    strikes = 1 + sum(not one.counted and one.token != claim.token for one in before)
    counted = not doubted or strikes >= UNCOUNTED_STRIKES
    last = counted and is_last(claim, failure)
    attempt = Attempt(
        docid=claim.docid,
        token=claim.token,
        attempt=claim.attempt,
        driver=token.driver,
        host=queue.journal.host if host is None else host,
        claimed_at=token.claimed_at or now,
        ended_at=now,
        counted=counted,
        failure=failure,
    )
    said_from = queue.name if last else ""
    noted = queue.attempts.note(inode, attempt, durable=queue.durable, discarded_from=said_from)
    said = noted.attempt(claim.token) or attempt
    message, seconds = said.failure.message, said.ended_at - said.claimed_at
    if noted.record.discarded_at:
        try:
            docid = queue.attempts.discard(queue.directory, claim.name, claim.token, noted.file)
        except OSError as error:
            if error.errno in OF_THE_ITEM:
                # It stays where it is, and this is not what becomes of it.
                queue.attempts.remove(noted.file)
            raise
        return _ended(claim, "discarded", docid, message, seconds, said.failure.cause)
    delay = queue.settings.retry_delay if said.counted else 0.0
    due = due_at(now, delay) if delay else 0
    docid = handoff.rename_back(queue, claim, claim.attempt + said.counted, due)
    # When somebody was faster it stays: it may well be theirs.
    if docid is not None and docid != claim.docid:
        queue.attempts.move(claim.docid, inode, docid)
    if said.counted:
        return _ended(claim, "failed", docid, message, seconds, said.failure.cause)
    return _ended(claim, "released", docid, message)


def is_last(claim: Claim, failure: Failure) -> bool:
    """Tell whether a document is discarded that fails like this."""
    most = min(claim.of.settings.retries, names.MAX_RETRIES)
    return failure.permanent or claim.attempt >= most


def give_back(claim: Claim, reason: str, due: int = 0) -> Fate:
    """Let a document wait again, uncharged, and not before it is due; nothing is remembered."""
    docid = handoff.rename_back(claim.of, claim, claim.attempt, due)
    return _ended(claim, "later" if due else "released", docid, reason)


def abandon(claim: Claim, error: OSError) -> None:
    """Give a claim back, now or when all is well again, because something is not well."""
    try:
        _let_go(claim, f"not its fault: {error}")
    except OSError:
        claim.of.later.append(claim)


@contextmanager
def abandoning(claims: Iterable[Claim]) -> Iterator[None]:
    """Give back those of these claims that have not ended when it is found meanwhile that the file
    system is not well: an OSError."""
    try:
        yield
    except OSError as error:
        for claim in claims:
            if not claim.fate:
                abandon(claim, error)
        raise


def give_back_later(later: list[Claim]) -> None:
    """Give back what had to be left lying about: the file system is well again."""
    while later:
        _let_go(later[-1], "the file system is well again")
        later.pop()


def due_at(now: float, after: float) -> int:
    """Return the first whole second that is not before its time."""
    return math.ceil(now + min(max(after, 0.0), MAX_LATER))


def blame(claim: Claim, failure: Failure, error: OSError | None = None) -> None:
    """Raise where the file systems of the queue, and not the document, are to blame for a
    failure."""
    queue = claim.of
    if isinstance(error, FileSystemTrouble):
        raise error
    queue.check_paths()
    for target in queue.targets:
        free, read_only = target.directory.room()
        scarce = max(_SCARCE, 2 * claim.outputs.size() + 2 * claim.size())
        full = free < _FULL or (free < scarce and says_full(failure, error))
        if full:
            queue.wanted_room = min(scarce, free + _FULL)
        if read_only or full:
            state = "read-only" if read_only else "full"
            raise FileSystemTrouble(f"the file system of {target.directory.path} is {state}")
    if error is not None and is_trouble(error):
        with claim.open() as file:
            while file.read(1 << 20):
                pass
        for target in queue.targets:
            target.directory.check_writable(A_LITTLE)


def _let_go(claim: Claim, reason: str) -> None:
    """Release, unless it is committed: then any later pass publishes and finishes it.

    A file system may have done what it said it could not. So the outputs go last, when it is
    certain that nobody will publish them.
    """
    queue = claim.of
    if claim.committed:
        return
    if give_back(claim, reason) != "revoked":
        claim.outputs.discard()
        queue.plans.remove(plan_name(claim.token))
    elif not handoff.committed(queue, claim):
        handoff.set_aside(queue, claim.outputs)
        # It may have been discarded, though we were told that it could not be.
        queue.attempts.settle()


def _ended(
    claim: Claim,
    fate: Fate,
    docid: str | None,
    message: str = "",
    seconds: float = 0.0,
    cause: str = "",
) -> Fate:
    """Note how a claim ended; "revoked" when somebody was faster, and has noted it."""
    claim.fate = fate if docid is not None else "revoked"
    if docid is not None:
        renamed = docid if docid != claim.docid else None
        claim.of.note(fate, claim, seconds=seconds, message=message, renamed=renamed)
        if cause:
            claim.of.failed(cause, discarded=fate == "discarded")
    return claim.fate
