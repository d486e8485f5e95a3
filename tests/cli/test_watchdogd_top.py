"""`watchdogd top` at a terminal: what is on the screen, and what keys do to a pipeline."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyte
import pytest

from tests.cli.pipelines import driver, make, publish, report
from tests.cli.processes import ENVIRON, command, heed_signals
from tests.cli.queues import PATIENCE, drive, listed, submit
from tests.waiting import until
from tests.watchdogs import Yard

WATCHDOGD = (sys.executable, "-m", "watchdogd")


class Terminal:
    """A terminal with `top` in it, as a person sees it."""

    def __init__(
        self, ours: int, process: subprocess.Popen[bytes], columns: int, rows: int
    ) -> None:
        self.ours = ours
        self.process = process
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        # All that came, with what steers a terminal.
        self.raw = b""

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display]

    def until(self, pattern: str) -> str:
        """Wait until a line of the screen says something; return it."""
        ends_at = time.monotonic() + PATIENCE
        while True:
            for line in self.lines:
                if re.search(pattern, line):
                    return line
            left = ends_at - time.monotonic()
            shown = "\n".join(self.lines)
            assert select.select([self.ours], [], [], max(0.0, left))[0], f"{pattern}: {shown}"
            data = os.read(self.ours, 65536)
            self.raw += data
            self._stream.feed(data)

    def press(self, *keys: str) -> None:
        for key in keys:
            os.write(self.ours, key.encode())

    def resize(self, columns: int, rows: int) -> None:
        self.screen.resize(rows, columns)
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _sit_down() -> None:
    """Be the one whom the terminal tells of its size."""
    heed_signals()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@contextmanager
def at_terminal(
    file: Path, columns: int = 80, rows: int = 24, *words: str, **environ: str
) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    inherited = {name: said for name, said in ENVIRON.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [*WATCHDOGD, "top", str(file), *words],
        env={**inherited, "TERM": "xterm", **environ},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=_sit_down,  # noqa: PLW1509 - the test has one thread
    )
    os.close(theirs)
    try:
        yield Terminal(ours, process, columns, rows)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


UP, DOWN, ENTER, ESC = "\x1b[A", "\x1b[B", "\r", "\x1b"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A pipeline with a watchdog, a driver at work with a log, and two documents discarded."""
    file = make(tmp_path)
    local = tmp_path / "local"
    (local / "logs").mkdir(parents=True)
    (local / "logs/parse-1.log").write_text("".join(f"line {at}\n" for at in range(99)))
    drivers = (driver("parse-1", state="busy", document="railway"), driver("parse-2"))
    publish(file, report(drivers=drivers, local=str(local)))
    submit(tmp_path / "queues/values", "railway")
    submit(tmp_path / "queues/input", "bad2", "bad3")
    drive(tmp_path / "queues/input", tmp_path / "queues/values", retries=0)
    return file


def test_from_the_pipeline_to_a_document_and_back(file: Path) -> None:
    with at_terminal(file) as terminal:
        terminal.until(r"^> values ")
        terminal.press(DOWN)
        terminal.until(r"^> parse ")
        terminal.press(ENTER)
        terminal.until(r"^serif > parse > drivers ")
        terminal.until(r"^> parse-1  busy")
        terminal.press(ENTER)
        assert terminal.until(r"^at hand: ") == "at hand: railway"
        terminal.until(r"^line 98$")
        terminal.press(ENTER)
        terminal.until(r"^serif > parse > railway ")
        terminal.until(r"^railway: in stage parse")
        terminal.press(ESC)
        terminal.until(r"^at hand: ")
        terminal.press(ESC)
        terminal.until(r"^> parse-1  busy")
        terminal.press(ESC)
        terminal.until(r"^> parse ")
        terminal.press("q")
        assert terminal.process.wait(PATIENCE) == 0
    assert terminal.raw.startswith(b"\x1b[?1049h\x1b[?25l")


def test_file_that_is_away_while_another_is_put_in_its_place_ends_nothing(tmp_path: Path) -> None:
    file = make(tmp_path)
    with at_terminal(file) as terminal:
        terminal.until(r"^> values ")
        aside = file.rename(file.with_suffix(".aside"))
        submit(file.parent / "queues/parse", "late")
        terminal.until(r"^  out  +1 ")
        aside.rename(file)


def test_queue_that_is_none_for_a_while_is_named_and_ends_nothing(tmp_path: Path) -> None:
    file = make(tmp_path)
    queue = file.parent / "queues/values"
    with at_terminal(file) as terminal:
        terminal.until(r"^> values ")
        aside = queue.rename(queue.with_suffix(".aside"))
        queue.touch()
        terminal.until(r"^parse takes from what cannot be")
        queue.unlink()
        aside.rename(queue)
        submit(queue, "late")
        terminal.until(r"^  parse  +1 ")


def test_another_size_is_drawn_at_once_and_nothing_is_wrapped(file: Path) -> None:
    with at_terminal(file) as terminal:
        terminal.until(r"^> values ")
        assert "MEMORY" not in terminal.screen.display[3]
        assert terminal.lines[-1].startswith("1/3  ")
        terminal.resize(130, 40)
        until_there(terminal, lambda: terminal.lines[39].startswith("1/3  "))
        assert terminal.lines[23] == ""
        terminal.resize(40, 10)
        beginnings = ("serif ", "  STAGE", "> values", "1/3  ")

        def drawn() -> bool:
            found = [one for line in terminal.lines for one in beginnings if line.startswith(one)]
            return found == list(beginnings)

        until_there(terminal, drawn)


def test_stopped_by_ctrl_z_it_leaves_the_terminal_as_it_was_until_it_goes_on(file: Path) -> None:
    with at_terminal(file) as terminal:
        terminal.until(r"^> values ")
        terminal.press("\x1a")
        until(lambda: _state_of(terminal.process.pid) == "T", "it is stopped")
        assert termios.tcgetattr(terminal.ours)[3] & termios.ECHO
        submit(file.parent / "queues/parse", "late")
        os.kill(terminal.process.pid, signal.SIGCONT)
        terminal.until(r"^  out  +1 ")
        assert b"\x1b[?1049l" in terminal.raw
        assert terminal.raw.count(b"\x1b[?1049h") == 2
        terminal.press("q")
        assert terminal.process.wait(PATIENCE) == 0


def _state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


def until_there(terminal: Terminal, fact: Callable[[], bool]) -> None:
    """Wait until the screen is as it is to be."""

    def there() -> bool:
        while select.select([terminal.ours], [], [], 0.0)[0]:
            terminal._stream.feed(os.read(terminal.ours, 65536))
        return fact()

    until(there, "\n".join(terminal.lines))


def test_a_stage_is_paused_and_resumed_by_whoever_says_yes(file: Path) -> None:
    queue = file.parent / "queues/values"
    with at_terminal(file) as terminal:
        terminal.until(r"^> values ")
        terminal.press(DOWN, "p")
        terminal.until(r"^pause parse\? type yes:")
        terminal.press("n", ENTER)
        terminal.until("^nothing was changed")
        assert "PAUSE" not in listed(queue)
        terminal.press("p", "y", "e", "s", ENTER)
        terminal.until("^pause parse: done")
        assert "PAUSE" in listed(queue)
        terminal.until(r"^> parse +paused")
        terminal.press("r", "y", "e", "s", ENTER)
        terminal.until("^resume parse: done")
        assert "PAUSE" not in listed(queue)


def test_drivers_are_scaled_and_restarted(file: Path) -> None:
    control = file.parent / "queues/.watchdogd"
    with at_terminal(file) as terminal:
        terminal.until(r"^> values ")
        terminal.press(DOWN, "+", "+")
        terminal.until(r"^scale parse to 4 drivers on each host\? type yes:")
        terminal.press("y", "e", "s", ENTER)
        terminal.until("^scale parse to 4 drivers on each host: done")
        assert (control / "scale-parse").read_text() == "4\n"
        terminal.press(ENTER)
        terminal.until(r"^> parse-1 ")
        terminal.press(DOWN, "R")
        terminal.until(r"^restart parse-2 on rose\? ")
        terminal.press("y", "e", "s", ENTER)
        terminal.until("^restart parse-2 on rose: done")
        assert any(name.startswith("restart-parse-2@rose-") for name in listed(control))
    (notes,) = (control / "events").glob("operators@*")
    said = [json.loads(line)["message"] for line in notes.read_text().splitlines()]
    assert said == ["scale parse to 4 drivers on each host", "restart parse-2 on rose"]


def test_what_was_discarded_for_one_cause_is_tried_again(file: Path) -> None:
    queue = file.parent / "queues/input"
    with at_terminal(file) as terminal:
        terminal.until(r"^> values ")
        terminal.press("d")
        terminal.until("^grouped over all 2")
        terminal.until(r"^> 1-[0-9a-f]+ +values +2 ")
        terminal.press(ENTER)
        terminal.until(r"^> bad")
        terminal.press(ESC)
        terminal.until(r"^> 1-")
        terminal.press("t")
        terminal.until(r"^have 2 documents tried again that failed by: .*\? type yes:")
        # It comes after what was asked about.
        submit(queue, "bad4")
        drive(queue, file.parent / "queues/values", retries=0)
        terminal.press("y", "e", "s", ENTER)
        terminal.until(r"^batch \S+: 2 documents tried again$")
        assert [name for name in listed(queue) if name.endswith(".ready")] == [
            "bad2.ready",
            "bad3.ready",
        ]
        terminal.until(r"^> 1-[0-9a-f]+ +values +1 .*bad4")


def test_a_driver_of_this_host_shows_its_stacks_and_goes_on(tmp_path: Path) -> None:
    with Yard(tmp_path) as yard:
        yard.write('name = "wait"\ninput = "input"\noutput = "done"\ncall = "stages:obey"')
        yard.put("slow", "wait")
        watchdog = yard.run()
        until((yard.root / "begun").exists, "the document at hand")
        pid = yard.pid("wait-1")
        with at_terminal(yard.file, 130, 40, **yard.environ) as terminal:
            terminal.until(r"^> wait ")
            terminal.press(ENTER)
            terminal.until(r"^> wait-1 +busy")
            terminal.press(ENTER)
            terminal.until("^at hand: slow")
            terminal.press("k")
            terminal.until(r'File ".*stages.py", line \d+ in obey')
        (yard.root / "go").touch()
        until(lambda: yard.ls("done") == ["slow.ready"])
        assert yard.pid("wait-1") == pid
        watchdog.terminate()
        watchdog.wait(PATIENCE)


def test_numbers_change_by_themselves_while_rows_are_held(file: Path) -> None:
    with at_terminal(file) as terminal:
        terminal.until(r"^> values ")
        terminal.press(" ")
        terminal.until("held still")
        submit(file.parent / "queues/input", *(f"d{number}" for number in range(77)))
        terminal.until(r"^> values .* 77 ")


def test_without_colours_there_are_none(file: Path) -> None:
    with at_terminal(file, NO_COLOR="1") as terminal:
        terminal.until(r"^> values ")
        assert not re.search(rb"\x1b\[[0-9;]*m", terminal.raw)
    with at_terminal(file) as terminal:
        terminal.until(r"^> values ")
        assert re.search(rb"\x1b\[7m> values", terminal.raw)


def test_a_plain_terminal_is_shown_it_once(file: Path) -> None:
    with at_terminal(file, TERM="dumb") as terminal:
        terminal.until(r"^values ")
        assert terminal.process.wait(PATIENCE) == 0
        assert b"\x1b" not in terminal.raw


def test_names_cannot_steer_a_terminal_nor_push_a_column(file: Path) -> None:
    drivers = (
        driver("parse-1", state="busy", document="\x1b[2J\u202e漢字" * 20, documents=881),
        driver("parse-2", documents=881),
    )
    publish(file, report(drivers=drivers))
    with at_terminal(file) as terminal:
        terminal.until(r"^> values ")
        terminal.press(DOWN, ENTER)
        first = terminal.until(r"^> parse-1 .* 881")
        second = terminal.until(r"^  parse-2 .* 881")
        wide = terminal.screen.display
        assert wide[terminal.lines.index(second)].index("881") > first.index("\\x1b")
        assert b"\x1b[2J" not in terminal.raw
        assert "\u202e".encode() not in terminal.raw


def test_looks_are_printed_one_below_the_other_for_a_file(file: Path) -> None:
    words = [*WATCHDOGD, "top", str(file), "--every", "50ms"]
    with subprocess.Popen(words, env=ENVIRON, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        seen = b""
        while seen.count(b"\nSTAGE") < 3:
            seen += os.read(process.stdout.fileno(), 65536)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
    assert b"\x1b" not in seen
    assert seen.count(b"serif  ") >= 3


def test_every_is_a_time(file: Path) -> None:
    called = command("top", str(file), "--every", "soon", program="watchdogd")
    assert called.code == 2
