"""No need is served twice: whoever sees it, and wherever a submitter dies."""

import errno
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from queuedriver.disk.filesystem import Directory
from queuedriver.disk.processes import MARKER
from queuedriver.errors import NotFound, Unreachable
from queuedriver.operating.queue import Queue
from tests.slurm_double import SlurmDouble, slurm
from watchdogd.children import LIFE
from watchdogd.pipeline.model import HOUR, Pipeline
from watchdogd.pipeline.read import parse
from watchdogd.slurm import programs
from watchdogd.slurm.attendant import tidy
from watchdogd.slurm.elements import LOGS, Element, Facts, age_words, waiting_words
from watchdogd.slurm.submissions import (
    ASK_EVERY,
    GIVEN_UP,
    VOID,
    Ledger,
    UnderWay,
    below,
    ended_at_once,
    key,
    missing,
    seen,
    settle,
    submit_missing,
)

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
    with Ledger.open(pipeline, create=True) as opened:
        yield opened


def age(ledger: Ledger, seconds: float, *names: str) -> None:
    """Let files be older, by the file system's clock."""
    for name in names:
        at = time.time() - seconds
        os.utime(name, (at, at), dir_fd=ledger.directory.fd)


def asked_anew(ledger: Ledger) -> Facts:
    """Ask as if it were time for that."""
    age(ledger, ASK_EVERY + 1, *(name for name in ledger.directory.names() if "asked" in name))
    assert ledger.ask()
    return ledger.facts()


def serve(ledger: Ledger, facts: Facts) -> list[str]:
    """Submit what is missing, as whoever comes by does; return what is said of it."""
    return list(submit_missing(ledger, facts, {}, {}))


def ends(ledger: Ledger) -> list[str]:
    """Return what came of each submission."""
    found = (ledger.end_of(number) for number in range(1, ledger.latest() + 1))
    return [one.word for one in found if one is not None]


def needs(ledger: Ledger, facts: Facts) -> list[int]:
    return [elements for _, elements in missing(ledger, facts, {})]


ONE = ["submitted 1 element for nodes: job 100"]


# One of many


def test_of_many_who_make_one_number_one_does(ledger: Ledger) -> None:
    made = []
    barrier = threading.Barrier(8)

    def begin() -> None:
        barrier.wait()
        made.append(ledger.begin(1, b""))

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sorted(made) == [False] * 7 + [True]


def test_two_who_see_one_need_submit_it_once(ledger: Ledger, slurm: SlurmDouble) -> None:
    facts = asked_anew(ledger)
    real = ledger.begin
    with pytest.MonkeyPatch.context() as patched:

        def begin(number: int, script: bytes) -> bool:
            """The other one looked before, and begins a moment earlier."""
            patched.undo()
            assert serve(ledger, facts) == ONE
            return real(number, script)

        patched.setattr(ledger, "begin", begin)
        with pytest.raises(UnderWay):
            serve(ledger, facts)
    assert len(slurm.jobs) == 1
    assert needs(ledger, asked_anew(ledger)) == []


@pytest.mark.parametrize("mark", [LIFE, MARKER, "SLURM_JOB_ID"])
def test_what_an_element_submits_is_not_taken_for_a_child_of_its_watchdog(
    mark: str,
    ledger: Ledger,
    slurm: SlurmDouble,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What a watchdog gives its attendant, and a driver its programs, and sbatch gives to jobs: when
    # the one ends, whatever has it on that node is killed.
    monkeypatch.setenv(mark, "7.8/000000009")
    monkeypatch.setenv("HOME", "/home/ann")
    assert serve(ledger, asked_anew(ledger)) == ONE
    environ = json.loads(slurm.lines("environ")[-1])
    assert (environ["HOME"], environ.get(mark)) == ("/home/ann", None)


@pytest.mark.parametrize(
    ("name", "is_left"),
    [
        *(("SBATCH_JOB_NAME", False), ("SBATCH_ARRAY_INX", False), ("SBATCH_WAIT", False)),
        *(("SQUEUE_USERS", False), ("SCANCEL_INTERACTIVE", False), ("SCONTROL_ALL", False)),
        # Where the script says nothing else: whom it is charged to.
        *(("SBATCH_ACCOUNT", True), ("SBATCH_PARTITION", False)),
    ],
)
def test_what_people_have_chosen_for_their_own_jobs_changes_nothing_that_is_said(
    name: str,
    is_left: bool,
    ledger: Ledger,
    pipeline: Pipeline,
    slurm: SlurmDouble,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(name, "theirs")
    assert pipeline.slurm is not None
    ledger.pipeline = replace(pipeline, slurm=replace(pipeline.slurm, partition="long"))
    assert serve(ledger, asked_anew(ledger)) == ONE
    assert (name in json.loads(slurm.lines("environ")[-1])) is is_left


@pytest.mark.parametrize(
    ("said", "job"), [("note: be brief\n7;main", "7"), ("7", "7"), ("done", ""), ("", "")]
)
def test_of_what_sbatch_prints_a_number_at_its_end_is_the_job(
    said: str, job: str, slurm: SlurmDouble
) -> None:
    program = slurm.directory / "sbatch"
    program.write_text(f"#!/bin/sh\ncat >/dev/null\nprintf '%s\\n' '{said}'\n")
    if job:
        assert programs.submit(b"") == job
    else:
        # It may have been submitted.
        with pytest.raises(programs.Silent, match="no number of a job"):
            programs.submit(b"")


def test_a_partition_that_does_not_say_whether_it_is_the_usual_one_is_not(
    slurm: SlurmDouble,
) -> None:
    program = slurm.directory / "scontrol"
    program.write_text("#!/bin/sh\necho PartitionName=a\necho Default=YES MaxTime=0-01:00:00\n")
    assert programs.longest("") == 3600.0


def test_more_elements_than_an_array_may_have_are_several_submissions(
    ledger: Ledger, slurm: SlurmDouble
) -> None:
    ledger.scale("", 210)
    said = serve(ledger, asked_anew(ledger))
    assert [line.split()[1] for line in said] == ["100", "100", "10"]
    assert [job["array_task_string"] for job in slurm.jobs] == ["1-100", "1-100", "1-10"]
    assert needs(ledger, asked_anew(ledger)) == []


# A submitter that dies


@pytest.mark.parametrize(
    "said",
    [
        "Socket timed out on send/recv operation",
        # Of a controller that was killed meanwhile.
        "Zero Bytes were transmitted or received",
        "Unexpected missing socket error",
        "Unable to contact slurm controller (receive failure)",
        "Message receive failure",
    ],
)
def test_a_submission_that_nobody_has_heard_of_is_looked_for_in_slurm(
    said: str, ledger: Ledger, slurm: SlurmDouble
) -> None:
    slurm.mark("lose", said)
    facts = asked_anew(ledger)
    with pytest.raises(programs.Silent):
        serve(ledger, facts)
    # Whoever comes next does not know, and submits nothing.
    with pytest.raises(UnderWay):
        settle(ledger, facts)
    assert settle(ledger, asked_anew(ledger)) == 1
    assert ends(ledger) == ["job 100"]
    assert needs(ledger, ledger.facts()) == []


def test_a_submission_that_never_came_to_slurm_is_given_up_and_made_anew(
    ledger: Ledger, slurm: SlurmDouble
) -> None:
    # Its submitter died before sbatch.
    assert ledger.begin(1, b"")
    with pytest.raises(UnderWay):
        settle(ledger, asked_anew(ledger))
    age(ledger, GIVEN_UP + 1, "1.sh")
    assert serve(ledger, asked_anew(ledger)) == ONE
    assert ends(ledger) == [VOID, "job 100"]


def test_old_news_gives_no_submission_up(ledger: Ledger, slurm: SlurmDouble) -> None:
    before = asked_anew(ledger)
    assert ledger.begin(1, b"")
    age(ledger, GIVEN_UP + 10, "1.sh")
    age(ledger, GIVEN_UP + 11, f"asked-{before.question}")
    with pytest.raises(UnderWay):
        settle(ledger, before)
    # Nor does an answer to a question before the last one.
    asked_anew(ledger)
    with pytest.raises(UnderWay):
        settle(ledger, before)


@pytest.mark.parametrize("step", [-HOUR, HOUR])
def test_a_clock_that_is_set_keeps_nobody_from_submitting(
    step: float, ledger: Ledger, slurm: SlurmDouble
) -> None:
    assert serve(ledger, asked_anew(ledger)) == ONE
    # All that was made before the file server's clock was set.
    age(ledger, step, *(name for name in ledger.directory.names() if name[0] != "."))
    slurm.say([])
    assert ledger.ask()
    assert serve(ledger, ledger.facts()) == ["submitted 1 element for nodes: job 100"]


def test_who_has_asked_before_anothers_submission_ended_submits_nothing(
    ledger: Ledger, slurm: SlurmDouble
) -> None:
    ours = asked_anew(ledger)
    assert serve(ledger, asked_anew(ledger)) == ONE
    with pytest.raises(UnderWay):
        serve(ledger, ours)
    assert settle(ledger, asked_anew(ledger)) == 1
    assert len(slurm.jobs) == 1


def test_who_submits_too_late_takes_it_back(
    ledger: Ledger, slurm: SlurmDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = asked_anew(ledger)
    real = programs.submit

    def late(script: bytes) -> str:
        job = real(script)
        ledger.end(1, VOID)
        return job

    monkeypatch.setattr(programs, "submit", late)
    with pytest.raises(UnderWay):
        serve(ledger, facts)
    assert slurm.lines("cancelled") == ["100"]
    assert ends(ledger) == [VOID]


def test_the_first_word_on_a_submission_stands(ledger: Ledger) -> None:
    ledger.begin(1, b"")
    assert ledger.end(1, "job 7")
    assert ledger.end(1, VOID)
    assert ends(ledger) == ["job 7"]


def test_what_slurm_refuses_was_not_submitted(ledger: Ledger, slurm: SlurmDouble) -> None:
    slurm.mark("refuse", "sbatch: error: invalid partition specified: foo")
    facts = asked_anew(ledger)
    with pytest.raises(programs.Refused, match="sbatch: invalid partition specified: foo"):
        serve(ledger, facts)
    slurm.unmark("refuse")
    assert serve(ledger, asked_anew(ledger)) == ONE
    assert ends(ledger)[1] == "job 100"


def test_a_group_that_slurm_refuses_keeps_no_other_from_being_submitted(
    ledger: Ledger, pipeline: Pipeline, slurm: SlurmDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    ocr = '[[stage]]\nname = "ocr"\ncall = "a:b"\nslurm.per = "driver"\n'
    ledger.pipeline, real = parse(TEXT + ocr, "p.toml", pipeline.file)[0], programs.submit

    def refuse_first(script: bytes) -> str:
        if b"--job-name=p\n" in script:
            raise programs.Refused("sbatch: invalid partition specified: foo")
        return real(script)

    monkeypatch.setattr(programs, "submit", refuse_first)
    with pytest.raises(programs.Refused, match="invalid partition"):
        serve(ledger, asked_anew(ledger))
    assert [job["name"] for job in slurm.jobs] == ["p-ocr"]
    assert ends(ledger)[1:] == ["job 100"]


def test_a_stop_amid_a_submission_has_nothing_submitted(ledger: Ledger, slurm: SlurmDouble) -> None:
    facts = asked_anew(ledger)
    ledger.stop(stopped=True)
    with pytest.raises(UnderWay, match="watchdogd slurm stop"):
        serve(ledger, facts)
    assert (slurm.jobs, len(ends(ledger))) == ([], 1)
    assert ends(ledger)[0].startswith(VOID)


def test_what_a_full_disk_cut_off_leaves_nothing_in_the_ledger(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(directory: Directory, name: str, data: bytes) -> None:
        os.close(directory.open_new(name))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Directory, "write_new", cut_off)
    with pytest.raises(OSError, match="No space"):
        ledger.begin(1, b"")
    with pytest.raises(OSError, match="No space"):
        ledger.now()
    assert not [*ledger.directory.names()]


def test_a_root_that_is_moved_away_amid_a_submission_has_nothing_submitted(
    ledger: Ledger, pipeline: Pipeline, slurm: SlurmDouble
) -> None:
    facts = asked_anew(ledger)
    os.rename(pipeline.root, f"{pipeline.root}-away")
    with pytest.raises(NotFound, match="watchdogd slurm start makes it"):
        serve(ledger, facts)
    assert (slurm.jobs, ledger.latest()) == ([], 0)
    assert not os.path.exists(pipeline.root)


def test_programs_that_cannot_be_run_are_named(
    ledger: Ledger, slurm: SlurmDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = asked_anew(ledger)
    (slurm.directory / "sbatch").chmod(0o644)
    with monkeypatch.context() as patched:
        # Else it would be looked for elsewhere.
        patched.setenv("PATH", str(slurm.directory))
        with pytest.raises(Unreachable, match="sbatch cannot be run: Permission denied; "):
            serve(ledger, facts)
    # Nobody has to wait for what was never asked for.
    (slurm.directory / "sbatch").chmod(0o755)
    assert serve(ledger, asked_anew(ledger)) == ONE


@pytest.mark.parametrize(
    ("jobs", "seconds", "is_so"), [(0, 1, True), (1, 1, False), (0, 90, False), (0, -HOUR, False)]
)
def test_elements_that_end_at_once_are_followed_by_others_later(
    jobs: int,
    seconds: float,
    is_so: bool,
    ledger: Ledger,
    slurm: SlurmDouble,
) -> None:
    serve(ledger, asked_anew(ledger))
    slurm.say(slurm.jobs[:jobs])
    age(ledger, seconds, "1.end")
    assert ended_at_once(ledger, asked_anew(ledger)) is is_so


# What is asked


def test_slurm_is_asked_once_in_ten_seconds_whoever_looks(
    ledger: Ledger, pipeline: Pipeline, slurm: SlurmDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen(pipeline)
    asked_at = ledger.made_at("asked-1")
    for seconds, asked in ((0, 1), (ASK_EVERY - 1, 1), (ASK_EVERY + 1, 2)):
        monkeypatch.setattr(Ledger, "now", lambda _, at=asked_at + seconds: at)
        for _ in range(20 if asked == 1 else 1):
            seen(pipeline)
        assert len(slurm.lines("asked")) == asked


@pytest.mark.parametrize(
    ("state", "seconds", "is_asked"),
    [
        ("RUNNING", ASK_EVERY + 1, False),
        ("RUNNING", 2 * ASK_EVERY + 1, True),
        # While none runs nobody else asks.
        ("PENDING", ASK_EVERY + 1, True),
    ],
)
def test_elements_that_run_are_first_to_ask_since_they_decide_by_the_answer(
    state: str,
    seconds: float,
    is_asked: bool,
    ledger: Ledger,
    pipeline: Pipeline,
    slurm: SlurmDouble,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    serve(ledger, asked_anew(ledger))
    slurm.say([slurm.jobs[0] | {"job_state": state}])
    latest = asked_anew(ledger).question
    asked_at = ledger.made_at(f"asked-{latest}")
    monkeypatch.setattr(Ledger, "now", lambda _: asked_at + seconds)
    assert (seen(pipeline).question > latest) is is_asked


def test_while_a_question_is_asked_another_stands(ledger: Ledger, slurm: SlurmDouble) -> None:
    def standing() -> set[str]:
        return {name for name in ledger.directory.names() if name.startswith("asked-")}

    asked_anew(ledger)
    for _ in range(3):
        before = standing()
        asked_anew(ledger)
        # Else a listing at that moment may show none, and the first would be asked once more.
        assert before & standing()
    assert len(standing()) == 2


def test_a_log_that_is_being_written_stays_whatever_its_element_is_called(
    pipeline: Pipeline,
) -> None:
    with below(pipeline.root, LOGS) as logs:
        for name in ("12345678_22.log", "12345678_23.log", "11_1.log"):
            logs.write_new(name, b"")
        # The second by a number of its own, and the third in its second life.
        there = [
            Element(name="a", jobs=("12345678_23",), host="12345700", state="running"),
            Element(name="b", jobs=("11_1",), host="11_1r1", state="running"),
        ]
        tidy(
            pipeline.root,
            there,
            logs.status("11_1.log").st_mtime + 8 * 24 * HOUR,
        )
        assert sorted(logs.names()) == ["11_1.log", "12345678_23.log"]


def test_what_others_remove_meanwhile_is_no_trouble_and_the_other_places_are_tidied(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    with below(pipeline.root, LOGS) as logs:
        logs.write_new("11_1.log", b"")
        at, names = logs.status("11_1.log").st_mtime, Directory.names
        # An element beside it has seen it to be old, too, and was faster.
        monkeypatch.setattr(Directory, "names", lambda self: iter(["11_2.log", *names(self)]))
        tidy(pipeline.root, [], at + 8 * 24 * HOUR)


def test_a_key_is_that_of_one_root_by_whichever_links_it_is_reached(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(pipeline.root)
    assert key(replace(pipeline, root=str(link))) == key(pipeline)
    assert key(replace(pipeline, root=str(tmp_path / "other"))) != key(pipeline)


def test_a_file_whose_name_is_no_text_is_submitted_as_it_is_called(
    ledger: Ledger, pipeline: Pipeline, slurm: SlurmDouble
) -> None:
    ledger.pipeline = replace(pipeline, file=f"{pipeline.file}\udcff")
    assert serve(ledger, asked_anew(ledger)) == ONE
    assert os.fsencode(f"{pipeline.file}\udcff") in ledger.directory.read("1.sh")


@pytest.mark.parametrize("said", ["", "no JSON", '{"jobs": [3]}'])
def test_who_is_told_something_else_than_json_is_told_that_squeue_says_it(
    said: str, ledger: Ledger, slurm: SlurmDouble
) -> None:
    (slurm.directory / "squeue").write_text(f"#!/bin/sh\necho '{said}'\n")
    assert asked_anew(ledger).error.startswith("squeue --json: not understood: ")


def test_elements_of_a_pipeline_that_was_renamed_are_asked_for_as_they_are_called(
    ledger: Ledger, pipeline: Pipeline, slurm: SlurmDouble
) -> None:
    assert serve(ledger, asked_anew(ledger)) == ONE
    ledger.pipeline = replace(pipeline, name="serif")
    for _ in range(2):
        assert needs(ledger, asked_anew(ledger)) == []
    assert slurm.lines("asked") == ["--json --name=p", *["--json --name=p,serif"] * 2]


def test_while_slurm_does_not_answer_it_is_told_what_it_said_last_and_how_long_ago(
    ledger: Ledger, slurm: SlurmDouble
) -> None:
    list(submit_missing(ledger, Facts(), {}, {"": 3}))
    facts = asked_anew(ledger)
    assert waiting_words(facts, facts.at) == "waits for Slurm: 3 elements pending (Priority)"
    slurm.mark("silent")
    facts = asked_anew(ledger)
    assert waiting_words(facts, facts.at + 90) == (
        "waits for Slurm: 3 elements pending (Priority) (said 1 min 30 s ago; since then: squeue: "
        "slurm_load_jobs error: Unable to contact slurm controller)"
    )
    # Nobody submits for want of an answer: it is what was said before.
    assert facts.count("") == 3
    slurm.unmark("silent")
    assert age_words(asked_anew(ledger), time.time()) == ""


def test_where_there_is_no_slurm_that_is_said_in_a_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        Unreachable, match=r"squeue cannot be run: No such file.*; there is no Slurm"
    ):
        programs.call(("squeue", "--json"))


# What is asked for


def test_a_number_that_somebody_asked_for_holds_in_place_of_the_files(ledger: Ledger) -> None:
    ledger.scale("", 4)
    assert needs(ledger, Facts()) == [4]
    ledger.scale("", None)
    assert needs(ledger, Facts()) == [1]


def test_documents_of_a_stage_that_is_paused_call_for_nobody(pipeline: Pipeline) -> None:
    text = TEXT.replace("min = 1", "min = 0")
    one = parse(text, "p.toml", pipeline.file)[0]
    with (
        Queue.open(one.path("input"), create=True) as queue,
        Ledger.open(one, create=True) as ledger,
    ):
        queue.submit("d", b"x")
        assert needs(ledger, Facts()) == [1]
        queue.set_control("PAUSE", wanted=True)
        assert needs(ledger, Facts()) == []
