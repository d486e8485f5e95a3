"""The page about the pipeline file has every key, and its true default."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from queuedriver.intake.options import IntakeOptions
from watchdogd.pipeline.model import Drivers, Host, Pipeline, Slurm, Stage
from watchdogd.pipeline.read import ROOT, parse
from watchdogd.pipeline.schema import (
    HOST_KEYS,
    INTAKE_KEYS,
    PIPELINE_KEYS,
    SHARED_KEYS,
    SLURM_KEYS,
    STAGE_KEYS,
    Reader,
)

PAGE = (Path(__file__).parents[3] / "docs" / "pipeline-file.rst").read_text()
SECTIONS = re.split(r"\n(?=\S.*\n-{3,}\n)", PAGE)
_COLUMN = re.compile(r"=+ *")


def rows(section: str) -> dict[str, tuple[bool, str]]:
    """The keys of a section's tables: whether they are shared, and their default."""
    (text,) = (one for one in SECTIONS if one.startswith(f"{section}\n---"))
    found = {}
    columns: list[slice] = []
    for line in text.splitlines():
        if line.startswith("==="):
            columns = [slice(*match.span()) for match in _COLUMN.finditer(line)]
        elif line.startswith("``"):
            key, *marks, default, _ = (line[column].strip() for column in columns)
            found[key.strip("`")] = ("●" in marks, default)
    return found


@pytest.mark.parametrize(
    ("section", "keys"),
    [
        ("[pipeline]", PIPELINE_KEYS.keys() - SHARED_KEYS.keys()),
        ("[[stage]]", STAGE_KEYS.keys()),
        ("[host]", HOST_KEYS.keys()),
        ("[slurm]", SLURM_KEYS.keys()),
        ("[[intake]]", INTAKE_KEYS.keys()),
    ],
)
def test_every_key_has_its_row(section: str, keys: set[str]) -> None:
    assert rows(section).keys() == keys


def test_what_may_stand_below_pipeline_is_marked() -> None:
    shared = {key for key, (marked, _) in rows("[[stage]]").items() if marked}
    assert shared == SHARED_KEYS.keys()


STAGE = Stage(name="", inputs=(), outputs=(), drivers=Drivers(1, 1), kind="call", work="")
PIPELINE = Pipeline(name="", file="", root=ROOT, stages=())


@pytest.mark.parametrize(
    ("section", "keys", "usual"),
    [
        ("[pipeline]", PIPELINE_KEYS, PIPELINE),
        ("[[stage]]", STAGE_KEYS, STAGE),
        ("[host]", HOST_KEYS, Host()),
        ("[slurm]", SLURM_KEYS, Slurm()),
        ("[[intake]]", INTAKE_KEYS, IntakeOptions()),
    ],
)
def test_every_default_is_as_the_page_says(
    section: str, keys: Mapping[str, Reader], usual: Any
) -> None:
    said = {
        key: default.strip("`")
        for key, (_, default) in rows(section).items()
        if default.startswith("``")
    }
    assert len(said) >= 2
    for key, default in said.items():
        value = keys[key](tomllib.loads(f"key = {default}")["key"])
        assert value == getattr(usual, key), key


def test_the_examples_of_the_page_are_pipelines() -> None:
    blocks = re.findall(r"^\.\. code-block:: toml\n(?:   :.*\n)?\n((?:   .*\n|\n)+)", PAGE, re.M)
    whole = re.sub("^   ", "", blocks[0], flags=re.M)
    hosts = re.sub("^   ", "", blocks[1], flags=re.M)
    parse(whole + hosts, "p.toml", "/p.toml", "rose")
    slurm, stage = (re.sub("^   ", "", one, flags=re.M) for one in blocks[2:4])
    parse(whole + slurm, "p.toml", "/p.toml")
    parse(whole.replace("{docid}.xml", "{docid}.ready") + slurm + stage, "p.toml", "/p.toml")
    intake = re.sub("^   ", "", blocks[4], flags=re.M)
    parse(whole + intake, "p.toml", "/p.toml")
    assert len(blocks) == 6
