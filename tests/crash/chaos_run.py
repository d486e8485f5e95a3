"""One run of the chaos: hosts are switched on, processes struck, and then everything drains."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from queuedriver.format import names
from queuedriver.operating.queue import Queue
from tests.crash.chaos_count import Complaint, Found, judge, look
from tests.crash.chaos_documents import QUEUES, submissions
from tests.crash.chaos_faults import Faults, Victim, end, victims
from tests.crash.chaos_host import ROOT, Host, namespaces
from tests.crash.chaos_layout import Orders, lay_out
from tests.crash.chaos_stages import RECORDS

MARK = "CHAOS_PLACE"
# Of the documents, submitted before anything runs.
_BULK = 0.3
# When, as part of the time of faults, a host loses its power, and the other one stands still.
_POWER_CUT, _FREEZE = 0.3, 0.6
# A machine that is so much too slow for the faults that are wanted gets no more of them.
_LONGER = 40
# Seconds from the one time that an operator takes all for dead who are elsewhere to the next: less
# than from one beat to the next, and than whoever is put to sleep sleeps.
_IMPATIENCE = 3.0
# Seconds without any progress until we no longer believe that it will drain: longer than the
# longest delay of a start.
_PATIENCE = 240.0
# Who was told to end, and whoever sees to that, are gone by then; in seconds.
_GOING_TAKES = 180.0
_TICK = 0.01


class Outcome(NamedTuple):
    """What came of a run."""

    orders: Orders
    found: Found
    complaints: list[Complaint]
    faults: Faults
    # Whether hosts had pid namespaces of their own, and how many lost their power.
    apart: bool
    power_cuts: int
    # Seconds: with faults, and from then until all had drained.
    faulty: float
    draining: float


class Chaos:
    """One run, in an empty directory of its own."""

    def __init__(self, orders: Orders, place: Path) -> None:
        self.orders = orders
        self.place = place
        self.root = place / "queues"
        self.submissions = submissions(orders.documents, orders.seed)
        self._apart = [] if orders.together else namespaces()
        # Every process of the run has this in its environment.
        self._mark = os.fsencode(f"{MARK}={place}")
        self._environ = {
            **os.environ,
            MARK: str(place),
            RECORDS: str(place / "records"),
            "PYTHONPATH": str(ROOT),
        }
        self._hosts: list[Host] = []
        self._operators: list[subprocess.Popen[bytes]] = []
        # When they recover the next time, monotonic.
        self._operate_at = 0.0
        self._power_cuts = 0

    def run(self) -> Outcome:
        """From the first document to the last process."""
        lay_out(self.place, self.orders)
        with contextlib.ExitStack() as at_end:
            at_end.callback(self._clear)
            began_at = time.monotonic()
            seed, every = self.orders.seed, self.orders.every
            faults = Faults(self._mark, seed, every, self._noted, began_at)
            self._suffer(faults, began_at)
            calm_at = time.monotonic()
            stuck = [*self._drain()]
            drained_at = time.monotonic()
            lingering = [] if stuck else [*self._leave()]
        found = look(self.root, self.place / "records")
        complaints = [*stuck, *lingering, *judge(self.submissions, found, self.orders.retries)]
        faulty, draining = calm_at - began_at, drained_at - calm_at
        return Outcome(self.orders, found, complaints, faults, bool(self._apart),
                       self._power_cuts, faulty, draining)  # fmt: skip

    # The faults

    def _suffer(self, faults: Faults, began_at: float) -> None:
        """Submit and strike, until there were enough faults; then submit what is left."""
        orders, count = self.orders, len(self.submissions)
        bulk = int(count * _BULK)
        to_come = [
            (_POWER_CUT, self._cut_power),
            (_FREEZE, lambda: faults.freeze("rose", time.monotonic())),
        ]
        with Queue.open(self.root / "input") as queue:
            submitted = self._submit(queue, 0, bulk)
            self._switch_on("rose")
            self._switch_on("lily")
            while (now := time.monotonic()) < began_at + orders.seconds * _LONGER:
                passed = (now - began_at) / orders.seconds
                if orders.kills:
                    passed = min(passed, faults.kills / orders.kills)
                if passed >= 1.0:
                    break
                submitted = self._submit(queue, submitted, bulk + int(passed * (count - bulk)))
                while to_come and passed >= to_come[0][0]:
                    to_come.pop(0)[1]()
                faults.turn(now)
                self._operate(now)
                time.sleep(_TICK)
            faults.calm()
            self._submit(queue, submitted, count)
            queue.set_control(names.DONE, wanted=True)

    def _submit(self, queue: Queue, begin: int, end: int) -> int:
        """From the one to before the other."""
        some = ((one.docid, one.content) for one in self.submissions[begin:end])
        return begin + sum(1 for _ in queue.submit_many(some, durable=False))

    def _switch_on(self, name: str) -> None:
        self._hosts.append(Host(name, self.place, self._environ, self._apart))

    def _cut_power(self) -> None:
        """A host is gone for good; another one takes its place."""
        host = self._hosts.pop()
        host.cut()
        for one in self._processes():
            # Without namespaces its processes do not end with it.
            if one.host == host.name:
                end(one.pid, self._mark)
        self._power_cuts += 1
        self._switch_on(f"lily{self._power_cuts}")

    def _operate(self, now: float) -> None:
        """Somebody on a third host, who sees nobody's processes, says again and again that they are
        all gone: of those that are it is true, and nobody has to wait for a lease."""
        if now < self._operate_at or any(one.poll() is None for one in self._operators):
            return
        self._operate_at = now + _IMPATIENCE
        command = [sys.executable, "-m", "queuedriver", "recover", "--lease", "0"]
        with open(self.place / "operator.log", "ab") as log:
            self._operators = [
                subprocess.Popen(
                    [*command, str(self.root / queue)],
                    env=self._environ,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
                for queue in QUEUES.values()
                if (self.root / queue).exists()
            ]

    # After the faults

    def _drain(self) -> Iterator[Complaint]:
        """Wait until all is through; a complaint if that does not happen by itself."""
        moved_at, before = time.monotonic(), None
        while not ((self.root / QUEUES["three"] / names.DONE).exists() and not self._items()):
            now = time.monotonic()
            self._operate(now)
            if (seen := self._items()) != before:
                moved_at, before = now, seen
            elif now > moved_at + _PATIENCE:
                shown = ", ".join(sorted(seen)[:5])
                yield Complaint("stuck", "", f"for {_PATIENCE:g} s nothing has moved: {shown}")
                return
            time.sleep(0.1)

    def _items(self) -> set[str]:
        """What is in the queues still."""
        return {
            f"{queue}/{name}"
            for queue in QUEUES.values()
            for name in os.listdir(self.root / queue)
            if names.parse(name) is not None
        }

    def _leave(self) -> Iterator[Complaint]:
        """Stop the watchdogs; a complaint for each process that is there after them."""
        for host in self._hosts:
            host.leave()
        for operator in self._operators:
            operator.wait()
        until = time.monotonic() + _GOING_TAKES
        while time.monotonic() < until:
            lingering = [one for one in self._processes() if one.role != "host"]
            if all(host.left for host in self._hosts) and not lingering:
                return
            time.sleep(0.1)
        for host in self._hosts:
            if not host.left:
                yield Complaint("process", "", f"the watchdog of {host.name} does not leave")
        for one in lingering:
            yield Complaint("process", "", f"{one} lives on: {one.words}")

    def _noted(self) -> int:
        """How much the processors have noted."""
        with os.scandir(self.place / "records") as found:
            return sum(one.stat().st_size for one in found)

    def _processes(self) -> list[Victim]:
        return [*victims(self._mark)]

    def _clear(self) -> None:
        """Nothing of this run goes on, however it ended."""
        for host in self._hosts:
            host.close()
        for operator in self._operators:
            operator.kill()
            operator.wait()
        for one in self._processes():
            end(one.pid, self._mark)
