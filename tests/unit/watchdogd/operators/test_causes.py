"""What was discarded is grouped by what it failed of, over all of it or said to be a part."""

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from queuedriver.claims.outcomes import cause_key, from_exception
from queuedriver.format.records import Attempt, Failure, Report, encode_report
from watchdogd.operators import causes
from watchdogd.operators.causes import Wanted
from watchdogd.pipeline.model import Pipeline, Stage

TRACEBACK = """Traceback (most recent call last):
  File "/home/anna/stages.py", line 7, in parse
    read_page(document)
  File "/home/anna/stages.py", line 3, in read_page
    raise ValueError("page 17 of 'a.pdf' has no text")
ValueError: page 17 of 'a.pdf' has no text
"""


def failure(message: str, cause: str = "exception", traceback: str = TRACEBACK) -> Failure:
    return Failure(cause=cause, message=message, traceback=traceback)


def report(docid: str, said: Failure, at: float = 1.0) -> Report:
    attempt = Attempt(
        docid=docid,
        token="rose-parse-1-0006400000000000ab",
        attempt=1,
        driver="rose-parse-1",
        host="rose",
        claimed_at=at - 1,
        ended_at=at,
        counted=True,
        failure=said,
    )
    return Report(
        docid=docid,
        queue="input",
        discarded_at=at,
        driver="rose-parse-1",
        host="rose",
        failure=said,
        attempts=(attempt,),
    )


def case(docid: str, message: str, at: float = 1.0, stage: str = "parse") -> causes.Case:
    return causes.case_of(stage, "input", docid, report(docid, failure(message), at))


def a_pipeline(root: Path) -> Pipeline:
    stages = tuple(
        Stage(name=name, inputs=(taken,), outputs=("end",), kind="call", work="a:b")
        for name, taken in (("parse", "input"), ("index", "parsed"))
    )
    return Pipeline(name="yard", file=str(root / "pipeline.toml"), root=str(root), stages=stages)


def discard(queue: Path, docid: str, said: Failure, at: float) -> None:
    place = queue / "discarded"
    place.mkdir(parents=True, exist_ok=True)
    (place / docid).write_text("text")
    file = place / f"{docid}.report.json"
    file.write_bytes(encode_report(report(docid, said, at)))
    os.utime(file, (at, at))


def test_numbers_names_and_paths_do_not_part_what_failed_of_one_thing() -> None:
    survey = causes.survey_of(
        [
            case("a", "ValueError: page 17 of 'a.pdf' has no text", 3.0),
            case("b", "ValueError: page 4 of '/data/b.pdf' has no text", 5.0),
            case("c", "ValueError: page 9 of 'c.pdf' has no text", 4.0),
            case("d", "KeyError: 'title'", 1.0),
        ],
        4,
        4,
    )
    first, second = survey.groups
    assert (first.count, first.docids, first.first_at, first.last_at) == (3, ("b", "c", "a"), 3, 5)
    assert first.common == "exception: ValueError: page … of … has no text in read_page"
    assert first.message == "ValueError: page 4 of '/data/b.pdf' has no text"
    assert (second.count, second.docids) == (1, ("d",))
    assert [one.docid for one in survey.of_group(first.key)] == ["b", "c", "a"]


def test_stage_cause_type_message_and_function_each_part_groups() -> None:
    message = "ValueError: no text"
    other = TRACEBACK.replace("in read_page", "in read_table")
    alike = [
        causes.case_of("parse", "q", "d", report("d", failure(message))),
        causes.case_of("index", "q", "d", report("d", failure(message))),
        causes.case_of("parse", "q", "d", report("d", failure(message, "permanent"))),
        causes.case_of("parse", "q", "d", report("d", failure("TypeError: no text"))),
        causes.case_of("parse", "q", "d", report("d", failure("ValueError: no words"))),
        causes.case_of("parse", "q", "d", report("d", failure(message, traceback=other))),
        causes.case_of("parse", "q", "d", None),
    ]
    assert len({one.key for one in alike}) == len(alike)


def test_the_breaker_and_the_groups_mean_one_thing_by_a_cause() -> None:
    try:
        raise LookupError("no 17 in '/data/x'")
    except LookupError as error:
        ended = from_exception(error)
    said = ended.failure  # type: ignore[union-attr]
    assert causes.case_of("parse", "q", "d", report("d", said)).common == cause_key(said)


def test_a_key_is_what_it_was_while_its_version_is() -> None:
    """Whoever groups otherwise gives the keys another version, and this test other keys."""
    assert causes.VERSION == 1
    first = case("a", "ValueError: page 17 of 'a.pdf' has no text")
    second = causes.case_of(
        "out", "q", "d", report("d", Failure(cause="exit", message="", exit_code=3))
    )
    assert [first.key, second.key] == ["1-25bad4eaae", "1-8c5933366c"]


def test_the_largest_group_is_first_and_then_the_latest() -> None:
    survey = causes.survey_of(
        [case("a", "A", 1.0), case("b", "B", 3.0), case("c", "C", 2.0), case("d", "C", 1.0)], 4, 4
    )
    assert [one.message for one in survey.groups] == ["C", "B", "A"]


def test_instant_that_no_clock_has_shown_keeps_no_other_from_being_drawn() -> None:
    survey = causes.survey_of([case("a", "A", -1e308), case("b", "A", 1e308), case("c", "A")], 3, 3)
    (found,) = causes.trends(survey).values()
    assert (found[0], sum(found)) == (1, 1)


def test_a_part_is_never_taken_for_all(tmp_path: Path) -> None:
    for number in range(30):
        queue = tmp_path / ("input" if number % 2 else "parsed")
        discard(queue, f"d{number}", failure(f"ValueError: {number}"), 1000.0 + number)
    pipeline = a_pipeline(tmp_path)
    whole = causes.survey(pipeline)
    assert whole.words == "grouped over all 30"
    assert {one.stage: one.count for one in whole.groups} == {"parse": 15, "index": 15}
    part = causes.survey(pipeline, most=7)
    assert part.words == "grouped over the latest 7 of 30"
    assert [one.docid for one in part.cases] == [f"d{number}" for number in range(29, 22, -1)]
    assert causes.survey(pipeline, most=None).words == "grouped over all 30"
    assert causes.survey(pipeline, pipeline.stages[:1]).total == 15


def test_document_that_is_asked_for_is_found_however_many_are_newer(tmp_path: Path) -> None:
    for number in range(5):
        discard(tmp_path / "input", f"d{number}", failure("ValueError: bad"), 1000.0 + number)
    found = causes.survey(a_pipeline(tmp_path), wanted=Wanted(docid="d0"), most=2)
    assert [one.docid for one in found.cases] == ["d0"]


def test_cause_and_text_choose_which_documents_are_grouped(tmp_path: Path) -> None:
    discard(tmp_path / "input", "a", failure("ValueError: no text"), 1.0)
    discard(tmp_path / "input", "b", failure("ValueError: no text", "permanent"), 2.0)
    other = failure("KeyError: 'title'", traceback=TRACEBACK.replace("no text", "none"))
    discard(tmp_path / "input", "c", other, 3.0)
    (tmp_path / "input/discarded/lost").write_text("its report was removed")
    pipeline = a_pipeline(tmp_path)

    def docids(**wanted: Any) -> set[str]:
        return {one.docid for one in causes.survey(pipeline, wanted=Wanted(**wanted)).cases}

    assert docids() == {"a", "b", "c", "lost"}
    assert docids(cause="permanent") == {"b"}
    assert docids(text="NO TEXT") == {"a", "b"}
    # In the traceback, which all have that have a report.
    assert docids(text="read_page") == {"a", "b", "c"}
    assert docids(text="los") == {"lost"}
    assert docids(cause="no-report") == {"lost"}


def test_each_report_is_read_once_however_many_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So ten thousand take ten thousand small files opened and read, and one listing."""
    queue, number = tmp_path / "input", 1000
    for index in range(number):
        discard(queue, f"d{index}", failure(f"ValueError: {index}"), 1000.0 + index)
    calls = {"open": 0, "scandir": 0}

    def counted(name: str) -> None:
        real = getattr(os, name)

        def call(*args: object, **more: object) -> object:
            calls[name] += 1
            return real(*args, **more)

        monkeypatch.setattr(os, name, call)

    counted("open")
    counted("scandir")
    (group,) = causes.survey(a_pipeline(tmp_path)).groups
    assert group.count == number
    # A few are for the directories.
    assert calls["open"] <= number + 20
    assert calls["scandir"] <= 4


def test_a_survey_is_told_to_programs_as_it_is() -> None:
    survey = causes.survey_of([case("a", "A")], 1, 2)
    assert msgspec.json.decode(msgspec.json.encode(survey), type=causes.Survey) == survey
