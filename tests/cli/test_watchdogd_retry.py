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
from watchdogd.operators.actions import operator

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


def groups(called: Called) -> list[list[str]]:
    """The cells of a table of groups, without its title and without over how many it is."""
    return [re.split(r" {2,}", one) for one in called.out.splitlines()[1:-1]]


def test_what_was_discarded_is_shown_in_groups_the_largest_first(file: Path, watch: Watch) -> None:
    called = watch("discarded")
    head = called.out.splitlines()[0]
    assert head.split() == ["GROUP", "STAGE", "COUNT", "FIRST", "LAST", "WHY"]
    assert called.out.splitlines()[-1] == "grouped over all 3"
    why = "exception: ValueError: no good"
    (first, second) = groups(called)
    assert (first[1], first[2], first[5]) == ("values", "2", why)
    assert first[6] in ("(as bad2)", "(as bad3)")
    assert (second[1], second[2], *second[5:]) == ("parse", "1", why, "(bad.xml)")
    assert watch("discarded", "prase").code == 66
    assert [one[1] for one in groups(watch("discarded", "parse"))] == ["parse"]


def test_groups_are_told_to_programs_with_how_many_were_read(file: Path, watch: Watch) -> None:
    told = watch("discarded", "--json").json
    assert (told["total"], told["read"], told["matching"]) == (3, 3, 3)
    first, second = told["groups"]
    assert (first["stage"], first["count"], sorted(first["docids"])) == (
        *("values", 2),
        ["bad2", "bad3"],
    )
    assert second["common"].startswith("exception: ValueError: no good in ")
    assert first["first_at"] <= first["last_at"]


def test_a_cause_and_a_text_leave_the_others_out(file: Path, watch: Watch) -> None:
    assert groups(watch("discarded", "--cause", "exception", "--text", "BAD.X"))[0][1] == "parse"
    assert watch("discarded", "--cause", "permanent") == (0, "", "")
    assert watch("discarded", "--text", "no such words") == (0, "", "")


def test_the_documents_of_a_group_are_listed_with_the_reasons(file: Path, watch: Watch) -> None:
    key = groups(watch("discarded", "values"))[0][0]
    called = watch("discarded", "--group", key)
    assert called.out.splitlines()[0].split() == ["DOCUMENT", "LAST", "WHY"]
    assert called.out.splitlines()[-1] == "grouped over all 3"
    why = "exception: ValueError: no good"
    assert sorted((one[0], one[2]) for one in groups(called)) == [("bad2", why), ("bad3", why)]
    told = watch("discarded", "--group", key, "--json").json
    assert {one["docid"] for one in told["documents"]} == {"bad2", "bad3"}


def test_a_group_that_there_is_not_says_why_that_may_be(file: Path, watch: Watch) -> None:
    called = watch("retry", "--group", "1-0123456789", "--yes")
    assert called.code == 66
    why = "what was in it may have been tried again, or another version groups otherwise"
    assert f"{why}; see watchdogd discarded -p" in called.err


def test_a_group_is_retried_as_a_batch_that_is_followed(file: Path, watch: Watch) -> None:
    key = groups(watch("discarded", "values"))[0][0]
    called = watch("retry", "--group", key, "--yes", "--json")
    assert called.code == 0
    batch = called.json["batch"]
    assert {one["docid"] for one in called.json["documents"]} == {"bad2", "bad3"}
    assert waiting(file, "values") == []
    submit(file.parent / "queues/input", "good")
    head, who, counts = watch("batch", batch).out.splitlines()
    assert head.startswith(f"{batch}  of the stages of {file}, group {key}: exception: ")
    assert who.startswith("retry of 2 documents by ")
    assert counts == "0 through, 0 failed again, 2 waiting"
    drive(file.parent / "queues/input", file.parent / "queues/values", retries=0)
    assert watch("batch", batch).out.splitlines()[-1] == "0 through, 2 failed again, 0 waiting"
    told = watch("batch", batch, "--json").json
    assert (told["id"], told["kind"], told["total"]) == (batch, "retry", 2)
    assert told["counts"]["failed again"] == 2
    assert {one["fate"] for one in told["documents"]} == {"failed again"}
    # The same cause is the same group.
    assert groups(watch("discarded", "values"))[0][0] == key
    (line,) = watch("batch").out.splitlines()[1:]
    assert line.startswith(batch)
    assert [one["id"] for one in watch("batch", "--json").json["batches"]] == [batch]


def test_whoever_wants_to_see_it_first_changes_nothing(file: Path, watch: Watch) -> None:
    called = watch("retry", "values", "--dry-run")
    assert (called.code, called.err) == (0, "")
    first, *docids = called.out.splitlines()
    assert first == "would retry 2 discarded documents of stage values"
    assert sorted(docids) == ["  bad2", "  bad3"]
    assert watch("retry", "bad2", "--dry-run").out.splitlines()[1:] == ["  bad2"]
    assert waiting(file, "input") == []
    assert watch("batch") == (0, "", "")


def test_document_that_is_not_there_is_named_by_whoever_wants_to_see_it_first_too(
    file: Path, watch: Watch
) -> None:
    shown = watch("retry", "bad2", "nothing", "--dry-run")
    assert shown.code == 66
    assert shown.err.startswith("watchdogd: no 'nothing' in the stages of")
    assert shown.out.splitlines() == [f"would retry 1 document of the stages of {file}", "  bad2"]
    shown = watch("retry", "parse", "nothing", "--dry-run")
    assert (shown.code, shown.out) == (66, "")
    assert shown.err == "watchdogd: no 'nothing' in stage parse\n"


def test_documents_and_what_they_have_in_common_are_not_both_named(watch: Watch) -> None:
    called = watch("retry", "bad2", "--text", "no good")
    assert called.code == 2
    assert "but not both" in called.err


def test_a_report_that_arrives_while_one_confirms_is_not_retried(file: Path) -> None:
    with on_terminal("retry", "values", "-p", file, program="watchdogd") as (process, terminal):
        read_until(terminal, r"retry 2 discarded documents[^?]*\?")
        submit(file.parent / "queues/input", "bad4")
        drive(file.parent / "queues/input", file.parent / "queues/values", retries=0)
        os.write(terminal, b"y\n")
        assert process.wait(PATIENCE) == 0
    assert waiting(file, "input") == ["bad2.ready", "bad3.ready"]
    assert {"bad4", "bad4.report.json"} <= set(listed(file.parent / "queues/input/discarded"))


def test_what_went_through_is_sent_through_once_more(file: Path, watch: Watch) -> None:
    queues = file.parent / "queues"
    nothing_kept = watch("replay", "values", "a")
    assert nothing_kept.code == 66
    assert 'archive = "DIR"' in nothing_kept.err
    archive = str(file.parent / "archive")
    submit(queues / "parse", "a", "b", "c")
    drive(queues / "parse", queues / "out", archive=archive)
    assert watch("replay", "out").code == 2
    assert watch("replay", "out", "--dry-run").out.splitlines() == [
        "would send 3 documents through stage out once more",
        *("  a", "  b", "  c"),
    ]
    called = watch("replay", "out", "a", "b")
    assert called.code == 0
    assert waiting(file, "parse") == ["a.ready", "b.ready"]
    (batch,) = re.findall(r"watchdogd batch (\S+)", called.err)
    drive(queues / "parse", queues / "out", archive=archive)
    assert watch("batch", batch).out.splitlines()[-1] == "2 through, 0 failed again, 0 waiting"
    assert listed(file.parent / "archive") == ["a", "b", "c"]


def test_only_what_the_archive_has_is_sent_through_once_more(file: Path, watch: Watch) -> None:
    queues, archive = file.parent / "queues", file.parent / "archive"
    submit(queues / "parse", "a")
    drive(queues / "parse", queues / "out", archive=str(archive))
    for words in (("d*",), ("d*", "--dry-run")):
        called = watch("replay", "out", *words)
        assert (called.code, called.err) == (66, f"watchdogd: no 'd*' in {archive}\n")
    # No batch of nothing.
    assert not watch("batch").out
    shown = watch("replay", "out", "a", "d", "--dry-run")
    assert (shown.code, shown.err) == (66, f"watchdogd: no 'd' in {archive}\n")
    assert shown.out.splitlines() == ["would send 1 document through stage out once more", "  a"]
    sent = watch("replay", "out", "a", "d", "--json")
    assert sent.code == 66
    came = {one["docid"]: one["came"] for one in json.loads(sent.out)["documents"]}
    assert came == {"a": "done", "d": "missing"}
    assert watch("batch").out.count("stage out") == 1


def test_who_put_documents_back_is_noted(file: Path, watch: Watch) -> None:
    watch("retry", "values", "--yes")
    watch("retry", "bad.xml")
    (notes,) = (file.parent / "queues/.watchdogd/events").iterdir()
    first, second = map(json.loads, notes.read_text().splitlines())
    assert first["message"] == "retry 2 documents: of stage values"
    assert first["batch"] in watch("batch").out
    assert second["message"] == "retry 'bad.xml'"
    assert first["who"] == second["who"] == operator()


def test_who_put_back_what_failed_with_braces_in_its_words_is_noted(
    file: Path, watch: Watch
) -> None:
    queues = file.parent / "queues"
    submit(queues / "input", "bad{0}")
    drive(queues / "input", queues / "values", retries=0)
    assert watch("retry", "--text", "bad{0}", "--yes").code == 0
    (notes,) = (queues / ".watchdogd/events").iterdir()
    message = json.loads(notes.read_text())["message"]
    assert message == f"retry 'bad{{0}}': of the stages of {file}, text bad{{0}}"
    assert waiting(file, "input") == ["bad{0}.ready"]


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
    called = watch("retry", "values", "--yes")
    said, follow = called.err.splitlines()
    assert (called.code, called.out, said) == (
        *(0, ""),
        "watchdogd: retry 2 discarded documents of stage values",
    )
    assert re.fullmatch(r"watchdogd: watchdogd batch \S+ -p \S+ tells what becomes of them", follow)
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


def test_of_no_document_nothing_is_said(file: Path) -> None:
    from tests.cli.processes import command

    assert command("retry", "-", "-p", file, stdin=b"", program="watchdogd") == (0, "", "")


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
