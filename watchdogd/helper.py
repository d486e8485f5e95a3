"""The watchdog's side of its helper: starts it, talks with it, and never waits for it.

The helper does all input and output under a pipeline's root, so it may hang for as long as that
file system does, where not even SIGKILL reaches it. So its socket is read and written without
blocking, a helper that is silent is left behind with a SIGKILL that nobody waits for, and another
is started in its place: at most once a minute, and never beside too many that cannot die. What it
has seen of the queues is in a view, which the supervisor and the stages ask.
"""

import math
import os
import signal
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from queuedriver.driving.live_status import Counting
from queuedriver.format.units import format_count
from watchdogd.children import Child, Children
from watchdogd.events import Say
from watchdogd.helper_messages import (
    Brief,
    Controls,
    Errands,
    Line,
    Look,
    Message,
    QueueSeen,
    Read,
    Usage,
    understood,
)
from watchdogd.helper_process import ARGV, HelperProcess, begin, log_path
from watchdogd.host import SILENCE
from watchdogd.pipeline.model import Pipeline
from watchdogd.stage_words import StageFacts

# A new helper first has to load, on a host that may be busy.
PATIENCE_AT_START = 10.0
# Seconds between two starts.
RESTART_EVERY = 60.0
# The same for a helper that ended by itself.
RESTART_DEAD_AFTER = 5.0
# Helpers left behind and not gone, beside which no other is started: a file system that hangs for
# a night must not fill the memory with them.
MOST_LEFT = 5
# How soon what the socket had no room for is sent.
_SEND_AGAIN = 0.05
# What a watchdog that runs cannot change of itself.
_FIXED = ("root", "adopt")


class StageInputs:
    """The input queues of one stage at one look. None counts as empty before all were seen."""

    def __init__(self, names: Sequence[str], queues: Mapping[str, QueueSeen]) -> None:
        # In the order of the file; None: not seen yet, as after a reload.
        self.seen = [queues.get(name) for name in names]
        known = [one for one in self.seen if one is not None]
        all_known = 0 < len(known) == len(names)
        # Without any item; the same for the second time; and closed besides.
        self.empty = all_known and not any(one.unfinished for one in known)
        self.drained = all_known and all(one.drained for one in known)
        self.done = self.drained and all(one.done for one in known)
        # The first that documents came into after it was closed; empty: none.
        late = (name for name, one in zip(names, self.seen, strict=True) if one and one.late)
        self.late = next(late, "")
        # What holds of the stage by that.
        self.facts = StageFacts().with_inputs(self.seen, paused=False)
        # Documents that wait and may be claimed, and those at hand.
        self.backlog = sum(one.working + (0 if one.paused else one.waiting) for one in known)


class QueueView:
    """What is known of the queues: the latest look, completed by those before it; and what was
    discarded since the first. What earlier helpers saw stands until another, started amid trouble,
    has seen it; nothing counts before a look that met no trouble."""

    def __init__(self) -> None:
        self.queues: Mapping[str, QueueSeen] = {}
        self.controls = Controls()
        # What the file system says; empty while all is well.
        self.trouble = ""
        # What drivers take, by their pids.
        self.usage: Mapping[int, Usage] = {}
        # Whether anything was heard of the queues at all, and whether they were ever seen well; and
        # when the latest look was heard of since, on the monotonic clock.
        self.heard = self.known = False
        self.looked_at = 0.0
        # What was charged by whoever recovered where no driver was, by queue.
        self.failed = defaultdict[str, Counting](Counting)
        # The queues as they were at first.
        self.at_first: Mapping[str, QueueSeen] = {}
        self._discarded_at_first: dict[str, int] = {}
        # What was asked of the latest look, by the names of the queues.
        self._inputs: dict[tuple[str, ...], StageInputs] = {}

    def inputs(self, names: tuple[str, ...]) -> StageInputs:
        """Return what is known of these queues, from which one stage takes."""
        if names not in self._inputs:
            self._inputs[names] = StageInputs(names, self.queues)
        return self._inputs[names]

    def take(self, look: Look, now: float) -> dict[str, int]:
        """Take the latest look; return how many documents each queue has more in `discarded/`."""
        self.heard = True
        before, self.trouble, self.usage = self.queues, look.trouble, look.usage
        if look.trouble and not self.known:
            return {}
        self.looked_at = now
        self._inputs.clear()
        # Without trouble all was seen: what is missing then is not of the pipeline any more.
        self.queues = {**before, **look.queues} if look.trouble else look.queues
        self.controls = self.controls if look.controls is None else look.controls
        if not self.known:
            self.known, self.at_first = True, look.queues
        for name, queue in look.queues.items():
            at_first = self._discarded_at_first.get(name, queue.discarded)
            # What an operator takes out again was not discarded by this run either.
            self._discarded_at_first[name] = min(at_first, queue.discarded)
        return _grown(look.queues, {name: one.discarded for name, one in before.items()})

    @property
    def discarded(self) -> dict[str, int]:
        """Count the documents discarded since the first look, by queue; only where any were."""
        return _grown(self.queues, self._discarded_at_first)


def _grown(queues: Mapping[str, QueueSeen], before: Mapping[str, int]) -> dict[str, int]:
    more = {name: one.discarded - before.get(name, one.discarded) for name, one in queues.items()}
    return {name: count for name, count in more.items() if count > 0}


class Helper:
    """The helper at hand, and those left behind; what they have seen, and what is told of it. All
    instants are monotonic, and arguments."""

    def __init__(
        self,
        brief: Brief,
        children: Children,
        say: Say,
        argv: Sequence[str] = ARGV,
        begun: HelperProcess | None = None,
    ) -> None:
        self.brief = brief
        self.view = QueueView()
        # When something was last heard, or could have been.
        self.heard_at = 0.0
        # Whether all was well with the file system when it was last told; None: it never was.
        self.was_well: bool | None = None
        self._children = children
        self._say = say
        self._argv = tuple(argv)
        # The first one, where it was begun before; None once it has its brief.
        self._begun = begun
        self._process: Child | None = None
        # None while there is no helper.
        self._line: Line | None = None
        # There is none, and not since one was silent: that says nothing of the file system.
        self._gone = True
        # Another helper is not started before.
        self._may_start_at = -math.inf
        self._listened_at = -math.inf
        self._left: list[Child] = []
        # The processes of the drivers, as the helper at hand was told.
        self._drivers: tuple[int, ...] = ()
        # The number of the latest reading of the pipeline's file, whether its answer is still to
        # come, and that answer, until somebody takes it.
        self._readings = 0
        self._is_reading = False
        self._read: Read | None = None

    @property
    def pid(self) -> int:
        """Return the helper's pid; 0 while there is none."""
        return self._process.pid if self._process is not None else 0

    @property
    def fd(self) -> int:
        """Return the descriptor to poll for reading; -1 while there is no helper."""
        return self._line.fd if self._line is not None else -1

    # Start and end

    def tend(self, now: float) -> float:
        """Start a helper if there is none and one may be started, or replace one that is lost;
        return when there is something to do again.

        A silent one is listened to until another may be started: perhaps it was only slow.
        """
        self._excuse(now)
        if self.lost(now) and now >= self._may_start_at:
            self.abandon()
            self._start(now)
        if self._line is None or self.lost(now):
            return self._may_start_at
        return self.heard_at + SILENCE if self._line.flush() else now + _SEND_AGAIN

    def _start(self, now: float) -> None:
        self._may_start_at = now + RESTART_EVERY
        self._left = [one for one in self._left if one.exit is None]
        if len(self._left) >= MOST_LEFT:
            return
        begun, self._begun = self._begun, None
        try:
            self._process, ours = begun or begin(self._children, self._argv, self.brief.local)
        except OSError as error:
            self._say("note", f"cannot start the process that looks after the queues: {error}")
            return
        self._line = Line(ours.detach())
        self._gone = False
        self.heard_at = now + PATIENCE_AT_START - SILENCE
        # What it finds missing of these went away.
        made = tuple(self.view.queues) or self.brief.made
        self._line.send(replace(self.brief, made=made, parent=os.getpid()))
        if self._drivers:
            self.ask(Errands(drivers=self._drivers))
        if self._is_reading:
            self.ask(Errands(read=self._readings))

    def abandon(self) -> None:
        """Leave the helper at hand behind, if there is one: killed, and not waited for."""
        if self._process is None or self._line is None:
            return
        # That hangs up: it touches nothing any more, be it killed or not.
        self._line.close()
        self._process.send(signal.SIGKILL)
        self._left.append(self._process)
        self._line = self._process = None
        words = f"{self.brief.pipeline.file} cannot be read: no answer"
        self._note_read(Read(number=self._readings, error=words))

    def lost(self, now: float) -> bool:
        """Tell whether there is no helper, or it has been silent for too long."""
        return self._line is None or (now - self.heard_at > SILENCE and not self._line.ready())

    def _excuse(self, now: float) -> None:
        """Note that we listen: whoever was stopped for a while must not take that for the silence
        of others."""
        if now - self._listened_at > 2 * SILENCE:
            self.heard_at = max(self.heard_at, now)
        self._listened_at = now

    # What it sees

    def well(self, now: float) -> bool:
        """Tell whether the file system of the queues answers, and is well, as far as is known."""
        return self.view.known and not self.trouble(now)

    def trouble(self, now: float) -> str:
        """Return what is wrong with the file system; empty while it is well, as far as is known."""
        if self.lost(now) and not self._gone:
            return f"{self.brief.pipeline.root} does not answer"
        if self._gone and not self.view.known:
            log = log_path(self.brief.local)
            return f"the process that looks after the queues is not there; see {log}"
        return self.view.trouble

    @property
    def notes(self) -> list[str]:
        """Return what people should know of the helper itself."""
        words = "the process that looks after the queues is not there, and another is to be started"
        return [f"{words}: what changes in them is seen then"] if self._gone else []

    def answered(self, now: float) -> bool:
        """Tell whether there is any answer: what was seen, or that nothing can be. There is none
        before the first helper was started."""
        return self.view.heard or (self._may_start_at > -math.inf and self.lost(now))

    def listen(self, now: float) -> bool:
        """Take what the helper has said, and tell of it; return whether it has looked."""
        # Not any(): all are to be taken.
        looked = sum([self._take(message, now) for message in self.receive(now)]) > 0
        well = self.well(now)
        if well != self.was_well and self.answered(now):
            if not well:
                self._say("waiting-fs", self.trouble(now))
            elif self.was_well is not None:
                self._say("fs-well")
            self.was_well = well
        return looked

    def listen_to_the_end(self, patience: float) -> None:
        """Wait for the helper's farewell, for so long; take what it has seen before, and tell."""
        ends_at = time.monotonic() + patience
        while self._line is not None and (now := time.monotonic()) < ends_at:
            self._line.flush()
            self._line.ready(ends_at - now)
            heard = self.receive(now := time.monotonic())
            for message in heard:
                self._take(message, now)
            if any(message.farewell for message in heard):
                return

    def receive(self, now: float) -> list[Message]:
        """Return all that the helper has said since the last time."""
        self._excuse(now)
        lines = self._line.receive() if self._line is not None else []
        if lines is None:
            self._say("note", "the process that looks after the queues ended")
            self.abandon()
            # It did not hang, so the next need not, nor need a driver.
            self._gone = True
            self._may_start_at = min(self._may_start_at, now + RESTART_DEAD_AFTER)
        messages = []
        for line in lines or []:
            message = understood(line, Message)
            if message is None:
                self._say("note", f"not understood from the helper: {line[:200]!r}")
                continue
            messages.append(message)
        if messages:
            self.heard_at = now
        return messages

    def _take(self, message: Message, now: float) -> bool:
        if message.note:
            self._say("note", message.note)
        if message.read is not None:
            self._note_read(message.read)
        if (one := message.recovered) is not None:
            what = f"{format_count(one.claims, 'claim')} of {one.queue}"
            gone = "".join(f"; {docid!r} is discarded" for docid in one.discarded)
            for cause, is_last in one.failed:
                self.view.failed[one.queue].failed(cause, discarded=is_last)
            self._say("recovered", what + gone, queue=one.queue, count=one.claims)
        if message.look is None:
            return False
        for queue, count in self.view.take(message.look, now).items():
            what = f"{format_count(count, 'document')} of {queue}"
            self._say("discarded", what, queue=queue, count=count)
        return True

    # What it is asked for

    def ask(self, errands: Errands) -> None:
        """Ask for something, once. A helper that is started later knows nothing of it."""
        if self._line is not None:
            self._line.send(errands)

    def measure(self, drivers: tuple[int, ...]) -> None:
        """Have these processes measured from now on."""
        if drivers != self._drivers:
            self._drivers = drivers
            self.ask(Errands(drivers=drivers))

    def change(self, pipeline: Pipeline) -> None:
        """Let this helper and those after it look after another pipeline."""
        self.brief = replace(self.brief, pipeline=pipeline)
        self.ask(Errands(pipeline=pipeline))

    def read_again(self) -> None:
        """Have the pipeline's file read. One that is being read is read again: it may have changed
        since."""
        self._readings += 1
        self._is_reading = True
        self.ask(Errands(read=self._readings))

    def _note_read(self, read: Read) -> None:
        # Of a file that was read again meanwhile, the latest answer is wanted.
        if self._is_reading and read.number == self._readings:
            self._is_reading, self._read = False, read

    def take_read(self) -> Read | None:
        """Return once what came of reading the file; None while nothing has."""
        read, self._read = self._read, None
        if read is None or read.pipeline is None:
            return read
        for key in _FIXED:
            if getattr(read.pipeline, key) != getattr(self.brief.pipeline, key):
                return Read(error=f"{key} has changed, which takes a restart of the watchdog")
        return read
