"""A peer whose connection breaks while its hub hears nothing, be it stopped or kept by a disk."""

import time
from contextlib import closing

import pytest

from queuedriver.doors.transports.base import Message, Transport
from tests.waiting import until

zmq = pytest.importorskip("zmq")
transports = pytest.importorskip("queuedriver.doors.transports.zmq")


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
