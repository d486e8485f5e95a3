"""How ZeroMQ's own heartbeats are asked for."""

from contextlib import closing

import pytest

zmq = pytest.importorskip("zmq")
transports = pytest.importorskip("queuedriver.doors.transports.zmq")


def test_who_waits_is_not_dropped_between_two_heartbeats_of_its_own() -> None:
    with (
        closing(transports.Hub(("tcp://127.0.0.1:*",))) as hub,
        closing(transports.Spoke(hub.endpoints[0], b"me")) as spoke,
    ):
        of_spoke = spoke._socket.getsockopt
        interval, patience = map(of_spoke, (zmq.HEARTBEAT_IVL, zmq.HEARTBEAT_TTL))
        assert interval
        assert patience >= interval + 1000
        assert not hub._socket.getsockopt(zmq.HEARTBEAT_IVL), "ZeroMQ may abort a hub that asks"
