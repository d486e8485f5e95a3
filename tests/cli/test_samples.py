"""What the README, the tutorial and the sample show is what happens."""

import os
import re
import shlex
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from queuedriver.cli import COMMANDS, run
from queuedriver.liveness import host_id
from tests.cli.processes import ENVIRON
from tests.cli.queues import PATIENCE, listed

ROOT = Path(__file__).parents[2]
# Text of a page that is shown as it is.
_LITERAL = re.compile(r"::\n\n((?:    .*\n|\n)+)")
# What differs from one run to the next.
_INSTANT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?")
_LASTING = re.compile(r"\d+(\.\d+)? (us|ms|s)\b")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """One in which `queuedriver` and `python3` are those under test."""
    programs = tmp_path / "bin"
    programs.mkdir()
    python = shlex.quote(sys.executable)
    for name, module in (("queuedriver", "-m queuedriver"), ("python3", "")):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec {python} {module} "$@"\n')
        program.chmod(0o755)
    return {**ENVIRON, "PATH": f"{programs}:{ENVIRON['PATH']}"}


def blocks(page: str) -> list[str]:
    found = (textwrap.dedent(block) for block in _LITERAL.findall((ROOT / page).read_text()))
    return [block.strip() for block in found]


def shell(script: str, place: Path, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run what a page shows, with the tour where the test wants it."""
    return subprocess.run(
        ["sh", "-c", script.replace("/tmp/tour", str(place / "tour"))],
        cwd=ROOT / "sample_queues/word_count",
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def alike(printed: str, place: Path) -> list[list[str]]:
    """The words of each line, without what differs from one run to the next."""
    for is_, shown in (
        (str(place), "/tmp"),
        (host_id(), "rose"),
        (socket.gethostname(), "rose"),
        (str(ROOT), "/home/ann/queuedriver"),
    ):
        printed = printed.replace(is_, shown)
    printed = _LASTING.sub("TIME", _INSTANT.sub("INSTANT", printed))
    return [line.split() for line in printed.splitlines()]


def test_the_tour_of_the_readme_prints_what_it_shows(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    (tour,) = (block for block in blocks("README.rst") if block.startswith("$ "))
    commands = [line[2:] for line in tour.splitlines() if line.startswith("$ ")]
    script = "\n".join(f"echo {shlex.quote('$ ' + one)}; {one}" for one in commands)
    ran = shell(script, tmp_path, environ)
    assert alike(ran.stdout, tmp_path) == alike(tour, tmp_path)


def test_all_commands_of_the_tutorial_do_what_they_should(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    _, *steps = blocks("docs/tutorial.rst")
    lines = [line for step in steps for line in step.splitlines()]
    # A driver that drained its queue says by its 1 that one of the texts is broken.
    script = "\n".join(
        line if line.endswith("&") else f'{line} || [ $? = 1 ] || {{ echo "FAILED"; exit; }}'
        for line in lines
    )
    ran = shell(script, tmp_path, environ)
    assert "FAILED" not in ran.stdout, ran.stdout
    results = [name for name in listed(tmp_path / "tour/results") if name[0] != "."]
    texts = set(listed(ROOT / "sample_queues/word_count/texts")) - {"harbour-log.txt"}
    assert {name.partition("~")[0] for name in results} == texts
    assert len(results) == 2 * len(texts)
    ferry = (tmp_path / "tour/results/ferry.txt").read_text().splitlines()
    assert ferry[0] == "3\tthe"


def test_the_sample_runs_from_end_to_end(tmp_path: Path) -> None:
    if not (ROOT / ".venv").exists():
        pytest.skip("sh tests/run makes .venv; without it, the sample would")
    ran = subprocess.run(
        ["sh", ROOT / "sample_queues/try"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=5 * PATIENCE,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    through, aside = ran.stdout.splitlines()
    (place,) = tmp_path.glob("queuedriver-sample.*")
    assert through == f"11 documents went through: {place}/results"
    assert aside == f"1 set aside, with the reason: {place}/texts/discarded"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_page_on_the_command_names_every_option(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs/cli.rst").read_text()
    titles = re.split(r"\n(queuedriver .+)\n-+\n", page)
    (text,) = (
        title + body
        for title, body in zip(titles[1::2], titles[2::2], strict=True)
        if name in title.partition("QUEUE")[0].split()
    )
    assert run([name, "--help"]) == 0
    for option in re.findall(r"^ +(--[a-z-]+)", capsys.readouterr().out, re.M):
        assert option in text
