"""What `watchdogd run` tells of how far it is, where nobody sits before it."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from watchdogd.cli.progress import Progress

Capfd = pytest.CaptureFixture[str]


def stage(name: str, output: str, done: int, backlog: int, coming: int, drivers: int) -> Any:
    keeper = SimpleNamespace(
        stage=SimpleNamespace(name=name, inputs=("in",), outputs=(output,)),
        totals=SimpleNamespace(documents=done),
        pace=SimpleNamespace(rate=2.0, service=0.5 if drivers else None),
        living=["a driver"] * drivers,
    )
    return keeper, SimpleNamespace(backlog=backlog, coming=coming)


def watchdog(*stages: Any, trouble: str = "") -> Any:
    return SimpleNamespace(
        stages=SimpleNamespace(
            everyone=[one for one, _ in stages],
            managed={one.stage.name: one for one, _ in stages},
            loads=lambda: [load for _, load in stages],
        ),
        helper=SimpleNamespace(trouble=lambda _: trouble),
        pipeline=SimpleNamespace(results=("out",)),
    )


FIRST = stage("values", "values", 30, 20, 0, 1)
LAST = stage("out", "out", 10, 20, 20, 4)


def said(capfd: Capfd, watched: Any, *, drain: bool = True, quiet: bool = False) -> list[str]:
    """What is said in the minute after the first, and in the one after that."""
    progress = Progress(quiet=quiet, drain=drain)
    now = time.monotonic()
    for later in (1.0, 61.0, 100.0, 125.0):
        progress(watched, now + later)
        progress.close()
    return [line.partition(": ")[2] for line in capfd.readouterr().err.splitlines()]


def test_file_is_told_once_a_minute_how_far_a_drain_is_and_when_it_will_be_done(
    capfd: Capfd,
) -> None:
    line = "40%  2.0/s  10 s left  values 20 × 1  out 20 × 4"
    first, second = said(capfd, watchdog(FIRST, LAST))
    assert first == second == f"[##########..............]  {line}"


@pytest.mark.parametrize("how", [{"drain": False}, {"quiet": True}])
def test_file_is_told_nothing_where_nothing_is_to_end_or_nobody_wants_it(
    how: dict[str, bool], capfd: Capfd
) -> None:
    assert said(capfd, watchdog(FIRST, LAST), **how) == []


def test_no_time_is_promised_for_a_stage_without_drivers(capfd: Capfd) -> None:
    (line, _) = said(capfd, watchdog(FIRST, stage("out", "out", 0, 5, 20, 0)))
    assert "left" not in line
    assert "out 5 × 0" in line


def test_trouble_is_told_before_numbers_and_an_end_has_no_time_left(capfd: Capfd) -> None:
    done = stage("out", "out", 10, 0, 0, 4)
    (line, _) = said(capfd, watchdog(done, trouble="/data does not answer"))
    assert line.endswith("] 100%  /data does not answer  2.0/s  out 0 × 4")
