"""One running server: its pipes, its answers, its stderr and its end."""

import fcntl
import os
import select
import sys
import termios
import threading
import time

from queuedriver.driving.limits import Limits
from queuedriver.errors import Interrupted
from queuedriver.processors.answers import Answer, Fault, parse, take_line
from queuedriver.processors.child import TAIL, Stderr
from queuedriver.processors.program import Program, cannot_start_now

# From a closed pipe to the exit status that explains it, in seconds.
_LAST_BREATH = 1.0


class RunningServer:
    """A server with its pipes. It has at most one question at a time."""

    def __init__(self, program: Program) -> None:
        try:
            self.stderr = _Stderr()
        except RuntimeError as error:
            # The machine has no thread left, which is no document's fault.
            raise cannot_start_now(program.arguments[0], str(error)) from None
        (stdin, self._questions), (self._answers, stdout) = os.pipe(), os.pipe()
        try:
            self.child = program.spawn(program.arguments, stdin, stdout, self.stderr.writer)
        except BaseException:
            self._close()
            raise
        finally:
            os.close(stdin)
            os.close(stdout)
        self._grace = program.grace
        # A server that does not read must not block us.
        os.set_blocking(self._questions, False)
        # What it said that is no whole line yet, or not read yet.
        self._said = bytearray()
        # Whether it said anything yet; whether it died, or closed a pipe, which is as good.
        self._heard = False
        self._gone = False
        # How much of the question at hand is in the pipe, or was; in bytes.
        self._sent = 0

    def usable(self) -> bool:
        """Return whether it can be asked: it lives, and said nothing unasked."""
        if self.child.ended(self.child.turn(0.0)):
            return False
        poll = select.poll()
        poll.register(self._answers, select.POLLIN)
        return not self._heard or not (self._said or poll.poll(0))

    def ask(self, line: bytes, docid: str, limits: Limits, start_timeout: float) -> Answer:
        """Return the answer. Raise Fault when it broke the rules or took too long."""
        self._sent = 0
        loading_until = None
        if self._heard:
            # What it writes from here on is about this document.
            self.stderr.read()
            self.stderr.clear()
        else:
            limits.allow(start_timeout)
            if limits.timeout is not None:
                loading_until = time.monotonic() + max(start_timeout, limits.timeout)
        events = {self._answers: select.POLLIN, self._questions: select.POLLOUT}
        with self.child.listening(limits, events):
            while True:
                instants = (limits.deadline(), loading_until)
                until = min((one for one in instants if one is not None), default=None)
                self._turn(line, until, limits)
                while (answer := self._next_answer(docid)) is not None:
                    if not answer.ready:
                        # The thread may not have had its turn yet.
                        self.stderr.read()
                        return answer
                    loading_until = None
                    limits.begin()
                if self._gone:
                    raise Fault("closed a pipe before it answered")
                reason = limits.reason()
                if reason == "leaving":
                    raise Interrupted(reason)
                late = reason is not None
                if loading_until is not None:
                    late = time.monotonic() >= loading_until
                    if reason is not None and not late:
                        # It is loading still: the document's clock stands.
                        limits.begin()
                        limits.allow(start_timeout)
                if late:
                    raise Fault("took longer than the document's time-out", "timeout")

    def leave(self) -> None:
        """No more documents come: let it end in its own way, and see to it that it does."""
        os.close(self._questions)
        self._questions = -1
        self._gone = False
        self.child.ends_within(self._grace)
        self.end()

    def end(self) -> None:
        """End it with its process group, and note how it ended."""
        # Whether it ended, before we saw to it, without an answer; and whether it had read anything
        # of its last document by then.
        self.by_itself = self._gone and self.child.ends_within(_LAST_BREATH)
        self.asked = not self.by_itself or _unread(self._questions) < self._sent
        self.ended = self.child.end(self._grace)
        self._close()

    def _close(self) -> None:
        self.stderr.close()
        for fd in (self._questions, self._answers):
            if fd >= 0:
                os.close(fd)

    def _turn(self, line: bytes, until: float | None, limits: Limits) -> None:
        """Wait for something to happen: it answers, ends, or takes more of the question."""
        ready = self.child.turn(until, limits)
        if self._answers in ready:
            chunk = os.read(self._answers, TAIL)
            self._said += chunk
            self._gone = not chunk
        elif self.child.ended(ready):
            self._gone = True
        if self._questions in ready:
            try:
                self._sent += os.write(self._questions, line[self._sent :])
            except BrokenPipeError:
                self._gone = True
            if self._sent == len(line):
                self.child.ignore(self._questions)

    def _next_answer(self, docid: str) -> Answer | None:
        line = take_line(self._said)
        if line is None:
            return None
        answer = parse(line)
        if answer.ready and self._heard:
            raise Fault("said ready when it had said something before")
        if answer.docid is not None and answer.docid != docid:
            raise Fault(f"answered for {answer.docid!r} when asked for {docid!r}")
        self._heard = True
        return answer


class _Stderr(Stderr):
    """Keeps a server's stderr flowing, also while there is no document.

    By a thread, because a driver that waits for work sleeps in somebody else's poll: a full pipe
    would stop the server in the middle of a word, and a file would grow with nobody to cut it. The
    thread touches this object and nothing else.
    """

    def __init__(self) -> None:
        super().__init__()
        self._stop = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="server-stderr", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self.close()
            raise

    def close(self) -> None:
        os.eventfd_write(self._stop, 1)
        if self._thread.is_alive():
            self._thread.join()
        self.read()
        os.close(self._stop)
        super().close()

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self.reader, select.POLLIN)
        poll.register(self._stop, select.POLLIN)
        while all(fd != self._stop for fd, _ in poll.poll()):
            self.read()


def _unread(pipe: int) -> int:
    """Return how many bytes of a pipe nobody has read yet."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)
