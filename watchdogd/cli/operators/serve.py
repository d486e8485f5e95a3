"""`serve`, `metrics`: how it is going for browsers, and for Prometheus."""

import os
import secrets
import shlex
import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing

from queuedriver.cli.words import argument, flag, option
from queuedriver.disk.filesystem import open_fd
from queuedriver.disk.runtime import runtime_directory
from queuedriver.errors import BadArgument, ConfigError, NotPermitted
from queuedriver.format.units import visible
from watchdogd.cli.arguments import PIPELINE, PIPELINE_FILE, either
from watchdogd.cli.pipeline_argument import choose
from watchdogd.operators import textfile
from watchdogd.operators.view import look
from watchdogd.operators.web.page_inputs import Keys, Site
from watchdogd.operators.web.security import prefix_of
from watchdogd.operators.web.snapshot import Looker
from watchdogd.pipeline.model import Pipeline

_SOCKET = "page.sock"
_TOKENS = "page.tokens"
_LOOPBACK = "127.0.0.1"
_LOOKING = "watchdogd.cli.operators.looking"
# Of `ssh -L`; whoever types it may choose another.
_USUAL_PORT = 8000
_MOST_PORTS = 65535
# Of a token so many bytes are drawn; a file of two is shorter than so many.
_BYTES, _MOST = 16, 1000
_HOW = "remove it, and serve makes one; or write two lines: read TOKEN, act TOKEN"
# Alerts with their tests, and a dashboard.
MONITORING = os.path.join(os.path.dirname(textfile.__file__), "monitoring")


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
    # Not what their watchdogs say: that is long, and the process that looks reads it.
    chosen = [choose(one, hung_too=True).pipeline for one in named or [None]]
    try:
        from watchdogd.operators.web.server import listen_at, serve_at
    except ModuleNotFoundError:
        raise ConfigError("the page needs more: pip install 'queuedriver[web]'") from None
    keys = read_keys(tokens or os.path.join(runtime_directory(), _TOKENS))
    site = Site(keys, prefix_of(keys), tuple(host or ()), allow_actions, behind_proxy)
    argv = [sys.executable, "-m", _LOOKING]
    lookers = {name: Looker(name, [*argv, file]) for name, file in _named(chosen)}
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


def _named(chosen: list[Pipeline]) -> Iterator[tuple[str, str]]:
    """Yield a name of its own for each pipeline, and its file."""
    names = [one.name for one in chosen]
    for at, one in enumerate(chosen):
        count = names[:at].count(names[at])
        name = f"{names[at]} {count + 1}" if count else names[at]
        yield name, os.path.abspath(one.file)


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


# The tokens


def read_keys(path: str) -> Keys:
    """Return the tokens of a file; one that is not there is made, of random digits."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return _made(path)
    with open_fd(fd):
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o77:
            raise NotPermitted(f"{path} can be read by others; chmod 600 it, or remove it")
        lines = os.read(fd, _MOST).decode(errors="replace").splitlines()
    said = dict(line.partition(" ")[::2] for line in lines)
    keys = Keys(said.get("read", "").strip(), said.get("act", "").strip())
    if min(map(len, keys)) < _BYTES or keys.read == keys.act:
        raise BadArgument(f"{path} has not two tokens of {_BYTES} characters or more; {_HOW}")
    return keys


def _made(path: str) -> Keys:
    keys = Keys(secrets.token_hex(_BYTES), secrets.token_hex(_BYTES))
    with open_fd(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)) as fd:
        os.write(fd, f"read {keys.read}\nact {keys.act}\n".encode())
    return keys


# For Prometheus


def metrics(
    pipeline: str | None = PIPELINE,
    option: str | None = PIPELINE_FILE,
    host: str | None = option("HOST", "Only what the watchdog of this host is to tell."),
    where: bool = flag("Print where the alerts and the dashboard are.", "--where"),
) -> None:
    """Print the metrics of a pipeline as Prometheus reads them, of all hosts.

    With `metrics = "FILE"` in its [pipeline] each watchdog writes its own, for node_exporter.
    """
    if where:
        print(MONITORING)
        return
    view = look(choose(either(pipeline, option), hung_too=True))
    sys.stdout.buffer.write(textfile.exposition_of(view, host=host)[0])
