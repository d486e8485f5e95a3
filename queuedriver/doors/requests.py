"""Clients' requests and their answers, on disk; and since when each waits.

    INPUT/request-<N>.ready                 a request, from the moment it came; then as any item
    INPUT/.queuedriver/replies/request-<N>  its answer, from before the request is finished until it
                                            is finished, and the answer with the client's connection

A crash before the answer is kept leaves the request: it is done again. A crash after it leaves the
answer, and perhaps the request, which is then finished without being done again; so an answer stays
for as long as its request, though its client may have it already.

The same request again (by its return path and the client's own id) is no second one: a client that
had no answer yet repeats it. It is known as long as it is not answered, and for some minutes after
that, with its answer.
"""

import math
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress

import msgspec

from queuedriver.disk.filesystem import Directory
from queuedriver.doors.words import Answer, Request
from queuedriver.errors import is_trouble
from queuedriver.format import names
from queuedriver.operating.queue import Queue

REPLIES = "replies"
PREFIX = "request-"
# What a file must begin with to be taken for a request: a document may have such a name, too.
_MAGIC = b"queuedriver request 1\n"
# How long a request is known, and how long an answer is kept for a client to come back; seconds.
KNOWN_FOR = 600.0
HELD_FOR = 60.0
# Twice as many as may wait: those are never forgotten, and one that can be is soon found.
_MOST_KNOWN = 200_000
# Bytes of answers that were sent and are remembered.
_MOST_REMEMBERED = 64 << 20

_encode = msgspec.msgpack.Encoder().encode
_decode_request = msgspec.msgpack.Decoder(Request).decode
# What decoding says of bytes that are none of ours: anybody may have put them there.
_NOT_OURS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

# Hands frames over to a peer; False: it is not there.
SendTo = Callable[[bytes, tuple[bytes, ...]], bool]


class Reply(msgspec.Struct, frozen=True):
    """An answer on its way to its client."""

    docid: str
    # The request's.
    key: bytes
    peer: bytes
    frames: tuple[bytes, ...]

    @property
    def size(self) -> int:
        """Return the bytes of its frames."""
        return sum(map(len, self.frames))


_decode_reply = msgspec.msgpack.Decoder(Reply).decode


class _Known(msgspec.Struct):
    """A request that came."""

    docid: str
    at: float
    # Its answer, once there is one.
    answer: Reply | None = None


class Requests:
    """The requests in one input queue, and who has been answered."""

    def __init__(self, queue: Queue, mint: names.Mint, send: SendTo, *, durable: bool) -> None:
        self._queue = queue
        self._mint = mint
        self._send = send
        self._durable = durable
        self._replies = queue.private.subdirectory(REPLIES, create=True)
        # Those that nobody has in hand, and since when they wait.
        self.waiting: OrderedDict[str, float] = OrderedDict()
        # Answers that could not be handed over yet, and until when they are kept, by peer.
        self.held: dict[bytes, list[tuple[float, Reply]]] = {}
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._remembered = 0
        # Answered, but not finished; and whether the answer is wanted by nobody else any more.
        self._unfinished: dict[str, bool] = {}

    def close(self) -> None:
        self._replies.close()

    def reopen(self) -> None:
        """Open everything anew: after trouble it may be stale."""
        self._replies.reopen(create=True)
        self._queue.incoming.reopen(create=True)

    def load(self, now: float) -> None:
        """Take in what an earlier life left: requests are known again, and answers are held."""
        for name, item in self._queue.items():
            if item.docid.startswith(PREFIX):
                self.waiting[item.docid] = now
                content = _read(self._queue.directory, name)
                request = content and self.recognize(item.docid, content)
                if request:
                    self._known[request.key] = _Known(item.docid, now)
        for docid in [*self._replies.names()]:
            if docid.startswith(PREFIX):
                if docid in self.waiting:
                    self._unfinished[docid] = False
                self._adopt(docid, now)

    # A request comes

    def keep(self, request: Request, now_us: int, now: float) -> str | Reply | None:
        """Write a request down; return its docid. An answer, if it has been given; None: it is at
        hand."""
        # A new one takes a place; one that is repeated is not forgotten for that.
        self._forget_old(now, _MOST_KNOWN if self.knows(request) else _MOST_KNOWN - 1)
        known = self._known.get(request.key)
        if known is not None:
            # Who repeats it may do so again.
            known.at = now
            self._known.move_to_end(request.key)
            if known.answer is None and self.is_answered(known.docid):
                # By another broker, to which this client is not connected. That may not have
                # finished the request yet: it removes the answer.
                self.waiting.pop(known.docid, None)
                self._unfinished[known.docid] = False
                self._adopt(known.docid, now)
            return known.answer
        docid = f"{PREFIX}{self._mint.next(now_us)}"
        self._queue.submit(docid, _MAGIC + _encode(request), durable=self._durable)
        self._known[request.key] = _Known(docid, now)
        self.waiting[docid] = now
        return docid

    def recognize(self, docid: str, content: bytes) -> Request | None:
        """Return the request that an item is; None for a document."""
        if not (docid.startswith(PREFIX) and content.startswith(_MAGIC)):
            return None
        with suppress(*_NOT_OURS):
            return _decode_request(memoryview(content)[len(_MAGIC) :])
        return None

    def late(self, now: float, patience: float) -> list[str]:
        """Return those that have waited for so long."""
        return [docid for docid, since in self.waiting.items() if now - since >= patience]

    def knows(self, request: Request) -> bool:
        """Tell whether it came before."""
        return request.key in self._known

    # Its answer

    def is_answered(self, docid: str) -> bool:
        """Tell whether its answer is on disk: then it is done, and only to be finished."""
        return docid.startswith(PREFIX) and self._replies.present(docid)

    def write(self, docid: str, request: Request, answer: Answer) -> Reply:
        """Keep an answer, from now on whatever happens; return it as it goes to its client."""
        reply = Reply(docid, request.key, answer.peer, answer.frames)
        self._replies.write_aside(docid, _encode(reply), self._durable)
        self._unfinished[docid] = False
        return reply

    def finished(self, docid: str, now: float) -> None:
        """Note that the request of an answer is no more; whoever wants the answer gets it."""
        self.waiting.pop(docid, None)
        if docid not in self._unfinished:
            # Another broker's; its client may be ours by now.
            self._adopt(docid, now)
        elif self._unfinished.pop(docid):
            self._replies.remove(docid)

    def refused(self, docid: str, request: Request, answer: Answer | None, now: float) -> None:
        """Tell a client that its request is no more, and was not done; without a word for that, it
        is done anew when it is asked again."""
        self.waiting.pop(docid, None)
        if answer is not None:
            self.hand_over(Reply(docid, request.key, answer.peer, answer.frames), now)
        else:
            self._forget(request.key)

    def turn_away(self, request: Request, answer: Answer | None) -> None:
        """Tell a client that nobody takes its request now; asked again, it may be done."""
        self._forget(request.key)
        if answer is not None:
            self._send(answer.peer, answer.frames)

    def hand_over(self, reply: Reply, now: float) -> None:
        """Give an answer to its client's connection; hold it for a client that is not there."""
        self._remember(reply, now)
        if self._send(reply.peer, reply.frames):
            self._drop(reply.docid)
        else:
            self._hold(reply, now)

    def send_again(self, reply: Reply) -> None:
        """Give an answer once more to a client that asked again."""
        if any(held == reply for _, held in self.held.get(reply.peer, ())):
            # It was not there so far.
            self._send_held(reply.peer)
        else:
            self._send(reply.peer, reply.frames)

    def look(self, now: float) -> None:
        """Hand over what is held for clients that are there again; drop the answers of those that
        did not come back."""
        for peer in list(self.held):
            self._send_held(peer, now)

    def _send_held(self, peer: bytes, now: float = -math.inf) -> None:
        """Hand over what is held for a client that is there; drop what was held until now."""
        answers = self.held.get(peer, [])
        while answers and (self._send(peer, answers[0][1].frames) or answers[0][0] <= now):
            self._drop(answers.pop(0)[1].docid)
        if not answers:
            self.held.pop(peer, None)

    def _hold(self, reply: Reply, now: float) -> None:
        self.held.setdefault(reply.peer, []).append((now + HELD_FOR, reply))

    def _drop(self, docid: str) -> None:
        """Remove an answer that nobody wants any more; while its request is there, it stays."""
        if docid in self._unfinished:
            self._unfinished[docid] = True
        else:
            self._replies.remove(docid)

    def _adopt(self, docid: str, now: float) -> None:
        """Hold an answer that another life has written."""
        data = _read(self._replies, docid)
        if data is not None:
            with suppress(*_NOT_OURS):
                reply = _decode_reply(data)
                self._remember(reply, now)
                self._hold(reply, now)

    def _remember(self, reply: Reply, now: float) -> None:
        """Keep an answer in mind, for a client that asks again all the same."""
        known = self._known.setdefault(reply.key, _Known(reply.docid, now))
        known.at = now
        self._known.move_to_end(reply.key)
        if known.answer is None and self._remembered + reply.size <= _MOST_REMEMBERED:
            known.answer = reply
            self._remembered += reply.size
        elif known.answer is None:
            # Not to be answered again: asked again, it is done again.
            del self._known[reply.key]

    def _forget_old(self, now: float, most: int) -> None:
        for _ in range(len(self._known)):
            key, known = next(iter(self._known.items()))
            full = len(self._known) > most
            if known.at + KNOWN_FOR > now and not full:
                return
            if known.answer is None and (known.docid in self.waiting or not full):
                # Forgotten and asked again, it would be done twice. It may take a worker hours.
                known.at = now
                self._known.move_to_end(key)
            else:
                self._forget(key)

    def _forget(self, key: bytes) -> None:
        known = self._known.pop(key, None)
        if known is not None and known.answer is not None:
            self._remembered -= known.answer.size


def _read(directory: Directory, name: str) -> bytes | None:
    """Return a file's contents; None of what is gone, is no file, or is not for us to read."""
    try:
        return directory.read_regular(name)
    except OSError as error:
        if is_trouble(error):
            raise
        return None
