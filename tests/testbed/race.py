"""Drivers of several NFS clients race for the documents of one queue.

The server watches its own disk: a name that is moved into the output directory twice was published
twice, be it the same document under the same name.
"""

import os
import time
from collections import Counter
from typing import Any

from queuedriver.format import names
from tests.testbed import work
from tests.testbed.lab import PATIENCE, Errand
from tests.testbed.nfs import EXPORT, QUEUES, Nfs, Witness
from tests.waiting import until

# Of each client.
DRIVERS = 4


class Race:
    """One queue full of documents, and drivers on all clients."""

    def __init__(
        self,
        net: Nfs,
        name: str,
        documents: int,
        *,
        durable: bool = False,
        drivers: int = DRIVERS,
    ) -> None:
        self._net = net
        self._durable = durable
        self._each = drivers
        self.docids = [f"{name}-{number:05}" for number in range(documents)]
        self._directories = [f"{name}/in", f"{name}/out"]
        self.drivers: list[str] = []
        self._running: list[Errand] = []
        self.reports: list[dict[str, Any]] = []
        self.seconds = 0.0
        self._began = 0.0

    def start(self, where: str = QUEUES) -> None:
        """Submit all, on the server's disk; let the drivers begin when all of them have come."""
        server, (first, last) = self._net.server, self._directories
        server.call(work.put, f"{EXPORT}/{first}", self.docids)
        server.call(work.touch, f"{EXPORT}/{first}/{names.PAUSE}")
        self._witness = Witness(self._net, f"{EXPORT}/{last}")
        options = {"drain": True, "durable": self._durable}
        for client in self._net.clients:
            for number in range(self._each):
                driver = f"{client.name}-{number}"
                self.drivers.append(driver)
                work.states_file(self._net.lab.directory, driver).unlink(missing_ok=True)
                paths = (f"{where}/{directory}" for directory in self._directories)
                self._running.append(client.start(work.drive, *paths, driver, options))
        self.wait_for_state("ready")
        server.call(os.unlink, f"{EXPORT}/{first}/{names.PAUSE}")
        self._began = time.monotonic()

    def wait_for_share(self, share: float) -> None:
        """Until so much more of the documents are published."""
        published = self._witness.published
        wanted = min(len(published()) + share * len(self.docids), len(self.docids))
        words = f"{wanted:.0f} documents are published"
        until(lambda: len(published()) >= wanted, words, 3 * PATIENCE)

    def cut_power(self) -> None:
        """Of the server, amid what it does: its last replies do not get through."""
        self._net.server.unplug()
        time.sleep(0.1)
        self._net.server.cut_power()
        self.is_on()

    def is_on(self) -> None:
        """Raise if all is published: then what was to happen amid the race came too late."""
        if len(self._witness.published()) >= len(self.docids):
            raise AssertionError("the race was over too soon; let it have more documents")

    def restore_power(self) -> None:
        self._net.restore_power()
        self._witness.watch()

    def wait_for_state(self, state: str, share: float = 1.0) -> None:
        """Until so many of the drivers have been in it."""
        files = [work.states_file(self._net.lab.directory, driver) for driver in self.drivers]

        def have() -> int:
            return sum(file.exists() and state in file.read_text().split() for file in files)

        words = f"{share:.0%} of the drivers are {state}"
        until(lambda: have() >= share * len(files), words, 3 * PATIENCE)

    def finish(self) -> None:
        """Wait until the drivers have left, because nothing is left to do."""
        self.reports = [driver.result(3 * PATIENCE) for driver in self._running]
        self.seconds = time.monotonic() - self._began

    def run(self) -> None:
        self.start()
        self.finish()

    def all_came_out_once(self) -> None:
        """Raise unless each document is published once, as a whole, and nothing else is there."""
        server = self._net.server
        first, last = (f"{EXPORT}/{directory}" for directory in self._directories)
        assert [one["word"] for one in self.reports] == ["drained"] * len(self.reports)
        assert server.call(work.states, first) == {}
        wanted = [f"{docid}.ready" for docid in self.docids]
        assert list(server.call(work.states, last)) == wanted
        twice = {
            name: often for name, often in Counter(self._witness.published()).items() if often > 1
        }
        assert not twice
        assert server.call(work.check_all_whole, last) == len(wanted)
        for queue in (first, last):
            found = server.call(work.command, "check", queue)
            assert found["exit_code"] == 0, found["said"]
        assert sum(one["failed"] + one["discarded"] for one in self.reports) == 0
