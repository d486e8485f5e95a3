"""The claims at hand, and how each ends: handed over, set back, or left until all is well again.

Used by the driver, which processes one document (or batch) at a time, and by a broker, which has
dealt out many. All effects on the queues are the hand-off's.
"""

import errno
import resource
import time
from collections.abc import Sequence

import msgspec

from queuedriver import names
from queuedriver.document import Document
from queuedriver.errors import ConfigError, FileSystemTrouble, ProcessorFailed, is_trouble
from queuedriver.handoff import Claim, Completion
from queuedriver.lane import Lane
from queuedriver.outcome import Failed, Postponed, Setback, from_exception
from queuedriver.outputs import Outputs, Target
from queuedriver.picking import Candidate
from queuedriver.setbacks import Fate
from queuedriver.tally import Tally

# With less than this left, a failure is the disk's and not the document's.
_FULL_DISK = 1 << 20


class Job(msgspec.Struct, frozen=True):
    """A claim at hand, what its processor sees of it, and what it writes."""

    lane: Lane
    claim: Claim
    document: Document
    outputs: Outputs


class Hands:
    """What one driver has claimed and not ended yet."""

    def __init__(self, mint: names.Mint, held: set[str], tally: Tally) -> None:
        self._mint = mint
        # The N of every claim at hand: what else carries our id on disk was lost track of.
        self._held = held
        self.tally = tally
        # How many outputs have become visible.
        self.published = 0
        # What could not be given back, or removed, while the file system was not well.
        self._litter: list[Job] = []

    def claim(self, lane: Lane, candidate: Candidate) -> Job | None:
        """Take an item that waits; None when it is another's."""
        token = self._mint.next(time.time_ns() // 1000)
        self._held.add(token)
        try:
            claim = lane.handoff.claim(candidate.name, candidate.docid, candidate.attempt, token)
        except OSError as error:
            self._held.discard(token)
            if isinstance(error, PermissionError):
                lane.refused(candidate, error)
                return None
            raise
        if claim is None:
            self._held.discard(token)
            self.tally.lost_races += 1
            lane.lost()
            return None
        queue = lane.queue
        document = Document(claim.docid, claim.attempt, queue.name, queue.directory, claim.name)
        return Job(lane, claim, document, lane.handoff.outputs(claim))

    def holds(self, job: Job) -> bool:
        """Whether it has not ended yet."""
        return job.claim.token in self._held

    def put_down(self, job: Job) -> None:
        """It has ended: what is still found of it was lost track of."""
        self._held.discard(job.claim.token)

    # Handed over

    def complete(self, job: Job, work: int) -> Completion:
        """Commit and publish what is written; `work` is the processor's time in nanoseconds."""
        try:
            completion = job.lane.handoff.complete_one(job.claim, job.outputs)
        except OSError as error:
            self.abandon(job, error)
            raise
        self.completed(job.lane, completion, work)
        return completion

    def completed(self, lane: Lane, completion: Completion, work: int) -> None:
        """Note what became of a claim that was completed."""
        claim, published = completion.claim, completion.published
        self.published += len(published)
        event = "published" if published else "revoked" if completion.revoked else "finished"
        lane.journal.note(
            event,
            claim.docid,
            token=claim.token,
            attempt=claim.attempt,
            seconds=work / 1e9,
            outputs=published,
        )

    # Set back

    def set_back(self, job: Job, error: BaseException) -> None:
        """Charge, postpone or release, as the processor's exception says."""
        if isinstance(error, ConfigError):
            # No document can be blamed for a program that cannot start: leave, and say so.
            self.abandon(job, error)
            raise error
        try:
            if isinstance(error, OSError) and is_trouble(error):
                _blame(job, error)
            self._end_by(job, _with_memory(from_exception(error), error))
        except OSError as trouble:
            self.abandon(job, trouble)
            raise

    def end_by(self, job: Job, setback: Setback) -> None:
        """The same, for whoever knows already what it means."""
        try:
            self._end_by(job, setback)
        except OSError as trouble:
            self.abandon(job, trouble)
            raise

    def _end_by(self, job: Job, setback: Setback) -> None:
        if isinstance(setback, Failed):
            # Before what it wrote is removed: that may be what the disk is full of.
            _check_room(job.lane.handoff.targets)
            _check_paths(job)
        job.outputs.discard()
        fate = _apply(job.lane, job.claim, setback)
        if fate == "failed":
            self.tally.failed += 1
        elif fate == "discarded":
            self.tally.failed += 1
            self.tally.discarded += 1
        elif fate == "revoked":
            self.completed(job.lane, Completion(job.claim, (), revoked=True), 0)

    # Left until all is well again

    def abandon(self, job: Job, error: OSError | ConfigError) -> None:
        """Something is not well: give the document back, now or when all is well again."""
        if isinstance(error, OSError) and error.errno == errno.EMFILE:
            # No disk is to blame, but what the processor has left open. That ends this driver, and
            # whoever recovers the claim charges the document for it.
            return
        try:
            _let_go(job, f"not its fault: {error}")
        except OSError:
            self._litter.append(job)

    def clean(self) -> None:
        """The file system is well again: give back what had to be left lying about."""
        while self._litter:
            _let_go(self._litter[-1], "the file system is well again")
            self._litter.pop()


def _let_go(job: Job, reason: str) -> None:
    """Release, unless it is committed: then any later pass publishes and finishes it.

    A file system may have done what it said it could not. So the outputs go last, when it is
    certain that nobody will publish them.
    """
    claim, handoff = job.claim, job.lane.handoff
    if claim.committed:
        return
    if job.lane.setbacks.release(claim, reason) != "revoked":
        job.outputs.discard()
        handoff.forget(claim)
    elif not handoff.committed(claim):
        handoff.set_aside(job.outputs)
        # It may have been discarded, though we were told that it could not be.
        handoff.settle_report(claim.docid, claim.token)


def _apply(lane: Lane, claim: Claim, setback: Setback) -> Fate:
    now = time.time()
    if isinstance(setback, Failed):
        claimed_at = names.parse_token(claim.token).claimed_at
        end = lane.setbacks.charge if setback.counted else lane.setbacks.take_back
        return end(claim, setback.failure, claimed_at, now)
    if isinstance(setback, Postponed):
        return lane.setbacks.postpone(claim, setback.after, setback.reason, now)
    return lane.setbacks.release(claim, setback.reason)


def _with_memory(setback: Setback, error: BaseException) -> Setback:
    """What failed in this process is told with how much memory that took."""
    if not isinstance(setback, Failed) or isinstance(error, ProcessorFailed):
        return setback
    if setback.failure.peak_memory is not None:
        return setback
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    failure = msgspec.structs.replace(setback.failure, peak_memory=peak)
    return msgspec.structs.replace(setback, failure=failure)


def _blame(job: Job, error: OSError) -> None:
    """A processor saw an I/O error. Raise it on if the queues' file systems are to blame."""
    if isinstance(error, FileSystemTrouble):
        raise error
    with job.document.open() as file:
        while file.read(1 << 20):
            pass
    for target in job.lane.handoff.targets:
        target.directory.probe()


def _check_room(targets: Sequence[Target]) -> None:
    """A program that fails on a full disk says so in its own way; ask the disk."""
    for target in targets:
        room = target.directory.room()
        if room.read_only or room.free_bytes < _FULL_DISK:
            state = "read-only" if room.read_only else "full"
            raise FileSystemTrouble(f"the file system of {target.directory.path} is {state}")


def _check_paths(job: Job) -> None:
    """A program that fails because a directory was moved away says so in its own way, too."""
    outputs = (target.directory for target in job.lane.handoff.targets)
    for directory in (job.lane.queue.directory, *outputs):
        if directory.gone():
            raise FileSystemTrouble(f"{directory.path} is not the directory that it was")
