"""What is missing is made once; and nothing is made where the root only seems to be."""

import contextlib
import itertools
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from queuedriver.disk.mounts import filesystem_type
from queuedriver.errors import FileSystemTrouble
from queuedriver.operating.queue import Queue
from watchdogd.pipeline.model import Drivers, Pipeline, Stage
from watchdogd.queues.root import Known, Root


class Site:
    """A root, and the local directory of a watchdog."""

    def __init__(self, place: Path) -> None:
        self.root = place / "share/queues"
        self.local = place / "local"

    def ground(self, *, fresh: bool = True) -> Root:
        return Root(str(self.root), str(self.local), made=() if fresh else ("in",))

    def landmark(self) -> str:
        return (self.root / ".watchdogd/landmark").read_text()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def stage(name: str, inputs: str, outputs: str, publish: str = "{docid}.ready") -> Stage:
    return Stage(
        name=name,
        inputs=tuple(inputs.split()),
        outputs=tuple(outputs.split()),
        drivers=Drivers(1, 1),
        kind="command",
        work=("true",),
        publish=publish,
    )


def pipeline(site: Site, *stages: Stage) -> Pipeline:
    return Pipeline(name="p", file="/p.toml", root=str(site.root), stages=stages)


def test_root_is_made_at_the_start_and_known_again(site: Site) -> None:
    site.ground().check()
    assert sorted(os.listdir(site.root / ".watchdogd")) == [
        "events",
        "history",
        "hosts",
        "landmark",
        "logs",
    ]
    first = site.landmark()
    assert len(first) == 16
    ground = site.ground(fresh=False)
    ground.check()
    ground.check()
    assert site.landmark() == first


def test_root_is_known_again_though_the_local_directory_was_removed_meanwhile(site: Site) -> None:
    ground = site.ground()
    ground.check()
    shutil.rmtree(site.local)
    # Whoever tidied it up may be at it still, or have moved it away: that is not made again here.
    ground.check()
    assert not site.local.exists()
    site.local.mkdir()
    ground.check()
    site.root.rename(site.root.parent / "elsewhere")
    (site.root / ".watchdogd").mkdir(parents=True)
    (site.root / ".watchdogd/landmark").write_text("0123456789abcdef")
    with pytest.raises(FileSystemTrouble, match="is not the directory that it was"):
        site.ground(fresh=False).check()


@pytest.mark.parametrize("there", ["nothing", "an empty directory", "another pipeline's root"])
@pytest.mark.parametrize("who", ["who saw it", "their successor"])
def test_root_that_went_away_is_trouble_and_is_not_made_again(
    site: Site, there: str, who: str
) -> None:
    ground = site.ground()
    ground.check()
    site.root.rename(site.root.parent / "elsewhere")
    if there != "nothing":
        site.root.mkdir()
    if there == "another pipeline's root":
        (site.root / ".watchdogd").mkdir()
        (site.root / ".watchdogd/landmark").write_text("0123456789abcdef")
    before = sorted(site.root.rglob("*"))
    if who == "their successor":
        ground = site.ground(fresh=False)
    for _ in range(2):
        with pytest.raises(FileSystemTrouble, match="is it mounted"):
            ground.check()
    assert sorted(site.root.rglob("*")) == before
    if there != "nothing":
        site.root.rename(site.root.parent / "not it")
    (site.root.parent / "elsewhere").rename(site.root)
    ground.check()


def test_root_that_goes_away_amid_a_look_is_not_made_again(site: Site) -> None:
    ground = site.ground()
    ground.check()
    away = site.root.parent / "elsewhere"
    for moment in itertools.count():
        calls = itertools.count()

        def step(*_: object, moment: int = moment, calls: Iterator[int] = calls) -> None:
            if next(calls) == moment:
                site.root.rename(away)

        sys.setprofile(step)
        try:
            with contextlib.suppress(FileSystemTrouble, OSError):
                ground.check()
        finally:
            sys.setprofile(None)
        if not away.exists():
            break
        assert not site.root.exists()
        away.rename(site.root)
    assert moment > 30


def test_root_that_was_removed_on_purpose_is_made_by_the_next_watchdog(site: Site) -> None:
    site.ground().check()
    first = site.landmark()
    site.root.rename(site.root.parent / "old")
    site.ground().check()
    assert site.landmark() != first
    site.ground(fresh=False).check()


def test_control_files_that_somebody_removed_are_made_again_and_all_hosts_agree(
    site: Site, tmp_path: Path
) -> None:
    ours, theirs = site.ground(), Root(str(site.root), str(tmp_path / "their local"))
    ours.check()
    theirs.check()
    shutil.rmtree(site.root / ".watchdogd")
    ours.check()
    theirs.check()
    second = site.landmark()
    # Their next helper knows it, too.
    Root(str(site.root), str(tmp_path / "their local"), made=("in",)).check()
    assert site.landmark() == second


def test_watchdog_makes_no_root_where_another_kind_of_file_system_was(site: Site) -> None:
    site.local.mkdir()
    known = Known(landmark="0123456789abcdef", kind="nfs4")
    (site.local / "root.json").write_bytes(msgspec.json.encode(known))
    for _ in range(2):
        with pytest.raises(FileSystemTrouble, match="was on a file system of type nfs4"):
            site.ground().check()
        assert not (site.root / ".watchdogd").exists()
        site.root.mkdir(parents=True, exist_ok=True)
    # Then it is mounted: the digits are those that are remembered, whatever it is mounted from.
    (site.root / ".watchdogd").mkdir()
    (site.root / ".watchdogd/landmark").write_text(known.landmark)
    site.ground().check()
    remembered = msgspec.json.decode((site.local / "root.json").read_bytes(), type=Known)
    assert remembered == Known(known.landmark, filesystem_type(str(site.root)))


def test_watchdog_without_a_memory_goes_by_what_it_sees(site: Site) -> None:
    site.local.mkdir()
    (site.local / "root.json").write_bytes(b"rubbish")
    site.ground().check()
    # Nor does it matter that it can remember nothing.
    (site.local / "root.json").unlink()
    (site.local / "root.json").mkdir()
    site.ground().check()


# The queues


def test_all_directories_are_made_and_each_queue_knows_all_its_feeds(site: Site) -> None:
    site.ground().prepare(
        pipeline(
            site,
            stage("left", "in", "a b"),
            stage("right", "in2 in3", "b"),
            stage("last", "a b", "out", publish="{docid}.xml"),
        )
    )
    made = {one.name for one in site.root.iterdir()}
    assert made == {"in", "in2", "in3", "a", "b", "out"}
    fed = {}
    for name in sorted(made - {"out"}):
        with Queue.open(site.root / name) as queue:
            fed[name] = sorted(os.path.basename(path) for path in queue.feeds())
            assert (site.root / name / ".queuedriver").is_dir()
    assert fed == {"a": ["in"], "b": ["in", "in2", "in3"], "in": [], "in2": [], "in3": []}
    # A plain directory of results is nobody's queue.
    assert os.listdir(site.root / "out") == []


def test_queue_that_was_made_before_and_is_gone_is_not_made_again(site: Site) -> None:
    first = pipeline(site, stage("one", "in", "out"))
    site.ground().prepare(first)
    (site.root / "in/.queuedriver").rmdir()
    (site.root / "in").rmdir()
    longer = pipeline(site, stage("one", "in", "out"), stage("two", "out", "more"))
    with pytest.raises(Exception, match="no queue"):
        Root(str(site.root), str(site.local), first.queues).prepare(longer)
    assert not (site.root / "in").exists()
    # What is new has been made.
    assert (site.root / "more").is_dir()
