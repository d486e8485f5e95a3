"""Reads the pipeline's file again, in a process of its own: the file may be where the queues are,
on a file system that does not answer, and the loop must not wait.

`python -m watchdogd.rereading FILE HOST PARENT` prints the pipeline, or what is wrong with the
file.
"""

import os
import signal
import sys

import msgspec

from queuedriver.errors import QueueError
from queuedriver.format.records import decode
from watchdogd.kernel import die_with_parent
from watchdogd.pipeline.model import Pipeline
from watchdogd.process import Process, spawn

# Longer than any reading takes where the file can be read.
PATIENCE = 60.0
_CHUNK = 1 << 16


class Read(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of it: a pipeline, with what people should know of it on this host, or an error."""

    pipeline: Pipeline | None = None
    notes: tuple[str, ...] = ()
    error: str = ""


class Rereading:
    """One reading that is under way."""

    def __init__(self, file: str, host: str, now: float) -> None:
        self._file = file
        self._ends_at = now + PATIENCE
        self._data = b""
        self.fd, theirs = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.fd, False)
        argv = (sys.executable, "-P", "-m", "watchdogd.rereading", file, host, str(os.getpid()))
        try:
            self._process: Process = spawn(argv, os.environ, stdout=theirs)
        except OSError:
            os.close(self.fd)
            raise
        finally:
            os.close(theirs)

    def result(self, now: float) -> Read | None:
        """What the file says; None while that is not known."""
        while True:
            try:
                chunk = os.read(self.fd, _CHUNK)
            except BlockingIOError:
                if now < self._ends_at:
                    return None
                return self._end(Read(error=f"{self._file} cannot be read: no answer"))
            if not chunk:
                break
            self._data += chunk
        try:
            return self._end(decode(self._data, Read))
        except msgspec.DecodeError:
            return self._end(Read(error=f"{self._file} cannot be read: its reader crashed"))

    def abandon(self) -> None:
        """What it says is not wanted any more."""
        self._end(Read())

    def _end(self, read: Read) -> Read:
        os.close(self.fd)
        # It has said all it had to say, or waits for a dead file system: in no case do we.
        self._process.kill()
        self._process.close()
        return read


def main(file: str, host: str) -> Read:
    """What the file says, in the process that may wait for it."""
    from watchdogd.check import check_host

    try:
        found = check_host(file, host, imported=lambda _: True)
        return Read(pipeline=found.pipeline, notes=found.notes)
    except QueueError as error:
        return Read(error=str(error))
    except OSError as error:
        return Read(error=f"{file}: {error.strerror}")


if __name__ == "__main__":
    die_with_parent(int(sys.argv[3]), signal.SIGKILL)
    sys.stdout.buffer.write(msgspec.json.encode(main(sys.argv[1], sys.argv[2])))
