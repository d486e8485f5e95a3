"""What the watchdog and its eyes tell each other arrives as it was said."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdogd.pipeline.model import Drivers, Pipeline, Stage
from watchdogd.snapshot import (
    Brief,
    Controls,
    Errands,
    Message,
    QueueSeen,
    Recovered,
    Request,
    Snapshot,
    brief_of,
    errands_of,
    message_of,
    to_line,
)

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
    Message(alive=True),
    Message(note="strange"),
    Message(
        recovered=(
            Recovered(
                "in",
                2,
                ("a", "ü\n"),
            ),
        )
    ),
    Message(
        snapshot=Snapshot(
            queues={"in": QueueSeen(ready=3, working=1, done=True), "out": QueueSeen()},
            controls=Controls(
                paused=True,
                quit="now",
                scale={"parse": 4, "other": None},
                requests=(Request("restart", "parse-2", "1" * 18),),
                notes=("odd",),
            ),
            trouble="full",
            timeouts={"parse": 600.0, "other": None},
            took=0.25,
        )
    ),
]


@pytest.mark.parametrize("message", MESSAGES)
def test_message_arrives_as_it_was_said(message: Message) -> None:
    line = to_line(message)
    assert line.count(b"\n") == 1
    assert message_of(line[:-1]) == message


def test_brief_and_errands_arrive_as_they_were_said() -> None:
    brief = Brief(pipeline=PIPELINE, host="rose", local="/var/lib/w", made=("in",), parent=7)
    assert brief_of(to_line(brief)) == brief
    errands = Errands(recover=("in",), forget_controls=("QUIT",), pipeline=PIPELINE)
    assert errands_of(to_line(errands)) == errands


def test_status_document_is_passed_on_as_it_is() -> None:
    document = b'{"host":"rose","n":1.50,"x":[null,"\\u00fc"]}'
    heard = errands_of(to_line(Errands(publish=msgspec.Raw(document))))
    assert heard is not None
    assert bytes(heard.publish) == document
    nothing = errands_of(to_line(Errands()))
    assert nothing is not None
    assert bytes(nothing.publish) == b""


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_what_is_not_understood_is_ignored(line: bytes) -> None:
    # Neither raises.
    assert isinstance(message_of(line), Message | None)
    assert isinstance(errands_of(line), Errands | None)


def test_what_a_later_version_says_besides_is_ignored() -> None:
    assert message_of(b'{"alive":true,"mood":"good"}') == Message(alive=True)


def test_waiting_is_what_could_be_claimed_and_unfinished_what_may_become_work() -> None:
    seen = QueueSeen(ready=1, failed=2, later=7, due=4, working=8, written=16, writing=32)
    assert seen.waiting == 7
    assert seen.unfinished == 1 + 2 + 7 + 8 + 16 + 32
