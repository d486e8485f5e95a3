"""A job file, and the documents and views that come of it. Pure."""

import re
import shlex

import msgspec

from queuedriver.doors.fuq.wire import MAX_NPROC, JobDescription, JobStatusUpdate
from queuedriver.errors import BadArgument, ProcessorFailed
from queuedriver.format.names import objection
from queuedriver.format.records import Failure

# A byte of memory and a document each: more than this takes a file system longer than it takes a
# person to think of two jobs.
MAX_TASKS = 1_000_000
# Bytes: a command with a long list of arguments. It travels with each task.
MAX_JOB_FILE = 256 * 1024
_MAX_PATH = 4096
NAME = re.compile(r"(?!\.)[A-Za-z0-9._-]{1,100}")


class JobFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A job file; its keys are those of the original's."""

    command: str
    name: str = "job"
    # Tasks are numbered 1 to num_tasks.
    num_tasks: int = 1
    # Ours: the processors that each task takes.
    num_proc: int = 1
    working_dir: str = ""
    logging_dir: str = ""

    def objection(self) -> str | None:
        """Return why it cannot be run anywhere; None when it can be, somewhere."""
        if not NAME.fullmatch(self.name):
            return f"name {self.name!r}: up to 100 of A-Z a-z 0-9 . _ -, and no leading dot"
        if not 1 <= self.num_tasks <= MAX_TASKS:
            return f"num_tasks {self.num_tasks}: 1 to {MAX_TASKS:,}"
        if not 1 <= self.num_proc <= MAX_NPROC:
            return f"num_proc {self.num_proc}: 1 to {MAX_NPROC:,}"
        for key, path in (("working_dir", self.working_dir), ("logging_dir", self.logging_dir)):
            if "\0" in path or ".." in path.split("/") or len(path) > _MAX_PATH:
                return f"{key} {path!r}: a path below the workers' root, without '..'"
        try:
            words = shlex.split(self.command)
        except ValueError as error:
            return f"command {self.command!r}: {error}"
        if not words or "\0" in self.command:
            return f"command {self.command!r} names no program"
        return None


def encode(job: JobFile) -> bytes:
    """Return a job file; raise BadArgument for what no client could run."""
    if words := job.objection():
        raise BadArgument(words)
    data = msgspec.json.encode(job)
    if len(data) > MAX_JOB_FILE:
        raise BadArgument(f"the job file would have {len(data)} bytes; {MAX_JOB_FILE} at most")
    return data


def decode(docid: str, data: bytes) -> JobFile:
    """Return what was submitted; raise ProcessorFailed for what will never be a job."""
    if len(data) > MAX_JOB_FILE:
        raise _bad(f"a job file has at most {MAX_JOB_FILE} bytes")
    try:
        job = msgspec.json.decode(data, type=JobFile)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise _bad(f"this is no job file: {error}") from None
    words = job.objection()
    # Its longest name has to be a docid.
    words = words or objection(task_docid(docid, job.num_tasks))
    if words:
        raise _bad(words)
    return job


def task_docid(docid: str, task: int) -> str:
    """Return the docid of one task of a job, in its directory and in the output queue."""
    return f"{docid}.{task}"


def description(job_id: int, job: JobFile) -> JobDescription:
    """Return a job as clients see it."""
    return JobDescription(job_id, **msgspec.structs.asdict(job))


class Result(msgspec.Struct, frozen=True, omit_defaults=True, rename={"job_id": "job"}):
    """The document that a finished task becomes."""

    job_id: int
    name: str
    task: int
    success: bool
    status: str
    client: str
    exit_code: int | None = None
    # Seconds since the epoch by the client's clock, and how long it took.
    started: float | None = None
    seconds: float | None = None
    log: str | None = None


def result(name: str, client: str, update: JobStatusUpdate) -> bytes:
    """Return a client's report as a document."""
    told = msgspec.structs.asdict(update)
    del told["new_job"]
    # A number that JSON does not have becomes null.
    return msgspec.json.encode(Result(name=name, client=client, **told))


class Summary(msgspec.Struct, frozen=True):
    """The document that a job becomes when its last task has ended."""

    job: int
    name: str
    command: str
    tasks: int
    done: int
    # Those that failed, and those whose clients were lost, as often as they may be.
    errors: int
    lost: int
    cancelled: int
    # Seconds since the epoch, by the broker's clock.
    taken_up: float
    ended: float
    # Which tasks failed or were lost, the first of them.
    failed_tasks: tuple[int, ...]


class ClientView(msgspec.Struct, frozen=True):
    """One client."""

    client: str
    address: str
    # Processors it may use, and those of them that are free.
    nproc: int
    free: int
    tasks: int
    # Docids of some of them.
    at: tuple[str, ...]
    # Jobs that it will not run.
    refused: tuple[int, ...]


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """One job, for whoever looks."""

    # 0 until it is taken up.
    job: int
    docid: str
    name: str
    # waiting, running, paused, cancelled, finished
    state: str
    command: str
    tasks: int
    num_proc: int
    pending: int
    running: int = 0
    done: int = 0
    errors: int = 0
    cancelled: int = 0
    # Why nothing of it runs; empty when something does, or nothing is left to.
    why: str = ""


def _bad(words: str) -> ProcessorFailed:
    return ProcessorFailed(Failure(cause="bad-job", message=words, permanent=True))
