"""The example of roundrobin's description, typed line by line at three real terminals."""

import os
import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from tests.cli.processes import on_terminal
from tests.drivers import PATIENCE
from tests.endpoints import free_endpoint
from tests.waiting import until


class Person:
    """Somebody at a terminal, with one of the three programs."""

    def __init__(self, stack: ExitStack, *args: str) -> None:
        self.process, self.terminal = stack.enter_context(on_terminal(*args))
        self._shown = ""
        self._more = threading.Condition()
        # All the time, as a terminal does: a program whose terminal takes nothing stands still.
        reader = threading.Thread(target=self._read)
        stack.callback(reader.join)
        stack.callback(self.process.kill)
        reader.start()

    def _read(self) -> None:
        with suppress(OSError):
            while data := os.read(self.terminal, 65536):
                with self._more:
                    self._shown += data.decode().replace("\r", "")
                    self._more.notify_all()

    def sees(self, pattern: str) -> str:
        """What is shown, up to where it is this; what comes after it is for the next time."""
        with self._more:
            found = self._more.wait_for(lambda: re.search(pattern, self._shown), PATIENCE)
            assert found, f"{pattern!r} never came: {self._shown!r}"
            seen, self._shown = self._shown[: found.end()], self._shown[found.end() :]
            return seen

    def types(self, line: str) -> None:
        os.write(self.terminal, f"{line}\n".encode())
        # The terminal's own echo: what comes after it is the answer.
        self.sees(rf"{re.escape(line)}\n")

    def asks(self, line: str, pattern: str) -> str:
        """Types a line, and what is shown up to the answer and a prompt."""
        self.types(line)
        return self.sees(rf"(?s){pattern}.*?> ")

    def leaves(self) -> int:
        self.types("quit")
        return self.process.wait(PATIENCE)


@pytest.fixture
def address() -> str:
    return free_endpoint()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def start(stack: ExitStack, address: str, level: int) -> tuple[Person, Person, Person]:
    """Server, worker and client, as the example has them."""
    options = ("--console", "-d", str(level))
    people = (
        Person(stack, "broker", "roundrobin", "--listen", address, *options),
        Person(stack, "worker", "roundrobin", address, *options),
        Person(stack, "client", "roundrobin", address, *options),
    )
    for one in people:
        one.sees("> ")
    return people


def addresses(shown: str) -> list[str]:
    """Of those in a table of workers, each of whose lines is as it should be."""
    # A report that comes between what was typed and its answer leaves a prompt before the answer.
    lines = [line.removeprefix("> ") for line in shown.splitlines() if "worker_table" in line]
    for number, line in enumerate(lines):
        assert re.fullmatch(
            rf"worker_table\[{number:2d}\] = \{{ address = \S+ free_slots = 10 \}}( \(child\))?",
            line,
        )
    return [line.split(" address = ")[1].split(" ")[0] for line in lines]


def test_example_goes_as_it_is_written(stack: ExitStack, address: str) -> None:
    server, worker, client = start(stack, address, 5)
    worker.asks("register", "worker: registered")
    (parent,) = addresses(server.asks("workers", r"worker_table\[ 0\]"))
    assert parent.startswith(f"{address}:")

    client.asks("pingt", "PING: done")
    # The server receives it, the worker does it, the server passes the answer back.
    server.sees(rf"(?s)asks: TRACKEXEC PING.*is dealt to {parent}.*RESPONSE of {parent} is passed")
    worker.sees("worker: TRACKEXEC PING is done")
    client.asks("ping", "PING: done")
    server.sees(r"asks: EXEC PING")
    worker.sees("worker: EXEC PING is done")

    worker.asks("bulk", r"(child +\d+: registered.*){10}")
    shown = server.asks("workers", r"worker_table\[10\]")
    assert len(set(addresses(shown))) == 11
    assert shown.count("(child)") == 10

    marks = client.asks("bulkping 100", r"PING\t +100\t +100\n")
    assert [f"PING {n}0 of 100 completed" in marks for n in range(1, 11)] == [True] * 10
    assert "type\t# total\t# success\n----\t-------\t---------\nPING\t    100\t      100\n" in marks
    marks = client.asks("bulkdata 100", r"STREAM\t +100\t +100\n")
    assert [f"STREAM {n}0 of 100 completed" in marks for n in range(1, 11)] == [True] * 10

    summary = worker.asks("endbulk", "10 children have left")
    passed = [int(n) for n in re.findall(r"(\d+) TRACKEXEC (?:PING|STREAM)", summary)]
    assert len(re.findall(r"child +\d+ passed", summary)) == 10
    # In turn: each of the eleven did its part of the two hundred, and the parent the rest.
    assert sum(passed) in range(170, 200)
    # They have left, and the server is told so a moment later.
    until(lambda: addresses(server.asks("workers", r"worker_table\[ 0\]")) == [parent])
    worker.asks("deregister", "worker: deregistering")
    server.sees(f"{parent} deregistered")
    server.asks("workers", "no workers are registered")
    assert [one.leaves() for one in (worker, server, client)] == [0, 0, 0]


def test_at_debug_level_0_only_what_was_asked_for_and_errors_are_shown(
    stack: ExitStack, address: str
) -> None:
    server, worker, client = start(stack, address, 0)
    assert "to be registered first" in worker.asks("bulk", "registered first")
    assert worker.asks("register", "") == "> "
    while not addresses(shown := server.asks("workers", "worker")):
        continue
    assert re.fullmatch(r"worker_table.*\n> ", shown)
    assert client.asks("pingt", "") == "> "
    table = client.asks("bulkping 20", r"PING\t +20\t +20\n")
    assert "completed" not in table
    assert "no command 'hello'" in client.asks("hello", "no command")
    assert "takes a number" in client.asks("bulkping many", "takes a number")
    # Each leaves at the end of its input, too; the worker deregisters by itself.
    os.write(worker.terminal, b"\x04")
    assert worker.process.wait(PATIENCE) == 0
    until(lambda: "no workers are registered" in server.asks("workers", "worker"))
    for one in (client, server):
        os.write(one.terminal, b"\x04")
        assert one.process.wait(PATIENCE) == 0


def test_request_that_came_before_any_worker_is_answered_once_one_is_there(
    stack: ExitStack, address: str
) -> None:
    server, worker, client = start(stack, address, 1)
    client.types("pingt")
    server.sees("asks: TRACKEXEC PING")
    server.asks("workers", "no workers are registered")
    worker.asks("register", "worker: registered")
    client.sees("PING: done")
    assert [one.leaves() for one in (worker, server, client)] == [0, 0, 0]


def test_client_talks_to_a_server_without_a_broker_just_as_well(
    stack: ExitStack, address: str
) -> None:
    server = Person(stack, "worker", "roundrobin", "--listen", address, "--call", "builtins:len")
    server.sees("Ctrl-C to leave")
    client = Person(stack, "client", "roundrobin", address, "--console", "-d", "1")
    client.sees("> ")
    client.asks("ping", "PING: done")
    client.asks("bulkping 30", r"PING\t +30\t +30\n")
    client.asks("bulkdata 30", r"STREAM\t +30\t +30\n")
    assert client.leaves() == 0
