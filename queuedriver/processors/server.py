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
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from queuedriver.claims.document import Document
from queuedriver.claims.outputs import Output, Outputs
from queuedriver.driving.limits import Limits
from queuedriver.errors import ConfigError, Interrupted, ProcessorFailed, TryLater
from queuedriver.processors.answers import Answer, AnsweredOutput, Fault, question
from queuedriver.processors.child import GRACE
from queuedriver.processors.program import Program, failed, objection_to_output, split_command
from queuedriver.processors.serving import RunningServer, ServerEnd

# A model may take minutes to load from a slow share; in seconds.
START_TIMEOUT = 600.0


class ServerProcessor:
    """Hands each document to a program that stays."""

    writes_output = True

    def __init__(
        self,
        command: str | Sequence[str],
        environ: Mapping[str, str] | None = None,
        start_timeout: float = START_TIMEOUT,
        grace: float = GRACE,
    ) -> None:
        self._arguments = split_command(command)
        self.name = shlex.join(self._arguments)
        self._environ = os.environ if environ is None else environ
        self._start_timeout = start_timeout
        self._grace = grace
        self._server: RunningServer | None = None

    def start(self, marker: str) -> None:
        self._program = Program(self._arguments, self._environ, marker)
        # Now, so that it loads while the driver looks for its first document.
        self._server = RunningServer(self._program, self._arguments)

    def stop(self) -> None:
        if self._server is not None:
            self._server.leave(self._grace)
            self._server = None

    def process(self, document: Document, outputs: Outputs, limits: Limits) -> None:
        if (reason := limits.reason()) is not None:
            raise Interrupted(reason)
        server = self._idle_server()
        path = outputs.reserve() if outputs.wanted else None
        line = question(document.docid, document.attempt, document.path, path)
        server, answer = self._ask(line, document.docid, limits)
        if answer.later is not None:
            raise TryLater(answer.later, answer.reason)
        if answer.error is not None:
            raise failed(
                "permanent" if answer.permanent else "exception",
                answer.error,
                server.stderr_tail(),
                traceback=answer.traceback,
                peak_memory=server.peak_memory(),
            )
        self._take(answer, path, outputs, limits)

    def _ask(self, line: bytes, docid: str, limits: Limits) -> tuple[RunningServer, Answer]:
        for _ in range(2):
            server = self._idle_server()
            try:
                answer = server.ask(line, docid, limits, self._start_timeout)
            except Fault as fault:
                end = self._end(server)
                if not end.asked:
                    # It was on its way out, so the document gets another server; or none can start.
                    continue
                raise self._failure(end, "server", str(fault)) from None
            except BaseException:
                # The answer to this document would be taken for the next one's.
                self._end(server)
                raise
            if isinstance(answer, Answer):
                return server, answer
            end = self._end(server)
            if answer == "leaving":
                raise Interrupted(answer)
            raise self._failure(end, answer, "took longer than the document's time-out")
        failure = self._failure(end, "server", "died").failure
        raise ConfigError(
            f"{failure.message}; it does not get as far as reading a document; mend it"
        )

    def _idle_server(self) -> RunningServer:
        """A server that waits for a document."""
        if self._server is not None and not self._server.usable():
            # It died, or went on talking, while it had no document: none is to blame.
            self._end(self._server)
        if self._server is None:
            self._server = RunningServer(self._program, self._arguments)
        return self._server

    def _end(self, server: RunningServer) -> ServerEnd:
        self._server = None
        return server.end(self._grace)

    def _failure(self, end: ServerEnd, cause: str, words: str) -> ProcessorFailed:
        """What to say of a document whose server was ended."""
        own_end = end.ended if end.by_itself else None
        if end.ended is None:
            cause, words = "hung", "does not end, not even by SIGKILL"
        elif own_end is not None:
            words = f"{own_end.words} before it answered"
        if last := end.tail.last_line():
            words = f"{words}: {last}"
        message, stderr = f"{self._program.name} {words}", end.tail.text()
        return failed(cause, message, stderr, own_end, peak_memory=end.peak_memory)

    def _take(self, answer: Answer, path: str | None, outputs: Outputs, limits: Limits) -> None:
        """Register what a server wrote."""
        named = answer.outputs
        if path is None:
            # Nothing is wanted of it; what it names all the same has nowhere to go, and is refused.
            for one in named or ():
                outputs.take(Output(Path(one.path)), limits)
            return
        others = [one for one in named or () if os.path.abspath(one.path) != path]
        if named is None or len(others) < len(named):
            self._look_at(path, named or ())
        else:
            outputs.forget(path)
        for one in others:
            outputs.take(Output(Path(one.path), one.docid, one.queue, one.ext), limits)

    def _look_at(self, path: str, named: Sequence[AnsweredOutput]) -> None:
        """Raise unless there is an output at the path that we gave."""
        if any(one.docid or one.queue or one.ext for one in named if one.path == path):
            what = "named the path it was given and another docid, queue or ext; write another file"
        elif (wrong := objection_to_output(path)) is None:
            return
        else:
            what = (
                f"{wrong} at the output's path"
                if wrong
                else "said ok, but did not write the output"
            )
        raise failed("bad-answer", f"{self._program.name} {what}", None)
