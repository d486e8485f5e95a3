"""ZeroMQ as a transport: a hub that many connect to, and a spoke that connects to one.

A message to a peer that is not connected is refused, so a lost one is noticed; one that is
connected and does not read has its messages kept by ZeroMQ, up to a limit, and is not lost. A spoke
keeps what its hub cannot be sent yet until it is there. Heartbeats of ZeroMQ's own end connections
whose other side is silent.
"""

import errno
import os
import select
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import zmq
from zmq.utils.monitor import parse_monitor_message

from queuedriver.doors.transports import addresses, base
from queuedriver.doors.transports.addresses import Background, answering, is_name
from queuedriver.doors.transports.base import MAX_FRAMES, Arrival, Gone, Joined, Message, Refused
from queuedriver.doors.transports.curve import Doorkeeper, Keys
from queuedriver.errors import CannotUse, ConfigError, NotPermitted

# Milliseconds. Whoever vanishes without a word is missed four seconds later at the latest: a spoke
# asks its hub, and says how long it may stay away itself. A hub asks nobody: ZeroMQ aborts who has
# a heartbeat due on a connection that it reads no more and that has ended (in libzmq 4.3.5:
# "Assertion failed: !_io_error"), as one may of a peer that connected anew. Who asks nothing, as it
# is not ours, is missed by the kernel, within a second more.
_ASKS_EVERY = 1_250
_HEARTBEAT_TIMEOUT = 2_750
_MISSED_AFTER = _ASKS_EVERY + _HEARTBEAT_TIMEOUT
_HANDSHAKE_TIMEOUT = 5_000
_CONNECT_TIMEOUT = int(addresses.CONNECT_WITHIN * 1000)
_LINGER = 1_000
_RECONNECT = 100
_RECONNECT_MOST = 5_000
# Messages waiting in ZeroMQ for one peer; who reads none of them is lost. Of those that came there
# is no limit: at one ZeroMQ reads no more, not even heartbeats, and gives up a peer that is well,
# as after 10,000 probes a worker that has one document for three hours; and a hub that leaves just
# then aborts its worker, as above. Nor did it bound memory: a message may have 64 MB.
_MOST_UNREAD = 10_000
_NO_LIMIT = 0
# Messages that a spoke keeps for a hub that is not there yet.
_MOST_UNSENT = 1_000
_RETRY = 0.05
# Seconds after which a hub that refused us is asked again: its keys may be others by then.
_REFUSED_FOR = 5.0
# Seconds until a name is tried again of which no address answers.
_LOOK_UP_AGAIN = 1.0
# Messages taken in one round.
_ROUND = 500
# As plain numbers: to combine pyzmq's flags costs as much as to send a frame.
_NOW = int(zmq.NOBLOCK)
_NOW_AND_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)
_EVENTS = int(zmq.EVENTS)
_CAN_READ = int(zmq.POLLIN)
# What it means that nothing can be sent to somebody now.
_NOT_NOW = (zmq.EAGAIN, zmq.EHOSTUNREACH)
# What a spoke is told of its connection. After the last two ZeroMQ itself does not try again.
_JOINED = int(zmq.EVENT_HANDSHAKE_SUCCEEDED)
_BROKE = int(zmq.EVENT_DISCONNECTED)
_NOBODY = int(zmq.EVENT_CLOSED)
_ENDED_IN_IT = int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL)
_NO_WORD_OF_OURS = int(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
_KEY_REFUSED = int(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
_OF_A_SPOKE = _JOINED | _BROKE | _NOBODY | _ENDED_IN_IT | _NO_WORD_OF_OURS | _KEY_REFUSED
# What the end of a handshake at a hub means.
_REFUSED_FOR_WANT_OF = {
    int(zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH): "one side has keys (--curve), the other none",
    int(zmq.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC): "its broker.key is not the own.key of this side",
}
# Of a ROUTER: it refuses what is for nobody; and whoever comes under an identity that there is, is
# the peer of that name. Else, if its connection broke and is there again before the end of the old
# one was noticed, as while this process was stopped, ZeroMQ never reads from the new one.
_TO_THE_LATEST = ((zmq.ROUTER_MANDATORY, 1), (zmq.ROUTER_HANDOVER, 1))
# What it means that an address cannot be listened on.
_REFUSALS = {zmq.EADDRINUSE: CannotUse, errno.EACCES: NotPermitted}


class _Socket(base.Transport):
    """What hub and spoke have in common."""

    def __init__(
        self, kind: int, identity: bytes, max_message: int, events: int, *options: tuple[int, int]
    ) -> None:
        self._context = zmq.Context()
        # Whom we give a message need not interrupt us for it, where no processor is free: what is
        # said at once leaves at once, and is heard at once.
        self._context.set(zmq.THREAD_SCHED_POLICY, os.SCHED_BATCH)
        self._socket = self._context.socket(kind)
        for option, value in (
            (zmq.LINGER, _LINGER),
            (zmq.SNDHWM, _MOST_UNREAD),
            (zmq.RCVHWM, _NO_LIMIT),
            (zmq.HANDSHAKE_IVL, _HANDSHAKE_TIMEOUT),
            (zmq.RECONNECT_IVL, _RECONNECT),
            (zmq.RECONNECT_IVL_MAX, _RECONNECT_MOST),
            (zmq.MAXMSGSIZE, max_message + base.AROUND),
            *options,
        ):
            self._socket.setsockopt(option, value)
        if identity:
            self._socket.setsockopt(zmq.IDENTITY, identity)
        self._most = max_message + base.AROUND
        # Whether nothing is there that the socket's descriptor will not tell of. It tells once of
        # what came, and what else is done with the socket may take that back.
        self._drained = False
        # What else is listened to, but seldom says anything: first of all what becomes of
        # connections. Nothing is told of what comes to a socket that was never looked at, or not
        # since something came.
        self._aside = select.epoll()
        self._events = self._socket.get_monitor_socket(events)
        self._aside.register(int(self._events.getsockopt(zmq.FD)), select.EPOLLIN)
        _readable(self._events)

    def fds(self) -> list[int]:
        return [int(self._socket.getsockopt(zmq.FD)), self._aside.fileno()]

    def pending(self) -> bool:
        if not self._drained:
            self._drained = not _readable(self._socket)
        return not self._drained

    def _happened(self) -> Iterator[Mapping[str, Any]]:
        """Yield what has become of connections."""
        while _readable(self._events):
            yield parse_monitor_message(self._events.recv_multipart(zmq.NOBLOCK))

    def _messages(self) -> Iterator[list[bytes]]:
        ask, receive = self._socket.getsockopt, self._socket.recv
        self._drained = False
        for _ in range(_ROUND):
            # To ask costs less than an exception, and a frame less than to ask whether it is last.
            if not int(ask(_EVENTS)) & _CAN_READ:
                self._drained = True
                return
            frame = receive(_NOW, copy=False)
            frames = [frame.bytes]
            while frame.more:
                frame = receive(_NOW, copy=False)
                frames.append(frame.bytes)
            yield frames

    def _fits(self, frames: list[bytes]) -> bool:
        """Tell whether a message is small enough: ZeroMQ bounds neither the number of frames nor
        their sum."""
        return len(frames) <= MAX_FRAMES and sum(map(len, frames)) <= self._most

    def _is_sent(self, frames: Sequence[bytes]) -> bool:
        """Send a message, unless nobody is there, or reads too little."""
        self._drained = False
        send = self._socket.send
        try:
            for frame in frames[:-1]:
                send(frame, _NOW_AND_MORE)
            send(frames[-1], _NOW)
        except zmq.ZMQError as error:
            if error.errno not in _NOT_NOW:
                raise
            return False
        return True

    def close(self) -> None:
        self._socket.disable_monitor()
        self._events.close(0)
        self._aside.close()
        self._socket.close()
        self._context.term()


class Hub(_Socket):
    """A ROUTER that is connected to: peers go by their identities."""

    def __init__(
        self,
        listen: Sequence[str],
        identity: bytes = b"",
        keys: Keys | None = None,
        max_message: int = base.MAX_MESSAGE,
    ) -> None:
        super().__init__(
            zmq.ROUTER,
            identity,
            max_message,
            # ZeroMQ ends the connections of those who cannot even say who they are.
            _NO_WORD_OF_OURS,
            *_TO_THE_LATEST,
            # It asks each second whoever says nothing, and gives up what is not confirmed.
            (zmq.TCP_KEEPALIVE, 1),
            (zmq.TCP_KEEPALIVE_IDLE, 1),
            (zmq.TCP_KEEPALIVE_INTVL, 1),
            (zmq.TCP_MAXRT, _MISSED_AFTER),
        )
        self._door = None
        self._refusals = base.Refusals()
        try:
            if keys is not None:
                self._door = Doorkeeper(self._context, keys)
                self._aside.register(self._door.fd, select.EPOLLIN)
                keys.serve(self._socket)
            self.endpoints = [_bind(self._socket, where) for where in listen]
        except Exception:
            self.close()
            raise

    def arrivals(self) -> Iterator[Arrival]:
        if self._aside.poll(0):
            yield from self._refused()
        for frames in self._messages():
            peer = frames.pop(0)
            if self._fits(frames):
                yield Message(peer, frames)
            else:
                # Whatever it was about, its sender will not say it again.
                yield Gone(peer, "it sent more than a message may have")

    def _refused(self) -> Iterator[Refused]:
        """Let in who may come in; yield who may not."""
        if self._door is not None:
            yield from self._door.attend()
        for event in self._happened():
            why = _REFUSED_FOR_WANT_OF.get(event["value"], "it does not speak as we do")
            said = f"somebody is refused at {event['endpoint'].decode(errors='replace')}: {why}"
            yield from self._refusals.news(said, time.monotonic())

    def send(self, peer: bytes, frames: tuple[bytes, ...]) -> bool:
        return self._is_sent((peer, *frames))

    def close(self) -> None:
        if self._door is not None:
            self._door.close()
        super().close()


class Spoke(_Socket):
    """A DEALER, or (`hub`) a ROUTER, that connects to one hub, which is called b\"\". It says
    `Joined` when the connection broke and is there again."""

    def __init__(
        self,
        endpoint: str,
        identity: bytes,
        hub: bytes | None = None,
        keys: Keys | None = None,
        max_message: int = base.MAX_MESSAGE,
    ) -> None:
        super().__init__(
            zmq.DEALER if hub is None else zmq.ROUTER,
            identity,
            max_message,
            # ZeroMQ connects again by itself, and what was on its way then is lost without a word.
            _OF_A_SPOKE,
            *(() if hub is None else _TO_THE_LATEST),
            (zmq.HEARTBEAT_IVL, _ASKS_EVERY),
            (zmq.HEARTBEAT_TIMEOUT, _HEARTBEAT_TIMEOUT),
            # Longer than until the next one, or a hub would drop an idle spoke.
            (zmq.HEARTBEAT_TTL, _MISSED_AFTER),
            (zmq.CONNECT_TIMEOUT, _CONNECT_TIMEOUT),
            # What waits in ZeroMQ for one address is lost with the attempt to connect there.
            (zmq.IMMEDIATE, int(is_name(endpoint))),
        )
        # A hub adds the way home to what it let in. Dropped here it would be in our hands for ever.
        self._most += base.AROUND
        self._endpoint = endpoint
        # By which identity a ROUTER knows the hub.
        self._hub = hub
        # What could not be sent yet, and when that is tried again.
        self._unsent: deque[tuple[bytes, ...]] = deque()
        self._retry_at = 0.0
        self._joined = False
        self._missing = f"nobody answers at {endpoint}; is a broker running there?"
        # When to connect again, to who refused us or to a name.
        self._connect_at: float | None = None
        # Where it connects to; and what looks for an address of a name that answers: ZeroMQ tries
        # one alone, and it may take long.
        self._at = ""
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._aside.register(self._wake, select.EPOLLIN)
        self._lookup: Background[str] | None = None
        try:
            if keys is not None:
                keys.call(self._socket)
            self._dial()
        except zmq.ZMQError as error:
            self.close()
            raise ConfigError(f"cannot connect to {endpoint!r}: {error}") from None
        except ConfigError:
            self.close()
            raise

    def arrivals(self) -> Iterator[Arrival]:
        if self._aside.poll(0):
            yield from self._connections()
        for frames in self._messages():
            # Frames that name the sender are none of the message.
            if (self._hub is None or frames.pop(0) == self._hub) and self._fits(frames):
                yield Message(b"", frames)

    def _connections(self) -> Iterator[Joined]:
        """See what has become of the connection, and where the next goes; yield one that is there
        again."""
        if self._lookup is not None and self._lookup.ended:
            lookup, self._lookup = self._lookup, None
            try:
                self._connect(lookup.take())
            except (ConnectionError, TimeoutError):
                self._miss(_NOBODY)
            except OSError as error:
                self._missing = f"{self._endpoint}: {error.strerror or error}"
                self._connect_at = time.monotonic() + _LOOK_UP_AGAIN
        for said in self._happened():
            event = said["event"]
            if said["endpoint"].decode() != self._at:
                # Of a connection that we have given up.
                continue
            if event == _JOINED:
                self._missing = ""
                self._retry_at = 0.0
                if self._joined:
                    yield Joined(b"")
                self._joined = True
            else:
                self._miss(event)

    def _miss(self, event: int) -> None:
        """Note why the hub is not there; a handshake that failed also ends its connection."""
        where = self._endpoint
        if event in (_KEY_REFUSED, _NO_WORD_OF_OURS):
            self._connect_at = time.monotonic() + _REFUSED_FOR
        if event == _KEY_REFUSED:
            self._missing = (
                f"the broker at {where} refuses our key; is it in the broker's authorized/?"
            )
        elif event in (_ENDED_IN_IT, _NO_WORD_OF_OURS):
            self._missing = (
                f"{where} ends our connections; are keys and --curve right on both sides?"
            )
        elif event == _NOBODY or not self._missing:
            self._missing = f"nobody answers at {where}; is a broker running there?"
            if event == _NOBODY and is_name(where):
                self._connect_at = time.monotonic() + _LOOK_UP_AGAIN

    def missing(self) -> str:
        """Return why our hub is not there, or takes nothing."""
        if self._missing or not self._unsent:
            return self._missing
        return f"{self._endpoint} takes nothing of ours; is that how its broker is to be called?"

    def next_tick_at(self) -> float | None:
        # Without a connection there is no need to try.
        at = self._retry_at if self._unsent and not self._missing else None
        return self._connect_at if at is None else at

    def tick(self, now: float) -> None:
        if self._unsent:
            self._retry_at = now + _RETRY
            while self._unsent and self._is_sent(self._unsent[0]):
                self._unsent.popleft()
        if self._connect_at is not None and self._connect_at <= now:
            self._connect_at = None
            self._dial()

    def _dial(self) -> None:
        """Connect; to a name, where somebody answers."""
        self._drained = False
        if self._at:
            with suppress(zmq.ZMQError):
                self._socket.disconnect(self._at)
            self._at = ""
        if is_name(self._endpoint):
            self._lookup = Background(partial(answering, self._endpoint), self._wake)
        else:
            self._connect(self._endpoint)

    def _connect(self, at: str) -> None:
        self._at = at
        _know_ipv6(self._socket, at)
        self._socket.connect(at)

    def send(self, peer: bytes, frames: tuple[bytes, ...]) -> bool:
        said = frames if self._hub is None else (self._hub, *frames)
        if not self._unsent and self._is_sent(said):
            return True
        kept = len(self._unsent) < _MOST_UNSENT
        if kept:
            self._unsent.append(said)
        return kept

    def close(self) -> None:
        if self._lookup is not None:
            self._lookup.abandon()
        os.close(self._wake)
        super().close()


def _readable(socket: "zmq.Socket[bytes]") -> bool:
    return bool(int(socket.getsockopt(_EVENTS)) & _CAN_READ)


def _know_ipv6(socket: "zmq.Socket[bytes]", endpoint: str) -> None:
    socket.setsockopt(zmq.IPV6, int("[" in endpoint))


def _bind(socket: "zmq.Socket[bytes]", where: str) -> str:
    """Listen there; return the endpoint that came of it, as with a port that was chosen for us."""
    _know_ipv6(socket, where)
    try:
        socket.bind(where)
    except zmq.ZMQError as error:
        raise _REFUSALS.get(error.errno or 0, ConfigError)(
            f"cannot listen on {where!r}: {error}; stop what listens there, or choose another "
            "address, as in tcp://127.0.0.1:6714"
        ) from None
    return socket.getsockopt_string(zmq.LAST_ENDPOINT)
