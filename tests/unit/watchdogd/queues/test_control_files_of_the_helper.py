"""What the helper does to queues is right, and harmless when it is done twice."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from queuedriver.claims.liveness import DRIVERS, Observer, identify, read_registration
from queuedriver.disk.filesystem import Directory
from queuedriver.format.records import Registration
from queuedriver.operating.queue import Queue
from tests.watchdogs import a_stage
from watchdogd import control
from watchdogd.helper_messages import QueueSeen, Recovered
from watchdogd.pipeline.model import Pipeline
from watchdogd.queues import control_files
from watchdogd.queues.counts import View
from watchdogd.queues.recovery import Recovery
from watchdogd.queues.root import Root

N = "rose-1-0605d3a1f2b0c05a17"
SERIAL = "0605d3a1f2b0c05a17"


class Site:
    """A diamond: in → a, b → out; made, and nobody there to drive it."""

    def __init__(self, place: Path) -> None:
        self.root = place / "queues"
        self.pipeline = Pipeline(
            name="p",
            file=str(place / "p.toml"),
            root=str(self.root),
            stages=(
                a_stage("split", "in", "a b"),
                a_stage("left", "a", "out"),
                a_stage("right", "b", "out"),
            ),
        )
        root = Root(str(self.root), str(place / "local"))
        root.check()
        root.prepare(self.pipeline)

    def look(self) -> dict[str, QueueSeen]:
        """What two looks see."""
        seen = {}
        for name in self.pipeline.queues:
            # However long a listing takes on a busy machine.
            view = View(self.pipeline.path(name), monotonic=lambda: 0.0)
            view.look(now=0.0, clock=0.0)
            seen[name] = view.look(now=1.0, clock=0.0)
        return seen

    def has(self, name: str) -> set[str]:
        """Which queues have a file of this name."""
        return {one for one in self.pipeline.queues if (self.root / one / name).exists()}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.fixture
def directory(site: Site) -> Iterator[Directory]:
    with Directory.open(site.root / ".watchdogd") as opened:
        yield opened


# Close


def test_done_goes_through_the_whole_graph_though_no_driver_is_there(site: Site) -> None:
    assert not control_files.cascade(site.pipeline, site.look())
    (site.root / "in/done").touch()
    assert site.has("done") == {"in"}
    assert control_files.cascade(site.pipeline, site.look())
    assert site.has("done") == {"in", "a", "b"}
    assert control_files.cascade(site.pipeline, site.look())
    assert site.has("done") == {"in", "a", "b", "out"}
    assert not control_files.cascade(site.pipeline, site.look())


@pytest.mark.parametrize("name", ["x.ready", f"x.{N}.working", f"x.{N}.written", "x.ffff.later"])
def test_queue_stays_open_while_anything_may_still_come(site: Site, name: str) -> None:
    (site.root / "in/done").touch()
    control_files.cascade(site.pipeline, site.look())
    (site.root / "b" / name).touch()
    assert not control_files.cascade(site.pipeline, site.look())
    assert site.has("done") == {"in", "a", "b"}


def test_queue_that_others_feed_too_waits_for_them(site: Site, tmp_path: Path) -> None:
    with (
        Queue.open(tmp_path / "theirs", create=True) as theirs,
        Queue.open(site.root / "a") as queue,
    ):
        queue.add_feed(theirs.path)
        (site.root / "in/done").touch()
        control_files.cascade(site.pipeline, site.look())
        assert site.has("done") == {"in", "b"}
        theirs.set_control("done", wanted=True)
    control_files.cascade(site.pipeline, site.look())
    assert site.has("done") == {"in", "a", "b"}


def test_reopening_goes_as_far_as_closing_had_gone_by_itself(site: Site) -> None:
    (site.root / "in/done").touch()
    while control_files.cascade(site.pipeline, site.look()):
        pass
    assert site.has("done") == {"in", "a", "b", "out"}
    # Somebody has closed this one, be it by hand.
    (site.root / "b/done").unlink()
    (site.root / "b/done").touch()
    (site.root / "in/done").unlink()
    while control_files.cascade(site.pipeline, site.look()):
        pass
    assert site.has("done") == {"b"}


# Pause


def test_whole_pipeline_is_paused_and_resumed_but_not_what_was_paused_by_itself(site: Site) -> None:
    control.pause(str(site.root), ["b"])
    assert control_files.spread_pause(site.pipeline, site.look(), paused=True)
    assert site.has("PAUSE") == {"in", "a", "b"}
    assert (site.root / "in/PAUSE").read_text() == "watchdogd\n"
    assert not control_files.spread_pause(site.pipeline, site.look(), paused=True)
    assert control_files.spread_pause(site.pipeline, site.look(), paused=False)
    assert site.has("PAUSE") == {"b"}
    assert not control_files.spread_pause(site.pipeline, site.look(), paused=False)


def test_two_hosts_pause_at_once(site: Site) -> None:
    seen = site.look()
    assert control_files.spread_pause(site.pipeline, seen, paused=True)
    # The other has not seen it yet.
    assert not control_files.spread_pause(site.pipeline, seen, paused=True)
    assert site.has("PAUSE") == {"in", "a", "b"}


@pytest.mark.parametrize("dressed", ["symlink", "directory", "fifo", "long"])
def test_pause_that_is_somebodys_stays(site: Site, dressed: str) -> None:
    path = site.root / "in/PAUSE"
    match dressed:
        case "symlink":
            path.symlink_to("/etc/passwd")
        case "directory":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "long":
            path.write_bytes(control.MARK * 1000)
    control_files.spread_pause(site.pipeline, site.look(), paused=False)
    assert os.path.lexists(path)


# Control files


def test_requests_expire_after_an_hour_of_the_file_systems_clock(
    site: Site, directory: Directory
) -> None:
    for name, age in (("old", 3700), ("new", 3500)):
        path = site.root / f".watchdogd/restart-{name}-{SERIAL}"
        path.touch()
        now = path.stat().st_mtime
        os.utime(path, (now, now - age))
    os.utime(site.root / ".watchdogd/landmark", (0, 0))
    control_files.expire(directory)
    names = os.listdir(directory.path)
    assert f"restart-new-{SERIAL}" in names
    assert f"restart-old-{SERIAL}" not in names
    assert "landmark" in names


def test_status_document_is_published_whole(site: Site, directory: Directory) -> None:
    control_files.publish(directory, "rose.example.org", b'{"a":1}')
    control_files.publish(directory, "rose.example.org", b'{"a":2}')
    assert os.listdir(site.root / ".watchdogd/hosts") == ["rose.example.org.json"]
    assert (site.root / ".watchdogd/hosts/rose.example.org.json").read_bytes() == b'{"a":2}'


# Drivers


def register(
    queue: Path, pid: int, *, id: str = "rose-1", last_word: str = "", batch: int = 1
) -> None:
    """As a driver with this process would have."""
    registration = Registration(
        id=id,
        salt="5a17",
        identity=identify(pid),
        started_at=1.0,
        beat=3,
        last_word=last_word,
        batch=batch,
    )
    drivers = queue / ".queuedriver" / DRIVERS
    drivers.mkdir(exist_ok=True)
    (drivers / f"{id}.json").write_bytes(msgspec.json.encode(registration))


def beat_of(queue: Path, id: str = "rose-1") -> int:
    with Directory.open(queue / ".queuedriver" / DRIVERS) as drivers:
        registration = read_registration(drivers, id)
    assert registration is not None
    return registration.beat


def test_what_a_dead_driver_left_is_recovered_and_discards_are_told(site: Site) -> None:
    queue = site.root / "a"
    gone = subprocess.Popen(["true"])
    # It may have died of either.
    register(queue, gone.pid, batch=2)
    gone.wait()
    (queue / f"one.{N}.working").write_text("1")
    (queue / f"two.failed.{N[:-5]}d5a17.working").write_text("2")
    recovery = Recovery()
    assert recovery.recover("a", str(queue)) == Recovered(
        "a", 2, ("two",), (("crashed", False), ("crashed", True))
    )
    assert (queue / "one.failed").read_text() == "1"
    assert (queue / "discarded/two").read_text() == "2"
    assert recovery.recover("a", str(queue)) == Recovered("a", 0)


def test_what_a_living_driver_has_is_left_to_it(site: Site) -> None:
    queue = site.root / "a"
    register(queue, os.getpid())
    (queue / f"one.{N}.working").touch()
    assert Recovery().recover("a", str(queue)).claims == 0
    assert (queue / f"one.{N}.working").exists()


def test_living_driver_that_is_silent_is_beaten_for(site: Site) -> None:
    queue = site.root / "a"
    register(queue, os.getpid())
    clock = [0.0]
    beats = Recovery(lambda: Observer(monotonic=lambda: clock[0]))
    for now, beat in ((0.0, 3), (59.0, 3), (60.0, 4), (90.0, 4), (120.0, 5)):
        clock[0] = now
        beats.beat(str(queue))
        assert beat_of(queue) == beat


def test_nobody_beats_for_a_driver_that_does_or_is_dead_or_has_left(site: Site) -> None:
    queue = site.root / "a"
    gone = subprocess.Popen(["true"])
    register(queue, gone.pid, id="dead")
    gone.wait()
    register(queue, os.getpid(), id="left", last_word="quit")
    register(queue, os.getpid(), id="beats")
    clock = [0.0]
    beats = Recovery(lambda: Observer(monotonic=lambda: clock[0]))
    for now in (0.0, 50.0, 100.0, 150.0):
        clock[0] = now
        assert beats.beat(str(queue)) == 0
        register(queue, os.getpid(), id="beats")
        path = queue / ".queuedriver" / DRIVERS / "beats.json"
        registration = msgspec.json.decode(path.read_bytes(), type=Registration)
        registration.beat = int(now)
        path.write_bytes(msgspec.json.encode(registration))
