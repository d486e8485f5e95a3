"""A worker's loop, between a session and a processor."""

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from queuedriver.doors.scale0 import wire
from queuedriver.doors.scale0.settings import WorkerSettings
from queuedriver.doors.scale0.wire import Options
from queuedriver.doors.transports.base import Arrival, Message, Transport
from queuedriver.doors.worker import work
from queuedriver.processors.call import CallProcessor


def said(command: str, body: bytes | None = None, **options: Any) -> Message:
    return Message(b"", list(wire.encode(command, Options(**options), body)))


DEAL = said("WORKREQUEST", b"in", work_request_identifier="b:1", docid="doc")
LEAVE = said("DISCONNECTERROR", error_code=501)


class Broker(Transport):
    """A broker of scale0 that deals a request, and says `then` with it; its worker is asked to
    leave when it has answered, or is sent away."""

    def __init__(self, *then: Message, before: Callable[[], None] = lambda: None) -> None:
        self.fd = os.eventfd(1)
        self.before = before
        self.dealt = [said("READYOK"), DEAL, *then]
        self.answers: list[list[Message]] = []
        self.replies: list[Options] = []

    def send(self, peer: bytes, frames: tuple[bytes, ...]) -> bool:
        message = wire.decode(frames)
        match message.command:
            case "CHECKCONFIG":
                self.answers.append([said("CONFIG", services=("",), config_version="v1")])
            case "READY" if self.dealt:
                self.before()
                self.answers.append(self.dealt)
                self.dealt = []
            case "WORKREPLY":
                self.replies.append(message.options)
                os.kill(os.getpid(), signal.SIGTERM)
        return True

    def arrivals(self) -> Iterator[Arrival]:
        for message in self.answers.pop(0) if self.answers else ():
            if message is LEAVE:
                os.kill(os.getpid(), signal.SIGTERM)
            yield message

    def pending(self) -> bool:
        return bool(self.answers)

    def fds(self) -> list[int]:
        return [self.fd]

    def close(self) -> None:
        os.close(self.fd)


class Settings(WorkerSettings, frozen=True, kw_only=True):
    connection: Broker

    def transport(self, name: str, to: str = "") -> Broker:
        return self.connection


def unwanted(document: object) -> bytes:
    raise AssertionError("it was not to be processed")


def test_worker_that_is_sent_away_while_it_is_asked_to_leave_begins_nothing_and_leaves() -> None:
    broker = Broker(LEAVE)
    leave = work(Settings(connection=broker), CallProcessor(unwanted), print)
    assert leave.exit_code == 78
    assert broker.replies == []


def test_document_is_tried_later_where_its_worker_has_no_temporary_directory_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    broker = Broker(before=lambda: shutil.rmtree(place))
    leave = work(Settings(connection=broker), CallProcessor(unwanted), print)
    assert leave.exit_code == 0
    (reply,) = broker.replies
    assert reply.status == 75
    assert "not its fault: somebody has removed" in reply.error_message
