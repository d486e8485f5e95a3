"""`server = ["my-model", "--serve"]`: a program that stays, and keeps its model loaded.

It is started once, before the first claim, and again for the next document when it has died. For
each document it reads one line of JSON on stdin and writes one on stdout, and nothing else there.

    asked    {"docid": "a", "attempt": 0, "input": "/q/a.….working", "output": "/r/a.….writing"}
    done     {"ok": true}                       the output is at the path `output`
             {"ok": true, "outputs": []}        there is none (where there is no output queue,
                                                `output` is null and {"ok": true} says it all)
             {"outputs": [{"path": "p"}, …]}    these files instead, which are moved away; each of
                                                them may say its "docid", "queue" and "ext"
    failed   {"error": "what happened"}         also "traceback", and "permanent": true
    not now  {"later": 30, "reason": "busy"}    given back uncharged, for so many seconds
    loaded   {"ready": true}                    once, as the first line, by a server that cares to

An answer may repeat the "docid", which is then checked. As long as a server has said nothing yet,
its first document may take `start_timeout`, if that is longer than its own time-out; with
{"ready": true} its own time-out starts.

A server that breaks these rules, dies or takes too long fails the document at hand, and is ended
with its process group. One that died before it read the document does not: another is started, and
if that does not read it either, the driver leaves. What a server writes on stderr goes into the
reports of documents that failed. When the driver leaves, the server's stdin is closed, 5 seconds
later it gets SIGTERM, and 5 seconds later SIGKILL.
"""

import fcntl
import os
import select
import sys
import termios
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from queuedriver.claims.document import Document, Output, Outputs
from queuedriver.driving.limits import Limits
from queuedriver.errors import ConfigError, Interrupted, ProcessorFailed, TryLater
from queuedriver.format.records import Failure
from queuedriver.processors.answers import Answer, Fault, parse, question, take_line
from queuedriver.processors.child import TAIL, Ended, Stderr, Tail
from queuedriver.processors.program import Program, cannot_start_now

# A model may take minutes to load from a slow share; in seconds.
START_TIMEOUT = 600.0
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


class ServerProcessor(Program):
    """Hands each document to a program that stays."""

    def __init__(self, command: str | Sequence[str], start_timeout: float = START_TIMEOUT) -> None:
        super().__init__(command)
        self._start_timeout = start_timeout
        self._server: RunningServer | None = None

    def start(self, marker: str) -> None:
        super().start(marker)
        # Now, so that it loads while the driver looks for its first document.
        self._server = RunningServer(self)

    def stop(self) -> None:
        if self._server is not None:
            self._server.leave()
            self._server = None
        super().stop()

    def process(self, document: Document, outputs: Outputs, limits: Limits) -> None:
        if (reason := limits.reason()) is not None:
            raise Interrupted(reason)
        path = outputs.reserve() if outputs.targets else None
        line = question(document.docid, document.attempt, document.path, path)
        server, answer = self._ask(line, document.docid, limits)
        if answer.later is not None:
            raise TryLater(answer.later, answer.reason)
        if answer.error is not None:
            raise ProcessorFailed(
                Failure(
                    cause="permanent" if answer.permanent else "exception",
                    message=answer.error,
                    permanent=answer.permanent,
                    traceback=answer.traceback,
                    stderr_tail=server.stderr.text(),
                    peak_memory=server.child.peak_memory(),
                )
            )
        self._take(answer, path, outputs, limits)

    def _ask(self, line: bytes, docid: str, limits: Limits) -> tuple[RunningServer, Answer]:
        for _ in range(2):
            server = self._idle_server()
            try:
                return server, server.ask(line, docid, limits, self._start_timeout)
            except BaseException as error:
                # The answer to this document would be taken for the next one's.
                self._end(server)
                if not isinstance(error, Fault):
                    raise
                if server.asked:
                    raise self._failed(server, error) from None
                # It was on its way out, so the document gets another; or none can start.
                failure = self._failed(server, error).failure
        raise ConfigError(
            f"{failure.message}; it does not get as far as reading a document; mend it"
        )

    def _idle_server(self) -> RunningServer:
        """Return a server that waits for a document."""
        if self._server is not None and not self._server.usable():
            # It died, or went on talking, while it had no document: none is to blame.
            self._end(self._server)
        if self._server is None:
            self._server = RunningServer(self)
        return self._server

    def _end(self, server: RunningServer) -> None:
        self._server = None
        server.end()

    def _failed(self, server: RunningServer, fault: Fault) -> ProcessorFailed:
        """Return what to raise for a document whose server was ended."""
        words, ended = str(fault), server.ended
        if server.by_itself:
            words = f"{ended.words} before it answered"
        else:
            # How we ended it says nothing of it.
            ended = ended._replace(code=None)
        return self.failed(fault.cause, server.stderr.after(words), server.stderr, ended)

    def _take(self, answer: Answer, path: str | None, outputs: Outputs, limits: Limits) -> None:
        """Register what a server wrote. Where nothing is wanted of it, what it names all the same
        has nowhere to go, and is refused."""
        named = answer.outputs or ()
        others = [one for one in named if path is None or os.path.abspath(one.path) != path]
        if path is not None:
            ours = [one for one in named if one not in others]
            if any(one.docid or one.queue or one.ext for one in ours):
                words = "named the path it was given and another docid, queue or ext; "
                raise self.failed("bad-answer", f"{words}write another file", Tail(), Ended())
            if ours or answer.outputs is None:
                missing = "said ok, but did not write the output"
                self.has_written(outputs, path, "the output's path", missing, Tail(), Ended())
            else:
                outputs.forget(path)
        for one in others:
            outputs.take(Output(Path(one.path), one.docid, one.queue, one.ext), limits)
