"""One watchdog for each host and root, and the second hears of the first."""

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from queuedriver.claims.liveness import identify
from queuedriver.errors import IdHeld
from queuedriver.format.records import encode
from tests.disks import Silent
from watchdogd.driver_ids import STATE_VARIABLE
from watchdogd.lock import only_one, refuse_another
from watchdogd.report import HostReport, save

ME = identify(os.getpid())
ELSEWHERE = replace(ME, namespace=ME.namespace + 1)
REPORT = HostReport(
    host="rose", pid=7, identity=ME, started_at=1.0, at=2.0, pipeline="/a.toml", local="/other"
)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "state"))
    return tmp_path / "state"


def test_second_is_refused_and_told_of_the_first(tmp_path: Path) -> None:
    local = str(tmp_path)
    with only_one("/queues", "rose", local):
        save(replace(REPORT, started_at=1_800_000_000.0, local=local))
        with pytest.raises(IdHeld) as refusal, only_one("/queues", "rose", local):
            pass
        assert "process 7, with /a.toml and its records in" in str(refusal.value)
        assert "since 2027-" in str(refusal.value)
        assert refusal.value.exit_code == 69


def test_other_roots_and_hosts_are_other_pipelines() -> None:
    with (
        only_one("/queues", "rose", "/local"),
        only_one("/queues", "lily", "/local"),
        only_one("/others", "rose", "/local"),
    ):
        pass


def test_who_leaves_makes_room_for_the_next() -> None:
    for _ in range(2):
        with only_one("/queues", "rose", "/local"):
            pass


GONE = encode(replace(REPORT, identity=replace(ME, ticks=ME.ticks + 1)))


@pytest.mark.parametrize("said", [None, b"", b"no json", GONE])
def test_holder_that_is_not_known_is_no_reason_to_go_on(tmp_path: Path, said: bytes | None) -> None:
    if said is not None:
        (tmp_path / "report.json").write_bytes(said)
    with (
        only_one("/queues", "rose", str(tmp_path)),
        pytest.raises(IdHeld, match="another watchdogd keeps"),
        only_one("/queues", "rose", str(tmp_path)),
    ):
        pass


# Another watchdog, of another place


@pytest.fixture
def say(tmp_path: Path) -> Callable[[HostReport], None]:
    """Says something in the name of another watchdog."""
    hosts = tmp_path / "queues/.watchdogd/hosts"
    hosts.mkdir(parents=True)

    def say(report: HostReport) -> None:
        (hosts / "aside").write_bytes(encode(report))
        (hosts / "aside").rename(hosts / "rose.json")

    return say


def listen(
    tmp_path: Path, silence: float = 0.2, meanwhile: Callable[[], None] = lambda: None
) -> list[str]:
    """What is said before a watchdog is let begin; what is done while it listens to another."""
    said: list[str] = []

    def say(words: str) -> None:
        said.append(words)
        meanwhile()

    refuse_another(str(tmp_path / "queues"), "rose", say, silence)
    return said


def test_second_with_another_state_directory_is_refused(
    say: Callable[[HostReport], None], tmp_path: Path
) -> None:
    say(REPORT)
    with pytest.raises(
        IdHeld, match=r"with /a\.toml and its records in /other since .*, keeps"
    ) as refusal:
        listen(tmp_path)
    assert refusal.value.exit_code == 69


def test_second_on_another_host_of_that_name_is_refused(
    say: Callable[[HostReport], None], tmp_path: Path
) -> None:
    say(replace(REPORT, identity=ELSEWHERE, at=11.0))
    with pytest.raises(IdHeld, match="--host"):
        listen(tmp_path, 60.0, lambda: say(replace(REPORT, identity=ELSEWHERE, at=12.0)))


@pytest.mark.parametrize(
    "report",
    [
        # A process that is no more, or another's number by now.
        replace(REPORT, identity=replace(ME, ticks=ME.ticks + 1)),
        replace(REPORT, state="stopped"),
        replace(REPORT, identity=ELSEWHERE, state="stopped"),
        replace(REPORT, host="rose!"),
    ],
)
def test_who_has_gone_is_not_waited_for(
    say: Callable[[HostReport], None], tmp_path: Path, report: HostReport
) -> None:
    say(report)
    assert listen(tmp_path, silence=3600.0) == []


def test_container_that_is_started_anew_is_not_refused_for_ever(
    say: Callable[[HostReport], None], tmp_path: Path
) -> None:
    say(replace(REPORT, identity=ELSEWHERE))
    (said,) = listen(tmp_path)
    assert "process 7" in said


def test_other_that_leaves_meanwhile_makes_room(
    say: Callable[[HostReport], None], tmp_path: Path
) -> None:
    say(replace(REPORT, identity=ELSEWHERE))
    assert listen(tmp_path, 60.0, lambda: say(replace(REPORT, identity=ELSEWHERE, state="stopped")))


@pytest.mark.parametrize("said", [b"", b"no json"])
def test_what_is_no_report_keeps_nobody_from_starting(tmp_path: Path, said: bytes) -> None:
    assert listen(tmp_path) == []
    (tmp_path / "queues/.watchdogd/hosts").mkdir(parents=True)
    (tmp_path / "queues/.watchdogd/hosts/rose.json").write_bytes(said)
    assert listen(tmp_path) == []


def test_root_that_does_not_answer_is_not_waited_for(tmp_path: Path) -> None:
    with closing(Silent(tmp_path / "silent")) as silent:
        refuse_another(str(silent.path), "rose", lambda _: None)
