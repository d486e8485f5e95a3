"""What is said above the numbers."""

from pathlib import Path

import pytest

from tests.cli.pipelines import driver, make, publish, report
from watchdogd.cli.pipeline_argument import choose
from watchdogd.operators.sentences import AMISS, Sentence, loudness, sentences_of
from watchdogd.operators.view import look
from watchdogd.report import HostReport, StageReport


def said(directory: Path, report: HostReport) -> list[Sentence]:
    """What is said of what a watchdog reports, whose files do not answer."""
    file = make(directory)
    publish(file, report)
    return list(sentences_of(look(choose(str(file))._replace(hung=True))))


OF_STAGE = ("degraded", "paused", "tripped", "quit")


@pytest.mark.parametrize("state", [*OF_STAGE, *AMISS, "waiting-fs"])
def test_state_is_as_loud_as_what_is_said_of_it(state: str, tmp_path: Path) -> None:
    about = "parse-2 "
    told = report(drivers=(driver("parse-2", state=state, why="why"),))
    if state in OF_STAGE:
        about, told = "parse", report(stages=(StageReport(name="parse", state=state, why="why"),))
    elif state == "waiting-fs":
        about, told = "rose waits for the file system", report(state=state)
    (sentence,) = [one for one in said(tmp_path, told) if about in one.text.partition(":")[0]]
    assert sentence.bad == (loudness(state) == "bad")
