"""Small computers of one test, made of the kernel's namespaces: a network, a name and processes of
their own, and the file system of the host, as nodes of a cluster share theirs.

Each is another host to a driver: same boot, other processes. Nothing of one has a name that another
could have, and nothing outlives its test, be that killed: a machine's first process waits for our
end of a pipe, and the kernel ends with it all that the machine has, its network included.
"""

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.waiting import is_alive

COMMANDS = ("unshare", "nsenter", "setpriv", "ip", "hostname")
# Its first process: reaps whom nobody waits for, and ends when its input does.
_INIT = 'hostname "$1" && ip link set lo up && echo && cat >/dev/null'
# What a machine has of its own, as `nsenter` calls it, and where the kernel shows it.
_SPACES = {"net": "net", "uts": "uts", "mount": "mnt", "pid": "pid_for_children"}
# Seconds until what was killed is gone, on a machine that does other things too.
_PATIENCE = 90.0


class NoMachine(Exception):
    """No namespaces can be made here."""


class Machine:
    """One small computer. It is there until `end`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._daemons: list[Daemon] = []
        self._process = subprocess.Popen(
            [
                *("setpriv", "--pdeathsig", "KILL"),
                *("unshare", "--net", "--uts", "--mount", "--pid", "--mount-proc"),
                *("--fork", "--kill-child=KILL", "sh", "-c", _INIT, "sh", name),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            _, said = self._process.communicate()
            raise NoMachine(said.decode().strip())

    @property
    def pid(self) -> int:
        """The process that holds its network, as the host counts."""
        return self._process.pid

    def at(self, *command: str) -> list[str]:
        """Return the command line of whoever is on its network, and goes on when it ends."""
        return self._within(("net", "uts"), command)

    def run(self, *command: str, **more: Any) -> subprocess.CompletedProcess[str]:
        """Run a command on its network."""
        return subprocess.run(
            self.at(*command), capture_output=True, text=True, check=False, **more
        )

    def start(self, *command: str, log: Path) -> "Daemon":
        """Start what goes on until it is killed, or the machine ends."""
        daemon = Daemon(self._within(tuple(_SPACES), command), log)
        self._daemons.append(daemon)
        return daemon

    def ip(self, *words: str) -> None:
        """Change its network."""
        subprocess.run(self.at("ip", *words), check=True, capture_output=True)

    def _within(self, spaces: Sequence[str], command: Sequence[str]) -> list[str]:
        enter = [f"--{space}=/proc/{self.pid}/ns/{_SPACES[space]}" for space in spaces]
        return ["nsenter", *enter, "--", *command]

    def processes(self) -> dict[int, str]:
        """Return what runs there, but for its first process: the host's pids and their commands."""
        ours = os.stat(f"/proc/{self.pid}/ns/pid_for_children").st_ino
        found = {}
        for name in filter(str.isdecimal, os.listdir("/proc")):
            try:
                if os.stat(f"/proc/{name}/ns/pid").st_ino == ours and is_alive(int(name)):
                    words = Path(f"/proc/{name}/cmdline").read_bytes().decode(errors="replace")
                    if _INIT not in words and words != "cat\0":
                        found[int(name)] = words.replace("\0", " ").strip()
            except OSError:
                continue
        return found

    def end(self) -> None:
        """Let all that it has end at once, as a power cut does."""
        for child in _children(self.pid):
            os.kill(child, signal.SIGKILL)
        self._process.communicate()
        for daemon in self._daemons:
            daemon.wait()


class Daemon:
    """A process of a machine that goes on."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        with log.open("ab") as file:
            self._entered = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )

    def stop(self) -> None:
        """Ask it to leave, and wait until it has."""
        for child in _children(self._entered.pid):
            os.kill(child, signal.SIGTERM)
        self.wait()

    def wait(self) -> None:
        """Wait for its end."""
        self._entered.wait(_PATIENCE)


def _children(pid: int) -> list[int]:
    try:
        return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    except (FileNotFoundError, ProcessLookupError):
        return []
