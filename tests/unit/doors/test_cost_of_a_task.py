"""A task of fuq costs so many calls of the system, and of Python, in a broker and in a worker.

Counts, not timings: they are the same on a machine that is busy with others. Loops and sockets are
left out: these are the same for each message, whatever it says.
"""

import gc
import select
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from queuedriver.doors.fuq.runner import Site, start
from queuedriver.doors.fuq.wire import JobDescription, Task
from tests.waiting import PATIENCE
from tests.yard import Yard

pytestmark = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="counted on Python 3.11")

FIRST, TASKS = 10, 40
CLIENTS = [b"c%d" % number for number in range(4)]
# A few more than were counted.
PYTHON_IN_A_BROKER, PYTHON_IN_A_WORKER = 116, 44
# What does not ask the system.
_NO_CALLS = ("fspath", "waitstatus_to_exitcode", "_path_normpath")


def counted(do: Callable[[int], object]) -> dict[str, float]:
    """What is called for each of some tasks: the system's calls by name, and all of Python's."""
    calls: Counter[str] = Counter()

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and "/tests/" not in frame.f_code.co_filename:
            calls["Python"] += 1
        elif event == "c_call" and argument.__module__ == "posix":
            calls[argument.__name__] += argument.__name__ not in _NO_CALLS

    for number in range(1, FIRST):
        do(number)
    before = sys.getprofile()
    # Whoever is told of that is Python, too.
    gc.disable()
    sys.setprofile(profile)
    try:
        for number in range(FIRST, FIRST + TASKS):
            do(number)
    finally:
        sys.setprofile(before)
        gc.enable()
    return {name: number / TASKS for name, number in calls.items() if number}


def test_task_costs_a_broker_five_files_opened_and_no_look_besides(tmp_path: Path) -> None:
    yard = Yard(tmp_path)
    for client in CLIENTS:
        yard.client(client, 1)
    yard.submit("job", tasks=2 * (FIRST + TASKS))
    yard.take_up()
    # Who has which task.
    dealt = yard.step()

    def one(number: int) -> None:
        client, docid = dealt.pop(0)
        yard.end(client, "job", int(docid.rpartition(".")[2]), free=1)
        # The next is dealt before what has ended is put away.
        picked = yard.pick()
        assert picked is not None
        head, worker = picked
        work = yard.scheduler.take(head, yard.now)
        assert work is not None
        yard.session.deal(worker, work, yard.now)
        dealt.append((worker.name, work.docid))
        yard.settle()

    calls = counted(one)
    yard.close()
    assert calls.pop("Python") <= PYTHON_IN_A_BROKER
    # Opened are the file of the task that is dealt and that of the result, the lines of outcomes,
    # and the job's claim by its name, before a task is dealt and before one is committed. By
    # renameat2, which is not counted, the result is published.
    assert calls == {"open": 5, "write": 2, "close": 5, "rename": 1, "unlink": 1}


def test_task_costs_a_worker_one_process_and_no_look_besides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where a worker of fuq is, is its own affair; where tests are is put back.
    monkeypatch.chdir(tmp_path)
    site = Site({"sim": "/bin/true"}, str(tmp_path), str(tmp_path))
    job = JobDescription(7, "sim", TASKS, "", "", "sim --fast")

    def one(number: int) -> None:
        running = start(Task(number, job), site)
        ends = select.poll()
        ends.register(running.child.pidfd)
        assert ends.poll(PATIENCE * 1000)
        assert running.collect().success

    calls = counted(one)
    assert calls.pop("Python") <= PYTHON_IN_A_WORKER
    # Opened are both roots, and the log.
    files = {"stat": 1, "open": 3, "fchdir": 1, "chdir": 1, "fstat": 1, "pread": 1, "close": 4}
    assert calls == files | {"posix_spawn": 1, "pidfd_open": 1, "killpg": 1, "wait4": 1}
