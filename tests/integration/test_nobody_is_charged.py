"""What is no document's fault costs no document an attempt, and no item stops the others."""

import functools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from queuedriver.claims import liveness
from queuedriver.format import names
from queuedriver.format.names import JOURNAL, PRIVATE
from queuedriver.operating.queue import Queue
from tests.cli.processes import command, ended, mounted_upon, start
from tests.disks import Disk
from tests.drivers import Site
from tests.openings import registrations
from tests.processors import gate, judge, shout
from tests.waiting import until

DOCIDS = [f"doc-{number:02}" for number in range(30)]


def journal(queue: Path) -> str:
    """All that has been noted of a queue."""
    return "".join(one.read_text() for one in (queue / PRIVATE / JOURNAL).glob("*.jsonl"))


def charged(queue: Path) -> bool:
    """Whether any attempt ever was."""
    noted = journal(queue)
    return '"failed"' in noted or '"discarded"' in noted


# Directories that are moved away


@pytest.mark.parametrize("moved", ["in", "out"])
def test_while_a_directory_is_moved_away_nobody_is_charged(site: Site, moved: str) -> None:
    site.submit(*DOCIDS[:15])
    copy = 'sh -c \'sleep .02; cp "$1" "$2"\' sh {input} {output}'
    there, away = site.root / moved, site.root / "away"

    def is_noticed() -> bool:
        queue = away if moved == "in" else site.root / "in"
        noted = journal(queue)
        if driver.poll() is not None or "released" in noted or '"failed"' in noted:
            return True
        # Between two documents nothing is given back: it waits.
        with Queue.open(str(queue)) as opened:
            return any(one.state == "waiting-fs" for one in registrations(opened))

    with start("run", "in", "--to", "out", "--command", copy, cwd=site.root) as driver:
        try:
            until(lambda: len(site.files()) >= 5, "some are published")
            there.rename(away)
            # However slow we were, there is something to do.
            site.submit(*DOCIDS[15:], queue="away" if moved == "in" else "in")
            until(is_noticed, "it is noticed")
        finally:
            driver.terminate()
            driver.communicate()
    if there.exists():
        # Whoever makes it anew must not be in the way of what comes back.
        there.rename(site.root / "made anew")
    away.rename(there)
    assert not charged(site.root / "in")
    command("run", "in", "--to", "out", "--command", copy, "--drain", cwd=site.root)
    assert sorted(site.files()) == [f"{docid}.ready" for docid in DOCIDS]


# A disk that is nearly full

_MEGABYTE = 1 << 20
_TIDY = 'head -c 4000000 /dev/zero >"$1" && exit 0; rm -f "$1"; exit 1'
_SCRATCH = """
import os

def work(document):
    data = document.read()
    scratch = os.path.join(os.path.dirname(document.path), ".scratch")
    try:
        with open(scratch, "wb", 0) as file:
            for _ in range(4):
                if file.write(bytes(1_000_000)) < 1_000_000:
                    file.write(b"x")
    finally:
        os.unlink(scratch)
    return data
"""


@pytest.mark.parametrize(
    "how",
    [("--command", f"sh -c '{_TIDY}' sh {{output}}"), ("--call", "scratch:work")],
    ids=["a command that tidies up", "a function that says so"],
)
def test_while_a_disk_has_too_little_room_for_an_output_nobody_is_charged(
    tmp_path: Path, how: Sequence[str]
) -> None:
    (tmp_path / "scratch.py").write_text(_SCRATCH)
    with closing(Disk(tmp_path / "disk", "size=8M")) as disk, Site(disk.path) as site:
        site.submit("a", "b")
        ballast = disk.path / "ballast"
        ballast.write_bytes(bytes(5 * _MEGABYTE))
        words = ["run", str(disk.path / "in"), "--to", str(disk.path / "out"), *how]
        with start(*words, cwd=tmp_path) as driver:
            try:
                until(lambda: journal(site.root / "in"), "the first has ended")
            finally:
                driver.terminate()
                driver.communicate()
        assert not charged(site.root / "in")
        ballast.unlink()
        assert command(*words, "--drain", cwd=tmp_path).code == 0


# Hosts that are alike


def clone(boot: str) -> None:
    """As it is on hosts that were made from one image, and share a file system."""
    liveness.is_network = lambda fstype: True  # type: ignore[attr-defined]
    liveness._host = lambda: ("vm", "0123456789abcdef", boot, 1)  # type: ignore[assignment]


def test_what_a_driver_of_a_host_that_looks_like_ours_has_in_hand_stays_in_its_hands(
    site: Site,
) -> None:
    site.submit("doc")
    theirs = site.start(gate, driver="theirs", prepare=functools.partial(clone, "theirs"))
    site.wait_at("doc")
    site.submit("other")
    # Who starts looks for what the dead have left, before anything else.
    ours = site.start(shout, driver="ours", prepare=functools.partial(clone, "ours"))
    until(lambda: "other.ready" in site.files(), "another document is published")
    until(lambda: site.registration("ours").counters.documents, "it has gone on")
    (claim,) = site.items()
    assert (claim.docid, claim.state) == ("doc", names.WORKING)
    assert names.parse_token(claim.token).driver == "theirs"
    site.open_gate()
    until(lambda: not site.items(), "both are done")
    for driver in (theirs, ours):
        driver.hurry()
    assert [one.event for one in site.events("doc")] == ["published"]


# Other clocks


def other_clocks() -> list[str]:
    """What to put before a command for its clocks to be others, as in a container."""
    prefix = ["unshare", "--time", "--fork", *(["--map-root-user"] if os.geteuid() else [])]
    prefix += ["--boottime", "100000"]
    if shutil.which("unshare") is None or subprocess.call([*prefix, "true"]):
        pytest.skip("no namespace of clocks can be made here")
    return prefix


def test_driver_whose_start_is_told_by_other_clocks_is_not_taken_for_dead(site: Site) -> None:
    prefix = other_clocks()
    site.submit("doc")
    driver = site.start(gate, driver="d")
    site.wait_at("doc")
    command("recover", "in", cwd=site.root, prefix=prefix)
    assert [one.state for one in site.items()] == [names.WORKING]
    site.open_gate()
    until(lambda: not site.items(), "it is done")
    driver.hurry()
    assert [one.event for one in site.events("doc")] == ["published"]


# A driver that left in order


def test_what_a_driver_that_left_in_order_could_not_give_back_is_not_held_against_it(
    site: Site,
) -> None:
    site.submit("later-doc")
    (name,) = os.listdir(site.queue())
    site.drive(judge, driver="a")
    for _ in range(3):
        # As where the file system did not let it.
        (name,) = (one for one in os.listdir(site.queue()) if one.startswith("later-doc."))
        (item,) = site.items()
        token = names.Mint("a", site.registration("a").salt).next(time.time_ns() // 1000)
        working = names.working_name(item.docid, item.attempt, token)
        (site.queue() / name).rename(site.queue() / working)
        site.drive(judge, driver="a")
    (item,) = site.items()
    assert (item.docid, item.state, item.attempt) == ("later-doc", names.LATER, 0)
    words = [one.message or "" for one in site.events("later-doc") if one.event == "released"]
    assert len(words) == 3
    assert not [one for one in words if "showed no life" in one]


# Too few descriptors


def test_too_few_descriptors_charge_nobody(site: Site) -> None:
    site.submit("a", "b")
    for most in range(16, 24):
        limited = ("sh", "-c", f'ulimit -n {most}; exec "$@"', "sh")
        words = ("run", "in", "--to", "out", "--command", "cat", "--drain")
        command(*words, cwd=site.root, prefix=limited)
        assert not charged(site.root / "in"), most
    docids = [one.docid for one in site.items()]
    published = [name.removesuffix(".ready") for name in site.files()]
    assert sorted(docids + published) == ["a", "b"]


# A volume for each directory


_RUN = ("run", "in", "--to", "out", "--drain", "--retries", "0")


@pytest.mark.parametrize(
    ("mounted", "words"),
    [
        ("in/discarded", (*_RUN, "--command", "false")),
        ("archive", (*_RUN, "--command", "cat", "--archive", "archive")),
        ("in/discarded", ("discard", "in", "a")),
        ("in/discarded", ("recover", "in")),
    ],
    ids=["a driver that discards", "a driver that archives", "discard", "recover"],
)
def test_directory_to_which_nothing_can_be_renamed_is_told_before_anything_is_claimed(
    site: Site, mounted: str, words: Sequence[str]
) -> None:
    site.submit("a", "b")
    (site.root / mounted).mkdir(parents=True, exist_ok=True)
    ended = command(*words, cwd=site.root, prefix=mounted_upon(site.root / mounted))
    assert ended.code == 78, ended
    assert f"{mounted} is on another file system than" in ended.err
    assert site.states() == {"a": "ready", "b": "ready"}


# One item that cannot be moved


@pytest.mark.parametrize("order", ["fair", "name"])
def test_an_item_that_cannot_be_renamed_keeps_no_other_from_being_done(
    site: Site, order: str
) -> None:
    site.submit("a", "b", "c")
    prefix = mounted_upon(site.root / "in" / "a.ready")
    words = ("run", "in", "--to", "out", "--command", "cat", "--order", order, "--drain")
    ended = command(*words, cwd=site.root, prefix=prefix)
    assert ended.code == 75, ended
    assert "1 item may not be claimed" in ended.err
    assert sorted(site.files()) == ["b.ready", "c.ready"]
    assert site.states() == {"a": "ready"}


# A stop that all that runs here hears


_WAITS = """
import os, sys, time

def wait():
    with open(".pid", "w") as file:
        file.write(str(os.getpid()))
    os.rename(".pid", "pid")
    time.sleep(3600)

def call(document):
    import subprocess
    subprocess.run([sys.executable, "waits.py"], check=True)

if __name__ == "__main__":
    for line in sys.stdin if "serve" in sys.argv else [""]:
        wait()
"""
_WAITER = f"{sys.executable} waits.py"


@pytest.mark.parametrize("order", [("program", "driver"), ("driver", "program")], ids="-".join)
@pytest.mark.parametrize(
    "how",
    [
        ("--command", _WAITER),
        ("--command", f"sh -c '{_WAITER}; exit $?' sh"),
        ("--server", f"{_WAITER} serve"),
        ("--call", "waits:call", "--no-output"),
    ],
    ids=["command", "what a command runs", "server", "what a function runs"],
)
def test_stop_of_a_driver_and_of_all_that_it_runs_charges_no_document(
    site: Site, how: Sequence[str], order: Sequence[str]
) -> None:
    """As Slurm sends it to each process of a job, one after the other."""
    (site.root / "waits.py").write_text(_WAITS)
    site.submit("doc")
    to = () if "--no-output" in how else ("--to", "out")
    with start("run", "in", *to, *how, cwd=site.root) as driver:
        pid = int(until((site.root / "pid").exists, "it runs") and (site.root / "pid").read_text())
        pids = {"driver": driver.pid, "program": pid}
        for one in order:
            os.kill(pids[one], signal.SIGTERM)
        ended(driver)
    assert not charged(site.root / "in")
    assert site.states() == {"doc": "ready"}


def test_program_that_somebody_else_ends_is_charged(site: Site) -> None:
    site.submit("doc")
    words = ("run", "in", "--to", "out", "--command", "sh -c 'kill $$' sh", "--drain")
    assert command(*words, cwd=site.root).code == 1
    assert site.report("doc").attempts[0].failure.signal == "SIGTERM"
