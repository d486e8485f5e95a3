"""A front door for one row of the contract: a broker in a process of its own over real queues, and
whoever speaks with it.

Nothing else of the contract knows how a broker is made. It speaks by one of two links: *lists*,
where the tests decide what comes, in which order, and who can be reached; and *sockets*, real ones.
"""

import contextlib
import ctypes
import multiprocessing.connection
import os
import signal
import socket
import struct
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import zmq

from queuedriver.disk.journal import read_events
from queuedriver.doors.broker import Broker
from queuedriver.doors.settings import settings_of
from queuedriver.doors.transports import tcp
from queuedriver.doors.transports import zmq as zmq_transport
from queuedriver.doors.transports.addresses import host_and_port
from queuedriver.doors.transports.base import Arrival, Gone, Joined, Message
from queuedriver.errors import NotFound, QueueError
from queuedriver.format import names
from queuedriver.jobs.jobfile import JobFile, encode
from queuedriver.operating.queue import Queue
from queuedriver.options import Options
from tests.contract.door_events import Row
from tests.contract.door_peers import CLIENTS, WORKERS, Client, Worker, answer_to
from tests.drivers import FORKS, Site
from tests.endpoints import free_endpoint
from tests.waiting import PATIENCE

PROTOCOLS = ("pingpong", "roundrobin", "scale0", "fuq")
LINKS = ("lists", "sockets")

_PR_SET_PDEATHSIG = 1
# Seconds that are waited for what is not true yet.
_NO_PATIENCE = 4.0
_PAUSE = 0.002
# How a broker may end while something else is waited for: as asked, or as its queue is gone.
_EXPECTED = (None, 0, 1, NotFound.exit_code, -signal.SIGKILL)
# Seconds between signs of life of those that wait.
_SIGNS_OF_LIFE = 1.0
# Seconds: busy workers are tried so often.
_PROBES_EVERY = 1.0
# What a broker takes in before it does something else.
_ROUND = 1000
# Turns of a broker after which it has seen what was on disk before the first of them.
_TURNS = 4
# A broker that stood still for longer than this, in seconds, might be taken for dead.
_STEP = 16.0
# Seconds in which what the kernel has brought has been passed on from thread to thread; and, at
# most, until it has brought everything: some peers are not let in.
_CALM = 0.05
_SETTLES = 10.0
# States of a connection in /proc/net/tcp.
_ESTABLISHED, _CLOSE_WAIT, _LISTEN = "01", "08", "0A"

Pipe = multiprocessing.connection.Connection


# In the broker's process


class Lists:
    """A transport whose peers are at the other end of a pipe."""

    endpoints = ("tcp://127.0.0.1:1",)

    def __init__(self, pipe: Pipe, streams: bool) -> None:
        self._pipe = pipe
        # Whether peers are connections, whose end is noticed.
        self._streams = streams
        self._there: set[bytes] = set()

    def arrivals(self) -> Iterator[Arrival]:
        for _ in range(_ROUND):
            if not self._pipe.poll():
                return
            order, peer, frames = self._pipe.recv()
            if order == "turn":
                self._pipe.send((b"", []))
                return
            if order == "connect":
                self._there.add(peer)
                if self._streams:
                    yield Joined(peer)
            elif order == "vanish":
                self._there.discard(peer)
                if self._streams:
                    yield Gone(peer, "it ended")
            elif order == "say" and peer in self._there:
                yield Message(peer, frames)

    def pending(self) -> bool:
        return self._pipe.poll()

    def send(self, peer: bytes, frames: tuple[bytes, ...]) -> bool:
        if peer in self._there:
            self._pipe.send((peer, list(frames)))
        return peer in self._there

    def address(self, peer: bytes) -> str:
        return peer.decode()

    def drop(self, peer: bytes) -> None:
        self._there.discard(peer)
        if self._streams:
            self._pipe.send((peer, []))

    def fds(self) -> list[int]:
        return [self._pipe.fileno()]

    def missing(self) -> str:
        return ""

    def next_tick_at(self) -> float | None:
        return None

    def tick(self, now: float) -> None:
        pass

    def close(self) -> None:
        pass


def _answer_turns(kind: Any, pipe: Pipe) -> None:
    """Have a transport with sockets say when it has taken in what there was, if it is asked."""
    arrivals, fds = kind.arrivals, kind.fds

    def these(self: Any) -> Iterator[Arrival]:
        yield from arrivals(self)
        if pipe.poll():
            pipe.recv()
            pipe.send((b"", []))

    kind.arrivals, kind.fds = these, lambda self: [*fds(self), pipe.fileno()]


def _broke(told: Any, link: str, pipe: Pipe, ahead: Any, log: Path) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    monotonic, wall = time.monotonic, time.time
    time.monotonic = lambda: monotonic() + ahead.value
    time.time = lambda: wall() + ahead.value
    if link == "lists":
        transport = Lists(pipe, streams=told.protocol == "fuq")
        zmq_transport.Hub = tcp.Listener = lambda *_: transport  # type: ignore[misc, assignment]
    else:
        _answer_turns(tcp.Listener if told.protocol == "fuq" else zmq_transport.Hub, pipe)

    def say(words: str) -> None:
        with log.open("a") as file:
            print(words, file=file)

    def listening(endpoints: Sequence[str]) -> None:
        pipe.send((b"", list(endpoints)))

    try:
        left = Broker(told, say, listening).run()
    except QueueError as error:
        say(str(error))
        sys.exit(error.exit_code)
    say(f"{left.word}: {left.why}")
    sys.exit(left.exit_code)


# In the tests' process


class _Sockets:
    """Peers with sockets of their own."""

    def __init__(self, streams: bool, endpoint: str) -> None:
        self._streams = streams
        self._context = zmq.Context()
        self._open: dict[bytes, Any] = {}
        # What ZeroMQ has not handed to the kernel yet, as far as we know, by peer.
        self._unsent: list[tuple[bytes, zmq.MessageTracker]] = []
        self.endpoint = endpoint

    def connect(self, peer: bytes) -> None:
        if peer in self._open:
            return
        if self._streams:
            one = self._open[peer] = socket.create_connection(host_and_port(self.endpoint))
            one.setblocking(False)  # noqa: FBT003 - as sockets have it
            # Its end is noticed at once.
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return
        dealer = self._open[peer] = self._context.socket(zmq.DEALER)
        dealer.setsockopt(zmq.IDENTITY, peer)
        dealer.setsockopt(zmq.LINGER, 0)
        dealer.setsockopt(zmq.RECONNECT_IVL, 20)
        dealer.copy_threshold = 0
        dealer.connect(self.endpoint)

    def say(self, peer: bytes, frames: Sequence[bytes]) -> None:
        one = self._open.get(peer)
        if one is not None and self._streams:
            with contextlib.suppress(OSError):
                one.sendall(b"".join(frames))
        elif one is not None:
            self._unsent.append((peer, one.send_multipart(frames, copy=False, track=True)))

    def vanish(self, peer: bytes) -> None:
        if (one := self._open.pop(peer, None)) is not None:
            one.close()

    def has_arrived(self) -> bool:
        """Whether the broker's process has read all that was said, and every end."""
        self._unsent = [one for one in self._unsent if one[0] in self._open and not one[1].done]
        if self._unsent:
            return False
        host, port = host_and_port(self.endpoint)
        broker = f"{socket.inet_aton(host)[::-1].hex().upper()}:{port:04X}"
        there = 0
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            _, ours, theirs, state, queues, *_ = line.split()
            unsent, unread = (int(one, 16) for one in queues.split(":"))
            if ours == broker and state != _LISTEN and (unread or state == _CLOSE_WAIT):
                return False
            if theirs == broker:
                if unsent:
                    return False
                there += state in (_ESTABLISHED, _CLOSE_WAIT)
        return there == len(self._open)

    def heard(self) -> Iterator[tuple[bytes, list[bytes]]]:
        for peer, one in self._open.items():
            with contextlib.suppress(BlockingIOError, ConnectionError, zmq.Again):
                while frames := [one.recv(1 << 16)] if self._streams else self._receive(one):
                    yield peer, frames
                    if not frames[0] and self._streams:
                        break

    def _receive(self, one: Any) -> list[bytes]:
        return list(one.recv_multipart(zmq.NOBLOCK))

    def close(self) -> None:
        for peer in [*self._open]:
            self.vanish(peer)
        self._context.term()


class Door(Site):
    """One broker over one queue, and its peers."""

    def __init__(self, root: Path, protocol: str, link: str, row: Row) -> None:
        super().__init__(root)
        self.protocol = protocol
        self.row = row
        # Whether the table says that something else happens here; and whether anybody asked.
        self.was_asked = False
        self.submitted: list[str] = []
        # So many that every one of them is found gone.
        self.many = 100 if link == "lists" else 10
        self._streams = protocol == "fuq"
        self._endpoint = free_endpoint()
        is_real = link == "sockets"
        self._sockets = _Sockets(self._streams, self._endpoint) if is_real else None
        self._link = link
        self._heard: dict[bytes, list[list[bytes]]] = defaultdict(list)
        # What the broker's clock is ahead of ours.
        # Without a lock: a broker that is killed amid a look at its clock would keep that for ever.
        self._ahead = FORKS.RawValue("d", 0.0)
        self._process: Any = None
        self._pipe: Pipe | None = None
        self._workers: list[Worker] = []
        # When those that are idle say the next time that they are there.
        self._signs_at = 0.0
        # Turns of this broker that were asked for, and those that it has had.
        self._turns = self._answered = 0
        self.queue("in")
        self.queue("out")

    def move_to(self, root: Path) -> None:
        """Have the queues elsewhere; only before anything is in them."""
        self.root = root
        self.queue("in")
        self.queue("out")

    def end(self) -> None:
        """End the broker if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.join()

    def __exit__(self, *_: object) -> None:
        self.end()
        if self._sockets is not None:
            self._sockets.close()

    @property
    def differs(self) -> bool:
        """Whether something else happens at this door: what, the table says."""
        self.was_asked = True
        return self.protocol in self.row.differs

    # The broker

    def broker(self, job_timeout: float | None = None, **options: Any) -> None:
        """Start the broker, with the id and at the address that it had, and wait until it
        listens."""
        told = settings_of(self.protocol).BrokerSettings(
            input=str(self.root / "in"),
            outputs=(str(self.root / "out"),),
            listen=(self._endpoint,),
            id="broker",
            options=Options(**options),
            job_timeout=job_timeout,
            level=1,
        )
        ours, theirs = FORKS.Pipe()
        given = (told, self._link, theirs, self._ahead, self.beside / "words")
        self._process = FORKS.Process(target=_broke, args=given)
        self._process.start()
        theirs.close()
        self._pipe = ours
        self._turns = self._answered = 0
        _, endpoints = ours.recv() if ours.poll(PATIENCE) else (b"", [])
        assert endpoints, f"the broker does not listen: {self.said()}"

    @property
    def runs(self) -> bool:
        """Whether the broker has not ended."""
        return bool(self._process.is_alive())

    def kill(self) -> None:
        """End the broker by SIGKILL; whoever was connected is not any more."""
        self._process.kill()
        self._process.join()

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        os.kill(self._process.pid, number)

    def ended(self) -> int:
        """Wait for the broker's end; return its exit code."""
        self.until(lambda: self._process.exitcode is not None, "the broker has ended")
        return int(self._process.exitcode)

    def leave(self) -> int:
        """Ask the broker to leave, and return its exit code."""
        self.signal()
        return self.ended()

    def later(self, seconds: float) -> None:
        """Let so much time pass for the broker, by both of its clocks."""
        while seconds > 0:
            self._ahead.value += min(seconds, _STEP)
            seconds -= _STEP
            self.turns()

    def turns(self) -> None:
        """Let the broker see all that there is to see by now, and act on it; or end."""
        if self._sockets is not None:
            ends_at = time.monotonic() + _SETTLES
            self.until(
                lambda: self._has_arrived() or time.monotonic() > ends_at, "what was said is there"
            )
            time.sleep(_CALM)
        for _ in range(_TURNS):
            self._turns += 1
            self._tell("turn")
            self.until(
                lambda: self._answered == self._turns or not self.runs, "the broker has had a turn"
            )

    def _has_arrived(self) -> bool:
        return self._sockets is None or self._sockets.has_arrived() or not self.runs

    # Peers; the door is their link

    def worker(self, name: str = "w", slots: int = 1) -> Worker:
        """A worker that is listed."""
        worker = WORKERS[self.protocol](self, name.encode())
        self._workers.append(worker)
        worker.join(slots)
        return worker

    def lose(self, worker: Worker) -> None:
        """Let a worker vanish with what it has, and the broker see whether it is there."""
        worker.vanish()
        self.later(_PROBES_EVERY)

    def client(self, name: str = "c") -> Client:
        client = CLIENTS[self.protocol](self, name.encode())
        client.connect()
        return client

    def connect(self, peer: bytes) -> None:
        if self._sockets is not None:
            self._sockets.connect(peer)
        else:
            self._tell("connect", peer)

    def say(self, peer: bytes, *frames: bytes) -> None:
        if self._sockets is not None:
            self._sockets.say(peer, frames)
        else:
            self._tell("say", peer, frames)

    def vanish(self, peer: bytes) -> None:
        if self._sockets is not None:
            self._sockets.vanish(peer)
        else:
            self._tell("vanish", peer)

    def heard(self, peer: bytes) -> list[list[bytes]]:
        self._listen()
        return self._heard.pop(peer, [])

    def until(self, fact: Callable[[], Any], words: str) -> Any:
        patience = _NO_PATIENCE if self.protocol in self.row.not_yet else PATIENCE
        ends_at = time.monotonic() + patience
        while not (found := fact()):
            self._listen()
            assert self._process.exitcode in _EXPECTED, self.said()
            assert time.monotonic() < ends_at, f"never: {words}\n{self._told()}"
            if time.monotonic() >= self._signs_at:
                self._signs_at = time.monotonic() + _SIGNS_OF_LIFE
                for worker in self._workers:
                    worker.says_it_lives()
            time.sleep(_PAUSE)
        return found

    def _tell(self, order: str, peer: bytes = b"", frames: Sequence[bytes] = ()) -> None:
        assert self._pipe is not None
        with contextlib.suppress(BrokenPipeError):
            self._pipe.send((order, peer, list(frames)))

    def _listen(self) -> None:
        assert self._pipe is not None
        with contextlib.suppress(EOFError, ConnectionError):
            while self._pipe.poll():
                peer, frames = self._pipe.recv()
                if peer:
                    self._heard[peer].append(frames)
                else:
                    self._answered += 1
        if self._sockets is not None:
            for peer, frames in self._sockets.heard():
                self._heard[peer].append(frames)

    # Documents

    def bring(self, *docids: str) -> None:
        """Submit documents that say which they are; of fuq, jobs of one task."""
        for docid in docids:
            content = docid.encode()
            if self.protocol == "fuq":
                content = encode(JobFile(command="work", name=docid))
            self.submit(docid, content=content)
        self.submitted += docids

    def published(self) -> list[str]:
        """The documents whose output is there, and right."""
        return sorted(docid for docid in self.submitted if self._is_right(docid))

    def _is_right(self, docid: str) -> bool:
        if self.protocol != "fuq":
            content = self.files().get(f"{docid}.ready")
            return content == answer_to(docid)
        # Its summary is the last of a job.
        files = self.files()
        task = files.get(f"{docid}.1.ready")
        if task is None or f"{docid}.ready" not in files:
            return False
        found = msgspec.json.decode(task)
        return bool(found["success"] and found["name"] == docid)

    def is_failed(self, docid: str) -> bool:
        """Whether it is published that a task of fuq did not succeed."""
        task = self.files().get(f"{docid}.1.ready")
        return task is not None and not msgspec.json.decode(task)["success"]

    def until_published(self, *docids: str) -> None:
        self.until(lambda: set(docids) <= set(self.published()), f"{docids} are published")

    def task_of(self, docid: str) -> str:
        """What is charged: of fuq, a job's task."""
        return f"{docid}.1" if self.protocol == "fuq" else docid

    def charges(self, docid: str) -> int:
        """How many attempts a document was charged, so far as the journals say."""
        return len(self.blamed(docid))

    def charged(self) -> dict[str, list[str]]:
        """Return what documents were charged for, of those that were charged."""
        return {docid: blamed for docid in self.submitted if (blamed := self.blamed(docid))}

    def blamed(self, docid: str) -> list[str]:
        """What a document was charged for."""
        events = self.events(self.task_of(docid))
        return [one.message or "" for one in events if one.event in ("failed", "discarded")]

    def lost(self, docid: str) -> int:
        """How often a document was taken from a worker that was lost, charged or not."""
        events = self.events(self.task_of(docid))
        return sum(one.event in ("failed", "discarded", "released") for one in events)

    def account(self) -> list[str]:
        """What is wrong when all is done: nothing is left, and nothing is there twice."""
        found = {docid.removesuffix(".ready") for docid in self.files()}
        tasks = {f"{docid}.1" for docid in self.submitted if self.protocol == "fuq"}
        wrong = found ^ ({*self.submitted} | tasks)
        return sorted([*wrong, *self.states(), *({*self.submitted} - {*self.published()})])

    def is_discarded(self, docid: str) -> bool:
        return any(one.event == "discarded" for one in self.events(self.task_of(docid)))

    def pause(self, *, wanted: bool = True) -> None:
        self._control("PAUSE", wanted)

    def quit(self, *, wanted: bool = True) -> None:
        self._control("QUIT", wanted)

    def _control(self, name: str, wanted: bool) -> None:
        with Queue.open(self.root / "in") as queue:
            queue.set_control(name, wanted=wanted)

    def _told(self) -> str:
        """What there is to see, where something was waited for in vain."""
        return f"{self.said()}\n{self.states()}\n{self.noted()}"

    def noted(self) -> list[tuple[str, str, str | None]]:
        """What the journals have of all documents."""
        found = read_events(str(self.root / "in" / names.PRIVATE / names.JOURNAL)).events
        return [(one.docid, one.event, one.message) for one in found]

    def said(self) -> str:
        """What the broker said."""
        log = self.beside / "words"
        return log.read_text() if log.exists() else ""
