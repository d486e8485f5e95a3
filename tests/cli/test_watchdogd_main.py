"""The command `watchdogd` as a whole: what it lists, and which code each end has."""

import subprocess
import sys
from pathlib import Path

import pytest

from queuedriver import __version__
from tests.cli import pipelines
from tests.cli.pipelines import make
from tests.cli.processes import ENVIRON, command
from tests.cli.queues import PATIENCE
from watchdogd.cli import COMMANDS

Capsys = pytest.CaptureFixture[str]

# A command of the table that ends as the test wants it to.
_ENDING = """
import sys, types
from watchdogd import cli
module = types.ModuleType("watchdogd.cli.ending")
def end():
    {how}
module.end = end
sys.modules["watchdogd.cli.ending"] = module
cli.COMMANDS["end"] = cli.Command("ending", "end", "Ends.")
cli.main(["end"])
"""


def test_version_is_the_packages() -> None:
    assert command("--version", program="watchdogd") == (0, f"watchdogd {__version__}\n", "")


def test_help_lists_all_commands_with_what_they_do(capsys: Capsys) -> None:
    called = pipelines.call(capsys, "--help")
    assert called.code == 0
    words = " ".join(called.out.split())
    assert all(f"{name} {row.line}" in words for name, row in COMMANDS.items())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_names_its_arguments_plainly(name: str, capsys: Capsys) -> None:
    called = pipelines.call(capsys, name, "--help")
    assert called.code == 0
    usage = called.out.splitlines()[0]
    assert usage.startswith(f"Usage: watchdogd {name} [OPTIONS]")
    assert "{" not in usage


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_in_the_manual_with_its_options(name: str, capsys: Capsys) -> None:
    manual = (Path(__file__).parents[2] / "docs/watchdogd.rst").read_text()
    assert f"\nwatchdogd {name}" in manual or f"| {name} " in manual
    options = pipelines.call(capsys, name, "--help").out.partition("\nOptions:")[2]
    for word in options.split():
        if word.startswith("--") and word != "--help":
            assert f"``{word.rstrip(',')}" in manual, f"{name} {word}"


def test_messages_begin_with_the_programs_own_name(capsys: Capsys) -> None:
    called = pipelines.call(capsys, "traec")
    assert (called.code, called.out) == (2, "")
    assert called.err == (
        "watchdogd: No such command 'traec'. Did you mean 'trace'?; see watchdogd --help\n"
    )


@pytest.mark.parametrize(
    ("how", "code", "words"),
    [
        ("return None", 0, ""),
        ("from queuedriver.errors import NotFound; raise NotFound('no x')", 66, "watchdogd: no x"),
        ("raise OSError(28, 'No space left on device', 'f')", 74, "No space left on device: f"),
        ("raise KeyboardInterrupt", 130, ""),
        ("raise RuntimeError('unheard of')", 70, "watchdogd: this is a bug of watchdogd"),
    ],
)
def test_each_end_has_its_code(how: str, code: int, words: str, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _ENDING.format(how=how)],
        env={**ENVIRON, "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ran.returncode == code
    assert words in ran.stderr
    assert ran.stderr.count("\n") == bool(words)


def test_commands_are_completed() -> None:
    called = command(
        program="watchdogd",
        _WATCHDOGD_COMPLETE="complete_bash",
        COMP_WORDS="watchdogd re",
        COMP_CWORD="1",
    )
    assert called.code == 0
    assert sorted(called.out.split()) == ["reload", "replay", "restart", "resume", "retry"]


def test_a_directory_with_a_pipeline_in_it_will_do(tmp_path: Path, capsys: Capsys) -> None:
    make(tmp_path)
    assert pipelines.call(capsys, "status", tmp_path, "--json").json["name"] == "serif"


@pytest.mark.parametrize(
    "words",
    [
        [name, *inner]
        for name, command in COMMANDS.items()
        for inner in [[one] for one in command.commands] or [[]]
    ],
    ids=" ".join,
)
def test_every_command_may_be_told_its_pipeline_by_the_same_option(
    words: list[str], capsys: Capsys
) -> None:
    options = pipelines.call(capsys, *words, "--help").out.partition("\nOptions:")[2]
    assert "-p, --pipeline FILE" in options


@pytest.mark.parametrize("name", ["check", "run", "status", "unit"])
def test_pipeline_that_is_not_there_has_code_66_however_it_is_named(
    name: str, capsys: Capsys
) -> None:
    for words in (["/nowhere.toml"], ["-p", "/nowhere.toml"]):
        called = pipelines.call(capsys, name, *words)
        assert (called.code, "/nowhere.toml" in called.err) == (66, True)


@pytest.mark.parametrize("name", ["status", "check", "run", "top", "unit"])
def test_directory_without_a_pipeline_has_code_66(
    name: str, tmp_path: Path, capsys: Capsys
) -> None:
    called = pipelines.call(capsys, name, tmp_path)
    assert called.code == 66
    assert called.err == f"watchdogd: there is no pipeline.toml in {tmp_path}; name a file\n"


def test_one_pipeline_is_named_in_one_way(tmp_path: Path, capsys: Capsys) -> None:
    called = pipelines.call(capsys, "status", "a.toml", "-p", "b.toml")
    assert (called.code, called.err) == (2, "watchdogd: a.toml or -p b.toml: name one of them\n")
