"""Rows of the contract that are not true yet; the table is empty when the contract holds."""

import pytest

_MOVED = "a directory that was moved away is not told from a program that failed"
_SILENT = "work whose result goes nowhere is done, and thrown away"

# By a test's name without `test_`, and by its case; "" is every case.
NOT_YET = {
    ("a_document_in_trouble_waits", "command"): _MOVED,
    ("a_document_in_trouble_waits", "server"): _MOVED,
    ("work_without_an_output_is_refused", ""): _SILENT,
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for (name, case), reason in NOT_YET.items():
            if item.name.startswith(f"test_{name}") and case in item.name.partition("[")[2]:
                item.add_marker(pytest.mark.xfail(strict=True, reason=reason))
