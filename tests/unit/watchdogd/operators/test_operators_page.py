"""The page about what operators see: each test that it names is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[4]


def test_each_test_that_the_page_names_is_there() -> None:
    named = set(re.findall(r"``(test_\w+)``", (ROOT / "docs/operators.rst").read_text()))
    texts = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    there = {name for text in texts for name in re.findall(r"^def (test_\w+)", text, re.M)}
    assert named
    assert named <= there, named - there
