"""Stages that do not go together: circles, names that clash, documents that would get nowhere."""

import pytest

from watchdogd.pipeline.model import Pipeline
from watchdogd.pipeline.problems import BadPipeline
from watchdogd.pipeline.read import parse
from watchdogd.pipeline.rules import remarks_on


def stage(name: str, inputs: str = "", outputs: str = "", more: str = "") -> str:
    """A stage by its queues; several have commas between them."""
    text = f'[[stage]]\nname = "{name}"\ncall = "a:b"\n'
    if inputs:
        text += f"input = {inputs.split(',')}\n"
    if outputs:
        text += f"output = {outputs.split(',')}\n"
    return text + more + "\n"


def pipeline(*stages: str) -> Pipeline:
    return parse("".join(stages), "p.toml", "/data/p.toml")[0]


def told(*stages: str) -> list[str]:
    with pytest.raises(BadPipeline) as caught:
        pipeline(*stages)
    return [f"{one.where}: {one.key} {one.problem}" for one in caught.value.problems]


NAMES = "under the same names"


def test_a_pipeline_knows_where_documents_enter_and_where_results_are() -> None:
    one = pipeline(
        stage("sort", "urgent,normal", "texts,images"),
        stage("read", "texts", "words"),
        stage("look", "images", "words", 'publish = "{docid}.seen.ready"'),
    )
    assert one.sources == ("urgent", "normal")
    assert one.results == ("words",)
    assert one.queues == ("urgent", "normal", "texts", "images", "words")


def test_stages_are_joined_by_names_alone_in_any_order() -> None:
    one = pipeline(stage("last", "b", "c"), stage("first", "a", "b"))
    assert (one.sources, one.results) == (("a",), ("c",))


def test_a_circle_names_the_stages_around_it() -> None:
    assert told(stage("a", "x", "y"), stage("b", "y", "z"), stage("c", "z", "x")) == [
        'stage "a": output leads back to the stage itself: a → b → c → a'
    ]


def test_every_circle_is_named() -> None:
    found = told(
        *(stage("a", "p", "q"), stage("b", "q", "p")),
        *(stage("c", "r", "s"), stage("d", "s", "r,t"), stage("e", "t", "u")),
    )
    assert found == [
        'stage "a": output leads back to the stage itself: a → b → a',
        'stage "c": output leads back to the stage itself: c → d → c',
    ]


def test_a_stage_that_feeds_itself_is_told_so_and_is_no_circle() -> None:
    assert told(stage("a", "x", "y,x")) == [
        "stage \"a\": output has 'x', which is an input of the same stage"
    ]


def test_a_name_is_of_one_stage() -> None:
    assert told(stage("a"), stage("b"), stage("a", "", "z")) == [
        'stage "a": name is what stage 1 is called, too'
    ]


def test_a_stage_is_not_called_like_a_driver_of_another() -> None:
    assert told(stage("parse-2"), stage("parse")) == [
        "stage \"parse-2\": name is what a driver of 'parse' is called"
    ]
    assert pipeline(stage("parse-2"), stage("parsed"))


def test_a_queue_is_the_input_of_one_stage() -> None:
    assert told(stage("a", "x", "y"), stage("b", "y,x", "z")) == [
        "stage \"b\": input has 'x', from which stage 'a' takes already"
    ]


def test_plain_files_are_for_directories_that_no_stage_takes_from() -> None:
    plain = 'publish = "{docid}.xml"'
    assert told(stage("a", "", "x", plain), stage("b", "x")) == [
        "stage \"a\": publish names plain files, and stage 'b' takes documents from 'x'"
    ]
    assert pipeline(stage("a"), stage("b", "", "", plain)).stages[1].publish == "{docid}.xml"


# Where a document can go two ways and come back together.
SPLIT = stage("split", "in", "x,y")
LEFT = stage("left", "x", "out")
WAYS = (("left", "x"), ("right", "y"))


def test_stages_that_get_the_same_documents_may_not_publish_them_under_the_same_names() -> None:
    (one,) = told(SPLIT, LEFT, stage("right", "y", "out"))
    assert one == (
        "stage \"right\": output has 'out', into which stage 'left' publishes the same documents "
        "(those of stage 'split') under the same names"
    )


def test_what_comes_later_clashes_too() -> None:
    right = (stage("right", "y", "z"), stage("far", "z", "w"), stage("end", "w", "out"))
    found = told(SPLIT, LEFT, *right)
    assert len(found) == 1
    assert found[0].startswith("stage \"end\": output has 'out', into which stage 'left'")


def test_a_stage_clashes_with_what_it_feeds() -> None:
    (one,) = told(stage("a", "in", "x,out"), stage("b", "x", "out"))
    assert "(those that stage 'a' gets) under the same names" in one


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("{docid}.ready", "{docid}.right.ready"),
        ("{docid}.left.ready", "{docid}.right.ready"),
        ("left-{docid}.ready", "right-{docid}.ready"),
        ("{docid}.a", "{docid}.b"),
    ],
)
def test_names_that_differ_do_not_clash(left: str, right: str) -> None:
    assert pipeline(
        SPLIT,
        stage("left", "x", "out", f'publish = "{left}"'),
        stage("right", "y", "out", f'publish = "{right}"'),
    )


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("{docid}.ready", "{stem}.ready"),
        ("{stem}.txt.ready", "{stem}.txt.ready"),
        ("{docid}.a", "{docid}.a"),
    ],
)
def test_names_that_may_come_out_alike_clash(left: str, right: str) -> None:
    found = told(
        SPLIT,
        stage("left", "x", "out", f'publish = "{left}"'),
        stage("right", "y", "out", f'publish = "{right}"'),
    )
    assert len(found) == 1
    assert found[0].endswith(NAMES)


def test_names_are_followed_through_the_stages() -> None:
    """The same template gives other names where a stage before it has changed them."""
    renaming = stage("first", "x", "z", 'publish = "{docid}.left.ready"')
    assert pipeline(SPLIT, renaming, stage("left", "z", "out"), stage("right", "y", "out"))
    undone = stage("left", "z", "out", 'publish = "{stem}.ready"')
    assert len(told(SPLIT, renaming, undone, stage("right", "y", "out"))) == 1


def test_documents_of_different_sources_are_different_documents() -> None:
    assert pipeline(stage("a", "in-a", "out"), stage("b", "in-b", "out"), stage("c", "out", "end"))


def test_who_sends_each_document_one_way_says_so_and_is_believed() -> None:
    said = 'existing = "keep"'
    right = stage("right", "y", "out", said)
    assert pipeline(SPLIT, stage("left", "x", "out", said), right)
    assert len(told(SPLIT, LEFT, right)) == 1
    # One would replace the other, and nobody would know.
    replacing = (stage(name, queue, "out", 'existing = "replace"') for name, queue in WAYS)
    assert len(told(SPLIT, *replacing)) == 1


def test_each_stage_that_clashes_is_told_once() -> None:
    found = told(
        stage("split", "in", "x,y,z"),
        *(stage(name, queue, "out") for name, queue in (("a", "x"), ("b", "y"), ("c", "z"))),
    )
    assert [one.partition(":")[0] for one in found] == ['stage "b"', 'stage "c"']


@pytest.mark.parametrize("archive", ["b", "b/old", ".watchdogd/x", ".", "../queues/a"])
def test_an_archive_is_not_among_the_queues(archive: str) -> None:
    (one,) = told(stage("a", "", "", f'archive = "{archive}"'), stage("b"))
    assert one.startswith('stage "a": archive is in ')
    assert pipeline(stage("a", "", "", 'archive = "bb"'), stage("b"))


@pytest.mark.parametrize(("filled", "taken"), [("parsed", "parsd"), ("text", "txet")])
def test_two_queues_that_are_probably_one_are_remarked_upon(filled: str, taken: str) -> None:
    one = pipeline(stage("a", "in", filled), stage("b", taken, "out"))
    assert list(remarks_on(one)) == [
        f"no stage publishes into {taken!r}, and none takes from {filled!r}; are they meant to be "
        "one queue?"
    ]
    assert not list(remarks_on(pipeline(stage("a"), stage("b"))))
