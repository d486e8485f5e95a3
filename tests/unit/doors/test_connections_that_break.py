"""A peer whose connection breaks while its hub hears nothing, be it stopped or kept by a disk."""

import time
from contextlib import closing
from typing import Any

import pytest

from queuedriver.doors.transports.base import Message, Transport
from tests.drivers import FORKS
from tests.endpoints import own_endpoint
from tests.waiting import PATIENCE, until

zmq = pytest.importorskip("zmq")
transports = pytest.importorskip("queuedriver.doors.transports.zmq")


# Seconds that a hub is watched: more than there are between two heartbeats.
WATCHED = 3.0


def heard(one: Transport) -> list[list[bytes]]:
    one.tick(time.monotonic())
    return [arrival.frames for arrival in one.arrivals() if isinstance(arrival, Message)]


@pytest.mark.parametrize("name", [None, b"hub"])
def test_peer_that_connects_anew_while_nobody_hears_it_is_heard_and_can_be_reached(
    name: bytes | None,
) -> None:
    with closing(transports.Hub(("tcp://127.0.0.1:*",), b"hub")) as hub:

        def connected() -> Transport:
            spoke: Transport = transports.Spoke(hub.endpoints[0], b"one", name)
            until(lambda: heard(spoke) == [] and not spoke.missing())
            spoke.send(b"", (b"", b"said"))
            until(lambda: heard(spoke) == [] and spoke.next_tick_at() is None)
            return spoke

        # The hub's socket has what the first one said, and nobody has asked for it.
        connected().close()
        with closing(connected()) as second:
            said: list[list[bytes]] = []

            def both() -> bool:
                said.extend(heard(hub))
                return len(said) == 2

            until(both, "what the second one said, after the first")
            assert said == [[b"", b"said"]] * 2
            until(lambda: hub.send(b"one", (b"", b"hello")))
            until(lambda: heard(second) == [[b"", b"hello"]])


def test_hub_outlives_a_peer_that_connected_anew_and_whose_old_connection_says_more_and_ends() -> (
    None
):
    # It would take the process along.
    process = FORKS.Process(target=_outlives)
    process.start()
    process.join(PATIENCE)
    assert process.exitcode == 0


def _outlives() -> None:
    with closing(transports.Hub((own_endpoint(),), b"hub")) as hub, zmq.Context() as context:

        def connected() -> Any:
            peer = context.socket(zmq.DEALER)
            peer.setsockopt(zmq.IDENTITY, b"one")
            peer.setsockopt(zmq.LINGER, 0)
            peer.connect(hub.endpoints[0])
            peer.send(b"said")
            until(lambda: heard(hub) == [[b"said"]])
            return peer

        with connected() as old, connected():
            # Nobody takes what it says now, as the name is another's; so ZeroMQ reads no more.
            for _ in range(3):
                old.send(b"more")
                time.sleep(0.1)
            old.close()
            ends_at = time.monotonic() + WATCHED
            while time.monotonic() < ends_at:
                assert heard(hub) == []
                time.sleep(0.05)
