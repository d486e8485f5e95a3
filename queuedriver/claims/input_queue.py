"""One open input queue, on behalf of one driver, broker, recoverer or operator.

    claim    names that wait → claims
    end      claims and how each ended → handed over, charged, postponed or given back
    reopen   after trouble; and where an output was replaced, the new one is followed

What an attempt costs a document is decided here and nowhere else (`charge`, `strike`), and so is
whether the disk is to blame rather than the document (`blame`).
"""

import errno
import functools
import itertools
import math
import operator
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from queuedriver.claims import handoff
from queuedriver.claims.attempts import ATTEMPTS, Attempts
from queuedriver.claims.handoff import CLAIMS, Claim, Fate
from queuedriver.claims.liveness import DRIVERS
from queuedriver.claims.outcomes import (
    DONE,
    MAX_LATER,
    OF_THE_ITEM,
    Doubted,
    Ending,
    Failed,
    Postponed,
    Released,
    first_line,
    is_own_fault,
    says_full,
)
from queuedriver.claims.outputs import Outputs, Target
from queuedriver.claims.picking import Order, Picker
from queuedriver.disk.filesystem import A_LITTLE, Directory
from queuedriver.disk.journal import Journal
from queuedriver.disk.output_id import landmark
from queuedriver.errors import FileSystemTrouble, is_trouble
from queuedriver.format import names
from queuedriver.format.event import Event
from queuedriver.format.names import is_plain
from queuedriver.format.records import Attempt, Failure
from queuedriver.format.settings import FILE, Settings

if TYPE_CHECKING:
    from queuedriver.claims.recovery import Recoverer

# The third time that a host goes down, a lease expires, we kill a driver under one document, or a
# worker is lost that had it among others, the document is charged: one that panics hosts must end
# too.
UNCOUNTED_STRIKES = 3
# What nobody has looked at may be no file at all.
_UNSEEN = False
# The name of a claim whose document never failed.
_WORKING = "{}.{}.working".format
# Where the fields of an Event have the seconds of work.
_SECONDS = operator.itemgetter(4)
# An empty queue is not listed again sooner while a driver has others to work on; in seconds.
_REST = 0.05
# Items that cannot be moved are noted each once, and so many of them.
_MOST_NOTED = 1000
# So many names are taken at most from what was listed, and again so many when those before them
# were used up within so many seconds.
_MOST_AHEAD = 64
_AT_ONCE = 0.05
# How long an item is left alone that could be claimed, but whose end could not be carried out.
_LEFT_ALONE = 60.0
# Bytes. With less than this left, a failure is the disk's and not the document's.
_FULL = 1 << 20
# With less than this left, and less than twice what the document needs, a failure that speaks of a
# full disk is believed.
_SCARCE = 16 << 20


class InputQueue:
    """An input queue that is open: its directories, its claims and what becomes of them."""

    def __init__(
        self,
        directory: Directory,
        private: Directory,
        targets: tuple[Target, ...],
        settings: Settings,
        mint: names.Mint,
        journal: Journal,
        archive: Directory | None = None,
        *,
        outer: "InputQueue | None" = None,
    ) -> None:
        self.directory = directory
        self.private = private
        self.path = directory.path
        # What its documents are told: of a queue inside another, as a job's, the outer one's.
        self.name: str = outer.name if outer else os.path.basename(directory.path) or directory.path
        self.targets = targets
        self.settings = settings
        self.mint = mint
        self.journal = journal
        self.archive = archive
        self.durable = settings.durable
        # Drivers and discarded documents of a queue inside another are where people look.
        self._outer = outer
        self.drivers: Directory = (
            outer.drivers if outer else private.subdirectory(DRIVERS, create=True)
        )
        self.discarded: Directory = (
            outer.discarded if outer else directory.subdirectory(names.DISCARDED, create=True)
        )
        self.plans = private.subdirectory(CLAIMS, create=True)
        self.attempts = Attempts(private.subdirectory(ATTEMPTS, create=True), self.discarded)
        self.output = targets[0].directory if targets else directory
        # What the outputs are, for whoever finds what was committed for them.
        self.opened_as = tuple(target.identity for target in targets)
        # Outputs that were gone when we were to publish them, by the names they had.
        self.missing: set[str] = set()
        # The stage has stopped itself: what fails now is given back, unless it is to blame itself.
        self.stopped = False
        # Who decides that is told of each document that is charged, and that documents were done.
        self.charged: Callable[[InputQueue, Failure], object] = _unheard
        self.worked: Callable[[], object] = _unheard
        # Whether claims may end by the blind hand-over, for all that is known of the queue.
        self.plain = self._is_plain()
        # Documents of which something is remembered: these are never as usual.
        self.troubled: Collection[str] = ()
        # Names that are yet to be tried, the next one last.
        self.waiting: list[str] = []
        # The N of claims that others than the driver's loop have at hand, as a broker's workers.
        self.at_hand: Collection[str] = ()
        # What could not be given back, or removed, while the file system was not well.
        self.later: list[Claim] = []
        # Usual claims that were handed over and are yet to be noted: each the fields of its Event.
        self.handed_over: list[tuple[object, ...]] = []
        # Those that were noted and are yet to be counted: seconds of work, and documents.
        self.uncounted = 0.0, 0
        # Who recovers what dead drivers left here; set by whoever opens this, as it needs both.
        self.recoverer: Recoverer
        self.lost_races = 0
        # How many outputs have become visible.
        self.published = 0
        self._noted: set[str] = set()
        # Names that are left alone, and until when.
        self._left_alone: dict[str, float] = {}
        # How much room there must be before work goes on: bytes.
        self._wanted_room = 0
        found = directory.status()
        self._identity = found.st_dev, found.st_ino
        self.pass_over()

    def _is_plain(self) -> bool:
        return (
            bool(self.targets)
            and not self.durable
            and not self.stopped
            and self.archive is None
            and self.settings.existing == "keep"
            and self.targets[0].publication.template == names.DEFAULT_PUBLISH
            and self.output.refuses_to_replace
        )

    def claim_of(self, item: names.Item, name: str) -> Claim:
        """Return the claim that somebody has to an item, for whoever ends it."""
        outputs = Outputs(item.docid, item.token, self.targets)
        queue = self.name, self.directory
        return Claim(item.docid, item.attempt, *queue, name, _UNSEEN, item.token, self, outputs)

    # Directories

    @property
    def directories(self) -> Iterator[Directory]:
        """The directories that this keeps open, each after the one that it is in."""
        yield self.directory
        yield self.private
        if self._outer is None:
            yield self.drivers
            yield self.discarded
        yield self.plans
        yield self.attempts.directory
        yield from (target.directory for target in self.targets)
        if self.archive is not None:
            yield self.archive

    def close(self) -> None:
        """Close what this has opened; the queue, its outputs and its archive are the caller's."""
        self.picker.restart()
        for directory in (self.plans, self.attempts.directory):
            directory.close()
        if self._outer is None:
            self.drivers.close()
            self.discarded.close()

    def reopen(self) -> None:
        """Open everything anew, as after trouble every descriptor may be stale."""
        self.restart()
        for directory in self.directories:
            # What is missing inside the queue was removed by hand. Elsewhere it may be a mount that
            # went away, and what is made in its place would be on another file system.
            directory.reopen(create=directory.path.startswith(f"{self.path}/"))
            if directory is self.directory:
                self._recognize()

    def _recognize(self) -> None:
        """Raise while there is another directory at the queue's path: it is not mounted."""
        found = self.directory.status()
        same = (found.st_dev, found.st_ino) == self._identity
        if not same and not self.directory.present(os.path.join(names.PRIVATE, FILE)):
            raise FileSystemTrouble(f"{self.path} is not the queue that it was; is it mounted?")

    def check_well(self) -> None:
        """Raise while the input or an output cannot be written, has no room, or is another than
        it was."""
        self.private.check_writable(A_LITTLE)
        for target in self.targets:
            target.directory.check_writable(A_LITTLE)
            if target.landmark and landmark(target.directory) != target.landmark:
                raise FileSystemTrouble(
                    f"{target.directory.path} is not the directory that it was; is it mounted?"
                )
            if target.directory.room().free_bytes < self._wanted_room:
                raise FileSystemTrouble(f"the file system of {target.directory.path} is full")
        self._wanted_room = 0

    def check_writable(self) -> None:
        """Raise where we may write no file, be it in the input or in an output."""
        for directory in (self.directory, *(target.directory for target in self.targets)):
            directory.check_writable()

    def check_paths(self) -> None:
        """Raise where a path leads elsewhere than to the directory that was opened: what went
        wrong meanwhile is no document's fault."""
        for directory in (self.directory, *(target.directory for target in self.targets)):
            if directory.moved():
                raise FileSystemTrouble(
                    errno.ESTALE, f"{directory.path} was moved away, or another is in its place"
                )

    # Which names to try

    def pass_over(
        self,
        order: Order = "fair",
        alive: Callable[[bool], Collection[str]] = lambda anew: (),
    ) -> None:
        """Take names in this order, and share them with the other drivers that live."""
        self.picker = Picker(self.directory, order, self.mint.driver, alive)
        # How many names are taken at a time, and when that was done last. An exact order is one of
        # names that were just listed.
        self._ahead, self._ahead_at = 1, 0.0
        self._most_ahead = _MOST_AHEAD if order == "fair" else 1
        # The directory's mtime before the pass at hand, and since when it is empty and unchanged.
        self._mtime = 0
        self._in_pass = False
        self._rest_until = 0.0
        self._empty_mtime: int | None = None
        self._empty_since = 0.0
        self.await_writing = True

    def restart(self) -> None:
        """Forget what was listed: it is out of date."""
        self.picker.restart()
        self.waiting.clear()
        self._in_pass = False

    def list_more(self, now: float, *, alone: bool) -> bool:
        """List some names to try. False after a pass that had none, or while this queue rests,
        which it does unless it is the only one of its driver."""
        while True:
            if not self._in_pass:
                if now < self._rest_until:
                    return False
                self._mtime = self.directory.status().st_mtime_ns
                self._in_pass = True
                self.troubled = self.attempts.docids()
                self.plain = self._is_plain()
            if given := self.picker.names(self._next_ahead(now), now):
                given.reverse()
                if self._left_alone:
                    given = [name for name in given if not self._is_left_alone(name, now)]
                self.waiting += given
                if given:
                    return True
                continue
            self._in_pass = False
            self._end_of_pass(now)
            # After a pass that gave work there may be more; after one whose every item was somebody
            # else's (or a ghost of a stale listing) only waiting helps.
            if self.picker.counts.got <= 0:
                if not alone:
                    self._rest_until = now + _REST
                return False

    def _next_ahead(self, now: float) -> int:
        """Return how many names to take: more while they are used up at once, and one while a
        document takes long, or others would lose races for what has long been done."""
        soon = now - self._ahead_at < _AT_ONCE
        self._ahead = min(2 * self._ahead, self._most_ahead) if soon else 1
        self._ahead_at = now
        return self._ahead

    def _is_left_alone(self, name: str, now: float) -> bool:
        if self._left_alone.get(name, 0.0) <= now:
            return False
        self.picker.refused()
        return True

    def wake(self) -> None:
        """Rest no longer: there may be something new."""
        self._rest_until = 0.0

    def empty_for(self, now: float) -> float:
        """Return for how long whole listings have shown the queue empty; negative if not at all."""
        return now - self._empty_since if self._empty_mtime is not None else -1.0

    def _end_of_pass(self, now: float) -> None:
        """Note whether the queue was empty. Two listings prove it drained only when the directory
        did not change from before the first to after the second."""
        if not self.await_writing:
            self.picker.counts.writing = 0
        if self.picker.counts.left:
            # What nobody has tried may be no item at all; the next pass tries everything.
            return
        if self.picker.counts.unfinished:
            self._empty_mtime = None
            return
        after = self.directory.status().st_mtime_ns
        if self._empty_mtime != after:
            unchanged = self._mtime == after
            self._empty_mtime = after if unchanged else None
            self._empty_since = now

    # Claim

    def claim(self, waiting: list[str], most: int = 1) -> list[Claim]:
        """Claim up to so many of these names, the last one first, and take what was tried off the
        list. A document that failed before, or has been troubled, comes alone."""
        claims: list[Claim] = []
        directory, mint = self.directory, self.mint
        while waiting:
            name = waiting.pop()
            attempt, alone, plain = 0, False, self.plain
            if is_plain(name):
                docid = name[:-6]
            elif (item := names.parse(name)) is None:
                self.picker.foreign(name)
                continue
            else:
                docid, attempt = item.docid, item.attempt
            if attempt or docid in self.troubled:
                if claims:
                    waiting.append(name)
                    break
                alone, plain = True, False
            # As `Mint.next` does it: later than the one before, whatever the clock says.
            serial = time.time_ns() // 1000
            if serial <= mint.last:
                serial = mint.last + 1
            mint.last = serial
            token = mint.form(serial)
            working = names.working_name(docid, attempt, token) if alone else _WORKING(docid, token)
            try:
                directory.rename(name, working)
            except OSError as error:
                if not self._has(name, docid, working, error):
                    continue
            outputs = Outputs(docid, token, self.targets, plain)
            claim = Claim(
                docid, attempt, self.name, directory, working, _UNSEEN, token, self, outputs
            )
            if most == 1:
                return [claim]
            claims.append(claim)
            if alone or len(claims) == most:
                break
        return claims

    def may_join(self, claims: Sequence[Claim]) -> bool:
        """Tell whether the next name may be claimed together with these."""
        if not claims:
            return True
        item = names.parse(self.waiting[-1])
        first = claims[0]
        alone = first.attempt or first.docid in self.troubled
        return not alone and (item is None or not (item.attempt or item.docid in self.troubled))

    def _has(self, name: str, docid: str, working: str, error: OSError) -> bool:
        """Tell whether a claim was won that is said to have failed; what is not another driver's
        doing is raised, or noted where it is the item's."""
        if isinstance(error, FileNotFoundError):
            # A network file system may have lost the reply to a rename that happened. `working`
            # carries a serial nobody else uses, so if it is there, it is ours.
            if self.directory.present(working):
                return True
            self.lost_races += 1
            self.picker.lost(self.waiting)
            return False
        self.refuse(name, docid, error)
        self.picker.refused()
        return False

    def refuse(self, name: str, docid: str, error: OSError, until: float = 0.0) -> None:
        """Leave an item where it is that the operating system does not let us move, as another
        user's in a sticky directory, or a mount point. Raises where the queue is to blame."""
        if error.errno not in OF_THE_ITEM:
            raise error
        if name not in self._noted:
            self.check_writable()
            if len(self._noted) < _MOST_NOTED:
                self._noted.add(name)
                message = f"it cannot be moved ({error.strerror}); it is left where it is"
                self.note("refused", docid, message=message)
        if until:
            self._left_alone[name] = until

    # End

    def end(self, claims: Sequence[Claim], endings: Sequence[Ending], seconds: float = 0.0) -> None:
        """End each claim as was decided. An OSError says that the file system is not well: what
        has not ended was given back, now or later (`later`), and nothing was charged for it."""
        try:
            done = []
            for claim, ending in zip(claims, endings, strict=True):
                if ending is DONE and (missing := self._missing(claim)):
                    self.check_paths()
                    # It was removed, by somebody or by the document's own program; and nothing has
                    # been committed.
                    message = f"its output {missing} is gone"
                    self._apply(claim, Doubted(Failure(cause="output-missing", message=message)))
                elif ending is DONE:
                    done.append(claim)
                else:
                    self._apply(claim, ending)
            if done:
                handoff.complete(self, done)
        except OSError as error:
            for claim in claims:
                if not claim.fate:
                    self.abandon(claim, error)
            raise
        finally:
            for claim in done:
                self.note_end(claim, seconds / len(claims))

    def note_end(self, claim: Claim, seconds: float) -> None:
        """Note what became of a claim that was completed."""
        if claim.fate in ("published", "finished", "revoked"):
            self.published += len(claim.published)
            if claim.fate != "revoked":
                self.worked()
            self.note(
                claim.fate,
                claim.docid,
                token=claim.token,
                attempt=claim.attempt,
                seconds=seconds,
                outputs=claim.published,
            )

    def _missing(self, claim: Claim) -> str:
        return claim.outputs.missing() if claim.outputs.elsewhere else ""

    def _apply(self, claim: Claim, ending: Ending) -> None:
        now = time.time()
        error = ending.error if isinstance(ending, Failed) else None
        if isinstance(ending, Failed) and error is not None and error.errno == errno.EMFILE:
            self._strike_or_leave(claim, ending.failure, now)
            # With no file left to open there is no way to go on.
            raise error
        if isinstance(ending, Failed | Doubted):
            # Before what it wrote is removed: that may be what the disk is full of.
            self.blame(claim, ending)
            if self.stopped and not is_own_fault(ending.failure):
                why = f"its stage has stopped itself, and it failed: {first_line(ending.failure)}"
                ending = Released(why)
        claim.outputs.discard()
        try:
            if isinstance(ending, Failed):
                if self.charge(claim, ending.failure, now) != "revoked":
                    self.charged(self, ending.failure)
            elif isinstance(ending, Doubted):
                self.strike(claim, ending.failure, now)
            elif isinstance(ending, Postponed):
                self.give_back(claim, ending.reason, _due(now, ending.after))
            elif isinstance(ending, Released):
                self.give_back(claim, ending.reason)
        except OSError as error:
            if error.errno not in OF_THE_ITEM:
                raise
            # As a directory of another user's, that only its owner can move elsewhere.
            name = names.waiting_name(claim.docid, claim.attempt)
            self.refuse(name, claim.docid, error, time.monotonic() + _LEFT_ALONE)
            self.give_back(claim, f"it cannot be discarded: {error.strerror}")
        if claim.fate == "revoked":
            self.note("revoked", claim.docid, token=claim.token, attempt=claim.attempt, outputs=())

    def _strike_or_leave(self, claim: Claim, failure: Failure, now: float) -> None:
        """Strike a document that may be the one for which too many files are open, or those before
        it; where not even what is remembered of it can be read, leave it to whoever recovers it."""
        claim.outputs.discard()
        try:
            self.strike(claim, failure, now)
        except OSError:
            claim.fate = "stuck"

    def blame(self, claim: Claim, ending: Failed | Doubted) -> None:
        """Raise where the file systems of the queue, and not the document, are to blame for a
        failure."""
        error = ending.error if isinstance(ending, Failed) else None
        if isinstance(error, FileSystemTrouble):
            raise error
        self.check_paths()
        for target in self.targets:
            room = target.directory.room()
            scarce = max(_SCARCE, 2 * claim.outputs.size() + 2 * claim.size())
            full = room.free_bytes < _FULL
            if not full and room.free_bytes < scarce and says_full(ending.failure, error):
                full = True
                self._wanted_room = min(scarce, room.free_bytes + _FULL)
            if room.read_only or full:
                state = "read-only" if room.read_only else "full"
                raise FileSystemTrouble(f"the file system of {target.directory.path} is {state}")
        if error is not None and is_trouble(error):
            with claim.open() as file:
                while file.read(1 << 20):
                    pass
            for target in self.targets:
                target.directory.check_writable(A_LITTLE)

    def abandon(self, claim: Claim, error: BaseException) -> None:
        """Give a claim back, now or when all is well again, because something is not well."""
        try:
            self._let_go(claim, f"not its fault: {error}")
        except OSError:
            self.later.append(claim)

    def give_back_later(self) -> None:
        """Give back what had to be left lying about: the file system is well again."""
        while self.later:
            self._let_go(self.later[-1], "the file system is well again")
            self.later.pop()

    def _let_go(self, claim: Claim, reason: str) -> None:
        """Release, unless it is committed: then any later pass publishes and finishes it.

        A file system may have done what it said it could not. So the outputs go last, when it is
        certain that nobody will publish them.
        """
        if claim.committed:
            return
        if self.give_back(claim, reason) != "revoked":
            claim.outputs.discard()
            self.plans.remove(f"{claim.token}.json")
        elif not handoff.committed(self, claim):
            handoff.set_aside(self, claim.outputs)
            # It may have been discarded, though we were told that it could not be.
            self.attempts.settle()

    # What an attempt costs

    def charge(self, claim: Claim, failure: Failure, now: float, host: str | None = None) -> Fate:
        """Charge an attempt that failed: the document waits for its next, or is discarded after
        its last."""
        last = failure.permanent or claim.attempt >= min(self.settings.retries, names.MAX_RETRIES)
        attempt = self._attempt(claim, failure, now, host, counted=True)
        return self._settle(claim, attempt, last=last)

    def strike(self, claim: Claim, failure: Failure, now: float, host: str | None = None) -> Fate:
        """Give a document back that is not at fault, as far as anyone knows; the third time it is
        charged."""
        before = [one for one in self._earlier(claim) if not one.counted]
        if len(before) + 1 >= UNCOUNTED_STRIKES:
            return self.charge(claim, failure, now, host)
        return self._settle(claim, self._attempt(claim, failure, now, host, counted=False))

    def give_back(self, claim: Claim, reason: str, due: int = 0) -> Fate:
        """Let a document wait again, uncharged, and not before it is due; nothing is remembered."""
        docid = handoff.give_back(self, claim, claim.attempt, due)
        return self._ended("later" if due else "released", claim, docid, reason)

    def inode(self, claim: Claim) -> int:
        """Return the inode of the document, by which the records of its attempts are found; 0 when
        it is gone."""
        try:
            return self.directory.status(claim.name).st_ino
        except FileNotFoundError:
            # Taken back meanwhile: whatever follows will find nothing to do.
            return 0

    def _earlier(self, claim: Claim) -> list[Attempt]:
        """Return the attempts before this one: whoever recovered it and died may have noted it."""
        before = self.attempts.of(claim.docid, self.inode(claim))
        return [one for one in before if one.token != claim.token]

    def _settle(self, claim: Claim, attempt: Attempt, *, last: bool = False) -> Fate:
        """Note the attempt, and do what is noted: of all who recover a claim, the first decides."""
        inode = self.inode(claim)
        if not inode:
            return self._ended("revoked", claim, None, "")
        noted = self.attempts.note(
            claim.docid,
            inode,
            attempt,
            durable=self.durable,
            discarded_from=self.name if last else "",
        )
        said = noted.attempt(claim.token) or attempt
        message, seconds = said.failure.message, said.ended_at - said.claimed_at
        if noted.record.discarded_at:
            try:
                docid = self.attempts.discard(self.directory, claim.name, claim.token, noted.file)
            except OSError as error:
                if error.errno in OF_THE_ITEM:
                    # It stays where it is, and this is not what becomes of it.
                    self.attempts.remove(noted.file)
                raise
            return self._ended("discarded", claim, docid, message, seconds)
        delay = self.settings.retry_delay if said.counted else 0.0
        due = _due(attempt.ended_at, delay) if delay else 0
        docid = handoff.give_back(self, claim, claim.attempt + said.counted, due)
        # When somebody was faster it stays: it may well be theirs.
        if docid is not None and docid != claim.docid:
            self.attempts.move(claim.docid, inode, docid)
        if said.counted:
            return self._ended("failed", claim, docid, message, seconds)
        return self._ended("released", claim, docid, message)

    def _attempt(
        self, claim: Claim, failure: Failure, now: float, host: str | None, *, counted: bool
    ) -> Attempt:
        token = names.parse_token(claim.token)
        return Attempt(
            docid=claim.docid,
            token=claim.token,
            attempt=claim.attempt,
            driver=token.driver,
            host=self.journal.host if host is None else host,
            claimed_at=token.claimed_at or now,
            ended_at=now,
            counted=counted,
            failure=failure,
        )

    def _ended(
        self, fate: Fate, claim: Claim, docid: str | None, message: str, seconds: float = 0.0
    ) -> Fate:
        """Note how a claim ended; "revoked" when somebody was faster, and has noted it."""
        claim.fate = fate if docid is not None else "revoked"
        if docid is not None:
            self.note(
                fate,
                claim.docid,
                token=claim.token,
                attempt=claim.attempt,
                seconds=seconds,
                message=message,
                renamed=docid if docid != claim.docid else None,
            )
        return claim.fate

    # The journal

    def stuck(self, claim: Claim, error: OSError) -> None:
        """Note that what is committed cannot be published; raise where the output is to blame."""
        self.check_writable()
        message = f"its output cannot be published ({error.strerror}); whoever recovers tries again"
        self.note("stuck", claim.docid, token=claim.token, message=message)

    def note(self, event: str, docid: str, **facts: object) -> None:
        """Note what became of a document, after what was handed over before it."""
        self.note_handed_over()
        self.journal.note(event, docid, **facts)  # type: ignore[arg-type]

    def pending(self) -> tuple[float, int]:
        """Return the seconds of work, and the documents, that are yet to be counted."""
        seconds, documents = self.uncounted
        done = self.handed_over[:]
        return seconds + sum(map(_SECONDS, done)), documents + len(done)

    def note_handed_over(self) -> None:
        """Note the usual documents that were handed over since this was called last."""
        if not self.handed_over:
            return
        done, self.handed_over = self.handed_over, []
        self.published += len(done)
        journal = self.journal
        event = functools.partial(Event, host=journal.host, driver=journal.writer, attempt=0)
        journal.add(list(itertools.starmap(event, done)))
        seconds, documents = self.uncounted
        self.uncounted = seconds + sum(map(_SECONDS, done)), documents + len(done)
        self.worked()


def _unheard(*facts: object) -> None:
    """Tell nobody, where there is no driver, as for an operator."""


def _due(now: float, after: float) -> int:
    """Return the first whole second that is not before its time."""
    return math.ceil(now + min(max(after, 0.0), MAX_LATER))
