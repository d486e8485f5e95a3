"""Clients' requests and their answers, on disk.

    INPUT/request-<N>.ready                 a request, from the moment it came; then as any item
    INPUT/.queuedriver/replies/request-<N>  its answer, from before the request is finished until it
                                            is finished, and the answer with the client's connection

A crash before the answer is kept leaves the request: it is done again. A crash after it leaves the
answer, and perhaps the request, which is then finished without being done again; so an answer stays
for as long as its request, though its client may have it already.

The same request again (by its return path and the client's own id) is no second one: a client that
had no answer yet repeats it. For some minutes answers that were sent are remembered for that.
"""

from collections import OrderedDict
from contextlib import suppress

import msgspec

from queuedriver.disk.filesystem import Directory
from queuedriver.doors.words import Request
from queuedriver.errors import is_trouble
from queuedriver.format import names
from queuedriver.operating.queue import Queue

REPLIES = "replies"
_PREFIX = "request-"
# What a file must begin with to be taken for a request: a document may have such a name, too.
_MAGIC = b"queuedriver request 1\n"
# How long a request is known, and how long an answer is kept for a client to come back; seconds.
KNOWN_FOR = 600.0
HELD_FOR = 60.0
_MOST_KNOWN = 100_000
# Bytes of answers that were sent and are remembered.
_MOST_REMEMBERED = 64 << 20

_encode = msgspec.msgpack.Encoder().encode
_decode_request = msgspec.msgpack.Decoder(Request).decode
# What decoding says of bytes that are none of ours: anybody may have put them there.
_NOT_OURS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Reply(msgspec.Struct, frozen=True):
    """An answer on its way to its client."""

    docid: str
    # The request's.
    key: bytes
    peer: bytes
    frames: tuple[bytes, ...]

    @property
    def size(self) -> int:
        """Bytes of its frames."""
        return sum(map(len, self.frames))


_decode_reply = msgspec.msgpack.Decoder(Reply).decode


class _Known(msgspec.Struct):
    """A request that came."""

    at: float
    # Its answer, once there is one, as long as it is remembered.
    answer: Reply | None = None


def brought_to(docid: str) -> str:
    """The id of the broker that a client brought a request to; empty for a document."""
    if not docid.startswith(_PREFIX):
        return ""
    return names.parse_token(docid.removeprefix(_PREFIX)).driver


class Requests:
    """The requests in one input queue, and who has been answered."""

    def __init__(self, queue: Queue, mint: names.Mint, durable: bool) -> None:
        self._queue = queue
        self._mint = mint
        self._durable = durable
        self._replies = queue.private.subdirectory(REPLIES, create=True)
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._remembered = 0
        # Answers that could not be handed over yet, and until when they are kept, by peer.
        self._held: dict[bytes, list[tuple[float, Reply]]] = {}
        # Answered, but not finished; and whether the answer is wanted by nobody else any more.
        self._unfinished: dict[str, bool] = {}

    def close(self) -> None:
        self._replies.close()

    def reopen(self) -> None:
        """After trouble: what is open may be stale."""
        self._replies.reopen(create=True)
        self._queue.incoming.reopen(create=True)

    def load(self, now: float) -> None:
        """What an earlier life left: requests are known again, and answers are held."""
        waiting = set()
        for name, item in self._queue.items():
            if item.docid.startswith(_PREFIX):
                waiting.add(item.docid)
                content = _read(self._queue.directory, name)
                request = content and self.recognize(item.docid, content)
                if request:
                    self._known[request.key] = _Known(now)
        for docid in [*self._replies.names()]:
            if docid.startswith(_PREFIX):
                if docid in waiting:
                    self._unfinished[docid] = False
                self._adopt(docid, now)

    # A request comes

    def keep(self, request: Request, now_us: int, now: float) -> str | Reply | None:
        """Write it down: its docid. An answer, if it has been given; None: it is at hand."""
        self._forget_old(now)
        known = self._known.get(request.key)
        if known is not None:
            # Who repeats it may do so again.
            known.at = now
            self._known.move_to_end(request.key)
            return known.answer
        docid = f"{_PREFIX}{self._mint.next(now_us)}"
        self._queue.submit(docid, _MAGIC + _encode(request), durable=self._durable)
        self._known[request.key] = _Known(now)
        return docid

    def recognize(self, docid: str, content: bytes) -> Request | None:
        """The request that an item is; None for a document."""
        if not (docid.startswith(_PREFIX) and content.startswith(_MAGIC)):
            return None
        with suppress(*_NOT_OURS):
            return _decode_request(memoryview(content)[len(_MAGIC) :])
        return None

    def answered(self, docid: str) -> bool:
        """Whether its answer is on disk: then it is done, and only to be finished."""
        return docid.startswith(_PREFIX) and self._replies.present(docid)

    # Its answer

    def write(self, reply: Reply) -> None:
        """Before the request is finished: from now on a crash loses neither."""
        self._replies.write_aside(reply.docid, _encode(reply), self._durable)
        self._unfinished[reply.docid] = False

    def finished(self, docid: str, now: float) -> None:
        """A request that had been answered is finished, too."""
        if docid not in self._unfinished:
            # The answer is from somebody who is no more.
            self._adopt(docid, now)
        elif self._unfinished.pop(docid):
            self._replies.remove(docid)

    def sent(self, reply: Reply, now: float) -> None:
        """It is with the client's connection."""
        self._remember(reply, now)
        self._drop(reply.docid)

    def hold(self, reply: Reply, now: float) -> None:
        """The client is not there: for a while it may come back."""
        self._remember(reply, now)
        self._held.setdefault(reply.peer, []).append((now + HELD_FOR, reply))

    def holds(self, peer: bytes) -> bool:
        """Whether something is held for this client."""
        return peer in self._held

    def held(self, peer: bytes) -> list[Reply]:
        """What is held for a client that is there again."""
        return [reply for _, reply in self._held.pop(peer, ())]

    def expire(self, now: float) -> None:
        """Clients that did not come back."""
        for peer, answers in list(self._held.items()):
            while answers and answers[0][0] <= now:
                self._drop(answers[0][1].docid)
                del answers[0]
            if not answers:
                del self._held[peer]

    def _drop(self, docid: str) -> None:
        """Nobody wants the answer any more; while its request is there, it stays all the same."""
        if docid in self._unfinished:
            self._unfinished[docid] = True
        else:
            self._replies.remove(docid)

    def _adopt(self, docid: str, now: float) -> None:
        """Hold an answer that another life has written."""
        data = _read(self._replies, docid)
        if data is not None:
            with suppress(*_NOT_OURS):
                self.hold(_decode_reply(data), now)

    def _remember(self, reply: Reply, now: float) -> None:
        """For a client that asks again all the same."""
        known = self._known.setdefault(reply.key, _Known(now))
        known.at = now
        self._known.move_to_end(reply.key)
        if known.answer is None and self._remembered + reply.size <= _MOST_REMEMBERED:
            known.answer = reply
            self._remembered += reply.size
        elif known.answer is None:
            # Not to be answered again: asked again, it is done again.
            del self._known[reply.key]

    def _forget_old(self, now: float) -> None:
        while self._known:
            key, known = next(iter(self._known.items()))
            if known.at + KNOWN_FOR > now and len(self._known) < _MOST_KNOWN:
                return
            del self._known[key]
            if known.answer is not None:
                self._remembered -= known.answer.size


def _read(directory: Directory, name: str) -> bytes | None:
    """A file's contents; None of what is gone, is no file, or is not for us to read."""
    try:
        return directory.read_regular(name)
    except OSError as error:
        if is_trouble(error):
            raise
        return None
