"""Every process is started, told, reaped and ended by one registry, which waits for none."""

import contextlib
import errno
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from queuedriver.disk.processes import process_ticks, signal_name
from tests.children import end_of, few_descriptors
from tests.disks import Silent
from tests.drivers import FORKS, PATIENCE
from tests.holdings import open_files, without_collections
from tests.waiting import until, until_ended
from watchdogd import children as module
from watchdogd.children import LIFE, Child, Children, Exit, Rung
from watchdogd.linux import become_subreaper

PYTHON = sys.executable
SLEEP = "import time; time.sleep(3600)"


@pytest.fixture
def children() -> Iterator[Children]:
    children = Children()
    yield children
    children.close()
    assert children.running == []


def test_warden_that_ended_with_an_error_is_told_of_and_another_is_there(
    children: Children, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As in an installation that is gone.
    monkeypatch.setattr(module, "WARDEN", str(tmp_path / "none.py"))
    again = children.guard(str(tmp_path), 0.0, adopts=False)
    until(lambda: children.reap(1.0) or not children.running)
    with pytest.raises(OSError, match=r"exit code 2; see .*/warden\.log"):
        children.guard(str(tmp_path), again, adopts=False)
    assert len(children.running) == 1


def until_written(path: Path) -> str:
    return until(lambda: path.exists() and path.read_text(), f"{path} is written") or ""


def run(children: Children, code: str, order: bytes = b"", stdout: int | None = None) -> Child:
    return children.start([PYTHON, "-c", code], os.environ, order=order, output=stdout)


def test_exit_code_and_signal_are_told_apart(children: Children) -> None:
    assert end_of(children, run(children, "raise SystemExit(78)")) == Exit(code=78)
    assert end_of(children, run(children, "import os; os.kill(os.getpid(), 11)")) == Exit(signal=11)


@pytest.mark.parametrize("what", ["program", "warden"])
@without_collections()
def test_start_that_fails_for_want_of_descriptors_keeps_none(
    children: Children, tmp_path: Path, what: str
) -> None:
    """Whichever of those that it needs is one too many."""
    failed = 0
    for free in range(8):
        before = open_files()
        with few_descriptors(free):
            try:
                if what == "program":
                    children.start(["true"], os.environ, order=b"x")
                else:
                    # Each one later than the one before may be replaced.
                    children.guard(str(tmp_path), now=free * 60.0, adopts=False)
            except OSError as error:
                failed += error.errno == errno.EMFILE
        assert open_files() == before, free
        for child in children.running:
            child.send(signal.SIGKILL)
            end_of(children, child)
    assert 0 < failed < 8


def test_running_process_is_not_waited_for(children: Children) -> None:
    process = run(children, "import time; time.sleep(3600)")
    assert not children.reap(0.0)
    assert process.exit is None
    process.send(signal.SIGKILL)
    assert end_of(children, process) == Exit(signal=signal.SIGKILL)


def test_process_reads_its_order_and_has_no_other_descriptor_of_ours(
    children: Children, tmp_path: Path
) -> None:
    ours = os.open(tmp_path, os.O_RDONLY)
    out = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
    code = f"import os, sys; print(sys.stdin.read(), os.path.exists('/proc/self/fd/{ours}'))"
    assert end_of(children, run(children, code, order=b"do it", stdout=out)) == Exit(code=0)
    assert (tmp_path / "out").read_text() == "do it False\n"
    os.close(ours)
    os.close(out)


def test_process_leads_a_group_and_ends_with_it(children: Children, tmp_path: Path) -> None:
    code = (
        "import os, time\n"
        "child = os.fork()\n"
        f"if child: open({str(tmp_path / 'child')!r}, 'w').write(str(child))\n"
        "time.sleep(3600)\n"
    )
    process = run(children, code)
    child = os.pidfd_open(int(until_written(tmp_path / "child")))
    assert os.getpgid(process.pid) == process.pid
    process.signal_group(signal.SIGKILL)
    assert end_of(children, process) == Exit(signal=signal.SIGKILL)
    poll = select.poll()
    poll.register(child, select.POLLIN)
    assert poll.poll(PATIENCE * 1000)
    os.close(child)


def test_what_a_child_leaves_of_its_group_ends_with_it(children: Children, tmp_path: Path) -> None:
    script = f"sleep 1000 & echo $! > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/left"
    child = children.start(["sh", "-c", script], os.environ)
    left = int(until_written(tmp_path / "left"))
    assert end_of(children, child) == Exit(code=0)
    until_ended(left)


def test_process_begins_with_no_signal_blocked_or_ignored(
    children: Children, tmp_path: Path
) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    handler = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        out = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
        code = (
            "import signal\n"
            "print(signal.pthread_sigmask(0, []), signal.getsignal(1) == signal.SIG_DFL)\n"
        )
        end_of(children, run(children, code, stdout=out))
        os.close(out)
    finally:
        signal.signal(signal.SIGHUP, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert (tmp_path / "out").read_text() == "set() True\n"


def test_signal_to_a_process_that_is_gone_does_nothing(children: Children) -> None:
    process = run(children, "")
    end_of(children, process)
    assert not process.send(signal.SIGTERM)
    process.signal_group(signal.SIGTERM)


def test_adopted_process_tells_that_it_ended_but_not_how(
    children: Children, tmp_path: Path
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
    end_of(children, run(children, code))
    pid = int(until_written(tmp_path / "child"))
    ticks = process_ticks(pid) or 0
    # Another that has its pid by now.
    assert children.adopt(pid, ticks + 1) is None
    process = children.adopt(pid, ticks)
    assert process is not None
    poll = select.poll()
    (fd,) = children.fds
    poll.register(fd, select.POLLIN)
    assert not poll.poll(0)
    assert process.exit is None
    process.send(signal.SIGKILL)
    assert poll.poll(PATIENCE * 1000)
    assert end_of(children, process) == Exit()
    assert children.fds == []


def test_nobody_is_adopted_who_is_not_there(children: Children) -> None:
    process = run(children, "")
    end_of(children, process)
    assert children.adopt(process.pid, 0) is None
    assert children.fds == []


# What is left running


def _end_strangers() -> None:
    """In a process of its own: to whom orphans go cannot be undone."""
    become_subreaper()
    children = Children()
    reader, writer = os.pipe2(os.O_CLOEXEC)
    code = "import os; os.fork() or (os.setsid(), os.read(0, 1))"
    parent = children.start([PYTHON, "-c", code], os.environ, stdin=reader)
    os.close(reader)
    assert end_of(children, parent) == Exit(code=0)
    ours = children.start([PYTHON, "-c", "raise SystemExit(5)"], os.environ)
    os.close(writer)
    assert end_of(children, ours) == Exit(code=5)

    def childless() -> bool:
        children.reap(0.0)
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return True
        return False

    until(childless, "nobody is left to be reaped")


def test_orphans_are_reaped_beside_those_of_our_own() -> None:
    process = FORKS.Process(target=_end_strangers)
    process.start()
    process.join(PATIENCE)
    assert process.exitcode == 0


# It leads a session of its own, and so does what it forks; both say who they are.
AWAY = """
import os, sys, time
def away(name):
    os.setsid()
    with open(sys.argv[1] + name + ".new", "w") as file:
        file.write(str(os.getpid()))
    os.rename(sys.argv[1] + name + ".new", sys.argv[1] + name)
if not os.fork():
    away("one")
    if not os.fork():
        away("two")
    time.sleep(3600)
while not os.path.exists(sys.argv[1] + "two"): time.sleep(0.01)
"""


def send_away(children: Children, place: Path) -> tuple[Child, list[int]]:
    """A child that has ended, or is about to, and what it has left in sessions of their own."""
    child = children.start([PYTHON, "-c", AWAY, f"{place}/"], os.environ)
    return child, [int(until_written(place / name)) for name in ("one", "two")]


def test_what_went_away_ends_with_the_life_that_it_belongs_to(
    children: Children, tmp_path: Path
) -> None:
    child, pids = send_away(children, tmp_path)
    now = 100.0
    until(lambda: children.reap(now), "its end")
    assert child.exit == Exit(code=0)
    # At once, and then again for those that it was about to fork.
    assert now < children.tend(now) < now + 1.0
    until_ended(*pids)
    for _ in range(10):
        now = children.tend(now)
    assert now == float("inf")


def test_what_a_fork_may_have_sent_away_goes_on_while_forks_live_or_are_to_come(
    children: Children, tmp_path: Path
) -> None:
    template, pids = send_away(children, tmp_path)
    coming = children.expect(template)
    end_of(children, template)
    assert children._kill_orphans() == 0
    coming.exit = Exit()
    children.reap(0.0)
    assert children._kill_orphans() == 2
    until_ended(*pids)


def test_what_another_watchdog_has_started_is_left_alone(children: Children) -> None:
    with subprocess.Popen(["sleep", "3600"], env={LIFE: "1.2/3"}) as other:
        assert children._kill_orphans() == 0
        other.kill()


def test_end_leaves_nothing_running(tmp_path: Path) -> None:
    children = Children()
    _, pids = send_away(children, tmp_path)
    deaf = run(children, "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(3600)")
    children.close()
    until_ended(*pids, deaf.pid)
    assert children.running == []


def _lose_a_child() -> None:
    """In a process of its own, which has no other children."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    children = Children()
    child = children.start(["true"], os.environ)
    # How, nobody is told.
    assert end_of(children, child) == Exit()
    assert not child.send(signal.SIGKILL)
    children.close()


def test_end_of_a_child_is_seen_where_the_kernel_reaps_them() -> None:
    process = FORKS.Process(target=_lose_a_child)
    process.start()
    process.join(PATIENCE)
    assert process.exitcode == 0


# Forks that were asked for


def fork(children: Children, code: int | None) -> int:
    """A child of ours that the registry has not started; it ends with a code, or waits."""
    words = SLEEP if code is None else f"raise SystemExit({code})"
    started = run(children, words)
    children._all.remove(started)
    return started.pid


def test_fork_is_a_child_before_it_has_come_and_is_asked_once_it_is_there(
    children: Children,
) -> None:
    template = run(children, SLEEP)
    child = children.expect(template)
    assert (child.pid, child.exit) == (0, None)
    # It takes the place of the one that it was born with.
    assert child.life != template.life
    assert len(child.life) == len(template.life)
    child.ask("terminate", "restart", 100.0)
    assert children.tend(101.0) == 105.0
    children.came(child, fork(children, None))
    assert end_of(children, child) == Exit(signal=signal.SIGTERM)


def test_fork_that_ends_before_its_message_is_read_has_its_exit_status(
    children: Children,
) -> None:
    child = children.expect(run(children, SLEEP))
    pid = fork(children, 65)
    until_ended(pid)
    # Nobody knows it yet.
    assert not children.reap(100.0)
    children.came(child, pid)
    assert child.exit == Exit(code=65)
    assert not children.reap(101.0)


def test_fork_that_has_ended_and_is_not_reaped_is_reaped_like_any_other(
    children: Children,
) -> None:
    child = children.expect(run(children, SLEEP))
    pid = fork(children, 3)
    until_ended(pid)
    children.came(child, pid)
    assert child.exit is None
    assert end_of(children, child) == Exit(code=3)


def test_fork_that_will_not_come_is_forgotten(children: Children) -> None:
    child = children.expect(run(children, SLEEP))
    child.ask("leave", "stop", 100.0, takes=5.0)
    child.exit = Exit(code=75)
    children.reap(101.0)
    assert children.tend(200.0) == float("inf")


# The ladder

LISTENS = """
import os, signal, sys, time
for name in sys.argv[2:]:
    number = getattr(signal, name)
    signal.signal(number, lambda number, _: os.write(1, b"%d " % number))
open(sys.argv[1], "w").close()
while True: time.sleep(3600)
"""


@pytest.mark.parametrize(
    ("first", "heard", "takes"),
    [
        ("run", ["SIGTERM"], [7.0, 5.0, 10.0]),
        ("leave", ["SIGTERM", "SIGUSR2", "SIGTERM"], [7.0, 2.0, 5.0, 10.0]),
        ("hurry", ["SIGTERM"], [7.0, 10.0]),
        ("stacks", ["SIGUSR2", "SIGTERM"], [7.0, 5.0, 10.0]),
        ("terminate", ["SIGTERM"], [7.0, 10.0]),
        ("kill", [], [7.0]),
    ],
)
def test_child_that_does_not_end_is_asked_ever_more_firmly(
    children: Children, tmp_path: Path, first: Rung, heard: list[str], takes: list[float]
) -> None:
    reader, writer = os.pipe2(os.O_CLOEXEC)
    argv = [PYTHON, "-c", LISTENS, str(tmp_path / "up"), "SIGTERM", "SIGUSR2"]
    child = children.start(argv, os.environ, output=writer)
    os.close(writer)
    until((tmp_path / "up").exists)
    now = 100.0
    child.ask(first, "because", now, takes=takes[0])
    said: list[str] = []
    for seconds in takes:
        # One signal at a time is heard: two of a kind are one to the kernel.
        if len(said) < len(heard) and (child.rung != "run"):
            said.append(signal.Signals(int(os.read(reader, 3))).name)
        assert children.tend(now) == pytest.approx(now + seconds)
        now += seconds
        rung = child.rung
        children.tend(now)
        assert child.rung != rung
    assert said == heard
    assert (child.rung, child.why) == ("stuck", "because")
    # Of one that waits in the kernel there is nothing more to be asked.
    assert children.tend(now) == float("inf")
    assert end_of(children, child) == Exit(signal=signal.SIGKILL)
    os.close(reader)


def test_nothing_more_is_asked_of_a_child_whose_reason_has_gone(children: Children) -> None:
    child = run(children, SLEEP)
    child.ask("leave", "late", 100.0, takes=1.0)
    child.ask("run", "", 100.5)
    assert children.tend(200.0) == float("inf")


def test_program_of_another_user_harms_nobody(
    children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = run(children, SLEEP)

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    with monkeypatch.context() as patched:
        patched.setattr(os, "kill", refuse)
        patched.setattr(os, "killpg", refuse)
        assert not child.send(signal.SIGTERM)
        child.ask("kill", "late", 100.0)
    assert child.exit is None


# Programs


def test_program_that_cannot_be_executed_says_so_and_ends(
    children: Children, tmp_path: Path
) -> None:
    (tmp_path / "text").write_text("no program")
    for words, why in (
        ("no-such-program", "No such file"),
        (f"{tmp_path}/text", "Permission denied"),
        (f"{tmp_path}/no/such", "No such file"),
    ):
        with open(tmp_path / "log", "w+b") as log:
            process = children.start([words], os.environ, output=log.fileno())
            assert end_of(children, process) == Exit(code=70)
            log.seek(0)
            assert log.read().decode().startswith(f"{words} cannot be run: {why}")


def test_program_on_a_disk_that_hangs_holds_up_nobody(children: Children, tmp_path: Path) -> None:
    ours, theirs = os.pipe2(os.O_CLOEXEC)
    with contextlib.closing(Silent(tmp_path / "silent")) as silent:
        # Returns, although the program will never be found.
        process = children.start([f"{silent.path}/program"], os.environ)
        assert not children.reap(0.0)
        # While it hangs, it holds nothing of ours.
        os.close(theirs)
        poll = select.poll()
        poll.register(ours, select.POLLIN)
        assert poll.poll(PATIENCE * 1000)
        assert os.read(ours, 1) == b""
        process.send(signal.SIGKILL)
    os.close(ours)


def test_signals_have_names() -> None:
    assert signal_name(9) == "SIGKILL"
    assert signal_name(200) == "signal 200"
