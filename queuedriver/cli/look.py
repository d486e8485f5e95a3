"""`list`, `show`, `why` and `history`: commands that look and change nothing."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from queuedriver.cli import say, showing
from queuedriver.cli.arguments import AS_JSON, QUEUE, warn_of_trip
from queuedriver.cli.render import escape_name, paint_for, write_json
from queuedriver.cli.words import argument, flag, option
from queuedriver.disk.filesystem import Directory
from queuedriver.errors import BadArgument, NotFound, explained
from queuedriver.format.event import describe
from queuedriver.format.units import format_count
from queuedriver.operating import document_view
from queuedriver.operating.document_view import (
    DocumentView,
    docid_of,
    explain,
    extended,
    gather,
    list_places,
)
from queuedriver.operating.history import Reading
from queuedriver.operating.queue import Queue

DOCID = argument("DOCID", "The document; the name of its file will do.")


def list_items(
    queue: str = QUEUE,
    state: list[str] | None = option("STATE", "Only these; may be given more than once."),
    as_json: bool = flag("Print JSON, one a line.", "--json"),
) -> None:
    """List the documents of a queue, one a line, in the order of the directory.

    States: ready, failed, later, working, written, writing, failed_twice, discarded.
    """
    for one in state or ():
        if one not in showing.STATES:
            raise BadArgument(f"no state {one!r}; there are: {', '.join(showing.STATES)}")
    with Queue.open(queue) as opened:
        found = list_places(opened, state or showing.STATES)
        if as_json:
            for place in found:
                write_json(showing.line_as_json(place), indent=None)
            return
        warn_of_trip(opened)
        now = time.time()
        for index, place in enumerate(found):
            if not index:
                print(paint_for(sys.stdout).head(showing.HEAD))
            print(showing.line(place, now))


def show(queue: str = QUEUE, docid: str = DOCID, as_json: bool = AS_JSON) -> None:
    """Show all that is known of a document.

    Its files, its attempts, and of one that was discarded the whole report: the cause, the
    traceback or exit code, the end of stderr, the stacks.
    """
    with _document(queue, docid) as seen:
        sentence = explain(seen)
        if as_json:
            write_json(showing.as_json(seen, sentence))
            return
        print(*showing.lines(seen, sentence, paint_for(sys.stdout)), sep="\n")


def why(queue: str = QUEUE, docid: str = DOCID) -> None:
    """Say in a sentence why a document is where it is; or, of a folder that an intake takes from,
    what a file in it waits for."""
    if sentence := _of_folder(queue, docid):
        print(escape_name(f"{docid}: {sentence}"))
        return
    with _document(queue, docid) as seen:
        print(escape_name(f"{seen.docid}: {explain(seen)}"))


def history(queue: str = QUEUE, docid: str = DOCID, as_json: bool = AS_JSON) -> None:
    """Tell what happened to a document: when, by which driver, on which host, how long it took."""
    with _document(queue, docid) as seen:
        events = document_view.history(seen)
        if as_json:
            found = {"queue": seen.around.queue, "docid": seen.docid}
            write_json({**found, "events": events})
        else:
            for event in events:
                print(describe(event))
    warn_of_gaps([seen.journal])


def warn_of_gaps(readings: Sequence[Reading]) -> None:
    """Say what could not be read of journals, so that nobody takes silence for a fact."""
    for path in sorted({path for one in readings for path in one.unreadable}):
        say(f"{path} could not be read")
    if skipped := max((one.skipped for one in readings), default=0):
        journal = "journal" if len(readings) == 1 else "journals"
        say(f"damaged and left out: {format_count(skipped, 'line')} of the {journal}")


def _of_folder(folder: str, path: str) -> str:
    """Return what a file of a folder waits for; "" where no intake takes from it."""
    # Late: few ask for that.
    from queuedriver.intake import examining

    with explained(folder), Directory.open(folder) as opened:
        return examining.why(opened, path)


@contextmanager
def _document(queue: str, text: str) -> Iterator[DocumentView]:
    """Gather what is known of the document that was meant; NotFound when that is nothing."""
    with Queue.open(queue) as opened:
        seen = gather(opened, docid_of(text))
        if seen.unknown and (docid := extended(opened, seen.docid)):
            seen = gather(opened, docid)
        if seen.unknown:
            raise NotFound(
                f"no document {seen.docid!r} is or was in {seen.around.queue}; "
                f"queuedriver list {seen.around.queue} shows what is there"
            )
        yield seen
