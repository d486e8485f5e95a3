"""A broker's session that is yet to move to the exchange, with the exchange's face."""

import math
from collections.abc import Sequence
from typing import Any

from queuedriver.claims.outcomes import Doubted, Failed
from queuedriver.doors.exchange import Exchange
from queuedriver.doors.words import (
    Answer,
    Answered,
    BrokerSession,
    Done,
    Effects,
    End,
    Lost,
    Processed,
    Request,
    Send,
    SetBack,
    Work,
)
from queuedriver.format.records import Failure


class Former:
    """It translates what such a session is told and says."""

    leaving = False
    request_patience = math.inf
    max_requests = 1_000_000

    def __init__(self, session: BrokerSession) -> None:
        self._session = session
        self._spared: set[str] = set()

    def joined(self, peer: bytes, now: float) -> Effects:
        return _translated(self._session.joined(peer, now))

    def hear(self, peer: bytes, frames: Sequence[bytes], now: float, wall: float) -> Effects:
        return _translated(self._session.receive(peer, frames, now, wall))

    def gone(self, peer: bytes, now: float) -> Effects:
        return _translated(self._session.gone(peer, now))

    def undelivered(self, peer: bytes, claim: str, now: float) -> Effects:
        return _translated(self._session.gone(peer, now, claim))

    def refusal(self, request: Request, why: str, *, late: bool = False) -> Answer | None:
        return None

    def new_round(self) -> None:
        for service in self._spared:
            self._session.spare(service, wanted=False)
        self._spared.clear()

    def pick(self, service: str, now: float, need: int = 1, *, alone: bool = False) -> bool | None:
        if alone and service not in self._spared:
            self._session.spare(service, wanted=True)
            self._spared.add(service)
        ready = self._session.ready
        return (ready(service, alone) if alone else ready(service)) or None

    def deal(self, worker: object, work: Work, now: float) -> Send | End:
        effects = _translated(self._session.deal(work, now))
        (sent,) = (one for one in effects if isinstance(one, Send | End))
        return sent

    def leave(self, now: float) -> Effects:
        self.leaving = True
        return _translated(self._session.leave(now))

    def tick(self, now: float, wall: float) -> Effects:
        return _translated(self._session.tick(now))

    def next_tick_at(self) -> float | None:
        return self._session.next_tick_at()


def exchange_of(session: Any) -> Any:
    """Return a session with the exchange's face."""
    return session if isinstance(session, Exchange) else Former(session)


def _translated(effects: Effects) -> Effects:
    translated: Effects = []
    for effect in effects:
        if isinstance(effect, Done):
            translated.append(End(effect.claim, Processed(effect.results)))
        elif isinstance(effect, SetBack):
            translated.append(End(effect.claim, effect.how))
        elif isinstance(effect, Answered):
            translated.append(End(effect.claim, Answer(effect.peer, effect.frames)))
        elif isinstance(effect, Lost):
            message = f"its worker was lost ({effect.why}) while it had the document"
            failure = Failure(cause="worker-lost", message=message)
            how = Doubted(failure) if effect.doubted else Failed(failure)
            translated += [End(claim, how) for claim in effect.claims]
        else:
            translated.append(effect)
    return translated
