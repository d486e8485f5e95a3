"""What a processor answers is written where it belongs, or refused with words; nothing half-way."""

import errno
import io
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from queuedriver.claims.document import Answer, Document, Output, Outputs, Written
from queuedriver.driving.limits import Limits
from queuedriver.errors import ConfigError, FileSystemTrouble, Interrupted, ProcessorFailed
from queuedriver.format import names
from queuedriver.options import Options
from tests.holdings import open_files

if TYPE_CHECKING:
    from tests.conftest import Bench

TOKEN = "d-0605d3a1f2b0c05a17"


@pytest.fixture
def outputs(bench: "Bench") -> Outputs:
    """Of a claim to `doc`, with two output queues."""
    return Outputs("doc", TOKEN, (bench.target("out"), bench.target("side")))


def cause(error: pytest.ExceptionInfo[ProcessorFailed]) -> str:
    return error.value.failure.cause


# Answers


@pytest.mark.parametrize(
    ("answer", "data"),
    [
        (b"bytes", b"bytes"),
        (b"", b""),
        ("text é", "text é".encode()),
        (bytearray(b"array"), b"array"),
        (memoryview(b"view"), b"view"),
        (Output(b"bytes"), b"bytes"),
        (Output("text"), b"text"),
        ([b"one"], b"one"),
        (iter([Output("one")]), b"one"),
    ],
)
def test_one_answer_is_one_output_under_the_documents_own_name(
    bench: "Bench", outputs: Outputs, limits: Limits, answer: Answer, data: bytes
) -> None:
    outputs.take(answer, limits)
    writing = f"doc.{TOKEN}.writing"
    assert outputs.written == [Written(0, writing, "doc.ready")]
    assert not outputs.need_plan
    assert bench.ls("out") == [writing]
    assert bench.read(f"out/{writing}") == data


@pytest.mark.parametrize("answer", [None, [], (), iter(())])
def test_no_answer_is_no_output(
    bench: "Bench", outputs: Outputs, limits: Limits, answer: Answer
) -> None:
    outputs.take(answer, limits)
    assert outputs.written == []
    assert not outputs.need_plan
    assert bench.ls("out") == bench.ls("side") == []


def test_many_answers_go_where_each_says(bench: "Bench", outputs: Outputs, limits: Limits) -> None:
    def answers() -> Iterator[Output | bytes]:
        yield b"own"
        yield Output(b"page", docid="doc-1", ext="txt")
        yield Output(b"other", queue="side")
        yield Output(b"by path", docid="x", queue=str(bench.root / "side"), ext="xml")

    outputs.take(answers(), limits)
    assert outputs.written == [
        Written(0, f"doc.{TOKEN}.writing", "doc.ready"),
        Written(0, f"doc-1.{TOKEN}.writing.txt", "doc-1.ready"),
        Written(1, f"doc.{TOKEN}.writing", "doc.ready"),
        Written(1, f"x.{TOKEN}.writing.xml", "x.ready"),
    ]
    # Recovery could not guess these: they need a plan.
    assert outputs.need_plan
    assert bench.read(f"out/doc-1.{TOKEN}.writing.txt") == b"page"
    assert bench.read(f"side/doc.{TOKEN}.writing") == b"other"


@pytest.mark.parametrize("answer", [Output(b"x", docid="doc"), Output(b"x", queue="out")])
def test_who_says_of_an_output_what_goes_without_saying_needs_no_plan(
    outputs: Outputs, limits: Limits, answer: Answer
) -> None:
    outputs.take(answer, limits)
    assert not outputs.need_plan


@pytest.mark.parametrize(
    "answer",
    [
        Output(b"x", docid="another"),
        Output(b"x", ext="xml"),
        Output(b"x", queue="side"),
        [b"x", Output(b"y", docid="z")],
    ],
)
def test_whatever_is_not_quite_the_usual_output_gets_a_plan(
    outputs: Outputs, limits: Limits, answer: Answer
) -> None:
    outputs.take(answer, limits)
    assert outputs.need_plan


class Odd:
    pass


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (7, "with a int"),
        (True, "with a bool"),
        (1.5, "with a float"),
        (Odd(), "with a Odd"),
        ([7], "with a int"),
        ([None], "with a NoneType"),
        ([[b"nested"]], "with a list"),
        ({"text": "mapping"}, "with a dict"),
        (io.BytesIO(b"line\n"), "with a BytesIO"),
        (io.StringIO("line\n"), "with a StringIO"),
        (Output(7), "with a int"),  # type: ignore[arg-type]
        (Output(None), "with a NoneType"),  # type: ignore[arg-type]
        ("\udce9", "UTF-8"),
        ([b"1", b"2"], "would both be 'doc.ready'"),
        ([Output(b"1", docid="a", ext="x"), Output(b"2", docid="a")], "would both be 'a.ready'"),
        (Output(b"", docid="a/b"), "'/'"),
        (Output(b"", docid="../a"), "cannot be named"),
        (Output(b"", docid=""), "empty"),
        (Output(b"", docid="a.ready"), "in a state"),
        (Output(b"", docid=161 * "x"), "161 bytes"),
        (Output(b"", docid="\udce9"), "UTF-8"),
        (Output(b"", ext="ready"), "extension"),
        (Output(b"", ext=".x"), "extension"),
        (Output(b"", queue="nowhere"), "no output queue 'nowhere'; the driver was given: out, sid"),
    ],
)
def test_a_bad_answer_fails_its_document_with_words_and_leaves_nothing(
    bench: "Bench", outputs: Outputs, limits: Limits, answer: Any, words: str
) -> None:
    with pytest.raises(ProcessorFailed) as caught:
        outputs.take(answer, limits)
    assert cause(caught) == "bad-answer"
    assert words in caught.value.failure.message
    outputs.discard()
    assert bench.ls("out") == bench.ls("side") == []


@pytest.mark.parametrize("answer", [b"x", "x", [b"x"], Path("x")])
def test_an_output_that_can_go_nowhere_is_no_documents_fault(limits: Limits, answer: Any) -> None:
    outputs = Outputs("doc", TOKEN, ())
    outputs.take(None, limits)
    outputs.take([], limits)
    with pytest.raises(ConfigError, match="nowhere to put it"):
        outputs.take(answer, limits)


def test_an_output_that_the_template_cannot_name_is_a_bad_answer(
    bench: "Bench", limits: Limits
) -> None:
    outputs = Outputs(158 * "x", TOKEN, (bench.target(publish="{docid}.xml.ready"),))
    with pytest.raises(ProcessorFailed, match="cannot be named"):
        outputs.take(b"x", limits)


def test_a_generator_that_raises_midway_leaves_nothing_once_discarded(
    bench: "Bench", outputs: Outputs, limits: Limits
) -> None:
    def answers() -> Iterator[Output]:
        yield Output(b"1", docid="a")
        yield Output(b"2", docid="b", queue="side")
        raise ValueError("page 3 is bad")

    with pytest.raises(ValueError, match="page 3"):
        outputs.take(answers(), limits)
    assert (len(bench.ls("out")), len(bench.ls("side"))) == (1, 1)
    outputs.discard()
    assert bench.ls("out") == bench.ls("side") == []
    assert outputs.written == []
    # The next attempt is not held up by it.
    outputs.take(b"x", limits)


# Paths


def _fails(monkeypatch: pytest.MonkeyPatch, name: str, number: int, *, after: bool) -> None:
    """Let one call of the system fail, or be carried out and its reply lost."""
    call = getattr(os, name)

    def failing(*arguments: Any, **more: Any) -> Any:
        monkeypatch.setattr(os, name, call)
        if after:
            call(*arguments, **more)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, name, failing)


def test_an_answered_path_whose_renames_reply_was_lost_is_written(
    bench: "Bench", outputs: Outputs, limits: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = bench.root / "made"
    path.write_bytes(b"data")
    _fails(monkeypatch, "rename", errno.ENOENT, after=True)
    outputs.take(path, limits)
    assert bench.read(f"out/doc.{TOKEN}.writing") == b"data"
    assert not path.exists()
    assert outputs.elsewhere


def test_an_answered_path_on_another_mount_whose_removals_reply_was_lost_is_written(
    bench: "Bench", outputs: Outputs, limits: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = bench.root / "made"
    path.write_bytes(b"data")
    _fails(monkeypatch, "rename", errno.EXDEV, after=False)
    _fails(monkeypatch, "unlink", errno.ENOENT, after=True)
    outputs.take(path, limits)
    assert bench.read(f"out/doc.{TOKEN}.writing") == b"data"
    assert not path.exists()


@pytest.mark.parametrize(
    ("call", "after"), [("open", False), ("rename", False), ("rename", True)], ids=str
)
def test_an_answered_path_that_the_file_system_does_not_move_is_not_charged(
    bench: "Bench",
    outputs: Outputs,
    limits: Limits,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    after: bool,
) -> None:
    path = bench.root / "made"
    path.write_bytes(b"data")
    _fails(monkeypatch, call, errno.EIO, after=after)
    with pytest.raises(FileSystemTrouble, match="made"):
        outputs.take(path, limits)


def test_a_look_at_a_document_that_the_file_system_does_not_answer_is_not_charged(
    bench: "Bench", monkeypatch: pytest.MonkeyPatch
) -> None:
    (bench.root / "in").mkdir()
    (bench.root / "in" / "doc.d-1.working").write_bytes(b"data")
    document = Document("doc", 0, "in", bench.directory("in"), "doc.d-1.working")
    _fails(monkeypatch, "stat", errno.EIO, after=False)
    with pytest.raises(FileSystemTrouble, match="doc"):
        _ = document.path
    _fails(monkeypatch, "stat", errno.EIO, after=False)
    with pytest.raises(FileSystemTrouble, match="doc"):
        document.check()
    assert document.path.endswith("in/doc.d-1.working")


def test_a_look_at_a_programs_output_that_the_file_system_does_not_answer_is_not_charged(
    outputs: Outputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = outputs.reserve()
    Path(path).write_bytes(b"data")
    _fails(monkeypatch, "stat", errno.EIO, after=False)
    with pytest.raises(FileSystemTrouble, match="looking at"):
        outputs.is_file(path)
    assert outputs.is_file(path)


def test_a_path_is_moved(bench: "Bench", outputs: Outputs, limits: Limits) -> None:
    path = bench.put("work/result", b"data")
    inode = path.stat().st_ino
    outputs.take(path, limits)
    assert not path.exists()
    (name,) = bench.ls("out")
    assert (bench.root / "out" / name).stat().st_ino == inode


def test_a_path_on_another_file_system_is_copied_and_removed(
    bench: "Bench", outputs: Outputs, limits: Limits
) -> None:
    elsewhere = Path("/dev/shm")
    if not elsewhere.is_dir() or elsewhere.stat().st_dev == bench.root.stat().st_dev:
        pytest.skip("there is but one file system to write on")
    path = elsewhere / f"queuedriver-test-{os.getpid()}"
    path.write_bytes(3_000_000 * b"x")
    try:
        outputs.take([path], limits)
        assert not path.exists()
    finally:
        path.unlink(missing_ok=True)
    assert bench.read(f"out/doc.{TOKEN}.writing") == 3_000_000 * b"x"


@pytest.mark.parametrize("state", ["working", "written"])
def test_a_claimed_file_is_copied_and_stays_claimed(
    bench: "Bench", outputs: Outputs, limits: Limits, state: str
) -> None:
    # Its own, or, in a batch, that of another document.
    for docid, token in [("doc", TOKEN), ("other", "d-0605d3a1f2b0c15a17")]:
        path = bench.put(f"in/{docid}.{token}.{state}", docid.encode())
        outputs.take([Output(path, docid=docid)], limits)
        assert path.read_bytes() == docid.encode()
        assert bench.read(f"out/{docid}.{TOKEN}.writing") == docid.encode()


@pytest.mark.parametrize("kind", ["nothing", "directory", "symlink", "fifo", "device"])
def test_a_path_to_no_regular_file_is_a_bad_answer(
    bench: "Bench", outputs: Outputs, limits: Limits, kind: str
) -> None:
    path = bench.root / "result"
    match kind:
        case "directory":
            path.mkdir()
        case "symlink":
            path.symlink_to(bench.put("secret"))
        case "fifo":
            os.mkfifo(path)
        case "device":
            path = Path("/dev/null")
    with pytest.raises(ProcessorFailed, match=r"not there|not a regular file") as caught:
        outputs.take(path, limits)
    assert cause(caught) == "bad-answer"
    outputs.discard()
    assert bench.ls("out") == []


# Reserved outputs


def test_a_reserved_output_is_for_the_caller_to_make(bench: "Bench", outputs: Outputs) -> None:
    one = outputs.reserve()
    two = outputs.reserve("x", "side", "xml")
    assert one == str(bench.root / f"out/doc.{TOKEN}.writing")
    assert two == str(bench.root / f"side/x.{TOKEN}.writing.xml")
    assert bench.ls("out") == bench.ls("side") == []
    with pytest.raises(ProcessorFailed, match="would both be"):
        outputs.reserve()
    Path(two).touch()
    outputs.forget(two)
    outputs.forget(two)
    assert bench.ls("side") == []
    assert [noted.final for noted in outputs.written] == ["doc.ready"]


def test_a_directory_in_the_place_of_an_output_is_removed_with_it(
    bench: "Bench", outputs: Outputs
) -> None:
    path = Path(outputs.reserve())
    (path / "deep").mkdir(parents=True)
    (path / "deep/file").touch()
    outputs.discard()
    assert bench.ls("out") == []


def test_an_opened_output_is_new_and_is_not_given_to_children(
    bench: "Bench", outputs: Outputs
) -> None:
    fd = outputs.open_reserved()
    try:
        os.write(fd, b"stdout")
        assert not os.get_inheritable(fd)
    finally:
        os.close(fd)
    assert not outputs.need_plan
    assert bench.read(f"out/doc.{TOKEN}.writing") == b"stdout"


# When writing fails


def test_an_output_directory_that_is_gone_is_nobodys_fault(
    bench: "Bench", outputs: Outputs, limits: Limits
) -> None:
    os.rmdir(bench.root / "out")
    (bench.root / "out").mkdir()
    for act in (lambda: outputs.take(b"x", limits), outputs.open_reserved):
        with pytest.raises(FileSystemTrouble, match="writing an output of 'doc'"):
            act()
        outputs.discard()


def test_a_full_disk_is_nobodys_fault_and_what_it_cut_short_is_removed(
    bench: "Bench", limits: Limits
) -> None:
    if os.geteuid():
        pytest.skip("only root may mount")
    disk = bench.root / "full"
    disk.mkdir()
    if os.system(f"mount -t tmpfs -o size=64k tmpfs {disk}"):
        pytest.skip("this root may not mount")
    try:
        outputs = Outputs("doc", TOKEN, (bench.target("full"),))
        for answer in (bytes(200_000), bench.put("result", bytes(200_000))):
            with pytest.raises(FileSystemTrouble) as caught:
                outputs.take(answer, limits)
            assert caught.value.errno == errno.ENOSPC
            outputs.discard()
            assert bench.ls("full") == []
        outputs.take(b"small", limits)
        outputs.discard()
        outputs.targets[0].directory.close()
    finally:
        os.system(f"umount {disk}")


def test_an_output_that_no_file_may_be_as_large_as_is_its_documents_fault(
    bench: "Bench", outputs: Outputs, limits: Limits
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError, match="too large") as caught:
            outputs.take(bytes(2000), limits)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    assert not isinstance(caught.value, FileSystemTrouble)
    outputs.discard()
    assert bench.ls("out") == []


# Limits


def test_only_the_users_code_is_interrupted_and_not_the_writing_of_its_answers(
    bench: "Bench", outputs: Outputs
) -> None:
    limits = Limits(Options(timeout=1e-6))
    limits.install()
    limits.begin()
    try:

        def answers() -> Iterator[bytes]:
            yield b"1"
            signal.pause()

        with pytest.raises(Interrupted):
            outputs.take(answers(), limits)
        # Past its time-out, outside of the user's code, there is no alarm.
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    finally:
        limits.restore()
        limits.close()


# Documents


def document(bench: "Bench", name: str = f"doc.{TOKEN}.working") -> Document:
    return Document("doc", 0, "in", bench.directory("in"), name)


def test_a_document_is_read_in_each_way(bench: "Bench") -> None:
    bench.put(f"in/doc.{TOKEN}.working", b"content")
    one = document(bench)
    assert one.read() == b"content"
    with one.open() as file:
        assert file.read() == b"content"
    assert Path(one.path).read_bytes() == b"content"
    fd = one.descriptor()
    os.close(fd)
    one.check()
    assert repr(one) == "<Document 'doc' of in, attempt 0>"


@pytest.mark.parametrize("kind", ["directory", "symlink", "fifo"])
def test_what_is_dressed_as_a_document_is_given_up_at_once(bench: "Bench", kind: str) -> None:
    path = bench.directory("in").path + f"/doc.{TOKEN}.working"
    match kind:
        case "directory":
            os.mkdir(path)
        case "symlink":
            os.symlink(bench.put("secret"), path)
        case _:
            os.mkfifo(path)
    one = document(bench)
    # Also when its processor never looks at it.
    for act in (one.read, one.open, one.descriptor, lambda: one.path, one.check):
        with pytest.raises(ProcessorFailed) as caught:
            act()
        assert cause(caught) == "not-a-file"
        assert caught.value.failure.permanent


def test_a_document_that_was_taken_back_is_not_there(bench: "Bench") -> None:
    one = document(bench)
    for act in (one.read, one.open, one.descriptor, lambda: one.path):
        with pytest.raises(FileNotFoundError):
            act()
    one.check()


def test_documents_give_their_descriptors_back(bench: "Bench") -> None:
    bench.put(f"in/doc.{TOKEN}.working")
    (bench.root / "in/dir").mkdir()
    good, bad = document(bench), document(bench, "dir")
    before = open_files()
    for _ in range(3):
        good.read()
        with good.open():
            pass
        for act in (bad.read, bad.open):
            with pytest.raises(ProcessorFailed):
                act()
    assert open_files() <= before


def test_the_name_of_an_unfinished_output_tells_whose_it_is(
    outputs: Outputs, limits: Limits
) -> None:
    outputs.take(Output(b"", docid="a.b", ext="xml"), limits)
    item = names.parse(outputs.written[0].writing)
    assert item == names.Item("a.b", names.WRITING, token=TOKEN, ext="xml")
