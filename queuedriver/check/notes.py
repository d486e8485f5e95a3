"""What somebody may want to know of a queue, though no rule is broken. Pure."""

from collections.abc import Callable, Iterator

from queuedriver.check.facts import Facts, Finding, note
from queuedriver.format.units import format_count, format_duration, format_instant


def _foreign_file(facts: Facts) -> Iterator[Finding]:
    for path, why in facts.foreign:
        yield note("foreign-file", path, f"not an item: {why}")
    if more := facts.foreign_count - len(facts.foreign):
        yield note("foreign-file", "…", f"{format_count(more, 'further file')} are not items")


def _same_docid(facts: Facts) -> Iterator[Finding]:
    for docid in facts.twice:
        yield note("same-docid", docid, "it waits in several states; each will be processed")


def _due_without_driver(facts: Facts) -> Iterator[Finding]:
    if facts.overdue and not facts.living:
        count = format_count(facts.overdue, "document")
        first = format_instant(facts.next_due)
        message = f"{count} came due at {first} or later, and no driver is alive to see it"
        yield note("due-without-driver", ".later", message)


def _silent_driver(facts: Facts) -> Iterator[Finding]:
    for driver in facts.drivers:
        if driver.silent:
            message = (
                f"{driver.id} on {driver.host} has shown no life for "
                f"{format_duration(driver.beats_ago)} by the clocks; a living driver, or recover, "
                "finds out by watching it for its lease"
            )
            yield note("silent-driver", f".queuedriver/drivers/{driver.id}.json", message)


def _given_up(facts: Facts) -> Iterator[Finding]:
    if facts.given_up:
        count = format_count(facts.given_up, "document")
        message = f"the original program gave up {count} and kept no contents: submit them again"
        yield note("failed-twice", ".failed_twice", message)


def _control(facts: Facts) -> Iterator[Finding]:
    for name in facts.controls:
        words = {"PAUSE": "nothing is claimed before resume", "QUIT": "no driver stays"}[name]
        yield note("control", name, words)


def _closed_queue(facts: Facts) -> Iterator[Finding]:
    if facts.closed_over and not facts.living:
        verb = "waits" if facts.closed_over == 1 else "wait"
        count = format_count(facts.closed_over, "document")
        message = f"{count} {verb} in a closed queue, and no driver is alive: start one, or reopen"
        yield note("closed-queue", "done", message)


NOTES: dict[str, Callable[[Facts], Iterator[Finding]]] = {
    "foreign-file": _foreign_file,
    "same-docid": _same_docid,
    "due-without-driver": _due_without_driver,
    "silent-driver": _silent_driver,
    "failed-twice": _given_up,
    "control": _control,
    "closed-queue": _closed_queue,
}
