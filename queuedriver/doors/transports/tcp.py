"""TCP as a transport: a listener that many connect to, and a caller that connects to one.

A peer is a connection, named by a number that is never used twice; its frames are the bytes as they
came. All descriptors of a transport are in one epoll, so that a thousand connections which say
nothing cost nothing, and a loop watches a single descriptor.

    a peer that vanished    keepalive, and TCP_USER_TIMEOUT for what it does not acknowledge
    one that does not read  its bytes are kept up to a limit; then it is gone
    one that says nothing   has so long to finish the handshake of TLS; the greeting is the
                            protocol's to limit
"""

import errno
import os
import random
import resource
import select
import socket
import ssl
import time
from collections.abc import Iterator
from functools import partial
from operator import itemgetter

from queuedriver.doors.transports.addresses import CONNECT_WITHIN, Background, host_and_port
from queuedriver.doors.transports.base import Arrival, Gone, Joined, Message, Refusals, Transport
from queuedriver.doors.words import soonest
from queuedriver.errors import CannotUse

# Seconds: a host that vanished is noticed after 30, whether or not it owes us an answer.
_USER_TIMEOUT = 30
_KEEP_IDLE = 15
_KEEP_INTERVAL = 5
_KEEP_COUNT = 3
# Seconds for the handshake of TLS.
HANDSHAKE = 10.0
# Seconds between two calls: doubled each time, up to the longest, with jitter.
_FIRST_WAIT = 0.25
_LONGEST_WAIT = 30.0
_JITTER = 0.2
_BACKLOG = 1024
# More than connections and open jobs together may come to.
_DESCRIPTORS = 16_384
_CHUNK = 64 * 1024
# What one peer may bring in one round, and how many may; in chunks, and in connections.
_ROUND_CHUNKS = 4
_ROUND_ACCEPTS = 100
# When there is no descriptor left, how long to wait for one; in seconds.
_ACCEPT_AGAIN = 1.0
# Seconds that what was sent has to leave, when all is closed.
_LINGER = 1.0
# What accept(2) says of a connection that ended before it was taken, and of a shortage.
_ENDED = (errno.ECONNABORTED, errno.EPROTO, errno.EPERM)
# What bind(2) says of an address that this host has not.
_NOT_OURS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
# Every address of the host, those of IPv4 included.
_ANY_IPV6 = "::"
_SHORTAGE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

_READ, _WRITE = select.EPOLLIN, select.EPOLLOUT
_BROKEN = select.EPOLLHUP | select.EPOLLERR


def _address(sock: socket.socket) -> str:
    """Return where the other side is; empty when it is gone already, or not reached yet."""
    try:
        found = sock.getpeername()
    except OSError:
        return ""
    return f"{found[0]}:{found[1]}"


class _Connection:
    """One socket: what is to be written, and how far it has come."""

    def __init__(self, sock: socket.socket, peer: bytes) -> None:
        self.socket = sock
        self.peer = peer
        # Where the other side is; of who has hung up the kernel does not know it any more.
        self.address = _address(sock)
        self.fd = sock.fileno()
        self.unsent = bytearray()
        # Whether it is made.
        self.open = False
        # Whether the handshake of TLS goes on.
        self.shaking = False
        # TLS wants to read before it can write, or the other way round.
        self.wants_write = False
        self.dropped = False
        # What is looked for on it.
        self.watched = _READ

    @property
    def events(self) -> int:
        writes = self.wants_write or (bool(self.unsent) and not self.shaking)
        return _READ | (_WRITE if writes else 0)

    def shake(self) -> None:
        """Go on with the handshake. OSError where it fails."""
        self.wants_write = False
        try:
            if isinstance(self.socket, ssl.SSLSocket):
                self.socket.do_handshake()
            self.shaking = False
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLWantWriteError:
            self.wants_write = True

    def read(self) -> bytes | None:
        """Return what is there; empty at the end, None when there is nothing now."""
        try:
            data = self.socket.recv(_CHUNK)
            while isinstance(self.socket, ssl.SSLSocket) and (held := self.socket.pending()):
                # What TLS holds epoll does not see.
                data += self.socket.recv(held)
            return data
        except (BlockingIOError, ssl.SSLWantReadError, InterruptedError):
            return None
        except ssl.SSLWantWriteError:
            self.wants_write = True
            return None
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""

    def write(self) -> None:
        """Send as much as is taken. OSError where nothing is, ever again."""
        self.wants_write = False
        while self.unsent and not self.shaking:
            try:
                # A copy, as TLS wants to see the same bytes again; bounded, as most are not taken.
                sent = self.socket.send(bytes(self.unsent[:_CHUNK]))
            except (BlockingIOError, ssl.SSLWantReadError, InterruptedError):
                return
            except ssl.SSLWantWriteError:
                self.wants_write = True
                return
            del self.unsent[:sent]


class _Tcp(Transport):
    """What listener and caller have in common."""

    # Bytes kept for a peer that does not read.
    max_unsent = 16 << 20

    def __init__(self, tls: ssl.SSLContext | None, host: str | None = None) -> None:
        self._tls = tls
        # Whom a caller's peer has to prove to be.
        self._host = host
        self._epoll = select.epoll()
        self._by_fd: dict[int, _Connection] = {}
        self._by_peer: dict[bytes, _Connection] = {}
        # Until when a connection has to be made, or to have taken our last words; by descriptor.
        self._untils: dict[int, float] = {}
        self._serial = 0
        # What came about outside `arrivals`.
        self._news: list[Arrival] = []

    def fds(self) -> list[int]:
        return [self._epoll.fileno()]

    def pending(self) -> bool:
        return bool(self._news)

    def arrivals(self) -> Iterator[Arrival]:
        ready = self._epoll.poll(0)
        for fd, _ in ready:
            if fd not in self._by_fd:
                self._connect(fd)
        # First of all: nothing is heard of a peer before it has joined.
        news, self._news = self._news, []
        yield from news
        for fd, events in ready:
            one = self._by_fd.get(fd)
            if one is not None:
                yield from self._arrivals_of(one, events)

    def _connect(self, fd: int) -> None:
        """Take the connections that another descriptor of ours has brought."""
        raise NotImplementedError

    def send(self, peer: bytes, frames: tuple[bytes, ...]) -> bool:
        one = self._by_peer.get(peer)
        if one is None or one.dropped:
            return False
        for frame in frames:
            one.unsent += frame
        try:
            one.write()
        except OSError:
            self._forget(one)
            return False
        if len(one.unsent) > self.max_unsent:
            self._forget(one)
            return False
        self._watch(one)
        return True

    def drop(self, peer: bytes) -> None:
        """End a connection once what was sent has left; nothing more is heard of it."""
        one = self._by_peer.get(peer)
        if one is None:
            return
        one.dropped = True
        self._untils[one.fd] = time.monotonic() + _LINGER
        if not one.unsent:
            self._forget(one)

    def next_tick_at(self) -> float | None:
        return min(self._untils.values(), default=None)

    def tick(self, now: float) -> None:
        """Give up on connections that are not made in time, or do not take our last words."""
        for fd in [fd for fd, until in self._untils.items() if until <= now]:
            self._news += self._lost(self._by_fd[fd], "it took too long")

    def close(self) -> None:
        """What was sent has a moment to leave."""
        until = time.monotonic() + _LINGER
        for one in list(self._by_fd.values()):
            try:
                # Blocking, but for no longer than that moment in all.
                if one.unsent and not one.shaking:
                    one.socket.settimeout(max(0.01, until - time.monotonic()))
                    one.socket.sendall(bytes(one.unsent))
            except OSError:
                pass
            self._forget(one)
        self._epoll.close()

    def _add(self, sock: socket.socket, peer: bytes) -> None:
        one = _Connection(sock, peer)
        self._untils[one.fd] = time.monotonic() + HANDSHAKE
        self._by_fd[one.fd] = one
        self._by_peer[peer] = one
        self._epoll.register(one.fd, one.watched)
        self._news += self._advance(one)

    def _arrivals_of(self, one: _Connection, events: int) -> Iterator[Arrival]:
        """Yield what one connection has brought."""
        try:
            if one.shaking:
                yield from self._advance(one)
            elif events & _WRITE:
                one.write()
            if one.open:
                yield from self._read(one)
            if one.dropped and not one.unsent:
                self._forget(one)
            elif one.fd in self._by_fd:
                self._watch(one)
        except OSError as error:
            yield from self._lost(one, _words(error))

    def _advance(self, one: _Connection) -> list[Arrival]:
        """Go on with making a connection; `Joined` when it is made."""
        try:
            if self._tls is not None and not one.shaking:
                # Around what is connected; the descriptor is the same.
                one.socket = self._tls.wrap_socket(
                    one.socket,
                    server_side=self._host is None,
                    server_hostname=self._host,
                    do_handshake_on_connect=False,
                )
                one.shaking = True
            if one.shaking:
                one.shake()
        except OSError as error:
            return list(self._lost(one, _words(error)))
        self._watch(one)
        if one.shaking:
            return []
        one.open = True
        del self._untils[one.fd]
        return [Joined(one.peer)]

    def _read(self, one: _Connection) -> Iterator[Arrival]:
        for _ in range(_ROUND_CHUNKS):
            data = one.read()
            if data is None:
                return
            if not data:
                yield from self._lost(one, "it closed the connection")
                return
            if not one.dropped:
                yield Message(one.peer, [data])
            if len(data) < _CHUNK and self._tls is None:
                # There was no more.
                return

    def _watch(self, one: _Connection) -> None:
        events = one.events
        if events != one.watched:
            one.watched = events
            self._epoll.modify(one.fd, events)

    def _lost(self, one: _Connection, why: str) -> Iterator[Arrival]:
        told = not one.dropped and one.fd in self._by_fd
        self._forget(one)
        if told:
            yield Gone(one.peer, why)

    def _forget(self, one: _Connection) -> None:
        if self._by_fd.pop(one.fd, None) is None:
            return
        self._by_peer.pop(one.peer, None)
        self._untils.pop(one.fd, None)
        self._epoll.unregister(one.fd)
        one.socket.close()


def raise_descriptors(wanted: int = _DESCRIPTORS) -> None:
    """Have so many descriptors, or as many as this process may: a connection is one, and an open
    job some."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Listener(_Tcp):
    """Listens at some addresses. Peers are numbers, in the order in which they came."""

    max_connections = 10_000

    def __init__(self, listen: tuple[str, ...], tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls)
        self._sockets: dict[int, socket.socket] = {}
        self._accept_at: float | None = None
        self._refusals = Refusals()
        try:
            self.endpoints = [self._listen(endpoint) for endpoint in listen]
        except BaseException:
            self.close()
            raise

    def _lost(self, one: _Connection, why: str) -> Iterator[Arrival]:
        if not (one.open or one.dropped):
            host, _, _ = one.address.rpartition(":")
            why_not = f"{host or 'somebody'} is refused: {why}"
            yield from self._refusals.news(why_not, time.monotonic())
        yield from super()._lost(one, why)

    def address(self, peer: bytes) -> str:
        """Return where a peer is; empty when it is gone."""
        one = self._by_peer.get(peer)
        return one.address if one is not None else ""

    def next_tick_at(self) -> float | None:
        return soonest(super().next_tick_at(), self._accept_at)

    def tick(self, now: float) -> None:
        super().tick(now)
        if self._accept_at is not None and self._accept_at <= now:
            self._accept_at = None
            for fd in self._sockets:
                self._epoll.modify(fd, _READ)

    def close(self) -> None:
        for sock in self._sockets.values():
            sock.close()
        super().close()

    def _listen(self, endpoint: str) -> str:
        """Listen at the first address of an endpoint that this host has, of IPv4 where there is
        one, as ZeroMQ does; return where that is."""
        host, port = host_and_port(endpoint)
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            for tried, (family, *_, address) in enumerate(sorted(found, key=itemgetter(0)), 1):
                both = family == socket.AF_INET6 and host == _ANY_IPV6
                try:
                    sock = socket.create_server(
                        address, family=family, backlog=_BACKLOG, dualstack_ipv6=both
                    )
                    break
                except OSError as error:
                    if error.errno not in _NOT_OURS or tried == len(found):
                        raise
        except OSError as error:
            raise CannotUse(
                f"cannot listen at {endpoint}: {_words(error)}; choose another --listen"
            ) from None
        sock.settimeout(0.0)
        self._sockets[sock.fileno()] = sock
        self._epoll.register(sock.fileno(), _READ)
        host, port, *_ = sock.getsockname()
        return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"

    def _connect(self, fd: int) -> None:
        for _ in range(_ROUND_ACCEPTS):
            try:
                found, _ = self._sockets[fd].accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _SHORTAGE:
                    # It stays readable: look away, or the loop turns without end.
                    self._accept_at = time.monotonic() + _ACCEPT_AGAIN
                    for fd in self._sockets:
                        self._epoll.modify(fd, 0)
                    return
                if error.errno in _ENDED:
                    continue
                raise
            if len(self._by_fd) >= self.max_connections:
                found.close()
                why = f"somebody is refused: there are {self.max_connections:,} connections"
                self._news += self._refusals.news(why, time.monotonic())
                continue
            self._serial += 1
            try:
                _prepare(found)
            except OSError:
                # It ended before it began.
                found.close()
                continue
            self._add(found, str(self._serial).encode())


class Caller(_Tcp):
    """Connects to one address, whose peer is called b\"\"; and again when that connection ends: at
    first soon, then ever more seldom, until `well`."""

    def __init__(self, endpoint: str, tls: ssl.SSLContext | None = None) -> None:
        self._where = host_and_port(endpoint)
        super().__init__(tls, self._where[0])
        self._endpoint = endpoint
        # A name may have several addresses, and may take long to be looked up.
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._wake, _READ)
        self._missing = ""
        self._miss("it has not answered")
        # When it is called again, and how long after the next time.
        self._call_at: float | None = None
        self._wait = _FIRST_WAIT
        self._call()

    def _call(self) -> None:
        call = partial(socket.create_connection, self._where, CONNECT_WITHIN)
        self._dialing = Background(call, self._wake, socket.socket.close)

    def _call_later(self, why: str) -> None:
        self._miss(why)
        wait = self._wait * random.uniform(1 - _JITTER, 1 + _JITTER)
        self._call_at = time.monotonic() + wait
        self._wait = min(2 * self._wait, _LONGEST_WAIT)

    def _miss(self, why: str) -> None:
        self._missing = f"no broker: {self._endpoint}: {why}"

    def well(self) -> None:
        """Take note that the peer is the one that was wanted."""
        self._missing, self._wait = "", _FIRST_WAIT

    def _connect(self, fd: int) -> None:
        try:
            sock = self._dialing.take()
            _prepare(sock)
            self._add(sock, b"")
        except OSError as error:
            self._call_later(_words(error))
            self._news.append(Gone(b"", self._missing))

    def _lost(self, one: _Connection, why: str) -> Iterator[Arrival]:
        yield from super()._lost(one, why)
        self._miss(why)

    def _forget(self, one: _Connection) -> None:
        if self._by_fd.get(one.fd) is one:
            super()._forget(one)
            self._call_later("the connection was lost")

    def next_tick_at(self) -> float | None:
        return soonest(super().next_tick_at(), self._call_at)

    def tick(self, now: float) -> None:
        super().tick(now)
        if self._call_at is not None and self._call_at <= now:
            self._call_at = None
            self._call()

    def missing(self) -> str:
        return self._missing

    def close(self) -> None:
        self._dialing.abandon()
        self._epoll.unregister(self._wake)
        os.close(self._wake)
        super().close()


def _prepare(sock: socket.socket) -> None:
    sock.settimeout(0.0)
    for level, option, value in (
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEP_IDLE),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEP_INTERVAL),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _KEEP_COUNT),
        (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _USER_TIMEOUT * 1000),
    ):
        sock.setsockopt(level, option, value)


def _words(error: OSError) -> str:
    if isinstance(error, ssl.SSLError | socket.gaierror):
        return str(error.args[1]) if len(error.args) > 1 else str(error)
    return os.strerror(error.errno) if error.errno else str(error)
