"""The helper: the process that does all input and output below the root of a pipeline.

    python -m watchdogd.programs.io_helper    a Brief and Errands on stdin, Messages back

That file system may hang, and whoever touches it then hangs with it, out of reach even of SIGKILL.
So it is this process that does, and nothing waits for it. It says every second that it lives; but
not by a thread, which would say so of a process that hangs. Amid work a timer of the CPU time that
it uses interrupts it, and who hangs uses none. Without a watchdog there is nothing to do: when its
socket hangs up a signal says so, and the process ends wherever it is, for each step of the queues'
protocol may be cut short by the death of whoever takes it.
"""

import contextlib
import fcntl
import math
import os
import select
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from queuedriver.claims.liveness import NETWORK_BEAT, Observer
from queuedriver.disk.filesystem import A_LITTLE, Directory
from queuedriver.errors import QueueError, is_trouble
from watchdogd import control
from watchdogd.kernel import die_with_parent, set_name
from watchdogd.messages import (
    Brief,
    Controls,
    Errands,
    Lines,
    Look,
    Message,
    QueueSeen,
    Read,
    Usage,
    brief_of,
    errands_of,
    to_line,
)
from watchdogd.queues import moves
from watchdogd.queues.copies import Copies
from watchdogd.queues.counts import View, look_at_all
from watchdogd.queues.recovery import Beats, Rescuer
from watchdogd.queues.root import Root, prepare
from watchdogd.report_file import read_saved

if TYPE_CHECKING:
    from watchdogd.check import Imports

_SOCKET = 0
# Seconds of silence after which it is time to say that we live: amid work, and while idle.
ALIVE_EVERY = 0.5
_SAY_EVERY = 1.2
# A look each second; one that takes long, in ten times what it takes, but at least this often.
_LOOK_EVERY = 1.0
_REST = 10
_LOOK_AT_LEAST = 30.0
# CPU time between two looks at the clock, amid work: of a process that mostly waits for its disk
# this may be a second.
_TICK = 0.005
# What else is done now and then, in seconds.
_COPY_EVERY = 2.0
_EXPIRE_EVERY = 60.0
# What is loaded anew is imported for so long before a reload: only who asked for it waits. How soon
# it is seen that it was, in seconds.
_IMPORTS_TAKE = 30.0
_SOON = 0.1
# From one look through all processes of the host to the next, in seconds; and in times of what it
# takes of a processor.
_MEASURE_EVERY = 5.0
_MEASURE_WORTH = 500
# What was noted once is not noted again, unless it is forgotten among so many.
_MOST_NOTED = 100
_CHUNK = 1 << 16


class Watchdog:
    """Our end of the socket: lines in, messages out."""

    def __init__(self, fd: int = _SOCKET) -> None:
        self.said_at = 0.0
        self._fd = fd
        self._lines = Lines()
        self._heard: list[bytes] = []
        self._saying = False
        self._poll = _poll(fd)

    def say(self, message: Message) -> None:
        """Say something; wait while the watchdog does not read: then nobody needs us to go on."""
        data = memoryview(to_line(message))
        # A signal that interrupts this must not say its own in the middle of it.
        self._saying = True
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except ConnectionError:
            os._exit(0)
        finally:
            self._saying = False
        self.said_at = time.monotonic()

    def interrupt(self) -> None:
        """Say, amid work, that we live, if nothing was said for a while; or end, if nobody is there
        to listen."""
        # Another than the one that may be interrupted.
        if any(seen & select.POLLHUP for _, seen in _poll(self._fd).poll(0)):
            os._exit(0)
        if not self._saying and time.monotonic() - self.said_at >= ALIVE_EVERY:
            self.say(Message())

    def hear(self, timeout: float) -> list[bytes]:
        """Return the lines that have come, or that come within so many seconds."""
        heard, self._heard = self._heard, []
        if not heard and self._poll.poll(max(0.0, timeout) * 1000):
            try:
                piece = os.read(self._fd, _CHUNK)
            except ConnectionError:
                piece = b""
            if not piece:
                os._exit(0)
            heard = self._lines.split(piece)
        return heard

    def hear_first(self) -> bytes:
        """Return the first line, however long it takes; what comes with it is heard next."""
        while not (heard := self.hear(ALIVE_EVERY)):
            pass
        first, *self._heard = heard
        return first


class IoHelper:
    """The helper of one pipeline on one host."""

    def __init__(self, brief: Brief, watchdog: Watchdog) -> None:
        self.pipeline = brief.pipeline
        self.host = brief.host
        self._local = brief.local
        self._watchdog = watchdog
        self._root = Root(brief.pipeline.root, brief.local, fresh=not brief.made)
        self._made = brief.made
        self._views: dict[str, View] = {}
        self._copies = Copies(brief.local, brief.host)
        self._rescuer = Rescuer()
        self._beats = Beats(Observer())
        # None while a look could not read them.
        self._controls: Controls | None = None
        self._trouble = ""
        self._noted: set[str] = set()
        # What was asked for and is done as soon as the file system lets us.
        self._asked = Errands()
        # How many readings wait for imports, and what came of those that need not wait any more.
        self._importing = 0
        self._reads: deque[Read] = deque()
        self._look_at = self._measure_at = 0.0
        # The drivers' processes, and what they took when they were last measured.
        self._drivers: tuple[int, ...] = ()
        self._usage: dict[int, Usage] = {}
        self._chores: dict[str, tuple[Callable[[], None], float]] = {
            "expire": (self._expire, _EXPIRE_EVERY),
            "copy": (self._copy, _COPY_EVERY),
            "beat": (self._beat, NETWORK_BEAT),
        }
        self._due = dict.fromkeys(self._chores, 0.0)

    def run(self) -> None:
        """Look, and do what is asked, until the watchdog ends."""
        while True:
            if time.monotonic() >= self._look_at:
                self._look()
            for name, (chore, every) in self._chores.items():
                if time.monotonic() >= self._due[name] and not self._trouble:
                    self._try(chore)
                    self._due[name] = time.monotonic() + every
            if self._reads:
                self._importing -= 1
                self._watchdog.say(Message(read=self._reads.popleft()))
            self._watchdog.interrupt()
            for line in self._watchdog.hear(self._wake_at - time.monotonic()):
                self._obey(line)

    @property
    def _wake_at(self) -> float:
        # Amid trouble the chores wait, however long they have been due.
        chores = () if self._trouble else self._due.values()
        imported = time.monotonic() + _SOON if self._importing else math.inf
        return min(self._look_at, self._watchdog.said_at + _SAY_EVERY, imported, *chores)

    def _try(self, work: Callable[[], None], *, looking: bool = False) -> None:
        """Do it; what the file system says against it is trouble, until a look shows otherwise.
        Whatever keeps us from looking is."""
        try:
            work()
        except (OSError, QueueError) as error:
            if looking or (isinstance(error, OSError) and is_trouble(error)):
                self._trouble = _words(error)
                self._look_at = min(self._look_at, time.monotonic() + _LOOK_EVERY)
            else:
                self._note(_words(error))

    # Look

    def _look(self, *, anew: bool = False) -> None:
        """See all there is to see, and tell; `anew`: somebody waits for it."""
        began_at = time.monotonic()
        was, self._trouble = self._trouble, ""
        self._controls = None
        self._try(lambda: self._see(probe=bool(was), anew=anew), looking=True)
        took = time.monotonic() - began_at
        self._look_at = began_at + took + min(max(_LOOK_EVERY, _REST * took), _LOOK_AT_LEAST)
        look = Look(
            queues={name: view.seen for name, view in self._views.items() if view.seen is not None},
            controls=self._controls,
            trouble=self._trouble,
            usage=self._measure(),
        )
        self._watchdog.say(Message(look=look))

    def _measure(self) -> dict[int, Usage]:
        """Return what the drivers take, measured now and then."""
        if self._drivers and time.monotonic() >= self._measure_at:
            # Nothing to wait for before there is a driver.
            from watchdogd.usage import usage_of

            began_at = time.process_time()
            self._usage = usage_of(self._drivers, os.getppid())
            took = time.process_time() - began_at
            self._measure_at = time.monotonic() + max(_MEASURE_EVERY, _MEASURE_WORTH * took)
        return self._usage

    def _see(self, *, probe: bool, anew: bool) -> None:
        self._root.check()
        if not self._views:
            prepare(self.pipeline, self._made)
            self._made = self.pipeline.queues
            self._views = {name: View(self.pipeline.path(name)) for name in self._made}
        with self._control_directory() as directory:
            if probe:
                directory.check_writable(A_LITTLE)
            stages = [stage.name for stage in self.pipeline.stages]
            controls = self._controls = control.read(directory, self.host, stages)
            moves.forget_controls(directory, self._asked.forget_controls)
        self._asked = Errands()
        self._move(anew=anew, paused=controls.paused)

    def _move(self, *, anew: bool, paused: bool) -> None:
        """Count what is in the queues; close and pause those for which it is time, and look again
        where that was done."""
        seen = self._count(anew=anew)
        if moves.spread_pause(self.pipeline, seen, paused=paused):
            seen = self._count(anew=anew)
        # One closed queue may let the next be closed, but no more of them than there are.
        for _ in self._views:
            if not moves.cascade(self.pipeline, seen):
                break
            seen = self._count(anew=anew)

    def _count(self, *, anew: bool) -> Mapping[str, QueueSeen]:
        return look_at_all(self._views, anew=anew)

    def _control_directory(self) -> closing[Directory]:
        return closing(Directory.open(os.path.join(self.pipeline.root, control.CONTROL), inside=1))

    # Errands

    def _obey(self, line: bytes) -> None:
        errands = errands_of(line)
        if errands is None:
            self._note(f"an errand that was not understood: {line[:200]!r}")
            return
        if errands.pipeline is not None:
            self.pipeline = errands.pipeline
            self._views = {}
        self._asked = replace(
            self._asked,
            forget_controls=self._asked.forget_controls + errands.forget_controls,
        )
        if errands.drivers is not None:
            self._drivers = errands.drivers
        if errands.report and not self._trouble:
            self._try(self._publish)
        for queue in errands.recover:
            if queue in self._views and not self._trouble:
                self._try(lambda queue=queue: self._recover(queue))  # type: ignore[misc]
        if errands.look and not self._trouble:
            self._try(self._copy)
        if errands.look or errands.recover or errands.pipeline:
            self._look(anew=True)
        if errands.read:
            self._read_again(errands.read)
        if errands.farewell:
            self._watchdog.say(Message(farewell=True))

    def _publish(self) -> None:
        with self._control_directory() as directory:
            moves.publish(directory, self.host, read_saved(self._local))

    def _recover(self, queue: str) -> None:
        recovered = self._rescuer.recover(queue, self.pipeline.path(queue))
        if recovered.claims:
            self._watchdog.say(Message(recovered=recovered))

    def _read_again(self, number: int) -> None:
        """Read the pipeline's file, which may be where the queues are, and say what it is now.

        What its stages load that none does yet is imported before, by a thread, for it takes a
        while: drivers that work are not to leave for others that cannot.
        """
        # Of no use to a watchdog that never reads its file again.
        from watchdogd.imports import check_imports, other_than_in

        read = self._read(number)
        anew = other_than_in(self.pipeline)
        if read.pipeline is None or not any(map(anew, read.pipeline.stages)):
            self._watchdog.say(Message(read=read))
            return
        self._importing += 1
        imports = partial(check_imports, chosen=anew, limit=_IMPORTS_TAKE)
        threading.Thread(
            target=lambda: self._reads.append(self._read(number, imports)), daemon=True
        ).start()

    def _read(self, number: int, imports: "Imports | None" = None) -> Read:
        from watchdogd.check import check_host

        file = self.pipeline.file
        try:
            found = check_host(file, self.host, imports)
            return Read(number=number, pipeline=found.pipeline, notes=found.notes)
        except QueueError as error:
            return Read(number=number, error=str(error))
        except OSError as error:
            return Read(number=number, error=f"{file}: {error.strerror}")

    # Chores

    def _expire(self) -> None:
        with self._control_directory() as directory:
            moves.expire(directory)

    def _copy(self) -> None:
        with self._control_directory() as directory:
            self._copies.turn(directory)
        for why in self._copies.amiss.values():
            self._note(why)

    def _beat(self) -> None:
        for queue in dict.fromkeys(one for stage in self.pipeline.stages for one in stage.inputs):
            self._beats.beat(self.pipeline.path(queue))

    def _note(self, why: str) -> None:
        if why not in self._noted:
            if len(self._noted) >= _MOST_NOTED:
                self._noted.clear()
            self._noted.add(why)
            self._watchdog.say(Message(note=why))


def _words(error: OSError | QueueError) -> str:
    """Say what is wrong, and what to do about it where that is known."""
    if isinstance(error, QueueError) or not error.errno:
        return str(error)
    where = os.fsdecode(error.filename) if error.filename else ""
    if isinstance(error, FileNotFoundError):
        return (
            f"{where} is not there any more; is it mounted? If it was removed on purpose, start "
            "watchdogd anew"
        )
    said = os.strerror(error.errno)
    return f"{where}: {said}" if where else said


def _poll(fd: int) -> select.poll:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return poll


def main() -> None:
    """Do what a watchdog asks for, until it ends."""
    watchdog = Watchdog()
    brief = brief_of(watchdog.hear_first())
    if brief.parent:
        die_with_parent(brief.parent, signal.SIGKILL)
    with contextlib.suppress(OSError):
        set_name("watchdogd-io")
    watchdog.say(Message())
    for number in (signal.SIGPROF, signal.SIGIO):
        signal.signal(number, lambda _, __: watchdog.interrupt())
        signal.siginterrupt(number, False)  # noqa: FBT003 - the system's interface
    signal.setitimer(signal.ITIMER_PROF, _TICK, _TICK)
    # Whatever happens to the socket interrupts us, the watchdog's end above all.
    fcntl.fcntl(_SOCKET, fcntl.F_SETOWN, os.getpid())
    flags = fcntl.fcntl(_SOCKET, fcntl.F_GETFL)
    fcntl.fcntl(_SOCKET, fcntl.F_SETFL, flags | os.O_ASYNC)
    IoHelper(brief, watchdog).run()


if __name__ == "__main__":
    main()
