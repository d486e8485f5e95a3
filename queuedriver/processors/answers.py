"""Lines between a driver and its server; `server` has the rules in words. Pure."""

import json
import os

import msgspec

from queuedriver.claims.outcomes import MAX_LATER

# An answer names files; one this long (in bytes) is a file sent the wrong way.
MAX_LINE = 1024 * 1024
_SHOWN = 100


class Fault(Exception):
    """The server broke the rules, or took too long; the message says how."""

    def __init__(self, words: str, cause: str = "server") -> None:
        super().__init__(words)
        self.cause = cause


class AnsweredOutput(msgspec.Struct, frozen=True):
    """A file that the server wrote itself."""

    path: str
    docid: str | None = None
    queue: str | None = None
    ext: str | None = None


class Answer(msgspec.Struct, frozen=True):
    """One line of a server: exactly one of ready, ok or outputs, error, later."""

    ready: bool = False
    ok: bool = False
    outputs: tuple[AnsweredOutput, ...] | None = None
    error: str | None = None
    permanent: bool = False
    traceback: str | None = None
    later: float | None = None
    reason: str = ""
    docid: str | None = None


def question(docid: str, attempt: int, source: str, output: str | None) -> bytes:
    """Return the line that hands a document over.

    In ASCII, by the standard library: a name that is not UTF-8 has lone surrogates, and they have
    no other form in JSON that all readers take.
    """
    asked = {"docid": docid, "attempt": attempt, "input": source, "output": output}
    return json.dumps(asked).encode() + b"\n"


def parse(line: bytes) -> Answer:
    """Return what a line means. Raise Fault when it means nothing."""
    try:
        answer = msgspec.convert(json.loads(line), Answer)
    # A recursion error is what json makes of a line of brackets.
    except (ValueError, OverflowError, RecursionError, msgspec.ValidationError) as error:
        raise _fault(f"said something that is no answer ({error})", line) from None
    done = answer.ok or answer.outputs is not None
    if sum((answer.ready, done, answer.error is not None, answer.later is not None)) != 1:
        raise _fault("said none, or more than one, of ready, ok, error and later", line)
    if answer.later is not None and not 0 <= answer.later <= MAX_LATER:
        raise _fault("said a 'later' that is no number of seconds to wait", line)
    if not all(_may_be_path(one.path) for one in answer.outputs or ()):
        raise _fault("named a path that cannot be one", line)
    return answer


def take_line(said: bytearray) -> bytes | None:
    """Take the first whole line off what was said; return None when there is none yet."""
    end = said.find(b"\n", 0, MAX_LINE + 1)
    if end < 0:
        if len(said) > MAX_LINE:
            raise _fault(f"said a line of more than {MAX_LINE} bytes", said)
        return None
    line = bytes(said[:end])
    del said[: end + 1]
    return line


def _fault(what: str, line: bytes | bytearray) -> Fault:
    shown = line[:_SHOWN].decode("utf-8", "backslashreplace")
    return Fault(f"{what}: {shown}{'…' if len(line) > _SHOWN else ''}")


def _may_be_path(path: str) -> bool:
    try:
        return bool(path) and b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        return False
