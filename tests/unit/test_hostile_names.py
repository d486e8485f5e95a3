"""Names that would steer a terminal, or look like lines of ours, are shown as what they are."""

import json
import os
import re
import unicodedata
from functools import partial
from pathlib import Path

import msgspec
import pytest

from queuedriver.claims.liveness import identify
from queuedriver.cli import COMMANDS
from queuedriver.cli import run as queuedriver
from queuedriver.driving.driver import Driver
from queuedriver.errors import PermanentError
from queuedriver.format import names
from queuedriver.format.records import Registration
from queuedriver.operating.queue import Queue
from queuedriver.options import Options
from tests.cli import pipelines
from tests.cli.processes import on_terminal, read_until
from tests.slurm_double import SlurmDouble, slurm
from watchdogd.cli import COMMANDS as WATCHDOGS
from watchdogd.cli import run as watchdogd

__all__ = ["slurm"]
# Begins a line only where a line end of a name was printed as one.
FAKE = "FAKE"
NASTY = [
    "\x1b[2J\x1b[31mred",
    "\x1b]0;title\x07",
    f"two\n{FAKE} line",
    f"back\r{FAKE}",
    "tab\tulator",
    "\u202egnp.exe",
    "\u2066isolated\u2069",
    "\x9b31m",
    "zero\u200bwidth",
    f"separator\u2028{FAKE}",
    "\x7f\x08\x08",
    "nul\u0001",
]
# No docid, but a file may be called so.
NOT_UTF_8 = os.fsdecode(b"caf\xe9\xff\x1b[2J")
TOKEN = "h-1-0605d3a1f2b0c05a17"


def check(shown: str) -> None:
    """Nothing in it steers a terminal, and no name is a line of its own."""
    harmful = {char for char in shown if unicodedata.category(char)[0] in "CZ"} - set(" \n")
    assert not harmful, shown
    assert not [line for line in shown.splitlines() if line.startswith(FAKE)], shown


class Shell:
    """Calls commands in this process, and looks at all they print."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.called: set[tuple[str, str]] = set()

    def queuedriver(self, *args: object) -> str:
        self.called.add(("queuedriver", str(args[0])))
        return self._look(queuedriver([str(one) for one in args]), args)

    def watchdogd(self, *args: object) -> str:
        self.called.add(("watchdogd", str(args[0])))
        return self._look(watchdogd([str(one) for one in args]), args)

    def _look(self, code: int, args: tuple[object, ...]) -> str:
        printed = self._capsys.readouterr()
        assert code != 70, printed.err
        check(printed.err)
        if "--json" in args:
            assert printed.out.isascii()
            for document in printed.out.splitlines() if "list" in args else [printed.out]:
                if document:
                    json.loads(document)
        check(printed.out)
        return printed.out


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


def fill(queue: Path, output: Path) -> None:
    """A queue with such names in every state, and in what is written about them."""

    def process(document: object) -> bytes:
        raise PermanentError(f"no good: {NASTY}")

    with Queue.open(queue, create=True) as opened:
        for docid in NASTY:
            opened.submit(docid, b"text", durable=False)
        # Discarded, with reports and a journal.
        Driver(queue, process, output, id="h-9", options=Options(drain=True)).run()
        for docid in NASTY:
            opened.submit(docid, b"text", durable=False)
        drivers = opened.private.subdirectory("drivers", create=True)
        drivers.write_new("h-1.json", _registration())
        drivers.close()
    for number, docid in enumerate(NASTY):
        for name in (
            names.waiting_name(f"again-{docid}", 1),
            names.working_name(f"taken-{docid}", 0, TOKEN),
            names.later_name(f"later-{docid}", 0, 9_000_000_000),
            names.writing_name(f"half-{docid}", TOKEN),
            f"given up-{docid}.failed_twice",
            f"foreign {docid}",
            f"{number}-{NOT_UTF_8}.ready",
            f"a report of {docid}.report.json",
        ):
            (queue / name).write_bytes(b"text")
        (queue / f"link {docid}.ready").symlink_to(docid)


def _registration() -> bytes:
    nasty = "".join(NASTY)
    host = msgspec.structs.replace(identify(os.getpid()), host=nasty)
    return msgspec.json.encode(
        Registration(
            id="h-1",
            salt="5a17",
            identity=host,
            processor=nasty,
            inputs=(nasty,),
            outputs=(nasty,),
            started_at=1.0,
            state=nasty,
            why=nasty,
        )
    )


@pytest.mark.slow
def test_every_command_of_queuedriver_shows_names_safely(tmp_path: Path, shell: Shell) -> None:
    queue, output = tmp_path / "in", tmp_path / "out"
    fill(queue, output)
    call = shell.queuedriver
    for words in (["status"], ["status", "--json"], ["list"], ["list", "--json"], ["check"]):
        call(*words, queue)
    call("check", "--json", queue)
    for docid in (*NASTY, f"foreign {NASTY[0]}", "taken-" + NASTY[1], "nobody's\x1b[2J"):
        for command in ("show", "why", "history"):
            call(command, queue, docid)
        call("show", "--json", queue, docid)
    drops = tmp_path / "drops"
    drops.mkdir()
    for name in NASTY:
        (drops / name).write_bytes(b"dropped")
        call("intake", tmp_path / f"no folder {name}", queue)
        call("intake", drops, queue, "--complete", name, "--settle", "50ms", "--drain")
        call("why", drops, name)
        call("put", "--no-durable", queue, tmp_path / f"not there {name}")
        call("put", "--no-durable", queue, "--docid", name, queue / f"foreign {name}")
        call("put", "--no-durable", queue, queue / f"foreign {name}")
        call("discard", queue, name, "--reason", name)
        call("retry", queue, name)
        call("retry", queue, f"unknown {name}")
        # What nobody has, and what is no command, option or number.
        call("status", tmp_path / f"no queue {name}")
        call("list", queue, "--state", name)
        call(name, queue)
        call("list", f"--{name}", queue)
        call("run", queue, "--no-output", "--command", "true", "--timeout", name)
        call("run", queue, "--no-output", "--command", name, "--drain")
        call("run", queue, "--call", f"{''.join(name.split())}:x", "--drain")
        call("run", queue, "--no-output", "--command", "true", "--id", name)
        call("broker", "pingpong", tmp_path / f"no queue {name}", "--to", output, "--poll")
        call("broker", "pingpong", queue, "--to", output, "--listen", name)
        call("worker", "pingpong", f"tcp://{name}:1", "--command", "true")
        call("worker", "pingpong", "--command", "true", "--curve", name)
        call("client", "roundrobin", "tcp://127.0.0.1:1", "send", tmp_path / f"not there {name}")
        call("fuq", "status", tmp_path / f"no queue {name}")
        call("fuq", "hold", queue, name)
        call("fuq", "submit", queue, "--name", name, "--", "true")
        call("keys", queue / f"foreign {name}")
    for command in ("pause", "resume", "quit", "resume", "close", "reopen", "close"):
        call(command, queue)
    call("recover", "--lease", "0", queue)
    # What nobody finishes would be waited for.
    for unfinished in [*queue.glob("*.writing"), *queue.glob("*.working"), *queue.glob("*.later")]:
        unfinished.unlink()
    call("run", queue, "--no-output", "--command", "false", "--drain", "--to", output)
    call("get", queue, tmp_path / "got")
    call("retry", queue, "--all", "--yes")
    call("check", "--repair", queue)
    assert {name for program, name in shell.called if program == "queuedriver"} >= set(COMMANDS)


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    """A pipeline whose queues, watchdogs and logs are full of such names."""
    file = pipelines.make(tmp_path)
    fill(tmp_path / "queues/input", tmp_path / "queues/values")
    nasty = "".join(NASTY)
    drivers = tuple(
        pipelines.driver(f"parse-{number}", state=name, why=name, document=name)
        for number, name in enumerate(NASTY, 1)
    )
    said = pipelines.report(
        drivers=drivers,
        notes=tuple(NASTY),
        trouble=nasty,
        reload_error=nasty,
        crash=nasty,
    )
    pipelines.publish(file, said)
    pipelines.publish(file, pipelines.report("fern\x1b[2J", identity=pipelines.FAR, at=1.0))
    control = tmp_path / "queues/.watchdogd"
    (control / "hosts/broken\x1b[2J.json").write_bytes(b"{")
    (control / "scale").write_text(f"{NASTY[0]}=4\n{nasty}\n")
    (control / "QUIT").write_text(nasty)
    for name in NASTY:
        (control / name).write_bytes(b"")
        (control / f"restart-{name}-1700000000").write_bytes(b"")
        logs = control / "logs" / name
        logs.mkdir(parents=True)
        (logs / f"{name}-1.log").write_bytes(b"a line\n")
    (control / "QUIT").unlink()
    return file


def show_slurm(pipeline: Path, shell: Shell, slurm: SlurmDouble) -> None:
    """Call what asks Slurm, and have Slurm answer with such names."""
    call = partial(shell.watchdogd, "slurm")
    file = pipeline.with_name("cluster.toml")
    file.write_text(pipeline.read_text() + "\n[slurm]\n")
    call("start", file, "--nodes", 1)
    (job,) = slurm.jobs
    slurm.say(
        [
            {**job, "job_id": 200 + at, "state_reason": name, "nodes": name}
            | (
                {}
                if at % 2
                else {"job_state": "RUNNING", "array_task_string": "", "array_task_id": at}
            )
            for at, name in enumerate(NASTY)
        ]
    )
    slurm.mark("refuse", "".join(NASTY))
    for asked in (pipeline.parent / "queues/.watchdogd/slurm").glob("asked-*"):
        os.utime(asked, (1, 1))
    for words in (["status"], ["status", "--json"], ["check"], ["start", "--dry-run"], ["start"]):
        call(*words, "-p", file)
    for name in NASTY:
        call("start", f"{name}=2", "-p", file)
        call("start", "--partition", name, "--dry-run", "-p", file)
        call("scale", f"{name}=2", "-p", file)
        call("scale", name, "-p", file)
        call(name)
    call("stop", "-p", file)


def test_every_command_of_watchdogd_shows_names_safely(
    pipeline: Path, shell: Shell, slurm: SlurmDouble
) -> None:
    call = shell.watchdogd
    show_slurm(pipeline, shell, slurm)
    for words in (
        ["status"],
        ["status", "--json"],
        ["top"],
        ["check"],
        ["logs"],
        ["unit"],
        ["metrics"],
    ):
        call(*words, "-p", pipeline)
    for name in (*NASTY, f"parse-1@{NASTY[0]}"):
        call("trace", name, "-p", pipeline)
        call("trace", "--json", name, "-p", pipeline)
        call("retry", name, "-p", pipeline)
        call("discarded", name, "-p", pipeline)
        call("scale", f"{name}=2", "-p", pipeline)
        call("scale", f"parse={name}", "-p", pipeline)
        call("scale", "parse=2", "--host", name, "-p", pipeline)
        for command in ("pause", "resume", "restart", "logs"):
            call(command, name, "-p", pipeline)
        call("restart", "parse", "--host", name, "-p", pipeline)
        call("logs", "--host", name, "-p", pipeline)
        call("unit", "--host", name, "-p", pipeline)
        call("metrics", "--host", name, "-p", pipeline)
        call("unit", "--user", name, "-p", pipeline)
        call("run", pipeline, "--host", name + "\n")
        call("status", "-p", pipeline.parent / name)
        call("serve", pipeline.parent / name)
        call("serve", pipeline, "--address", name)
        call("batch", name, "-p", pipeline)
        call("replay", name, "-p", pipeline)
        call("replay", "parse", name, "-p", pipeline)
        for flag in ("--group", "--cause", "--text"):
            call("discarded", flag, name, "-p", pipeline)
            call("retry", flag, name, "--dry-run", "-p", pipeline)
        call(name)
    for command in ("pause", "resume", "reload", "restart"):
        call(command, "-p", pipeline)
    call("discarded", "-p", pipeline)
    call("retry", "--dry-run", "-p", pipeline)
    call("retry", "--yes", "-p", pipeline)
    call("batch", "-p", pipeline)
    call("replay", "parse", "--dry-run", "-p", pipeline)
    call("stop", "-p", pipeline)
    assert {name for program, name in shell.called if program == "watchdogd"} >= set(WATCHDOGS)


def test_bad_pipeline_file_with_such_names_is_told_safely(tmp_path: Path, shell: Shell) -> None:
    for name in NASTY:
        file = tmp_path / f"{name.replace('/', '')}.toml"
        text = json.dumps(name)
        file.write_text(f"[pipeline]\nname = {text}\n[[stage]]\nname = {text}\n{text} = {text}\n")
        for words in (["check", file], ["status", file], ["run", file], ["unit", file]):
            shell.watchdogd(*words)


@pytest.mark.parametrize("command", ["status", "list"])
def test_on_a_terminal_there_are_no_escapes_but_our_own(tmp_path: Path, command: str) -> None:
    queue = tmp_path / "in"
    fill(queue, tmp_path / "out")
    enough = r"DOCUMENT(.*\n){30}" if command == "list" else "left before"
    with on_terminal(command, queue) as (process, terminal):
        seen = read_until(terminal, enough)
        process.kill()
    # What came after may be cut off anywhere.
    found = re.search(enough, seen)
    assert found is not None
    seen = seen[: found.end()]
    for ours in ("\x1b[1m", "\x1b[31;1m", "\x1b[33;1m", "\x1b[0m", "\r\n"):
        seen = seen.replace(ours, " " if ours == "\r\n" else "")
    check(seen)
