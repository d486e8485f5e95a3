"""Drivers on a faulty file system, and a look at their queues that no fault can blur."""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from queuedriver.format import names
from tests.drivers import Ended, Running, Site
from tests.testbed.fuse_ground import Options
from tests.testbed.fuse_mount import Faulty
from tests.testbed.fuse_processors import obey
from tests.testbed.fuse_rules import Rule
from tests.waiting import until

TEXT = b"Some Text"


class Scene:
    """A directory with queues, and one or several mounts of it: each is a host."""

    def __init__(
        self, root: Path, options: Sequence[Options], at_end: contextlib.ExitStack
    ) -> None:
        self.root = root
        self.see = Site(root / "backing", beside=root)
        self.see.root.mkdir()
        self.hosts = []
        self._sites = []
        for number, one in enumerate(options, 1):
            mount = at_end.enter_context(Faulty(self.see.root, root / f"host-{number}", one))
            self.hosts.append(mount)
            self._sites.append(at_end.enter_context(Site(mount.path, beside=root)))
        # What is held must be let go before the drivers can be ended.
        at_end.callback(self.heal)

    @property
    def host(self) -> Faulty:
        return self.hosts[0]

    def heal(self) -> None:
        for host in self.hosts:
            host.heal()

    def start(self, does: Callable[..., object] = obey, host: int = 0, **options: Any) -> Running:
        return self._sites[host].start(does, **options)

    def suffers(self, *rules: Rule, **options: Any) -> Ended:
        """A driver drains its queue while these rules are in force. Each must have been met."""
        self.host.fail(*rules)
        ended = self.start(drain=True, **options).ended()
        hits = self.host.heal().hits
        assert all(hits), f"the faults were met {hits} times; the driver: {ended}"
        return ended

    def until_met(self, rule: int = 0) -> None:
        until(lambda: self.host.met([rule]), "the fault is met")

    def until_through(self, queue: str = "in") -> None:
        """Until nothing is left to be done in a queue."""
        until(lambda: not self.left(queue), f"{queue} is empty")

    # Looks

    def left(self, queue: str = "in") -> list[str]:
        """What is left of claims, outputs and their plans."""
        where = self.see.root / queue
        items = [name for name in os.listdir(where) if names.parse(name) is not None]
        plans = where / names.PRIVATE / "claims"
        return sorted(items) + sorted(one.name for one in plans.glob("[!.]*"))

    def charges(self, queue: str = "in") -> dict[str, int]:
        """How often each discarded document was charged: as its last attempt says, because of the
        earlier ones a report may lack what was not listed yet."""
        return {
            docid: self.see.report(docid, queue).attempts[-1].attempt + 1
            for docid in self.see.discarded(queue)
        }


@contextlib.contextmanager
def scene(root: Path, *options: Options) -> Iterator[Scene]:
    with contextlib.ExitStack() as at_end:
        yield Scene(root, options or [Options()], at_end)
