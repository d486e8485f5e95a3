"""What people use today for stages of documents, behind one small face, ours among them.

Each is set up as its own pages say for work that must not get lost, in one directory that it gets,
and with its defaults otherwise. What it has started is ended with it: every process whose
environment names that directory.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import pipelines
from benchmarks.alternatives_reckoning import failed_jobs
from benchmarks.alternatives_work import STAGES
from benchmarks.measuring import Failed

HERE = Path(__file__).parent
JOB = HERE / "alternatives_job.sh"
# What marks the processes of a tool.
MARK = "WORK_DIRECTORY"
# Seconds for a tool to leave by itself.
_LEAVE = 5.0

FUNCTION = "function"
COMMAND = "command"
MODEL = "model"


@dataclass(frozen=True)
class Job:
    """What a tool is to do: how a stage does its work, and with how many workers."""

    kind: str = FUNCTION
    # For three stages; a model has one.
    workers: int = 3
    # Each stage of a document takes so long.
    seconds: float = 0.0
    # Seconds that a stage may take; 0: it is not said.
    limit: float = 0.0
    # Bytes, and seconds to load.
    model: int = 0
    load: float = 0.0
    # Whether stages note when they begin and end.
    noted: bool = False
    # Whether documents come while it runs.
    waits: bool = False

    @property
    def stages(self) -> tuple[int, ...]:
        return STAGES[:1] if self.kind == MODEL else STAGES

    def environ(self, directory: Path) -> dict[str, str]:
        told = {
            **pipelines.environ(directory),
            MARK: str(directory),
            "WORK_AS": self.kind,
            "WORK_STAGES": str(len(self.stages)),
        }
        if self.seconds:
            told["WORK_SECONDS"] = str(self.seconds)
        if self.limit:
            told["WORK_LIMIT"] = str(self.limit)
        if self.noted:
            told["WORK_LOG"] = str(directory / "log")
        if self.kind == MODEL:
            told |= {"WORK_MODEL": str(self.model), "WORK_LOAD": str(self.load)}
        return told


class Running:
    """A tool at work in its directory."""

    def __init__(self, tool: "Tool", directory: Path, job: Job) -> None:
        self.tool = tool
        self.directory = directory
        self.job = job
        self.process: subprocess.Popen[bytes] | None = None

    def done(self) -> int:
        """How many documents have come out of the last stage."""
        return len(self.results())

    def results(self) -> set[str]:
        suffix = self.tool.results(self.job)[1]
        return {path.name.removesuffix(suffix) for path in self._results()}

    def ended_at(self) -> float:
        """When the last result was there, in seconds since the epoch."""
        return max(path.stat().st_ctime_ns for path in self._results()) / 1e9

    def _results(self) -> Iterator[Path]:
        place, suffix = self.tool.results(self.job)
        found = (self.directory / place).glob(f"*{suffix}")
        # What begins with a dot is on its way.
        return (path for path in found if not path.name.startswith("."))

    @property
    def has_left(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def named(self, documents: Sequence[str]) -> set[str]:
        """Which of these documents the tool names afterwards as not done."""
        return self.tool.named(self.directory, documents)

    def pids(self) -> list[int]:
        return pipelines.marked(MARK, self.directory)


@dataclass(frozen=True)
class Tool:
    """One of them. `lay_out` and `submit` are not measured."""

    name: str
    # What its pages say of not losing work, and what was set accordingly.
    note: str
    lay_out: Callable[[Path, Job], None]
    start: Callable[[Path, Job], contextlib.AbstractContextManager[subprocess.Popen[bytes]]]
    # A function that submits a document, for as long as the block lasts.
    submitting: Callable[[Path, Job], contextlib.AbstractContextManager[Callable[[str], object]]]
    # Where the results are, and how their names end.
    results: Callable[[Job], tuple[str, str]]
    named: Callable[[Path, Sequence[str]], set[str]]
    needs: tuple[str, ...] = ()
    # What has to be there for as long as there is a queue: a server.
    beside: Callable[[Path, Job], contextlib.AbstractContextManager[object]] = (
        lambda directory, job: contextlib.nullcontext()
    )
    # Whether it has stages that are functions.
    calls: bool = True
    ours: bool = False

    def missing(self) -> str:
        """Return what it needs and is not there; empty: nothing."""
        return next((one for one in self.needs if program(one) is None), "")

    @contextlib.contextmanager
    def prepared(self, directory: Path, job: Job, documents: Sequence[str]) -> Iterator[Running]:
        """Lay out, and submit these documents; nothing works on them yet."""
        if absent := self.missing():
            raise Failed(f"{absent} is not installed")
        self.lay_out(directory, job)
        with contextlib.ExitStack() as stack:
            stack.callback(end_marked, directory)
            stack.enter_context(self.beside(directory, job))
            with self.submitting(directory, job) as submit:
                for docid in documents:
                    submit(docid)
            yield Running(self, directory, job)

    @contextlib.contextmanager
    def started(self, running: Running) -> Iterator[None]:
        with self.start(running.directory, running.job) as process:
            running.process = process
            yield


def program(name: str) -> str | None:
    """Return where a program is, of this environment first; or None."""
    own = Path(sys.executable).parent / name
    return str(own) if own.exists() else shutil.which(name)


def end_marked(directory: Path) -> None:
    """Kill what is left of a tool; Failed when something does not go."""
    ends_at = time.monotonic() + _LEAVE
    while left := pipelines.marked(MARK, directory):
        if time.monotonic() > ends_at:
            raise Failed(f"{len(left)} processes do not end, as {left[0]}")
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


@contextlib.contextmanager
def started(command: Sequence[str | Path], directory: Path, job: Job) -> Iterator[subprocess.Popen]:
    """A program in a process group of its own, asked to leave at the end of the block."""
    first, *words = command
    with (directory / "tool.log").open("ab") as log:
        process = subprocess.Popen(
            [program(str(first)) or first, *words],
            cwd=directory,
            env=job.environ(directory) | _broker(directory),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_LEAVE)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


# Ours.

_FUNCTIONS = ("one", "two", "three")
OURS = "watchdogd"
DURABLE = "watchdogd, durable"


def _ours(name: str, *, durable: bool) -> Tool:
    def lay_out(directory: Path, job: Job) -> None:
        tables = [_table(stage, job, durable=durable) for stage in job.stages]
        pipelines.write(directory, tables)
        for name in ("alternatives_work.py", "alternatives_ours.py"):
            shutil.copy(HERE / name, directory)

    @contextlib.contextmanager
    def start(directory: Path, job: Job) -> Iterator[subprocess.Popen[bytes]]:
        with pipelines.watched(directory, more=job.environ(directory)) as watchdog:
            yield watchdog.process

    @contextlib.contextmanager
    def submitting(directory: Path, job: Job) -> Iterator[Callable[[str], object]]:
        yield lambda docid: pipelines.put(directory / "queues" / "input", docid)

    durably = (
        "every promise holds over a power cut too"
        if durable
        else "`durable = false`: a power cut may lose documents, killed processes none"
    )
    return Tool(
        name,
        f"{name}: one retry, which is the default; {durably}",
        lay_out,
        start,
        submitting,
        lambda job: (f"queues/s{job.stages[-1]}", ".ready"),
        _discarded,
        ours=True,
    )


def _table(stage: int, job: Job, *, durable: bool) -> str:
    function = f"alternatives_ours:{_FUNCTIONS[stage - 1]}"
    lines = [f'name = "s{stage}"', f"durable = {str(durable).lower()}"]
    if job.kind == COMMAND:
        lines.append('command = ["cp", "{input}", "{output}"]')
    else:
        lines.append(f'call = "{function}"')
    if job.kind == MODEL:
        lines += ["preload = true", f"drivers = {job.workers}"]
    if job.limit:
        lines += [f'timeout = "{job.limit:g} s"', 'hard_after = "1 s"']
    return "\n".join(lines)


def _discarded(directory: Path, documents: Sequence[str]) -> set[str]:
    found = (directory / "queues").glob("*/discarded/*")
    return {path.name for path in found} & set(documents)


# A job of the shell for each document.


def _shell(name: str, note: str, words: Callable[[Job], str], *needs: str) -> Tool:
    """A list of documents, and a command that takes from it."""

    def lay_out(directory: Path, job: Job) -> None:
        _make_stages(directory)
        (directory / "list").touch()

    def start(
        directory: Path, job: Job
    ) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
        return started(["sh", "-c", words(job)], directory, job)

    @contextlib.contextmanager
    def submitting(directory: Path, job: Job) -> Iterator[Callable[[str], object]]:
        with (directory / "list").open("a", buffering=1) as lines:

            def submit(docid: str) -> None:
                _write_document(directory, docid)
                lines.write(f"{docid}\n")

            yield submit

    return Tool(
        name,
        note,
        lay_out,
        start,
        submitting,
        lambda job: (f"s{job.stages[-1]}", ""),
        _in("failed") if name == XARGS else _failed_jobs,
        needs=needs,
        calls=False,
    )


def _make_stages(directory: Path) -> None:
    """Where documents are that the tool itself knows only by name."""
    for stage in (0, *STAGES):
        (directory / f"s{stage}").mkdir()


def _write_document(directory: Path, docid: str) -> None:
    (directory / "s0" / docid).write_bytes(b"x" * 1024)


def _in(*files: str) -> Callable[[Path, Sequence[str]], set[str]]:
    """Which documents are named in one of these files."""

    def named(directory: Path, documents: Sequence[str]) -> set[str]:
        texts = [directory / file for file in files]
        text = "".join(one.read_text(errors="replace") for one in texts if one.exists())
        return {docid for docid in documents if docid in text}

    return named


def _failed_jobs(directory: Path, documents: Sequence[str]) -> set[str]:
    """Which documents' last line in the log of jobs says that the job has failed."""
    path = directory / "joblog"
    return failed_jobs(path.read_text() if path.exists() else "") & set(documents)


PARALLEL = "GNU parallel"
XARGS = "xargs -P"
# Documents for a worker that loads a model: each gets half of them at once.
MODEL_BATCH = 20
_PYTHON = f"{sys.executable} -m benchmarks.alternatives_work"


def _listed(job: Job, command: str) -> str:
    """Give a command the list, to its end, or as it grows."""
    return f"tail -n +1 -f list | {command}" if job.waits else f"{command} <list"


def _parallel(job: Job) -> str:
    if job.kind == MODEL:
        return f"parallel --will-cite -j {job.workers} -N {MODEL_BATCH} {_PYTHON} <list"
    limit = f"--timeout {job.limit:g} " if job.limit else ""
    options = f"-j {job.workers} --joblog joblog --resume-failed --retries 2 {limit}"
    return _listed(job, f"parallel --will-cite {options}sh {JOB} {{}}")


def _xargs(job: Job) -> str:
    if job.kind == MODEL:
        return f"xargs -P {job.workers} -n {MODEL_BATCH} {_PYTHON} <list"
    limit = f"timeout {job.limit:g} " if job.limit else ""
    each = f'{limit}sh {JOB} "$1" || echo "$1" >>failed'
    return _listed(job, f"xargs -P {job.workers} -n 1 sh -c '{each}' sh")


# Queues of tasks.

HUEY = "huey"
CELERY = "Celery"


def _tasks(
    name: str, note: str, command: Callable[[Job], list[str | Path]], *needs: str, server: bool
) -> Tool:
    module = f"benchmarks.alternatives_{name.lower()}"

    def lay_out(directory: Path, job: Job) -> None:
        _make_stages(directory)

    @contextlib.contextmanager
    def submitting(directory: Path, job: Job) -> Iterator[Callable[[str], object]]:
        with (directory / "client.log").open("ab") as log:
            client = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.alternatives_client", module],
                cwd=directory,
                env=job.environ(directory) | _broker(directory),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

        def submit(docid: str) -> None:
            _write_document(directory, docid)
            if client.stdin is None or client.stdout is None:
                raise Failed("the client has no pipes")
            with contextlib.suppress(BrokenPipeError):
                client.stdin.write(f"{docid}\n")
                client.stdin.flush()
            if not client.stdout.readline():
                last = (directory / "client.log").read_text().strip().splitlines() or ["no words"]
                raise Failed(f"the client has left: {last[-1]}")

        try:
            yield submit
        finally:
            client.kill()
            client.communicate()

    def start(
        directory: Path, job: Job
    ) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
        return started(command(job), directory, job)

    return Tool(
        name,
        note,
        lay_out,
        start,
        submitting,
        lambda job: (f"s{job.stages[-1]}", ""),
        _in("tool.log"),
        needs=needs,
        beside=_redis if server else lambda directory, job: contextlib.nullcontext(),
    )


def _huey(job: Job) -> list[str | Path]:
    words = ["-w", str(job.workers), "-k", "process", "-c", "1", "-q"]
    return ["huey_consumer", "benchmarks.alternatives_huey.huey", *words]


def _celery(job: Job) -> list[str | Path]:
    words = ["-c", str(job.workers), "-P", "prefork", "-l", "WARNING"]
    return ["celery", "-A", "benchmarks.alternatives_celery", "worker", *words]


def _broker(directory: Path) -> dict[str, str]:
    return {"WORK_BROKER": f"redis+socket://{directory}/redis.sock"}


@contextlib.contextmanager
def _redis(directory: Path, job: Job) -> Iterator[None]:
    """A server that nobody else can reach, with its file in this directory."""
    words = ["--port", "0", "--unixsocket", str(directory / "redis.sock"), "--save", ""]
    words += ["--appendonly", "yes", "--dir", str(directory), "--logfile", "redis.log"]
    with started(["redis-server", *words], directory, job) as server:
        socket = directory / "redis.sock"
        pipelines.until(lambda: socket.exists() or server.poll() is not None, "the server")
        yield


OWN = _ours(OURS, durable=False)
TOOLS = (
    OWN,
    _ours(DURABLE, durable=True),
    _shell(
        PARALLEL,
        f"{PARALLEL}: `--joblog`, `--resume-failed`, `--retries 2` and `--timeout`, one job for "
        "all stages of a document, which does not repeat a stage that was done",
        _parallel,
        "parallel",
    ),
    _shell(
        XARGS,
        f"{XARGS}: the same job; its pages know of no retries, so a shell around it writes what "
        "has failed into a file, and `timeout` ends what hangs. Without that shell the first job "
        "that is killed ends xargs",
        _xargs,
        "xargs",
    ),
    _tasks(
        HUEY,
        f"{HUEY}: worker processes, looked after every second (`-c 1`; its default is 10), SQLite "
        "with its default, which syncs each commit; tasks as a pipeline, `retries=1`, `timeout=`. "
        "It promises at most once",
        _huey,
        "huey_consumer",
        server=False,
    ),
    _tasks(
        CELERY,
        f"{CELERY}: prefork, `task_acks_late`, `task_reject_on_worker_lost`, `task_retry_on_worker_"
        "lost` with one retry after a second, a prefetch multiplier of 1, `task_time_limit`, a "
        "`visibility_timeout` of 30 s; Redis with `appendonly yes`",
        _celery,
        "celery",
        "redis-server",
        server=True,
    ),
)
