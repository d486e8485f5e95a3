"""The rules about what should have gone: leftovers of writers, drivers and submitters. Pure."""

from collections.abc import Callable, Iterator

from queuedriver.check.facts import GONE, Facts, Finding, Leftover, found
from queuedriver.format.units import format_duration

# A file that takes its writer milliseconds to write and rename.
_MOMENT = 3600.0
_DAY = 86400.0
_WEEK = 7 * _DAY


def _leftover_attempt(facts: Facts) -> Iterator[Finding]:
    for one in facts.attempts:
        if one.age > _DAY and not one.wanted:
            message = "the record of an attempt at a document that is nowhere in the queue"
            yield found("leftover-attempt", one.path, message, "removes it")


def _leftover_incoming(facts: Facts) -> Iterator[Finding]:
    for one in facts.incoming:
        if not one.wanted:
            message = "a document whose submitter ended before it was in the queue"
        elif one.age > _DAY:
            message = f"a document that has been about to be submitted for {_long(one)}"
        else:
            continue
        repair = "moves it to .queuedriver/orphans; submit it again"
        yield found("leftover-incoming", one.path, message, repair)


def _scrap(facts: Facts) -> Iterator[Finding]:
    for one in facts.scraps:
        if one.age > _MOMENT:
            message = f"a file that somebody began to write {_long(one)} ago"
            yield found("scrap", one.path, message, "removes it")


def _old_orphan(facts: Facts) -> Iterator[Finding]:
    for one in facts.orphans:
        if one.age > _WEEK and not one.wanted:
            message = f"nobody has asked for it for {_long(one)}"
            yield found("old-orphan", one.path, message, "removes it")


def _damaged_registration(facts: Facts) -> Iterator[Finding]:
    for path, why in facts.damaged_registrations:
        message = f"no driver registered like this: {why}"
        yield found("damaged-registration", path, message, "moves it to .queuedriver/orphans")


def _old_registration(facts: Facts) -> Iterator[Finding]:
    busy = {claim.driver.id for claim in facts.claims if claim.driver is not None}
    for driver in facts.drivers:
        if driver.verdict != "alive" and driver.beats_ago > _WEEK and driver.id not in busy:
            message = f"{driver.id} {GONE[driver.verdict]} {format_duration(driver.beats_ago)} ago"
            path = f".queuedriver/drivers/{driver.id}.json"
            yield found("old-registration", path, message, "removes it")


def _damaged_feed(facts: Facts) -> Iterator[Finding]:
    for path in facts.damaged_feeds:
        message = "it names no queue, and cannot be read"
        yield found("damaged-feed", path, message, "moves it to .queuedriver/orphans")


def _missing_feed(facts: Facts) -> Iterator[Finding]:
    for path, feed in facts.missing_feeds:
        message = (
            f"the queue {feed} feeds this one and is not there, so this one is never closed by "
            "itself; mount it, if it is to come back"
        )
        yield found("missing-feed", path, message, "forgets it, until its drivers name it again")


def _long(one: Leftover) -> str:
    return format_duration(one.age)


LITTER: dict[str, Callable[[Facts], Iterator[Finding]]] = {
    "leftover-attempt": _leftover_attempt,
    "leftover-incoming": _leftover_incoming,
    "scrap": _scrap,
    "old-orphan": _old_orphan,
    "damaged-registration": _damaged_registration,
    "old-registration": _old_registration,
    "damaged-feed": _damaged_feed,
    "missing-feed": _missing_feed,
}
