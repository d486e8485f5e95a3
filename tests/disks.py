"""Small file systems that belong to one test, to be filled and remounted."""

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest


class Disk:
    """A small file system in a mount namespace of its own, which ends with its process."""

    def __init__(self, where: Path, options: str) -> None:
        where.mkdir()
        if shutil.which("unshare") is None:
            pytest.skip("without unshare(1) nothing can be mounted for this test alone")
        prefix = ["unshare", "--mount", *(["--map-root-user"] if os.geteuid() else [])]
        self._shell = subprocess.Popen(
            [*prefix, "sh"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        if self.tell(f"mount -t tmpfs -o {options} none '{where}'"):
            self.close()
            pytest.skip("nothing can be mounted here, not even in a namespace of its own")
        # Seen from outside of the namespace.
        self.path = Path(f"/proc/{self._shell.pid}/root{where}")

    def tell(self, command: str) -> int:
        """Run a command in the namespace; its exit code."""
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            print(f"{command} >&2; echo $?", file=self._shell.stdin, flush=True)
        return int(self._shell.stdout.readline() or 1)

    def fill(self) -> None:
        """Leave no byte and no name."""
        with contextlib.suppress(OSError):
            for number in range(10_000):
                (self.path / f"filler-{number}").write_bytes(bytes(1 << 16))
        with contextlib.suppress(OSError), open(self.path / "filler-0", "ab", 0) as file:
            while True:
                file.write(bytes(512))

    def empty(self) -> None:
        for filler in self.path.glob("filler-*"):
            filler.unlink()

    def close(self) -> None:
        self._shell.communicate()
