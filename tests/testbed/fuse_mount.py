"""A faulty file system for one test, and what the test says to it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Self

import msgspec
import pytest

from tests.testbed.fuse_ground import Done, Options, Told
from tests.testbed.fuse_rules import Rule

_NEEDS = (
    "a faulty file system takes root, /dev/fuse (modprobe fuse) and unshare(1) "
    "(apt install util-linux)"
)


def missing() -> str:
    """Why there can be none here; empty where there can."""
    able = not os.geteuid() and os.path.exists("/dev/fuse") and shutil.which("unshare")
    return "" if able else _NEEDS


class Faulty:
    """A directory as it is seen through a file system that can be told to fail.

    In a mount namespace of its own, which ends with its process: nothing stays mounted.
    """

    def __init__(self, backing: Path, where: Path, options: Options | None = None) -> None:
        if words := missing():
            pytest.skip(words)
        backing.mkdir(exist_ok=True)
        where.mkdir()
        said = msgspec.json.encode(options or Options()).decode()
        words_of = [sys.executable, "-m", "tests.testbed.fuse_server", str(backing), str(where)]
        self._server = subprocess.Popen(
            ["unshare", "--mount", *words_of, said],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        assert self._server.stdout is not None
        if not self._server.stdout.readline():
            self.close()
            pytest.skip(f"nothing can be mounted here: {_NEEDS}")
        self.backing = backing
        # Seen from outside of the namespace.
        self.path = Path(f"/proc/{self._server.pid}/root{where}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Gone, for whoever uses it as well."""
        with self._server:
            self._server.kill()

    def fail(self, *rules: Rule, seed: int = 0) -> Done:
        """From now on these go wrong, and nothing else; what the rules before them did."""
        return self._tell(Told(rules, seed))

    def heal(self) -> Done:
        return self.fail()

    @property
    def done(self) -> Done:
        """What the rules have done so far."""
        return self._tell(Told())

    def met(self, rules: Iterable[int] = (0,)) -> bool:
        """Whether each of these rules has been met."""
        hits = self.done.hits
        return all(hits[index] for index in rules)

    def _tell(self, told: Told) -> Done:
        stdin, stdout = self._server.stdin, self._server.stdout
        assert stdin is not None
        assert stdout is not None
        print(msgspec.json.encode(told).decode(), file=stdin, flush=True)
        return msgspec.json.decode(stdout.readline(), type=Done)
