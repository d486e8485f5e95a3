"""`serve`: the page in the browser."""

import importlib
import os
import shlex
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing

from queuedriver.cli.words import argument, flag, option
from queuedriver.disk.runtime import runtime_directory
from queuedriver.errors import BadArgument, ConfigError
from queuedriver.format.units import visible
from watchdogd.cli.arguments import PIPELINE_FILE
from watchdogd.cli.pipeline_argument import choose
from watchdogd.operators.hosts import Chosen
from watchdogd.operators.web.page_inputs import Keys, Site
from watchdogd.operators.web.security import prefix_of
from watchdogd.operators.web.snapshot import Looker
from watchdogd.operators.web.tokens import read_keys

_SOCKET = "page.sock"
_TOKENS = "page.tokens"
_LOOPBACK = "127.0.0.1"
_LOOKING = "watchdogd.cli.operators.looking"
# Of `ssh -L`; whoever types it may choose another.
_USUAL_PORT = 8000
_MOST_PORTS = 65535


def serve(
    pipeline: list[str] | None = argument("[PIPELINE]...", "Their files; else as for status."),
    port: int | None = option("N", "Listen on 127.0.0.1, too; 0: where it is free."),
    at: str | None = option("PATH", "The socket; else in the runtime directory.", "--socket"),
    address: str = option("ADDRESS", "Where --port listens instead.", default=_LOOPBACK),
    behind_proxy: bool = flag("A proxy speaks TLS with browsers."),
    host: list[str] | None = option("NAME", "What the page is called besides localhost."),
    tokens: str | None = option("FILE", "The tokens; else in the runtime directory."),
    allow_actions: bool = flag("Have buttons, for who has the second token."),
    also: str | None = PIPELINE_FILE,
) -> None:
    """Show in a browser how pipelines are going, on this host or through ssh; Ctrl-C ends it.

    It listens on a socket that nobody but you can connect to, and prints how to reach that from
    elsewhere. Whoever opens the page needs the token in its address. Nothing can be changed there
    unless actions are allowed.

    --address needs --behind-proxy and --tokens, for all that hear it could read along.
    """
    if port is not None and not 0 <= port <= _MOST_PORTS:
        raise BadArgument(f"--port {port}: there are ports up to {_MOST_PORTS}")
    if address != _LOOPBACK and not (behind_proxy and tokens and port is not None):
        raise BadArgument(
            f"--address {visible(address)} needs --port, --behind-proxy and --tokens FILE; "
            "without, the ssh -L that is printed leads here from anywhere"
        )
    named = [*(pipeline or ()), *([also] if also else ())]
    chosen = [choose(one, hung_too=True) for one in named or [None]]
    _check_installed()
    from watchdogd.operators.web.server import listen_at, serve_at

    keys = read_keys(tokens or os.path.join(runtime_directory(), _TOKENS))
    site = Site(keys, prefix_of(keys), tuple(host or ()), allow_actions, behind_proxy)
    lookers = {name: Looker(name, _looking(one)) for name, one in _named(chosen)}
    path = os.path.abspath(at or os.path.join(runtime_directory(), _SOCKET))
    with ExitStack() as opened:
        try:
            sockets = [opened.enter_context(closing(listen_at(path)))]
            opened.callback(os.unlink, path)
            if port is not None:
                listening = socket.create_server((address, port))
                sockets.append(opened.enter_context(closing(listening)))
                port = listening.getsockname()[1]
        except OSError as error:
            raise ConfigError(f"cannot listen: {error.strerror or error}") from None
        for line in _addresses(site, path, port):
            print(line, flush=True)
        serve_at(site, lookers, sockets)


def _check_installed() -> None:
    for name in ("jinja2", "waitress"):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            raise ConfigError("the page needs more: pip install 'queuedriver[web]'") from None


def _named(chosen: list[Chosen]) -> Iterator[tuple[str, Chosen]]:
    """Yield each pipeline with a name of its own."""
    names: list[str] = []
    for one in chosen:
        name = one.pipeline.name
        names.append(name)
        count = names.count(name)
        yield (name if count == 1 else f"{name} {count}"), one


def _looking(chosen: Chosen) -> list[str]:
    file = os.path.abspath(chosen.pipeline.file)
    return [sys.executable, "-m", _LOOKING, file]


def _addresses(site: Site, path: str, port: int | None) -> Iterator[str]:
    """Yield what to type and what to open: the token is behind the #, which no browser sends."""
    own = os.uname().nodename
    forward = shlex.join(("ssh", "-L", f"{_USUAL_PORT}:{path}", own))
    yield f"from elsewhere:   {forward}"
    if port and site.behind_proxy:
        yield f"for the proxy:   port {port}"
        port = None
    places = [f"http://localhost:{port or _USUAL_PORT}"]
    places += [f"https://{name}" for name in site.hosts if site.behind_proxy]
    for key, what in zip(Keys._fields, ("to look", "to act"), strict=True):
        if key == "act" and not site.acts:
            continue
        for place in places:
            yield f"{what + ':':<17} {place}{site.prefix}/#{getattr(site.keys, key)}"
