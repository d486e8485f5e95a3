"""No need is served twice: whoever sees it, and wherever a submitter dies."""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from queuedriver.errors import Unreachable
from queuedriver.operating.queue import Queue
from tests.slurm_double import SlurmDouble, slurm
from watchdogd.pipeline.model import Pipeline
from watchdogd.pipeline.read import parse
from watchdogd.slurm import programs
from watchdogd.slurm.ledger import ASK_EVERY, GIVEN_UP, VOID, Facts, Latest, Ledger, Submission
from watchdogd.slurm.script import Chosen
from watchdogd.slurm.squeue import age_words, ask, seen, waiting_words
from watchdogd.slurm.submitting import needs, settle, submit

__all__ = ["slurm"]
TEXT = """
[slurm]
nodes = { min = 1, max = 5 }
[[stage]]
name = "parse"
call = "a:b"
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    root = tmp_path / "queues"
    root.mkdir()
    return parse(TEXT, "p.toml", str(tmp_path / "p.toml"))[0]


@pytest.fixture
def ledger(pipeline: Pipeline) -> Iterator[Ledger]:
    with Ledger.open(pipeline.root, create=True) as opened:
        yield opened


def age(ledger: Ledger, seconds: float, *names: str) -> None:
    """Let files be older, by the file system's clock."""
    for name in names:
        at = time.time() - seconds
        os.utime(ledger.path(name), (at, at))


def asked_anew(ledger: Ledger, pipeline: Pipeline) -> Facts:
    """Ask as if it were time for that."""
    age(ledger, ASK_EVERY + 1, *(name for name in ledger.directory.names() if "asked" in name))
    assert ask(ledger, pipeline)
    return ledger.facts()


def serve(ledger: Ledger, pipeline: Pipeline, latest: Latest, facts: Facts) -> Latest | None:
    """Submit what is missing, as whoever comes by does."""
    (need,) = needs(pipeline, ledger, facts)
    return submit(pipeline, ledger, latest, need, ("watchdogd",), Chosen())


# One of many


def test_of_many_who_make_one_number_one_does(ledger: Ledger) -> None:
    made = []
    barrier = threading.Barrier(8)

    def begin() -> None:
        barrier.wait()
        made.append(ledger.begin(Submission(number=1), ""))

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sorted(made) == [False] * 7 + [True]


def test_two_who_see_one_need_submit_it_once(
    ledger: Ledger, pipeline: Pipeline, slurm: SlurmDouble
) -> None:
    latest, facts = ledger.latest(), asked_anew(ledger, pipeline)
    assert serve(ledger, pipeline, latest, facts) == Latest(1, "job 100")
    # The other one looked before.
    assert serve(ledger, pipeline, latest, facts) is None
    assert len(slurm.jobs) == 1
    assert needs(pipeline, ledger, asked_anew(ledger, pipeline)) == []


# A submitter that dies


def test_a_submission_that_nobody_has_heard_of_is_looked_for_in_slurm(
    ledger: Ledger, pipeline: Pipeline, slurm: SlurmDouble
) -> None:
    slurm.mark("lose")
    latest, facts = ledger.latest(), asked_anew(ledger, pipeline)
    with pytest.raises(programs.Silent):
        serve(ledger, pipeline, latest, facts)
    # Whoever comes next does not know, and submits nothing.
    assert settle(ledger, facts) is None
    settled = settle(ledger, asked_anew(ledger, pipeline))
    assert settled is not None
    assert settled.end == "job 100"
    assert needs(pipeline, ledger, ledger.facts()) == []


def test_a_submission_that_never_came_to_slurm_is_given_up_and_made_anew(
    ledger: Ledger, pipeline: Pipeline, slurm: SlurmDouble
) -> None:
    # Its submitter died before sbatch.
    assert ledger.begin(Submission(number=1, elements=1), "")
    assert settle(ledger, asked_anew(ledger, pipeline)) is None
    age(ledger, GIVEN_UP + 1, "1.json")
    settled = settle(ledger, asked_anew(ledger, pipeline))
    assert settled is not None
    assert (settled.number, settled.end) == (1, VOID)
    assert serve(ledger, pipeline, settled, ledger.facts()) == Latest(2, "job 100")


def test_old_news_gives_no_submission_up(ledger: Ledger, pipeline: Pipeline) -> None:
    assert ledger.begin(Submission(number=1), "")
    age(ledger, GIVEN_UP + 1, "1.json")
    before = ledger.latest().began_at - 1
    assert settle(ledger, Facts(question=3, asked_at=before)) is None


def test_who_has_asked_before_anothers_submission_ended_submits_nothing(
    ledger: Ledger, pipeline: Pipeline, slurm: SlurmDouble
) -> None:
    ours = asked_anew(ledger, pipeline)
    theirs = settle(ledger, asked_anew(ledger, pipeline))
    assert theirs is not None
    assert serve(ledger, pipeline, theirs, ledger.facts()) == Latest(1, "job 100")
    assert settle(ledger, ours) is None
    assert settle(ledger, asked_anew(ledger, pipeline)) is not None
    assert len(slurm.jobs) == 1


def test_who_submits_too_late_takes_it_back(
    ledger: Ledger, pipeline: Pipeline, slurm: SlurmDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    latest, facts = ledger.latest(), asked_anew(ledger, pipeline)
    real = programs.submit

    def late(script: str) -> str:
        job = real(script)
        ledger.end(1, VOID)
        return job

    monkeypatch.setattr(programs, "submit", late)
    assert serve(ledger, pipeline, latest, facts) is None
    assert slurm.lines("cancelled") == ["100"]
    assert ledger.end_of(1) == VOID


def test_the_first_word_on_a_submission_stands(ledger: Ledger) -> None:
    assert ledger.end(1, "job 7") == "job 7"
    assert ledger.end(1, VOID) == "job 7"


def test_what_slurm_refuses_was_not_submitted(
    ledger: Ledger, pipeline: Pipeline, slurm: SlurmDouble
) -> None:
    slurm.mark("refuse", "sbatch: error: invalid partition specified: foo")
    latest, facts = ledger.latest(), asked_anew(ledger, pipeline)
    with pytest.raises(programs.Refused, match="sbatch: invalid partition specified: foo"):
        serve(ledger, pipeline, latest, facts)
    slurm.unmark("refuse")
    settled = settle(ledger, asked_anew(ledger, pipeline))
    assert settled is not None
    assert serve(ledger, pipeline, settled, ledger.facts()) == Latest(2, "job 100")


# What is asked


def test_slurm_is_asked_once_in_ten_seconds_whoever_looks(
    pipeline: Pipeline, slurm: SlurmDouble
) -> None:
    with Ledger.open(pipeline.root, create=True) as ledger:
        for _ in range(20):
            seen(pipeline)
        assert len(slurm.lines("asked")) == 1
        asked_anew(ledger, pipeline)
        seen(pipeline)
    assert len(slurm.lines("asked")) == 2


def test_while_slurm_does_not_answer_it_is_told_what_it_said_last_and_how_long_ago(
    ledger: Ledger, pipeline: Pipeline, slurm: SlurmDouble
) -> None:
    (need,) = needs(pipeline, ledger, Facts(), {"": 3})
    submit(pipeline, ledger, Latest(0, VOID), need, ("watchdogd",), Chosen())
    facts = asked_anew(ledger, pipeline)
    assert waiting_words(facts, facts.at) == "waits for Slurm: 3 elements pending (Priority)"
    slurm.mark("silent")
    facts = asked_anew(ledger, pipeline)
    assert waiting_words(facts, facts.at + 90) == (
        "waits for Slurm: 3 elements pending (Priority) (said 1 min 30 s ago; since then: squeue: "
        "slurm_load_jobs error: Unable to contact slurm controller)"
    )
    # Nobody submits for want of an answer.
    assert settle(ledger, facts) is not None
    slurm.unmark("silent")
    assert age_words(asked_anew(ledger, pipeline), time.time()) == ""


def test_where_there_is_no_slurm_that_is_said_in_a_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unreachable, match="squeue is not installed; there is no Slurm"):
        programs.call(programs.questions("p"))


# What is asked for


def test_a_number_that_somebody_asked_for_holds_in_place_of_the_files(
    ledger: Ledger, pipeline: Pipeline
) -> None:
    ledger.scale("", 4)
    (need,) = needs(pipeline, ledger, Facts())
    assert need.elements == 4
    ledger.scale("", None)
    (need,) = needs(pipeline, ledger, Facts())
    assert need.elements == 1


def test_documents_of_a_stage_that_is_paused_call_for_nobody(pipeline: Pipeline) -> None:
    text = TEXT.replace("min = 1", "min = 0")
    one = parse(text, "p.toml", pipeline.file)[0]
    with (
        Queue.open(one.path("input"), create=True) as queue,
        Ledger.open(one.root, create=True) as ledger,
    ):
        queue.submit("d", b"x")
        assert [need.elements for need in needs(one, ledger, Facts())] == [1]
        queue.set_control("PAUSE", wanted=True)
        assert needs(one, ledger, Facts()) == []
