"""Scale0: workers offer services, and learn their configuration from their broker. Tables, options.

    worker                              broker                            frontend
    CHECKCONFIG config_version
                                        CONFIG, or {unchanged: true}
    READY services, time, version
                                        READYOK: it is listed
    PING time, version                  PONG both times, version
                                                                          WORKREQUEST service, body
                                        WORKREQUEST identifier, body
    WORKREPLY identifier, body
                                        WORKREPLY                         (or DISCONNECTERROR)
    READY: listed again

One READY is one request. The next request for a service goes to the worker whose READY is oldest of
those that offer it. What a worker is sent is known by its identifier: `<broker>:<serial>` for a
document, `<frontend>:<message id>` for a frontend's request; a reply to anything else is dropped.

A worker of which the broker is not sure (it never asked for its configuration, or has another
version of it) is told FORCENEGOTIATE and begins with CHECKCONFIG; the second time in a row that its
version is another, it is disconnected.

    wire.py     frames        broker.py   the broker's session
    worker.py   a worker's    client.py   a frontend's
"""

import hashlib

import msgspec

from queuedriver.doors.scale0.wire import Config, Group
from queuedriver.doors.table import Row, Table
from queuedriver.errors import ConfigError


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker was told. Seconds."""

    services: tuple[str, ...] = ("",)
    # Where workers reach it, and the brokers that deal from the same queues.
    broker: str = ""
    group: tuple[str, ...] = ()
    # Whom workers are to prefer.
    preferred_broker: str = ""
    # Empty: made of the configuration itself.
    config_version: str = ""
    # How often workers say PING unless they ask for longer; and how many may be missed.
    heartbeat_interval: float = 5.0
    liveness: int = 3
    # How far a worker's clock may be off. Nothing else is done with what it says.
    clock_limit: float = 30.0
    # How long a frontend's request waits for a worker.
    request_timeout: float = 30.0
    # How many workers may be lost over a frontend's request before it is told so.
    attempts: int = 2
    # Status 75 does not say how much later.
    later_after: float = 60.0
    # How often it is tried whether a busy worker is there.
    probe_interval: float = 1.0
    max_workers: int = 10_000
    # Requests that one worker may have asked for and not answered yet.
    max_turns: int = 100
    # Frontends' requests that wait.
    max_requests: int = 100_000

    def check(self) -> "Options":
        """ConfigError for what cannot be meant."""
        numbers = (
            self.heartbeat_interval,
            self.liveness,
            self.clock_limit,
            self.request_timeout,
            self.attempts,
            self.probe_interval,
            self.max_workers,
            self.max_turns,
            self.max_requests,
        )
        if not all(number > 0 for number in numbers):
            raise ConfigError("the intervals, time-outs and limits of scale0 must be above 0")
        if not self.services:
            raise ConfigError("a broker of scale0 needs a service; give --service NAME=IN:OUT")
        return self

    def config(self) -> Config:
        """What every worker is told; its identity is to be added."""
        made = Config(
            services=self.services,
            group_config=Group(brokers=self.group),
            preferred_broker=self.preferred_broker,
            config_version=self.config_version,
        )
        if self.config_version:
            return made
        # All brokers of a group come to the same.
        version = hashlib.sha256(msgspec.json.encode(made)).hexdigest()[:12]
        return msgspec.structs.replace(made, config_version=version)


def _ours(state: str, event: str, when: str, action: str, to: str) -> Row:
    return Row(state, event, when, action, to, ours=True)


UNKNOWN, CONFIGURED, LISTED, BUSY = "unknown", "configured", "listed", "busy"
_FULL = "301 to another broker, or 503"


def _of_those_known(state: str, asked_anew: str) -> list[Row]:
    """What is the same for every worker that has had CONFIG."""
    dropped = "the reply is dropped"
    return [
        Row(state, "CHECKCONFIG", "", "CONFIG; its turns are taken back", asked_anew),
        _ours(state, "CHECKCONFIG", "not JSON", "501; disconnected", UNKNOWN),
        _ours(state, "CHECKCONFIG", "full or leaving", f"{_FULL}; disconnected", UNKNOWN),
        Row(
            state, "READY", "other version", "FORCENEGOTIATE; its turns are taken back", asked_anew
        ),
        _ours(state, "READY", "other version again", "426; disconnected", UNKNOWN),
        Row(state, "READY", "other time", "409; disconnected", UNKNOWN),
        _ours(state, "READY", "no such service", "501; disconnected", UNKNOWN),
        _ours(state, "READY", "full or leaving", f"{_FULL}; disconnected", UNKNOWN),
        Row(state, "PING", "", "PONG; it lives", state),
        Row(state, "PING", "other version", "FORCENEGOTIATE; its turns are taken back", asked_anew),
        _ours(state, "PING", "other version again", "426; disconnected", UNKNOWN),
        Row(state, "PING", "other time", "409; disconnected", UNKNOWN),
        _ours(state, "WORKREPLY", "not matched", dropped, state),
        _ours(state, "NEEDBROKER", "", "301 to this broker, or 503", state),
        _ours(state, "DISCONNECTERROR", "", "what it had is given back", UNKNOWN),
        _ours(state, "unreachable", "", "what it had is lost", UNKNOWN),
    ]


BROKER = Table(
    "scale0: what a broker knows of a worker",
    [
        Row(UNKNOWN, "CHECKCONFIG", "", "CONFIG", CONFIGURED),
        _ours(UNKNOWN, "CHECKCONFIG", "not JSON", "501", UNKNOWN),
        _ours(UNKNOWN, "CHECKCONFIG", "full or leaving", _FULL, UNKNOWN),
        Row(UNKNOWN, "READY", "", "FORCENEGOTIATE", UNKNOWN),
        Row(UNKNOWN, "PING", "", "FORCENEGOTIATE", UNKNOWN),
        _ours(UNKNOWN, "WORKREPLY", "not matched", "the reply is dropped", UNKNOWN),
        Row(UNKNOWN, "NEEDBROKER", "", "301 to this broker, or 503", UNKNOWN),
        _ours(UNKNOWN, "DISCONNECTERROR", "", "nothing", UNKNOWN),
        Row(CONFIGURED, "READY", "", "READYOK; it is listed", LISTED),
        Row(CONFIGURED, "silence", "", "it is forgotten", UNKNOWN),
        *_of_those_known(CONFIGURED, CONFIGURED),
        Row(LISTED, "READY", "", "READYOK; one turn more", LISTED),
        Row(LISTED, "a request waits", "", "WORKREQUEST; one turn less", BUSY),
        Row(LISTED, "silence", "", "it is forgotten", UNKNOWN),
        *_of_those_known(LISTED, CONFIGURED),
        Row(BUSY, "READY", "", "READYOK; one turn more", BUSY),
        Row(BUSY, "a request waits", "it has turns", "WORKREQUEST; one turn less", BUSY),
        Row(BUSY, "WORKREPLY", "", "published, or passed on to the frontend", CONFIGURED),
        Row(BUSY, "WORKREPLY", "it has turns", "published, or passed on to the frontend", LISTED),
        _ours(BUSY, "WORKREPLY", "more in hand", "published, or passed on to the frontend", BUSY),
        _ours(BUSY, "each second", "", "PONG, to see whether it is there", BUSY),
        _ours(BUSY, "time-out", "", "what it had is lost", UNKNOWN),
        *_of_those_known(BUSY, BUSY),
    ],
)

NEW, WAITING, DEALT, OVER = "new", "waiting", "dealt", "over"

REQUEST = Table(
    "scale0: a frontend's request at its broker",
    [
        Row(NEW, "WORKREQUEST", "", "it is kept on disk", WAITING),
        _ours(NEW, "WORKREQUEST", "no such service", "501", OVER),
        _ours(NEW, "WORKREQUEST", "without an id", "400", OVER),
        _ours(NEW, "WORKREQUEST", "full or leaving", "503", OVER),
        _ours(WAITING, "WORKREQUEST", "", "it is the same one", WAITING),
        Row(WAITING, "a worker's turn", "", "WORKREQUEST to the worker", DEALT),
        _ours(WAITING, "time-out", "", "503; a worker will not see it", OVER),
        _ours(DEALT, "WORKREQUEST", "", "it is the same one", DEALT),
        Row(DEALT, "WORKREPLY", "", "WORKREPLY, as it came", OVER),
        _ours(DEALT, "its worker left", "", "it waits again", WAITING),
        _ours(DEALT, "its worker is lost", "", "it waits again", WAITING),
        _ours(DEALT, "its worker is lost", "once too often", "444", OVER),
        _ours(OVER, "WORKREQUEST", "answered", "the same answer", OVER),
        _ours(OVER, "WORKREQUEST", "", "it is tried anew", WAITING),
    ],
)
