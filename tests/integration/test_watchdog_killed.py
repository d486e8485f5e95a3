"""A watchdog that is killed leaves nothing running: not what is deaf, nor what went away."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.disks import Silent
from tests.waiting import until, until_ended
from tests.watchdogs import PATIENCE, Yard

# Documents that do not hear SIGTERM. Each says when it has begun.
DEAF = """
import os, signal, time
from pathlib import Path

HERE = Path(__file__).parent

def in_c(document):
    # With the interpreter's lock held: no handler runs, and no thread.
    (HERE / "begun").touch()
    sum(range(10**15))

def ignoring(document):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    (HERE / "begun").touch()
    time.sleep(3600)

def masked(document):
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    (HERE / "begun").touch()
    while True:
        time.sleep(1)

def forking(document):
    if not os.fork():
        os.setsid()
        (HERE / "begun").touch()
        time.sleep(3600)
    time.sleep(3600)
"""


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with Yard(tmp_path) as yard:
        (yard.root / "deaf.py").write_text(textwrap.dedent(DEAF))
        yield yard


def running(yard: Yard, program: str) -> list[int]:
    """The processes of one of the watchdog's own programs."""
    words = f"watchdogd.programs.{program}".encode()
    return [pid for pid in yard.all_pids() if words in Path(f"/proc/{pid}/cmdline").read_bytes()]


def wardens(yard: Yard) -> list[int]:
    return running(yard, "warden")


def recover(yard: Yard, queue: str) -> None:
    words = [sys.executable, "-m", "queuedriver", "recover", str(yard.root / "queues" / queue)]
    subprocess.run(words, env=yard.environ, check=True, capture_output=True, timeout=PATIENCE)


@pytest.mark.parametrize("preload", ["false", "true"])
@pytest.mark.parametrize("how", ["in_c", "ignoring", "masked"])
def test_driver_that_does_not_hear_sigterm_does_not_survive_its_watchdog(
    yard: Yard, how: str, preload: str
) -> None:
    yard.write(f'name = "one"\ncall = "deaf:{how}"\ngrace = 0\npreload = {preload}')
    yard.put("a")
    watchdog = yard.run()
    until((yard.root / "begun").exists)
    watchdog.kill()
    until(lambda: yard.all_pids() == [])
    # That is not the document's doing.
    recover(yard, "input")
    assert yard.ls("input") == ["a.ready"]


def test_fork_that_a_document_sent_away_does_not_survive_the_watchdog(yard: Yard) -> None:
    yard.write('name = "one"\ncall = "deaf:forking"\ngrace = 0')
    yard.put("a")
    watchdog = yard.run()
    until((yard.root / "begun").exists)
    watchdog.kill()
    until(lambda: yard.all_pids() == [])


def test_each_driver_of_a_killed_watchdog_has_the_grace_of_its_own_stage(yard: Yard) -> None:
    yard.write(
        'name = "one"\ncall = "stages:obey"\ngrace = "1 h"',
        'name = "two"\ninput = "other"\ncall = "deaf:ignoring"\ngrace = 0',
    )
    yard.put("a", "wait")
    yard.put("b", queue="other")
    watchdog = yard.run()
    until(lambda: list(yard.states().values()) == ["busy", "busy"])
    until((yard.root / "begun").exists)
    one, two = yard.pid("one-1"), yard.pid("two-1")
    watchdog.kill()
    until(lambda: two not in yard.all_pids())
    assert one in yard.all_pids()
    (yard.root / "go").touch()
    until(lambda: yard.all_pids() == [])
    assert yard.ls("one") == ["a.ready"]


def test_deaf_driver_ends_though_the_root_hung_when_its_watchdog_was_killed(yard: Yard) -> None:
    queues, state = yard.root / "queues", Path(yard.environ["WATCHDOGD_STATE"])
    (yard.root / "there").mkdir()
    queues.symlink_to("there")
    with closing(Silent(yard.root / "silent")) as silent:
        yard.write('name = "one"\ncall = "deaf:in_c"\ngrace = 0')
        yard.put("a")
        watchdog = yard.run()
        until((yard.root / "begun").exists)
        (deaf,) = yard.driver_pids()
        (yard.root / "aside").symlink_to(silent.path)
        (yard.root / "aside").rename(queues)
        until(lambda: "waiting-fs" in next(state.glob("*/events.jsonl")).read_text())
        watchdog.kill()
        until_ended(deaf)
    # Whoever hung there ends as soon as it answers.
    until(lambda: yard.all_pids() == [])


def test_deaf_driver_ends_though_there_was_no_helper_when_its_watchdog_was_killed(
    yard: Yard,
) -> None:
    yard.write('name = "one"\ncall = "deaf:ignoring"\ngrace = 0')
    yard.put("a")
    watchdog = yard.run()
    until((yard.root / "begun").exists)
    (helper,) = running(yard, "io_helper")
    os.kill(helper, signal.SIGKILL)
    until_ended(helper)
    watchdog.kill()
    assert running(yard, "io_helper") == []
    until(lambda: yard.all_pids() == [])


def test_killed_warden_is_replaced_and_none_is_left_behind(yard: Yard) -> None:
    yard.write('name = "one"\ncall = "stages:obey"')
    watchdog = yard.run()
    until(lambda: yard.states() == {"one-1": "ready"})
    (first,) = wardens(yard)
    # What a service manager may send to everybody does not touch it.
    os.kill(first, signal.SIGTERM)
    os.kill(first, signal.SIGKILL)
    until(lambda: wardens(yard) not in ([], [first]))
    watchdog.terminate()
    assert watchdog.wait(PATIENCE) == 0
    assert yard.all_pids() == []


def test_drivers_that_may_outlive_their_watchdog_have_no_warden_and_go_on(yard: Yard) -> None:
    yard.write('name = "one"\ncall = "stages:obey"\ngrace = 0', pipeline="adopt = true")
    yard.put("a", "wait")
    watchdog = yard.run()
    until((yard.root / "begun").exists)
    assert wardens(yard) == []
    watchdog.kill()
    drivers = yard.driver_pids()
    until(lambda: yard.all_pids() == drivers)
    (yard.root / "go").touch()
    yard.put("b")
    until(lambda: yard.ls("one") == ["a.ready", "b.ready"])
    assert yard.driver_pids() == drivers
