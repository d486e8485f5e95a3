"""The watchdog's side of its eyes: starts them, talks with them, and never waits for them.

The eyes do all input and output under a pipeline's root, so they may hang for as long as that file
system does, where not even SIGKILL reaches them. So each pipe is read and written without
blocking, eyes that are silent are left behind with a SIGKILL that nobody waits for, and others
are started in their place: at most once a minute, and never beside too many that cannot die.
"""

import contextlib
import fcntl
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import msgspec

from watchdogd.children import Child, Children
from watchdogd.logs import open_log
from watchdogd.snapshot import MAX_LINE, Brief, Errands, Message, message_of, to_line

# Seconds of silence after which the file system counts as hung; eyes that are well say something
# every second, and every half amid a long look.
SILENCE = 2.0
# New eyes first have to load, on a host that may be busy.
PATIENCE_AT_START = 10.0
# Seconds between two starts.
RESTART_EVERY = 60.0
# The same for eyes that ended by themselves.
RESTART_DEAD_AFTER = 5.0
# Eyes left behind and not gone, beside which no others are started: a file system that hangs for a
# night must not fill the memory with them.
MOST_LEFT = 5
_CHUNK = 1 << 16
_LOG_SIZE = 1_000_000
# Room for a status document of many drivers, so that it need not be dropped.
_PIPE_SIZE = 1 << 20

ARGV = (sys.executable, "-m", "watchdogd.eyes")


class Lookout:
    """The eyes at hand, and those left behind. All instants are monotonic, and arguments."""

    def __init__(
        self,
        brief: Brief,
        children: Children,
        stderr: str,
        note: Callable[[str], None] = lambda _: None,
        argv: Sequence[str] = ARGV,
        kill: Callable[[Child], object] = lambda eyes: eyes.send(signal.SIGKILL),
    ) -> None:
        self.brief = brief
        # When something was last heard, or could have been.
        self.heard_at = 0.0
        # To be polled for reading; -1 while there are no eyes.
        self.fd = -1
        self._children = children
        self._stderr = stderr
        self._note = note
        self._argv = tuple(argv)
        self._kill = kill
        self._eyes: Child | None = None
        self._out = -1
        # Other eyes are not started before.
        self._may_start_at = float("-inf")
        self._lost = False
        self._asked_at = float("-inf")
        self._patience = PATIENCE_AT_START
        self._read = b""
        # The rest of a line that the pipe had no room for.
        self._unsent = b""
        self._left: list[Child] = []

    # Start and end

    def start(self, now: float) -> bool:
        """Start eyes if there are none and some may be started; whether that was done."""
        if self.fd >= 0 or now < self._may_start_at:
            return False
        self._may_start_at = now + RESTART_EVERY
        if self._too_many_left():
            return False
        theirs: list[int] = []
        try:
            theirs_in, self._out = os.pipe2(os.O_CLOEXEC)
            theirs.append(theirs_in)
            self.fd, theirs_out = os.pipe2(os.O_CLOEXEC)
            theirs.append(theirs_out)
            _enlarge(self._out)
            os.set_blocking(self._out, False)
            os.set_blocking(self.fd, False)
            self._eyes = self._begin(theirs_in, theirs_out)
        except OSError as error:
            self._note(f"cannot start the process that looks after the queues: {error}")
            self._close()
            return False
        finally:
            for fd in theirs:
                os.close(fd)
        self.heard_at = self._asked_at = now
        self._lost = False
        self._patience = PATIENCE_AT_START
        self._read = b""
        self._send(to_line(msgspec.structs.replace(self.brief, parent=os.getpid())))
        return True

    def _begin(self, stdin: int, stdout: int) -> Child:
        log = open_log(self._stderr, _LOG_SIZE, 1)
        try:
            return self._children.start(
                self._argv, os.environ, stdin=stdin, stdout=stdout, stderr=log
            )
        finally:
            os.close(log)

    @property
    def pid(self) -> int:
        """The eyes at hand; 0 while there are none."""
        return self._eyes.pid if self._eyes is not None else 0

    def tend(self, now: float) -> bool:
        """Whatever is due: start, or leave behind and start anew; whether eyes were started.

        Silent eyes are listened to until others may be started: perhaps they were only slow.
        """
        if self.fd >= 0 and now >= self._may_start_at and self.lost(now):
            self.abandon()
        return self.start(now)

    def abandon(self) -> None:
        """Leave the eyes at hand behind: killed, and not waited for."""
        if self._eyes is not None:
            self._kill(self._eyes)
            self._left.append(self._eyes)
            self._eyes = None
        self._close()

    def close(self) -> None:
        """At the end of the watchdog: the eyes leave by themselves when nobody talks to them."""
        self.abandon()

    def lost(self, now: float) -> bool:
        """Whether there are no eyes, or they have been silent for too long."""
        if self.fd < 0:
            return True
        self._excuse(now)
        self._lost = now - self.heard_at > self._patience and not _readable(self.fd)
        return self._lost

    @property
    def lost_at(self) -> float:
        """When to ask again whether they are lost; or when others may be started."""
        if self.fd < 0 or self._lost:
            return self._may_start_at
        return self.heard_at + self._patience

    # Talk

    def receive(self, now: float) -> list[Message]:
        """All that the eyes have said since the last time."""
        self._excuse(now)
        messages = []
        for line in self._lines(now):
            message = message_of(line)
            if message is None:
                self._note(f"not understood from the eyes: {line[:200]!r}")
                continue
            messages.append(message)
            if message.snapshot and not message.snapshot.trouble:
                self._made(tuple(message.snapshot.queues))
        if messages:
            self.heard_at = now
            self._lost = False
            self._patience = SILENCE
        return messages

    def hear_out(self, patience: float) -> Iterator[Message]:
        """Wait for their farewell, for so long; looks that were asked for before come first."""
        ends_at = time.monotonic() + patience
        while self.fd >= 0 and (now := time.monotonic()) < ends_at:
            poll = select.poll()
            poll.register(self.fd, select.POLLIN)
            poll.poll((ends_at - now) * 1000)
            for message in self.receive(time.monotonic()):
                yield message
                if message.farewell:
                    return

    def send(self, errands: Errands) -> bool:
        """Whether it will arrive: what a full pipe has no room for is dropped, with a note."""
        if errands.pipeline is not None:
            # The next eyes are to know it, too, whoever is there to hear it now.
            self.brief = msgspec.structs.replace(self.brief, pipeline=errands.pipeline)
        if self.fd < 0:
            return False
        return self._send(to_line(errands))

    def _excuse(self, now: float) -> None:
        """Whoever was stopped for a while must not take that for the silence of others."""
        if now - self._asked_at > 2 * SILENCE:
            self.heard_at = now
        self._asked_at = now

    def _made(self, queues: tuple[str, ...]) -> None:
        """What the next eyes find missing of these went away."""
        if queues != self.brief.made:
            self.brief = msgspec.structs.replace(self.brief, made=queues)

    def _lines(self, now: float) -> list[bytes]:
        """Whole lines; what is not one yet is kept."""
        while self.fd >= 0:
            try:
                chunk = os.read(self.fd, _CHUNK)
            except BlockingIOError:
                break
            if not chunk:
                self._note("the process that looks after the queues ended")
                self.abandon()
                # It did not hang, so the next need not.
                self._may_start_at = min(self._may_start_at, now + RESTART_DEAD_AFTER)
                break
            self._read += chunk
            if len(self._read) > MAX_LINE and b"\n" not in self._read:
                self._note("a line from the eyes is too long")
                self._read = b""
        *lines, self._read = self._read.split(b"\n")
        return lines

    def _send(self, line: bytes) -> bool:
        try:
            # A line of which a part has gone must go whole, or the next would be its end.
            while self._unsent:
                self._unsent = self._unsent[os.write(self._out, self._unsent) :]
            self._unsent = line[os.write(self._out, line) :]
        except (BlockingIOError, BrokenPipeError):
            self._note("the eyes do not read what they are told; it was dropped")
            return False
        return True

    # Those left behind

    def _too_many_left(self) -> bool:
        self._left = [eyes for eyes in self._left if eyes.exit is None]
        return len(self._left) >= MOST_LEFT

    def _close(self) -> None:
        for fd in (self.fd, self._out):
            if fd >= 0:
                os.close(fd)
        self.fd = self._out = -1
        self._unsent = b""


def _readable(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


def _enlarge(fd: int) -> None:
    # More than this user may have in pipes: what does not fit is dropped, and said.
    with contextlib.suppress(OSError):
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)
