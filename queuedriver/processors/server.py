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

import os
from collections.abc import Sequence
from pathlib import Path

from queuedriver.claims.document import Document, Output, Outputs
from queuedriver.driving.limits import Limits
from queuedriver.errors import ConfigError, Interrupted, ProcessorFailed, TryLater
from queuedriver.format.records import Failure
from queuedriver.processors.answers import Answer, Fault, question
from queuedriver.processors.child import Ended, Tail
from queuedriver.processors.program import Program
from queuedriver.processors.running_server import RunningServer

# A model may take minutes to load from a slow share; in seconds.
START_TIMEOUT = 600.0


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
