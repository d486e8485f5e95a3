"""What a file says of Slurm: [slurm], and [stage.slurm]."""

import pytest

from watchdogd.pipeline.model import Drivers, Pipeline, Slurm
from watchdogd.pipeline.problems import BadPipeline
from watchdogd.pipeline.read import parse

STAGE = '[[stage]]\nname = "parse"\ncall = "a:b"\n'
OCR = '[[stage]]\nname = "ocr"\ncall = "a:b"\ndrivers = 3\n[stage.slurm]\nper = "driver"\n'


def pipeline(text: str) -> Pipeline:
    return parse(text, "p.toml", "/data/p.toml")[0]


def told(text: str) -> list[str]:
    with pytest.raises(BadPipeline) as caught:
        pipeline(text)
    return [f"{one.line}: {one.key} {one.problem}" for one in caught.value.problems]


def test_a_pipeline_that_says_nothing_of_slurm_has_none() -> None:
    assert pipeline(STAGE).slurm is None


def test_an_empty_table_is_one_element_as_the_cluster_has_it() -> None:
    assert pipeline("[slurm]\n" + STAGE).slurm == Slurm(nodes=Drivers(1, 1))


def test_a_stage_of_its_own_has_what_it_says_and_else_what_is_said_for_all() -> None:
    shared = '[slurm]\npartition = "long"\ntime = "4 h"\nnodes = { min = 0, max = 9 }\n'
    (_, ocr) = pipeline(shared + STAGE + OCR + 'partition = "gpu"\ngres = "gpu:1"\n').stages
    # How many there are is its own affair: without a word of it, its drivers.
    assert ocr.slurm == Slurm(nodes=Drivers(3, 3), partition="gpu", gres="gpu:1", time=14400.0)


def test_a_stage_shares_a_node_unless_it_says_otherwise() -> None:
    assert pipeline(f'[slurm]\n{STAGE}slurm = {{ per = "node" }}\n').stages[0].slurm is None


def test_all_mistakes_are_told_at_once_each_with_its_line() -> None:
    text = (
        '[slurm]\ntme = "4 h"\ntime = "1 min"\nextra = ["--exclusive", "--mem=3", "7", "--qos=x"]\n'
        f'{STAGE}[stage.slurm]\nper = "drivr"\nidel = 3\npartition = "a b"\n'
    )
    assert told(text) == [
        "2: tme is no key that is known here",
        "3: time is over before anything is done: an element leaves 90 s before its end",
        "4: extra[2] is in each script already",
        "4: extra[3] is no option of sbatch",
        "4: extra[4] has a key of its own",
        "9: slurm.per is none of the words it may be",
        "10: slurm.idel is no key that is known here",
        "11: slurm.partition is more than one word",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (OCR, "5: slurm needs what is asked for all"),
        (f"[pipeline]\nadopt = true\n[slurm]\n{STAGE}", "cannot go with adopt = true"),
        ("[slurm]\nnodes = 2\n" + OCR, "is for stages that share a node, and each here has"),
        ("[slurm]\nidle = 9\n" + STAGE, "2: idle says when there are more or fewer"),
        ("[slurm]\n" + OCR + 'target = "2 h"', "slurm.target says when there are more or fewer"),
        (f'[slurm]\n{STAGE}[stage.slurm]\nqos = "x"', "6: slurm.qos is for a stage whose drivers"),
        (f'[slurm]\ntime = "5 min"\n{STAGE}grace = "5 min"', "leaves 330 s before its end"),
        (
            '[slurm]\n[[stage]]\nname = "a"\nbroker = "pingpong"\nlisten = "tcp://127.0.0.1:9"\n'
            'slurm.per = "driver"\n',
            "6: slurm.per cannot be",
        ),
    ],
)
def test_what_does_not_go_together_is_told(text: str, problem: str) -> None:
    (found,) = told(text)
    assert problem in found


@pytest.mark.parametrize("word", ["-a1-9", "-Jname", "-N2", "-pgpu", "--mem=3", "--array"])
def test_an_option_that_each_script_has_is_refused_however_it_is_written(word: str) -> None:
    (found,) = told(f'[slurm]\nextra = ["{word}"]\n{STAGE}')
    assert found == "2: extra[1] is in each script already"
