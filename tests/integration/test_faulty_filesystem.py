"""On a file system that fails, lies or hangs nothing is lost, nothing twice, and none charged."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from queuedriver.operating.queue import Queue
from tests.cli.processes import command
from tests.drivers import PATIENCE
from tests.testbed.fuse_ground import Options
from tests.testbed.fuse_mount import Faulty
from tests.testbed.fuse_rules import Rule
from tests.testbed.fuse_scene import TEXT, Scene
from tests.testbed.fuse_scene import scene as make_scene
from tests.testbed.fuse_wire import Valid
from tests.waiting import until
from tests.watchdogs import Yard

# What a client says that does not know what became of a rename; and a server that is asked anew for
# one that it has made. The third makes the kernel ask once more, by itself.
LIES = ("EIO", "ENOENT", "ESTALE")


def results(count: int) -> dict[str, bytes]:
    """What so many good documents come to, and as many of two outputs; none of them charged."""
    files = {}
    for number in range(count):
        files[f"good-{number}.ready"] = files[f"many-{number}-a.ready"] = TEXT.upper()
        files[f"many-{number}-b.ready"] = TEXT.lower()
    return files


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with make_scene(tmp_path) as scene:
        yield scene


# Replies that are lost

STEPS = {
    "claim": ("rename", "* > in/*.working"),
    "commit": ("rename", "* > in/*.written"),
    "publish": ("rename", "*.writing > out/*"),
    "finish": ("unlink", "in/*.written"),
    "fail": ("rename", "* > in/*.failed"),
    "discard": ("rename", "* > in/discarded/[bh]*-?"),
    "report": ("rename", "* > in/discarded/*.report.json"),
    "plan": ("rename", "* > in/.queuedriver/claims/*"),
    "attempt": ("rename", "* > in/.queuedriver/attempts/*"),
    "forget the plan": ("unlink", "in/.queuedriver/claims/*"),
    "archive": ("rename", "*.written > archive/*"),
}


# What is not durable goes another way only here.
QUICK = ("claim", "commit", "publish", "finish")


@pytest.mark.parametrize(
    ("step", "durable"), [*((step, True) for step in STEPS), *((step, False) for step in QUICK)]
)
def test_rename_whose_reply_was_lost_counts_once(scene: Scene, step: str, durable: bool) -> None:
    docids = [f"{word}-{number}" for word in ("good", "bad", "many") for number in range(3)]
    scene.see.submit(*docids, content=TEXT)
    op, match = STEPS[step]
    archive = str(scene.host.path / "archive") if step == "archive" else None
    lies = [Rule(op, match, error=error, after=True, count=1) for error in LIES]
    ended = scene.suffers(*lies, durable=durable, archive=archive)
    assert ended.word == "drained"
    assert scene.left() == []
    assert scene.see.files() == results(3)
    assert scene.charges() == {f"bad-{number}": 2 for number in range(3)}


@pytest.mark.parametrize("durable", [False, True], ids=["quick", "durable"])
def test_step_that_was_refused_is_taken_once_in_the_end(scene: Scene, durable: bool) -> None:
    docids = [f"{word}-{number}" for word in ("good", "bad", "many") for number in range(2)]
    scene.see.submit(*docids, content=TEXT)
    steps = [STEPS[step] for step in ("claim", "publish", "finish", "fail", "discard")]
    # With a plan it is another way.
    steps += [("rename", "* > in/good-*.written"), ("rename", "* > in/many-*.written")]
    refused = [Rule(op, match, error="EIO", count=1) for op, match in steps]
    assert scene.suffers(*refused, durable=durable).word == "drained"
    assert scene.left() == []
    assert scene.see.files() == results(2)
    assert scene.charges() == {"bad-0": 2, "bad-1": 2}


@pytest.mark.parametrize(
    ("step", "error"),
    [
        *(("commit", error) for error in LIES),
        ("publish", "ENOENT"),
        ("claim", "ENOENT"),
        ("discard", "ENOENT"),
    ],
)
def test_commit_counts_though_its_name_is_remembered_as_missing(
    tmp_path: Path, step: str, error: str
) -> None:
    """The kernel looks a new name up before it renames to it. Where it remembers for long that the
    name was not there, it says so again when asked whether a rename that failed was made."""
    forgetful = Options(valid=Valid(missing=1.5))
    with make_scene(tmp_path, forgetful) as scene:
        docids = [f"{word}-{number}" for word in ("bad", "good", "many") for number in range(2)]
        scene.see.submit(*docids, content=TEXT)
        op, match = STEPS[step]
        ended = scene.suffers(Rule(op, match, error=error, after=True, count=2))
        assert ended.word == "drained"
        assert scene.left() == []
        assert scene.see.files() == results(2)
        assert scene.charges() == {"bad-0": 2, "bad-1": 2}


def test_output_that_was_made_though_it_was_denied_does_not_keep_its_queue_open(
    tmp_path: Path,
) -> None:
    """It cannot be removed at once: the kernel remembers that it was not there."""
    with make_scene(tmp_path, Options(valid=Valid(missing=0.3))) as scene:
        scene.see.submit("good-1", content=TEXT)
        driver = scene.start(driver="d")
        until(lambda: scene.see.files() and not scene.left(), "it is there")
        scene.host.fail(Rule("create", "out/*.writing", error="EIO", after=True, count=1))
        scene.see.submit("good-2", content=TEXT)
        until(lambda: "good-2.ready" in scene.see.files() and not scene.left(), "it is through")
        assert scene.host.met()
        assert scene.see.files().keys() == {"good-1.ready", "good-2.ready"}
        driver.signal()
        assert driver.ended()[:2] == (0, "quit")


def test_file_that_is_there_because_the_reply_was_lost_costs_no_document(scene: Scene) -> None:
    """Of a reply that was lost the kernel asks once more, by itself, and hears that it exists."""
    scene.see.submit("bad-0", "good-0", "many-0", content=TEXT)
    lies = [
        Rule("create", match, error="ESTALE", after=True, count=3)
        for match in ("out/*.writing", "*/claims/*", "*/attempts/*")
    ]
    assert scene.suffers(*lies, durable=True).word == "drained"
    assert scene.see.files() == results(1)
    assert scene.charges() == {"bad-0": 2}
    assert scene.left() == []


@pytest.mark.parametrize("error", LIES)
@pytest.mark.parametrize("durable", [False, True], ids=["quick", "durable"])
def test_document_whose_entering_lost_its_reply_is_submitted_once(
    scene: Scene, error: str, durable: bool
) -> None:
    scene.see.queue()
    with Queue.open(scene.host.path / "in") as queue:
        scene.host.fail(
            Rule("rename", "*/incoming/* > in/*", error=error, after=True, count=1),
        )
        submitted = queue.submit("one", TEXT, durable=durable)
    assert submitted.name == "one.ready"
    assert scene.host.heal().hits == (1,)
    assert scene.see.states() == {"one": "ready"}
    assert (scene.see.root / "in/one.ready").read_bytes() == TEXT
    assert list((scene.see.root / "in/.queuedriver/incoming").iterdir()) == []


@pytest.mark.parametrize("error", LIES)
def test_document_that_could_not_enter_is_not_submitted(scene: Scene, error: str) -> None:
    scene.see.queue()
    with Queue.open(scene.host.path / "in") as queue:
        scene.host.fail(Rule("rename", "*/incoming/* > in/*", error=error))
        with pytest.raises(OSError, match=os.strerror(getattr(errno, error))):
            queue.submit("one", TEXT)
        scene.heal()
        assert scene.see.states() == {}
        assert list((scene.see.root / "in/.queuedriver/incoming").iterdir()) == []
        queue.submit("one", TEXT)
    assert scene.see.states() == {"one": "ready"}


# No room

# The disk is full; or is found to be so when it comes to the bytes; or a server says so at the end.
CREATE = Rule("create|mkdir", error="ENOSPC")
WRITE = Rule("write", error="ENOSPC")
CLOSE = Rule("flush", error="EDQUOT")
SHORT = Rule("write", short=True)


@pytest.mark.parametrize(
    ("match", "full"),
    [
        pytest.param("out/*.writing", CREATE, id="output-create"),
        pytest.param("out/*.writing", WRITE, id="output-write"),
        pytest.param("out/*.writing", CLOSE, id="output-close"),
        pytest.param("out/*.writing", SHORT, id="output-short"),
        pytest.param("in/.queuedriver/claims/*", CREATE, id="plan-create"),
        pytest.param("in/.queuedriver/claims/*", WRITE, id="plan-write"),
        pytest.param("in/.queuedriver/attempts/*", CREATE, id="attempt-create"),
        pytest.param("in/.queuedriver/attempts/*", CLOSE, id="attempt-close"),
        pytest.param("in/.queuedriver/attempts/*", WRITE, id="attempt-write"),
        pytest.param("in/.queuedriver/journal/*", WRITE, id="journal-write"),
        pytest.param("in/.queuedriver/journal/*", SHORT, id="journal-short"),
        pytest.param("*", CREATE, id="all-create"),
        pytest.param("*", WRITE, id="all-write"),
    ],
)
def test_disk_that_is_full_for_a_while_costs_no_document(
    scene: Scene, match: str, full: Rule
) -> None:
    scene.see.queue()
    driver = scene.start(driver="d")
    scene.see.wait_for_start("d")
    scene.host.fail(msgspec.structs.replace(full, match=match))
    docids = [f"{word}-{number}" for word in ("bad", "good", "many") for number in range(2)]
    scene.see.submit(*docids, content=TEXT)
    until(lambda: scene.host.done.hits[0] >= 2, "it tries again")
    assert driver.alive
    scene.heal()
    scene.until_through()
    driver.signal()
    assert driver.ended()[:2] == (0, "quit")
    assert scene.see.files() == results(2)
    # By their own fault, and no other.
    assert scene.charges() == {"bad-0": 2, "bad-1": 2}


@pytest.mark.parametrize("what", ["settings.json", "drivers/*", "*"])
def test_driver_that_finds_no_room_at_its_start_says_so_and_leaves_all_as_it_was(
    scene: Scene, what: str
) -> None:
    scene.see.submit("good-1", content=TEXT)
    there = [str(scene.host.path / queue) for queue in ("in", "out")]
    words = ("run", there[0], "--to", there[1], "--command", "cat", "--drain")
    scene.host.fail(
        Rule("create|mkdir|write", f"in/.queuedriver/{what}", error="ENOSPC"),
        Rule("rename", f"* > in/.queuedriver/{what}", error="ENOSPC"),
    )
    called = command(*words)
    assert called.code == 74
    assert os.strerror(errno.ENOSPC) in called.err
    assert scene.see.states() == {"good-1": "ready"}
    scene.heal()
    assert command(*words).code == 0
    assert scene.see.files() == {"good-1.ready": TEXT}


@pytest.mark.parametrize("full", [CREATE, WRITE, CLOSE], ids=["create", "write", "close"])
def test_document_that_found_no_room_is_not_in_the_queue_nor_beside_it(
    scene: Scene, full: Rule
) -> None:
    scene.see.queue()
    with Queue.open(scene.host.path / "in") as queue:
        scene.host.fail(msgspec.structs.replace(full, match="*/incoming/*"))
        with pytest.raises(OSError, match=r"No space|quota"):
            queue.submit("one", TEXT)
        scene.heal()
        assert scene.see.states() == {}
        assert list((scene.see.root / "in/.queuedriver/incoming").iterdir()) == []
        queue.submit("one", TEXT)
    assert scene.see.states() == {"one": "ready"}


# A disk that cannot keep what it took


def test_failed_fsync_is_not_repeated_but_the_output_written_anew(scene: Scene) -> None:
    """What a failed fsync left in memory is not written by the next one, which says that it was."""
    scene.see.submit("good-0", "bad-0", "many-0", content=TEXT)
    faults = [
        Rule("fsync", match, error="EIO", count=1)
        for match in ("out/*.writing", "*/claims/*", "*/attempts/*")
    ]
    ended = scene.suffers(*faults, durable=True)
    assert ended.word == "drained"
    assert scene.host.done.synced_again == 0
    assert scene.see.files() == results(1)
    assert scene.charges() == {"bad-0": 2}
    assert scene.left() == []


def test_disk_that_keeps_nothing_for_a_while_gets_nothing_published(scene: Scene) -> None:
    scene.see.queue()
    driver = scene.start(driver="d", durable=True)
    scene.see.wait_for_start("d")
    scene.host.fail(Rule("fsync", "out/*.writing", error="EIO"))
    scene.see.submit("good-1", "good-2", content=TEXT)
    until(lambda: scene.host.done.hits[0] >= 3, "it tries again")
    assert not list((scene.see.root / "out").glob("*.ready"))
    done = scene.host.heal()
    assert done.synced_again == 0
    scene.until_through()
    driver.signal()
    assert driver.ended()[:2] == (0, "quit")
    assert scene.see.files() == {f"good-{number}.ready": TEXT.upper() for number in (1, 2)}
    assert {event.event for event in scene.see.events("good-1")} <= {"released", "published"}


def test_nothing_is_published_before_its_commit_is_durable(scene: Scene) -> None:
    """Else a power cut could take the commit back, and the document would come twice."""
    scene.see.queue()
    driver = scene.start(driver="d", durable=True)
    scene.see.wait_for_start("d")
    scene.host.fail(Rule("fsyncdir", "in", error="EIO"))
    scene.see.submit("good-1", content=TEXT)
    until(lambda: scene.see.states().get("good-1") == "written", "it is committed")
    # The driver comes by again; and so may whoever looks after dead ones.
    until(lambda: scene.host.done.hits[0] >= 3, "it tries again")
    assert not list((scene.see.root / "out").glob("*.ready"))
    scene.heal()
    scene.until_through()
    driver.signal()
    assert driver.ended()[:2] == (0, "quit")
    assert scene.see.files() == {"good-1.ready": TEXT.upper()}


def test_document_that_could_not_be_made_durable_is_not_submitted(scene: Scene) -> None:
    scene.see.queue()
    with Queue.open(scene.host.path / "in") as queue:
        scene.host.fail(Rule("fsync", "*/incoming/*", error="EIO", count=1))
        with pytest.raises(OSError, match="Input/output error"):
            queue.submit("one", TEXT)
        assert scene.see.states() == {}
        queue.submit("one", TEXT)
    assert scene.host.done.synced_again == 0


# A file system that cannot be read


@pytest.mark.parametrize(
    "rule",
    [
        Rule("open", "in/*.working", error="ESTALE"),
        Rule("read", "in/*.working", error="EIO"),
        Rule("opendir", "in", error="ESTALE"),
        Rule("readdir", "in", error="ESTALE"),
        Rule("lookup", "in/*.working", error="EIO"),
        Rule("getattr", "*", error="ESTALE"),
        Rule("*", "*", error="ESTALE"),
        Rule("*", "out*", error="EIO"),
    ],
    ids=lambda rule: f"{rule.op}-{rule.error}" if isinstance(rule, Rule) else None,
)
def test_file_system_that_cannot_be_read_for_a_while_costs_no_document(
    scene: Scene, rule: Rule
) -> None:
    scene.see.queue()
    driver = scene.start(driver="d", durable=rule.error == "EIO")
    scene.see.wait_for_start("d")
    scene.host.fail(rule)
    docids = [f"{word}-{number}" for word in ("bad", "good", "many") for number in range(2)]
    scene.see.submit(*docids, content=TEXT)
    until(lambda: scene.host.done.hits[0] >= 3, "it tries again")
    assert driver.alive
    scene.heal()
    scene.until_through()
    driver.signal()
    assert driver.ended()[:2] == (0, "quit")
    assert scene.see.files() == results(2)
    assert scene.charges() == {"bad-0": 2, "bad-1": 2}
    assert scene.host.done.synced_again == 0


# What is there and cannot be seen yet

# Seconds; longer than the pause between the two listings that show a queue to be empty.
LATE = 1.0


def test_names_that_are_listed_late_cost_time_only(scene: Scene) -> None:
    scene.see.queue()
    drivers = [scene.start(driver=f"d-{n}", durable=True) for n in range(2)]
    until(lambda: len(scene.see.drivers()) == 2, "they are there")
    scene.host.fail(Rule("readdir", hide=LATE))
    docids = [f"{word}-{number}" for word in ("bad", "good", "many") for number in range(4)]
    scene.see.submit(*docids, content=TEXT)
    scene.until_through()
    for driver in drivers:
        driver.signal()
    assert [driver.ended()[:2] for driver in drivers] == [(0, "quit")] * 2
    assert scene.host.heal().hits[0]
    assert scene.see.files() == results(4)
    assert scene.charges() == {f"bad-{number}": 2 for number in range(4)}


def test_drain_that_is_shown_an_old_listing_leaves_early_and_loses_nothing(scene: Scene) -> None:
    """No look can tell a queue that is empty from one whose listing is old: whoever is to be sure
    starts a drain anew, and it finds what the first one could not see."""
    scene.host.fail(Rule("readdir", "in/*", hide=PATIENCE))
    scene.see.submit("good-1", content=TEXT)
    (scene.see.root / "in/done").touch()
    ended = scene.start(drain=True).ended()
    assert (ended.exit_code, ended.word) == (0, "done")
    assert scene.see.states() == {"good-1": "ready"}
    scene.heal()
    assert scene.start(drain=True).ended().word == "done"
    assert scene.see.files()["good-1.ready"] == TEXT.upper()
    assert scene.see.states() == {}


# Two hosts

LAZY = Options(valid=Valid(1.0, 1.0, 1.0), noreplace=False)


def test_two_hosts_with_caches_of_their_own_take_each_document_once(tmp_path: Path) -> None:
    with make_scene(tmp_path, LAZY, LAZY) as scene:
        docids = [f"{word}-{number}" for number in range(30) for word in ("good", "many")]
        docids += ["bad-0", "bad-1"]
        scene.see.submit(*docids, content=TEXT)
        for host in scene.hosts:
            # What the other host did last is not listed here yet.
            host.fail(Rule("readdir", hide=0.5, foreign=True))
        drivers = [
            scene.start(host=host, driver=f"h{host}-{number}")
            for host in (0, 1)
            for number in (1, 2)
        ]
        scene.until_through()
        for driver in drivers:
            driver.signal()
        assert [driver.ended()[:2] for driver in drivers] == [(0, "quit")] * len(drivers)
        assert scene.see.files() == results(30)
        assert scene.charges() == {"bad-0": 2, "bad-1": 2}


# A file system that does not answer


def test_driver_goes_on_when_the_file_system_answers_again(scene: Scene) -> None:
    scene.see.queue()
    driver = scene.start(driver="d", timeout=1.0, hard_after=60)
    scene.see.wait_for_start("d")
    scene.host.fail(Rule("*", hold=True))
    scene.see.submit("good-1", "good-2", content=TEXT)
    scene.until_met()
    scene.heal()
    scene.until_through()
    driver.signal()
    assert driver.ended()[:2] == (0, "quit")
    assert set(scene.see.files().values()) == {TEXT.upper()}
    assert scene.charges() == {}


def test_watchdog_goes_on_when_the_file_system_answers_again(tmp_path: Path) -> None:
    stages = ('name = "one"\ncall = "stages:obey"\ndrivers = 2', 'name = "two"\ncommand = ["cat"]')
    texts = {f"d{number}": f"slow 0.02 {number}" for number in range(60)}
    queues = tmp_path / "backing/queues"
    (queues / "input").mkdir(parents=True)
    (queues / "two").mkdir()
    with Faulty(tmp_path / "backing", tmp_path / "mount") as mount, Yard(tmp_path) as yard:
        (tmp_path / "queues").symlink_to(mount.path / "queues")
        yard.write(*stages, pipeline="retries = 0")
        for docid, text in texts.items():
            (queues / "input" / f"{docid}.ready").write_text(text)
        watchdog = yard.run()
        until(lambda: len(list(queues.glob("two/*.ready"))) > 3, "it is at it")
        mount.fail(Rule("*", hold=True))
        until(lambda: yard.count("waiting-fs"), "it notices")
        status = subprocess.run(
            [sys.executable, "-m", "watchdogd", "status", str(yard.file)],
            env=yard.environ,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        # Nobody waits for the file system to be told that it does not answer.
        assert "two" in status.stdout
        assert "does not answer" in status.stdout
        assert watchdog.poll() is None
        mount.heal()
        until(lambda: len(list(queues.glob("two/*.ready"))) == len(texts), "all is through")
        watchdog.terminate()
        assert watchdog.wait(PATIENCE) == 0
        found = {one.stem: one.read_text() for one in queues.glob("two/*.ready")}
        assert found == texts
        assert yard.count("crash-looped") == 0
        assert yard.discarded("input") == yard.discarded("one") == {}
