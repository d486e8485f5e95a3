"""`command = ["pdftotext", "{input}", "{output}"]`: one run of a program for each document.

No shell runs it. In its arguments these are replaced, once, by the document's own:

    {input}      path of the document; without it the document is on stdin
    {output}     path at which the command writes the output; without it stdout is the output
    {docid}      {attempt}: how often it failed before, 0 the first time

`{output}` may say more: `{output.pdf}` is a path that ends in .pdf, for programs that go by it;
`{output:NAME}` goes to the output queue of that name; `{output:NAME?}` need not be written. Several
of them are several outputs. Other braces stay as they are, but a single word in them is taken for a
slip: write `{{word}}` for the text {word}.

A docid may start with "-". Paths are absolute, so `{input}` and `{output}` are never taken for
options; `{docid}` as an argument of its own is: write `--id={docid}`, or put it after `--`.

Exit codes: 0 done, 65 permanent (the document is set aside at once), 75 try later (uncharged),
everything else failed. The end of stderr goes into the report, and that of stdout with it when
`{output}` is used, or there is no output queue. When the command has ended, so has everything in
its process group.
"""

import os
import re
import select
import shlex
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from queuedriver.claims.document import Document
from queuedriver.claims.outputs import Outputs
from queuedriver.driving.limits import Limits
from queuedriver.errors import ConfigError, Interrupted, ProcessorFailed, TryLater
from queuedriver.processors.child import GRACE, Child, Ended, Tail
from queuedriver.processors.program import (
    Program,
    failed,
    objection_to_output,
    open_null,
    split_command,
)

_DONE = 0
_PERMANENT = 65
_LATER = 75
# Exit code 75 does not say how much later; in seconds.
_LATER_AFTER = 60.0

_WORDS = ("input", "docid", "attempt")
# A word in braces; what may follow it is for `output` only.
_WORD = r"\w+(?:[.:][^{}]*)?\??"
_SLOT = re.compile(r"\{\{(?P<text>" + _WORD + r")\}\}|\{(?P<word>" + _WORD + r")\}")
_OUTPUT = re.compile(
    r"output(?:\.(?P<ext>[A-Za-z0-9]{1,12}))?(?::(?P<queue>[^/?]+))?(?P<optional>\?)?"
)
# Programs that run text given to them as an argument, and the options that say which. Nothing of a
# document may become part of such a text: a docid may be `$(reboot)`. This catches the usual slips;
# what a program makes of its arguments only its author knows.
_INTERPRETER = re.compile(
    r"(?:(?:a|ba|c|da|fi|k|mk|tc|tcl|z)?sh|lua|node|perl|php|python|ruby)[0-9.]*"
)
# These take such an option after other arguments, and ssh hands all it has to a shell.
_SHELL_CALLER = re.compile(r"flock|runuser|script|ssh|su")
_TEXT_OPTION = re.compile(r"-[A-Za-z]*[ceEr]|--(?:command|eval)")


class OutputSlot(NamedTuple):
    """What one `{output…}` says."""

    word: str
    queue: str | None
    ext: str | None
    optional: bool


class Template:
    """A command's arguments, with places that each document fills."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._arguments = [_parse(one) for one in arguments]
        self.words = {word for parts in self._arguments for word in parts[1::2]}
        slots = [_output_slot(word) for word in sorted(self.words)]
        self.outputs = [slot for slot in slots if slot is not None]
        _refuse_text(self._arguments)

    def fill(self, values: Mapping[str, str]) -> list[str]:
        """The arguments for one document. What is filled in is not looked at again."""
        return [
            parts[0]
            if len(parts) == 1
            else "".join(values[part] if at % 2 else part for at, part in enumerate(parts))
            for parts in self._arguments
        ]


class CommandProcessor:
    """Runs a command for each document."""

    writes_output = True

    def __init__(
        self,
        command: str | Sequence[str],
        environ: Mapping[str, str] | None = None,
        grace: float = GRACE,
    ) -> None:
        self._arguments = split_command(command)
        self.name = shlex.join(self._arguments)
        self._template = Template(self._arguments)
        self.needs_output = bool(self._template.outputs)
        self._environ = os.environ if environ is None else environ
        self._grace = grace
        self._null = -1

    def start(self, marker: str) -> None:
        self._program = Program(self._arguments, self._environ, marker)
        self._null = open_null()

    def stop(self) -> None:
        if self._null >= 0:
            os.close(self._null)
            self._null = -1

    def process(self, document: Document, outputs: Outputs, limits: Limits) -> None:
        if (reason := limits.reason()) is not None:
            raise Interrupted(reason)
        template = self._template
        values = {"docid": document.docid, "attempt": str(document.attempt)}
        paths = [outputs.reserve(queue=one.queue, ext=one.ext) for one in template.outputs]
        values.update((one.word, path) for one, path in zip(template.outputs, paths, strict=True))
        tail = Tail()
        opened = list(os.pipe())
        try:
            stdin, stdout, (reader, writer) = self._null, opened[1], opened
            if "input" in template.words:
                values["input"] = document.path
            else:
                opened.append(stdin := document.descriptor())
            if not paths and outputs.wanted:
                opened.append(stdout := outputs.open_reserved())
            with self._program.spawn(template.fill(values), stdin, stdout, writer) as child:
                child.keep(reader, tail)
                reason = _watch(child, limits)
                ended = child.reap() if reason is None else child.end(self._grace)
        finally:
            for fd in opened:
                os.close(fd)
        if reason == "leaving":
            raise Interrupted(reason)
        self._judge(reason, ended, tail)
        for slot, path in zip(template.outputs, paths, strict=True):
            self._look_at(slot, path, outputs, ended, tail)

    def _judge(self, reason: str | None, ended: Ended | None, tail: Tail) -> None:
        """Raise what the end of the command means, unless it is done."""
        if ended is None:
            raise self._failed("hung", "does not end, not even by SIGKILL", ended, tail)
        if reason is not None:
            raise self._failed(reason, "took longer than the document's time-out", ended, tail)
        if ended.code == _DONE:
            if ended.alone:
                return
            raise self._failed("hung", "left a process that SIGKILL does not end", ended, tail)
        words = ended.words + _last_words(tail)
        if ended.code == _LATER:
            raise TryLater(_LATER_AFTER, f"{self._program.name} {words}")
        if ended.code == _PERMANENT:
            raise self._failed("permanent", words, ended, tail)
        raise self._failed("signal" if ended.signal else "exit", words, ended, tail)

    def _look_at(
        self, slot: OutputSlot, path: str, outputs: Outputs, ended: Ended | None, tail: Tail
    ) -> None:
        """Raise unless there is an output where the command was to write one."""
        wrong = objection_to_output(path)
        if wrong is None:
            return
        if not wrong and slot.optional:
            outputs.forget(path)
            return
        what = f"{wrong} at" if wrong else "ended well, but did not write"
        words = f"{what} {{{slot.word}}}{_last_words(tail)}"
        raise self._failed("bad-answer", words, ended, tail)

    def _failed(self, cause: str, words: str, ended: Ended | None, tail: Tail) -> ProcessorFailed:
        return failed(cause, f"{self._program.name} {words}", tail.text(), ended)


def _last_words(tail: Tail) -> str:
    """Return what a program wrote last, which is usually why it gave up."""
    return f": {last}" if (last := tail.last_line()) else ""


def _watch(child: Child, limits: Limits) -> str | None:
    """None when the child has ended; else why it must."""
    deadline = limits.deadline()
    child.poll.register(limits.wake_fd, select.POLLIN)
    try:
        while True:
            ready = child.turn(deadline)
            if child.ended(ready):
                return None
            if limits.wake_fd in ready:
                limits.clear()
            elif deadline is None or time.monotonic() < deadline:
                # It wrote on stderr.
                continue
            if (reason := limits.reason()) is not None:
                return reason
            deadline = limits.deadline()
    finally:
        child.poll.unregister(limits.wake_fd)


def _parse(argument: str) -> list[str]:
    """Text, word, text, word, … text."""
    parts, text, at = [], "", 0
    for match in _SLOT.finditer(argument):
        text += argument[at : match.start()]
        at = match.end()
        if match["text"] is not None:
            text += f"{{{match['text']}}}"
            continue
        word = match["word"]
        if word not in _WORDS and _output_slot(word) is None:
            raise ConfigError(
                f"the command has {{{word}}}, which is not known; known are {{input}}, {{output}}, "
                f"{{docid}} and {{attempt}}; write {{{{{word}}}}} for the text itself"
            )
        parts += [text, word]
        text = ""
    return [*parts, text + argument[at:]]


def _output_slot(word: str) -> OutputSlot | None:
    match = _OUTPUT.fullmatch(word)
    if match is None:
        return None
    return OutputSlot(word, match["queue"], match["ext"], match["optional"] is not None)


def _refuse_text(arguments: Sequence[Sequence[str]]) -> None:
    """Refuse a command that would run what a document is called."""
    runs = ""
    is_text = False
    for parts in arguments:
        text = parts[0]
        option = bool(runs) and _TEXT_OPTION.fullmatch(text.partition("=")[0]) is not None
        if any(word != "attempt" for word in parts[1::2]):
            if parts is arguments[0]:
                raise ConfigError("the program of a command cannot depend on the document")
            if is_text or option or runs == "ssh":
                raise ConfigError(
                    f"{runs} would run what stands in the document's name ({{{parts[1]}}}); pass "
                    "it as an argument of its own to a script, as in "
                    """["sh", "-c", 'convert "$1" "$2"', "sh", "{input}", "{output}"]"""
                )
        if option:
            is_text = True
        elif not text.startswith("-"):
            is_text = False
            name = os.path.basename(text)
            if _INTERPRETER.fullmatch(name) or _SHELL_CALLER.fullmatch(name):
                runs = name
            elif not _SHELL_CALLER.fullmatch(runs):
                # Its script: the options that follow are the script's.
                runs = ""
