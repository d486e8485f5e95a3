"""A command for each document, with real processes."""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from queuedriver.claims.document import Document, Outputs, Target
from queuedriver.disk.filesystem import Directory
from queuedriver.disk.processes import kill_marked
from queuedriver.driving.limits import ASKED
from queuedriver.errors import ConfigError, Interrupted, ProcessorFailed, TryLater
from queuedriver.format.records import Failure
from queuedriver.format.settings import Publication
from queuedriver.processors.child import TAIL
from queuedriver.processors.command import CommandProcessor
from tests.drivers import Site
from tests.holdings import child_processes, open_files
from tests.limits import LimitsByFact
from tests.waiting import PATIENCE, is_alive

MARK = f"test-{os.getpid()}"
TOKEN = "1-00000000000000abcd"


class Desk:
    """One claimed document, and queues for its outputs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.input = Directory.open(root / "in", create=True)
        self.queues = {name: Directory.open(root / name, create=True) for name in ("out", "bad")}
        self.limits = LimitsByFact()
        self.processors: list[CommandProcessor] = []

    def claim(self, docid: str = "doc", content: bytes = b"text\n") -> tuple[Document, Outputs]:
        name = f"{docid}.{TOKEN}.working"
        self.input.write_new(name, content)
        document = Document(docid, 0, "in", self.input, name)
        targets = tuple(
            Target(name, directory, Publication("{docid}.ready"))
            for name, directory in self.queues.items()
        )
        return document, Outputs(docid, TOKEN, targets)

    def processor(self, command: str | Sequence[str], grace: float = 5.0) -> CommandProcessor:
        processor = CommandProcessor(command)
        processor.grace = grace
        self.processors.append(processor)
        processor.start(MARK)
        return processor

    def run(self, command: str | Sequence[str], docid: str = "doc", grace: float = 5.0) -> Outputs:
        document, outputs = self.claim(docid)
        self.limits.begin()
        self.processor(command, grace).process(document, outputs, self.limits)
        return outputs

    def sh(self, script: str, *arguments: str, grace: float = 5.0) -> Outputs:
        return self.run(["sh", "-c", script, "sh", *arguments], grace=grace)

    def failure(self, script: str, *arguments: str, grace: float = 5.0) -> Failure:
        with pytest.raises(ProcessorFailed) as caught:
            self.sh(script, *arguments, grace=grace)
        return caught.value.failure

    def written(self, outputs: Outputs) -> dict[str, bytes]:
        names = list(self.queues)
        return {
            f"{names[one.queue]}/{one.writing.replace(TOKEN, 'N')}": (
                self.root / names[one.queue] / one.writing
            ).read_bytes()
            for one in outputs.written
        }

    def close(self) -> None:
        for processor in self.processors:
            processor.stop()
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


# What goes in and what comes out


@pytest.mark.quick
def test_document_on_stdin_becomes_stdout(desk: Desk) -> None:
    outputs = desk.run("tr a-z A-Z")
    assert desk.written(outputs) == {"out/doc.N.writing": b"TEXT\n"}


@pytest.mark.quick
def test_paths_are_filled_in_and_stdin_is_empty(desk: Desk) -> None:
    outputs = desk.sh('cat - "$1" > "$2"; echo "$3 $4" >> "$2"',
                      "{input}", "{output}", "{docid}", "try={attempt}")  # fmt: skip
    assert desk.written(outputs) == {"out/doc.N.writing": b"text\ndoc try=0\n"}


def test_string_is_split_and_no_shell_sees_it(desk: Desk) -> None:
    outputs = desk.run("printf '%s|' 'a b' $HOME `id` *")
    assert desk.written(outputs) == {"out/doc.N.writing": b"a b|$HOME|`id`|*|"}


def test_docid_is_filled_in_once_and_never_understood(desk: Desk) -> None:
    docid = "$(touch pwned) {input};`x` -rf"
    outputs = desk.run(["printf", "%s|", "--id={docid}", "{input}"], docid)
    (content,) = desk.written(outputs).values()
    assert content.decode() == f"--id={docid}|{desk.root}/in/{docid}.{TOKEN}.working|"


def test_other_braces_stay_and_doubled_ones_are_text(desk: Desk) -> None:
    outputs = desk.run(["printf", "%s|", '{"a":{}}', "{print $1}", "${{HOME}}", "{{output?}}", "{"])
    (content,) = desk.written(outputs).values()
    assert content == b'{"a":{}}|{print $1}|${HOME}|{output?}|{|'


def test_several_outputs_go_to_several_queues_under_the_extension_asked_for(desk: Desk) -> None:
    outputs = desk.sh('echo good > "$1"; echo bad > "$2"; test "$1" = "$3"',
                      "{output.txt}", "{output:bad}", "{output.txt}")  # fmt: skip
    assert desk.written(outputs) == {
        "out/doc.N.writing.txt": b"good\n",
        "bad/doc.N.writing": b"bad\n",
    }


def test_output_that_may_be_missing_is_forgotten_when_it_is(desk: Desk) -> None:
    assert desk.written(desk.sh('echo "$1"', "{output?}")) == {}


def test_optional_outputs_in_several_queues_come_and_go_each_for_itself(desk: Desk) -> None:
    outputs = desk.sh('echo no >"$2"', "{output:out?}", "{output:bad?}")
    assert desk.written(outputs) == {"bad/doc.N.writing": b"no\n"}


def test_command_without_any_output_of_its_own_publishes_an_empty_one(desk: Desk) -> None:
    assert desk.written(desk.run(["true"])) == {"out/doc.N.writing": b""}


@pytest.mark.parametrize(
    ("code", "kind"), [(65, ProcessorFailed), (75, TryLater), (3, ProcessorFailed)]
)
def test_the_exit_code_says_what_becomes_of_the_document(
    desk: Desk, code: int, kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        desk.run(["sh", "-c", f"exit {code}"])


# What a child inherits


def test_child_has_default_signals_and_nothing_open_but_its_three_descriptors(desk: Desk) -> None:
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    left_open = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(left_open, True)  # noqa: FBT003
    try:
        signals = desk.run(["grep", "-E", "SigBlk|SigIgn", "/proc/self/status"], "signals")
        descriptors = desk.run(["ls", "/proc/self/fd"], "descriptors")
    finally:
        os.close(left_open)
        signal.signal(signal.SIGUSR1, before)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR2})
    (masks,) = desk.written(signals).values()
    blocked, ignored = (int(line.split()[1], 16) for line in masks.splitlines())
    # The C library leaves the two that it uses itself (32 and 33) ignored.
    assert (blocked, ignored & ~(0b11 << 31)) == (0, 0)
    # 3 is what ls reads.
    (numbers,) = desk.written(descriptors).values()
    assert numbers.split() == [b"0", b"1", b"2", b"3"]


def test_child_leads_a_process_group_of_its_own(desk: Desk) -> None:
    (stat,) = desk.written(desk.run(["cat", "/proc/self/stat"])).values()
    pid, _, _, parent, group, *_ = stat.decode().split()
    assert (parent, group) == (str(os.getpid()), pid)


def test_environment_is_passed_on_with_the_mark_of_the_driver(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(50):
        monkeypatch.setenv(f"BIG{number}", "x" * 10_000)
    processor = CommandProcessor(["env"])
    processor.start("3-cafe")
    document, outputs = desk.claim()
    processor.process(document, outputs, desk.limits)
    processor.stop()
    (content,) = desk.written(outputs).values()
    assert b"QUEUEDRIVER_DRIVER=3-cafe" in content.split(b"\n")
    assert content.count(b"x" * 10_000) == 50


def test_environment_too_large_for_the_system_is_a_configuration_error(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUGE", "x" * 200_000)
    processor = CommandProcessor(["true"])
    processor.start(MARK)
    with pytest.raises(ConfigError, match="the environment and the arguments are larger"):
        processor.process(*desk.claim(), desk.limits)
    processor.stop()


def test_driver_whose_parent_ignores_sigchld_still_learns_exit_codes(desk: Desk) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert desk.failure("exit 7").exit_code == 7
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_driver_started_without_standard_descriptors_works(desk: Desk, tmp_path: Path) -> None:
    script = tmp_path / "driver.py"
    script.write_text(
        "import sys\n"
        "from pathlib import Path\n"
        f"sys.path[:0] = {sys.path!r}\n"
        "from queuedriver.disk.filesystem import Directory\n"
        "from queuedriver.claims.document import Document\n"
        "from queuedriver.driving.limits import Limits\n"
        "from queuedriver.claims.document import Outputs, Target\n"
        "from queuedriver.format.settings import Publication\n"
        "from queuedriver.processors.command import CommandProcessor\n"
        f"queue, out = Directory.open({desk.input.path!r}), Directory.open({str(tmp_path)!r})\n"
        "processor = CommandProcessor(['sh', '-c', 'cat; echo err >&2'])\n"
        "processor.start('x')\n"
        f"document = Document('doc', 0, 'in', queue, 'doc.{TOKEN}.working')\n"
        f"targets = (Target('out', out, Publication('{{docid}}.ready')),)\n"
        f"outputs = Outputs('doc', '{TOKEN}', targets)\n"
        "processor.process(document, outputs, Limits())\n"
    )
    desk.claim()
    line = 'exec "$0" "$1" <&- >&- 2>&-'
    subprocess.run(["sh", "-c", line, sys.executable, str(script)], check=True)
    assert (tmp_path / f"doc.{TOKEN}.writing").read_bytes() == b"text\n"


# How a command ends


def test_exit_code_and_the_end_of_stderr_are_reported(desk: Desk) -> None:
    failure = desk.failure('echo out; echo one >&2; echo "two " >&2; exit 3', "{output}")
    assert failure == Failure(
        cause="exit",
        message="sh ended with exit code 3: two",
        exit_code=3,
        stderr_tail="out\none\ntwo \n",
        peak_memory=failure.peak_memory,
    )


def test_exit_code_65_is_permanent(desk: Desk) -> None:
    failure = desk.failure("echo not a PDF >&2; exit 65")
    assert (failure.cause, failure.permanent, failure.exit_code) == ("permanent", True, 65)


def test_exit_code_75_is_try_later(desk: Desk) -> None:
    with pytest.raises(TryLater) as caught:
        desk.sh("echo licence server is busy >&2; exit 75")
    assert caught.value.after == 60
    assert "licence server is busy" in str(caught.value.reason)


@pytest.mark.parametrize("name", ["SEGV", "KILL", "PIPE"])
def test_signal_that_ended_a_command_is_named(desk: Desk, name: str) -> None:
    failure = desk.failure(f"ulimit -c 0; echo half > $1; kill -{name} $$", "{output}")
    assert (failure.cause, failure.signal, failure.exit_code) == ("signal", f"SIG{name}", None)


def test_half_an_output_is_registered_so_that_the_driver_removes_it(desk: Desk) -> None:
    document, outputs = desk.claim()
    processor = desk.processor(["sh", "-c", "head -c 2; exit 1"])
    with pytest.raises(ProcessorFailed):
        processor.process(document, outputs, desk.limits)
    assert desk.written(outputs) == {"out/doc.N.writing": b"te"}
    outputs.discard()
    assert os.listdir(desk.root / "out") == []


def test_output_not_written_is_a_failure_although_the_exit_code_is_0(desk: Desk) -> None:
    failure = desk.failure("echo words", "{output}")
    assert (failure.cause, failure.exit_code) == ("bad-answer", 0)
    assert failure.message == "sh ended well, but did not write {output}: words"


@pytest.mark.parametrize("make", ["mkdir", "ln -s /etc/passwd", "mkfifo"])
def test_output_that_is_no_regular_file_is_a_failure(desk: Desk, make: str) -> None:
    failure = desk.failure(f'{make} "$1"', "{output}")
    assert failure.cause == "bad-answer"
    assert "not a regular file" in failure.message


def test_symlink_dressed_as_a_document_never_reaches_the_command(desk: Desk) -> None:
    document, outputs = desk.claim()
    os.unlink(document.path)
    os.symlink("/etc/passwd", desk.root / "in" / f"doc.{TOKEN}.working")
    for command in (["cat"], ["cat", "{input}"]):
        with pytest.raises(ProcessorFailed) as caught:
            desk.processor(command).process(document, outputs, desk.limits)
        assert caught.value.failure.cause == "not-a-file"


def test_peak_memory_of_a_failed_command_is_reported(desk: Desk) -> None:
    # More than this process has ever had: less would not be known.
    hogged = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) + (100 << 20)
    hog = f"import sys; x = b'x' * {hogged}; sys.exit(1)"
    with pytest.raises(ProcessorFailed) as caught:
        desk.run([sys.executable, "-S", "-c", hog])
    assert hogged < (caught.value.failure.peak_memory or 0) < hogged + (100 << 20)


def test_peak_memory_smaller_than_our_own_is_not_known(desk: Desk) -> None:
    assert desk.failure("exit 1").peak_memory is None


# stderr


def test_100_mb_on_stderr_neither_block_nor_stay(desk: Desk) -> None:
    failure = desk.failure(
        "head -c 100000000 /dev/zero | tr '\\0' x >&2; printf '\\nend\\n' >&2; exit 1"
    )
    tail = failure.stderr_tail or ""
    notice, text = tail.split("\n", 1)
    assert notice == f"… {100_000_005 - TAIL} bytes left out …"
    assert len(text) == TAIL
    assert text.endswith("x\nend\n")
    assert failure.message == "sh ended with exit code 1: end"


def test_stderr_that_is_not_utf_8_is_shown_escaped(desk: Desk) -> None:
    assert desk.failure(r"printf 'caf\351 \377\n' >&2; exit 1").stderr_tail == "caf\\xe9 \\xff\n"


def test_process_that_keeps_stderr_open_does_not_delay_us(desk: Desk) -> None:
    began = time.monotonic()
    failure = desk.failure("setsid sleep 600 & echo left one >&2; exit 1")
    assert time.monotonic() - began < PATIENCE
    assert failure.stderr_tail == "left one\n"


# Time-outs and leaving


def test_command_past_its_time_out_is_asked_to_end(desk: Desk) -> None:
    began = desk.limits.over = desk.root / "began"
    failure = desk.failure(
        "trap 'echo bye >&2; exit 0' TERM; echo on >&2; : >$1; while :; do :; done",
        str(began),
        grace=PATIENCE,
    )
    assert (failure.cause, failure.stderr_tail) == ("timeout", "on\nbye\n")


def test_command_that_ignores_sigterm_is_killed_with_its_group(desk: Desk) -> None:
    pids = desk.limits.over = desk.root / "pids"
    failure = desk.failure(
        "trap '' TERM; (while :; do sleep 1; done) & echo $! $$ > $1.new; mv $1.new $1; "
        "while :; do sleep 1; done", str(pids), grace=0.2,
    )  # fmt: skip
    assert (failure.cause, failure.signal) == ("timeout", "SIGKILL")
    assert not any(is_alive(int(pid)) for pid in pids.read_text().split())


def test_command_that_floods_stderr_is_ended_at_its_time_out(desk: Desk) -> None:
    desk.limits.timeout = 0.2
    assert desk.failure("exec yes >&2").cause == "timeout"


def test_stopped_command_is_ended_at_its_time_out(desk: Desk) -> None:
    desk.limits.timeout = 0.2
    failure = desk.failure("kill -STOP $$")
    assert (failure.cause, failure.signal) == ("timeout", "SIGTERM")


def test_command_gets_the_grace_of_a_leaving_driver_and_is_then_given_back(desk: Desk) -> None:
    desk.limits.grace = 0.2
    desk.limits.install()
    with pytest.raises(Interrupted) as caught:
        desk.sh("kill -TERM $PPID; sleep 60")
    assert caught.value.reason == "leaving"


def test_command_that_ends_within_the_grace_is_done(desk: Desk) -> None:
    desk.limits.install()
    outputs = desk.sh("kill -TERM $PPID; sleep 0.1; echo done")
    assert desk.limits.leaving_at is not None
    assert desk.written(outputs) == {"out/doc.N.writing": b"done\n"}


def test_second_signal_ends_the_command_at_once(desk: Desk) -> None:
    desk.limits.install()
    with pytest.raises(Interrupted) as caught:
        # Two that come close together are one wish.
        desk.sh("while kill -TERM $PPID; do sleep 0.15; done")
    assert caught.value.reason == "leaving"


def test_no_command_is_started_when_the_driver_has_to_leave(desk: Desk) -> None:
    desk.limits.leave("quit", ASKED)
    desk.limits.hurried = True
    with pytest.raises(Interrupted):
        desk.sh("touch $1", str(desk.root / "started"))
    assert not (desk.root / "started").exists()


# What a command leaves behind


def test_background_child_is_dead_before_its_output_is_published(desk: Desk) -> None:
    pid = desk.root / "pid"
    outputs = desk.sh('(while :; do echo x >> "$1"; done) & echo $! > "$2"; '
                      'until test -s "$1"; do :; done', "{output}", str(pid))  # fmt: skip
    assert not is_alive(int(pid.read_text()))
    assert set(desk.written(outputs)) == {"out/doc.N.writing"}


def test_nothing_of_a_command_survives_an_exception_in_the_driver(desk: Desk) -> None:
    pid = desk.root / "pid"
    desk.limits.timeout = 60

    def deadline() -> float:
        if pid.exists() and pid.read_text():
            raise KeyboardInterrupt
        return time.monotonic() + 0.01

    desk.limits.deadline = deadline  # type: ignore[method-assign]
    desk.limits.reason = lambda: None  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        desk.sh("echo $$ > $1; sleep 60", str(pid))
    assert not is_alive(int(pid.read_text()))


def test_no_descriptor_and_no_zombie_stays(desk: Desk) -> None:
    processor = desk.processor(["sh", "-c", "exit $(cat)"])
    before, children = open_files(), child_processes()
    for number in range(10):
        with contextlib.suppress(ProcessorFailed):
            processor.process(*desk.claim(f"{number}", b"%d" % (number % 2)), desk.limits)
    # What earlier tests left may be collected meanwhile.
    assert open_files() <= before
    # Not one that has ended, either, and waits to be collected.
    assert child_processes() <= children


# Commands that cannot work


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("", "the command is empty"),
        ([], "the command is empty"),
        ("grep 'x", "cannot be split"),
        ("sort {input} | uniq", "only a shell understands"),
        ("sort {input} > {output}", "only a shell understands"),
        (["cp", "{input}", "{ouput}"], r"has \{ouput\}, which is not known; known are \{input\}"),
        (["cp", "{input}", "{output.tar.gz}"], "not known"),
        (["cp", "{input}", "{output"], r"\{output has no closing brace"),
        (["cp", "--from={input", "{output}"], r"\{input has no closing brace"),
        (["cp", "{input}", "{output:a/b}"], "not known"),
        (["echo", "a\0b"], "NUL"),
        (["{input}"], "cannot depend on the document"),
        (["sh", "-c", "convert {input} {output}"], "sh would run what stands in the document's"),
        (["bash", "-ec", "convert {docid}"], "bash would run"),
        (["nice", "-n", "5", "/bin/sh", "-c", "--", "cat {input}"], "sh would run"),
        (["env", "A=b", "python3.11", "-c", "print('{docid}')"], "python3.11 would run"),
        (["perl", "-ne", "print '{docid}'"], "perl would run"),
        (["node", "--eval=log('{docid}')"], "node would run"),
        (["ssh", "gpu", "convert", "{input}"], "ssh would run"),
    ],
)
def test_command_that_cannot_be_meant_is_refused(command: str | list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        CommandProcessor(command)


@pytest.mark.parametrize(
    "command",
    [
        ["sh", "-c", 'convert "$1" "$2"', "sh", "{input}", "{output}"],
        ["python3", "-c", "import sys", "{docid}"],
        ["bash", "script.sh", "-c", "{input}"],
        ["grep", "-e", "{docid}", "{input}"],
        ["awk", "{input = 1; print}", "{input}"],
        ["sh", "-c", "exit {attempt}"],
    ],
)
def test_command_that_only_looks_like_it_is_taken(command: list[str]) -> None:
    CommandProcessor(command)


def test_program_that_is_not_there_is_refused_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"/nowhere:{tmp_path}")
    (tmp_path / "plain").write_text("no program")
    words = f"'pdftotxt' is not on the PATH \\(/nowhere:{tmp_path}\\); install it"
    with pytest.raises(ConfigError, match=words):
        CommandProcessor(["pdftotxt"]).start(MARK)
    with pytest.raises(ConfigError, match="plain is not an executable file"):
        CommandProcessor([str(tmp_path / "plain")]).start(MARK)
    with pytest.raises(ConfigError, match="none does not exist"):
        CommandProcessor([str(tmp_path / "none")]).start(MARK)


@pytest.mark.parametrize(
    ("first_line", "words"),
    [("#!/no/such/interpreter", "interpreter its first line names"), ("", "must name its interp")],
)
def test_program_that_cannot_be_started_is_a_configuration_error(
    desk: Desk, first_line: str, words: str
) -> None:
    program = desk.root / "program"
    program.write_text(f"{first_line}\nexit 0\n")
    program.chmod(0o755)
    with pytest.raises(ConfigError, match=words):
        desk.run([str(program)])


def test_program_that_is_being_written_is_tried_later(desk: Desk) -> None:
    program = desk.root / "program"
    program.write_bytes(Path("/bin/true").read_bytes())
    program.chmod(0o755)
    with program.open("ab"), pytest.raises(TryLater, match="cannot be started now"):
        desk.run([str(program)])


def test_what_left_its_group_ends_with_a_driver_that_leaves_in_order(tmp_path: Path) -> None:
    stays = (
        f"setsid sh -c 'echo $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; exec sleep 600'"
    )
    waits = f"while [ ! -e {tmp_path}/pid ]; do sleep .01; done"
    with Site(tmp_path) as site:
        site.submit("doc")
        ended = site.drive(["sh", "-c", f"{stays} & {waits}"])
        assert ended.exit_code == 0
        assert not is_alive(int((tmp_path / "pid").read_text()))
