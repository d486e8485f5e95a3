"""Clients' sessions of the protocols that have clients, as `client.py` asks them."""

from collections.abc import Sequence

from queuedriver.claims.outcomes import Failed
from queuedriver.doors.client import Reply
from queuedriver.doors.roundrobin import tables as roundrobin
from queuedriver.doors.roundrobin.client import Ended, RoundRobinClient
from queuedriver.doors.roundrobin.documents import outcome_of
from queuedriver.doors.roundrobin.frames import decode
from queuedriver.doors.scale0 import client as scale0_client
from queuedriver.doors.words import Processed, Send
from queuedriver.errors import RemoteProtocolError


class RoundRobin:
    """Documents for roundrobin, tracked or (`EXEC`) not."""

    def __init__(self, serial: int, timeout: float, tracked: bool) -> None:
        options = roundrobin.Options(give_up_after=timeout)
        self._client = RoundRobinClient(options, serial=serial)
        self._tracked = tracked

    def ask(self, docid: str, payload: bytes, now: float) -> tuple[bytes, Sequence[Send | Reply]]:
        effects = self._client.document(docid, payload, now, self._tracked)
        sent = next(one for one in effects if isinstance(one, Send))
        return decode(sent.frames).id, _replies(effects)

    def receive(self, frames: Sequence[bytes], now: float, wall: float) -> Sequence[Send | Reply]:
        return _replies(self._client.receive(frames, now, wall))

    def tick(self, now: float, wall: float) -> Sequence[Send | Reply]:
        return _replies(self._client.tick(now, wall))

    def next_tick_at(self) -> float | None:
        return self._client.next_tick_at()


class Scale0:
    """Documents for one service of scale0."""

    def __init__(self, service: str, prefix: str, timeout: float) -> None:
        options = scale0_client.ClientOptions(service=service, give_up_after=timeout)
        self._client = scale0_client.Client(options, prefix)

    def ask(self, docid: str, payload: bytes, now: float) -> tuple[bytes, Sequence[Send | Reply]]:
        id, effects = self._client.ask(docid, payload, now)
        return id, _plain(effects)

    def receive(self, frames: Sequence[bytes], now: float, wall: float) -> Sequence[Send | Reply]:
        return _plain(self._client.receive(frames, now, wall))

    def tick(self, now: float, wall: float) -> Sequence[Send | Reply]:
        return _plain(self._client.tick(now, wall))

    def next_tick_at(self) -> float | None:
        return self._client.next_tick_at()


def _plain(effects: Sequence[Send | scale0_client.Ended]) -> list[Send | Reply]:
    return [
        one if isinstance(one, Send) else Reply(one.id, one.results, one.why) for one in effects
    ]


def _replies(effects: Sequence[Send | Ended]) -> list[Send | Reply]:
    return [one if isinstance(one, Send) else _reply(one) for one in effects]


def _reply(ended: Ended) -> Reply:
    if not ended.good:
        return Reply(ended.id, (), ended.why or "it failed")
    if not ended.args:
        # Nothing is ever heard of what is not tracked.
        return Reply(ended.id, ())
    try:
        outcome = outcome_of(ended.args)
    except RemoteProtocolError as error:
        return Reply(ended.id, (), str(error))
    if isinstance(outcome, Processed):
        return Reply(ended.id, outcome.results)
    words = outcome.failure.message if isinstance(outcome, Failed) else outcome.reason
    return Reply(ended.id, (), words)
