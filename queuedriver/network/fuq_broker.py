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

from queuedriver.claims.hands import Hands
from queuedriver.claims.lane import Owner
from queuedriver.claims.liveness import CRASHED, Counters, Observer
from queuedriver.claims.picking import Candidate
from queuedriver.disk.filesystem import Directory
from queuedriver.driving.backpressure import BackPressure
from queuedriver.driving.driver import Left, is_waiting
from queuedriver.driving.limits import Limits
from queuedriver.driving.live_status import Tally
from queuedriver.driving.loop import Loop
from queuedriver.driving.plan import Quit, Seen
from queuedriver.driving.presence import cascade, forget_ended, register, say_goodbye
from queuedriver.driving.startup import Crew, assemble
from queuedriver.driving.wake import Waker, Woken
from queuedriver.errors import ConfigError, NotPermitted, QueueError
from queuedriver.format import names
from queuedriver.network import fuq_jobs, tls
from queuedriver.network.addresses import is_loopback
from queuedriver.network.fuq_board import Board
from queuedriver.network.fuq_foreman import Foreman
from queuedriver.network.meter import Meter
from queuedriver.network.tcp import Listener
from queuedriver.network.transport import Arrival, Joined, Message
from queuedriver.operating.queue import Queue
from queuedriver.options import Options
from queuedriver.protocols.dealing import Close, Lost, Say, Send, SetBack
from queuedriver.protocols.fuq import Broker, Finished, FuqEffects

Path = str | os.PathLike[str]

# What is no hint of the kernel's (a job's control files, wishes to stop) is looked for so often.
_LOOK = 0.25
# Bytes: what a secret must have at least; the original drew 32.
_SHORTEST_SECRET = 16
_LONGEST_SECRET = 4096
# More than connections and open jobs together may come to.
_DESCRIPTORS = 16_384


class BrokerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker of fuq is told."""

    input: Path
    outputs: tuple[Path, ...] = ()
    listen: tuple[str, ...] = ("tcp://127.0.0.1:5429",)
    id: str | None = None
    options: Options = Options()
    # Seconds that a client may have a task; None: for ever.
    job_timeout: float | None = None
    # A directory of certificates, and a file with what both sides know.
    tls: str | None = None
    secret_file: str | None = None
    # How much is said: 0 to 9.
    level: int = 0


def run_broker(
    asked: BrokerOptions,
    say: Callable[[str], None] = lambda words: None,
    listening: Callable[[Sequence[str]], None] = lambda endpoints: None,
) -> Left:
    """Deal until told to leave. QueueError when it cannot even start."""
    return FuqBroker(asked, say, listening).run()


class FuqBroker:
    """One broker, from its options to how it left."""

    def __init__(
        self,
        asked: BrokerOptions,
        say: Callable[[str], None],
        listening: Callable[[Sequence[str]], None],
    ) -> None:
        # Jobs first come, first served.
        self.options = msgspec.structs.replace(asked.options, order="age").check()
        self.id = ""
        # What could not be noted in the journal, once it has left.
        self.unnoted: tuple[str, ...] = ()
        self._asked = asked
        self._say = say
        self._listening = listening
        self._tally = Tally()
        self._loop: FuqLoop | None = None
        self._held: set[str] = set()

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
            observer = Observer()
            inputs, outputs = (asked.input,), asked.outputs
            with assemble(inputs, outputs, asked.id, options, observer, self._held) as crew:
                jobs = self._jobs(crew, observer)
                at_end.callback(jobs.close)
                beats = register(crew, options, "broker fuq", self._report, limits, broker=True)
            self.id = crew.driver
            end = Quit(CRASHED, "it ended by an error", 70)
            try:
                session = Broker(secret, lambda: os.urandom(32), job_timeout=asked.job_timeout)
                mint = names.Mint(crew.driver, crew.salt)
                hands = Hands(mint, self._held, self._tally)
                lane = crew.lanes[0]
                owner = Owner(crew.driver, crew.salt, observer.me.host, self._held)
                foreman = Foreman(lane, jobs, owner, observer, hands, limits, session)
                at_end.callback(foreman.close)
                board = Board(lane.queue, crew.driver, listener)
                at_end.callback(board.close)
                self._listening(listener.endpoints)
                pressure = BackPressure(options, crew.targets, observer, lambda: 1)
                waker = Waker([lane.queue.path], options.poll, limits.wake_fd, is_waiting)
                at_end.callback(waker.close)
                loop = FuqLoop(
                    crew,
                    foreman,
                    session,
                    listener,
                    board,
                    limits,
                    pressure,
                    waker,
                    self._tally,
                    options,
                    self._tell,
                )
                end = self._drive(crew, loop, foreman, limits)
            except QueueError as error:
                end = Quit("failed", str(error), error.exit_code)
                raise
            finally:
                say_goodbye(crew, beats, end)
                journals = (lane.journal for lane in crew.lanes)
                self.unnoted = tuple(one.unnoted for one in journals if one.unnoted)
        code = end.exit_code
        if options.drain and self._tally.discarded and not code:
            code = 1
        return Left(end.word, end.why, code, self._tally.counters())

    def _jobs(self, crew: Crew, observer: Observer) -> Directory:
        """Where jobs are; without those that never counted, if nobody else may be at them."""
        lane = crew.lanes[0]
        jobs = lane.queue.private.subdirectory(fuq_jobs.JOBS, create=True)
        known = lane.queue.drivers(observer).values()
        others = [one for one in known if one.alive and one.is_broker and one.id != crew.driver]
        fuq_jobs.sweep(jobs, lane.queue.directory, alone=not others)
        # So that an output queue is not done while there are jobs, though their files have left.
        jobs.remove(names.DONE)
        for target in crew.targets:
            if target.publication.is_queue:
                with Queue.open(target.directory.path) as output:
                    output.add_feed(jobs.path)
        return jobs

    def _drive(self, crew: Crew, loop: "FuqLoop", foreman: Foreman, limits: Limits) -> Quit:
        limits.install()
        try:
            self._tally.start()
            self._loop = loop
            end = loop.run()
            if end.word in ("done", "drained"):
                forget_ended(crew.lanes)
            if end.word == "done":
                with Queue.open(foreman.directory.path) as jobs:
                    jobs.set_control(names.DONE, wanted=True)
                cascade(crew)
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
        crew: Crew,
        foreman: Foreman,
        session: Broker,
        listener: Listener,
        board: Board,
        limits: Limits,
        pressure: BackPressure,
        waker: Waker,
        tally: Tally,
        options: Options,
        tell: Callable[[Say], None],
    ) -> None:
        super().__init__(crew.lanes, foreman, limits, pressure, waker, tally, options)
        self._foreman = foreman
        self._session = session
        self._listener = listener
        self._board = board
        self._grace = options.grace
        self._meter = Meter()
        self._tell = tell
        for fd in listener.fds():
            waker.also(fd)

    # Look

    def _look(self) -> Seen:
        now = time.monotonic()
        self._converse(now)
        if not self._trouble:
            try:
                self._foreman.step(now, self._may_deal())
            finally:
                # What was dealt before the trouble is with its clients.
                self._carry_out(self._foreman.take(), now)
            self._carry_out(self._board.turn(self._session, self._foreman, now), now)
        return super()._look()

    def _may_deal(self) -> bool:
        if self._paused or self._leaving or self._limits.leaving_at is not None:
            return False
        published = self._foreman.published
        return self._pressure.has_room(published) or not self._pressure.full(published)

    def _next(self, now: float) -> Candidate | None:
        return super()._next(now) if self._foreman.has_room else None

    def _facts(self, now: float, leaving: str, why: str) -> Seen:
        at_hand = self._foreman.at_hand
        if leaving and at_hand and not self._trouble:
            since = self._limits.leaving_at
            if not self._limits.hurried and (since is None or now < since + self._grace):
                return msgspec.structs.replace(super()._facts(now, "", ""), paused=True)
        seen = super()._facts(now, leaving, why)
        left = at_hand + self._foreman.known
        return msgspec.structs.replace(seen, unfinished=seen.unfinished + left, only_later=False)

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
        if self._trouble:
            return
        try:
            self._foreman.settle()
        except OSError as error:
            self._suffer(error)

    def _wait(self, seconds: float) -> Woken:
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
                woken = self._waker.wait(max(0.0, until - now))
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
