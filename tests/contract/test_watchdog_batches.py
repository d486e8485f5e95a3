"""What an operator puts back while a pipeline runs is told of to its last document."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import until
from tests.watchdogs import Yard
from watchdogd.operators import batches
from watchdogd.pipeline.read import read

# A mistake that is mended for some documents; one of these then takes until it is let go.
_STAGE = """
import time
from pathlib import Path

HERE = Path(__file__).parent


def parse(document):
    mended = HERE / "mended"
    if not (mended.exists() and document.docid in mended.read_text().split()):
        raise ValueError(f"page {document.docid[1:]} of '{document.docid}' has no text")
    while document.docid == "d9" and not (HERE / "go").exists():
        time.sleep(0.01)
    return document.read().upper()
"""


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with Yard(tmp_path) as yard:
        (yard.root / "pages.py").write_text(_STAGE)
        yard.write(
            'name = "parse"\ninput = "input"\noutput = "done"\ncall = "pages:parse"\n'
            'retries = 0\ntrip_after = 0\ndrivers = 2\narchive = "kept"'
        )
        yield yard


def told(yard: Yard, *words: str) -> Any:
    """What a command says to programs."""
    ran = yard.command(*words, "--json")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_a_batch_of_a_pipeline_that_runs_adds_up_at_every_moment(yard: Yard) -> None:
    for number in range(10):
        yard.put(f"d{number}")
    yard.run()
    until(lambda: len(yard.discarded("input")) == 10, "all are discarded")
    (group,) = told(yard, "discarded")["groups"]
    assert (group["stage"], group["count"]) == ("parse", 10)
    assert group["common"] == "exception: ValueError: page … of … has no text in parse"
    (yard.root / "mended").write_text("d0 d2 d4 d6 d8 d9")
    batch = told(yard, "retry", "--group", group["key"], "--yes")["batch"]

    pipeline = read(str(yard.file))
    made = batches.read(pipeline.root, batch)

    def met(**wanted: int) -> bool:
        found = dict(batches.outcome(pipeline, made).counts)
        assert sum(found.values()) == 10, found
        assert not found["not put back"] + found["failed otherwise"]
        return {word.replace(" ", "_"): n for word, n in found.items() if n} == wanted

    until(lambda: met(through=5, failed_again=4, waiting=1), "all but one have ended")
    (yard.root / "go").touch()
    until(lambda: met(through=6, failed_again=4), "all have ended")
    counts = told(yard, "batch", batch)["counts"]
    assert (counts["through"], counts["failed again"], counts["waiting"]) == (6, 4, 0)
    # What failed again has the same cause: it is the same group.
    (again,) = told(yard, "discarded")["groups"]
    assert (again["key"], again["count"]) == (group["key"], 4)


def test_what_a_pipeline_has_archived_goes_through_once_more_while_it_runs(yard: Yard) -> None:
    (yard.root / "mended").write_text("d0 d1 d2")
    for number in range(3):
        yard.put(f"d{number}")
    yard.run()
    done, kept = yard.root / "queues/done", yard.root / "queues/kept"
    until(lambda: len(yard.ls("done")) == 3 and len(yard.ls("kept")) == 3, "all are done")
    for name in yard.ls("done"):
        (done / name).unlink()
    batch = told(yard, "replay", "parse", "d0", "d2")["batch"]

    pipeline = read(str(yard.file))
    made = batches.read(pipeline.root, batch)
    until(lambda: batches.outcome(pipeline, made).counts["through"] == 2, "both are done")
    assert yard.ls("done") == ["d0.ready", "d2.ready"]
    # What is published is archived a moment later.
    until(lambda: sorted(one.name for one in kept.iterdir()) == ["d0", "d1", "d2"], "all are kept")
