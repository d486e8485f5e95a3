"""One running server: its pipes, its answers, its stderr and its end."""

import contextlib
import fcntl
import os
import select
import struct
import termios
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

from queuedriver.driving.limits import Limits
from queuedriver.processors.answers import Answer, Fault, Lines, parse
from queuedriver.processors.child import TAIL, Ended, Tail
from queuedriver.processors.program import Program

# From a closed pipe to the exit status that explains it, in seconds.
_LAST_BREATH = 1.0


class ServerEnd(NamedTuple):
    """How a server ended, and what it left to say."""

    # None: not even SIGKILL ends it.
    ended: Ended | None
    # Whether it ended, before we saw to it, without an answer.
    by_itself: bool
    # False when it died before it read anything of its last document.
    asked: bool
    tail: Tail
    peak_memory: int | None


class RunningServer:
    """A server with its pipes. It has at most one question at a time."""

    def __init__(self, program: Program, arguments: list[str]) -> None:
        pipes = [os.pipe() for _ in range(3)]
        (stdin, self._questions), (self._answers, stdout), (reader, stderr) = pipes
        try:
            self._child = program.spawn(arguments, stdin, stdout, stderr)
        except BaseException:
            for fd in (self._questions, self._answers, reader):
                os.close(fd)
            raise
        finally:
            for fd in (stdin, stdout, stderr):
                os.close(fd)
        # A server that does not read must not block us.
        os.set_blocking(self._questions, False)
        self._stderr = _Stderr(reader)
        self._lines = Lines()
        # Whether it said anything yet; whether it died, or closed a pipe, which is as good.
        self._heard = False
        self._gone = False
        # How much of the question at hand is in the pipe, or was; in bytes.
        self._sent = 0

    def usable(self) -> bool:
        """Whether it can be asked: it lives, and said nothing unasked."""
        if self._child.ended(self._child.turn(0.0)):
            return False
        poll = select.poll()
        poll.register(self._answers, select.POLLIN)
        return not self._heard or not (self._lines or poll.poll(0))

    def ask(self, line: bytes, docid: str, limits: Limits, start_timeout: float) -> Answer | str:
        """The answer, or the reason to wait for it no longer; Fault when it broke the rules."""
        self._sent = 0
        loading_until = None
        if self._heard:
            # What it writes from here on is about this document.
            self._stderr.clear()
        else:
            limits.allow(start_timeout)
            if limits.timeout is not None:
                loading_until = time.monotonic() + max(start_timeout, limits.timeout)
        with self._listening(limits.wake_fd):
            while True:
                instants = (limits.deadline(), loading_until)
                until = min((one for one in instants if one is not None), default=None)
                line = self._turn(line, until, limits)
                while (answer := self._next_answer(docid)) is not None:
                    if not answer.ready:
                        return answer
                    loading_until = None
                    limits.begin()
                if self._gone:
                    raise Fault("closed a pipe before it answered")
                reason = limits.reason()
                if loading_until is None or reason == "leaving":
                    if reason is not None:
                        return reason
                elif time.monotonic() >= loading_until:
                    return "timeout"
                elif reason is not None:
                    # It is loading still: the document's clock stands.
                    limits.begin()
                    limits.allow(start_timeout)

    def stderr_tail(self) -> str | None:
        return self._stderr.text()

    def peak_memory(self) -> int | None:
        """In bytes; None for one that has ended."""
        with contextlib.suppress(OSError), open(f"/proc/{self._child.pid}/status", "rb") as file:
            for line in file:
                if line.startswith(b"VmHWM:"):
                    return int(line.split()[1]) * 1024
        return None

    def leave(self, patience: float) -> None:
        """No more documents come: let it end in its own way, and see to it that it does."""
        os.close(self._questions)
        self._questions = -1
        self._child.ends_within(patience)
        self.end(patience)

    def end(self, grace: float) -> ServerEnd:
        """End it with its process group."""
        peak_memory = self.peak_memory()
        by_itself = self._gone and self._child.ends_within(_LAST_BREATH)
        asked = not by_itself or _unread(self._questions) < self._sent
        ended = self._child.end(grace)
        if peak_memory is None and ended is not None:
            peak_memory = ended.peak_memory
        tail = self._stderr.close()
        for fd in (self._questions, self._answers):
            if fd >= 0:
                os.close(fd)
        return ServerEnd(ended, by_itself, asked, tail, peak_memory)

    @contextlib.contextmanager
    def _listening(self, wake_fd: int) -> Iterator[None]:
        poll = self._child.poll
        poll.register(self._answers, select.POLLIN)
        poll.register(self._questions, select.POLLOUT)
        poll.register(wake_fd, select.POLLIN)
        try:
            yield
        finally:
            for fd in (self._answers, self._questions, wake_fd):
                with contextlib.suppress(KeyError):
                    poll.unregister(fd)

    def _turn(self, line: bytes, until: float | None, limits: Limits) -> bytes:
        """Wait for something to happen; what is left to be sent."""
        ready = self._child.turn(until)
        if self._answers in ready:
            chunk = os.read(self._answers, TAIL)
            self._lines.add(chunk)
            self._gone = not chunk
        elif self._child.ended(ready):
            self._gone = True
        if limits.wake_fd in ready:
            limits.clear()
        if self._questions in ready:
            try:
                sent = os.write(self._questions, line)
            except BrokenPipeError:
                self._gone = True
                return line
            self._sent += sent
            line = line[sent:]
            if not line:
                self._child.poll.unregister(self._questions)
        return line

    def _next_answer(self, docid: str) -> Answer | None:
        line = self._lines.next()
        if line is None:
            return None
        answer = parse(line)
        if answer.ready and self._heard:
            raise Fault("said ready when it had said something before")
        if answer.docid is not None and answer.docid != docid:
            raise Fault(f"answered for {answer.docid!r} when asked for {docid!r}")
        self._heard = True
        return answer


class _Stderr:
    """Keeps a server's stderr flowing, also while there is no document.

    By a thread, because a driver that waits for work sleeps in somebody else's poll: a full pipe
    would stop the server in the middle of a word, and a file would grow with nobody to cut it. The
    thread touches this object and nothing else.
    """

    def __init__(self, reader: int) -> None:
        self._tail = Tail()
        self._reader = reader
        os.set_blocking(reader, False)
        self._stop = os.eventfd(0, os.EFD_CLOEXEC)
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="server-stderr", daemon=True)
        self._thread.start()

    def text(self) -> str | None:
        # The thread may not have had its turn yet.
        self._catch_up()
        with self._lock:
            return self._tail.text()

    def clear(self) -> None:
        self._catch_up()
        with self._lock:
            self._tail.clear()

    def close(self) -> Tail:
        """The end: nobody else touches what it returns."""
        os.eventfd_write(self._stop, 1)
        self._thread.join()
        self._catch_up()
        os.close(self._reader)
        os.close(self._stop)
        return self._tail

    def _catch_up(self) -> bool:
        """Read what is there by now; False when no more will come."""
        with self._lock:
            # Not for ever, where somebody writes faster than we read.
            for _ in range(16):
                try:
                    chunk = os.read(self._reader, TAIL)
                except BlockingIOError:
                    return True
                if not chunk:
                    return False
                self._tail.add(chunk)
        return True

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._reader, select.POLLIN)
        poll.register(self._stop, select.POLLIN)
        while all(fd != self._stop for fd, _ in poll.poll()) and self._catch_up():
            pass


def _unread(pipe: int) -> int:
    """How many bytes nobody has read yet."""
    answer = fcntl.ioctl(pipe, termios.FIONREAD, bytes(struct.calcsize("i")))
    return int(struct.unpack("i", answer)[0])
