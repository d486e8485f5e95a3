"""The page on control files is enough to steer from a shell: what it shows is what happens."""

import itertools
import os
import re
import subprocess
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from queuedriver.disk.filesystem import Directory
from tests.waiting import PATIENCE, until
from watchdogd import control
from watchdogd.children import Children
from watchdogd.events import Events
from watchdogd.helper import Helper
from watchdogd.helper_messages import Brief, Controls, Errands
from watchdogd.pipeline.model import Drivers, Pipeline, Stage

PAGE = Path(__file__).parents[2] / "docs/control-files.rst"
_CONSOLE = re.compile(r"^\.\. code-block:: console\n\n((?:   .*\n|\n)+)", re.M)
_WORDS = ("input", "values", "parse", "output")


def commands() -> list[tuple[str, str]]:
    """Each command of the page, and what it prints."""
    found = []
    for block in _CONSOLE.findall(PAGE.read_text()):
        for shown in re.split(r"^\$ ", textwrap.dedent(block), flags=re.M)[1:]:
            line, _, printed = shown.partition("\n")
            found.append((line, printed.strip("\n")))
    return found


class Site:
    """The pipeline of the page, its files below /data, and the helper of its watchdog on rose."""

    def __init__(self, place: Path) -> None:
        self.data = place / "data"
        self.root = self.data / "queues"
        self.local = place / "local"
        (self.local / "logs").mkdir(parents=True)
        (self.data / "scans").mkdir(parents=True)
        (self.data / "scans/17.pdf").touch()
        stages = tuple(
            Stage(
                name=name,
                inputs=(source,),
                outputs=(name,),
                drivers=Drivers(1, 1),
                kind="command",
                work=("true",),
                publish="{docid}.xml" if name == "output" else "{docid}.ready",
            )
            for source, name in itertools.pairwise(_WORDS)
        )
        file = str(self.data / "serif.toml")
        pipeline = Pipeline(name="serif", file=file, root=str(self.root), stages=stages)
        brief = Brief(pipeline=pipeline, host="rose", local=str(self.local))
        self.helper = Helper(brief, Children(), lambda *_, **__: None)
        # What was seen in the control files, after each command.
        self.seen: list[Controls] = []

    def open(self) -> None:
        """Have the helper make everything, and be as far as the page is."""
        left = "2031-05-01 14:03:20 left, quit: it was asked to\n"
        (self.local / "logs/parse-2.log").write_text("loading\n" + left)
        events = Events(str(self.local), "rose", "/", Children())
        events.say("started", stage="parse", driver="parse-2", at=1935410600.0)
        crash = {"signal": "SIGSEGV", "at": 1935410602.25}
        events.say("exited", "it was ended by SIGSEGV", stage="parse", driver="parse-2", **crash)
        self.helper.tend(time.monotonic())
        (self.local / "report.json").write_bytes(b'{"host":"rose"}')
        self.helper.ask(Errands(report=True, look=True))
        until(lambda: any(one.look for one in self.helper.receive(time.monotonic())), "a look")
        for name in _WORDS[:-1]:
            # As drivers make it when they begin.
            (self.root / name / "discarded").mkdir()
        for name in ("16.pdf", "16.pdf.report.json"):
            (self.root / "values/discarded" / name).touch()

    def shell(self, line: str) -> str:
        environ = {**os.environ, "LC_ALL": "C"}
        script = line.replace("/data", str(self.data))
        ran = subprocess.run(
            ["sh", "-euc", script],
            cwd=self.root,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        return ran.stdout.strip("\n")

    def look(self) -> None:
        directory = Directory.open(self.root / control.CONTROL)
        self.seen.append(control.read(directory, "fern"))
        directory.close()
        self.helper.ask(Errands(look=True))
        self.helper.receive(time.monotonic())


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.helper.abandon()


def test_everything_on_the_page_does_what_it_says(site: Site) -> None:
    site.open()
    for line, printed in commands():
        ends_at = time.monotonic() + PATIENCE
        # The helper needs a moment to do its part; what is shown is what it comes to.
        while words(found := site.shell(line)) != words(printed):
            assert printed or "ls" in line, f"{line}: {found}"
            assert time.monotonic() < ends_at, f"{line}: {found!r}"
            site.look()
            time.sleep(0.02)
        site.look()
    seen = site.seen
    assert not any(one.notes for one in seen)
    assert [one.paused for one in seen if one.paused]
    numbers = {tuple(sorted(one.scale.items())) for one in seen}
    assert numbers == {
        (),
        (("parse", 4),),
        (("parse", 4), ("values", 1)),
        (("parse", 2), ("values", 1)),
        (("values", 1),),
    }
    asked = {(one.kind, one.target) for controls in seen for one in controls.requests}
    assert asked == {("restart", "parse"), ("restart", "parse-2"), ("reload", "")}
    assert {one.quit for one in seen} == {"", "drain", "now"}
    assert not seen[-1].paused


def words(printed: str) -> set[str]:
    return set(printed.split("\n")) - {""}


def test_page_shows_every_file_there_is() -> None:
    page = PAGE.read_text()
    for name in (control.PAUSE, control.QUIT, control.LANDMARK):
        assert f"``{name}``" in page
    for name in control.OUR_DIRECTORIES:
        assert f"``{name}/<host>" in page
    assert len(commands()) > 30
