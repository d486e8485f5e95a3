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

    scale0_wire.py     frames        scale0_broker.py   the broker's session
    scale0_worker.py   a worker's    scale0_client.py   a frontend's
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


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker was told. Seconds."""

    identity: str
    # None: all that its broker has.
    services: tuple[str, ...] | None = None
    # The broker it connects to first, and others it may go to.
    broker: str = ""
    group: tuple[str, ...] = ()
    # Longer than the broker's own, or nothing.
    heartbeat_interval: float | None = None
    liveness: int = 3
    # How long CONFIG, READYOK and the answer to NEEDBROKER may take.
    check_timeout: float = 5.0
    # How often in a row it is sent elsewhere, or told to begin anew, before it gives up.
    max_hops: int = 8

    def check(self) -> "WorkerOptions":
        """ConfigError for what cannot be meant."""
        numbers = (self.heartbeat_interval or 1.0, self.liveness, self.check_timeout, self.max_hops)
        if not all(number > 0 for number in numbers):
            raise ConfigError("the intervals, time-outs and limits of scale0 must be above 0")
        return self


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

CLOSED, CHECKING, ASKING, GREETING = "closed", "checking", "asking", "greeting"
READY, WORKING, LEFT = "ready", "working", "left"
_HOP = "another connection, to another broker of the group if there is one"


def _anywhere(state: str, anew: str = CHECKING) -> list[Row]:
    """What is the same for a worker in every state in which it is connected."""
    return [
        Row(state, "FORCENEGOTIATE", "", "CHECKCONFIG", anew),
        _ours(state, "joined again", "", "CHECKCONFIG", anew),
        _ours(state, "DISCONNECTERROR", "301, 426, or 503 and others", _HOP, CLOSED),
        Row(state, "DISCONNECTERROR", "", "we leave", LEFT),
        _ours(state, "leave", "", "DISCONNECTERROR 503; we leave", LEFT),
    ]


WORKER = Table(
    "scale0: a worker",
    [
        Row(CLOSED, "connected", "", "CHECKCONFIG", CHECKING),
        Row(CLOSED, "connected", "our own broker does not answer", "NEEDBROKER", ASKING),
        _ours(CLOSED, "leave", "", "we leave", LEFT),
        Row(CHECKING, "CONFIG", "", "READY", GREETING),
        _ours(CHECKING, "CONFIG", "work in hand", "it is finished first", WORKING),
        _ours(CHECKING, "WORKREQUEST", "", "dropped: it was sent before our CHECKCONFIG", CHECKING),
        _ours(CHECKING, "PONG", "", "the broker lives", CHECKING),
        _ours(CHECKING, "READYOK", "", "it answers a READY from before", CHECKING),
        _ours(CHECKING, "processed", "", "WORKREPLY", CHECKING),
        Row(CHECKING, "time-out", "", "we leave, 69", LEFT),
        Row(CHECKING, "time-out", "others, or it answered before", _HOP, CLOSED),
        *_anywhere(CHECKING),
        Row(ASKING, "DISCONNECTERROR", "301 to this broker", "CHECKCONFIG", CHECKING),
        _ours(ASKING, "time-out", "", "we leave, 69", LEFT),
        _ours(ASKING, "time-out", "others, or it answered before", _HOP, CLOSED),
        *_anywhere(ASKING),
        Row(GREETING, "READYOK", "", "we are listed", READY),
        Row(GREETING, "PONG", "", "the broker lives", GREETING),
        _ours(GREETING, "WORKREQUEST", "", "it is processed", WORKING),
        _ours(GREETING, "time-out", "", "READY, once more", GREETING),
        _ours(GREETING, "time-out", "again", _HOP, CLOSED),
        Row(GREETING, "heartbeat_interval", "", "PING", GREETING),
        _ours(GREETING, "silence", "", _HOP, CLOSED),
        *_anywhere(GREETING),
        Row(READY, "PONG", "", "the broker lives", READY),
        Row(READY, "READYOK", "", "it answers a READY that was repeated", READY),
        Row(READY, "WORKREQUEST", "", "it is processed", WORKING),
        Row(READY, "heartbeat_interval", "", "PING", READY),
        _ours(READY, "silence", "", _HOP, CLOSED),
        *_anywhere(READY),
        Row(WORKING, "PONG", "", "the broker lives", WORKING),
        _ours(WORKING, "READYOK", "", "it answers a READY that was repeated", WORKING),
        _ours(WORKING, "WORKREQUEST", "", "it waits here", WORKING),
        Row(WORKING, "heartbeat_interval", "", "PING", WORKING),
        Row(WORKING, "processed", "", "WORKREPLY; READY", GREETING),
        _ours(WORKING, "processed", "more in hand", "WORKREPLY", WORKING),
        _ours(WORKING, "leave", "work in hand", "we leave after the reply", WORKING),
        *_anywhere(WORKING),
    ],
)

CLIENT = Table(
    "scale0: a frontend's request",
    [
        Row(NEW, "asked", "", "WORKREQUEST", WAITING),
        _ours(WAITING, "no answer", "", "WORKREQUEST, the same", WAITING),
        Row(WAITING, "WORKREPLY", "", "its outputs, or why there are none", OVER),
        Row(WAITING, "DISCONNECTERROR", "", "why it is not done", OVER),
        _ours(WAITING, "time-out", "", "it is given up", OVER),
        _ours(OVER, "WORKREPLY", "", "dropped", OVER),
        _ours(OVER, "DISCONNECTERROR", "", "dropped", OVER),
    ],
)
