"""Why a document is where it is: each branch of the sentence is one row."""

import pytest

from queuedriver.format.units import format_instant
from queuedriver.operating.why import Facts, Holder, explain

NOW = 1_700_000_000.0
AT = format_instant(NOW - 60)
ALIVE = Holder(driver="h-1", host="h")
BUSY = Holder(driver="h-2", host="h", state="busy")


def facts(state: str, **more: object) -> Facts:
    usual: dict[str, object] = {"docid": "d", "queue": "/q", "now": NOW, "drivers": (ALIVE,)}
    return Facts(state=state, **{**usual, **more})  # type: ignore[arg-type]


def gone(verdict: str) -> Holder:
    return Holder(driver="h-9", host="far", verdict=verdict)


FULL = Holder(driver="h-1", state="blocked", why="out holds 10 items or more")
SICK = Holder(driver="h-1", state="waiting-fs", why="No space left on device")
WAITING = [
    ("next", facts("ready"), "nothing waits before it: it is next"),
    (
        "behind others",
        facts("ready", others=3),
        "waiting behind up to 3 others, with 1 driver at work",
    ),
    (
        "with a rate",
        facts("ready", others=120, rate=2.0, drivers=(ALIVE, BUSY)),
        "waiting behind up to 120 others, which take 2 drivers about 1 min at the present rate",
    ),
    (
        "paused",
        facts("ready", paused=True, others=3),
        "the queue is paused: nothing is claimed before queuedriver resume /q",
    ),
    (
        "leaving ranks above pausing, as in plan",
        facts("ready", paused=True, quit=True),
        "there is a QUIT file, so drivers leave; queuedriver resume takes it away",
    ),
    (
        "nobody alive",
        facts("ready", drivers=(gone("dead"), gone("left"))),
        "no driver is alive; start one with queuedriver run /q",
    ),
    (
        "all blocked",
        facts("ready", drivers=(FULL,)),
        "its drivers are blocked: out holds 10 items or more",
    ),
    (
        "one blocked, one not",
        facts("ready", drivers=(FULL, ALIVE)),
        "nothing waits before it: it is next",
    ),
    (
        "file system",
        facts("ready", drivers=(SICK,)),
        "its drivers wait for the file system: No space left on device",
    ),
    (
        "starting",
        facts("ready", drivers=(Holder(driver="h-1", state="starting"),)),
        "its drivers are starting",
    ),
    (
        "failed before",
        facts("failed", attempt=1, cause="exit", message="exit code 1\nmore", others=1),
        "failed once (exit: exit code 1), and waits to be tried again: waiting behind up to "
        "1 other, with 1 driver at work",
    ),
    (
        "failed often, and nobody knows why",
        facts("failed", attempt=2),
        "failed 2 times, and waits to be tried again: nothing waits before it: it is next",
    ),
    (
        "a symlink",
        facts("ready", kind="symlink"),
        "it is a symlink, not a regular file: it will be discarded when it is tried",
    ),
    (
        "a symlink, and nobody alive",
        facts("ready", kind="symlink", drivers=()),
        "it is a symlink, not a regular file: it will be discarded when it is tried; no driver is "
        "alive; start one with queuedriver run /q",
    ),
    (
        "submitted twice",
        facts("ready", again=True),
        "nothing waits before it: it is next; another of the same docid waits too",
    ),
]
LATER = [
    (
        "not due",
        facts("later", due=int(NOW) + 90, message="printer busy"),
        f"not before {format_instant(NOW + 90)}, in 1 min 30 s (printer busy)",
    ),
    (
        "due",
        facts("later", due=int(NOW) - 60, paused=True),
        f"it was due at {AT}: the queue is paused: nothing is claimed before queuedriver resume /q",
    ),
]
CLAIMED = [
    (
        "being processed",
        facts("working", holder=BUSY, claimed_at=NOW - 60),
        f"being processed by h-2 on h since {AT} (1 min)",
    ),
    (
        "its driver waits for the file system",
        facts("working", holder=SICK),
        "being processed by h-1, and it waits for the file system: No space left on device",
    ),
    (
        "its driver is silent",
        facts("working", holder=Holder(driver="x-1", host="x", silent=True)),
        "being processed by x-1 on x, but by the clocks it has shown no life for its lease: it "
        "counts as lost when a driver has seen its beat stand still for that long",
    ),
    (
        "never registered",
        facts("working", holder=Holder(driver="7", verdict="unknown"), untouched_for=20.0),
        "claimed by 7, which never registered here; its file was last touched 20 s ago, and it "
        "will be taken back when a driver has seen it untouched for 3 min",
    ),
    (
        "dead, and others alive",
        facts("working", holder=gone("dead"), claimed_at=NOW - 60, drivers=(ALIVE, BUSY)),
        f"claimed at {AT} by h-9 on far, whose process has ended; it will be recovered by h-1 or "
        "another driver within seconds, as a failed attempt",
    ),
    (
        "dead, and nobody alive",
        facts("working", holder=gone("dead"), drivers=()),
        "claimed by h-9 on far, whose process has ended; nobody is alive to take it back: start a "
        "driver, or run queuedriver recover /q",
    ),
    (
        "left",
        facts("working", holder=gone("left")),
        "claimed by h-9 on far, which has left; it will be recovered by h-1 within seconds, "
        "uncounted",
    ),
    (
        "rebooted",
        facts("working", holder=gone("rebooted")),
        "claimed by h-9 on far, whose host went down; it will be recovered by h-1 within seconds, "
        "uncounted",
    ),
    (
        "an earlier life",
        facts("working", holder=gone("lost")),
        "claimed by an earlier life of h-9 on far; it will be recovered by h-1 within seconds, "
        "uncounted",
    ),
    (
        "committed",
        facts("written", holder=BUSY),
        "committed: its outputs are being published by h-2 on h",
    ),
    (
        "committed by the dead, and others alive",
        facts("written", holder=gone("dead")),
        "committed by h-9 on far, whose process has ended; its outputs will be published by "
        "another driver within seconds",
    ),
    (
        "committed by the dead, and nobody alive",
        facts("written", holder=gone("dead"), drivers=()),
        "committed by h-9 on far, whose process has ended; its outputs wait to be published: start "
        "a driver, or run queuedriver recover /q",
    ),
    (
        "committed by a stranger",
        facts("written", holder=Holder(driver="7", verdict="unknown"), drivers=()),
        "committed by 7, which never registered here; its outputs wait to be published: start a "
        "driver, or run queuedriver recover /q",
    ),
    (
        "being written",
        facts("writing", holder=Holder(driver="p-1", verdict="unknown"), claimed_at=NOW - 60),
        f"it is still being written by p-1 since {AT} (1 min), and waits when that is committed",
    ),
]
ENDED = [
    (
        "discarded",
        facts("discarded", discarded_at=NOW - 60, attempts=2, cause="signal", message="SIGSEGV"),
        f"discarded at {AT} after 2 attempts (signal: SIGSEGV); queuedriver show tells all, and "
        "queuedriver retry lets it be tried again",
    ),
    (
        "discarded without a report",
        facts("discarded", reported=False),
        "discarded, but its report is missing; queuedriver check --repair /q",
    ),
    (
        "given up by the original program",
        facts("failed_twice"),
        "given up by the original program, which keeps no contents: submit it again",
    ),
    (
        "no item",
        facts("foreign", foreign="rename it to 'd.ready' to submit it"),
        "the file 'd' is not an item: rename it to 'd.ready' to submit it",
    ),
    (
        "published",
        facts(
            "", event="published", event_at=NOW - 60, event_driver="h-1", outputs=("d.ready", "e")
        ),
        f"published as d.ready, e at {AT} by h-1",
    ),
    (
        "finished without outputs",
        facts("", event="finished", event_at=NOW - 60, event_driver="h-1"),
        f"finished without outputs at {AT} by h-1",
    ),
    (
        "goes on under another docid",
        facts("", event="failed", event_at=NOW - 60, renamed="d~1"),
        f"its docid was taken: since {AT} it goes on as 'd~1'",
    ),
    (
        "finished, and the journal is lost",
        facts("", found=("../out/d.ready",)),
        "finished, although the journal does not tell: there is ../out/d.ready",
    ),
    (
        "taken out of discarded/",
        facts("", event="discarded", event_at=NOW - 60, message="no good"),
        f"discarded at {AT} (no good), and since taken away from discarded/",
    ),
    (
        "taken out of the queue",
        facts("", event="released", event_at=NOW - 60, event_driver="h-1"),
        f"it is not here any more: last it was released at {AT} by h-1, and whatever came then is "
        "not in the journal",
    ),
    ("unknown", facts(""), "no document 'd' is here, and the journal has none"),
]


@pytest.mark.parametrize(
    ("seen", "sentence"),
    [
        pytest.param(seen, sentence, id=name)
        for name, seen, sentence in (*WAITING, *LATER, *CLAIMED, *ENDED)
    ],
)
def test_one_sentence_says_why(seen: Facts, sentence: str) -> None:
    assert explain(seen) == sentence
