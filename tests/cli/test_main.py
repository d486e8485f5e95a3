"""The command as a whole: what it lists, what it imports, and which code each end has."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from queuedriver import __version__, errors
from queuedriver.cli import COMMANDS
from tests.cli.processes import ENVIRON, QUEUEDRIVER, command, ended, start
from tests.cli.queues import PATIENCE, call, listed
from tests.waiting import until

Capsys = pytest.CaptureFixture[str]

# A command of the table that ends as the test wants it to.
_ENDING = """
import sys, types
from queuedriver import cli
module = types.ModuleType("queuedriver.cli.ending")
def end():
    {how}
module.end = end
sys.modules["queuedriver.cli.ending"] = module
cli.COMMANDS["end"] = cli.Command("ending", "end", "Ends.")
cli.main(["end"])
"""


def ending(how: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _ENDING.format(how=how)],
        env={**ENVIRON, **environ},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


_KEEPS = """
    import atexit, threading
    class Kept:
        def __del__(self):
            print("destroyed")
    module.kept = Kept()
    atexit.register(print, "at exit")
    last = threading.main_thread()
    threading.Thread(target=lambda: (last.join(), print("by a thread"))).start()
    print("said")
    return 3
"""


@pytest.mark.parametrize("program", ["queuedriver", "watchdogd"])
def test_a_command_ends_as_a_program_does_but_destroys_nothing(program: str) -> None:
    script = _ENDING.replace("queuedriver", program).format(how=_KEEPS.strip())
    ran = subprocess.run(
        [sys.executable, "-c", script], env=ENVIRON, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (3, "")
    assert ran.stdout == "said\nby a thread\nat exit\n"


@pytest.mark.parametrize(
    ("args", "destroys"),
    [
        (["run", "--call", "a:b"], True),
        (["run", "--call=a:b"], True),
        (["run", "--command", "true"], False),
        (["worker", "--command", "true"], True),
    ],
)
def test_a_command_that_runs_code_of_others_destroys_what_that_has_made(
    args: list[str], destroys: bool
) -> None:
    takes = "from queuedriver.cli.arguments import CALL, COMMAND\n"
    takes += "def end(call: str | None = CALL, command: str | None = COMMAND):"
    script = _ENDING.format(how=_KEEPS.strip()).replace("def end():", takes)
    script = script.replace('COMMANDS["end"]', f"COMMANDS[{args[0]!r}]")
    script = script.replace('main(["end"])', f"main({args})")
    ran = subprocess.run(
        [sys.executable, "-c", script], env=ENVIRON, capture_output=True, text=True, check=False
    )
    assert ran.stdout == "said\nby a thread\nat exit\n" + "destroyed\n" * destroys


def test_version_is_the_packages() -> None:
    assert command("--version") == (0, f"queuedriver {__version__}\n", "")


def test_help_lists_all_commands_with_what_they_do(capsys: Capsys) -> None:
    called = call(capsys, "--help")
    assert called.code == 0
    words = " ".join(called.out.split())
    assert all(f"{name} {row.line}" in words for name, row in COMMANDS.items())


def test_no_command_at_all_is_answered_with_the_list_and_code_2() -> None:
    called = command()
    assert (called.code, called.out) == (2, "")
    assert "Commands:" in called.err


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_names_its_arguments_plainly(name: str, capsys: Capsys) -> None:
    for flag in ("--help", "-h"):
        called = call(capsys, name, flag)
        assert called.code == 0
        usage = called.out.splitlines()[0]
        assert usage.startswith(f"Usage: queuedriver {name} [OPTIONS] ")
        assert "{" not in usage


def test_unknown_command_is_told_what_it_may_have_meant(capsys: Capsys) -> None:
    called = call(capsys, "stauts")
    assert called.code == 2
    assert called.err == (
        "queuedriver: No such command 'stauts'. Did you mean 'status'?; see queuedriver --help\n"
    )


def test_a_command_of_the_other_program_is_told_where_it_is(capsys: Capsys) -> None:
    called = call(capsys, "trace", "letter")
    assert (called.code, called.err) == (
        2,
        "queuedriver: trace is a command of watchdogd; see watchdogd trace --help\n",
    )


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["put"], "Missing argument 'QUEUE'; see queuedriver put --help"),
        (["put", "--frob"], "No such option: --frob"),
        (["run", "q", "--retries", "few"], "--retries"),
        (["run", "q", "--order", "odd"], "'odd' is not one of 'fair', 'age', 'name'"),
        (["list", "q", "--state"], "requires an argument"),
    ],
)
def test_what_cannot_be_meant_has_code_2_and_one_line(
    args: list[str], words: str, capsys: Capsys
) -> None:
    called = call(capsys, *args)
    assert (called.code, called.out) == (2, "")
    assert called.err.startswith("queuedriver: ")
    assert called.err.count("\n") == 1
    assert words in called.err


def test_put_imports_no_more_than_it_needs(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    script = (
        "import sys; from queuedriver.cli import run; code = run(sys.argv[1:]); "
        "print(code, *sorted(sys.modules))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, "put", tmp_path, tmp_path / "a"],
        env=ENVIRON,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    code, *modules = ran.stdout.split()
    assert code == "0"
    costly = {
        "filelock",
        "psutil",
        "typer",
        "pydantic",
        "rich",
        "watchdog",
        "queuedriver.driving.driver",
    }
    assert costly.isdisjoint(modules)


# How it ends


@pytest.mark.parametrize(
    ("how", "code", "words"),
    [
        ("return 7", 7, ""),
        ("return None", 0, ""),
        ("from queuedriver import BadDocid; raise BadDocid('a/b', 'no')", 65, "'a/b' cannot be"),
        ("from queuedriver import NotFound; raise NotFound('no queue')", 66, "no queue"),
        ("from queuedriver import IdHeld; raise IdHeld('held')", 69, "held"),
        ("from queuedriver import CannotUse; raise CannotUse('a file')", 73, "a file"),
        ("from queuedriver import ConfigError; raise ConfigError('never')", 78, "never"),
        ("raise OSError(28, 'No space left on device', 'f')", 74, "No space left on device: f"),
        ("from queuedriver import FileSystemTrouble as T; raise T('stale')", 74, "stale"),
        ("raise PermissionError(13, 'Permission denied', 'f')", 77, "Permission denied: f"),
        ("open('/nowhere/at/all')", 66, "No such file or directory: /nowhere/at/all"),
        ("raise KeyboardInterrupt", 130, ""),
        ("print('a word', flush=True); raise BrokenPipeError(32, 'Broken pipe')", 141, ""),
    ],
)
def test_each_end_has_its_code_and_at_most_one_line(how: str, code: int, words: str) -> None:
    ran = ending(how)
    assert ran.returncode == code
    assert "Traceback" not in ran.stderr
    assert words in ran.stderr
    assert ran.stderr.count("\n") == bool(words)


def test_exit_codes_of_errors_are_those_of_the_readme() -> None:
    readme = (Path(__file__).parents[2] / "README.rst").read_text()
    for error in errors.QueueError.__subclasses__():
        assert f"\n{error.exit_code} " in readme


def test_a_bug_of_ours_is_kept_in_a_file_that_is_named(tmp_path: Path) -> None:
    ran = ending("raise RuntimeError('unheard of\\x1b[2J')", XDG_RUNTIME_DIR=str(tmp_path))
    assert ran.returncode == 70
    (saved,) = tmp_path.glob("queuedriver-*/bug-*.txt")
    assert str(saved) in ran.stderr
    assert "\x1b" not in ran.stderr
    assert "Traceback" not in ran.stderr
    assert "Traceback" in saved.read_text()


def test_a_bug_that_cannot_be_kept_is_shown(tmp_path: Path) -> None:
    ran = ending("raise RuntimeError('unheard of')", XDG_RUNTIME_DIR=str(tmp_path / "none/such"))
    assert ran.returncode == 70
    assert "unheard of" in ran.stderr


def test_names_in_messages_cannot_steer_a_terminal(capsys: Capsys) -> None:
    called = call(capsys, "put", "/nowhere/\x1b[2J\u202e", "f")
    assert called.code == 66
    assert "\x1b" not in called.err
    assert "\u202e" not in called.err


def test_a_reader_that_has_had_enough_is_no_mishap() -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        ran = subprocess.run(
            [*QUEUEDRIVER, "--help"],
            env=ENVIRON,
            stdout=write,
            stderr=subprocess.PIPE,
            timeout=PATIENCE,
            check=False,
        )
    finally:
        os.close(write)
    assert (ran.returncode, ran.stderr) == (141, b"")


def test_what_an_encoding_lacks_is_shown_as_escapes(tmp_path: Path) -> None:
    (tmp_path / "größe 文.ready").touch()
    ran = subprocess.run(
        [*QUEUEDRIVER, "list", tmp_path],
        env={**ENVIRON, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert ran.stdout.endswith(b"gr\\xf6\\xdfe \\u6587\n")


def test_results_that_cannot_be_written_are_a_failure() -> None:
    with open("/dev/full", "wb") as full:
        ran = subprocess.run(
            [*QUEUEDRIVER, "--version"],
            env=ENVIRON,
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=PATIENCE,
            check=False,
        )
    assert (ran.returncode, ran.stderr) == (74, b"queuedriver: No space left on device\n")


def test_closed_input_is_no_empty_document(tmp_path: Path) -> None:
    ran = subprocess.run(
        ["sh", "-c", '"$@" <&-', "sh", *QUEUEDRIVER, "put", tmp_path, "-", "--docid", "a"],
        env=ENVIRON,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (2, b"")
    assert b"there is no standard input" in ran.stderr
    assert not list(tmp_path.glob("*.ready"))


def test_output_that_was_closed_from_the_start_is_nobodys_loss(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    script = '"$@" >&- 2>&-'
    ran = subprocess.run(
        ["sh", "-c", script, "sh", *QUEUEDRIVER, "put", tmp_path, tmp_path / "a"],
        env=ENVIRON,
        timeout=PATIENCE,
        check=False,
    )
    assert ran.returncode == 0
    assert "a.ready" in listed(tmp_path)


def test_ctrl_c_has_code_130_and_leaves_nothing_behind(tmp_path: Path) -> None:
    process = start("put", tmp_path, "-", "--docid", "a")
    assert process.stdin is not None
    process.stdin.write(b"half")
    process.stdin.flush()
    until(lambda: listed(tmp_path / ".queuedriver/incoming"))
    # It waits for the rest.
    until(lambda: "pipe_read" in Path(f"/proc/{process.pid}/wchan").read_text())
    process.send_signal(signal.SIGINT)
    assert ended(process) == (130, "", "")
    assert listed(tmp_path / ".queuedriver/incoming") == []
    assert listed(tmp_path) == [".queuedriver"]


def test_a_locale_in_which_names_are_not_utf8_is_refused(tmp_path: Path) -> None:
    called = command(
        "status", tmp_path, LC_ALL="POSIX", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", LANG=""
    )
    if called.code == 0:
        pytest.skip("this Python takes every locale for UTF-8")
    assert called.code == 78
    assert "PYTHONUTF8=1" in called.err


# Completion


def test_shells_can_be_taught_to_complete() -> None:
    called = command("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert called.code == 0
    assert "_QUEUEDRIVER_COMPLETE=complete_bash" in called.out


def test_completion_is_installed_where_the_shell_looks(tmp_path: Path) -> None:
    called = command(
        "--install-completion",
        "bash",
        HOME=str(tmp_path),
        _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1",
    )
    assert called.code == 0
    assert "_queuedriver_completion" in (tmp_path / ".bash_completions/queuedriver.sh").read_text()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("queuedriver re", ["recover", "reopen", "resume", "retry"]),
        ("queuedriver run", ["run"]),
        ("queuedriver run in --max-o", ["--max-output-bytes", "--max-output-items"]),
        ("queuedriver run in --order ", ["age", "fair", "name"]),
    ],
)
def test_commands_options_and_choices_are_completed(words: str, expected: list[str]) -> None:
    called = command(
        _QUEUEDRIVER_COMPLETE="complete_bash",
        COMP_WORDS=words,
        COMP_CWORD=str(words.count(" ")),
    )
    assert called.code == 0
    assert sorted(called.out.split()) == expected
