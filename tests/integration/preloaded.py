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
from watchdogd import linux
from watchdogd.children import Child, Children
from watchdogd.driver_orders import Load
from watchdogd.programs import template as program
from watchdogd.template import Template

COMMAND = (sys.executable, "-P", __file__)
# Seconds: far more than anything here takes, on a machine that does other things too.
PATIENCE = 120.0


def live(data: bytes, processor: CallProcessor) -> int:
    """A driver that writes down what it finds, and ends as it is told."""
    order = json.loads(data)
    if order.get("outlives"):
        linux.outlive_parent()
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
        # The drivers that were asked for.
        self.drivers: dict[str, Child] = {}

    def until(self, fact: Callable[[], object], words: str) -> None:
        """Go on until there is this fact."""
        end = time.monotonic() + PATIENCE
        while not fact():
            assert time.monotonic() < end, f"never: {words}; so far {self.drivers}"
            poll = select.poll()
            for fd in self.template.fds:
                poll.register(fd, select.POLLIN)
            # Facts that are not the template's, in files, are looked for now and then.
            poll.poll(10)
            self.look()

    def look(self, startup_timeout: float = 3600.0) -> None:
        """One turn."""
        now = time.monotonic()
        self.children.reap(now)
        self.template.receive(now)
        self.template.tend(startup_timeout, now)
        self.children.tend(now)

    def ready(self) -> Template:
        self.until(lambda: self.template.ready_at, "the template has loaded")
        return self.template

    def leave(self) -> None:
        self.template.leave(time.monotonic())

    def gone(self) -> None:
        self.until(lambda: self.template.child.exit, "the template has ended")

    def all_gone(self) -> None:
        self.until(lambda: all(one.exit for one in self.drivers.values()), "no driver is left")

    def order(self, name: str, **words: Any) -> Child:
        """Ask for a driver, as soon as it is free, or has ended."""
        template = self.template
        self.until(lambda: template.is_free or template.has_ended, f"the turn of {name}")
        order = json.dumps({"end": "pause", **words}).encode()
        self.drivers[name] = self.template.fork(order, time.monotonic())
        return self.drivers[name]

    def driver(self, name: str) -> Child:
        """The driver that was asked for, once it has come."""
        child = self.drivers[name]
        self.until(lambda: child.pid, f"{name} has come")
        return child


def load_of(directory: Path, call: str = "model:process", function: str = "") -> Load:
    return Load(
        stage="parse",
        directory=str(directory),
        call=call,
        function=function,
        watchdog=os.getpid(),
        env={},
    )


def watch(directory: Path, count: int, outlives: int) -> None:
    """A watchdog: says which processes it has, and goes on until it is killed."""
    linux.become_subreaper()
    children = Children()
    template = Template(
        load_of(directory), children, time.monotonic(), sys.stderr.fileno(), COMMAND
    )
    watch = Watch(template, children)
    for number in range(count):
        facts = str(directory / f"facts-{number}")
        watch.order(str(number), outlives=outlives, facts=facts)
    drivers = [watch.driver(name).pid for name in watch.drivers]
    watch.until(lambda: len(list(directory.glob("facts-?"))) == count, "all of them live")
    print(json.dumps([drivers, [template.child.pid]]), flush=True)
    while True:
        watch.until(lambda: False, "the end")


if __name__ == "__main__":
    if len(sys.argv) == 4:
        watch(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    program.main(live)
