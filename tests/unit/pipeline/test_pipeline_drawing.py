"""What pipelines look like on a terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdogd.pipeline.drawing import draw
from watchdogd.pipeline.model import Drivers, Pipeline, Stage


def stage(name: str, inputs: str, outputs: str) -> Stage:
    return Stage(
        name=name,
        inputs=tuple(inputs.split()),
        outputs=tuple(outputs.split()),
        drivers=Drivers(1, 1),
        kind="call",
        work="a:b",
    )


def pipeline(*stages: Stage) -> Pipeline:
    return Pipeline(name="p", file="/p.toml", root="/q", stages=stages)


def drawn(*stages: Stage, ascii_only: bool = False) -> list[str]:
    rows = draw(pipeline(*stages), ascii_only=ascii_only)
    return [f"{row.rails}  {row.name}" for row in rows]


def test_a_chain_is_a_column() -> None:
    assert drawn(stage("a", "in", "x"), stage("b", "x", "out")) == [
        "○  in",
        "■  a",
        "○  x",
        "■  b",
        "○  out",
    ]


def test_a_fan_out_has_a_rail_for_each_way() -> None:
    assert drawn(
        stage("a", "in", "x y z"),
        *(stage(name, queue, queue + "1") for name, queue in (("b", "x"), ("c", "y"), ("d", "z"))),
    ) == [
        "○  in",
        "■─┬─╮  a",
        "○ │ │  x",
        "■ │ │  b",
        "○ │ │  x1",
        "  ○ │  y",
        "  ■ │  c",
        "  ○ │  y1",
        "    ○  z",
        "    ■  d",
        "    ○  z1",
    ]


def test_a_fan_in_brings_rails_together() -> None:
    assert drawn(stage("a", "in1", "x"), stage("b", "in2 in3", "x"), stage("c", "x", "out")) == [
        "○  in1",
        "■  a",
        "│ ○  in2",
        "│ │ ○  in3",
        "│ ■─╯  b",
        "○─╯  x",
        "■  c",
        "○  out",
    ]


def test_a_diamond_parts_and_meets() -> None:
    assert drawn(
        stage("sort", "urgent normal", "texts images"),
        stage("read", "texts", "words"),
        stage("look", "images", "words"),
    ) == [
        "○  urgent",
        "│ ○  normal",
        "■─┴─╮  sort",
        "○   │  texts",
        "■   │  read",
        "│   ○  images",
        "│   ■  look",
        "○───╯  words",
    ]


def test_a_rail_behind_another_has_a_gap() -> None:
    assert drawn(
        stage("a", "in", "x y"),
        stage("b", "x", "p q"),
        stage("c", "y", "q"),
        stage("d", "p", "end"),
        stage("e", "q", "end"),
    ) == [
        "○  in",
        "■─╮  a",
        "○ │  x",
        "■─│─╮  b",
        "○ │ │  p",
        "■ │ │  d",
        "│ ○ │  y",
        "│ ■ │  c",
        "│ ○─╯  q",
        "│ ■  e",
        "○─╯  end",
    ]


def test_a_stage_without_an_output_ends_its_rail() -> None:
    assert drawn(stage("a", "in", ""), stage("b", "in2", "")) == ["○  in", "■  a", "○  in2", "■  b"]


def test_a_terminal_that_has_no_lines_gets_what_it_has() -> None:
    assert drawn(stage("a", "in", "x y"), stage("b", "x y", "z"), ascii_only=True) == [
        "o  in",
        "#-.  a",
        "o |  x",
        "| o  y",
        "#-'  b",
        "o  z",
    ]


def test_beside_a_stage_stands_what_it_takes_and_does() -> None:
    usual = stage("a", "in", "x")
    fields = {
        **{key: getattr(usual, key) for key in Stage.__struct_fields__},
        "kind": "command",
        "work": ("tool", "two words", "{input}"),
        "drivers": Drivers(1, 8),
        "memory": 2_000_000_000,
    }
    command, loaded = (
        Stage(**fields),
        Stage(**{**fields, "preload": True, "drivers": Drivers(2, 2)}),
    )
    shared = Stage(**{**fields, "preload": True, "memory_per_driver": 100_000_000})
    told = [draw(pipeline(one))[1][1:] for one in (usual, command, loaded, shared)]
    assert told == [
        ("a", "1 driver", "", "call a:b"),
        ("a", "1 to 8", "2 GB each", "command tool 'two words' '{input}'"),
        ("a", "2 drivers", "2 GB", "command tool 'two words' '{input}'"),
        ("a", "1 to 8", "2 GB + 100 MB each", "command tool 'two words' '{input}'"),
    ]


def test_beside_the_first_and_the_last_queues_stands_what_people_do_with_them() -> None:
    rows = draw(pipeline(stage("a", "in", "x"), stage("b", "x", "out")))
    told = {row.name: row.what for row in rows if row.rails == "○"}
    assert told == {
        "in": "documents are submitted here",
        "x": "",
        "out": "results: {docid}.ready",
    }


def test_what_goes_in_a_circle_is_not_drawn_for_ever() -> None:
    with pytest.raises(ValueError, match="circle"):
        drawn(stage("a", "x", "y"), stage("b", "y", "x"))


@st.composite
def acyclic(draw_: st.DrawFn) -> tuple[Stage, ...]:
    """Any pipeline: each stage publishes into queues that only later stages take from."""
    count = draw_(st.integers(1, 7))
    stages = []
    for index in range(count):
        later = [f"q{other}" for other in range(index + 1, count)]
        outputs = draw_(st.lists(st.sampled_from([*later, f"r{index}"]), max_size=4, unique=True))
        stages.append(stage(f"s{index}", f"q{index}", " ".join(outputs)))
    return tuple(draw_(st.permutations(stages)))


@given(acyclic())
def test_every_stage_and_queue_is_drawn_once_below_all_that_lead_to_it(
    stages: tuple[Stage, ...],
) -> None:
    whole = pipeline(*stages)
    rows = draw(whole)
    at = {row.name: number for number, row in enumerate(rows)}
    assert len(at) == len(rows) == len(stages) + len(whole.queues)
    for one in stages:
        assert all(at[queue] < at[one.name] for queue in one.inputs)
        assert all(at[one.name] < at[queue] for queue in one.outputs)


@given(acyclic())
def test_every_rail_leads_from_where_it_begins_to_where_it_ends(stages: tuple[Stage, ...]) -> None:
    """What a reader sees: each rail followed down its column, from one node to the next."""
    rows = draw(pipeline(*stages))
    found = set()
    # The node that the rail in each column comes from.
    open_: dict[int, str] = {}
    for row in rows:
        here = next(at for at, char in enumerate(row.rails) if char in "○■")
        if here in open_:
            found.add((open_.pop(here), row.name))
        for at, char in enumerate(row.rails):
            if char in "╯┴":
                found.add((open_.pop(at), row.name))
            elif char in "╮┬":
                assert at not in open_
                open_[at] = row.name
            elif char == "│":
                assert at in open_
        leads = any(row.name in one.inputs for one in stages) or any(
            row.name == one.name and one.outputs for one in stages
        )
        if leads:
            open_[here] = row.name
    assert not open_
    meant = {(queue, one.name) for one in stages for queue in one.inputs}
    meant |= {(one.name, queue) for one in stages for queue in one.outputs}
    assert found == meant
