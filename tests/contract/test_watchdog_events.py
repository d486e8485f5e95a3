"""The table of what may befall a watchdog is whole."""

import re
from pathlib import Path

import pytest

from tests.contract.watchdog_events import EVENTS, GROUPS

_ROW = re.compile(r"^@row\ndef test_(\w+)\(", re.M)


@pytest.mark.quick
def test_each_row_has_one_test_and_each_test_a_row() -> None:
    modules = sorted(Path(__file__).parent.glob("test_watchdog_*.py"))
    tested = [name for path in modules for name in _ROW.findall(path.read_text())]
    assert sorted(tested) == sorted(EVENTS)
    assert len(EVENTS) == sum(len(group.rows) for group in GROUPS)
