"""What the stages of benchmarks/alternatives.py do with a document, whoever runs them.

The environment says how: WORK_SECONDS for each stage, WORK_LOG for a file to which each stage adds
a line when it begins and when it has ended, WORK_MODEL and WORK_LOAD for something of so many bytes
that takes so many seconds to load. The document `poison` kills its process in the second stage, and
`hang` never leaves it.

    python -m benchmarks.alternatives_work DOCID…    a model, and what it does to these documents

Nothing of queuedriver is imported: it runs in other people's workers.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

STAGES = (1, 2, 3)
# The stage that the two bad documents do not leave, and what these are called.
BAD_STAGE = 2
POISON = "poison"
HANG = "hang"
BEGUN = "begun"
ENDED = "ended"
_HOUR = 3600.0


def work(stage: int, docid: str) -> None:
    """Take the time that a stage takes, and say when it begins and when it has ended."""
    log = os.environ.get("WORK_LOG")
    _note(log, BEGUN, stage, docid)
    if stage == BAD_STAGE and docid == POISON:
        os.kill(os.getpid(), signal.SIGKILL)
    if stage == BAD_STAGE and docid == HANG:
        time.sleep(_HOUR)
    if seconds := float(os.environ.get("WORK_SECONDS", "0")):
        time.sleep(seconds)
    _note(log, ENDED, stage, docid)


def _note(log: str | None, word: str, stage: int, docid: str) -> None:
    if not log:
        return
    # One write to a file that is appended to: lines of several workers do not mix.
    fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, f"{word} {stage} {docid} {os.getpid()}\n".encode())
    os.close(fd)


def carry(stage: int, docid: str) -> str:
    """Do one stage of a document whose stages are the directories s0 to s3; return the docid."""
    source, target = Path(f"s{stage - 1}/{docid}"), Path(f"s{stage}/{docid}")
    # Nobody is to see half of a result, and a worker may be killed at any moment.
    aside = Path(f"s{stage}/.{docid}.{os.getpid()}")
    if os.environ.get("WORK_AS") == "command":
        subprocess.run(["cp", source, aside], check=True)
    else:
        work(stage, docid)
        aside.write_bytes(source.read_bytes())
    aside.rename(target)
    return docid


_model: bytearray | None = None


def load() -> bytearray:
    """Load the model, once for each process; return it."""
    global _model  # noqa: PLW0603 - it is loaded once
    if _model is None:
        ends_at = time.monotonic() + float(os.environ.get("WORK_LOAD", "0"))
        _model = bytearray(b"x") * int(os.environ.get("WORK_MODEL", "0"))
        # What a real one reads, computes and unpacks meanwhile.
        time.sleep(max(0.0, ends_at - time.monotonic()))
    return _model


def main() -> None:
    load()
    for docid in sys.argv[1:]:
        carry(1, docid)


if __name__ == "__main__":
    main()
