"""Fuq's broker, which is not on the exchange yet, with the exchange's face."""

from collections.abc import Sequence
from typing import Any

from queuedriver.claims.outcomes import Doubted, Failed
from queuedriver.doors.exchange import Exchange
from queuedriver.doors.words import End, Lost, Send, SetBack, Work
from queuedriver.format.records import Failure


class Former:
    """It translates what such a session is told and says."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def joined(self, peer: bytes, now: float) -> list[Any]:
        return _translated(self._session.joined(peer, now))

    def hear(self, peer: bytes, frames: Sequence[bytes], now: float, wall: float) -> list[Any]:
        return _translated(self._session.receive(peer, frames, now, wall))

    def gone(self, peer: bytes, now: float) -> list[Any]:
        return _translated(self._session.gone(peer, now))

    def pick(self, service: str, now: float) -> bool | None:
        return self._session.ready(service) or None

    def deal(self, worker: object, work: Work, now: float) -> Send | End:
        effects = _translated(self._session.deal(work, now))
        (sent,) = (one for one in effects if isinstance(one, Send | End))
        return sent

    def tick(self, now: float, wall: float) -> list[Any]:
        return _translated(self._session.tick(now))

    def next_tick_at(self) -> float | None:
        at: float | None = self._session.next_tick_at()
        return at


def exchange_of(session: Any) -> Any:
    """Return a session with the exchange's face."""
    return session if isinstance(session, Exchange) else Former(session)


def _translated(effects: Sequence[Any]) -> list[Any]:
    translated: list[Any] = []
    for effect in effects:
        if isinstance(effect, SetBack):
            translated.append(End(effect.claim, effect.how))
        elif isinstance(effect, Lost):
            failure = Failure(cause="worker-lost", message=effect.why)
            how = Doubted(failure) if effect.doubted else Failed(failure)
            translated += [End(claim, how) for claim in effect.claims]
        else:
            translated.append(effect)
    return translated
