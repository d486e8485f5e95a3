"""Items that are no documents, documents that are odd, and processors that misbehave."""

import os
import socket
import stat
from pathlib import Path

import msgspec
import pytest

from queuedriver.claims.liveness import identify
from queuedriver.format import names
from queuedriver.format.records import Registration
from queuedriver.operating.queue import Queue
from tests.drivers import Does, Site
from tests.processors import ignore, misbehave, peek, shout

SECRET = b"not for everybody"


# No documents


def make_link(path: Path) -> None:
    secret = path.parent.parent / "secret"
    secret.write_bytes(SECRET)
    path.symlink_to(secret)


def make_dangling_link(path: Path) -> None:
    path.symlink_to("/nowhere/at/all")


def make_directory(path: Path) -> None:
    path.mkdir()
    (path / "inside").write_bytes(SECRET)


def make_device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("only root makes devices")


def make_socket(path: Path) -> None:
    # A longer path than a socket's address may be.
    here = os.open(path.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"/proc/self/fd/{here}/{path.name}")
    os.close(here)


@pytest.mark.parametrize(
    "does",
    [shout, ignore, ["cat", "{input}"], ["cat"], ["true"]],
    ids=["read", "ignored", "named", "stdin", "command-ignores"],
)
@pytest.mark.parametrize(
    "make",
    [make_link, make_dangling_link, make_directory, make_device, make_socket, os.mkfifo],
    ids=["link", "dangling-link", "directory", "device", "socket", "fifo"],
)
def test_what_is_no_regular_file_is_set_aside_unread(site: Site, make: object, does: Does) -> None:
    assert callable(make)
    site.submit("good")
    make(site.queue() / "odd.ready")
    kind = stat.S_IFMT((site.queue() / "odd.ready").lstat().st_mode)
    assert site.drive(does).exit_code == 1
    assert site.discarded() == ["odd"]
    report = site.report("odd")
    assert report.failure.cause == "not-a-file"
    assert report.failure.message.startswith("'odd' is not a regular file")
    # Once is enough to see it.
    assert len(report.attempts) == 1
    assert stat.S_IFMT((site.queue() / "discarded/odd").lstat().st_mode) == kind
    assert list(site.files()) == ["good.ready"]
    assert SECRET not in site.files().values()


# Odd documents


def test_an_empty_document_is_a_document(site: Site) -> None:
    site.submit("nothing", content=b"")
    assert site.drive().exit_code == 0
    assert site.files() == {"nothing.ready": b""}


@pytest.mark.parametrize("does", [peek, ["head", "-c", "3", "{input}"], ["head", "-c", "3"]])
def test_a_document_may_be_larger_than_memory(site: Site, does: Does) -> None:
    with open(site.queue() / "large.ready", "wb") as file:
        file.write(b"abc")
        file.truncate(5 << 30)
    ended = site.drive(does)
    assert (ended.exit_code, ended.counters.documents) == (0, 1)
    assert site.files() == {"large.ready": b"abc"}


@pytest.mark.parametrize(
    "docid",
    [
        "x" * 160,
        "ä" * 80,
        "with blanks and.dots",
        "line\nfeed",
        "\x1b[31mred",
        "\u202eright",
        "~",
        "-",
    ],
    ids=ascii,
)
def test_an_unusual_docid_goes_through_every_state(site: Site, docid: str) -> None:
    site.submit(docid)
    assert site.drive().exit_code == 0
    assert site.files() == {f"{docid}.ready": b"SOME TEXT"}
    site.submit(docid)
    assert site.drive(misbehave).exit_code == 1
    assert site.discarded() == [docid]
    assert len(site.report(docid).attempts) == 2
    site.submit(docid)
    site.drive(misbehave)
    assert len(site.discarded()) == 2
    assert site.items() == []


@pytest.mark.parametrize(
    "name",
    [
        b"x" * 249 + b".ready",
        b"caf\xe9.ready",
        b".hidden.ready",
        b"report.pdf",
        b"two.ready.ready",
        b"gone.failed_twice",
        b".ready",
        b"done.ready",
        b"x.report.json.ready",
    ],
    ids=ascii,
)
def test_a_name_that_is_not_ours_is_never_touched(site: Site, name: bytes) -> None:
    site.submit("good")
    path = os.fsencode(site.queue()) + b"/" + name
    with open(path, "wb") as file:
        file.write(SECRET)
    before = os.stat(path)
    assert site.drive()[:2] == (0, "drained")
    after = os.stat(path)
    assert (after.st_ino, after.st_mtime_ns, after.st_size) == (
        before.st_ino,
        before.st_mtime_ns,
        before.st_size,
    )
    assert list(site.files()) == ["good.ready"]


# Processors that misbehave


@pytest.mark.parametrize(
    ("docid", "cause", "message"),
    [
        ("raise", "exception", "ValueError: this one never works"),
        ("surrogate", "exception", "ValueError: \\udce9"),
        ("exit", "exception", "SystemExit: 3"),
        ("recurse", "exception", "RecursionError: maximum recursion depth exceeded"),
        ("memory", "exception", "MemoryError"),
        ("group", "exception", "ExceptionGroup: several (2 sub-exceptions)"),
        ("number", "bad-answer", "the processor answered with a int;"),
        ("mapping", "bad-answer", "the processor answered with a dict;"),
        ("numbers", "bad-answer", "the processor answered with a int;"),
        ("late", "exception", "ValueError: after the first output"),
        ("twice", "bad-answer", "two outputs of one document would both be 'twice.ready' in out"),
        ("outside", "bad-answer", "an output cannot be named: '../outside' cannot be a docid"),
        ("nowhere", "bad-answer", "there is no output queue 'nowhere'"),
        ("missing", "bad-answer", "the answer names a file that is not there"),
        ("directory", "bad-answer", "the answer names something that is not a regular file"),
        ("text", "bad-answer", "the text cannot be written as UTF-8"),
    ],
)
def test_a_processor_that_fails_a_document_goes_on_with_the_others(
    site: Site, docid: str, cause: str, message: str
) -> None:
    site.submit("a-good", docid, "z-good")
    ended = site.drive(misbehave, order="name")
    assert (ended.exit_code, ended.counters.documents, ended.counters.failed) == (1, 2, 2)
    assert site.files() == {"a-good.ready": b"fine", "z-good.ready": b"fine"}
    report = site.report(docid)
    assert report.failure.cause == cause
    assert report.failure.message.startswith(message)
    assert [one.attempt for one in report.attempts] == [0, 1]
    assert (site.queue() / "discarded" / docid).read_bytes() == b"some text"
    assert not [item for item in site.items("out") if item.state == names.WRITING]


@pytest.mark.parametrize(
    ("script", "cause", "message"),
    [
        ("echo half; exit 3", "exit", ""),
        ("echo half; kill -9 $$", "signal", ""),
        ("echo half; exit 65", "permanent", ""),
    ],
)
def test_a_command_that_writes_half_and_dies_publishes_nothing(
    site: Site, script: str, cause: str, message: str
) -> None:
    site.submit("bad", "good")
    script = f'read -r word rest; test "$word" = good && echo whole && exit; {script}'
    site.submit("good", content=b"good text")
    assert site.drive(["sh", "-c", script]).exit_code == 1
    assert site.files() == {"good.ready": b"whole\n"}
    assert site.report("bad").failure.cause == cause
    assert site.items("out") == [names.Item("good", names.READY)]


def test_a_processor_that_takes_its_driver_along_is_charged_and_others_are_not(site: Site) -> None:
    site.submit("leave", "good")
    for _ in range(2):
        site.drive(misbehave, driver="d")
    assert site.drive(misbehave, driver="d").exit_code == 0
    assert site.files() == {"good.ready": b"fine"}
    assert [one.failure.cause for one in site.report("leave").attempts] == ["crashed"] * 2


def test_a_processor_that_raises_what_is_no_exception_fails_alone(site: Site) -> None:
    site.submit("interrupt", "good")
    assert site.drive(misbehave).exit_code == 1
    assert site.files() == {"good.ready": b"fine"}
    assert [one.failure.cause for one in site.report("interrupt").attempts] == ["exception"] * 2


def test_a_processor_may_answer_with_the_document_itself(site: Site) -> None:
    site.submit("itself")
    assert site.drive(misbehave, archive=str(site.root / "old")).exit_code == 0
    assert site.files() == {"itself.ready": b"some text"}
    assert site.files("old") == {"itself": b"some text"}


def test_names_that_only_look_like_items_keep_no_driver_from_the_end_of_a_queue(
    site: Site,
) -> None:
    site.submit("doc")
    for number in range(12):
        (site.queue() / f"{number}.ready.ready").touch()
    # Somebody lives in whose share half of them are, and does nothing.
    with Queue.open(site.queue()) as queue:
        drivers = queue.private.subdirectory("drivers", create=True)
        other = Registration(
            id="other",
            salt="5a17",
            identity=identify(os.getpid()),
            processor="",
            inputs=(),
            outputs=(),
            started_at=0.0,
        )
        drivers.write_new("other.json", msgspec.json.encode(other))
        drivers.close()
    assert site.drive(shout).word == "drained"
