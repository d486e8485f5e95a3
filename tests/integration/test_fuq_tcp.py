"""TCP as a transport: what arrives, what is refused, and TLS on top of it."""

import contextlib
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme

from queuedriver.doors.transports import tls
from queuedriver.doors.transports.base import Arrival, Gone, Joined, Message, Refused, Transport
from queuedriver.doors.transports.tcp import Caller, Listener
from queuedriver.errors import CannotUse, ConfigError
from tests.drivers import PATIENCE

ANY = "tcp://127.0.0.1:*"


class Ends:
    """Both ends of connections, and all that has come so far."""

    def __init__(self) -> None:
        self.open: list[Transport] = []
        self.seen: dict[int, list[Arrival]] = {}

    def listen(self, **given: object) -> Listener:
        listener = Listener((ANY,), **given)  # type: ignore[arg-type]
        self.open.append(listener)
        return listener

    def call(self, listener: Listener, **given: object) -> Caller:
        caller = Caller(listener.endpoints[0], **given)  # type: ignore[arg-type]
        self.open.append(caller)
        return caller

    def turn(self) -> None:
        """What any of them has brought."""
        for one in self.open:
            found = self.seen.setdefault(id(one), [])
            found += one.arrivals()
            at = one.next_tick_at()
            if at is not None and at <= time.monotonic():
                one.tick(time.monotonic())

    def until(self, fact: Callable[[], object], words: str) -> None:
        end = time.monotonic() + PATIENCE
        while not fact():
            assert time.monotonic() < end, f"never: {words}"
            self.turn()

    def until_joined(self, listener: Listener, *callers: Caller) -> None:
        """Wait until both ends of these connections know of them: neither is told by the other."""
        self.until(lambda: len(self.of(listener, Joined)) == len(callers), "all have come")
        self.until(lambda: all(self.of(one, Joined) for one in callers), "all have got through")

    def of(self, end: Transport, kind: type[Arrival]) -> list[Arrival]:
        return [one for one in self.seen.get(id(end), []) if isinstance(one, kind)]

    def bytes_of(self, end: Transport) -> bytes:
        return b"".join(
            b"".join(one.frames) for one in self.seen.get(id(end), []) if isinstance(one, Message)
        )


@pytest.fixture
def ends() -> Iterator[Ends]:
    found = Ends()
    yield found
    for one in found.open:
        one.close()


class Papers:
    """Directories of certificates."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.authority = trustme.CA()
        self.other = trustme.CA()

    def make(
        self, name: str, issuer: trustme.CA | None, believes: trustme.CA | None, host: str
    ) -> str:
        where = self._root / name
        where.mkdir()
        if issuer is not None:
            cert = issuer.issue_cert(host)
            cert.private_key_pem.write_to_path(str(where / tls.KEY))
            for pem in cert.cert_chain_pems:
                pem.write_to_path(str(where / tls.CERT), append=True)
        if believes is not None:
            believes.cert_pem.write_to_path(str(where / tls.CA))
        return str(where)


@pytest.fixture
def papers(tmp_path: Path) -> Papers:
    return Papers(tmp_path)


def test_what_is_sent_arrives_whole_and_in_order_however_much_it_is(ends: Ends) -> None:
    listener = ends.listen()
    caller = ends.call(listener)
    ends.until_joined(listener, caller)
    data = bytes(range(256)) * 20_000
    for at in range(0, len(data), 512_000):
        assert caller.send(b"", (data[at : at + 512_000],))
    ends.until(lambda: len(ends.bytes_of(listener)) == len(data), "all of it")
    assert ends.bytes_of(listener) == data
    [joined] = ends.of(listener, Joined)
    assert listener.send(joined.peer, (b"an", b"swer"))
    ends.until(lambda: ends.bytes_of(caller) == b"answer", "the answer")


def test_what_comes_with_the_connection_is_heard_after_it_has_joined(ends: Ends) -> None:
    listener = ends.listen()
    with contextlib.closing(socket.create_connection(("127.0.0.1", port(listener)))) as hasty:
        hasty.sendall(b"at once")
        ends.until(lambda: ends.bytes_of(listener), "it is heard")
    seen = ends.seen[id(listener)]
    assert [type(one) for one in seen[:2]] == [Joined, Message]


def test_end_of_a_connection_is_told_once_and_nothing_can_be_sent_then(ends: Ends) -> None:
    listener = ends.listen()
    caller = ends.call(listener)
    ends.until_joined(listener, caller)
    [joined] = ends.of(listener, Joined)
    caller.drop(b"")
    ends.until(lambda: ends.of(listener, Gone), "it is gone")
    ends.turn()
    assert len(ends.of(listener, Gone)) == 1
    assert not listener.send(joined.peer, (b"x",))
    assert ends.of(caller, Gone) == []


def test_dropped_peer_gets_what_was_sent_before_and_is_not_heard_any_more(ends: Ends) -> None:
    listener = ends.listen()
    caller = ends.call(listener)
    ends.until_joined(listener, caller)
    [joined] = ends.of(listener, Joined)
    # More than the kernel takes at once.
    words = b"last words" * 1_000_000
    listener.send(joined.peer, (words,))
    listener.drop(joined.peer)
    caller.send(b"", (b"more",))
    assert not listener.send(joined.peer, (b"x",))
    ends.until(lambda: ends.of(caller, Gone), "it was dropped")
    assert len(ends.bytes_of(caller)) == len(words)
    assert ends.bytes_of(listener) == b""


def test_peer_that_does_not_read_is_gone_when_it_owes_too_much(ends: Ends) -> None:
    listener = ends.listen()
    listener.max_unsent = 1 << 20
    silent = socket.create_connection(("127.0.0.1", port(listener)))
    with contextlib.closing(silent):
        ends.until(lambda: ends.of(listener, Joined), "it joined")
        [joined] = ends.of(listener, Joined)
        sent = 0
        while listener.send(joined.peer, (bytes(100_000),)):
            sent += 1
            assert sent < 1000


def port(listener: Listener) -> int:
    return int(listener.endpoints[0].rpartition(":")[2])


def test_more_connections_than_may_be_are_refused_and_others_go_on(ends: Ends) -> None:
    listener = ends.listen()
    listener.max_connections = 2
    first, second = ends.call(listener), ends.call(listener)
    ends.until_joined(listener, first, second)
    third = ends.call(listener)
    ends.until(lambda: ends.of(third, Gone), "the third is refused")
    refused = Refused("somebody is refused: there are 2 connections")
    assert ends.of(listener, Refused) == [refused]
    for one in (first, second):
        assert one.send(b"", (b"x",))
    ends.until(lambda: ends.bytes_of(listener) == b"xx", "the others are heard")


def test_connection_that_was_reset_is_gone(ends: Ends) -> None:
    listener = ends.listen()
    rude = socket.create_connection(("127.0.0.1", port(listener)))
    ends.until(lambda: ends.of(listener, Joined), "it joined")
    rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    rude.close()
    ends.until(lambda: ends.of(listener, Gone), "it is gone")


def test_nobody_at_the_address_is_told_and_not_raised(ends: Ends) -> None:
    listener = ends.listen()
    endpoint = listener.endpoints[0]
    listener.close()
    ends.open.remove(listener)
    caller = Caller(endpoint)
    ends.open.append(caller)
    ends.until(lambda: ends.of(caller, Gone), "it is refused")


def test_address_that_is_taken_is_said_at_once(ends: Ends) -> None:
    listener = ends.listen()
    with pytest.raises(CannotUse, match="in use"):
        Listener((listener.endpoints[0],))


def test_a_thousand_connections_are_one_descriptor_to_a_loop(ends: Ends) -> None:
    listener = ends.listen()
    assert len(listener.fds()) == 1
    ends.until_joined(listener, *(ends.call(listener) for _ in range(5)))
    assert len(listener.fds()) == 1
    assert not listener.pending()


def test_keepalive_and_user_timeout_are_set_on_both_ends(ends: Ends) -> None:
    listener = ends.listen()
    caller = ends.call(listener)
    ends.until_joined(listener, caller)
    for end in (listener, caller):
        [one] = end._by_fd.values()
        option = one.socket.getsockopt
        assert option(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert option(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000


# TLS


def test_tls_carries_as_much_as_plain_tcp_does(ends: Ends, papers: Papers) -> None:
    ours = papers.make("broker", papers.authority, papers.authority, "127.0.0.1")
    theirs = papers.make("worker", papers.authority, papers.authority, "worker")
    listener = ends.listen(tls=tls.serving(ours, other_proof=False))
    caller = ends.call(listener, tls=tls.calling(theirs))
    ends.until_joined(listener, caller)
    data = bytes(range(256)) * 4000
    assert caller.send(b"", (data,))
    ends.until(lambda: len(ends.bytes_of(listener)) == len(data), "all of it")
    assert ends.bytes_of(listener) == data
    [one] = listener._by_fd.values()
    assert isinstance(one.socket, ssl.SSLSocket)
    assert one.socket.version() in ("TLSv1.2", "TLSv1.3")


def test_broker_of_another_authority_or_another_host_is_not_believed(
    ends: Ends, papers: Papers
) -> None:
    for name, issuer, host in (
        ("forged", papers.other, "127.0.0.1"),
        ("elsewhere", papers.authority, "example.org"),
    ):
        ours = papers.make(name, issuer, papers.authority, host)
        theirs = papers.make(f"worker-{name}", papers.authority, papers.authority, "worker")
        listener = ends.listen(tls=tls.serving(ours, other_proof=False))
        caller = ends.call(listener, tls=tls.calling(theirs))
        ends.until(lambda caller=caller: ends.of(caller, Gone), "it is not believed")  # type: ignore[misc]
        assert ends.of(caller, Joined) == []
        assert ends.bytes_of(listener) == b""


def test_worker_without_a_certificate_of_ours_does_not_get_a_word_through(
    ends: Ends, papers: Papers
) -> None:
    ours = papers.make("broker", papers.authority, papers.authority, "127.0.0.1")
    listener = ends.listen(tls=tls.serving(ours, other_proof=False))
    for name, issuer in (("none", None), ("forged", papers.other)):
        theirs = papers.make(name, issuer, papers.authority, "worker")
        caller = ends.call(listener, tls=tls.calling(theirs))
        ends.until(lambda caller=caller: ends.of(caller, Gone), "it is refused")  # type: ignore[misc]
    ends.until(lambda: len(ends.of(listener, Refused)) == 2, "both refusals are told")
    whys = [one.why for one in ends.of(listener, Refused) if isinstance(one, Refused)]
    assert all(why.startswith("127.0.0.1 is refused: ") for why in whys)
    assert "certificate" in whys[0]
    assert ends.of(listener, Joined) == []


def test_plain_bytes_are_no_handshake_and_silence_ends_with_its_time(
    ends: Ends, papers: Papers
) -> None:
    ours = papers.make("broker", papers.authority, papers.authority, "127.0.0.1")
    listener = ends.listen(tls=tls.serving(ours, other_proof=False))
    with (
        contextlib.closing(socket.create_connection(("127.0.0.1", port(listener)))) as plain,
        contextlib.closing(socket.create_connection(("127.0.0.1", port(listener)))) as silent,
    ):
        plain.sendall(bytes.fromhex("47c0 0100 00000000 04000000"))
        ends.until(lambda: ends.of(listener, Refused), "the plain one is refused")
        ends.until(lambda: len(listener._by_fd) == 1, "the other one is there")
        at = listener.next_tick_at()
        assert at is not None
        listener.tick(at)
        assert silent.recv(1) == b""
    ends.turn()
    assert ends.of(listener, Joined) == []


def test_who_hangs_up_amid_the_handshake_is_named_all_the_same(ends: Ends, papers: Papers) -> None:
    ours = papers.make("broker", papers.authority, papers.authority, "127.0.0.1")
    listener = ends.listen(tls=tls.serving(ours, other_proof=False))
    plain = socket.create_connection(("127.0.0.1", port(listener)))
    # Reset at once: by then the kernel does not know any more who it was.
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    ends.until(lambda: len(listener._by_fd) == 1, "it is there")
    plain.close()
    ends.until(lambda: ends.of(listener, Refused), "it is refused")
    (refused,) = ends.of(listener, Refused)
    assert isinstance(refused, Refused)
    assert refused.why.startswith("127.0.0.1 is refused: ")


def test_papers_that_prove_nothing_are_refused_at_the_start(papers: Papers) -> None:
    alone = papers.make("alone", papers.authority, None, "127.0.0.1")
    assert tls.serving(alone, other_proof=True).verify_mode is ssl.CERT_NONE
    with pytest.raises(ConfigError, match="anybody could connect"):
        tls.serving(alone, other_proof=False)
    with pytest.raises(ConfigError, match=r"no ca\.pem"):
        tls.calling(alone)
    bare = papers.make("bare", None, papers.authority, "127.0.0.1")
    with pytest.raises(ConfigError, match=r"cert.pem and key.pem"):
        tls.serving(bare, other_proof=True)
    context = tls.calling(bare)
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
