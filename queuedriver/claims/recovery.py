"""Finish or take back what dead drivers left. Anyone may, at any time, any number at once.

    .written              publish and finish it: it is committed; left alone where the queue's
                          settings do not say to which outputs, or these are other directories
                          than its driver opened
    .working, crashed     its process ended by itself: the attempt is charged
    .working, hung        ended by its own hard limit: charged, with the stacks it left; unless
                          they show it waiting for the queue's file system: as rebooted
    .working, memory      ended by its supervisor for what it took: charged
    .working, ended       ended by its supervisor for no fault of the document, or with it at once:
                          as rebooted
    .working, leaving     ended while it had been asked to leave: given back
    .working, rebooted    its host went down: given back, from the third time on charged
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
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import Literal

import msgspec

from queuedriver.claims.charging import charge, give_back
from queuedriver.claims.handoff import finish_written, move_aside
from queuedriver.claims.input_queue import InputQueue
from queuedriver.claims.leftovers import ENDED, SWEEP_EVERY, Swept, claims_in, sweep, sweep_rows
from queuedriver.claims.liveness import EXPIRY, Observer, Owner, Roster
from queuedriver.disk.processes import HIDDEN, kill_marked, process_ticks
from queuedriver.disk.runtime import forget_stacks, read_ending, waited_for_files
from queuedriver.errors import BadDocid, NotRegular, OutputMissing
from queuedriver.format import names
from queuedriver.format.records import LEASE, Failure, Registration

# A driver's id, and the salt of one of its lives.
Life = tuple[str, str]
# What a directory dressed as a claim, a damaged plan, one that somebody forged, or a claim that is
# another user's in a sticky directory ends in; and a commit whose output is in another directory.
BEYOND_US = (
    FileExistsError,
    IsADirectoryError,
    PermissionError,
    NotRegular,
    OutputMissing,
    BadDocid,
    msgspec.DecodeError,
)


# What a claim comes to by the cause of its driver's end, and what is said of it.
ENDINGS: dict[str, tuple[Literal["charge", "strike", "release"], str]] = {
    "crashed": ("charge", "the driver's process ended while it had the document"),
    "hung": ("charge", "the document took longer than its hard limit; the driver was ended"),
    "memory": ("charge", "the driver took more memory than it may"),
    "ended": ("strike", "the driver was ended by its supervisor"),
    "stalled": ("strike", "the driver waited for the file system when its hard limit ended it"),
    "rebooted": ("strike", "the host of the driver went down while it had the document"),
    "lost": ("strike", "the driver showed no life for its lease while it had the document"),
    "left": ("release", "its driver had left it"),
    "leaving": ("release", "its driver was ended while it was leaving"),
    "broker": ("release", "the broker that dealt it is gone"),
    "waiting": ("release", "its driver was at another document when it ended"),
}


class Recoverer:
    """Looks after one input queue's dead drivers."""

    def __init__(
        self,
        queue: InputQueue,
        observer: Observer,
        clock: Callable[[], float] = time.time,
        *,
        elsewhere: bool = False,
        drives: bool = False,
    ) -> None:
        self._queue = queue
        self._observer = observer
        # Who drives is one of a crowd, of which others look after their part.
        self.roster = Roster(queue.drivers, observer, queue.mint.driver if drives else "")
        self._clock = clock
        # The outputs are not those of the settings, but where an operator says that they are.
        self._elsewhere = elsewhere
        # Until when nobody here looks again for what each life that ended left. That is done twice:
        # an old listing may not show an output that was there, and nobody would come back to it.
        self._swept: dict[Life, float] = {}
        # Who starts has swept.
        self._sweep_at = clock() + SWEEP_EVERY
        # Claims of drivers that did not register: the observer knows since when each stands still.
        self._watched: set[str] = set()
        # Claims of the dead that nobody here can recover, as of the latest recovery: whoever waits
        # for the end of the queue would wait for ever.
        self.stuck: set[str] = set()

    def drivers(self, anew: bool) -> Collection[str]:
        """Return the ids of who lives, as far as is known; asked anew, with whoever has registered
        meanwhile."""
        if anew:
            self.roster.meet()
        return {one.id for one in self.roster.alive} | self.roster.others

    def newly_dead(self) -> bool:
        """Tell whether a driver is gone whose leftovers are to be looked for, or once more."""
        self.roster.refresh()
        return any(one.verdict != "left" for one in self._unswept().values())

    def recover(self, claimed: Sequence[str] | None = None) -> int:
        """Deal with every claim of a dead driver; return how many there were.

        `claimed` are the names that a pass has just seen; without them the queue is listed.
        """
        self.roster.refresh()
        # Whoever was given up wrongly may die yet, and leave more.
        for one in self.roster.alive:
            self._swept.pop(_life_of(one), None)
        dead = self._unswept()
        # Whatever its commands and servers still write must stop before anything is published.
        if here := [names.life_name(*gone) for gone, one in dead.items() if one.here]:
            kill_marked(here)
        recovered, unknown = self._recover_claims(
            names.claims(self._queue.directory.names() if claimed is None else claimed)
        )
        self._clean_up(dead, unknown)
        if claimed is None:
            self.forget_ended()
            if self._clock() >= self._sweep_at:
                # A driver may run for months, and whoever waits for its outputs to end waits for
                # what it left late.
                self._sweep_at = self._clock() + SWEEP_EVERY
                others = [target.directory for target in self._queue.targets]
                sweep(self._queue.directory, [*others, *filter(None, [self._queue.archive])])
        return recovered

    def forget_ended(self) -> None:
        """Drop what is remembered of documents that have ended: one that was taken back, and then
        done, has no attempt in its name for whoever finished it to go by."""
        if self._queue.attempts.docids():
            sweep_rows(Swept(self._queue.directory, self._queue.directory), [ENDED])

    def sweep_own(self) -> None:
        """Move our own outputs aside, after trouble, that were made though we were told that they
        were not, or left though we removed them: while they are there, a queue is not drained."""
        self._set_aside({self._us})

    # Claims

    @property
    def _us(self) -> Life:
        return self._queue.mint.driver, self._queue.mint.salt

    def _recover_claims(self, claimed: Iterable[tuple[str, names.Item]]) -> tuple[int, set[Life]]:
        """Finish or take back what the dead have claimed. Return how many claims there were, and
        the lives of those from whom claims were taken back, and who never registered."""
        # The newest last: as long as another is seen, so is the newest, by whoever else recovers.
        oldest_first = sorted(claimed, key=lambda one: names.parse_token(one[1].token).serial)
        newest = {life(item.token): item.token for _, item in oldest_first}.values()
        recovered, unknown = 0, set[Life]()
        watched, self._watched = self._watched, set()
        stuck, self.stuck = self.stuck, set()
        for name, item in oldest_first:
            owner = self._judged(name, item)
            if owner.alive:
                continue
            try:
                taken_back = self._recover_one(name, item, owner, newest=item.token in newest)
            except BEYOND_US as error:
                # One item that nobody can make sense of must not keep us from all the others.
                self.stuck.add(name)
                if name not in stuck:
                    message = f"cannot be recovered: {type(error).__name__}: {error}"
                    self._queue.note("stuck", item, message=message)
                continue
            recovered += 1
            if taken_back and owner.registration is None:
                unknown.add(life(item.token))
        for name in watched - self._watched:
            self._observer.forget(name)
        return recovered, unknown

    def _judged(self, name: str, item: names.Item) -> Owner:
        """Return who has this claim, judged alive or not even where nobody registered."""
        token = names.parse_token(item.token)
        if (token.driver, token.salt) == self._us:
            # A claim whose reply was lost, or one we could not release when the disk was full.
            at_hand = item.token in self._queue.at_hand
            return Owner(id=token.driver, verdict="alive" if at_hand else "left")
        if self.roster.leaves_to_others(token.driver):
            # Whoever looks after that driver sees whether it lives.
            return Owner(id=token.driver, verdict="alive")
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
        """Recover a claim; tell whether it was taken back, rather than finished, or found gone."""
        queue, registration = self._queue, owner.registration
        if item.state == names.WRITTEN:
            self._finish(name, item, registration)
            return False
        claim = queue.claim_of(item, name)
        ending = _ending(owner)
        cause = _cause(owner, ending, newest=newest)
        how, message = ENDINGS[cause]
        if how != "release" and queue.private.present(names.BREAKER):
            # Tried to see whether the stage works again: it does not, whatever the document is.
            how, message = "release", f"its stage has stopped itself: {message}"
        if how == "release":
            return give_back(claim, message) != "revoked"
        failure = Failure(cause=cause, message=message)
        if ending is not None:
            failure = msgspec.structs.replace(ending, message=ending.message or message)
        doubted = how == "strike"
        fate = charge(claim, failure, self._clock(), owner.host, doubted=doubted)
        return fate != "revoked"

    def _finish(self, name: str, item: names.Item, registration: Registration | None) -> None:
        """Publish and finish what was committed, if that can be done here."""
        queue, token = self._queue, names.parse_token(item.token)
        if not queue.targets:
            why = "the settings that it was committed under, and so its outputs, are lost"
            raise msgspec.ValidationError(why)
        made_for: Sequence[str] = ()
        if (token.driver, token.salt) == self._us:
            made_for = queue.opened_as
        elif registration is not None:
            made_for = registration.made_for(token.salt)
        if self._elsewhere and not made_for:
            # Nobody knows that it was made for these: that it is not there says nothing.
            raise OutputMissing(queue.output.path, item.docid)
        finals = finish_written(queue, item, name, made_for)
        queue.note("recovered", item, message="its driver had committed it", outputs=finals)

    # What is not a claim

    @property
    def _lease(self) -> float:
        return LEASE if self._observer.lease is None else self._observer.lease

    def _unswept(self) -> dict[Life, Owner]:
        """Return the drivers that are gone, and whose leftovers are to be looked for."""
        gone = {_life_of(one): one for one in self.roster.owners.values() if not one.alive}
        now = self._clock()
        return {one: owner for one, owner in gone.items() if now >= self._swept.get(one, 0.0)}

    def _clean_up(self, dead: dict[Life, Owner], unknown: set[Life]) -> None:
        """Deal with the rest of what these left, now that there are no claims of theirs; nobody can
        commit what the unknown wrote."""
        gone = [one.registration for one in dead.values() if one.registration is not None]
        lives = {(one.id, salt) for one in gone for salt in (one.salt, *one.past)} | unknown
        if not lives:
            return
        kept = {id for id, _ in self._set_aside(lives)}
        now = self._clock()
        for one in gone:
            key = one.id, one.salt
            self._swept[key] = math.inf if key in self._swept else now + self._lease
            if self._observer.is_here(one):
                forget_stacks(one.dump)
            if one.beat_at < now - EXPIRY and one.id not in kept:
                self.roster.remove(one)
        with suppress(PermissionError):
            self._queue.attempts.settle()

    def _set_aside(self, lives: Collection[Life]) -> set[Life]:
        """Move the unfinished outputs of these lives aside that have no claim, in one listing;
        return those lives of which anything is still there."""
        held = claims_in(self._queue.directory).union(self._queue.at_hand)
        kept = {life(token) for token in held}.intersection(lives)
        for target in self._queue.targets:
            for name in [one for one in target.directory.names() if f".{names.WRITING}" in one]:
                item = names.parse(name)
                if item is None or item.token in held or life(item.token) not in lives:
                    continue
                move_aside(target.directory, target.directory, name)
                kept.add(life(item.token))
        return kept


def life(token: str) -> Life:
    """Return whose claim it is by its N: the driver, and the salt of one of its lives."""
    driver, _, salt = names.parse_token(token)
    return driver, salt


def _life_of(owner: Owner) -> Life:
    return owner.id, owner.registration.salt if owner.registration is not None else ""


def _ending(owner: Owner) -> Failure | None:
    """Return how a driver of this host ended, where somebody has noted it. Who might have is gone,
    too? What ended both was no document. None when nobody knows."""
    registration = owner.registration
    if owner.verdict != "dead" or registration is None:
        return None
    if (noted := read_ending(registration.dump)) is not None:
        return noted
    pid, since = registration.supervisor, registration.supervisor_ticks
    if not (owner.here and pid) or process_ticks(pid) in (since, HIDDEN):
        return None
    return Failure(cause="ended", message="the driver ended together with its watchdog")


def _cause(owner: Owner, ending: Failure | None, *, newest: bool) -> str:
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
    is_killed = ending is None or ending.signal == "SIGKILL" or ending.cause == "ended"
    if registration is not None and registration.leaving and is_killed:
        # Whoever asked for it did not wait for long, as a cluster that needs the place.
        return "leaving"
    if ending is None:
        return "crashed"
    dump = registration.dump if registration is not None else ""
    stalled = ending.stacks is not None and waited_for_files(dump, ending.stacks)
    return "stalled" if stalled and ending.cause == "hung" else ending.cause
