"""`watchdogd metrics`: printed once, of all hosts or of one."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.pipelines import FAR, publish, report
from tests.cli.queues import Called, submit

Watch = Callable[..., Called]


def test_metrics_of_all_hosts_are_printed_or_those_of_one(file: Path, watch: Watch) -> None:
    submit(file.parent / "queues/input", "a", "b")
    publish(file, report("rose"))
    publish(file, report("fern", identity=FAR))
    called = watch("metrics")
    assert called.code == 0
    assert 'queue="input",stage="values",state="ready"} 2.0' in called.out
    assert 'host="rose"' in called.out
    assert 'host="fern"' in called.out
    # That of the other tells what both see.
    one = watch("metrics", "--host", "rose").out
    assert 'host="fern"' not in one
    assert "queuedriver_documents{" not in one


def test_where_the_alerts_and_the_dashboard_are_is_printed(watch: Watch) -> None:
    there = watch("metrics", "--where").out.strip()
    assert {"alerts.yml", "alerts_test.yml", "dashboard.json"} <= set(os.listdir(there))


def test_without_the_library_it_is_said_what_to_install(
    file: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "watchdogd.operators.metrics", None)
    called = watch("metrics")
    assert called.code == 78
    assert "pip install 'queuedriver[metrics]'" in called.err
