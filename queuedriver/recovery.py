"""Finish or take back what dead drivers left. Anyone may, at any time, any number at once.

    .written              publish and finish it: it is committed; left alone where the queue's
                          settings do not say to which outputs, or these are other directories
                          than its driver opened
    .working, crashed     its process ended by itself: the attempt is charged
    .working, hung        ended by its own hard limit: charged, with the stacks it left; unless
                          they show it waiting for the queue's file system: given back
    .working, memory      ended by its supervisor for what it took: charged
    .working, ended       ended by its supervisor for no fault of the document: given back
    .working, rebooted    its host went down: given back uncharged, the third time charged
    .working, lost        its beat stood still for the lease: the same
    .working, left        it said goodbye, and could not release it: given back
    .working, a broker's  whatever ended it, it was not the document: given back
    .working, unknown     its driver never registered and has not touched it for the lease: lost
    .writing              moved to `orphans/` of the output queue when its claim is nowhere;
                          never deleted, since a listing may miss a claim that is being renamed

A wrong guess costs time, never a document: every step starts from a name with the N of the claim,
and the driver that was wrongly given up finds that name gone when it commits.
"""

import math
import time
from collections.abc import Callable, Collection
from contextlib import suppress

import msgspec

from queuedriver import names
from queuedriver.errors import BadDocid, NotRegular, OutputMissing
from queuedriver.filesystem import Directory
from queuedriver.handoff import Claim, Handoff, move_aside
from queuedriver.journal import Journal
from queuedriver.liveness import (
    LEASE,
    Observer,
    Registration,
    Verdict,
    read_registrations,
    whose,
)
from queuedriver.outcome import Failure
from queuedriver.processors.children import kill_marked
from queuedriver.records import read_hidden_reports
from queuedriver.runtime import forget_stacks, read_ending, waited_for_files
from queuedriver.setbacks import Setbacks

# How long an orphan is kept for whoever may still want to publish it, and a dead registration for
# whoever wants to know.
KEEP = 7 * 86400.0

# What a directory dressed as a claim, a damaged plan, one that somebody forged, or a claim that is
# another user's in a sticky directory ends in; and a commit whose output is nowhere.
_BEYOND_US = (
    FileExistsError,
    IsADirectoryError,
    PermissionError,
    NotRegular,
    OutputMissing,
    BadDocid,
    msgspec.DecodeError,
)

_MESSAGES = {
    "crashed": "the driver's process ended while it had the document",
    "hung": "the document took longer than its hard limit; the driver was ended",
    "memory": "the driver took more memory than it may",
    "ended": "the driver was ended by its supervisor",
    "stalled": "the file system did not answer the driver before its hard limit, which ended it",
    "rebooted": "the host of the driver went down while it had the document",
    "lost": "the driver showed no life for its lease while it had the document",
}


class Recoverer:
    """Looks after one input queue's dead drivers."""

    def __init__(
        self,
        queue: Directory,
        drivers: Directory,
        handoff: Handoff,
        setbacks: Setbacks,
        journal: Journal,
        observer: Observer,
        own: tuple[str, str] = ("", ""),
        held: Collection[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._queue = queue
        self._drivers = drivers
        self._handoff = handoff
        self._setbacks = setbacks
        self._journal = journal
        self._observer = observer
        # The driver on whose behalf this runs, and the claims it holds right now.
        self._own = own
        self._held = held
        self._clock = clock
        # Until when nobody here looks again for what each dead driver left. That is done twice: an
        # old listing may not show an output that was there, and nobody would come back to it.
        self._swept: dict[tuple[str, str], float] = {}
        # Claims of drivers that did not register: the observer knows since when each stands still.
        self._watched: set[str] = set()
        # Claims that could not be dealt with, and have been noted.
        self._noted: set[str] = set()

    def registrations(self) -> list[tuple[Registration, Verdict]]:
        """Who registered, and who of them is alive."""
        found = read_registrations(self._drivers)
        return [(one, self._observer.judge(one)) for one in found]

    def newly_dead(self) -> bool:
        """Whether a driver is gone whose leftovers are to be looked for here, or once more."""
        return any(
            verdict not in ("alive", "left") and self._to_sweep((one.id, one.salt))
            for one, verdict in self.registrations()
        )

    def recover(self, claimed: list[tuple[str, names.Item]] | None = None) -> int:
        """Deal with every claim of a dead driver; how many there were.

        `claimed` is what a pass has just seen; without it the queue is listed.
        """
        known = {one.id: (one, verdict) for one, verdict in self.registrations()}
        listed = claimed is None
        if claimed is None:
            claimed = self._claimed()
        # Whoever was given up wrongly may die yet, and leave more.
        for one, verdict in known.values():
            if verdict == "alive":
                self._swept.pop((one.id, one.salt), None)
        dead = {
            key: one
            for one, verdict in known.values()
            if verdict != "alive" and self._to_sweep(key := (one.id, one.salt))
        }
        # Whatever its commands and servers still write must stop before anything is published.
        here = [one for one in dead.values() if self._observer.is_here(one)]
        if here:
            kill_marked([f"{one.id}-{one.salt}" for one in here])
        recovered = 0
        unknown: set[str] = set()
        watched, self._watched = self._watched, set()
        for name, item in claimed:
            verdict, registration = self._verdict(name, item, known)
            if verdict == "alive":
                continue
            try:
                taken_back = self._recover_one(name, item, verdict, registration)
            except _BEYOND_US as error:
                # One item that nobody can make sense of must not keep us from all the others.
                self._give_up(name, item, error)
                continue
            if taken_back and registration is None:
                unknown.add(item.token)
            recovered += 1
        for name in watched - self._watched:
            self._observer.forget(name)
        if unknown:
            # No registration will ever lead to these; without their claim nobody can commit them.
            self._set_aside(lambda token: token if token in unknown else None)
        self._clean_up(dead)
        if listed:
            self.forget_ended()
        return recovered

    def forget_ended(self) -> None:
        """Drop the records of attempts at documents that have ended: one that was taken back, and
        then done, has no attempt in its name for whoever finished it to go by.

        A listing may miss a document that is being renamed, so what one listing does not have is
        looked for in a second: missed by both, it would have a shorter report.
        """
        attempts = self._handoff.attempts
        noted = attempts.docids()
        for _ in range(2):
            if not noted:
                return
            for name in self._queue.names():
                if (item := names.parse(name)) is not None:
                    noted.discard(item.docid)
        if noted:
            attempts.forget_all(noted)

    def sweep_own(self) -> None:
        """After trouble: move our own outputs aside that were made though we were told that they
        were not, or left though we removed them. While they are there, a queue is not drained."""

        def whose(token: str) -> str | None:
            driver, _, salt = names.parse_token(token)
            return driver if (driver, salt) == self._own and token not in self._held else None

        self._set_aside(whose)

    def _claimed(self) -> list[tuple[str, names.Item]]:
        found = []
        for name in self._queue.names():
            if name.endswith((".working", ".written")) and (item := names.parse(name)):
                found.append((name, item))
        return found

    def _verdict(
        self,
        name: str,
        item: names.Item,
        known: dict[str, tuple[Registration, Verdict]],
    ) -> tuple[Verdict, Registration | None]:
        """Whether whoever has this claim is alive, as far as can be known."""
        token = names.parse_token(item.token)
        if (token.driver, token.salt) == self._own:
            # A claim whose reply was lost, or one we could not release when the disk was full.
            return ("alive" if item.token in self._held else "left"), None
        registration, verdict = whose(token, known)
        if verdict is not None:
            return verdict, registration
        # A driver that never registered shows life by touching the file it claimed.
        try:
            touched = self._queue.status(name).mtime_ns
        except FileNotFoundError:
            return "alive", None
        self._watched.add(name)
        still = self._observer.unchanged_for(name, touched)
        return ("lost" if still >= self._lease else "alive"), None

    def _recover_one(
        self, name: str, item: names.Item, verdict: Verdict, registration: Registration | None
    ) -> bool:
        """Whether the claim was taken back, rather than finished, or found gone."""
        if item.state == "written":
            if not self._handoff.targets:
                # Committed under settings that are lost: nobody here knows what to publish.
                return False
            made_for = self._made_for(item, registration)
            finals = self._handoff.finish_written(item, name, made_for)
            self._journal.note(
                "recovered",
                item.docid,
                token=item.token,
                attempt=item.attempt,
                message="its driver had committed it",
                outputs=finals,
            )
            return False
        now = self._clock()
        claim = Claim(item.docid, item.attempt, item.token, name)
        token = names.parse_token(item.token)
        claimed_at = token.claimed_at or now
        host = registration.identity.host if registration else ""
        if registration is not None and registration.broker:
            fate = self._setbacks.release(claim, "the broker that dealt it is gone")
        elif verdict == "left":
            fate = self._setbacks.release(claim, "its driver had left it")
        elif verdict == "dead":
            failure, charged = _judge(registration.dump if registration else "")
            if charged:
                fate = self._setbacks.charge(claim, failure, claimed_at, now, host)
            else:
                fate = self._setbacks.take_back(claim, failure, claimed_at, now, host)
        else:
            failure = Failure(cause=verdict, message=_MESSAGES[verdict])
            fate = self._setbacks.take_back(claim, failure, claimed_at, now, host)
        return fate != "revoked"

    def _made_for(self, item: names.Item, registration: Registration | None) -> tuple[str, ...]:
        """Return what the outputs of a claim were opened as; () when nobody said."""
        token = names.parse_token(item.token)
        if (token.driver, token.salt) == self._own:
            return tuple(one.identity for one in self._handoff.targets if one.identity)
        return registration.made_for(token.salt) if registration is not None else ()

    def _give_up(self, name: str, item: names.Item, error: Exception) -> None:
        if name not in self._noted:
            self._noted.add(name)
            message = f"cannot be recovered: {type(error).__name__}: {error}"
            self._journal.note("stuck", item.docid, token=item.token, message=message)

    # What is not a claim

    @property
    def _lease(self) -> float:
        return LEASE if self._observer.lease is None else self._observer.lease

    def _to_sweep(self, key: tuple[str, str]) -> bool:
        return self._clock() >= self._swept.get(key, 0.0)

    def _clean_up(self, dead: dict[tuple[str, str], Registration]) -> None:
        """The claims of these have been dealt with: now the rest of what they left."""
        if not dead:
            return
        lives = {(one.id, salt): one.id for one in dead.values() for salt in (one.salt, *one.past)}

        def whose(token: str) -> str | None:
            driver, _, salt = names.parse_token(token)
            return lives.get((driver, salt))

        kept = self._set_aside(whose)
        for key, gone in dead.items():
            again_at = self._clock() + self._lease
            self._swept[key] = math.inf if key in self._swept else again_at
            if self._observer.is_here(gone):
                forget_stacks(gone.dump)
            old = gone.beat_at < self._clock() - KEEP
            if old and gone.id not in kept and self._observer.judge(gone) != "alive":
                # Another user's, in a sticky directory, is for that user to remove.
                with suppress(PermissionError):
                    self._drivers.remove(f"{gone.id}.json")
        self._settle_reports()

    def _settle_reports(self) -> None:
        """Whoever died amid a discard left a document whose report nobody sees."""
        for token, docid in read_hidden_reports(self._handoff.discarded):
            if not self._has_claim(names.Item(docid, names.WORKING, token=token)):
                with suppress(PermissionError):
                    self._handoff.settle_report(docid, token)

    def _set_aside(self, whose: Callable[[str], str | None]) -> set[str]:
        """Move unfinished outputs aside that have no claim, of all these drivers in one listing;
        of which of them anything is still there. `whose` tells them by an N; None: not theirs."""
        held = {item.token for _, item in self._claimed()}
        kept = {owner for token in held if (owner := whose(token)) is not None}
        for target in self._handoff.targets:
            for name in target.directory.list():
                item = names.parse(name)
                if item is None or item.state != "writing" or item.token in held:
                    continue
                owner = whose(item.token)
                if owner is not None and not self._has_claim(item):
                    move_aside(target.directory, name)
                    kept.add(owner)
        return kept

    def _has_claim(self, item: names.Item) -> bool:
        """Asked by name too, in the order in which a claim goes from one to the other."""
        for form in (names.working_name, names.written_name):
            for attempt in range(self._handoff.settings.retries + 1):
                if self._queue.present(form(item.docid, attempt, item.token)):
                    return True
        return False


def _judge(dump: str) -> tuple[Failure, bool]:
    """What a driver that died with a document at hand is to be told of it; whether to charge it."""
    ending = read_ending(dump)
    if ending is None:
        return Failure(cause="crashed", message=_MESSAGES["crashed"]), True
    stalled = ending.stacks is not None and waited_for_files(dump, ending.stacks)
    word = "stalled" if stalled and ending.cause == "hung" else ending.cause
    message = ending.message or _MESSAGES[word]
    failure = Failure(cause=ending.cause, message=message, stacks=ending.stacks)
    return failure, word not in ("stalled", "ended")
