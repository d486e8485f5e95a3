"""What arguments mean that more than one command takes."""

import os
import sys

from queuedriver.cli import say
from queuedriver.cli.words import argument, flag, option
from queuedriver.errors import BadArgument, QueueError
from queuedriver.operating.queue import Queue

# Parameters that several commands have.
QUEUE = argument("QUEUE", "The queue's directory.")
QUEUES = argument("QUEUE...", "The queues' directories.")
AS_JSON = flag("Print for programs.", "--json")
QUIET = flag("Say nothing but errors.", "--quiet", "-q")
YES = flag("Do not ask.")
CALL = option("PKG.MOD:FUNCTION", "Call a Python function, or a plug-in by name.")
COMMAND = option("WORDS", "Run a program per document: 'tool {input} {output}'.")
SERVER = option("WORDS", "Keep a program running: JSON lines in and out.")


def lines_of(path: str, separator: bytes = b"\n") -> list[str]:
    """Return the names in a file, each with a separator after it; `-` is stdin."""
    if path == "-":
        data = sys.stdin.buffer.read() if sys.stdin else b""
    else:
        with open(path, "rb") as file:
            data = file.read()
    return [os.fsdecode(line) for line in data.split(separator) if line]


def warn_of(queue: Queue) -> None:
    """Say that a queue is closed, paused or told to quit, and what to type."""
    for word, meaning in queue.controls().meanings(queue.path):
        say(f"{queue.path} is {word}: {meaning}")
    warn_of_trip(queue)


def warn_of_trip(queue: Queue) -> None:
    """Say that the stage of a queue has stopped itself, why, and what to type."""
    if trip := queue.stopped():
        say(f"{queue.path} is TRIPPED: {trip.words(queue.path)}")


def confirm(what: str, yes: bool) -> None:
    """Go on with what touches many documents only when somebody said so, and say how many."""
    if yes:
        say(what)
        return
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr and sys.stderr.isatty()):
        raise BadArgument(f"{what}: say --yes if that is meant")
    print(f"{what}? [y/N]: ", end="", file=sys.stderr, flush=True)
    # To end the input is to decline.
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise QueueError("nothing was changed")
