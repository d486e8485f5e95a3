"""What the watchdog and its helper tell each other arrives as it was said."""

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdogd.helper_messages import (
    MAX_LINE,
    Brief,
    Controls,
    Errands,
    Line,
    Look,
    Message,
    QueueSeen,
    Read,
    Recovered,
    Request,
    to_line,
    understood,
)
from watchdogd.pipeline.model import Drivers, Pipeline, Stage

PIPELINE = Pipeline(
    name="p",
    file="/etc/p.toml",
    root="/queues",
    stages=(
        Stage(
            name="parse",
            inputs=("in",),
            outputs=("out",),
            drivers=Drivers(1, 4),
            kind="command",
            work=("wc", "-w"),
        ),
    ),
)
MESSAGES = [
    Message(),
    Message(note="strange"),
    Message(recovered=Recovered("in", 2, ("a", "ü\n"))),
    Message(read=Read(number=3, pipeline=PIPELINE, notes=("odd",))),
    Message(
        look=Look(
            queues={"in": QueueSeen(ready=3, working=1, done=True), "out": QueueSeen()},
            controls=Controls(
                paused=True,
                quit="now",
                quit_at=1_700_000_000_123_456_789,
                scale={"parse": 4, "other": None},
                requests=(Request("restart", "parse-2", "1" * 18),),
                notes=("odd",),
            ),
            trouble="full",
        )
    ),
]


@pytest.mark.parametrize("message", MESSAGES)
def test_message_arrives_as_it_was_said(message: Message) -> None:
    line = to_line(message)
    assert line.count(b"\n") == 1
    assert understood(line[:-1], Message) == message


def test_brief_and_errands_arrive_as_they_were_said() -> None:
    brief = Brief(pipeline=PIPELINE, host="rose", local="/var/lib/w", made=("in",), parent=7)
    assert understood(to_line(brief), Brief) == brief
    errands = Errands(recover=("in",), look=True, pipeline=PIPELINE)
    assert understood(to_line(errands), Errands) == errands


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_what_is_not_understood_is_ignored(line: bytes) -> None:
    # Neither raises.
    assert isinstance(understood(line, Message), Message | None)
    assert isinstance(understood(line, Errands), Errands | None)


def test_what_a_later_version_says_besides_is_ignored() -> None:
    assert understood(b'{"note":"odd","mood":"good"}', Message) == Message(note="odd")


def test_waiting_is_what_could_be_claimed_and_unfinished_what_may_become_work() -> None:
    seen = QueueSeen(ready=1, failed=2, later=7, due=4, working=8, written=16, writing=32)
    assert seen.waiting == 7
    assert seen.unfinished == 1 + 2 + 7 + 8 + 16 + 32


def test_lines_come_in_pieces_and_one_without_an_end_does_not_fill_the_memory() -> None:
    ours, theirs = socket.socketpair()
    line = Line(ours.detach())

    def heard(said: bytes) -> list[bytes]:
        """Return the lines that are whole once this was said."""
        lines: list[bytes] = []
        for start in range(0, len(said), 1 << 16):
            theirs.sendall(said[start : start + (1 << 16)])
            lines += line.receive() or []
        return lines

    assert heard(b"one\ntw") == [b"one"]
    assert heard(b"o\n\nthree") == [b"two", b""]
    assert heard(b"\n" + b"x" * (MAX_LINE + (1 << 16))) == [b"three"]
    assert heard(b"rest\nnext\n")[-1:] == [b"next"]
    assert line.receive() == []
    theirs.close()
    assert line.receive() is None
    line.close()
