"""A command line program of several commands: finds the one that is called, runs it, and says how
it ended.

A command is a plain function whose annotations say what its words are (`words.py`). It prints its
results on stdout and its words on stderr, and returns its exit code, or None for 0; what it raises
is turned into words and an exit code here. Only the module of the command that is called is
imported: the others would double the time that a `put` takes.
"""

import importlib
import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn

from queuedriver import interpreter
from queuedriver.cli import words
from queuedriver.errors import BUG, ConfigError, NotFound, QueueError, exit_code_of, leads_nowhere
from queuedriver.format.units import format_count, visible

_INTERRUPTED = 130
_BROKEN_PIPE = 141
# So many messages of one kind are said.
_MOST = 20

# The program that this process is: its messages begin with it.
_this = "queuedriver"
# Whether this process ends with the command, as one that is called by a test does not.
ends_process = False


class Command(NamedTuple):
    """A command: where it is, and what the list of commands says of it."""

    module: str
    # Empty: it only has commands of its own.
    function: str
    line: str
    commands: "Mapping[str, Command]" = MappingProxyType({})
    # It begins something before it imports what it needs itself.
    begins_first: bool = False


class Program(NamedTuple):
    """A program: its name, the package its commands are in, and what `--help` says around them."""

    name: str
    package: str
    commands: Mapping[str, Command]
    help: str
    exit_codes: str
    # Another program, whose commands people may look for here.
    other: str
    # Commands that run code of others in this process, which may rely on objects being destroyed at
    # the end; and by which option they do, if not always.
    foreign: Mapping[str, str] = MappingProxyType({})

    def main(self, argv: Sequence[str] | None = None) -> NoReturn:
        """Run one command and exit with its code."""
        global ends_process  # noqa: PLW0603 - a fact about the process
        ends_process = True
        interpreter.begin_loading()
        _open_closed()
        if isinstance(sys.stdout, io.TextIOWrapper):
            # What its encoding lacks is shown as an escape.
            sys.stdout.reconfigure(errors="backslashreplace")
        args = list(sys.argv[1:] if argv is None else argv)
        code = self.run(args)
        try:
            sys.stdout.flush()
        except (OSError, ValueError) as error:
            # A reader that had enough, or a full disk.
            if isinstance(error, OSError):
                code = _ended_by(error)
            _forget_output()
        option = self.foreign.get(args[0]) if args else None
        if option is not None and any(one.startswith(option) for one in args):
            sys.exit(code)
        # As the interpreter would: threads that are no daemons are waited for.
        if (threading := sys.modules.get("threading")) is not None:
            threading._shutdown()
        interpreter.leave(code)

    def run(self, args: list[str]) -> int:
        """Run one command; its exit code."""
        global _this  # noqa: PLW0603 - so that `say` need not be handed through every command
        _this = self.name
        if sys.getfilesystemencoding() != "utf-8":
            # Names on disk are bytes that all hosts must read alike.
            say(f"set PYTHONUTF8=1: names here are {sys.getfilesystemencoding()}")
            return ConfigError.exit_code
        if not args and not self.completing:
            sys.stdout = sys.stderr
            self._call(["--help"])
            return 2
        try:
            return self._call(args)
        except KeyboardInterrupt:
            return _INTERRUPTED
        except Exception as error:  # noqa: BLE001 - the top of the command
            return _ended_by(error)

    @property
    def completing(self) -> bool:
        """Return whether a shell asks how a line may go on."""
        return f"_{self.name.upper()}_COMPLETE" in os.environ

    def find(self, words: Sequence[str]) -> tuple[Command | None, Sequence[str]]:
        """Return the command that the words begin with, and the words after it."""
        found, among = None, self.commands
        while words and words[0] in among:
            found, words = among[words[0]], words[1:]
            among = found.commands
        return found, words

    def function(self, command: Command) -> Callable[..., Any]:
        """Return the function of a command, its module imported."""
        if not command.begins_first:
            interpreter.import_msgspec()
        module = importlib.import_module(f"{self.package}.{command.module}")
        found: Callable[..., Any] = getattr(module, command.function)
        return found

    def _call(self, args: list[str]) -> int:
        if args[:1] == ["--version"]:
            from queuedriver import __version__

            print(f"{self.name} {__version__}")
            return 0
        command, said = self.find(args)
        if command is not None and command.function and not self.completing:
            function = self.function(command)
            interpreter.end_loading()
            values = words.read(words.rows_of(function), said)
            if values is not None:
                return function(**values) or 0
        from queuedriver.cli.help import answer

        interpreter.end_loading()
        return answer(self, args)


def _ended_by(error: Exception) -> int:
    """Say why a command ended, and return the exit code."""
    if isinstance(error, BrokenPipeError):
        # `queuedriver list … | head` is no mishap.
        _forget_output()
        return _BROKEN_PIPE
    message, code = explain(error)
    say(message)
    return code


def explain(error: Exception) -> tuple[str, int]:
    """Return what to say of an error that is being handled and ends a command, and its exit code;
    what nobody foresaw is a bug of ours, and its traceback is kept."""
    code = exit_code_of(error)
    if code is None and isinstance(error, OSError) and leads_nowhere(error):
        # Somebody wrote it in the line.
        code = NotFound.exit_code
    if code is not None:
        return describe(error) if isinstance(error, OSError) else str(error), code
    return _save_bug(), BUG


def describe(error: OSError) -> str:
    """Return what the operating system said, without its number."""
    where = f": {os.fsdecode(error.filename)}" if error.filename else ""
    return f"{error.strerror}{where}" if error.strerror else str(error)


def line_of(message: str) -> str:
    """Return one message as it is printed; nothing in it can steer a terminal."""
    shown = visible(message, "\n\t")
    return f"{_this}: {shown}\n"


def say(message: str) -> None:
    """Print one message to stderr."""
    try:
        print(line_of(message), end="", file=sys.stderr, flush=True)
    except (OSError, ValueError):
        # Nobody listens, and that changes nothing.
        pass


def say_some(messages: Sequence[str], noun: str) -> None:
    """Say the first messages of one kind, and how many more there are: all of them tell nobody
    more."""
    for message in messages[:_MOST]:
        say(message)
    if (more := len(messages) - _MOST) > 0:
        say(f"and {format_count(more, f'more {noun}')} likewise")


def _open_closed() -> None:
    """Let those of stdin, stdout and stderr that were closed from the start lead nowhere: else a
    file of ours gets the number, and what a processor or a child prints is written into it."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # noqa: FBT003 - the system's
            # Whoever wants to read is to know that there is nothing, which is no empty document.
            if name != "stdin":
                stream = open(number, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - it stays
                setattr(sys, name, stream)


def _forget_output() -> None:
    """Let what is still buffered go nowhere, or the interpreter complains of it at its end."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None and not stream.closed:
            os.dup2(null, stream.fileno())
    os.close(null)


def _save_bug() -> str:
    """Keep the traceback for whoever mends it; what to say of it."""
    import shlex
    import time
    import traceback

    from queuedriver.disk.runtime import runtime_directory

    trace = traceback.format_exc()
    about = f"{shlex.join(sys.argv)}\nPython {sys.version}\n\n{trace}"
    name = f"bug-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}.txt"
    try:
        path = os.path.join(runtime_directory(), name)
        with open(path, "x", encoding="utf-8", errors="backslashreplace") as file:
            file.write(about)
    except (OSError, QueueError):
        return f"this is a bug of {_this}, please report it:\n{trace}"
    last = trace.rstrip().rpartition("\n")[2]
    return f"this is a bug of {_this}: {last}; please report it with {path}"
