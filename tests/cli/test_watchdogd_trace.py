"""`watchdogd trace`: one document through all stages, under every name it had."""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from queuedriver import Driver, Options, Output
from tests.cli import pipelines
from tests.cli.pipelines import make, publish, report
from tests.cli.queues import Called, drive, kill, stuck_driver, submit
from watchdogd.report import StageReport

Capsys = pytest.CaptureFixture[str]
Watch = Callable[..., Called]
TO_XML = "{docid}.xml.ready"
TO_HTML = "{stem}.html"


def queue(file: Path, name: str) -> Path:
    return file.parent / "queues" / name


def through(file: Path, *stages: str) -> None:
    """Let stages do all that waits for them."""
    publishes = {"values": TO_XML, "parse": "{docid}.ready", "out": TO_HTML}
    inputs = {"values": "input", "parse": "values", "out": "parse"}
    for one in stages:
        drive(queue(file, inputs[one]), queue(file, one), publish=publishes[one], retries=0)


def last(called: Called) -> str:
    return called.out.splitlines()[-1]


def visited(called: Called) -> list[tuple[str, str]]:
    return [(stop["stage"], stop["docid"]) for stop in called.json["stops"]]


def test_a_document_is_found_without_its_extension(file: Path, watch: Watch) -> None:
    submit(queue(file, "input"), "scan.pdf")
    through(file, "values", "parse", "out")
    assert watch("trace", "scan").out == watch("trace", "scan.pdf").out
    assert watch("trace", "sca").code == 66


def test_a_document_is_found_by_the_stem_of_its_result(tmp_path: Path, capsys: Capsys) -> None:
    file = make(tmp_path, pipelines.FILE)
    submit(queue(file, "input"), "scan.pdf")
    through(file, "values")
    # Its result is scan.html, so a document "scan" would have the same.
    drive(queue(file, "values"), queue(file, "parse"), publish="{stem}.ready")
    drive(queue(file, "parse"), queue(file, "out"), publish=TO_HTML)
    called = pipelines.call(capsys, "trace", "scan", "-p", file)
    assert called.out.startswith("values, in input\n")
    assert last(called) == "scan.pdf: through, in out: the file scan.html"
    assert "tells nothing" not in called.out


def test_a_document_is_followed_though_stages_that_still_run_lead_it_back(
    file: Path, watch: Watch
) -> None:
    submit(queue(file, "input"), "a")
    running = report()
    # The file has another stage in its place by now.
    back = StageReport(name="back", wanted=1, inputs=("values",), outputs=("input",))
    publish(file, replace(running, stages=(*running.stages, back)))
    assert visited(watch("trace", "a", "--json")) == [("values", "a")]


def test_a_document_is_followed_through_its_names_to_its_end(file: Path, watch: Watch) -> None:
    submit(queue(file, "input"), "a")
    through(file, "values", "parse", "out")
    called = watch("trace", "a")
    assert called.code == 0
    assert last(called) == "a: through, in out: the file a.html"
    assert "values, in input" in called.out
    assert "a published, attempt 0" in called.out
    assert "as a.xml.ready by h-1" in called.out
    assert "a.xml claimed by h-1" in called.out
    assert "after it had waited" in called.out
    told = watch("trace", "a", "--json")
    assert visited(told) == [("values", "a"), ("parse", "a.xml"), ("out", "a.xml")]
    assert told.json["ends"] == [{"queue": "out", "name": "a.html"}]
    assert told.json["stops"][1]["arrived_at"] is not None


def test_any_of_its_names_leads_to_its_beginning(file: Path, watch: Watch) -> None:
    submit(queue(file, "input"), "a")
    through(file, "values")
    submit(queue(file, "values"), "bad")
    through(file, "parse", "out")
    everything = [("values", "a"), ("parse", "a.xml"), ("out", "a.xml")]
    assert visited(watch("trace", "a.xml", "--json")) == everything
    assert visited(watch("trace", "a.html", "--json")) == everything
    # What somebody sees in a listing will do.
    assert visited(watch("trace", "queues/values/a.xml.ready", "--json")) == everything


def test_a_discarded_document_is_told_of_with_its_reason(file: Path, watch: Watch) -> None:
    submit(queue(file, "input"), "bad")
    through(file, "values")
    called = watch("trace", "bad")
    assert last(called).startswith("bad: in stage values: discarded at ")
    assert "ValueError: no good" in last(called)
    assert last(called).endswith(f"watchdogd retry values bad -p {file} lets it be tried again")


def test_a_document_that_waits_says_what_for(file: Path, watch: Watch) -> None:
    submit(queue(file, "input"), "a")
    through(file, "values")
    assert last(watch("trace", "a")) == (
        "a: in stage parse as a.xml: no watchdog runs, and no driver of its stage; "
        f"start it with watchdogd run {file}"
    )
    publish(file, report())
    assert last(watch("trace", "a")).endswith(
        f"no driver of its stage is alive; see watchdogd status -p {file}"
    )
    watch("pause", "parse")
    assert last(watch("trace", "a")).endswith(
        f"paused: nothing is claimed before watchdogd resume parse -p {file}"
    )
    watch("pause")
    assert last(watch("trace", "a")).endswith(f"before watchdogd resume -p {file}")


def test_a_document_at_hand_says_whose(file: Path, watch: Watch) -> None:
    with stuck_driver(queue(file, "input"), queue(file, "values")) as process:
        assert "slow: in stage values: being processed by h-7 on " in last(watch("trace", "slow"))
        kill(process)
        assert "which ended without a word" in last(watch("trace", "slow"))


def test_a_result_that_waits_to_be_collected_is_an_end(tmp_path: Path, capsys: Capsys) -> None:
    text = pipelines.FILE.replace('publish = "{stem}.html"', "")
    file = make(tmp_path, text)
    submit(queue(file, "input"), "a")
    through(file, "values", "parse")
    drive(queue(file, "parse"), queue(file, "out"))
    called = pipelines.call(capsys, "trace", "a", "-p", file)
    assert last(called) == "a: through, in out: a.xml.ready waits to be collected"


def test_what_was_collected_says_what_it_was_published_as(file: Path, watch: Watch) -> None:
    submit(queue(file, "input"), "a")
    through(file, "values", "parse", "out")
    (queue(file, "out") / "a.html").unlink()
    assert "last seen in stage out as a.xml: published as a.html at" in last(watch("trace", "a"))


def test_branches_are_all_followed(tmp_path: Path, capsys: Capsys) -> None:
    text = """
    [pipeline]
    name = "fork"
    root = "queues"
    [[stage]]
    name = "split"
    output = ["left", "right"]
    call = "m:f"
    [[stage]]
    name = "one"
    input = "left"
    call = "m:f"
    [[stage]]
    name = "two"
    input = "right"
    call = "m:f"
    """
    file = make(tmp_path, text, "input", "left", "right", "one", "two")
    submit(queue(file, "input"), "a")
    Driver(
        queue(file, "input"),
        lambda document: [Output(b"1", queue="left"), Output(b"2", "b", queue="right")],
        [queue(file, "left"), queue(file, "right")],
        id="h-1",
        options=Options(drain=True),
    ).run()
    drive(queue(file, "left"), queue(file, "one"))
    called = pipelines.call(capsys, "trace", "a", "-p", file)
    assert "in stage two as b: no watchdog runs" in last(called)
    assert "; and through, in one: a.ready waits to be collected" in last(called)


def test_a_document_of_nobody_is_not_found(file: Path, watch: Watch) -> None:
    called = watch("trace", "nobody")
    assert (called.code, called.out) == (66, "")
    assert f"no document 'nobody' is or was in any queue of {file}" in called.err


def test_a_document_whose_docid_was_taken_is_followed_under_its_new_one(
    file: Path, watch: Watch
) -> None:
    # The second is discarded beside the first, and both are kept.
    for _ in range(2):
        submit(queue(file, "input"), "bad")
        through(file, "values")
    called = watch("trace", "bad", "--json")
    (_, first), (_, second) = visited(called)
    assert first == "bad"
    assert second.startswith("bad~")
    assert all("no good" in stop["why"] for stop in called.json["stops"])
