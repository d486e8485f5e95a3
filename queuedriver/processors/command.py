"""`command = ["pdftotext", "{input}", "{output}"]`: one run of a program for each document.

No shell runs it. In its arguments these are replaced, once, by the document's own:

    {input}      path of the document; without it the document is on stdin
    {output}     path at which the command writes the output; without it stdout is the output
    {docid}      {attempt}: how often it failed before, 0 the first time

`{output}` may say more: `{output.pdf}` is a path that ends in .pdf, for programs that go by it;
`{output:NAME}` goes to the output queue of that name; `{output:NAME?}` need not be written. Several
of them are several outputs. Other braces stay as they are, but a single word in them is taken for a
slip: write `{{word}}` for the text {word}. So is one of the words above in a brace that is not
closed.

A docid may start with "-". Paths are absolute, so `{input}` and `{output}` are never taken for
options; `{docid}` as an argument of its own is: write `--id={docid}`, or put it after `--`.

Exit codes: 0 done, 65 permanent (the document is set aside at once), 75 try later (uncharged),
everything else failed. The end of stderr goes into the report, and that of stdout with it when
`{output}` is used, or there is no output queue. When the command has ended, so has everything in
its process group.
"""

import os
import re
from collections.abc import Mapping, Sequence

from queuedriver.claims.document import Document, Outputs
from queuedriver.driving.limits import Limits
from queuedriver.errors import LATER, LATER_AFTER, ConfigError, Interrupted, TryLater
from queuedriver.processors.child import Ended, Stderr, Tail
from queuedriver.processors.program import Program

_DONE = 0
_PERMANENT = 65

_WORDS = {"input", "docid", "attempt"}
# A word in two braces, or in one; what may follow it is for `output` only.
_WORD = r"\w+(?:[.:][^{}]*)?\??"
_SLOT = re.compile(r"\{\{(" + _WORD + r")\}\}|\{(" + _WORD + r")\}")
# The beginning of one that has no end.
_UNCLOSED = re.compile(r"\{(?:input|output|docid|attempt)\b[^{}]*$")
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


class Template:
    """A command's arguments, with places that each document fills."""

    def __init__(self, arguments: Sequence[str]) -> None:
        for argument in arguments:
            if found := _UNCLOSED.search(argument):
                raise ConfigError(
                    f"{found[0]} has no closing brace, in {argument!r} of the command"
                )
        self._arguments = arguments
        self.words = {slot[2] for argument in arguments for slot in _slots(argument)}
        # Each `{output…}`, taken apart.
        self.outputs = {word: _output_slot(word) for word in sorted(self.words - _WORDS)}
        _refuse_text(arguments)

    def fill(self, values: Mapping[str, str]) -> list[str]:
        """Return the arguments for one document. What is filled in is not looked at again."""

        def filled(slot: re.Match[str]) -> str:
            return values[slot[2]] if slot[2] else slot[0][1:-1]

        return [_SLOT.sub(filled, argument) for argument in self._arguments]


class CommandProcessor(Program):
    """Runs a command for each document."""

    def __init__(self, command: str | Sequence[str]) -> None:
        super().__init__(command)
        self._template = Template(self.arguments)
        self.needs_output = bool(self._template.outputs)

    def process(self, document: Document, outputs: Outputs, limits: Limits) -> None:
        if (reason := limits.reason()) is not None:
            raise Interrupted(reason)
        template = self._template
        paths = {
            word: outputs.reserve(queue=slot["queue"], ext=slot["ext"])
            for word, slot in template.outputs.items()
        }
        values = {"docid": document.docid, "attempt": str(document.attempt), **paths}
        stderr, fds = Stderr(), list[int]()
        try:
            stdin, stdout = None, stderr.writer
            if "input" in template.words:
                values["input"] = document.path
            else:
                fds.append(stdin := document.descriptor())
            if not paths and outputs.targets:
                fds.append(stdout := outputs.open_reserved())
            with self.spawn(template.fill(values), stdin, stdout, stderr.writer) as child:
                child.keep(stderr)
                reason = child.obeys(limits)
                ended = child.reap() if reason is None else child.end(self.grace)
        finally:
            stderr.close()
            for fd in fds:
                os.close(fd)
        if reason == "leaving":
            raise Interrupted(reason)
        self._judge(reason, ended, stderr)
        for word, slot in template.outputs.items():
            path, place = paths[word], f"{{{word}}}"
            missing = "" if slot["optional"] else f"ended well, but did not write {place}"
            if not self.has_written(outputs, path, place, missing, stderr, ended):
                outputs.forget(path)

    def _judge(self, reason: str | None, ended: Ended, tail: Tail) -> None:
        """Raise what the end of the command means, unless it is done."""
        if reason is None and ended.code == _DONE and ended.alone:
            return
        words = tail.after(ended.words)
        if reason is not None:
            cause, words = reason, "took longer than the document's time-out"
        elif ended.code == _DONE:
            cause, words = "hung", "left a process that SIGKILL does not end"
        elif ended.code == LATER:
            raise TryLater(LATER_AFTER, f"{self.arguments[0]} {words}")
        elif ended.code == _PERMANENT:
            cause = "permanent"
        else:
            cause = "signal" if ended.signal else "exit"
        raise self.failed(cause, words, tail, ended)


def _slots(argument: str) -> list[re.Match[str]]:
    """Return the places in an argument that each document fills."""
    return [slot for slot in _SLOT.finditer(argument) if slot[2]]


def _output_slot(word: str) -> dict[str, str | None]:
    """Return the queue, the ending and the question mark of an `{output…}`."""
    match = _OUTPUT.fullmatch(word)
    if match is None:
        raise ConfigError(
            f"the command has {{{word}}}, which is not known; known are {{input}}, {{output}}, "
            f"{{docid}} and {{attempt}}; write {{{{{word}}}}} for the text itself"
        )
    return match.groupdict()


def _refuse_text(arguments: Sequence[str]) -> None:
    """Refuse a command that would run what a document is called."""
    runs = ""
    is_text = False
    for at, argument in enumerate(arguments):
        slots = _slots(argument)
        text = argument[: slots[0].start()] if slots else argument
        option = bool(runs) and _TEXT_OPTION.fullmatch(text.partition("=")[0]) is not None
        if any(slot[2] != "attempt" for slot in slots):
            if not at:
                raise ConfigError("the program of a command cannot depend on the document")
            if is_text or option or runs == "ssh":
                raise ConfigError(
                    f"{runs} would run what stands in the document's name ({slots[0][0]}); pass "
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
