"""How many elements there are to be, and which may leave."""

from collections.abc import Mapping, Sequence

import pytest

from watchdogd.pipeline.model import Drivers, Pipeline
from watchdogd.pipeline.read import parse
from watchdogd.report import DriverReport, HostReport, StageReport
from watchdogd.slurm.attendant import Rest, may_leave, rest_of
from watchdogd.slurm.elements import Element, requests
from watchdogd.slurm.submissions import wanted

TEXT = """
[slurm]
target = "100 s"
nodes = { min = 0, max = 9 }
[[stage]]
name = "read"
call = "a:b"
drivers = { min = 1, max = 4 }
[[stage]]
name = "ocr"
call = "a:b"
[stage.slurm]
per = "driver"
"""


@pytest.fixture
def pipeline() -> Pipeline:
    return parse(TEXT, "p.toml", "/p.toml")[0]


def numbers(
    pipeline: Pipeline,
    waiting: Mapping[str, int],
    reports: Sequence[HostReport],
    least: int = 0,
    most: int = 20,
) -> list[int]:
    """Return how many elements of each group are to be there."""
    limits = Drivers(least, most)
    return [wanted(pipeline, one, limits, (waiting, reports)) for one in requests(pipeline)]


def host(name: str, read: int, service: float | None, ocr: float | None = None) -> HostReport:
    return HostReport(
        host=name,
        pid=1,
        identity=None,  # type: ignore[arg-type]
        started_at=0.0,
        at=0.0,
        stages=(
            StageReport(name="read", wanted=read, service=service),
            StageReport(name="ocr", service=ocr),
        ),
    )


@pytest.mark.parametrize(
    ("waiting", "nodes"),
    # One element does four documents in two seconds.
    [(0, 0), (199, 1), (200, 1), (201, 2), (2000, 10), (9999, 20)],
)
def test_as_many_as_do_what_waits_within_the_target(
    waiting: int, nodes: int, pipeline: Pipeline
) -> None:
    assert numbers(pipeline, {"input": waiting}, [host("1_1", 4, 2.0)])[0] == nodes
    # Never fewer than the least.
    most = [host("1_1", 4, 2.0)]
    assert numbers(pipeline, {"input": waiting}, most, least=2)[0] == max(2, nodes)


def test_work_is_what_waits_for_a_stage_and_upstream_at_the_pace_of_all_hosts(
    pipeline: Pipeline,
) -> None:
    reports = [host("1_1", 4, 20.0), host("1_2", 2, 40.0), host("2_1", 0, None, 30.0)]
    waiting = {"input": 100, "read": 7}
    # 30 s a document, and three drivers, in 100 s each; of a stage with elements of its own each
    # is one driver.
    assert numbers(pipeline, waiting, reports, most=99) == [10, 33]
    # Of those that have said nothing yet there are as many as the file says.
    assert numbers(pipeline, waiting, [host("1_1", 0, 20.0)]) == [5, 1]
    # Nobody has ever said anything: one is to find out.
    assert numbers(pipeline, waiting, []) == [1, 1]
    assert numbers(pipeline, {"read": 7}, []) == [0, 1]


def elements(*hosts: str) -> list[Element]:
    """Return elements that run, each begun a second after the one before."""
    return [
        Element(name=host, jobs=(host,), host=host, state="running", starts_at=float(at))
        for at, host in enumerate(hosts)
    ]


@pytest.mark.parametrize(
    ("number", "leaving"),
    [(0, ["a", "b", "c"]), (1, ["a", "b"]), (2, ["a"]), (3, []), (9, [])],
)
def test_of_those_that_run_the_first_leave_until_enough_are_left(
    number: int, leaving: list[str]
) -> None:
    here = elements("a", "b", "c")
    # In whichever order squeue tells of them: each decides alone, and all decide the same.
    for told in (here, here[::-1]):
        assert [one for one in "abc" if may_leave(told, one, number)] == leaving


def test_an_element_that_slurm_does_not_know_to_run_does_not_leave() -> None:
    pending = Element(name="5_1", jobs=("5_1",), host="5_1", state="pending")
    assert not may_leave([pending, *elements("a")], "5_1", 0)


def report(*drivers: tuple[str, str, int]) -> HostReport:
    found = tuple(
        DriverReport(name="p-1", id="p-1", stage="p", state=state, document=docid, documents=done)
        for state, docid, done in drivers
    )
    one = host("a", 0, None)
    return HostReport(
        host=one.host, pid=1, identity=one.identity, started_at=0.0, at=0.0, drivers=found
    )


def test_an_element_is_idle_for_as_long_as_no_driver_has_had_anything_to_do() -> None:
    rest: Rest = (None, 0.0)

    def idle(said: HostReport | None, now: float) -> float:
        nonlocal rest
        rest = rest_of(said, rest, now)
        return now - rest[1]

    assert idle(report(("busy", "d", 0), ("ready", "", 0)), 10.0) == 0.0
    assert idle(report(("ready", "", 1), ("ready", "", 0)), 20.0) == 0.0
    assert idle(report(("ready", "", 1), ("ready", "", 0)), 50.0) == 30.0
    # A short document between two looks.
    assert idle(report(("ready", "", 2), ("ready", "", 0)), 60.0) == 0.0
    assert idle(report(("ready", "", 2), ("stopped", "", 0)), 65.0) == 5.0
    # What starts, or is full behind, waits for something.
    assert idle(report(("starting", "", 2), ("blocked", "", 0)), 70.0) == 0.0
    assert idle(report(("starting", "", 2), ("blocked", "", 0)), 75.0) == 0.0
    assert idle(None, 90.0) == 0.0
