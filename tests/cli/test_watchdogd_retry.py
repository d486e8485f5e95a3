"""`watchdogd retry`: what was discarded is tried again, wherever in the pipeline that was."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli import pipelines
from tests.cli.pipelines import make
from tests.cli.processes import on_terminal, read_until
from tests.cli.queues import PATIENCE, Called, drive, listed, submit

Capsys = pytest.CaptureFixture[str]
Watch = Callable[..., Called]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A pipeline in whose second stage `bad.xml` was discarded, and in its first `bad2`, `bad3`."""
    file = make(tmp_path)
    queues = tmp_path / "queues"
    submit(queues / "input", "bad2", "bad3")
    drive(queues / "input", queues / "values", publish="{docid}.xml.ready", retries=0)
    submit(queues / "values", "bad.xml")
    drive(queues / "values", queues / "parse", retries=0)
    return file


def waiting(file: Path, queue: str) -> list[str]:
    return [name for name in listed(file.parent / "queues" / queue) if name.endswith(".ready")]


def test_a_document_is_found_in_whichever_stage_gave_it_up(file: Path, watch: Watch) -> None:
    assert watch("retry", "bad.xml") == (0, "", "")
    assert waiting(file, "values") == ["bad.xml.ready"]
    assert waiting(file, "input") == []


def test_a_stage_may_be_named_before_the_documents(file: Path, watch: Watch) -> None:
    assert watch("retry", "values", "bad2") == (0, "", "")
    assert waiting(file, "input") == ["bad2.ready"]
    called = watch("retry", "values", "bad.xml")
    assert (called.code, called.err) == (66, "watchdogd: no 'bad.xml' in stage values\n")


def test_documents_are_found_by_a_glob_and_without_their_extension(
    file: Path, watch: Watch
) -> None:
    assert watch("retry", "bad") == (0, "", "")
    assert waiting(file, "values") == ["bad.xml.ready"]
    assert watch("retry", "bad?").code == 2
    assert waiting(file, "input") == []
    said = f"watchdogd: retry 2 documents of the stages of {file}\n"
    assert watch("retry", "bad?", "--yes") == (0, "", said)
    assert waiting(file, "input") == ["bad2.ready", "bad3.ready"]
    assert watch("retry", "ba*.pdf").code == 66


def test_all_that_was_discarded_is_listed_with_the_reasons(file: Path, watch: Watch) -> None:
    first, *rest = watch("discarded").out.splitlines()
    assert first.split() == ["STAGE", "STATE", "TRY", "AGE", "DRIVER", "DOCUMENT"]
    told = [(one.split()[0], one.split("  ")[-2].strip(), one.split("  ")[-1]) for one in rest]
    why = "exception: ValueError: no good"
    assert sorted(told) == [
        ("parse", "bad.xml", why),
        ("values", "bad2", why),
        ("values", "bad3", why),
    ]
    (line,) = watch("discarded", "parse", "--json").out.splitlines()
    assert json.loads(line)["docid"] == "bad.xml"
    assert watch("discarded", "prase").code == 66


def test_what_is_neither_a_stage_nor_a_document_is_told_the_stages(
    file: Path, watch: Watch
) -> None:
    called = watch("retry", "prase")
    assert called.code == 66
    assert f"no 'prase' in the stages of {file}, which are: parse, " in called.err


def test_all_of_a_stage_are_retried_when_somebody_means_it(file: Path, watch: Watch) -> None:
    called = watch("retry", "values")
    assert called.code == 2
    assert "retry 2 discarded documents of stage values: say --yes" in called.err
    assert waiting(file, "input") == []
    said = "watchdogd: retry 2 discarded documents of stage values\n"
    assert watch("retry", "values", "--yes") == (0, "", said)
    assert waiting(file, "input") == ["bad2.ready", "bad3.ready"]
    assert waiting(file, "values") == []


def test_all_of_all_stages_are_retried_when_somebody_means_it(file: Path, watch: Watch) -> None:
    called = watch("retry", "--yes", "--json")
    assert called.code == 0
    came = {(os.path.basename(one["queue"]), one["docid"]) for one in called.json["documents"]}
    assert came == {("input", "bad2"), ("input", "bad3"), ("values", "bad.xml")}
    # There is nothing more to ask about.
    assert watch("retry") == (0, "", "")


def test_on_a_terminal_whoever_wants_all_is_asked(file: Path) -> None:
    with on_terminal("retry", "-p", file, program="watchdogd") as (process, terminal):
        asked = read_until(terminal, r"\[y/N\]")
        assert "retry 3 discarded documents of the stages of" in re.sub(r"\s+", " ", asked)
        os.write(terminal, b"y\n")
        assert process.wait(PATIENCE) == 0
    assert waiting(file, "input") == ["bad2.ready", "bad3.ready"]


def test_docids_are_read_from_stdin(file: Path) -> None:
    from tests.cli.processes import command

    called = command("retry", "-", "-p", file, stdin=b"bad2\nbad.xml\n", program="watchdogd")
    assert called == (0, "", "")
    assert waiting(file, "input") == ["bad2.ready"]
    assert waiting(file, "values") == ["bad.xml.ready"]


def test_a_document_that_waits_already_is_left_as_it_is(file: Path, watch: Watch) -> None:
    submit(file.parent / "queues/input", "new")
    called = watch("retry", "new")
    assert (called.code, called.err) == (0, "watchdogd: 'new' waits already\n")


def test_queues_that_nobody_made_yet_hold_nothing(tmp_path: Path, capsys: Capsys) -> None:
    other = tmp_path / "other"
    other.mkdir()
    file = make(other, pipelines.FILE, "input")
    assert pipelines.call(capsys, "retry", "-p", file) == (0, "", "")
    assert pipelines.call(capsys, "retry", "a", "-p", file).code == 66
    assert listed(other / "queues") == ["input"]
