"""What a pipeline's file says of its intakes."""

import pytest

from watchdogd.driver_orders import StageOrders, decode, encode
from watchdogd.pipeline.model import Drivers, Pipeline
from watchdogd.pipeline.problems import BadPipeline
from watchdogd.pipeline.read import parse

STAGES = """
[[stage]]
name = "a"
input = ["first", "second"]
call = "x:y"

[[stage]]
name = "b"
call = "x:y"
"""


def read(intakes: str, host: str = "") -> Pipeline:
    return parse(STAGES + intakes, "p.toml", "/srv/p.toml", host)[0]


def problem(intakes: str) -> str:
    with pytest.raises(BadPipeline) as error:
        read(intakes)
    (one,) = error.value.problems
    return str(one)


def test_an_intake_takes_into_the_first_input_unless_it_says_so() -> None:
    pipeline = read('[[intake]]\nfrom = "drops"\n[[intake]]\nfrom = "/x"\ninto = "a"\n')
    first, other = pipeline.stages[2:]
    assert (first.name, other.name) == ("intake", "intake_2")
    assert first.intake is not None
    assert other.intake is not None
    assert (first.intake.folder, first.intake.queue) == ("/srv/drops", "first")
    assert (other.intake.folder, other.intake.queue) == ("/x", "a")
    assert first.drivers == Drivers(1, 1)


def test_an_intake_changes_nothing_of_the_stages() -> None:
    without, pipeline = read(""), read('[[intake]]\nfrom = "drops"\n')
    assert pipeline.stages[:2] == without.stages
    assert pipeline.queues == without.queues
    assert pipeline.sources == without.sources


def test_every_option_is_read_as_it_is_meant() -> None:
    said = """
    [[intake]]
    from = "drops"
    include = "*.pdf"
    exclude = ["a*", "b*"]
    recursive = true
    settle = "3 min"
    min_size = 0
    max_size = "2 GB"
    done = "{stem}.ok"
    done_then = "keep"
    complete = "pdf"
    after = "archive/%Y-%m"
    duplicates = "set-aside"
    remember = "2 d"
    refused = "bad"
    limit = 100
    """
    intake = read(said).stages[2].intake
    assert intake is not None
    options = intake.options
    assert options.include == ("*.pdf",)
    assert options.exclude == ("a*", "b*")
    assert (options.settle, options.min_size, options.max_size) == (180.0, 0, 2 * 10**9)
    assert (options.done, options.done_then, options.complete) == ("{stem}.ok", "keep", "pdf")
    assert (options.after, options.duplicates) == ("archive/%Y-%m", "set-aside")
    assert (options.remember, options.refused, options.limit) == (172800.0, "/srv/bad", 100)
    assert options.check() == options


@pytest.mark.parametrize(
    ("intake", "words"),
    [
        ("", "does not say from where"),
        ('from = "queues/drops"', "is among the queues"),
        ('from = "d"\ninto = "b"', "is a queue that no stage takes from"),
        ('from = "d"\nname = "a"', "is what a stage, or another intake, is called"),
        ('from = "d"\nsettel = 5', "is no key that is known here; right would be settle"),
        ('from = "d"\nsettle = "soon"', 'settle = "soon" is not a duration'),
        ('from = "d"\ndocid = "x"', "names all documents alike; right would be {name} in it"),
        ('from = "d"\ndone = "{path}"', "has {path}; right would be {name} and {stem}"),
        ('from = "d"\nafter = "/x"', "is no directory below the folder"),
        ('from = "d"\nlimit = 0', "limit = 0 is out of bounds"),
        ('from = "d"\nduplicates = "drop"', "is none of the words it may be"),
        ('from = "d"\nmin_size = 9\nmax_size = 3', "is less than min_size"),
    ],
)
def test_a_mistake_is_told_with_its_line_and_key(intake: str, words: str) -> None:
    told = problem(f"[[intake]]\n{intake}\n")
    assert words in told
    assert told.startswith("p.toml:1")


def test_one_table_is_not_one_of_many() -> None:
    assert "[intake] is one table, and not one of many" in problem('[intake]\nfrom = "x"')


def test_a_host_may_have_none() -> None:
    text = '[[intake]]\nfrom = "d"\n[hosts.rose]\ndrivers = { intake = 0 }\n'
    assert read(text, "rose").stages[2].drivers == Drivers(0, 0)
    assert read(text, "lily").stages[2].drivers == Drivers(1, 1)


def test_an_order_says_the_path_of_the_queue_and_survives_its_journey() -> None:
    pipeline = read('[[intake]]\nfrom = "drops"\ninclude = ["*.pdf"]\n')
    order = StageOrders(pipeline.stages[2], pipeline, "rose", "/local").of(1)
    assert order.stage.intake is not None
    assert order.stage.intake.queue == "/srv/queues/first"
    assert decode(encode(order)) == order
