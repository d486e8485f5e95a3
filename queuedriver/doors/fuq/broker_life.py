"""The broker of fuq: a driver whose documents are jobs, and whose work is done by clients.

It registers, claims, recovers and leaves as any driver does; its loop is a driver's, and besides
converses with clients. Killed at any moment it loses nothing: what has ended is on disk, and what
clients had is dealt again by whoever claims the job next, charged to nobody.
"""

import contextlib
import os
import resource
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import msgspec

from queuedriver.claims.heartbeat import Heartbeat
from queuedriver.doors.fuq.broker import Broker, Finished, FuqEffects
from queuedriver.doors.fuq.settings import BrokerSettings
from queuedriver.doors.transports import tls
from queuedriver.doors.transports.addresses import is_loopback
from queuedriver.doors.transports.base import Arrival, Joined, Message, Refused
from queuedriver.doors.transports.tcp import Listener
from queuedriver.doors.words import Close, Lost, Say, Send, SetBack
from queuedriver.driving.life import Left, Life
from queuedriver.driving.limits import Limits
from queuedriver.driving.live_status import Board
from queuedriver.driving.loop import Loop
from queuedriver.driving.plan import Quit, Seen
from queuedriver.driving.setup import Opened, opened
from queuedriver.driving.wake import Woken
from queuedriver.errors import ConfigError, NotPermitted
from queuedriver.jobs import control
from queuedriver.jobs import job as jobs
from queuedriver.jobs.control import BrokerFiles, BrokerView, ClientView
from queuedriver.jobs.scheduler import Scheduler
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


class FuqBroker(Life):
    """One broker, from its settings to how it left."""

    def __init__(
        self,
        asked: BrokerSettings,
        say: Callable[[str], None],
        listening: Callable[[Sequence[str]], None],
        board: Board | None = None,
    ) -> None:
        # Jobs first come, first served.
        super().__init__(msgspec.structs.replace(asked.options, order="age"), board)
        self._asked = asked
        self._say = say
        self._listening = listening

    def run(self, *, last: bool = False) -> Left:
        """Deal until told to leave. `last`: the process is about to end."""
        asked = self._asked
        _raise_descriptors()
        secret, context = security(asked.listen, asked.tls, asked.secret_file, serving=True)
        with contextlib.ExitStack() as at_end:
            limits = Limits(grace=self.options.grace, until=self.options.until, last=last)
            at_end.callback(limits.close)
            # First of all: an address that is taken is said before any queue is touched.
            listener = Listener(asked.listen, context)
            at_end.callback(listener.close)
            beats: list[Heartbeat] = []

            def register_us(found: Opened) -> None:
                beats.append(self._register(found, "broker fuq", limits, broker=True))

            opening = opened((asked.input,), asked.outputs, asked.id, self.options, register_us)
            found = at_end.enter_context(opening)
            make_loop = partial(self._make_loop, found, listener, secret, limits, at_end)
            return self._left(self._lead([found], beats, limits, make_loop))

    def _make_loop(
        self,
        found: Opened,
        listener: Listener,
        secret: bytes | None,
        limits: Limits,
        at_end: contextlib.ExitStack,
    ) -> "FuqLoop":
        session = Broker(secret, lambda: os.urandom(32), job_timeout=self._asked.job_timeout)
        queue = found.queues[0]
        directory = queue.private.subdirectory(jobs.JOBS, create=True)
        at_end.callback(directory.close)
        for name in jobs.ended(directory, queue.directory):
            jobs.remove(directory, name)
        scheduler = Scheduler(queue, directory, self._tally, limits, network=found.network)
        at_end.callback(scheduler.close)
        files = BrokerFiles(Queue(queue.directory), self.id)
        at_end.callback(files.close)
        scheduler.ended.extend(files.ended)
        self._listening(listener.endpoints)
        options, tell = self.options, self._tell
        return FuqLoop(found, scheduler, session, listener, files, limits, options, tell)

    def _tell(self, said: Say) -> None:
        if said.level <= self._asked.level:
            self._say(said.words)


class FuqLoop(Loop):
    """A driver's loop; it also listens, and its work is to take jobs up."""

    def __init__(
        self,
        found: Opened,
        scheduler: Scheduler,
        session: Broker,
        listener: Listener,
        files: BrokerFiles,
        limits: Limits,
        options: Options,
        tell: Callable[[Say], None],
    ) -> None:
        # Each job is somebody's own: that many fail says nothing about the next.
        options = msgspec.structs.replace(options, trip_after=0)
        super().__init__(found, limits, scheduler.tally, options)
        self._scheduler = scheduler
        self._session = session
        self._listener = listener
        self._files = files
        # What is to be seen was written so many changes ago, and is written again from then on.
        self._written = -1
        self._write_at = 0.0
        self._stops_at = 0.0
        self._grace = options.grace
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
        self._scheduler.settle()
        self._scheduler.look(now)
        if self._may_deal():
            for effects in deal(self._scheduler, self._session, now, time.time()):
                self._carry_out(effects, now)
        if now >= self._stops_at:
            self._stops_at = now + _LOOK
            for request in self._files.stops():
                to = {request.client.encode()} if request.client else None
                self._carry_out(self._session.stop(request.number, to), now)
        self._show(now)

    def _show(self, now: float) -> None:
        """Write down what there is to see, if it has changed."""
        changes = self._session.changes + self._scheduler.changes
        if changes == self._written or now < self._write_at:
            return
        self._write_at = now + control.WRITE_EVERY
        self._files.write(self._view())
        self._written = changes

    def _view(self) -> BrokerView:
        clients = tuple(
            ClientView(
                one.client.decode(),
                self._listener.address(one.client),
                one.limit,
                one.free,
                len(one.claims),
                tuple(self._scheduler.docids(one.claims[: control.MOST_TASKS])),
                one.refused,
            )
            for one in self._session.clients()
        )
        seen = [job.view() for job in self._scheduler]
        return BrokerView(
            self._files.broker,
            time.time(),
            tuple(self._listener.endpoints),
            clients,
            tuple(
                msgspec.structs.replace(job, why=control.why_waiting(job, clients)) for job in seen
            ),
            tuple(self._scheduler.ended),
        )

    def close(self) -> None:
        """Give everything back, and say for the last time what there was to see."""
        view = self._view()
        with contextlib.suppress(OSError):
            self._scheduler.give_back("the broker was asked to leave")
        ended = tuple(self._scheduler.ended)
        with contextlib.suppress(OSError):
            self._files.write(msgspec.structs.replace(view, clients=(), ended=ended))
        super().close()

    @property
    def published(self) -> int:
        """How many outputs have become visible: of jobs, mostly."""
        return super().published + self._scheduler.published

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
            self._scheduler.take_up(claim)
        return bool(claims)

    def waits(self, now: float) -> bool:
        """Tell whether a job waits that may be taken up."""
        return self._scheduler.has_room and super().waits(now)

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
                self._scheduler.reopen()
            except OSError as error:
                self.on_trouble(error)

    def wish(self) -> tuple[str, str]:
        """Leave only when clients have brought what they have, or the time for that is up."""
        word, why = super().wish()
        if word and self._scheduler.at_hand and not self.trouble:
            since = self.limits.leaving_at
            in_time = since is None or self.clock() < since + self._grace
            if not self.limits.hurried and in_time:
                return "", ""
        return word, why

    def seen(self) -> Seen:
        seen = super().seen()
        left = len(self._scheduler)
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
            return self._session.receive(arrival.peer, arrival.frames, now)
        if isinstance(arrival, Refused):
            return [Say(0, arrival.why)]
        return self._session.gone(arrival.peer, now)

    def _carry_out(self, effects: FuqEffects, now: float) -> None:
        todo = list(reversed(effects))
        while todo:
            effect = todo.pop()
            if isinstance(effect, Send):
                if not self._listener.send(effect.peer, effect.frames):
                    todo += reversed(self._session.gone(effect.peer, now, effect.claim))
            elif isinstance(effect, Finished | SetBack | Lost):
                self._scheduler.end(effect)
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
            self._scheduler.settle()
        except OSError as error:
            self.on_trouble(error)

    def wait(self, seconds: float) -> Woken:
        """Until there is something to do; or to say, to which no queue matters."""
        now = time.monotonic()
        watched = len(self._scheduler) or self._session.connected
        end = now + (min(seconds, _LOOK) if watched else seconds)
        before = self._session.changes
        while True:
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


def deal(scheduler: Scheduler, session: Broker, now: float, wall: float) -> Iterator[FuqEffects]:
    """Deal tasks to whoever has processors free. A job that nobody has room for right now keeps one
    client from smaller tasks until it has."""
    reserved: bytes | None = None
    for job in scheduler.heads(wall):
        while session.ready() and job.waits(wall):
            to = session.takes(job.id, job.need, now, reserved)
            if to is None:
                if reserved is None:
                    reserved = session.reserve(job.id, job.need, now)
                break
            if (work := scheduler.take(job, wall)) is None:
                break
            yield session.deal(work, now, to)


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
