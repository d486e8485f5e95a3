"""An output directory is moved away, replaced or turned while drivers work: no document is lost."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from queuedriver import Document, Driver, Options, Queue
from queuedriver.claims import handoff
from queuedriver.disk.filesystem import Directory
from queuedriver.driving.driver import Turns
from queuedriver.format.names import JOURNAL, PRIVATE
from tests.cli.processes import command, start
from tests.drivers import Running, Site
from tests.processors import shout
from tests.waiting import until

DOCIDS = [f"doc-{number:02}" for number in range(30)]
# So many come before the turn: those that come after it are there whoever was slow.
BEFORE = 15

_COPY = ("--command", 'sh -c \'sleep .02; cp "$1" "$2"\' sh {input} {output}')
_SERVER = """
import json, shutil, sys, time
for line in sys.stdin:
    asked = json.loads(line)
    time.sleep(0.02)
    shutil.copyfile(asked["input"], asked["output"])
    print(json.dumps({"ok": True}), flush=True)
"""
_SERVE = ("--server", f"{sys.executable} server.py")


def move(root: Path) -> None:
    """As one archives in the morning what is finished."""
    (root / "out").rename(root / "monday")
    (root / "out").mkdir()


# What `--call` names here.
_SLOWLY = """
import time


def copy(document):
    time.sleep(0.05)
    return document.read()
"""


def turn(root: Path) -> None:
    """As it is done at midnight."""
    (root / "new").symlink_to("tuesday")
    os.replace(root / "new", root / "out")


def copy(root: Path) -> None:
    """As one moves to another place: everything is alike, landmark and all."""
    (root / "out").rename(root / "monday")
    (root / "out").mkdir()
    shutil.copytree(root / "monday" / PRIVATE, root / "out" / PRIVATE)


def published(root: Path) -> list[str]:
    """What has come out, wherever that is by now."""
    outputs = (one for one in root.iterdir() if one.is_dir() and not one.is_symlink())
    found = [name for one in outputs if one.name != "in" for name in os.listdir(one)]
    return sorted(name.removesuffix(".ready") for name in found if name.endswith(".ready"))


def work_while(site: Site, how: tuple[str, ...], turned: Callable[[Path], None]) -> None:
    """A driver, whose output is turned amid its work, and that leaves when it can do no more."""
    root = site.root

    def rests() -> bool:
        journals = (root / "in" / PRIVATE / JOURNAL).glob("*.jsonl")
        given_back = any(b'"released"' in one.read_bytes() for one in journals)
        return given_back or not any((root / "in").glob("doc*"))

    with start("run", "in", "--to", "out", "--id", "one", *how, cwd=root) as driver:
        try:
            until(lambda: len(published(root)) >= 5, "some are published")
            turned(root)
            site.submit(*DOCIDS[BEFORE:])
            until(rests, "it has given one back, or all are done")
        finally:
            driver.terminate()
            driver.communicate()


@pytest.mark.parametrize("turned", [move, turn, copy])
@pytest.mark.parametrize(
    "how",
    [
        _COPY,
        (*_COPY, "--durable"),
        (*_COPY, "--durable", "--batch", "8"),
        ("--command", "sh -c 'sleep .02; cat'"),
        _SERVE,
        (*_SERVE, "--durable", "--batch", "8"),
    ],
    ids=["command", "durable", "batch", "stdout", "server", "server batch"],
)
def test_when_an_output_directory_is_turned_amid_work_each_document_is_published_or_still_waits(
    site: Site, how: tuple[str, ...], turned: Callable[[Path], None]
) -> None:
    root = site.root
    site.submit(*DOCIDS[:BEFORE])
    (root / "server.py").write_text(_SERVER)
    for day in ("yesterday", "tuesday"):
        (root / day).mkdir()
    if turned is turn:
        (root / "out").symlink_to("yesterday")
    work_while(site, how, turned)
    waiting = site.items()
    assert {(one.state, one.attempt) for one in waiting} <= {("ready", 0)}
    assert sorted([*published(root), *(one.docid for one in waiting)]) == DOCIDS
    assert site.discarded() == []
    # And the next driver does the rest, wherever it is told to.
    ended = command("run", "in", "--to", "out", *how, "--drain", cwd=root)
    assert ended.code == 0, ended
    assert published(root) == DOCIDS
    assert not [*root.glob("*/*.writing"), *site.items()]


@pytest.mark.parametrize("turned", [move, turn])
@pytest.mark.parametrize(
    "how",
    [
        _COPY,
        (*_COPY, "--durable"),
        ("--command", "sh -c 'sleep .02; cat'"),
        (*_SERVE, "--batch", "8"),
        ("--call", "slowly:copy"),
        ("--call", "slowly:copy", "--durable"),
    ],
    ids=["command", "durable", "stdout", "server batch", "call", "call durable"],
)
def test_a_driver_goes_on_in_the_directory_that_its_output_leads_to_by_now(
    site: Site, how: tuple[str, ...], turned: Callable[[Path], None]
) -> None:
    root = site.root
    site.submit(*DOCIDS[:BEFORE])
    (root / "server.py").write_text(_SERVER)
    (root / "slowly.py").write_text(_SLOWLY)
    for day in ("yesterday", "tuesday"):
        (root / day).mkdir()
    if turned is turn:
        (root / "out").symlink_to("yesterday")
    with start("run", "in", "--to", "out", *how, cwd=root) as driver:
        try:
            until(lambda: len(published(root)) >= 5, "some are published")
            turned(root)
            site.submit(*DOCIDS[BEFORE:])
            until(lambda: published(root) == DOCIDS, "all are published")
        finally:
            driver.terminate()
            driver.communicate()
    # Those that came after it are where the path leads to.
    assert len(site.files()) >= len(DOCIDS) - BEFORE
    assert site.discarded() == []
    assert site.items() == []


def test_an_output_that_was_removed_while_it_was_written_is_written_again_uncharged(
    site: Site,
) -> None:
    site.submit("doc")
    waits = "touch at; while [ ! -e go ]; do sleep .01; done; cat"
    driver = site.start(["sh", "-c", f"cd {site.root}; {waits}"], drain=True)
    site.wait_for_files("at")
    for writing in (site.root / "out").glob("*.writing"):
        writing.unlink()
    (site.root / "go").touch()
    ended = driver.ended()
    assert (ended.exit_code, ended.counters.failed) == (0, 0)
    assert site.files() == {"doc.ready": b"some text"}


def test_a_document_whose_program_removes_its_own_output_is_charged_in_the_end(site: Site) -> None:
    site.submit("doc", "good")
    tidy = f'cat; [ "$1" = good ] || rm -f {site.root}/out/doc.*'
    ended = site.drive(["sh", "-c", tidy, "sh", "{docid}"], retries=0)
    assert ended.exit_code == 1
    assert site.files() == {"good.ready": b"some text"}
    causes = [one.failure.cause for one in site.report("doc").attempts]
    assert causes == ["output-missing"] * 3


# What a driver that is dead had committed


def _die(*_: object, **__: object) -> None:
    os._exit(9)


def _blindly_no_more() -> None:
    Directory.refuses_to_replace = False  # type: ignore[assignment, method-assign]


def _nowhere(*_: object) -> str:
    return ""


def _die_before_publishing() -> None:
    _blindly_no_more()
    handoff.publish = _die
    # It commits before it has seen that its output was replaced.
    Turns._replaced = _nowhere  # type: ignore[assignment, method-assign]


def committed(site: Site, driver: Running) -> Path:
    """What a driver leaves that dies between commit and publication."""
    assert driver.ended().exit_code == 9
    (written,) = (site.root / "in").glob("doc.*.written")
    return written


def stays(site: Site, written: Path) -> None:
    """A driver looks after it, and says that it cannot be published; it takes what else waits."""
    site.submit("other")
    driver = site.start(shout, driver="late")
    until(lambda: "other.ready" in site.files(), "the other is published")
    until(lambda: [one.event for one in site.events("doc")][-1:] == ["stuck"], "it is noted")
    driver.hurry()
    assert "not the directory that it was" in (site.events("doc")[-1].message or "")
    assert written.exists()
    assert "doc.ready" not in site.files()


def test_a_commit_is_published_only_into_the_directory_that_its_driver_had_opened(
    site: Site,
) -> None:
    site.queue()
    first = site.start(shout, driver="first", prepare=_die_before_publishing)
    site.wait_for_start("first")
    move(site.root)
    # There is no claim: whoever comes now takes the new one.
    site.drive(shout, driver="second")
    site.submit("doc")
    written = committed(site, first)
    stays(site, written)
    assert [name.name for name in (site.root / "monday").glob("doc.*")] == [
        written.name.replace(".written", ".writing")
    ]


def test_a_commit_is_not_believed_to_be_published_in_a_copy_of_its_directory(site: Site) -> None:
    site.submit("doc")
    written = committed(site, site.start(shout, driver="first", prepare=_die_before_publishing))
    copy(site.root)
    stays(site, written)
    shutil.rmtree(site.root / "out")
    (site.root / "monday").rename(site.root / "out")
    site.drive(shout, driver="last")
    assert site.files()["doc.ready"] == b"SOME TEXT"
    assert not written.exists()


def test_a_commit_is_not_published_into_a_new_life_of_its_driver_with_another_directory(
    site: Site,
) -> None:
    site.submit("doc")
    written = committed(site, site.start(shout, driver="late", prepare=_die_before_publishing))
    copy(site.root)
    # Twice: its own last life, and one before that.
    stays(site, written)
    site.drive(shout, driver="other", inputs="empty")
    stays(site, written)


def test_who_died_after_publishing_is_finished_though_the_output_was_taken(site: Site) -> None:
    site.submit("doc")
    first = site.start(shout, driver="first", prepare=_die_before_finishing)
    written = committed(site, first)
    (site.root / "out/doc.ready").rename(site.root / "taken")
    assert site.drive(shout, driver="second").exit_code == 0
    assert not written.exists()
    assert site.files() == {}


def _die_before_finishing() -> None:
    _blindly_no_more()
    handoff.finish = _die


def test_a_document_of_a_function_is_published_in_the_directory_that_was_opened(
    tmp_path: Path,
) -> None:
    with Queue.open(tmp_path / "in", create=True) as queue:
        queue.submit("doc", b"text", durable=False)

    def work(document: Document) -> bytes:
        move(tmp_path)
        return document.read()

    Driver(tmp_path / "in", work, tmp_path / "out", options=Options(drain=True)).run()
    assert (tmp_path / "monday/doc.ready").read_bytes() == b"text"
