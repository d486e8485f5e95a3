"""How documents go through a pipeline, counted once however many ways there are."""

from watchdogd.flow import coming, through
from watchdogd.messages import QueueSeen
from watchdogd.pipeline.model import Drivers, Pipeline, Stage


def pipeline(*stages: tuple[str, str, str]) -> Pipeline:
    """Stages by name, inputs and outputs."""
    made = tuple(
        Stage(
            name=name,
            inputs=tuple(inputs.split()),
            outputs=tuple(outputs.split()),
            drivers=Drivers(1, 1),
            kind="call",
            work="",
        )
        for name, inputs, outputs in stages
    )
    return Pipeline(name="yard", file="/yard/pipeline.toml", root="/yard/queues", stages=made)


CHAIN = pipeline(("one", "input", "one"), ("two", "one", "two"), ("three", "two", "three"))
DIAMOND = pipeline(
    ("both", "input", "left right"),
    ("a", "left", "met"),
    ("b", "right", "met"),
    ("last", "met urgent", "out"),
)


def test_everything_upstream_is_coming() -> None:
    queues = {"input": QueueSeen(ready=5), "one": QueueSeen(failed=1, working=1, later=1)}
    assert coming(CHAIN, queues) == {"one": 0, "two": 5, "three": 8}


def test_queue_from_which_two_ways_lead_counts_once() -> None:
    queues = {"input": QueueSeen(ready=5), "left": QueueSeen(ready=2), "urgent": QueueSeen(ready=9)}
    assert coming(DIAMOND, queues) == {"both": 0, "a": 5, "b": 5, "last": 7}


def test_documents_that_went_through_are_those_that_are_neither_left_nor_discarded() -> None:
    before = {"input": QueueSeen(ready=9, later=1), "one": QueueSeen(failed=2)}
    assert through(before, {"input": QueueSeen(), "one": QueueSeen()}, 0) == 12
    assert through(before, {"input": QueueSeen(later=1), "one": QueueSeen()}, 3) == 8
    assert through({}, {"input": QueueSeen(ready=1)}, 0) == 0
