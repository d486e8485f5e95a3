"""The first process of a guest: makes it a small machine, then runs what the tests ask for.

Its root is the host's, read-only; what it writes goes to memory, or to the directory of the test.
Started by the kernel, as `python guest.py {json}`, with what `lab.py` says of this guest.

A request is one connection: a line of JSON names a function and its arguments, the answer is a line
with the number of the process that does it, and one with what came of it. Each is done in a fork,
so what a function breaks is its own, and everything is imported already.
"""

import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Mapping
from typing import Any, TextIO

PORT = 9000
# The directory of the test, on the host and in every guest.
LAB = "/run/lab"
# Imported once, and not by each fork.
_WARM = ("queuedriver", "queuedriver.check", "queuedriver.processors.call", "tests.testbed.work")


def run(*command: str, may_fail: bool = False) -> str:
    """A command of the system; what it says."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and not may_fail:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return done.stdout


def mount(kind: str, where: str, what: str = "none", options: str = "defaults") -> None:
    run("mount", "-t", kind, "-o", options, what, where)


def _boot(given: Mapping[str, Any]) -> None:
    os.environ.update(PATH="/usr/sbin:/usr/bin:/sbin:/bin", HOME="/run", TMPDIR="/run")
    mount("proc", "/proc")
    mount("sysfs", "/sys")
    # Nothing else is covered: the tests and their Python may be anywhere on the host.
    for where in ("/run", "/var/lib/nfs"):
        mount("tmpfs", where)
    _find_modules()
    os.mkdir(LAB)
    mount("hostfs", LAB, options=given["lab"])
    socket.sethostname(given["name"])
    run("ip", "link", "set", "lo", "up")
    for number, address in enumerate(given["addresses"]):
        run("ip", "address", "add", f"{address}/24", "dev", f"vec{number}")
        run("ip", "link", "set", f"vec{number}", "up")


def _find_modules() -> None:
    """The host may have no /lib/modules, nor a place to make one: tell the kernel of another."""
    release = os.uname().release
    os.makedirs("/run/modules/lib/modules")
    os.symlink(f"/usr/lib/uml/modules/{release}", f"/run/modules/lib/modules/{release}")
    with open("/run/modprobe", "x", opener=lambda path, flags: os.open(path, flags, 0o755)) as file:
        file.write('#!/bin/sh\nexec modprobe -d /run/modules "$@"\n')
    with open("/proc/sys/kernel/modprobe", "w") as file:
        file.write("/run/modprobe")


def _serve(address: str) -> None:
    # Nobody waits for them, nor for what they leave behind.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.create_server((address, PORT), backlog=64) as listening:
        while True:
            connection, _ = listening.accept()
            if os.fork():
                connection.close()
                continue
            listening.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            with connection, connection.makefile("rw") as stream:
                _answer(stream)
            os._exit(0)


def _answer(stream: TextIO) -> None:
    line = stream.readline()
    if not line:
        # Somebody only wanted to know whether we are there.
        return
    request = json.loads(line)
    print(os.getpid(), file=stream, flush=True)
    module, _, name = request["call"].partition(":")
    try:
        result = getattr(importlib.import_module(module), name)(*request["args"], **request["kw"])
        answer = {"result": result}
    except BaseException:  # noqa: BLE001 - the host is told of all there is
        answer = {"error": traceback.format_exc()}
    print(json.dumps(answer), file=stream, flush=True)


def main() -> None:
    given = json.loads(sys.argv[1])
    # The kernel is silent about an init that fails; the console of the guest is a file.
    sys.path[0] = given["root"]
    try:
        _boot(given)
        for module in _WARM:
            importlib.import_module(module)
        _serve(given["addresses"][0])
    except BaseException:
        traceback.print_exc()
        raise


if __name__ == "__main__":
    main()
