"""What the pages on the front doors show is what happens, typed line by line: each broker and each
worker in a terminal of its own."""

import re
import shlex
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.pages import ROOT, blocks
from tests.cli.queues import PATIENCE
from tests.endpoints import free_port, is_listening, own_host
from tests.waiting import contents, until

# What runs until it is told to leave.
_STAYS = re.compile(r"queuedriver (broker|worker) ")
_PORT = re.compile(r"(?<=:)\d{4}\b")
# The ports at which brokers listen that are not told any.
_USUAL = {"roundrobin": ["6714"], "fuq": ["5429"], "pingpong": ["6715"], "scale0": ["8081", "8080"]}


class Reader:
    """Somebody who types what a page shows, at a host and with ports of its own: those of the pages
    are taken, where two read at once."""

    def __init__(self, place: Path, environ: dict[str, str]) -> None:
        self._place = place
        self._environ = environ
        self._ports: dict[str, int] = defaultdict(free_port)
        self._running: list[tuple[str, subprocess.Popen[str]]] = []

    def types(self, line: str) -> str:
        """Type a line; return what it prints, unless it goes on."""
        line = _PORT.sub(lambda port: str(self._ports[port[0]]), self._with_address(line))
        # Who listens at every host is in the way of all that are at that port at one.
        line = re.sub(r"127\.0\.0\.1|0\.0\.0\.0", own_host(), line)
        if _STAYS.match(line):
            self._running.append((line, self._start(f"exec {line}")))
            # A person sees it say so before they type on.
            for one in re.findall(r"--listen (\S+)", line):
                until(lambda one=one: is_listening(one) or self._ended(), one)  # type: ignore[misc]
            broken = self.broken()
            assert not broken, broken
            return ""
        if line.startswith("cat "):
            # Somebody looks again until it is there.
            shown = shlex.split(line)[1]
            until(lambda: list(self._place.glob(shown)), f"{shown}\n{self.broken()}")
        run = self._start(line)
        printed, _ = run.communicate(timeout=PATIENCE)
        assert run.returncode == 0, f"$ {line}\n{printed}\n{self.broken()}"
        return printed

    def ends(self) -> None:
        """End all that runs."""
        for _, one in self._running:
            one.terminate()
        for line, one in self._running:
            said, _ = one.communicate(timeout=PATIENCE)
            assert one.returncode == 0, f"$ {line}\n{said}"
        self._running.clear()

    def broken(self) -> str:
        """Say of what ended that should run, and what it said."""
        ended = self._ended()
        self._running = [one for one in self._running if one not in ended]
        return "\n".join(
            f"$ {line}\n{one.communicate()[0]}({one.returncode})" for line, one in ended
        )

    def kill(self) -> None:
        for _, one in self._running:
            one.kill()
            one.communicate()

    def _ended(self) -> list[tuple[str, subprocess.Popen[str]]]:
        return [(line, one) for line, one in self._running if one.poll() is not None]

    def _with_address(self, line: str) -> str:
        """Say where a broker listens that would take its protocol's own ports."""
        words = line.split()
        if words[:2] != ["queuedriver", "broker"] or "--listen" in words:
            return line
        return " ".join([line, *(f"--listen tcp://127.0.0.1:{one}" for one in _USUAL[words[2]])])

    def _start(self, line: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["sh", "-c", line],
            cwd=self._place,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


@pytest.fixture
def reader(tmp_path: Path, environ: dict[str, str]) -> Iterator[Reader]:
    place = tmp_path / "place"
    place.mkdir()
    reader = Reader(place, environ)
    yield reader
    reader.kill()


def lines(block: str) -> list[str]:
    return block.replace("\\\n", " ").splitlines()


def front_doors() -> list[str]:
    """Return the commands of the README's section on front doors."""
    _, _, text = (ROOT / "README.rst").read_text().partition("\nFront doors\n")
    shown, _, _ = text.partition("\nThey listen")
    return re.findall(r"``((?:queuedriver|mkdir) [^`]+)``", shown)


@pytest.mark.parametrize("protocol", _USUAL)
def test_front_door_of_the_readme_opens_as_it_is_typed(
    tmp_path: Path, reader: Reader, protocol: str
) -> None:
    make, put, *table = front_doors()
    place = tmp_path / "place"
    (place / "README.rst").write_bytes((ROOT / "README.rst").read_bytes())
    reader.types(make)
    reader.types(put)
    typed = [line for line in table if protocol in line.split()[1:3]]
    assert len(typed) == (2 if protocol == "pingpong" else 3)
    *_, printed = [reader.types(line) for line in typed]
    shouted = (ROOT / "README.rst").read_text().upper()
    if protocol in ("roundrobin", "scale0"):
        assert printed.upper() == shouted
    if protocol == "fuq":
        until(lambda: len(contents(place / "done")) == 101, "100 tasks, and their summary")
    else:
        reader.types("cat texts/README.rst.ready")
    reader.ends()


def test_table_of_the_network_page_is_that_of_the_readme() -> None:
    page = (ROOT / "docs/network.rst").read_text()
    shown = [" ".join(one.split()) for one in re.findall(r"\| ``([^`]+)``", page)]
    assert shown == [line for line in front_doors() if _STAYS.match(line)]


@pytest.mark.parametrize("protocol", _USUAL)
def test_page_of_a_protocol_begins_with_what_can_be_typed(reader: Reader, protocol: str) -> None:
    first, *others = blocks(f"docs/protocols/{protocol}.rst")
    printed = [reader.types(line) for line in lines(first)]
    assert {line.split()[1] for line in lines(first) if _STAYS.match(line)} == {"broker", "worker"}
    if protocol == "fuq":
        assert "--fast 100" in printed[-1]
    else:
        assert "A PAGE\n" in printed
    reader.ends()
    if protocol == "roundrobin":
        # The same without a broker.
        *_, answer = [reader.types(line) for line in lines(others[0])]
        assert answer.endswith("A PAGE\n")
        reader.ends()


def test_certificates_of_the_page_on_fuq_let_a_worker_in(tmp_path: Path, reader: Reader) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here")
    (shown,) = (one for one in blocks("docs/protocols/fuq.rst") if "openssl" in one)
    make, broker, worker = shown.partition("queuedriver ")[0], *shown.splitlines()[-2:]
    reader.types(f"mkdir jobs; {make}")
    reader.types(broker)
    reader.types(worker)
    reader.types("queuedriver fuq submit jobs --name night -- sim --fast")
    assert "--fast 1" in reader.types("cat results/night-*.1.ready")
    reader.ends()


def test_keys_of_the_network_page_let_a_worker_in(tmp_path: Path, reader: Reader) -> None:
    page = (ROOT / "docs/network.rst").read_text()
    _, _, steps = page.partition("\n1. On the broker's host::\n")
    steps, _, _ = steps.partition("\n``own.key_secret`` ")
    typed = [line.strip() for line in steps.splitlines() if line.startswith("       ")]
    # Two hosts in one.
    here = {
        "scp ": "cp ",
        "broker:/etc/queuedriver": str(tmp_path / "etc"),
        "tcp://broker:": "tcp://127.0.0.1:",
        "/etc/queuedriver": str(tmp_path / "etc"),
        "~/.queuedriver": str(tmp_path / "home"),
    }
    reader.types("mkdir scans texts; echo 'a page' | queuedriver put scans - --docid page-1")
    for line in typed:
        reader.types(re.sub("|".join(here), lambda there: here[there[0]], line))
    assert len(typed) == 6
    assert reader.types("cat texts/page-1.ready") == "A PAGE\n"
    reader.ends()
