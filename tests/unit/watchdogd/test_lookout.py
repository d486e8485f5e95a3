"""The watchdog hears its eyes, notices when they are silent, and never waits for them."""

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from tests.waiting import until, until_ended
from watchdogd.lookout import (
    MOST_LEFT,
    PATIENCE_AT_START,
    RESTART_DEAD_AFTER,
    RESTART_EVERY,
    SILENCE,
    Lookout,
)
from watchdogd.pipeline.model import Drivers, Pipeline, Stage
from watchdogd.process import spawn_for_helper
from watchdogd.snapshot import Brief, Errands, Message, QueueSeen, Snapshot, to_line

# Seconds: far more than anything here takes.
PATIENCE = 60.0
LOOK = Errands(look=True)
ALIVE = r'{"alive":true}\n'
PIPELINE = Pipeline(
    name="p",
    file="/p.toml",
    root="/queues",
    stages=(
        Stage(
            name="parse",
            inputs=("in",),
            outputs=("out",),
            drivers=Drivers(1, 1),
            kind="command",
            work=("true",),
        ),
    ),
)


class Bench:
    """Lookouts over eyes that are shell scripts."""

    def __init__(self, place: Path) -> None:
        self.notes: list[str] = []
        self.started: list[int] = []
        self._place = place
        self._made: list[Lookout] = []

    def lookout(self, script: str, argv: Sequence[str] = (), **more: object) -> Lookout:
        brief = Brief(pipeline=PIPELINE, host="rose", local=str(self._place))
        made = Lookout(
            brief,
            self._spawn,
            str(self._place / "eyes.log"),
            self.notes.append,
            argv or ("sh", "-c", script),
            **more,  # type: ignore[arg-type]
        )
        self._made.append(made)
        return made

    def _spawn(self, argv: Sequence[str], stdin: int, stdout: int, stderr: str) -> tuple[int, int]:
        pid, pidfd = spawn_for_helper(argv, stdin, stdout, stderr)
        self.started.append(pid)
        return pid, pidfd

    def close(self) -> None:
        for one in self._made:
            one.close()
        for pid in self.started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


@pytest.fixture
def eyes(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.close()


def wait_for(lookout: Lookout) -> None:
    """Until there is something to hear, the end of the eyes included."""
    poll = select.poll()
    poll.register(lookout.fd, select.POLLIN)
    assert poll.poll(PATIENCE * 1000), "nothing is heard"


def hear(lookout: Lookout, now: float, count: int = 1) -> list[Message]:
    """So many messages, as they come."""
    heard: list[Message] = []
    until = time.monotonic() + PATIENCE
    while len(heard) < count:
        assert time.monotonic() < until, f"only {heard} were heard"
        wait_for(lookout)
        heard += lookout.receive(now)
    return heard


def test_eyes_are_told_first_where_to_look_and_what_they_say_is_heard(eyes: Bench) -> None:
    lookout = eyes.lookout(f"read brief; printf '{ALIVE}'; printf '%s' \"$brief\" >&2; read rest")
    assert lookout.fd == -1
    assert lookout.lost(now=0.0)
    assert lookout.start(now=0.0)
    assert hear(lookout, now=0.5) == [Message(alive=True)]
    assert lookout.heard_at == 0.5
    assert not lookout.start(now=0.5)


def test_brief_names_the_watchdog_without_which_eyes_are_not_to_live(
    eyes: Bench, tmp_path: Path
) -> None:
    lookout = eyes.lookout(f'read -r brief; printf "%s" "$brief" >&2; printf \'{ALIVE}\'; read x')
    lookout.start(now=0.0)
    hear(lookout, now=0.0)
    brief = msgspec.json.decode((tmp_path / "eyes.log").read_bytes(), type=Brief)
    assert brief == msgspec.structs.replace(lookout.brief, parent=os.getpid())


def test_line_that_comes_in_parts_is_heard_once_it_is_whole(eyes: Bench) -> None:
    half = 'read brief; printf \'{"ali\'; read go; printf \'ve":true}\\n{"note":"x"}\\n\'; read x'
    lookout = eyes.lookout(half)
    lookout.start(now=0.0)
    wait_for(lookout)
    assert lookout.receive(now=1.0) == []
    assert lookout.send(LOOK)
    assert hear(lookout, now=2.0, count=2) == [Message(alive=True), Message(note="x")]


def test_line_that_is_not_understood_is_noted_and_the_others_count(eyes: Bench) -> None:
    lookout = eyes.lookout(f"read brief; printf 'what?\\n{ALIVE}'; read x")
    lookout.start(now=0.0)
    assert hear(lookout, now=0.0) == [Message(alive=True)]
    assert eyes.notes == ["not understood from the eyes: b'what?'"]


def test_line_without_an_end_does_not_fill_the_memory(eyes: Bench) -> None:
    lookout = eyes.lookout(f"read b; head -c 9000000 /dev/zero; printf '\\n{ALIVE}'; read x")
    lookout.start(now=0.0)
    assert hear(lookout, now=0.0) == [Message(alive=True)]
    assert eyes.notes[0] == "a line from the eyes is too long"


# Silence


def test_eyes_that_are_silent_are_lost_and_heard_again_are_not(eyes: Bench) -> None:
    lookout = eyes.lookout(f"read brief; printf '{ALIVE}'; read go; printf '{ALIVE}'; read x")
    lookout.start(now=0.0)
    hear(lookout, now=1.0)
    assert not lookout.lost(now=1.0 + SILENCE)
    assert lookout.lost_at == 1.0 + SILENCE
    assert lookout.lost(now=1.1 + SILENCE)
    # Perhaps they are only slow: nobody is left behind until others may be started.
    assert not lookout.tend(now=1.1 + SILENCE)
    lookout.send(LOOK)
    hear(lookout, now=4.0)
    assert not lookout.lost(now=4.0)


def test_eyes_may_take_their_time_to_load(eyes: Bench) -> None:
    lookout = eyes.lookout("read brief; read x")
    lookout.start(now=0.0)
    for second in range(int(PATIENCE_AT_START)):
        assert not lookout.lost(now=float(second))
    assert lookout.lost(now=PATIENCE_AT_START + 0.1)


def test_what_waits_to_be_heard_is_no_silence(eyes: Bench) -> None:
    lookout = eyes.lookout(f"read brief; printf '{ALIVE}'; read x; printf '{ALIVE}'; read x")
    lookout.start(now=0.0)
    hear(lookout, now=0.0)
    lookout.send(LOOK)
    wait_for(lookout)
    assert not lookout.lost(now=1.0 + SILENCE)


def test_watchdog_that_was_stopped_itself_does_not_blame_its_eyes(eyes: Bench) -> None:
    lookout = eyes.lookout(f"read brief; printf '{ALIVE}'; read x")
    lookout.start(now=0.0)
    hear(lookout, now=0.0)
    # For an hour nobody has looked.
    assert lookout.receive(now=3600.0) == []
    assert not lookout.lost(now=3600.0)
    assert not lookout.lost(now=3600.0 + SILENCE)
    assert lookout.lost(now=3600.1 + SILENCE)


# Left behind


def test_silent_eyes_are_left_behind_and_others_started_once_a_minute(eyes: Bench) -> None:
    lookout = eyes.lookout(f"read brief; printf '{ALIVE}'; read x")
    assert lookout.tend(now=0.0)
    hear(lookout, now=0.0)
    for second in range(1, int(RESTART_EVERY)):
        assert not lookout.tend(now=float(second))
        lookout.lost(now=float(second))
    first = lookout.pid
    assert lookout.lost_at == RESTART_EVERY
    assert lookout.tend(now=RESTART_EVERY)
    assert lookout.pid != first
    assert eyes.started == [first, lookout.pid]
    until_ended(first)


def test_what_was_made_is_not_made_again_by_the_next_eyes(eyes: Bench) -> None:
    seen = to_line(Message(snapshot=Snapshot(queues={"in": QueueSeen(), "out": QueueSeen()})))
    ill = to_line(Message(snapshot=Snapshot(trouble="full")))
    lines = (ill + seen).decode()
    lookout = eyes.lookout(f"read brief; printf '%s' '{lines}'; read x")
    lookout.start(now=0.0)
    hear(lookout, now=0.0, count=2)
    assert lookout.brief.made == ("in", "out")


def test_reloaded_pipeline_is_that_of_the_next_eyes(eyes: Bench) -> None:
    lookout = eyes.lookout("read brief; read x")
    lookout.start(now=0.0)
    other = msgspec.structs.replace(PIPELINE, name="other")
    assert lookout.send(Errands(pipeline=other))
    assert lookout.brief.pipeline == other


def test_eyes_that_end_are_replaced_soon(eyes: Bench) -> None:
    lookout = eyes.lookout(f"read brief; printf '{ALIVE}'; read go")
    lookout.start(now=0.0)
    hear(lookout, now=0.0)
    lookout.send(LOOK)
    while lookout.fd >= 0:
        wait_for(lookout)
        lookout.receive(now=1.0)
    assert eyes.notes == ["the process that looks after the queues ended"]
    assert lookout.lost(now=1.0)
    assert not lookout.send(LOOK)
    assert lookout.lost_at == 1.0 + RESTART_DEAD_AFTER
    assert not lookout.tend(now=1.0)
    assert lookout.tend(now=1.0 + RESTART_DEAD_AFTER)


def test_eyes_that_cannot_be_killed_do_not_pile_up(eyes: Bench) -> None:
    lookout = eyes.lookout("read brief; exec sleep 1000", kill=lambda _: None)
    now = 0.0
    for _ in range(MOST_LEFT + 3):
        lookout.tend(now)
        now += RESTART_EVERY
        # The supervisor looks oftener than the eyes may be silent.
        for _ in range(10):
            lookout.lost(now)
            now += SILENCE
    assert len(eyes.started) == MOST_LEFT
    os.kill(eyes.started[0], signal.SIGKILL)
    os.waitid(os.P_PID, eyes.started[0], os.WEXITED | os.WNOWAIT)
    now += RESTART_EVERY
    assert lookout.tend(now)


def test_program_that_is_not_there_is_noted(eyes: Bench, tmp_path: Path) -> None:
    lookout = eyes.lookout("", argv=["/nowhere/python"])
    lookout.start(now=0.0)
    wait_for(lookout)
    assert lookout.receive(now=0.0) == []
    assert eyes.notes[-1] == "the process that looks after the queues ended"
    assert "/nowhere/python cannot be run: No such file" in (tmp_path / "eyes.log").read_text()
    assert lookout.lost(now=0.0)
    assert lookout.fd == -1


def test_process_that_cannot_be_started_is_noted(eyes: Bench, tmp_path: Path) -> None:
    (tmp_path / "eyes.log").mkdir()
    lookout = eyes.lookout("")
    assert not lookout.start(now=0.0)
    assert "cannot start" in eyes.notes[0]
    assert lookout.lost(now=0.0)
    assert lookout.fd == -1


# Never waiting

_READER = """
import json, sys
print('{"alive":true}', flush=True)
with open(sys.argv[1]) as fifo:
    fifo.read()
number = sum(isinstance(json.loads(line), dict) for line in sys.stdin.buffer)
open(sys.argv[2], "w").write(str(number))
"""


def test_eyes_that_do_not_read_cannot_stop_the_watchdog_and_no_line_is_torn(
    eyes: Bench, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "fifo")
    counted = tmp_path / "counted"
    argv = (sys.executable, "-c", _READER, str(tmp_path / "fifo"), str(counted))
    lookout = eyes.lookout("", argv=argv)
    lookout.start(now=0.0)
    hear(lookout, now=0.0)
    document = msgspec.Raw(b'"' + b"x" * 300_000 + b'"')
    sent = sum(lookout.send(Errands(publish=document)) for _ in range(40))
    # What had no room was dropped, and each time somebody was told.
    assert 0 < sent < 40
    assert eyes.notes == ["the eyes do not read what they are told; it was dropped"] * (40 - sent)
    # Now they read: what was cut goes on where it was cut.
    (tmp_path / "fifo").write_text("go")
    until(lambda: lookout.send(LOOK), "there is room")
    pid = lookout.pid
    # Their input ends; they are not killed, so that they can say what they have read.
    os.close(lookout._out)
    lookout._out = -1
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert counted.read_text() == str(1 + sent + 1)


def test_eyes_that_are_started_after_a_reload_are_told_of_the_new_pipeline(eyes: Bench) -> None:
    lookout = eyes.lookout("cat")
    other = msgspec.structs.replace(PIPELINE, root="/elsewhere")
    assert not lookout.send(Errands(pipeline=other))
    assert lookout.brief.pipeline == other
