"""One turn of work: claim, process, and complete or set back."""

import time
from collections.abc import Sequence

from queuedriver.beats import Beats
from queuedriver.errors import ConfigError, FileSystemTrouble, Interrupted, ProcessorFailed
from queuedriver.hands import Hands, Job
from queuedriver.lane import Lane
from queuedriver.limits import Limits
from queuedriver.picking import Candidate
from queuedriver.processors.base import Processor


class Turn:
    """What a driver does with the items it gets to try."""

    def __init__(
        self, processor: Processor, limits: Limits, hands: Hands, beats: Beats, batch: int
    ) -> None:
        self._processor = processor
        self._limits = limits
        self._hands = hands
        self._beats = beats
        self._batch = batch

    @property
    def published(self) -> int:
        """How many outputs have become visible."""
        return self._hands.published

    def work(self, lane: Lane, candidate: Candidate) -> Candidate | None:
        """Try one item, or a batch of them; an item that was seen meanwhile and is yet to try.

        An OSError says that the file system is not well; nothing has been charged for it.
        """
        if self._batch > 1:
            return self._work_batch(lane, candidate)
        hands = self._hands
        job = hands.claim(lane, candidate)
        if job is not None:
            hands.tally.began(job.claim.docid, 1)
            try:
                self._work_one(job)
            finally:
                hands.put_down(job)
        return None

    def clean(self) -> None:
        """The file system is well again."""
        self._hands.clean()

    def _work_one(self, job: Job) -> None:
        tally = self._hands.tally
        started = time.perf_counter_ns()
        self._limits.begin()
        try:
            self._processor.process(job.document, job.outputs, self._limits)
            job.document.check()
            job.outputs.check()
        except (Exception, Interrupted, SystemExit) as error:  # noqa: BLE001 - the user's code
            work = time.perf_counter_ns() - started
            self._hands.set_back(job, error)
            tally.worked(work, 0)
            return
        work = time.perf_counter_ns() - started
        try:
            self._beats.fresh()
        except OSError as error:
            self._hands.abandon(job, error)
            raise
        try:
            self._hands.complete(job, work)
        except PermissionError:
            if not job.claim.committed:
                raise
            # What is in the way of this one output is another user's: who recovers says so.
            job.lane.check_writable()
        tally.worked(work, 1)

    # Batches

    def _work_batch(self, lane: Lane, first: Candidate) -> Candidate | None:
        jobs: list[Job] = []
        # What failed before is tried alone, lest it take others along; in a batch all the same,
        # because that is what the processor expects.
        size = 1 if first.attempt else self._batch
        candidate: Candidate | None = first
        try:
            while candidate is first or (candidate is not None and not candidate.attempt):
                if (job := self._hands.claim(lane, candidate)) is not None:
                    jobs.append(job)
                if len(jobs) == size:
                    candidate = None
                    break
                candidate = lane.next(time.monotonic(), alone=True)
            if jobs:
                self._process_batch(lane, jobs)
        except (OSError, ConfigError) as error:
            for job in jobs:
                if self._hands.holds(job):
                    self._hands.abandon(job, error)
            raise
        finally:
            for job in jobs:
                self._hands.put_down(job)
        return candidate

    def _process_batch(self, lane: Lane, jobs: Sequence[Job]) -> None:
        self._hands.tally.began(jobs[0].claim.docid, len(jobs))
        started = time.perf_counter_ns()
        fates = self._fates(jobs)
        work = time.perf_counter_ns() - started
        done = [job for job, fate in zip(jobs, fates, strict=True) if fate is None]
        for job, fate in zip(jobs, fates, strict=True):
            if fate is not None:
                self._hands.set_back(job, fate)
                self._hands.put_down(job)
        if done:
            self._beats.fresh()
            completions = lane.handoff.complete([(job.claim, job.outputs) for job in done])
            for completion in completions:
                self._hands.completed(lane, completion, work // len(jobs))
        self._hands.tally.worked(work, len(done))

    def _fates(self, jobs: Sequence[Job]) -> list[BaseException | None]:
        """What became of each; one that spoils the call for all is found by trying each alone."""
        self._limits.begin()
        try:
            batch = [(job.document, job.outputs) for job in jobs]
            fates = self._processor.process_batch(batch, self._limits)
            return [
                _unfit(job) if fate is None else fate for job, fate in zip(jobs, fates, strict=True)
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


def _unfit(job: Job) -> Exception | None:
    """Return why what was done cannot be handed over: a document that is none, an output that is
    not there."""
    try:
        job.document.check()
        job.outputs.check()
    except (ProcessorFailed, OSError) as error:
        return error
    return None
