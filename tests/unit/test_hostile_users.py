"""A queue that another user may write to: what is promised then, and what is asked of whom."""

import json
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from queuedriver.claims.counts import Pass
from queuedriver.claims.document import Document
from queuedriver.cli import run as queuedriver
from queuedriver.driving.driver import Driver
from queuedriver.driving.plan import Quit, Seen, Wait, plan
from queuedriver.errors import NotPermitted
from queuedriver.format import names
from queuedriver.format.records import encode_report
from queuedriver.operating.queue import Queue
from queuedriver.options import Options
from queuedriver.processors.command import CommandProcessor
from tests.cli import pipelines
from tests.drivers import Site
from tests.processors import judge_all, shout
from tests.unit.format.test_records import a_report
from watchdogd.cli import run as watchdogd
from watchdogd.report import StageReport

SECRET = b"not for everybody"
TOKEN = "gone-1-0605d3a1f2b0c05a17"
_NOBODY = 65534
as_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="two users take root: sudo python -m pytest tests/unit"
)


def become_nobody() -> None:
    os.setgroups([])
    os.setgid(_NOBODY)
    os.setuid(_NOBODY)


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every user can reach, unlike pytest's own."""
    path = Path(tempfile.mkdtemp(prefix="queuedriver-"))
    path.chmod(0o777)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def site(place: Path) -> Iterator[Site]:
    with Site(place) as site:
        yield site


def make_sticky(site: Site) -> Path:
    """A queue in which, as in /tmp, everybody may rename what is their own."""
    queue = site.queue()
    queue.chmod(0o1777)
    for name in (".queuedriver", "discarded", ".queuedriver/drivers", ".queuedriver/journal"):
        (queue / name).mkdir()
        (queue / name).chmod(0o777)
    return queue


def submit_as(user: int, queue: Path, *files: str, content: bytes = b"some text") -> None:
    for name in files:
        (queue / name).write_bytes(content)
        os.chown(queue / name, user, user)


# Others' files


@as_root
def test_items_that_may_not_be_claimed_keep_nobody_from_the_others(site: Site) -> None:
    queue = make_sticky(site)
    submit_as(0, queue, "a-theirs.ready", "b-theirs.failed")
    submit_as(_NOBODY, queue, "c-ours.ready", "d-ours.ready")
    ended = site.drive(prepare=become_nobody, driver="d", order="name")
    assert (ended.exit_code, ended.word) == (75, "blocked")
    assert "2 items may not be claimed" in ended.why
    assert sorted(site.files()) == ["c-ours.ready", "d-ours.ready"]
    assert sorted(os.listdir(queue))[-2:] == ["b-theirs.failed", "discarded"]
    # Each is noted once, however many passes there were.
    assert [one.event for one in site.events("a-theirs")] == ["refused"]


@as_root
@pytest.mark.parametrize("batch", [1, 8])
def test_output_in_whose_way_anothers_file_is_stays_and_the_others_are_published(
    site: Site, batch: int
) -> None:
    """Each is done and counted; of the one that cannot be published the journal says why, and it is
    left to whoever may."""
    make_sticky(site)
    out = site.queue("out")
    out.chmod(0o1777)
    (out / "b.ready").write_bytes(b"root's")
    site.submit("a", "b", "c")
    for path in site.queue().glob("*.ready"):
        os.chown(path, _NOBODY, _NOBODY)
    given = {"batch": batch, "existing": "replace", "prepare": become_nobody}
    ended = site.drive(judge_all if batch > 1 else shout, **given)
    assert site.files("out")["b.ready"] == b"root's"
    assert site.files("out").keys() >= {"a.ready", "c.ready"}
    assert site.states() == {"b": "written"}
    assert (ended.counters.documents, ended.counters.failed) == (3, 0)
    assert ended.exit_code == 75
    assert [one.event for one in site.events("b")][-1] == "stuck"
    (out / "b.ready").unlink()
    site.drive(existing="replace")
    assert site.files("out")["b.ready"] != b"root's"
    assert site.states() == {}


def test_output_in_whose_way_a_directory_is_stays_and_the_others_are_published(site: Site) -> None:
    (site.queue("out") / "b.ready").mkdir()
    site.submit("a", "b", "c")
    ended = site.drive(existing="replace")
    assert site.files("out").keys() >= {"a.ready", "c.ready"}
    assert site.states() == {"b": "written"}
    assert (ended.counters.documents, ended.counters.failed) == (3, 0)
    assert ended.exit_code == 75


@as_root
def test_leftovers_of_another_user_keep_nobody_from_recovering_ones_own(site: Site) -> None:
    queue = make_sticky(site)
    submit_as(0, queue, f"theirs.{TOKEN}.working")
    submit_as(_NOBODY, queue, f"ours.{TOKEN}.working", "more.ready")
    identity = {"host": "h", "machine": "m", "boot": "b", "namespace": 1, "pid": 1, "ticks": 1}
    said = {"id": "gone-1", "salt": "5a17", "identity": identity, "started_at": 1}
    # It was never seen to beat, and says that it crashed.
    (queue / ".queuedriver/drivers/gone-1.json").write_text(
        json.dumps({**said, "last_word": "crashed"})
    )
    running = site.start(prepare=become_nobody, driver="d", max_documents=2)
    assert running.ended().exit_code == 0
    assert sorted(site.files()) == ["more.ready", "ours.ready"]
    assert (queue / f"theirs.{TOKEN}.working").exists()


@as_root
def test_document_that_may_not_be_read_is_discarded_and_the_others_are_done(site: Site) -> None:
    queue = site.queue()
    queue.chmod(0o777)
    submit_as(0, queue, "secret.ready", content=SECRET)
    (queue / "secret.ready").chmod(0o600)
    submit_as(_NOBODY, queue, "good.ready")
    assert site.drive(prepare=become_nobody).exit_code == 1
    assert list(site.files()) == ["good.ready"]
    assert "Permission denied" in site.report("secret").failure.message
    assert (queue / "discarded/secret").read_bytes() == SECRET


@as_root
def test_queue_that_may_not_be_written_is_refused_at_once(site: Site) -> None:
    submit_as(0, site.queue(), "doc.ready")
    site.queue().chmod(0o755)
    ended = site.drive(prepare=become_nobody)
    assert ended.exit_code == NotPermitted.exit_code
    assert str(site.queue()) in ended.why


@as_root
def test_lock_that_another_user_keeps_closed_is_told_and_not_waited_for(site: Site) -> None:
    queue = make_sticky(site)
    (queue / ".queuedriver/start.lock").touch(0o600)
    ended = site.drive(prepare=become_nobody)
    assert ended.exit_code == NotPermitted.exit_code
    assert "start.lock cannot be locked: Permission denied" in ended.why


def test_who_waits_for_the_end_does_not_wait_for_what_may_not_be_claimed() -> None:
    left = Seen(passed=Pass(ready=2, refused=2), drain=True)
    assert isinstance(plan(left), Quit)
    # Another driver may be at work on the third, and one that does not drain stays.
    for seen in (
        Seen(passed=Pass(ready=3, refused=2), drain=True),
        Seen(passed=Pass(ready=2, refused=2)),
    ):
        decision = plan(seen)
        assert isinstance(decision, Wait)
        assert "another user" in decision.why


# Files that change under our hands


def to_link(path: Path, secret: Path) -> None:
    path.symlink_to(secret)


def to_fifo(path: Path, secret: Path) -> None:
    os.mkfifo(path)


def to_socket(path: Path, secret: Path) -> None:
    here = os.open(path.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(f"/proc/self/fd/{here}/{path.name}")
    os.close(here)


@pytest.mark.parametrize("turn", [to_link, to_fifo, to_socket])
@pytest.mark.parametrize("read", [Document.read, lambda document: document.open().read()])
def test_document_that_becomes_something_else_after_its_claim_is_not_read(
    place: Path,
    turn: Callable[[Path, Path], None],
    read: Callable[[Document], bytes],
) -> None:
    (place / "secret").write_bytes(SECRET)
    with Queue.open(place / "in", create=True) as queue:
        queue.submit("doc", b"some text", durable=False)

    def process(document: Document) -> bytes:
        path = Path(document.path)
        path.unlink()
        turn(path, place / "secret")
        return read(document)

    left = Driver(place / "in", process, place / "out", options=Options(drain=True)).run()
    assert left.counters.discarded == 1
    assert os.listdir(place / "out") == [".queuedriver"]
    assert (place / "secret").read_bytes() == SECRET
    with Queue.open(place / "in") as queue:
        report = queue.report("doc")
    assert report is not None
    assert report.failure.cause == "not-a-file"


def test_hard_link_to_a_file_is_a_document_and_the_file_stays(place: Path) -> None:
    (place / "in").mkdir()
    (place / "ours").write_bytes(b"some text")
    os.link(place / "ours", place / "in/doc.ready")
    options = Options(drain=True)
    Driver(place / "in", CommandProcessor(["cat"]), place / "out", options=options).run()
    assert (place / "out/doc.ready").read_bytes() == b"some text"
    assert (place / "ours").read_bytes() == b"some text"
    assert (place / "ours").stat().st_nlink == 1


def test_output_is_a_new_file_wherever_a_link_would_have_led(place: Path) -> None:
    """Somebody who knows under which name an output is written puts a link there first."""
    (place / "secret").write_bytes(SECRET)
    (place / "out").mkdir()
    with Queue.open(place / "in", create=True) as queue:
        queue.submit("doc", b"some text", durable=False)

    def process(document: Document) -> bytes:
        token = names.parse(os.path.basename(document.path))
        assert token is not None
        writing = place / "out" / names.writing_name("doc", token.token)
        if not document.attempt:
            writing.symlink_to(place / "secret")
        return b"done"

    Driver(place / "in", process, place / "out", options=Options(drain=True)).run()
    assert (place / "secret").read_bytes() == SECRET
    assert (place / "out/doc.ready").read_bytes() == b"done"


# Forged records


def forge(place: Path, archive: Path) -> Path:
    """A queue in which somebody says that finished documents are to be kept elsewhere."""
    queue = place / "in"
    (queue / ".queuedriver").mkdir(parents=True)
    (place / "out").mkdir()
    settings = {"outputs": ["../out"], "archive": str(archive)}
    (queue / ".queuedriver/settings.json").write_text(json.dumps(settings))
    (queue / f"evil.{TOKEN}.written").write_bytes(b"* * * * * root touch /ran\n")
    return queue


@as_root
@pytest.mark.parametrize("words", [["recover", "--lease", "0"], ["check", "--repair"]])
def test_settings_of_a_stranger_move_no_document_of_theirs_to_where_we_may_write(
    place: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "cron.d").mkdir()
    queue = forge(place, place / "cron.d")
    os.chown(queue / ".queuedriver/settings.json", _NOBODY, _NOBODY)
    code = queuedriver([*words, str(queue)])
    assert os.listdir(place / "cron.d") == []
    assert (queue / f"evil.{TOKEN}.written").exists()
    if words[0] == "recover":
        assert code == NotPermitted.exit_code
        assert f"settings.json belongs to user {_NOBODY}" in capsys.readouterr().err


@as_root
def test_settings_of_the_queues_owner_are_obeyed(place: Path) -> None:
    (place / "old").mkdir()
    queue = forge(place, place / "old")
    for path in (queue, queue / ".queuedriver/settings.json"):
        os.chown(path, _NOBODY, _NOBODY)
    assert queuedriver(["recover", "--lease", "0", str(queue)]) == 0
    assert os.listdir(place / "old") == ["evil"]


@pytest.mark.parametrize("repair", [False, True])
def test_forged_report_renames_nothing_elsewhere(
    place: Path, repair: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "outside").mkdir()
    (place / "outside/precious").write_bytes(SECRET)
    discarded = place / "in/discarded"
    discarded.mkdir(parents=True)
    (place / "in/.queuedriver/attempts").mkdir(parents=True)
    report = json.loads(encode_report(a_report()))
    report["docid"] = "../../outside/precious"
    report["attempts"][0]["token"] = "d-/../../../outside/precious"
    (discarded / "doc").write_bytes(b"text")
    for docid, inode in (("doc", (discarded / "doc").stat().st_ino), ("gone", 7)):
        (place / f"in/.queuedriver/attempts/{docid}.{inode}.1.json").write_text(json.dumps(report))
    drivers = place / "in/.queuedriver/drivers"
    drivers.mkdir(parents=True)
    identity = {"host": "h", "machine": "m", "boot": "b", "namespace": 1, "pid": 1, "ticks": 1}
    said = {"id": "gone-1", "salt": "5a17", "identity": identity, "started_at": 1}
    (drivers / "gone-1.json").write_text(json.dumps({**said, "last_word": "crashed"}))
    words = ["check", "--repair"] if repair else ["recover", "--lease", "0"]
    queuedriver([*words, str(place / "in")])
    assert os.listdir(place / "outside") == ["precious"]
    capsys.readouterr()


@pytest.mark.parametrize("queue", ["../elsewhere", "/etc", ".watchdogd", "a/../../elsewhere"])
def test_forged_host_sends_no_command_out_of_the_root(
    place: Path, queue: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """While a pipeline's file has mistakes, commands go by what its watchdogs say."""
    file = pipelines.make(place)
    elsewhere = place / "elsewhere"
    (elsewhere / "discarded").mkdir(parents=True)
    (elsewhere / "discarded/doc").write_bytes(b"some text")
    stage = StageReport(name="evil", inputs=(queue,), outputs=(queue,), wanted=1, min=1, max=1)
    pipelines.publish(file, pipelines.report(stages=(stage,), root=str(elsewhere)))
    file.write_text(file.read_text() + "\nnonsense = [\n")
    for words in (["retry", "--yes"], ["pause", "evil"], ["pause"], ["scale", "evil=3"], ["stop"]):
        watchdogd([*words, "-p", str(file)])
    assert os.listdir(elsewhere) == ["discarded"]
    assert os.listdir(elsewhere / "discarded") == ["doc"]
    capsys.readouterr()


def test_what_we_make_is_for_whom_the_umask_says(place: Path) -> None:
    before = os.umask(0o077)
    try:
        with Queue.open(place / "in", create=True) as queue:
            queue.submit("doc", b"some text", durable=False)
        options = Options(drain=True, archive=str(place / "old"))
        Driver(place / "in", lambda _: b"done", place / "out", options=options).run()
    finally:
        os.umask(before)
    for path in place.rglob("*"):
        assert not stat.S_IMODE(path.lstat().st_mode) & 0o077, path
