"""How much one peer may send. Pure.

Each has a bucket of messages that fills at a rate: who stays below it never notices, and who sends
without end keeps nobody else from being heard.
"""

import msgspec

# Messages per second and peer, and how many may come at once. A worker of no-op documents sends
# some thousand.
RATE = 20_000.0
BURST = 40_000.0
# Peers that are remembered; whoever is forgotten starts with a full bucket.
_MOST_PEERS = 20_000


class _Bucket(msgspec.Struct):
    left: float
    at: float


class Meter:
    """Buckets by peer."""

    def __init__(self, rate: float = RATE, burst: float = BURST) -> None:
        self._rate = rate
        self._burst = burst
        self._buckets: dict[bytes, _Bucket] = {}

    def allow(self, peer: bytes, now: float) -> bool:
        """Whether one message more is within what it may send."""
        bucket = self._buckets.get(peer)
        if bucket is None:
            if len(self._buckets) >= _MOST_PEERS:
                self._buckets.clear()
            self._buckets[peer] = _Bucket(self._burst - 1, now)
            return True
        if bucket.left < 1:
            bucket.left = min(self._burst, bucket.left + (now - bucket.at) * self._rate)
            bucket.at = now
            if bucket.left < 1:
                return False
        bucket.left -= 1
        return True

    def forget(self, peer: bytes) -> None:
        """It is gone."""
        self._buckets.pop(peer, None)
