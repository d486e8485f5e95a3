"""A watchdog's report is a local file, and found while no other file system answers."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from queuedriver.claims.liveness import identify
from tests.disks import Disk
from tests.waiting import PATIENCE, until
from watchdogd.host import answers
from watchdogd.report import HostReport, decode, local_reports, note_file, read_saved, save

FILE = "/hung/pipeline.toml"


def report(local: Path, **fields: object) -> HostReport:
    return HostReport(
        **{"host": "rose", "pid": 1, "identity": identify(1), "started_at": 1.0, "at": 2.0}
        | {"local": str(local), "pipeline": FILE, "root": "/hung/queues"}
        | fields,  # type: ignore[arg-type]
    )


def saved(local: Path) -> HostReport:
    return decode(read_saved(str(local)))


def test_report_is_saved_whole_whatever_the_one_before_was(tmp_path: Path) -> None:
    for pid, size in enumerate((10, 50_000, 20, 0, 40_000)):
        save(report(tmp_path, pid=pid, crash="x" * size))
        assert (saved(tmp_path).pid, len(saved(tmp_path).crash)) == (pid, size)


def test_reader_never_sees_a_part(tmp_path: Path) -> None:
    save(report(tmp_path, pid=0))
    child = os.fork()
    if not child:
        for pid in range(300):
            save(report(tmp_path, pid=pid, crash="x" * (pid % 7 * 9000)))
            # A watchdog waits a hundred times as long.
            time.sleep(0.002)
        os._exit(0)
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        seen = saved(tmp_path)
        assert seen.crash == "x" * (seen.pid % 7 * 9000)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with contextlib.closing(Disk(tmp_path / "disk", "size=1m")) as disk:
        yield disk


def test_full_disk_has_room_for_the_next_report(disk: Disk) -> None:
    for pid in range(2):
        save(report(disk.path, pid=pid))
    disk.fill()
    for pid in range(2, 5):
        save(report(disk.path, pid=pid, crash="x" * 1000))
        assert saved(disk.path).pid == pid


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WATCHDOGD_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


def test_reports_of_a_file_are_found_by_its_path_though_nothing_of_it_is_there(
    state: Path,
) -> None:
    assert local_reports(FILE) == []
    for host, file in (("rose", FILE), ("fern", FILE), ("oak", "/other.toml")):
        local = state / host
        local.mkdir(parents=True)
        # Before its first report a watchdog is not known.
        note_file(file, host, str(local))
        save(report(local, host=host, pipeline=file))
    assert [one.host for one in local_reports(FILE)] == ["fern", "rose"]
    assert [one.host for one in local_reports("/other.toml")] == ["oak"]
    # The next watchdog has its own.
    (state / "next").mkdir()
    note_file(FILE, "fern", str(state / "next"))
    assert [one.host for one in local_reports(FILE)] == ["rose"]


def test_file_system_that_does_not_answer_is_known_in_time_and_an_error_is_an_answer(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "fifo")
    began = time.monotonic()
    assert not answers((tmp_path / "fifo").read_text, limit=0.2)
    assert time.monotonic() - began < 20
    assert answers((tmp_path / "nothing").read_text, limit=PATIENCE)
    assert answers(lambda: None, limit=PATIENCE)
    # What was left behind ends by itself, once it can.
    until(_ended)


def _ended() -> bool:
    try:
        return os.waitpid(-1, os.WNOHANG) != (0, 0)
    except ChildProcessError:
        return True
