"""How a pipeline is going: `watchdogd status` and `top`."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from queuedriver.claims.liveness import identify
from queuedriver.driving.measurements import Counted, Durations
from queuedriver.format.units import format_instant
from tests.cli import pipelines
from tests.cli.pipelines import FAR, GONE, driver, publish, report, sleeper
from tests.cli.processes import ENVIRON, command, on_terminal, read_until, unprivileged
from tests.cli.queues import PATIENCE, Called, drive, stuck_driver, submit
from tests.cli.queues import driver as running
from tests.waiting import until
from watchdogd.operators.actions import operator
from watchdogd.report import HUNG_AFTER, SILENT_AFTER, StageReport

Capsys = pytest.CaptureFixture[str]
Watch = Callable[..., Called]
WATCHDOGD = (sys.executable, "-m", "watchdogd")


@pytest.fixture
def watch(capsys: Capsys) -> Watch:
    return lambda *args: pipelines.call(capsys, *args)


def rows(called: Called) -> dict[str, list[str]]:
    """The table's lines by their first word."""
    lines = [line.split() for line in called.out.splitlines()]
    return {line[0]: line[1:] for line in lines if line}


def stage(called: Called, name: str) -> Any:
    return next(one for one in called.json["stages"] if one["name"] == name)


# An intake


def test_an_intake_is_shown_with_the_files_that_wait_in_its_folder(
    tmp_path: Path, watch: Watch
) -> None:
    file = pipelines.make_with_intake(tmp_path)
    called = watch("status", file)
    shown = rows(called)
    assert shown["STAGE"][:2] == ["STATE", "WAITING"]
    # It has no word for its state.
    assert shown["scanner"][0] == "3"
    assert "3 files wait, as a.pdf: empty for 4 s" in " ".join(shown["scanner-1"])
    told = stage(watch("status", file, "--json"), "scanner")
    assert (told["waiting"], told["folder"]) == (3, str(tmp_path / "drops"))
    assert told["outputs"] == ["input"]
    assert told["waits_for"] == "3 files wait, as a.pdf: empty for 4 s"


def test_an_intake_that_the_file_has_no_more_is_shown_while_it_runs(
    tmp_path: Path, watch: Watch
) -> None:
    file = pipelines.make_with_intake(tmp_path)
    file.write_text(pipelines.FILE)
    told = stage(watch("status", file, "--json"), "scanner")
    assert (told["waiting"], told["folder"]) == (3, "")
    assert told["files"]["stuck"] == 1


def test_what_waits_for_an_intake_is_unknown_while_no_watchdog_says(
    tmp_path: Path, watch: Watch
) -> None:
    file = pipelines.make_with_intake(tmp_path)
    publish(file, report(state="stopped"))
    assert stage(watch("status", file, "--json"), "scanner")["waiting"] is None


# Without a watchdog


def test_why_a_drain_ended_before_all_was_through_is_said(file: Path, watch: Watch) -> None:
    why = "stage parse: wrong configuration: No module named 'parse'"
    publish(file, report(state="stopped", hopeless=why))
    assert f"the watchdog on rose left before all was through: {why}\n" in watch("status", file).out


def test_a_pipeline_is_readable_before_anything_ever_ran(tmp_path: Path, watch: Watch) -> None:
    file = tmp_path / "serif.toml"
    file.write_text(pipelines.FILE)
    called = watch("status", file)
    assert called.code == 3
    assert f"no watchdog runs; start it with watchdogd run {file}" in called.out
    assert rows(called)["parse"] == ["0", "0", "0", "0", "0/1–3"]
    # To look changes nothing.
    assert os.listdir(tmp_path) == ["serif.toml"]


def test_documents_are_counted_without_a_watchdog(file: Path, watch: Watch) -> None:
    queues = file.parent / "queues"
    submit(queues / "input", "a", "b", "bad")
    drive(queues / "input", queues / "values", publish="{docid}.xml.ready", retries=0)
    submit(queues / "input", "c")
    (queues / "out/a.html").touch()
    called = watch("status", file)
    assert called.code == 3
    assert rows(called)["values"][:4] == ["1", "0", "0", "1"]
    assert rows(called)["parse"][:4] == ["2", "0", "0", "0"]
    assert "→ out  1 file" in called.out


def test_numbers_are_there_for_programs(file: Path, watch: Watch) -> None:
    queues = file.parent / "queues"
    submit(queues / "input", "a", "b")
    seen = watch("status", file, "--json").json
    assert (seen["name"], seen["state"], seen["file"]) == ("serif", "not running", str(file))
    assert [one["waiting"] for one in seen["stages"]] == [2, 0, 0]
    assert seen["results"] == [{"queue": "out", "items": 0, "files": 0}]
    assert any("no watchdog runs" in words for words in seen["words"])


def test_drivers_without_a_watchdog_are_a_gap_that_is_named(file: Path, watch: Watch) -> None:
    queues = file.parent / "queues"
    publish(file, report(identity=GONE, drivers=(driver("values-1", id="h-7"),)))
    with stuck_driver(queues / "input", queues / "values"):
        called = watch("status", file)
        assert called.code == 3
        assert "1 driver runs without a watchdog, and nobody replaces one that ends" in called.out
        assert "the watchdog on rose ended without a word after" in called.out
        # By the name that its watchdog gave it.
        assert "busy" in rows(called)["values-1"]
        assert "slow; no watchdog keeps it" in called.out
        # How many there are to be, the file says while nobody else does.
        assert re.search(r"^values .* 1/1 ", called.out, re.MULTILINE)
        assert stage(watch("status", file, "--json"), "values")["drivers"] == 1


# With one


def test_a_watchdog_that_lives_is_known_by_its_process(file: Path, watch: Watch) -> None:
    with sleeper() as process:
        said = report(pid=process.pid, identity=identify(process.pid))
        publish(file, said)
        assert watch("status", file).code == 0
        # By its word alone, one of another host would live for longer.
        publish(file, msgspec.structs.replace(said, at=said.at - HUNG_AFTER))
        assert watch("status", file).code == 0
        process.kill()
        process.wait()
        assert watch("status", file).code == 3


def test_a_watchdog_that_is_there_and_says_nothing_is_no_running_pipeline(
    file: Path, watch: Watch
) -> None:
    at = time.time() - SILENT_AFTER - 20
    said = publish(file, report(at=at, drivers=(driver("parse-1", document="a"),)))
    called = watch("status", file)
    assert called.code == 4
    assert f"watchdog on rose: hung since {format_instant(at)}, process {said.pid}" in called.out
    assert f"kill -9 {said.pid} ends it; then watchdogd run {file}" in called.out
    seen = watch("status", file, "--json").json
    assert (seen["state"], seen["watchdogs"][0]["standing"]) == ("unknown", "hung")
    # What steers is asked all the same: it may only be late.
    assert "nothing is heard of the watchdog on rose" in watch("restart", "-p", file).err
    # One that lives is enough.
    publish(file, report("fern", identity=FAR))
    assert watch("status", file).code == 0


def test_stages_and_drivers_are_told_as_their_watchdog_has_them(file: Path, watch: Watch) -> None:
    now = time.time()
    publish(
        file,
        report(
            stages=(
                StageReport(name="values", wanted=1, rate=2.0, service=0.25, memory=600_000_000),
                StageReport(name="parse", wanted=2),
            ),
            drivers=(
                driver(
                    "values-1",
                    state="busy",
                    document="a.pdf",
                    since=now - 5 * 3600,
                    documents=1200,
                    restarts=3,
                    memory=600_000_000,
                    work=800,
                    wait=100,
                    block=60,
                    overhead=40,
                ),
                driver("parse-1"),
                driver("parse-2", state="stopped", pid=0),
            ),
        ),
    )
    submit(file.parent / "queues/input", *(f"d{number}" for number in range(10)))
    called = watch("status", file)
    assert called.code == 0
    values = "10 0 0 0 1/1 2.0/s 250 ms 600 MB 80% 10% 6% 4% clear in 5 s"
    assert " ".join(rows(called)["values"]) == values
    assert rows(called)["parse"][-1] == "1/2"
    one = "busy 5 h a.pdf 1,200 3 600 MB 80% 10% 6% 4%"
    assert " ".join(rows(called)["values-1"]) == one
    assert "parse-2" not in called.out
    assert "watchdog on rose: running for 1 h, process" in called.out


def test_several_hosts_are_added_up(file: Path, watch: Watch) -> None:
    parse = StageReport(name="parse", wanted=2, rate=3.0, service=0.1, memory=100, hard_limit=600.0)
    stages = (parse,)
    publish(file, report("rose", stages=stages, drivers=(driver("parse-1"),)))
    other = (StageReport(name="parse", wanted=1, rate=1.0, service=0.5, memory=50),)
    publish(file, report("fern", identity=FAR, stages=other, drivers=(driver("parse-1", "fern"),)))
    called = watch("status", file, "--json")
    said = stage(called, "parse")
    assert (said["drivers"], said["wanted"], said["rate"], said["memory"]) == (2, 3, 4.0, 150)
    # Each counts by what it does.
    assert said["service"] == pytest.approx(0.2)
    # What is learned is learned on each host by itself.
    assert said["hard_limit"] == 600.0
    assert "HOST" in watch("status", file).out


def test_a_report_with_rates_that_nobody_can_have_hides_nothing(file: Path, watch: Watch) -> None:
    # Whoever may write in `.watchdogd/hosts/` can have it.
    for host, identity, rate in (("rose", identify(os.getpid()), 1.0), ("fern", FAR, -1.0)):
        stages = (StageReport(name="parse", wanted=1, rate=rate, service=2.0),)
        publish(file, report(host, identity=identity, stages=stages))
    called = watch("status", file, "--json")
    assert (called.code, stage(called, "parse")["service"]) == (0, pytest.approx(2.0))


@pytest.mark.parametrize(
    "counted", [Counted(failed=(1, 2)), Counted(waits=Durations(())), Counted(discarded=())]
)
def test_a_report_that_counts_otherwise_is_named_and_hides_nothing(
    counted: Counted, file: Path, watch: Watch
) -> None:
    publish(file, report())
    other = StageReport(name="parse", wanted=1, inputs=("values",), counted=counted)
    publish(file, report("fern", identity=FAR, stages=(other,)))
    called = watch("status", file, "--json")
    assert called.code == 0
    assert any("fern.json: it counts by other causes" in one for one in called.json["unreadable"])
    assert 'watchdog_up{host="rose"' in watch("metrics", file).out


def test_a_queue_that_cannot_be_looked_at_is_named_and_hides_no_other(
    file: Path, watch: Watch
) -> None:
    queues = file.parent / "queues"
    (queues / "values").rename(queues / "aside")
    (queues / "values").touch()
    submit(queues / "input", "a", "b")
    for said in (None, report()):
        if said is not None:
            publish(file, said)
        called = watch("status", file, "--json")
        assert called.code == (3 if said is None else 0)
        assert [stage(called, name)["waiting"] for name in ("values", "parse")] == [2, None]
        why = f"{str(queues / 'values')!r} is not a directory, so not a queue"
        assert f"parse takes from what cannot be looked at: {why}" in called.json["words"]
        assert watch("metrics", file).code == 0


@pytest.mark.parametrize(
    ("closed", "named"),
    [
        ("values", "parse takes from what cannot be looked at: "),
        ("values/.queuedriver", "parse takes from what cannot be looked at: "),
        ("values/discarded", "parse takes from what cannot be looked at: "),
        ("out", "out cannot be looked at: "),
        (".watchdogd/history/rose", ""),
    ],
)
def test_a_directory_that_may_not_be_read_is_named_and_hides_no_other(
    file: Path, closed: str, named: str
) -> None:
    queues = file.parent / "queues"
    publish(file, report())
    submit(queues / "input", "a", "b")
    submit(queues / "values", "c")
    history = queues / ".watchdogd" / "history" / "rose"
    history.mkdir(parents=True)
    (history / "values.ring").touch()
    (queues / "values/discarded").mkdir()
    (queues / closed).chmod(0)
    prefix = unprivileged()
    called = command("status", file, prefix=prefix, program="watchdogd")
    (queues / closed).chmod(0o755)
    assert called.code == 0
    assert rows(called)["values"][0] == "2"
    assert named in called.out
    assert ("may not be used: permission denied" in called.out) == bool(named)


def test_a_driver_is_told_of_once_that_is_reported_and_registered(file: Path, watch: Watch) -> None:
    queues = file.parent / "queues"
    with stuck_driver(queues / "input", queues / "values") as process:
        reported = driver("values-1", id="h-7", state="busy", document="slow", pid=process.pid)
        publish(file, report(drivers=(reported,)))
        drivers = watch("status", file, "--json").json["drivers"]
        assert [(one["id"], one["kept"]) for one in drivers] == [("h-7", True)]


def test_claims_are_newer_than_what_a_watchdog_said(file: Path, watch: Watch) -> None:
    queues = file.parent / "queues"
    with stuck_driver(queues / "input", queues / "values") as process:
        for document, state in (("earlier", "busy"), ("", "ready")):
            said = driver("values-1", id="h-7", state=state, document=document, pid=process.pid)
            publish(file, report(drivers=(said,)))
            (seen,) = watch("status", file, "--json").json["drivers"]
            assert (seen["state"], seen["document"]) == ("busy", "slow")
            assert seen["since"] > 0


def test_a_driver_started_since_its_watchdog_last_spoke_is_known_by_its_id(
    file: Path, watch: Watch
) -> None:
    queues = file.parent / "queues"
    publish(file, report())
    for name, kept in (("rose-values-2", True), ("rose-parse-2", False), ("rose-values", False)):
        with running(queues / "input", queues / "values", name):
            (seen,) = until(lambda: watch("status", file, "--json").json["drivers"])
            assert seen["kept"] is kept
            assert seen["name"] == ("values-2" if kept else name)
            assert ("no watchdog keeps it" in watch("status", file).out) is not kept


def test_a_silent_host_leaves_the_state_unknown(file: Path, watch: Watch) -> None:
    at = time.time() - SILENT_AFTER - 10
    publish(file, report("fern", identity=FAR, at=at))
    called = watch("status", file)
    assert called.code == 4
    assert "the watchdog on fern is silent since" in called.out
    # One that lives is enough.
    publish(file, report("rose"))
    assert watch("status", file).code == 0


def test_a_document_of_nobody_leaves_the_state_unknown(file: Path, watch: Watch) -> None:
    publish(file, report("rose", state="stopped"))
    (file.parent / "queues/.watchdogd/hosts/fern.json").write_text("{}")
    called = watch("status", file)
    assert called.code == 4
    assert "hosts/fern.json" in called.out


def test_one_that_left_as_asked_is_no_alarm(file: Path, watch: Watch) -> None:
    publish(file, report(state="stopped"))
    called = watch("status", file)
    assert called.code == 3
    assert "watchdog on rose: stopped at" in called.out
    assert "without a word" not in called.out


# What is loud

LOOPED: dict[str, Any] = {
    "state": "crash-looped",
    "pid": 0,
    "why": "8 runs finished nothing: exit code 1",
}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"drivers": (driver("parse-2", until=time.time() + 86_400, **LOOPED),)},
            [
                "parse-2 is crash-looped: 8 runs finished nothing: exit code 1; tried again in",
                "watchdogd logs parse-2 -p {file} tells more",
                "when that is mended, watchdogd restart parse-2 -p {file}",
            ],
        ),
        (
            {"drivers": tuple(driver(f"parse-{slot}", **LOOPED) for slot in range(1, 9))},
            [
                "parse-1, parse-2, parse-3, parse-4, parse-5 and 3 more are crash-looped",
                "watchdogd restart parse -p {file}",
            ],
        ),
        (
            {"stages": (StageReport(name="parse", state="degraded", why="no module 'parse'"),)},
            ["parse is degraded: no module 'parse'"],
        ),
        (
            {"state": "waiting-fs", "trouble": "No space left on device"},
            ["rose waits for the file system of", "No space left on device", "by itself"],
        ),
        (
            {"reload_error": "pipeline.toml:3: no key 'stag'\npipeline.toml:4: more"},
            [
                "rose goes on with the pipeline as it was",
                "pipeline.toml:3: no key 'stag' (and 1 more); mend it, then watchdogd reload",
            ],
        ),
        ({"state": "draining"}, ["rose is draining"]),
        ({"notes": ("parse needs more memory than there is",)}, ["parse needs more memory than"]),
        (
            {"drivers": (driver("parse-1", state="unkillable", document="a"),)},
            ["parse-1 is unkillable; it waits in the kernel"],
        ),
    ],
)
def test_what_somebody_must_know_is_said_first_and_what_to_type(
    fields: dict[str, Any], words: list[str], file: Path, watch: Watch
) -> None:
    publish(file, report(**fields))
    called = watch("status", file)
    assert called.code == 0
    above = called.out.partition("STAGE")[0]
    for one in words:
        assert one.format(file=file) in above


@pytest.mark.parametrize("state", ["ready", "backoff", "crash-looped"])
def test_a_backlog_that_crash_looped_drivers_have_alone_is_no_success(
    state: str, file: Path, watch: Watch
) -> None:
    drivers = (driver("parse-1", **LOOPED), driver("parse-2", **(LOOPED | {"state": state})))
    publish(file, report(drivers=drivers))
    assert watch("status", file).code == 0
    submit(file.parent / "queues/values", "a")
    assert watch("status", file).code == (state == "crash-looped")
    # One that is not wanted will not do it either.
    publish(file, report(drivers=(*drivers, driver("parse-3", state="stopped", pid=0))))
    assert watch("status", file).code == (state == "crash-looped")


def test_a_crashed_watchdog_is_named_with_its_report(file: Path, watch: Watch) -> None:
    crash = "this is a bug of watchdogd: KeyError: 'b'; please report it with /run/bug-1.txt"
    publish(file, report(state="stopped", crash=crash))
    called = watch("status", file)
    assert called.code == 3
    assert "watchdog on rose: crashed at" in called.out
    assert crash in called.out


def test_a_drain_that_could_not_go_on_is_named_with_the_reason(file: Path, watch: Watch) -> None:
    why = "stage parse: no module named 'nowhere'; mend that, then restart or reload"
    publish(file, report(state="stopped", hopeless=why))
    called = watch("status", file)
    assert called.code == 3
    assert f"left before all was through: {why}" in called.out


def test_a_stage_that_is_scaled_to_0_says_so_and_has_no_end(file: Path, watch: Watch) -> None:
    submit(file.parent / "queues/values", "a")
    stages = (StageReport(name="parse", rate=2.0),)
    publish(file, report(stages=stages, drivers=(driver("parse-1", state="stopped", pid=0),)))
    watch("scale", "parse=0", "-p", file)
    called = watch("status", file)
    back = f"before watchdogd scale parse=auto -p {file}"
    assert f"parse is scaled to 0: nothing is done in it {back}" in called.out
    assert rows(called)["parse"][-1] == "unknown"
    assert stage(watch("status", file, "--json"), "parse")["outlook"]["kind"] == "unknown"
    watch("scale", "parse=auto", "-p", file)
    assert "scaled to 0" not in watch("status", file).out


def test_a_stage_that_has_no_drivers_says_so(tmp_path: Path, watch: Watch) -> None:
    file = pipelines.make(tmp_path, pipelines.FILE.replace("drivers = 2", "drivers = 0"))
    words = f"out has drivers = 0: nothing is done in it before watchdogd scale out=1 -p {file}"
    assert words in watch("status", file).out


def test_numbers_of_drivers_are_told_while_nothing_runs(file: Path, watch: Watch) -> None:
    watch("scale", "parse=7", "out=0", "-p", file)
    called = watch("status", file)
    assert rows(called)["parse"][-1] == "0/7"
    assert "out is scaled to 0" in called.out
    assert [one["scaled"] for one in watch("status", file, "--json").json["stages"]] == [None, 7, 0]


def test_a_paused_pipeline_and_a_paused_stage_say_so(file: Path, watch: Watch) -> None:
    publish(file, report())
    watch("pause", "parse", "-p", file)
    os.utime(file.parent / "queues/values/PAUSE", (1_900_000_000, 1_900_000_000))
    called = watch("status", file)
    since = f"by {operator()} since {format_instant(1_900_000_000)}"
    assert (
        f"parse is PAUSED, {since}: nothing is claimed before watchdogd resume parse -p {file}"
        in called.out
    )
    assert rows(called)["parse"][0] == "paused"
    watch("pause", "-p", file)
    os.utime(file.parent / "queues/.watchdogd/PAUSE", (1_900_000_060, 1_900_000_060))
    since = f"by {operator()} since {format_instant(1_900_000_060)}"
    assert f"PAUSED, {since}: nothing is claimed in any stage" in watch("status", file).out
    # Of all stages alike, whoever paused one of them before.
    whys = {one["why"] for one in watch("status", file, "--json").json["stages"]}
    assert whys == {since}


def test_a_running_pipeline_is_told_of_while_its_file_is_bad(file: Path, watch: Watch) -> None:
    publish(file, report(reload_error="pipeline.toml:9: no key 'cal'"))
    submit(file.parent / "queues/input", "a")
    file.write_text(file.read_text().replace("call", "cal", 1) + "\n[nonsense")
    called = watch("status", file)
    assert called.code == 0
    assert rows(called)["values"][0] == "1"
    assert "no key 'cal'" in called.out


def test_a_bad_file_that_nobody_runs_is_an_error_with_every_mistake(
    file: Path, watch: Watch
) -> None:
    text = file.read_text()
    file.write_text(text.replace("call", "cal", 1).replace("drivers = 2", "drivers = -2"))
    called = watch("status", file)
    assert (called.code, called.out) == (78, "")
    assert "cal" in called.err
    assert "-2" in called.err


def test_names_cannot_steer_a_terminal(file: Path, watch: Watch) -> None:
    publish(file, report("ro\x1b[2Jse", drivers=(driver("parse-1", document="\x1b[2J\u202e"),)))
    called = watch("status", file)
    assert "\x1b" not in called.out
    assert "\u202e" not in called.out


# Live


def test_top_without_a_terminal_is_status(file: Path, watch: Watch) -> None:
    called = watch("top", file)
    assert called.code == 3
    assert called.out.startswith("serif  ")
    assert "STAGE   STATE" in called.out


def test_top_follows_what_happens_and_ends_with_q(file: Path) -> None:
    with on_terminal("top", file, program="watchdogd") as (process, terminal):
        read_until(terminal, r"no watchdog runs")
        submit(file.parent / "queues/input", *(f"d{number}" for number in range(77)))
        publish(file, report())
        read_until(terminal, r"values .* 77 ")
        os.write(terminal, b"q")
        # The screen is as it was before.
        read_until(terminal, r"\x1b\[\?1049l")
        assert process.wait(PATIENCE) == 0


def test_top_prints_each_look_on_a_line_for_programs(file: Path) -> None:
    command = [*WATCHDOGD, "top", str(file), "--json"]
    with subprocess.Popen(command, env=ENVIRON, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        seen = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
    assert [one["name"] for one in seen] == ["serif", "serif"]
    assert seen[0]["at"] < seen[1]["at"]


def test_no_line_is_longer_than_the_terminal_is_wide(file: Path) -> None:
    numbers: dict[str, Any] = {
        "documents": 61_204,
        "memory": 14_100_000_000,
        "work": 900,
        "wait": 50,
        "block": 30,
        "overhead": 20,
    }
    one = driver("parse-1", state="busy", document="a" * 90, **numbers)
    stages = (StageReport(name="parse", wanted=8, rate=2.1, service=3.3, memory=14_100_000_000),)
    publish(file, report(stages=stages, drivers=(one,)))
    submit(file.parent / "queues/values", *(f"d{number}" for number in range(12)))
    with on_terminal("status", file, program="watchdogd") as (_, terminal):
        shown = read_until(terminal, r"parse-1 .*\n")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
    (head,) = [number for number, line in enumerate(plain) if line.startswith("STAGE")]
    assert max(map(len, plain[head:])) <= 70
    assert "OVERHEAD" not in shown
    assert {"STAGE", "WAITING", "DRIVERS", "OUTLOOK"} <= set(plain[head].split())
    assert "aaa" in shown


def test_top_ends_with_ctrl_c(file: Path) -> None:
    with on_terminal("top", file, program="watchdogd") as (process, terminal):
        read_until(terminal, r"no watchdog runs")
        process.send_signal(signal.SIGINT)
        read_until(terminal, r"\x1b\[\?1049l")
        assert process.wait(PATIENCE) == 130


# Each takes longer to import than what is read and shown takes.
COSTLY = {
    *(
        "asyncio",
        "difflib",
        "filelock",
        "json",
        "logging",
        "pathlib",
        "psutil",
        "random",
        "tempfile",
    ),
    *("pydantic", "rich", "typer", "watchdog", "queuedriver.processors.command"),
}
# A quarter of these are the standard library's that msgspec wants.
MOST_MODULES = 179


def test_status_imports_no_more_than_it_needs(file: Path) -> None:
    script = (
        "import sys; from watchdogd.cli import run; code = run(['status', sys.argv[1]]); "
        "print(code, *sorted(sys.modules), file=sys.stderr)"
    )
    ran = subprocess.run(
        [sys.executable, "-S", "-c", script, file],
        env=ENVIRON,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    code, *modules = ran.stderr.split()
    assert code == "3"
    assert COSTLY.isdisjoint(modules)
    drivers = {"watchdogd.supervisor", "watchdogd.slot", "queuedriver.driving.driver"}
    assert drivers.isdisjoint(modules)
    assert len(modules) <= MOST_MODULES


def test_a_stage_that_the_file_has_no_more_is_shown_while_it_runs(file: Path, watch: Watch) -> None:
    running = report()
    more = StageReport(name="print", wanted=1, inputs=("out",), outputs=("paper",))
    publish(file, msgspec.structs.replace(running, stages=(*running.stages, more)))
    assert rows(watch("status", file))["print"][-1] == "0/1"
