"""CURVE: who may talk to a hub, and how it is known.

A directory holds what one side needs: `own.key_secret`, its own pair; a hub's `authorized/`, the
public keys of those who may connect, one file each; a spoke's `broker.key`, its hub's public key.
Without a list of those who may, CURVE lets everybody in who knows the hub's public key; so a hub
without one does not start.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import zmq
import zmq.auth
import zmq.utils.z85

from queuedriver.doors.transports.base import Refusals, Refused
from queuedriver.doors.words import Recent, shown
from queuedriver.errors import CannotUse, ConfigError, NotPermitted

OWN = "own"
HUB = "broker.key"
AUTHORIZED = "authorized"

# Identities that are remembered with the key they came with.
_MOST_BOUND = 100_000
# Characters of a key.
_Z85 = 40


class Keys(msgspec.Struct, frozen=True):
    """The keys of one side."""

    public: bytes
    secret: bytes
    # A hub's: whose public keys may connect, by their names.
    authorized: Mapping[bytes, str] = msgspec.field(default_factory=dict)
    # A spoke's: the public key of its hub.
    hub: bytes = b""

    def serve(self, socket: "zmq.Socket[bytes]") -> None:
        """Let only those in whose keys are known."""
        if not self.authorized:
            raise ConfigError(
                f"nobody may connect: put the public keys (*.key) of workers and clients into "
                f"{AUTHORIZED}/ beside this side's own"
            )
        self._own(socket)
        socket.setsockopt(zmq.CURVE_SERVER, 1)

    def call(self, socket: "zmq.Socket[bytes]") -> None:
        """Connect to nobody but our hub."""
        if not self.hub:
            raise ConfigError(f"put the broker's public key beside this side's own, as {HUB}")
        self._own(socket)
        socket.setsockopt(zmq.CURVE_SERVERKEY, self.hub)

    def _own(self, socket: "zmq.Socket[bytes]") -> None:
        socket.setsockopt(zmq.CURVE_PUBLICKEY, self.public)
        socket.setsockopt(zmq.CURVE_SECRETKEY, self.secret)


def make_keys(directory: str) -> str:
    """Make a pair of keys; return the path of the public one."""
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise CannotUse(f"{directory!r} is not a directory; name another") from None
    path = os.path.join(directory, OWN)
    if os.path.exists(f"{path}.key_secret"):
        raise ConfigError(f"{path + '.key_secret'!r} is there already; remove it if nobody uses it")
    before = os.umask(0o077)
    try:
        zmq.auth.create_certificates(directory, OWN)
    finally:
        os.umask(before)
    os.makedirs(os.path.join(directory, AUTHORIZED), exist_ok=True)
    return f"{path}.key"


def load_keys(directory: str) -> Keys:
    """Return the keys in a directory; ConfigError says what is wrong with it."""
    own = os.path.join(directory, f"{OWN}.key_secret")
    public, secret = _load(own)
    if os.stat(own).st_mode & 0o077:
        raise NotPermitted(f"{own!r} may be read by others; chmod 600 it, and make new keys")
    if secret is None:
        raise ConfigError(f"{own!r} has no secret key in it; make one with queuedriver keys")
    hub = os.path.join(directory, HUB)
    return Keys(
        public,
        secret,
        _authorized(os.path.join(directory, AUTHORIZED)),
        _load(hub)[0] if os.path.exists(hub) else b"",
    )


def _authorized(directory: str) -> dict[bytes, str]:
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        return {}
    files = [name for name in names if name.endswith(".key")]
    return {_load(os.path.join(directory, name))[0]: name[:-4] for name in files}


def _load(path: str) -> tuple[bytes, bytes | None]:
    try:
        public, secret = zmq.auth.load_certificate(path)
    except ValueError:
        raise _no_key(path, "it has another form") from None
    except OSError as error:
        raise _no_key(path, error.strerror or "it cannot be read") from None
    if len(public) != _Z85 or len(secret or bytes(_Z85)) != _Z85:
        raise _no_key(path, f"a key has {_Z85} characters")
    return public, secret


def _no_key(path: str, why: str) -> ConfigError:
    return ConfigError(f"{path!r} is no key ({why}); make one with: queuedriver keys DIRECTORY")


class Doorkeeper:
    """Answers ZeroMQ's question whether somebody may connect (its protocol ZAP)."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", keys: Keys) -> None:
        self._socket = context.socket(zmq.REP)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind("inproc://zeromq.zap.01")
        self._keys = keys
        # An identity belongs to the key that first came with it; the one that was not seen for
        # longest is forgotten, as each start of a worker brings a new one.
        self._bound: Recent[bytes, bytes] = Recent(_MOST_BOUND)
        self._refusals = Refusals()
        self.fd = int(self._socket.getsockopt(zmq.FD))

    def attend(self) -> Iterator[Refused]:
        """Answer everybody who waits at the door; yield who was not let in."""
        while int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            question = self._socket.recv_multipart()
            name, why = self.judge(question)
            code, words = (b"200", b"OK") if name else (b"400", why.encode())
            answer = [*question[:2], code, words, os.fsencode(name), b""]
            self._socket.send_multipart(answer)
            if why:
                said = f"{os.fsdecode(question[3])} is refused: {why}"
                yield from self._refusals.news(said, time.monotonic())

    def close(self) -> None:
        self._socket.close()

    def judge(self, question: Sequence[bytes]) -> tuple[str, str]:
        """Return the name of whoever asks, or why it is not let in."""
        _version, _request, _domain, _address, identity, mechanism, *credentials = question
        if mechanism != b"CURVE" or len(credentials) != 1:
            return "", "it shows no key"
        key = zmq.utils.z85.encode(credentials[0])
        name = self._keys.authorized.get(key, "")
        if not name:
            return "", f"its key, {key.decode()}, is not in {AUTHORIZED}/"
        if identity:
            if self._bound.get(identity, key) != key:
                return "", f"another key than {name}'s came first as {shown(identity)}"
            self._bound[identity] = key
        return name, ""
