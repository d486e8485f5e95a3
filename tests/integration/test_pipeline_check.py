"""What keeps a pipeline from running on a host: programs, modules, directories, memory."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from queuedriver.disk.runtime import runtime_directory
from tests.cli.processes import ENVIRON, command, read_only, unprivileged
from tests.cli.queues import Called
from tests.waiting import PATIENCE, is_alive, until, until_ended
from watchdogd.check import Findings, Here, check_imports, examine
from watchdogd.pipeline.problems import BadPipeline, Problem
from watchdogd.pipeline.read import study

HERE = Here(memory=8 * 10**9)


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOGD_STATE", str(tmp_path / "state"))


def write(directory: Path, *stages: str, head: str = "") -> Path:
    """A pipeline's file; a stage is what it says of its work."""
    file = directory / "pipeline.toml"
    named = (f'[[stage]]\nname = "s{number}"\n{work}\n' for number, work in enumerate(stages, 1))
    file.write_text(f"[pipeline]\n{head + chr(10) if head else ''}{''.join(named)}")
    return file


def found(file: Path, here: Here = HERE, limit: float = PATIENCE) -> Findings:
    return examine(str(file), None, partial(check_imports, limit=limit), here)


def told(file: Path, here: Here = HERE) -> list[str]:
    """What is complained of, without the place of the file."""
    return [str(one).removeprefix(f"{file}:") for one in found(file, here).problems]


def only(file: Path, here: Here = HERE) -> Problem:
    (one,) = found(file, here).problems
    return one


def executable(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


# Programs


def test_a_program_that_is_not_there_is_named_with_its_line(tmp_path: Path) -> None:
    file = write(tmp_path, 'command = "no-such-program {input}"', 'server = "./no-such-server"')
    first, second = told(file)
    assert first.startswith("4: stage \"s1\": command names 'no-such-program', which is not on the")
    assert second == (
        f'7: stage "s2": server names {tmp_path}/./no-such-server, which does not exist; '
        "correct the path"
    )


def test_a_program_may_be_beside_the_file_or_on_the_path_that_its_stage_has(tmp_path: Path) -> None:
    executable(tmp_path / "tools" / "mine")
    ways = ('command = "tools/mine"', 'command = "mine"\nenv = { PATH = "tools" }', 'server = "sh"')
    assert told(write(tmp_path, *ways)) == []
    (one,) = told(write(tmp_path, 'command = "mine"'))
    assert "is not on the PATH" in one


def test_a_program_that_may_not_be_run_is_told_from_one_that_is_not_there(tmp_path: Path) -> None:
    script = executable(tmp_path / "mine")
    script.chmod(0o644)
    (tmp_path / "directory").mkdir()
    first, second = told(write(tmp_path, 'command = "./mine"', 'command = "./directory"'))
    assert first.endswith(f"which is no file that may be run; chmod +x {tmp_path}/./mine")
    assert "which is no file that may be run" in second


def test_a_script_needs_the_program_of_its_first_line(tmp_path: Path) -> None:
    executable(tmp_path / "mine", "#!/no/such/python3 -u\nprint()\n")
    one = only(write(tmp_path, 'command = "./mine"'))
    assert "whose first line names '/no/such/python3', which does not exist" in one.problem


def test_the_program_of_a_hook_is_looked_for_too(tmp_path: Path) -> None:
    one = only(write(tmp_path, 'command = "true"', head='on_event = ["./notify", "{event}"]'))
    assert (one.line, one.where, one.key) == (2, "[pipeline]", "on_event")


def test_a_stage_without_drivers_here_needs_nothing_here(tmp_path: Path) -> None:
    file = write(
        tmp_path, 'command = "no-such-program"\ndrivers = 0', 'call = "nowhere:to"\ndrivers = 0'
    )
    assert told(file) == []


# Modules


class Imported(NamedTuple):
    """What is wrong with modules, and what is said of those of which nothing is known."""

    problems: list[Problem]
    notes: list[str]

    @property
    def places(self) -> list[tuple[str, str]]:
        return [(one.where, one.key) for one in self.problems]


def imported(file: Path, limit: float = PATIENCE) -> Imported:
    pipeline, problems = study(file)
    notes = check_imports(pipeline, problems, limit=limit)
    return Imported(problems.found, notes)


def test_modules_are_found_beside_the_file_and_not_where_we_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    for directory in (home, elsewhere):
        directory.mkdir()
    (home / "mine.py").write_text("import beside\ndef process(document): return None\n")
    (home / "beside.py").touch()
    (elsewhere / "theirs.py").write_text("def process(document): return None\n")
    monkeypatch.chdir(elsewhere)
    assert imported(write(home, 'call = "mine:process"')) == ([], [])
    (one,) = imported(write(home, 'call = "theirs:process"')).problems
    assert "No module named 'theirs'" in one.problem
    assert one.right.startswith(
        f"looked in {home} and the installed packages, with {sys.exec_prefix}"
    )


def test_every_module_that_does_not_import_is_told_with_the_end_of_its_traceback(
    tmp_path: Path,
) -> None:
    (tmp_path / "raises.py").write_text("def load():\n    raise OSError('no model')\nload()\n")
    (tmp_path / "wrong.py").write_text("def process(document:\n    pass\n")
    (tmp_path / "exits.py").write_text("import sys\nsys.exit(3)\n")
    (tmp_path / "crashes.py").write_text(
        "import os, sys\nprint('so long')\nsys.stdout.flush()\nos.abort()\n"
    )
    (tmp_path / "vanishes.py").write_text("import os\nos._exit(0)\n")
    names = ("raises", "wrong", "exits", "crashes", "vanishes")
    file = write(tmp_path, *(f'call = "{name}:process"' for name in names))
    problems = found(file).problems
    assert [(one.line, one.where, one.key) for one in problems] == [
        (4 + 3 * number, f'stage "s{number + 1}"', "call") for number in range(5)
    ]
    raises, wrong, exits, crashes, vanishes = problems
    assert raises.problem == "cannot work: importing 'raises' failed: OSError: no model"
    assert raises.detail == (
        f'  File "{tmp_path}/raises.py", line 3, in <module>',
        "    load()",
        f'  File "{tmp_path}/raises.py", line 2, in load',
        "    raise OSError('no model')",
    )
    assert str(raises).splitlines()[1:] == [f"    {line}" for line in raises.detail]
    assert "SyntaxError: '(' was never closed" in wrong.problem
    assert wrong.detail[:2] == (
        f'  File "{tmp_path}/wrong.py", line 1',
        "    def process(document:",
    )
    assert "SystemExit: 3" in exits.problem
    assert crashes.problem == "cannot work: importing it ended the process: ended by SIGABRT"
    assert crashes.detail[0] == "so long"
    assert any(f'File "{tmp_path}/crashes.py", line 4' in line for line in crashes.detail)
    assert vanishes.problem == "cannot work: importing it ended the process: exit code 0"


@pytest.mark.parametrize(
    ("work", "problem", "right"),
    [
        ("mine:prosess", "cannot work: 'mine' has no 'prosess'", "a function of {}/mine.py"),
        ("mine:three", "cannot work: 'three' is a int, not callable", "a function of {}/mine.py"),
        ("mine:none", "takes other arguments: mine:none()", "one, the document"),
        ("mine:two", "takes other arguments: mine:two(a, b)", "one, the document"),
        ("no-plug-in", "cannot work: neither package.module:function nor a plug-in", ""),
        ("signal:process", "cannot work: 'signal' has no 'process'", "/signal.py"),
    ],
)
def test_a_function_has_to_be_there_and_take_a_document(
    tmp_path: Path, work: str, problem: str, right: str
) -> None:
    (tmp_path / "mine.py").write_text("three = 3\ndef none(): pass\ndef two(a, b): pass\n")
    # Python has one of this name, which a driver has long imported.
    (tmp_path / "signal.py").write_text("def process(document): pass\n")
    one = only(write(tmp_path, f'call = "{work}"'))
    assert one.problem == problem
    assert right.format(tmp_path) in one.right


def test_whatever_may_be_called_with_a_document_is_taken(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "class Parser:\n"
        "    def parse(self, document): pass\n"
        "    def __call__(self, document, more=1, **others): pass\n"
        "parser = Parser()\n"
    )
    works = ("mine:parser.parse", "mine:parser", "builtins:bytes", "mine:Parser.__init__")
    assert imported(write(tmp_path, *(f'call = "{work}"' for work in works))) == ([], [])


def test_a_function_that_loads_more_is_looked_for_and_not_called(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def process(document): pass\ndef load(): open('loaded', 'x')\ndef bad(x): pass\n"
    )
    call_ = 'call = "mine:process"\npreload = "mine:{}"'
    file = write(tmp_path, *(call_.format(name) for name in ("load", "lost", "bad")))
    assert [(one.where, one.key, one.problem) for one in imported(file).problems] == [
        ('stage "s2"', "preload", "cannot work: 'mine' has no 'lost'"),
        ('stage "s3"', "preload", "takes other arguments: mine:bad(x)"),
    ]
    assert not (tmp_path / "loaded").exists()


def test_what_is_wrong_is_told_in_the_order_of_the_file_whichever_is_found_first(
    tmp_path: Path,
) -> None:
    (tmp_path / "early.py").write_text(f"open({str(tmp_path / 'tried')!r}, 'x')\nraise OSError")
    (tmp_path / "late.py").write_text(
        "import os, time\n"
        f"while not os.path.exists({str(tmp_path / 'tried')!r}):\n    time.sleep(0.01)\n"
        "time.sleep(0.1)\nraise OSError"
    )
    found = imported(write(tmp_path, 'call = "late:process"', 'call = "early:process"'))
    assert found.places == [('stage "s1"', "call"), ('stage "s2"', "call")]


def test_a_module_is_imported_in_the_environment_of_its_stage(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import os\nassert os.environ['MODEL'] == '7'\ndef process(document): pass\n"
    )
    (one,) = imported(
        write(tmp_path, 'call = "mine:process"\nenv = { MODEL = 7 }', 'call = "mine:process"')
    ).problems
    assert (one.where, one.key) == ('stage "s2"', "call")


def test_a_module_may_print_more_than_a_pipe_holds(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("print('x' * 1_000_000)\nraise ValueError('enough')\n")
    (one,) = imported(write(tmp_path, 'call = "mine:process"')).problems
    assert one.problem.endswith("failed: ValueError: enough")


# Leaves one child in its group and one outside, tells who they are, and takes for ever.
SLOW = """
import os, time
from pathlib import Path

def stay(name):
    Path(__file__ + name).write_text(str(os.getpid()))
    Path(__file__ + name).rename(Path(__file__).with_suffix(name))
    while True:
        time.sleep(3600)

if not os.fork():
    stay(".child")
if not os.fork():
    os.setsid()
    stay(".stray")
stay(".own")
"""


def pids(directory: Path) -> list[int]:
    """Of the three processes that a slow module becomes; they come one by one."""
    files = [directory / f"slow.{name}" for name in ("own", "child", "stray")]
    return [int(file.read_text()) for file in files if file.exists()]


def test_a_module_that_takes_long_is_merely_slow_and_nothing_of_it_stays(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "wrong.py").write_text("raise ValueError('no')")
    file = write(tmp_path, 'call = "slow:process"', 'call = "wrong:process"')
    limit, came = 1.0, imported(file, 0.01)
    # However long it takes to start on this machine.
    while len(pids(tmp_path)) < 3 or not came.problems:
        for name in ("own", "child", "stray"):
            (tmp_path / f"slow.{name}").unlink(missing_ok=True)
        came, limit = imported(file, limit), 2 * limit
    (note,) = came.notes
    assert note.startswith("stage 's1': whether its module can be imported is not known; it takes")
    assert came.places == [('stage "s2"', "call")]
    until_ended(*pids(tmp_path))
    assert found(file, limit=0.01).notes[0].partition("; ")[0] == note.partition("; ")[0]


def test_an_import_that_somebody_kills_says_nothing_of_the_module(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    file = write(tmp_path, 'call = "mine:process"')
    problems, (note,) = imported(file)
    assert not problems
    assert note.endswith("or was killed")


def test_who_is_killed_while_checking_leaves_no_import(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW.partition("if not")[0] + 'stay(".own")\n')
    file = write(tmp_path, 'call = "slow:process"')
    code = (
        f"from tests.integration.test_pipeline_check import *; imported(Path({str(file)!r}), 3600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[2], env=ENVIRON
    ) as checking:
        until(lambda: pids(tmp_path))
        checking.kill()
    (own,) = pids(tmp_path)
    until(lambda: not is_alive(own))


def test_more_stages_than_cpus_are_imported_in_turn(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def process(document): pass\n")
    works = ['call = "mine:process"', 'call = "mine:lost"'] * 4
    found = imported(write(tmp_path, *works))
    assert [where for where, _ in found.places] == [f'stage "s{at}"' for at in (2, 4, 6, 8)]


# Directories


def test_a_root_that_is_not_there_may_be_made_and_its_parent_may_not(tmp_path: Path) -> None:
    assert told(write(tmp_path, 'command = "true"', head='root = "new"')) == []
    assert not (tmp_path / "new").exists()
    (one,) = told(write(tmp_path, 'command = "true"', head='root = "mnt/new"'))
    assert one == (
        f"2: [pipeline]: root is {tmp_path}/mnt/new, and {tmp_path}/mnt does not exist either; "
        "mkdir it, or mount what is to be there"
    )


def test_what_is_no_directory_cannot_be_a_root_or_a_queue(tmp_path: Path) -> None:
    (tmp_path / "queues").touch()
    one = only(write(tmp_path, 'command = "true"'))
    # The file says nothing of it.
    assert (one.line, one.key) == (1, "root")
    assert one.problem == f"leads to {tmp_path}/queues, which is no directory"
    (tmp_path / "queues").unlink()
    (tmp_path / "queues").mkdir()
    (tmp_path / "queues/a").touch()
    (tmp_path / "queues/s1").symlink_to("nowhere")
    output, input_ = told(write(tmp_path, 'input = "a"\ncommand = "true"'))
    assert input_.startswith(
        f'4: stage "s1": input leads to {tmp_path}/queues/a, which is no direc'
    )
    assert output.startswith(
        f'2: stage "s1": output leads to {tmp_path}/queues/s1, a symbolic link'
    )


def test_a_file_system_where_rename_is_not_atomic_cannot_hold_queues(tmp_path: Path) -> None:
    (tmp_path / "queues" / "input").mkdir(parents=True)
    file = write(tmp_path, 'command = "true"', head='root = "queues"')
    kinds = {str(tmp_path / "queues"): "fuse.s3fs", str(tmp_path / "queues" / "input"): "vfat"}
    one = only(file, HERE._replace(kind_of=lambda path: kinds.get(path, "ext4")))
    assert one.problem.startswith("is on a fuse.s3fs file system")
    del kinds[str(tmp_path / "queues")]
    one = only(file, HERE._replace(kind_of=lambda path: kinds.get(path, "ext4")))
    assert (one.where, one.key) == ('stage "s1"', "input")


def check(file: Path, *more: str, **how: list[str | Path]) -> Called:
    """The command in a process of its own."""
    state = str(file.parent / "state")
    prefix = how.get("prefix", [])
    return command("check", file, *more, program="watchdogd", prefix=prefix, WATCHDOGD_STATE=state)


def test_a_root_on_a_read_only_file_system_is_told_so(tmp_path: Path) -> None:
    root = tmp_path / "queues"
    root.mkdir()
    called = check(write(tmp_path, 'command = "true"'), prefix=read_only(root))
    assert called.code == 78
    assert f"is on a file system that is mounted read-only ({root})" in called.err


@contextlib.contextmanager
def anybodys() -> Iterator[Path]:
    """A directory that everybody may look into; those of pytest are its user's alone."""
    directory = tempfile.mkdtemp()
    os.chmod(directory, 0o755)
    try:
        yield Path(directory)
    finally:
        shutil.rmtree(directory)


def test_what_is_only_a_matter_of_permission_is_77() -> None:
    with anybodys() as directory:
        (directory / "queues" / "input").mkdir(parents=True)
        (directory / "state").mkdir()
        file = write(directory, 'command = "true"')
        (directory / "queues" / "input").chmod(0o555)
        (directory / "state").chmod(0o555)
        prefix: list[str | Path] = list(unprivileged())
        called = check(file, prefix=prefix)
        assert called.code == 77
        assert f"input leads to {directory}/queues/input, which may not be changed" in called.err
        assert f"cannot keep its logs in {directory}/state: permission denied" in called.err
        file = write(directory, 'command = "no-such-program"')
        assert check(file, prefix=prefix).code == 78


def test_a_file_that_may_not_be_read_is_77() -> None:
    with anybodys() as directory:
        file = write(directory, 'command = "true"')
        file.chmod(0o000)
        called = check(file, prefix=list(unprivileged()))
    assert called.code == 77
    assert f"{file}: it may not be read: permission denied" in called.err


def test_an_archive_is_on_the_file_system_of_its_queue(tmp_path: Path) -> None:
    elsewhere = Path("/dev/shm")
    if not elsewhere.is_dir() or elsewhere.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is but one file system here")
    file = write(tmp_path, f'command = "true"\narchive = "{elsewhere}/archive"')
    assert only(file).problem == f"is on another file system than {tmp_path}/queues/input"
    assert told(write(tmp_path, 'command = "true"\narchive = "archive"')) == []


def test_an_archive_that_leads_nowhere_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "old").symlink_to("nowhere")
    one = only(write(tmp_path, 'command = "true"\narchive = "../old"'))
    assert one.problem == f"leads to {tmp_path}/old, a symbolic link to nowhere"


def test_the_watchdog_keeps_nothing_of_its_own_below_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOGD_STATE", str(tmp_path / "queues" / "state"))
    one = only(write(tmp_path, 'command = "true"'))
    assert (one.line, one.exit_code) == (0, 78)
    assert "below the root; set WATCHDOGD_STATE" in str(one)


# Memory, hints, and all of it at once


def test_a_stage_that_needs_more_memory_than_the_host_has_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path, 'command = "true"\nmemory = "9 GB"')
    assert told(file) == [" the drivers need 9 GB: s1 1 × 9 GB; this host has 8 GB; lower drivers"]
    file.write_text(file.read_text() + '[host]\nmemory = "4 GB"\n')
    (one,) = told(file)
    assert one.startswith(
        "6: [host]: the drivers need 9 GB: s1 1 × 9 GB; [host] memory allows 4 GB;"
    )


def test_a_plan_that_fits_with_fewer_drivers_is_capped_and_says_so(tmp_path: Path) -> None:
    file = write(tmp_path, 'command = "true"\nmemory = "3 GB"\ndrivers = { min = 1, max = 9 }')
    checked = found(file)
    assert checked.problems == ()
    assert any("s1 gets at most 2 of 9 drivers" in note for note in checked.notes)


@pytest.mark.parametrize(
    ("local", "told"),
    [
        (
            True,
            "is on a nfs4 file system, for which a watchdog must not wait: it keeps its logs in",
        ),
        (False, "is on a nfs4 file system: while that does not answer, neither does the watchdog"),
    ],
)
def test_logs_on_a_network_file_system_are_a_note(
    tmp_path: Path, *, local: bool, told: str
) -> None:
    file = write(tmp_path, 'command = "true"')
    runtime = runtime_directory() if local else ""
    kind_of = {runtime: "tmpfs"}.get
    checked = found(file, HERE._replace(kind_of=lambda path: kind_of(path, "nfs4")))
    assert not checked.problems
    (note,) = checked.notes
    assert told in note


def test_everything_that_is_wrong_is_said_at_once_and_nothing_is_made(tmp_path: Path) -> None:
    (tmp_path / "queues" / "s1").mkdir(parents=True)
    (tmp_path / "queues" / "input").touch()
    file = write(
        tmp_path,
        'call = "nowhere:to"',
        'command = "no-such-program"\nmemory = "900 GB"',
        'server = "./nor-this"',
        head='on_event = "./nor-that"',
    )
    before = sorted(path for path in tmp_path.rglob("*"))
    with pytest.raises(BadPipeline) as caught:
        examine(str(file), imports=check_imports).check()
    assert [one.key or "memory" for one in caught.value.problems] == [
        *("memory", "on_event", "input", "call", "command", "server"),
    ]
    assert sorted(path for path in tmp_path.rglob("*")) == before


# The command


def test_a_pipeline_that_can_run_is_listed(tmp_path: Path) -> None:
    file = write(tmp_path, 'command = "sort"\ndrivers = 2\nmemory = "1 MB"', 'server = "cat"')
    called = check(file)
    assert (called.code, called.err) == (0, "")
    assert [line.split(maxsplit=2) for line in called.out.splitlines()] == [
        ["STAGE", "INPUT", "OUTPUT  DRIVERS    MEMORY"],
        ["s1", "input", "s1      2 drivers  1 MB each  command sort"],
        ["s2", "s1", "s2      1 driver              server cat"],
        ["documents", "are", "submitted into input; results are in s2 ({docid}.ready)"],
    ]


def test_mistakes_are_lines_that_editors_can_jump_to(tmp_path: Path) -> None:
    file = write(tmp_path, 'command = "a | b"\ntimout = 3', 'call = "x"\nretries = -1')
    called = check(file)
    assert (called.code, called.out) == (78, "")
    *lines, last = called.err.splitlines()
    assert [line.split(": ")[0] for line in lines] == [f"{file}:{at}" for at in (4, 5, 9)]
    assert last == f"watchdogd: 3 mistakes in {file}; nothing can run"


def test_a_name_that_could_steer_a_terminal_is_shown_as_text(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text('[[stage]]\n"\\u001b[2J" = 1\nname = "\\u001b[2J"\n')
    called = check(file)
    assert called.code == 78
    assert "\x1b" not in called.err
    assert r"\x1b[2J is no key" in called.err


def test_json_tells_programs_the_same(tmp_path: Path) -> None:
    file = write(tmp_path, 'command = "no-such-program"\nmemory = "1 MB"')
    called = check(file, "--json")
    assert (called.code, called.err) == (78, "")
    assert called.json["ok"] is False
    (one,) = called.json["complaints"]
    assert (one["file"], one["line"], one["where"], one["key"]) == (
        *(str(file), 4, 'stage "s1"', "command"),
    )
    assert one["problem"]
    assert one["right"]
    called = check(write(tmp_path, 'command = "true"'), "--json")
    assert (called.code, called.json["ok"], called.json["complaints"]) == (0, True, [])
    assert called.json["pipeline"]["stages"][0]["name"] == "s1"


def test_a_missing_file_is_66(tmp_path: Path) -> None:
    called = check(tmp_path / "none.toml")
    assert (called.code, called.out) == (66, "")
    assert "there is no such file" in called.err


def test_the_host_may_be_named(tmp_path: Path) -> None:
    file = write(tmp_path, 'command = "no-such-program"')
    file.write_text(file.read_text() + "[hosts.rose]\ndrivers = { s1 = 0 }\n")
    assert check(file).code == 78
    assert check(file, "--host", "rose").code == 0
