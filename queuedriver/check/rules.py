"""The rules of a queue that is well: what breaks each, and beside it how that is mended.

A finding's subject names the file, so that two looks can be compared: what is seen only once was
work in progress. A repair is made by the code that drivers use, and nothing of a user's is deleted:
what may be wanted goes to `.queuedriver/orphans/`, where it is kept for a week. Each step starts
from a name and does nothing when that is gone, so drivers, recoverers and other checks may go on.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator

import msgspec

from queuedriver.check.files import SETTLED, Finding, Found, Look, orphans_of
from queuedriver.claims import leftovers
from queuedriver.claims.attempts import ATTEMPTS, attempts_in, attempts_of, interrupted
from queuedriver.claims.charging import charge
from queuedriver.claims.handoff import CLAIMS, ORPHANS, planned_by
from queuedriver.claims.input_queue import InputQueue
from queuedriver.claims.liveness import DRIVERS, EXPIRY, Observer, Owner, registered_id
from queuedriver.claims.recovery import Recoverer
from queuedriver.disk.filesystem import Directory, make_directory
from queuedriver.disk.neighbours import FEEDS, Feed
from queuedriver.driving.setup import check_trusted, queue_of
from queuedriver.errors import NotRegular, QueueError, leads_nowhere
from queuedriver.format import names
from queuedriver.format.names import OPERATOR
from queuedriver.format.records import Failure, Plan, Registration, Report, encode_report
from queuedriver.format.settings import Settings, resolve
from queuedriver.format.units import format_count, format_duration
from queuedriver.jobs import job as jobs
from queuedriver.operating.document_view import kind_of
from queuedriver.operating.operations import journal_of
from queuedriver.operating.queue import Queue
from queuedriver.operating.queue_view import held_fast

# Living drivers look for what a dead one left every 5 s; one that was still beating a minute ago is
# theirs to recover, and no news.
_RECOVERING = 60.0
# What a claim adds to a docid at most: `.failed99`, an N with its dot, `.working`.
_CLAIM_ADDS = len(".failed99") + 1 + names.MAX_DRIVER_ID + 1 + 18 + len(".working")
_ORPHANED = "moves it to .queuedriver/orphans"


class Repairs:
    """Mends one queue."""

    def __init__(self, queue: Queue, clock: Callable[[], float]) -> None:
        self.queue = queue
        self.clock = clock
        # All that the dead left is recovered at once, for whichever finding it is.
        self.recovered = False

    def mend(self, findings: Iterable[Finding]) -> None:
        """Do what can be done about each. What cannot be mended yet is found again."""
        for finding in findings:
            # Somebody was faster, something else must be mended first, or it is for a person to do:
            # that does not keep us from the others.
            try:
                with contextlib.suppress(FileExistsError, PermissionError, NotRegular, QueueError):
                    MENDS[finding.rule](self, finding.subject)
            except OSError as error:
                if not leads_nowhere(error):
                    raise

    @contextlib.contextmanager
    def within(self, path: str) -> Iterator[tuple[Directory, str]]:
        """Open the directory that a file of the queue is in, and tell its name there: what was a
        directory when it was found may be a symlink by now."""
        above, name = os.path.split(path)
        if not above or above.partition("/")[0] in (names.PRIVATE, names.DISCARDED):
            with self.queue.directory.subdirectory(above) as directory:
                yield directory, name
        else:
            # An output, as the settings name it.
            with Directory.open(resolve(self.queue.path, above)) as directory:
                yield directory, name

    @contextlib.contextmanager
    def opened(self, observer: Observer, *, outputs: bool = True) -> Iterator[InputQueue]:
        """Open the queue as its drivers do; with its outputs, if they are all there."""
        queue = self.queue
        settings = queue.settings() or Settings()
        for path in filter(None, (*settings.outputs, settings.archive)) if outputs else ():
            # Made anew, it would look as if the outputs had been taken away already.
            Directory.open(resolve(queue.path, path)).close()
        with (
            journal_of(queue) as journal,
            queue_of(queue.directory, journal, observer, outputs=outputs) as one,
        ):
            one.recoverer = Recoverer(one, observer, self.clock)
            yield one


Find = Callable[[Look], Iterator[Found]]
Mend = Callable[[Repairs, str], None]

FINDERS: list[Find] = []
# How what breaks a rule is mended; rules that are not here are left to people.
MENDS: dict[str, Mend] = {}


def finds(mends: dict[str, Mend]) -> Callable[[Find], Find]:
    """Enter a function that finds what breaks these rules, and beside each how it is mended."""

    def enter(find: Find) -> Find:
        FINDERS.append(find)
        MENDS.update(mends)
        return find

    return enter


# Repairs of several rules


def _remove(repairs: Repairs, path: str) -> None:
    with repairs.within(path) as (directory, name):
        directory.remove(name)


def _to_orphans(repairs: Repairs, path: str) -> None:
    """Move a file to the orphans, under its own name if that is free."""
    orphans = repairs.queue.private.subdirectory(ORPHANS, create=True)
    with orphans, repairs.within(path) as (directory, name):
        try:
            directory.rename_new(name, name, orphans)
        except FileExistsError:
            directory.rename_new(name, f"{name}~{time.time_ns() // 1000:x}", orphans)


def _recover(repairs: Repairs, _path: str) -> None:
    """Recover everything of everybody who is dead, once."""
    if not repairs.recovered:
        with repairs.opened(Observer()) as one:
            one.recoverer.recover()
        repairs.recovered = True


def _discard(repairs: Repairs, name: str) -> None:
    """Discard an item with a report, claimed as a driver would if it is not yet."""
    item = names.parse(name)
    if item is None:
        return
    cause, message = "not-a-file", f"{item.docid!r} is not a regular file: not read"
    if item.claimed:
        cause, message = "output-missing", "it was committed, and its output is nowhere"
    failure = Failure(cause=cause, message=message, permanent=True)
    with repairs.opened(Observer(), outputs=False) as one:
        for claim in [one.claim_of(item, name)] if item.claimed else one.claim([name]):
            charge(claim, failure, repairs.clock())


# The queue itself


def _make_room(repairs: Repairs, path: str) -> None:
    if path == names.DISCARDED:
        _to_orphans(repairs, path)
    else:
        with repairs.within(path) as (directory, name):
            directory.rename_new(name, f"{name}~{time.time_ns() // 1000:x}")


@finds({"wrong-type": _make_room})
def _misplaced(look: Look) -> Iterator[Found]:
    for path, why in look.wrong_types.items():
        message = f"it is {why}, where a directory of the queue belongs"
        yield "wrong-type", path, message, "moves it aside"
    for path in look.elsewhere:
        message = "it is on another file system than the queue, so nothing can be renamed into it"
        yield "other-file-system", path, f"{message}: unmount or move it", ""


@finds({"settings": _to_orphans})
def _settings(look: Look) -> Iterator[Found]:
    trouble = look.trouble
    committed = any(one.item.state == names.WRITTEN for one in look.claims.values())
    if not trouble and committed and not look.settings.outputs:
        # What is committed has outputs, or it would be finished; so somebody knew where they are.
        trouble = "it names no outputs, and there are documents whose outputs are complete"
    if trouble:
        subject = f"{names.PRIVATE}/settings.json"
        # What was claimed under them can only be finished under them.
        if needed := bool(look.claims or look.living):
            trouble += "; there are claims or living drivers that need it: write it again as it was"
        yield "settings", subject, trouble, "" if needed else _ORPHANED


def _make_directory(repairs: Repairs, path: str) -> None:
    check_trusted(repairs.queue.directory, repairs.queue.private)
    make_directory(resolve(repairs.queue.path, path))


@finds({"missing-directory": _make_directory})
def _missing_directory(look: Look) -> Iterator[Found]:
    for path in look.missing:
        message = "the settings name this directory, and it is not there"
        if look.claims:
            # A new, empty one would look as if the outputs had been taken away already.
            message += "; there are claims that need it: mount or restore it"
        yield "missing-directory", path, message, "" if look.claims else "makes it"


@finds({})
def _closed_queue(look: Look) -> Iterator[Found]:
    closed = look.queue.controls().done and not look.living
    if closed and (left := look.queue.listing(look.now).unfinished):
        words = "waits" if left == 1 else "wait"
        message = f"{format_count(left, 'document')} {words} in a closed queue, and no driver is"
        yield "closed-queue", names.DONE, f"{message} alive: start one, or reopen", ""


# Claims, and what belongs to them


def _rebuild_plan(repairs: Repairs, path: str) -> None:
    """Make a plan again of the outputs that are still unfinished: the published are no matter."""
    token = planned_by(os.path.basename(path))
    outputs = []
    with repairs.opened(Observer()) as one:
        for index, target in enumerate(one.targets):
            for name in {*target.directory.names(), *orphans_of(target.directory)}:
                item = names.parse(name)
                if item is not None and (item.state, item.token) == (names.WRITING, token):
                    outputs.append((index, name, target.publication.name(item.docid)))
    plan = msgspec.json.encode(Plan(tuple(sorted(outputs))))
    with repairs.within(path) as (directory, name):
        directory.write_aside(name, plan, durable=True)


def _recover_stale(repairs: Repairs, name: str) -> None:
    item = names.parse(name)
    if item is not None:
        # Untouched for so much longer than the lease that no lease need be waited for.
        with repairs.opened(Observer(lease=0.0)) as one:
            one.recoverer.recover([name])


@finds(
    {
        "damaged-plan": _rebuild_plan,
        "output-missing": _discard,
        "dead-claim": _recover,
        "stale-claim": _recover_stale,
    }
)
def _claims(look: Look) -> Iterator[Found]:
    plans = {planned_by(file.name): file.path for file in look.files[CLAIMS]}
    written = {one.item.token for one in look.outputs} | look.orphaned
    for token, claim in look.claims.items():
        owner, path = look.owner(token), claim.path
        committed = claim.item.state == names.WRITTEN
        nowhere = committed and not look.missing and token not in written
        if committed and token in plans and isinstance(why := look.read(plans[token], Plan), str):
            message = f"the plan of a claim's outputs cannot be read ({why})"
            repair = "makes it again of the outputs that are there"
            yield "damaged-plan", plans[token], message, repair
        if owner.registration is None:
            driver, serial, _ = names.parse_token(token)
            # A rename does not change the times of a file everywhere, but an N has its instant.
            age = min(claim.age, look.now - serial / 1e6) if serial else claim.age
            if age > SETTLED:
                message = f"claimed by {driver}, which never registered here and has not touched it"
                yield "stale-claim", path, f"{message} for {format_duration(age)}", "recovers it"
        elif nowhere and _is_in_vain(owner.registration, token, look, alive=owner.alive):
            message = "committed, and its output is nowhere: bring back the output directory, or "
            message += "name it by queuedriver recover --output"
            yield "output-missing", path, message, "discards it, with that cause"
        elif not owner.alive and (owner.verdict == "lost" or not _is_recovering(look, owner)):
            driver, _, salt = names.parse_token(token)
            life = "" if salt == owner.registration.salt else "an earlier life of "
            message = f"claimed by {life}{driver}, which {owner.became}"
            repair = "publishes and finishes it" if committed else "takes it back"
            yield "dead-claim", path, message, repair


def _is_in_vain(claimant: Registration, token: str, look: Look, *, alive: bool) -> bool:
    """Tell whether a committed claim is held up for its output: its driver waits for that, and
    whoever recovered the claim would take it for done; or it was made for directories that are
    gone."""
    if alive:
        return claimant.state == "waiting-fs"
    made_for = claimant.made_for(names.parse_token(token).salt)
    # The archive comes last, and nobody says what it was.
    return made_for != tuple(look.opened_as[: len(made_for)])


@finds({"unfinished-output": _recover})
def _unfinished_output(look: Look) -> Iterator[Found]:
    for one in look.outputs:
        owner = look.owner(one.item.token)
        gone = owner.registration is not None and not owner.alive
        if gone and one.item.token not in look.claims and not _is_recovering(look, owner):
            message = f"an output that {owner.id} did not finish before it {owner.became}"
            yield "unfinished-output", one.path, message, "moves it to the orphans there"


def _is_recovering(look: Look, owner: Owner) -> bool:
    """Return whether a living driver is about to recover what a dead one left."""
    return look.living and look.beats_ago(owner) <= _RECOVERING


# Discarded documents, and their reports


def _settle(repairs: Repairs, _path: str) -> None:
    with attempts_in(repairs.queue.directory) as attempts:
        attempts.settle()


def _replace_report(repairs: Repairs, path: str) -> None:
    _to_orphans(repairs, path)
    _write_report(repairs, path.removesuffix(names.REPORT))


def _write_report(repairs: Repairs, path: str) -> None:
    """Write a report that says that there was none, with what is remembered of the attempts."""
    docid = os.path.basename(path)
    with attempts_in(repairs.queue.directory) as attempts:
        found = attempts_of(attempts.directory, docid)
        message = "its report was missing; a check wrote this one"
        report = Report(
            docid=docid,
            queue=repairs.queue.name,
            discarded_at=repairs.clock(),
            driver=OPERATOR,
            host=Observer().me.host,
            failure=found[-1].failure if found else Failure(cause="unknown", message=message),
            attempts=found,
        )
        attempts.discarded.write_first(docid + names.REPORT, encode_report(report), durable=True)


@finds(
    {
        "interrupted-discard": _settle,
        "damaged-report": _replace_report,
        "no-report": _write_report,
        "lone-report": _to_orphans,
    }
)
def _discarded(look: Look) -> Iterator[Found]:
    unsettled: set[str] = set()
    ages = {file.name: file.age for file in look.files[ATTEMPTS]}
    with look.opened(ATTEMPTS) as noted, look.opened(names.DISCARDED) as discarded:
        for one, file in interrupted(noted, discarded) if noted and discarded else ():
            unsettled.add(one.place)
            token = one.report.attempts[-1].token if one.report and one.report.attempts else ""
            if look.settled(token, ages.get(str(file), 0.0)):
                message = "a document whose discarding was interrupted before it had its report"
                path = f"{names.DISCARDED}/{one.place}"
                yield "interrupted-discard", path, message, "gives it its report"
    listed = {file.path for file in look.files[names.DISCARDED] if file.name[0] != "."}
    for path in sorted({one.removesuffix(names.REPORT) for one in listed}):
        report = path + names.REPORT
        if path not in listed:
            yield "lone-report", report, "a report whose document is not there", _ORPHANED
        elif report in listed:
            if isinstance(look.read(report, Report), str):
                repair = f"{_ORPHANED}, and writes one that says so"
                yield "damaged-report", report, "a report that cannot be read", repair
        elif os.path.basename(path) not in unsettled:
            yield "no-report", path, "a document without a report", "writes one that says so"


# Items that no driver can do anything with


def judge_item(
    look: Look, name: str, item: names.Item | None, found: os.stat_result
) -> Iterator[Found]:
    """Find what is wrong with one name of the queue, as it is walked."""
    if item is None:
        if names.looks_like_item(name):
            message = f"it looks like an item and is none: {names.why_foreign(name)}; rename it"
            yield "impossible-name", name, message, ""
        return
    if not item.waits(float("inf")):
        return
    if kind := kind_of(found.st_mode):
        yield "not-a-file", name, f"it is a {kind}, not a regular file", "discards it"
    elif not _is_readable(look.queue.directory, name):
        yield "not-readable", name, "permission denied; chmod or chown it", ""
    if len(os.fsencode(item.docid)) + _CLAIM_ADDS > look.longest_name:
        message = "a claim adds more to its name than this file system allows; give it a shorter"
        yield "name-too-long", name, message, ""
    if why := held_fast(look.queue.directory, name, found, look.mounted):
        yield "not-movable", name, f"no driver can claim it: {why}", ""


def _is_readable(directory: Directory, name: str) -> bool:
    with contextlib.suppress(PermissionError):
        os.close(directory.open_read(name))
        return True
    return False


@finds({"not-a-file": _discard})
def _items(look: Look) -> Iterator[Found]:
    yield from look.found


# What should have gone


_SCRAP = next(row for row in leftovers.OF_DRIVEN if row.kind == "scrap")
_ROWS = [row for row in leftovers.OF_DRIVEN if row.kind != _SCRAP.kind]
_MENDS = {row.kind: _remove if row.act == "remove" else _to_orphans for row in _ROWS}


@finds({"scrap": _remove, **_MENDS})
def _leftovers(look: Look) -> Iterator[Found]:
    """Find what drivers sweep in time, and have not: none has been here for so long."""
    for file in look.scraps:
        if file.age > _SCRAP.kept:
            message = f"{_SCRAP.what} {format_duration(file.age)} ago"
            yield _SCRAP.kind, file.path, message, "removes it"
    found: set[str] = set()
    for row in _ROWS:
        repair = "removes it" if row.act == "remove" else _ORPHANED
        part = os.path.basename(row.where)
        with look.opened(part) as where:
            for file in look.files[part] if part else look.writing:
                old = row.is_one(file.name) and file.age > row.kept and file.path not in found
                if old and where and not row.excuse(look.swept, where, file.name):
                    found.add(file.path)
                    message = f"{row.what}; not touched for {format_duration(file.age)}"
                    yield row.kind, file.path, message, repair


@finds({"damaged-registration": _to_orphans, "old-registration": _recover})
def _registrations(look: Look) -> Iterator[Found]:
    busy = {names.parse_token(token).driver for token in look.claims}
    for file in look.files[DRIVERS]:
        driver = registered_id(file.name)
        if (one := look.known.get(driver)) is not None:
            ago = look.beats_ago(one)
            if not one.alive and ago > EXPIRY and driver not in busy:
                message = f"{driver} {one.became} {format_duration(ago)} ago"
                yield "old-registration", file.path, message, "removes it"
        elif driver:
            said = look.read(file.path, Registration)
            if isinstance(said, str) or said.id != driver:
                why = said if isinstance(said, str) else f"it is of {said.id}"
                message = f"no driver registered like this: {why}"
                yield "damaged-registration", file.path, message, _ORPHANED


def _remove_job(repairs: Repairs, path: str) -> None:
    with repairs.within(path) as (directory, name):
        jobs.remove(directory, name)


@finds({"ended-job": _remove_job})
def _jobs(look: Look) -> Iterator[Found]:
    with look.opened(jobs.JOBS) as directory:
        for name in jobs.ended(directory, look.queue.directory) if directory else ():
            message = "what a broker knew of a job that has ended, or is not in the queue any more"
            yield "ended-job", f"{names.PRIVATE}/{jobs.JOBS}/{name}", message, "removes it"


@finds({"damaged-feed": _to_orphans, "missing-feed": _to_orphans})
def _feeds(look: Look) -> Iterator[Found]:
    for file in look.files[FEEDS]:
        if file.name[0] == "." or not file.name.endswith(".json"):
            continue
        feed = look.read(file.path, Feed)
        if isinstance(feed, str):
            yield "damaged-feed", file.path, "it names no queue, and cannot be read", _ORPHANED
        elif not os.path.isdir(path := resolve(look.queue.path, feed.path)):
            message = (
                f"the queue {path} feeds this one and is not there, so this one is never "
                "closed by itself; mount it, if it is to come back"
            )
            repair = "forgets it, until its drivers name it again"
            yield "missing-feed", file.path, message, repair
