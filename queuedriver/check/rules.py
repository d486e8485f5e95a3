"""The rules of a queue that is well: what breaks each, and beside it how that is mended.

A finding's subject names the file, so that two looks can be compared: what is seen only once was
work in progress. A repair is made by the code that drivers use, and nothing of a user's is deleted:
what may be wanted goes to `.queuedriver/orphans/`, where it is kept for a week. Each step starts
from a name and does nothing when that is gone, so drivers, recoverers and other checks may go on.
"""

import contextlib
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import msgspec

from queuedriver.check.files import SETTLED, File, Finding, Look
from queuedriver.claims import leftovers
from queuedriver.claims.attempts import ATTEMPTS, Attempts, attempts_of, interrupted
from queuedriver.claims.handoff import CLAIMS, ORPHANS
from queuedriver.claims.input_queue import InputQueue
from queuedriver.claims.liveness import (
    DRIVERS,
    EXPIRY,
    Observer,
    Registration,
    draw_salt,
)
from queuedriver.claims.outcomes import Failure
from queuedriver.claims.recovery import Recoverer
from queuedriver.disk.filesystem import Directory, make_directory
from queuedriver.disk.upstreams import FEEDS, Feed
from queuedriver.driving.setup import check_trusted, queue_of
from queuedriver.errors import NotFound, NotRegular, QueueError, leads_nowhere
from queuedriver.format import names
from queuedriver.format.records import Plan, Report, encode_report
from queuedriver.format.settings import Settings
from queuedriver.format.units import format_count, format_duration
from queuedriver.operating.document_view import kind_of
from queuedriver.operating.operations import journal_of
from queuedriver.operating.queue import OPERATOR, Queue, resolve

# Living drivers look for what a dead one left every 5 s; one that was still beating a minute ago is
# theirs to recover, and no news.
_RECOVERING = 60.0
# Containers may share the name of a host and not its processes: who writes on is there.
_QUIET = 60.0
# What a claim adds to a docid at most: `.failed99`, an N with its dot, `.working`.
_CLAIM_ADDS = len(".failed99") + 1 + names.MAX_DRIVER_ID + 1 + 18 + len(".working")
# What leaves one finding as it was, and does not keep us from the others.
_LEFT = (FileNotFoundError, FileExistsError, NotADirectoryError, PermissionError, NotRegular)
# What became of a driver, by its verdict.
_GONE = {
    "left": "left",
    "dead": "ended without a word",
    "rebooted": "went down with its host",
    "lost": "was an earlier life of the driver of that name",
}


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
            mend = RULES[finding.rule].mend
            # Somebody was faster, something else must be mended first, or it is for a person to do.
            with contextlib.suppress(*_LEFT, QueueError):
                if mend is not None:
                    mend(self, finding.subject)

    @contextlib.contextmanager
    def within(self, path: str) -> Iterator[tuple[Directory, str]]:
        """Where a file of the queue is, and its name there: what was a directory when it was found
        may be a symlink by now."""
        above, name = os.path.split(path)
        if not above:
            yield self.queue.directory, name
            return
        if above.partition("/")[0] in (names.PRIVATE, names.DISCARDED):
            directory = self.queue.directory.subdirectory(above)
        else:
            # An output, as the settings name it.
            directory = Directory.open(resolve(self.queue.path, above))
        try:
            yield directory, name
        finally:
            directory.close()

    @contextlib.contextmanager
    def attempts(self) -> Iterator[Attempts]:
        noted = self.queue.private.subdirectory(ATTEMPTS, create=True)
        discarded = self.queue.directory.subdirectory(names.DISCARDED, create=True)
        try:
            yield Attempts(noted, discarded)
        finally:
            discarded.close()
            noted.close()

    @contextlib.contextmanager
    def opened(self, observer: Observer) -> Iterator[InputQueue]:
        queue = self.queue
        settings = queue.settings() or Settings()
        archive = () if settings.archive is None else (settings.archive,)
        for path in (*settings.outputs, *archive):
            # Made anew, it would look as if the outputs had been taken away already.
            with _told(path):
                Directory.open(resolve(queue.path, path)).close()
        with journal_of(queue) as journal, queue_of(queue, journal, observer) as one:
            one.recoverer = Recoverer(one, observer, self.clock)
            yield one

    def discard(self, name: str, failure: Failure, *, claimed: bool = False) -> None:
        """Discard an item with a report, claimed as a driver would if it is not yet."""
        queue, item = self.queue, names.parse(name)
        if item is None:
            return
        with journal_of(queue) as journal:
            # No outputs: to discard needs none.
            settings = queue.settings() or Settings()
            mint = names.Mint(OPERATOR, draw_salt(), time.time_ns() // 1000)
            one = InputQueue(queue.directory, queue.private, (), settings, mint, journal)
            try:
                for claim in [one.claim_of(item, name)] if claimed else one.claim([name]):
                    one.charge(claim, failure, self.clock())
            finally:
                one.close()


Find = Callable[[Look], Iterator[tuple[str, str, str]]]
Mend = Callable[[Repairs, str], None]


class Rule(NamedTuple):
    """What is broken, and how it is mended; None where that is left to people."""

    find: Callable[[Look], Iterator[Finding]]
    mend: Mend | None


RULES: dict[str, Rule] = {}


def rule(name: str, mend: Mend | None = None) -> Callable[[Find], Find]:
    """Enter a function from a look to (subject, message, what a repair does) as a rule."""

    def enter(find: Find) -> Find:
        def findings(look: Look) -> Iterator[Finding]:
            for subject, message, repair in find(look):
                yield Finding(rule=name, subject=subject, message=message, repair=repair)

        RULES[name] = Rule(findings, mend)
        return find

    return enter


# Repairs of several rules


def _remove(repairs: Repairs, path: str) -> None:
    with repairs.within(path) as (directory, name):
        directory.remove(name)


def _to_orphans(repairs: Repairs, path: str) -> None:
    """Under its own name if that is free."""
    orphans = repairs.queue.private.subdirectory(ORPHANS, create=True)
    try:
        with repairs.within(path) as (directory, name):
            try:
                directory.rename_new(name, name, orphans)
            except FileExistsError:
                directory.rename_new(name, f"{name}~{time.time_ns() // 1000:x}", orphans)
    finally:
        orphans.close()


def _recover(repairs: Repairs, _path: str) -> None:
    """Everything of everybody who is dead, once."""
    if not repairs.recovered:
        with repairs.opened(Observer()) as one:
            one.recoverer.recover()
        repairs.recovered = True


# The queue itself


def _make_room(repairs: Repairs, path: str) -> None:
    if path == names.DISCARDED:
        _to_orphans(repairs, path)
    else:
        with repairs.within(path) as (directory, name):
            directory.rename_new(name, f"{name}~{time.time_ns() // 1000:x}")


@rule("wrong-type", _make_room)
def _wrong_type(look: Look) -> Iterator[tuple[str, str, str]]:
    for path, why in look.wrong_types.items():
        yield path, f"it is {why}, where a directory of the queue belongs", "moves it aside"


@rule("other-file-system")
def _other_file_system(look: Look) -> Iterator[tuple[str, str, str]]:
    for path in look.elsewhere:
        message = "it is on another file system than the queue, so nothing can be renamed into it"
        yield path, f"{message}: unmount or move it", ""


@rule("settings", _to_orphans)
def _settings(look: Look) -> Iterator[tuple[str, str, str]]:
    trouble = look.trouble
    committed = any(one.item.state == names.WRITTEN for one in look.claims.values())
    if not trouble and committed and not look.settings.outputs:
        # What is committed has outputs, or it would be finished; so somebody knew where they are.
        trouble = "it names no outputs, and there are documents whose outputs are complete"
    if trouble:
        subject = f"{names.PRIVATE}/settings.json"
        if look.claims or look.living:
            # What was claimed under them can only be finished under them.
            message = f"{trouble}; there are claims or living drivers that need it"
            yield subject, f"{message}: write it again as it was", ""
        else:
            yield subject, trouble, "moves it to .queuedriver/orphans"


def _make_directory(repairs: Repairs, path: str) -> None:
    check_trusted(repairs.queue)
    with _told(path):
        make_directory(resolve(repairs.queue.path, path))


@rule("missing-directory", _make_directory)
def _missing_directory(look: Look) -> Iterator[tuple[str, str, str]]:
    for path in look.missing:
        message = "the settings name this directory, and it is not there"
        if look.claims:
            # A new, empty one would look as if the outputs had been taken away already.
            message += "; there are claims that need it: mount or restore it"
        yield path, message, "" if look.claims else "makes it"


@rule("closed-queue")
def _closed_queue(look: Look) -> Iterator[tuple[str, str, str]]:
    closed = look.queue.controls().done and not look.living
    if closed and (left := look.queue.listing(look.now).unfinished):
        words = "waits" if left == 1 else "wait"
        message = f"{format_count(left, 'document')} {words} in a closed queue, and no driver is"
        yield names.DONE, f"{message} alive: start one, or reopen", ""


# Claims, and what belongs to them


def _rebuild_plan(repairs: Repairs, path: str) -> None:
    """From the outputs that are still unfinished; those that are published are no matter."""
    token = os.path.basename(path).removesuffix(".json")
    outputs = []
    with repairs.opened(Observer()) as one:
        for index, target in enumerate(one.targets):
            for name in {*target.directory.names(), *_orphans_of(target.directory)}:
                item = names.parse(name)
                if item is not None and (item.state, item.token) == (names.WRITING, token):
                    outputs.append((index, name, target.publication.name(item.docid)))
    plan = msgspec.json.encode(Plan(tuple(sorted(outputs))))
    with repairs.within(path) as (directory, name):
        directory.write_aside(name, plan, durable=True)


@rule("damaged-plan", _rebuild_plan)
def _damaged_plan(look: Look) -> Iterator[tuple[str, str, str]]:
    for file in look.files[CLAIMS]:
        claim = look.claims.get(file.name.removesuffix(".json"))
        if claim is not None and claim.item.state == names.WRITTEN:
            plan = look.read(file.path, Plan)
            if isinstance(plan, str):
                message = f"the plan of a claim's outputs cannot be read ({plan})"
                yield file.path, message, "makes it again of the outputs that are there"


def _discard_committed(repairs: Repairs, name: str) -> None:
    message = "it was committed, and its output is nowhere"
    failure = Failure(cause="output-missing", message=message, permanent=True)
    repairs.discard(name, failure, claimed=True)


@rule("output-missing", _discard_committed)
def _output_missing(look: Look) -> Iterator[tuple[str, str, str]]:
    """Its driver waits for it, and believes nobody: whoever recovers it would take it for done."""
    written = {one.item.token for one in look.outputs} | look.set_aside
    for token, claim in look.claims.items():
        owner = look.owner(token)
        waits = owner.registration is not None and owner.registration.state == "waiting-fs"
        committed = claim.item.state == names.WRITTEN and owner.alive and waits
        if committed and token not in written and not look.missing:
            message = "committed, and its output is nowhere: bring back the output directory"
            yield claim.path, message, "discards it, with that cause"


@rule("dead-claim", _recover)
def _dead_claim(look: Look) -> Iterator[tuple[str, str, str]]:
    for token, claim in look.claims.items():
        owner = look.owner(token)
        if owner.registration is None or owner.alive:
            continue
        if look.living and owner.verdict != "lost" and look.beats_ago(owner) <= _RECOVERING:
            # A living driver is about to recover it.
            continue
        committed = claim.item.state == names.WRITTEN
        message = f"claimed by {names.parse_token(token).driver}, which {_GONE[owner.verdict]}"
        yield claim.path, message, "publishes and finishes it" if committed else "takes it back"


def _recover_stale(repairs: Repairs, name: str) -> None:
    item = names.parse(name)
    if item is not None:
        # Untouched for so much longer than the lease that no lease need be waited for.
        with repairs.opened(Observer(lease=0.0)) as one:
            one.recoverer.recover([(name, item)])


@rule("stale-claim", _recover_stale)
def _stale_claim(look: Look) -> Iterator[tuple[str, str, str]]:
    for token, claim in look.claims.items():
        driver, serial, _ = names.parse_token(token)
        # A rename does not change the times of a file everywhere, but an N has its instant.
        age = min(claim.age, look.now - serial / 1e6) if serial else claim.age
        if look.owner(token).registration is None and age > SETTLED:
            message = (
                f"claimed by {driver}, which never registered here and has not touched it for "
                f"{format_duration(age)}"
            )
            yield claim.path, message, "recovers it"


@rule("unfinished-output", _recover)
def _unfinished_output(look: Look) -> Iterator[tuple[str, str, str]]:
    for one in look.outputs:
        owner = look.owner(one.item.token)
        if owner.registration is None or owner.alive:
            continue
        recovering = look.living and look.beats_ago(owner) <= _RECOVERING
        if not recovering and one.item.token not in look.claims:
            message = f"an output that {owner.id} did not finish before it {_GONE[owner.verdict]}"
            yield one.path, message, "moves it to the orphans there"


# Discarded documents, and their reports


def _settle(repairs: Repairs, _path: str) -> None:
    with repairs.attempts() as attempts:
        attempts.settle()


@rule("interrupted-discard", _settle)
def _interrupted_discard(look: Look) -> Iterator[tuple[str, str, str]]:
    ages = {file.name: file.age for file in look.files[ATTEMPTS]}
    for place, (name, token) in _interrupted(look).items():
        if look.settled(token, ages.get(name, 0.0)):
            message = "a document whose discarding was interrupted before its report was beside it"
            yield f"{names.DISCARDED}/{place}", message, "gives it its report"


def _replace_report(repairs: Repairs, path: str) -> None:
    _to_orphans(repairs, path)
    _write_report(repairs, path.removesuffix(names.REPORT))


@rule("damaged-report", _replace_report)
def _damaged_report(look: Look) -> Iterator[tuple[str, str, str]]:
    documents, reports = _discards(look)
    for docid in sorted(documents & reports):
        path = f"{names.DISCARDED}/{docid}{names.REPORT}"
        if isinstance(look.read(path, Report), str):
            repair = "moves it to .queuedriver/orphans, and writes one that says so"
            yield path, "a report that cannot be read", repair


def _write_report(repairs: Repairs, path: str) -> None:
    """Write a report that says that there was none, with what is remembered of the attempts."""
    docid = os.path.basename(path)
    with repairs.attempts() as attempts:
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


@rule("no-report", _write_report)
def _no_report(look: Look) -> Iterator[tuple[str, str, str]]:
    documents, reports = _discards(look)
    for docid in sorted(documents - reports - _interrupted(look).keys()):
        message = "a discarded document without a report"
        yield f"{names.DISCARDED}/{docid}", message, "writes one that says so"


@rule("lone-report", _to_orphans)
def _lone_report(look: Look) -> Iterator[tuple[str, str, str]]:
    documents, reports = _discards(look)
    for docid in sorted(reports - documents):
        path = f"{names.DISCARDED}/{docid}{names.REPORT}"
        yield path, "a report whose document is not there", "moves it to .queuedriver/orphans"


# Items that no driver can do anything with


def judge_item(
    look: Look, name: str, item: names.Item | None, found: os.stat_result
) -> Iterator[Finding]:
    """Find what is wrong with one name of the queue, as it is walked."""
    if item is None:
        if names.looks_like_item(name):
            message = f"it looks like an item and is none: {names.why_foreign(name)}; rename it"
            yield Finding(rule="impossible-name", subject=name, message=message)
        return
    if not item.waits(float("inf")):
        return
    if kind := kind_of(found.st_mode):
        message = f"it is a {kind}, not a regular file"
        yield Finding(rule="not-a-file", subject=name, message=message, repair="discards it")
    elif not _is_readable(look.queue.directory, name):
        message = "permission denied; chmod or chown it"
        yield Finding(rule="not-readable", subject=name, message=message)
    if len(os.fsencode(item.docid)) + _CLAIM_ADDS > look.longest_name:
        message = "a claim adds more to its name than this file system allows; give it a shorter"
        yield Finding(rule="name-too-long", subject=name, message=message)
    if why := _held_fast(look, name, found):
        yield Finding(rule="not-movable", subject=name, message=f"no driver can claim it: {why}")


def _is_readable(directory: Directory, name: str) -> bool:
    try:
        os.close(directory.open_read(name))
    except PermissionError:
        return False
    return True


def _held_fast(look: Look, name: str, found: os.stat_result) -> str:
    """Tell why the operating system will not let an item be renamed; "" as far as can be told."""
    if os.path.join(look.queue.path, name) in look.mounted:
        return "something is mounted on it; unmount that"
    queue = look.queue.directory.inspect(".")
    owners = (found.st_uid, queue.st_uid, 0)
    if queue.st_mode & stat.S_ISVTX and os.geteuid() not in owners:
        return f"the directory is sticky, and it is user {found.st_uid}'s, who must move it"
    return ""


def _of_items(name: str) -> Find:
    def find(look: Look) -> Iterator[tuple[str, str, str]]:
        for one in look.findings:
            if one.rule == name:
                yield one.subject, one.message, one.repair

    return find


def _discard(repairs: Repairs, name: str) -> None:
    item = names.parse(name)
    message = f"{item.docid if item else name!r} is not a regular file: not read"
    repairs.discard(name, Failure(cause="not-a-file", message=message, permanent=True))


rule("not-a-file", _discard)(_of_items("not-a-file"))
for _name in ("not-readable", "impossible-name", "name-too-long", "not-movable"):
    rule(_name)(_of_items(_name))


# What should have gone


@rule("scrap", _remove)
def _scrap(look: Look) -> Iterator[tuple[str, str, str]]:
    for file in look.scraps:
        if file.age > leftovers.SCRAP_KEPT:
            age = format_duration(file.age)
            yield file.path, f"a file that somebody began to write {age} ago", "removes it"


def _of_table(kind: str) -> Find:
    """What drivers sweep in time, and have not: none has been here for so long."""

    rows = [row for row in leftovers.OF_DRIVEN if row.kind == kind]
    part = os.path.basename(rows[0].where)
    removed = rows[0].act is leftovers.remove
    repair = "removes it" if removed else "moves it to .queuedriver/orphans"

    def find(look: Look) -> Iterator[tuple[str, str, str]]:
        with look.opened(part) as where:
            for file in look.files[part] if part else look.writing:
                old = [row for row in rows if row.is_one(file.name) and file.age > row.kept]
                for row in old:
                    if where is not None and not row.excuse(look.swept, where, file.name):
                        message = f"{row.what}; not touched for {format_duration(file.age)}"
                        yield file.path, message, repair
                        break

    return find


for _row in leftovers.OF_DRIVEN:
    if _row.kind not in RULES:
        rule(_row.kind, _remove if _row.act is leftovers.remove else _to_orphans)(
            _of_table(_row.kind)
        )


@rule("damaged-registration", _to_orphans)
def _damaged_registration(look: Look) -> Iterator[tuple[str, str, str]]:
    for file in look.files[DRIVERS]:
        driver = file.name.removesuffix(".json")
        if file.name[0] == "." or driver == file.name or driver in look.known:
            continue
        said = look.read(file.path, Registration)
        if isinstance(said, str) or said.id != driver:
            why = said if isinstance(said, str) else f"it is of {said.id}"
            message = f"no driver registered like this: {why}"
            yield file.path, message, "moves it to .queuedriver/orphans"


@rule("old-registration", _recover)
def _old_registration(look: Look) -> Iterator[tuple[str, str, str]]:
    busy = {names.parse_token(token).driver for token in look.claims}
    for one in look.known.values():
        ago = look.beats_ago(one)
        if not one.alive and ago > EXPIRY and one.id not in busy:
            path = f"{names.PRIVATE}/{DRIVERS}/{one.id}.json"
            yield path, f"{one.id} {_GONE[one.verdict]} {format_duration(ago)} ago", "removes it"


@rule("damaged-feed", _to_orphans)
def _damaged_feed(look: Look) -> Iterator[tuple[str, str, str]]:
    for file, feed in _feeds(look):
        if isinstance(feed, str):
            message = "it names no queue, and cannot be read"
            yield file.path, message, "moves it to .queuedriver/orphans"


@rule("missing-feed", _to_orphans)
def _missing_feed(look: Look) -> Iterator[tuple[str, str, str]]:
    for file, feed in _feeds(look):
        if isinstance(feed, Feed):
            path = os.path.normpath(os.path.join(look.queue.path, feed.path))
            if not os.path.isdir(path):
                message = (
                    f"the queue {path} feeds this one and is not there, so this one is never "
                    "closed by itself; mount it, if it is to come back"
                )
                yield file.path, message, "forgets it, until its drivers name it again"


# What several rules ask


def _feeds(look: Look) -> Iterator[tuple[File, Feed | str]]:
    for file in look.files[FEEDS]:
        if file.name[0] != "." and file.name.endswith(".json"):
            yield file, look.read(file.path, Feed)


def _discards(look: Look) -> tuple[set[str], set[str]]:
    """Return the discarded documents, and the documents of which there are reports."""
    listed = [file.name for file in look.files[names.DISCARDED] if file.name[0] != "."]
    reports = {name.removesuffix(names.REPORT) for name in listed if name.endswith(names.REPORT)}
    return {name for name in listed if not name.endswith(names.REPORT)}, reports


def _interrupted(look: Look) -> dict[str, tuple[str, str]]:
    """Return the discarded documents whose reports are still in `attempts/`: under which names
    there, and by which N they were discarded."""
    with look.opened(ATTEMPTS) as noted, look.opened(names.DISCARDED) as discarded:
        if noted is None or discarded is None:
            return {}
        return {
            one.place: (str(file), one.report.attempts[-1].token if one.report.attempts else "")
            for one, file in interrupted(noted, discarded)
            if one.report is not None
        }


def _orphans_of(output: Directory) -> list[str]:
    try:
        orphans = output.subdirectory(os.path.join(names.PRIVATE, ORPHANS))
    except FileNotFoundError:
        return []
    try:
        return orphans.list()
    finally:
        orphans.close()


@contextlib.contextmanager
def _told(path: str) -> Iterator[None]:
    """NotFound for a directory of the settings that there cannot be."""
    try:
        yield
    except OSError as error:
        if not leads_nowhere(error):
            raise
        raise NotFound(f"{path!r} leads nowhere: {error.strerror}") from None
