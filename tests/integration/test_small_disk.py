"""A real disk that is full, out of inodes, read-only or frozen for a while costs only time."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.disks import Disk, Ext4
from tests.drivers import Running, Site
from tests.testbed.small_disk_processors import double
from tests.waiting import until
from tests.watchdogs import PATIENCE, Yard

DOCUMENTS = 120
TEXT = b"some text " * 200
DISKS = {"bytes": ("16M", 4096), "inodes": ("16M", 400)}


@pytest.fixture(params=DISKS)
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Ext4]:
    with closing(Ext4(tmp_path / "disk", *DISKS[request.param])) as disk:
        yield disk


def begun(site: Site) -> Counter[str]:
    """How often each document was begun; noted on another disk."""
    path = site.beside / "begun"
    return Counter(path.read_text().split() if path.exists() else ())


def crew(site: Site, durable: bool) -> list[Running]:
    """Two drivers of one stage, and one of the next."""
    does = double(site.beside)
    options: dict[str, Any] = {"durable": durable, "retries": 0}
    first = [site.start(does, outputs="mid", driver=f"a-{n}", **options) for n in (1, 2)]
    last = site.start(does, inputs="mid", driver="b", **options)
    for driver, queue in (("a-1", "in"), ("a-2", "in"), ("b", "mid")):
        site.wait_for_start(driver, queue)
    return [*first, last]


def run_through(site: Site, drivers: list[Running]) -> None:
    """To the end; then everything is counted."""
    until(lambda: not site.items() and not site.items("mid"), "all is through")
    for driver in drivers:
        driver.signal()
    assert [driver.ended()[:2] for driver in drivers] == [(0, "quit")] * len(drivers)
    assert site.files() == {f"d{number}.ready": TEXT * 4 for number in range(DOCUMENTS)}
    assert site.discarded() == site.discarded("mid") == []


def submit(site: Site) -> None:
    site.submit(*(f"d{number}" for number in range(DOCUMENTS)), content=TEXT)


def is_given_back(site: Site) -> bool:
    """Whether a document was begun and waits again; in either stage."""
    waiting = {
        f"{queue}/{item.docid}"
        for queue in ("in", "mid")
        for item in site.items(queue)
        if item.state == "ready"
    }
    return not waiting.isdisjoint(begun(site))


@pytest.mark.parametrize("durable", [False, True], ids=["quick", "durable"])
def test_full_disk_in_the_middle_of_a_run_costs_time_only(
    disk: Disk, tmp_path: Path, durable: bool
) -> None:
    with Site(disk.path, beside=tmp_path) as site:
        submit(site)
        drivers = crew(site, durable)
        until(lambda: len(site.files()) > 10, "they are at it")
        disk.fill()
        site.open_gate()
        until(lambda: is_given_back(site), "a document is given back")
        assert all(driver.alive for driver in drivers)
        disk.empty()
        run_through(site, drivers)


def test_disk_that_is_read_only_in_the_middle_of_a_run_costs_time_only(tmp_path: Path) -> None:
    with closing(Ext4(tmp_path / "disk")) as disk:
        (disk.path / "out").mkdir()
        inside = tmp_path / "disk/out"
        # A mount of its own, because a disk with journals open for writing would stay as it is.
        assert disk.tell(f"mount --bind '{inside}' '{inside}'") == 0
        with Site(disk.path, beside=tmp_path) as site:
            submit(site)
            drivers = crew(site, durable=True)
            until(lambda: len(site.files()) > 10, "they are at it")
            # Not while an output is being written.
            remount = f"mount -o remount,ro,bind '{inside}' 2> '{tmp_path}/busy'"
            until(lambda: disk.tell(remount) == 0, "it is read-only")
            site.open_gate()
            until(lambda: "b" in waiting(site), "the driver says that it waits")
            assert all(driver.alive for driver in drivers)
            assert disk.tell(f"mount -o remount,rw,bind '{inside}'") == 0
            run_through(site, drivers)


def waiting(site: Site) -> list[str]:
    """Drivers that wait for the file system."""
    ids = {name for queue in ("in", "mid") for name in site.drivers(queue)}
    return [
        name
        for name in ids
        for queue in ("in", "mid")
        if name in site.drivers(queue) and site.registration(name, queue).state == "waiting-fs"
    ]


def until_still(site: Site) -> None:
    """Until nothing has been begun for a hundred times as long as a document takes."""
    seen, since = begun(site), time.monotonic()
    while time.monotonic() < since + 0.5:
        time.sleep(0.02)
        if (now := begun(site)) != seen:
            seen, since = now, time.monotonic()


def test_disk_that_is_frozen_in_the_middle_of_a_run_costs_time_only(tmp_path: Path) -> None:
    with closing(Ext4(tmp_path / "disk")) as disk:
        inside = tmp_path / "disk"
        with Site(disk.path, beside=tmp_path) as site:
            submit(site)
            drivers = crew(site, durable=False)
            until(lambda: len(site.files()) > 10, "they are at it")
            assert disk.tell(f"fsfreeze -f '{inside}'") == 0
            site.open_gate()
            try:
                until_still(site)
                before = site.files()
                assert all(driver.alive for driver in drivers)
            finally:
                assert disk.tell(f"fsfreeze -u '{inside}'") == 0
            assert len(before) < DOCUMENTS
            run_through(site, drivers)


# A whole pipeline, with its watchdog

# Of the last stage most documents wait for the test: or all might be through too early.
STAGES = (
    'name = "one"\ncall = "stages:obey"\ndrivers = 2',
    """name = "two"
command = ["sh", "-c", 'until [ $(ls "$1/queues/two" | wc -l) -lt 20 -o -e "$1/go" ]; do \
sleep .01; done; cat', "sh", "{root}"]""",
)


@pytest.fixture
def yard(tmp_path: Path, disk: Ext4) -> Iterator[Yard]:
    with Yard(tmp_path) as yard:
        (disk.path / "queues").mkdir()
        (yard.root / "queues").symlink_to(disk.path / "queues")
        yield yard


@pytest.mark.parametrize("disk", ["bytes"], indirect=True)
def test_full_disk_in_the_middle_of_a_pipeline_costs_time_only(disk: Ext4, yard: Yard) -> None:
    yard.write(*(one.format(root=yard.root) for one in STAGES), pipeline="retries = 0")
    yard.file.write_text(yard.file.read_text().replace("durable = false\n", ""))
    for number in range(DOCUMENTS):
        yard.put(f"d{number}", f"slow 0.01 {number}")
    watchdog = yard.run("--drain")
    until(lambda: len(yard.ls("two")) > 5)
    disk.fill()
    (yard.root / "go").touch()
    until(lambda: yard.count("waiting-fs"))
    disk.empty()
    _, said = watchdog.communicate(timeout=PATIENCE)
    assert watchdog.returncode == 0, said
    texts = {name: yard.read(f"two/{name}") for name in yard.ls("two")}
    assert texts == {f"d{n}.ready": f"slow 0.01 {n}" for n in range(DOCUMENTS)}
    assert yard.discarded("input") == yard.discarded("one") == {}
    assert yard.count("crash-looped") == 0
