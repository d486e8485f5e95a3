"""The watchdog's side of a template: orders go in, drivers come out. Nothing here waits.

    stopped --start--> loading --Ready--> ready        requests made while it loads wait
       ^                  |                 |
       |                  +----- Failed ----+----> failed        requests are refused
       +-------------------- stop ----------+

It has one spare more than there are requests, so that the next one is served at once. A template
that dies takes its spares along and leaves its drivers alone.
"""

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from queuedriver.format.records import decode_by
from watchdogd.children import Child, Children, Exit
from watchdogd.preload import Load, Loaded, Unfit
from watchdogd.spare import LIMIT, NotForked, Parked

COMMAND = (sys.executable, "-P", "-m", "watchdogd.preload")
# A library that starts threads while it loads is of no use to forks: most can be told to have one.
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
_FORK = b"fork"
# What a spare sends along: its pidfd and its socket.
_FDS = 2
# Spares that died in a row, unused: something ends them, and it is not for us to feed it.
_MAX_WASTED = 3
_CANNOT_FORK, _LATER = 70, 75
_MESSAGE = msgspec.json.Decoder(Loaded | Unfit | Parked | NotForked)

State = Literal["stopped", "loading", "ready", "failed"]


class Ready(NamedTuple):
    """It has loaded. Time in seconds, memory in bytes; `note` is what a user had better know."""

    loaded_in: float
    rss: int
    pss: int
    note: str


class Spawned(NamedTuple):
    """A driver runs. `memory` is what it had, shared, before it began."""

    name: str
    process: Child
    memory: int


class Refused(NamedTuple):
    """There will be no driver for this request."""

    name: str
    why: str
    exit_code: int


class Failed(NamedTuple):
    """The template's process has ended, unasked. The drivers that came from it live on."""

    why: str
    ended: Exit


Event = Ready | Spawned | Refused | Failed


class _Spare(NamedTuple):
    process: Child
    socket: socket.socket
    memory: int


class Template:
    """A process that has loaded what the drivers of a stage have in common, and forks them."""

    def __init__(
        self,
        load: Load,
        children: Children,
        env: Mapping[str, str] | None = None,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self.state: State = "stopped"
        # Why it failed.
        self.why = ""
        # Forks that were asked for, and have not come yet.
        self._coming: list[Child] = []
        self.load = load
        self._children = children
        self._env = {**ONE_THREAD, **load.env, **(env or {})}
        self._command = command
        self._process: Child | None = None
        self._control: socket.socket | None = None
        self._requests: list[tuple[str, bytes]] = []
        self._spares: list[_Spare] = []
        # Told to leave; they are still to be reaped.
        self._leaving: list[Child] = []
        self._wasted = 0
        self._exit_code = 0

    # Look

    @property
    def processes(self) -> list[Child]:
        """What this has running besides drivers."""
        ours = [self._process] if self._process else []
        return [*ours, *(spare.process for spare in self._spares), *self._leaving]

    @property
    def fds(self) -> list[int]:
        """When one of these is readable, `receive` has something to do."""
        return [self._control.fileno()] if self._control else []

    # Act

    def start(self, log: int | None = None) -> None:
        """Start loading; only when nothing of it runs. What it prints goes to `log`."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # The last word is for people who list processes.
            argv = (*self._command, self.load.stage)
            environ = {**os.environ, **self._env}
            try:
                self._process = self._children.start(
                    argv, environ, stdin=theirs.fileno(), stdout=log, stderr=log
                )
            except OSError:
                ours.close()
                raise
        ours.settimeout(0.0)
        self._control = ours
        self.state, self.why = "loading", ""
        self._wasted = 0
        # Where it could not even be executed, it has ended by now, and we are about to hear of it.
        with contextlib.suppress(BrokenPipeError):
            ours.send(msgspec.json.encode(self.load))

    def request(self, name: str, order: bytes) -> Spawned | Refused | None:
        """A driver for this order, which is JSON with the `parent` that the driver is to have.
        None: it takes a fork, or the template still loads; an event tells."""
        if self.state == "failed":
            return Refused(name, self.why, self._exit_code)
        if len(order) > LIMIT:
            why = f"an order of {len(order)} bytes is too long for a stage with preload"
            return Refused(name, why, _CANNOT_FORK)
        spawned = self._give(name, order)
        if spawned is None:
            self._requests.append((name, order))
        self._replenish()
        return spawned

    def withdraw(self, name: str) -> None:
        """A request that is wanted no more; one that was served has a driver."""
        self._requests = [one for one in self._requests if one[0] != name]

    def receive(self) -> list[Event]:
        """What has come about. May be called at any time."""
        events: list[Event] = []
        # First: what it sent before its end has come by then.
        ended = self._process.exit if self._process else None
        self._read(events)
        for spare in [one for one in self._spares if one.process.exit]:
            self._spares.remove(spare)
            self._forget(spare)
            self._wasted += 1
        self._leaving = [one for one in self._leaving if one.exit is None]
        if ended:
            self._ended(ended, events)
        self._replenish()
        return events

    def stop(self) -> None:
        """Have it and its spares leave; drivers stay. Requests that wait are forgotten."""
        if self._process and self.state == "loading":
            # It does not listen yet, and has nothing to clean up.
            self._process.send(signal.SIGTERM)
        self._requests.clear()
        self._close()
        self.state = "stopped"

    def kill(self) -> None:
        """End it now."""
        for process in self.processes:
            process.send(signal.SIGKILL)

    # Between

    def _read(self, events: list[Event]) -> None:
        while self._control is not None:
            flags = socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
            try:
                data, fds, _, _ = socket.recv_fds(self._control, LIMIT, _FDS, flags)
            except BlockingIOError:
                return
            except ConnectionResetError:
                data, fds = b"", []
            if not data:
                # It ends, or is of no use any more.
                self._give_up()
                return
            try:
                self._take(decode_by(_MESSAGE, data), fds, events)
            except msgspec.DecodeError as error:
                for fd in fds:
                    os.close(fd)
                self.why = f"stage {self.load.stage} is loaded by another version: {error}"
                self._give_up()

    def _take(
        self, message: Loaded | Unfit | Parked | NotForked, fds: list[int], events: list[Event]
    ) -> None:
        match message:
            case Loaded(loaded_in, rss, pss, note):
                self.state = "ready"
                events.append(Ready(loaded_in, rss, pss, note))
            case Unfit(why):
                self.why = why
            case Parked(pid, memory) if len(fds) == _FDS:
                pidfd, talk = fds
                os.close(pidfd)
                child = self._coming.pop(0)
                self._children.came(child, pid)
                spare = _Spare(child, socket.socket(fileno=talk), memory)
                spare.socket.settimeout(0.0)
                self._spares.append(spare)
                self._serve(events)
            case Parked():
                # Without its socket it leaves.
                for fd in fds:
                    os.close(fd)
                self._not_forked("the watchdog has too many files open", _LATER, events)
            case NotForked(why, exit_code):
                self._not_forked(why, exit_code, events)

    def _not_forked(self, why: str, exit_code: int, events: list[Event]) -> None:
        self._coming.pop(0).exit = Exit(code=exit_code)
        # Not again before somebody wants a driver.
        self._wasted = _MAX_WASTED
        if self._requests:
            name, _ = self._requests.pop(0)
            events.append(Refused(name, why, exit_code))

    def _serve(self, events: list[Event]) -> None:
        """Give the spares to those who wait."""
        while self._requests and (spawned := self._give(*self._requests[0])) is not None:
            del self._requests[0]
            events.append(spawned)

    def _give(self, name: str, order: bytes) -> Spawned | None:
        """Make a driver of a spare; None when there is none that lives."""
        while self._spares:
            spare = self._spares.pop(0)
            try:
                spare.socket.send(order)
            except OSError:
                # It is dead, or will be when its socket is closed.
                self._forget(spare)
                continue
            spare.socket.close()
            self._wasted = 0
            return Spawned(name, spare.process, spare.memory)
        return None

    def _replenish(self) -> None:
        if self.state != "ready" or self._control is None:
            return
        spares = 1 if self._wasted < _MAX_WASTED else 0
        while (
            self._process and len(self._coming) + len(self._spares) < len(self._requests) + spares
        ):
            try:
                self._control.send(_FORK)
            except OSError:
                # It has ended, and we are about to hear of it.
                return
            self._coming.append(self._children.expect(self._process))

    def _forget(self, spare: _Spare) -> None:
        spare.socket.close()
        self._leaving.append(spare.process)

    def _give_up(self) -> None:
        self._close()
        if self._process:
            self._process.send(signal.SIGKILL)

    def _close(self) -> None:
        """Spares, and a template that listens, leave by that."""
        if self._control is not None:
            self._control.close()
            self._control = None
        for spare in self._spares:
            self._forget(spare)
        self._spares.clear()
        for child in self._coming:
            child.exit = Exit()
        self._coming.clear()

    def _ended(self, ended: Exit, events: list[Event]) -> None:
        self._close()
        self._process = None
        if self.state == "stopped":
            return
        self.state = "failed"
        self.why = self.why or f"the process that stage {self.load.stage} is loaded in: {ended}"
        self._exit_code = _CANNOT_FORK if ended.code is None else ended.code
        requests, self._requests = self._requests, []
        events += [Refused(name, self.why, self._exit_code) for name, _ in requests]
        events.append(Failed(self.why, ended))
