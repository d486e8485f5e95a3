"""What starts when a pipeline starts imports no more than it needs: each module is waited for."""

import subprocess
import sys
from pathlib import Path

import pytest

# Each takes a millisecond or more, of each process; what needs one imports it then.
COSTLY = {
    "bz2",
    "filelock",
    "hashlib",
    "logging",
    "lzma",
    "pathlib",
    "pydantic",
    "psutil",
    "rich",
    "statistics",
    "tempfile",
    "typer",
    "watchdog",
}
# What only a driver does, and what only a watchdog does.
DRIVING = {"queuedriver.driving.driver", "queuedriver.claims.recovery"}
KEEPING = {"watchdogd.supervisor", "watchdogd.stages"}


@pytest.mark.parametrize(
    ("module", "needless"),
    [
        ("watchdogd.programs.driver", {*COSTLY, *KEEPING, "watchdogd.children"}),
        ("watchdogd.programs.io_helper", {*COSTLY, *KEEPING, *DRIVING}),
        ("watchdogd.cli.watch", {*COSTLY, *DRIVING}),
        # Until its helper is begun.
        (
            "watchdogd.cli.run",
            {*COSTLY, *DRIVING, *KEEPING, "msgspec", "tomllib", "watchdogd.check"},
        ),
    ],
)
def test_a_process_of_a_pipeline_imports_no_more_than_it_needs(
    module: str, needless: set[str]
) -> None:
    script = f"import sys, {module}; print(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True
    )
    assert needless & {*ran.stdout.split()} == set()


def test_a_driver_of_programs_loads_nothing_costly_from_its_start_to_its_end(
    tmp_path: Path,
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.ready").write_text("text")
    script = (
        "import sys\n"
        "from queuedriver.cli import run\n"
        "code = run(['run', 'in', '--to', 'out', '--command', 'tr a-z A-Z', '--drain'])\n"
        "print(code, *sys.modules)"
    )
    argv = [sys.executable, "-P", "-c", script]
    ran = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=True)
    code, *loaded = ran.stdout.split()
    assert code == "0"
    assert (tmp_path / "out/a.ready").read_text() == "TEXT"
    # shutil finds the program, and brings these.
    assert COSTLY & {*loaded} <= {"bz2", "lzma"}


def test_a_name_is_told_from_others_without_openssl() -> None:
    script = (
        "import sys\nfrom watchdogd.driver_ids import digits_of\nfound = digits_of('rose', 64)\n"
        "print('hashlib' in sys.modules)\nimport hashlib\n"
        "print(found == hashlib.sha256(b'rose').hexdigest())"
    )
    argv = [sys.executable, "-P", "-c", script]
    ran = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "True"]


def test_what_is_for_slurm_is_loaded_for_a_file_that_speaks_of_it() -> None:
    stage = '[[stage]]\nname = "a"\ncall = "a:b"\n'
    script = (
        "import sys, watchdogd.cli.watch, watchdogd.cli.status, watchdogd.programs.io_helper\n"
        "from watchdogd.pipeline.read import parse\n"
        "parse(sys.argv[1], 'p', '/p')\n"
        "print(*(name for name in sys.modules if 'slurm' in name))"
    )
    for text, loaded in ((stage, []), (f"[slurm]\n{stage}", ["watchdogd.pipeline.slurms"])):
        argv = [sys.executable, "-P", "-c", script, text]
        ran = subprocess.run(argv, capture_output=True, text=True, check=True)
        assert ran.stdout.split() == loaded


WATCHDOG = "from watchdogd.cli import PROGRAM, COMMANDS\nPROGRAM.function(COMMANDS[{!r}])"
QUEUE = "from queuedriver.cli import PROGRAM, COMMANDS\nPROGRAM.function(COMMANDS[{!r}])"
PROGRAM = "from queuedriver.interpreter import *; import_msgspec()\nimport watchdogd.programs.{}"


@pytest.mark.parametrize(
    "loads",
    [
        PROGRAM.format("driver"),
        PROGRAM.format("io_helper"),
        WATCHDOG.format("status"),
        QUEUE.format("put"),
        QUEUE.format("run"),
    ],
)
def test_a_program_loads_without_what_typing_has_itself(loads: str) -> None:
    script = (
        f"import sys\n{loads}\nprint(*sys.modules)\n"
        # Whoever wants all of it gets it.
        "from typing_extensions import Sentinel\nimport msgspec\n"
        "assert msgspec.json.decode(b'[1]', type=list[int]) == [1]"
    )
    ran = subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True
    )
    assert {"typing_extensions", "inspect", "dis", "ast"} & {*ran.stdout.split()} == set()
