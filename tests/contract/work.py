"""What the documents of the contract ask for, done by each kind of processor.

The first word of a document says what is to happen to it, the rest is its text:

    copy        its text in capitals, once for each output
    fail        an error that may pass; `permanent` one that will not; `later` not now
    slow        longer than any time-out; `deaf` the same, and it does not hear that it must stop
    die         the process that works on it ends at once, without a word
    once-…      the same, but only at the first attempt
    wait        until the test opens the gate
    large       its text 4 MiB long; what it could write of it is removed when there is no room

Run as a program it is a command (INPUT OUTPUT…) or, with `--serve NAMES`, a server. It imports
nothing of ours then, so that it starts quickly.
"""

import json
import os
import signal
import sys
import time

LATER = 3600.0
LARGE = 4 << 20
_POLL = 0.005


class Failure(Exception):
    """The document failed; the argument says how: fail, permanent or later."""


def asked(data: bytes, attempt: int) -> tuple[str, bytes]:
    """Return what is to be done with a document, and its text."""
    word, _, text = data.partition(b" ")
    verb = word.decode()
    if verb.startswith("once-"):
        verb = verb.removeprefix("once-") if attempt == 0 else "copy"
    return verb, text


def worked(data: bytes, attempt: int, path: str) -> bytes:
    """Do what the document asks for; return what its outputs hold."""
    verb, text = asked(data, attempt)
    match verb:
        case "copy":
            pass
        case "fail" | "permanent" | "later":
            raise Failure(verb)
        case "slow":
            time.sleep(600)
        case "deaf":
            _sleep_deaf()
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "wait":
            _wait(path)
        case "large":
            return text.upper() * (LARGE // len(text))
    return text.upper()


def _sleep_deaf() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        try:
            time.sleep(600)
        except BaseException:  # noqa: BLE001 - that it does not let go is the point
            continue


def _wait(path: str) -> None:
    """Say that the document is being worked on, and wait until it may go on."""
    beside = os.path.dirname(os.path.dirname(path))
    docid = os.path.basename(path).split(".")[0]
    with open(os.path.join(beside, f"at-{docid}"), "w"):
        pass
    while not os.path.exists(os.path.join(beside, "go")):
        time.sleep(_POLL)


def as_command(source: str, attempt: str, *targets: str) -> int:
    """Be the command of one document; return its exit code."""
    with open(source, "rb") as file:
        data = file.read()
    try:
        output = worked(data, int(attempt), source)
    except Failure as failure:
        return {"fail": 1, "permanent": 65, "later": 75}[str(failure)]
    for target in targets:
        try:
            write(target, output)
        except OSError as error:
            print(f"cannot write: {error.strerror}", file=sys.stderr)
            return 1
    return 0


def write(target: str, output: bytes) -> None:
    """Write a file whole, or not at all."""
    try:
        with open(target, "wb") as file:
            file.write(output)
    except OSError:
        os.unlink(target)
        raise


def as_server(queues: list[str]) -> None:
    """Answer documents until nobody asks any more."""
    for line in sys.stdin:
        question = json.loads(line)
        print(json.dumps(_answer(question, queues)), flush=True)


def _answer(question: dict[str, object], queues: list[str]) -> dict[str, object]:
    source, attempt = str(question["input"]), int(str(question["attempt"]))
    with open(source, "rb") as file:
        data = file.read()
    try:
        output = worked(data, attempt, source)
    except Failure as failure:
        if str(failure) == "later":
            return {"later": LATER, "reason": "busy"}
        return {"error": "it failed", "permanent": str(failure) == "permanent"}
    if not queues:
        return {"ok": True}
    outputs = []
    for at, queue in enumerate(queues):
        path = f"{question['output']}.{at}.part"
        try:
            write(path, output)
        except OSError as error:
            print(f"cannot write: {error.strerror}", file=sys.stderr, flush=True)
            return {"error": f"cannot write: {error.strerror}"}
        outputs.append({"path": path, "queue": queue})
    if len(queues) > 1:
        return {"outputs": outputs}
    os.rename(str(outputs[0]["path"]), str(question["output"]))
    return {"ok": True}


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        as_server(sys.argv[2:])
    else:
        sys.exit(as_command(*sys.argv[1:]))
