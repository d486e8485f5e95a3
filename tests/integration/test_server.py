"""A program that stays, with real processes."""

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from queuedriver.claims.document import Document, Outputs, Target
from queuedriver.claims.outcomes import MAX_LATER
from queuedriver.disk.filesystem import Directory
from queuedriver.disk.processes import kill_marked
from queuedriver.errors import ConfigError, Interrupted, ProcessorFailed, QueueError, TryLater
from queuedriver.format.records import Failure
from queuedriver.format.settings import Publication
from queuedriver.processors.answers import MAX_LINE, Fault, parse, question, take_line
from queuedriver.processors.child import TAIL
from queuedriver.processors.server import ServerProcessor
from tests.holdings import child_processes, open_files, without_collections
from tests.limits import LimitsByFact
from tests.waiting import PATIENCE, is_alive, until

MARK = f"test-server-{os.getpid()}"
TOKEN = "1-00000000000000abcd"

# Does for each document what the document says, in Python; `say` answers.
OBEDIENT = """
import json, os, signal, sys, time
root = sys.argv[1]
open(f"{root}/starts", "a").write(f"{os.getpid()}\\n")
def say(**answer):
    print(json.dumps(answer), flush=True)
def write(text, path=None):
    with open(path or asked["output"], "w") as file:
        file.write(text)
exec(sys.argv[2])
for line in sys.stdin:
    asked = json.loads(line)
    exec(open(asked["input"]).read())
open(f"{root}/left", "w").close()
"""


class Desk:
    """A server, and a claim for whatever it is told to do."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.input = Directory.open(root / "in", create=True)
        self.queues = {name: Directory.open(root / name, create=True) for name in ("out", "bad")}
        self.limits = LimitsByFact()
        self.claims = 0
        self.processor: ServerProcessor | None = None
        (root / "server.py").write_text(OBEDIENT)

    def start(self, first: str = "", start_timeout: float = 600.0, grace: float = 5.0) -> None:
        command = [sys.executable, "-IS", str(self.root / "server.py"), str(self.root), first]
        self.processor = ServerProcessor(command, start_timeout)
        self.processor.grace = grace
        self.processor.start(MARK)

    def claim(self, orders: str, docid: str | None = None) -> tuple[Document, Outputs]:
        self.claims += 1
        docid = docid or f"doc{self.claims}"
        name = f"{docid}.{TOKEN}.working"
        self.input.write_new(name, orders.encode())
        targets = tuple(
            Target(name, directory, Publication("{docid}.ready"))
            for name, directory in self.queues.items()
        )
        document = Document(docid, 0, "in", self.input, name)
        return document, Outputs(docid, TOKEN, targets)

    def do(self, orders: str, docid: str | None = None) -> dict[str, str]:
        if self.processor is None:
            self.start()
        assert self.processor is not None
        document, outputs = self.claim(orders, docid)
        self.limits.begin()
        self.processor.process(document, outputs, self.limits)
        queues = list(self.queues)
        return {
            f"{queues[one.queue]}/{one.writing.replace(TOKEN, 'N')}": (
                self.root / queues[one.queue] / one.writing
            ).read_text()
            for one in outputs.written
        }

    def failure(self, orders: str) -> Failure:
        with pytest.raises(ProcessorFailed) as caught:
            self.do(orders)
        return caught.value.failure

    def starts(self) -> list[int]:
        return [int(pid) for pid in (self.root / "starts").read_text().split()]

    def close(self) -> None:
        if self.processor is not None:
            self.processor.stop()
        self.limits.restore()
        self.limits.close()
        for directory in (self.input, *self.queues.values()):
            directory.close()
        kill_marked([MARK])


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.close()


# Answers


@pytest.mark.quick
def test_one_server_answers_for_many_documents(desk: Desk) -> None:
    for number in range(3):
        written = desk.do(f"write('{number}'); say(ok=True)", f"d{number}")
        assert written == {f"out/d{number}.N.writing": str(number)}
    assert len(desk.starts()) == 1


def test_server_is_asked_with_docid_attempt_and_paths(desk: Desk) -> None:
    (text,) = desk.do(
        "write(json.dumps(asked)); say(ok=True, docid=asked['docid'])", "ä b"
    ).values()
    assert json.loads(text) == {
        "docid": "ä b",
        "attempt": 0,
        "input": f"{desk.root}/in/ä b.{TOKEN}.working",
        "output": f"{desk.root}/out/ä b.{TOKEN}.writing",
    }


def test_name_that_is_not_utf_8_reaches_the_server_as_it_is(desk: Desk) -> None:
    assert list(desk.do("write('x'); say(ok=True)", "caf\udce9")) == ["out/caf\udce9.N.writing"]


def test_answer_may_have_no_output(desk: Desk) -> None:
    assert desk.do("say(ok=True, outputs=[])") == {}
    assert desk.do("write('unwanted'); say(outputs=[])") == {}
    assert os.listdir(desk.root / "out") == []


def test_answer_may_have_several_outputs_for_several_queues(desk: Desk) -> None:
    written = desk.do(
        "write('one', f'{root}/one'); write('two', f'{root}/two'); write('main');"
        "say(outputs=[dict(path=f'{root}/one', docid='a', ext='txt'), dict(path=asked['output']),"
        "             dict(path=f'{root}/two', queue='bad')])",
        "d",
    )
    assert written == {
        "out/d.N.writing": "main",
        "out/a.N.writing.txt": "one",
        "bad/d.N.writing": "two",
    }
    assert not (desk.root / "one").exists()


def test_file_of_the_server_may_take_the_place_of_the_output(desk: Desk) -> None:
    written = desk.do("write('x', f'{root}/x'); say(outputs=[dict(path=f'{root}/x')])", "d")
    assert written == {"out/d.N.writing": "x"}


@pytest.mark.parametrize(
    ("orders", "words"),
    [
        ("say(ok=True)", "said ok, but did not write the output"),
        ("os.mkfifo(asked['output']); say(ok=True)", "not a regular file"),
        ("say(outputs=[dict(path='/no/such')])", "a file that is not there"),
        ("say(outputs=[dict(path='/tmp')])", "not a regular file"),
        ("write(''); say(outputs=[dict(path=asked['output'], queue='bad')])", "write another"),
        (
            "write('', root + '/x'); say(outputs=[dict(path=root + '/x', queue='no')])",
            "no output q",
        ),
        ("write('', root + '/x'); say(outputs=[dict(path=root + '/x', docid='.')])", "'.' cannot"),
    ],
)
def test_answer_about_outputs_that_is_wrong_fails_the_document_and_keeps_the_server(
    desk: Desk, orders: str, words: str
) -> None:
    failure = desk.failure(orders)
    assert failure.cause == "bad-answer"
    assert words in failure.message
    desk.do("write(''); say(ok=True)")
    assert len(desk.starts()) == 1


def test_error_is_a_failure_with_what_the_server_wrote_on_stderr_about_it(desk: Desk) -> None:
    desk.do("print('old news', file=sys.stderr); write(''); say(ok=True)")
    failure = desk.failure("sys.stderr.write('new\\n'); say(error='no text', traceback='line 1')")
    peak_memory = failure.peak_memory or 0
    assert failure == Failure(
        cause="exception",
        message="no text",
        traceback="line 1",
        stderr_tail="new\n",
        peak_memory=peak_memory,
    )
    assert 1 << 20 < peak_memory < 1 << 30
    assert desk.failure("say(error='no PDF', permanent=True)").permanent
    assert len(desk.starts()) == 1


def test_later_gives_the_document_back(desk: Desk) -> None:
    with pytest.raises(TryLater) as caught:
        desk.do("say(later=30, reason='busy')")
    assert (caught.value.after, caught.value.reason) == (30.0, "busy")


# Faults


@pytest.mark.parametrize(
    ("orders", "words"),
    [
        ("print('loading…', flush=True)", "said something that is no answer"),
        ("say()", "said none, or more than one"),
        ("say(ok=True, error='x')", "said none, or more than one"),
        ("say(ok=True, docid='another')", "answered for 'another' when asked for 'doc1'"),
        ("print('x' * 2_000_000, flush=True)", "a line of more than 1048576 bytes: xxx"),
        ("print('x' * 2_000_000, end='', flush=True); time.sleep(60)", "a line of more than"),
        ("say(ready=True); say(ready=True)", "said ready when it had said something before"),
        ("os.close(1); time.sleep(60)", "closed a pipe before it answered"),
    ],
)
def test_server_that_breaks_the_rules_fails_one_document_and_is_restarted(
    desk: Desk, orders: str, words: str
) -> None:
    failure = desk.failure(orders)
    assert failure.cause == "server"
    assert words in failure.message
    assert not is_alive(desk.starts()[0])
    assert desk.do("write('fine'); say(ok=True)", "d") == {"out/d.N.writing": "fine"}
    assert len(desk.starts()) == 2


@pytest.mark.parametrize(
    ("orders", "exit_code", "name"),
    [("sys.exit(3)", 3, None), ("os.kill(os.getpid(), signal.SIGSEGV)", None, "SIGSEGV")],
)
def test_server_that_dies_fails_one_document_and_is_restarted(
    desk: Desk, orders: str, exit_code: int | None, name: str | None
) -> None:
    prepare = "import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0));"
    failure = desk.failure(f"{prepare} write('half'); print('oh', file=sys.stderr); {orders}")
    assert (failure.cause, failure.exit_code, failure.signal) == ("server", exit_code, name)
    assert failure.stderr_tail == "oh\n"
    assert failure.message.endswith("before it answered: oh")
    desk.do("write(''); say(ok=True)")
    assert len(desk.starts()) == 2


def test_server_that_answers_and_then_dies_has_answered(desk: Desk) -> None:
    assert desk.do("write('x'); say(ok=True); sys.exit(1)", "d") == {"out/d.N.writing": "x"}
    desk.do("write(''); say(ok=True)")
    assert len(desk.starts()) == 2


def test_death_without_a_document_is_charged_to_none(desk: Desk) -> None:
    desk.do("write(''); say(ok=True)")
    (pid,) = desk.starts()
    os.kill(pid, 9)
    until(lambda: not is_alive(pid))
    desk.do("write(''); say(ok=True)")
    assert len(desk.starts()) == 2


def test_no_thread_left_on_the_machine_is_charged_to_none_and_leaves_nothing_open(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    desk.do("write(''); say(ok=True)")
    (pid,) = desk.starts()
    os.kill(pid, 9)
    until(lambda: not is_alive(pid))
    with without_collections(), monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(TryLater, match="cannot be started now: can't start new thread"):
            desk.do("write(''); say(ok=True)")
        before = open_files()
        with pytest.raises(TryLater):
            desk.do("write(''); say(ok=True)")
        assert open_files() == before
    desk.do("write(''); say(ok=True)")
    assert len(desk.starts()) == 2


def test_answer_without_a_question_is_never_taken_for_the_next_document(desk: Desk) -> None:
    said = desk.root / "said"
    desk.do(f"write(''); say(ok=True); time.sleep(0.05); say(ok=True); open({str(said)!r}, 'w')")
    until(said.exists)
    assert desk.do("write('mine'); say(ok=True)", "d") == {"out/d.N.writing": "mine"}
    assert len(desk.starts()) == 2


def test_child_of_a_dead_server_that_holds_its_pipes_does_not_delay_us(desk: Desk) -> None:
    began = time.monotonic()
    failure = desk.failure(
        "import subprocess; subprocess.Popen(['setsid', 'sleep', '600']); os._exit(9)"
    )
    assert (failure.cause, failure.exit_code) == ("server", 9)
    assert time.monotonic() - began < PATIENCE


def test_hung_server_is_killed_with_its_children_and_restarted(desk: Desk) -> None:
    desk.start(grace=0.2)
    desk.do("write(''); say(ok=True)")
    desk.limits.over = desk.root / "pid"
    failure = desk.failure(
        "import subprocess\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen(['sh', '-c', 'sleep 60; sleep 60'])\n"
        "print('thinking', file=sys.stderr)\n"
        "write(str(child.pid), f'{root}/new')\n"
        "os.rename(f'{root}/new', f'{root}/pid')\n"
        "time.sleep(60)\n"
    )
    assert (failure.cause, failure.stderr_tail) == ("timeout", "thinking\n")
    assert (failure.peak_memory or 0) > 1 << 20
    assert not is_alive(desk.starts()[0])
    assert not is_alive(int((desk.root / "pid").read_text()))
    desk.limits.over = None
    desk.do("write(''); say(ok=True)")
    assert len(desk.starts()) == 2


def test_server_that_does_not_read_its_stdin_is_ended_at_the_time_out(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.processor = ServerProcessor(["sleep", "60"], start_timeout=0.1)
    desk.processor.start(MARK)
    desk.limits.timeout = 0.2
    assert desk.failure("").cause == "timeout"
    desk.close()


# Starting


def test_time_out_of_a_document_starts_when_its_server_is_ready(desk: Desk) -> None:
    desk.start("time.sleep(1.6); say(ready=True)")
    desk.limits.timeout = 1.5
    assert desk.do("write('x'); say(ok=True)", "d") == {"out/d.N.writing": "x"}
    assert desk.failure("time.sleep(60)").cause == "timeout"


def test_server_that_is_ready_has_no_more_than_the_time_out(desk: Desk) -> None:
    desk.start("say(ready=True)")
    desk.limits.timeout = 0.4
    began = time.monotonic()
    assert desk.failure("time.sleep(600)").cause == "timeout"
    assert time.monotonic() - began < PATIENCE


def test_server_that_never_says_ready_has_the_start_timeout_for_its_first_document(
    desk: Desk,
) -> None:
    desk.start(start_timeout=2.0)
    desk.limits.timeout = 0.2
    desk.do("time.sleep(0.3); write(''); say(ok=True)")
    assert desk.failure("time.sleep(600)").cause == "timeout"
    began = time.monotonic()
    assert desk.failure("time.sleep(600)").cause == "timeout"
    assert 1.9 < time.monotonic() - began < PATIENCE


def test_program_that_is_not_there_is_refused_at_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigError, match="'my-model' is not on the PATH"):
        ServerProcessor("my-model --serve").start(MARK)


def test_program_that_vanished_is_a_configuration_error_and_not_a_documents_fault(
    desk: Desk,
) -> None:
    program = desk.root / "program"
    program.write_text("#!/bin/sh\nread line\nexit 1\n")
    program.chmod(0o755)
    desk.processor = ServerProcessor([str(program)])
    desk.processor.start(MARK)
    desk.failure("")
    program.unlink()
    with pytest.raises(ConfigError, match="it was removed"):
        desk.do("")


def test_server_that_never_reads_a_document_is_nobodys_fault_and_ends_the_driver(
    desk: Desk,
) -> None:
    desk.start("print('no model', file=sys.stderr); sys.exit(2)")
    words = "ended with exit code 2 before it answered: no model; it does not get as far as"
    with pytest.raises(QueueError, match=words):
        desk.do("")
    # The first one may have died before there was a document.
    assert len(desk.starts()) in (2, 3)


# stderr


def test_idle_server_can_write_as_much_on_stderr_as_it_likes(desk: Desk) -> None:
    written = desk.root / "written"
    desk.do(
        "write(''); say(ok=True)\n"
        "for _ in range(1000): sys.stderr.write('x' * 100_000)\n"
        f"open({str(written)!r}, 'w').close()\n"
    )
    # Nobody asks the server anything meanwhile.
    until(written.exists)
    failure = desk.failure("sys.stderr.write('y' * 200_000 + 'end'); say(error='e')")
    notice, text = (failure.stderr_tail or "").split("\n", 1)
    assert notice == f"… {200_003 - TAIL} bytes left out …"
    assert len(text) == TAIL
    assert set(text.removesuffix("end")) == {"y"}


# Leaving


def test_server_leaves_when_its_stdin_is_closed(desk: Desk) -> None:
    desk.do("write(''); say(ok=True)")
    assert desk.processor is not None
    desk.processor.stop()
    assert (desk.root / "left").exists()
    desk.processor.stop()


def test_server_that_does_not_leave_is_asked_and_then_killed(desk: Desk) -> None:
    desk.start("signal.signal(signal.SIGTERM, signal.SIG_IGN)", grace=0.1)
    desk.do("write(''); say(ok=True); time.sleep(60)")
    assert desk.processor is not None
    desk.processor.stop()
    assert not is_alive(desk.starts()[0])


def test_dead_server_does_not_disturb_the_leaving(desk: Desk) -> None:
    desk.do("write(''); say(ok=True); os._exit(1)")
    until(lambda: not is_alive(desk.starts()[0]))


def test_document_at_hand_is_given_back_when_the_grace_is_over(desk: Desk) -> None:
    desk.limits.grace = 0.2
    desk.limits.install()
    with pytest.raises(Interrupted) as caught:
        desk.do("os.kill(os.getppid(), signal.SIGTERM); time.sleep(60)")
    assert caught.value.reason == "leaving"
    assert not is_alive(desk.starts()[0])


def test_second_signal_is_heard_while_the_server_loads(desk: Desk) -> None:
    desk.limits.timeout = 0.1
    desk.limits.install()
    # Two that come close together are one wish.
    desk.start("while True: os.kill(os.getppid(), signal.SIGTERM); time.sleep(0.15)")
    with pytest.raises(Interrupted):
        desk.do("")


def test_no_descriptor_no_thread_and_no_zombie_stays(desk: Desk) -> None:
    descriptors, threads = open_files(), set(threading.enumerate())
    children = child_processes()
    desk.start()
    for _ in range(3):
        desk.do("write(''); say(ok=True)")
        desk.failure("sys.exit(1)")
    assert desk.processor is not None
    desk.processor.stop()
    # What earlier tests left may be collected, or end, meanwhile.
    assert open_files() <= descriptors
    assert set(threading.enumerate()) <= threads
    # Not one that has ended, either, and waits to be collected.
    assert child_processes() <= children


# Lines


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 100_000,
        b'{"ok": 1}',
        b'{"ok": false}',
        b'{"later": -1}',
        b'{"later": NaN}',
        b'{"later": Infinity}',
        b'{"later": 1e999}',
        b'{"later": %d}' % (MAX_LATER + 1),
        b'{"later": 1' + b"0" * 400 + b"}",
        b'{"later": 1' + b"0" * 5000 + b"}",
        b'{"later": "5"}',
        b'{"error": null}',
        b'{"outputs": ["path"]}',
        b'{"outputs": [{"path": ""}]}',
        b'{"outputs": [{"path": "a\\u0000b"}]}',
        b'{"outputs": [{"path": "\\ud800"}]}',
        b'{"ready": true, "ok": true}',
    ],
)
def test_line_that_is_no_answer_is_a_fault(line: bytes) -> None:
    with pytest.raises(Fault):
        parse(line)


def test_lines_come_whole_however_their_bytes_come() -> None:
    text = b'{"ok": true}\n{"later": 1}\n\nrest'
    for size in (1, 2, 5, len(text)):
        said, found = bytearray(), []
        for start in range(0, len(text), size):
            said += text[start : start + size]
            while (line := take_line(said)) is not None:
                found.append(line)
        assert found == [b'{"ok": true}', b'{"later": 1}', b""]
        assert said == b"rest"


def test_line_of_the_greatest_length_is_taken_and_one_byte_more_is_not() -> None:
    said = bytearray(b"x" * MAX_LINE + b"\n")
    assert len(take_line(said) or b"") == MAX_LINE
    said += b"x" * (MAX_LINE + 1)
    with pytest.raises(Fault, match="a line of more than"):
        take_line(said)


def test_question_is_one_line_of_ascii() -> None:
    line = question("a\n\udce9ü", 1, "/in", None)
    assert line.isascii()
    assert line.index(b"\n") == len(line) - 1
    assert json.loads(line) == {"docid": "a\n\udce9ü", "attempt": 1, "input": "/in", "output": None}
