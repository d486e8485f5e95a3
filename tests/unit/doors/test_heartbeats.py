"""How ZeroMQ's own heartbeats are asked for."""

from contextlib import closing

import pytest

zmq = pytest.importorskip("zmq")
transports = pytest.importorskip("queuedriver.doors.transports.zmq")


def test_who_waits_is_not_dropped_between_two_heartbeats_by_who_sends_none() -> None:
    with (
        closing(transports.Hub(("tcp://127.0.0.1:*",))) as hub,
        closing(transports.Spoke(hub.endpoints[0], b"me")) as spoke,
    ):
        for one in (hub, spoke):
            interval, patience = map(one._socket.getsockopt, (zmq.HEARTBEAT_IVL, zmq.HEARTBEAT_TTL))
            assert patience >= interval + 1000
