"""All that is known of one document, for `show`, `why` and `history`; and why it is where it is.

Looked up by name in the queue, in `discarded/`, in the records of its attempts and in the journal.
Nothing is created or changed. `explain` says it in a sentence, and `history` in the order of time;
both are pure. What drivers say of themselves (`why` of a registration) are the words of `plan`, and
are passed on as they are.
"""

import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress

import msgspec

from queuedriver.claims.liveness import Observer
from queuedriver.disk.journal import Reading, journal_path, read_extended, read_history
from queuedriver.errors import BadDocid, NotFound, leads_nowhere
from queuedriver.format import names
from queuedriver.format.records import LEASE, Attempt, Event, Failure, Report
from queuedriver.format.settings import Publication, Settings
from queuedriver.format.units import first_line, format_count, format_duration, format_instant
from queuedriver.operating.queue import Queue
from queuedriver.operating.queue_view import DriverView, QueueView, overview

# Of several items of one docid, the one that is farthest comes first.
_RANK = ("written", "working", "ready", "failed", "later", "discarded", "writing", "failed_twice")
_KINDS = {
    stat.S_IFREG: "",
    stat.S_IFLNK: "symlink",
    stat.S_IFDIR: "directory",
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
}
# Events that end an attempt.
_ENDS = ("failed", "released", "discarded", "later", "published", "finished")
# How long a living driver may take to look for what a dead one left, in words.
_SOON = "within seconds"


class Place(msgspec.Struct, frozen=True):
    """A file of a document: its name in the queue, and what that and the file system say of it."""

    docid: str
    name: str
    state: str
    attempt: int = 0
    token: str = ""
    due: int = 0
    # None when the file has moved on since its name was seen.
    size: int | None = None
    modified_at: float = 0.0
    # What it is when it is no regular file.
    kind: str = ""
    # Bytes of its usual output so far; None when there is none.
    written: int | None = None
    # Of one that was discarded, if it has one.
    report: Report | None = None

    @property
    def claim(self) -> names.Token | None:
        return names.parse_token(self.token) if self.token else None

    def waits(self, now: float) -> bool:
        """Return whether it may be tried."""
        return names.Item(self.docid, self.state, due=self.due).waits(now)

    def as_json(self) -> dict[str, object]:
        """Return it for programs, without its report."""
        plain: dict[str, object] = msgspec.to_builtins(self)
        del plain["report"]
        return plain


class DocumentView(msgspec.Struct, frozen=True, kw_only=True):
    """One document at one moment, and the queue around it."""

    docid: str
    around: QueueView
    # The one that is farthest first; of several that were discarded the newest.
    places: tuple[Place, ...] = ()
    # Why a file of just this name is no item.
    foreign: str = ""
    attempts: tuple[Attempt, ...] = ()
    journal: Reading = Reading([], 0, [])
    # Where it would be if it were finished, and is: outputs, or the archive.
    found: tuple[str, ...] = ()

    @property
    def unknown(self) -> bool:
        """Return whether nobody has ever heard of it."""
        known = self.places or self.foreign or self.attempts or self.journal.events or self.found
        return not known

    @property
    def state(self) -> str:
        """Return the state of the file that is farthest; "foreign", or "" when there is none."""
        return self.places[0].state if self.places else "foreign" if self.foreign else ""

    @property
    def place(self) -> Place:
        return self.places[0]

    @property
    def waits(self) -> bool:
        """Return whether it may be tried now."""
        return bool(self.places) and self.place.waits(self.around.at)

    @property
    def token(self) -> names.Token | None:
        return self.place.claim if self.places else None

    @property
    def report(self) -> Report | None:
        """Return why it was discarded; of several documents the newest."""
        return next((one.report for one in self.places if one.state == "discarded"), None)

    @property
    def holder(self) -> DriverView:
        """Return the driver that has it."""
        return self.around.holder(self.token) if self.token else DriverView(id="somebody")

    @property
    def others(self) -> int:
        """Return how many others may be tried now."""
        own = sum(one.waits(self.around.at) for one in self.places)
        return max(self.around.counts.waiting - own, 0)


def docid_of(text: str) -> str:
    """Return the docid that somebody means who typed it, or the name or the path of its file."""
    name = os.path.basename(text)
    item = names.parse(name)
    return item.docid if item is not None else name


def extended(queue: Queue, docid: str) -> str:
    """Return the docid that is this one with an extension, in the queue, discarded or in its
    journal; "" when there is none."""
    found = {item.docid for _, item in queue.items()} | set(queue.each_discarded())
    if longer := with_extension(docid, found):
        return longer
    journal = journal_path(queue.path)
    return with_extension(docid, {event.docid for event in read_extended(journal, docid).events})


def with_extension(docid: str, known: Iterable[str]) -> str:
    """Return the one docid that is this one with an extension; NotFound when there are several."""
    found = sorted(one for one in known if docid and one.startswith(f"{docid}."))
    if len(found) > 1:
        shown = ", ".join(map(repr, found[:3])) + (", …" if len(found) > 3 else "")
        raise NotFound(f"no document {docid!r}; which of {len(found)} is meant: {shown}?")
    return found[0] if found else ""


def gather(queue: Queue, docid: str, observer: Observer | None = None) -> DocumentView:
    """Look everywhere for a document."""
    around = overview(queue, observer)
    settings = around.settings or Settings()
    output = next(iter(settings.outputs), "")
    found = [_place(queue, name, item, output=output) for name, item in queue.find(docid)]
    if names.objection(docid) is None:
        found += [_discarded_place(queue, *one) for one in queue.reports(docid)]
    places = [one for one in found if one.size is not None]
    places.sort(key=lambda place: _RANK.index(place.state))
    return DocumentView(
        docid=docid,
        around=around,
        places=tuple(places),
        foreign="" if places else _foreign(queue, docid),
        attempts=queue.attempts(docid),
        journal=read_history(journal_path(queue.path), docid),
        found=() if places else results_of(queue, docid, settings),
    )


def list_places(
    queue: Queue, states: Collection[str], discarded: Iterable[str] | None = None
) -> Iterator[Place]:
    """Yield every document in one of the states: those in the queue, then those discarded; of these
    only some, where their names in `discarded/` are given."""
    if any(state != "discarded" for state in states):
        for name, item in queue.items():
            if item.state in states:
                yield _place(queue, name, item)
    if "discarded" in states:
        for one in queue.reports(places=discarded):
            yield _discarded_place(queue, *one)


def _discarded_place(queue: Queue, docid: str, report: Report | None) -> Place:
    item = names.Item(docid, "discarded", len(report.attempts) if report is not None else 0)
    return _place(queue, os.path.join(names.DISCARDED, docid), item, report)


def _place(
    queue: Queue, name: str, item: names.Item, report: Report | None = None, output: str = ""
) -> Place:
    """Return a file of a document with what the file system says of it; of a claim, where its usual
    output is said, how much there is of that, too."""
    docid, state, attempt, token, due, _ = item
    found, written = _status(queue, name), None
    if state == names.WORKING and output:
        with suppress(OSError):
            path = os.path.join(output, names.writing_name(docid, token))
            written = queue.directory.status(path).st_size
    if found is None:
        return Place(docid, name, state, attempt, token, due, report=report)
    size, modified_at, kind = found.st_size, found.st_mtime, kind_of(found.st_mode)
    return Place(docid, name, state, attempt, token, due, size, modified_at, kind, written, report)


def _status(queue: Queue, path: str) -> os.stat_result | None:
    """Return what the system says of a path, seen from the queue; None where it leads nowhere."""
    try:
        return queue.directory.status(path)
    except OSError as error:
        # What cannot be looked into may well have it.
        if not leads_nowhere(error):
            where = os.path.abspath(os.path.join(queue.path, path))
            raise OSError(error.errno, error.strerror, where) from None
        return None


def kind_of(mode: int) -> str:
    """Return what a file is that is not regular; "" of one that is."""
    return _KINDS.get(stat.S_IFMT(mode), "device")


def _foreign(queue: Queue, docid: str) -> str:
    if docid in ("", ".", "..") or "/" in docid or "\0" in docid:
        return ""
    if docid in (names.DISCARDED, names.PRIVATE, *names.CONTROLS):
        return f"it belongs to the queue itself, as every {docid!r} does"
    found = _status(queue, docid)
    if found is None:
        return ""
    kind = kind_of(found.st_mode)
    return f"it is a {kind}" if kind else names.why_foreign(docid)


def results_of(queue: Queue, docid: str, settings: Settings) -> tuple[str, ...]:
    """Return where a document would be if it were finished, and is."""
    places = []
    # A docid that cannot be published has no place in an output.
    with suppress(BadDocid):
        final = Publication(settings.publish).name(docid)
        places += [os.path.join(path, final) for path in settings.outputs]
    if settings.archive is not None:
        places.append(os.path.join(settings.archive, docid))
    return tuple(path for path in places if _status(queue, path) is not None)


# Why it is where it is


def explain(seen: DocumentView, retry: str = "queuedriver retry") -> str:
    """Say why a document is where it is: one sentence, without its full stop. `retry`: what lets
    one that was discarded be tried again."""
    discarded = seen.state == "discarded"
    sentence = _discarded(seen, retry) if discarded else _SENTENCES[seen.state](seen)
    live = [one for one in seen.places if one.state in ("ready", "failed", "later", "working")]
    return f"{sentence}; another of the same docid waits too" if len(live) > 1 else sentence


def _waiting(seen: DocumentView) -> str:
    if kind := seen.place.kind:
        return f"it is a {kind}, not a regular file: it will be discarded when it is tried" + (
            "" if seen.around.living else "; " + _no_driver(seen)
        )
    if not (attempt := seen.place.attempt):
        return _held_up(seen)
    times = "once" if attempt == 1 else f"{attempt} times"
    return f"failed {times}{_because(seen)}, and waits to be tried again: {_held_up(seen)}"


def _held_up(seen: DocumentView) -> str:
    """Say what keeps it from being tried: what files say, before what its drivers say."""
    living = seen.around.living
    if seen.around.quit:
        return "there is a QUIT file, so drivers leave; queuedriver resume takes it away"
    if seen.around.paused:
        return (
            f"the queue is paused: nothing is claimed before queuedriver resume {seen.around.queue}"
        )
    if seen.around.tripped:
        return f"the stage has {seen.around.tripped}"
    if not living:
        return _no_driver(seen)
    for state, words in (
        ("waiting-fs", "its drivers wait for the file system"),
        ("blocked", "its drivers are blocked"),
        ("starting", "its drivers are starting"),
    ):
        if all(one.state == state for one in living):
            why = next((one.why for one in living if one.why), "")
            return f"{words}: {why}" if why else words
    if not seen.others:
        return "nothing waits before it: it is next"
    words = f"waiting behind up to {format_count(seen.others, 'other')}"
    count = format_count(len(living), "driver")
    if rate := seen.around.rate:
        eta = format_duration(seen.others / rate)
        return f"{words}, which take {count} about {eta} at the present rate"
    return f"{words}, with {count} at work"


def _no_driver(seen: DocumentView) -> str:
    if notice := seen.around.notice:
        return f"no driver is alive; {notice}"
    return f"no driver is alive; start one with queuedriver run {seen.around.queue}"


def _because(seen: DocumentView) -> str:
    """Return what was last said against it, in brackets."""
    counted = [one.failure for one in seen.attempts if one.counted]
    if seen.state == "failed" and counted:
        return _in_brackets(counted[-1])
    said = {"failed": ("failed",), "later": ("later", "failed")}.get(seen.state, ())
    events = [one for one in seen.journal.events if not seen.state or one.event in said]
    return _in_brackets(events[-1]) if events else ""


def _in_brackets(said: Failure | Event) -> str:
    words = ": ".join(filter(None, (said.cause, first_line(said.message or ""))))
    return f" ({words})" if words else ""


def _later(seen: DocumentView) -> str:
    due = format_instant(seen.place.due)
    left = seen.place.due - seen.around.at
    if left <= 0:
        return f"it was due at {due}: {_held_up(seen)}"
    return f"not before {due}, in {format_duration(left)}{_because(seen)}"


def _working(seen: DocumentView) -> str:
    holder = seen.holder
    if not holder.alive:
        at = seen.token.claimed_at if seen.token else 0.0
        words = f"claimed at {format_instant(at)}" if at else "claimed"
        words += f" by {_gone(seen)}"
        if holder.verdict == "unknown":
            untouched = format_duration(seen.around.at - seen.place.modified_at)
            return (
                f"{words}; its file was last touched {untouched} ago, and it will be taken back "
                f"when a driver has seen it untouched for {format_duration(LEASE)}"
            )
        if not seen.around.living:
            return f"{words}; nobody is alive to take it back: {_recover(seen)}"
        counted = "as a failed attempt" if holder.verdict == "dead" else "uncounted"
        others = " or another driver" if len(seen.around.living) > 1 else ""
        who = seen.around.living[0].id + others
        return f"{words}; it will be recovered by {who} {_SOON}, {counted}"
    words = f"being processed by {_on(holder)}{_since(seen)}"
    if holder.silent:
        words += (
            ", but by the clocks it has shown no life for its lease: it counts as lost when a "
            "driver has seen its beat stand still for that long"
        )
    elif holder.state == "waiting-fs":
        words += f", and it waits for the file system: {holder.why}"
    return words


def _written(seen: DocumentView) -> str:
    holder = seen.holder
    if holder.alive:
        return f"committed: its outputs are being published by {_on(holder)}"
    words = f"committed by {_gone(seen)}"
    if not seen.around.living:
        return f"{words}; its outputs wait to be published: {_recover(seen)}"
    return f"{words}; its outputs will be published by another driver {_SOON}"


def _writing(seen: DocumentView) -> str:
    by = f" by {seen.holder.id}" if seen.token else ""
    return f"it is still being written{by}{_since(seen)}, and waits when that is committed"


def _since(seen: DocumentView) -> str:
    at = seen.token.claimed_at if seen.token else 0.0
    ago = format_duration(max(seen.around.at - at, 0.0))
    return f" since {format_instant(at)} ({ago})" if at else ""


def _on(holder: DriverView) -> str:
    return f"{holder.id} on {holder.host}" if holder.host else holder.id


def _gone(seen: DocumentView) -> str:
    holder, registration = seen.holder, seen.holder.registration
    if registration is not None and seen.token and seen.token.salt != registration.salt:
        return f"an earlier life of {_on(holder)}"
    return f"{_on(holder)}, which {holder.became}"


def _recover(seen: DocumentView) -> str:
    return f"start a driver, or run queuedriver recover {seen.around.queue}"


def _discarded(seen: DocumentView, retry: str) -> str:
    report = seen.report
    if report is None:
        sentence = (
            f"discarded, but its report is missing; queuedriver check --repair {seen.around.queue}"
        )
    else:
        times = format_count(len(report.attempts), "attempt")
        why = _in_brackets(report.failure)
        sentence = (
            f"discarded at {format_instant(report.discarded_at)} after {times}{why}; "
            f"queuedriver show tells all, and {retry} lets it be tried again"
        )
    older = [one.name for one in seen.places[1:] if one.state == "discarded"]
    count = format_count(len(older), "older document")
    more = f"; {count} of this docid too: {', '.join(map(repr, older))}"
    return sentence + more if older else sentence


def _failed_twice(seen: DocumentView) -> str:
    return "discarded by the original program, which keeps no contents: submit it again"


def _no_item(seen: DocumentView) -> str:
    return f"the file {seen.docid!r} is not an item: {seen.foreign}"


def _absent(seen: DocumentView) -> str:
    event = seen.journal.events[-1] if seen.journal.events else None
    known = f"finished, although the journal does not tell: there is {', '.join(seen.found)}"
    if event is None:
        nothing = f"no document {seen.docid!r} is here, and the journal has none"
        return known if seen.found else nothing
    at = format_instant(event.at)
    by = f" by {event.driver}" if event.driver else ""
    if event.renamed and event.docid == seen.docid:
        return f"its docid was taken: since {at} it goes on as {event.renamed!r}"
    if event.outputs:
        return f"published as {', '.join(event.outputs)} at {at}{by}"
    if event.event == "finished":
        return f"finished without outputs at {at}{by}"
    if seen.found:
        return known
    if event.event == "discarded":
        return f"discarded at {at}{_because(seen)}, and since taken away from discarded/"
    return (
        f"it is not here any more: last it was {event.event} at {at}{by}{_because(seen)}, and "
        "whatever came then is not in the journal"
    )


_SENTENCES: dict[str, Callable[[DocumentView], str]] = {
    "ready": _waiting,
    "failed": _waiting,
    "later": _later,
    "working": _working,
    "written": _written,
    "writing": _writing,
    "failed_twice": _failed_twice,
    "foreign": _no_item,
    "": _absent,
}


# In the order of time


def history(seen: DocumentView) -> list[Event]:
    """Return the journal's events, and what is known from elsewhere where it lost some."""
    events = list(seen.journal.events)
    ended = {one.token for one in events if one.event in _ENDS}
    reported = seen.report.attempts if seen.report is not None else ()
    for record in {one.token: one for one in (*seen.attempts, *reported)}.values():
        if record.token not in ended:
            events.append(_event_of(record, discarded=record in reported[-1:]))
    claimed = {one.token for one in events if one.event == "claimed"}
    hosts = {one.token: one.host for one in events if one.token}
    for place in seen.places:
        if place.claim is not None and place.state != "writing":
            hosts.setdefault(place.token, seen.around.holder(place.claim).host)
    for token, host in hosts.items():
        split = names.parse_token(token)
        # What its N tells; another program's bare number tells nothing.
        if split.serial and token not in claimed:
            claim = split.claimed_at, "claimed", seen.docid, token
            events.append(Event(*claim, host=host, driver=split.driver))
    return sorted(events, key=lambda event: event.at)


def _event_of(record: Attempt, *, discarded: bool) -> Event:
    word = "discarded" if discarded else "failed" if record.counted else "released"
    return Event(
        at=record.ended_at,
        event=word,
        docid=record.docid,
        token=record.token,
        host=record.host,
        driver=record.driver,
        attempt=record.attempt,
        seconds=record.ended_at - record.claimed_at,
        cause=record.failure.cause,
        message=record.failure.message,
    )
