"""Rules of jobs, each broken on purpose: the simulation has to notice."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from queuedriver.claims.handoff import Claim
from queuedriver.format import names
from queuedriver.jobs import job
from queuedriver.jobs.job import Job
from queuedriver.jobs.outcomes import Outcome, Outcomes
from tests.simulation.broken_calls import syncs
from tests.simulation.disk import Inode
from tests.simulation.kernel import Kernel
from tests.simulation.mutants import Mutant, mutant, of
from tests.simulation.scene import INPUT, entries, find

JOB_MUTANTS: dict[str, Mutant] = {}
_CRASHES = {"switch": 2, "crash": 3}
_MISTAKES = {"switch": 3, "pause": 3, "silence": 1, "wake": 2}
_complete, _prepare, _set_back = Job._complete, Job._prepare, Job.set_back
_first_docid = names.first_docid


@mutant(
    of((Job, "stands")), kinds=_MISTAKES, scenes=("jobs on one host", "jobs"), among=JOB_MUTANTS
)
def broker_does_not_look_whether_a_job_is_its_own(self: Job) -> bool:
    """One that was taken for dead goes on to deal a job that somebody else has by now: its tasks
    come out twice."""
    return True


@mutant(of((Outcomes, "note")), kinds=_CRASHES, scenes=("jobs",), among=JOB_MUTANTS)
def lines_are_not_written(self: Outcomes, task: int, outcome: Outcome) -> None:
    """Nobody else knows which tasks have ended: the next broker runs them again."""
    self.mark(task, outcome)


@mutant(of((Job, "_complete")), kinds=_CRASHES, scenes=("jobs",), among=JOB_MUTANTS)
def file_of_a_task_goes_before_its_line(self: Job, claim: Claim, outcome: Outcome) -> None:
    """A task without a file and without a line is open: it is run again."""
    with _lines_after(self):
        _complete(self, claim, outcome)


@contextmanager
def _lines_after(job: Job) -> Iterator[None]:
    """What is noted meanwhile is written at the end."""
    noted: list[Any] = []
    job.outcomes.note = lambda *given: noted.append(given)  # type: ignore[method-assign]
    try:
        yield
    finally:
        del job.outcomes.note
    for given in noted:
        job.outcomes.note(*given)


@mutant(of((Job, "_complete")), kinds=_CRASHES, scenes=("jobs",), among=JOB_MUTANTS)
def line_is_written_before_the_commit(self: Job, claim: Claim, outcome: Outcome) -> None:
    """Whoever dies in between has ended a task that was never published."""
    self.outcomes.note(self.task_of(claim.docid), outcome)
    _complete(self, claim, outcome)


@mutant(of((Job, "_prepare")), kinds=_CRASHES, scenes=("jobs",), among=JOB_MUTANTS)
def failed_task_does_not_say_so(self: Job, claim: Claim, outcome: Outcome) -> None:
    """Whoever finishes the commit of a dead broker takes a task that failed for one that was
    done."""
    _prepare(self, claim, Outcome.DONE)


@mutant(of((Outcomes, "load")), kinds=_CRASHES, scenes=("jobs",), among=JOB_MUTANTS)
def lines_of_others_are_not_read(self: Outcomes) -> None:
    """The next broker runs again what has ended."""


@mutant(of((Job, "set_back")), kinds=_CRASHES, scenes=("killers",), among=JOB_MUTANTS)
def line_of_a_lost_task_comes_after_it_was_discarded(self: Job, claim: Claim, how: Any) -> None:
    """Whoever dies in between has discarded a task that is open: it is run again."""
    with _lines_after(self):
        _set_back(self, claim, how)


@mutant(
    lambda instead: [(names, "first_docid", instead)],
    kinds=_CRASHES,
    scenes=("jobs",),
    among=JOB_MUTANTS,
)
def each_broker_forms_a_jobid(docid: str) -> str:
    """What a dead broker knew of a job is not found by the next, which begins from the start."""
    return f"{_first_docid(docid)}.{vars(job)['os'].getpid()}"


@mutant(syncs, kinds={"switch": 1, "cut": 2}, scenes=("durable jobs",), among=JOB_MUTANTS)
def name_of_the_lines_is_not_synced(kernel: Kernel, inode: Inode) -> bool:
    """The lines are on disk and nobody can find them: a power cut leaves tasks that have ended, and
    neither a file nor a line of them."""
    jobs = entries(find(kernel.disk, f"{INPUT}/{names.PRIVATE}/jobs")).values()
    return not any(inode is one for one in jobs)
