"""`get`: a driver that changes nothing, and whose output directory is an ordinary one."""

import time
from collections.abc import Sequence
from pathlib import Path

from queuedriver.claims.document import Document, Outputs
from queuedriver.cli import say, say_some
from queuedriver.cli.arguments import AS_JSON, QUIET
from queuedriver.cli.run import drive
from queuedriver.cli.words import argument, flag
from queuedriver.disk.journal import journal_path
from queuedriver.driving.driver import Driver
from queuedriver.driving.limits import Limits
from queuedriver.driving.loop import Left
from queuedriver.errors import PermanentError
from queuedriver.format.units import format_count
from queuedriver.operating.history import read_events
from queuedriver.options import Options
from queuedriver.processors.base import Processor

# One sync of the file system serves so many documents.
_BATCH = 32
# To be killed while it is copied is no fault of a document's.
_RETRIES = 10
# What its journal says of a document that became a file.
_ARRIVED = ("published", "recovered")


class Collect(Processor):
    """Copies documents to the output directory; there is nothing to start or stop."""

    name = "get"

    def process(self, document: Document, outputs: Outputs, limits: Limits) -> None:
        try:
            outputs.take(Path(document.path), limits)
        except PermissionError as error:
            raise PermanentError(f"it cannot be copied: {error.strerror}") from error


def get(
    queue: str = argument("QUEUE", "The queue to empty."),
    dest: str = argument("DEST", "The directory for the files; made if missing."),
    follow: bool = flag("Wait for more, until the queue is closed."),
    durable: bool = flag(
        "Make files survive a power cut before they leave the queue.", default=True
    ),
    quiet: bool = QUIET,
    as_json: bool = AS_JSON,
) -> int:
    """Collect what a queue holds as plain files, each exactly once.

    Each document that waits in QUEUE becomes a file in DEST, named by its docid, and leaves the
    queue. While it is copied its name ends in .writing. A file of the same name is never
    overwritten: the second gets a name of its own, <stem>~<serial>.<ext>, and is named at the end.
    Any number may collect at once, and one that is killed is finished by the next.
    """
    options = Options(
        drain=not follow,
        await_writing=follow,
        retries=_RETRIES,
        batch=_BATCH,
        publish="{docid}",
        durable=durable,
    )
    driver = Driver(queue, Collect(), dest, options=options)
    started_at = time.time()
    left = drive(driver, [queue], quiet)
    collected = _collected(queue, driver.id, started_at)
    if not quiet:
        _summarize(left, collected, dest)
    if as_json:
        from queuedriver.cli.render import write_json

        files = [{"docid": docid, "file": name} for docid, name in collected]
        write_json({"word": left.word, "why": left.why, "files": files})
    return left.exit_code


def _collected(queue: str, driver: str, since: float) -> list[tuple[str, str]]:
    """Return the docids that a driver published, and as which files: its journal alone knows."""
    events = read_events(journal_path(queue), since).events
    ours = (one for one in events if one.driver == driver and one.event in _ARRIVED)
    return [(one.docid, name) for one in ours for name in one.outputs or ()]


def _summarize(left: Left, collected: Sequence[tuple[str, str]], dest: str) -> None:
    second = [(docid, name) for docid, name in collected if name != docid]
    there = f"in {dest} already; this one is"
    say_some([f"there was a {docid!r} {there} {name!r}" for docid, name in second], "file")
    words = f"{format_count(len(collected), 'file')} collected in {dest}"
    if left.counters.discarded:
        words += f", {left.counters.discarded:,} discarded: they were not files"
    # What ends well needs no reason.
    say(words if left.word in ("drained", "done") else f"{words}; {left.word}: {left.why}")
