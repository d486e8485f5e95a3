"""What watchdogs are asked: `scale`, `pause`, `resume`, `restart`, `reload`, `stop`."""

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from queuedriver.claims.liveness import identify
from tests.cli import pipelines
from tests.cli.pipelines import FAR, driver, make, publish, report, sleeper
from tests.cli.processes import command, unprivileged
from tests.cli.queues import Called, drive, listed, submit
from tests.waiting import until
from watchdogd.cli import steer
from watchdogd.control import MARK, parse_request
from watchdogd.operators.actions import operator

Capsys = pytest.CaptureFixture[str]
Watch = Callable[..., Called]


def control(file: Path) -> Path:
    return file.parent / "queues/.watchdogd"


def operators_events(file: Path) -> list[dict[str, Any]]:
    """What is noted of who asked for what."""
    (notes,) = (control(file) / "events").glob("operators@*.jsonl")
    return [json.loads(line) for line in notes.read_text().splitlines()]


def requests(file: Path) -> list[tuple[str, str, str]]:
    """What was asked once: kind, target and host."""
    found = [parse_request(name) for name in listed(control(file))]
    return sorted((one[0].kind, one[0].target, one[1]) for one in found if one is not None)


# Which pipeline


def test_the_pipeline_is_the_one_that_must_be_meant(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    def called() -> Called:
        return pipelines.call(capsys, "status", "--json")

    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.delenv("WATCHDOGD_PIPELINE", raising=False)
    nothing = called()
    assert nothing.code == 66
    assert "there is no pipeline.toml here" in nothing.err
    monkeypatch.chdir(here)
    (tmp_path / "pipeline.toml").write_text(pipelines.FILE.replace("serif", "above"))
    assert called().json["name"] == "above"
    (here / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    (here / "a.toml").write_text(pipelines.FILE.replace("serif", "a"))
    assert called().json["name"] == "a"
    (here / "b.toml").write_text(pipelines.FILE.replace("serif", "b"))
    several = called()
    assert several.code == 2
    assert "a.toml, b.toml: which of them? name one with -p FILE" in several.err
    (here / "pipeline.toml").write_text(pipelines.FILE.replace("serif", "c"))
    assert called().json["name"] == "c"
    there.mkdir()
    make(there)
    monkeypatch.setenv("WATCHDOGD_PIPELINE", str(there))
    assert called().json["name"] == "serif"
    assert pipelines.call(capsys, "status", "a.toml", "--json").json["name"] == "a"


def test_a_file_that_is_not_there_has_code_66(capsys: Capsys) -> None:
    assert pipelines.call(capsys, "pause", "-p", "/nowhere.toml").code == 66


def test_nothing_is_made_where_nothing_ever_ran(tmp_path: Path, capsys: Capsys) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(pipelines.FILE)
    for words in (["pause"], ["resume"], ["scale", "parse=2"], ["restart"], ["reload"], ["stop"]):
        called = pipelines.call(capsys, *words, "-p", file)
        assert called.code == 66
        assert f"watchdogd run {file} makes it" in called.err
    assert os.listdir(tmp_path) == ["pipeline.toml"]


# What is not there


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["pause", "prase"], "no stage 'prase' in {file}; there are: parse, "),
        (["scale", "ot=2"], "no stage 'ot' in {file}; there are: out, "),
        (["restart", "prase-2"], "no stage or driver 'prase-2' in {file}; there are: parse-2, "),
        (["restart", "parse-9"], "no stage or driver 'parse-9'"),
        (["restart", "parse@fren"], "no host 'fren' in {file}; there are: fern"),
        (["logs", "x"], "no stage or driver 'x'"),
    ],
)
def test_what_is_not_there_is_answered_with_what_is_the_nearest_first(
    args: list[str], words: str, file: Path, watch: Watch
) -> None:
    publish(file, report("fern"))
    before = listed(control(file))
    called = watch(*args)
    assert called.code == 66
    assert words.format(file=file) in called.err
    assert listed(control(file)) == before


def test_a_slip_in_the_last_word_changes_nothing(file: Path, watch: Watch) -> None:
    publish(file, report())
    for args in (["pause", "values", "nope"], ["scale", "values=2", "nope=1"]):
        assert watch(*args).code == 66
    assert watch("restart", "values", "nope").code == 66
    assert listed(control(file)) == ["hosts"]
    assert "PAUSE" not in listed(file.parent / "queues/input")


@pytest.mark.parametrize("word", ["parse", "parse=", "parse=-1", "parse=2.5", "=2", "parse=many"])
def test_a_number_of_drivers_that_cannot_be_meant_has_code_2(word: str, watch: Watch) -> None:
    assert watch("scale", word).code == 2


def test_a_directory_that_may_not_be_written_is_named(file: Path) -> None:
    publish(file, report())
    queue = file.parent / "queues/values"
    for directory in (control(file), queue):
        directory.chmod(0o555)
    prefix = unprivileged()
    words = "may not be changed: permission denied; who steers must be able to write in it"
    for args, directory in (
        (["pause"], control(file)),
        (["pause", "parse"], queue),
        (["scale", "parse=2"], control(file)),
        (["restart"], control(file)),
        (["stop"], control(file)),
    ):
        called = command(*args, "-p", file, prefix=prefix, program="watchdogd")
        assert (called.code, called.err) == (77, f"watchdogd: {directory} {words}\n")


# What is asked


def numbers(file: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in control(file).glob("scale*")}


def test_numbers_of_drivers_are_written_where_watchdogs_read_them(file: Path, watch: Watch) -> None:
    publish(file, report())
    assert watch("scale", "parse=4", "out=0") == (0, "", "")
    assert watch("scale", "parse=2", "--host", "rose") == (0, "", "")
    said = {"scale-parse": "4\n", "scale-out": "0\n", "scale-parse@rose": "2\n"}
    assert numbers(file) == said
    assert watch("scale", "parse=auto").code == 0
    assert watch("scale", "parse=auto", "--host", "rose").code == 0
    assert numbers(file) == {"scale-out": "0\n", "scale-parse@rose": "auto\n"}


def test_two_numbers_for_one_stage_are_no_number(file: Path, watch: Watch) -> None:
    publish(file, report())
    called = watch("scale", "parse=4", "parse=2")
    assert called.code == 2
    assert "'parse=2': another number was given before" in called.err
    assert numbers(file) == {}


def test_very_many_drivers_are_asked_back(file: Path, watch: Watch) -> None:
    publish(file, report(processors=4))
    assert watch("scale", "parse=64", "out=2") == (0, "", "")
    called = watch("scale", "parse=65", "out=3")
    assert called.code == 2
    many = "start 65 drivers for parse, where a host has 4 processors"
    assert f"{many}: say --yes if that is meant" in called.err
    assert numbers(file) == {"scale-parse": "64\n", "scale-out": "2\n"}
    assert watch("scale", "parse=65", "out=3", "--yes") == (0, "", f"watchdogd: {many}\n")
    assert numbers(file) == {"scale-parse": "65\n", "scale-out": "3\n"}
    # That host has more.
    publish(file, report("fern", identity=FAR, processors=400))
    assert watch("scale", "parse=500", "--host", "fern").code == 0
    assert watch("scale", "parse=500", "--host", "rose").code == 2


def test_host_has_the_processors_that_it_may_use(file: Path, watch: Watch) -> None:
    may_use = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(may_use)})
    try:
        assert "where a host has 1 processor" in watch("scale", "parse=17").err
    finally:
        os.sched_setaffinity(0, may_use)


def test_a_driver_beyond_what_the_file_says_can_be_meant_once_it_is_there(
    file: Path, watch: Watch
) -> None:
    publish(file, report(drivers=(driver("parse-9"),)))
    assert watch("restart", "parse-9").code == 0
    assert requests(file) == [("restart", "parse-9", "")]


def test_a_pipeline_and_its_stages_are_paused_and_resumed(file: Path, watch: Watch) -> None:
    publish(file, report())
    queues = file.parent / "queues"
    assert watch("pause") == (0, "", "")
    assert "PAUSE" in listed(control(file))
    assert watch("pause", "parse", "out") == (0, "", "")
    assert ["PAUSE" in listed(queues / one) for one in ("input", "values", "parse")] == [
        False,
        True,
        True,
    ]
    assert "the whole pipeline is paused all the same" in watch("resume", "out").err
    assert watch("resume") == (0, "", "")
    assert "PAUSE" not in listed(control(file))
    # What was paused by itself is resumed by itself.
    assert "PAUSE" in listed(queues / "values")
    assert watch("resume", "parse") == (0, "", "")
    assert "PAUSE" not in listed(queues / "values")


def test_what_was_paused_with_the_pipeline_is_resumed_with_it_though_no_watchdog_runs(
    file: Path, watch: Watch
) -> None:
    watch("pause")
    for queue, text in (("input", MARK), ("values", b"")):
        (file.parent / "queues" / queue / "PAUSE").write_bytes(text)
    assert watch("resume") == (0, "", "")
    assert not (file.parent / "queues/input/PAUSE").exists()
    # What was paused by itself.
    assert "parse is PAUSED" in watch("status").out
    assert "values is PAUSED" not in watch("status").out


def test_a_stage_that_was_told_to_quit_is_resumed_too(file: Path, watch: Watch) -> None:
    quits = file.parent / "queues/values/QUIT"
    quits.touch()
    assert f"before watchdogd resume parse -p {file} none stays" in watch("status").out
    assert watch("resume", "parse").code == 0
    assert not quits.exists()


def test_stage_that_has_stopped_itself_says_so_and_is_resumed(file: Path, watch: Watch) -> None:
    submit(file.parent / "queues/values", *(f"bad{number}" for number in range(5)))
    drive(file.parent / "queues/values", retries=0, trip_after=3)
    assert "parse has stopped by itself: 3 documents in a row failed" in watch("status").out
    assert watch("resume", "parse").code == 0
    assert "stopped by itself" not in watch("status").out


def test_stages_and_drivers_are_restarted_on_one_host_or_on_each(file: Path, watch: Watch) -> None:
    publish(file, report())
    publish(file, report("fern", identity=FAR))
    assert watch("restart", "parse", "values-1", "out-2@fern") == (0, "", "")
    assert watch("restart", "out", "--host", "rose") == (0, "", "")
    assert requests(file) == [
        ("restart", "out", "rose"),
        ("restart", "out-2", "fern"),
        ("restart", "parse", ""),
        ("restart", "values-1", ""),
    ]


def test_restart_of_nothing_in_particular_restarts_all(file: Path, watch: Watch) -> None:
    publish(file, report())
    assert watch("restart").code == 0
    assert [one[1] for one in requests(file)] == ["out", "parse", "values"]


def test_stop_and_stop_now_are_told_apart(file: Path, watch: Watch) -> None:
    publish(file, report())
    assert watch("stop") == (0, "", "")
    assert (control(file) / "QUIT").read_text() == ""
    assert watch("stop", "--now") == (0, "", "")
    assert (control(file) / "QUIT").read_text() == "now\n"


# Whether anybody obeys


@pytest.mark.parametrize("words", [["restart"], ["reload"], ["stop"]])
def test_a_request_that_nobody_would_serve_is_refused(
    words: list[str], file: Path, watch: Watch
) -> None:
    publish(file, report(state="stopped"))
    assert watch(*words) == (69, "", "watchdogd: no watchdog runs\n")
    # It must not wait for whoever comes next.
    assert listed(control(file)) == ["hosts"]


def test_what_holds_until_it_is_undone_is_written_with_a_word(file: Path, watch: Watch) -> None:
    called = watch("scale", "parse=2")
    assert (called.code, called.err) == (0, "watchdogd: no watchdog runs: it holds once one does\n")
    assert "no watchdog runs" in watch("pause").err
    assert listed(control(file)) == ["PAUSE", "events", "scale-parse"]


def test_who_asked_for_what_is_written_down_beside_what_watchdogs_say(
    file: Path, watch: Watch
) -> None:
    publish(file, report())
    for words in (
        ["pause"],
        ["resume"],
        ["pause", "values", "parse"],
        ["resume", "parse"],
        ["scale", "parse=2", "out=auto"],
        ["restart", "parse", "--host", "rose"],
        ["reload"],
        ["stop", "--now"],
    ):
        assert watch(*words).code == 0
    events = operators_events(file)
    assert [one["message"] for one in events] == [
        "pause the whole pipeline",
        "resume the whole pipeline",
        "pause values",
        "pause parse",
        "resume parse",
        "scale parse to 2 drivers on each host",
        "scale out to as many drivers as the file says on each host",
        "restart parse on rose",
        "reload",
        "stop --now",
    ]
    assert {one["event"] for one in events} == {"asked"}
    assert {one["who"] for one in events} == {operator()}
    assert f"uid {os.getuid()}" in operator()
    assert {one["host"] for one in events} == {os.uname().nodename}
    assert [one.get("stage") for one in events][2:8] == [
        *("values", "parse", "parse", "parse", "out", "parse")
    ]


def test_a_note_that_cannot_be_written_stops_nobody(file: Path, watch: Watch) -> None:
    control(file).mkdir(exist_ok=True)
    (control(file) / "events").write_text("no directory")
    called = watch("pause", "parse")
    assert called.code == 0
    assert "could not be written (Not a directory): who did this is not noted" in called.err
    assert "PAUSE" in listed(file.parent / "queues/values")


def test_a_silent_watchdog_is_asked_all_the_same(file: Path, watch: Watch) -> None:
    publish(file, report("fern", identity=FAR, at=0.0))
    called = watch("restart", "parse")
    assert (called.code, called.err) == (0, "watchdogd: nothing is heard of the watchdog on fern\n")
    assert requests(file) == [("restart", "parse", "")]


def test_a_host_without_a_watchdog_restarts_nothing(file: Path, watch: Watch) -> None:
    publish(file, report("rose"))
    publish(file, report("fern", state="stopped"))
    called = watch("restart", "parse", "--host", "fern")
    assert (called.code, called.err) == (69, "watchdogd: no watchdog runs on fern\n")
    assert requests(file) == []


# Waiting


def test_a_reload_of_a_bad_file_is_refused_before_it_is_asked(file: Path, watch: Watch) -> None:
    publish(file, report())
    file.write_text(file.read_text() + "\n[nonsense")
    called = watch("reload")
    assert called.code == 78
    assert "nothing is reloaded" in called.err
    assert requests(file) == []


@pytest.mark.parametrize(("error", "code"), [("", 0), ("parse: no such program", 78)])
def test_reload_can_wait_until_it_was_served_and_tells_who_refused(
    error: str, code: int, file: Path, watch: Watch
) -> None:
    said = publish(file, report())

    def serve() -> None:
        until(lambda: requests(file))
        (request,) = [one for one in map(parse_request, listed(control(file))) if one]
        answered = {"served": (request[0].serial,), "reload_error": error}
        publish(file, msgspec.structs.replace(said, **answered))

    server = threading.Thread(target=serve)
    server.start()
    called = watch("reload", "--wait")
    server.join()
    # What was published before it was asked says nothing of an error.
    assert called.code == code
    assert error in called.err


@pytest.mark.parametrize(("words", "what"), [(["reload"], "read the file"), (["stop"], "leave")])
def test_waiting_for_a_watchdog_ends_and_says_for_which(
    words: list[str], what: str, file: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(file, report())
    # As if they had taken all the time that they may.
    monkeypatch.setattr(steer, "_READ_TAKES", 0.0)
    monkeypatch.setattr(steer, "_HEARD_AFTER", -1e6)
    called = watch(*words, "--wait")
    assert called.code == 75
    assert f"rose did not {what} within" in called.err


def test_stop_can_wait_until_all_have_left(file: Path, watch: Watch) -> None:
    with sleeper() as process:
        said = publish(file, report(pid=process.pid, identity=identify(process.pid)))
        publish(file, report("fern", identity=FAR, at=0.0))

        def leave() -> None:
            until(lambda: "QUIT" in listed(control(file)))
            publish(file, msgspec.structs.replace(said, state="stopped"))

        server = threading.Thread(target=leave)
        server.start()
        called = watch("stop", "--wait")
        server.join()
    assert (called.code, called.out) == (0, "")
