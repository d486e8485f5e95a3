"""What the stages of the chaos do to documents; copied beside the pipeline's file.

A document's kind is the first word of its docid, and `<kind>-<stage>-<number>` has it come out at
that stage:

    poison   crashes the driver, each time      wrong   says that it will never work
    twin     has two outputs                    none    has no output
    later    is not to be tried at once         flaky   fails the first time
    long     takes long                         good    does nothing of all that

Each begin and end of processing is noted in a file that one process alone appends to, on this
machine and not among the queues: so that what two processed at once can be told from what was
published twice.
"""

import contextlib
import json
import os
import signal
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

from queuedriver import Document, Output, PermanentError, TryLater

STAGES = ("one", "two", "three")
# Where notes go, and the name of the host that this process is on.
RECORDS = "CHAOS_RECORDS"
HOST = "CHAOS_HOST"
LONG = 0.4
# Of a twin, the second output.
SECOND = ".b"

# Stage two. It writes its output bit by bit: half of it may be all there is when it is killed.
SCRIPT = """\
#!/bin/sh
# input output docid attempt; that a program it runs was killed is a failure of its own
set -e
note() {
    read -r now _ < /proc/uptime
    echo "$now $1 two $docid $attempt" >> "$CHAOS_RECORDS/two-$CHAOS_HOST-$PPID"
}
docid=$3 attempt=$4
note begin
number=${docid##*-}
number=${number%%[!0-9]*}
case $docid in
    poison-two-*) kill -9 $PPID; sleep 60 ;;
    wrong-two-*) echo "it says so itself" >&2; note end; exit 65 ;;
    flaky-two-*) [ "$attempt" -gt 0 ] || { note end; exit 1; } ;;
    long-two-*) sleep 0.4 ;;
esac
exec > "$2"
cat "$1"
[ $((number % 3)) -gt 0 ] || sleep "0.0$((number % 2))$((number % 10))"
echo two
note end
"""


def first(data: bytes) -> bytes:
    """What stage one makes of a document; a twin's second output is this of its reverse."""
    return data + b"one %08x\n" % zlib.crc32(data)


def second(data: bytes) -> bytes:
    """The same for stage two; SCRIPT does it."""
    return data + b"two\n"


def third(data: bytes) -> bytes:
    """The same for stage three."""
    return data + b"three %08x\n" % zlib.crc32(data)


def is_at(stage: str, kind: str, docid: str) -> bool:
    return docid.startswith(f"{kind}-{stage}-")


def moment(stage: str, docid: str) -> float:
    """How long a document takes, in seconds: most of them none, so that it is often amid a hand-off
    that a driver is struck."""
    if is_at(stage, "long", docid):
        return LONG
    # Not of a second one, which should not be, but is a number all the same.
    number = int(docid.partition("~")[0].removesuffix(SECOND).rpartition("-")[2])
    return number % 20 / 1000 if number % 3 == 0 else 0.0


def one(document: Document) -> object:
    """Stage one, in the driver's own process."""
    docid = document.docid
    with noted("one", docid, document.attempt):
        if is_at("one", "poison", docid):
            os.kill(os.getpid(), signal.SIGKILL)
        if is_at("one", "wrong", docid):
            raise PermanentError("it says so itself")
        if is_at("one", "flaky", docid) and not document.attempt:
            raise ValueError("not the first time")
        if is_at("one", "later", docid) and _is_first_time(docid):
            raise TryLater(after=1.0, reason="not now")
        data = document.read()
        time.sleep(moment("one", docid))
        if is_at("one", "none", docid):
            return None
        if is_at("one", "twin", docid):
            return [Output(first(data)), Output(first(data[::-1]), docid=docid + SECOND)]
        return first(data)


def serve() -> None:
    """Stage three, as a program that stays."""
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        with noted("three", asked["docid"], asked["attempt"]):
            answer = _three(asked["docid"], asked["attempt"], asked["input"], asked["output"])
        print(json.dumps(answer), flush=True)


def _three(docid: str, attempt: int, source: str, target: str) -> dict[str, object]:
    if is_at("three", "poison", docid):
        os.kill(os.getppid(), signal.SIGKILL)
        # Whoever recovers the driver kills what it has left running.
        time.sleep(60)
    if is_at("three", "wrong", docid):
        return {"error": "it says so itself", "permanent": True}
    if is_at("three", "flaky", docid) and not attempt:
        return {"error": "not the first time"}
    data = Path(source).read_bytes()
    with open(target, "xb", 0) as file:
        file.write(data)
        time.sleep(moment("three", docid))
        file.write(third(data)[len(data) :])
    return {"ok": True}


@contextlib.contextmanager
def noted(stage: str, docid: str, attempt: int) -> Iterator[None]:
    """Note when processing begins, and when it ends; not when this process is killed in between."""
    _note("begin", stage, docid, attempt)
    try:
        yield
    finally:
        _note("end", stage, docid, attempt)


def _note(word: str, stage: str, docid: str, attempt: int) -> None:
    # Of all processes of this machine, in whatever namespace; /proc/uptime is the same clock.
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    path = f"{os.environ[RECORDS]}/{stage}-{os.environ[HOST]}-{os.getpid()}"
    with open(path, "ab", 0) as file:
        file.write(f"{now:.2f} {word} {stage} {docid} {attempt}\n".encode())


def _is_first_time(docid: str) -> bool:
    try:
        with open(f"{os.environ[RECORDS]}/.{docid}", "x"):
            return True
    except FileExistsError:
        return False


if __name__ == "__main__":
    serve()
