"""A watchdog keeps real drivers alive: killed, hung, bloated, forked away, and told to leave."""

import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.waiting import until
from tests.watchdogs import PATIENCE, Yard
from watchdogd import control
from watchdogd.pipeline.read import read
from watchdogd.stages import leaving_takes

ONE = 'name = "one"\ncall = "stages:obey"'


def working(yard: Yard, driver: str = "one-1") -> int:
    """Wait until a driver has a document at hand; its process."""
    until(lambda: yard.states().get(driver) == "busy")
    return yard.pid(driver)


# Pipelines


@pytest.mark.quick
def test_chain_takes_every_document_through_and_ends(yard: Yard) -> None:
    yard.write(
        'name = "one"\ncall = "stages:shout"',
        'name = "two"\ncommand = ["tr", "A-Z", "a-z"]\ndrivers = 2',
        'name = "three"\ncall = "stages:shout"\npublish = "{docid}.xml"',
    )
    for number in range(30):
        yard.put(f"d{number}", f"text {number}")
    code, said = yard.drain()
    assert code == 0, said
    assert "30 documents went through" in said
    assert {name: yard.read(f"three/{name}") for name in yard.ls("three")} == {
        f"d{number}.xml": f"TEXT {number}" for number in range(30)
    }
    assert [yard.ls(queue) for queue in ("input", "one", "two")] == [[], [], []]
    assert yard.all_pids() == []


def test_three_interchangeable_workers_on_one_queue(yard: Yard) -> None:
    yard.write('name = "output"\ncall = "stages:shout"\ndrivers = 3\npublish = "{docid}.xml"')
    for number in range(60):
        yard.put(f"doc{number}")
    assert yard.drain()[0] == 0
    assert yard.ls("output") == sorted(f"doc{number}.xml" for number in range(60))
    started = {one["driver"] for one in yard.events() if one["event"] == "started"}
    assert started == {"output-1", "output-2", "output-3"}


def test_four_queues_and_six_workers(yard: Yard) -> None:
    yard.write(
        'name = "values"\ncall = "stages:shout"\ndrivers = 1\nmemory = "600 MB"',
        'name = "parse"\ncall = "stages:shout"\ndrivers = 3\nmemory = "2 GB"',
        'name = "output"\ncall = "stages:shout"\ndrivers = 2\nmemory = "1 GB"\n'
        'publish = "{docid}.xml"',
        more='[host]\nmemory = "9 GB"',
    )
    for number in range(60):
        yard.put(f"doc{number}")
    assert yard.drain()[0] == 0
    assert yard.ls("output") == sorted(f"doc{number}.xml" for number in range(60))
    started = [one["stage"] for one in yard.events() if one["event"] == "started"]
    assert sorted(started) == ["output"] * 2 + ["parse"] * 3 + ["values"]


def test_a_drain_goes_through_a_graph_that_parts_and_meets(yard: Yard) -> None:
    both = """
def both(document):
    from queuedriver import Output
    yield Output(document.read(), queue="left")
    yield Output(document.read(), queue="right")
"""
    with (yard.root / "stages.py").open("a") as file:
        file.write(both)
    yard.write(
        'name = "both"\ncall = "stages:both"\noutput = ["left", "right"]',
        'name = "a"\ninput = "left"\noutput = "met"\ncall = "stages:shout"\n'
        'publish = "{docid}.a.ready"',
        'name = "b"\ninput = "right"\noutput = "met"\ncall = "stages:shout"\n'
        'publish = "{docid}.b.ready"',
        'name = "last"\ninput = "met"\noutput = "out"\ncall = "stages:shout"',
    )
    for docid in "xyz":
        yard.put(docid)
    code, said = yard.drain()
    assert code == 0, said
    assert yard.ls("out") == sorted(f"{one}.{way}.ready" for one in "xyz" for way in "ab")


def test_what_was_drained_today_takes_more_tomorrow(yard: Yard) -> None:
    yard.write('name = "one"\ncall = "stages:shout"', 'name = "two"\ncall = "stages:shout"')
    for day in ("monday", "tuesday"):
        yard.put(day)
        code, said = yard.drain()
        assert (code, "1 document went through" in said) == (0, True), said
    assert yard.ls("two") == ["monday.ready", "tuesday.ready"]
    assert not list(yard.root.glob("queues/*/done"))


def test_a_document_copied_into_a_closed_queue_is_told_and_goes_through(yard: Yard) -> None:
    yard.write(ONE)
    queue = yard.root / "queues/input"
    yard.run()
    until(lambda: yard.count("ready") == 1)
    (queue / "done").touch()
    until(lambda: yard.count("drained") == 1)
    # Long enough for a look to see it there.
    yard.put("late", "wait")
    until(lambda: yard.count("closed-queue") == 1)
    (yard.root / "go").touch()
    until(lambda: "late.ready" in yard.ls("one"))
    told = next(one for one in yard.events() if one["event"] == "closed-queue")
    assert (told["stage"], str(queue) in told["message"]) == ("one", True)


# The model takes longer than a second to load, in whatever process.
_HEAVY = """
import os, time
from pathlib import Path

time.sleep(1.2)
with (Path(__file__).parent / "loads").open("a") as file:
    print(os.getpid(), file=file)


def guess(document):
    return document.read()
"""


@pytest.mark.parametrize("preload", ["", "\npreload = true"], ids=["each", "preload"])
def test_bursts_into_a_pipeline_that_is_closed_again_and_again_load_no_model_anew(
    yard: Yard, preload: str
) -> None:
    (yard.root / "heavy.py").write_text(
        f"import os, time\nfrom pathlib import Path\nHERE = Path({str(yard.root)!r})\n{_HEAVY}"
    )
    yard.write(
        f'name = "one"\ncall = "heavy:guess"{preload}',
        f'name = "two"\ncall = "heavy:guess"{preload}',
    )
    yard.run()
    queues = yard.root / "queues"
    until(lambda: yard.states() == {"one-1": "ready", "two-1": "ready"})
    loads = (yard.root / "loads").read_text()
    for count in (1, 2):
        yard.put(f"d{count}")
        until(lambda: len(yard.ls("two")) == count)  # noqa: B023 - at once
        (queues / "input/done").touch()
        until((queues / "two/done").exists)
        # That somebody submits more, as put --reopen does, opens all that follow.
        (queues / "input/done").unlink()
        until(lambda: not (queues / "one/done").exists() and not (queues / "two/done").exists())
    assert (yard.root / "loads").read_text() == loads
    assert yard.count("exited") == 0


# Takes time of a processor until it is told to take much memory.
_BLOAT = """
import os, time
while not os.path.exists("go"):
    sum(range(10**5))
big = bytearray(300_000_000)
time.sleep(3600)
"""


def test_programs_of_a_driver_count_as_its_memory_and_its_processor_time(yard: Yard) -> None:
    (yard.root / "bloat.py").write_text(_BLOAT)
    command = f"[{sys.executable!r}, 'bloat.py']"
    yard.write(f'name = "one"\ncommand = {command}\noutput = []\nmax_memory = "100 MB"')
    yard.put("a")
    yard.run()
    until(lambda: [one.cpu > 0.05 for one in yard.drivers().values()] == [True])
    (yard.root / "go").touch()
    until(lambda: yard.count("killed"))
    told = next(one for one in yard.events() if one["event"] == "killed")
    assert "memory" in told["message"]
    until(lambda: yard.count("restarted"))


def limits(yard: Yard) -> list[float | None]:
    return [one.hard_limit for one in yard.stages()]


def learn_a_limit(yard: Yard) -> None:
    """Run a watchdog until it has learned how long a document may take; and end it."""
    yard.write(ONE)
    watchdog = yard.run()
    for number in range(25):
        yard.put(f"d{number}")
    until(lambda: limits(yard) == [600.0])
    watchdog.terminate()
    watchdog.wait(PATIENCE)
    (yard.root / "queues/.watchdogd/hosts/rose.json").unlink()


def test_what_was_learned_of_how_long_documents_take_outlives_the_watchdog(yard: Yard) -> None:
    learn_a_limit(yard)
    yard.run()
    # By its first word.
    assert until(lambda: limits(yard)) == [600.0]


def test_what_another_function_took_under_the_watchdog_before_limits_no_document(
    yard: Yard,
) -> None:
    learn_a_limit(yard)
    yard.write(ONE.replace("obey", "shout"))
    yard.run()
    # By its first word.
    assert until(lambda: limits(yard)) == [None]


def test_documents_that_were_discarded_are_told_by_the_exit_code(yard: Yard) -> None:
    yard.write(ONE)
    yard.put("good")
    yard.put("bad", "bad")
    code, said = yard.drain()
    assert code == 1
    assert "1 document discarded, with the reason: " in said
    told = [one for one in yard.events() if one["event"] == "discarded"]
    assert [(one["queue"], one["count"]) for one in told] == [("input", 1)]
    assert yard.count("drained") == 1
    assert yard.ls("one") == ["good.ready"]
    assert list(yard.discarded("input")) == ["bad"]


def test_document_that_is_discarded_while_its_watchdog_leaves_is_an_event(yard: Yard) -> None:
    yard.write(ONE)
    yard.put("late", "wait and be bad")
    watchdog = yard.run()
    until((yard.root / "begun").exists, "it is at hand")
    watchdog.terminate()
    until(lambda: yard.count("note"), "it was heard")
    (yard.root / "go").touch()
    assert watchdog.wait(PATIENCE) == 0
    assert list(yard.discarded("input")) == ["late"]
    assert yard.count("discarded") == 1


def test_what_is_no_document_is_left_where_it_is_and_the_last_words_say_so(yard: Yard) -> None:
    yard.write(ONE)
    yard.put("good")
    (yard.root / "queues/input/scan.pdf").write_text("not submitted")
    code, said = yard.drain()
    assert code == 0, said
    where = yard.root / "queues/input"
    assert f"1 file in {where} is no document and was left alone; queuedriver status " in said
    assert yard.ls("input") == ["scan.pdf"]


# Crashes


@pytest.mark.parametrize(
    ("does", "fact", "words"),
    [
        ("exit", {"exit_code": 3}, "ended with exit code 3"),
        ("crash", {"signal": "SIGKILL"}, "was ended by SIGKILL"),
    ],
)
def test_report_of_a_document_says_how_its_driver_ended_by_itself(
    yard: Yard, does: str, fact: dict[str, object], words: str
) -> None:
    yard.write(f"{ONE}\nretries = 0")
    yard.put("poison", does)
    code, said = yard.drain()
    assert code == 1, said
    failure = yard.discarded("input")["poison"]["failure"]
    assert failure["cause"] == "crashed"
    assert failure.items() >= fact.items()
    assert failure["message"] == f"the driver's process {words} while it had the document"


def test_driver_that_does_nothing_but_crash_is_left_alone_and_the_stage_degraded(
    yard: Yard,
) -> None:
    (yard.root / "broken.py").write_text(
        "def process(document): pass\nimport sys\n"
        "if 'watchdogd.programs.driver' in ' '.join(sys.orig_argv): import os; os._exit(3)\n"
    )
    yard.write('name = "one"\ncall = "broken:process"\nmax_unhealthy = 2')
    yard.put("a")
    watchdog = yard.run()
    until(lambda: yard.states().get("one-1") == "crash-looped")
    assert "2 runs in a row finished nothing" in yard.drivers()["one-1"].why
    until(lambda: [one.state for one in yard.stages()] == ["degraded"])
    assert yard.count("degraded") == 1
    assert yard.ls("input") == ["a.ready"]
    # Somebody mends it, and says so.
    (yard.root / "broken.py").write_text("def process(document): return 'mended'\n")
    assert yard.command("restart", "one").returncode == 0
    until(lambda: yard.ls("one") == ["a.ready"])
    watchdog.terminate()
    assert watchdog.wait(PATIENCE) == 0


def test_stage_whose_module_cannot_be_imported_keeps_no_other_down(yard: Yard) -> None:
    yard.write(ONE, 'name = "two"\ncall = "nowhere:process"', 'name = "three"\ncall = "stages:no"')
    yard.put("a")
    watchdog = yard.run()
    until(lambda: yard.ls("one") == ["a.ready"])
    until(
        lambda: (
            yard.states() == {"one-1": "ready", "two-1": "crash-looped", "three-1": "crash-looped"}
        )
    )
    said = {name: one.why for name, one in yard.drivers().items()}
    assert "No module named 'nowhere'" in said["two-1"]
    assert "'stages' has no 'no'" in said["three-1"]
    assert watchdog.poll() is None


def test_import_that_fails_for_a_while_is_tried_again_and_its_traceback_is_in_the_log(
    yard: Yard,
) -> None:
    (yard.root / "weights.py").write_text(
        "import os\n"
        "if not os.path.exists('up'):\n    raise ConnectionRefusedError(111, 'refused')\n"
        "def process(document): return document.read()\n"
    )
    yard.write('name = "one"\ncall = "weights:process"')
    yard.put("a")
    yard.run()
    until(lambda: yard.count("exited") >= 2)
    assert yard.count("crash-looped") == 0
    (yard.root / "up").touch()
    until(lambda: yard.ls("one") == ["a.ready"])
    log = yard.command("logs", "one").stdout
    assert " call weights:process: importing 'weights' failed: ConnectionRefusedError" in log
    assert 'weights.py", line 3, in <module>' in log


def test_start_imports_nothing_but_in_its_drivers(yard: Yard) -> None:
    (yard.root / "model.py").write_text(
        "open('imported', 'a').write('once\\n')\ndef process(document): return document.read()\n"
    )
    yard.write('name = "one"\ncall = "model:process"')
    yard.put("a")
    assert yard.drain()[0] == 0
    assert (yard.root / "imported").read_text() == "once\n"


# Hangs and memory


def test_server_that_loads_for_long_costs_no_document_its_time(yard: Yard) -> None:
    (yard.root / "server.py").write_text(
        "import json, sys, time\ntime.sleep(4)\nprint(json.dumps({'ready': True}), flush=True)\n"
        "for line in sys.stdin:\n"
        "    asked = json.loads(line)\n"
        "    open(asked['output'], 'w').write('served')\n"
        "    print(json.dumps({'ok': True}), flush=True)\n"
    )
    yard.write(
        'name = "one"\nserver = ["python3", "server.py"]\ntimeout = "2 s"\nhard_after = "1 s"'
    )
    yard.put("a")
    code, said = yard.drain()
    assert (code, yard.ls("one")) == (0, ["a.ready"]), said
    assert yard.count("hung") == 0


def test_what_drivers_share_is_not_held_against_one_of_them(yard: Yard) -> None:
    (yard.root / "model.py").write_text(
        "MODEL = bytes(range(256)) * 400_000\n\ndef process(document): return MODEL[:9]\n"
    )
    yard.write('name = "one"\ncall = "model:process"\npreload = true\nmax_memory = "50 MB"')
    for number in range(5):
        yard.put(f"d{number}")
    code, said = yard.drain()
    assert (code, len(yard.ls("one"))) == (0, 5), said
    assert (yard.count("recycled"), yard.count("killed")) == (0, 0)


def test_driver_that_waits_for_its_fork_behind_others_is_not_late(yard: Yard) -> None:
    (yard.root / "slow.py").write_text(
        "import os, time\nos.register_at_fork(before=lambda: time.sleep(1.2))\n"
        "def process(document): return document.read()\n"
    )
    yard.write(
        'name = "one"\ncall = "slow:process"\npreload = true\ndrivers = 8\nstartup_timeout = "8 s"'
    )
    yard.run()
    until(lambda: yard.count("ready") == 8)
    assert (yard.count("exited"), yard.count("restarted")) == (0, 0)


def test_driver_is_recycled_between_documents_and_nothing_is_counted(yard: Yard) -> None:
    yard.write(f"{ONE}\nmax_documents = 3")
    for number in range(10):
        yard.put(f"d{number}")
    code, said = yard.drain()
    assert (code, len(yard.ls("one"))) == (0, 10), said
    assert yard.count("recycled", "one-1") >= 2


# No orphans


def test_what_a_document_left_running_ends_with_its_driver(yard: Yard) -> None:
    yard.write(
        'name = "one"\ncommand = ["sh", "-c", "setsid sleep 3600 & touch began; sleep 3600"]'
    )
    yard.put("a")
    watchdog = yard.run()
    pid = working(yard)
    until((yard.root / "began").exists)
    os.kill(pid, signal.SIGKILL)
    until(lambda: yard.count("restarted", "one-1"))
    working(yard)
    watchdog.send_signal(signal.SIGQUIT)
    watchdog.wait(PATIENCE)
    until(lambda: yard.all_pids() == [])


def replace(yard: Yard, first: subprocess.Popen[str], *more: str) -> subprocess.Popen[str]:
    """Kill a watchdog, start the next, and wait until that one has looked around."""
    first.kill()
    first.communicate()
    second = yard.run(*more)

    def saved() -> float:
        one = yard.status()
        return one.at if one is not None and one.pid == second.pid else 0.0

    began_at = until(saved)
    until(lambda: saved() > began_at)
    return second


def test_adopted_driver_that_was_told_other_things_is_replaced(yard: Yard) -> None:
    yard.write(ONE, 'name = "two"\ncall = "stages:shout"', pipeline="adopt = true")
    first = yard.run()
    until(lambda: list(yard.states().values()) == ["ready", "ready"])
    one, two = (yard.pid(name) for name in ("one-1", "two-1"))
    # Neither stays as it was told: one gets another limit, and two is not there any more.
    yard.write(f'{ONE}\ntimeout = "5 min"', pipeline="adopt = true")
    replace(yard, first)
    until(lambda: yard.count("restarted", "one-1"))
    until(lambda: not {one, two} & set(yard.all_pids()))
    assert yard.count("killed") == 0


def test_restart_that_was_asked_for_between_two_watchdogs_is_met_once(yard: Yard) -> None:
    yard.write(ONE, pipeline="adopt = true")
    first = yard.run()
    until(lambda: yard.states() == {"one-1": "ready"})
    pid = yard.pid("one-1")
    first.kill()
    first.communicate()
    control.restart(str(yard.root / "queues"), "one", time.time_ns() // 1000)
    second = yard.run()
    until(lambda: yard.count("restarted", "one-1") == 1)
    # One that has not said who it is would not be found.
    until(lambda: (one := yard.status()) is not None and one.pid == second.pid)
    until(lambda: yard.states() == {"one-1": "ready"})
    # The next one finds the same request, and a driver that knows of it.
    third = replace(yard, second)
    assert yard.pid("one-1") not in (0, pid)
    third.terminate()
    third.communicate()
    assert [one["event"] for one in yard.events()].count("adopted") == 2
    assert yard.count("restarted", "one-1") == 1


def test_renamed_pipeline_keeps_its_drivers(yard: Yard) -> None:
    yard.write(ONE, pipeline="adopt = true")
    first = yard.run()
    until(lambda: yard.states() == {"one-1": "ready"})
    pid = yard.pid("one-1")
    yard.file.write_text(yard.file.read_text().replace('"yard"', '"garden"'))
    replace(yard, first)
    assert yard.count("adopted", "one-1") == 1
    assert yard.pid("one-1") == pid
    # Nor does a change while it runs need another watchdog.
    yard.file.write_text(yard.file.read_text().replace('"garden"', '"park"'))
    assert yard.command("reload", "--wait").returncode == 0
    until(lambda: (one := yard.status()) is not None and one.name == "park")


# Leaving


def test_stop_that_has_to_kill_charges_no_document_of_a_stage_with_another_environment(
    yard: Yard,
) -> None:
    (yard.root / "own").mkdir()
    yard.write(f'{ONE}\nretries = 0\nenv = {{XDG_RUNTIME_DIR = "{yard.root}/own"}}')
    yard.put("a", "deaf")
    watchdog = yard.run()
    until((yard.root / "hanging").exists)
    # At once.
    watchdog.send_signal(signal.SIGQUIT)
    assert watchdog.wait(PATIENCE) == 0
    assert yard.ls("input") == ["a.ready"]


# An end that nobody asked for

# Runs the words after its own as the interpreter would, but for a bug that nobody has found yet.
WITH_A_BUG = """
import sys
from watchdogd import stages
from watchdogd.cli import main

def sizes(*facts):
    raise ZeroDivisionError("a number of drivers")

stages.sizes = sizes
main(sys.argv[sys.argv.index("watchdogd") + 1:])
"""


def test_status_names_the_crash_of_a_watchdog_and_its_report(yard: Yard) -> None:
    yard.write(ONE)
    yard.put("a")
    watchdog = yard.run(under=[sys.executable, "-c", WITH_A_BUG])
    _, said = watchdog.communicate(timeout=PATIENCE)
    assert watchdog.returncode == 70, said
    report = re.search(r"please report it with (\S+)", said)
    assert report is not None, said
    assert "ZeroDivisionError: a number of drivers" in Path(report[1]).read_text()
    shown = yard.command("status")
    assert shown.returncode == 3
    assert "the watchdog on rose crashed at" in shown.stdout
    assert "ZeroDivisionError: a number of drivers" in shown.stdout
    assert report[1] in shown.stdout
    assert yard.events()[-1]["event"] == "watchdog-stopped"
    assert report[1] in yard.events()[-1]["message"]
    # The next one knows nothing of it.
    yard.run()
    until(lambda: yard.ls("one") == ["a.ready"])
    until(lambda: yard.states() == {"one-1": "ready"})
    assert "crashed" not in yard.command("status").stdout


# As while it is installed anew.
WITHOUT_PSUTIL = """
import sys
sys.modules["psutil"] = None
from watchdogd.cli import main
main(sys.argv[sys.argv.index("watchdogd") + 1:])
"""


def test_what_is_being_installed_anew_ends_no_watchdog(yard: Yard) -> None:
    yard.write(ONE)
    yard.put("a", "crash once")
    watchdog = yard.run("--drain", under=[sys.executable, "-c", WITHOUT_PSUTIL])
    _, said = watchdog.communicate(timeout=PATIENCE)
    assert (watchdog.returncode, yard.ls("one")) == (0, ["a.ready"]), said
    assert any("psutil" in one.get("message", "") for one in yard.events())


# Steering


def test_stage_is_scaled_up_and_down_while_it_runs(yard: Yard) -> None:
    yard.write(ONE)
    yard.run()
    until(lambda: yard.states() == {"one-1": "ready"})
    assert yard.command("scale", "one=3").returncode == 0
    until(lambda: list(yard.states().values()) == ["ready"] * 3)
    assert yard.command("scale", "one=1").returncode == 0
    one = yard.pid("one-1")
    until(lambda: yard.driver_pids() == [one])
    assert yard.states()["one-1"] == "ready"


def test_number_of_drivers_that_cannot_be_is_explained(yard: Yard) -> None:
    yard.write(ONE, more='[host]\nmemory = "60 MB"')
    yard.run()
    until(lambda: yard.states() == {"one-1": "ready"})
    assert yard.command("scale", "two=1").returncode == 66
    # By hand nobody is told of a slip.
    (yard.root / "queues/.watchdogd/scale-two").write_text("1")
    assert yard.command("scale", "one=9999", "--yes").returncode == 0

    def notes() -> str:
        status = yard.status()
        return " ".join(status.notes) if status else ""

    until(lambda: "there is no room for 9,999: one takes " in notes())
    until(lambda: "no stage is called two; there are: one" in notes())
    assert len(yard.drivers()) < 4


def test_paused_pipeline_claims_nothing_until_it_is_resumed(yard: Yard) -> None:
    yard.write(ONE)
    yard.run()
    until(lambda: yard.states() == {"one-1": "ready"})
    assert yard.command("pause").returncode == 0
    until((yard.root / "queues/input/PAUSE").exists)
    # Before: what it began to look for may be what comes now.
    until(lambda: yard.drivers()["one-1"].why == "paused")
    yard.put("a")
    assert yard.command("pause").returncode == 0
    assert yard.ls("input") == ["PAUSE", "a.ready"]
    assert yard.command("resume").returncode == 0
    until(lambda: yard.ls("one") == ["a.ready"])
    # It goes on at once, and the watchdog tells of it when it sees that.
    until(lambda: yard.count("resumed"))
    assert (yard.count("paused"), yard.count("resumed")) == (1, 1)


def test_restarted_driver_is_another_process(yard: Yard) -> None:
    yard.write(f"{ONE}\ndrivers = 2")
    yard.run()
    until(lambda: list(yard.states().values()) == ["ready", "ready"])
    before = {name: one.pid for name, one in yard.drivers().items()}
    assert yard.command("restart", "one-2").returncode == 0
    until(lambda: yard.drivers()["one-2"].pid not in (0, before["one-2"]))
    assert yard.drivers()["one-1"].pid == before["one-1"]


def test_restarted_stage_loads_anew_what_its_drivers_share(yard: Yard) -> None:
    module = yard.root / "model.py"
    module.write_text("def process(document): return 'old'\n")
    yard.write('name = "one"\ncall = "model:process"\npreload = true')
    yard.run()
    until(lambda: yard.states() == {"one-1": "ready"})
    module.write_text("def process(document): return 'new, and longer'\n")
    before = yard.pid("one-1")
    assert yard.command("restart", "one").returncode == 0
    until(lambda: yard.drivers()["one-1"].pid not in (0, before))
    yard.put("a")
    until(lambda: yard.ls("one") == ["a.ready"])
    assert yard.read("one/a.ready") == "new, and longer"


def test_reload_touches_only_what_has_changed(yard: Yard) -> None:
    two = 'name = "two"\ncall = "stages:shout"'
    yard.write(ONE, two)
    watchdog = yard.run()
    until(lambda: list(yard.states().values()) == ["ready", "ready"])
    before = {name: one.pid for name, one in yard.drivers().items()}
    three = 'name = "three"\ninput = "elsewhere"\ncall = "stages:shout"'
    yard.write(f'{ONE}\ntimeout = "5 min"', two, three)
    watchdog.send_signal(signal.SIGHUP)
    until(lambda: yard.states().get("three-1") == "ready")
    until(lambda: yard.drivers()["one-1"].pid not in (0, before["one-1"]))
    assert yard.drivers()["two-1"].pid == before["two-1"]
    yard.put("a", queue="elsewhere")
    until(lambda: yard.ls("three") == ["a.ready"])


def test_reloads_that_the_first_look_finds_are_answered_by_one_reading(yard: Yard) -> None:
    yard.write(ONE)
    asked = [f"{number:010}" for number in range(12)]
    directory = yard.root / "queues/.watchdogd"
    directory.mkdir(parents=True)
    for serial in asked:
        (directory / f"reload-{serial}").touch()
    yard.run()
    until(lambda: sorted(one.served if (one := yard.status()) else ()) == asked)
    assert yard.count("reloaded") == 1


def test_drivers_of_a_stage_that_the_file_no_longer_has_are_seen_until_they_have_left(
    yard: Yard,
) -> None:
    two = 'name = "two"\ninput = "other"\ncall = "stages:obey"'
    yard.write(ONE, two)
    watchdog = yard.run()
    yard.put("a", "wait", queue="other")
    working(yard, "two-1")
    yard.write(ONE)
    watchdog.send_signal(signal.SIGHUP)
    until(lambda: yard.states() == {"one-1": "ready", "two-1": "draining"})
    assert yard.drivers()["two-1"].document == "a"
    (yard.root / "go").touch()
    until(lambda: yard.states() == {"one-1": "ready"})


def test_notes_are_those_of_the_file_as_it_is(yard: Yard) -> None:
    many = f'{ONE}\nmemory = "1 GB"\ndrivers = {{ min = 1, max = 4 }}'
    yard.write(many, more='[host]\nmemory = "2 GB"')
    watchdog = yard.run()

    def notes() -> str:
        status = yard.status()
        return " ".join(status.notes) if status else ""

    until(lambda: "one gets at most 2 of 4 drivers" in notes())
    yard.write(many, more='[host]\nmemory = "3 GB"')
    watchdog.send_signal(signal.SIGHUP)
    until(lambda: "one gets at most 3 of 4 drivers" in notes())


def test_changed_settings_of_a_queue_reach_all_its_drivers(yard: Yard) -> None:
    yard.write(f"{ONE}\ndrivers = 2")
    watchdog = yard.run()
    until(lambda: list(yard.states().values()) == ["ready", "ready"])
    before = {one.pid for one in yard.drivers().values()}
    yard.write(f'{ONE}\ndrivers = 2\nretries = 3\npublish = "{{docid}}.xml"')
    watchdog.send_signal(signal.SIGHUP)
    # Those of before may take what comes until they are told to leave.
    until(lambda: not before & set(yard.all_pids()))
    yard.put("a")
    until(lambda: yard.ls("one") == ["a.xml"])
    until(lambda: list(yard.states().values()) == ["ready", "ready"])


def test_bad_file_changes_nothing_and_status_says_so(yard: Yard) -> None:
    yard.write(ONE)
    watchdog = yard.run()
    until(lambda: yard.states() == {"one-1": "ready"})
    pid = yard.pid("one-1")
    yard.write(f'{ONE}\ntimeout = "soon"')
    watchdog.send_signal(signal.SIGHUP)
    until(lambda: yard.count("reload-refused"))
    until(lambda: "timeout" in (one.reload_error if (one := yard.status()) else ""))
    assert yard.pid("one-1") == pid
    yard.put("a")
    until(lambda: yard.ls("one") == ["a.ready"])


@pytest.mark.parametrize(
    "bad", ['name = "one"\ncall = "stages:obay"', f'{ONE}\npreload = "stages:lode"']
)
def test_reload_that_names_what_cannot_be_imported_asks_no_driver_to_leave(
    yard: Yard, bad: str
) -> None:
    yard.write(ONE)
    watchdog = yard.run()
    until(lambda: yard.states() == {"one-1": "ready"})
    pid = yard.pid("one-1")
    yard.write(bad)
    watchdog.send_signal(signal.SIGHUP)
    until(lambda: yard.count("reload-refused"))
    until(lambda: "has no" in (one.reload_error if (one := yard.status()) else ""))
    yard.put("a")
    until(lambda: yard.ls("one") == ["a.ready"])
    assert (yard.pid("one-1"), yard.count("exited")) == (pid, 0)
    # And what can be imported is taken.
    yard.write(f"{ONE}\npreload = true")
    watchdog.send_signal(signal.SIGHUP)
    until(lambda: yard.count("reloaded"))
    until(lambda: yard.states() == {"one-1": "ready"} and yard.pid("one-1") != pid)


# Several hosts


def test_host_that_dies_leaves_its_documents_to_the_others(yard: Yard) -> None:
    yard.write(f'{ONE}\ngrace = "1 s"')
    yard.put("a", "wait")
    first = yard.run()
    working(yard)
    # First the watchdog: it must not see the others die.
    pids = [first.pid, *yard.all_pids()]
    yard.run(host="lily")
    until(lambda: yard.states("lily") == {"one-1": "ready"})
    ids = {yard.drivers(host)["one-1"].id for host in ("rose", "lily")}
    assert ids == {"rose-one-1", "lily-one-1"}
    yard.end_all(*pids)
    first.wait(PATIENCE)
    # It is not the document's doing that all died: it is begun again, and nothing is charged.
    until(lambda: yard.begun() == ["a", "a"])
    (yard.root / "go").touch()
    until(lambda: yard.ls("one") == ["a.ready"])
    assert yard.discarded("input") == {}


# What it tells


def test_events_run_a_command(yard: Yard) -> None:
    out = yard.root / "events.txt"
    yard.write(ONE, pipeline=f"on_event = ['sh', '-c', 'echo $0 >>{out}', '{{event}} {{driver}}']")
    assert yard.drain()[0] == 0
    until(lambda: out.exists() and "started one-1" in out.read_text().splitlines())


def test_service_manager_is_told(yard: Yard) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ours:
        # In no directory: the path of a test's may be too long for a socket.
        name = f"{yard.root.name}-{os.getpid()}"
        ours.bind(f"\0{name}")
        ours.settimeout(PATIENCE)
        yard.environ |= {"NOTIFY_SOCKET": f"@{name}", "WATCHDOG_USEC": "1000000"}
        yard.write(ONE)
        watchdog = yard.run()
        said: list[str] = []
        ends_at = time.monotonic() + PATIENCE
        while not ({"READY=1", "WATCHDOG=1"} <= set(said) and any("STATUS" in one for one in said)):
            said += ours.recv(4096).decode().splitlines()
            assert time.monotonic() < ends_at, said
        until(lambda: yard.states().get("one-1") == "ready")
        # What it beats meanwhile may be all that there is room for, and it waits for nobody.
        while select.select([ours], [], [], 0.0)[0]:
            said += ours.recv(4096).decode().splitlines()
        watchdog.terminate()
        while not any("EXTEND_TIMEOUT_USEC" in one for one in said):
            said += ours.recv(4096).decode().splitlines()
    assert "STOPPING=1" in said
    microseconds = int(leaving_takes(read(str(yard.file)).stages) * 1e6)
    assert f"EXTEND_TIMEOUT_USEC={microseconds}" in said
    assert watchdog.wait(PATIENCE) == 0


# As in a container: its processes cannot be seen from another one, and end with the first of them.
CONTAINED = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None,
    reason="namespaces of processes take root and unshare(1)",
)
def test_container_that_is_started_anew_keeps_the_pipeline_and_no_second_one_does(
    yard: Yard,
) -> None:
    yard.write(ONE)

    def started_at() -> float:
        # The number of a namespace may be another's as soon as that is gone.
        status = yard.status()
        return status.started_at if status is not None else 0.0

    first = yard.run(under=CONTAINED)
    before = until(started_at)
    yard.environ["WATCHDOGD_STATE"] += "-of-another"
    beside = yard.run(under=CONTAINED)
    _, said = beside.communicate(timeout=PATIENCE)
    assert beside.returncode == 69
    assert "already" in said
    assert started_at() == before
    first.kill()
    first.communicate()
    yard.run(under=CONTAINED)
    until(lambda: started_at() not in (0.0, before))
