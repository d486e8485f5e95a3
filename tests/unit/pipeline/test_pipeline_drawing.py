"""What pipelines look like on a terminal."""

from typing import Any

from watchdogd.cli.check import draw, ends
from watchdogd.pipeline.model import Drivers, Pipeline, Stage


def stage(name: str, inputs: str, outputs: str, **more: Any) -> Stage:
    usual = {"kind": "call", "work": "a:b", **more}
    return Stage(name=name, inputs=tuple(inputs.split()), outputs=tuple(outputs.split()), **usual)


def pipeline(*stages: Stage) -> Pipeline:
    return Pipeline(name="p", file="/p.toml", root="/q", stages=stages)


DIAMOND = pipeline(
    stage("sort", "urgent normal", "texts images"),
    stage("read", "texts", "words"),
    stage("look", "images", "words", publish="{docid}.seen.ready"),
)


def test_each_stage_is_a_row_with_the_queues_before_and_behind_it() -> None:
    assert [row[:3] for row in draw(DIAMOND)] == [
        ("sort", "urgent, normal", "texts, images"),
        ("read", "texts", "words"),
        ("look", "images", "words"),
    ]


def test_beside_a_stage_stands_what_it_takes_and_does() -> None:
    tool = {"kind": "command", "work": ("tool", "two words", "{input}"), "memory": 2_000_000_000}
    rows = draw(
        pipeline(
            stage("a", "in", "x"),
            stage("b", "x", "y", **tool, drivers=Drivers(1, 8)),
            stage("c", "y", "z", **tool, drivers=Drivers(2, 2), preload=True),
            stage("d", "z", "", **tool, preload=True, memory_per_driver=100_000_000),
        )
    )
    assert [row[3:] for row in rows] == [
        ("1 driver", "", "call a:b"),
        ("1 to 8", "2 GB each", "command tool 'two words' '{input}'"),
        ("2 drivers", "2 GB", "command tool 'two words' '{input}'"),
        ("1 driver", "2 GB + 100 MB each", "command tool 'two words' '{input}'"),
    ]


def test_where_documents_are_submitted_and_results_are_found_is_said() -> None:
    assert ends(DIAMOND) == (
        "documents are submitted into urgent, normal; "
        "results are in words ({docid}.ready, {docid}.seen.ready)"
    )
    assert ends(pipeline(stage("a", "in", ""))) == "documents are submitted into in"
