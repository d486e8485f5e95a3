"""The rules of a queue that is well, each a function from facts to findings. Pure.

A finding is a broken rule, or a note where what looks like one will pass by itself. Its subject
names the file, so that two looks can be compared: what is seen only once was work in progress.
"""

from collections.abc import Callable, Iterator

from queuedriver.check.facts import GONE, Facts, Finding, found, note
from queuedriver.check.litter import LITTER
from queuedriver.format.units import format_duration

# Living drivers look for what a dead one left every 5 s; one that was still beating a minute ago is
# theirs to recover, and no news.
_RECOVERING = 60.0
# What nobody renamed, wrote or touched for this long is nobody's: a driver that never registered
# must touch its claims every few seconds.
_UNTOUCHED = 3600.0
_DAY = 86400.0


# The queue itself


def _wrong_type(facts: Facts) -> Iterator[Finding]:
    for path, why in facts.wrong_types:
        message = f"it is {why}, where a directory of the queue belongs"
        yield found("wrong-type", path, message, "moves it aside")


def _other_file_system(facts: Facts) -> Iterator[Finding]:
    for path in facts.elsewhere:
        message = "it is on another file system than the queue, so nothing can be renamed into it"
        yield found("other-file-system", path, f"{message}: unmount or move it")


def _settings(facts: Facts) -> Iterator[Finding]:
    if not facts.settings:
        return
    subject = ".queuedriver/settings.json"
    if facts.claims or facts.living:
        # What was claimed under them can only be finished under them.
        message = f"{facts.settings}; there are claims or living drivers that need it"
        yield found("settings", subject, f"{message}: write it again as it was")
    else:
        yield found("settings", subject, facts.settings, "moves it to .queuedriver/orphans")


def _missing_directory(facts: Facts) -> Iterator[Finding]:
    for path in facts.missing:
        message = "the settings name this directory, and it is not there"
        if facts.claims:
            # A new, empty one would look as if the outputs had been taken away already.
            message += "; there are claims that need it: mount or restore it"
            yield found("missing-directory", path, message)
        else:
            yield found("missing-directory", path, message, "makes it")


# Claims, and what belongs to them


def _dead_claim(facts: Facts) -> Iterator[Finding]:
    for claim in facts.claims:
        if claim.driver is None or claim.verdict == "alive":
            continue
        message = f"claimed by {claim.owner}, which {GONE[claim.verdict]}"
        if facts.living and claim.verdict != "lost" and claim.driver.beats_ago <= _RECOVERING:
            yield note("dead-claim", claim.name, f"{message}; a living driver will recover it")
            continue
        repair = "publishes and finishes it" if claim.state == "written" else "takes it back"
        yield found("dead-claim", claim.name, message, repair)


def _stale_claim(facts: Facts) -> Iterator[Finding]:
    for claim in facts.claims:
        if claim.driver is None and claim.age > _UNTOUCHED:
            message = (
                f"claimed by {claim.owner}, which never registered here and has not touched it "
                f"for {format_duration(claim.age)}"
            )
            yield found("stale-claim", claim.name, message, "recovers it")


def _unfinished_output(facts: Facts) -> Iterator[Finding]:
    for output, name, driver in facts.unfinished:
        message = f"an output that {driver.id} did not finish before it {GONE[driver.verdict]}"
        path = f"{output}/{name}"
        if facts.living and driver.beats_ago <= _RECOVERING:
            yield note("unfinished-output", path, f"{message}; a living driver will move it aside")
        else:
            yield found("unfinished-output", path, message, "moves it to the orphans there")


def _strange_output(facts: Facts) -> Iterator[Finding]:
    for one in facts.strange_outputs:
        message = "no queue that feeds this one knows who writes it; so the queue is never drained"
        if one.age > _DAY:
            yield found("strange-output", one.path, message, "moves it to .queuedriver/orphans")
        else:
            yield note("strange-output", one.path, message)


def _leftover_plan(facts: Facts) -> Iterator[Finding]:
    for one in facts.plans:
        if not one.wanted:
            message = "a plan of outputs whose claim is gone"
            yield found("leftover-plan", one.path, message, "removes it")


def _damaged_plan(facts: Facts) -> Iterator[Finding]:
    for path, why in facts.damaged_plans:
        message = f"the plan of a claim's outputs cannot be read ({why})"
        repair = "makes it again of the outputs that are there"
        yield found("damaged-plan", path, message, repair)


# Discarded documents, and their reports


def _interrupted_discard(facts: Facts) -> Iterator[Finding]:
    for docid in facts.interrupted:
        message = "a document whose discarding was interrupted before its report was beside it"
        yield found("interrupted-discard", f"discarded/{docid}", message, "gives it its report")


def _no_report(facts: Facts) -> Iterator[Finding]:
    for docid in facts.unreported:
        message = "a discarded document without a report"
        yield found("no-report", f"discarded/{docid}", message, "writes one that says so")


def _damaged_report(facts: Facts) -> Iterator[Finding]:
    for docid in facts.damaged_reports:
        repair = "moves it to .queuedriver/orphans, and writes one that says so"
        subject = f"discarded/{docid}.report.json"
        yield found("damaged-report", subject, "a report that cannot be read", repair)


def _lone_report(facts: Facts) -> Iterator[Finding]:
    for docid in facts.lone_reports:
        message = "a report whose document is not there"
        subject = f"discarded/{docid}.report.json"
        yield found("lone-report", subject, message, "moves it to .queuedriver/orphans")


# Items that no driver can do anything with


def _not_a_file(facts: Facts) -> Iterator[Finding]:
    for path, why in facts.not_files:
        message = f"it is {why}, not a regular file"
        yield found("not-a-file", path, message, "discards it")


def _not_readable(facts: Facts) -> Iterator[Finding]:
    for path in facts.unreadable:
        yield found("not-readable", path, "permission denied; chmod or chown it")


def _impossible_name(facts: Facts) -> Iterator[Finding]:
    for path, why in facts.impossible:
        message = f"it looks like an item and is none: {why}; rename it"
        yield found("impossible-name", path, message)


def _name_too_long(facts: Facts) -> Iterator[Finding]:
    for path in facts.too_long:
        message = "a claim adds more to its name than this file system allows; give it a shorter"
        yield found("name-too-long", path, message)


RULES: dict[str, Callable[[Facts], Iterator[Finding]]] = {
    "wrong-type": _wrong_type,
    "other-file-system": _other_file_system,
    "settings": _settings,
    "missing-directory": _missing_directory,
    "damaged-plan": _damaged_plan,
    "dead-claim": _dead_claim,
    "stale-claim": _stale_claim,
    "unfinished-output": _unfinished_output,
    "strange-output": _strange_output,
    "leftover-plan": _leftover_plan,
    "interrupted-discard": _interrupted_discard,
    "damaged-report": _damaged_report,
    "no-report": _no_report,
    "lone-report": _lone_report,
    "not-a-file": _not_a_file,
    "not-readable": _not_readable,
    "impossible-name": _impossible_name,
    "name-too-long": _name_too_long,
    **LITTER,
}
