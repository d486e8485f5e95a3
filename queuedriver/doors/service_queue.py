"""One service of a broker: its input queue, from which work is taken, and where its ends go.

    a document    claimed, dealt; `Processed` → written, committed, published like any driver's
    a request     kept on disk, claimed, dealt; `Answer` → answer kept, request finished, sent

What waits is dealt in the order in which this broker first saw it. Clients' requests join the end
as they come. Documents are listed a few at a time, when none of those that were listed before is
left; so neither can starve the other, and memory does not depend on how much waits.

What has failed, and what was in the hands of a worker that was lost, is suspect: it goes alone, and
waits apart, so that the others go on meanwhile.
"""

import time
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar, NamedTuple

import msgspec

from queuedriver.claims import outcomes
from queuedriver.claims.charging import give_back_later
from queuedriver.claims.document import Output
from queuedriver.claims.handoff import Claim, hand_over
from queuedriver.claims.input_queue import InputQueue
from queuedriver.claims.outcomes import DONE, Ending, Failed, Released, Setback
from queuedriver.doors.exchange import Exchange
from queuedriver.doors.requests import PREFIX, Requests
from queuedriver.doors.transports.base import AROUND
from queuedriver.doors.words import Answer, Effects, How, Processed, Request, Work
from queuedriver.driving.limits import Limits
from queuedriver.driving.live_status import Tally
from queuedriver.errors import BadDocid, ConfigError, ProcessorFailed, QueueClosed
from queuedriver.format import names
from queuedriver.format.records import Failure

# How many documents are listed ahead; and how many suspects besides.
_AHEAD = 64
# How long an empty queue is not listed again, in seconds: what wakes the broker meanwhile is nearly
# always a frame. A hint, and the end of a nap, end it.
_REST = 1.0
# How often it is looked which requests are late, and whose clients did not come back; and for how
# long it is known whether another broker lives. Seconds.
_LOOK_EVERY = 1.0
# What is dealt within so many seconds has waited alike: one look at one of them is enough.
_WAITS_ALIKE = 0.1


class Head(NamedTuple):
    """What is next of something that waits apart."""

    service: str
    # How much of a worker's room it takes.
    need: int = 1
    # Whether it goes alone.
    alone: bool = False


class Dealt(msgspec.Struct, frozen=True):
    """What is in a worker's hands."""

    claim: Claim
    request: Request | None
    # On the monotonic clock.
    since: float


class ServiceQueue(msgspec.Struct, eq=False):
    """What waits for one service, and what its workers have."""

    # Each document is one work.
    unpack: ClassVar[None] = None
    service: str
    queue: InputQueue
    requests: Requests
    _exchange: Exchange[Any]
    _tally: Tally
    _limits: Limits
    _max_message: int
    # What workers have, by claim. What else carries our id on disk was lost track of.
    dealt: dict[str, Dealt] = {}
    # What may go beside others, and whether it came from a listing; what goes alone.
    _waiting: OrderedDict[str, bool] = msgspec.field(default_factory=OrderedDict)
    _suspects: OrderedDict[str, bool] = msgspec.field(default_factory=OrderedDict)
    _alone: Head = Head("")
    _others: Head = Head("")
    # How many came from a listing; and of which docids something was remembered by then.
    _listed: int = 0
    _troubled: frozenset[str] = frozenset()
    _rest_until: float = 0.0
    _look_at: float = 0.0
    # How long what is dealt now has waited, None where nobody knows; and until when that is so.
    _waited: float | None = None
    _waited_until: float = 0.0
    # Which other brokers live, as far as is known.
    _lives: dict[str, bool] = {}

    def __post_init__(self) -> None:
        self.queue.at_hand = self.dealt.keys()
        self._alone, self._others = Head(self.service, alone=True), Head(self.service)

    def close(self) -> None:
        self.requests.close()

    @property
    def unfinished(self) -> int:
        """Return how many workers have."""
        return len(self.dealt)

    def heads(self, now: float) -> Sequence[Head]:
        """Return what is next, what goes alone first. It is listed even if nobody would take
        anything: that is how the end of a queue is noticed."""
        if not self._listed and now >= self._rest_until:
            self._list(now)
        if self._suspects:
            return (self._alone, self._others) if self._waiting else (self._alone,)
        return (self._others,) if self._waiting else ()

    def wake(self) -> None:
        """Rest no longer: there may be something new."""
        self._rest_until = 0.0
        self.queue.waiting.wake()

    def clean(self) -> None:
        """Open everything anew: the file system is well again, and what was seen may be no more."""
        self.requests.reopen()
        self._waiting.clear()
        self._suspects.clear()
        self._listed = 0
        self.wake()
        give_back_later(self.queue.later)

    def _list(self, now: float) -> None:
        waiting, picker = self.queue.waiting, self.queue.waiting.picker
        passes = picker.passes
        self._troubled = self.queue.attempts.docids()
        while waiting.list_more(now):
            while waiting.names:
                self._add(waiting.names.pop())
            # However many suspects there are, what is behind them is listed when some have gone.
            if max(self._listed, len(self._suspects)) >= _AHEAD:
                return
            if picker.passes > passes:
                # The queue has been gone through; of what waits here already it never ends.
                break
        if not (self._listed or picker.counts.left):
            self._rest_until = now + _REST

    def _add(self, name: str) -> None:
        """Let a name wait that was listed."""
        if name in self._waiting or name in self._suspects:
            return
        docid, attempt = name[:-6], 0
        if not names.is_plain(name):
            if (item := names.parse(name)) is None:
                return
            docid, attempt = item.docid, item.attempt
        if attempt or docid in self._troubled:
            self._suspects[name] = True
        elif not (docid.startswith(PREFIX) and self._is_elsewhere(docid)):
            self._waiting[name] = True
            self._listed += 1

    def _is_elsewhere(self, docid: str) -> bool:
        """Tell whether this is a request whose client is with another broker that lives."""
        # The one that the client brought it to.
        broker = names.parse_token(docid.removeprefix(PREFIX)).driver
        if broker == self.queue.mint.driver:
            return False
        if broker not in self._lives:
            holder = self.queue.recoverer.roster.holder(broker)
            self._lives[broker] = holder is not None and holder.broker
        return self._lives[broker]

    # Take

    def take(self, head: Head, now: float) -> Work | None:
        """Claim what is next, and read it; None when it was not to be had, or has ended already."""
        usual = False
        if head.alone:
            name, _ = self._suspects.popitem(last=False)
            if not self._suspects:
                # They may have been in the way of a listing.
                self.wake()
        else:
            name, listed = self._waiting.popitem(last=False)
            self._listed -= listed
            usual = names.is_plain(name) is not None
        board = self._tally.board
        if board is not None and now >= self._waited_until:
            self._waited = self.queue.waiting.waited(name)
            self._waited_until = now + _WAITS_ALIKE
        for claim in self.queue.claim([name], usual=usual):
            try:
                payload, request = _read(claim, self.requests, self._max_message)
            except (ProcessorFailed, OSError) as error:
                # It cannot be read, or not be sent.
                self._end_claim(claim, outcomes.from_exception(error), 0.0)
                return None
            facts = claim.token, claim.docid, claim.attempt, payload, self.service
            work = Work(*facts, request, head.alone)
            if request is not None and not self._is_open(claim, request, now):
                return None
            if request is None or request.answered:
                self.dealt[claim.token] = Dealt(claim, request, now)
                if board is not None:
                    self._tally.began(claim.docid)
                    if self._waited is not None:
                        self._tally.measured.waited(self._waited, 1)
            return work
        return None

    def _is_open(self, claim: Claim, request: Request, now: float) -> bool:
        """Tell whether a request that was claimed is to be dealt; finish it where that is first."""
        self.requests.waiting.pop(claim.docid, None)
        if self.requests.is_answered(claim.docid):
            self._finish(claim, now)
            return False
        # At most once, where nobody waits for it: it is finished before it is sent, and by us.
        return request.answered or self._finish(claim, now)

    # Ends

    def end(self, claim: str, how: How, now: float) -> bool:
        """End what a worker had; False when it is none of ours, or not any more. An OSError says
        that the queue is not well: an answer is then to be brought again."""
        dealt = self.dealt.get(claim)
        if dealt is None:
            return False
        if isinstance(how, Answer):
            if dealt.request is not None:
                self._answer(dealt, dealt.request, how, now)
            return True
        del self.dealt[claim]
        if isinstance(how, Processed):
            self._publish(dealt.claim, how, now - dealt.since)
            return True
        try:
            self._end_claim(dealt.claim, how, 0.0)
        finally:
            self.wake()
            if dealt.request is not None:
                self._waits_again(dealt.claim, dealt.request, how, now)
        return True

    def _publish(self, claim: Claim, how: Processed, seconds: float) -> None:
        """Write down what came of a document, and hand it over."""
        self._clear(claim)
        try:
            for one in how.results:
                answer = one.data if one.name is None else Output(one.data, one.name)
                claim.outputs.take(answer, self._limits)
        except (ProcessorFailed, BadDocid, ConfigError, OSError) as error:
            # A name that cannot be used, no output at all, or a disk that is not well.
            self._end_claim(claim, outcomes.from_exception(error), seconds)
            return
        if claim.outputs.blind and hand_over(claim):
            self.queue.handed_over.append((time.time(), claim, seconds))
        else:
            self._end_claim(claim, DONE, seconds)

    def _answer(self, dealt: Dealt, request: Request, answer: Answer, now: float) -> None:
        claim = dealt.claim
        reply = self.requests.write(claim.docid, request, answer)
        self.dealt.pop(claim.token, None)
        try:
            self._clear(claim)
            self._finish(claim, now, now - dealt.since)
        finally:
            # The answer is on disk: whatever becomes of the request, it will not be done again.
            self.requests.hand_over(reply, now)

    def _waits_again(self, claim: Claim, request: Request, how: Setback, now: float) -> None:
        """Let a request wait for another worker; tell its client when it was discarded."""
        if claim.fate == "discarded":
            why = outcomes.first_line(how.failure) if isinstance(how, Failed) else how.reason
            self.requests.refused(claim.docid, request, self._exchange.refusal(request, why), now)
        elif claim.fate != "revoked":
            self.requests.waiting[claim.docid] = now

    def _finish(self, claim: Claim, now: float, seconds: float = 0.0) -> bool:
        """Finish a request, of which there is nothing to publish; return whether it was ours."""
        self._end_claim(claim, DONE, seconds)
        if claim.fate == "revoked":
            return False
        self.requests.finished(claim.docid, now)
        return True

    def _end_claim(self, claim: Claim, ending: Ending, seconds: float) -> None:
        """End a claim, and count what became of it. Of what workers do none is our work."""
        try:
            claim.of.end([claim], [ending], seconds)
        finally:
            self._tally.book([claim.fate], 0.0)

    def _clear(self, claim: Claim) -> None:
        """Forget that it was taken back, as it is done: its name does not say so, and nobody else
        would. A crash before it is committed costs it no more than that."""
        if claim.docid in self._troubled and not claim.attempt:
            self.queue.attempts.forget(claim.docid, claim.inode())

    def give_back(self, why: str) -> None:
        """Release what workers still have: it is others' from now on, and charged to nobody."""
        for dealt in self.dealt.values():
            # What cannot be given back is so by whoever recovers it, and charged to nobody either.
            with suppress(OSError):
                self._end_claim(dealt.claim, Released(why), 0.0)
        self.dealt.clear()

    # Clients

    def ask(self, request: Request, now: float) -> str:
        """Let a client's request wait, or answer it again; return why it is not taken, if so."""
        full = len(self.requests.waiting) >= self._exchange.max_requests
        if full and not self.requests.knows(request):
            return self._turn_away(request, "too many requests wait")
        try:
            found = self.requests.keep(request, time.time_ns() // 1000, now)
        except QueueClosed as error:
            self._turn_away(request, "its queue is closed")
            return str(error)
        if isinstance(found, str):
            self._waiting[names.waiting_name(found, 0)] = False
        elif found is not None:
            # It has been answered, and that was lost on its way, or its client was.
            self.requests.send_again(found)
        return ""

    def _turn_away(self, request: Request, why: str) -> str:
        """Tell a client, if it waits, why its request is not taken; return that."""
        if request.answered:
            self.requests.turn_away(request, self._exchange.refusal(request, why, late=True))
        return why

    def turn(self, now: float) -> Effects:
        """See once a second which requests are late, and which answers nobody came back for."""
        if now < self._look_at:
            return []
        self._look_at = now + _LOOK_EVERY
        self._lives.clear()
        self.requests.look(now)
        for docid in self.requests.late(now, self._exchange.request_patience):
            self._refuse_late(docid, now)
        return []

    def next_turn_at(self) -> float | None:
        """Return when `turn` is worth calling; None while nobody waits for anything."""
        return self._look_at if self.requests.held or self.requests.waiting else None

    def _refuse_late(self, docid: str, now: float) -> None:
        """Finish a request that no worker took in time, and tell its client; unless it is not
        listed, as one that failed a moment ago."""
        head, waiting, name = self._others, self._waiting, names.waiting_name(docid, 0)
        if name not in waiting:
            head, waiting = self._alone, self._suspects
            name = next((one for one in waiting if one.startswith(f"{docid}.")), "")
        if name not in waiting:
            # It may be another's by now; else its time begins anew.
            self.requests.waiting[docid] = now
            return
        waiting.move_to_end(name, last=False)
        work = self.take(head, now)
        # One that nobody waits for is finished when it is taken.
        if work is None or work.request is None or not work.request.answered:
            return
        if self._finish(self.dealt.pop(work.claim).claim, now):
            self._turn_away(work.request, "no worker came in time")


def _read(claim: Claim, requests: Requests, most: int) -> tuple[bytes, Request | None]:
    """Return a document's contents, and the request that it is, if it is one."""
    size = claim.directory.status(claim.name).st_size
    payload = claim.read() if size <= most + AROUND else b""
    is_request = claim.docid.startswith(PREFIX)
    request = requests.recognize(claim.docid, payload) if is_request else None
    # What came as a message can go as one.
    if size > most and (request is None or size > len(payload)):
        message = f"it has {size} bytes; a message may have {most}"
        raise ProcessorFailed(Failure(cause="too-large", message=message, permanent=True))
    return payload, request
