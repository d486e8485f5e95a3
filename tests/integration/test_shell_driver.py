"""The drivers in shell, beside those in Python on one queue: real processes, really killed."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from queuedriver import Driver, Options
from queuedriver.claims.document import Target
from queuedriver.claims.liveness import Observer
from queuedriver.disk.filesystem import Directory
from queuedriver.driving.closing import FED
from queuedriver.format.records import LEASE
from queuedriver.format.settings import DEFAULT_PUBLISH, Publication, Settings
from queuedriver.operating.queue import Queue
from tests.openings import open_queue
from tests.waiting import PATIENCE, contents, until

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "sample_queues/shell"
# The strictest shell at hand.
SHELL = shutil.which("dash") or "/bin/sh"
UPPER = ("tr", "a-z", "A-Z")
STRANGE = [
    "a b",
    "-rf",
    "--",
    "*",
    "[a-z]?",
    "two\nlines\n",
    'quo"te\\s',
    "$(reboot)`id`;&|",
    "wörter-文",
    "x.7",
    "a.tar.gz",
    "ends in space ",
    "~",
    "d" * 160,
    "é" * 80,
]
# What is no item, though each ends in .ready.
FOREIGN = [
    "done",
    "x.failed",
    "x.failed2",
    "x.1.working",
    "x.1.writing.xml",
    "x.ready",
    "x.report.json",
    "d" * 161,
    "é" * 81,
    "not-\udcff-utf8",
]
# A Python driver that leaves when its queue is done and drained.
PYTHON = """
import sys
from queuedriver import Driver
Driver(sys.argv[1], lambda document: document.read().upper(), sys.argv[2], id=sys.argv[3]).run()
"""


class Yard:
    """A queue and its output, and the processes that were started on them."""

    def __init__(self, root: Path) -> None:
        self.root, self.queue, self.out = root, root / "in", root / "out"
        for directory in (self.queue, self.out):
            directory.mkdir()
        self._started: list[subprocess.Popen[bytes]] = []

    def put(self, docid: str, content: str = "text") -> Path:
        aside = self.root / "aside"
        aside.write_text(content)
        return aside.rename(self.queue / f"{docid}.ready")

    def shell(self, driver: str, *command: str, script: str = "driver.sh") -> "Process":
        environ = {**os.environ, "BEAT": "0.05"}
        arguments = [SHELL, SCRIPTS / script, self.queue, "../out", driver, *command]
        return self._start(arguments, environ)

    def python(self, driver: str) -> "Process":
        arguments = [sys.executable, "-c", PYTHON, self.queue, self.out, driver]
        return self._start(arguments, {**os.environ, "PYTHONPATH": str(ROOT)})

    def drain(self, **options: object) -> None:
        """A Python driver, in this process, until the queue is empty."""
        Driver(
            self.queue,
            lambda document: document.read().upper(),
            self.out,
            options=Options(drain=True, **options),  # type: ignore[arg-type]
        ).run()

    def control(self, name: str) -> None:
        (self.queue / name).touch()

    def ls(self, directory: str = "in") -> list[str]:
        listed = os.listdir(self.root / directory)
        return sorted(name for name in listed if name[0] != "." and name != "discarded")

    def claims(self, state: str = "working") -> list[str]:
        return [name for name in self.ls() if name.endswith(f".{state}")]

    def published(self) -> dict[str, str]:
        found = contents(self.out)
        return {name.removesuffix(".ready"): text.decode() for name, text in found.items()}

    def close(self) -> None:
        # With everything that a killed driver left running.
        for process in self._started:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()

    def _start(self, arguments: list[object], environ: dict[str, str]) -> "Process":
        process = subprocess.Popen(
            [os.fspath(one) for one in arguments],  # type: ignore[call-overload]
            env=environ,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._started.append(process)
        return process


Process = subprocess.Popen[bytes]


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    yard = Yard(tmp_path)
    yield yard
    yard.close()


class Watcher:
    """What every Python driver does about the claims of others, at a time of the test's choice."""

    def __init__(self, yard: Yard) -> None:
        self.now = 0.0
        target = Target("out", Directory.open(yard.out), Publication(DEFAULT_PUBLISH))
        settings = Settings(outputs=("../out",))
        self._opened = Queue.open(yard.queue)
        observer = Observer(lambda: self.now)
        self._queue = open_queue(self._opened, (target,), settings, observer=observer)

    def look(self) -> int:
        """How many claims it recovered."""
        return self._queue.recoverer.recover()

    def after(self, seconds: float) -> int:
        self.now += seconds
        return self.look()

    def close(self) -> None:
        for target in self._queue.targets:
            target.directory.close()
        self._queue.close()
        self._opened.close()


@pytest.fixture
def watcher(yard: Yard) -> Iterator[Watcher]:
    watcher = Watcher(yard)
    yield watcher
    watcher.close()


def gated(yard: Yard, then: str = "tr a-z A-Z") -> tuple[str, ...]:
    """A command that goes on until there is a file `go`, and runs once `go.began` is there."""
    script = f': >"$1.began"; until [ -e "$1" ]; do sleep 0.02; done; {then}'
    return ("sh", "-c", script, "sh", f"{yard.root}/go")


def test_shell_and_python_drivers_on_one_queue_publish_every_document_once(yard: Yard) -> None:
    docids = [f"doc {n}.txt" if n % 2 else f"word-{n}" for n in range(300)]
    for docid in docids:
        yard.put(docid, f"{docid} text")
    # The settings first, as the short one does not write them.
    shells = [yard.shell(f"sh{n}", *gated(yard)) for n in range(2)]
    until(lambda: len(yard.claims()) == 2)
    shells.append(yard.shell("short", *gated(yard), script="short.sh"))
    until(lambda: len(yard.claims()) == 3)
    pythons = [yard.python(f"py{n}") for n in range(2)]
    # Everyone has had its share: those in shell have one each in their hands.
    until(lambda: len(yard.ls("out")) > 100)
    (yard.root / "go").touch()
    yard.control("done")
    assert [process.wait(PATIENCE) for process in (*pythons, *shells[:2])] == [0] * 4
    yard.control("QUIT")
    assert shells[2].wait(PATIENCE) == 0
    assert yard.published() == {docid: f"{docid} text".upper() for docid in docids} | {
        "done": FED.decode()
    }
    assert yard.ls() == ["QUIT", "done"]
    assert os.listdir(yard.queue / "discarded") == []


def test_strange_names_go_through_shell_drivers_unchanged(yard: Yard) -> None:
    for docid in STRANGE:
        yard.put(docid)
    yard.control("done")
    assert yard.shell("sh1", *UPPER).wait(PATIENCE) == 0
    assert yard.published() == dict.fromkeys(STRANGE, "TEXT")
    assert yard.ls() == ["done"]


def test_shell_driver_never_touches_what_is_no_item(yard: Yard) -> None:
    foreign = [f"{docid}.ready" for docid in FOREIGN] + ["notes.txt", ".hidden.ready", "a.1.later"]
    for name in foreign:
        (yard.queue / name).write_text("text")
    yard.put("good")
    yard.control("done")
    assert yard.shell("sh1", *UPPER).wait(PATIENCE) == 0
    assert yard.published() == {"good": "TEXT"}
    left = {os.fsdecode(name) for name in os.listdir(os.fsencode(yard.queue))}
    assert left == {*foreign, "done", "discarded", ".queuedriver"}


def test_document_that_fails_in_shell_twice_is_set_aside_with_a_report(yard: Yard) -> None:
    yard.put('b"a\\d\n', "bad")
    yard.put("good")
    yard.control("done")
    yard.shell("sh1", "sh", "-c", 'read -r it; [ "$it" != bad ] || exit 3').wait(PATIENCE)
    assert yard.ls() == ["done"]
    assert yard.published() == {"good": ""}
    assert (yard.queue / "discarded" / 'b"a\\d\n').read_text() == "bad"
    with Queue.open(yard.queue) as queue:
        assert queue.discarded() == ['b"a\\d\n']
        report = queue.report('b"a\\d\n')
    assert report is not None
    assert (report.driver, report.queue, report.docid) == ("sh1", "in", "b?a?d?")
    assert (report.failure.cause, report.failure.message) == ("exit", "its exit code was 3")


def test_document_that_failed_in_shell_has_one_more_try_in_python(yard: Yard) -> None:
    yard.put("a")
    driver = yard.shell("sh1", "sh", "-c", 'touch "$1/in/QUIT"; false', "sh", str(yard.root))
    assert driver.wait(PATIENCE) == 0
    assert yard.ls() == ["QUIT", "a.failed"]
    (yard.queue / "QUIT").unlink()
    yard.drain()
    assert yard.published() == {"a": "TEXT"}


@pytest.mark.parametrize("kind", ["symlink", "dangling", "fifo", "directory"])
def test_shell_driver_reads_nothing_but_regular_files(yard: Yard, kind: str) -> None:
    path, secret = yard.queue / "a.ready", yard.root / "secret"
    secret.write_text("secret")
    match kind:
        case "symlink":
            path.symlink_to(secret)
        case "dangling":
            path.symlink_to("nowhere")
        case "fifo":
            os.mkfifo(path)
        case _:
            path.mkdir()
    yard.control("done")
    assert yard.shell("sh1", *UPPER).wait(PATIENCE) == 0
    assert yard.ls() == ["done"]
    assert yard.published() == {}
    assert sorted(os.listdir(yard.queue / "discarded")) == ["a", "a.report.json"]


def test_shell_driver_keeps_both_where_a_name_is_taken(yard: Yard) -> None:
    yard.put("a", "new")
    yard.put("b", "new bad")
    for taken in ("out/a.ready", "in/b.failed", "in/discarded/b"):
        (yard.root / taken).parent.mkdir(exist_ok=True)
        (yard.root / taken).write_text("old bad")
    yard.control("done")
    yard.shell("sh1", "sh", "-c", "read -r _ bad; echo new; [ ! $bad ]").wait(PATIENCE)
    assert yard.ls() == ["done"]
    first, second = yard.ls("out")
    assert (first, second[:2], second[-6:]) == ("a.ready", "a~", ".ready")
    assert (yard.out / "a.ready").read_text() == "old bad"
    assert (yard.out / second).read_text() == "new\n"
    with Queue.open(yard.queue) as queue:
        docids = queue.discarded()
        assert [docid.partition("~")[0] for docid in docids] == ["b"] * 3
        # That which was there had no report, and got none that is another's.
        assert [queue.report(docid) is None for docid in docids] == [True, False, False]


def test_claim_of_a_shell_driver_is_left_alone_while_it_touches_its_file(
    yard: Yard, watcher: Watcher
) -> None:
    yard.put("a")
    yard.shell("sh1", *gated(yard))
    until(yard.claims)
    (claim,) = yard.claims()
    for _ in range(4):
        watcher.look()
        before = (yard.queue / claim).stat().st_mtime_ns
        until(lambda: (yard.queue / claim).stat().st_mtime_ns != before)  # noqa: B023 - called here
        assert watcher.after(LEASE) == 0
    (yard.root / "go").touch()
    until(lambda: yard.published() == {"a": "TEXT"})


def test_claim_of_a_killed_shell_driver_is_taken_back_after_the_lease(
    yard: Yard, watcher: Watcher
) -> None:
    yard.put("a")
    driver = yard.shell("sh1", *gated(yard))
    until(lambda: yard.claims() and yard.ls("out"))
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    (claim,) = yard.claims()
    # It is known to be dead by its silence alone, so wait for that.
    until(lambda: not [pid for pid in _group(driver.pid) if _cwd(pid).startswith("/proc/")])
    assert watcher.look() == 0
    assert watcher.after(LEASE - 1) == 0
    assert yard.claims() == [claim]
    assert watcher.after(1) == 1
    assert yard.ls() == ["a.ready"]
    # What it was writing is nobody's now: set aside, where it stops no drain of the next stage.
    assert yard.ls("out") == []
    assert len(yard.ls("out/.queuedriver/orphans")) == 1
    # Its program goes on, and hurts nobody.
    (yard.root / "go").touch()
    yard.drain()
    assert yard.published() == {"a": "TEXT"}
    assert yard.ls() == []


def test_shell_driver_that_was_given_up_wrongly_publishes_nothing(
    yard: Yard, watcher: Watcher
) -> None:
    yard.put("a")
    driver = yard.shell("sh1", *gated(yard, "echo late"))
    until(lambda: yard.claims() and yard.ls("out"))
    os.killpg(driver.pid, signal.SIGSTOP)
    until(lambda: _stand_still(_group(driver.pid)), "they stand still")
    watcher.look()
    assert watcher.after(LEASE) == 1
    yard.drain()
    os.killpg(driver.pid, signal.SIGCONT)
    (yard.root / "go").touch()
    yard.control("done")
    assert driver.wait(PATIENCE) == 0
    assert yard.published() == {"a": "TEXT"}
    assert yard.ls() == ["done"]


def test_shell_driver_finishes_and_charges_what_its_earlier_life_left(yard: Yard) -> None:
    n = "sh1-00065a0000000abcd0"
    (yard.queue / f"committed.{n}.written").write_text("input")
    (yard.out / f"committed.{n}.writing").write_text("OUTPUT")
    (yard.queue / f"begun.failed.{n}.working").write_text("input")
    (yard.queue / f"first.{n}.working").write_text("input")
    (yard.out / f"begun.{n}.writing").write_text("half")
    # Somebody took its output for nobody's.
    orphans = yard.out / ".queuedriver/orphans"
    orphans.mkdir(parents=True)
    (yard.queue / f"aside.{n}.written").write_text("input")
    (orphans / f"aside.{n}.writing").write_text("ASIDE")
    (yard.queue / f"other.sh1-x-{n[4:]}.working").write_text("not its own")
    yard.control("done")
    assert yard.shell("sh1", *UPPER).wait(PATIENCE) == 0
    assert yard.published() == {"committed": "OUTPUT", "first": "INPUT", "aside": "ASIDE"}
    assert yard.ls() == ["done", f"other.sh1-x-{n[4:]}.working"]
    report = json.loads((yard.queue / "discarded/begun.report.json").read_text())
    assert report["failure"] == {"cause": "crashed", "message": "its driver ended"}


@pytest.mark.parametrize("script", ["driver.sh", "short.sh"])
def test_shell_driver_claims_nothing_while_paused_and_leaves_when_told(
    yard: Yard, script: str
) -> None:
    (yard.queue / ".queuedriver").mkdir()
    (yard.queue / ".queuedriver/settings.json").write_text('{"outputs":["../out"]}')
    yard.put("first")
    driver = yard.shell("sh1", *gated(yard), script=script)
    until(yard.claims)
    yard.control("PAUSE")
    yard.put("second")
    (yard.root / "go").touch()
    # The first is finished all the same; the second waits.
    until(lambda: yard.published() == {"first": "TEXT"})
    yard.control("QUIT")
    assert driver.wait(PATIENCE) == 0
    assert yard.ls() == ["PAUSE", "QUIT", "second.ready"]


def test_shell_driver_that_is_asked_to_leave_finishes_its_document(yard: Yard) -> None:
    yard.put("a")
    yard.put("b")
    driver = yard.shell("sh1", *gated(yard))
    until(yard.claims)
    driver.terminate()
    (yard.root / "go").touch()
    assert driver.wait(PATIENCE) == 0
    assert yard.published() == {"a": "TEXT"}
    assert yard.ls() == ["b.ready"]


def test_interrupted_program_charges_no_document(yard: Yard) -> None:
    yard.put("a")
    driver = yard.shell("sh1", *gated(yard))
    # The output is there before the program is, and a signal between the two is the shell's alone.
    until((yard.root / "go.began").exists)
    # As the terminal does it: to the program as well.
    os.killpg(driver.pid, signal.SIGINT)
    assert driver.wait(PATIENCE) == 0
    assert yard.ls() == ["a.ready"]
    assert yard.ls("out") == []


@pytest.mark.parametrize("script", ["driver.sh", "short.sh"])
def test_shell_driver_refuses_settings_it_cannot_honour(yard: Yard, script: str) -> None:
    yard.drain(durable=True)
    yard.put("a")
    assert yard.shell("sh1", *UPPER, script=script).wait(PATIENCE) == 78
    assert yard.ls() == ["a.ready"]
    assert yard.published() == {}


def test_settings_that_a_shell_driver_writes_are_those_of_a_python_driver(yard: Yard) -> None:
    yard.control("done")
    assert yard.shell("sh1", *UPPER).wait(PATIENCE) == 0
    settings = yard.queue / ".queuedriver/settings.json"
    by_shell = settings.read_bytes()
    settings.unlink()
    yard.drain()
    assert settings.read_bytes() == by_shell


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="there is no shellcheck here")
def test_scripts_pass_shellcheck() -> None:
    scripts = sorted(SCRIPTS.glob("*.sh"))
    subprocess.run(["shellcheck", *scripts], check=True)


def _group(group: int) -> list[int]:
    """The processes of a group."""
    pids = []
    for name in os.listdir("/proc"):
        try:
            if name.isdecimal() and os.getpgid(int(name)) == group:
                pids.append(int(name))
        except ProcessLookupError:
            continue
    return pids


def _stand_still(pids: list[int]) -> bool:
    """Whether none of these does anything. Who was stopped amid a fork waits in its own way for a
    child that was stopped before it has become another program."""
    found = {pid: _state_and_parent(pid) for pid in pids}
    forking = {parent for state, parent in found.values() if state == "T"}
    return all(
        state in ("T", "Z") or (state == "D" and pid in forking)
        for pid, (state, _) in found.items()
    )


def _state_and_parent(pid: int) -> tuple[str, int]:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return "Z", 0
    return fields[0], int(fields[1])


def _cwd(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return ""
