"""What the tests of preload run in processes of their own: a template, or a whole watchdog.

python -P preloaded.py STAGE                    a template whose drivers do what their orders say
python -P preloaded.py DIRECTORY COUNT PARENT   a watchdog with so many of them, until it is killed
"""

import contextlib
import faulthandler
import gc
import json
import os
import random
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from queuedriver.processors.call import CallProcessor
from watchdogd import kernel, preload
from watchdogd.children import Children
from watchdogd.preload import Load
from watchdogd.template import Event, Ready, Spawned, Template

COMMAND = (sys.executable, "-P", __file__)
# Seconds: far more than anything here takes, on a machine that does other things too.
PATIENCE = 60.0


def live(data: bytes, processor: CallProcessor) -> int:
    """A driver that writes down what it finds, and ends as it is told."""
    order = json.loads(data)
    processor.start("marker")
    # As a driver without a time-out does.
    faulthandler.cancel_dump_traceback_later()
    if "facts" in order:
        facts = {**_facts(), "said": processor.function(order.get("ask"))}
        aside = Path(f"{order['facts']}.new")
        aside.write_text(json.dumps(facts))
        aside.rename(order["facts"])
    match order["end"]:
        case int(code):
            return code
        case "raise":
            raise ValueError("a bug")
        case "signal":
            os.kill(os.getpid(), signal.SIGSEGV)
    while True:
        signal.pause()


def _facts() -> dict[str, Any]:
    return {
        "parent": os.getppid(),
        "group": os.getpgrp(),
        "random": random.random(),
        "threads": threading.active_count(),
        "stdin": os.readlink("/proc/self/fd/0"),
        "fds": sorted(_open_files()),
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "handlers": [
            str(signal.getsignal(number))
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE)
        ],
        "wakeup": signal.set_wakeup_fd(-1),
        "frozen": gc.get_freeze_count(),
        "path": sys.path[0],
        "directory": os.getcwd(),
        "one_thread": os.environ.get("OMP_NUM_THREADS"),
    }


def _open_files() -> list[str]:
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{fd}").partition(":")[0])
    return found


class Watch:
    """A watchdog's loop, as far as a template needs one."""

    def __init__(self, template: Template, children: Children) -> None:
        self.template = template
        self.children = children
        self.events: list[Event] = []

    def until(self, fact: Callable[[], object], words: str) -> None:
        """Go on until there is this fact."""
        end = time.monotonic() + PATIENCE
        while not fact():
            assert time.monotonic() < end, f"never: {words}; so far {self.events}"
            poll = select.poll()
            for fd in self.template.fds:
                poll.register(fd, select.POLLIN)
            # Facts that are not the template's, in files, are looked for now and then.
            poll.poll(10)
            self.look()

    def look(self) -> None:
        """One turn."""
        self.children.reap(time.monotonic())
        self.events += self.template.receive()

    def ready(self) -> Ready:
        self.until(lambda: self.of(Ready), "the template has loaded")
        return next(event for event in self.events if isinstance(event, Ready))

    def template_gone(self) -> None:
        self.until(lambda: not self.template.processes, "all of the template has ended")

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def order(self, name: str, parent: int | None = None, **words: Any) -> None:
        """Ask for a driver; what comes of it is among the events."""
        given = {"parent": os.getpid() if parent is None else parent, "end": "pause", **words}
        answer = self.template.request(name, json.dumps(given).encode())
        if answer is not None:
            self.events.append(answer)

    def drivers(self, count: int) -> list[Spawned]:
        """So many drivers, in the order in which they came."""
        self.until(lambda: len(self.of(Spawned)) >= count, f"{count} drivers")
        return self.of(Spawned)


def load_of(directory: Path, call: str = "model:process", function: str = "") -> Load:
    return Load(
        stage="parse",
        directory=str(directory),
        call=call,
        function=function,
        watchdog=os.getpid(),
        env={},
    )


def watch(directory: Path, count: int, parent: int) -> None:
    """A watchdog: says which processes it has, and goes on until it is killed."""
    kernel.become_subreaper()
    children = Children()
    template = Template(load_of(directory), children, command=COMMAND)
    template.start(sys.stderr.fileno())
    watch = Watch(template, children)
    for number in range(count):
        facts = str(directory / f"facts-{number}")
        # With parent 0 it is told to outlive us.
        watch.order(str(number), os.getpid() if parent else 0, facts=facts)
    drivers = [one.process.pid for one in watch.drivers(count)]
    watch.until(lambda: len(template.processes) == 2, "the next spare")
    watch.until(lambda: len(list(directory.glob("facts-?"))) == count, "all of them live")
    print(json.dumps([drivers, [one.pid for one in template.processes]]), flush=True)
    while True:
        watch.until(lambda: False, "the end")


if __name__ == "__main__":
    if len(sys.argv) == 4:
        watch(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    preload.main(live)
