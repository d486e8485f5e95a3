"""Servers of the page in processes of their own, and what one asks them through their sockets."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

from tests.waiting import until

# Seconds: an answer takes three at most, on a machine that has nothing else to do.
_PATIENCE = 60.0


class Served(NamedTuple):
    """A server that runs, and what it printed."""

    process: subprocess.Popen[str]
    # Of its socket; empty: it is asked through its port.
    path: str
    prefix: str
    token: str
    # The port that a proxy is to lead to; 0: none.
    port: int = 0

    def wait_until_well(self) -> None:
        """Wait until its process has looked, and found a pipeline that is well: whoever asks before
        waits for seconds, and not for as long as that may take to start."""
        until(lambda: self.get("/health")[0] == 200, "a look that is new")

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> tuple[int, str]:
        """Ask through the socket; as a program with its token, unless other headers are given."""
        said = {"Authorization": f"Bearer {self.token}"} if headers is None else headers
        status, _, text = self._ask("GET", path, said)
        return status, text

    def post(
        self, path: str, form: Mapping[str, str], headers: Mapping[str, str] = {}
    ) -> tuple[int, Mapping[str, str], str]:
        """Send a form through the socket."""
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        return self._ask("POST", path, {**headers, **kind}, urlencode(form))

    def post_of_length(self, path: str, length: int) -> int:
        """Say that a form of so many bytes comes, and send none; return the status."""
        return self._ask("POST", path, {"Content-Length": str(length)})[0]

    def _ask(
        self, method: str, path: str, headers: Mapping[str, str], body: str | None = None
    ) -> tuple[int, Mapping[str, str], str]:
        with closing(HTTPConnection("localhost")) as connection:
            if not self.path:
                connection.sock = socket.create_connection(("127.0.0.1", self.port), _PATIENCE)
            else:
                connection.sock = socket.socket(socket.AF_UNIX)
                connection.sock.settimeout(_PATIENCE)
                connection.sock.connect(self.path)
            connection.request(method, self.prefix + path, body, dict(headers))
            answer = connection.getresponse()
            return answer.status, dict(answer.headers), answer.read().decode()


@contextmanager
def served(
    file: Path, directory: Path, *words: str, environ: Mapping[str, str] = os.environ
) -> Iterator[Served]:
    """A server of a pipeline; what it keeps is in a directory of the test's."""
    run = directory / "run"
    run.mkdir(exist_ok=True)
    state = {"XDG_RUNTIME_DIR": str(run), "WATCHDOGD_STATE": str(directory / "state")}
    process = subprocess.Popen(
        [sys.executable, "-m", "watchdogd", "serve", str(file), *words],
        env={**environ, **state},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        forward, look = process.stdout.readline(), process.stdout.readline()
        proxied = re.match("for the proxy: +port ([0-9]+)", look)
        look = process.stdout.readline() if proxied else look
        path = re.search(r"ssh -L 8000:(\S+) ", forward)
        address = re.search(r"http://localhost:[0-9]+(/[0-9a-f]+)/#([0-9a-f]+)", look)
        assert path, forward
        assert address, look
        port = int(proxied[1]) if proxied else 0
        yield Served(process, path[1], address[1], address[2], port)
    finally:
        process.kill()
        process.communicate()
