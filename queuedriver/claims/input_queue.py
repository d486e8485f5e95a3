"""One open input queue, on behalf of one driver, broker, recoverer or operator.

claim    names that wait → claims
end      claims and how each ended → handed over, charged, postponed or given back
reopen   after trouble; and where an output was replaced, the new one is followed
"""

import errno
import functools
import itertools
import operator
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from queuedriver.claims import charging, handoff
from queuedriver.claims.attempts import ATTEMPTS, Attempts
from queuedriver.claims.document import Outputs, Target
from queuedriver.claims.handoff import CLAIMS, Claim
from queuedriver.claims.liveness import DRIVERS
from queuedriver.claims.outcomes import DONE, OF_THE_ITEM, Doubted, Ending, from_exception
from queuedriver.claims.picking import Lookahead, Picker
from queuedriver.disk.filesystem import A_LITTLE, Directory, libc
from queuedriver.disk.journal import Journal
from queuedriver.disk.neighbours import landmark
from queuedriver.errors import FileSystemTrouble, ProcessorFailed
from queuedriver.format import names
from queuedriver.format.records import Event, Failure
from queuedriver.format.settings import FILE, Settings

if TYPE_CHECKING:
    from queuedriver.claims.recovery import Recoverer

# What nobody has looked at may be no file at all.
_UNSEEN = False
_DOCID, _TOKEN, _PUBLISHED = map(operator.attrgetter, ("docid", "token", "published"))
# Items that cannot be moved are noted each once, and so many of them.
_MOST_NOTED = 1000


class InputQueue:
    """An input queue that is open: its directories, its claims and what becomes of them."""

    # The stage has stopped itself: what fails now is given back, unless it is to blame itself.
    stopped = False
    # The N of claims that others than the driver's loop have at hand, as a broker's workers.
    at_hand: Collection[str] = ()
    # Whether finished documents wait for one sync, and are handed over together.
    grouped = False
    # Bytes of room that there must be before work goes on.
    wanted_room = 0
    lost_races = 0
    # Outputs that have become visible.
    published = 0
    # Who recovers what dead drivers left here; set by whoever opens this, as it needs both.
    recoverer: "Recoverer"

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
        self.plans = private.subdirectory(CLAIMS, create=True)
        attempts = private.subdirectory(ATTEMPTS, create=True)
        self._ours = [self.plans, attempts]
        # Drivers and discarded documents of a queue inside another are where people look.
        if outer is None:
            self.drivers = private.subdirectory(DRIVERS, create=True)
            self.discarded = directory.subdirectory(names.DISCARDED, create=True)
            self._ours += [self.drivers, self.discarded]
        else:
            self.drivers, self.discarded = outer.drivers, outer.discarded
        self.attempts = Attempts(attempts, self.discarded)
        self.output = targets[0].directory if targets else directory
        # Of the two, and what renames without replacing, for whoever hands over as usual: a
        # directory keeps its number when it is reopened.
        self.handing: Any = directory.fd, self.output.fd, getattr(libc(), "renameat2", None)
        # What the outputs are, for whoever finds what was committed for them.
        self.opened_as = tuple(target.identity for target in targets)
        # Outputs that were gone when we were to publish them, by the names they had.
        self.missing: set[str] = set()
        # Who decides that is told of each document that is charged, and that documents were done:
        # of those that were handed over as usual, the seconds of work, and how many they are.
        self.charged: Callable[[InputQueue, Failure], object] = _unheard
        self.worked: Callable[[float, int], object] = _unheard
        # Who counts the causes for which attempts failed, and documents were discarded.
        self.failed: Callable[..., object] = _unheard
        # Who wants to know the seconds of each document that was done.
        self.took: Callable[[Sequence[float]], object] = _unheard
        self.plain = self._is_plain()
        # What is to be tried; an order, and those who share the queue, are whoever's who drives it.
        self.waiting = Lookahead(directory, self.attempts, Picker(directory))
        # What could not be given back, or removed, while the file system was not well.
        self.later: list[Claim] = []
        # Usual claims that were handed over and are yet to be noted: when, and how long they took.
        self.handed_over: list[tuple[float, Claim, float]] = []
        self._identity = _identity(directory)

    def _is_plain(self) -> bool:
        """Tell whether claims may end without a look at their outputs, for all that is known."""
        return (
            bool(self.targets)
            and (self.grouped or not self.durable)
            and not self.stopped
            and self.archive is None
            and self.settings.existing == "keep"
            and self.targets[0].publication.template == names.DEFAULT_PUBLISH
            and self.output.refuses_to_replace
        )

    def group(self, waiting: Collection[str]) -> None:
        """Let finished documents wait for one sync; `waiting` are the N of those that do."""
        self.at_hand, self.grouped = waiting, True
        self.plain = self._is_plain()

    def claim_of(self, item: names.Item, name: str) -> Claim:
        """Return the claim that somebody has to an item, for whoever ends it."""
        outputs = Outputs(item.docid, item.token, self.targets)
        queue = self.name, self.directory
        return Claim(item.docid, item.attempt, *queue, name, _UNSEEN, item.token, self, outputs)

    # Directories

    @property
    def _ends(self) -> list[Directory]:
        """Return where documents come from, and where their outputs go."""
        return [self.directory, *(target.directory for target in self.targets)]

    def close(self) -> None:
        """Close what this has opened; the queue, its outputs and its archive are the caller's."""
        self.waiting.restart()
        for directory in self._ours:
            directory.close()

    def reopen(self) -> None:
        """Open everything anew, as after trouble every descriptor may be stale."""
        self.waiting.restart()
        self.directory.reopen()
        same = _identity(self.directory) == self._identity
        if not same and not self.directory.present(os.path.join(names.PRIVATE, FILE)):
            raise FileSystemTrouble(f"{self.path} is not the queue that it was; is it mounted?")
        archive = [self.archive] if self.archive is not None else []
        for directory in (self.private, *self._ours, *self._ends[1:], *archive):
            # What is missing inside the queue was removed by hand. Elsewhere it may be a mount that
            # went away, and what is made in its place would be on another file system.
            directory.reopen(create=directory.path.startswith(f"{self.path}/"))

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
            if target.directory.room().free_bytes < self.wanted_room:
                raise FileSystemTrouble(f"the file system of {target.directory.path} is full")
        self.wanted_room = 0

    def check_writable(self) -> None:
        """Raise where we may write no file, be it in the input or in an output."""
        for directory in self._ends:
            directory.check_writable()

    def check_paths(self) -> None:
        """Raise where a path leads elsewhere than to the directory that was opened: what went
        wrong meanwhile is no document's fault."""
        for directory in self._ends:
            if directory.moved():
                raise FileSystemTrouble(
                    errno.ESTALE, f"{directory.path} was moved away, or another is in its place"
                )

    # Claim

    def claim(self, waiting: list[str], *, usual: bool = False) -> Iterator[Claim]:
        """Claim these names, the last one first, each as it is asked for; what was tried is off the
        list. `usual`: none needs a closer look (`Lookahead.usual`)."""
        mint, directory, targets = self.mint, self.directory, self.targets
        queue, attempt, plain, fd = self.name, 0, self.plain, directory.fd
        while waiting:
            name = waiting.pop()
            if usual:
                docid = name[:-6]
            elif (item := names.parse(name)) is None:
                self.waiting.picker.foreign(name)
                continue
            else:
                docid, attempt = item.docid, item.attempt
                plain = self.plain and not self.waiting.needs_care(docid, attempt)
            token = mint.next(time.time_ns() // 1000)
            stem = f"{docid}.{token}"
            working = names.working_name(docid, attempt, token) if attempt else stem + ".working"
            try:
                os.rename(name, working, src_dir_fd=fd, dst_dir_fd=fd)
            except OSError as error:
                if not self._won_after_all(name, docid, working, error):
                    continue
            outputs = Outputs(docid, token, targets, plain, stem)
            yield Claim(docid, attempt, queue, directory, working, _UNSEEN, token, self, outputs)

    def claim_some(self, most: int, now: float) -> list[Claim]:
        """Claim up to so many of what waits. A document that failed before, or has been troubled,
        comes alone."""
        claims: list[Claim] = []
        waiting = self.waiting
        with charging.abandoning(claims):
            while len(claims) < most and (waiting.names or waiting.list_more(now)):
                item = names.parse(waiting.names[-1])
                lonely = item is not None and waiting.needs_care(item.docid, item.attempt)
                if lonely and claims:
                    break
                claims += self.claim([waiting.names.pop()])
                if lonely and claims:
                    break
        return claims

    def _won_after_all(self, name: str, docid: str, working: str, error: OSError) -> bool:
        """Tell whether a rename that is said to have failed happened all the same; what is not
        another driver's doing is raised, or noted where it is the item's."""
        if isinstance(error, FileNotFoundError):
            # A network file system may have lost the reply to a rename that happened. `working`
            # carries a serial nobody else uses, so if it is there, it is ours.
            if self.directory.present(working):
                return True
            self.lost_races += 1
            self.waiting.picker.lost(self.waiting.names)
            return False
        self.refuse(name, docid, error)
        self.waiting.picker.refused()
        return False

    def refuse(self, name: str, docid: str, error: OSError, until: float = 0.0) -> None:
        """Leave an item where it is that the operating system does not let us move, as another
        user's in a sticky directory, or a mount point. Raises where the queue is to blame."""
        if error.errno not in OF_THE_ITEM:
            raise error
        left_alone = self.waiting.left_alone
        if name not in left_alone:
            self.check_writable()
            if len(left_alone) < _MOST_NOTED:
                message = f"it cannot be moved ({error.strerror}); it is left where it is"
                self.journal.note("refused", docid, message=message)
                left_alone[name] = 0.0
        if until:
            left_alone[name] = until

    # End

    def end(self, claims: Sequence[Claim], endings: Sequence[Ending], seconds: float = 0.0) -> None:
        """End each claim as was decided. An OSError says that the file system is not well: what
        has not ended was given back, now or later (`later`), uncharged; EMFILE: see `set_back`."""
        done = []
        try:
            with charging.abandoning(claims):
                for claim, ending in zip(claims, endings, strict=True):
                    how = self._looked_at(claim) if ending is DONE else ending
                    if how is not DONE:
                        charging.set_back(claim, how)
                        continue
                    done.append(claim)
                    if len(claims) > 1:
                        # Before the next one is charged, which then is the first in a row.
                        self.worked(0.0, 0)
                handoff.complete(self, done)
        finally:
            self.plain = self._is_plain()
            self._note_ends(done, seconds / len(claims))

    def _looked_at(self, claim: Claim) -> Ending:
        """Return "done", unless the document is no file, or an output is not there."""
        if claim.seen and claim.outputs.blind:
            return DONE
        try:
            claim.check()
        except (ProcessorFailed, OSError) as error:
            return from_exception(error)
        if claim.outputs.elsewhere and (gone := claim.outputs.missing()):
            self.check_paths()
            # It was removed, by somebody or by the document's own program; and nothing has been
            # committed.
            return Doubted(Failure(cause="output-missing", message=f"its output {gone} is gone"))
        return DONE

    def _note_ends(self, claims: Sequence[Claim], seconds: float) -> None:
        """Note what became of claims that were completed, each after so many seconds."""
        self.note_handed_over()
        ended = [one for one in claims if one.fate in ("published", "finished", "revoked")]
        self.published += sum(len(one.published) for one in ended)
        if done := sum(one.fate != "revoked" for one in ended):
            self.worked(0.0, 0)
            self.took((seconds,) * done)
        for one in ended:
            facts: dict[str, Any] = {"token": one.token, "attempt": one.attempt}
            outputs = one.published
            self.journal.note(one.fate, one.docid, seconds=seconds, outputs=outputs, **facts)

    # The journal

    def note(self, event: str, of: Claim | names.Item, **facts: Any) -> None:
        """Note what became of a document, after what was handed over before it."""
        self.note_handed_over()
        self.journal.note(event, of.docid, token=of.token, attempt=of.attempt, **facts)

    def note_handed_over(self) -> None:
        """Note the usual documents that were handed over since this was called last."""
        if not self.handed_over:
            return
        # Cleared in place: whoever hands over has it at hand.
        done = self.handed_over[:]
        self.handed_over.clear()
        self.published += len(done)
        journal = self.journal
        event = functools.partial(Event, host=journal.host, driver=journal.writer, attempt=0)
        at, claims, took = zip(*done, strict=True)
        facts = (map(fact, claims) for fact in (_DOCID, _TOKEN))
        named = itertools.repeat("published")
        journal.add(list(map(event, at, named, *facts, took, map(_PUBLISHED, claims))))
        self.worked(sum(took), len(done))
        self.took(took)


def _identity(directory: Directory) -> tuple[int, int]:
    found = directory.status()
    return found.st_dev, found.st_ino


def _unheard(*facts: object, **more: object) -> None:
    """Tell nobody, where there is no driver, as for an operator."""
