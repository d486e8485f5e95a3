"""What is asked of a worker, or of a server that has no broker, and what it answers. Pure.

PING, STREAM and what belongs to it are answered at once; DOCUMENT is for the processor.
"""

import random

import msgspec

from queuedriver.claims.outcomes import Failed, Postponed, Setback
from queuedriver.doors.roundrobin import frames as wire
from queuedriver.doors.roundrobin import stream as streams
from queuedriver.doors.roundrobin import tables as rr
from queuedriver.doors.roundrobin.documents import answer_of, document_of, refusal_of
from queuedriver.doors.roundrobin.frames import Message
from queuedriver.doors.table import Table
from queuedriver.doors.words import Effects, Leave, Process, Result, Say, Send
from queuedriver.format.records import Failure

# Streams of one worker that wait to be asked for more.
_MOST_STREAMS = 1000


class Task(msgspec.Struct, frozen=True):
    """A DOCUMENT in hand, and what it came as."""

    message: Message
    # Its name in REGISTER.
    key: bytes


class _Open(msgspec.Struct):
    """A stream that is not at its end."""

    host: bytes
    writer: streams.Writer
    heard_at: float


class Tasks:
    """What one worker or server has in hand, and the streams it has open."""

    def __init__(
        self,
        options: rr.Options | None,
        serial: int,
        chance: random.Random | None,
        processor: bool,
        part: int,
        table: Table,
    ) -> None:
        self.table = table
        self.state = rr.NEW
        # Messages that were done, by their names.
        self.passed: dict[str, int] = {}
        self.options = (options or rr.Options()).check()
        self.tasks: dict[str, Task] = {}
        self._serial = serial
        self._chance = chance or random.Random(serial)
        self._processor = processor
        self._part = part
        self._streams: dict[bytes, _Open] = {}

    def send(self, message: Message) -> Send:
        """How a message leaves."""
        raise NotImplementedError

    def slot_back(self) -> Effects:
        """What is said when a task is ended."""
        raise NotImplementedError

    def answer(
        self, message: Message, args: tuple[bytes, ...], command: bytes = wire.RESPONSE
    ) -> Send:
        """Back the way it came."""
        return self.send(Message(command, message.id, args, message.way_home))

    def new_id(self) -> bytes:
        """An id of our own."""
        self._serial = (self._serial + 1) & 0xFFFFFFFF
        return self._serial.to_bytes(4, "little")

    def forget_streams(self, now: float) -> None:
        """Those whose readers have been silent for too long."""
        for handle, stream in list(self._streams.items()):
            if stream.heard_at + self.options.stream_timeout <= now:
                del self._streams[handle]

    def next_silence_at(self) -> float | None:
        """When a stream's reader may have been silent for too long."""
        timeout = self.options.stream_timeout
        return min((one.heard_at + timeout for one in self._streams.values()), default=None)

    def application(self, message: Message, now: float) -> Effects:
        match message.key:
            # These take no slot.
            case wire.MORE:
                return self._more(message, now)
            case wire.ONGOING:
                return self._ongoing(message, now)
        self.state = self.table.step(self.state, "task")
        match message.key:
            case wire.PING:
                return self._done(message, ())
            case wire.STREAM:
                return self._stream(message, now)
            case wire.DOCUMENT:
                return self._document(message)
        shown = message.key[:20].decode("ascii", "backslashreplace")
        return self._refuse(message, f"this worker does not know the command {shown!r}")

    def _document(self, message: Message) -> Effects:
        claim = self.new_id().hex()
        work = document_of(message, claim)
        if work is None:
            return self._refuse(message, "DOCUMENT takes docid, attempt and payload")
        if not self._processor:
            words = "this worker has no processor"
            return self._done(message, refusal_of(Postponed(60.0, words)))
        key = wire.key_of(message.way_home, message.id)
        self.tasks[claim] = Task(message, key)
        return [Process(work)]

    # What goes

    def finished(self, claim: str, results: tuple[Result, ...], now: float) -> Effects:
        task = self.tasks.pop(claim, None)
        return [] if task is None else self._done(task.message, answer_of(results))

    def failed(self, claim: str, how: Setback, now: float) -> Effects:
        task = self.tasks.pop(claim, None)
        return [] if task is None else self._done(task.message, refusal_of(how))

    def _refuse(self, message: Message, words: str) -> Effects:
        failure = Failure(cause="bad-request", message=words, permanent=True)
        return [Say(1, words), *self._done(message, refusal_of(Failed(failure)))]

    def _done(self, message: Message, args: tuple[bytes, ...]) -> Effects:
        """Answer what was tracked, and give the slot back, whatever came of it."""
        self.passed[message.name] = self.passed.get(message.name, 0) + 1
        last = self.state == rr.LEAVING and not self.tasks
        self.state = self.table.own_step(self.state, "task ended", "last" if last else "")
        effects: Effects = [Say(1, f"{message.name} is done")]
        if message.tracked:
            effects.append(self.answer(message, args))
        effects += self.slot_back()
        if last:
            effects.append(Leave("nothing is in hand"))
        return effects

    # STREAM

    def _stream(self, message: Message, now: float) -> Effects:
        size = wire.count_of(message.args[2]) if len(message.args) > 2 else None
        if size != streams.SIZE:
            return self._refuse(message, f"a STREAM of {streams.SIZE} bytes is all there is")
        handle = self._serial_handle()
        carried = streams.pieces_of(self._cuts(size))
        writer = streams.Writer(handle, carried, part=self._part)
        effects = self._done(message, (streams.encode_part(writer.next()),))
        if not writer.over and message.tracked and len(self._streams) < _MOST_STREAMS:
            self._streams[handle] = _Open(message.args[1], writer, now)
        return effects

    def _serial_handle(self) -> bytes:
        return self.new_id().ljust(streams.HANDLE, b"\0")

    def _cuts(self, size: int) -> list[tuple[int, int]]:
        cuts, left = [], size
        while left:
            length = self._chance.randint(1, left)
            cuts.append((self._chance.randint(0, size - length), length))
            left -= length
        return cuts

    def _more(self, message: Message, now: float) -> Effects:
        """The next part of a stream, if it is there and the right one asks."""
        _, host, handle, want = (*message.args, b"", b"", b"")[:4]
        stream = self._streams.get(handle)
        if stream is None or stream.host != host or want != streams.GO_ON:
            if stream is not None and stream.host == host:
                del self._streams[handle]
            part = streams.Part(streams.ABORT, handle[: streams.HANDLE], b"")
        else:
            stream.heard_at = now
            part = stream.writer.next()
            if stream.writer.over:
                del self._streams[handle]
        return [self.answer(message, (streams.encode_part(part),))] if message.tracked else []

    def _ongoing(self, message: Message, now: float) -> Effects:
        """A client says that it is still there, whatever it reads."""
        host = message.args[1] if len(message.args) > 1 else b""
        known = [stream for stream in self._streams.values() if stream.host == host]
        for stream in known:
            stream.heard_at = now
        # As a command's exit status: whether anything of it is known here.
        return [self.answer(message, (b"0" if known else b"1",))] if message.tracked else []
