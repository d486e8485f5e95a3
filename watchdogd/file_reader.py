"""Reads the pipeline's file again for a watchdog that runs."""

import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from queuedriver.errors import QueueError
from watchdogd.messages import Read
from watchdogd.pipeline.model import Pipeline

if TYPE_CHECKING:
    from watchdogd.check import Imports

# What is loaded anew is imported for so long before a reload, in seconds: only who asked for it
# waits.
_IMPORTS_TAKE = 30.0


class FileReader:
    """The readings under way. The file may be where the queues are: who reads it may hang.

    What its stages load that none does yet is imported before it is answered, by a thread, for it
    takes a while: drivers that work are not to leave for others that cannot.
    """

    def __init__(self, host: str) -> None:
        self._host = host
        # How many readings wait for imports, and what came of those that need not wait any more.
        self._importing = 0
        self._reads: deque[Read] = deque()

    @property
    def is_busy(self) -> bool:
        """Tell whether there will be an answer."""
        return self._importing > 0 or bool(self._reads)

    def take(self) -> Read | None:
        """Return the next answer; None while there is none."""
        return self._reads.popleft() if self._reads else None

    def ask(self, number: int, running: Pipeline) -> None:
        """Read the file of a running pipeline; the number is that of the answer."""
        # Of no use to a watchdog that never reads its file again.
        from watchdogd.imports import check_imports, other_than_in

        read = self._read(number, running.file)
        anew = other_than_in(running)
        if read.pipeline is None or not any(map(anew, read.pipeline.stages)):
            self._reads.append(read)
            return
        self._importing += 1
        imports = partial(check_imports, chosen=anew, limit=_IMPORTS_TAKE)
        importing = threading.Thread(
            target=self._import, args=(number, running.file, imports), daemon=True
        )
        importing.start()

    def _import(self, number: int, file: str, imports: "Imports") -> None:
        self._reads.append(self._read(number, file, imports))
        self._importing -= 1

    def _read(self, number: int, file: str, imports: "Imports | None" = None) -> Read:
        from watchdogd.check import check_host

        try:
            found = check_host(file, self._host, imports)
            return Read(number=number, pipeline=found.pipeline, notes=found.notes)
        except QueueError as error:
            return Read(number=number, error=str(error))
        except OSError as error:
            return Read(number=number, error=f"{file}: {error.strerror}")
