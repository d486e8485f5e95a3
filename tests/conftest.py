"""What the tests share: queues in a directory of the test's own, and whoever hands over there."""

import contextlib
import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]
from xdist.workermanage import WorkerController  # type: ignore[import-untyped]

from queuedriver.claims.document import Target
from queuedriver.claims.handoff import Claim
from queuedriver.claims.input_queue import InputQueue
from queuedriver.disk.filesystem import Directory
from queuedriver.driving.limits import Limits
from queuedriver.format import names
from queuedriver.format.settings import DEFAULT_PUBLISH, Publication, Settings
from queuedriver.operating.queue import Queue
from tests.drivers import Site
from tests.openings import open_queue

# The same examples in each run, and no clock: a busy machine must not fail a test.
settings.register_profile(
    "promises",
    deadline=None,
    derandomize=True,
    max_examples=150,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("quick", settings.get_profile("promises"), max_examples=20)
settings.load_profile("promises")

# Where every test is in the quick part, unless it is marked `slow`.
_QUICK = ("tests/unit/", "tests/simulation/test_simulated_kernel.py")

# Processes of tests for each processor, as most tests wait most of the time; and at most.
_FOR_EACH, _AT_MOST = 2, 16
# Files whose tests stay in one process, as they share what takes long to start: guests, a browser.
_TOGETHER = ("tests/network/test_nfs.py", "tests/integration/test_page_in_a_browser.py")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="the inner loop: at most a minute")


class Dealer(LoadScopeScheduling):  # type: ignore[misc]
    """Deals tests to processes, one after the other; those of one file together where it is one of
    `_TOGETHER`."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if file in _TOGETHER else nodeid

    def schedule(self) -> None:
        """Deal two tests to each process: it begins with one when it knows the next, and who takes
        the place of a process that died would otherwise wait for it for ever."""
        super().schedule()
        for node in self.nodes:
            self._reschedule(node)

    def _reschedule(self, node: WorkerController) -> None:
        """Deal to a process that knows its tests; who has just begun is dealt to when it does."""
        if node in self.registered_collections:
            super()._reschedule(node)

    def remove_node(self, node: WorkerController) -> str | None:
        """Take back what a process had not begun; return the test in which it died, if it did."""
        units: dict[str, dict[str, bool]] = self.assigned_work[node]
        died_in = next((one for unit in units.values() for one in unit if not unit[one]), None)
        if died_in is not None:
            # Nobody else is to die of it.
            units[self._split_scope(died_in)][died_in] = True
            for scope in [scope for scope, unit in units.items() if all(unit.values())]:
                del units[scope]
        super().remove_node(node)
        return died_in


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Dealer:
    return Dealer(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Return how many processes `-n auto` means; None with --pdb, which needs the terminal."""
    if config.getoption("usepdb"):
        return None
    return min(_FOR_EACH * len(os.sched_getaffinity(0)), _AT_MOST)


def pytest_configure(config: pytest.Config) -> None:
    """Hear what drivers are to hear, also where the tests are run by nohup or in the background of
    a script: a driver honours what is ignored, and so would each that is started from here."""
    if config.getoption("--quick"):
        settings.load_profile("quick")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        # The tests themselves go on, as was wanted; what they start begins as usual.
        signal.signal(signal.SIGHUP, lambda number, frame: None)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes long, or is one more of its kind."""
    if not config.getoption("--quick"):
        return
    left_out = [item for item in items if not _is_quick(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if _is_quick(item)]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave out of each look for garbage what was there before the first test."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """Collect what a test has left: who left a file or a process open fails of it, and not
    whichever test runs when the garbage is collected by chance."""
    yield
    if isinstance(item, pytest.Function):
        item.funcargs.clear()
    left: list[object] = []
    told, sys.unraisablehook = sys.unraisablehook, left.append
    try:
        gc.collect()
    finally:
        sys.unraisablehook = told
        # What is left is not gone through once more after each test.
        gc.freeze()
    assert not left, f"left open, for the garbage to find: {left}"


def _is_quick(item: pytest.Item) -> bool:
    if item.get_closest_marker("quick"):
        return True
    return item.nodeid.startswith(_QUICK) and not item.get_closest_marker("slow")


# An instant of the tests' clock, in microseconds since the epoch.
NOON = 1_700_000_000_000_000


class Bench:
    """A workbench: input and output queues, and claims of them."""

    def __init__(self, root: Path, at_end: contextlib.ExitStack) -> None:
        self.root = root
        self._at_end = at_end
        self._mints: dict[tuple[str, str], names.Mint] = {}

    def queue(self, name: str = "in") -> Queue:
        queue = Queue.open(self.root / name, create=True)
        self._at_end.callback(queue.close)
        return queue

    def directory(self, name: str, noreplace: bool = True) -> Directory:
        """A directory; without `noreplace`, as one where the kernel cannot rename so."""
        path = self.root / name
        path.mkdir(parents=True, exist_ok=True)
        directory = Directory(str(path), os.open(path, os.O_RDONLY), noreplace)
        self._at_end.callback(directory.close)
        return directory

    def target(self, name: str = "out", publish: str = DEFAULT_PUBLISH) -> Target:
        return Target(name, self.directory(name), Publication(publish))

    def open(
        self,
        *outputs: str,
        queue: str = "in",
        archive: str | None = None,
        settings: Settings | None = None,
        targets: tuple[Target, ...] | None = None,
        directory: Directory | None = None,
        driver: str = "d",
        salt: str = "5a17",
    ) -> InputQueue:
        """An input queue as its driver has it open."""
        settings = settings or Settings()
        opened = self.queue(queue)
        if targets is None:
            targets = tuple(self.target(name, settings.publish) for name in outputs or ("out",))
        aside = None if archive is None else self.directory(archive)
        one = open_queue(
            opened, targets, settings, archive=aside, directory=directory, driver=driver, salt=salt
        )
        self._at_end.callback(one.close)
        self._at_end.callback(one.journal.close)
        return one

    def token(self, driver: str = "d", salt: str = "5a17") -> str:
        """An N that was never used before."""
        mint = self._mints.setdefault((driver, salt), names.Mint(driver, salt))
        return mint.next(NOON)

    def put(self, path: str, data: bytes = b"content") -> Path:
        """A file at a path below the root, as another program or a crash might leave it."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        return file

    def claim(
        self, queue: InputQueue, docid: str = "doc", attempt: int = 0, token: str | None = None
    ) -> Claim:
        """The claim to a document that waits; it is submitted if it does not."""
        name = names.waiting_name(docid, attempt)
        if not queue.directory.present(name):
            queue.directory.write_new(name, f"content of {docid}".encode())
        if token is None:
            (claim,) = queue.claim([name])
            return claim
        item = names.Item(docid, names.WORKING, attempt, token)
        working = names.working_name(docid, attempt, token)
        queue.directory.rename(name, working)
        return queue.claim_of(item, working)

    def ls(self, path: str = "in") -> list[str]:
        """What a person sees there: files, sorted, without what is hidden and `discarded/`."""
        listed = sorted(os.listdir(self.root / path))
        return [name for name in listed if name[0] != "." and name != names.DISCARDED]

    def read(self, path: str) -> bytes:
        return (self.root / path).read_bytes()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Queues, and drivers in processes of their own, which end with the test."""
    with Site(tmp_path) as site:
        yield site


@pytest.fixture
def limits() -> Iterator[Limits]:
    limits = Limits()
    yield limits
    limits.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with contextlib.ExitStack() as at_end:
        yield Bench(tmp_path, at_end)
