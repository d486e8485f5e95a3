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
    .working, waiting     its driver was at a newer one, and processed one at a time: given back
    .working, unknown     its driver never registered and has not touched it for the lease: lost
    .writing              moved to `orphans/` of the output queue when its claim is nowhere;
                          never deleted, since a listing may miss a claim that is being renamed

A wrong guess costs time, never a document: every step starts from a name with the N of the claim,
and the driver that was wrongly given up finds that name gone when it commits.
"""

import math
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Literal, NamedTuple

import msgspec

from queuedriver.claims.charging import charge, give_back
from queuedriver.claims.handoff import finish_written, move_aside
from queuedriver.claims.input_queue import InputQueue
from queuedriver.claims.leftovers import SWEEP_EVERY, sweep
from queuedriver.claims.liveness import EXPIRY, Observer, Owner, Roster
from queuedriver.disk.processes import kill_marked
from queuedriver.disk.runtime import Ending, forget_stacks, read_ending, waited_for_files
from queuedriver.errors import BadDocid, NotRegular, OutputMissing
from queuedriver.format import names
from queuedriver.format.records import LEASE, Failure, Registration

# How often it is looked whether somebody has registered, when races are lost; in seconds.
_MEET_EVERY = 0.005

# What a directory dressed as a claim, a damaged plan, one that somebody forged, or a claim that is
# another user's in a sticky directory ends in; and a commit whose output is in another directory.
_BEYOND_US = (
    FileExistsError,
    IsADirectoryError,
    PermissionError,
    NotRegular,
    OutputMissing,
    BadDocid,
    msgspec.DecodeError,
)


class Ended(NamedTuple):
    """What a claim comes to by the cause of its driver's end."""

    how: Literal["charge", "strike", "release"]
    message: str


ENDINGS = {
    "crashed": Ended("charge", "the driver's process ended while it had the document"),
    "hung": Ended("charge", "the document took longer than its hard limit; the driver was ended"),
    "memory": Ended("charge", "the driver took more memory than it may"),
    "ended": Ended("strike", "the driver was ended by its supervisor"),
    "stalled": Ended(
        "strike",
        "the file system did not answer the driver before its hard limit, which ended it",
    ),
    "rebooted": Ended("strike", "the host of the driver went down while it had the document"),
    "lost": Ended("strike", "the driver showed no life for its lease while it had the document"),
    "left": Ended("release", "its driver had left it"),
    "broker": Ended("release", "the broker that dealt it is gone"),
    "waiting": Ended("release", "its driver was at another document when it ended"),
}


class Recoverer:
    """Looks after one input queue's dead drivers."""

    def __init__(
        self, queue: InputQueue, observer: Observer, clock: Callable[[], float] = time.time
    ) -> None:
        self._queue = queue
        self._observer = observer
        self.roster = Roster(queue.drivers, observer)
        self._clock = clock
        # Until when nobody here looks again for what each dead driver left. That is done twice: an
        # old listing may not show an output that was there, and nobody would come back to it.
        self._swept: dict[tuple[str, str], float] = {}
        # Who starts has swept.
        self._sweep_at = clock() + SWEEP_EVERY
        # Who has registered since the registrations were read, and when that was looked at.
        self._met: set[str] = set()
        self._met_at = 0.0
        # Claims of drivers that did not register: the observer knows since when each stands still.
        self._watched: set[str] = set()
        # Claims of the dead that nobody here can recover, as of the latest recovery: whoever waits
        # for the end of the queue would wait for ever.
        self.stuck: set[str] = set()

    def drivers(self, anew: bool) -> Collection[str]:
        """Return the ids of who lives, as far as is known; asked anew, with whoever has registered
        meanwhile."""
        now = time.monotonic()
        if anew and now - self._met_at >= _MEET_EVERY:
            self._met_at = now
            listed = {name[:-5] for name in self._queue.drivers.names() if name.endswith(".json")}
            self._met = listed - self.roster.owners.keys()
        return self._met.union(one.id for one in self.roster.alive)

    def newly_dead(self) -> bool:
        """Whether a driver is gone whose leftovers are to be looked for here, or once more."""
        self.roster.refresh()
        return any(
            owner.verdict != "left" and self._to_sweep(key) for key, owner in self._gone().items()
        )

    def recover(self, claimed: list[tuple[str, names.Item]] | None = None) -> int:
        """Deal with every claim of a dead driver; how many there were.

        `claimed` is what a pass has just seen; without it the queue is listed.
        """
        self.roster.refresh()
        listed = claimed is None
        if claimed is None:
            claimed = self._claimed()
        # Whoever was given up wrongly may die yet, and leave more.
        for one in self.roster.alive:
            if one.registration is not None:
                self._swept.pop((one.id, one.registration.salt), None)
        dead = {
            key: one.registration
            for key, one in self._gone().items()
            if one.registration is not None and self._to_sweep(key)
        }
        # Whatever its commands and servers still write must stop before anything is published.
        here = [one for one in dead.values() if self._observer.is_here(one)]
        if here:
            kill_marked([f"{one.id}-{one.salt}" for one in here])
        recovered, unknown = self._recover_claims(claimed)
        if unknown:
            # No registration will ever lead to these; without their claim nobody can commit them.
            self._set_aside(lambda token: token if token in unknown else None)
        self._clean_up(dead)
        if listed:
            self.forget_ended()
            self._sweep_now_and_then()
        return recovered

    def _sweep_now_and_then(self) -> None:
        """A driver may run for months, and whoever waits for its outputs to end waits for what it
        left late."""
        if self._clock() >= self._sweep_at:
            self._sweep_at = self._clock() + SWEEP_EVERY
            queue = self._queue
            others = [target.directory for target in queue.targets]
            sweep(queue.directory, [*others, *([queue.archive] if queue.archive else [])])

    def _recover_claims(
        self,
        claimed: Iterable[tuple[str, names.Item]],
    ) -> tuple[int, set[str]]:
        """Finish or take back what the dead have claimed. Return how many claims there were, and
        the N of those that were taken back from drivers that never registered."""
        # The newest last: as long as another is seen, so is the newest, by whoever else recovers.
        oldest_first = sorted(claimed, key=lambda one: names.parse_token(one[1].token).serial)
        newest = _newest(item for _, item in oldest_first)
        recovered = 0
        unknown: set[str] = set()
        watched, self._watched = self._watched, set()
        stuck, self.stuck = self.stuck, set()
        for name, item in oldest_first:
            owner = self._judged(name, item)
            if owner.alive:
                continue
            is_newest = item.token in newest
            why = ""
            try:
                if item.state == names.WRITTEN and not self._queue.targets:
                    why = "the settings that it was committed under, and so its outputs, are lost"
                elif self._recover_one(name, item, owner, newest=is_newest):
                    unknown |= {item.token} if owner.registration is None else set()
            except _BEYOND_US as error:
                # One item that nobody can make sense of must not keep us from all the others.
                why = f"{type(error).__name__}: {error}"
            recovered += not why
            if why:
                self.stuck.add(name)
                if name not in stuck:
                    self._note_stuck(item, why)
        for name in watched - self._watched:
            self._observer.forget(name)
        return recovered, unknown

    def forget_ended(self) -> None:
        """Drop the records of attempts at documents that have ended: one that was taken back, and
        then done, has no attempt in its name for whoever finished it to go by.

        A listing may miss a document that is being renamed, so what one listing does not have is
        looked for in a second: missed by both, it would have a shorter report.
        """
        attempts = self._queue.attempts
        noted = set(attempts.docids())
        for _ in range(2):
            if not noted:
                return
            for name in self._queue.directory.names():
                if (item := names.parse(name)) is not None:
                    noted.discard(item.docid)
        if noted:
            attempts.forget_docids(noted)

    def sweep_own(self) -> None:
        """After trouble: move our own outputs aside that were made though we were told that they
        were not, or left though we removed them. While they are there, a queue is not drained."""

        def whose(token: str) -> str | None:
            driver, _, salt = names.parse_token(token)
            ours = self._is_ours(driver, salt) and token not in self._queue.at_hand
            return driver if ours else None

        self._set_aside(whose)

    def _is_ours(self, driver: str, salt: str) -> bool:
        return (driver, salt) == (self._queue.mint.driver, self._queue.mint.salt)

    def _claimed(self) -> list[tuple[str, names.Item]]:
        found = []
        for name in self._queue.directory.names():
            if name.endswith((".working", ".written")) and (item := names.parse(name)):
                found.append((name, item))
        return found

    def _gone(self) -> dict[tuple[str, str], Owner]:
        """Those that are not alive, each life by its id and salt."""
        return {
            (one.id, one.registration.salt): one
            for one in self.roster.owners.values()
            if one.registration is not None and not one.alive
        }

    def _judged(self, name: str, item: names.Item) -> Owner:
        """Return who has this claim, judged alive or not even where nobody registered."""
        token = names.parse_token(item.token)
        if self._is_ours(token.driver, token.salt):
            # A claim whose reply was lost, or one we could not release when the disk was full.
            at_hand = item.token in self._queue.at_hand
            return Owner(id=token.driver, verdict="alive" if at_hand else "left")
        owner = self.roster.owner(token)
        if owner.registration is not None:
            return owner
        # A driver that never registered shows life by touching the file it claimed.
        try:
            touched = self._queue.directory.status(name).st_mtime_ns
        except FileNotFoundError:
            return Owner(id=token.driver, verdict="alive")
        self._watched.add(name)
        still = self._observer.unchanged_for(name, touched)
        return Owner(id=token.driver, verdict="lost" if still >= self._lease else "alive")

    def _recover_one(self, name: str, item: names.Item, owner: Owner, *, newest: bool) -> bool:
        """Whether the claim was taken back, rather than finished, or found gone."""
        if item.state == "written":
            made_for = self._made_for(item, owner)
            finals = finish_written(self._queue, item, name, made_for)
            message = "its driver had committed it"
            self._queue.note("recovered", item, message=message, outputs=finals)
            return False
        claim = self._queue.claim_of(item, name)
        ending = None
        if owner.verdict == "dead" and owner.registration is not None:
            ending = read_ending(owner.registration.dump)
        cause = _cause(owner, ending, newest=newest)
        ended = ENDINGS[cause]
        if ended.how == "release":
            return give_back(claim, ended.message) != "revoked"
        if self._queue.private.present(names.BREAKER):
            # Tried to see whether the stage works again: it does not, whatever the document is.
            why = f"its stage has stopped itself: {ended.message}"
            return give_back(claim, why) != "revoked"
        now = self._clock()
        failure = Failure(
            cause=ending.cause if ending else cause,
            message=(ending.message if ending else "") or ended.message,
            stacks=ending.stacks if ending else None,
        )
        doubted = ended.how != "charge"
        return charge(claim, failure, now, owner.host, doubted=doubted) != "revoked"

    def _made_for(self, item: names.Item, owner: Owner) -> tuple[str, ...]:
        """Return what the outputs of a claim were opened as; () when nobody said."""
        token = names.parse_token(item.token)
        if self._is_ours(token.driver, token.salt):
            return self._queue.opened_as
        return owner.registration.made_for(token.salt) if owner.registration is not None else ()

    def _note_stuck(self, item: names.Item, why: str) -> None:
        message = f"cannot be recovered: {why}"
        self._queue.note("stuck", item, message=message)

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
            old = gone.beat_at < self._clock() - EXPIRY
            if old and gone.id not in kept and self._is_still_gone(gone):
                # Another user's, in a sticky directory, is for that user to remove.
                with suppress(PermissionError):
                    self._queue.drivers.remove(f"{gone.id}.json")
        with suppress(PermissionError):
            self._queue.attempts.settle()

    def _is_still_gone(self, gone: Registration) -> bool:
        now = self.roster.named(gone.id)
        return now is not None and not now.alive and now.registration == gone

    def _set_aside(self, whose: Callable[[str], str | None]) -> set[str]:
        """Move unfinished outputs aside that have no claim, of all these drivers in one listing;
        of which of them anything is still there. `whose` tells them by an N; None: not theirs."""
        held = {item.token for _, item in self._claimed()}
        kept = {owner for token in held if (owner := whose(token)) is not None}
        for target in self._queue.targets:
            for name in [*target.directory.names()]:
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
            for attempt in range(self._queue.settings.retries + 1):
                if self._queue.directory.present(form(item.docid, attempt, item.token)):
                    return True
        return False


def _newest(claimed: Iterable[names.Item]) -> set[str]:
    """Return the N of the newest claim of each life of a driver."""
    newest: dict[tuple[str, str], tuple[int, str]] = {}
    for item in claimed:
        driver, serial, salt = names.parse_token(item.token)
        newest[driver, salt] = max(newest.get((driver, salt), (0, "")), (serial, item.token))
    return {token for _, token in newest.values()}


def _cause(owner: Owner, ending: Ending | None, *, newest: bool) -> str:
    """Return why a claim is taken back: a key of the table."""
    verdict, registration = owner.verdict, owner.registration
    if registration is not None and registration.broker:
        return "broker"
    if verdict == "left":
        return "left"
    if registration is not None and registration.batch == 1 and not newest:
        # It had ended this one, or could not give it back, before it went on to another.
        return "waiting"
    if verdict != "dead":
        return verdict
    if ending is None:
        return "crashed"
    dump = registration.dump if registration is not None else ""
    stalled = ending.stacks is not None and waited_for_files(dump, ending.stacks)
    return "stalled" if stalled and ending.cause == "hung" else ending.cause
