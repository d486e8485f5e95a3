"""One turn of work: claim, process, and complete or set back."""

import errno
import resource
import time
from collections.abc import Sequence

import msgspec

from queuedriver import names
from queuedriver.beats import Beats
from queuedriver.document import Document
from queuedriver.errors import (
    ConfigError,
    FileSystemTrouble,
    Interrupted,
    ProcessorFailed,
    is_trouble,
)
from queuedriver.handoff import Claim, Completion
from queuedriver.lane import Lane
from queuedriver.limits import Limits
from queuedriver.outcome import Failed, Postponed, Setback, from_exception
from queuedriver.outputs import Outputs, Target
from queuedriver.picking import Candidate
from queuedriver.processors.base import Processor
from queuedriver.setbacks import Fate
from queuedriver.tally import Tally

# With less than this left, a failure is the disk's and not the document's.
_FULL_DISK = 1 << 20


class Job(msgspec.Struct, frozen=True):
    """A claim at hand, what its processor sees of it, and what it writes."""

    claim: Claim
    document: Document
    outputs: Outputs


class Turn:
    """What a driver does with the items it gets to try."""

    def __init__(
        self,
        processor: Processor,
        limits: Limits,
        mint: names.Mint,
        held: set[str],
        tally: Tally,
        beats: Beats,
        batch: int,
    ) -> None:
        self._processor = processor
        self._limits = limits
        self._mint = mint
        # The N of every claim at hand: what else carries our id on disk was lost track of.
        self._held = held
        self._tally = tally
        self._beats = beats
        self._batch = batch
        # How many outputs have become visible.
        self.published = 0
        # What could not be given back, or removed, while the file system was not well.
        self._litter: list[tuple[Lane, Job]] = []

    def work(self, lane: Lane, candidate: Candidate) -> Candidate | None:
        """Try one item, or a batch of them; an item that was seen meanwhile and is yet to try.

        An OSError says that the file system is not well; nothing has been charged for it.
        """
        if self._batch > 1:
            return self._work_batch(lane, candidate)
        job = self._claim(lane, candidate)
        if job is not None:
            self._tally.began(job.claim.docid, 1)
            try:
                self._work_one(lane, job)
            finally:
                self._held.discard(job.claim.token)
        return None

    def clean(self) -> None:
        """The file system is well again: give back what had to be left lying about."""
        while self._litter:
            lane, job = self._litter[-1]
            self._let_go(lane, job, "the file system is well again")
            self._litter.pop()

    def _claim(self, lane: Lane, candidate: Candidate) -> Job | None:
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
            self._tally.lost_races += 1
            lane.lost()
            return None
        queue = lane.queue
        document = Document(claim.docid, claim.attempt, queue.name, queue.directory, claim.name)
        return Job(claim, document, lane.handoff.outputs(claim))

    def _work_one(self, lane: Lane, job: Job) -> None:
        started = time.perf_counter_ns()
        self._limits.begin()
        try:
            self._processor.process(job.document, job.outputs, self._limits)
            job.document.check()
        except (Exception, Interrupted, SystemExit) as error:  # noqa: BLE001 - the user's code
            work = time.perf_counter_ns() - started
            self._set_back(lane, job, error)
            self._tally.worked(work, 0)
            return
        work = time.perf_counter_ns() - started
        try:
            self._beats.fresh()
            completion = lane.handoff.complete_one(job.claim, job.outputs)
        except OSError as error:
            self._abandon(lane, job, error)
            if isinstance(error, PermissionError) and job.claim.committed:
                # What is in the way of this one output is another user's: who recovers says so.
                lane.check_writable()
                self._tally.worked(work, 1)
                return
            raise
        self._completed(lane, completion, work)
        self._tally.worked(work, 1)

    def _completed(self, lane: Lane, completion: Completion, work: int) -> None:
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

    # Batches

    def _work_batch(self, lane: Lane, first: Candidate) -> Candidate | None:
        jobs: list[Job] = []
        # What failed before is tried alone, lest it take others along; in a batch all the same,
        # because that is what the processor expects.
        size = 1 if first.attempt else self._batch
        candidate: Candidate | None = first
        try:
            while candidate is first or (candidate is not None and not candidate.attempt):
                if (job := self._claim(lane, candidate)) is not None:
                    jobs.append(job)
                if len(jobs) == size:
                    candidate = None
                    break
                candidate = lane.next(time.monotonic(), alone=True)
            if jobs:
                self._process_batch(lane, jobs)
        except OSError as error:
            for job in jobs:
                if job.claim.token in self._held:
                    self._abandon(lane, job, error)
            raise
        finally:
            self._held.difference_update(job.claim.token for job in jobs)
        return candidate

    def _process_batch(self, lane: Lane, jobs: Sequence[Job]) -> None:
        self._tally.began(jobs[0].claim.docid, len(jobs))
        started = time.perf_counter_ns()
        fates = self._fates(jobs)
        work = time.perf_counter_ns() - started
        done = [job for job, fate in zip(jobs, fates, strict=True) if fate is None]
        for job, fate in zip(jobs, fates, strict=True):
            if fate is not None:
                self._set_back(lane, job, fate)
                self._held.discard(job.claim.token)
        if done:
            self._beats.fresh()
            completions = lane.handoff.complete([(job.claim, job.outputs) for job in done])
            for completion in completions:
                self._completed(lane, completion, work // len(jobs))
        self._tally.worked(work, len(done))

    def _fates(self, jobs: Sequence[Job]) -> list[BaseException | None]:
        """What became of each; one that spoils the call for all is found by trying each alone."""
        self._limits.begin()
        try:
            batch = [(job.document, job.outputs) for job in jobs]
            fates = self._processor.process_batch(batch, self._limits)
            return [
                _unread(job.document) if fate is None else fate
                for job, fate in zip(jobs, fates, strict=True)
            ]
        except (Exception, Interrupted, SystemExit) as error:  # noqa: BLE001 - the user's code
            leaving = isinstance(error, Interrupted) and error.reason == "leaving"
            if len(jobs) == 1 or leaving or isinstance(error, FileSystemTrouble):
                return [error for _ in jobs]
        fates = []
        for job in jobs:
            job.outputs.discard()
            fates += self._fates([job])
        return fates

    # Setbacks

    def _set_back(self, lane: Lane, job: Job, error: BaseException) -> None:
        """Charge, postpone or release, as the processor's exception says."""
        if isinstance(error, ConfigError):
            # No document can be blamed for a program that cannot start: leave, and say so.
            self._abandon(lane, job, error)
            raise error
        try:
            if isinstance(error, OSError) and is_trouble(error):
                self._blame(lane, job, error)
            setback = from_exception(error)
            if isinstance(setback, Failed):
                # Before what it wrote is removed: that may be what the disk is full of.
                _check_room(lane.handoff.targets)
            job.outputs.discard()
            fate = self._apply(lane, job.claim, error, setback)
        except OSError as trouble:
            self._abandon(lane, job, trouble)
            raise
        if fate == "failed":
            self._tally.failed += 1
        elif fate == "discarded":
            self._tally.failed += 1
            self._tally.discarded += 1
        elif fate == "revoked":
            self._completed(lane, Completion(job.claim, (), revoked=True), 0)

    def _apply(self, lane: Lane, claim: Claim, error: BaseException, setback: Setback) -> Fate:
        now = time.time()
        if isinstance(setback, Failed):
            failure = setback.failure
            if failure.peak_memory is None and not isinstance(error, ProcessorFailed):
                # It happened in this process.
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
                failure = msgspec.structs.replace(failure, peak_memory=peak)
            claimed_at = names.parse_token(claim.token).claimed_at
            return lane.setbacks.charge(claim, failure, claimed_at, now)
        if isinstance(setback, Postponed):
            return lane.setbacks.postpone(claim, setback.after, setback.reason, now)
        return lane.setbacks.release(claim, setback.reason)

    def _blame(self, lane: Lane, job: Job, error: OSError) -> None:
        """A processor saw an I/O error. Raise it on if the queues' file systems are to blame."""
        if isinstance(error, FileSystemTrouble):
            raise error
        with job.document.open() as file:
            while file.read(1 << 20):
                pass
        for target in lane.handoff.targets:
            target.directory.probe()

    def _abandon(self, lane: Lane, job: Job, error: OSError | ConfigError) -> None:
        """Something is not well: give the document back, now or when all is well again."""
        if isinstance(error, OSError) and error.errno == errno.EMFILE:
            # No disk is to blame, but what the processor has left open. That ends this driver, and
            # whoever recovers the claim charges the document for it.
            return
        try:
            self._let_go(lane, job, f"not its fault: {error}")
        except OSError:
            self._litter.append((lane, job))

    def _let_go(self, lane: Lane, job: Job, reason: str) -> None:
        """Release, unless it is committed: then any later pass publishes and finishes it.

        A file system may have done what it said it could not. So the outputs go last, when it is
        certain that nobody will publish them.
        """
        if job.claim.committed:
            return
        if lane.setbacks.release(job.claim, reason) != "revoked":
            job.outputs.discard()
            lane.handoff.forget(job.claim)
        elif not lane.handoff.committed(job.claim):
            lane.handoff.set_aside(job.outputs)
            # It may have been discarded, though we were told that it could not be.
            lane.handoff.settle_report(job.claim.docid, job.claim.token)


def _unread(document: Document) -> ProcessorFailed | None:
    """Why a document that nobody has looked at is none."""
    try:
        document.check()
    except ProcessorFailed as error:
        return error
    return None


def _check_room(targets: Sequence[Target]) -> None:
    """A program that fails on a full disk says so in its own way; ask the disk."""
    for target in targets:
        room = target.directory.room()
        if room.read_only or room.free_bytes < _FULL_DISK:
            state = "read-only" if room.read_only else "full"
            raise FileSystemTrouble(f"the file system of {target.directory.path} is {state}")
