"""A host on which something befalls a watchdog, and the account after it: real processes, the
command line, and files on disk; nothing of what a watchdog is made of."""

import contextlib
import ctypes
import functools
import json
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from queuedriver.disk.journal import read_history
from queuedriver.format.names import JOURNAL, PRIVATE
from tests.contract.watchdog_events import EVENTS, Event
from tests.testbed.fuse_mount import Faulty
from tests.waiting import PATIENCE
from tests.watchdogs import Yard
from watchdogd.children import WARDEN

# How each sort of a watchdog's processes is told from the others: by a word of its command line.
SORTS = {
    "helper": ("watchdogd.programs.io_helper",),
    "template": ("watchdogd.programs.template",),
    "warden": (WARDEN,),
}
# How much longer one waits at most for what is known not to come, on a host that is overbooked.
_MOST_OVERBOOKED = 3.0
# What a stage's documents ask for, in further words than those of any yard.
_MORE = '''

def more(document):
    """Do what only the contract asks for; else what any yard's stage does."""
    words = document.read().decode().split()
    if words[0] in ("hang", "deaf", "ignore", "masked"):
        (HERE / f"hanging-{document.docid}").touch()
    match words:
        case ["segv", *_]:
            os.kill(os.getpid(), signal.SIGSEGV)
        case ["stop", *_]:
            # Every thread of it; not even the one that ends a hung driver runs.
            os.kill(os.getpid(), signal.SIGSTOP)
        case ["ignore", *_]:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            while True:
                try:
                    time.sleep(3600)
                except BaseException:
                    pass
        case ["masked", *_]:
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            while True:
                time.sleep(3600)
    return obey(document)
'''
# A server whose outputs are its inputs.
COPIES = """
import json, sys
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    with open(asked["input"]) as given, open(asked["output"], "w") as made:
        made.write(given.read())
    print(json.dumps({"ok": True}), flush=True)
"""


class Fate(NamedTuple):
    """What is to become of a document: published and never charged, unless something is said."""

    content: bytes
    # The cause in its report; empty: it is published.
    cause: str = ""
    # Whether it may be charged all the same: it was at hand when its driver died.
    charged: bool = False


class Scene(Yard):
    """One event on a host, and what is to be seen of it in the time that the table says."""

    def __init__(self, root: Path, event: Event) -> None:
        super().__init__(root)
        with (root / "stages.py").open("a") as file:
            file.write(_MORE)
        self.event = event
        self._befell_at = time.monotonic()
        self._fates: dict[str, Fate] = {}
        self._codes: dict[int, int] = {}
        self._drains: set[int] = set()
        self._is_judged = False
        # Queues that a stage takes from, and those that none does, of all files there were.
        self._inputs: set[str] = set()
        self._outputs: set[str] = set()

    # Before

    def write(self, *stages: str, pipeline: str = "", more: str = "") -> None:
        super().write(*stages, pipeline=pipeline, more=more)
        before = "input"
        for stage in tomllib.loads(self.file.read_text()).get("stage", ()):
            if "worker" in stage:
                # It has no queues.
                continue
            self._inputs.add(stage.get("input", before))
            before = stage.get("output", stage["name"])
            self._outputs.add(before)

    def put(
        self,
        docid: str,
        text: str = "text",
        queue: str = "input",
        *,
        cause: str = "",
        charged: bool = False,
    ) -> None:
        """Submit a document, and say what is to become of it."""
        self.expect(docid, Fate(text.encode(), cause, charged or bool(cause)))
        super().put(docid, text, queue)

    def expect(self, docid: str, fate: Fate | None = None) -> None:
        """Say what is to become of a document; of one that somebody else submits, too."""
        self._fates[docid] = fate or Fate(b"text")

    def run(self, *arguments: str, **given: Any) -> "subprocess.Popen[str]":
        watchdog = super().run(*arguments, **given)
        if "--drain" in arguments:
            self._drains.add(watchdog.pid)
        return watchdog

    def begin(self, *stages: str, pipeline: str = "", more: str = "", **given: Any) -> Any:
        """Start a watchdog over these stages, and wait until each has a driver that is ready."""
        self.write(*stages, pipeline=pipeline, more=more)
        watchdog = self.run(**given)
        self.until(lambda: self.count("ready") >= len(stages), f"{len(stages)} stages are ready")
        return watchdog

    def reread(self, watchdog: "subprocess.Popen[str]", *stages: str) -> None:
        """Change the pipeline's file, and wait until the watchdog has read it."""
        before = self.count("reloaded")
        self.write(*stages)
        watchdog.send_signal(signal.SIGHUP)
        self.until(lambda: self.count("reloaded") > before, "it is read")

    def add(self, code: str) -> None:
        """Add to the module that the stages call."""
        with (self.root / "stages.py").open("a") as file:
            file.write(code)

    def lose_records(self) -> None:
        """Remove what watchdogs have noted on this host, at once."""
        gone = self.root / "gone"
        # What is removed file by file may be added to meanwhile, by whoever has it open.
        (self.root / "state").rename(gone)

        def is_gone() -> bool:
            shutil.rmtree(gone, ignore_errors=True)
            return not gone.exists()

        self.until(is_gone, "what was noted is gone")

    # The event, and what is seen of it

    def befalls(self) -> None:
        """Say that it happens now: what is expected has its time from here."""
        self._befell_at = time.monotonic()

    def within(self, fact: Callable[[], Any], words: str, seconds: float = 0.0) -> Any:
        """Wait for a fact, for as long as the event's row says, and return it.

        The row's time is that of a host whose processors are not overbooked. Where more processes
        want to run than there are processors, each takes so much longer.
        """
        seconds = seconds or self.event.seconds

        most = _MOST_OVERBOOKED if self.event.instead else math.inf

        def ends_at() -> float:
            return self._befell_at + seconds * min(most, overbooked())

        return self._poll(fact, words, ends_at)

    def until(self, fact: Callable[[], Any], words: str) -> Any:
        """Wait for a fact that is not what the row is about, and return it."""
        ends_at = time.monotonic() + PATIENCE
        return self._poll(fact, words, lambda: ends_at)

    def _poll(self, fact: Callable[[], Any], words: str, ends_at: Callable[[], float]) -> Any:
        while not (found := fact()):
            assert time.monotonic() < ends_at(), f"not in time: {words}"
            for watchdog in self._started:
                if watchdog.poll() not in (None, self._code(watchdog)):
                    _, said = watchdog.communicate(timeout=PATIENCE)
                    raise AssertionError(f"a watchdog has ended with {watchdog.returncode}: {said}")
            time.sleep(0.005)
        return found

    def is_working(self, docid: str) -> None:
        """Wait until a document that waits is at hand."""
        begun = self.root / "begun"
        self.until(lambda: begun.exists() and docid in self.begun(), f"{docid} is at hand")

    def is_claimed(self, docid: str) -> None:
        """Wait until a driver has taken a document, be it done by now or not."""
        self.until(lambda: f"{docid}.ready" not in self.ls("input"), f"{docid} is claimed")

    def is_hanging(self, docid: str) -> None:
        """Wait until a document that hangs is at hand."""
        self.until((self.root / f"hanging-{docid}").exists, f"{docid} hangs")

    def go(self) -> None:
        """Let those that wait go on."""
        (self.root / "go").touch()

    def published(self, *docids: str) -> bool:
        return {f"{docid}.ready" for docid in docids} <= {
            name for queue in self._outputs - self._inputs for name in self.ls(queue)
        }

    def ends(self, watchdog: "subprocess.Popen[str]", code: int = 0) -> str:
        """Wait for a watchdog's end with this exit code within the event's time; its words."""
        self._codes[watchdog.pid] = code
        self.within(lambda: watchdog.poll() is not None, "the watchdog has ended")
        _, said = watchdog.communicate(timeout=PATIENCE)
        assert watchdog.returncode == code, said
        return str(said)

    def kill(self, watchdog: "subprocess.Popen[str]") -> None:
        """Kill a watchdog: the event."""
        self._codes[watchdog.pid] = -signal.SIGKILL
        self.befalls()
        watchdog.kill()
        watchdog.wait(PATIENCE)

    def kill_all(self, watchdog: "subprocess.Popen[str]", *first: int) -> None:
        """Kill every process of ours at once, as nearly as can be, these first."""
        self._codes[watchdog.pid] = -signal.SIGKILL
        self.end_all(*first, *self.all_pids())
        watchdog.wait(PATIENCE)
        self.until(lambda: self.all_pids() == [], "nothing runs any more")

    def is_leaving(self, driver: str = "one-1") -> bool:
        """Whether a driver has said below the root that it is to leave."""
        found = self.root.glob(f"queues/*/{PRIVATE}/drivers/*-{driver}.json")
        return any(json.loads(one.read_text()).get("leaving") for one in found)

    def driver(self, name: str = "one-1") -> int:
        """Return the process of a driver, which is called as the driver is; 0: there is none."""
        return next((pid for pid in self.all_pids() if _name_of(pid) == name), 0)

    def a_driver(self, name: str = "one-1") -> int:
        """Wait for a driver; its process."""
        return int(self.until(lambda: self.driver(name), f"{name} is there"))

    def drivers_here(self) -> list[int]:
        """The processes of all drivers."""
        stem = ("one-", "two-", "three-", "four-")
        return [pid for pid in self.all_pids() if _name_of(pid).startswith(stem)]

    def sort(self, sort: str) -> list[int]:
        """The processes of one sort; forks of a template are not meant."""
        found = []
        for pid in self.all_pids():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
                forked = sort == "template" and not _name_of(pid).startswith("load")
                if {*SORTS[sort]} & {*words} and not forked:
                    found.append(pid)
        return found

    def one(self, sort: str) -> int:
        """Wait for the one process of a sort."""
        return int(self.until(lambda: self.sort(sort), f"a {sort}")[0])

    def shown(self) -> str:
        """What `status` says; whether there is somebody who runs it or not."""
        return self.command("status").stdout

    @contextlib.contextmanager
    def asked(self, *words: str) -> "Iterator[subprocess.Popen[str]]":
        """Run a command that perhaps nobody can end, as it waits in the kernel."""
        words = (sys.executable, "-m", "watchdogd", *words)
        process = subprocess.Popen(
            words,
            env=self.environ,
            cwd=self.root,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        self._codes[process.pid] = -signal.SIGKILL
        yield process
        self._codes[process.pid] = process.wait(PATIENCE)

    # The account

    def account(self) -> None:
        """Whatever befell: each document ended once, as it should; nobody innocent was charged,
        nothing of ours runs, and each watchdog ended with the exit code that the page says."""
        if self._is_judged:
            return
        self._is_judged = True
        self.go()
        living = [one for one in self._started if one.poll() is None]
        if living:
            self.until(self._through, f"the end of {sorted(self._fates)}; {self._where()}")
        for watchdog in living:
            # One that drains is to end by itself.
            if watchdog.pid not in self._drains:
                watchdog.terminate()
        for watchdog in self._started:
            _, said = watchdog.communicate(timeout=PATIENCE)
            assert watchdog.returncode == self._code(watchdog), said
        left = f"nothing of ours runs but {self._running()}"
        self.until(lambda: self.all_pids() == [], left)
        if not self._through():
            watchdog = self.run("--drain")
            _, said = watchdog.communicate(timeout=PATIENCE)
            assert watchdog.returncode == self._code(watchdog), said
        self._judge()

    def _code(self, watchdog: "subprocess.Popen[str]") -> int:
        """Return the exit code that a watchdog is to end with."""
        discards = any(fate.cause for fate in self._fates.values())
        return self._codes.get(watchdog.pid, int(watchdog.pid in self._drains and discards))

    def _through(self) -> bool:
        """Whether every document has ended."""
        ended = {docid for queue in self._inputs for docid in self.discarded(queue)}
        return all(docid in ended or self.published(docid) for docid in self._fates)

    def _judge(self) -> None:
        reports = {d: r for queue in self._inputs for d, r in self.discarded(queue).items()}
        found = {docid: report["failure"]["cause"] for docid, report in reports.items()}
        assert found == {d: fate.cause for d, fate in self._fates.items() if fate.cause}
        for docid, fate in self._fates.items():
            if not fate.cause:
                assert self._results(docid) == [(f"{docid}.ready", fate.content)]
            if not fate.charged:
                history = self.history(docid)
                assert not [one for one in history if one.startswith("failed")], history
        names = {f"{d}.ready" for d, fate in self._fates.items() if not fate.cause}
        assert {n for q in self._outputs - self._inputs for n in self.ls(q)} == names
        left = {q: self.ls(q) for q in self._inputs if set(self.ls(q)) - {"PAUSE", "QUIT"}}
        assert left == {}

    def _results(self, docid: str) -> list[tuple[str, bytes]]:
        """Everything that was published of a document at the end of the pipeline."""
        places = [self.root / "queues" / queue for queue in self._outputs - self._inputs]
        paths = [path for place in places for path in place.glob(f"{docid}[.~]*")]
        return [(path.name, path.read_bytes()) for path in paths]

    def history(self, docid: str) -> list[str]:
        """What the journals have of a document."""
        journals = [self.root / "queues" / queue / PRIVATE / JOURNAL for queue in self._inputs]
        return [
            f"{one.event} {one.message or ''}".strip()
            for path in journals
            if path.exists()
            for one in read_history(str(path), docid).events
        ]

    def _where(self) -> dict[str, list[str]]:
        return {queue: self.ls(queue) for queue in self._inputs | self._outputs}

    def _running(self) -> dict[int, str]:
        return {pid: _name_of(pid) for pid in self.all_pids()}


def overbooked() -> float:
    """Return how many processes want to run for each processor, and 1 where there are fewer."""
    return max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def row(act: Callable[..., None]) -> Callable[..., None]:
    """Make a test of what is done for the row of its name, and of the account after it."""
    event = EVENTS[act.__name__.removeprefix("test_")]

    @functools.wraps(act)
    def test(scene: Scene, **given: Any) -> None:
        act(scene, **given)
        scene.account()

    marks = [pytest.mark.xfail(strict=True, reason=event.instead)] if event.instead else []
    for mark in marks:
        test = mark(test)
    return test


class Manager:
    """A service manager, as far as a watchdog talks to one. It listens all the time: what a full
    socket has no room for is lost."""

    def __init__(self, scene: Scene) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        # In no directory: the path of a test's may be too long for a socket.
        name = f"{scene.root.name}-{os.getpid()}-{time.monotonic_ns()}"
        self._socket.bind(f"\0{name}")
        self._said: list[str] = []
        self._listens = threading.Thread(target=self._listen)
        self._listens.start()
        scene.environ["NOTIFY_SOCKET"] = f"@{name}"

    def _listen(self) -> None:
        while said := self._socket.recv(4096):
            self._said += said.decode().splitlines()

    def said(self, word: str) -> bool:
        """Whether it was told so."""
        return word in self._said

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._listens.join()
        self._socket.close()


@contextlib.contextmanager
def stopped(*pids: int) -> Iterator[None]:
    """Let processes stand still, and go on in the end."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def hanging_root(scene: Scene) -> Iterator[Faulty]:
    """A root whose file system can be told to hang."""
    with Faulty(scene.root / "backing", scene.root / "mounted") as root:
        (root.path / "queues").mkdir()
        (scene.root / "queues").symlink_to(root.path / "queues")
        yield root
        # What runs still must not keep the file system from ending.
        scene.__exit__()


# Clocks that are ahead of the real ones by as many seconds as a file says, for all who load this:
# the one on the wall, or all.
_CLOCKS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
static volatile long *ahead;
static int all;
__attribute__((constructor)) static void begin(void) {
    int fd = open(getenv("CLOCKS_AHEAD"), O_RDONLY | O_CLOEXEC);
    if (fd < 0) abort();
    ahead = mmap(0, sizeof *ahead, PROT_READ, MAP_SHARED, fd, 0);
    all = getenv("CLOCKS_ALL") != 0;
}
int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(clock, now);
    int ours = clock == CLOCK_REALTIME || (all && clock != CLOCK_PROCESS_CPUTIME_ID);
    if (!code && ahead && ours) now->tv_sec += *ahead;
    return code;
}
"""


class Clock:
    """The wall clock of a scene's processes, which can be stepped; other clocks go on."""

    def __init__(self, scene: Scene, **more: str) -> None:
        self._ahead = scene.root / "ahead"
        self._ahead.write_bytes(bytes(ctypes.sizeof(ctypes.c_long)))
        source, library = scene.root / "clock.c", scene.root / "clock.so"
        source.write_text(_CLOCKS)
        words = ["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
        try:
            subprocess.run(words, check=True, capture_output=True)
        except (FileNotFoundError, subprocess.CalledProcessError):
            pytest.skip("a clock that can be stepped takes a C compiler (apt install gcc)")
        self._environ = {"LD_PRELOAD": str(library), "CLOCKS_AHEAD": str(self._ahead), **more}
        scene.environ |= self._environ

    def step(self, seconds: int) -> None:
        """Set the clock to so many seconds after the real one."""
        with open(self._ahead, "r+b") as file:
            file.write(ctypes.c_long(seconds))
        environ = {**os.environ, **self._environ}
        told = subprocess.run(["date", "+%s"], env=environ, capture_output=True, check=True)
        assert abs(int(told.stdout) - seconds - time.time()) < 60


@contextlib.contextmanager
def later(scene: Scene, seconds: int) -> Iterator[None]:
    """Let what is started meanwhile live so many seconds later, by all clocks."""
    environ = dict(scene.environ)
    Clock(scene, CLOCKS_ALL="1").step(seconds)
    try:
        yield
    finally:
        scene.environ = environ


def queuedriver(scene: Scene, *words: str, given: Sequence[str] = ()) -> str:
    """Run a command of the queue to its end; what it printed."""
    ran = subprocess.run(
        [sys.executable, "-m", "queuedriver", *words],
        env=scene.environ,
        cwd=scene.root,
        input="\n".join(given),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout
