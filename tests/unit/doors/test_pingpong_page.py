"""The worker that the page of pingpong shows takes documents as it stands there."""

import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from queuedriver.doors.pingpong.broker import Broker
from queuedriver.doors.words import Effects, End, Processed, Result, Send, Work

zmq = pytest.importorskip("zmq")

PAGE = Path(__file__).parents[3] / "docs" / "protocols" / "pingpong.rst"
# Longer than any machine takes to start Python.
PATIENCE = 60.0


def the_worker() -> str:
    _, after = PAGE.read_text().split(".. code-block:: python\n\n", 1)
    lines = after.splitlines()
    end = next(at for at, line in enumerate(lines) if line and not line.startswith("    "))
    return textwrap.dedent("\n".join(lines[:end]))


def test_worker_of_the_page_processes_documents_and_leaves_when_told() -> None:
    broker = Broker()
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.linger = 0
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        command = [sys.executable, "-c", the_worker(), f"tcp://127.0.0.1:{port}"]
        with subprocess.Popen(command) as process:

            def carry_out(effects: Effects) -> list[Result]:
                for effect in effects:
                    if isinstance(effect, Send):
                        socket.send_multipart([effect.peer, *effect.frames])
                hows = [effect.how for effect in effects if isinstance(effect, End)]
                return [one for how in hows if isinstance(how, Processed) for one in how.results]

            try:
                results: list[Result] = []
                dealt = 0
                end = time.monotonic() + PATIENCE
                while len(results) < 3:
                    assert socket.poll(1000.0 * max(0.0, end - time.monotonic()))
                    peer, *frames = socket.recv_multipart()
                    now = time.monotonic()
                    results += carry_out(broker.hear(peer, frames, now, 0.0))
                    worker = broker.pick("", now)
                    if dealt < 3 and worker is not None:
                        dealt += 1
                        work = Work(str(dealt), "doc", 1, b"document %d" % dealt)
                        carry_out([broker.deal(worker, work, now)])
                assert [one.data for one in results] == [
                    b"DOCUMENT 1",
                    b"DOCUMENT 2",
                    b"DOCUMENT 3",
                ]
                carry_out(broker.leave(time.monotonic()))
                assert process.wait(PATIENCE) == 0
            finally:
                process.kill()
