"""Brokers and workers as they are started: how they leave, what they refuse, who is let in."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import IO

import pytest

from queuedriver.doors.transports.curve import Doorkeeper, load_keys, make_keys
from queuedriver.driving.lifetime import LEAVING_TAKES
from queuedriver.operating.queue import Queue
from tests.cli.processes import command, ended, start
from tests.cli.queues import listed, submit
from tests.endpoints import own_endpoint
from tests.waiting import contents, next_line, until, until_heard

_MODULE = """
import os
import time
from pathlib import Path
from queuedriver import Output

HERE = Path(__file__).parent

def shout(document):
    return document.read().upper()

def wait(document):
    (HERE / "began").touch()
    while not (HERE / "go").exists():
        time.sleep(0.005)
    return document.read().upper()

def hang(document):
    (HERE / "began").touch()
    while True:
        try:
            time.sleep(100)
        except BaseException:
            pass

def two(document):
    return [b"one", Output(b"two", "other")]

def broken(document):
    with (HERE / "tried").open("a") as file:
        print(document.docid, file=file)
    if (HERE / "go").exists():
        return b"mended"
    raise ConnectionError("no answer")

def large(document):
    return bytes(100_000)

def poison(document):
    content = document.read()
    if content == b"poison":
        os._exit(3)
    return content.upper()
"""

# A broker whose stage does not wait for half a minute until it tries a document.
_HASTY = """
from queuedriver.driving import breaker
breaker.FIRST_TRIAL = 0.2
from queuedriver.cli import main
main()
"""

Process = subprocess.Popen[bytes]


def says(process: Process, words: str, where: IO[bytes] | None = None) -> str:
    """Read what a process says up to these words; return the line that has them."""
    stream = where or process.stderr
    assert stream is not None
    while words not in (line := next_line(stream)):
        assert line, f"it ended without {words!r}"
    return line


class Place:
    """An input, an output, and who is at work on them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.input, self.output = root / "in", root / "out"
        self.output.mkdir()
        submit(self.input)
        (root / "loud.py").write_text(_MODULE)
        self.endpoint = own_endpoint()
        self.protocol = "pingpong"
        self._all: list[Process] = []

    def broker(self, *more: str) -> Process:
        """One that listens; always at the same address."""
        args = ("--to", "out", "--listen", self.endpoint, *more)
        process = self._start("broker", self.protocol, "in", *args)
        assert process.stderr is not None
        line = next_line(process.stderr)
        found = re.search(r"tcp://[0-9.:]+", line)
        assert found, line + process.stderr.read().decode()
        self.endpoint = found[0]
        return process

    def worker(self, function: str = "shout", *more: str) -> Process:
        args = (self.endpoint, "--call", f"loud:{function}", *more)
        return self._start("worker", self.protocol, *args)

    def _start(self, *args: str) -> Process:
        process = start(*args, cwd=self.root)
        self.kill_at_end(process)
        return process

    def kill_at_end(self, process: Process) -> None:
        self._all.append(process)

    def end(self) -> None:
        for process in self._all:
            process.kill()
            with contextlib.suppress(ValueError):
                process.communicate()

    def began(self) -> None:
        until((self.root / "began").exists)

    def outputs(self) -> dict[str, bytes]:
        return contents(self.output)

    def items(self) -> list[str]:
        return [name for name in listed(self.input) if name[0] != "." and name != "discarded"]

    def cause(self, docid: str) -> str:
        with Queue.open(self.input) as queue:
            report = queue.report(docid)
        assert report is not None
        return report.failure.cause


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    place.end()


def any_ended(processes: Iterable[Process]) -> bool:
    return any(process.poll() is not None for process in processes)


def ask(process: Process, number: signal.Signals = signal.SIGTERM) -> int:
    process.send_signal(number)
    return ended(process).code


# Leaving


@pytest.mark.quick
def test_drained_broker_leaves_and_takes_its_worker_along(place: Place) -> None:
    submit(place.input, "a", "b", "c")
    broker = place.broker("--drain")
    worker = place.worker()
    said = ended(broker)
    # Of a worker that takes long to start it is said first that there is none.
    last = said.err.splitlines()[-1]
    assert (said.code, last) == (0, "queuedriver: drained: the queue is drained; 3 documents done")
    assert ended(worker).code == 0
    assert place.outputs() == {f"{docid}.ready": b"CONTENT" for docid in "abc"}
    assert place.items() == []


def writes_into_pipe(pid: int) -> bool:
    """Whether a thread of a process waits for somebody who reads."""
    for one in Path(f"/proc/{pid}/task").glob("*/wchan"):
        # A thread may end meanwhile.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if "pipe_write" in one.read_text():
                return True
    return False


@pytest.mark.parametrize("late", ["broker", "worker"])
def test_wish_to_leave_that_comes_at_the_end_of_either_changes_no_exit_code(
    place: Place, late: str
) -> None:
    reader, writer = os.pipe()
    listen = ("--listen", "tcp://127.0.0.1:*")
    words: tuple[str, ...] = ("broker", "pingpong", "in", "--to", "out", *listen)
    if late == "worker":
        place.broker()
        words = ("worker", "pingpong", place.endpoint, "--call", "loud:shout")
    with start(*words, cwd=place.root, stderr=writer) as process, open(reader, "rb", 0) as said:
        place.kill_at_end(process)
        assert "Ctrl-C to leave" in next_line(said)
        # Its last words have to wait until somebody reads.
        os.set_blocking(writer, False)
        with contextlib.suppress(BlockingIOError):
            while os.write(writer, b"x" * 4096):
                pass
        os.set_blocking(writer, True)
        os.close(writer)
        (place.input / "done").touch()
        until(lambda: writes_into_pipe(process.pid))
        process.send_signal(signal.SIGTERM)
        assert b"done" in said.read() or late == "worker"
    assert process.returncode == 0


def test_broker_at_a_port_that_the_kernel_chose_is_known_to_workers_by_that_address(
    place: Place,
) -> None:
    place.protocol = "roundrobin"
    submit(place.input, "a")
    broker = place.broker("--drain")
    assert not place.endpoint.endswith("*")
    place.worker()
    assert ended(broker).code == 0
    assert place.outputs() == {"a.ready": b"CONTENT"}


def test_broker_whose_documents_all_fail_for_one_cause_stops_its_stage(place: Place) -> None:
    submit(place.input, *(f"doc{number}" for number in range(40)))
    broker = place.broker("--drain", "--retries", "0")
    place.worker("broken")
    said = ended(broker)
    assert said.code == 75
    assert "20 documents in a row failed for one cause (ConnectionError: no answer)" in said.err
    assert len(place.items()) == 20


def test_stage_of_a_broker_tries_a_document_now_and_then_and_goes_on_when_one_is_done(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(place.input, *(f"doc{number}" for number in range(40)))
    monkeypatch.setattr("tests.cli.processes.QUEUEDRIVER", (sys.executable, "-c", _HASTY))
    broker = place.broker("--retries", "0")
    place.worker("broken")
    tried = place.root / "tried"
    until(lambda: tried.exists() and len(tried.read_text().split()) > 22, "some are tried")
    assert len(place.items()) == 20
    (place.root / "go").touch()
    until(lambda: len(place.outputs()) == 20, "all that waited is done")
    assert ask(broker) == 0


def test_broker_of_a_queue_that_is_done_closes_what_it_feeds(place: Place) -> None:
    submit(place.input, "doc")
    (place.input / "done").touch()
    broker = place.broker()
    worker = place.worker()
    assert [ended(broker).code, ended(worker).code] == [0, 0]
    assert (place.output / "done").exists()


def test_workers_wait_for_a_broker_that_was_asked_to_leave_and_comes_back(place: Place) -> None:
    broker = place.broker()
    worker = place.worker()
    submit(place.input, "first")
    until(place.outputs)
    assert ask(broker) == 0
    broker = place.broker()
    submit(place.input, "second")
    until(lambda: len(place.outputs()) == 2)
    assert worker.poll() is None
    assert [ask(worker), ask(broker)] == [0, 0]


@pytest.mark.parametrize("how", ["QUIT", "signal"])
def test_broker_that_is_asked_to_leave_waits_for_what_is_at_hand(place: Place, how: str) -> None:
    submit(place.input, "doc")
    broker = place.broker()
    worker = place.worker("wait")
    place.began()
    if how == "QUIT":
        (place.input / "QUIT").touch()
    else:
        broker.send_signal(signal.SIGTERM)
        until_heard(broker.pid, signal.SIGTERM)
    # Whoever sees what comes after the wish has looked for the wish.
    submit(place.input, "next")
    (place.root / "go").touch()
    assert ended(broker).code == 0
    # The other one waits for a broker.
    assert place.outputs() == {"doc.ready": b"CONTENT"}
    assert place.items() == [*(["QUIT"] if how == "QUIT" else []), "next.ready"]
    if how == "QUIT":
        assert ended(worker).code == 0


def test_second_wish_gives_back_what_is_at_hand_uncharged(place: Place) -> None:
    submit(place.input, "doc")
    broker = place.broker()
    place.worker("wait")
    place.began()

    def leaves() -> bool:
        # Signals that come together are one wish.
        broker.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            broker.wait(0.2)
        return broker.returncode is not None

    until(leaves)
    assert broker.returncode == 0
    assert place.items() == ["doc.ready"]


def test_grace_that_is_over_gives_back_what_is_at_hand(place: Place) -> None:
    submit(place.input, "doc")
    broker = place.broker("--grace", "50ms")
    place.worker("wait")
    place.began()
    assert ask(broker) == 0
    assert place.items() == ["doc.ready"]


def test_paused_broker_deals_nothing_and_takes_in_what_was_dealt(place: Place) -> None:
    submit(place.input, "doc")
    broker = place.broker()
    place.worker("wait")
    place.began()
    (place.input / "PAUSE").touch()
    submit(place.input, "next")
    (place.root / "go").touch()
    until(lambda: place.items() == ["PAUSE", "next.ready"], "the other one is finished")
    assert place.outputs() == {"doc.ready": b"CONTENT"}
    (place.input / "PAUSE").unlink()
    until(lambda: len(place.outputs()) == 2)
    assert ask(broker) == 0


def test_worker_that_is_asked_to_leave_ends_its_document_first(place: Place) -> None:
    submit(place.input, "doc")
    broker = place.broker("--drain")
    worker = place.worker("wait")
    place.began()
    worker.send_signal(signal.SIGTERM)
    (place.root / "go").touch()
    assert [ended(worker).code, ended(broker).code] == [0, 0]
    assert place.outputs() == {"doc.ready": b"CONTENT"}


def test_worker_whose_grace_is_over_gives_its_document_back_uncharged(place: Place) -> None:
    submit(place.input, "doc")
    broker = place.broker("--retries", "0")
    worker = place.worker("wait", "--grace", "50ms")
    place.began()
    assert ask(worker) == 0
    until(lambda: place.items() == ["doc.ready"])
    assert ask(broker) == 0


def test_worker_whose_time_ends_gives_its_document_back_uncharged(place: Place) -> None:
    submit(place.input, "doc")
    place.broker()
    seconds, began = 1.0, place.root / "began"
    while not began.exists():
        # Until one has begun before its time was over.
        seconds *= 2
        until_when = f"{time.time() + LEAVING_TAKES + seconds:.3f}"
        worker = place.worker("wait", "--grace", "0.1", "--until", until_when)
        assert ended(worker).code == 0
    place.worker()
    until(lambda: place.outputs() == {"doc.ready": b"CONTENT"})
    with Queue.open(place.input) as queue:
        assert queue.discarded() == []


def test_worker_that_has_done_enough_leaves_and_another_goes_on(place: Place) -> None:
    submit(place.input, "a", "b")
    broker = place.broker("--drain")
    assert ended(place.worker("shout", "--max-documents", "1")).code == 0
    until(place.outputs, "what it has done is published")
    assert len(place.outputs()) == 1
    place.worker()
    assert ended(broker).code == 0


# What does not work


def test_document_that_is_too_large_is_discarded_and_keeps_nobody_up(place: Place) -> None:
    submit(place.input, "large", content=b"x" * 1001)
    submit(place.input, "small", content=b"x" * 1000)
    broker = place.broker("--drain", "--max-message", "1000")
    place.worker()
    assert ended(broker).code == 1
    assert place.cause("large") == "too-large"
    assert list(place.outputs()) == ["small.ready"]


@pytest.mark.parametrize(("function", "words"), [("two", "2 outputs"), ("large", "100000 bytes")])
def test_result_that_cannot_be_sent_discards_its_document_alone(
    place: Place, function: str, words: str
) -> None:
    submit(place.input, "doc")
    broker = place.broker("--drain")
    place.worker(function, "--max-message", "1000")
    assert ended(broker).code == 1
    with Queue.open(place.input) as queue:
        report = queue.report("doc")
    assert report is not None
    assert words in report.failure.message
    # Permanent: it was not tried again.
    assert len(report.attempts) == 1


def test_processor_that_hangs_ends_its_worker_shows_where_and_costs_an_attempt(
    place: Place,
) -> None:
    submit(place.input, "doc")
    broker = place.broker("--drain", "--retries", "0")
    worker = place.worker("hang", "--timeout", "100ms", "--hard-after", "200ms")
    said = ended(worker)
    assert said.code == 1
    assert "in hang" in said.err
    assert ended(broker).code == 1
    assert place.cause("doc") == "worker-lost"


def test_document_that_ends_its_workers_is_discarded_and_nothing_that_was_beside_it(
    place: Place,
) -> None:
    innocents = [f"d{number}" for number in range(9)]
    submit(place.input, "poison", content=b"poison")
    submit(place.input, *innocents)
    place.protocol = "roundrobin"
    broker = place.broker("--drain")
    for _ in range(20):
        worker = place.worker("poison", "--slots", "10")
        until(partial(any_ended, (worker, broker)))
        if broker.poll() is not None:
            break
    assert ended(broker).code == 1
    assert place.cause("poison") == "worker-lost"
    with Queue.open(place.input) as queue:
        assert [queue.report(docid) for docid in innocents] == [None] * 9
    assert place.outputs() == {f"{docid}.ready": b"CONTENT" for docid in innocents}


def test_program_that_cannot_start_costs_no_document_anything(place: Place) -> None:
    submit(place.input, "doc")
    broker = place.broker("--retries", "0")
    program = place.root / "program"
    program.write_text("#!/nowhere/to/be/found\n")
    program.chmod(0o755)
    args = ("worker", "pingpong", place.endpoint, "--command", f"{program} {{input}} {{output}}")
    assert command(*args, cwd=place.root).code == 78
    until(lambda: place.items() == ["doc.ready"])
    place.worker()
    until(place.outputs)
    assert ask(broker) == 0


def test_address_that_is_taken_is_said_before_any_queue_is_touched(place: Place) -> None:
    place.broker()
    (place.root / "other").mkdir()
    args = ("--to", "out", "--listen", place.endpoint)
    said = command("broker", "pingpong", "other", *args, cwd=place.root)
    assert said.code == 73
    assert place.endpoint in said.err
    assert listed(place.root / "other") == []


def test_ipv6_will_do(place: Place) -> None:
    submit(place.input, "doc")
    args = ("broker", "pingpong", "in", "--to", "out", "--drain", "--listen", "tcp://[::1]:*")
    process = start(*args, cwd=place.root)
    place._all.append(process)
    assert process.stderr is not None
    line = next_line(process.stderr)
    if "cannot assign" in line.lower():
        pytest.skip("no IPv6 here")
    found = re.search(r"tcp://\[::1\]:[0-9]+", line)
    assert found, line
    place.endpoint = found[0]
    place.worker()
    assert ended(process).code == 0


@pytest.mark.parametrize(
    "args",
    [
        ("worker", "pingpong", "--call", "loud:shout"),
        ("worker", "roundrobin", "--call", "loud:shout"),
        ("worker", "roundrobin", "--console"),
        ("client", "roundrobin", "send", "loud.py"),
        ("client", "roundrobin", "send", "--exec", "loud.py"),
        ("client", "roundrobin", "--console"),
        ("client", "scale0", "request", "ocr", "loud.py"),
    ],
)
def test_whoever_finds_no_broker_says_so_and_tries_on(place: Place, args: tuple[str, ...]) -> None:
    nowhere = "tcp://127.0.0.1:1"
    process = place._start(*args[:2], nowhere, *args[2:])
    console = "--console" in args
    says(process, f"nobody answers at {nowhere}", process.stdout if console else process.stderr)
    assert process.poll() is None


@pytest.mark.parametrize("protocol", ["pingpong", "roundrobin"])
def test_broker_without_a_worker_for_what_waits_says_so_once(place: Place, protocol: str) -> None:
    place.protocol = protocol
    broker = place.broker()
    submit(place.input, "one", "two")
    says(broker, "no worker is connected; what waits is dealt when one comes")
    until(lambda: "no worker is connected" in command("status", "in", cwd=place.root).out)
    place.worker()
    until(lambda: len(place.outputs()) == 2)
    assert ask(broker) == 0
    assert "no worker" not in ended(broker).err


def test_broker_of_services_says_for_which_no_worker_is_there(place: Place) -> None:
    submit(place.root / "other")
    args = ("--service", "loud=in:out", "--service", "soft=other:out", "--listen", place.endpoint)
    broker = place._start("broker", "scale0", *args)
    place.endpoint = re.findall(r"tcp://[0-9.:]+", says(broker, "tcp://"))[0]
    place._start("worker", "scale0", place.endpoint, "--service", "loud", "--call", "loud:shout")
    submit(place.input, "one")
    submit(place.root / "other", "two")
    says(broker, "no worker of 'soft' is connected")
    until(lambda: len(place.outputs()) == 1)


def begin_services(place: Place, *said: str) -> None:
    """Start a broker of some services, as was said, and a worker of all of them."""
    broker = place._start("broker", "scale0", *said, "--listen", place.endpoint)
    place.endpoint = re.findall(r"tcp://[0-9.:]+", says(broker, "tcp://"))[0]
    place._start("worker", "scale0", place.endpoint, "--call", "loud:shout")


def test_service_whose_queue_is_paused_is_not_dealt_and_the_others_are(place: Place) -> None:
    submit(place.root / "other")
    (place.input / "PAUSE").touch()
    begin_services(place, "--service", "loud=in:out", "--service", "soft=other:out")
    submit(place.input, "held")
    for number in range(4):
        submit(place.root / "other", f"one{number}")
        until((place.output / f"one{number}.ready").exists)
    assert len(place.outputs()) == 4
    assert "held.ready" in place.items()
    (place.input / "PAUSE").unlink()
    until(lambda: "held.ready" in place.outputs())


def test_service_whose_output_is_full_is_not_dealt_and_the_others_are(place: Place) -> None:
    submit(place.root / "other")
    (place.root / "more").mkdir()
    (place.output / "old.ready").touch()
    services = ("--service", "loud=in:out", "--service", "soft=other:more")
    begin_services(place, *services, "--max-output-items", "1")
    submit(place.input, "held")
    for number in range(4):
        submit(place.root / "other", f"one{number}")
        done = place.root / f"more/one{number}.ready"
        until(done.exists)
        done.unlink()
    assert place.items() == ["held.ready"]
    # With nothing else to do it says what it waits for.
    until(lambda: "out holds 1 items or more" in command("status", "in", cwd=place.root).out)
    (place.output / "old.ready").unlink()
    until(lambda: "held.ready" in place.outputs())


def test_broker_of_services_that_drains_ends_when_nothing_is_left_but_what_has_no_room(
    place: Place,
) -> None:
    submit(place.root / "other", "one", "two")
    (place.root / "more").mkdir()
    submit(place.input, "held")
    (place.output / "old.ready").touch()
    (place.output / "older.ready").touch()
    services = ("--service", "loud=in:out", "--service", "soft=other:more")
    args = (*services, "--max-output-items", "2", "--drain", "--listen", place.endpoint)
    broker = place._start("broker", "scale0", *args)
    place.endpoint = re.findall(r"tcp://[0-9.:]+", says(broker, "tcp://"))[0]
    place._start("worker", "scale0", place.endpoint, "--call", "loud:shout")
    said = ended(broker)
    assert said.code == 75
    assert "out holds 2 items or more, and no driver empties it" in said.err
    assert set(contents(place.root / "more")) == {"one.ready", "two.ready"}
    assert place.items() == ["held.ready"]


def test_service_that_stops_itself_is_tried_now_and_then_and_the_others_go_on(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(place.root / "other")
    submit(place.input, *(f"doc{number}" for number in range(40)))
    monkeypatch.setattr("tests.cli.processes.QUEUEDRIVER", (sys.executable, "-c", _HASTY))
    args = ("--service", "loud=in:out", "--service", "soft=other:out", "--listen", place.endpoint)
    broker = place._start("broker", "scale0", *args, "--retries", "0")
    place.endpoint = re.findall(r"tcp://[0-9.:]+", says(broker, "tcp://"))[0]
    for service, function in (("loud", "broken"), ("soft", "shout")):
        call = ("--service", service, "--call", f"loud:{function}")
        place._start("worker", "scale0", place.endpoint, *call)
    trip = place.input / ".queuedriver/breaker.json"
    until(trip.exists)
    for number in range(3):
        submit(place.root / "other", f"one{number}")
        until((place.output / f"one{number}.ready").exists)
    # What another service has done says nothing of this one.
    assert trip.exists()
    assert len(place.items()) == 20
    (place.root / "go").touch()
    until(lambda: len(place.outputs()) == 23, "all that waited is done")
    until(lambda: not trip.exists(), "it has stopped no more")
    assert ask(broker) == 0


@pytest.mark.parametrize("other", [(), ("more",)])
def test_broker_of_services_that_drains_ends_when_nothing_is_left_but_what_has_stopped_itself(
    place: Place, other: tuple[str, ...]
) -> None:
    submit(place.root / "other", *other)
    submit(place.input, *(f"doc{number}" for number in range(40)))
    args = ("--service", "soft=other:out", "--service", "loud=in:out", "--listen", place.endpoint)
    broker = place._start("broker", "scale0", *args, "--retries", "0", "--drain")
    place.endpoint = re.findall(r"tcp://[0-9.:]+", says(broker, "tcp://"))[0]
    for service, function in (("loud", "broken"), ("soft", "shout")):
        call = ("--service", service, "--call", f"loud:{function}")
        place._start("worker", "scale0", place.endpoint, *call)
    said = ended(broker)
    assert said.code == 75
    assert "20 documents in a row failed for one cause (ConnectionError: no answer)" in said.err
    assert f"queuedriver resume {place.input} goes on" in said.err
    assert set(place.outputs()) == {f"{name}.ready" for name in other}


def test_worker_whose_broker_goes_by_another_address_says_so(place: Place) -> None:
    place.protocol = "roundrobin"
    place.broker("--advertise", "tcp://elsewhere:1")
    says(place.worker(), "is that how its broker is to be called?")


def test_client_whose_request_ends_its_worker_is_told_so(place: Place) -> None:
    place.protocol = "roundrobin"
    place.broker("--retries", "0")
    place.worker("poison")
    (place.root / "bad").write_bytes(b"poison")
    said = command("client", "roundrobin", place.endpoint, "send", "bad", cwd=place.root)
    assert said.code == 1
    assert "'bad': its worker was lost" in said.err


def test_answer_whose_file_is_there_is_refused_before_anything_is_asked(place: Place) -> None:
    (place.root / "answers").mkdir()
    (place.root / "answers/loud.py").write_text("an earlier one")
    ask = ("client", "roundrobin", "tcp://127.0.0.1:1", "send")
    said = command(*ask, "loud.py", "--to", "answers", cwd=place.root)
    assert said.code == 73
    assert "'answers/loud.py' is there already" in said.err
    (place.root / "other").mkdir()
    (place.root / "other/loud.py").write_text("of the same name")
    said = command(*ask, "loud.py", "other/loud.py", "--to", "new", cwd=place.root)
    assert said.code == 2
    assert "two of the files are called 'loud.py'" in said.err
    assert not (place.root / "new").exists()


def test_file_that_cannot_be_read_is_refused_before_anything_is_asked(place: Place) -> None:
    ask = ("client", "roundrobin", "tcp://127.0.0.1:1", "send", "loud.py")
    for name in ("missing", "in"):
        said = command(*ask, name, cwd=place.root)
        assert said.code == 66
        assert f"'{name}' is no file that can be read; nothing was asked" in said.err


def test_answer_that_names_a_file_that_is_there_is_told_and_the_others_are_written(
    place: Place,
) -> None:
    place.protocol = "roundrobin"
    place.broker()
    place.worker("two")
    for name in "abc":
        (place.root / name).write_bytes(b"anything")
    (place.root / "answers").mkdir()
    (place.root / "answers/other").write_bytes(b"mine")
    ask = ("client", "roundrobin", place.endpoint, "send", "a", "b", "c", "--to", "answers")
    said = command(*ask, cwd=place.root)
    assert said.code == 1
    assert said.err.count("'answers/other' is there already") == 3
    written = dict.fromkeys("abc", b"one")
    assert contents(place.root / "answers") == {**written, "other": b"mine"}


def test_worker_of_scale0_waits_for_its_broker_that_quits_and_comes_back(place: Place) -> None:
    def broker() -> Process:
        args = ("--service", "loud=in:out", "--listen", place.endpoint)
        process = place._start("broker", "scale0", *args)
        place.endpoint = re.findall(r"tcp://[0-9.:]+", says(process, "tcp://"))[0]
        return process

    first = broker()
    worker = place._start("worker", "scale0", place.endpoint, "--call", "loud:shout")
    submit(place.input, "one")
    until(lambda: len(place.outputs()) == 1)
    # The worker is to hear the last word of its broker and the end of the connection at once.
    worker.send_signal(signal.SIGSTOP)
    assert command("quit", "in", cwd=place.root).code == 0
    assert ended(first).code == 0
    worker.send_signal(signal.SIGCONT)
    says(worker, "503: this broker leaves")
    assert command("resume", "in", cwd=place.root).code == 0
    broker()
    submit(place.input, "two")
    until(lambda: len(place.outputs()) == 2)


# CURVE


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A broker's directory of keys, and a worker's whose key is authorized."""
    for side in ("broker", "worker", "stranger"):
        make_keys(str(tmp_path / side))
    own = {side: (tmp_path / side / "own.key").read_bytes() for side in ("broker", "worker")}
    (tmp_path / "broker/authorized/rose.key").write_bytes(own["worker"])
    for side in ("worker", "stranger"):
        (tmp_path / side / "broker.key").write_bytes(own["broker"])
    return tmp_path


def test_worker_whose_key_is_authorized_is_let_in_and_no_other(place: Place, keys: Path) -> None:
    submit(place.input, "doc")
    broker = place.broker("--curve", "broker", "--drain")
    stranger, keyless = place.worker("two", "--curve", "stranger"), place.worker("two")
    says(stranger, "refuses our key")
    says(keyless, "are keys and --curve right on both sides?")
    assert place.items() == ["doc.ready"]
    # Why, though nobody asked for more than is said anyway. Of somebody who hangs up first, without
    # having shown that it has no key, nothing can be said before it comes once more.
    key = load_keys(str(keys / "stranger")).public.decode()
    told = says(broker, "is refused") + says(broker, "is refused")
    assert "one side has keys (--curve), the other none" in told
    assert f"127.0.0.1 is refused: its key, {key}, is not in authorized/" in told
    place.worker("shout", "--curve", "worker")
    said = ended(broker)
    assert said.code == 0
    assert "is refused" not in said.err
    assert place.outputs() == {"doc.ready": b"CONTENT"}


def test_worker_that_was_refused_is_let_in_once_its_key_is_authorized(
    place: Place, keys: Path
) -> None:
    place.protocol = "roundrobin"
    broker = place.broker("--curve", "broker")
    says(place.worker("shout", "--curve", "stranger"), "refuses our key")
    broker.send_signal(signal.SIGTERM)
    assert ended(broker).code == 0
    key = (keys / "stranger/own.key").read_bytes()
    (keys / "broker/authorized/fern.key").write_bytes(key)
    place.broker("--curve", "broker")
    submit(place.input, "doc")
    until(lambda: place.outputs() == {"doc.ready": b"CONTENT"})


def test_broker_without_a_list_of_keys_does_not_start(place: Place, keys: Path) -> None:
    (keys / "broker/authorized/rose.key").unlink()
    args = ("broker", "pingpong", "in", "--to", "out", "--listen", "tcp://127.0.0.1:*")
    said = command(*args, "--curve", "broker", cwd=place.root)
    assert said.code == 78
    assert "authorized" in said.err


@pytest.mark.parametrize(
    ("spoil", "code", "words"),
    [
        (lambda side: (side / "own.key_secret").chmod(0o640), 77, "read by others"),
        (lambda side: (side / "own.key_secret").unlink(), 78, "queuedriver keys"),
        (lambda side: (side / "broker.key").unlink(), 78, "broker.key"),
        (lambda side: (side / "broker.key").write_text("none"), 78, "no key"),
        (
            lambda side: (side / "broker.key").write_text('curve\n    public-key = "short"\n'),
            78,
            "40 characters",
        ),
    ],
)
def test_keys_that_cannot_work_are_said(keys: Path, spoil: object, code: int, words: str) -> None:
    assert callable(spoil)
    spoil(keys / "worker")
    args = ("worker", "pingpong", "tcp://127.0.0.1:1", "--command", "cat", "--curve", "worker")
    said = command(*args, cwd=keys)
    assert said.code == code
    assert words in said.err


def test_identity_belongs_to_the_key_that_first_came_with_it(keys: Path) -> None:
    """Two that are authorized: neither can take the other's work by its name."""
    other = (keys / "stranger/own.key").read_bytes()
    (keys / "broker/authorized/fern.key").write_bytes(other)
    hub, rose, fern = (load_keys(str(keys / one)) for one in ("broker", "worker", "stranger"))
    zmq = pytest.importorskip("zmq")
    decode = pytest.importorskip("zmq.utils.z85").decode
    with zmq.Context() as context:
        door = Doorkeeper(context, hub)
        try:

            def come(identity: bytes, key: bytes) -> tuple[str, str]:
                question = [b"1.0", b"1", b"", b"127.0.0.1", identity, b"CURVE", decode(key)]
                return door.judge(question)

            assert come(b"one", rose.public) == ("rose", "")
            assert come(b"one", rose.public) == ("rose", "")
            assert come(b"one", fern.public) == ("", "another key than fern's came first as one")
            assert come(b"two", fern.public) == ("fern", "")
            assert come(b"", fern.public) == ("fern", "")
            unknown = f"its key, {hub.public.decode()}, is not in authorized/"
            assert come(b"three", hub.public) == ("", unknown)
            plain = [b"1.0", b"1", b"", b"127.0.0.1", b"x", b"PLAIN", b"ann", b"secret"]
            assert door.judge(plain) == ("", "it shows no key")
        finally:
            door.close()


def test_keys_are_made_for_their_owner_alone_and_never_over_others(tmp_path: Path) -> None:
    said = command("keys", "mine", cwd=tmp_path)
    assert (said.code, said.out) == (0, "mine/own.key\n")
    assert (tmp_path / "mine").stat().st_mode & 0o077 == 0
    assert (tmp_path / "mine/own.key_secret").stat().st_mode & 0o077 == 0
    before = (tmp_path / "mine/own.key_secret").read_bytes()
    assert command("keys", "mine", cwd=tmp_path).code == 78
    assert (tmp_path / "mine/own.key_secret").read_bytes() == before
    assert os.listdir(tmp_path / "mine/authorized") == []
