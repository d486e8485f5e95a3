"""Many nodes over a simulated file server: what the model says, and what it must go on saying."""

import pytest

from benchmarks.nodes import LAN, LONG, SHORT, Run
from benchmarks.nodes_world import Network
from queuedriver.claims.liveness import NETWORK_BEAT
from queuedriver.format.records import LEASE


@pytest.mark.slow
def test_drivers_of_ten_nodes_ask_little_of_the_server_and_recover_the_loss_of_one() -> None:
    facts = Run(10, LAN, LONG)()
    assert facts.drivers == 80
    assert facts.done >= 0.8 * facts.wanted
    # A second and driver: of registrations that is one in three, of all two and a half requests.
    assert facts.registrations <= facts.drivers / 3
    assert facts.requests * facts.done <= 2.5 * facts.drivers
    # After the lease, and two looks of a neighbour, with a beat before.
    assert facts.back is not None
    assert LEASE - NETWORK_BEAT <= facts.back <= LEASE + 2 * 60 + NETWORK_BEAT


def test_no_more_is_done_than_the_server_answers() -> None:
    slow = Run(1, Network("slow", 0.0003, 1000.0), SHORT)()
    fast = Run(1, Network("fast", 0.0003, 4000.0), SHORT)()
    assert slow.busy > 0.95
    assert 15 <= slow.requests <= 40
    assert 3 * slow.done <= fast.done <= 5 * slow.done


def test_two_runs_are_the_same() -> None:
    one, two = (Run(2, LAN, SHORT)()._replace(real=0.0) for _ in range(2))
    assert one == two
