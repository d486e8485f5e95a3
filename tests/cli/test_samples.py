"""What the README, the tutorial and the first sample show is what happens."""

import os
import re
import shlex
import shutil
import socket
import subprocess
from pathlib import Path
from typing import get_args

import pytest

from queuedriver.claims.liveness import host_id
from queuedriver.cli import COMMANDS, run
from tests.cli.pages import ROOT, blocks
from tests.cli.queues import PATIENCE, listed
from watchdogd.events import Kind

# Seconds: dozens of commands, on a machine that does other things too.
LONG = 5 * PATIENCE
# What differs from one run to the next.
_INSTANT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?")
_LASTING = re.compile(r"\d+(\.\d+)? (us|ms|s)\b")


@pytest.fixture
def newsroom(tmp_path: Path) -> Path:
    """Where pages are typed: in a checkout of their own, for a pipeline's queues are beside it."""
    samples = tmp_path / "checkout/sample_queues"
    ours = shutil.ignore_patterns("queues", "one-queue", "__pycache__")
    shutil.copytree(ROOT / "sample_queues", samples, ignore=ours)
    return samples / "newsroom"


def shell(script: str, newsroom: Path, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run what a page shows, with the tour where the test wants it."""
    return subprocess.run(
        ["sh", "-c", script.replace("/tmp/tour", str(newsroom.parent / "tour"))],
        cwd=newsroom,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LONG,
        check=False,
    )


def alike(printed: str, place: Path) -> list[list[str]]:
    """The words of each line, without what differs from one run to the next."""
    for is_, shown in (
        (str(place / "checkout"), "/home/ann/queuedriver"),
        (host_id(), "rose"),
        (socket.gethostname(), "rose"),
    ):
        printed = printed.replace(is_, shown)
    printed = _LASTING.sub("TIME", _INSTANT.sub("INSTANT", printed))
    return [line.split() for line in printed.splitlines()]


def typed_in_the_readme() -> list[str]:
    """Return what the README types in the sample's directory: a folder of drops, and its tour."""
    return [block for block in blocks("README.rst") if block.startswith("$ ")]


def test_the_first_that_the_readme_types_is_a_plain_copy_into_a_folder() -> None:
    drops, _ = typed_in_the_readme()
    assert re.search(r"^\$ cp \S+ drops/$", drops, re.M)


def test_the_tour_of_the_readme_prints_what_it_shows(
    tmp_path: Path, newsroom: Path, environ: dict[str, str]
) -> None:
    _, tour = typed_in_the_readme()
    commands = [line[2:] for line in tour.splitlines() if line.startswith("$ ")]
    script = "\n".join(f"echo {shlex.quote('$ ' + one)}; {one}" for one in commands)
    ran = shell(script, newsroom, environ)
    assert alike(ran.stdout, tmp_path) == alike(tour, tmp_path)


def test_what_is_copied_into_the_folder_of_the_readme_becomes_a_document(
    newsroom: Path, environ: dict[str, str]
) -> None:
    drops, _ = typed_in_the_readme()
    lines = [line[2:] for line in drops.splitlines() if line.startswith("$ ")]
    *before, why = lines
    result = "dropped/output/bakery.xml"
    ran = shell(
        "\n".join(
            [
                *before,
                # It goes on changing for as long as it takes to ask.
                "until [ -e asked ]; do touch -c drops/bakery; sleep 0.1; done &",
                f"until {why} | tee said | grep -q changed; do sleep 0.05; done",
                f"touch asked; until [ -e {result} ]; do sleep 0.05; done",
                "watchdogd stop -p drops.toml; wait; cat said",
            ]
        ),
        newsroom,
        environ,
    )
    assert (newsroom / result).read_text().startswith("<"), ran.stdout
    assert not listed(newsroom / "drops") or listed(newsroom / "drops") == [".queuedriver-intake"]
    _, shown = drops.strip().rsplit("\n", 1)
    assert _LASTING.sub("TIME", shown).split() == _LASTING.sub("TIME", ran.stdout).split()[-6:]


def test_all_commands_of_the_tutorial_do_what_they_should(
    newsroom: Path, environ: dict[str, str]
) -> None:
    # Whoever reads the tutorial has read the README, and typed its tour in the same place.
    _, tour = typed_in_the_readme()
    lines = [line[2:] for line in tour.splitlines() if line.startswith("$ ")]
    _, *steps = blocks("docs/tutorial.rst")
    lines += [line for step in steps for line in step.splitlines()]
    ran = shell("\n".join(map(checked, lines)), newsroom, environ)
    assert "FAILED:" not in ran.stdout, ran.stdout
    stories = set(listed(ROOT / "sample_queues/newsroom/stories"))
    results = newsroom.parent / "tour/results"
    assert {name for name in listed(results) if name[0] != "."} == stories - {"railway"}
    assert (results / "bridge").read_text().startswith("{\n")
    # The last pipeline was told that the torn story is whole.
    published = {name for name in listed(newsroom / "queues/output") if name[0] != "."}
    assert published == {f"{name}.xml" for name in stories}


def checked(line: str) -> str:
    """A line of the tutorial, and what a reader sees of it before going on to the next."""
    if line.endswith("&"):
        return line
    until = "until [ -e {} ]; do sleep 0.05; done\n"
    before = {
        "sed -i": until.format("queues/input/discarded/railway.report.json"),
        "watchdogd stop": until.format("queues/output/railway.xml"),
        "watchdogd scale": until.format("queues/.watchdogd/hosts/*.json"),
    }
    wait = next((text for start, text in before.items() if line.startswith(start)), "")
    # A pipeline or a driver that has drained its queue says by its 1 that a story is cut off.
    # No watchdog runs any more when `status` tells of the one that drained: that is its 3.
    codes = "[ $? = 3 ]" if line == "watchdogd status" else "[ $? = 1 ]"
    return f'{wait}{line} || {codes} || {{ echo "FAILED: {line!r}"; exit; }}'


def test_the_sample_runs_from_end_to_end(tmp_path: Path) -> None:
    if not (ROOT / ".venv").exists():
        pytest.skip("sh tests/run makes .venv; without it, the sample would")
    ran = subprocess.run(
        ["sh", ROOT / "sample_queues/try"],
        env={**os.environ, "TMPDIR": str(tmp_path), "WATCHDOGD_STATE": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    (place,) = tmp_path.glob("newsroom.*")
    assert f"11 documents went through: {place}/queues/output" in ran.stderr
    assert f"1 document discarded, with the reason: {place}/queues/input/discarded" in ran.stderr
    assert f"{place}/queues/output," in ran.stdout.splitlines()[0]
    assert len(list(place.glob("queues/output/*.xml"))) == 11


def test_every_event_has_its_row_in_the_page() -> None:
    page = (ROOT / "docs/pipeline-file.rst").read_text()
    _, _, events = page.partition("\nEvents\n------\n")
    assert re.findall(r"^``([a-z-]+)``", events, re.M) == list(get_args(Kind))


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
