"""The helper: the process that does all input and output below the root of a pipeline.

    python -m watchdogd.programs.io_helper    a Brief and Errands on stdin, Messages back

That file system may hang, and whoever touches it then hangs with it, out of reach even of SIGKILL.
So it is this process that does, and nothing waits for it. It says every 1.2 s that it lives; but
not by a thread, which would say so of a process that hangs. Amid work a timer of the CPU time that
it uses interrupts it, and who hangs uses none. Without a watchdog there is nothing to do: when its
socket hangs up a signal says so, and the process ends wherever it is, for each step of the queues'
protocol may be cut short by the death of whoever takes it.
"""

from queuedriver import interpreter

if __name__ == "__main__":
    interpreter.begin_loading()
    interpreter.import_msgspec()

import contextlib
import fcntl
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from queuedriver.claims.liveness import NETWORK_BEAT
from queuedriver.disk.filesystem import A_LITTLE, Directory
from queuedriver.errors import QueueError, is_trouble
from queuedriver.format.records import decode
from watchdogd import control
from watchdogd.helper_messages import (
    Brief,
    Connection,
    Controls,
    Errands,
    Look,
    Message,
    Read,
    understood,
)
from watchdogd.helper_process import LOG as HELPER_LOG
from watchdogd.helper_process import open_helper_log
from watchdogd.host import Meter
from watchdogd.linux import die_with_parent, return_unused_memory, set_name
from watchdogd.operators.history import Writer, samples, tidy
from watchdogd.operators.textfile import EVERY, TextFile
from watchdogd.pipeline.model import Pipeline
from watchdogd.queues import control_files
from watchdogd.queues.counts import View, look_at_all
from watchdogd.queues.log_copies import Copies
from watchdogd.queues.recovery import Recovery
from watchdogd.queues.root import REMOVED, Root
from watchdogd.report import Alien, read_saved
from watchdogd.report import decode as decode_report

_SOCKET, _STDERR = 0, 2
# Seconds of silence after which it is time to say that we live, while idle.
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
_TIDY_EVERY = 3600.0
# What is due so soon is done with what is due now: an idle helper wakes once for all, in seconds.
_TOGETHER = 0.25
# How soon it is seen that the pipeline's file was read; and for how long what is loaded anew is
# imported before: only who asked for the reload waits. In seconds.
_SOON = 0.1
_IMPORTS_TAKE = 30.0


class Chore(msgspec.Struct, eq=False):
    """Something that is done every so many seconds."""

    work: Callable[[], None]
    every: float
    # Whether it is done also while the file system is not well.
    amid_trouble: bool = False
    due_at: float = 0.0


class PipelineReader:
    """Reads the pipeline's file again, a thread each time: it takes a while to import what stages
    load that none does yet, and drivers that work are not to leave for others that cannot. Nor is
    the look at the queues to wait for a file that is elsewhere, where nobody answers."""

    def __init__(self, host: str, drivers: Mapping[str, int]) -> None:
        self._host = host
        # How many a stage has here, whatever the file says.
        self._drivers = drivers
        # How many answers are still to be taken; threads do not count.
        self._asked = 0
        # Those that are there.
        self._reads: deque[Read] = deque()

    @property
    def is_busy(self) -> bool:
        """Tell whether there will be an answer."""
        return self._asked > 0

    def take(self) -> Read | None:
        """Return the next answer; None while there is none."""
        if not self._reads:
            return None
        self._asked -= 1
        return self._reads.popleft()

    def ask(self, number: int, running: Pipeline) -> None:
        """Read the file of a running pipeline; the number is that of the answer."""
        self._asked += 1
        read = partial(self._read, number, running)
        threading.Thread(target=lambda: self._reads.append(read()), daemon=True).start()

    def _read(self, number: int, running: Pipeline) -> Read:
        file = running.file
        try:
            # Of no use to a watchdog that never reads its file again.
            from watchdogd.check import check_imports, examine, other_than_in

            imports = partial(check_imports, chosen=other_than_in(running), limit=_IMPORTS_TAKE)
            found = examine(file, self._host, imports, drivers=self._drivers).check()
            return Read(number=number, pipeline=found.pipeline, notes=found.notes)
        except QueueError as error:
            words = str(error)
        except OSError as error:
            words = f"{file}: {error.strerror}"
        except Exception as error:  # noqa: BLE001 - whoever asked waits for an answer for ever
            import traceback

            traceback.print_exc()
            what = f"{type(error).__name__}: {error}"
            words = f"{file} cannot be read: {what}; where that was is in {HELPER_LOG}"
        return Read(number=number, error=words)


class IoHelper:
    """The helper of one pipeline on one host."""

    def __init__(self, brief: Brief, watchdog: Connection) -> None:
        self.pipeline = brief.pipeline
        self.host = brief.host
        self._local = brief.local
        self._watchdog = watchdog
        self._root = Root(brief.pipeline.root, brief.local, brief.made)
        self._views: dict[str, View] = {}
        self._copies = Copies(brief.local, brief.host)
        self._recovery = Recovery()
        self._meter = Meter()
        self._history = Writer(brief.host)
        self._metrics = TextFile(brief.host)
        self._reader = PipelineReader(brief.host, brief.drivers)
        # The report as it was published last.
        self._published = b""
        # None while a look could not read them.
        self._controls: Controls | None = None
        self._trouble = ""
        self._look_at = 0.0
        self._chores = (
            Chore(self._expire, _EXPIRE_EVERY),
            Chore(self._copy, _COPY_EVERY),
            Chore(self._publish, _COPY_EVERY),
            Chore(self._beat, NETWORK_BEAT),
            Chore(self._export, EVERY, amid_trouble=True),
            Chore(self._tidy, _TIDY_EVERY),
        )

    def run(self) -> None:
        """Look, and do what is asked, until the watchdog ends."""
        while True:
            if time.monotonic() >= self._look_at - _TOGETHER:
                self._look()
            for chore in self._chores:
                began_at = time.monotonic()
                is_free = chore.amid_trouble or not self._trouble
                if began_at >= chore.due_at - _TOGETHER and is_free:
                    self._try(chore.work)
                    took = time.monotonic() - began_at
                    chore.due_at = began_at + took + max(chore.every, _REST * took)
            while (read := self._reader.take()) is not None:
                self._watchdog.say(Message(read=read))
            self._watchdog.interrupt(_SAY_EVERY)
            for line in self._watchdog.hear(self._wake_at - time.monotonic()):
                self._obey(line)

    @property
    def _wake_at(self) -> float:
        wake_at = min(self._look_at, self._watchdog.said_at + _SAY_EVERY)
        if self._reader.is_busy:
            wake_at = min(wake_at, time.monotonic() + _SOON)
        # Amid trouble the chores wait, however long they have been due.
        return wake_at if self._trouble else min(wake_at, *(one.due_at for one in self._chores))

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
                self._watchdog.note(_words(error))

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
            usage=self._meter.read(began_at, idle=self._is_idle),
        )
        self._watchdog.say(Message(look=look))

    @property
    def _is_idle(self) -> bool:
        """Tell whether nothing waits or is done in any stage. What a worker does is not seen."""
        views = map(self._views.get, self.pipeline.inputs)
        done = all(one is not None and one.seen and not one.seen.unfinished for one in views)
        return done and all(stage.inputs for stage in self.pipeline.stages)

    def _see(self, *, probe: bool, anew: bool) -> None:
        self._root.check()
        if not self._views:
            self._root.prepare(self.pipeline)
            self._views = {name: View(self.pipeline.path(name)) for name in self.pipeline.queues}
        with self._control_directory() as directory:
            if probe:
                directory.check_writable(A_LITTLE)
            stages = [stage.name for stage in self.pipeline.stages]
            controls = self._controls = control.read(directory, self.host, stages)
        seen = look_at_all(self._views, anew=anew)
        if control_files.spread_pause(self.pipeline, seen, paused=controls.paused):
            seen = look_at_all(self._views, anew=anew)
        # One closed queue may let the next be closed, but no more of them than there are.
        for _ in self._views:
            if not control_files.cascade(self.pipeline, seen):
                break
            seen = look_at_all(self._views, anew=anew)

    def _control_directory(self) -> Directory:
        return Directory.open(os.path.join(self.pipeline.root, control.CONTROL), inside=1)

    # Errands

    def _obey(self, line: bytes) -> None:
        errands = understood(line, Errands)
        if errands is None:
            self._watchdog.note(f"an errand that was not understood: {line[:200]!r}")
            return
        if errands.pipeline is not None:
            self.pipeline = errands.pipeline
            self._views = {}
        if errands.drivers is not None:
            self._meter.drivers = errands.drivers
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
            self._reader.ask(errands.read, self.pipeline)
        if errands.farewell:
            self._metrics.remove()
            self._watchdog.say(Message(farewell=True))

    def _publish(self) -> None:
        try:
            document = read_saved(self._local)
        except FileNotFoundError:
            # Its watchdog has yet to save the first one, or somebody has removed it.
            return
        if document != self._published:
            with self._control_directory() as directory:
                control_files.publish(directory, self.host, document)
            self._published = document
        if self._history.is_due(now := time.time()):
            self._write_history(document, now)

    def _write_history(self, document: bytes, now: float) -> None:
        """Write down what the stages did until now, by the watchdog's report."""
        seen = {name: view.seen for name, view in self._views.items() if view.seen is not None}
        try:
            report = decode_report(document)
            with self._control_directory() as directory:
                self._history.write(directory, samples(report, seen), now, report.started_at)
        except (OSError, Alien) as error:
            # On a full disk people know less; the drivers do not mind, and it is no trouble.
            self._watchdog.note(f"what the stages do cannot be written down: {error}")

    def _recover(self, queue: str) -> None:
        recovered = self._recovery.recover(queue, self.pipeline.path(queue))
        if recovered.claims:
            self._watchdog.say(Message(recovered=recovered))

    # Chores

    def _expire(self) -> None:
        with self._control_directory() as directory:
            control_files.expire(directory)

    def _copy(self) -> None:
        with self._control_directory() as directory:
            self._copies.turn(directory)
        for why in self._copies.amiss.values():
            self._watchdog.note(why)

    def _tidy(self) -> None:
        with self._control_directory() as directory:
            tidy(directory, time.time())

    def _export(self) -> None:
        """Write the file of metrics."""
        try:
            self._metrics.write(self.pipeline, self._trouble)
        except (OSError, QueueError) as error:
            # Whatever is amiss with the queues the next look says.
            self._watchdog.note(f"{self.pipeline.metrics} cannot be written: {_words(error)}")

    def _beat(self) -> None:
        for queue in self.pipeline.inputs:
            self._recovery.beat(self.pipeline.path(queue))


def _words(error: OSError | QueueError) -> str:
    """Say what is wrong, and what to do about it where that is known."""
    if isinstance(error, QueueError) or not error.errno:
        return str(error)
    where = os.fsdecode(error.filename) if error.filename else ""
    if isinstance(error, FileNotFoundError):
        return f"{where} is not there any more; {REMOVED}"
    said = os.strerror(error.errno)
    return f"{where}: {said}" if where else said


def main() -> None:
    """Do what a watchdog asks for, until it ends."""
    interpreter.end_loading()
    watchdog = Connection(_SOCKET)
    brief = decode(watchdog.hear_first(), Brief)
    if brief.parent:
        die_with_parent(brief.parent, signal.SIGKILL)
    with contextlib.suppress(OSError):
        log = open_helper_log(brief.local)
        os.dup2(log, _STDERR)
        os.close(log)
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
    # Of what had happened before nobody is told.
    watchdog.interrupt()
    return_unused_memory()
    IoHelper(brief, watchdog).run()


if __name__ == "__main__":
    main()
