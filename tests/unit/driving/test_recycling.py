"""When a driver has done enough."""

import subprocess
import sys
import time

import pytest

from queuedriver.disk import processes
from queuedriver.disk.processes import tree_memory
from queuedriver.driving.lifetime import Recycling
from queuedriver.options import Options


def test_a_driver_without_limits_goes_on_for_ever() -> None:
    recycling = Recycling(Options(), now=0.0)
    assert recycling.due(1e9, 10**9) == ""


@pytest.mark.parametrize("wanted", [1, 2, 100])
def test_recycling_after_so_many_documents_is_spread_by_a_tenth(wanted: int) -> None:
    for _ in range(50):
        recycling = Recycling(Options(max_documents=wanted), now=0.0)
        few, many = int(wanted * 0.9) - 1, int(wanted * 1.1) + 1
        assert recycling.due(0.0, max(few, 0)) == ""
        assert recycling.due(0.0, many) == f"it has done {many} documents"


def test_drivers_that_started_together_do_not_end_together() -> None:
    ends = set()
    for _ in range(20):
        recycling = Recycling(Options(max_documents=10_000), now=0.0)
        ends.add(next(done for done in range(8000, 12_000, 10) if recycling.due(0.0, done)))
    assert len(ends) > 5


def test_recycling_at_an_age_is_spread_by_a_tenth() -> None:
    for _ in range(50):
        recycling = Recycling(Options(max_age=1000.0), now=50.0)
        assert recycling.due(50.0 + 899.0, 0) == ""
        assert recycling.due(50.0 + 1101.0, 0) == "it has reached its age"


def test_recycling_by_memory_goes_by_what_is_in_use() -> None:
    assert Recycling(Options(max_memory=tree_memory() * 4), now=0.0).due(0.0, 0) == ""
    recycling = Recycling(Options(max_memory=1 << 20), now=0.0)
    assert recycling.due(0.0, 0).endswith("MiB of memory")
    # Looked at but once a second: it costs more than a short document.
    assert recycling.due(0.5, 0) == ""
    assert recycling.due(1000.0, 0) != ""


def test_memory_is_looked_at_as_often_where_others_keep_a_look_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A driver that leaks takes no less of a machine that is busy."""
    looks = []

    def slowly() -> int:
        time.sleep(0.1)
        looks.append(1)
        return 0

    monkeypatch.setattr(processes, "tree_memory", slowly)
    recycling = Recycling(Options(max_memory=1 << 20), now=0.0)
    for now in range(3):
        recycling.due(2.0 * now, 0)
    assert len(looks) == 3


def test_memory_of_the_programs_that_a_driver_runs_counts() -> None:
    script = "import sys; hog = bytearray(200 << 20); print(flush=True); sys.stdin.read()"
    recycling = Recycling(Options(max_memory=tree_memory() + (150 << 20)), now=0.0)
    assert recycling.due(0.0, 0) == ""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", script], stdin=pipe, stdout=pipe) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert recycling.due(1000.0, 0) != ""
        child.communicate()
