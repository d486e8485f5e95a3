"""Why a document is where it is, in one sentence. Pure.

Facts in, words out; `dossier` gathers the facts. What drivers say of themselves (`why` of a
registration) are the words of `plan`, and are passed on as they are.
"""

from collections.abc import Callable

import msgspec

from queuedriver.format.units import format_count, format_duration, format_instant

# How long a living driver may take to look for what a dead one left, in words.
_SOON = "within seconds"


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """A driver, as far as it is known. Its verdict is that of `liveness`, or "unknown" of one that
    never registered here."""

    driver: str
    host: str = ""
    verdict: str = "alive"
    # What it does, and why: its own words.
    state: str = "ready"
    why: str = ""
    # On another host, and by the clocks its last beat is older than its lease.
    silent: bool = False


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one document; `state` is "" when nothing of it is in the queue."""

    docid: str
    queue: str
    now: float
    state: str = ""
    attempt: int = 0
    due: int = 0
    holder: Holder | None = None
    claimed_at: float = 0.0
    # For how long the file of a claim was not touched.
    untouched_for: float = 0.0
    # What the item is when it is no regular file.
    kind: str = ""
    # Another item of the same docid waits too.
    again: bool = False
    # How many others wait and may be tried now.
    others: int = 0
    paused: bool = False
    quit: bool = False
    drivers: tuple[Holder, ...] = ()
    # Documents per second, all drivers together.
    rate: float = 0.0
    # Of its last failure, its postponement or its report.
    cause: str = ""
    message: str = ""
    attempts: int = 0
    discarded_at: float = 0.0
    reported: bool = True
    # Other discarded documents of its docid.
    older: tuple[str, ...] = ()
    # Why a file of just this name is no item.
    foreign: str = ""
    # The last that the journal has of it.
    event: str = ""
    event_at: float = 0.0
    event_driver: str = ""
    outputs: tuple[str, ...] = ()
    renamed: str = ""
    # Where it would be, and is, although the journal does not tell: outputs, or the archive.
    found: tuple[str, ...] = ()


def explain(facts: Facts) -> str:
    """One sentence, without its full stop."""
    sentence = _SENTENCES[facts.state](facts)
    return f"{sentence}; another of the same docid waits too" if facts.again else sentence


# Waiting


def _waiting(facts: Facts) -> str:
    if facts.kind:
        return (
            f"it is a {facts.kind}, not a regular file: it will be discarded when it is tried"
            + ("" if _living(facts) else "; " + _no_driver(facts))
        )
    return _failed_before(facts) + _held_up(facts)


def _failed_before(facts: Facts) -> str:
    if not facts.attempt:
        return ""
    times = "once" if facts.attempt == 1 else f"{facts.attempt} times"
    return f"failed {times}{_because(facts)}, and waits to be tried again: "


def _held_up(facts: Facts) -> str:
    """What keeps it from being tried, in the order of rank that `plan` has."""
    living = _living(facts)
    if facts.quit:
        return "there is a QUIT file, so drivers leave; queuedriver resume takes it away"
    if facts.paused:
        return f"the queue is paused: nothing is claimed before queuedriver resume {facts.queue}"
    if not living:
        return _no_driver(facts)
    for state, words in (
        ("waiting-fs", "its drivers wait for the file system"),
        ("blocked", "its drivers are blocked"),
        ("starting", "its drivers are starting"),
    ):
        if all(one.state == state for one in living):
            why = next((one.why for one in living if one.why), "")
            return f"{words}: {why}" if why else words
    if not facts.others:
        return "nothing waits before it: it is next"
    words = f"waiting behind up to {format_count(facts.others, 'other')}"
    count = format_count(len(living), "driver")
    if facts.rate:
        eta = format_duration(facts.others / facts.rate)
        return f"{words}, which take {count} about {eta} at the present rate"
    return f"{words}, with {count} at work"


def _no_driver(facts: Facts) -> str:
    return f"no driver is alive; start one with queuedriver run {facts.queue}"


def _living(facts: Facts) -> list[Holder]:
    return [one for one in facts.drivers if one.verdict == "alive"]


def _because(facts: Facts) -> str:
    words = ": ".join(filter(None, (facts.cause, _first_line(facts.message))))
    return f" ({words})" if words else ""


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _later(facts: Facts) -> str:
    if facts.due <= facts.now:
        return f"it was due at {format_instant(facts.due)}: {_held_up(facts)}"
    left = format_duration(facts.due - facts.now)
    return f"not before {format_instant(facts.due)}, in {left}{_because(facts)}"


# Claimed


def _working(facts: Facts) -> str:
    holder = facts.holder or Holder(driver="somebody", verdict="unknown")
    if holder.verdict == "unknown":
        return (
            f"claimed{_at(facts)} by {holder.driver}, which never registered here; its file was "
            f"last touched {format_duration(facts.untouched_for)} ago, and it will be taken back "
            "when a driver has seen it untouched for 3 min"
        )
    if holder.verdict != "alive":
        counted = "as a failed attempt" if holder.verdict == "dead" else "uncounted"
        return f"claimed{_at(facts)} by {_gone(holder)}; {_recovered(facts, counted)}"
    words = f"being processed by {_on(holder)}{_since(facts)}"
    if holder.state == "waiting-fs":
        words += f", and it waits for the file system: {holder.why}"
    if holder.silent:
        words += (
            ", but by the clocks it has shown no life for its lease: it counts as lost when a "
            "driver has seen its beat stand still for that long"
        )
    return words


def _written(facts: Facts) -> str:
    holder = facts.holder or Holder(driver="somebody", verdict="unknown")
    if holder.verdict == "alive":
        return f"committed: its outputs are being published by {_on(holder)}"
    if holder.verdict == "unknown":
        words = f"committed by {holder.driver}, which never registered here"
    else:
        words = f"committed by {_gone(holder)}"
    if not _living(facts):
        return f"{words}; its outputs wait to be published: {_recover(facts)}"
    return f"{words}; its outputs will be published by another driver {_SOON}"


def _writing(facts: Facts) -> str:
    holder = facts.holder
    by = f" by {holder.driver}" if holder else ""
    return f"it is still being written{by}{_since(facts)}, and waits when that is committed"


def _at(facts: Facts) -> str:
    return f" at {format_instant(facts.claimed_at)}" if facts.claimed_at else ""


def _since(facts: Facts) -> str:
    if not facts.claimed_at:
        return ""
    length = format_duration(max(facts.now - facts.claimed_at, 0.0))
    return f" since {format_instant(facts.claimed_at)} ({length})"


def _on(holder: Holder) -> str:
    return f"{holder.driver} on {holder.host}" if holder.host else holder.driver


def _gone(holder: Holder) -> str:
    return {
        "left": f"{_on(holder)}, which has left",
        "dead": f"{_on(holder)}, whose process has ended",
        "rebooted": f"{_on(holder)}, whose host went down",
        "lost": f"an earlier life of {_on(holder)}",
    }[holder.verdict]


def _recovered(facts: Facts, counted: str) -> str:
    living = _living(facts)
    if not living:
        return f"nobody is alive to take it back: {_recover(facts)}"
    who = living[0].driver + (" or another driver" if len(living) > 1 else "")
    return f"it will be recovered by {who} {_SOON}, {counted}"


def _recover(facts: Facts) -> str:
    return f"start a driver, or run queuedriver recover {facts.queue}"


# Ended


def _discarded(facts: Facts) -> str:
    if not facts.reported:
        return f"discarded, but its report is missing; queuedriver check --repair {facts.queue}"
    times = format_count(facts.attempts, "attempt")
    return (
        f"discarded at {format_instant(facts.discarded_at)} after {times}{_because(facts)}; "
        f"queuedriver show tells all, and queuedriver retry lets it be tried again{_older(facts)}"
    )


def _older(facts: Facts) -> str:
    if not facts.older:
        return ""
    count = format_count(len(facts.older), "older document")
    return f"; {count} of this docid too: {', '.join(map(repr, facts.older))}"


def _failed_twice(facts: Facts) -> str:
    return "given up by the original program, which keeps no contents: submit it again"


def _foreign(facts: Facts) -> str:
    return f"the file {facts.docid!r} is not an item: {facts.foreign}"


def _absent(facts: Facts) -> str:
    at = format_instant(facts.event_at)
    by = f" by {facts.event_driver}" if facts.event_driver else ""
    if facts.renamed:
        return f"its docid was taken: since {at} it goes on as {facts.renamed!r}"
    if facts.outputs:
        return f"published as {', '.join(facts.outputs)} at {at}{by}"
    if facts.event == "finished":
        return f"finished without outputs at {at}{by}"
    if facts.found:
        return f"finished, although the journal does not tell: there is {', '.join(facts.found)}"
    if facts.event == "discarded":
        return f"discarded at {at}{_because(facts)}, and since taken away from discarded/"
    if facts.event:
        return (
            f"it is not here any more: last it was {facts.event} at {at}{by}{_because(facts)}, and "
            "whatever came then is not in the journal"
        )
    return f"no document {facts.docid!r} is here, and the journal has none"


_SENTENCES: dict[str, Callable[[Facts], str]] = {
    "ready": _waiting,
    "failed": _waiting,
    "later": _later,
    "working": _working,
    "written": _written,
    "writing": _writing,
    "discarded": _discarded,
    "failed_twice": _failed_twice,
    "foreign": _foreign,
    "": _absent,
}
