"""Rows of the contract that are not true yet; the table is empty when the contract holds."""

import pytest

_MOVED = "a directory that was moved away is not told from a program that failed"
_FULL = "a program that fails for want of room is charged, unless the disk is quite full"
_LIMIT = "a batch does not look at the limits of outputs between its claims"
_REVOKED = "a claim that was taken back counts as a document done"

# By a test's name without `test_`, and by its case; "" is every case.
NOT_YET = {
    ("a_document_in_trouble_waits", "command"): _MOVED,
    ("a_document_in_trouble_waits", "server"): _MOVED,
    ("a_full_disk_charges_nobody", "command"): _FULL,
    ("a_full_disk_charges_nobody", "server"): _FULL,
    ("a_full_output_stops_a_batch", "batch"): _LIMIT,
    ("a_driver_that_was_given_up_wrongly", "call"): _REVOKED,
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for (name, case), reason in NOT_YET.items():
            if item.name.startswith(f"test_{name}") and case in item.name.partition("[")[2]:
                item.add_marker(pytest.mark.xfail(strict=True, reason=reason))
