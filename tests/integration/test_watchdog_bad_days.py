"""What befalls hosts, disks and programs costs a watchdog time, and nothing else."""

import contextlib
import os
import shutil
import signal
import textwrap
from contextlib import closing
from pathlib import Path

from tests.disks import Disk
from tests.waiting import until
from tests.watchdogs import PATIENCE, Yard
from watchdogd.children import WARDEN

ONE = 'name = "one"\ncall = "stages:obey"'
TWO = 'name = "two"\ncall = "stages:obey"'


def more(yard: Yard, stages: str) -> None:
    """Further functions for stages to call."""
    with (yard.root / "stages.py").open("a") as file:
        file.write(textwrap.dedent(stages))


def helpers(yard: Yard, *modules: str) -> list[int]:
    """The watchdog's processes that are no drivers."""
    found = []
    for pid in yard.all_pids():
        # One that is on the list may have ended since.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
            if {*modules} & {*words}:
                found.append(pid)
    return found


# Disks


def test_full_disks_of_this_host_cost_no_document(yard: Yard) -> None:
    """Those of logs, boards and events, and that of stacks."""
    with (
        closing(Disk(yard.root / "state-disk", "size=1m")) as state,
        closing(Disk(yard.root / "runtime-disk", "size=1m")) as runtime,
    ):
        yard.environ |= {
            "WATCHDOGD_STATE": str(state.path / "state"),
            "XDG_RUNTIME_DIR": str(runtime.path),
        }
        more(
            yard,
            """
            def talk(document):
                print("word " * 2000, flush=True)
                while document.docid == "hangs":
                    try:
                        time.sleep(1)
                    except BaseException:
                        pass
                return document.read()
            """,
        )
        yard.write(
            'name = "one"\ncall = "stages:talk"\ntimeout = "2 s"\nhard_after = "1 s"\nretries = 0'
        )
        watchdog = yard.run()
        until(lambda: yard.states() == {"one-1": "ready"})
        state.fill()
        runtime.fill()
        for number in range(10):
            yard.put(f"d{number}")
        until(lambda: len(yard.ls("one")) == 10)
        yard.put("hangs")
        # Nor do they keep the next driver from starting.
        until(lambda: list(yard.discarded("input")) == ["hangs"])
        yard.put("z")
        until(lambda: "z.ready" in yard.ls("one"))
        state.empty()
        runtime.empty()
        watchdog.terminate()
        assert watchdog.wait(PATIENCE) == 0
        yard.__exit__()


# Helpers that are killed


def test_drivers_outlive_what_they_were_forked_from(yard: Yard) -> None:
    def loads(pid: int) -> bool:
        # One that is on the list may have ended since.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            return Path(f"/proc/{pid}/comm").read_text().startswith("load")
        return False

    def loaders() -> list[int]:
        return [pid for pid in yard.all_pids() if loads(pid)]

    yard.write(f"{ONE}\ndrivers = 2\npreload = true")
    yard.put("a", "wait")
    watchdog = yard.run()
    until(lambda: sorted(yard.states().values()) == ["busy", "ready"])
    (idle,) = (one.pid for one in yard.drivers().values() if one.state == "ready")
    (busy,) = (one.pid for one in yard.drivers().values() if one.state == "busy")
    (first,) = until(loaders)
    os.kill(first, signal.SIGKILL)
    # For the next driver, though none has ended yet.
    until(lambda: loaders() not in ([], [first]))
    assert {busy, idle} == {one.pid for one in yard.drivers().values()}
    yard.end_all(*loaders(), idle)
    until(lambda: sorted(yard.states().values()) == ["busy", "ready"] and loaders())
    assert busy in {one.pid for one in yard.drivers().values()}
    (yard.root / "go").touch()
    until(lambda: yard.ls("one") == ["a.ready"])
    watchdog.terminate()
    assert watchdog.wait(PATIENCE) == 0
    until(lambda: yard.all_pids() == [])


# Programs


def test_processor_that_leaks_descriptors_takes_no_other_document_along(yard: Yard) -> None:
    more(
        yard,
        """
        LEAKED = []

        def leak(document):
            try:
                while document.docid == "leaks":
                    LEAKED.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                pass
            return document.read()
        """,
    )
    yard.write('name = "one"\ncall = "stages:leak"')
    for docid in ("a", "leaks", "z"):
        yard.put(docid)
    code, said = yard.drain()
    assert code == 1, said
    assert yard.ls("one") == ["a.ready", "z.ready"]
    assert yard.discarded("input")["leaks"]["failure"]["cause"] == "crashed"


def test_what_a_driver_has_started_ends_with_it(yard: Yard) -> None:
    more(
        yard,
        """
        import subprocess

        def bomb(document):
            if document.attempt:
                return document.read()
            for _ in range(20):
                if not os.fork():
                    os.fork()
                    time.sleep(3600)
            # This one leaves its process group.
            subprocess.Popen(["sleep", "3600"], start_new_session=True)
            os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    yard.write('name = "one"\ncall = "stages:bomb"')
    yard.put("a")
    watchdog = yard.run()
    until(lambda: yard.ls("one") == ["a.ready"])

    def ours() -> list[int]:
        others = helpers(yard, "watchdogd.programs.io_helper", WARDEN)
        return sorted([watchdog.pid, *others, yard.pid("one-1")])

    until(lambda: sorted(yard.all_pids()) == ours())
    watchdog.terminate()
    assert watchdog.wait(PATIENCE) == 0


# Names


def test_odd_names_are_names(tmp_path: Path) -> None:
    (tmp_path / "a %d ünï {x}").mkdir()
    docids = ["with space", "-rf", "--help", "ünï", "%s {input}", "*", "q'u\"o", "x" * 160, "$(x)"]
    with Yard(tmp_path / "a %d ünï {x}") as yard:
        long = "t" * 16
        yard.write(
            f'name = "{long}"\ncall = "stages:obey"',
            'name = "two"\ncommand = ["cp", "{input}", "{output}"]',
        )
        for docid in docids:
            yard.put(docid)
        watchdog = yard.run("--drain", host="..ho st/ü%")
        _, said = watchdog.communicate(timeout=PATIENCE)
        assert watchdog.returncode == 0, said
        assert yard.ls("two") == sorted(f"{docid}.ready" for docid in docids)


def test_directory_that_no_file_of_ours_could_name_is_refused(tmp_path: Path) -> None:
    directory = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    directory.mkdir()
    with Yard(directory) as yard:
        yard.write(ONE)
        code, said = yard.drain()
        assert code == 78
        assert "not UTF-8" in said
        assert yard.ls("input") == []
    shutil.rmtree(directory)


# Two of everything


def test_two_hosts_drain_one_pipeline_together(yard: Yard) -> None:
    yard.write(ONE, TWO)
    for number in range(50):
        yard.put(f"d{number}")
    both = [yard.run("--drain", host=host) for host in ("rose", "lily")]
    for watchdog in both:
        _, said = watchdog.communicate(timeout=PATIENCE)
        assert watchdog.returncode == 0, said
    assert len(yard.ls("two")) == 50


# Changes while it runs


def test_stage_takes_a_queue_over_once_the_other_is_through(yard: Yard) -> None:
    """A renamed stage: its drivers disagree with those that are about to leave."""
    yard.write(ONE, TWO)
    watchdog = yard.run()
    until(lambda: list(yard.states().values()) == ["ready", "ready"])
    yard.put("a", "wait", queue="one")
    until(lambda: yard.states()["two-1"] == "busy")
    yard.write(ONE, 'name = "three"\ninput = "one"\ncall = "stages:obey"')
    watchdog.send_signal(signal.SIGHUP)
    until(lambda: yard.count("exited", "three-1"))
    (yard.root / "go").touch()
    until(lambda: yard.ls("two") == ["a.ready"])
    yard.put("b")
    until(lambda: yard.ls("three") == ["b.ready"])
    assert yard.count("crash-looped") == 0


def test_a_drain_waits_for_the_source_that_a_reload_brings(yard: Yard) -> None:
    yard.write(ONE)
    yard.put("a", "wait")
    yard.put("b", queue="elsewhere")
    watchdog = yard.run("--drain")
    until(lambda: yard.states().get("one-1") == "busy")
    yard.write(ONE, 'name = "new"\ninput = "elsewhere"\ncall = "stages:obey"')
    watchdog.send_signal(signal.SIGHUP)
    until(lambda: yard.ls("new") == ["b.ready"])
    (yard.root / "go").touch()
    assert watchdog.wait(PATIENCE) == 0
    assert yard.ls("one") == ["a.ready"]


def test_watchdog_whose_directory_is_taken_away_says_so_and_goes_on_once_it_is_back(
    yard: Yard,
) -> None:
    yard.write(ONE)
    watchdog = yard.run()
    until(lambda: yard.states() == {"one-1": "ready"})
    status = yard.status()
    assert status is not None
    # A file is in the way of what it would make again.
    boards, file = Path(status.local) / "boards", yard.root / "a file"
    file.touch()

    def is_taken() -> bool:
        shutil.rmtree(boards, ignore_errors=True)
        with contextlib.suppress(IsADirectoryError):
            file.rename(boards)
        return boards.is_file()

    until(is_taken)
    yard.write(ONE, f'{TWO}\ninput = "second"')
    watchdog.send_signal(signal.SIGHUP)
    until(lambda: "boards" in " ".join(one.get("message", "") for one in yard.events()))
    yard.put("a")
    until(lambda: "a.ready" in yard.ls("one"))
    boards.unlink()
    watchdog.send_signal(signal.SIGHUP)
    until(lambda: yard.states() == {"one-1": "ready", "two-1": "ready"})
    assert watchdog.poll() is None
