"""How broken rules are mended, by the code that drivers use; nothing of a user's is deleted.

What may be wanted goes to `.queuedriver/orphans/`, where it is kept for a week. Each step starts
from a name and does nothing when that is gone, so drivers, recoverers and other checks may go on.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator

import msgspec

from queuedriver.check.facts import Finding
from queuedriver.claims.attempts import ATTEMPTS, Attempts, attempts_of
from queuedriver.claims.handoff import CLAIMS, ORPHANS, Handoff
from queuedriver.claims.liveness import DRIVERS, Observer, draw_salt
from queuedriver.claims.outcomes import Failure
from queuedriver.claims.recovery import Recoverer
from queuedriver.claims.setbacks import Setbacks
from queuedriver.disk.filesystem import Directory, make_directory
from queuedriver.disk.journal import Journal
from queuedriver.driving.grounds import check_trusted, handoff_of
from queuedriver.errors import NotFound, NotRegular, QueueError, leads_nowhere
from queuedriver.format import names
from queuedriver.format.records import Plan, Report, encode_report
from queuedriver.format.settings import Settings
from queuedriver.operating.operations import journal_of
from queuedriver.operating.queue import OPERATOR, Queue

# What leaves one finding as it was, and does not keep us from the others.
_LEFT = (FileNotFoundError, FileExistsError, NotADirectoryError, PermissionError, NotRegular)


class Mender:
    """Mends one queue."""

    def __init__(self, queue: Queue, clock: Callable[[], float]) -> None:
        self._queue = queue
        self._clock = clock
        self._recovered = False

    def mend(self, findings: Iterable[Finding]) -> None:
        """Do what can be done about each. What cannot be mended yet is found again."""
        self._recovered = False
        for finding in findings:
            # Somebody was faster, something else must be mended first, or it is for a person to do.
            with contextlib.suppress(*_LEFT, QueueError):
                MEND[finding.rule](self, finding.subject)

    # By the hand-off

    @contextlib.contextmanager
    def _recoverer(self, observer: Observer) -> Iterator[tuple[Recoverer, Handoff]]:
        queue = self._queue
        settings = queue.settings() or Settings()
        archive = () if settings.archive is None else (settings.archive,)
        for path in (*settings.outputs, *archive):
            # Made anew, it would look as if the outputs had been taken away already.
            with _told(path):
                Directory.open(os.path.join(queue.path, path)).close()
        drivers = queue.private.subdirectory(DRIVERS, create=True)
        handoff = handoff_of(queue)
        try:
            with journal_of(queue) as journal:
                setbacks = Setbacks(handoff, queue.name, journal.host, journal)
                yield (
                    Recoverer(
                        queue.directory,
                        drivers,
                        handoff,
                        setbacks,
                        journal,
                        observer,
                        clock=self._clock,
                    ),
                    handoff,
                )
        finally:
            drivers.close()
            for directory in handoff.directories():
                directory.close()

    def recover(self, _: str = "") -> None:
        """Everything of everybody who is dead, once."""
        if not self._recovered:
            with self._recoverer(Observer()) as (recoverer, _handoff):
                recoverer.recover()
            self._recovered = True

    def recover_stale(self, name: str) -> None:
        item = names.parse(name)
        if item is not None:
            # Untouched for so much longer than the lease that no lease need be waited for.
            with self._recoverer(Observer(lease=0.0)) as (recoverer, _):
                recoverer.recover([(name, item)])

    def rebuild_plan(self, path: str) -> None:
        """From the outputs that are still unfinished; those that are published are no matter."""
        token = os.path.basename(path).removesuffix(".json")
        with self._recoverer(Observer()) as (_, handoff):
            outputs = []
            for index, target in enumerate(handoff.targets):
                for name in {*target.directory.names(), *_orphans_of(target.directory)}:
                    item = names.parse(name)
                    if item is not None and (item.state, item.token) == (names.WRITING, token):
                        outputs.append((index, name, target.publication.name(item.docid)))
        plan = msgspec.json.encode(Plan(tuple(sorted(outputs))))
        plans = self._queue.private.subdirectory(CLAIMS, create=True)
        try:
            plans.write_aside(os.path.basename(path), plan, durable=True)
        finally:
            plans.close()

    def discard(self, name: str) -> None:
        """Give up an item that no driver could read, with a report."""
        item = names.parse(name)
        if item is None:
            return
        queue = self._queue
        # No outputs: to discard needs none.
        handoff = Handoff(queue.directory, queue.private, (), queue.settings() or Settings())
        try:
            with journal_of(queue) as journal:
                self._discard(handoff, journal, name, item)
        finally:
            handoff.close()

    def _discard(self, handoff: Handoff, journal: Journal, name: str, item: names.Item) -> None:
        token = names.Mint(OPERATOR, draw_salt()).next(time.time_ns() // 1000)
        claim = handoff.claim(name, item.docid, item.attempt, token)
        if claim is not None:
            message = f"{item.docid!r} is not a regular file: not read"
            failure = Failure(cause="not-a-file", message=message, permanent=True)
            now = self._clock()
            setbacks = Setbacks(handoff, self._queue.name, journal.host, journal)
            setbacks.charge(claim, failure, now, now)

    # Discarded documents

    def settle(self, _: str = "") -> None:
        """Give discarded documents the reports that are still with their attempts."""
        with self._attempts() as attempts:
            attempts.settle()

    @contextlib.contextmanager
    def _attempts(self) -> Iterator[Attempts]:
        noted = self._queue.private.subdirectory(ATTEMPTS, create=True)
        discarded = self._queue.directory.subdirectory(names.DISCARDED, create=True)
        try:
            yield Attempts(noted, discarded)
        finally:
            discarded.close()
            noted.close()

    def write_report(self, path: str) -> None:
        """A report that says that there was none, with what the records of its attempts tell."""
        docid = os.path.basename(path)
        with self._attempts() as attempts:
            found = attempts_of(attempts.directory, docid)
        message = "its report was missing; a check wrote this one"
        report = Report(
            docid=docid,
            queue=self._queue.name,
            discarded_at=self._clock(),
            driver=OPERATOR,
            host=Observer().me.host,
            failure=found[-1].failure if found else Failure(cause="unknown", message=message),
            attempts=found,
        )
        discarded = self._queue.directory.subdirectory(names.DISCARDED)
        try:
            discarded.write_first(docid + names.REPORT, encode_report(report), durable=True)
        finally:
            discarded.close()

    def replace_report(self, path: str) -> None:
        self.orphan(path)
        self.write_report(path.removesuffix(names.REPORT))

    # Files that are in the way

    def orphan(self, path: str) -> None:
        """Move a file of the queue to the orphans, under its own name if that is free."""
        orphans = self._queue.private.subdirectory(ORPHANS, create=True)
        try:
            with self._within(path) as (directory, name):
                try:
                    directory.rename_new(name, name, orphans)
                except FileExistsError:
                    again = f"{name}~{time.time_ns() // 1000:x}"
                    directory.rename_new(name, again, orphans)
        finally:
            orphans.close()

    def move_aside(self, path: str) -> None:
        """Make room for a directory of ours."""
        if path == names.DISCARDED:
            self.orphan(path)
        else:
            with self._within(path) as (directory, name):
                directory.rename_new(name, f"{name}~{time.time_ns() // 1000:x}")

    def remove(self, path: str) -> None:
        with self._within(path) as (directory, name):
            directory.remove(name)

    def remove_plan(self, path: str) -> None:
        if not self._is_claimed(os.path.basename(path).removesuffix(".json")):
            self.remove(path)

    def make_directory(self, path: str) -> None:
        check_trusted(self._queue)
        with _told(path):
            make_directory(os.path.normpath(os.path.join(self._queue.path, path)))

    @contextlib.contextmanager
    def _within(self, path: str) -> Iterator[tuple[Directory, str]]:
        """Where a file of the queue is, and its name there: what was a directory when it was found
        may be a symlink by now."""
        above, name = os.path.split(path)
        if not above:
            yield self._queue.directory, name
            return
        if above.partition("/")[0] in (names.PRIVATE, names.DISCARDED):
            directory = self._queue.directory.subdirectory(above)
        else:
            # An output, as the settings name it.
            directory = Directory.open(os.path.join(self._queue.path, above))
        try:
            yield directory, name
        finally:
            directory.close()

    def _is_claimed(self, token: str) -> bool:
        return any(item.token == token for _, item in self._queue.items())


@contextlib.contextmanager
def _told(path: str) -> Iterator[None]:
    """NotFound for a directory of the settings that there cannot be."""
    try:
        yield
    except OSError as error:
        if not leads_nowhere(error):
            raise
        raise NotFound(f"{path!r} leads nowhere: {error.strerror}") from None


def _orphans_of(output: Directory) -> list[str]:
    try:
        orphans = output.subdirectory(os.path.join(names.PRIVATE, ORPHANS))
    except FileNotFoundError:
        return []
    try:
        return orphans.list()
    finally:
        orphans.close()


MEND: dict[str, Callable[[Mender, str], None]] = {
    "wrong-type": Mender.move_aside,
    "settings": Mender.orphan,
    "missing-directory": Mender.make_directory,
    "damaged-registration": Mender.orphan,
    "damaged-plan": Mender.rebuild_plan,
    "dead-claim": Mender.recover,
    "stale-claim": Mender.recover_stale,
    "unfinished-output": Mender.recover,
    "strange-output": Mender.orphan,
    "leftover-plan": Mender.remove_plan,
    "interrupted-discard": Mender.settle,
    "damaged-report": Mender.replace_report,
    "no-report": Mender.write_report,
    "lone-report": Mender.orphan,
    "leftover-attempt": Mender.remove,
    "leftover-incoming": Mender.orphan,
    "scrap": Mender.remove,
    "old-orphan": Mender.remove,
    "old-registration": Mender.recover,
    "damaged-feed": Mender.orphan,
    "missing-feed": Mender.orphan,
    "not-a-file": Mender.discard,
}
