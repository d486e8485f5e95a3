"""A host of the chaos: `python -m tests.crash.chaos_host FILE NAME` keeps a watchdog running.

It is what a service manager is on a real one: it starts the watchdog again whenever that ends, and
reaps what nobody else does. Where this machine allows it, each host has a pid namespace of its own:
hosts then see nothing of each other's processes and know each other by their beats alone, and a
host can lose its power: when the first process of a namespace ends, so does every other at once.

On its stdin, `leave` asks it to stop its watchdog, and the end of the file to end.
"""

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.crash.chaos_stages import HOST
from watchdogd.driver_ids import STATE_VARIABLE
from watchdogd.linux import become_subreaper

ROOT = Path(__file__).parents[2]
MODULE = "tests.crash.chaos_host"
# Seconds between two looks: a service manager is no faster.
_TICK = 0.05


def namespaces() -> list[str]:
    """The command that gives a host its namespaces; empty where this machine does not allow it."""
    if shutil.which("unshare") is None:
        return []
    user = ["--map-root-user"] if os.geteuid() else []
    prefix = ["unshare", *user, "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
    tried = subprocess.run([*prefix, "true"], capture_output=True, check=False)
    return prefix if tried.returncode == 0 else []


class Host:
    """A host as the chaos sees it, from outside."""

    def __init__(
        self, name: str, place: Path, environ: Mapping[str, str], prefix: list[str]
    ) -> None:
        self.name = name
        self._left = place / f"{name}.left"
        state, runtime = place / "state" / name, place / "run" / name
        runtime.mkdir()
        own = {HOST: name, STATE_VARIABLE: str(state), "XDG_RUNTIME_DIR": str(runtime)}
        with open(place / f"{name}.log", "ab") as log:
            self._process = subprocess.Popen(
                [*prefix, sys.executable, "-m", MODULE, str(place / "pipeline.toml"), name],
                env={**environ, **own},
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )

    def leave(self) -> None:
        """Stop the watchdog; whatever it leaves running stays to be seen."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"leave\n")
        self._process.stdin.flush()

    def cut(self) -> None:
        """It loses its power. In a namespace, everything on it ends at once."""
        self._process.kill()
        self._process.communicate()

    @property
    def left(self) -> bool:
        return self._left.exists() or self._process.poll() is not None

    def close(self) -> None:
        """End it, if it has not lost its power already; in a namespace all it runs ends, too."""
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate()


def main(file: str, name: str) -> None:
    become_subreaper()
    stdin = select.poll()
    stdin.register(0, select.POLLIN)
    watchdog = 0
    leaving = False
    while True:
        while (ended := _reap()) is not None:
            if ended[0] == watchdog:
                print(f"watchdog {watchdog} ended: {ended[1]}", flush=True)
                watchdog = 0
        if not watchdog and not leaving:
            watchdog = subprocess.Popen(
                [sys.executable, "-m", "watchdogd", "run", file, "--host", name, "--quiet"],
                stdin=subprocess.DEVNULL,
            ).pid
        if leaving and not watchdog:
            Path(file).with_name(f"{name}.left").touch()
        if stdin.poll(_TICK * 1000):
            if not os.read(0, 100):
                break
            leaving = True
            if watchdog:
                os.kill(watchdog, signal.SIGTERM)
    if watchdog:
        os.kill(watchdog, signal.SIGKILL)


def _reap() -> tuple[int, int] | None:
    """A child that has ended, and its exit code; None: none has."""
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, os.waitstatus_to_exitcode(status)) if pid else None


if __name__ == "__main__":
    main(*sys.argv[1:])
