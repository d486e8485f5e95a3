"""A stage is loaded once, and its drivers are forks: real processes, really killed."""

import contextlib
import ctypes
import json
import math
import mmap
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from queuedriver.disk.processes import process_ticks
from queuedriver.driving.live_status import Board
from tests.holdings import open_files, without_collections
from tests.integration.preloaded import COMMAND, Watch, load_of
from tests.waiting import until
from watchdogd import linux, template
from watchdogd.children import Child, Children, Exit
from watchdogd.driver_orders import LIMIT, Order, StageOrders, encode
from watchdogd.pipeline.model import Pipeline
from watchdogd.pipeline.model import Stage as PipelineStage
from watchdogd.policy import START_UP
from watchdogd.template import FORK_TAKES, Template, Templates

_PR_SET_CHILD_SUBREAPER = 36
MODEL = """
import os
value = os.urandom(8).hex()
def process(ask):
    return value
"""


class Stage:
    """A stage's directory with its modules, and the templates that were started there."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = directory / "log"
        self.watches: list[Watch] = []
        self.write("model", MODEL)

    def write(self, module: str, text: str) -> None:
        path = self.directory / f"{module.replace('.', '/')}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def start(self, function: str = "", env: dict[str, str] | None = None, **given: Any) -> Watch:
        load = replace(load_of(self.directory, function=function), env=env or {})
        given.setdefault("command", COMMAND)
        children = Children()
        with open(self.log, "ab") as log:
            template = Template(load, children, time.monotonic(), log.fileno(), **given)
        self.watches.append(Watch(template, children))
        return self.watches[-1]

    def facts(self, watch: Watch, name: str = "driver", **words: Any) -> dict[str, Any]:
        """What a new driver found."""
        path = self.directory / f"facts-{name}"
        watch.order(name, facts=str(path), **words)
        watch.until(path.exists, f"{name} has told")
        found = json.loads(path.read_text())
        assert isinstance(found, dict)
        return found

    def end(self) -> None:
        for watch in self.watches:
            watch.leave()
            watch.template.child.send(signal.SIGKILL)
            for driver in watch.drivers.values():
                driver.send(signal.SIGKILL)
            watch.all_gone()
            watch.gone()
        self.watches.clear()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    linux.become_subreaper()
    with without_collections():
        before = open_files()
        stage = Stage(tmp_path)
        try:
            yield stage
        finally:
            stage.end()
            Children().close()
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 0)
        assert open_files() == before


def ended(watch: Watch, process: Child) -> Exit:
    """Wait for a driver's end."""
    watch.until(lambda: process.exit is not None, "the driver has ended")
    assert process.exit is not None
    return process.exit


def failed(watch: Watch) -> tuple[str, Exit]:
    """What a driver that will never come is told to have failed by, and how the template ended."""
    child = watch.order("hopeless")
    watch.until(lambda: child.exit and watch.template.child.exit, "the template has failed")
    assert watch.template.child.exit is not None
    return child.failure, watch.template.child.exit


def gone(pid: int) -> bool:
    return process_ticks(pid) is None


# What drivers share, and what not


@pytest.mark.quick
def test_drivers_share_what_was_loaded_once(stage: Stage) -> None:
    watch = stage.start()
    one, other = stage.facts(watch, "one"), stage.facts(watch, "other")
    assert one["said"] == other["said"]
    watch.ready()
    assert watch.template.shared > 1_000_000
    assert "native code" not in stage.log.read_text()
    # What a collection visited would be copied.
    assert one["frozen"] > 1000


def test_driver_is_the_watchdogs_own_child_and_leads_a_group(stage: Stage) -> None:
    watch = stage.start()
    facts = stage.facts(watch)
    assert facts["parent"] == os.getpid()
    assert facts["group"] == watch.driver("driver").pid


def test_module_beside_the_pipeline_comes_before_one_of_that_name(stage: Stage) -> None:
    stage.write("elsewhere.model", "def process(ask):\n    return 'not this one'\n")
    watch = stage.start(env={"PYTHONPATH": f"{stage.directory}/elsewhere:{stage.directory}"})
    facts = stage.facts(watch)
    assert facts["said"] != "not this one"
    assert facts["path"] == facts["directory"] == str(stage.directory)


def test_driver_begins_with_nothing_of_its_template(stage: Stage) -> None:
    stage.write(
        "model",
        MODEL + "import faulthandler, signal, socket\n"
        "faulthandler.dump_traceback_later(600)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1})\n"
        "signal.signal(signal.SIGTERM, lambda *_: None)\n"
        "ours, theirs = socket.socketpair()\n"
        "ours.setblocking(False)\n"
        "signal.set_wakeup_fd(ours.fileno())\n"
        "ours.close(); theirs.close()\n",
    )
    facts = stage.facts(stage.start())
    assert facts["blocked"] == []
    assert facts["handlers"][0] == str(signal.SIG_DFL)
    assert "default_int_handler" in facts["handlers"][1]
    assert facts["wakeup"] == -1
    assert facts["threads"] == 1
    assert facts["stdin"] == "/dev/null"
    assert facts["fds"].count("socket") == 0
    assert facts["one_thread"] == "1"


def test_what_a_stage_says_of_threads_is_not_overruled(stage: Stage) -> None:
    assert stage.facts(stage.start(env={"OMP_NUM_THREADS": "3"}))["one_thread"] == "3"


def test_model_is_in_huge_pages_as_it_is_loaded_and_what_it_starts_asks_for_none(
    stage: Stage,
) -> None:
    enabled = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not enabled.exists() or "[never]" in enabled.read_text():
        pytest.skip("this kernel gives no huge pages")
    if (os.confstr("CS_GNU_LIBC_VERSION") or "") < "glibc 2.35":
        pytest.skip("this C library asks for no huge pages")
    stage.write(
        "model",
        "import os\n"
        "model = bytearray(b'x') * (64 << 20)\n"
        "lines = open('/proc/self/smaps_rollup').read().splitlines()\n"
        "huge = [int(line.split()[1]) for line in lines if line.startswith('AnonHuge')]\n"
        "def process(ask):\n"
        "    return [*huge, os.environ.get('GLIBC_TUNABLES')]\n",
    )
    kilobytes, tunables = stage.facts(stage.start())["said"]
    if kilobytes < 60 << 10 and huge_pages_of_one_that_asks() < 60 << 10:
        pytest.skip("this host has too little memory in one piece")
    assert kilobytes >= 60 << 10
    assert tunables == os.environ.get("GLIBC_TUNABLES")


def huge_pages_of_one_that_asks() -> int:
    """How many kilobytes of huge pages the kernel gives by now to who asks for 64 MiB of them."""
    with mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        memory.write(b"x" * len(memory))
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("AnonHuge"))


def test_two_drivers_draw_different_random_numbers(stage: Stage) -> None:
    # As numpy has it: one state for all who call, which knows nothing of forks.
    stage.write("numpy.__init__", "")
    stage.write(
        "numpy.random",
        "import random as _random\n"
        "_state = _random.Random(1)\n"
        "seed = _state.seed\n"
        "random = _state.random\n",
    )
    stage.write(
        "model",
        "import random, numpy.random\n"
        "random.seed(1)\n"
        "def process(ask):\n"
        "    return numpy.random.random()\n",
    )
    watch = stage.start()
    found = [stage.facts(watch, str(number)) for number in range(3)]
    assert len({facts["random"] for facts in found}) == 3
    assert len({facts["said"] for facts in found}) == 3


def test_module_opens_anew_what_forks_must_not_share(stage: Stage) -> None:
    hook = "import os\nopened_by = []\ndef after_fork():\n    opened_by.append(os.getpid())\n"
    stage.write(
        "model", hook + "import voice\ndef process(ask):\n    return opened_by + voice.opened_by\n"
    )
    stage.write("voice", hook + "def load():\n    pass\n")
    watch = stage.start("voice:load")
    for name in ("one", "other"):
        facts = stage.facts(watch, name)
        assert facts["said"] == [facts["group"]] * 2


def test_template_cleans_up_after_itself_and_no_driver_does(stage: Stage) -> None:
    stage.write(
        "model",
        "import atexit, os, tempfile\n"
        f"kept = tempfile.TemporaryDirectory(dir={str(stage.directory)!r}, prefix='kept-')\n"
        f"atexit.register(open, {str(stage.directory)!r} + '/cleaned-up', 'x')\n"
        "def process(ask):\n"
        "    global own\n"
        f"    own = tempfile.TemporaryDirectory(dir={str(stage.directory)!r}, prefix='own-')\n"
        f"    atexit.register(open, {str(stage.directory)!r} + '/left', 'x')\n",
    )
    watch = stage.start()
    stage.facts(watch, end=0)
    assert ended(watch, watch.driver("driver")) == Exit(code=0)
    assert list(stage.directory.glob("kept-*"))
    assert not list(stage.directory.glob("own-*"))
    assert (stage.directory / "left").exists()
    assert not (stage.directory / "cleaned-up").exists()

    watch.leave()
    watch.gone()
    assert not list(stage.directory.glob("kept-*"))
    assert (stage.directory / "cleaned-up").exists()


def test_what_was_printed_while_loading_is_in_the_log_once(stage: Stage) -> None:
    stage.write("model", MODEL + "print('half a line', end='')\n")
    watch = stage.start(env={"PYTHONUNBUFFERED": ""})
    stage.facts(watch, end=0)
    ended(watch, watch.driver("driver"))
    watch.leave()
    watch.gone()
    assert stage.log.read_text().count("half a line") == 1


# How drivers end


@pytest.mark.parametrize(
    ("end", "expected"),
    [(0, Exit(code=0)), (3, Exit(code=3)), ("raise", Exit(code=70)), ("signal", Exit(signal=11))],
)
def test_watchdog_learns_exactly_how_a_driver_ended(
    stage: Stage, end: object, expected: Exit
) -> None:
    watch = stage.start()
    assert ended(watch, watch.order("driver", end=end)) == expected


def test_all_drivers_survive_their_template(stage: Stage) -> None:
    watch = stage.start()
    for number in range(8):
        stage.facts(watch, str(number))
    watch.template.child.send(signal.SIGKILL)
    watch.gone()
    drivers = list(watch.drivers.values())
    assert not any(driver.exit for driver in drivers)
    for driver in drivers:
        driver.send(signal.SIGTERM)
        assert ended(watch, driver) == Exit(signal=signal.SIGTERM)


def killed_watchdog(stage: Stage, *, outlives: bool) -> tuple[list[int], list[int]]:
    """The drivers of a watchdog that was killed, and the rest of what it had."""
    command = [*COMMAND, str(stage.directory), "8", str(int(outlives))]
    with open(stage.log, "ab") as log:
        watchdog = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
    with watchdog:
        assert watchdog.stdout is not None
        line = watchdog.stdout.readline()
        assert line, stage.log.read_text()
        drivers, others = json.loads(line)
        watchdog.kill()
    return drivers, others


def test_no_driver_survives_its_watchdog(stage: Stage) -> None:
    drivers, others = killed_watchdog(stage, outlives=False)
    assert (len(drivers), len(others)) == (8, 1)
    try:
        wait_until_gone(drivers + others)
    finally:
        kill_what_is_left(drivers + others)


def test_drivers_to_be_adopted_survive_their_watchdog_and_nothing_else_does(stage: Stage) -> None:
    drivers, others = killed_watchdog(stage, outlives=True)
    try:
        wait_until_gone(others)
        assert not any(gone(pid) for pid in drivers)
    finally:
        kill_what_is_left(drivers + others)
    wait_until_gone(drivers)


def test_template_that_loads_does_not_survive_its_watchdog(stage: Stage) -> None:
    there = stage.directory / "there"
    os.mkfifo(there)
    say = f"import os, time\nopen({str(there)!r}, 'w').write(str(os.getpid()))\n"
    stage.write("model", say + "time.sleep(600)\n")
    with open(stage.log, "ab") as log:
        watchdog = subprocess.Popen([*COMMAND, str(stage.directory), "1", "0"], stderr=log)
    with watchdog:
        loading = int(there.read_text())
        watchdog.kill()
    try:
        wait_until_gone([loading])
    finally:
        kill_what_is_left([loading])


def wait_until_gone(pids: list[int]) -> None:
    until(lambda: all(gone(pid) for pid in pids), f"the end of {pids}")


def kill_what_is_left(pids: list[int]) -> None:
    for pid in pids:
        if not gone(pid):
            os.kill(pid, signal.SIGKILL)


# Who comes, and when


def test_driver_that_ended_before_it_was_known_has_ended_as_it_did(stage: Stage) -> None:
    watch = stage.start()
    watch.ready()
    driver = watch.order("driver", end=9)
    # Nobody reads what the template says until the driver is gone, and reaped among strangers.
    until(lambda: os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT), "its end")
    watch.children.reap(time.monotonic())
    assert ended(watch, driver) == Exit(code=9)


def test_nothing_is_forked_before_the_template_has_loaded(stage: Stage) -> None:
    go = stage.directory / "go"
    os.mkfifo(go)
    stage.write("model", MODEL + f"open({str(go)!r}).read()\n")
    watch = stage.start()
    watch.look()
    assert (watch.template.is_free, watch.template.has_failed) == (False, False)
    go.write_text("now")
    watch.order("one")
    assert watch.template.ready_at
    assert watch.driver("one").exit is None


SLOW = """
import os, time
os.register_at_fork(before=lambda: time.sleep(0.1))
"""


def test_template_forks_one_driver_at_a_time(stage: Stage) -> None:
    stage.write("model", MODEL + SLOW)
    watch = stage.start()
    one = watch.order("one")
    assert (watch.template.is_free, one.pid) == (False, 0)
    # The next one is asked for when the first has come.
    two = watch.order("two")
    assert one.pid
    assert watch.driver("two").pid == two.pid != one.pid


HANGS = """
import os, signal
def hang():
    {deaf}
    open({there!r}, "x")
    while True:
        signal.pause()
os.register_at_fork(before=hang)
"""


@pytest.mark.parametrize("deaf", ["pass", "signal.signal(signal.SIGTERM, signal.SIG_IGN)"])
def test_template_that_hangs_while_it_forks_shows_its_stacks_and_is_ended(
    stage: Stage, deaf: str
) -> None:
    there = stage.directory / "there"
    stage.write("model", MODEL + HANGS.format(deaf=deaf, there=str(there)))
    watch = stage.start(command=template.COMMAND)
    driver = watch.order("one")
    watch.until(there.exists, "it hangs")
    # Its time to start is over.
    driver.ask("stacks", START_UP, time.monotonic())
    watch.gone()
    assert "in hang" in stage.log.read_text()
    watch.until(lambda: driver.exit, "nobody waits for it")
    assert driver.exit == Exit(code=75)
    ended = watch.template.child.exit
    assert ended == Exit(signal=signal.SIGTERM if deaf == "pass" else signal.SIGKILL)


def test_nobody_waits_for_the_end_of_a_template_that_stands_still(stage: Stage) -> None:
    stage.write("model", MODEL + "import signal\nsignal.signal(signal.SIGUSR2, signal.SIG_IGN)\n")
    watch = stage.start()
    template = watch.ready()
    template.child.send(signal.SIGSTOP)
    late = watch.order("late", facts=str(stage.directory / "there"))
    now = time.monotonic()
    template.tend(3600.0, now)
    assert (late.exit, template.is_usable) == (None, True)
    # Its time to start is over.
    late.ask("stacks", START_UP, now)
    template.tend(3600.0, now)
    assert (late.exit, late.failure) == (Exit(code=75), "it was not ready in time")
    assert (template.is_usable, template.child.exit) == (False, None)
    # It goes on after all, and forks what it was asked for: that leaves, for nobody knows of it.
    template.child.send(signal.SIGCONT)
    until(lambda: "nobody waits for this driver any more" in stage.log.read_text())
    watch.gone()
    assert not (stage.directory / "there").exists()


def test_fork_that_hangs_is_given_up_long_before_what_may_take_long_to_load(stage: Stage) -> None:
    watch = stage.start()
    template = watch.ready()
    template.child.send(signal.SIGSTOP)
    late, now = watch.order("late"), time.monotonic()
    assert template.tend(3600.0, now) <= now + FORK_TAKES
    assert (late.exit, template.is_usable) == (None, True)
    assert template.tend(3600.0, now + FORK_TAKES) == math.inf
    assert (late.exit, late.failure) == (Exit(code=75), "it was not ready in time")
    assert not template.is_usable


def test_driver_that_came_before_its_template_was_found_late_is_known(stage: Stage) -> None:
    watch = stage.start()
    template = watch.ready()
    come = watch.order("come", facts=str(stage.directory / "there"))
    # Nobody has read that it is there.
    until((stage.directory / "there").exists)
    come.rung = "stacks"
    template.tend(3600.0, time.monotonic())
    assert (come.pid > 0, come.exit) == (True, None)
    watch.gone()


def test_template_that_loads_for_too_long_shows_its_stacks_and_is_ended(stage: Stage) -> None:
    there = stage.directory / "there"
    stage.write("model", f"import signal\nopen({str(there)!r}, 'x')\nwhile True: signal.pause()\n")
    watch = stage.start(command=template.COMMAND)
    watch.until(there.exists, "it hangs")
    watch.look(startup_timeout=0.0)
    driver = watch.order("one")
    assert "model.py" in stage.log.read_text()
    assert driver.exit == Exit(code=70)
    assert driver.failure == "it was not ready in time"


# What cannot work


@pytest.mark.parametrize(
    ("model", "function", "code", "words"),
    [
        ("import nowhere_to_be_found", "", 78, "No module named 'nowhere_to_be_found'"),
        ("", "", 78, "call model:process: 'model' has no 'process'"),
        ("raise SystemExit('no licence')", "", 70, "no licence"),
        ("raise ConnectionRefusedError(111, 'refused')", "", 70, "importing 'model' failed: Conn"),
        ("raise OSError(5, 'I/O')", "", 74, "importing 'model': I"),
        ("def process(document", "", 78, "SyntaxError"),
        (MODEL, "model:missing", 78, "preload model:missing: 'model' has no 'missing'"),
        (MODEL + "def load():\n    raise ValueError('no weights')", "model:load", 70, "no weights"),
        (MODEL + "def load():\n    open('/no/weights')", "model:load", 70, "/no/weights"),
        (MODEL + "def load():\n    raise OSError(5, 'I/O')", "model:load", 74, "I/O"),
        (MODEL + "def load():\n    raise PermissionError(13, 'no')", "model:load", 77, "no"),
    ],
)
def test_template_that_cannot_load_says_why_and_whether_to_try_again(
    stage: Stage, model: str, function: str, code: int, words: str
) -> None:
    stage.write("model", model)
    watch = stage.start(function)
    why, how = failed(watch)
    other = watch.order("other")
    assert how == other.exit == Exit(code=code)
    assert words in why == other.failure
    assert "Traceback" in stage.log.read_text()


@pytest.mark.parametrize(
    ("model", "function", "code"),
    [
        ("import nowhere_to_be_found", "", 78),
        (MODEL + "def load():\n    raise PermissionError(13, 'no')", "model:load", 77),
    ],
)
def test_template_that_hangs_up_before_it_is_reaped_fails_its_drivers_by_its_own_exit_code(
    stage: Stage, model: str, function: str, code: int
) -> None:
    stage.write("model", model)
    (stage.directory / "logs").mkdir()
    children = Children()
    load = load_of(stage.directory, function=function)
    templates = Templates(load, str(stage.directory), children)
    settings = PipelineStage(
        name="parse", inputs=("in",), outputs=(), kind="call", work="model:process", preload=True
    )
    order = StageOrders(settings, pipeline_of(stage, settings), "here", str(stage.directory)).of(1)

    def turn() -> float:
        now = time.monotonic()
        templates.receive(now)
        return templates.tend(settings, now, needed=True, again=True)

    def hung_up() -> bool:
        turn()
        return not templates.fds

    assert templates.free(settings, time.monotonic()) is None
    until(hung_up)
    assert templates.free(settings, time.monotonic()) is None
    until(lambda: children.reap(time.monotonic()))
    # All that were to be forked from it fare alike.
    for _ in range(2):
        template = templates.free(settings, time.monotonic())
        assert template is not None
        assert template.fork(encode(order), time.monotonic()).exit == Exit(code=code)
    assert turn() == math.inf
    # What only an operator can mend is not loaded again.
    assert (templates.template, children.running) == (None, [])


def test_template_that_not_even_sigkill_ends_has_one_stand_in_and_no_more(stage: Stage) -> None:
    stage.write("model", "import time\ntime.sleep(3600)")
    (stage.directory / "logs").mkdir()
    children = Children()
    templates = Templates(load_of(stage.directory), str(stage.directory), children)
    settings = PipelineStage(
        name="parse", inputs=("in",), outputs=(), kind="call", work="model:process", preload=True
    )

    def turn(now: float) -> None:
        templates.receive(now)
        templates.tend(settings, now, needed=True, again=True)
        assert templates.free(settings, now) is None

    now = time.monotonic()
    stuck: list[Child] = []
    for _ in range(2):
        assert not templates.stuck
        turn(now)
        (child,) = set(children.running) - {*stuck}
        # What waits in the kernel is no other to us.
        child.ask("stuck", START_UP, now)
        stuck.append(child)
        turn(now)
        now += 10_000.0
    turn(now)
    assert children.running == stuck
    assert f"processes {stuck[0].pid} and {stuck[1].pid} cannot be killed" in templates.stuck
    # The file system answers again, and one of them has ended.
    stuck[0].send(signal.SIGKILL)
    until(lambda: children.reap(now))
    # The other one has, too, where it was asked for its stacks before it could tell them.
    left = sum(one.exit is None for one in stuck)
    turn(now)
    turn(now)
    assert not templates.stuck
    assert len(children.running) == left + 1
    children.close()
    until(lambda: children.reap(now) or not children.running)
    templates.receive(now)


def pipeline_of(stage: Stage, *stages: PipelineStage) -> Pipeline:
    return Pipeline(
        name="p", file=str(stage.directory / "p.toml"), root=str(stage.directory), stages=stages
    )


@pytest.mark.parametrize("daemon", [True, False])
def test_template_with_a_thread_does_not_fork(stage: Stage, daemon: bool) -> None:
    stage.write(
        "model",
        MODEL + "import threading\n"
        "asleep = threading.Event()\n"
        f"threading.Thread(target=asleep.wait, name='TMonitor', daemon={daemon}).start()\n",
    )
    why, how = failed(stage.start())
    assert how == Exit(code=78)
    assert "1 thread of Python's running ('TMonitor')" in why
    assert "after_fork()" in why


def test_thread_that_is_about_to_end_does_no_harm(stage: Stage) -> None:
    stage.write(
        "model",
        MODEL + "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(0.05,)).start()\n",
    )
    stage.facts(stage.start())


def test_threads_of_native_code_are_told_of(stage: Stage) -> None:
    stage.write(
        "model",
        MODEL + "import ctypes\n"
        "libc = ctypes.CDLL(None)\n"
        "libc.pthread_create(ctypes.byref(ctypes.c_ulong()), None, libc.pause, None)\n",
    )
    watch = stage.start()
    stage.facts(watch)
    watch.ready()
    assert "loading left 1 thread of native code running" in stage.log.read_text()


def test_template_that_loads_can_be_stopped(stage: Stage) -> None:
    there = stage.directory / "there"
    stage.write("model", f"import time\nopen({str(there)!r}, 'x')\ntime.sleep(600)\n")
    watch = stage.start()
    watch.until(there.exists, "it loads")
    watch.leave()
    watch.gone()
    assert not watch.template.ready_at


def test_template_whose_program_is_not_there_fails_and_says_so(stage: Stage) -> None:
    watch = stage.start(command=("/nowhere/python3",))
    assert "exit code 70" in failed(watch)[0]
    assert "/nowhere/python3 cannot be run: No such file" in stage.log.read_text()
    # That nothing is left open, the fixture sees.
    assert watch.template.fds == []


def test_driver_that_came_as_its_template_was_let_go_is_known(stage: Stage) -> None:
    watch = stage.start()
    watch.ready()
    come = watch.order("come", facts=str(stage.directory / "there"))
    # Nobody has read that it is there.
    until((stage.directory / "there").exists)
    watch.leave()
    watch.gone()
    assert (come.pid > 0, come.exit) == (True, None)


def test_driver_that_is_forked_as_its_template_is_let_go_comes(stage: Stage) -> None:
    stage.write("model", MODEL + SLOW)
    watch = stage.start()
    watch.ready()
    comes = watch.order("comes")
    watch.leave()
    assert comes.exit is None
    watch.driver("comes")
    watch.gone()
    assert comes.exit is None


def test_stopped_template_leaves_its_drivers_alone(stage: Stage) -> None:
    watch = stage.start()
    stage.facts(watch)
    watch.leave()
    watch.gone()
    assert watch.driver("driver").exit is None


@pytest.mark.parametrize("when", [0, 1, 2, 3, 4])
def test_who_is_still_to_come_is_given_up_when_the_template_is_killed(
    stage: Stage, when: int
) -> None:
    watch = stage.start()
    watch.ready()
    for number in range(8):
        watch.order(str(number))
    watch.until(lambda: sum(bool(one.pid) for one in watch.drivers.values()) >= when, "some")
    watch.template.child.send(signal.SIGKILL)
    watch.until(lambda: watch.template.has_ended, "the template has failed")
    drivers = watch.drivers.values()
    watch.until(lambda: all(one.pid or one.exit for one in drivers), "nobody is in between")
    assert {one.exit for one in drivers} <= {None, Exit(code=75)}
    # That no process and no open file is left, the fixture sees.
    stage.end()
    wait_until_childless(stage.directory)


def wait_until_childless(directory: Path) -> None:
    """No process is left that works there: each template, and so each fork, had moved there."""

    def left() -> list[int]:
        pids = map(int, filter(str.isdigit, os.listdir("/proc")))
        return [pid for pid in pids if at(pid) == str(directory)]

    until(lambda: not left(), f"nobody works in {directory}")


def at(pid: int) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/cwd")
    return ""


FORK_FAILS = """
import os
mine, fork = os.getpid(), os.fork
def failing():
    if {when}:
        raise BlockingIOError(11, os.strerror(11))
    return fork()
os.fork = failing
"""
NO_PROCESSES = "fork: Resource temporarily unavailable"


@pytest.mark.parametrize(
    ("code", "why", "exit_code"),
    [
        (FORK_FAILS.format(when="True"), NO_PROCESSES, 75),
        (FORK_FAILS.format(when="os.getpid() != mine"), NO_PROCESSES, 75),
        (
            "import os\nos.setpgid = lambda *_: os._exit(9)\n",
            "the fork ended before it was ready",
            70,
        ),
    ],
)
def test_request_is_refused_when_no_fork_comes_about(
    stage: Stage, code: str, why: str, exit_code: int
) -> None:
    stage.write("model", MODEL + code)
    watch = stage.start()
    driver = watch.order("driver")
    watch.until(lambda: driver.exit, "it is given up")
    assert (driver.failure, driver.exit) == (why, Exit(code=exit_code))
    assert watch.template.is_usable


def test_order_that_is_too_long_is_refused(stage: Stage) -> None:
    watch = stage.start()
    watch.ready()
    assert "too long" in watch.order("driver", more="x" * LIMIT).failure


# With a driver's real work


def test_driver_from_a_template_takes_documents_through(stage: Stage) -> None:
    stage.write(
        "model",
        "def process(document):\n"
        "    if document.docid == 'poison' and not document.attempt:\n"
        "        import os; os.kill(os.getpid(), 9)\n"
        "    return document.read().upper()\n",
    )
    (stage.directory / "in").mkdir()
    (stage.directory / "in/poison.ready").write_text("dear ada")
    board = str(stage.directory / "board")
    order = Order(
        id="here-parse-1",
        name="parse-1",
        directory=str(stage.directory),
        stage=PipelineStage(
            name="parse",
            kind="call",
            work="model:process",
            inputs=(str(stage.directory / "in"),),
            outputs=(str(stage.directory / "out"),),
            preload=True,
        ),
        board=board,
        log=str(stage.directory / "parse-1.log"),
        parent=os.getpid(),
    )
    children = Children()
    watch = Watch(Template(load_of(stage.directory), children, time.monotonic()), children)
    stage.watches.append(watch)
    for name in ("first", "second"):
        Board.create(board).close()
        watch.drivers[name] = watch.template.fork(encode(order), time.monotonic())
        driver = watch.driver(name)
        if name == "first":
            assert ended(watch, driver) == Exit(signal=signal.SIGKILL)
    watch.until((stage.directory / "out/poison.ready").exists, "it is through")
    assert (stage.directory / "out/poison.ready").read_text() == "DEAR ADA"
    second = watch.driver("second")
    second.send(signal.SIGTERM)
    assert ended(watch, second) == Exit(code=0)
    assert "left, quit" in (stage.directory / "parse-1.log").read_text()
