"""Process groups, tails, and finding what a dead driver left."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from queuedriver.disk.processes import MARKER, kill_marked
from queuedriver.processors.child import TAIL, Child, Tail
from tests.waiting import PATIENCE, until, until_ended

VALUE = f"3-{os.getpid()}"


def started(*command: str, **environ: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, env={**os.environ, **environ}, stdout=subprocess.PIPE)


def test_tail_keeps_the_last_bytes_and_says_how_many_are_missing() -> None:
    tail = Tail()
    assert tail.text() is None
    for number in range(100):
        tail.add(b"%04d\n" % number * 1000)
    text = tail.text() or ""
    assert text.startswith(f"… {500_000 - TAIL} bytes left out …\n")
    assert text.endswith("0099\n")
    assert tail.after("it ended") == "it ended: 0099"
    tail.clear()
    assert tail.text() is None
    assert tail.after("it ended") == "it ended"


def test_last_line_of_a_tail_is_short_and_never_blank() -> None:
    tail = Tail()
    tail.add(b"first\n" + b"y" * 5000 + b"\n \n\n")
    assert tail.after("it ended") == "it ended: " + "y" * 200


def test_marked_processes_die_also_when_they_left_group_and_session() -> None:
    # None ends because another was killed before it.
    script = "setsid sh -c 'sleep 60 & echo $$ $!; exec sleep 60' & exec sleep 60"
    with started("setsid", "sh", "-c", script, **{MARKER: VALUE}) as child:
        assert child.stdout is not None
        pids = [int(pid) for pid in child.stdout.readline().split()]
        assert len({os.getsid(pid) for pid in (*pids, child.pid)}) == 2
        assert kill_marked([VALUE]) == 3
        assert child.wait() == -signal.SIGKILL
    until_ended(*pids)
    assert kill_marked([VALUE]) == 0


def test_processes_with_another_mark_live_on() -> None:
    others = [
        started("sleep", "60", **{MARKER: f"{VALUE}1"}),
        started("sleep", "60", **{MARKER: VALUE[:-1]}),
        started("sleep", "60", **{f"X{MARKER}": VALUE}),
        started("sleep", "60", NOTE=f"{MARKER}={VALUE}"),
    ]
    for other in others:
        cmdline = Path(f"/proc/{other.pid}/cmdline")
        until(lambda path=cmdline: path.read_bytes().startswith(b"sleep"))  # type: ignore[misc]
    assert kill_marked([VALUE]) == 0
    for other in others:
        assert other.poll() is None
        other.kill()
        other.communicate()


def test_whoever_recovers_does_not_kill_itself() -> None:
    script = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        "from queuedriver.disk.processes import kill_marked\n"
        "import subprocess\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        f"print(kill_marked([{VALUE!r}]), child.wait())\n"
    )
    with started(sys.executable, "-c", script, **{MARKER: VALUE}) as child:
        assert child.communicate()[0] == b"1 -9\n"


def spawned(*command: str) -> Child:
    return Child(os.posix_spawnp(command[0], command, os.environ, setpgroup=0))


def test_child_that_nobody_reaped_is_dead_when_its_block_ends() -> None:
    with spawned("sleep", "60") as child:
        pid = child.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_child_whose_status_was_collected_by_others_has_ended_all_the_same() -> None:
    child = spawned("true")
    assert child.ends_within(PATIENCE)
    os.waitpid(child.pid, 0)
    ended = child.reap()
    assert (ended.code, ended.signal, ended.exit_code) == (None, None, None)
    assert "lost" in ended.words


def test_real_time_signal_has_a_name_too() -> None:
    child = spawned("sh", "-c", "kill -40 $$")
    assert child.ends_within(PATIENCE)
    assert child.reap().signal == "signal 40"


def test_zombies_that_nobody_collects_do_not_hold_up_the_end_of_a_group() -> None:
    # The grandchild's new parent is a subreaper that does not reap: as in a container without init.
    script = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        "import ctypes, os, time\n"
        "from queuedriver.processors.child import Child\n"
        "ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)\n"
        "command = ['sh', '-c', 'sleep 60 & exit 0']\n"
        "child = Child(os.posix_spawn('/bin/sh', command, os.environ, setpgroup=0))\n"
        "assert child.ends_within(10)\n"
        "began = time.monotonic()\n"
        "assert child.reap().alone\n"
        "os.killpg(child.pid, 0)\n"
        "print(time.monotonic() - began < 5)\n"
    )
    with started(sys.executable, "-c", script) as child:
        assert child.communicate()[0] == b"True\n"
