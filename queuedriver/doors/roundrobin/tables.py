"""roundrobin: clients bring, a broker deals by free slots, workers answer. Its tables. Pure.

    client → broker    EXEC or TRACKEXEC: what is to be done, for whichever worker
    broker → worker    the same, and documents of a queue as TRACKEXEC DOCUMENT
    worker → broker    REGISTER, DEREGISTER, INCREMENT (one slot is free again); RESPONSE
    broker → client    a worker's RESPONSE, as it came

What has addresses on top is only passed on. A worker is dealt to as long as it has free slots, the
one that was dealt to longest ago first. RESPONSE ends a document or a request, INCREMENT frees its
slot: they come one after the other, and each says nothing of the other.

    frames.py     one message, its frames and what they mean
    broker.py     the broker's side
    worker.py     a worker's, and a server's that has no broker
    client.py     a client's
    documents.py  a document and its outcome as messages
    stream.py     STREAM: an answer in parts
"""

import msgspec

from queuedriver.doors.table import Row, Table
from queuedriver.errors import ConfigError

ENDPOINT = "tcp://127.0.0.1:6714"
SLOTS = 10
# What a RESPONSE to DOCUMENT begins with, as a command's exit code would.
DONE = b"0"
FAILED = b"1"
PERMANENT = b"65"
LATER = b"75"
# Two frames each, and a message may have 64, eight hops included.
MAX_RESULTS = 24


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The intervals of the protocol, in seconds, and its limits."""

    # How often a broker tries whether busy workers can still be reached.
    probe_interval: float = 1.0
    # How long a worker may have one document or request; None: as long as it can be reached.
    job_timeout: float | None = None
    max_workers: int = 10_000

    def check(self) -> "Options":
        """ConfigError for what cannot work."""
        if self.probe_interval <= 0:
            raise ConfigError("the intervals of roundrobin must be above 0")
        if self.job_timeout is not None and self.job_timeout <= 0:
            raise ConfigError("--job-timeout must be above 0")
        return self


UNKNOWN, REGISTERED, LEAVING = "unknown", "registered", "leaving"

BROKER = Table(
    "How the broker sees a peer",
    [
        Row(UNKNOWN, "REGISTER", "", "list it with its slots; RESPONSE", REGISTERED),
        Row(UNKNOWN, "REGISTER", "no room", "say so", UNKNOWN, ours=True),
        Row(UNKNOWN, "DEREGISTER", "", "ignore", UNKNOWN),
        Row(UNKNOWN, "INCREMENT", "", "ignore; ask it to register", UNKNOWN),
        Row(UNKNOWN, "RESPONSE", "late", "drop; ask it to register", UNKNOWN, ours=True),
        Row(UNKNOWN, "PONG", "", "ignore", UNKNOWN, ours=True),
        Row(UNKNOWN, "PING", "", "PONG", UNKNOWN),
        Row(UNKNOWN, "request", "", "keep; deal when it is its turn", UNKNOWN),
        Row(UNKNOWN, "pass", "to a worker", "pass it on", UNKNOWN),
        Row(REGISTERED, "REGISTER", "", "set its slots, less those taken; RESPONSE", REGISTERED),
        Row(REGISTERED, "DEREGISTER", "", "strike it off", UNKNOWN),
        Row(REGISTERED, "DEREGISTER", "in hand", "deal it nothing more", LEAVING, ours=True),
        Row(REGISTERED, "INCREMENT", "", "one slot is free, at most all", REGISTERED),
        Row(REGISTERED, "RESPONSE", "in hand", "publish or set back", REGISTERED, ours=True),
        Row(REGISTERED, "RESPONSE", "late", "drop", REGISTERED, ours=True),
        Row(REGISTERED, "PONG", "", "it is there", REGISTERED, ours=True),
        Row(REGISTERED, "PING", "", "PONG", REGISTERED),
        Row(REGISTERED, "request", "", "keep; deal when it is its turn", REGISTERED),
        Row(REGISTERED, "pass", "given", "pass it on, unchanged", REGISTERED),
        Row(REGISTERED, "pass", "answer", "keep, finish, pass it on", REGISTERED, ours=True),
        Row(REGISTERED, "pass", "late", "drop", REGISTERED, ours=True),
        Row(REGISTERED, "deal", "", "EXEC or TRACKEXEC; one slot is taken", REGISTERED),
        Row(REGISTERED, "lost", "", "charge what it had, if just one", UNKNOWN, ours=True),
        Row(LEAVING, "REGISTER", "", "set its slots, less those taken; RESPONSE", REGISTERED),
        Row(LEAVING, "DEREGISTER", "", "ignore", LEAVING),
        Row(LEAVING, "INCREMENT", "", "ignore", LEAVING),
        Row(LEAVING, "RESPONSE", "in hand", "publish or set back", LEAVING, ours=True),
        Row(LEAVING, "RESPONSE", "last", "publish or set back; strike it off", UNKNOWN, ours=True),
        Row(LEAVING, "RESPONSE", "late", "drop", LEAVING, ours=True),
        Row(LEAVING, "PONG", "", "it is there", LEAVING, ours=True),
        Row(LEAVING, "PING", "", "PONG", LEAVING),
        Row(LEAVING, "request", "", "keep; deal when it is its turn", LEAVING),
        Row(LEAVING, "pass", "given", "pass it on, unchanged", LEAVING),
        Row(LEAVING, "pass", "answer", "keep, finish, pass it on", LEAVING, ours=True),
        Row(LEAVING, "pass", "last", "the same; strike it off", UNKNOWN, ours=True),
        Row(LEAVING, "pass", "late", "drop", LEAVING, ours=True),
        Row(LEAVING, "lost", "", "charge what it had, if just one", UNKNOWN, ours=True),
    ],
)
