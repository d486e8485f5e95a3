"""The page answers while the file system of a pipeline does not, with what was seen before."""

import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("jinja2")
pytest.importorskip("waitress")

from tests.disks import Silent
from tests.page_servers import Served, served
from tests.waiting import until
from tests.watchdogs import Yard

# Seconds that nobody waits for an answer, on a machine that does other things, too.
_SOON = 30.0


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with Yard(tmp_path) as yard:
        there = tmp_path / "there"
        (there / "queues").mkdir(parents=True)
        (tmp_path / "link").symlink_to(there)
        (tmp_path / "queues").symlink_to(there / "queues")
        (there / "stages.py").symlink_to(tmp_path / "stages.py")
        yard.file = tmp_path / "link" / "pipeline.toml"
        yard.write('name = "work"\ncall = "stages:obey"')
        yield yard


def waiting(page: Served) -> int | None:
    """How many documents wait, as the page says."""
    status, said = page.get("/stage.json?name=work")
    found: int | None = json.loads(said)["stage"]["waiting"] if status == 200 else None
    return found


def hang(yard: Yard, silent: Silent) -> None:
    link = yard.root / "link"
    link.unlink()
    link.symlink_to(silent.path)


@pytest.mark.parametrize("watched", [True, False], ids=["a watchdog here", "nobody here"])
def test_page_shows_old_numbers_and_their_age_and_the_log_of_a_driver_of_this_host(
    yard: Yard, watched: bool
) -> None:
    for number in range(3):
        yard.put(f"doc-{number}", "wait")
    if watched:
        yard.run()
        until(lambda: "busy" in yard.states().values(), "a driver at work")
    with (
        served(yard.file, yard.root, environ=yard.environ) as page,
        closing(Silent(yard.root / "silent")) as silent,
    ):
        expected = 2 if watched else 3
        until(lambda: waiting(page) == expected, "it is seen")
        hang(yard, silent)
        before = time.monotonic()
        until(lambda: "These numbers are" in page.get("/")[1], "their age")
        # Each is answered, and none waits for the file system.
        asked = time.monotonic()
        status, said = page.get("/")
        assert status == 200
        assert ">work<" in said
        assert f">{expected}<" in said
        status, said = page.get("/log?name=work-1&host=rose")
        # A log is on the disk of its host; here nobody knows of a driver.
        assert status == (200 if watched else 404)
        assert page.get("/events")[0] == 503
        assert page.get("/health")[0] == 503
        assert time.monotonic() - asked < _SOON
        assert asked > before
