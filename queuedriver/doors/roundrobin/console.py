"""roundrobin's consoles: a broker, a worker and a client that are told by hand what to do.

console_terminal.py  lines that come, words that go
console_broker.py    `workers`, `quit`
console_worker.py    `register`, `deregister`, `bulk`, `endbulk`, `quit`
console_client.py    `ping`, `pingt`, `data`, `bulkping N`, `bulkdata N`, `quit`
"""

import os

from queuedriver.doors.roundrobin.console_broker import BrokerConsole
from queuedriver.doors.roundrobin.console_client import ClientConsole
from queuedriver.doors.roundrobin.console_terminal import Terminal
from queuedriver.doors.roundrobin.console_worker import WorkerConsole
from queuedriver.doors.roundrobin.settings import BrokerSettings, WorkerSettings
from queuedriver.doors.transports.addresses import own_name
from queuedriver.doors.transports.curve import Keys, keys_in
from queuedriver.doors.transports.zmq import Spoke


def run_broker_console(door: BrokerSettings) -> int:
    """A broker; without an input it deals from a queue of its own, which goes with it."""
    with Terminal(door.level) as terminal:
        return BrokerConsole(door, terminal).run()


def run_worker_console(post: WorkerSettings) -> int:
    """A worker that registers when it is told to."""
    keys = keys_in(post.curve)

    def connect(identity: bytes) -> Spoke:
        return Spoke(post.where, identity, post.where.encode(), keys, post.max_message)

    with Terminal(post.level) as terminal:
        serial = int.from_bytes(os.urandom(3))
        return WorkerConsole(terminal, connect, _identity(post.where), post.slots, serial).run()


def run_client_console(endpoint: str, level: int, keys: Keys | None = None) -> int:
    """A client that asks when it is told to."""
    with Terminal(level) as terminal:
        spoke = Spoke(endpoint, _identity(endpoint), endpoint.encode(), keys)
        try:
            serial = int.from_bytes(os.urandom(3))
            return ClientConsole(terminal, spoke, serial).run()
        finally:
            spoke.close()


def _identity(endpoint: str) -> bytes:
    """Of this process; nobody else has ever had it."""
    return f"{endpoint}:{own_name()}".encode()
