"""A connection that breaks and is there again, before anybody noticed: what was on its way is lost,
and neither side may wait for it."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from queuedriver.doors.transports.addresses import host_and_port
from tests.endpoints import own_host
from tests.network.doors import Doors, open_doors
from tests.waiting import until


class Cable:
    """Carries bytes between workers and a broker, until it is told not to."""

    def __init__(self, to: str) -> None:
        self._to = host_and_port(to)
        self._listener = socket.create_server((own_host(), 0))
        self.endpoint = f"tcp://{own_host()}:{self._listener.getsockname()[1]}"
        # Whether what one side sends gets nowhere.
        self.deaf_worker = threading.Event()
        self.deaf_broker = threading.Event()
        self.swallowed = 0
        self._ends: list[socket.socket] = []
        self._accepts = threading.Thread(target=self._accept, daemon=True)
        self._accepts.start()

    def cut(self) -> None:
        """Break every connection; those that come are carried again."""
        self.deaf_worker.clear()
        self.deaf_broker.clear()
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        # Whoever waits in `accept` would take one more, which nobody would close.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepts.join()
        self._listener.close()
        self.cut()
        for end in self._ends:
            end.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                worker, _ = self._listener.accept()
                self._ends.append(worker)
                broker = socket.create_connection(self._to)
                self._ends.append(broker)
                for source, target, deaf in (
                    (worker, broker, self.deaf_broker),
                    (broker, worker, self.deaf_worker),
                ):
                    pump = threading.Thread(
                        target=self._pump, args=(source, target, deaf), daemon=True
                    )
                    pump.start()

    def _pump(self, source: socket.socket, target: socket.socket, deaf: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if deaf.is_set():
                    self.swallowed += len(data)
                else:
                    target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)


@pytest.fixture(params=["pingpong", "scale0"])
def doors(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Doors]:
    with open_doors(tmp_path, str(request.param)) as doors:
        yield doors


@pytest.fixture
def cable(doors: Doors) -> Iterator[Cable]:
    """Between the broker, which listens where it always does, and whoever comes next."""
    doors.broker()
    cable = Cable(doors.endpoint)
    doors.endpoint = cable.endpoint
    yield cable
    cable.close()


def test_document_that_was_lost_on_its_way_is_dealt_again(doors: Doors, cable: Cable) -> None:
    doors.worker()
    doors.bring("first")
    doors.wait_for_outputs(1)
    cable.deaf_worker.set()
    doors.bring("second")
    # It is on its way, in frames that get nowhere.
    until(lambda: any(item.state == "working" for item in doors.items()), "it is dealt")
    until(lambda: cable.swallowed > 0, "it is swallowed")
    cable.cut()
    doors.wait_for_outputs(2)


def test_result_that_was_lost_on_its_way_is_made_again(doors: Doors, cable: Cable) -> None:
    doors.worker_that_holds()
    doors.bring("doc")
    until(lambda: bool(doors.who_holds("doc")), "a worker has it")
    cable.deaf_broker.set()
    before = cable.swallowed
    (doors.root / "go").touch()
    # Heartbeats are swallowed, too: the result is larger than any of them.
    until(lambda: cable.swallowed > before + 20, "its result is swallowed")
    cable.cut()
    doors.wait_for_outputs(1)
