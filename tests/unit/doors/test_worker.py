"""A worker's loop, between a session and a processor."""

import os
import signal
from collections.abc import Iterator

from queuedriver.doors.scale0 import wire
from queuedriver.doors.scale0.settings import WorkerSettings
from queuedriver.doors.scale0.wire import Options
from queuedriver.doors.transports.base import Arrival, Message, Transport
from queuedriver.doors.words import Leave
from queuedriver.doors.worker import work
from queuedriver.processors.call import CallProcessor


def said(command: str, body: bytes | None = None, **options: object) -> Message:
    return Message(b"", list(wire.encode(command, Options(**options), body)))  # type: ignore[arg-type]


class TellsOff(Transport):
    """A broker that deals a request and sends its worker away with the next word; the worker is
    asked to leave just then."""

    def __init__(self) -> None:
        self.fd = os.eventfd(1)
        self.answers: list[list[Message]] = []

    def send(self, peer: bytes, frames: tuple[bytes, ...]) -> bool:
        if frames[0] == b"CHECKCONFIG":
            self.answers.append([said("CONFIG", services=("",), config_version="v1")])
        if frames[0] == b"READY":
            deal = said("WORKREQUEST", b"in", work_request_identifier="b:1", docid="doc")
            self.answers.append([said("READYOK"), deal, said("DISCONNECTERROR", error_code=501)])
        return True

    def arrivals(self) -> Iterator[Arrival]:
        for message in self.answers.pop(0) if self.answers else ():
            if message.frames[0] == b"DISCONNECTERROR":
                os.kill(os.getpid(), signal.SIGTERM)
            yield message

    def pending(self) -> bool:
        return bool(self.answers)

    def fds(self) -> list[int]:
        return [self.fd]

    def close(self) -> None:
        os.close(self.fd)


class Settings(WorkerSettings, frozen=True, kw_only=True):
    def transport(self, name: str, to: str = "") -> TellsOff:
        return TellsOff()


def nothing(document: object) -> bytes:
    raise AssertionError("it was the broker's again")


def test_worker_that_is_sent_away_while_it_is_asked_to_leave_begins_nothing_and_leaves() -> None:
    leave = work(Settings(), CallProcessor(nothing, "nothing"), print)
    assert isinstance(leave, Leave)
    assert leave.exit_code == 78
