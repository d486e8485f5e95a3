"""Serves the page: read this first.

A request goes to `respond` with what was seen last. Where it has a question, that is asked of the
process that looks, and the request goes there once more. Nothing here touches a queue, and nothing
is lost when this is killed.
"""

import logging
import os
import socket
import stat
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser
from waitress.server import create_server
from waitress.task import ErrorTask, ThreadedTaskDispatcher

from watchdogd.linux import share_one_arena
from watchdogd.operators.hosts import user
from watchdogd.operators.web import security
from watchdogd.operators.web.page_inputs import Facts, Site
from watchdogd.operators.web.respond import MOST_BODY, Request, Response, looks_of, respond
from watchdogd.operators.web.snapshot import Looker

# Bytes, seconds, connections: what one client may ask for.
_LIMITS: Mapping[str, Any] = {
    "threads": 4,
    "max_request_body_size": MOST_BODY,
    "max_request_header_size": 16 << 10,
    "channel_timeout": 20,
    # How often it is looked whose time is over.
    "cleanup_interval": 5,
    "connection_limit": 150,
    "ident": None,
}
# All connections count for either: whoever comes by a port, where others may come, leaves room for
# the owner of the socket.
_BY_PORT: Mapping[str, Any] = {"connection_limit": 100}
# Of a port that only a proxy talks to: browsers talk TLS, and the proxy says for whom it speaks.
_PROXIED: Mapping[str, Any] = {
    "url_scheme": "https",
    "trusted_proxy": "*",
    "trusted_proxy_headers": {"x-forwarded-for"},
}
# Who reads an answer gets a second more for each so many bytes that they took: a slow line is let
# finish, and somebody who takes a byte now and then is not.
_LEAST_RATE = 10_000
# Wrong tokens that are remembered.
_MOST_WRONG = 100
_CREDENTIALS = struct.Struct("3i")


class Served:
    """The pages of some pipelines as a WSGI application."""

    def __init__(self, site: Site, lookers: Mapping[str, Looker]) -> None:
        self._site = site
        self._lookers = lookers
        # When wrong tokens came, and from whom: strangers shut nobody out but themselves.
        self._wrong: deque[tuple[float, str]] = deque(maxlen=_MOST_WRONG)

    def __call__(
        self, environ: Mapping[str, Any], start_response: Callable[..., object]
    ) -> Iterable[bytes]:
        response = self.answer(request_of(environ))
        phrase = HTTPStatus(response.status).phrase
        length = ("Content-Length", str(len(response.body)))
        more = [] if response.status == HTTPStatus.NOT_MODIFIED else [length]
        start_response(f"{response.status} {phrase}", [*response.headers, *more])
        return [response.body]

    def answer(self, request: Request) -> Response:
        """Return the answer to a request, after what had to be asked for it."""
        now = time.time()
        # Only who may see anything has anything looked at.
        snapshots = {name: one.snapshot for name, one in self._lookers.items()}
        shown = [self._lookers[name] for name in looks_of(request, self._site, self._lookers)]
        for one in shown:
            # All together: whoever waits for many waits no longer than for one.
            one.begin()
        if shown:
            snapshots |= {one.name: one.latest() for one in shown}
            now = time.time()
        nonce = os.urandom(16).hex()
        # Other threads note more of them meanwhile.
        wrong_at = tuple(at for at, peer in tuple(self._wrong) if peer == request.peer)
        facts = Facts(self._site, snapshots, nonce, wrong_at)
        response = respond(request, facts, now)
        if response.question is not None:
            answer = self._lookers[response.question.pipeline].ask(response.question)
            response = respond(request, facts._replace(answer=answer), now)
        if response.wrong_token:
            self._wrong.append((now, request.peer))
        return response


def request_of(environ: Mapping[str, Any]) -> Request:
    """Return what a WSGI server heard."""
    headers = {
        name.removeprefix("HTTP_").replace("_", "-").lower(): said
        for name, said in environ.items()
        if name.startswith("HTTP_")
    }
    body = environ["wsgi.input"].read(MOST_BODY + 1) if environ["REQUEST_METHOD"] == "POST" else b""
    return Request(
        method=environ["REQUEST_METHOD"],
        path=environ.get("PATH_INFO", ""),
        query=environ.get("QUERY_STRING", ""),
        headers=headers,
        body=body,
        peer=environ.get("REMOTE_ADDR", ""),
        scheme=environ["wsgi.url_scheme"],
    )


class _Refusal(ErrorTask):  # type: ignore[misc]
    """The answer of waitress itself to what is no request."""

    def build_response_header(self) -> bytes:
        self.response_headers.extend(security.HEADERS)
        header: bytes = super().build_response_header()
        return header


class _Parser(HTTPRequestParser):  # type: ignore[misc]
    """One request; what comes along with it is not answered, and the connection is closed then.
    A thread that answers many at once would wait for whoever reads nothing."""

    def received(self, data: bytes) -> int:
        """Take what came, and return how much of it that is."""
        taken: int = super().received(data)
        if not self.completed or self.empty or taken == len(data):
            return taken
        self.headers["CONNECTION"] = "close"
        return len(data)


class _Channel(HTTPChannel):  # type: ignore[misc]
    """One connection; on a socket of this host the system says whose it is."""

    parser_class = _Parser
    error_task_class = _Refusal
    # In seconds since the epoch: it is closed when that is too long ago.
    last_activity: float

    def __init__(self, server: Any, sock: socket.socket, addr: Any, *rest: Any, map: Any) -> None:
        if sock.family == socket.AF_UNIX:
            found = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            addr = (user(_CREDENTIALS.unpack(found)[1]), None)
        super().__init__(server, sock, addr, *rest, map=map)

    def handle_read(self) -> None:
        """Read what came; only a new request is a sign of life, else a byte now and then would hold
        a connection for ever, and there are so many for all."""
        before, alive_at = self.request, self.last_activity
        super().handle_read()
        if before is not None and self.request is before:
            self.last_activity = alive_at

    def _flush_some(self, do_close: bool = True) -> bool:
        """Send what there is room for; that alone is no sign of life, but earns time."""
        left, alive_at = self.total_outbufs_len, self.last_activity
        sent: bool = super()._flush_some(do_close)
        if sent:
            earned = (left - self.total_outbufs_len) / _LEAST_RATE
            self.last_activity = min(self.last_activity, alive_at + earned)
        return sent


def listen_at(path: str) -> socket.socket:
    """Return a socket in the file system that only its owner can connect to. One that nobody
    listens at any more is replaced; FileExistsError where somebody does, or it is no socket."""
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise FileExistsError(f"{path} is there, and no socket; name another")
    with socket.socket(socket.AF_UNIX) as other:
        if not other.connect_ex(path):
            raise FileExistsError(f"somebody serves at {path} already")
    aside, bound = f"{path}.{os.getpid()}", socket.socket(socket.AF_UNIX)
    # Nobody may connect before the mode is set.
    before = os.umask(0o177)
    try:
        bound.bind(aside)
    finally:
        os.umask(before)
    bound.listen()
    os.replace(aside, path)
    return bound


def serve_at(site: Site, lookers: Mapping[str, Looker], sockets: Sequence[socket.socket]) -> None:
    """Answer requests until somebody ends it."""
    logging.basicConfig(stream=sys.stderr, format="watchdogd: %(message)s", level=logging.ERROR)
    served, loop = Served(site, lookers), dict[int, Any]()
    share_one_arena()
    threads = ThreadedTaskDispatcher()
    threads.set_thread_count(_LIMITS["threads"])
    # A server of sockets of both kinds is refused, but two in one loop are not.
    for one in sockets:
        limits = {**_LIMITS}
        if one.family != socket.AF_UNIX:
            limits |= {**_BY_PORT, **(_PROXIED if site.behind_proxy else {})}
        server = create_server(served, map=loop, sockets=[one], _dispatcher=threads, **limits)
        server.channel_class = _Channel
    try:
        server.run()
    finally:
        for looker in lookers.values():
            looker.close()
