"""Where a watchdog keeps what is its own; no two drivers have one id."""

import os
import string
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuedriver.format.names import MAX_DRIVER_ID, check_driver_id
from tests.testbed.fuse_mount import Faulty
from tests.testbed.fuse_rules import Rule
from tests.waiting import PATIENCE
from watchdogd.driver_ids import (
    driver_id,
    local_directory,
    lock_path,
    short_host,
    state_directory,
)
from watchdogd.pipeline.model import MAX_DRIVERS, MAX_STAGE_NAME

_HOSTS = st.text(string.ascii_letters + string.digits + ".-_", min_size=1, max_size=40)
_ASK = "from watchdogd.driver_ids import state_directory; print(state_directory())"
_STAGES = st.from_regex(r"[A-Za-z0-9_]+(-[A-Za-z0-9_]+)*", fullmatch=True).filter(
    lambda name: len(name) <= MAX_STAGE_NAME
)


@given(_HOSTS, _STAGES, st.integers(1, MAX_DRIVERS))
def test_driver_id_is_one(host: str, stage: str, slot: int) -> None:
    check_driver_id(driver_id(host, stage, slot))
    assert len(driver_id(host, stage, slot)) <= MAX_DRIVER_ID


@pytest.mark.parametrize(
    ("state", "runtime", "moved"),
    [
        ("ext4", "tmpfs", False),
        ("unknown", "tmpfs", False),
        # A home on a file server is usual.
        ("nfs4", "tmpfs", True),
        ("fuse.sshfs", "tmpfs", True),
        # There is nothing better.
        ("nfs4", "nfs4", False),
    ],
)
def test_what_must_not_wait_is_not_on_a_network_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, runtime: str, moved: bool
) -> None:
    chosen = tmp_path / "home/not/there/yet"
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("WATCHDOGD_STATE", str(chosen))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    def kind_of(path: str) -> str:
        assert Path(path).exists()
        return state if Path(path).name == "home" else runtime

    own = tmp_path / f"queuedriver-{os.getuid()}" / "watchdogd"
    assert state_directory(kind_of) == str(own if moved else chosen)
    # A login and a service, whose runtime directories differ, meet at the lock all the same.
    assert lock_path("/queues", "rose").startswith(str(chosen))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("compute-node-001", "compute-node-002"),
        ("rose.example.org", "rose.example.com"),
        ("a.b", "a_b"),
        ("a-b", "a_b"),
    ],
)
def test_hosts_that_look_alike_are_told_apart(one: str, other: str) -> None:
    assert short_host(one) != short_host(other)


def test_plain_host_keeps_its_name() -> None:
    assert driver_id("rose", "parse", 2) == "rose-parse-2"


def test_pipelines_and_hosts_do_not_share_a_directory_or_a_lock() -> None:
    places = {
        (local_directory(root, host), lock_path(root, host))
        for root in ("/a", "/b")
        for host in ("rose", "lily")
    }
    assert len({local for local, _ in places}) == len({lock for _, lock in places}) == 4


def test_root_that_is_reached_by_a_link_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "queues")
    (tmp_path / "queues").mkdir()
    roots = (str(tmp_path / "link"), str(tmp_path / "queues"))
    assert len({lock_path(root, "rose") for root in roots}) == 1
    assert len({local_directory(root, "rose") for root in roots}) == 1


def test_home_that_does_not_answer_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Faulty(tmp_path / "disk", tmp_path / "home") as home:
        monkeypatch.setenv("WATCHDOGD_STATE", str(home.path / "state"))
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
        home.fail(Rule("*", hold=True))
        asked = subprocess.Popen([sys.executable, "-c", _ASK], stdout=subprocess.PIPE, text=True)
        try:
            said, _ = asked.communicate(timeout=PATIENCE)
        finally:
            home.heal()
    assert said.strip() == str(tmp_path / f"queuedriver-{os.getuid()}" / "watchdogd")


def test_state_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    # Nothing else can say it.
    monkeypatch.setenv("WATCHDOGD_STATE", "/somewhere")
    assert state_directory() == "/somewhere"
    assert local_directory("/data/queues", "rose").startswith("/somewhere/data-queues-")


@pytest.mark.parametrize("root", ["/", "/..", "/ü/ ", f"/a/{'x' * 250}", "/a/.."])
def test_directory_of_any_root_is_a_plain_file_name(root: str) -> None:
    name = Path(local_directory(root, "rose")).name
    assert name.isascii()
    assert 12 < len(name) <= 51
    assert name[0] not in ".-"
