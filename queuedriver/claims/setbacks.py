"""What becomes of a claim that was not completed: charged, given back, or discarded.

Used by the driver that had the claim, by whoever recovers it after that driver's death, and by an
operator who discards a document; so the rules of retries are in one place.
"""

import math
from typing import Literal

from queuedriver.claims.handoff import Claim, Handoff
from queuedriver.claims.outcomes import MAX_LATER, Failure
from queuedriver.disk.journal import Journal
from queuedriver.format import names
from queuedriver.format.records import Attempt

# The third time that a host goes down, a lease expires, we kill a driver under one document, or a
# worker is lost that had it among others, the document is charged: one that panics hosts must end
# too.
UNCOUNTED_STRIKES = 3

Fate = Literal["failed", "discarded", "released", "later", "revoked"]


class Setbacks:
    """The fates of one input queue's claims, on behalf of one driver."""

    def __init__(self, handoff: Handoff, queue: str, host: str, journal: Journal) -> None:
        self._handoff = handoff
        self._queue = queue
        self._host = host
        self._journal = journal

    def charge(
        self, claim: Claim, failure: Failure, claimed_at: float, now: float, host: str | None = None
    ) -> Fate:
        """The attempt failed: wait for the next, or discard the document on the last."""
        settings = self._handoff.settings
        last = failure.permanent or claim.attempt >= min(settings.retries, names.MAX_RETRIES)
        attempt = self._attempt(claim, failure, claimed_at, now, host, counted=True)
        return self._end(claim, attempt, last)

    def take_back(
        self, claim: Claim, failure: Failure, claimed_at: float, now: float, host: str | None = None
    ) -> Fate:
        """Not the document's fault, as far as anyone knows; but the third time it is charged."""
        before = [one for one in self._earlier(claim) if not one.counted]
        if len(before) + 1 >= UNCOUNTED_STRIKES:
            return self.charge(claim, failure, claimed_at, now, host)
        attempt = self._attempt(claim, failure, claimed_at, now, host, counted=False)
        return self._end(claim, attempt)

    def release(self, claim: Claim, reason: str) -> Fate:
        """Interrupted by us, or by the file system: uncharged, and nothing to remember."""
        docid = self._handoff.release(claim)
        return self._journalled("released", claim, docid, reason)

    def postpone(self, claim: Claim, after: float, reason: str, now: float) -> Fate:
        """Uncharged, and not before a while has passed."""
        docid = self._handoff.postpone(claim, _due(now, after))
        return self._journalled("later", claim, docid, reason)

    def _earlier(self, claim: Claim) -> list[Attempt]:
        """The attempts before this one: whoever recovered it and died may have noted it already."""
        inode = self._handoff.inode(claim)
        before = self._handoff.attempts.of(claim.docid, inode)
        return [one for one in before if one.token != claim.token]

    def _end(self, claim: Claim, attempt: Attempt, last: bool = False) -> Fate:
        """Note the attempt, and do what is noted: of all who recover a claim, the first decides."""
        handoff = self._handoff
        inode = handoff.inode(claim)
        if not inode:
            return "revoked"
        noted = handoff.attempts.note(
            claim.docid,
            inode,
            attempt,
            durable=handoff.settings.durable,
            discarded_from=self._queue if last else "",
        )
        said = noted.attempt(claim.token) or attempt
        message, seconds = said.failure.message, said.ended_at - said.claimed_at
        if noted.record.discarded_at:
            docid = handoff.discard(claim, noted.file)
            return self._journalled("discarded", claim, docid, message, seconds)
        if said.counted:
            delay = handoff.settings.retry_delay
            docid = handoff.fail(claim, inode, _due(attempt.ended_at, delay) if delay else 0)
            return self._journalled("failed", claim, docid, message, seconds)
        docid = handoff.strike(claim, inode)
        return self._journalled("released", claim, docid, message)

    def _attempt(
        self,
        claim: Claim,
        failure: Failure,
        claimed_at: float,
        now: float,
        host: str | None,
        counted: bool,
    ) -> Attempt:
        return Attempt(
            docid=claim.docid,
            token=claim.token,
            attempt=claim.attempt,
            driver=names.parse_token(claim.token).driver,
            host=self._host if host is None else host,
            claimed_at=claimed_at,
            ended_at=now,
            counted=counted,
            failure=failure,
        )

    def _journalled(
        self, fate: Fate, claim: Claim, docid: str | None, message: str, seconds: float = 0.0
    ) -> Fate:
        if docid is None:
            # Somebody was faster, and has noted it.
            return "revoked"
        renamed = docid if docid != claim.docid else None
        self._journal.note(
            fate,
            claim.docid,
            token=claim.token,
            attempt=claim.attempt,
            seconds=seconds,
            message=message,
            renamed=renamed,
        )
        return fate


def _due(now: float, after: float) -> int:
    """The first whole second that is not before its time."""
    return math.ceil(now + min(max(after, 0.0), MAX_LATER))
