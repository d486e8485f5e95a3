"""What a watchdog asks of its helper, and when."""

import os
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from queuedriver.driving.live_status import Board, Totals
from watchdogd.children import Child, Children
from watchdogd.driver_ids import STATE_VARIABLE
from watchdogd.events import Events
from watchdogd.helper import Helper
from watchdogd.helper_messages import Brief, Errands
from watchdogd.pipeline.model import Drivers, Pipeline, Stage
from watchdogd.report import last_report, local_reports
from watchdogd.requests import Signals
from watchdogd.sizes import Size
from watchdogd.stage_drivers import Context
from watchdogd.supervisor import Supervisor
from watchdogd.systemd import Notifier

STAGE = Stage(name="parse", inputs=("in",), outputs=(), drivers=Drivers(1, 1), kind="call", work="")
PIPELINE = Pipeline(name="p", file="/p.toml", root="/queues", stages=(STAGE,))


class Asked(Helper):
    """A helper that notes what it is asked for."""

    def __init__(self, brief: Brief, events: Events) -> None:
        super().__init__(brief, Children(), events.say)
        self.asked: list[Errands] = []

    def ask(self, errands: Errands) -> None:
        self.asked.append(errands)


@pytest.fixture
def watchdog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Supervisor:
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "state"))
    children, local = Children(), str(tmp_path / "state/local")
    events = Events(local, "rose", str(tmp_path), children)
    helper = Asked(Brief(pipeline=PIPELINE, host="rose", local=local), events)
    context = Context("rose", local, helper.view, events.say, children)
    notifier = Notifier({}, os.getpid())
    return Supervisor(PIPELINE, context, helper, events, Signals(), notifier)


def asked(watchdog: Supervisor) -> list[Errands]:
    assert isinstance(watchdog.helper, Asked)
    return watchdog.helper.asked


def test_report_in_which_nothing_changed_asks_nothing_of_the_helper(watchdog: Supervisor) -> None:
    watchdog.stages.set_stages(PIPELINE, 100.0)
    saved = set()
    for now in (100.0, 110.0, 120.0):
        watchdog._publish(now)
        report = last_report(watchdog.context.local)
        assert report is not None
        saved.add(report.at)
    assert asked(watchdog) == [Errands(report=True)]
    # Whoever looks here sees that it lives.
    assert len(saved) == 3


def test_report_is_found_by_the_files_path_again_though_all_records_were_removed(
    watchdog: Supervisor, tmp_path: Path
) -> None:
    for now in (100.0, 110.0):
        watchdog._publish(now)
        assert [one.host for one in local_reports(PIPELINE.file)] == ["rose"]
        shutil.rmtree(tmp_path / "state")


@pytest.mark.parametrize(("works", "reports"), [(False, 3), (True, 6)])
def test_report_is_saved_half_as_often_while_nothing_is_done(
    watchdog: Supervisor, tmp_path: Path, works: bool, reports: int
) -> None:
    watchdog.stages.set_stages(PIPELINE, 100.0)
    (drivers,) = watchdog.stages.everyone
    drivers.resize(Size(1, 1))
    (slot,) = drivers.slots
    path = str(tmp_path / "board")
    with closing(Board.create(path)) as board:
        slot.begin(Child(os.getpid()), Board.open(path), STAGE, 100.0)
        board.ready(100.0)
        saved = set()
        for step in range(48):
            # The time for which it has waited is always another.
            board.count(Totals(work=works * step, wait=step))
            slot.look(100.0 + step / 4, 0.25, fs_ok=True)
            watchdog._publish(100.0 + step / 4)
            report = last_report(watchdog.context.local)
            assert report is not None
            saved.add(report.at)
    # In twelve seconds; a report comes a quarter sooner with a turn that is made anyway.
    assert reports <= len(saved) <= 1.5 * reports


def test_helper_is_told_of_the_processes_of_drivers_when_they_are_others(
    watchdog: Supervisor,
) -> None:
    for drivers in ((), (7, 8), (7, 8), (9,), ()):
        watchdog.helper.measure(drivers)
    assert asked(watchdog) == [Errands(drivers=(7, 8)), Errands(drivers=(9,)), Errands(drivers=())]
