"""`broker`, `worker` and `keys` as they are typed: what is refused, how, and with which code."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from queuedriver.cli import COMMANDS
from tests.cli.processes import ENVIRON
from tests.cli.queues import call, listed, submit
from tests.endpoints import own_endpoint
from tests.waiting import PATIENCE, until

Capsys = pytest.CaptureFixture[str]

BROKER = ("broker", "pingpong", "in", "--to", "out")
WORKER = ("worker", "pingpong", "tcp://127.0.0.1:1", "--command", "cat")
ROUNDROBIN = ("worker", "roundrobin", "tcp://127.0.0.1:1", "--command", "cat")
SCALE0 = ("broker", "scale0", "--service", "ocr=in:out")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    submit(tmp_path / "in")
    (tmp_path / "out").mkdir()
    (tmp_path / "junk.json").write_text('{"brokers": "rose"}')
    (tmp_path / "names.json").write_text('{"brokers": ["tcp://rose:1", "rose"]}')
    return tmp_path


@pytest.mark.parametrize("name", ["broker", "worker", "client"])
def test_help_lists_the_protocols_and_the_protocol_its_options(capsys: Capsys, name: str) -> None:
    assert f" {name} " in call(capsys, "--help").out
    said = call(capsys, name, "--help").out
    for protocol in COMMANDS[name].commands:
        assert f" {protocol} " in said
        shown = call(capsys, name, protocol, "--help")
        assert shown.code == 0
        assert shown.out.startswith(f"Usage: queuedriver {name} {protocol} [OPTIONS] ")
        assert "ADDRESS" in shown.out
        assert "{" not in shown.out.splitlines()[0]


# What only some have, and with which value it is said.
_OPTIONS = {
    "--curve": "keys",
    "--tls": "keys",
    "--secret-file": "secret",
    "--insecure": None,
    "--console": None,
    "--advertise": "tcp://a:1",
    "--service": "ocr=in:out",
    "--group": "tcp://a:1",
    "--preferred": "tcp://a:1",
    "--publish": "{docid}.ready",
    "--max-message": "5MB",
    "--broker-timeout": "500ms",
    "--n-timeouts": "3",
    "--worker-expire-seconds": "3s",
    "--heartbeat-interval": "7s",
    "--slots": "3",
    "--listen": "tcp://127.0.0.1:2",
    "--nproc": "3",
    "--allow": "true=/bin/true",
    "--root": ".",
    "--log-root": "logs",
    "--call": "builtins:len",
    "--hard-after": "3s",
    "--max-documents": "3",
    "--max-age": "3h",
    "--max-memory": "3GB",
    "--exec": None,
}
_ZMQ = {"--curve", "--max-message"}
_BROKER = {"--insecure", "--listen"}
_WORKER = _ZMQ | {"--call", "--hard-after", "--max-documents", "--max-age", "--max-memory"}
_PINGPONG = {"--broker-timeout", "--n-timeouts", "--worker-expire-seconds"}
_HAVE = {
    ("broker", "roundrobin"): _ZMQ | _BROKER | {"--publish", "--advertise", "--console"},
    ("broker", "fuq"): _BROKER | {"--tls", "--secret-file"},
    ("broker", "pingpong"): _ZMQ | _BROKER | _PINGPONG | {"--publish"},
    ("broker", "scale0"): _ZMQ
    | _BROKER
    | {"--publish", "--advertise", "--service", "--group", "--preferred", "--heartbeat-interval"},
    ("worker", "roundrobin"): _WORKER | {"--slots", "--listen", "--insecure", "--console"},
    ("worker", "fuq"): {"--nproc", "--allow", "--root", "--log-root", "--tls", "--secret-file"},
    ("worker", "pingpong"): _WORKER | _PINGPONG,
    ("worker", "scale0"): _WORKER | {"--service", "--group", "--heartbeat-interval"},
    ("client", "roundrobin"): _ZMQ | {"--exec", "--console"},
    ("client", "scale0"): _ZMQ,
}


@pytest.mark.parametrize(("name", "protocol"), _HAVE)
def test_option_that_a_protocol_does_not_have_does_not_exist(
    capsys: Capsys, place: Path, name: str, protocol: str
) -> None:
    shown = call(capsys, name, protocol, "--help").out.split()
    have = _HAVE[name, protocol]
    assert {option for option in _OPTIONS if option in shown} == have
    for option in _OPTIONS.keys() - have:
        value = _OPTIONS[option]
        said = call(capsys, name, protocol, option, *([value] if value else []))
        assert said.code == 2
        assert f"No such option: {option}" in said.err
    assert listed(place) == ["in", "junk.json", "names.json", "out"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("broker", "gopher", "in"), "gopher"),
        (("broker",), "Missing command"),
        (("broker", "pingpong", "--to", "out"), "Missing argument 'INPUT'"),
        (("broker", "pingpong", "in"), "--to OUTPUT"),
        ((*BROKER, "--listen", "127.0.0.1:6714"), "tcp://127.0.0.1:6714"),
        ((*BROKER, "--listen", "tcp://127.0.0.1:99999"), "tcp://HOST:PORT"),
        ((*BROKER, "--worker-expire-seconds", "2s"), "N_TIMEOUTS × BROKER_TIMEOUT is 3 s"),
        ((*BROKER, "--n-timeouts", "4"), "raise the latter"),
        ((*BROKER, "--n-timeouts", "0"), "--n-timeouts"),
        ((*WORKER, "--broker-timeout", "1500ms"), "N_TIMEOUTS × BROKER_TIMEOUT is 4.5 s"),
        ((*WORKER, "--broker-timeout", "0s"), "--broker-timeout"),
        ((*SCALE0, "--heartbeat-interval", "0s"), "--heartbeat-interval"),
        ((*SCALE0, "--service", "ocr=in2"), "a name of its own"),
        ((*SCALE0, "--service", "ocr"), "NAME=INPUT:OUTPUT"),
        ((*SCALE0, "in"), "not both"),
        (("broker", "scale0"), "which queue"),
        (("broker", "roundrobin"), "which queue"),
        (("broker", "roundrobin", "in", "--advertise", "rose"), "tcp://HOST:PORT"),
        ((*SCALE0, "--preferred", "rose"), "tcp://HOST:PORT"),
        ((*SCALE0, "--group", "tcp://rose"), "tcp://HOST:PORT"),
        ((*SCALE0, "--group", "no-file"), "No such file"),
        ((*SCALE0, "--group", "in"), "Is a directory"),
        ((*SCALE0, "--group", "junk.json"), "broker group"),
        ((*SCALE0, "--group", "names.json"), "'rose' is no address"),
        ((*BROKER, "--retries", "-1"), "--retries"),
        ((*BROKER, "--job-timeout", "soon"), "--job-timeout"),
        ((*BROKER, "--job-timeout", "0s"), "--job-timeout"),
        ((*BROKER, "--max-message", "much"), "--max-message"),
        ((*BROKER, "--publish", "a/b"), "a/b"),
        ((*BROKER, "--id", "../up"), "../up"),
        ((*ROUNDROBIN, "--listen", "tcp://127.0.0.1:2"), "no broker"),
        (("worker", "fuq", "--nproc", "0"), "--nproc"),
        (("worker", "fuq", "--nproc", "70000"), "1 to 65535"),
        (("worker", "scale0", "--command", "cat", "--group", "no-file"), "No such file"),
        ((*BROKER, "-d", "10"), "--debug 10: 0 to 9"),
        ((*BROKER, "--max-message", "0"), "--max-message"),
        (("client", "roundrobin", "tcp://127.0.0.1:1"), "send FILE..."),
        (("client", "roundrobin", "tcp://127.0.0.1:1", "send"), "send FILE..."),
        (("client", "roundrobin", "tcp://127.0.0.1:1", "ask", "x"), "send FILE..."),
        (("client", "roundrobin", "rose", "send", "x"), "tcp://HOST:PORT"),
        (("client", "scale0", "tcp://127.0.0.1:1", "request", "ocr"), "Missing argument"),
        (("client", "scale0", "tcp://127.0.0.1:1", "send", "ocr", "x"), "'send' is not"),
        (("client", "pingpong", "tcp://127.0.0.1:1"), "pingpong"),
        ((*WORKER, "--call", "os:getcwd"), "one of"),
        (WORKER[:3], "--call"),
        (("worker", "pingpong", "ipc:///tmp/x", "--command", "cat"), "tcp://HOST:PORT"),
        ((*ROUNDROBIN, "--slots", "0"), "--slots 0"),
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
    assert listed(place) == ["in", "junk.json", "names.json", "out"]
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


@pytest.mark.parametrize("words", [BROKER, WORKER])
def test_terminal_that_stands_still_keeps_neither_broker_nor_worker(words: Sequence[str]) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writing, b"-")
    os.set_blocking(writing, True)
    # Not where a broker listens that was told no address: somebody may.
    where = ("--listen", own_endpoint()) if words is BROKER else ()
    process = subprocess.Popen(
        [sys.executable, "-m", "queuedriver", *words, *where], stderr=writing, env=ENVIRON
    )
    try:
        until(lambda: hears_term(process.pid))
        process.terminate()
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
        os.close(reading)
        os.close(writing)


def hears_term(pid: int) -> bool:
    """Whether a process does something else at SIGTERM than to end."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)
