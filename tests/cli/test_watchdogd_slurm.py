"""`watchdogd slurm`, with programs that stand in for Slurm's; tests/slurm has the real ones."""

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from queuedriver.operating.queue import Queue
from tests.cli import pipelines
from tests.cli.queues import Called
from tests.slurm_double import SlurmDouble, slurm
from watchdogd.pipeline.read import read
from watchdogd.slurm import programs
from watchdogd.slurm.submissions import Ledger, key

__all__ = ["slurm"]
Capsys = pytest.CaptureFixture[str]
TEXT = """
[pipeline]
name = "serif"
[slurm]
nodes = { min = 0, max = 8 }
[[stage]]
name = "parse"
command = "cat"
memory = "1 GB"
[[stage]]
name = "ocr"
command = "cat"
slurm = { per = "driver", gres = "gpu:1", nodes = { min = 0, max = 4 } }
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "serif.toml"
    path.write_text(TEXT)
    return path


def call(capsys: Capsys, *words: str | Path) -> Called:
    return pipelines.call(capsys, "slurm", *words)


def tasks(slurm: SlurmDouble) -> list[str]:
    return [job["array_task_string"] for job in slurm.jobs]


def test_check_shows_what_is_asked_for_and_what_nobody_says(
    file: Path, slurm: SlurmDouble, capsys: Capsys
) -> None:
    called = call(capsys, "check", file)
    assert called.code == 0
    rows = [re.split(" {2,}", row) for row in called.out.splitlines()]
    unsaid = "the cluster's"
    assert rows[1:] == [
        ["nodes", "0 to 8", "1 parse", "1.11 GB", "1", unsaid, unsaid],
        # Of memory the stage says nothing.
        ["ocr", "0 to 4", "1 ocr", unsaid, "1", "gpu:1", unsaid, unsaid],
    ]
    assert called.err.startswith("watchdogd: ocr does not say memory, so none is asked for: ")
    assert slurm.jobs == []


# A cluster without GPUs and large nodes; in `small` every processor is taken.
_SBATCH = """#!/bin/sh
text=$(cat)
case $text in
*--partition=none*) echo "sbatch: error: no such partition" ;;
*--partition=small*--cpus*|*--cpus*--partition=small*) echo "sbatch: error: no such cpus" ;;
*--gres*) echo "sbatch: error: no such gres" ;;
*--mem=*) echo "sbatch: error: no such memory" ;;
*) exit 0 ;;
esac
exit 1
"""


@pytest.mark.parametrize(
    ("partition", "told"),
    [
        (
            "main",
            ["nodes: --mem=1054M: no such memory", "ocr: --gres=gpu:1: no such gres"],
        ),
        (
            "none",
            [
                "nodes: --mem=1054M: no such memory",
                "nodes: --partition=none: no such partition",
                "ocr: --partition=none: no such partition",
                "ocr: --gres=gpu:1: no such gres",
            ],
        ),
        (
            "small",
            [
                "nodes: --cpus-per-task=1: no such cpus",
                "nodes: --mem=1054M: no such memory",
                "ocr: --cpus-per-task=1: no such cpus",
                "ocr: --gres=gpu:1: no such gres",
            ],
        ),
    ],
)
def test_check_names_all_that_the_cluster_does_not_have(
    partition: str, told: list[str], file: Path, slurm: SlurmDouble, capsys: Capsys
) -> None:
    # Each option is tried alone, and a partition that is there with each.
    (slurm.directory / "sbatch").write_text(_SBATCH)
    file.write_text(TEXT.replace("[slurm]\n", f'[slurm]\npartition = "{partition}"\n'))
    called = call(capsys, "check", file)
    assert called.code == 78
    _, *said = called.err.splitlines()
    assert said == [f"watchdogd: {one}" for one in told]


@pytest.mark.parametrize(
    ("partition", "time", "code"), [("", "36 h", 0), ("", "37 h", 78), ("long", "999 h", 0)]
)
def test_check_names_a_time_that_would_be_pending_for_ever(
    partition: str, time: str, code: int, file: Path, slurm: SlurmDouble, capsys: Capsys
) -> None:
    said = f'[slurm]\ntime = "{time}"\n' + (f'partition = "{partition}"\n' if partition else "")
    file.write_text(TEXT.replace("[slurm]\n", said))
    called = call(capsys, "check", file)
    assert called.code == code
    words = "time = 1 d 13 h: jobs may take 1 d 12 h there at most"
    assert (words in called.err) == bool(code)


def test_a_file_that_says_nothing_of_slurm_is_told_what_to_add(
    tmp_path: Path, capsys: Capsys
) -> None:
    path = tmp_path / "p.toml"
    path.write_text('[[stage]]\nname = "a"\ncommand = "cat"\n')
    called = call(capsys, "start", path)
    assert called.code == 78
    assert "has no [slurm]" in called.err


def test_scripts_can_be_read_and_nothing_is_submitted(
    file: Path, slurm: SlurmDouble, capsys: Capsys
) -> None:
    called = call(capsys, "start", file, "--dry-run", "--nodes", "3", "--time", "2h", "--drain")
    assert called.code == 0
    assert called.out.startswith("#!/bin/bash\n")
    assert "#SBATCH --array=1-3\n" in called.out
    assert "#SBATCH --time=120\n" in called.out
    assert " --drain " in called.out
    assert called.out.count("#!/bin/bash") == 1
    assert slurm.jobs == []
    assert not (file.parent / "queues").exists()


def test_scripts_that_are_shown_know_their_group_as_those_that_are_submitted_do(
    file: Path, slurm: SlurmDouble, capsys: Capsys
) -> None:
    called = call(capsys, "start", file, "--dry-run", "--nodes", "1", "ocr=1")
    assert "export WATCHDOGD_SLURM_SUBMISSION='{}'\n" in called.out
    assert 'export WATCHDOGD_SLURM_SUBMISSION=\'{"stage":"ocr"}\'\n' in called.out


def test_no_script_is_shown_before_all_are_known_to_be_right(
    file: Path, slurm: SlurmDouble, capsys: Capsys
) -> None:
    file.write_text(f'{TEXT}grace = "10 min"\n')
    called = call(capsys, "start", file, "--dry-run", "--nodes", "1", "ocr=1", "--time", "8min")
    assert (called.code, called.out) == (2, "")


def test_start_submits_what_is_missing_once_however_often_it_is_typed(
    file: Path, slurm: SlurmDouble, capsys: Capsys
) -> None:
    called = call(capsys, "start", file, "--nodes", "3", "ocr=2")
    assert (called.code, called.err) == (
        0,
        "watchdogd: submitted 3 elements for nodes: job 100\n"
        "watchdogd: submitted 2 elements for ocr: job 101\n",
    )
    assert tasks(slurm) == ["1-3", "1-2"]
    _later(file)
    called = call(capsys, "start", file, "--nodes", "4")
    assert tasks(slurm) == ["1-3", "1-2", "1-1"]
    _later(file)
    assert "none are missing; " in call(capsys, "start", file, "--nodes", "4").err
    assert len(slurm.jobs) == 3
    script = file.parent / "queues/.watchdogd/slurm/1.sh"
    assert "#SBATCH --array=1-3\n" in script.read_text()


def _later(file: Path) -> None:
    """Let ten seconds pass, as the file system's clock has it."""
    for path in (file.parent / "queues/.watchdogd/slurm").iterdir():
        at = path.stat().st_mtime - 11
        os.utime(path, (at, at))


def test_start_submits_by_what_waits_and_put_says_what_to_type(
    file: Path, slurm: SlurmDouble, capsys: Capsys
) -> None:
    called = call(capsys, "start", file)
    assert "none are missing" in called.err
    with Queue.open(file.parent / "queues/input", create=True) as queue:
        queue.submit("d", b"x")
        # As `put` and `why` do.
        assert queue.notice() == ""
        _later(file)
        called = call(capsys, "start", file)
        assert "submitted 1 element for nodes" in called.err
        _later(file)
        call(capsys, "start", file, "--nodes", "1")
        assert queue.notice() == "waits for Slurm: 2 elements pending (Priority)"
        # From then on whoever asks Slurm says it.
        slurm.say([slurm.jobs[0] | {"job_state": "RUNNING"}])
        _later(file)
        call(capsys, "status", file)
        assert queue.notice() == f"watchdogd slurm start {file} has Slurm start some"
        _later(file)
        call(capsys, "stop", file)
        assert queue.notice().startswith("stopped by watchdogd slurm stop; ")


def test_after_a_stop_cron_starts_nothing_and_a_person_does(
    file: Path, slurm: SlurmDouble, capsys: Capsys
) -> None:
    call(capsys, "start", file, "--nodes", "2")
    _later(file)
    called = call(capsys, "stop", file)
    assert "2 elements told to leave" in called.err
    assert slurm.lines("cancelled") == ["100_1 100_2"]
    slurm.say([])
    _later(file)
    called = call(capsys, "start", file, "--nodes", "2", "--unless-stopped")
    assert (called.code, slurm.jobs) == (0, [])
    call(capsys, "start", file, "--nodes", "2")
    assert tasks(slurm) == ["1-2"]


def test_a_stop_while_cron_looks_is_not_undone(
    file: Path, slurm: SlurmDouble, capsys: Capsys
) -> None:
    with pytest.MonkeyPatch.context() as patched:

        def stop_after_a_look(ledger: Ledger) -> bool:
            patched.undo()
            ledger.stop(stopped=True)
            return False

        patched.setattr(Ledger, "stopped", property(stop_after_a_look))
        called = call(capsys, "start", file, "--nodes", "2", "--unless-stopped")
    assert (called.code, slurm.jobs) == (75, [])
    assert (file.parent / "queues/.watchdogd/slurm/STOP").exists()


def test_a_stop_takes_away_what_somebody_submits_at_that_moment(
    file: Path, slurm: SlurmDouble, capsys: Capsys
) -> None:
    call(capsys, "start", file, "--nodes", "0")
    _later(file)
    pipeline, real = read(str(file)), programs.call
    job = {"job_id": 100, "array_job_id": 100, "array_task_string": "1", "job_state": "PENDING"}

    def submitted_meanwhile(argv: Sequence[str], *said: Any, **more: Any) -> bytes:
        """sbatch, which somebody has called, comes to its end when Slurm has been asked."""
        told = real(argv, *said, **more)
        slurm.say([job | {"comment": f"{key(pipeline)}::1"}])
        _later(file)
        return told

    with Ledger.open(pipeline) as ledger, pytest.MonkeyPatch.context() as patched:
        assert ledger.begin(1, b"")
        patched.setattr(programs, "call", submitted_meanwhile)
        called = call(capsys, "stop", file)
    assert (called.code, called.err) == (0, "watchdogd: 1 element told to leave\n")
    assert slurm.lines("cancelled") == ["100_1"]


@pytest.mark.parametrize("words", [("stop",), ("scale", "2")])
def test_where_nothing_was_ever_started_that_is_said(
    words: tuple[str, ...], file: Path, slurm: SlurmDouble, capsys: Capsys
) -> None:
    called = call(capsys, words[0], file, *words[1:])
    root = file.parent / "queues"
    told = f"watchdogd: no directory {str(root)!r}; watchdogd slurm start makes it. "
    assert (called.code, called.err) == (66, f"{told}Is it mounted here?\n")
    assert not root.exists()


def test_scale_takes_away_what_is_pending_and_too_much(
    file: Path, slurm: SlurmDouble, capsys: Capsys
) -> None:
    call(capsys, "start", file, "--nodes", "5")
    _later(file)
    assert call(capsys, "scale", file, "2").code == 0
    assert slurm.lines("cancelled") == ["100_3 100_4 100_5"]
    told = "no elements are for stage 'nodes'; right would be 4 or ocr=4\n"
    assert call(capsys, "scale", file, "nodes=2").err == f"watchdogd: {told}"
    assert call(capsys, "scale", file, "two").code == 2
    called = call(capsys, "scale", file)
    assert (called.code, called.err) == (
        2,
        "watchdogd: how many? right would be 4, auto or ocr=2\n",
    )


def test_scale_takes_away_elements_of_those_groups_alone_that_it_names(
    file: Path, slurm: SlurmDouble, capsys: Capsys
) -> None:
    call(capsys, "start", file, "--nodes", "9", "ocr=3")
    _later(file)
    called = call(capsys, "scale", file, "ocr=2")
    assert slurm.lines("cancelled") == ["101_3"]
    assert "none are missing; " in called.err


_DENIED = "scancel: error: Kill job error on job id 100_3: Access/permission denied"


@pytest.mark.parametrize("words", [("stop",), ("scale", "1")])
def test_what_slurm_does_not_take_away_is_told(
    words: tuple[str, ...], file: Path, slurm: SlurmDouble, capsys: Capsys
) -> None:
    call(capsys, "start", file, "--nodes", "3")
    _later(file)
    (slurm.directory / "scancel").write_text(f"#!/bin/sh\necho '{_DENIED}' >&2\nexit 1\n")
    called = call(capsys, words[0], file, *words[1:])
    assert called.code == 78
    assert "100_3: Access/permission denied" in called.err


def test_a_stop_holds_though_slurm_does_not_answer(
    file: Path, slurm: SlurmDouble, capsys: Capsys
) -> None:
    call(capsys, "start", file, "--nodes", "2")
    _later(file)
    slurm.mark("silent")
    called = call(capsys, "stop", file)
    assert (called.code, "Unable to contact" in called.err) == (69, True)
    assert "told to leave" not in called.err
    assert (file.parent / "queues/.watchdogd/slurm/STOP").exists()


def test_a_time_that_is_too_short_is_refused_before_anything_is_done(
    file: Path, slurm: SlurmDouble, capsys: Capsys
) -> None:
    call(capsys, "start", file, "--nodes", "0")
    _later(file)
    call(capsys, "stop", file)
    called = call(capsys, "start", file, "--time", "10s")
    assert called.code == 2
    assert "--time: an element leaves " in called.err
    assert (slurm.jobs, (file.parent / "queues/.watchdogd/slurm/STOP").exists()) == ([], True)


def test_a_submission_of_which_nobody_heard_is_made_at_the_next_word(
    file: Path, slurm: SlurmDouble, capsys: Capsys
) -> None:
    slurm.mark(
        "refuse",
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller "
        "(connect failure)",
    )
    assert call(capsys, "start", file, "--nodes", "1").code == 69
    slurm.unmark("refuse")
    _later(file)
    assert call(capsys, "start", file, "--nodes", "1").code == 0
    assert len(slurm.jobs) == 1


def test_start_takes_numbers_alone(file: Path, slurm: SlurmDouble, capsys: Capsys) -> None:
    called = call(capsys, "start", file, "ocr=auto")
    assert (called.code, slurm.jobs) == (2, [])
    assert "without a number start goes by the work that waits" in called.err


def test_of_no_element_no_script_is_shown(file: Path, slurm: SlurmDouble, capsys: Capsys) -> None:
    called = call(capsys, "start", file, "--dry-run", "--nodes", "0", "ocr=2")
    assert called.out.count("#!/bin/bash") == 1
    assert "#SBATCH --array=1-2\n" in called.out


def test_while_slurm_never_answered_nobody_says_that_there_is_no_element(
    file: Path, slurm: SlurmDouble, capsys: Capsys
) -> None:
    (file.parent / "queues").mkdir()
    slurm.mark("silent")
    call(capsys, "start", file)
    _later(file)
    called = call(capsys, "status", file)
    assert called.out.startswith("which elements there are is not known: squeue: ")
    assert "no element" not in called.out


@pytest.mark.parametrize("words", [("status",), ("start", "--nodes", "1")])
def test_where_slurm_does_not_answer_that_is_said(
    words: tuple[str, ...], file: Path, slurm: SlurmDouble, capsys: Capsys
) -> None:
    call(capsys, "start", file, "--nodes", "0")
    slurm.say([])
    _later(file)
    slurm.mark("silent")
    called = call(capsys, words[0], file, *words[1:])
    assert called.code == (0 if words == ("status",) else 69)
    assert "Unable to contact slurm controller" in called.out + called.err


def test_status_shows_what_waits_and_why_beside_the_queues(
    file: Path, slurm: SlurmDouble, capsys: Capsys
) -> None:
    call(capsys, "start", file, "--nodes", "5")
    _later(file)
    called = call(capsys, "status", file)
    assert "100_[1-5]         5 pending                   Priority" in called.out
    assert "waits for Slurm: 5 elements pending (Priority)" in called.out
    assert "STAGE  STATE  WAITING" in called.out
    told = pipelines.call(capsys, "status", file).out
    assert "waits for Slurm: 5 elements pending (Priority)" in told
    assert "start it with watchdogd slurm start" in told


def test_status_tells_programs_of_each_element_how_it_is_called_and_cancelled(
    file: Path, slurm: SlurmDouble, capsys: Capsys
) -> None:
    call(capsys, "start", file, "--nodes", "3")
    _later(file)
    told = json.loads(call(capsys, "status", file, "--json").out)
    (element,) = told["elements"]
    assert (told["error"], element["state"], element["name"]) == ("", "pending", "100_[1-3]")
    assert element["jobs"] == ["100_1", "100_2", "100_3"]
