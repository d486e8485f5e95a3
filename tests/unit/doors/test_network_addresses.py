"""Addresses: what is one, what this host alone can reach, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuedriver.doors.transports.addresses import (
    check_endpoint,
    check_listen,
    host_and_port,
    is_loopback,
)
from queuedriver.errors import BadArgument, ConfigError

LOCAL = ["tcp://127.0.0.1:6714", "tcp://127.3.2.1:1", "tcp://[::1]:6714", "tcp://localhost:*"]
# What others may reach; of a name nobody knows.
OPEN = ["tcp://0.0.0.0:6714", "tcp://*:6714", "tcp://[::]:1", "tcp://10.0.0.1:*", "tcp://rose:80"]


@pytest.mark.parametrize("endpoint", [*LOCAL, *OPEN])
def test_address_is_a_host_and_a_port(endpoint: str) -> None:
    assert check_endpoint(endpoint) == endpoint
    host, port = host_and_port(endpoint)
    assert host
    assert 0 <= port <= 65_535


def test_parts_of_an_address() -> None:
    assert host_and_port("tcp://rose:6714") == ("rose", 6714)
    assert host_and_port("tcp://[fe80::1%eth0]:6714") == ("fe80::1%eth0", 6714)
    assert host_and_port("tcp://127.0.0.1:*") == ("127.0.0.1", 0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "127.0.0.1:6714",
        "tcp://127.0.0.1",
        "tcp://:6714",
        "tcp://127.0.0.1:65536",
        "tcp://127.0.0.1:-1",
        "tcp://127.0.0.1:6714/",
        "tcp://127.0.0.1:٣",
        "tcp://::1:6714",
        "udp://127.0.0.1:6714",
        "ipc:///tmp/socket",
        "inproc://name",
        "tcp://127.0.0.1:6714\n",
    ],
)
def test_anything_else_is_refused_with_what_would_be_right(text: str) -> None:
    with pytest.raises(BadArgument, match=r"tcp://127\.0\.0\.1:6714"):
        check_endpoint(text)


@given(st.text())
def test_whatever_somebody_types_is_an_address_or_refused(text: str) -> None:
    try:
        check_endpoint(text)
    except BadArgument:
        return
    assert host_and_port(text)
    is_loopback(text)


@pytest.mark.parametrize("endpoint", LOCAL)
def test_this_host_may_be_listened_on_without_more(endpoint: str) -> None:
    assert is_loopback(endpoint)
    check_listen([endpoint], secured=False, insecure=False, how="--curve DIR")


@pytest.mark.parametrize("endpoint", OPEN)
def test_other_hosts_are_let_in_only_with_keys_or_if_somebody_says_so(endpoint: str) -> None:
    assert not is_loopback(endpoint)
    listen = [LOCAL[0], endpoint]
    with pytest.raises(ConfigError, match="--curve DIR"):
        check_listen(listen, secured=False, insecure=False, how="--curve DIR")
    check_listen(listen, secured=True, insecure=False, how="--curve DIR")
    check_listen(listen, secured=False, insecure=True, how="--curve DIR")
