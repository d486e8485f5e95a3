"""The table of what may befall a front door is whole."""

import re
from pathlib import Path

import pytest

from tests.contract.door_events import GROUPS, ROWS
from tests.contract.door_scene import PROTOCOLS

_ROW = re.compile(r"^def test_(\w+)\(door: Door\)", re.M)


@pytest.mark.quick
def test_each_row_has_one_test_and_each_test_a_row() -> None:
    modules = sorted(Path(__file__).parent.glob("test_doors_*.py"))
    tested = [name for path in modules for name in _ROW.findall(path.read_text())]
    assert sorted(tested) == sorted(ROWS)
    assert len(ROWS) == sum(len(group.rows) for group in GROUPS)


@pytest.mark.quick
def test_rows_name_protocols_that_there_are() -> None:
    for row in ROWS.values():
        assert {*row.differs, *row.absent, *row.not_yet} <= {*PROTOCOLS}
        assert not row.differs.keys() & row.absent.keys()
