"""File systems in trouble: drivers wait, charge nobody, lose nothing, and go on by themselves."""

import errno
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.disks import Disk
from tests.drivers import Running, Site
from tests.faults import EveryNth, Fault
from tests.processors import complain, count, doze, gate
from tests.waiting import until

# What a driver does with names and contents.
CHANGES = ("rename", "rename_new", "remove", "write_new")


@pytest.fixture
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Disk]:
    disk = Disk(tmp_path / "disk", getattr(request, "param", "size=4m"))
    yield disk
    disk.close()


def waits_for_the_file_system(driver: Running, site: Site, docid: str) -> None:
    """Wait until it has met trouble, and has given its document back."""
    until(lambda: site.states().get(docid) == "ready", "the document is given back")
    assert driver.alive


def events(site: Site, docid: str) -> set[str]:
    return {event.event for event in site.events(docid)}


# A disk that is really full, or really read-only


@pytest.mark.parametrize("disk", ["size=4m", "size=4m,nr_inodes=60"], indirect=True)
def test_a_full_disk_is_waited_for_and_nobody_is_charged(disk: Disk, tmp_path: Path) -> None:
    with Site(disk.path, beside=tmp_path) as site:
        site.submit("one", "two", content=b"x" * 5000)
        does = functools.partial(gate, beside=tmp_path)
        driver = site.start(does, order="name", drain=True)
        site.wait_at("one")
        disk.fill()
        site.open_gate()
        waits_for_the_file_system(driver, site, "one")
        assert site.files() == {}
        disk.empty()
        assert driver.ended()[:2] == (0, "drained")
        assert site.files() == {"one.ready": b"X" * 5000, "two.ready": b"X" * 5000}
        assert site.items() == []
        assert events(site, "one") <= {"released", "published"}


def test_a_driver_says_that_it_waits_for_a_full_output(site: Site, disk: Disk) -> None:
    site.submit("one", content=b"x" * 5000)
    out = disk.path / "out"
    driver = site.start(gate, driver="d", outputs=str(out), drain=True)
    site.wait_at("one")
    disk.fill()
    site.open_gate()

    def said() -> str:
        """Return why it waits. Now and then it looks whether it still has to."""
        found = site.registration("d")
        return found.why if found.state == "waiting-fs" else ""

    why = until(said, "it says so")
    assert "No space left on device" in why
    assert "out" in why
    waits_for_the_file_system(driver, site, "one")
    disk.empty()
    ended = driver.ended()
    assert (ended.exit_code, ended.counters.documents, ended.counters.failed) == (0, 1, 0)
    assert events(site, "one") == {"released", "published"}


def test_a_driver_that_waits_for_the_file_system_can_be_asked_to_leave(
    site: Site, disk: Disk
) -> None:
    site.submit("one", content=b"x" * 5000)
    driver = site.start(gate, outputs=str(disk.path / "out"))
    site.wait_at("one")
    disk.fill()
    site.open_gate()
    waits_for_the_file_system(driver, site, "one")
    driver.signal()
    assert driver.ended()[:2] == (0, "quit")
    assert site.states() == {"one": "ready"}


def test_a_command_that_fills_the_disk_is_not_charged(site: Site, disk: Disk) -> None:
    site.submit("one")
    big = site.beside / "big"
    big.touch()
    # It fails for want of space while the test says so.
    script = f"test ! -e {big} || exec dd if=/dev/zero bs=1M count=8 of=$1; echo small > $1"
    driver = site.start(
        ["sh", "-c", script, "sh", "{output}"], outputs=str(disk.path / "out"), drain=True
    )
    until(lambda: "released" in events(site, "one"), "the document is given back")
    assert driver.alive
    big.unlink()
    assert driver.ended().exit_code == 0
    assert (disk.path / "out/one.ready").read_text() == "small\n"
    assert "failed" not in events(site, "one")


def test_a_file_system_that_turns_read_only_is_waited_for(site: Site, disk: Disk) -> None:
    site.submit("one")
    out = disk.path / "out"
    out.mkdir()
    inside = site.root / "disk/out"
    # A mount of its own, because a file system with a file open for writing would stay as it is.
    assert disk.tell(f"mount --bind '{inside}' '{inside}'") == 0
    driver = site.start(gate, driver="d", outputs=str(out), drain=True)
    site.wait_at("one")
    assert disk.tell(f"mount -o remount,ro,bind '{inside}'") == 0
    site.open_gate()
    waits_for_the_file_system(driver, site, "one")
    until(lambda: "Read-only file system" in site.registration("d").why, "it says so")
    assert disk.tell(f"mount -o remount,rw,bind '{inside}'") == 0
    assert driver.ended().exit_code == 0
    assert (out / "one.ready").read_bytes() == b"SOME TEXT"
    assert events(site, "one") == {"released", "published"}


# A file system that fails


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("call", "number"),
    [
        ("rename", errno.EIO),
        ("rename_new", errno.ESTALE),
        ("remove", errno.EROFS),
        ("write_new", errno.EDQUOT),
    ],
)
def test_a_change_that_fails_costs_time_and_nothing_else(
    site: Site, call: str, number: int, done: bool
) -> None:
    site.submit("one", "two", "three")
    fault = Fault(site.root / "broken", (call,), number, done)
    driver = site.start(gate, order="name", drain=True, prepare=fault)
    site.wait_at("one")
    fault.sign.touch()
    site.open_gate()
    until(fault.shown.exists, "it has met the fault")
    fault.sign.unlink()
    ended = driver.ended()
    assert (ended.exit_code, ended.word, ended.counters.failed) == (0, "drained", 0)
    assert site.files() == dict.fromkeys(("one.ready", "two.ready", "three.ready"), b"SOME TEXT")
    assert site.items() == []


@pytest.mark.parametrize("call", ["scan", "status", "present", "read_regular"])
def test_a_look_that_fails_costs_time_and_nothing_else(site: Site, call: str) -> None:
    site.submit("one")
    fault = Fault(site.root / "broken", (call,), errno.ESTALE)
    driver = site.start(gate, prepare=fault)
    site.wait_at("one")
    fault.sign.touch()
    site.open_gate()
    until(fault.shown.exists, "it has met the fault")
    fault.sign.unlink()
    site.submit("two")
    until(lambda: len(site.files()) == 2, "it goes on")
    driver.signal()
    assert driver.ended()[:2] == (0, "quit")
    assert site.items() == []


@pytest.mark.parametrize("durable", [False, True])
def test_whatever_fails_now_and_then_every_document_comes_out_once(
    site: Site, durable: bool
) -> None:
    docids = [f"doc-{number}" for number in range(120)]
    site.submit(*docids)
    calls = (
        *CHANGES,
        "names",
        "status",
        "present",
        "read_regular",
        "sync",
        "sync_all",
        "sync_files",
    )
    drivers = [
        site.start(doze, drain=True, durable=durable, prepare=EveryNth(n, 5, calls))
        for n in (61, 83)
    ]
    assert [driver.ended().exit_code for driver in drivers] == [0, 0]
    assert site.files() == {f"{docid}.ready": b"attempt 0: some text" for docid in docids}
    assert site.items() == []


def test_an_io_error_of_the_processors_own_is_charged(site: Site) -> None:
    site.submit("one")
    assert site.drive(complain).exit_code == 1
    report = site.report("one")
    assert report.failure.message == "OSError: [Errno 5] Input/output error: '/some/other/disk'"
    assert [one.failure.cause for one in report.attempts] == ["exception"] * 2


def test_a_driver_that_cannot_write_at_its_start_says_so_and_ends(site: Site) -> None:
    site.submit("one")
    fault = Fault(site.root / "broken", ("open_new",), errno.EROFS)
    fault.sign.touch()
    ended = site.drive(count, prepare=fault)
    assert ended.exit_code == 74
    assert "Read-only file system" in ended.why
    assert site.states() == {"one": "ready"}
