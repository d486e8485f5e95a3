"""Signals only record, but for one exception; and no document takes for ever."""

import faulthandler
import math
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Any

import pytest

from queuedriver.driving.driver import Driver
from queuedriver.driving.limits import Limits, framed
from queuedriver.errors import Interrupted
from queuedriver.options import Options

# What asks a driver to leave.
ASKING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# Longer than any of these tests is meant to take, also on a machine that is busy.
_AGES = 60.0


def readable(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


@contextmanager
def installed(**arguments: Any) -> Iterator[Limits]:
    limits = Limits(Options(**arguments))
    limits.install()
    try:
        yield limits
    finally:
        limits.restore()
        limits.close()


def spin() -> None:
    """Code of a user's that never ends by itself."""
    until = time.monotonic() + _AGES
    while time.monotonic() < until:
        pass


def send(number: int) -> None:
    os.kill(os.getpid(), number)


def asked(limits: Limits) -> bool:
    return limits.leaving_at is not None


def twice(limits: Limits, number: int) -> None:
    """Two wishes, and not one that came twice."""
    send(number)
    assert limits.asked_at is not None
    limits.asked_at -= 1.0
    send(number)


# Signals record


@pytest.mark.parametrize(
    ("number", "word"),
    [(signal.SIGTERM, "quit"), (signal.SIGINT, "quit"), (signal.SIGHUP, "reload")],
)
def test_a_signal_is_recorded_and_wakes_who_waits(number: int, word: str) -> None:
    with installed() as limits:
        assert not asked(limits)
        assert limits.reason() is None
        send(number)
        assert asked(limits)
        assert limits.word == word
        assert not limits.hurried
        # Within its grace.
        assert limits.reason() is None
        assert readable(limits.wake_fd)
        limits.clear()
        assert not readable(limits.wake_fd)


def test_the_first_wish_names_the_reason_for_leaving() -> None:
    with installed() as limits:
        send(signal.SIGHUP)
        send(signal.SIGTERM)
        assert limits.word == "reload"


def test_one_ctrl_c_that_arrives_twice_is_one_wish() -> None:
    with installed() as limits:
        send(signal.SIGINT)
        # As if it had come this very moment.
        limits.asked_at = time.monotonic() + _AGES
        send(signal.SIGINT)
        assert not limits.hurried


def test_a_second_wish_is_for_leaving_at_once() -> None:
    with installed() as limits:
        twice(limits, signal.SIGTERM)
        assert limits.hurried
        assert limits.reason() == "leaving"
        deadline = limits.deadline()
        assert deadline is not None
        assert deadline <= time.monotonic()


def test_a_flood_of_signals_is_one_wish() -> None:
    class Flooded(Limits):
        """Each limit that is set is met by another signal, as long as anybody looks for one."""

        def deadline(self) -> float | None:
            send(signal.SIGTERM)
            return super().deadline()

    limits = Flooded(Options())
    limits.install()
    try:
        send(signal.SIGTERM)
        assert asked(limits)
        assert not limits.hurried
    finally:
        limits.restore()
        limits.close()


def test_a_hang_up_is_ignored_where_whoever_started_us_ignores_it() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with installed() as limits:
            send(signal.SIGHUP)
            assert not asked(limits)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_signals_that_ask_for_nothing_neither_end_nor_stop_a_driver() -> None:
    script = """
import os, signal
from queuedriver.driving.limits import Limits
from queuedriver.options import Options

def work():
    for number in (signal.SIGUSR1, signal.SIGTTIN, signal.SIGTTOU):
        os.kill(os.getpid(), number)
    return "done"

limits = Limits()
limits.install()
assert limits.run(work) == "done"
assert limits.leaving_at is None
limits.restore()
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=False, timeout=_AGES
    )
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_signals_are_given_back() -> None:
    handled = (*ASKING, signal.SIGALRM, signal.SIGUSR1, signal.SIGTTIN, signal.SIGTTOU)
    before = [signal.getsignal(number) for number in handled]
    with installed(timeout=_AGES) as limits:
        limits.begin()
        limits.leave("quit", "there is a QUIT file")
    assert [signal.getsignal(number) for number in handled] == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.set_wakeup_fd(-1) == -1


def test_a_quit_file_is_the_same_wish() -> None:
    with installed(grace=10.0) as limits:
        limits.leave("quit", "there is a QUIT file")
        assert readable(limits.wake_fd)
        send(signal.SIGHUP)
        assert (limits.word, limits.why) == ("quit", "there is a QUIT file")


def test_who_asks_by_a_file_and_by_a_signal_is_not_in_a_hurry() -> None:
    with installed() as limits:
        limits.leave("quit", "there is a QUIT file")
        send(signal.SIGTERM)
        assert not limits.hurried
        assert limits.asked_at is not None
        limits.asked_at -= 1.0
        send(signal.SIGTERM)
        assert limits.hurried


def test_a_wish_of_another_thread_wakes_who_waits_and_ends_the_users_code() -> None:
    with installed(grace=0.01) as limits:
        begun = threading.Event()

        def wish() -> None:
            begun.wait()
            limits.leave("quit", "there is a QUIT file")

        def work() -> None:
            begun.set()
            spin()

        thread = threading.Thread(target=wish)
        thread.start()
        with pytest.raises(Interrupted) as caught:
            limits.run(work)
        thread.join()
        assert caught.value.reason == "leaving"
        assert readable(limits.wake_fd)


def test_a_wish_that_comes_too_late_sets_no_alarm() -> None:
    """Whose effect would be to end a process that has gone on to something else."""
    limits = Limits(Options(grace=10.0))
    limits.install()
    limits.restore()
    limits.leave("quit", "there is a QUIT file")
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    limits.close()


# Deadlines


def test_the_earlier_of_time_out_and_grace_is_the_deadline() -> None:
    limits = Limits(Options(timeout=100.0, grace=10.0))
    limits.begin()
    began_at = limits.began_at
    assert limits.deadline() == began_at + 100.0
    limits.leaving_at = began_at + 5.0
    assert limits.deadline() == began_at + 15.0
    limits.leaving_at = began_at + 99.0
    assert limits.deadline() == began_at + 100.0
    limits.close()


def test_without_limits_there_is_no_deadline() -> None:
    limits = Limits()
    limits.begin()
    assert limits.deadline() is None
    assert limits.reason() is None
    limits.close()


def test_each_document_has_its_time_and_its_reason() -> None:
    limits = Limits(Options(timeout=100.0, grace=10.0))
    limits.begin()
    assert limits.reason() is None
    limits.began_at -= 100.0
    assert limits.reason() == "timeout"
    limits.begin()
    assert limits.reason() is None
    limits.leaving_at = time.monotonic() - 10.0
    assert limits.reason() == "leaving"
    limits.close()


# The one exception


@pytest.mark.parametrize("work", [spin, lambda: time.sleep(_AGES), framed(signal.pause)])
def test_the_users_code_is_interrupted_at_its_time_out(work: Callable[[], None]) -> None:
    with installed(timeout=0.01) as limits:
        limits.begin()
        with pytest.raises(Interrupted) as caught:
            limits.run(work)
        assert caught.value.reason == "timeout"
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_the_second_signal_interrupts_the_users_code() -> None:
    with installed() as limits:
        with pytest.raises(Interrupted) as caught:
            limits.run(twice, limits, signal.SIGTERM)
        assert caught.value.reason == "leaving"


def test_the_end_of_the_grace_interrupts_the_users_code() -> None:
    def work() -> None:
        send(signal.SIGTERM)
        spin()

    with installed(grace=0.01) as limits, pytest.raises(Interrupted) as caught:
        limits.run(work)
    assert caught.value.reason == "leaving"


@pytest.mark.parametrize("until", [1.8e12, math.inf])
def test_an_end_of_time_that_no_timer_counts_to_fails_no_document(until: float) -> None:
    with installed(until=until) as limits:
        limits.begin()
        assert limits.run(lambda: "done") == "done"


def test_who_hurries_is_not_kept_by_the_next_document() -> None:
    ran = []
    with installed() as limits:
        twice(limits, signal.SIGTERM)
        with pytest.raises(Interrupted):
            limits.run(lambda: ran.append(1))
        assert ran == []
        # And after that nothing is raised anywhere else.
        send(signal.SIGTERM)


def test_a_wish_just_before_the_users_code_limits_it() -> None:
    with installed(grace=0.01) as limits:
        # As if it came between the two, where no flag is up.
        run = limits.run
        send(signal.SIGTERM)
        with pytest.raises(Interrupted) as caught:
            run(spin)
    assert caught.value.reason == "leaving"


def test_code_that_swallows_an_interruption_is_interrupted_again() -> None:
    swallowed = []

    def work() -> None:
        try:
            spin()
        except BaseException as error:  # noqa: BLE001 - as careless code does
            swallowed.append(error)
        spin()

    with installed(timeout=0.01) as limits:
        # It may have come before the code had begun to swallow.
        while not swallowed:
            limits.begin()
            with pytest.raises(Interrupted):
                limits.run(work)
    assert len(swallowed) == 1


def test_outside_of_the_users_code_nothing_is_raised() -> None:
    with installed(timeout=0.001, grace=0.0) as limits:
        limits.begin()
        # Late as we may be.
        with suppress(Interrupted):
            limits.run(lambda: None)
        time.sleep(0.01)
        send(signal.SIGALRM)
        twice(limits, signal.SIGTERM)
        send(signal.SIGALRM)
        assert limits.hurried


def test_an_answer_is_passed_on_and_so_is_an_exception() -> None:
    with installed(timeout=_AGES) as limits:
        limits.begin()
        assert limits.run(framed(max), 1, 2) == 2
        with pytest.raises(ZeroDivisionError):
            limits.run(lambda: 1 // 0)
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_an_alarm_at_any_instruction_leaves_the_limits_disarmed() -> None:
    """The alarm hits on the way in and on the way out as well; the driver's own code never."""
    with installed(timeout=1e-6) as limits:
        interrupted = 0
        for turn in range(3000):
            limits.timeout = (turn % 100 + 1) * 1e-6
            limits.begin()
            try:
                limits.run(lambda: sum(range(20)))
            except Interrupted:
                interrupted += 1
            assert not limits._armed
            assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
        assert interrupted > 0


def test_a_hurry_at_any_instruction_leaves_the_limits_disarmed() -> None:
    with installed() as limits:
        stop = threading.Event()
        main = threading.main_thread().ident or 0
        send(signal.SIGTERM)
        limits.asked_at = time.monotonic() - 1.0

        def hurry() -> None:
            while not stop.is_set():
                signal.pthread_kill(main, signal.SIGTERM)
                time.sleep(0)

        sender = threading.Thread(target=hurry)
        sender.start()
        try:
            for _ in range(2000):
                limits.hurried = False
                try:
                    limits.run(lambda: sum(range(50)))
                except Interrupted:
                    pass
                assert not limits._armed
        finally:
            stop.set()
            sender.join()


def test_in_a_thread_a_time_out_does_not_end_the_process() -> None:
    # There signals cannot be taken over, and the alarm's own effect is to kill.
    script = """
import threading, time
from queuedriver.driving.limits import Limits
from queuedriver.options import Options
def drive():
    limits = Limits(Options(timeout=0.01))
    limits.begin()
    limits.run(time.sleep, 0.1)
    assert limits.reason() == "timeout"
    print("lives")
thread = threading.Thread(target=drive)
thread.start()
thread.join()
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, b"lives\n")


def test_a_child_that_the_users_code_forks_ends_when_it_is_told_to() -> None:
    script = """
import os, signal, sys, time
from queuedriver.driving.limits import Limits
from queuedriver.options import Options

def work():
    pid = os.fork()
    if not pid:
        # Not for ever, should it not be told after all.
        signal.alarm(60)
        time.sleep(600)
    os.kill(pid, signal.SIGTERM)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

limits = Limits(Options(timeout=600.0))
limits.install()
limits.begin()
assert limits.run(work) == -signal.SIGTERM
# What it was told was not for us.
assert limits.leaving_at is None
limits.clear()
os.kill(os.getpid(), signal.SIGTERM)
assert limits.leaving_at is not None
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=False, timeout=_AGES
    )
    assert (ended.returncode, ended.stderr) == (0, b"")


# The hard limit


@contextmanager
def dumping(tmp_path: Path) -> Iterator[FileIO]:
    with FileIO(str(tmp_path / "stacks"), "w") as file:
        yield file
    faulthandler.cancel_dump_traceback_later()


def test_without_a_time_out_or_a_place_to_write_there_is_no_hard_limit(tmp_path: Path) -> None:
    with dumping(tmp_path) as dump:
        for limits in (Limits(Options(timeout=None), dump=dump), Limits(Options(timeout=1.0))):
            limits.begin()
            assert limits.hard is None
            assert limits._hard_until == 0.0
            limits.close()


def test_the_hard_limit_is_armed_anew_only_when_less_than_it_remains(tmp_path: Path) -> None:
    with dumping(tmp_path) as dump:
        limits = Limits(Options(timeout=100.0, hard_after=100.0), dump=dump)
        assert limits.hard == 200.0
        limits.begin()
        first = limits._hard_until
        assert first - time.monotonic() == pytest.approx(250.0, abs=10.0)
        limits.begin()
        assert limits._hard_until == first
        # 51 s later less than 200 s would remain.
        limits._hard_until -= 51.0
        limits.begin()
        assert limits._hard_until >= first
        limits.idle()
        assert limits._hard_until == 0.0
        limits.idle()
        limits.begin()
        assert limits._hard_until >= first
        limits.restore()
        limits.close()


_HUNG = """
import collections, itertools, sys, time
from io import FileIO
from queuedriver.driving.limits import Limits
from queuedriver.options import Options

def hold_the_gil(seconds):
    # In C, which looks for no signal and lets no other thread run.
    collections.deque(itertools.repeat(seconds), maxlen=0)

def swallow(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            time.sleep(seconds)
        except BaseException:
            pass

with FileIO(sys.argv[1], "w") as dump:
    limits = Limits(Options(timeout=0.5, hard_after=0.3), dump=dump)
    limits.install()
    print("begins", flush=True)
    limits.begin()
    limits.run(globals()[sys.argv[2]], 60)
    print("ended by itself", flush=True)
"""


@pytest.mark.parametrize("how", ["hold_the_gil", "swallow"])
def test_the_hard_limit_ends_what_no_exception_can_and_leaves_its_stacks(
    tmp_path: Path, how: str
) -> None:
    stacks = tmp_path / "stacks"
    ended = subprocess.run(
        [sys.executable, "-c", _HUNG, str(stacks), how],
        capture_output=True,
        check=False,
        timeout=_AGES,
    )
    assert ended.returncode != 0
    assert ended.stdout == b"begins\n"
    text = stacks.read_text()
    assert f"in {how}" in text
    # On a disk of ours alone, and not among what the driver says.
    assert how.encode() not in ended.stderr


def test_a_driver_that_is_idle_is_not_a_hung_one(tmp_path: Path) -> None:
    script = """
import sys, time
from io import FileIO
from queuedriver.driving.limits import Limits
from queuedriver.options import Options
with FileIO(sys.argv[1], "w") as dump:
    limits = Limits(Options(timeout=0.3, hard_after=0.1), dump=dump)
    limits.begin()
    limits.idle()
    time.sleep(0.7)
    print("lives")
"""
    stacks = tmp_path / "stacks"
    ended = subprocess.run(
        [sys.executable, "-c", script, str(stacks)], capture_output=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, b"lives\n")
    assert stacks.read_bytes() == b""


def test_a_driver_in_a_thread_leaves_an_alarm_of_its_program_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    driver = Driver(tmp_path / "in", lambda document: None, options=Options(drain=True, poll=True))
    signal.setitimer(signal.ITIMER_REAL, _AGES)
    try:
        thread = threading.Thread(target=driver.run)
        thread.start()
        thread.join()
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
