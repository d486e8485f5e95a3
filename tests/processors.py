"""What the tests' drivers do to documents."""

import contextlib
import ctypes
import errno
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from queuedriver.claims.document import Document, Output
from queuedriver.disk.filesystem import copy_all
from queuedriver.errors import Interrupted, PermanentError, TryLater

# Seconds: longer than any test lasts.
_AGES = 600
_POLL = 0.002


def root(document: Document) -> Path:
    """The directory in which the queues are."""
    return Path(os.path.dirname(os.path.dirname(document.path)))


def shout(document: Document) -> bytes:
    return document.read().upper()


def count(document: Document) -> bytes:
    """Says which attempt it was."""
    return f"attempt {document.attempt}".encode()


def doze(document: Document) -> bytes:
    """Takes a moment, and says which attempt it was."""
    data = document.read()
    time.sleep(0.01)
    return f"attempt {document.attempt}: ".encode() + data


def append(document: Document) -> bytes:
    """Says where the document has been."""
    return document.read() + f"{document.queue} ".encode()


def gate(document: Document, beside: Path | None = None) -> bytes:
    """Waits until the test lets the document pass."""
    beside = beside or root(document)
    (beside / f"at-{document.docid}").touch()
    while not ((beside / "go").exists() or (beside / f"go-{document.docid}").exists()):
        time.sleep(_POLL)
    return document.read().upper()


def record(document: Document) -> None:
    """Notes the order of documents."""
    time.sleep(0.01)
    with open(root(document) / "order", "a") as file:
        file.write(f"{document.queue}/{document.docid}\n")


def record_at_gate(document: Document) -> None:
    """The same, and waits until the test lets the document pass."""
    record(document)
    gate(document)


def sort(document: Document) -> Iterator[Output]:
    """One output into each queue that the docid's words name."""
    for queue in document.docid.split("-")[1:]:
        yield Output(document.read(), queue=queue)


# What goes wrong


def judge(document: Document) -> bytes:
    """Goes wrong in the way that the docid's first word says."""
    match document.docid.partition("-")[0]:
        case "bad":
            raise ValueError("this one never works")
        case "hopeless":
            raise PermanentError("no use")
        case "later":
            raise TryLater(after=_AGES, reason="not today")
        case "poison":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            time.sleep(_AGES)
        case "stubborn":
            _swallow_one()
            time.sleep(_AGES)
        case "immortal":
            while True:
                _swallow_one()
        case "gil":
            _hold_gil()
    return count(document)


def judge_all(documents: Sequence[Document]) -> list[bytes]:
    """The same for a batch: one that goes wrong spoils the call."""
    (root(documents[0]) / f"called-{time.monotonic_ns():020}").write_text(
        " ".join(sorted(document.docid for document in documents))
    )
    return [judge(document) for document in documents]


def judge_each(documents: Sequence[Document]) -> list[bytes | Exception]:
    """The same, but says which one goes wrong."""
    answers: list[bytes | Exception] = []
    for document in documents:
        try:
            answers.append(judge(document))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is one document's
            answers.append(error)
    return answers


def _swallow_one() -> None:
    try:
        time.sleep(_AGES)
    except BaseException:  # noqa: BLE001 - what careless code does
        pass


def _hold_gil() -> None:
    """As C code that neither lets go of the interpreter nor heeds signals."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM, signal.SIGTERM})
    ctypes.PyDLL(None).sleep(_AGES)


def dribble(document: Document) -> Iterator[bytes]:
    """Answers bit by bit, and never to the end."""
    yield document.read()
    time.sleep(_AGES)


def stall(document: Document) -> None:
    """Waits for a file system that does not answer, as long as nothing else ends it."""
    source, _writer = os.pipe()
    target = os.open(os.devnull, os.O_WRONLY)
    while True:
        with contextlib.suppress(Interrupted):
            copy_all(source, target)


_hoard: list[bytearray] = []


def leak(document: Document) -> None:
    """Takes memory and keeps it, though not all that there is."""
    if len(_hoard) < 8:
        _hoard.append(bytearray(os.urandom(1) * (64 << 20)))
    time.sleep(0.05)


def complain(document: Document) -> None:
    """Meets trouble with a disk that is none of the queues'."""
    raise OSError(errno.EIO, os.strerror(errno.EIO), "/some/other/disk")


def ignore(document: Document) -> bytes:
    """Never looks at the document."""
    return document.docid.encode()


def peek(document: Document) -> bytes:
    """Looks at its beginning only."""
    with document.open() as file:
        return file.read(3)


def misbehave(document: Document) -> object:
    """Does what the docid says, and should not."""
    misdeed = _MISDEEDS.get(document.docid)
    if misdeed is not None:
        return misdeed(document)
    if document.docid.endswith("good"):
        return b"fine"
    raise ValueError("this one never works")


def _recurse(document: Document) -> object:
    return _recurse(document)


def _raise(error: BaseException) -> NoReturn:
    raise error


def _late(document: Document) -> Iterator[bytes]:
    yield b"first output"
    raise ValueError("after the first output")


_MISDEEDS: dict[str, Callable[[Document], object]] = {
    "surrogate": lambda document: _raise(ValueError("\udce9")),
    "exit": lambda document: sys.exit(3),
    "recurse": _recurse,
    "memory": lambda document: bytearray(1 << 62),
    "group": lambda document: _raise(ExceptionGroup("several", [ValueError(), KeyError()])),
    "number": lambda document: 42,
    "mapping": lambda document: {"text": 1},
    "numbers": lambda document: [b"fine", 42],
    "late": _late,
    "twice": lambda document: [b"one", b"two"],
    "outside": lambda document: Output(b"", docid="../outside"),
    "nowhere": lambda document: Output(b"", queue="nowhere"),
    "missing": lambda document: Path("/nowhere/at/all"),
    "directory": root,
    "text": lambda document: "\udce9",
    "itself": lambda document: Path(document.path),
    "leave": lambda document: os._exit(0),
    "interrupt": lambda document: _raise(KeyboardInterrupt()),
}
