"""Scale0: the requests of frontends that a broker knows of, and how long they may wait. Pure.

The requests themselves are on disk. After a restart none of them is known here: they wait for a
worker as documents do, until their frontends repeat them.
"""

from collections import OrderedDict

import msgspec

from queuedriver.doors.scale0.tables import DEALT, NEW, OVER, REQUEST, WAITING, Options
from queuedriver.doors.scale0.wire import (
    MALFORMED,
    MAX_NAME,
    NO_RESPONSE,
    NOT_ACCEPTING,
    UNKNOWN,
    DisconnectError,
    WorkRequest,
    encode,
    frontend_identity,
    frontend_name,
    has_envelope,
)
from queuedriver.doors.words import Answered, Asked, Effects, Request, Say, Send


class _Known(msgspec.Struct):
    state: str
    envelope: bool = False
    # WAITING: until when.
    deadline: float = 0.0
    # OVER: whether its frontend got what a worker, or nobody any more, made of it.
    answered: bool = False


class Requests:
    """What frontends asked for, by identifier."""

    def __init__(self, options: Options) -> None:
        self._options = options
        # Those that wait: the first is the oldest, for all may wait equally long.
        self._waiting: OrderedDict[str, _Known] = OrderedDict()
        self._dealt: dict[str, _Known] = {}
        # Those that are over, so that one that is repeated is known for the same.
        self._over: OrderedDict[str, _Known] = OrderedDict()

    def ask(
        self, peer: bytes, frames: tuple[bytes, ...], event: WorkRequest, now: float, leaving: bool
    ) -> Effects:
        """A frontend asks, perhaps not for the first time."""
        identifier = f"{frontend_name(peer)}:{event.message_id}"
        known = self._find(identifier)
        state, answered = (known.state, known.answered) if known else (NEW, False)
        if state == NEW or (state == OVER and not answered):
            code, when, text = self._objection(event, leaving)
            if code:
                REQUEST.step(NEW, "WORKREQUEST", when)
                return [Send(peer, _refusal(event.message_id, has_envelope(frames), code, text))]
        to = REQUEST.step(state, "WORKREQUEST", "answered" if answered else "")
        if to == WAITING and state != WAITING:
            self._over.pop(identifier, None)
            self._wait(identifier, has_envelope(frames), now)
        return [Asked(Request(identifier.encode(), frames, event.service))]

    def dealt(self, request: Request) -> None:
        """A worker has it."""
        identifier = name_of(request)
        self._waiting.pop(identifier, None)
        self._over.pop(identifier, None)
        self._dealt[identifier] = _Known(DEALT, has_envelope(request.frames))

    def again(self, request: Request, now: float) -> None:
        """Its worker left, or is lost: it waits for another."""
        identifier = name_of(request)
        known = self._dealt.pop(identifier)
        REQUEST.own_step(known.state, "its worker left")
        self._wait(identifier, known.envelope, now)

    def answered(self, request: Request) -> None:
        """A worker answered it."""
        identifier = name_of(request)
        REQUEST.own_step(self._dealt.pop(identifier).state, "WORKREPLY")
        self._close(identifier, _Known(OVER, answered=True))

    def give_up(self, claim: str, request: Request, attempt: int) -> Effects:
        """444, when too many workers were lost over it; nothing, when another may try."""
        lost = attempt + 1
        if lost < self._options.attempts:
            return []
        identifier = name_of(request)
        REQUEST.own_step(self._dealt.pop(identifier).state, "its worker is lost", "once too often")
        self._close(identifier, _Known(OVER, answered=True))
        return [self._answer(claim, request, NO_RESPONSE, f"{lost} workers were lost over it")]

    def refused_before(self, claim: str, request: Request) -> Effects:
        """Its frontend was told that nobody takes it, so nobody does: it is finished instead."""
        known = self._over.get(name_of(request))
        if known is None or known.answered:
            return []
        return [self._answer(claim, request, NOT_ACCEPTING, "no worker came in time")]

    def tick(self, now: float) -> Effects:
        """503 for those that no worker took in time."""
        effects: Effects = []
        while (at := self.next_tick_at()) is not None and at <= now:
            identifier, known = self._waiting.popitem(last=False)
            self._close(identifier, _Known(REQUEST.own_step(known.state, "time-out")))
            text = f"no worker came within {self._options.request_timeout:g} s"
            frames = _refusal(_message_id(identifier), known.envelope, NOT_ACCEPTING, text)
            effects.append(Send(frontend_identity(identifier), frames))
            effects.append(Say(1, f"{identifier}: {text}"))
        return effects

    def next_tick_at(self) -> float | None:
        """When the oldest has waited for too long."""
        return next((known.deadline for known in self._waiting.values()), None)

    def _objection(self, event: WorkRequest, leaving: bool) -> tuple[int, str, str]:
        """Code, condition and words for a request that is not taken; code 0 for one that is."""
        if not 0 < len(event.message_id) <= MAX_NAME:
            text = f"a request needs a message_id of at most {MAX_NAME} characters"
            return MALFORMED, "without an id", text
        if event.service not in self._options.services:
            has = ", ".join(map(repr, self._options.services))
            return UNKNOWN, "no such service", f"no such service; there are: {has}"
        if leaving or len(self._waiting) >= self._options.max_requests:
            text = "the broker leaves" if leaving else "too many requests wait"
            return NOT_ACCEPTING, "full or leaving", text
        return 0, "", ""

    def _find(self, identifier: str) -> _Known | None:
        for book in (self._waiting, self._dealt, self._over):
            if (found := book.get(identifier)) is not None:
                return found
        return None

    def _wait(self, identifier: str, envelope: bool, now: float) -> None:
        deadline = now + self._options.request_timeout
        self._waiting[identifier] = _Known(WAITING, envelope, deadline)

    def _close(self, identifier: str, known: _Known) -> None:
        self._over[identifier] = known
        if len(self._over) > self._options.max_requests:
            self._over.popitem(last=False)

    def _answer(self, claim: str, request: Request, code: int, text: str) -> Answered:
        identifier = name_of(request)
        frames = _refusal(_message_id(identifier), has_envelope(request.frames), code, text)
        return Answered(claim, frontend_identity(identifier), frames)


def name_of(request: Request) -> str:
    """The identifier of a frontend's request."""
    return request.key.decode(errors="replace")


def _message_id(identifier: str) -> str:
    return identifier.partition(":")[2]


def _refusal(message_id: str, envelope: bool, code: int, text: str) -> tuple[bytes, ...]:
    error = DisconnectError(error_code=code, error_message=text, message_id=message_id[:MAX_NAME])
    return encode(error, envelope=envelope)
