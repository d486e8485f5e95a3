"""An intake looks at a folder, waits until files have settled, and takes them. Read this first.

    folder.py      which names came and went, and who writes
    examining.py   one look at one file, and at what is in it; what may speak against it: rules.py
    handover.py    claim, copy, commit, publish, finish; and what is found of those who are gone
    ledger.py      from a folder that is to stay as it is: whoever is noted first has taken it
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
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

import msgspec

from queuedriver.claims.leftovers import SWEEP_EVERY
from queuedriver.errors import is_trouble
from queuedriver.format import names
from queuedriver.format.units import format_duration
from queuedriver.intake.examining import NOT_REGULAR, Contents, examine
from queuedriver.intake.folder import Folder
from queuedriver.intake.handover import Claim, Handover
from queuedriver.intake.options import IntakeOptions, fill
from queuedriver.intake.rules import STUCK, Facts, Past, Verdict, Waits, facts_of, of_name

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
# There is nothing to wait for: it was taken, or refused, and stays.
STAYS = Waits("was taken, and stays", state="stays")


class Candidate(msgspec.Struct, eq=False):
    """A file that may be taken, in the folder or claimed."""

    due: float
    past: Past | None = None
    waits: Waits = Waits("was just seen", 0.0)
    # Whether people were told for how long it waits.
    told: bool = False
    # As what it was taken, or refused, and stays; and the sum of what is about to enter.
    stays: Facts | None = None
    sum: str = ""


class Watcher(msgspec.Struct, eq=False):
    """Takes from one folder into one queue, turn by turn. Instants are monotonic, and arguments."""

    taker: Handover
    contents: Contents | None
    # Says why the queue takes no more, when so many were taken, and so many more are claimed.
    why_blocked: Callable[[int, int], str]
    # Documents that entered, and files that were refused.
    taken: int = 0
    refused: int = 0
    # Why nothing is taken from anybody; "" while that is not so.
    blocked: str = ""
    # By path below the folder; and what was claimed and is not in the queue.
    files: dict[str, Candidate] = {}
    claims: dict[Claim, Candidate] = {}
    # Paths that are never taken under their names; and those of them that tell of other files, and
    # have just come.
    filtered: set[str] = set()
    markers: set[str] = set()
    # When to look at which file; one that has another instant by now is passed over.
    queue: list[tuple[float, str]] = []
    # Seconds from one listing to the next, at most.
    longest_poll: float = LONGEST_POLL
    list_at: float = -math.inf
    recover_at: float = -math.inf
    sweep_at: float = -math.inf
    # From this listing of the names to the next, in seconds.
    poll: float = 0.0

    @property
    def folder(self) -> Folder:
        return self.taker.folder

    @property
    def _options(self) -> IntakeOptions:
        return self.taker.options

    # The turn

    def turn(self, now: float, hinted: Iterable[str] = ()) -> float:
        """Look at what is due and take what has settled; return when the next turn is due."""
        self.blocked = self.why_blocked(self.taken, len(self.claims))
        if now >= self.recover_at:
            self.recover_at = now + _RECOVER_EVERY
            self._recover(now)
        if now >= self.list_at:
            self._list(now)
        for path in hinted:
            self._came(path, now)
        self._look_at_marked(now)
        for _ in range(_AT_ONCE):
            if not self.queue or self.queue[0][0] > now:
                break
            due, path = heapq.heappop(self.queue)
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
        files = self.queue[0][0] if self.queue else math.inf
        return min(self.list_at, self.recover_at, files, *claims)

    @property
    def settling(self) -> str:
        """Return a file that will be taken, or looked at anew, by time alone; "" without any."""
        return next((path for path, waits in self.waiting() if waits.seconds is not None), "")

    def waiting(self) -> Iterator[tuple[str, Waits]]:
        """Yield the path of each file that is not taken, and what it waits for."""
        claimed = ((claim.path, one) for claim, one in self.claims.items())
        for path, one in itertools.chain(claimed, self.files.items()):
            if one.waits is not STAYS:
                yield path, one.waits

    # Names

    def list_soon(self) -> None:
        """List the names with the next turn: some have come."""
        self.list_at = -math.inf

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
        shortest = self._options.poll
        longer = min(2 * (self.poll or shortest), self.longest_poll)
        self.poll = shortest if changes.new else longer
        cost = time.process_time() - began
        self.list_at = now + max(self.poll, _SHARE * cost)

    def _came(self, path: str, now: float) -> None:
        """Look at a file soon that came, or may have changed."""
        if not of_name(path, self._options):
            file = self.files.setdefault(path, Candidate(now))
            self._look_at(path, file, now)
        elif self._options.markers:
            self.markers.add(path)

    def _look_at_marked(self, now: float) -> None:
        """Look at what new markers, and new lists, are of."""
        came, self.markers = self.markers, set()
        for path, file in self.files.items() if came else ():
            at, name = os.path.split(path)
            of_it = (os.path.join(at, fill(form, name)) for form in self._options.markers)
            if not (file.waits is STAYS or came.isdisjoint(of_it)):
                self._look_at(path, file, now)

    def _look_at(self, path: str, file: Candidate, when: float) -> None:
        file.due = when
        heapq.heappush(self.queue, (when, path))

    # Files

    def _consider(self, path: str, file: Candidate, now: float) -> None:
        """Look at a file, and claim it when nothing speaks against that."""
        at, name = os.path.split(path)
        past: Past | None = None
        verdict: Verdict = NOT_REGULAR
        with suppress(FileNotFoundError), self.folder.opened(at) as directory:
            facts = facts_of(directory.status(name)) if self._options.leaves else None
            if facts is not None and (facts == file.stays or self.taker.stays(path, facts)):
                # If it is another drop one day, that waits since then.
                file.waits, file.past, file.told, file.stays = STAYS, None, False, facts
                every = max(LONGEST_POLL, len(self.files) / _STAYING_A_SECOND)
                self._look_at(path, file, now + every)
                return
            past, verdict = examine(self.taker.told, directory, name, file.past, now)
        if verdict is NOT_REGULAR:
            # It is gone; or stays, and is counted.
            del self.files[path]
            return
        self._learn(path, file, past, now)
        if not isinstance(verdict, Waits):
            self.blocked = self.why_blocked(self.taken, len(self.claims))
            verdict = Waits(self.blocked, self._options.poll) if self.blocked else verdict
        if isinstance(verdict, Waits):
            self._wait(file, verdict, now)
            self._look_at(path, file, file.due)
        else:
            self._take(path, file, verdict.why if verdict is not None else "", now)

    def _take(self, path: str, file: Candidate, why: str, now: float) -> None:
        """Claim a file, or, where it says `why`, refuse it."""
        docid = fill(self._options.docid, os.path.basename(path), path)
        if (reason := names.objection(docid)) is not None:
            why = f"cannot be a docid: {reason}"
        drop = self.taker.drop(path, docid, file.past.facts if file.past is not None else None)
        if why:
            self.taker.refuse(drop, why)
            self.refused += 1
            self._end(drop, file, now)
            return
        claim = self.taker.claim(drop)
        del self.files[path]
        if claim is not None:
            self.claims[claim] = Candidate(now) if claim.moved else file
            file.due = now

    def _end(self, claim: Claim, file: Candidate, now: float) -> None:
        """Look once more at a file that stays in the folder, when all is done with it."""
        self.claims.pop(claim, None)
        if self._options.leaves:
            self.files[claim.path] = file
            self._look_at(claim.path, file, now + self._options.poll)
        elif not claim.moved:
            self.files.pop(claim.path, None)

    def _wait(self, file: Candidate, waits: Waits, now: float) -> None:
        """Note what a file waits for, and when it is looked at again."""
        since = file.past.since if file.past is not None else now
        step = min(max(self._options.poll, (now - since) / _PATIENCE), LONGEST_POLL)
        step = max(step, waits.at_least)
        left = math.inf if waits.seconds is None else max(waits.seconds, 0.0)
        file.waits = waits._replace(state=STUCK) if file.told else waits
        file.due = now + min(max(step, len(self.files) / _A_SECOND), left)

    def _put_off(self, file: Candidate, error: OSError, now: float) -> None:
        """Note that a file cannot be taken, and why: it is looked at again. What only somebody can
        mend is not awaited."""
        seconds = LONGEST_POLL if is_trouble(error) else None
        self._wait(file, Waits(f"cannot be taken: {error.strerror}", seconds), now)
        file.due = now + LONGEST_POLL

    def _learn(self, path: str, file: Candidate, past: Past | None, now: float) -> None:
        """Take what is known of a file now, and tell what people should know of it."""
        before, file.past = file.past, past
        if past is None:
            return
        if before is not None and past.came_back > before.came_back:
            self.taker.note("came-back", path, "was written again after it had settled")
        if now - past.first > self._options.stuck_after and not file.told:
            file.told = True
            waited = format_duration(now - past.first)
            self.taker.note("stuck", path, f"waits for {waited}: {file.waits.why}")

    # Claims

    def _recover(self, now: float) -> None:
        """Take over what intakes that are gone have left, and remove what nobody needs."""
        if now >= self.sweep_at:
            self.sweep_at = now + SWEEP_EVERY
            self.taker.sweep()
            if self.contents is not None:
                self.contents.sweep()
        self.taker.home.roster.refresh()
        held = {claim.token for claim in self.claims}
        for claim in self.taker.recover(held, now, blocked=bool(self.blocked)):
            self.claims[claim] = Candidate(now)

    def _seal(self, now: float) -> None:
        """Let claims into the queue that nobody writes any more; of one content one at a time."""
        sums: dict[Claim, str] = {}
        due = [(claim, file) for claim, file in self.claims.items() if file.due <= now]
        # What others let in may have filled the queue since it was claimed; or it was closed.
        blocked = self.why_blocked(self.taken, 0) if due else ""
        for claim, file in due:
            if blocked:
                self._wait(file, Waits(blocked, self._options.poll), now)
                continue
            with self._tried(claim, file, now):
                sum = self._sealed(claim, file, now)
                if sum is not None and (not sum or sum not in sums.values()):
                    sums[claim] = sum
        with self.taker.durably(sums):
            for claim, sum in sums.items():
                file = self.claims[claim]
                with self._tried(claim, file, now):
                    if self.taker.enter(claim):
                        if self.contents is not None:
                            self.contents.entered(sum, claim.docid)
                        self.taken += 1
                        self._end(claim, file, now)

    @contextmanager
    def _tried(self, claim: Claim, file: Candidate, now: float) -> Iterator[None]:
        """Let a claim wait that cannot enter, and end one that is gone."""
        try:
            yield
        except FileNotFoundError:
            # Taken back, or in the queue, and we were not told.
            self._end(claim, file, now)
        except OSError as error:
            # Where that ends the turn, the others come first in the next.
            self._put_off(file, error, now)
            if is_trouble(error):
                raise

    def _sealed(self, claim: Claim, file: Candidate, now: float) -> str | None:
        """Return the sum of what may enter; None of a claim that waits, or is through."""
        if self.taker.is_decided(claim):
            # What becomes of its file says nothing of the copy.
            file.due = now + self._options.poll
            return file.sum
        with self.taker.place(claim) as place:
            told, known = self.taker.told, claim.known
            past, verdict = examine(told, *place, file.past, now, claimed=True, known=known)
            self._learn(claim.path, file, past, now)
            if isinstance(verdict, Waits):
                self._wait(file, verdict, now)
                return None
            file.due = now + self._options.poll
            sum, why, event = "", verdict.why if verdict is not None else "", "refused"
            if self.contents is not None and not why:
                sum, why = self.contents.look(*place)
                event = "skipped" if self._options.duplicates == "skip" else event
        if not why:
            file.sum = sum
            return sum
        self.taker.refuse(claim, why, event)
        self.refused += event == "refused"
        self._end(claim, file, now)
        return None
