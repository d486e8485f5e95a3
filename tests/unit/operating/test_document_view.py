"""Why a document is where it is: each branch of the sentence is one row."""

from typing import Any

import msgspec
import pytest

from queuedriver.claims.counts import Counts
from queuedriver.disk.journal import Reading
from queuedriver.format.names import Mint
from queuedriver.format.records import Attempt, Event, Failure, Identity, Registration, Report
from queuedriver.format.units import format_instant
from queuedriver.operating.document_view import DocumentView, Place, explain
from queuedriver.operating.queue_view import DriverView, QueueView

NOW = 1_700_000_000.0
AT = format_instant(NOW - 60)
SALT = "5a17"


def driver(driver: str = "h-1", host: str = "h", rate: float = 0.0, **more: Any) -> DriverView:
    identity = Identity(host, "", "", 0, 1, 1)
    registration = Registration(
        id=driver, salt=SALT, past=("0001",), identity=identity, started_at=0.0, rate=rate
    )
    usual = {"verdict": "alive", "state": "ready"}
    return DriverView(id=driver, registration=registration, **{**usual, **more})


ALIVE = driver()
BUSY = driver("h-2", state="busy")


def gone(verdict: str) -> DriverView:
    return driver("h-9", "far", verdict=verdict)


FULL = driver(state="blocked", why="out holds 10 items or more")
SICK = driver(state="waiting-fs", why="No space left on device")


def file(state: str, holder: str = "", salt: str = SALT, **more: Any) -> Place:
    """A file of document d; claimed a minute ago."""
    token = holder
    if "-" in holder:
        token = Mint(holder, salt).next(int((NOW - 60) * 1e6))
    place = Place(docid="d", name=f"d.{state}", state=state, token=token, modified_at=NOW - 20)
    return msgspec.structs.replace(place, **more)


def document(
    *places: Place,
    drivers: tuple[DriverView, ...] = (ALIVE,),
    others: int = 0,
    events: tuple[Event, ...] = (),
    around: dict[str, Any] | None = None,
    **more: Any,
) -> DocumentView:
    own = sum(one.state in ("ready", "failed") for one in places)
    due = sum(one.state == "later" and one.due <= NOW for one in places)
    queue = QueueView(
        queue="/q",
        at=NOW,
        counts=Counts(ready=own + others, due=due),
        drivers=drivers,
        **(around or {}),
    )
    journal = Reading(list(events), 0, [])
    return DocumentView(docid="d", around=queue, places=places, journal=journal, **more)


def event(event: str, **more: Any) -> Event:
    return Event(at=NOW - 60, event=event, docid="d", **more)


def failed(cause: str, message: str) -> Attempt:
    return Attempt(
        docid="d",
        token="",
        attempt=0,
        driver="h-1",
        host="h",
        claimed_at=0.0,
        ended_at=0.0,
        counted=True,
        failure=Failure(cause=cause, message=message),
    )


def report(attempts: int, cause: str, message: str) -> Report:
    tries = (failed(cause, message),) * attempts
    return Report(
        docid="d",
        queue="/q",
        discarded_at=NOW - 60,
        driver="h-1",
        host="h",
        failure=tries[-1].failure,
        attempts=tries,
    )


WAITING = [
    ("next", document(file("ready")), "nothing waits before it: it is next"),
    (
        "behind others",
        document(file("ready"), others=3),
        "waiting behind up to 3 others, with 1 driver at work",
    ),
    (
        "with a rate",
        document(file("ready"), others=120, drivers=(driver(rate=2.0), BUSY)),
        "waiting behind up to 120 others, which take 2 drivers about 1 min at the present rate",
    ),
    (
        "paused",
        document(file("ready"), around={"paused": True}, others=3),
        "the queue is paused: nothing is claimed before queuedriver resume /q",
    ),
    (
        "leaving ranks above pausing, as in plan",
        document(file("ready"), around={"paused": True, "quit": True}),
        "there is a QUIT file, so drivers leave; queuedriver resume takes it away",
    ),
    (
        "nobody alive",
        document(file("ready"), drivers=(gone("dead"), gone("left"))),
        "no driver is alive; start one with queuedriver run /q",
    ),
    (
        "all blocked",
        document(file("ready"), drivers=(FULL,)),
        "its drivers are blocked: out holds 10 items or more",
    ),
    (
        "one blocked, one not",
        document(file("ready"), drivers=(FULL, ALIVE)),
        "nothing waits before it: it is next",
    ),
    (
        "file system",
        document(file("ready"), drivers=(SICK,)),
        "its drivers wait for the file system: No space left on device",
    ),
    (
        "starting",
        document(file("ready"), drivers=(driver(state="starting"),)),
        "its drivers are starting",
    ),
    (
        "failed before",
        document(
            file("failed", attempt=1), attempts=(failed("exit", "exit code 1\nmore"),), others=1
        ),
        "failed once (exit: exit code 1), and waits to be tried again: waiting behind up to "
        "1 other, with 1 driver at work",
    ),
    (
        "failed often, and nobody knows why",
        document(file("failed", attempt=2)),
        "failed 2 times, and waits to be tried again: nothing waits before it: it is next",
    ),
    (
        "a symlink",
        document(file("ready", kind="symlink")),
        "it is a symlink, not a regular file: it will be discarded when it is tried",
    ),
    (
        "a symlink, and nobody alive",
        document(file("ready", kind="symlink"), drivers=()),
        "it is a symlink, not a regular file: it will be discarded when it is tried; no driver is "
        "alive; start one with queuedriver run /q",
    ),
    (
        "submitted twice",
        document(file("ready"), file("later", due=int(NOW) + 90)),
        "nothing waits before it: it is next; another of the same docid waits too",
    ),
]
LATER = [
    (
        "not due",
        document(
            file("later", due=int(NOW) + 90), events=(event("later", message="printer busy"),)
        ),
        f"not before {format_instant(NOW + 90)}, in 1 min 30 s (printer busy)",
    ),
    (
        "due",
        document(file("later", due=int(NOW) - 60), around={"paused": True}),
        f"it was due at {AT}: the queue is paused: nothing is claimed before queuedriver resume /q",
    ),
]
CLAIMED = [
    (
        "being processed",
        document(file("working", "h-2"), drivers=(BUSY,)),
        f"being processed by h-2 on h since {AT} (1 min)",
    ),
    (
        "its driver waits for the file system",
        document(file("working", "h-1"), drivers=(SICK,)),
        f"being processed by h-1 on h since {AT} (1 min), and it waits for the file system: No "
        "space left on device",
    ),
    (
        "its driver is silent",
        document(
            file("working", "x-1"), drivers=(driver("x-1", "x", silent=True, state="silent"),)
        ),
        f"being processed by x-1 on x since {AT} (1 min), but by the clocks it has shown no life "
        "for its lease: it "
        "counts as lost when a driver has seen its beat stand still for that long",
    ),
    (
        "never registered",
        document(file("working", "7")),
        "claimed by 7, which never registered here; its file was last touched 20 s ago, and it "
        "will be taken back when a driver has seen it untouched for 3 min",
    ),
    (
        "dead, and others alive",
        document(file("working", "h-9"), drivers=(ALIVE, BUSY, gone("dead"))),
        f"claimed at {AT} by h-9 on far, which ended without a word; it will be recovered by "
        "h-1 or another driver within seconds, as a failed attempt",
    ),
    (
        "dead, and nobody alive",
        document(file("working", "h-9"), drivers=(gone("dead"),)),
        f"claimed at {AT} by h-9 on far, which ended without a word; nobody is alive to take it "
        "back: start a "
        "driver, or run queuedriver recover /q",
    ),
    (
        "left",
        document(file("working", "h-9"), drivers=(ALIVE, gone("left"))),
        f"claimed at {AT} by h-9 on far, which left; it will be recovered by h-1 within "
        "seconds, "
        "uncounted",
    ),
    (
        "rebooted",
        document(file("working", "h-9"), drivers=(ALIVE, gone("rebooted"))),
        f"claimed at {AT} by h-9 on far, which went down with its host; it will be "
        "recovered by h-1 within seconds, "
        "uncounted",
    ),
    (
        "an earlier life",
        document(file("working", "h-9", "0001"), drivers=(ALIVE, gone("left"))),
        f"claimed at {AT} by an earlier life of h-9 on far; it will be recovered by h-1 within "
        "seconds, "
        "uncounted",
    ),
    (
        "silent for its lease",
        document(file("working", "h-9"), drivers=(ALIVE, gone("lost"))),
        f"claimed at {AT} by h-9 on far, which fell silent; it will be "
        "recovered by h-1 within seconds, uncounted",
    ),
    (
        "committed",
        document(file("written", "h-2"), drivers=(BUSY,)),
        "committed: its outputs are being published by h-2 on h",
    ),
    (
        "committed by the dead, and others alive",
        document(file("written", "h-9"), drivers=(ALIVE, gone("dead"))),
        "committed by h-9 on far, which ended without a word; its outputs will be published by "
        "another driver within seconds",
    ),
    (
        "committed by the dead, and nobody alive",
        document(file("written", "h-9"), drivers=(gone("dead"),)),
        "committed by h-9 on far, which ended without a word; its outputs wait to be published: "
        "start a driver, or run queuedriver recover /q",
    ),
    (
        "committed by a stranger",
        document(file("written", "7"), drivers=()),
        "committed by 7, which never registered here; its outputs wait to be published: start a "
        "driver, or run queuedriver recover /q",
    ),
    (
        "being written",
        document(file("writing", "p-1")),
        f"it is still being written by p-1 since {AT} (1 min), and waits when that is committed",
    ),
]
ENDED = [
    (
        "discarded",
        document(file("discarded", report=report(2, "signal", "SIGSEGV"))),
        f"discarded at {AT} after 2 attempts (signal: SIGSEGV); queuedriver show tells all, and "
        "queuedriver retry lets it be tried again",
    ),
    (
        "discarded, and another of its docid before",
        document(
            file("discarded", name="discarded/d~0660", report=report(1, "exit", "exit code 1")),
            file("discarded", name="discarded/d", report=report(1, "exit", "exit code 2")),
        ),
        f"discarded at {AT} after 1 attempt (exit: exit code 1); queuedriver show tells all, and "
        "queuedriver retry lets it be tried again; 1 older document of this docid too: "
        "'discarded/d'",
    ),
    (
        "discarded without a report",
        document(file("discarded")),
        "discarded, but its report is missing; queuedriver check --repair /q",
    ),
    (
        "discarded by the original program",
        document(file("failed_twice")),
        "discarded by the original program, which keeps no contents: submit it again",
    ),
    (
        "no item",
        document(foreign="rename it to 'd.ready' to submit it"),
        "the file 'd' is not an item: rename it to 'd.ready' to submit it",
    ),
    (
        "published",
        document(events=(event("published", driver="h-1", outputs=("d.ready", "e")),)),
        f"published as d.ready, e at {AT} by h-1",
    ),
    (
        "finished without outputs",
        document(events=(event("finished", driver="h-1"),)),
        f"finished without outputs at {AT} by h-1",
    ),
    (
        "goes on under another docid",
        document(events=(event("failed", renamed="d~1"),)),
        f"its docid was taken: since {AT} it goes on as 'd~1'",
    ),
    (
        "finished, and the journal is lost",
        document(found=("../out/d.ready",)),
        "finished, although the journal does not tell: there is ../out/d.ready",
    ),
    (
        "taken out of discarded/",
        document(events=(event("discarded", message="no good"),)),
        f"discarded at {AT} (no good), and since taken away from discarded/",
    ),
    (
        "taken out of the queue",
        document(events=(event("released", driver="h-1"),)),
        f"it is not here any more: last it was released at {AT} by h-1, and whatever came then is "
        "not in the journal",
    ),
    ("unknown", document(), "no document 'd' is here, and the journal has none"),
]


@pytest.mark.parametrize(
    ("seen", "sentence"),
    [
        pytest.param(seen, sentence, id=name)
        for name, seen, sentence in (*WAITING, *LATER, *CLAIMED, *ENDED)
    ],
)
def test_one_sentence_says_why(seen: DocumentView, sentence: str) -> None:
    assert explain(seen) == sentence
