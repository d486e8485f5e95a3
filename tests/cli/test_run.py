"""`run`: a driver as it is started, asked to leave, and listened to by people and programs."""

import contextlib
import json
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.processes import (
    ENVIRON,
    QUEUEDRIVER,
    command,
    ended,
    on_terminal,
    read_until,
    start,
    unprivileged,
)
from tests.cli.queues import PATIENCE, call, drive, listed, submit
from tests.waiting import until

Capsys = pytest.CaptureFixture[str]

_MODULE = """
import time
from pathlib import Path

def shout(document):
    return document.read().upper()

def shout_all(documents):
    return [document.read().upper() for document in documents]

def fail(document):
    raise ValueError("no good")

def later(document):
    from queuedriver import TryLater
    raise TryLater(1000.0, "printer busy")

def wait(document):
    # Until the test says go, or somebody interrupts.
    began = Path(document.path).parents[1] / "began"
    began.touch()
    while not (began.parent / "go").exists():
        time.sleep(0.01)
    return b"waited"

def note(document):
    with open("noted", "ab") as noted:
        noted.write(document.read())

number = 7
"""

_SERVER = """
import json, sys

for line in sys.stdin:
    document = json.loads(line)
    with open(document["output"] or "noted", "a") as output:
        output.write(open(document["input"]).read().upper())
    print(json.dumps({"ok": True}), flush=True)
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with an input queue, and a module to call."""
    (tmp_path / "in").mkdir()
    (tmp_path / "loud.py").write_text(_MODULE)
    (tmp_path / "shouter.py").write_text(_SERVER)
    return tmp_path


def items(queue: Path) -> list[str]:
    return [name for name in listed(queue) if name[0] != "." and name != "discarded"]


# What it does


@pytest.mark.quick
@pytest.mark.parametrize(
    "how",
    [
        ["--call", "loud:shout"],
        ["--call", "loud:shout_all", "--batch", "8"],
        ["--command", "tr a-z A-Z"],
        ["--command", 'sh -c \'tr a-z A-Z <"$0" >"$1"\' {input} {output}'],
        ["--server", "python3 shouter.py"],
    ],
)
def test_each_kind_of_processor_takes_documents_through(place: Path, how: list[str]) -> None:
    submit(place / "in", "a", "b", "c", content=b"dear all")
    called = command("run", "in", "--to", "out", *how, "--drain", cwd=place)
    why = [path.read_text() for path in (place / "in/discarded").glob("*.json")]
    assert (*called, why) == (
        0,
        "",
        "queuedriver: drained: the queue is drained; 3 documents done\n",
        [],
    )
    assert items(place / "in") == []
    assert items(place / "out") == ["a.ready", "b.ready", "c.ready"]
    assert (place / "out/b.ready").read_bytes() == b"DEAR ALL"


def test_options_reach_the_driver(place: Path) -> None:
    submit(place / "in", "a.txt")
    called = command(
        *("run", "in", "--to", "out", "--call", "loud:shout", "--drain", "--quiet"),
        *("--id", "ann-1", "--retries", "3", "--retry-delay", "2 min", "--timeout", "10min"),
        *("--hard-after", "1min", "--grace", "5s", "--order", "age", "--publish", "{stem}.xml"),
        *("--existing", "replace", "--max-output-items", "10", "--max-output-bytes", "1 GB"),
        *("--max-documents", "1000", "--max-age", "1h", "--max-memory", "2GB", "--durable"),
        *("--archive", "past", "--poll"),
        cwd=place,
    )
    assert called == (0, "", "")
    assert (place / "out/a.xml").read_bytes() == b"CONTENT"
    assert listed(place / "past") == ["a.txt"]
    assert json.loads((place / "in/.queuedriver/settings.json").read_bytes()) == {
        "outputs": ["../out"],
        "publish": "{stem}.xml",
        "existing": "replace",
        "retries": 3,
        "retry_delay": 120.0,
        "archive": "../past",
        "durable": True,
    }
    registered = json.loads((place / "in/.queuedriver/drivers/ann-1.json").read_bytes())
    assert registered["last_word"] == "drained"


def test_several_inputs_and_outputs(place: Path) -> None:
    submit(place / "in", "a")
    submit(place / "urgent", "b")
    args = ["run", "urgent", "in", "--to", "out", "--to", "more", "--command", "cat", "--drain"]
    assert command(*args, cwd=place).code == 0
    assert items(place / "out") == ["a.ready", "b.ready"]
    assert items(place / "more") == []


def test_what_happened_is_printed_for_programs(place: Path) -> None:
    submit(place / "in", "a")
    args = ["run", "in", "--call", "loud:fail", "--id", "x", "--drain", "--quiet", "--json"]
    called = command(*args, cwd=place)
    assert (called.code, called.err) == (1, "")
    said = called.json
    counters = said.pop("counters")
    assert said == {
        "version": 1,
        "id": "x",
        "word": "drained",
        "why": "the queue is drained",
        "exit_code": 1,
    }
    assert (counters["documents"], counters["failed"], counters["discarded"]) == (0, 2, 1)


@pytest.mark.parametrize(
    "how",
    [
        ["--command", "tr a-z A-Z"],
        ["--command", "cp {input} {output}"],
        ["--command", "cp {input} {output}", "--no-output"],
        ["--command", "cp {input} {output:out?}", "--no-output"],
        ["--server", "python3 shouter.py"],
    ],
)
def test_whoever_forgets_where_outputs_go_is_told_before_anything_is_claimed(
    place: Path, how: list[str]
) -> None:
    submit(place / "in", "a")
    called = command("run", "in", *how, "--drain", cwd=place)
    assert called.code == 2
    assert "--to" in called.err
    assert items(place / "in") == ["a.ready"]


@pytest.mark.parametrize(
    "how",
    [
        ["--call", "loud:shout"],
        ["--call", "loud:shout", "--no-output"],
        ["--call", "loud:shout_all", "--batch", "8"],
    ],
)
def test_a_function_whose_answer_can_go_nowhere_ends_its_driver_and_costs_no_document(
    place: Path, how: list[str]
) -> None:
    submit(place / "in", "a", "b", "c")
    for _ in range(3):
        called = command("run", "in", *how, "--drain", cwd=place)
        assert called.code == 78
        assert "nowhere to put it; name a queue or a directory by --to" in called.err
    assert items(place / "in") == ["a.ready", "b.ready", "c.ready"]


@pytest.mark.parametrize(
    "how",
    [
        ["--call", "loud:note"],
        ["--command", "sh -c 'cat >>noted'", "--no-output"],
        ["--server", "python3 shouter.py", "--no-output"],
    ],
)
def test_what_has_no_output_needs_none(place: Path, how: list[str]) -> None:
    submit(place / "in", "a", "b", content=b"dear all")
    assert command("run", "in", *how, "--drain", cwd=place).code == 0
    assert items(place / "in") == []
    assert (place / "noted").read_text().lower().count("dear all") == 2


# How it ends


def test_what_a_driver_could_not_note_is_said_at_its_end(place: Path) -> None:
    submit(place / "in", "a")
    journal = place / "in/.queuedriver/journal/x.jsonl"
    journal.mkdir(parents=True)
    args = ("run", "in", "--to", "out", "--call", "loud:shout", "--id", "x", "--drain", "--quiet")
    assert command(*args, cwd=place) == (
        0,
        "",
        f"queuedriver: {journal} could not be written (Is a directory), so history lacks the last "
        "1 line\n",
    )
    assert items(place / "out") == ["a.ready"]


def test_discarded_documents_make_a_drained_driver_end_with_1(place: Path) -> None:
    submit(place / "in", "a")
    called = command("run", "in", "--call", "loud:fail", "--drain", cwd=place)
    assert called.code == 1
    assert called.err == (
        "queuedriver: drained: the queue is drained; 0 documents done, 2 attempts failed, "
        "1 discarded\n"
    )


def test_documents_that_are_not_due_make_it_end_with_75(place: Path) -> None:
    submit(place / "in", "a")
    called = command("run", "in", "--call", "loud:later", "--drain", cwd=place)
    assert called.code == 75
    assert "not due yet" in called.err


@pytest.mark.parametrize(
    ("control", "words"),
    [
        ("QUIT", "in is QUIT: no driver stays before queuedriver resume"),
        ("done", "in is closed: drivers leave when it is empty; queuedriver reopen"),
    ],
)
def test_a_driver_says_what_keeps_it_from_staying(place: Path, control: str, words: str) -> None:
    (place / "in" / control).touch()
    called = command("run", "in", "--to", "out", "--call", "loud:shout", cwd=place)
    assert called.code == 0
    assert words in called.err


def test_a_driver_that_does_not_mind_is_as_durable_as_those_that_run(place: Path) -> None:
    with driving(place, "loud:shout", "--durable"):
        called = command("run", "in", "--to", "out", "--call", "loud:shout", "--drain", cwd=place)
    assert called.code == 0
    agreed = json.loads((place / "in/.queuedriver/settings.json").read_text())
    assert agreed["durable"] is True


def test_an_id_that_is_held_makes_it_end_with_69(place: Path) -> None:
    with driving(place, "loud:shout", "--id", "x") as holder:
        called = command("run", "in", "--to", "out", "--call", "loud:shout", "--id", "x", cwd=place)
    assert called.code == 69
    assert f"process {holder.pid}" in called.err


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["none", "--no-output", "--command", "cat"], 66, "no queue 'none'"),
        (["loud.py", "--to", "out", "--command", "cat"], 73, "is not a directory, so not a queue"),
        (
            ["in", "--to", "loud.py", "--command", "cat"],
            73,
            "'loud.py' is not a directory, so not an output",
        ),
        (["in", "--to", "in", "--command", "cat"], 78, "one directory"),
        (["in", "--no-output", "--archive", "in", "--command", "cat"], 78, "one directory"),
        (["in", "--call", "silent:shout"], 78, "importing 'silent' failed: ModuleNotFoundError"),
        (["in", "--call", "./loud.py:shout"], 78, "a file; name its module, as in loud:shout"),
        (["in", "--call", "loud.py:shout"], 78, "a file; name its module, as in loud:shout"),
        (["in", "--call", "loud:whisper"], 78, "'loud' has no 'whisper'"),
        (["in", "--call", "loud:number"], 78, "not callable"),
        (["in", "--call", "nothing"], 78, "nor a plug-in"),
        (["in", "--no-output", "--command", "no-such-program {input}"], 78, "no-such-program"),
        (["in", "--no-output", "--server", "no-such-program"], 78, "no-such-program"),
    ],
)
def test_what_can_never_work_is_said_at_once(
    args: list[str], code: int, words: str, place: Path
) -> None:
    called = command("run", *args, "--drain", cwd=place)
    assert called.code == code
    assert called.err.startswith("queuedriver: ")
    assert called.err.count("\n") == 1
    assert words in called.err


@pytest.mark.parametrize(
    "line",
    [
        ["status", ""],
        ["put", "", "loud.py"],
        ["run", "", "--to", "out", "--command", "cat"],
        ["run", "in", "--to", "", "--command", "cat"],
        ["run", "in", "--to", "out", "--archive", "", "--command", "cat"],
        ["get", "in", ""],
        ["quit", ""],
    ],
)
def test_a_path_from_a_variable_that_was_not_set_is_no_directory(
    place: Path, line: list[str], capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it stand for "none": documents that are to be kept are not deleted."""
    submit(place / "in", "a")
    monkeypatch.chdir(place)
    before = items(place)
    called = call(capsys, *line, *(["--drain"] if line[0] == "run" else []))
    assert (called.code, called.err.count("''; mkdir it, or name another\n")) == (66, 1)
    assert items(place / "in") == ["a.ready"]
    assert set(items(place)) - {*before, "out"} == set()


def test_what_a_module_raises_while_it_is_imported_may_pass(place: Path) -> None:
    (place / "refused.py").write_text("raise ConnectionRefusedError(111, 'no; not today')\n")
    called = command("run", "in", "--no-output", "--call", "refused:shout", cwd=place)
    assert called.code == 70
    assert called.err == (
        "queuedriver: --call refused:shout: importing 'refused' failed: ConnectionRefusedError: "
        "[Errno 111] no; not today\n"
    )


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["in"], "one of --call, --command and --server"),
        (["in", "--command", "cat", "--call", "loud:shout"], "one of --call, --command"),
        (["--command", "cat"], "Missing argument 'INPUT...'"),
        (["in", "--command", "cat", "--timeout", "soon"], "--timeout: 'soon' is not a duration"),
        (["in", "--command", "cat", "--timeout", "0"], "--timeout 0.0: more than 0"),
        (["in", "--command", "cat", "--max-memory", "2G"], "right would be 2 GB or 2 GiB"),
        (["in", "--command", "cat", "--max-output-bytes", "-1"], "--max-output-bytes"),
        (["in", "--command", "cat", "--retries", "-1"], "--retries -1: 0 to"),
        (["in", "--command", "cat", "--batch", "0"], "--batch 0: at least 1"),
        (["in", "--command", "cat", "--publish", "same"], "names all outputs alike"),
        (["in", "--command", "cat", "--publish", "{name}"], "no field {name}"),
        (["in", "--command", "cat", "--id", "a b"], "cannot be a driver id"),
        (["in", "--command", "cat", "--order", "odd"], "is not one of 'fair', 'age', 'name'"),
        (["in", "--command", "cat", "--to", "out", "--no-output"], "--to and --no-output"),
    ],
)
def test_values_that_cannot_be_meant_have_code_2(
    args: list[str], words: str, place: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    called = call(capsys, "run", *args)
    assert called.code == 2
    assert words in called.err
    assert listed(place / "in") in ([], [".queuedriver"])


@pytest.mark.parametrize("directory", ["in", "out"])
def test_a_directory_that_may_not_be_written_has_code_77(place: Path, directory: str) -> None:
    submit(place / "in", "a")
    (place / "out").mkdir()
    (place / directory).chmod(0o555)
    args = ["run", "in", "--to", "out", "--command", "cat", "--drain"]
    called = command(*args, cwd=place, prefix=unprivileged())
    assert called.code == 77
    assert f"{place / directory}" in called.err
    assert "permission denied" in called.err
    assert items(place / "in") == ["a.ready"]


# Signals


@contextlib.contextmanager
def driving(
    place: Path, what: str, *more: str, how: str = "--call"
) -> Iterator[subprocess.Popen[bytes]]:
    """A driver that has registered."""
    args = ["run", "in", "--to", "out", how, what, "--json", *more]
    process = start(*args, cwd=place)
    try:
        until(lambda: registered(place) or process.poll() is not None)
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        process.wait()


def insist(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Ask until it leaves: two that come close together are one wish that came by two ways."""
    while process.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.2)
        process.send_signal(number)


def registered(place: Path) -> bool:
    """Whether a driver is there that heeds signals: it has begun to beat, or to work."""
    drivers = place / "in/.queuedriver/drivers"
    return any(name.endswith(".json") for name in listed(drivers)) and (
        (place / "began").exists() or not items(place / "in")
    )


def test_asked_to_leave_it_finishes_the_document_at_hand(place: Path) -> None:
    submit(place / "in", "a", "b")
    with driving(place, "loud:wait") as process:
        until((place / "began").exists)
        process.send_signal(signal.SIGTERM)
        (place / "go").touch()
        called = ended(process)
    assert called.code == 0
    assert called.json["word"] == "quit"
    assert called.json["counters"]["documents"] == 1
    assert len(items(place / "in")) == len(items(place / "out")) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_wish_to_leave_that_comes_at_its_end_changes_no_exit_code(
    place: Path, number: signal.Signals
) -> None:
    reader, writer = os.pipe()
    # Its last words have to wait until somebody reads.
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(writer, b"x" * 4096):
            pass
    os.set_blocking(writer, True)
    words = ["run", "in", "--to", "out", "--call", "loud:shout", "--drain"]
    with start(*words, cwd=place, stderr=writer) as process:
        os.close(writer)
        until(lambda: "pipe_write" in Path(f"/proc/{process.pid}/wchan").read_text())
        process.send_signal(number)
        with open(reader, "rb") as said:
            assert b"done" in said.read()
    assert process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_asked_twice_it_gives_the_document_back_uncounted(
    place: Path, number: signal.Signals
) -> None:
    submit(place / "in", "a")
    with driving(place, "loud:wait") as process:
        until((place / "began").exists)
        process.send_signal(number)
        insist(process, number)
        called = ended(process)
    assert called.code == 0
    assert items(place / "in") == ["a.ready"]
    assert items(place / "out") == []


def test_grace_ends_and_the_document_is_given_back(place: Path) -> None:
    submit(place / "in", "a")
    with driving(place, "loud:wait", "--grace", "0.2s") as process:
        until((place / "began").exists)
        process.send_signal(signal.SIGTERM)
        called = ended(process)
    assert called.code == 0
    assert items(place / "in") == ["a.ready"]


def test_a_quit_file_gives_a_document_back_that_takes_longer_than_the_grace(place: Path) -> None:
    """Whoever processes it. The drivers look for the file with each beat."""
    takes_long = "import pathlib, time; pathlib.Path('began').touch(); time.sleep(600)"
    program = shlex.join([sys.executable, "-c", takes_long])
    kinds = {"call": "loud:wait", "command": program, "server": program}
    with contextlib.ExitStack() as at_end:
        drivers = []
        for kind, what in kinds.items():
            submit(place / kind / "in", "a", "b")
            shutil.copy(place / "loud.py", place / kind)
            driver = driving(place / kind, what, "--grace", "0.2s", how=f"--{kind}")
            drivers.append(at_end.enter_context(driver))
        until(lambda: all((place / kind / "began").exists() for kind in kinds))
        command("quit", *(place / kind / "in" for kind in kinds))
        for process in drivers:
            called = ended(process)
            assert (called.code, called.json["why"]) == (0, "there is a QUIT file")
    for kind in kinds:
        assert items(place / kind / "in") == ["QUIT", "a.ready", "b.ready"]
        assert items(place / kind / "out") == []


def test_a_hang_up_asks_it_to_leave_for_a_new_start(place: Path) -> None:
    submit(place / "in", "a")
    with driving(place, "loud:wait") as process:
        until((place / "began").exists)
        process.send_signal(signal.SIGHUP)
        (place / "go").touch()
        called = ended(process)
    assert (called.code, called.json["word"]) == (0, "reload")


def test_under_nohup_a_hang_up_is_not_for_it(place: Path) -> None:
    submit(place / "in", "a")
    args = ["nohup", *QUEUEDRIVER, "run", "in", "--to", "out", "--call", "loud:wait", "--drain"]
    process = subprocess.Popen(
        args,
        cwd=place,
        env=ENVIRON,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    until((place / "began").exists)
    process.send_signal(signal.SIGHUP)
    (place / "go").touch()
    called = ended(process)
    assert called.code == 0
    assert "drained" in called.err


def test_asked_for_its_stacks_it_shows_them_and_goes_on(place: Path) -> None:
    submit(place / "in", "a")
    with driving(place, "loud:wait", "--drain") as process:
        until((place / "began").exists)
        process.send_signal(signal.SIGUSR2)
        (place / "go").touch()
        called = ended(process)
    assert called.code == 0
    assert 'loud.py", line' in called.err
    assert called.json["word"] == "drained"


# On a terminal


def test_the_first_ctrl_c_is_answered(place: Path) -> None:
    submit(place / "in", "a")
    with on_terminal("run", "in", "--call", "loud:wait", cwd=place) as (process, terminal):
        read_until(terminal, r"queuedriver: loud:wait over in; Ctrl-C to finish")
        until((place / "began").exists)
        process.send_signal(signal.SIGINT)
        read_until(terminal, r"finishing 1 document; Ctrl-C again to release it now")
        insist(process, signal.SIGINT)
        read_until(terminal, r"quit: it was asked to; 0 documents done")
        assert process.returncode == 0
    assert items(place / "in") == ["a.ready"]


def test_draining_shows_how_far_it_is(place: Path) -> None:
    submit(place / "in", "a", "b")
    with on_terminal("run", "in", "--call", "loud:wait", "--to", "out", "--drain", cwd=place) as (
        process,
        terminal,
    ):
        seen = read_until(terminal, r"0 done, 2 left")
        assert "\r" in seen
        (place / "go").touch()
        read_until(terminal, r"drained: the queue is drained; 2 documents done")
        assert process.wait(PATIENCE) == 0


def test_draining_shows_the_pace_of_all_drivers_and_when_all_is_done(place: Path) -> None:
    submit(place / "in", *(f"d{number}" for number in range(40)))
    line = ["run", "in", "--command", "sleep 0.2", "--to", "out", "--drain"]
    with on_terminal(*line, cwd=place) as (process, terminal):
        read_until(terminal, r"[0-9]+ done, [0-9]+ left, [0-9.]+/s, ETA [0-9]")
        process.terminate()
        assert process.wait(PATIENCE) == 0


def test_quiet_means_quiet_on_a_terminal_too(place: Path) -> None:
    submit(place / "in", "a")
    with on_terminal(
        "run", "in", "--call", "loud:shout", "--to", "out", "--drain", "-q", cwd=place
    ) as (
        process,
        terminal,
    ):
        assert process.wait(PATIENCE) == 0
        assert not select.select([terminal], [], [], 0)[0] or not _rest(terminal)


def _rest(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:
        return b""


def test_a_driver_of_the_library_and_one_of_the_command_agree(place: Path) -> None:
    submit(place / "in", "a")
    drive(place / "in", place / "out")
    submit(place / "in", "b")
    assert command("run", "in", "--to", "out", "--command", "cat", "--drain", cwd=place).code == 0
    assert items(place / "out") == ["a.ready", "b.ready"]
