"""What an operator does: retry, discard, pause, resume, quit, close, reopen, recover, check; and
which documents a line names: by docid, by file, without the extension, or by a glob."""

import contextlib
import fnmatch
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from queuedriver.claims.liveness import Observer
from queuedriver.cli import say, say_some
from queuedriver.cli.arguments import AS_JSON, QUEUE, QUEUES, YES, confirm, lines_of, warn_of
from queuedriver.cli.render import escape_name, paint_for, write_json
from queuedriver.cli.words import argument, flag, option
from queuedriver.disk.journal import Journal
from queuedriver.errors import LATER, BadArgument, NotFound
from queuedriver.format import names
from queuedriver.format.records import Event
from queuedriver.format.units import format_count
from queuedriver.operating import operations
from queuedriver.operating.document_view import docid_of, with_extension
from queuedriver.operating.operations import Result, Unjudged
from queuedriver.operating.queue import Queue, opened

if TYPE_CHECKING:
    from queuedriver.check.files import Finding

_FAILED = 1
_BROKEN = 1

_DOCIDS = argument(
    "(DOCID... | -)",
    "The documents, or globs; names of files will do. -: those on stdin, one a line.",
)


def retry(
    queue: str = QUEUE,
    docid: list[str] | None = _DOCIDS,
    everything: bool = flag("All that were discarded or have failed; needs --yes.", "--all"),
    yes: bool = YES,
    as_json: bool = AS_JSON,
) -> int:
    """Let documents be tried again, as if they never had been.

    A discarded document goes back into the queue, and its report away; one that has failed, or is
    not due yet, waits as if it were new.
    """
    if everything and docid:
        raise BadArgument("--all, or DOCIDs, but not both")
    with opened(queue) as found, noting(found) as journal:
        waiting = {item.docid: item.state for _, item in found.items()}
        discarded = found.discarded()
        if everything:
            failed = [one for one, state in waiting.items() if state == "failed"]
            wanted = list(dict.fromkeys((*discarded, *failed)))
        else:
            wanted = matching(meant(docid), dict.fromkeys((*discarded, *waiting)))
        if wanted and (everything or by_glob(docid, wanted)):
            confirm(f"retry {format_count(len(wanted), 'document')} of {found.path}", yes)
        results = operations.retry(found, wanted, journal)
        if any(one.came == "done" for one in results):
            warn_of(found)
        return _told(found, results, as_json)


def discard(
    queue: str = QUEUE,
    docid: list[str] | None = _DOCIDS,
    state: Literal["ready", "failed", "later"] | None = option(
        "", "All that wait in this state; needs --yes."
    ),
    everything: bool = flag("All that wait; needs --yes.", "--all"),
    reason: str = option(
        "TEXT", "What their reports are to say.", default="discarded by an operator"
    ),
    yes: bool = YES,
    as_json: bool = AS_JSON,
) -> int:
    """Discard waiting documents.

    Each goes to discarded/ in the queue, untouched, with a report beside it that says why. What
    is being processed cannot be discarded: pause the queue, or wait. `retry` takes it back.
    """
    states = names.WAITING if everything else (state,) if state else ()
    if states and docid:
        raise BadArgument("--all, --state, or DOCIDs, but only one of them")
    with opened(queue) as found, noting(found) as journal:
        if states:
            wanted: list[str] = []
            listing = found.listing(time.time())
            count = sum(getattr(listing, one) for one in states)
            if not count:
                return 0
        else:
            known = {item.docid: None for _, item in found.items() if item.state in names.WAITING}
            wanted = matching(meant(docid), known)
            count = len(wanted)
        if count and (states or by_glob(docid, wanted)):
            confirm(f"discard {format_count(count, 'document')} of {found.path}", yes)
        return _told(found, operations.discard(found, wanted, states, reason, journal), as_json)


@contextlib.contextmanager
def noting(queue: Queue) -> Iterator[Journal]:
    """Open the journal in which what is done is noted; say so when it could not be."""
    with operations.journal_of(queue) as journal:
        yield journal
    if journal.unnoted:
        say(journal.unnoted)


def _told(queue: Queue, results: Sequence[Result], as_json: bool) -> int:
    code = report_refusals(results)
    if as_json:
        write_json({"queue": queue.path, "documents": [one._asdict() for one in results]})
    return code


def report_refusals(results: Sequence[Result]) -> int:
    """Say why documents were not changed; return the exit code."""
    say_some([one.why for one in results if one.why], "document")
    came = Counter(one.came for one in results)
    if came["missing"]:
        return NotFound.exit_code
    return _FAILED if came["refused"] else 0


# Which documents


def meant(given: Sequence[str] | None) -> list[str]:
    """Return the docids that a command line names, by whatever name of their files, each once;
    `-` stands for those on stdin, one a line."""
    if not given:
        raise BadArgument("which documents? name DOCIDs, or - to read them from stdin")
    found: dict[str, None] = {}
    for one in given:
        # What a shell makes of `discarded/*` will do: docids have no path, and no such ending.
        lines = lines_of("-") if one == "-" else [one]
        found |= {docid_of(line).removesuffix(names.REPORT): None for line in lines}
    return list(found)


def is_meant(text: str, docid: str) -> bool:
    """Return whether a text may stand for a docid: it is it, a glob for it, or lacks its end."""
    return docid == text or docid.startswith(f"{text}.") or fnmatch.fnmatchcase(docid, text)


def matching(given: Iterable[str], known: Collection[str]) -> list[str]:
    """Return the docids that are meant, of those that are known: what is known by just this name,
    all that match a glob, or the one that has an extension more. Any other stays as it is."""
    found: dict[str, None] = {}
    for one in given:
        matched = [one] if one in known else fnmatch.filter(known, one)
        # What nothing matches is named as it was written.
        found |= dict.fromkeys(matched or [with_extension(one, known) or one])
    return list(found)


def by_glob(given: Sequence[str] | None, chosen: Collection[str]) -> bool:
    """Return whether any of what was chosen was not named one by one."""
    return any(one not in chosen and set(one) & set("*?[") for one in given or ())


# Control files


def pause(queue: list[str] = QUEUES) -> None:
    """Let the drivers of a queue claim nothing new.

    They finish the documents at hand, and wait until `resume`.
    """
    _control(queue, {names.PAUSE: True})


def resume(queue: list[str] = QUEUES) -> None:
    """Undo `pause` and `quit`, and let a stage go on that has stopped itself."""
    _control(queue, {names.PAUSE: False, names.QUIT: False})
    for path in queue:
        with opened(path) as one:
            operations.resume(one)


def quit(queue: list[str] = QUEUES) -> None:
    """Let the drivers of a queue leave, after the documents at hand.

    Until `resume`, drivers that are started leave at once.
    """
    _control(queue, {names.QUIT: True})


def close(queue: list[str] = QUEUES) -> None:
    """Say that nothing more will be submitted to a queue.

    Its drivers leave when it is empty, and close the queues that it feeds. `reopen` undoes it. To
    end for today alone, `run --drain` is enough: it closes nothing.
    """
    _control(queue, {names.DONE: True})


def reopen(queue: list[str] = QUEUES) -> None:
    """Undo `close`."""
    _control(queue, {names.DONE: False})


def _control(paths: Sequence[str], wanted: dict[str, bool]) -> None:
    # All are opened first: a slip in the last name changes none of them.
    for path in paths:
        with opened(path):
            pass
    for path in paths:
        with opened(path) as queue:
            for name, there in wanted.items():
                queue.set_control(name, wanted=there)


# Recover


def recover(
    queue: str = QUEUE,
    lease: float | None = option("TIME", "How long a driver elsewhere may be silent, and live."),
    output: list[str] | None = option("DIR", "Where an output is by now; each in its order."),
    as_json: bool = AS_JSON,
) -> int:
    """Finish or take back what dead drivers left.

    Any driver of the queue does so by itself; this is for a queue without one. That a process of
    this host is gone is certain at once. Whether a driver of another host, or one that never
    registered, is dead, only a driver that runs for its lease can see; --lease 0 says that they
    are all gone. A wrong guess costs the time spent on a document, never the document.

    What was committed is finished only in the directories that its driver had opened. Where the
    path of an output leads elsewhere by now, as a link that was turned, --output names that one.

    Exit code 75: there are claims of which nobody can say yet, or that cannot be recovered.
    """
    with opened(queue) as found, noting(found) as journal:
        recovered = operations.recover(found, journal, Observer(lease=lease), output or ())
    events, unjudged = recovered.events, recovered.unjudged
    if as_json:
        unknown = [one._asdict() for one in unjudged]
        write_json({"queue": found.path, "recovered": events, "unjudged": unknown})
    else:
        for event in events:
            print(_line(event))
    _say_unknown_drivers(unjudged)
    if stuck := sum(event.event == "stuck" for event in events):
        say(
            f"{format_count(stuck, 'claim')} cannot be recovered; if its outputs are in another "
            "directory by now, as where a link was turned, name that: --output DIR"
        )
    return LATER if unjudged or stuck else 0


def _say_unknown_drivers(unjudged: Sequence[Unjudged]) -> None:
    """Say which drivers may be dead, a line for each, and what to do about it."""
    counts = Counter((one.driver, one.host) for one in unjudged)
    for (driver, host), count in sorted(counts.items()):
        there = f"on {escape_name(host)}, which cannot be seen from here"
        where = there if host else "which never registered"
        say(f"{format_count(count, 'claim')} of driver {driver} {where}")
    if counts:
        say("start a driver, which sees whether they live; if they are gone, use --lease 0")


def _line(event: Event) -> str:
    words = f"{event.docid}: {event.event}"
    if event.message:
        words += f", {event.message}"
    if event.renamed:
        words += f"; it goes on as {event.renamed}"
    return escape_name(words)


# Check


def check(
    queue: str = QUEUE,
    repair: bool = flag("Repair what can be repaired without losing anything."),
    as_json: bool = AS_JSON,
) -> int:
    """Name every broken rule of a queue.

    What dead drivers left, documents without reports and reports without documents, what is
    remembered of documents that are not there any more, items that no driver can move or read.
    Prints nothing when all is well, and exits 1 while a rule is broken. Drivers may run meanwhile:
    only what two looks see is named.

    With --repair: recovers, names, sets aside. Nothing of a document is deleted; what may still be
    wanted is kept in .queuedriver/orphans for 7 days.
    """
    # Late: the others need none of its rules.
    from queuedriver.check import check as checking

    with Queue.open(queue) as looked_at:
        mended, found = checking.repair(looked_at) if repair else ([], checking.check(looked_at))
        if as_json:
            told = {"repaired": mended, "findings": found}
            write_json({"queue": looked_at.path, "clean": not found, **told})
        elif mended or found:
            print(*_findings(mended, found), sep="\n")
    return _BROKEN if found else 0


def _findings(mended: "Sequence[Finding]", found: "Sequence[Finding]") -> Iterator[str]:
    for one in mended:
        yield f"repaired {one.rule}: {escape_name(f'{one.subject}: {one.message}')}"
    broken = paint_for(sys.stdout).bad("broken")
    for one in found:
        repair = f"; --repair {one.repair}" if one.repair else ""
        yield f"{broken} {one.rule}: {escape_name(f'{one.subject}: {one.message}{repair}')}"
    words = [f"{len(mended):,} repaired"] if mended else []
    rules = format_count(len({one.rule for one in found}), "broken rule")
    words.append(f"{format_count(len(found), 'finding')} of {rules}" if found else "ok")
    if mendable := sum(1 for one in found if one.repair):
        words.append(f"--repair knows what to do about {mendable:,}")
    yield "; ".join(words)
