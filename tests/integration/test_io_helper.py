"""The helper: a real process that looks at real queues, hangs, is killed, and is replaced."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from queuedriver.claims.liveness import DRIVERS, identify
from queuedriver.format.records import Registration
from queuedriver.operating.queue import Queue
from tests.disks import Disk
from tests.waiting import PATIENCE, state_of, until, until_ended
from tests.watchdogs import a_stage
from watchdogd import control
from watchdogd.children import Children
from watchdogd.helper import Helper
from watchdogd.helper_messages import (
    Brief,
    Controls,
    Errands,
    Look,
    Message,
    Read,
    Recovered,
    Request,
    to_line,
)
from watchdogd.helper_process import ARGV
from watchdogd.host import SILENCE
from watchdogd.operators.history import FINE
from watchdogd.operators.history import read as read_history
from watchdogd.pipeline.model import Pipeline
from watchdogd.report import DriverReport, HostReport, StageReport

N = "rose-1-0605d3a1f2b0c05a17"
SERIAL = "0605d3a1f2b0c05a17"
LOOK = Errands(look=True)
# What a test does to the helper before it begins.
_PREPARED = """
import sys
from tests.faults import Fault
from queuedriver.disk.filesystem import Directory
from watchdogd.programs import io_helper
place = {place!r}
{prepare}
io_helper.main()
"""


class Watch:
    """A watchdog's side: what its helper said."""

    def __init__(self, place: Path, root: Path | None = None) -> None:
        self.place = place
        self.root = root or place / "queues"
        self.local = place / "local"
        (self.local / "logs").mkdir(parents=True)
        self.pipeline = Pipeline(
            name="p",
            file=str(place / "p.toml"),
            root=str(self.root),
            stages=(
                a_stage("parse", "in", "between"),
                a_stage("store", "between", "out", publish="{docid}.xml"),
            ),
        )
        self.notes: list[str] = []
        self.heard: list[Message] = []
        self.helper = self.open()

    def open(self, argv: Sequence[str] = (), made: Sequence[str] = ()) -> Helper:
        """Another helper than there was."""
        brief = Brief(pipeline=self.pipeline, host="rose", local=str(self.local), made=tuple(made))
        self.helper = Helper(brief, Children(), self.note, argv or ARGV)
        return self.helper

    def open_prepared(self, prepare: str) -> None:
        """A helper to which something is done first."""
        script = _PREPARED.format(place=str(self.place), prepare=prepare)
        self.open([sys.executable, "-c", script])

    def note(self, kind: str, message: str = "", **_: object) -> None:
        self.notes.append(message)

    def start(self) -> "Watch":
        self.helper.tend(time.monotonic())
        assert self.helper.pid
        return self

    def until(self, holds: Callable[[Look], bool], what: str) -> Look:
        """The first look for which this holds; asked for again and again."""
        ends_at = time.monotonic() + PATIENCE
        while True:
            # All that was said before is heard first: it tells of the past.
            for message in self.listen():
                self.heard.append(message)
                if message.look is not None and holds(message.look):
                    return message.look
            assert time.monotonic() < ends_at, f"not {what}: {self.heard[-1:]} {self.complaints()}"
            self.helper.ask(LOOK)
            time.sleep(0.02)

    def next(self) -> Look:
        """What is seen from now on, once."""
        # Looks that were asked for before, and are still to come, may tell of the past.
        self.helper.ask(Errands(look=True, farewell=True))
        looks: list[Look] = []

        def answered() -> bool:
            for message in self.listen():
                self.heard.append(message)
                if message.farewell:
                    return True
                if message.look is not None:
                    looks.append(message.look)
            return False

        until(answered, "an answer")
        return looks[-1]

    def hear(self, count: int, holds: Callable[[Message], bool]) -> list[Message]:
        """Return all that is said from now on until this held for so many messages."""
        heard: list[Message] = []

        def enough() -> bool:
            heard.extend(self.listen())
            return sum(map(holds, heard)) >= count

        until(enough, f"{count} messages of a kind")
        return heard

    def listen(self) -> list[Message]:
        return self.helper.receive(time.monotonic())

    def complaints(self) -> str:
        log = self.local / "io-helper.log"
        return f"{self.notes} {log.read_text() if log.exists() else ''}"

    def close(self) -> None:
        self.helper.abandon()


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    watch = Watch(tmp_path)
    yield watch
    watch.close()
    assert "Traceback" not in watch.complaints()


def well(look: Look) -> bool:
    return not look.trouble


def controls(look: Look) -> Controls:
    assert look.controls is not None
    return look.controls


# Look


def test_first_look_makes_everything_and_sees_it_empty(watch: Watch) -> None:
    seen = watch.start().until(well, "seen")
    assert list(seen.queues) == ["in", "between", "out"]
    assert all(queue.unfinished == 0 for queue in seen.queues.values())
    with Queue.open(watch.root / "between") as queue:
        assert queue.feeds() == [str(watch.root / "in")]
    assert not (watch.root / "out/.queuedriver").exists()


def test_what_happens_in_the_queues_is_seen(watch: Watch) -> None:
    watch.start().until(well, "seen")
    (watch.root / "in/a.ready").touch()
    (watch.root / f"in/b.{N}.working").touch()
    (watch.root / "between/discarded").mkdir()
    (watch.root / "between/discarded/c").touch()
    (watch.root / "out/d.xml").touch()
    # A look that was under way may have seen a part of it.
    seen = watch.next().queues
    assert seen["out"].foreign == 1
    assert (seen["in"].ready, seen["in"].working) == (1, 1)
    assert seen["between"].discarded == 1
    assert not seen["in"].drained
    watch.until(lambda one: one.queues["between"].drained, "drained")


def test_control_files_are_seen(watch: Watch) -> None:
    watch.start().until(well, "seen")
    control.scale(str(watch.root), {"parse": 3})
    control.stop(str(watch.root))
    (watch.root / f".watchdogd/restart-parse-1@rose-{SERIAL}").touch()
    (watch.root / ".watchdogd/restart-parse").touch()
    seen = controls(watch.next())
    assert seen.notes
    assert (seen.scale, seen.quit) == ({"parse": 3}, "drain")
    assert seen.requests == (Request("restart", "parse-1", SERIAL),)


# Errands


def test_closing_the_first_queue_closes_all_though_no_driver_is_there(watch: Watch) -> None:
    watch.start().until(well, "seen")
    (watch.root / "in/done").touch()
    seen = watch.until(lambda one: one.queues["between"].done, "closed").queues
    assert seen["in"].done
    assert seen["in"].drained
    # What is published in a plain directory of results needs no end.
    assert not (watch.root / "out/done").exists() or seen["out"].done


def test_whole_pipeline_is_paused_and_resumed(watch: Watch) -> None:
    watch.start().until(well, "seen")
    control.pause(str(watch.root), ["between"])
    control.pause(str(watch.root))
    watch.until(lambda one: controls(one).paused and one.queues["in"].paused, "paused")
    control.resume(str(watch.root))
    seen = watch.until(lambda one: not one.queues["in"].paused, "resumed").queues
    assert seen["between"].paused


def test_what_a_dead_driver_left_is_recovered_on_request(watch: Watch) -> None:
    watch.start().until(well, "seen")
    gone = subprocess.Popen(["true"])
    registration = Registration(
        id="rose-1", salt="5a17", identity=identify(gone.pid), started_at=1.0
    )
    gone.wait()
    drivers = watch.root / "in/.queuedriver" / DRIVERS
    drivers.mkdir()
    (drivers / "rose-1.json").write_bytes(msgspec.json.encode(registration))
    (watch.root / f"in/a.failed.{N}.working").touch()
    watch.helper.ask(Errands(recover=("in", "unknown")))
    watch.until(lambda one: one.queues["in"].discarded == 1, "recovered")
    recovered = Recovered("in", 1, ("a",), (("crashed", True),))
    assert [one.recovered for one in watch.heard if one.recovered] == [recovered]


def test_status_is_published_for_all_to_see(watch: Watch) -> None:
    watch.start().until(well, "seen")
    (watch.local / "report.json").write_bytes(b'{"host":"rose"}')
    watch.helper.ask(Errands(report=True, look=True))
    watch.next()
    path = watch.root / ".watchdogd/hosts/rose.json"
    assert json.loads(path.read_bytes()) == {"host": "rose"}


def test_report_is_copied_with_a_look_when_nobody_asks_for_it(watch: Watch) -> None:
    watch.start().until(well, "seen")
    # Before the first one there is nothing to copy, which is no trouble.
    assert not watch.next().trouble
    (watch.local / "report.json").write_bytes(b'{"host":"rose"}')
    path = watch.root / ".watchdogd/hosts/rose.json"
    until(lambda: watch.listen() is not None and path.exists())
    assert json.loads(path.read_bytes()) == {"host": "rose"}
    assert watch.notes == []


def say_what_was_done(watch: Watch) -> float:
    """Have a watchdog that began a second ago report five documents; return when it does."""
    now = time.time()
    driver = DriverReport(name="s-1", id="rose-s-1", stage="s", state="ready", documents=5, pid=1)
    report = HostReport(
        host="rose",
        pid=1,
        identity=identify(os.getpid()),
        started_at=now - 1,
        at=now,
        stages=(StageReport(name="s", inputs=("in",)),),
        drivers=(driver,),
    )
    (watch.local / "report.json").write_bytes(msgspec.json.encode(report))
    watch.helper.ask(Errands(report=True, look=True))
    return now


def test_what_the_stages_did_is_written_down_for_all_to_see(watch: Watch) -> None:
    watch.start().until(well, "seen")
    (watch.root / "in/a.ready").touch()
    watch.until(lambda one: one.queues["in"].ready == 1, "the document")
    now = say_what_was_done(watch)
    watch.next()
    found = [one for one in read_history(str(watch.root), "s", now, time.time(), FINE) if one]
    assert [(one.waiting, one.drivers) for one in found] == [(1, 1)]
    assert 1 < found[0].done <= 5
    assert not [one.note for one in watch.heard if one.note]


def test_history_that_cannot_be_written_is_said_and_is_no_trouble(watch: Watch) -> None:
    watch.start().until(well, "seen")
    (watch.root / ".watchdogd/history").rmdir()
    (watch.root / ".watchdogd/history").touch()
    say_what_was_done(watch)
    heard = watch.hear(1, lambda one: bool(one.note))
    assert "cannot be written down" in "".join(one.note for one in heard)
    assert not watch.next().trouble


def test_metrics_are_a_file_for_as_long_as_the_watchdog_is_there(watch: Watch) -> None:
    file = watch.place / "p.prom"
    watch.pipeline = msgspec.structs.replace(watch.pipeline, metrics=str(file))
    watch.open()
    watch.start().until(well, "seen")
    until(file.exists, "the file of metrics")
    watch.helper.ask(Errands(farewell=True))
    watch.hear(1, lambda one: one.farewell)
    assert not [*watch.place.glob("p.prom*")]


def test_metrics_that_cannot_be_written_are_said_and_are_no_trouble(watch: Watch) -> None:
    file = watch.place / "nowhere" / "p.prom"
    watch.pipeline = msgspec.structs.replace(watch.pipeline, metrics=str(file))
    watch.open()
    watch.start()
    heard = watch.hear(1, lambda one: bool(one.note))
    assert f"{file} cannot be written" in "".join(one.note for one in heard)
    assert not watch.next().trouble


def test_events_and_logs_are_copied_for_all_to_see(watch: Watch) -> None:
    (watch.local / "logs/parse-1.log").write_text("one\n")
    (watch.local / "events.jsonl").write_text("{}\n")
    watch.start().until(well, "seen")
    with (watch.local / "logs/parse-1.log").open("a") as log:
        log.write("two\n")
    watch.next()
    assert (watch.root / ".watchdogd/logs/rose/parse-1.log").read_text() == "one\ntwo\n"
    assert (watch.root / ".watchdogd/events/rose.jsonl").read_text() == "{}\n"


def test_requests_of_yesterday_expire(watch: Watch) -> None:
    watch.start().until(well, "seen")
    watch.helper.abandon()
    old = watch.root / f".watchdogd/restart-old-{SERIAL}"
    old.touch()
    os.utime(old, (1, 1))
    control.restart(str(watch.root), "new", time.time_ns() // 1000)
    watch.open(made=watch.pipeline.queues)
    seen = watch.start().until(lambda one: len(controls(one).requests) == 1, "expired")
    assert controls(seen).requests[0].target == "new"
    assert not old.exists()


def with_more(pipeline: Pipeline) -> Pipeline:
    """The pipeline with one stage more, whose input is another queue."""
    stages = (*pipeline.stages, a_stage("more", "side", "between"))
    return msgspec.structs.replace(pipeline, stages=stages)


def test_reloaded_pipeline_gets_the_queues_it_lacks(watch: Watch) -> None:
    watch.start().until(well, "seen")
    watch.helper.ask(Errands(pipeline=with_more(watch.pipeline)))
    watch.until(lambda one: "side" in one.queues, "made")
    with Queue.open(watch.root / "between") as queue:
        assert sorted(queue.feeds()) == [str(watch.root / "in"), str(watch.root / "side")]


def test_what_is_not_understood_is_said_and_the_rest_is_done(watch: Watch) -> None:
    watch.start().until(well, "seen")
    os.write(watch.helper.fd, b"what?\n")
    watch.helper.ask(Errands(pipeline=with_more(watch.pipeline)))
    watch.until(lambda one: "side" in one.queues, "made")
    notes = [one.note for one in watch.heard if one.note]
    assert notes == ["an errand that was not understood: b'what?'"]


def read_again(watch: Watch) -> Read:
    """What the helper says of the pipeline's file."""
    watch.helper.ask(Errands(read=7))
    heard = watch.hear(1, lambda one: one.read is not None)
    read = next(one.read for one in heard if one.read is not None)
    assert read.number == 7
    return read


FILE = '[pipeline]\nname = "p"\nroot = "queues"\n[[stage]]\nname = "one"\ncommand = ["true"]\n'


def test_pipeline_file_is_read_again_with_what_people_should_know_of_it(watch: Watch) -> None:
    file = Path(watch.pipeline.file)
    many = FILE + 'memory = "1 GB"\ndrivers = { min = 1, max = 4 }\n[host]\nmemory = "2 GB"\n'
    file.write_text(many)
    watch.start()
    read = read_again(watch)
    assert read.error == ""
    assert read.pipeline is not None
    assert read.pipeline.stages[0].drivers.max == 4
    assert [note.partition(":")[0] for note in read.notes] == ["one gets at most 2 of 4 drivers"]
    # Of the file as it is now.
    file.write_text(FILE)
    assert read_again(watch).notes == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (FILE + 'timeout = "soon"\n', "timeout"),
        (FILE.replace("command", "comand"), "comand"),
        ("[pipeline", "p.toml"),
        # What only the host can tell.
        (FILE.replace('"true"', '"no-such-program"'), "not on the PATH"),
    ],
)
def test_what_is_wrong_with_the_pipeline_file_is_said(watch: Watch, text: str, says: str) -> None:
    Path(watch.pipeline.file).write_text(text)
    watch.start()
    read = read_again(watch)
    assert read.pipeline is None
    assert says in read.error


# Trouble


def test_queue_that_was_removed_underneath_is_said_and_not_made_again(watch: Watch) -> None:
    watch.start().until(well, "seen")
    shutil.rmtree(watch.root / "between")
    trouble = watch.until(lambda one: bool(one.trouble), "seen").trouble
    assert f"{watch.root / 'between'} is not there any more" in trouble
    watch.next()
    assert not (watch.root / "between").exists()
    (watch.root / "between").mkdir()
    watch.until(well, "well again")


def test_root_that_went_away_is_trouble_until_it_is_back(watch: Watch) -> None:
    watch.start().until(well, "seen")
    watch.root.rename(watch.place / "elsewhere")
    trouble = watch.until(lambda one: bool(one.trouble), "seen").trouble
    assert "is it mounted" in trouble
    # Nor does the next helper make another.
    watch.helper.abandon()
    watch.open(made=watch.pipeline.queues)
    watch.start().until(lambda one: bool(one.trouble), "seen")
    assert not watch.root.exists()
    (watch.place / "elsewhere").rename(watch.root)
    watch.until(well, "well again")


def test_helper_rests_amid_trouble(watch: Watch) -> None:
    watch.start().until(well, "seen")
    watch.root.rename(watch.place / "elsewhere")
    watch.until(lambda one: bool(one.trouble), "seen")
    before = cpu_ms(watch.helper.pid)
    # As many as it takes for the chores to be due.
    watch.hear(4, lambda one: one.look is not None)
    assert cpu_ms(watch.helper.pid) - before < 200


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path / "disk", "size=2m")
    yield disk
    disk.close()


def test_full_disk_is_trouble_until_there_is_room(disk: Disk, tmp_path: Path) -> None:
    watch = Watch(tmp_path / "beside", disk.path / "queues")
    try:
        watch.start().until(well, "seen")
        disk.fill()
        (watch.local / "report.json").write_bytes(b"x" * 5000)
        watch.helper.ask(Errands(report=True))
        seen = watch.until(lambda one: bool(one.trouble), "full")
        assert os.strerror(errno.ENOSPC) in seen.trouble
        # What can be seen is seen all the same, and it stays trouble while it is.
        assert watch.next().trouble
        disk.empty()
        watch.until(well, "well again")
    finally:
        watch.close()


def test_file_system_that_turns_read_only_is_trouble(disk: Disk, tmp_path: Path) -> None:
    watch = Watch(tmp_path / "beside", disk.path / "queues")
    try:
        watch.start().until(well, "seen")
        inside = tmp_path / "disk"
        # Not while the helper has a file open to be written.
        until(lambda: disk.tell(f"mount -o remount,ro '{inside}'") == 0, "it is read-only")
        (watch.local / "report.json").write_bytes(b"1")
        watch.helper.ask(Errands(report=True))
        trouble = watch.until(lambda one: bool(one.trouble), "read-only").trouble
        assert os.strerror(errno.EROFS) in trouble
        assert disk.tell(f"mount -o remount,rw '{inside}'") == 0
        watch.until(well, "well again")
    finally:
        watch.close()


def test_failing_disk_is_trouble_and_what_was_asked_is_done_when_it_is_well(watch: Watch) -> None:
    sign = watch.place / "sign"
    watch.open_prepared("from pathlib import Path\nFault(Path(place, 'sign'), ('names',))()")
    watch.start().until(well, "seen")
    sign.touch()
    (watch.root / "in/a.ready").touch()
    trouble = watch.until(lambda one: bool(one.trouble), "failing").trouble
    assert os.strerror(errno.EIO) in trouble
    (watch.root / ".watchdogd/PAUSE").touch()
    assert watch.next().controls is None
    assert not (watch.root / "in/PAUSE").exists()
    sign.unlink()
    watch.until(lambda one: one.queues["in"].paused, "paused")


# Silence

# A look that does not end before the sign is there.
_SLOW = """
import os, time
names = Directory.names
def slow(self):
    while os.path.basename(self.path) == "in" and not os.path.exists(place + "/sign"):
        open(place + "/amid", "w").close()
        {meanwhile}
    return names(self)
Directory.names = slow
"""


def hear_alive(watch: Watch, count: int) -> None:
    heard = watch.hear(count, lambda one: one == Message())
    assert not any(one.look for one in heard)


def test_helper_says_that_it_lives_amid_a_look_that_takes_long(watch: Watch) -> None:
    watch.open_prepared(_SLOW.format(meanwhile="pass"))
    watch.start()
    hear_alive(watch, 3)
    (watch.place / "sign").touch()
    watch.until(well, "seen")


def test_helper_that_hangs_in_a_system_call_says_nothing(watch: Watch) -> None:
    # As long as anybody might wait, unless they are killed.
    watch.open_prepared(_SLOW.format(meanwhile="time.sleep(3600)"))
    watch.start()
    hear_alive(watch, 1)
    # It may have more to say before it hangs.
    until((watch.place / "amid").exists, "it looks")
    await_state(watch.helper.pid, "S")
    watch.listen()
    heard = watch.helper.heard_at
    assert not watch.helper.lost(heard)
    os.kill(watch.helper.pid, signal.SIGCONT)
    # A system call that a signal interrupts is begun again, and nothing is said of it.
    assert watch.listen() == []
    assert watch.helper.lost(heard + SILENCE + 0.1)


def test_helper_that_stands_still_is_lost_and_another_sees(watch: Watch) -> None:
    watch.start().until(well, "seen")
    pid = watch.helper.pid
    os.kill(pid, signal.SIGSTOP)
    await_state(pid, "T")
    # What was said before counts.
    watch.listen()
    now = watch.helper.heard_at
    assert not watch.helper.lost(now + 1.0)
    assert watch.helper.lost(now + SILENCE + 0.1)
    os.kill(pid, signal.SIGCONT)
    watch.until(well, "seen again")
    os.kill(pid, signal.SIGSTOP)
    await_state(pid, "T")
    watch.helper.abandon()
    until_ended(pid)
    watch.open(made=watch.pipeline.queues)
    watch.start().until(well, "seen by others")


def await_state(pid: int, state: str) -> None:
    until(lambda: state_of(pid) == state, f"process {pid} is {state}")


# The end


def hang_up(watch: Watch) -> None:
    assert watch.helper._line is not None
    watch.helper._line.close()
    watch.helper._line = None


def test_helper_ends_with_the_socket_of_its_watchdog(watch: Watch) -> None:
    watch.start().until(well, "seen")
    pid = watch.helper.pid
    hang_up(watch)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.parametrize("meanwhile", ["pass", "time.sleep(3600)"])
def test_helper_ends_amid_a_look_when_its_watchdog_does(watch: Watch, meanwhile: str) -> None:
    watch.open_prepared(_SLOW.format(meanwhile=meanwhile))
    watch.start()
    hear_alive(watch, 1)
    pid = watch.helper.pid
    hang_up(watch)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0


# Asks to be told of the end of the socket once that has come.
_LATE = """
import fcntl, select
fcntl_ = fcntl.fcntl
def late(fd, what, *more):
    if what == fcntl.F_SETFL:
        poll = select.poll()
        poll.register(fd, 0)
        poll.poll()
    return fcntl_(fd, what, *more)
fcntl.fcntl = late
"""


def test_helper_ends_whose_watchdog_hung_up_before_it_could_be_told_of_that(watch: Watch) -> None:
    watch.open_prepared(_LATE + _SLOW.format(meanwhile="time.sleep(3600)"))
    watch.start()
    hear_alive(watch, 1)
    pid = watch.helper.pid
    hang_up(watch)
    until_ended(pid)


_WATCHDOG = """
import os, subprocess, sys, time
from watchdogd.children import Children
from watchdogd.helper import Helper
import msgspec
from watchdogd.helper_messages import Brief
helper = Helper(msgspec.json.decode(sys.stdin.buffer.readline(), type=Brief), Children(), print)
helper.tend(0.0)
while not any(one.look for one in helper.receive(0.0)):
    time.sleep(0.01)
# Somebody holds the other end of its socket.
holder = subprocess.Popen(["sleep", "1000"], pass_fds=[helper.fd], stdout=subprocess.DEVNULL)
print(helper.pid, holder.pid, flush=True)
os.kill(os.getpid(), 9)
"""


def test_helper_does_not_outlive_a_watchdog_that_is_killed(watch: Watch) -> None:
    brief = to_line(watch.helper.brief)
    ran = subprocess.run(
        [sys.executable, "-c", _WATCHDOG], input=brief, stdout=subprocess.PIPE, check=False
    )
    assert ran.returncode == -signal.SIGKILL
    pid, holder = map(int, ran.stdout.split())
    try:
        until_ended(pid)
    finally:
        os.kill(holder, signal.SIGKILL)


# Cost


def test_look_at_idle_queues_costs_little(watch: Watch) -> None:
    stages = [a_stage(f"s{n}", f"q{n}", f"q{n + 1}") for n in range(8)]
    watch.pipeline = msgspec.structs.replace(watch.pipeline, stages=tuple(stages))
    for n in range(32):
        (watch.local / f"logs/s{n % 8}-{n}.log").write_text("x\n")
    watch.open()
    watch.start().until(well, "seen")
    # Once nothing changes, a queue is not listed again.
    ends_at = time.monotonic() + 3.2
    watch.until(lambda _: time.monotonic() > ends_at, "settled")
    before, looks = cpu_ms(watch.helper.pid), 100
    for _ in range(looks):
        watch.helper.ask(LOOK)
    watch.hear(looks, lambda one: one.look is not None)
    # One look a second, and the copies of the logs with each.
    assert (cpu_ms(watch.helper.pid) - before) / looks < 5.0
    with open(f"/proc/{watch.helper.pid}/statm") as file:
        assert int(file.read().split()[1]) * 4096 < 30_000_000


def cpu_ms(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


# A hundred times nobody says anything, and it is as late as was to be waited for.
_PATIENT = """
import time
from watchdogd.helper_messages import Connection
now, waits, hear = time.monotonic(), 0, Connection.hear
time.monotonic = lambda: now
def wait(self, timeout):
    global now, waits
    if not self.said_at:
        return hear(self, timeout)
    if waits == 100:
        open(place + "/waited", "w").close()
        return hear(self, timeout)
    waits += 1
    now += max(0.0, timeout)
    return []
Connection.hear = wait
"""


def test_idle_helper_wakes_once_for_all_that_is_due(watch: Watch) -> None:
    watch.open_prepared(_PATIENT)
    watch.start()
    heard: list[Message] = []

    def has_waited() -> bool:
        is_over = (watch.place / "waited").exists()
        heard.extend(watch.listen())
        return is_over

    until(has_waited, "more than a minute is over")
    looks = sum(message.look is not None for message in heard)
    # What is copied every other second would wake it once more each time.
    assert 98 <= looks <= 101


def test_helper_imports_nothing_that_is_heavy() -> None:
    script = "import sys, watchdogd.programs.io_helper; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)
    heavy = {"typer", "watchdog", "psutil", "filelock", "subprocess", "multiprocessing", "asyncio"}
    assert not heavy & set(ran.stdout.split())
