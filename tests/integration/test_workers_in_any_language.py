"""The samples' workers, each in a language of its own, behind a real broker."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.processes import start
from tests.endpoints import own_endpoint
from tests.integration.test_broker import Process
from tests.waiting import PATIENCE, contents, next_line, until

ROOT = Path(__file__).parents[2]
WORKERS = ROOT / "sample_queues" / "workers"
# Where .ci/testbed.sh installs what the worker for Node.js needs.
NODE_MODULES = ROOT / ".ci" / ".node" / "node_modules"
ENVIRON = {**os.environ, "NODE_PATH": os.pathsep.join((str(NODE_MODULES), "node_modules"))}
MOST_LINES = 25


def in_python(_: Path) -> list[str]:
    return [sys.executable, str(WORKERS / "worker.py")]


def in_c(directory: Path) -> list[str]:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler here")
    program = directory / "worker"
    command = ("cc", "-Wall", "-Wextra", "-Werror", WORKERS / "worker.c", "-lzmq", "-o", program)
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if "zmq.h: No such file" in built.stderr:
        pytest.skip("there is no zmq.h here; apt-get install libzmq3-dev")
    assert built.returncode == 0, built.stderr
    return [str(program)]


def in_javascript(_: Path) -> list[str]:
    if shutil.which("node") is None:
        pytest.skip("there is no Node.js here")
    asked = ("node", "-e", "require('zeromq')")
    if subprocess.run(asked, env=ENVIRON, capture_output=True, check=False).returncode:
        pytest.skip(f"Node.js has no zeromq; npm install --prefix {NODE_MODULES.parent} zeromq")
    return ["node", str(WORKERS / "worker.js")]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def put(queue: Path, documents: dict[str, bytes]) -> None:
    queue.mkdir(exist_ok=True)
    for name, content in documents.items():
        (queue / f"{name}.hidden").write_bytes(content)
        (queue / f"{name}.hidden").rename(queue / f"{name}.ready")


def broker(stack: ExitStack, root: Path, endpoint: str, *more: str) -> tuple[Process, str]:
    """Start a broker; return it, and where it listens."""
    args = ("broker", "pingpong", "in", "--to", "out", "--listen", endpoint, *more)
    process = stack.enter_context(start(*args, cwd=root))
    stack.callback(process.kill)
    assert process.stderr is not None
    line = next_line(process.stderr)
    found = re.search(r"tcp://[0-9.:]+", line)
    assert found, line + process.stderr.read().decode()
    return process, found[0]


@pytest.mark.parametrize("language", [in_python, in_c, in_javascript])
def test_worker_of_25_lines_serves_a_broker_and_the_one_after_it_and_leaves_when_told(
    language: object, tmp_path: Path, stack: ExitStack
) -> None:
    assert callable(language)
    (tmp_path / "out").mkdir()
    # Payloads that are words of the protocol, and none at all, are documents like any other.
    first = {"a": b"one", "b": b"READY", "c": b"pong", "d": b"exit", "e": b"", "f": b"x" * 100_000}
    put(tmp_path / "in", first)
    one, endpoint = broker(stack, tmp_path, own_endpoint())
    worker = subprocess.Popen([*language(tmp_path), endpoint], env=ENVIRON)
    stack.callback(worker.wait)
    stack.callback(worker.kill)
    expected = {f"{name}.ready": document.upper() for name, document in first.items()}
    until(lambda: contents(tmp_path / "out") == expected, f"{expected.keys()} through a worker")

    # Nobody told the worker that its broker is gone, or that there is another.
    one.kill()
    one.wait()
    put(tmp_path / "in", {f"later{n}": b"later" for n in range(20)})
    another, _ = broker(stack, tmp_path, endpoint, "--drain")
    assert another.wait(PATIENCE) == 0
    expected |= {f"later{n}.ready": b"LATER" for n in range(20)}
    assert contents(tmp_path / "out") == expected
    assert worker.wait(PATIENCE) == 0


@pytest.mark.parametrize("language", [in_python, in_javascript])
def test_document_that_such_a_worker_cannot_process_is_discarded_with_its_words(
    language: object, tmp_path: Path, stack: ExitStack
) -> None:
    assert callable(language)
    (tmp_path / "out").mkdir()
    put(tmp_path / "in", {"fine": b"fine", "foreign": "äöü".encode()})
    serving, endpoint = broker(stack, tmp_path, own_endpoint(), "--drain")
    worker = subprocess.Popen([*language(tmp_path), endpoint], env=ENVIRON)
    stack.callback(worker.wait)
    stack.callback(worker.kill)
    serving.wait(PATIENCE)
    assert contents(tmp_path / "out") == {"fine.ready": b"FINE"}
    reports = [one.read_text() for one in (tmp_path / "in" / "discarded").glob("*.json")]
    assert any("it is not ASCII" in report for report in reports), reports


@pytest.mark.parametrize("source", sorted(WORKERS.glob("worker.*")), ids=lambda one: one.name)
def test_worker_has_at_most_25_lines_that_are_neither_blank_nor_comments(source: Path) -> None:
    lines = [line.strip() for line in source.read_text().splitlines()]
    code = [line for line in lines if line and not line.startswith(("//", "# ", '"""'))]
    assert 10 < len(code) <= MOST_LINES
