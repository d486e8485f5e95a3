"""The account after the chaos: what there is to see, and what of it is wrong.

`look` reads it all, `judge` and the others are pure.
"""

import itertools
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from queuedriver.check.check import check
from queuedriver.claims.attempts import ATTEMPTS
from queuedriver.claims.handoff import CLAIMS, ORPHANS
from queuedriver.claims.leftovers import SCRAPS
from queuedriver.disk.journal import read_events, read_history
from queuedriver.format import names
from queuedriver.format.names import INCOMING, JOURNAL
from queuedriver.format.records import Report, describe_event
from queuedriver.operating.queue import Queue
from tests.crash.chaos_documents import QUEUES, RESULTS, Submission

# Parts of `.queuedriver/` in which killed processes may leave what `queuedriver check --repair`
# removes in time: plans of claims that were taken back are among them.
_LITTERED = (ATTEMPTS, CLAIMS, ORPHANS)


class Discard(NamedTuple):
    """A document that was given up."""

    queue: str
    docid: str
    content: bytes
    report: Report | None


class Processing(NamedTuple):
    """A document in the hands of one process; seconds since boot."""

    stage: str
    docid: str
    began_at: float
    # None: the process did not get as far.
    ended_at: float | None


class Found(NamedTuple):
    """All there is to see in the end."""

    results: Mapping[str, bytes]
    discards: Sequence[Discard]
    # What is left in the queues, by path: items, hidden reports, what was being submitted.
    left: Sequence[str]
    # Rules of a queue that are broken, in the words of `queuedriver check`.
    broken: Sequence[str]
    processings: Sequence[Processing]
    # How often which event is in the journals.
    events: Counter[str]
    # Files that nobody needs any more, and that are kept for a while.
    litter: Counter[str]


class Complaint(NamedTuple):
    """What is wrong; with which document, if with one."""

    kind: str
    docid: str
    words: str


# Look


def look(root: Path, records: Path) -> Found:
    """Everything below the root of the queues, and what the processors noted."""
    events: Counter[str] = Counter()
    broken = []
    for queue in QUEUES.values():
        found = read_events(str(root / queue / names.PRIVATE / JOURNAL))
        events.update(event.event for event in found.events)
        with Queue.open(root / queue) as opened:
            broken += [f"{queue}: {one.rule}: {one.subject}: {one.message}"
                       for one in check(opened)]  # fmt: skip
    results = {
        one.name: one.read_bytes()
        for one in (root / RESULTS).iterdir()
        if one.is_file() and names.parse(one.name) is None and one.name not in names.CONTROLS
    }
    litter: Counter[str] = Counter()
    for queue in (*QUEUES.values(), RESULTS):
        for part in _LITTERED:
            litter[part] += len(_names(root / queue / names.PRIVATE / part))
    return Found(
        results, list(_discards(root)), list(_left(root)), broken, processings(_notes(records)),
        events, litter
    )  # fmt: skip


def _discards(root: Path) -> Iterator[Discard]:
    for queue in QUEUES.values():
        with Queue.open(root / queue) as opened:
            for docid in opened.each_discarded():
                content = (root / queue / names.DISCARDED / docid).read_bytes()
                yield Discard(queue, docid, content, opened.report(docid))


def _left(root: Path) -> Iterator[str]:
    for queue in (*QUEUES.values(), RESULTS):
        for name in _names(root / queue):
            if names.parse(name) is not None:
                yield f"{queue}/{name}"
        for name in _names(root / queue / names.DISCARDED):
            # But for a report that somebody was killed over: it has been written again since.
            if name.startswith(".") and not name.startswith(SCRAPS):
                yield f"{queue}/{names.DISCARDED}/{name}"
        for name in _names(root / queue / names.PRIVATE / INCOMING):
            yield f"{queue}/{names.PRIVATE}/{INCOMING}/{name}"


def _notes(records: Path) -> Iterator[list[str]]:
    """The lines of each process that noted any."""
    for name in _names(records):
        if not name.startswith("."):
            yield (records / name).read_text().splitlines()


def _names(directory: Path) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except FileNotFoundError:
        return []


def history(root: Path, docid: str) -> Iterator[str]:
    """What the journals know of a document, line by line."""
    for queue in QUEUES.values():
        found = read_history(str(root / queue / names.PRIVATE / JOURNAL), docid)
        for event in found.events:
            yield f"{queue}: {describe_event(event)}"


# Judge


def judge(submissions: Sequence[Submission], found: Found, retries: int) -> Iterator[Complaint]:
    """Each document is exactly one of published, once and whole, and discarded; nothing is left."""
    discards: dict[str, list[Discard]] = defaultdict(list)
    for discard in found.discards:
        discards[discard.docid].append(discard)
    done = {one.docid for one in found.processings if one.ended_at is not None}
    known = set()
    for one in submissions:
        known |= {one.docid, *one.published}
        yield from _judge_one(one, found, discards.get(one.docid, []), retries)
        if not (one.published or one.discarded_in or one.docid in done):
            yield Complaint(
                "lost", one.docid, "it has no output, and was never processed to the end"
            )
    for name in sorted(found.results.keys() - known):
        yield Complaint("twice", _docid(name), f"{RESULTS}/{name} is nobody's, or a second one")
    for docid in sorted(discards.keys() - known):
        yield Complaint("twice", docid, f"{docid}, in discarded/, is nobody's, or a second one")
    for path in found.left:
        item = names.parse(os.path.basename(path))
        yield Complaint("left", item.docid if item else "", f"{path} is left over")
    for words in found.broken:
        yield Complaint("broken", "", words)


def _judge_one(
    one: Submission, found: Found, discards: Sequence[Discard], retries: int
) -> Iterator[Complaint]:
    docid = one.docid
    for name, content in one.published.items():
        if name not in found.results:
            if not discards:
                yield Complaint("lost", docid, f"{name} is not there, and {docid} not discarded")
        elif discards:
            yield Complaint("twice", docid, f"it is in {RESULTS}/{name}, and discarded as well")
        elif found.results[name] != content:
            size = len(found.results[name])
            yield Complaint("wrong", docid, f"{name} has other bytes, {size} of {len(content)}")
    if not one.discarded_in:
        yield from (_unexpected(discard) for discard in discards)
        return
    if len(discards) != 1:
        kind = "twice" if discards else "lost"
        yield Complaint(kind, docid, f"it was discarded {len(discards)} times, not once")
        return
    yield from _judge_discard(one, discards[0], retries)


def _unexpected(discard: Discard) -> Complaint:
    why = discard.report.failure if discard.report else None
    attempts = discard.report.attempts if discard.report else ()
    causes = ", ".join(f"{two.failure.cause} ({two.token})" for two in attempts)
    return Complaint("innocent", discard.docid, f"discarded from {discard.queue}: {why}: {causes}")


def _judge_discard(one: Submission, discard: Discard, retries: int) -> Iterator[Complaint]:
    docid, report = one.docid, discard.report
    if discard.queue != one.discarded_in:
        yield Complaint("innocent", docid, f"discarded from {discard.queue}, as it need not be")
    elif discard.content != one.discarded:
        yield Complaint("wrong", docid, f"in discarded/ of {discard.queue} it has other bytes")
    elif report is None:
        yield Complaint("wrong", docid, f"in discarded/ of {discard.queue} it has no report")
    elif one.is_poison or not report.failure.permanent:
        # One may be noted twice: by a driver that was given up while it noted it, and by whoever
        # came after it.
        counted = sorted({two.attempt for two in report.attempts if two.counted})
        if counted != [*range(retries + 1)]:
            yield Complaint("wrong", docid, f"discarded after the attempts {counted} alone")


def _docid(name: str) -> str:
    """Whose result it is, as far as its name tells."""
    return name.partition("~")[0].removesuffix(".xml")


# What was processed how often


def processings(processes: Iterable[Sequence[str]]) -> list[Processing]:
    """From the notes of processes, each of which had one document at a time."""
    found: list[Processing] = []
    for lines in processes:
        opened: Processing | None = None
        for line in lines:
            at, word, stage, docid, _ = line.split()
            if opened is not None:
                ended_at = float(at) if word == "end" and opened.docid == docid else None
                found.append(opened._replace(ended_at=ended_at))
            opened = Processing(stage, docid, float(at), None) if word == "begin" else None
        if opened is not None:
            found.append(opened)
    return found


def at_once(processings: Iterable[Processing]) -> int:
    """How many documents two processes had at the same time, both to the end: that is no harm."""
    by_document: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for one in processings:
        if one.ended_at is not None:
            by_document[one.stage, one.docid].append((one.began_at, one.ended_at))
    return sum(
        any(later < ended_at for (_, ended_at), (later, _) in itertools.pairwise(sorted(times)))
        for times in by_document.values()
    )
