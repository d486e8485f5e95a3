"""An intake looks at a folder, waits until files have settled, and takes them. Read this first.

    folder.py      which names came and went
    examining.py   one look at one file; what it says against the file: rules.py and contents.py
    handover.py    from a folder that may be written: claim, seal, enter
    ledger.py      from a folder that is to stay as it is: copy, decide, publish
    home.py        who else takes from the folder, and who of them is gone
    intake.py      opens all that, and turns the watcher until it is to leave

Looking is the truth; a hint of the kernel's only hastens it. Each file has its own instant at
which it is looked at again: soon while it settles, later the longer it waits. How much is looked at
in one turn is bounded, and listings that cost much come the more seldom: so a full folder costs
little.
"""

import heapq
import itertools
import math
import os
import time
from collections.abc import Callable, Iterable

from queuedriver.disk.filesystem import Directory
from queuedriver.driving.measurements import FILES
from queuedriver.errors import is_trouble
from queuedriver.format import names
from queuedriver.format.units import format_duration
from queuedriver.intake.duplicates import Contents
from queuedriver.intake.examining import NOT_REGULAR, Examiner
from queuedriver.intake.folder import Folder, facts_of
from queuedriver.intake.handover import Claim, Handover
from queuedriver.intake.into import Into
from queuedriver.intake.ledger import Ledger
from queuedriver.intake.options import fill
from queuedriver.intake.rules import Facts, Past, Refused, Waits, of_name

# Files that are looked at in one turn; and in one second, of those that only wait, and of those
# that were taken and stay, for which a look is a single call.
_AT_ONCE = 2000
_A_SECOND = 800
_STAYING_A_SECOND = 3000
# From one look to the next, in seconds: of what waits for longer, and of names while none comes or
# goes. And for how many times as long as a listing took there is no other.
LONGEST_POLL = 10.0
_SHARE = 25
# A file that waits for so many seconds is looked at this much more seldom.
_PATIENCE = 10.0
_RECOVER_EVERY = 5.0
# States of files: those that are told of, and of one that was taken and stays.
_SETTLING, _WAITING_MARKER, _, _STUCK = FILES
STAYS = "stays"


class Candidate:
    """A file that may be taken, in the folder or claimed."""

    __slots__ = ("due", "known", "past", "state", "told", "waits")

    def __init__(self, due: float, known: Facts | None = None) -> None:
        self.due = due
        # As what it was claimed, or taken.
        self.known = known
        self.past: Past | None = None
        self.waits = Waits("was just seen", 0.0)
        self.state = _SETTLING
        # Whether people were told for how long it waits.
        self.told = False

    @property
    def is_left(self) -> bool:
        """Return whether there is nothing to wait for: it was taken, and stays."""
        return self.state is STAYS


class Watcher:
    """Takes from one folder into one queue, turn by turn. Instants are monotonic, and arguments."""

    def __init__(
        self,
        folder: Folder,
        examiner: Examiner,
        taker: Handover | Ledger,
        into: Into,
        *,
        contents: Contents,
        blocked: Callable[[int, int], str],
    ) -> None:
        # Documents that entered, and files that were refused.
        self.taken = self.refused = 0
        # Why nothing is taken from anybody; "" while that is not so.
        self.blocked = ""
        # By path below the folder; and what was claimed and is not in the queue.
        self.files: dict[str, Candidate] = {}
        self.claims: dict[Claim, Candidate] = {}
        # Paths that are never taken under their names.
        self.filtered: set[str] = set()
        self.folder = folder
        self._examiner = examiner
        self._taker = taker
        self._into = into
        self._options = options = examiner.options
        self._contents = contents
        self._why_blocked = blocked
        # When to look at which file; one that has another instant by now is passed over.
        self._queue: list[tuple[float, str]] = []
        self._list_at = self._recover_at = -math.inf
        # What came that tells of other files.
        self._markers: set[str] = set()
        self._poll = options.poll
        # The longest time between two listings; less where nobody hints at what comes.
        self.longest_poll = LONGEST_POLL

    # The turn

    def turn(self, now: float, hinted: Iterable[str] = ()) -> float:
        """Look at what is due and take what has settled; return when the next turn is due."""
        self.blocked = self._why_blocked(self.taken, len(self.claims))
        if now >= self._recover_at:
            self._recover_at = now + _RECOVER_EVERY
            self._recover(now)
        if now >= self._list_at:
            self._list(now)
        for path in hinted:
            self._came(path, now)
        self._look_at_marked(now)
        for _ in range(_AT_ONCE):
            if not self._queue or self._queue[0][0] > now:
                break
            due, path = heapq.heappop(self._queue)
            file = self.files.get(path)
            if file is not None and file.due == due:
                try:
                    self._consider(path, file, now)
                except OSError as error:
                    # A full disk, or a mount that is gone: that ends the turn, and not the wait.
                    # Turns in between are for claims, and for the others.
                    self._put_off(file, error, now)
                    self._look_at(path, file, file.due)
                    if is_trouble(error):
                        raise
        self._seal(now)
        claims = (one.due for one in self.claims.values())
        files = self._queue[0][0] if self._queue else math.inf
        return min(self._list_at, self._recover_at, files, *claims)

    @property
    def settling(self) -> str:
        """Return a file that will be taken, or looked at anew, by time alone; "" without any."""
        claimed = ((claim.path, one) for claim, one in self.claims.items())
        by_time = (
            path
            for path, one in itertools.chain(claimed, self.files.items())
            if one.waits.seconds is not None and not one.is_left
        )
        return next(by_time, "")

    # Names

    def list_soon(self) -> None:
        """List the names with the next turn: some have come."""
        self._list_at = -math.inf

    def _list(self, now: float) -> None:
        began = time.process_time()
        changes = self.folder.look(now)
        for path in changes.gone:
            self.files.pop(path, None)
            self.filtered.discard(path)
        for path in changes.new:
            self._came(path, now)
            if path not in self.files:
                self.filtered.add(path)
        self._poll = self._options.poll if changes.new else min(2 * self._poll, self.longest_poll)
        cost = time.process_time() - began
        self._list_at = now + max(self._poll, _SHARE * cost)

    def _came(self, path: str, now: float) -> None:
        """Look at a file soon that came, or may have changed."""
        if not of_name(path, self._options):
            file = self.files.setdefault(path, Candidate(now))
            self._look_at(path, file, now)
        elif self._options.markers:
            self._markers.add(path)

    def _look_at_marked(self, now: float) -> None:
        """Look at what new markers, and new lists, are of."""
        came, self._markers = self._markers, set()
        for path, file in self.files.items() if came else ():
            at, name = os.path.split(path)
            of_it = (os.path.join(at, fill(form, name)) for form in self._options.markers)
            if not (file.is_left or came.isdisjoint(of_it)):
                self._look_at(path, file, now)

    def _look_at(self, path: str, file: Candidate, when: float) -> None:
        file.due = when
        heapq.heappush(self._queue, (when, path))

    # Files

    def _consider(self, path: str, file: Candidate, now: float) -> None:
        """Look at a file, and take it when nothing speaks against that."""
        at, name = os.path.split(path)
        try:
            with self.folder.opened(at) as directory:
                if isinstance(self._taker, Ledger) and self._stays(self._taker, directory, path):
                    every = max(LONGEST_POLL, len(self.files) / _STAYING_A_SECOND)
                    self._look_at(path, file, now + every)
                    return
                examined = self._examiner.of_drop(directory, name, file.past, now)
        except FileNotFoundError:
            del self.files[path]
            return
        if examined.verdict is NOT_REGULAR:
            # It stays, and is counted.
            del self.files[path]
            return
        file.state = _SETTLING
        self._tell_of(path, file, examined.past, now)
        verdict = examined.verdict
        if not isinstance(verdict, Waits):
            self.blocked = self._why_blocked(self.taken, len(self.claims))
            verdict = Waits(self.blocked, self._options.poll) if self.blocked else verdict
        if isinstance(verdict, Waits):
            self._wait(file, verdict, now)
            self._look_at(path, file, file.due)
        elif file.past is not None:
            why = verdict.why if isinstance(verdict, Refused) else ""
            self._take(path, file, file.past.facts, why, now)

    def _stays(self, ledger: Ledger, directory: Directory, path: str) -> bool:
        """Return whether a file was taken, or refused, as it is, and stays."""
        file = self.files[path]
        facts = facts_of(directory.status(os.path.basename(path)))
        if facts is None or (facts != file.known and not ledger.has(path, facts)):
            return False
        file.state, file.known = STAYS, facts
        return True

    def _take(self, path: str, file: Candidate, facts: Facts, why: str, now: float) -> None:
        """Take a file, or, where it says `why`, refuse it."""
        docid = fill(self._options.docid, os.path.basename(path), path)
        if (reason := names.objection(docid)) is not None:
            why = f"cannot be a docid: {reason}"
        if isinstance(self._taker, Handover):
            self._claim(self._taker, path, docid, facts, why, now)
            return
        self._copy(self._taker, path, docid, facts, why)
        # Whether it is in the ledger now.
        self._look_at(path, file, now + self._options.poll)

    def _claim(
        self, taker: Handover, path: str, docid: str, facts: Facts, why: str, now: float
    ) -> None:
        if why:
            taker.refuse_drop(path, docid, why)
            self.refused += 1
        elif (claim := taker.claim(path, docid)) is not None:
            self.claims[claim] = Candidate(now, facts)
        self.files.pop(path, None)

    def _copy(self, taker: Ledger, path: str, docid: str, facts: Facts, why: str) -> None:
        """Take a copy of a file that is to stay."""
        if why:
            taker.leave(path, docid, facts, "refused", why)
            self.refused += 1
            return
        at, name = os.path.split(path)
        with self.folder.opened(at) as directory:
            twin = self._contents.why(directory, name, path)
        if twin:
            taker.leave(path, docid, facts, "skipped", twin)
        elif taker.take(path, docid, facts, ask=self._examiner.leases):
            self.taken += 1
            self._contents.entered(path, docid)
        else:
            self._contents.gone(path)

    def _wait(self, file: Candidate, waits: Waits, now: float) -> None:
        """Note what a file waits for, and when it is looked at again."""
        since = file.past.since if file.past is not None else now
        step = min(max(self._options.poll, (now - since) / _PATIENCE), LONGEST_POLL)
        left = math.inf if waits.seconds is None else max(waits.seconds, 0.0)
        waiting = _WAITING_MARKER if waits.for_marker else _SETTLING
        file.state = _STUCK if file.told else waiting
        file.waits, file.due = waits, now + min(max(step, len(self.files) / _A_SECOND), left)

    def _put_off(self, file: Candidate, error: OSError, now: float) -> None:
        """Note that a file cannot be taken, and why: it is looked at again."""
        self._wait(file, Waits(f"cannot be taken: {error.strerror}", LONGEST_POLL), now)
        file.due = now + LONGEST_POLL

    def _tell_of(self, path: str, file: Candidate, past: Past | None, now: float) -> None:
        """Take what is known of a file now, and tell what people should know of it."""
        before, file.past = file.past, past
        if past is None:
            return
        if before is not None and past.came_back > before.came_back:
            self._into.note("came-back", path, "was written again after it had settled")
        if now - past.first > self._options.stuck_after and not file.told:
            file.told = True
            waited = format_duration(now - past.first)
            self._into.note("stuck", path, f"waits for {waited}: {file.waits.why}")

    # Claims

    def _recover(self, now: float) -> None:
        """Take over what intakes that are gone have left, and remove what nobody needs."""
        self._contents.sweep(now)
        taker = self._taker
        taker.home.roster.refresh()
        if isinstance(taker, Ledger):
            taker.recover()
            taker.forget(now)
            return
        taker.recover({claim.token for claim in self.claims})
        for claim in () if self.blocked else taker.claim_given_back():
            self.claims[claim] = Candidate(now)

    def _seal(self, now: float) -> None:
        """Let claims into the queue that nobody writes any more."""
        taker, sealed = self._taker, []
        for claim, one in list(self.claims.items()):
            if isinstance(taker, Ledger) or one.due > now:
                continue
            try:
                if self._is_sealed(taker, claim, one, now):
                    sealed.append(claim)
            except FileNotFoundError:
                # Taken back, or in the queue, and we were not told.
                self._contents.gone(claim.token)
                del self.claims[claim]
            except OSError as error:
                # Where that ends the turn, the others come first in the next.
                self._put_off(one, error, now)
                if is_trouble(error):
                    raise
        entered = taker.enter(sealed) if sealed and isinstance(taker, Handover) else {}
        for claim, problem in entered.items():
            if problem is not None:
                self._put_off(self.claims[claim], problem, now)
                continue
            del self.claims[claim]
            self.taken += 1
            self._contents.entered(claim.token, claim.docid)

    def _is_sealed(self, taker: Handover, claim: Claim, one: Candidate, now: float) -> bool:
        """Return whether a claim may enter; one that never will is through."""
        home = taker.home.directory
        examined = self._examiner.of_claim(home, claim.working, one.known, one.past, now)
        self._tell_of(claim.path, one, examined.past, now)
        if isinstance(examined.verdict, Waits):
            self._wait(one, examined.verdict, now)
            return False
        one.due = now + self._options.poll
        if isinstance(examined.verdict, Refused):
            taker.refuse(claim, examined.verdict.why)
            self.refused += 1
            del self.claims[claim]
            return False
        return not self._is_duplicate(taker, claim)

    def _is_duplicate(self, taker: Handover, claim: Claim) -> bool:
        """Return whether a claim is through because its content was there."""
        why = self._contents.why(taker.home.directory, claim.working, claim.token)
        if not why:
            return False
        if self._options.duplicates == "skip":
            taker.skip(claim, why)
        else:
            taker.refuse(claim, why)
            self.refused += 1
        del self.claims[claim]
        return True
