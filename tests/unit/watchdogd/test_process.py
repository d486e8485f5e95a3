"""Processes are known by their pidfd, ended with their group, and reaped without waiting."""

import contextlib
import errno
import fcntl
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from queuedriver.claims.liveness import process_ticks
from queuedriver.disk.processes import signal_name
from tests.disks import Silent
from tests.drivers import FORKS, PATIENCE
from tests.waiting import until
from watchdogd.kernel import become_subreaper
from watchdogd.process import Exit, Process, reap_strangers, spawn, spawn_for_helper

PYTHON = sys.executable


@pytest.fixture
def started() -> Iterator[list[Process]]:
    processes: list[Process] = []
    yield processes
    for process in processes:
        with contextlib.suppress(OSError):
            process.send(signal.SIGKILL)
            ended(process)
            process.close()


def ended(process: Process) -> Exit:
    poll = select.poll()
    poll.register(process.pidfd, select.POLLIN)
    assert poll.poll(PATIENCE * 1000)
    found = process.reap()
    assert found is not None
    return found


def until_written(path: Path) -> str:
    return until(lambda: path.exists() and path.read_text(), f"{path} is written") or ""


def run(started: list[Process], code: str, **more: object) -> Process:
    process = spawn([PYTHON, "-c", code], os.environ, **more)  # type: ignore[arg-type]
    started.append(process)
    return process


def test_exit_code_and_signal_are_told_apart(started: list[Process]) -> None:
    assert ended(run(started, "raise SystemExit(78)")) == Exit(code=78)
    assert ended(run(started, "import os; os.kill(os.getpid(), 11)")) == Exit(signal=11)


def test_start_that_fails_for_want_of_descriptors_keeps_none(tmp_path: Path) -> None:
    """Whichever of those that it needs is one too many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    failed = 0
    for free in range(12):
        before = set(os.listdir("/proc/self/fd"))
        # A number that is free below the limit, for each that it may have; the rest is taken.
        top = max(map(int, before)) + 32
        taken = [fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3) for _ in range(top)]
        for fd in taken[:free]:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(taken) + 1, hard))
        try:
            process = spawn_for_helper(["true"], 0, 0, str(tmp_path / "log"))
        except OSError as error:
            failed += error.errno == errno.EMFILE
        else:
            os.close(process[1])
            os.waitpid(process[0], 0)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for fd in taken[free:]:
                os.close(fd)
        assert set(os.listdir("/proc/self/fd")) == before, free
    assert 0 < failed < 12


def test_running_process_is_not_waited_for(started: list[Process]) -> None:
    process = run(started, "import time; time.sleep(3600)")
    assert process.reap() is None
    process.kill()
    assert ended(process) == Exit(signal=signal.SIGKILL)


def test_process_reads_its_order_and_has_no_other_descriptor_of_ours(
    started: list[Process], tmp_path: Path
) -> None:
    ours = os.open(tmp_path, os.O_RDONLY)
    out = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
    code = f"import os, sys; print(sys.stdin.read(), os.path.exists('/proc/self/fd/{ours}'))"
    assert ended(run(started, code, order=b"do it", stdout=out)) == Exit(code=0)
    assert (tmp_path / "out").read_text() == "do it False\n"
    os.close(ours)
    os.close(out)


def test_process_leads_a_group_and_ends_with_it(started: list[Process], tmp_path: Path) -> None:
    code = (
        "import os, time\n"
        "child = os.fork()\n"
        f"if child: open({str(tmp_path / 'child')!r}, 'w').write(str(child))\n"
        "time.sleep(3600)\n"
    )
    process = run(started, code)
    child = os.pidfd_open(int(until_written(tmp_path / "child")))
    assert os.getpgid(process.pid) == process.pid
    process.signal_group(signal.SIGKILL)
    assert ended(process) == Exit(signal=signal.SIGKILL)
    poll = select.poll()
    poll.register(child, select.POLLIN)
    assert poll.poll(PATIENCE * 1000)
    os.close(child)


def test_process_begins_with_no_signal_blocked_or_ignored(
    started: list[Process], tmp_path: Path
) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    handler = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        out = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
        code = (
            "import signal\n"
            "print(signal.pthread_sigmask(0, []), signal.getsignal(1) == signal.SIG_DFL)\n"
        )
        ended(run(started, code, stdout=out))
        os.close(out)
    finally:
        signal.signal(signal.SIGHUP, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert (tmp_path / "out").read_text() == "set() True\n"


def test_signal_to_a_process_that_is_gone_does_nothing(started: list[Process]) -> None:
    process = run(started, "")
    ended(process)
    assert not process.send(signal.SIGTERM)
    process.signal_group(signal.SIGTERM)


def test_adopted_process_tells_that_it_ended_but_not_how(
    started: list[Process], tmp_path: Path
) -> None:
    code = (
        "import os, time\n"
        "if not os.fork():\n"
        # Else it would end with the group of its parent.
        "    os.setsid()\n"
        f"    open({str(tmp_path / 'child')!r}, 'w').write(str(os.getpid()))\n"
        "    time.sleep(3600)\n"
        f"while not os.path.exists({str(tmp_path / 'child')!r}): time.sleep(0.01)\n"
    )
    ended(run(started, code))
    pid = int(until_written(tmp_path / "child"))
    ticks = process_ticks(pid) or 0
    # Another that has its pid by now.
    assert Process.adopt(pid, ticks + 1) is None
    process = Process.adopt(pid, ticks)
    assert process is not None
    started.append(process)
    assert process.reap() is None
    process.kill()
    assert ended(process) == Exit()


def test_nobody_is_adopted_who_is_not_there(started: list[Process]) -> None:
    process = run(started, "")
    ended(process)
    assert Process.adopt(process.pid, 0) is None


def _reap_an_orphan() -> None:
    """In a process of its own: to whom orphans go cannot be undone."""
    become_subreaper()
    reader, writer = os.pipe2(os.O_CLOEXEC)
    parent = spawn(
        [PYTHON, "-c", "import os; os.fork() or os.read(0, 1)"], os.environ, stdin=reader
    )
    os.close(reader)
    assert ended(parent) == Exit(code=0)
    ours = spawn([PYTHON, "-c", "raise SystemExit(5)"], os.environ)
    poll = select.poll()
    poll.register(ours.pidfd, select.POLLIN)
    assert poll.poll(PATIENCE * 1000)
    reap_strangers({ours.pid})
    os.close(writer)
    assert ours.reap() == Exit(code=5)
    ends_at = time.monotonic() + PATIENCE
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            reap_strangers(set())
            assert time.monotonic() < ends_at
            time.sleep(0.01)


def test_orphans_are_reaped_and_our_own_are_left_to_their_pidfd() -> None:
    process = FORKS.Process(target=_reap_an_orphan)
    process.start()
    process.join(PATIENCE)
    assert process.exitcode == 0


def test_helper_is_found_in_the_path_and_complains_into_its_log(
    started: list[Process], tmp_path: Path
) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    log = tmp_path / "helper.log"
    pid, pidfd = spawn_for_helper(["sh", "-c", "echo oh >&2"], null, null, str(log))
    os.close(null)
    process = Process(pid, pidfd)
    started.append(process)
    assert ended(process) == Exit(code=0)
    assert log.read_text() == "oh\n"


def test_program_that_cannot_be_executed_says_so_and_ends(
    started: list[Process], tmp_path: Path
) -> None:
    (tmp_path / "text").write_text("no program")
    for words, why in (
        ("no-such-program", "No such file"),
        (f"{tmp_path}/text", "Permission denied"),
        (f"{tmp_path}/no/such", "No such file"),
    ):
        with open(tmp_path / "log", "w+b") as log:
            process = spawn([words], os.environ, stderr=log.fileno())
            started.append(process)
            assert ended(process) == Exit(code=70)
            log.seek(0)
            assert log.read().decode().startswith(f"{words} cannot be run: {why}")


def test_program_on_a_disk_that_hangs_holds_up_nobody(
    started: list[Process], tmp_path: Path
) -> None:
    ours, theirs = os.pipe2(os.O_CLOEXEC)
    with contextlib.closing(Silent(tmp_path / "silent")) as silent:
        # Returns, although the program will never be found.
        process = spawn([f"{silent.path}/program"], os.environ)
        assert process.reap() is None
        # While it hangs, it holds nothing of ours.
        os.close(theirs)
        poll = select.poll()
        poll.register(ours, select.POLLIN)
        assert poll.poll(PATIENCE * 1000)
        assert os.read(ours, 1) == b""
        process.kill()
    started.append(process)
    os.close(ours)


def test_signals_have_names() -> None:
    assert signal_name(9) == "SIGKILL"
    assert signal_name(200) == "signal 200"
