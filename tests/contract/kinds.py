"""The kinds of processors that are held to one list of promises, and where one differs."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from queuedriver.claims.document import Document, Output
from queuedriver.errors import PermanentError, TryLater
from queuedriver.processors.base import Processor
from queuedriver.processors.call import CallProcessor
from queuedriver.processors.command import CommandProcessor
from queuedriver.processors.server import ServerProcessor
from tests.contract import work

# Without site-packages and the user's own start-up: a command is started for each document.
PROGRAM = [sys.executable, "-I", "-S", str(Path(work.__file__))]


class Kind(NamedTuple):
    """How one kind of processor is made, for a batch or not, and for the output queues named."""

    name: str
    make: Callable[[bool, Sequence[str]], Processor]


class _Function:
    """The function of a call. An instance can be sent to the driver's process."""

    def __init__(self, queues: Sequence[str]) -> None:
        self._queues = queues

    def __call__(self, document: Document) -> list[Output] | bytes | None:
        try:
            output = work.worked(document.read(), document.attempt, document.path)
        except work.Failure as failure:
            raise _meant(failure) from None
        if len(self._queues) > 1:
            return [Output(output, queue=queue) for queue in self._queues]
        return output if self._queues else None


class _Batch(_Function):
    """The same for a list of documents, of which one that fails does not spoil the others."""

    def __call__(self, documents: list[Document]) -> list[object]:  # type: ignore[override]
        answers: list[object] = []
        for document in documents:
            try:
                answers.append(super().__call__(document))
            except (ValueError, PermanentError, TryLater) as error:
                answers.append(error)
        return answers


def _meant(failure: work.Failure) -> Exception:
    match str(failure):
        case "permanent":
            return PermanentError("it will never do")
        case "later":
            return TryLater(work.LATER, "busy")
    return ValueError("it failed")


def _call(batch: bool, queues: Sequence[str]) -> Processor:
    return CallProcessor((_Batch if batch else _Function)(tuple(queues)), "work")


def _command(batch: bool, queues: Sequence[str]) -> Processor:
    outputs = [f"{{output:{queue}}}" for queue in queues]
    return _impatient(CommandProcessor([*PROGRAM, "{input}", "{attempt}", *outputs]))


def _server(batch: bool, queues: Sequence[str]) -> Processor:
    return _impatient(ServerProcessor([*PROGRAM, "--serve", *queues]))


def _impatient(processor: CommandProcessor | ServerProcessor) -> Processor:
    processor.grace = 0.2
    return processor


KINDS = (Kind("call", _call), Kind("command", _command), Kind("server", _server))

# Where a kind differs from the others, by the promise's short name, and why.
DIFFERENT = {
    ("call", "deaf"): "its process is the driver's, which the hard limit ends; the others are "
    "ended alone, at the soft one",
    ("call", "die"): "its process is the driver's: the watchdog, or whoever starts the next one, "
    "charges it",
    ("call", "silent"): "whether a function answers anything is known at its first answer; the "
    "others are refused before the first claim",
}
