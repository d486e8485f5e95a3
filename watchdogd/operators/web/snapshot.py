"""The one process that looks at a pipeline, however many watch; and what it saw last.

A look is asked for when somebody wants a page, and not before the last one is so old that looking
takes a twentieth of the time. Whoever waits for an answer waits for a moment: then the page shows
what was seen before, and says how old that is. A process that does not answer is left behind,
killed but not waited for, and another is started: at most one a minute, and not beside too many.
"""

import itertools
import math
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection

from watchdogd.operators.view import SeenDriver, pause_after
from watchdogd.operators.web.page_inputs import OLD, Answer, Question, Snapshot, with_drivers

# How long one waits: for a look where none is known that may be believed, for a newer one, and for
# any other answer.
_FIRST, _NEWER, _PATIENCE = 3.0, 1.0, 3.0
# Seconds between two starts; and how many that do not end may be left behind.
_RESTART_EVERY = 60.0
_RESTART_DEAD_AFTER = 5.0
# For how many seconds an answer may be waited for until its process is taken for one that hangs:
# where others ask; and where nobody does, or something is being changed, which is not to be cut off
# in its midst.
_HANGS_AFTER, _HANGS_AT_LAST = 30.0, 600.0
_MOST_LEFT = 5
# So many questions may wait for an answer.
_MOST_ASKED = 50
# What is to be seen at once.
_CHANGES = ("act", "put_back")
_NO_ANSWER = Answer(error="the file system does not answer", status=503)
_ENDED = Answer(error="the process that looks has ended, and another is to be started", status=503)
# What is said besides to whoever wanted something changed.
_NOT_YET = "; it may be done once it does, as the events say then"
_PERHAPS = "; whether that was done before, the events say"
# A question is small: where there is no room for it for so long, nobody takes any.
_ROOM_WITHIN = struct.pack("ll", 1, 0)


class Looker:
    """One pipeline's process, and what it saw last."""

    def __init__(self, name: str, argv: Sequence[str]) -> None:
        self.name = name
        self.snapshot = Snapshot()
        # How many looks were asked for.
        self.looks = 0
        self._argv = list(argv)
        self._changed = threading.Condition()
        self._numbers = itertools.count(1)
        # Questions without an answer so far, by number: when each was asked.
        self._asked: dict[int, float] = {}
        # Those of them by which something is changed.
        self._changing: set[int] = set()
        # Those that somebody waits for; None while there is no answer.
        self._answers: dict[int, Answer | None] = {}
        # The look that is under way; and when the last one ended.
        self._looking = 0
        self._looked_at = -math.inf
        # When that was seen which numbers are taken from.
        self._full_at = math.inf
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._may_start_at = 0.0
        # What is said where there is no answer: whether the last process hangs, or has ended.
        self._silence = _NO_ANSWER
        self._left: list[subprocess.Popen[bytes]] = []

    def begin(self) -> None:
        """Begin a look, if it is time for one, and wait for nothing."""
        with self._changed:
            if self._looking:
                # It may hang, and nobody ask for anything else.
                self._see_to_process(_HANGS_AT_LAST)
            seen = self.snapshot.seen
            due = self._looked_at + pause_after(seen.took if seen else 0.0)
            if not self._looking and time.monotonic() >= due:
                self._looking = self._send(Question(self.name, "look"))
                self.looks += 1

    def latest(self) -> Snapshot:
        """Return what was seen last, newer than before where that comes within a moment."""
        with self._changed:
            self.begin()
            seen, now = self.snapshot.seen, time.monotonic()
            began_at = self._asked.get(self._looking, now)
            is_old = not seen or now - self._looked_at > OLD
            patience = began_at + (_FIRST if is_old else _NEWER) - now
            self._changed.wait_for(lambda: not self._looking, max(0.0, patience))
            return self.snapshot._replace(age=time.monotonic() - self._full_at)

    def ask(self, question: Question) -> Answer:
        """Return the answer to a question, or that there is none."""
        with self._changed:
            now = time.monotonic()
            # Where nothing is answered, nobody else waits for that to be seen.
            oldest = min(self._asked.values(), default=now)
            if oldest + _PATIENCE < now or len(self._asked) >= _MOST_ASKED:
                self._see_to_process()
                return self._silence
            number = self._send(question)
            self._answers[number] = None
            self._changed.wait_for(
                lambda: self._answers[number] or number not in self._asked, _PATIENCE
            )
            if question.kind in _CHANGES:
                # Whoever changed something is to see it.
                self._looked_at = -math.inf
                if self._answers[number] is None and number:
                    more = _PERHAPS if self._silence is _ENDED else _NOT_YET
                    self._answers[number] = Answer(None, self._silence.error + more, 503)
            return self._answers.pop(number) or self._silence

    def close(self) -> None:
        """End the process; one that cannot end is left behind."""
        with self._changed:
            self._abandon()
        for one in self._left:
            with suppress(subprocess.TimeoutExpired):
                one.wait(_NEWER)

    # The process

    def _see_to_process(self, hangs_after: float = _HANGS_AFTER) -> None:
        """Leave a process behind that hangs, and start one where there is none."""
        now = time.monotonic()
        oldest = min(self._asked.values(), default=now)
        hangs_after = _HANGS_AT_LAST if self._changing else hangs_after
        if self._connection is not None and oldest + hangs_after < now:
            self._abandon()
        if self._connection is None and now >= self._may_start_at:
            self._start(now)

    def _send(self, question: Question) -> int:
        """Ask a process that is there, or is started now; return the number, 0 if that failed."""
        self._see_to_process()
        if self._connection is None:
            return 0
        number = next(self._numbers)
        try:
            self._connection.send((number, question))
        except BlockingIOError:
            self._abandon()
            return 0
        except OSError:
            self._note_end()
            return 0
        self._asked[number] = time.monotonic()
        if question.kind in _CHANGES:
            self._changing.add(number)
        return number

    def _start(self, now: float) -> None:
        self._left = [one for one in self._left if one.poll() is None]
        if len(self._left) >= _MOST_LEFT:
            return
        ours, theirs = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _ROOM_WITHIN)
        with theirs:
            fd = theirs.fileno()
            self._process = subprocess.Popen(
                [*self._argv, str(fd)], pass_fds=[fd], stdin=subprocess.DEVNULL, cwd="/"
            )
        self._may_start_at, self._silence = now + _RESTART_EVERY, _NO_ANSWER
        self._connection = Connection(ours.detach())
        threading.Thread(target=self._listen, args=(self._connection,), daemon=True).start()

    def _abandon(self) -> None:
        """Kill the process, and wait for nothing: what was asked has no answer."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._left.append(self._process)
        self._process = self._connection = None
        self._asked.clear()
        self._changing.clear()
        self._looking = 0
        self._changed.notify_all()

    def _note_end(self) -> None:
        """Note that the process has ended by itself: the next one need not hang either."""
        self._may_start_at = time.monotonic() + _RESTART_DEAD_AFTER
        self._silence, self.snapshot = _ENDED, self.snapshot.after(_ENDED)
        self._abandon()

    def _listen(self, connection: Connection) -> None:
        """Take answers as they come, until the process ends."""
        with connection, suppress(EOFError, OSError):
            drivers: list[SeenDriver] = []
            while True:
                number, part = connection.recv()
                if not isinstance(part, Answer):
                    drivers += part
                    continue
                with self._changed:
                    self._take(number, with_drivers(part, drivers))
                drivers = []
        with self._changed:
            if self._connection is connection:
                self._note_end()

    def _take(self, number: int, answer: Answer) -> None:
        if self._asked.pop(number, None) is None:
            return
        self._changing.discard(number)
        if number == self._looking:
            before, self.snapshot = self.snapshot, self.snapshot.after(answer)
            self._looking, self._looked_at = 0, time.monotonic()
            if self.snapshot.full is not before.full:
                self._full_at = self._looked_at
        elif number in self._answers:
            self._answers[number] = answer
        self._changed.notify_all()
