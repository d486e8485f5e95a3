"""Names of hosts: looked up without keeping anybody waiting, and tried at every address."""

import operator
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from queuedriver.doors.transports.base import Gone, Joined, Message, Transport
from queuedriver.doors.transports.tcp import Caller, Listener
from queuedriver.doors.transports.zmq import Hub, Spoke
from queuedriver.errors import CannotUse
from tests.drivers import PATIENCE

ADDRESSES = ("::1", "127.0.0.2", "127.0.0.1")


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """`rose` has three addresses, and nobody learns of them before it is set."""
    answers = threading.Event()
    look_up = socket.getaddrinfo

    def slowly(host: str, *args: Any, **kwargs: Any) -> list[Any]:
        if host != "rose":
            return look_up(host, *args, **kwargs)
        assert answers.wait(PATIENCE)
        return [one for address in ADDRESSES for one in look_up(address, *args, **kwargs)]

    monkeypatch.setattr(socket, "getaddrinfo", slowly)
    yield answers
    answers.set()


def turn(*transports: Transport) -> list[object]:
    """What they bring now."""
    came: list[object] = []
    for one in transports:
        came += one.arrivals()
        at = one.next_tick_at()
        if at is not None and at <= time.monotonic():
            one.tick(time.monotonic())
    return came


def until(came: Callable[[object], bool], *transports: Transport) -> None:
    end = time.monotonic() + PATIENCE
    while not any(map(came, turn(*transports))):
        assert time.monotonic() < end
        time.sleep(0.002)


def at_rose(endpoint: str) -> str:
    return f"tcp://rose:{endpoint.rpartition(':')[2]}"


def ends_of(host: str) -> tuple[Hub, Listener, Spoke, Caller]:
    """Those who listen at an address of rose, and those who call them by that name."""
    hub, listener = Hub((f"tcp://{host}:*",)), Listener((f"tcp://{host}:*",))
    spoke = Spoke(at_rose(hub.endpoints[0]), b"me")
    return hub, listener, spoke, Caller(at_rose(listener.endpoints[0]))


@pytest.mark.parametrize("host", ["[::1]", "127.0.0.2", "127.0.0.1"])
def test_every_address_of_a_name_is_tried(resolver: threading.Event, host: str) -> None:
    resolver.set()
    hub, listener, spoke, caller = ends_of(host)
    with closing(hub), closing(listener), closing(spoke), closing(caller):
        # What is said before anybody is there is not lost on the way from address to address.
        assert spoke.send(b"", (b"hello",))
        until(lambda came: came == Message(b"me", [b"hello"]), hub, spoke)
        assert spoke.missing() == ""
        until(lambda came: came == Joined(b""), caller, listener)


def test_who_listens_at_a_name_listens_at_its_first_address_of_ipv4(
    resolver: threading.Event,
) -> None:
    resolver.set()
    with closing(Listener(("tcp://rose:*",))) as listener:
        (endpoint,) = listener.endpoints
        assert endpoint.startswith("tcp://127.0.0.2:")
        # Whoever knows it by the name finds it.
        with closing(Caller(at_rose(endpoint))) as caller:
            until(partial(operator.eq, Joined(b"1")), listener, caller)


def test_address_of_a_name_that_is_not_this_host_s_is_left_out(
    monkeypatch: pytest.MonkeyPatch, resolver: threading.Event
) -> None:
    resolver.set()
    # From the documentation of networks: nobody has it.
    monkeypatch.setattr(f"{__name__}.ADDRESSES", ("192.0.2.1", "127.0.0.1"))
    with closing(Listener(("tcp://rose:*",))) as listener:
        assert [one.rsplit(":", 1)[0] for one in listener.endpoints] == ["tcp://127.0.0.1"]
    monkeypatch.setattr(f"{__name__}.ADDRESSES", ("192.0.2.1",))
    with pytest.raises(CannotUse, match="cannot listen at tcp://rose"):
        Listener(("tcp://rose:*",))


def test_nobody_waits_while_a_name_is_looked_up(resolver: threading.Event) -> None:
    began = time.monotonic()
    hub, listener, spoke, caller = ends_of("127.0.0.1")
    with closing(hub), closing(listener), closing(spoke), closing(caller):
        assert turn(spoke, caller) == []
        assert time.monotonic() - began < PATIENCE / 2
        assert spoke.missing()
        assert caller.missing()
        resolver.set()
        until(lambda came: came == Joined(b""), caller, listener)
        spoke.send(b"", (b"hello",))
        until(lambda came: came == Message(b"me", [b"hello"]), hub, spoke)


def test_name_that_nobody_has_is_said_and_asked_for_again() -> None:
    with closing(Spoke("tcp://nobody.invalid:1", b"me")) as spoke:
        end = time.monotonic() + PATIENCE
        while "nobody answers" in spoke.missing():
            assert time.monotonic() < end
            turn(spoke)
            time.sleep(0.01)
        assert spoke.missing().startswith("tcp://nobody.invalid:1: ")
        assert spoke.next_tick_at() is not None
    with closing(Caller("tcp://nobody.invalid:1")) as caller:
        until(lambda came: isinstance(came, Gone) and "nobody.invalid" in came.why, caller)


def test_who_is_not_wanted_any_more_leaves_nothing_open(resolver: threading.Event) -> None:
    with closing(Listener(("tcp://127.0.0.1:*",))) as listener:
        Caller(at_rose(listener.endpoints[0])).close()
        Spoke(at_rose(listener.endpoints[0]), b"me").close()
        before = threading.active_count()
        resolver.set()
        end = time.monotonic() + PATIENCE
        # Whom it reached is left at once.
        while threading.active_count() >= before:
            assert time.monotonic() < end
            turn(listener)
