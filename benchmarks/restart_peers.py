"""Other people's supervisors behind one small face, with their defaults, and one program to keep.

Each gets a file of its own in the directory and writes nowhere else. They keep any program alive
and know nothing of queues: no look at a backlog, no hung document, no counts.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks import pipelines

SUPERVISORD = """\
[supervisord]
nodaemon=true
directory={directory}
logfile={directory}/supervisord.log
pidfile={directory}/supervisord.pid
childlogdir={directory}

[program:one]
command={command}
process_name=%(program_name)s-%(process_num)02d
numprocs={count}
"""
CIRCUS = """\
[circus]
endpoint=ipc://{directory}/endpoint
pubsub_endpoint=ipc://{directory}/pubsub
stats_endpoint=ipc://{directory}/stats

[watcher:one]
cmd={command}
numprocesses={count}
working_dir={directory}
copy_env=True
"""
HONCHO = "one: {command}\n"


class Peer(NamedTuple):
    name: str
    # The name of its file, what it says, and the command that reads it.
    file: str
    text: str
    command: Callable[[str], Sequence[str]]
    # Seconds between two looks at its children, where it polls.
    period: float
    # What to know of how it restarts.
    note: str


PEERS = {
    "supervisord": Peer(
        "supervisord",
        "supervisord.conf",
        SUPERVISORD,
        lambda file: ["supervisord", "-c", file],
        1.0,
        "it sees the end of a child at once, and starts the next at its next look, a second later",
    ),
    "circus": Peer(
        "circus",
        "circus.ini",
        CIRCUS,
        lambda file: ["circusd", file],
        5.0,
        "it looks for dead children every five seconds (check_delay)",
    ),
    "honcho": Peer(
        "honcho",
        "Procfile",
        HONCHO,
        lambda file: ["honcho", "start", "-f", file],
        1.0,
        "it does not restart: when one child ends, it ends all others and itself",
    ),
}


@contextlib.contextmanager
def kept(
    peer: Peer, directory: Path, command: str, env: dict[str, str], count: int = 1
) -> Iterator[subprocess.Popen[bytes]]:
    """A peer that keeps so many of a command running, until the end of the block."""
    file = directory / peer.file
    file.write_text(peer.text.format(directory=directory, command=command, count=count))
    program, *words = peer.command(str(file))
    with (directory / f"{peer.name}.out").open("wb") as log:
        process = subprocess.Popen(
            [Path(sys.executable).parent / program, *words],
            cwd=directory,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        end_tree(process)


def end_tree(process: subprocess.Popen[bytes]) -> None:
    """A supervisor and all it has started. It goes first, or it would start them again."""
    started = _descendants(process.pid) if process.poll() is None else []
    process.kill()
    process.wait()
    for pid in started:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _descendants(pid: int) -> list[int]:
    try:
        found = pipelines.children(pid)
    except FileNotFoundError:
        return []
    return [*found, *(one for child in found for one in _descendants(child))]
