"""`broker`, `worker` and `keys` as they are typed: what is refused, how, and with which code."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.processes import ENVIRON
from tests.cli.queues import call, listed, submit

Capsys = pytest.CaptureFixture[str]

BROKER = ("broker", "pingpong", "in", "--to", "out")
WORKER = ("worker", "pingpong", "tcp://127.0.0.1:1", "--command", "cat")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    submit(tmp_path / "in")
    (tmp_path / "out").mkdir()
    return tmp_path


@pytest.mark.parametrize("name", ["broker", "worker", "client", "keys"])
def test_help_lists_the_command_and_the_command_its_options(capsys: Capsys, name: str) -> None:
    assert f" {name} " in call(capsys, "--help").out
    said = call(capsys, name, "--help")
    assert said.code == 0
    assert said.out


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("--listen", "broker"),
        ("--curve", "broker"),
        ("--insecure", "broker"),
        ("--job-timeout", "broker"),
        ("--max-message", "broker"),
        ("--slots", "worker"),
        ("--timeout", "worker"),
        ("--hard-after", "worker"),
    ],
)
def test_help_shows_what_each_option_is(capsys: Capsys, option: str, name: str) -> None:
    assert option in call(capsys, name, "--help").out


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("broker", "gopher", "in"), "gopher"),
        (("broker", "pingpong", "--to", "out"), "which queue"),
        (("broker", "pingpong", "in"), "--to OUTPUT"),
        ((*BROKER, "--listen", "127.0.0.1:6714"), "tcp://127.0.0.1:6714"),
        ((*BROKER, "--listen", "tcp://127.0.0.1:99999"), "tcp://HOST:PORT"),
        ((*BROKER, "--tls", "keys"), "--tls is for fuq"),
        ((*BROKER, "--service", "a=in:out"), "--service is for scale0"),
        ((*BROKER, "--group", "tcp://a:1"), "--group is for scale0"),
        ((*BROKER, "--console"), "--console is for roundrobin"),
        ((*BROKER, "--retries", "-1"), "--retries"),
        ((*BROKER, "--job-timeout", "soon"), "--job-timeout"),
        ((*BROKER, "--job-timeout", "0s"), "--job-timeout"),
        ((*BROKER, "--max-message", "much"), "--max-message"),
        ((*BROKER, "--publish", "a/b"), "a/b"),
        ((*BROKER, "--id", "../up"), "../up"),
        ((*WORKER, "--listen", "tcp://127.0.0.1:2"), "--listen is for roundrobin"),
        ((*WORKER, "--slots", "3"), "--slots is for roundrobin"),
        ((*WORKER, "--nproc", "3"), "--nproc is for fuq"),
        ((*WORKER, "--call", "os:getcwd"), "one of"),
        (WORKER[:3], "--call"),
        (("worker", "pingpong", "ipc:///tmp/x", "--command", "cat"), "tcp://HOST:PORT"),
        (("worker", "roundrobin", "tcp://127.0.0.1:1", "--slots", "0"), "--slots 0"),
        ((*WORKER, "--max-documents", "0"), "--max-documents"),
        ((*WORKER, "--timeout", "-1s"), "--timeout"),
        (("keys",), "DIR"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_done(
    capsys: Capsys, place: Path, args: tuple[str, ...], words: str
) -> None:
    said = call(capsys, *args)
    assert (said.code, said.out) == (2, "")
    assert words in said.err
    assert said.err.startswith("queuedriver: ")
    assert listed(place) == ["in", "out"]
    assert not (place / "in/.queuedriver/drivers").exists()


@pytest.mark.parametrize("host", ["0.0.0.0", "*", "[::]", "rose"])
def test_address_that_others_can_reach_wants_keys(capsys: Capsys, host: str) -> None:
    said = call(capsys, *BROKER, "--listen", f"tcp://{host}:6715")
    assert said.code == 78
    assert "--curve DIR" in said.err
    assert "--insecure" in said.err


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("broker", "pingpong", "nowhere", "--to", "out", "--listen", "tcp://127.0.0.1:*"), 66),
        (("broker", "pingpong", "in", "--to", "in", "--listen", "tcp://127.0.0.1:*"), 78),
        ((*BROKER, "--listen", "tcp://127.0.0.1:*", "--curve", "nowhere"), 78),
        ((*WORKER, "--curve", "nowhere"), 78),
        (("worker", "pingpong", "tcp://127.0.0.1:1", "--command", "no-such-program"), 78),
        (("keys", "in/file"), 73),
    ],
)
def test_what_can_never_work_is_said_at_once(
    capsys: Capsys, place: Path, args: tuple[str, ...], code: int
) -> None:
    (place / "in/file").write_bytes(b"")
    said = call(capsys, *args)
    assert (said.code, said.out) == (code, "")
    # What it was to be, and what is wrong with that.
    assert said.err.count("\n") <= 2
    assert "Traceback" not in said.err


def test_without_zeromq_one_is_told_what_to_install(place: Path) -> None:
    code = (
        "import sys; sys.modules['zmq'] = None\n"
        "from queuedriver.cli import main; main(sys.argv[1:])"
    )
    for args in (BROKER, WORKER, ("keys", "mine")):
        ran = subprocess.run(
            [sys.executable, "-c", code, *args],
            env={**ENVIRON, "NO_COLOR": "1"},
            cwd=place,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert ran.returncode == 78, ran.stderr
        assert b"pip install" in ran.stderr
    assert os.listdir(place / "in") == []
