"""What Prometheus is told: read back by its own library, and checked by its own tools."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from queuedriver.claims.counts import Counts
from queuedriver.driving.live_status import Counting
from queuedriver.driving.measurements import BOUNDS, CAUSES, FILES
from queuedriver.format.records import Identity
from tests.watchdogs import a_stage
from watchdogd.cli.operators.serve import MONITORING
from watchdogd.helper_messages import Controls
from watchdogd.operators import view as looks
from watchdogd.operators.hosts import Chosen, Hosts, SeenHost
from watchdogd.operators.metrics import STATES, PipelineCollector, exposition, oldest_waiting
from watchdogd.operators.textfile import TextFile
from watchdogd.pipeline.model import Pipeline
from watchdogd.report import DriverReport, HostReport, StageReport, Standing

ALERTS = Path(MONITORING) / "alerts.yml"
DASHBOARD = Path(MONITORING) / "dashboard.json"
AT = 1_900_000_000.0
# What an alert or a plot may be about.
_NAME = re.compile(r"queuedriver_\w+")
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)"
)


def counting() -> Counting:
    found = Counting()
    found.waited(0.3, 8)
    found.took([2.0] * 6)
    found.failed("exit", discarded=False)
    found.failed("hung", discarded=True)
    return found


def host(name: str, stages: int = 1, standing: Standing = "alive", **fields: Any) -> SeenHost:
    drivers = []
    reports = []
    for number in range(stages):
        stage = f"s{number}"
        reports.append(
            StageReport(
                name=stage,
                wanted=2,
                memory=5_000_000,
                counted=counting().counted,
                starts={"first": 2, "crashed": 1},
            )
        )
        for slot in (1, 2):
            drivers.append(
                DriverReport(
                    name=f"{stage}-{slot}",
                    id=f"{name}-{stage}-{slot}",
                    stage=stage,
                    state="busy" if slot == 1 else "crash-looped",
                    pid=4 - 2 * slot,
                    document='a"\\\n' if slot == 1 else "",
                    since=AT - 40,
                    documents=3,
                    work=1500,
                )
            )
    report = HostReport(
        host=name,
        pid=1,
        identity=Identity(name, "machine", "boot", 1, 1, 1),
        started_at=AT - 100,
        at=AT - 2,
        stages=tuple(reports),
        drivers=tuple(drivers),
        **fields,
    )
    return SeenHost(report, standing, here=True)


def seen(*hosts: SeenHost, stages: int = 1) -> looks.View:
    """A look at a pipeline of so many stages, without its file system."""
    pipeline = Pipeline(
        name="letters",
        file="/p.toml",
        root="/queues",
        stages=tuple(a_stage(f"s{number}", f"q{number}", "out") for number in range(stages)),
    )
    found = looks.look(Chosen(pipeline, Hosts(tuple(hosts)), "", "", hung=True))
    counts = Counts(ready=5, failed=2, working=1, discarded=7)
    items = {f"q{number}": counts for number in range(stages)}
    return replace(found, at=AT, items=items, controls=Controls(paused=True))


def of_an_intake(*names: str) -> looks.View:
    """A look at a pipeline whose only stage is an intake, on these hosts."""
    hosts = [host(name) for name in names]
    counted = replace(hosts[0].report.stages[0], files={"stuck": 2, "filtered": 1})
    seen_by = [one._replace(report=replace(one.report, stages=(counted,))) for one in hosts]
    return seen(*seen_by)


def samples(view: looks.View, **more: Any) -> list[Sample]:
    text, _ = exposition(view, {"s0": 90.0}, **more)
    return [
        one for family in text_string_to_metric_families(text.decode()) for one in family.samples
    ]


def value(found: list[Sample], name: str, **labels: str) -> float | None:
    values = [
        one.value
        for one in found
        if one.name == f"queuedriver_{name}" and labels.items() <= one.labels.items()
    ]
    assert len(values) < 2, f"{name} has several series with {labels}"
    return values[0] if values else None


def test_what_a_stage_did_is_told_of_each_host() -> None:
    found = samples(seen(host("rose"), host("fern")))
    rose = {"pipeline": "letters", "stage": "s0", "host": "rose"}
    assert value(found, "published_total", **rose) == 6
    assert value(found, "failed_total", **rose, cause="exit") == 1
    assert value(found, "discarded_total", **rose, cause="hung") == 1
    # What never happened yet has a series, so that its first time is a rise.
    assert value(found, "discarded_total", **rose, cause="memory") == 0
    assert value(found, "retried_total", **rose, by="rule") == 1
    assert value(found, "driver_starts_total", **rose, why="crashed") == 1
    assert value(found, "driver_seconds_total", **rose, doing="work") == 3.0
    assert value(found, "memory_bytes", **rose) == 5e6
    assert value(found, "drivers", **rose, state="busy") == 1
    assert value(found, "drivers_wanted", **rose) == 2
    assert value(found, "longest_at_hand_seconds", **rose) == 40
    assert value(found, "watchdog_up", host="rose") == 1
    assert value(found, "watchdog_last_report_timestamp_seconds", host="fern") == AT - 2


def test_what_an_intake_took_and_what_waits_in_its_folder_is_told_of_each_host() -> None:
    found = samples(of_an_intake("rose", "fern"))
    for name in ("rose", "fern"):
        at = {"pipeline": "letters", "stage": "s0", "host": name}
        assert value(found, "intake_taken_total", **at) == 6
        waiting = {state: value(found, "intake_files", **at, state=state) for state in FILES}
        assert waiting == {"settling": 0, "waiting_marker": 0, "filtered": 1, "stuck": 2}


def test_stage_that_is_no_intake_has_no_series_of_one() -> None:
    assert not [one for one in samples(seen(host("rose"))) if "intake" in one.name]


def test_histograms_have_all_buckets_and_add_up() -> None:
    found = samples(seen(host("rose")))
    for name, count, total, bound in (("wait", 8, 2.4, "0.5"), ("service", 6, 12.0, "2.5")):
        buckets = [one for one in found if one.name == f"queuedriver_{name}_seconds_bucket"]
        assert [one.labels["le"] for one in buckets] == [*map(str, BOUNDS), "+Inf"]
        values = [one.value for one in buckets]
        assert values == sorted(values)
        assert value(found, f"{name}_seconds_bucket", le=bound) == count
        assert value(found, f"{name}_seconds_count") == count == values[-1]
        assert value(found, f"{name}_seconds_sum") == pytest.approx(total)


def test_what_is_in_a_queue_is_told_once_whoever_exports_it() -> None:
    view = seen(host("rose"), host("fern"), host("ash", standing="gone"))
    every = samples(view)
    assert value(every, "documents", stage="s0", queue="q0", state="ready") == 5
    assert value(every, "oldest_waiting_seconds", stage="s0") == 90
    assert value(every, "paused", stage="s0") == 1
    # Each tells of itself, and the first of those that live of what they share.
    each = {name: samples(view, host=name) for name in ("rose", "fern", "ash")}
    shared = "queuedriver_documents"
    assert {name: any(one.name == shared for one in told) for name, told in each.items()} == {
        "rose": False,
        "fern": True,
        "ash": False,
    }
    together = [one for told in each.values() for one in told]
    assert sorted(map(repr, together)) == sorted(map(repr, every))


def test_driver_that_is_gone_leaves_its_counts_and_no_series() -> None:
    before = host("rose")
    gone = [replace(one, state="stopped", pid=0, document="") for one in before.report.drivers]
    after = before._replace(report=replace(before.report, drivers=tuple(gone)))
    found = samples(seen(after))
    assert value(found, "published_total") == 6
    assert value(found, "wait_seconds_count") == 8
    states = {one.labels["state"] for one in found if one.name == "queuedriver_drivers"}
    assert states == {"stopped"}
    assert value(found, "longest_at_hand_seconds") == 0
    # No series is of a document, a driver or a process.
    labels = {label for one in found for label in one.labels}
    assert labels <= {
        *("pipeline", "stage", "host", "queue", "state", "cause", "by", "why", "doing"),
        *("le", "version"),
    }


def test_watchdog_that_is_gone_is_told_of_and_its_counts_stand_still_nowhere() -> None:
    found = samples(seen(host("rose", standing="gone")))
    assert value(found, "watchdog_up", host="rose") == 0
    assert value(found, "published_total", host="rose") is None


def test_trouble_with_the_file_system_is_told() -> None:
    found = samples(seen(host("rose", trouble="the disk is full"), host("fern")))
    assert value(found, "file_system_trouble", host="rose") == 1
    assert value(found, "file_system_trouble", host="fern") == 0


def test_scraper_that_wants_open_metrics_gets_them() -> None:
    view = seen(host("rose"))
    text, content_type = exposition(view, {}, accept="application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert text.endswith(b"# EOF\n")
    families = open_metrics(text.decode())  # type: ignore[no-untyped-call]
    names = {family.name for family in families}
    assert "queuedriver_published" in names
    text, content_type = exposition(view, {})
    assert content_type.startswith("text/plain")


def test_words_of_strangers_make_no_series_of_their_own() -> None:
    one = host("rose")
    odd = [
        replace(driver, state=f"odd\x1b{number}")
        for number, driver in enumerate(one.report.drivers)
    ]
    report = replace(one.report, drivers=tuple(odd))
    found = samples(seen(one._replace(report=report)))
    assert value(found, "drivers", stage="s0") == 2
    assert value(found, "drivers", state="other") == 2


def test_drivers_are_told_by_each_word_that_the_page_of_states_has_for_them() -> None:
    one = host("rose")
    said = zip(one.report.drivers, ("silent", "unknown"), strict=True)
    drivers = tuple(replace(driver, state=word) for driver, word in said)
    found = samples(seen(one._replace(report=replace(one.report, drivers=drivers))))
    assert value(found, "drivers", state="silent") == 1
    assert value(found, "drivers", state="unknown") == 1
    assert value(found, "drivers", state="other") is None


def test_text_has_no_timestamps() -> None:
    text, _ = exposition(seen(host("rose")), {})
    for line in text.decode().splitlines():
        assert line.startswith("#") or len(line.rpartition("}")[2].split()) == 1


def test_oldest_document_is_found_by_when_its_name_last_changed(tmp_path: Path) -> None:
    queue = tmp_path / "q0"
    queue.mkdir()
    (queue / "done").touch()
    (queue / "a.ready").touch()
    since = (queue / "a.ready").stat().st_ctime
    pipeline = Pipeline(
        name="p",
        file="/p",
        root=str(tmp_path),
        stages=(a_stage("s0", "q0", "o"), a_stage("s1", "o", "x")),
    )
    chosen = Chosen(pipeline, Hosts(), "", "")
    assert oldest_waiting(chosen, since + 50) == {"s0": pytest.approx(50), "s1": 0}
    assert oldest_waiting(chosen._replace(hung=True), since + 50) == {}


# As a file


def test_file_is_written_whole_and_removed_and_follows_the_pipeline(tmp_path: Path) -> None:
    (tmp_path / "q0").mkdir()
    pipeline = Pipeline(
        name="p",
        file=str(tmp_path / "p.toml"),
        root=str(tmp_path),
        stages=(a_stage("s0", "q0", "o"),),
    )
    places = [tmp_path / "first.prom", tmp_path / "second.prom"]
    writer = TextFile("rose")
    writer.write(pipeline, "")
    assert not [*tmp_path.glob("*.prom*")]
    for place in places:
        writer.write(replace(pipeline, metrics=str(place)), "")
        # Nothing but what is whole, which node_exporter may read.
        assert [*tmp_path.glob("*.prom*")] == [place]
        assert place.stat().st_mode & 0o444 == 0o444
        assert place.read_text().startswith("# HELP queuedriver_watchdog_up")
    writer.write(replace(pipeline, metrics=str(places[1]), root="/nowhere"), "it hangs")
    writer.remove()
    assert not [*tmp_path.glob("*.prom*")]


# What it costs


class Count:
    """Bytecodes executed while it is traced."""

    bytecodes = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self.bytecodes += event == "opcode"
        return self


# On Python 3.11. The library needs six times as many to write it down.
MOST_BYTECODES = 200_000


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="counted on Python 3.11")
def test_twenty_stages_are_told_of_within_two_milliseconds() -> None:
    view, count = seen(host("rose", stages=20), stages=20), Count()
    before = sys.gettrace()
    sys.settrace(count)
    try:
        found = list(PipelineCollector(view, {}, None).collect())
    finally:
        sys.settrace(before)
    assert sum(len(family.samples) for family in found) > 1500
    assert count.bytecodes < MOST_BYTECODES


# What is shipped


def exported() -> set[str]:
    every = (*samples(seen(host("rose"))), *samples(of_an_intake("rose")))
    return {one.name for one in every}


def named(text: str) -> set[str]:
    """Return the metrics that a text names; histograms have no series of their own name."""
    return set(_NAME.findall(text))


def test_each_metric_in_the_dashboard_and_the_alerts_is_exported() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    expressions = [one["expr"] for panel in dashboard["panels"] for one in panel["targets"]]
    variables = [one.get("query", "") for one in dashboard["templating"]["list"]]
    for text in (" ".join([*expressions, *variables]), ALERTS.read_text()):
        assert named(text)
        assert named(text) <= exported()


def test_dashboard_shows_each_metric_and_takes_any_data_source() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    shown = named(DASHBOARD.read_text())
    assert {one for one in exported() if not one.endswith(("_sum", "_count"))} <= shown
    sources = {panel["datasource"]["uid"] for panel in dashboard["panels"]}
    assert sources == {"${datasource}"}


def words_of(label: str) -> Iterator[str]:
    """Yield the words that the alerts compare a label with."""
    for words in re.findall(rf'{label}=~?"([^"]+)"', ALERTS.read_text() + DASHBOARD.read_text()):
        yield from words.split("|")


def test_words_that_are_asked_for_are_those_that_there_are() -> None:
    drivers = {"crash-looped", "unkillable"}
    assert {*words_of("state")} <= {*STATES, *FILES, *drivers}
    assert {*words_of("cause")} <= {*CAUSES}


@needs_promtool
@pytest.mark.parametrize("view", [seen(host("rose"), host("fern")), of_an_intake("rose", "fern")])
def test_text_is_as_prometheus_wants_it(view: looks.View) -> None:
    text, _ = exposition(view, {"s0": 90.0})
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, check=False
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")


@needs_promtool
@pytest.mark.parametrize("words", ["check rules alerts.yml", "test rules alerts_test.yml"])
def test_alerts_fire_for_what_they_are_and_for_nothing_else(words: str) -> None:
    ran = subprocess.run(
        ["promtool", *words.split()], cwd=MONITORING, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_each_alert_has_a_test_in_which_it_fires() -> None:
    tested = (Path(MONITORING) / "alerts_test.yml").read_text()
    alerts = re.findall(r"alert: (\w+)", ALERTS.read_text())
    assert len(alerts) >= 8
    for alert in alerts:
        assert re.search(rf"alertname: {alert}\n\s+exp_alerts:\n\s+- exp_labels", tested), alert
