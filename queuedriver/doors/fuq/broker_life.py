"""The broker of fuq: a driver whose documents are jobs, and whose work is done by clients.

It registers, claims, recovers and leaves as any driver does; its loop is a driver's, and besides
converses with clients. Killed at any moment it loses nothing: jobs and tasks are items on disk, and
what clients had is released by whoever notices, charged to nobody.
"""

import contextlib
import os
import resource
import ssl
import time
from collections.abc import Callable, Sequence

import msgspec

from queuedriver.claims.heartbeat import Heartbeat
from queuedriver.claims.liveness import CRASHED
from queuedriver.disk.filesystem import Directory
from queuedriver.doors.fuq.board import Board
from queuedriver.doors.fuq.broker import Broker, Finished, FuqEffects
from queuedriver.doors.fuq.settings import BrokerSettings
from queuedriver.doors.meter import Meter
from queuedriver.doors.transports import tls
from queuedriver.doors.transports.addresses import is_loopback
from queuedriver.doors.transports.base import Arrival, Joined, Message
from queuedriver.doors.transports.tcp import Listener
from queuedriver.doors.words import Close, Lost, Say, Send, SetBack
from queuedriver.driving import live_status
from queuedriver.driving.driver import mints
from queuedriver.driving.limits import Limits
from queuedriver.driving.live_status import Tally
from queuedriver.driving.loop import Left, Loop, finish, left, register, say_goodbye
from queuedriver.driving.plan import Quit, Seen
from queuedriver.driving.setup import Opened, opened
from queuedriver.driving.wake import Woken
from queuedriver.errors import ConfigError, NotPermitted, QueueError
from queuedriver.format import names
from queuedriver.format.records import Counters
from queuedriver.jobs import job as fuq_jobs
from queuedriver.jobs.foreman import Foreman
from queuedriver.operating.queue import Queue
from queuedriver.options import Options

# What is no hint of the kernel's (a job's control files, wishes to stop) is looked for so often.
_LOOK = 0.25
# Bytes: what a secret must have at least; the original drew 32.
_SHORTEST_SECRET = 16
_LONGEST_SECRET = 4096
# More than connections and open jobs together may come to.
_DESCRIPTORS = 16_384


def run_broker(
    asked: BrokerSettings,
    say: Callable[[str], None] = lambda words: None,
    listening: Callable[[Sequence[str]], None] = lambda endpoints: None,
) -> Left:
    """Deal until told to leave. QueueError when it cannot even start."""
    return FuqBroker(asked, say, listening).run()


class FuqBroker:
    """One broker, from its options to how it left."""

    def __init__(
        self,
        asked: BrokerSettings,
        say: Callable[[str], None],
        listening: Callable[[Sequence[str]], None],
        board: live_status.Board | None = None,
    ) -> None:
        # Jobs first come, first served.
        self.options = msgspec.structs.replace(asked.options, order="age").check()
        self.id = ""
        # What could not be noted in the journal, once it has left.
        self.unnoted: tuple[str, ...] = ()
        self._asked = asked
        self._say = say
        self._listening = listening
        # Where a watchdog sees what it does.
        self._live_status = board
        self._tally = live_status.Tally(board)
        self._loop: FuqLoop | None = None

    def run(self) -> Left:
        """Deal until told to leave."""
        asked, options = self._asked, self.options
        _raise_descriptors()
        secret, context = security(asked.listen, asked.tls, asked.secret_file, serving=True)
        with contextlib.ExitStack() as at_end:
            limits = Limits(grace=options.grace)
            at_end.callback(limits.close)
            # First of all: an address that is taken is said before any queue is touched.
            listener = Listener(asked.listen, context)
            at_end.callback(listener.close)
            inputs, outputs = (asked.input,), asked.outputs
            jobs: list[Directory] = []
            beats: list[Heartbeat] = []

            def register_us(found: Opened) -> None:
                jobs.append(self._jobs(found))
                name = "broker fuq"
                beats.append(register(found, options, name, self._report, limits, broker=True))

            found = at_end.enter_context(opened(inputs, outputs, asked.id, options, register_us))
            at_end.callback(jobs[0].close)
            mints.add(found.mint)
            self.id = found.mint.driver
            end = Quit(CRASHED, "it ended by an error", 70)
            try:
                session = Broker(secret, lambda: os.urandom(32), job_timeout=asked.job_timeout)
                queue = found.queues[0]
                foreman = Foreman(queue, jobs[0], found.observer, self._tally, limits, session)
                at_end.callback(foreman.close)
                board = Board(Queue(queue.directory), self.id, listener)
                at_end.callback(board.close)
                self._listening(listener.endpoints)
                loop = FuqLoop(
                    found,
                    foreman,
                    session,
                    listener,
                    board,
                    limits,
                    self._tally,
                    options,
                    self._tell,
                )
                at_end.callback(loop.waker.close)
                end = self._drive(found, loop, foreman, limits)
            except QueueError as error:
                end = Quit("failed", str(error), error.exit_code)
                raise
            finally:
                self.unnoted = say_goodbye(found, beats[0], end)
        return left(end, self._tally, options)

    def _jobs(self, found: Opened) -> Directory:
        """Where jobs are; without those that never counted, if nobody else may be at them."""
        queue = found.queues[0]
        jobs = queue.private.subdirectory(fuq_jobs.JOBS, create=True)
        known = Queue(queue.directory).drivers(found.observer).values()
        others = [
            one for one in known if one.alive and one.is_broker and one.id != found.mint.driver
        ]
        fuq_jobs.sweep(jobs, queue.directory, alone=not others)
        # So that an output queue is not done while there are jobs, though their files have left.
        jobs.remove(names.DONE)
        for target in found.targets:
            if target.publication.is_queue:
                with Queue.open(target.directory.path) as output:
                    output.add_feed(jobs.path)
        return jobs

    def _drive(self, found: Opened, loop: "FuqLoop", foreman: Foreman, limits: Limits) -> Quit:
        limits.install()
        try:
            self._tally.start()
            self._loop = loop
            if self._live_status is not None:
                self._live_status.ready(time.monotonic())
            end = loop.run()
            if end.word == "done":
                with Queue.open(foreman.directory.path) as jobs:
                    jobs.set_control(names.DONE, wanted=True)
            finish(found, end)
            return end
        finally:
            with contextlib.suppress(OSError):
                foreman.give_back("the broker was asked to leave")
            limits.restore()

    def _tell(self, said: Say) -> None:
        if said.level <= self._asked.level:
            self._say(said.words)

    def _report(self) -> tuple[str, str, Counters]:
        loop = self._loop
        state, why = ("starting", "") if loop is None else (loop.state, loop.why)
        return state, why, self._tally.counters()


class FuqLoop(Loop):
    """A driver's loop; it also listens, and its work is to take jobs up."""

    def __init__(
        self,
        found: Opened,
        foreman: Foreman,
        session: Broker,
        listener: Listener,
        board: Board,
        limits: Limits,
        tally: Tally,
        options: Options,
        tell: Callable[[Say], None],
    ) -> None:
        # Each job is somebody's own: that many fail says nothing about the next.
        options = msgspec.structs.replace(options, trip_after=0)
        super().__init__(found, limits, tally, options)
        self._foreman = foreman
        self._session = session
        self._listener = listener
        self._board = board
        self._grace = options.grace
        self._meter = Meter()
        self._tell = tell
        for fd in listener.fds():
            self.waker.also(fd)

    # Look

    def run(self) -> Quit:
        """Converse, take jobs up and deal, or pause, until there is a reason to leave."""
        while True:
            try:
                self._step(self.clock())
                if self.clock() >= self.look_at or (self.limits.leaving_at is not None and self.go):
                    self.look()
                if self.go and self._take_up():
                    continue
                if (end := self.rest()) is not None:
                    return end
            except OSError as error:
                self.on_trouble(error)

    def _step(self, now: float) -> None:
        self._converse(now)
        if self.trouble:
            return
        try:
            self._foreman.step(now, self._may_deal())
        finally:
            # What was dealt before the trouble is with its clients.
            self._carry_out(self._foreman.take(), now)
        self._carry_out(self._board.turn(self._session, self._foreman, now), now)

    @property
    def published(self) -> int:
        """How many outputs have become visible: of jobs, mostly."""
        return super().published + self._foreman.published

    def _may_deal(self) -> bool:
        if self.paused or self.limits.leaving_at is not None:
            return False
        return not self.pressure.full(self.published)

    def _take_up(self) -> bool:
        """Begin to take up a job, if one waits, and there is room. Return whether."""
        if not self.waits(self.clock()) or self.pressure.full(self.published):
            return False
        queue = self.queues[0]
        claims = queue.claim_some(1, self.clock())
        for claim in claims:
            self.resting, self.state, self._idle_turns, self.troubles = False, "busy", 0, 0
            self._foreman.work(claim)
        return bool(claims)

    def waits(self, now: float) -> bool:
        """Tell whether a job waits that may be taken up."""
        return self._foreman.has_room and super().waits(now)

    def look(self) -> None:
        """Look as any driver does; and take no more up once we are to leave, be it later."""
        super().look()
        if self.limits.leaving_at is not None:
            self.go = False

    def mend(self) -> None:
        """Open everything anew: jobs, too."""
        super().mend()
        if not self.trouble:
            try:
                self._foreman.clean()
            except OSError as error:
                self.on_trouble(error)

    def wish(self) -> tuple[str, str]:
        """Leave only when clients have brought what they have, or the time for that is up."""
        word, why = super().wish()
        if word and self._foreman.at_hand and not self.trouble:
            since = self.limits.leaving_at
            in_time = since is None or self.clock() < since + self._grace
            if not self.limits.hurried and in_time:
                return "", ""
        return word, why

    def seen(self) -> Seen:
        seen = super().seen()
        left = self._foreman.at_hand + self._foreman.known
        leaving = self.limits.leaving_at is not None
        return msgspec.structs.replace(
            seen,
            unfinished=seen.unfinished + left,
            only_later=False,
            paused=seen.paused or (leaving and not seen.leaving),
        )

    # Converse

    def _converse(self, now: float) -> None:
        """Take in what has come, and what time has brought."""
        for arrival in self._listener.arrivals():
            self._carry_out(self._hear(arrival, now), now)
        at = self._session.next_tick_at()
        if at is not None and at <= now:
            self._carry_out(self._session.tick(now), now)
        at = self._listener.next_tick_at()
        if at is not None and at <= now:
            self._listener.tick(now)

    def _hear(self, arrival: Arrival, now: float) -> FuqEffects:
        if isinstance(arrival, Joined):
            return self._session.joined(arrival.peer, now)
        if isinstance(arrival, Message):
            if self._meter.allow(arrival.peer, now):
                return self._session.receive(arrival.peer, arrival.frames, now)
            # Of a stream nothing can be left out.
            self._listener.drop(arrival.peer)
        self._meter.forget(arrival.peer)
        return self._session.gone(arrival.peer, now)

    def _carry_out(self, effects: FuqEffects, now: float) -> None:
        todo = list(reversed(effects))
        while todo:
            effect = todo.pop()
            if isinstance(effect, Send):
                if not self._listener.send(effect.peer, effect.frames):
                    todo += reversed(self._session.gone(effect.peer, now, effect.claim))
            elif isinstance(effect, Finished | SetBack | Lost):
                self._foreman.end(effect)
                self._settle()
            elif isinstance(effect, Close):
                self._listener.drop(effect.peer)
            elif isinstance(effect, Say):
                self._tell(effect)

    def _settle(self) -> None:
        """Write down how a task ended before its client is answered; unless nothing can be written:
        then it is kept, and its client goes on."""
        if self.trouble:
            return
        try:
            self._foreman.settle()
        except OSError as error:
            self.on_trouble(error)

    def wait(self, seconds: float) -> Woken:
        """Until there is something to do; or to say, to which no queue matters."""
        now = time.monotonic()
        watched = self._foreman.known or self._session.connected
        end = now + (min(seconds, _LOOK) if watched else seconds)
        before = self._session.changes
        while not self._foreman.busy:
            instants = (self._session.next_tick_at(), self._listener.next_tick_at())
            until = min((end, *(one for one in instants if one is not None)))
            woken: Woken = "other"
            if not self._listener.pending():
                woken = self.waker.wait(max(0.0, until - now))
            if woken in ("hint", "signal"):
                return woken
            now = time.monotonic()
            self._converse(now)
            if self._session.changes != before:
                return "other"
            if now >= end:
                return "timeout"
        return "other"


def _raise_descriptors() -> None:
    """A connection is a descriptor, and an open job some: as many as this process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def security(
    addresses: Sequence[str], directory: str | None, secret_file: str | None, *, serving: bool
) -> tuple[bytes | None, ssl.SSLContext | None]:
    """The secret and the TLS of one side. ConfigError for what would not be safe."""
    secret = None if secret_file is None else read_secret(secret_file)
    if secret is not None and directory is None:
        for address in addresses:
            if not is_loopback(address):
                raise ConfigError(
                    f"{address} is not on this host, and --secret-file alone hides nothing: "
                    "whoever is in between could go on with the conversation; add --tls DIR"
                )
    if directory is None:
        return secret, None
    if serving:
        return secret, tls.serving(directory, other_proof=secret is not None)
    return secret, tls.calling(directory)


def read_secret(path: str) -> bytes:
    """What both sides know. ConfigError where others may read it, or could guess it."""
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            secret = file.read(_LONGEST_SECRET).strip()
    except OSError as error:
        raise NotPermitted(f"--secret-file {path!r}: {error.strerror}") from None
    if mode & 0o077:
        raise ConfigError(f"--secret-file {path!r} can be read by others: chmod 600 it")
    if len(secret) < _SHORTEST_SECRET:
        raise ConfigError(
            f"--secret-file {path!r} has {len(secret)} bytes; at least {_SHORTEST_SECRET}, as "
            "head -c 32 /dev/urandom | base64 gives them"
        )
    return secret
