"""Reads the pipeline's file again for a watchdog that runs."""

import threading
import traceback
from collections import deque
from collections.abc import Mapping
from functools import partial

from queuedriver.errors import QueueError
from watchdogd.helper_messages import Read
from watchdogd.helper_process import LOG
from watchdogd.pipeline.model import Pipeline

# What is loaded anew is imported for so long before a reload, in seconds: only who asked for it
# waits.
_IMPORTS_TAKE = 30.0


class PipelineReader:
    """The readings under way, a thread each: it takes a while to import what stages load that none
    does yet, and drivers that work are not to leave for others that cannot. Nor is the look at the
    queues to wait for a file that is elsewhere, where nobody answers."""

    def __init__(self, host: str, drivers: Mapping[str, int]) -> None:
        self._host = host
        # How many a stage has here, whatever the file says.
        self._drivers = drivers
        # How many answers are still to be taken; threads do not count.
        self._asked = 0
        # Those that are there.
        self._reads: deque[Read] = deque()

    @property
    def is_busy(self) -> bool:
        """Tell whether there will be an answer."""
        return self._asked > 0

    def take(self) -> Read | None:
        """Return the next answer; None while there is none."""
        if not self._reads:
            return None
        self._asked -= 1
        return self._reads.popleft()

    def ask(self, number: int, running: Pipeline) -> None:
        """Read the file of a running pipeline; the number is that of the answer."""
        self._asked += 1
        read = partial(self._read, number, running)
        threading.Thread(target=lambda: self._reads.append(read()), daemon=True).start()

    def _read(self, number: int, running: Pipeline) -> Read:
        file = running.file
        try:
            # Of no use to a watchdog that never reads its file again.
            from watchdogd.check import examine
            from watchdogd.imports import check_imports, other_than_in

            imports = partial(check_imports, chosen=other_than_in(running), limit=_IMPORTS_TAKE)
            found = examine(file, self._host, imports, drivers=self._drivers).check()
            return Read(number=number, pipeline=found.pipeline, notes=found.notes)
        except QueueError as error:
            words = str(error)
        except OSError as error:
            words = f"{file}: {error.strerror}"
        except Exception as error:  # noqa: BLE001 - whoever asked waits for an answer for ever
            traceback.print_exc()
            what = f"{type(error).__name__}: {error}"
            words = f"{file} cannot be read: {what}; where that was is in {LOG}"
        return Read(number=number, error=words)
