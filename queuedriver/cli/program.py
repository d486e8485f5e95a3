"""A command line program of several commands: finds the one that is called, runs it, and says how
it ended.

A command is a plain function with typer's annotations. It prints its results on stdout and its
words on stderr, and returns its exit code, or None for 0; what it raises is turned into words and
an exit code here. Only the module of the command that is called is imported: the others would
double the time that a `put` takes.
"""

import errno
import importlib
import os
import shlex
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, NoReturn

import typer

from queuedriver.cli.plain import Group, Plain
from queuedriver.errors import QueueError, is_trouble

# What a path says that leads nowhere.
_NO_SUCH_PATH = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)

_NOT_FOUND = 66
_BUG = 70
_TROUBLE = 74
_NOT_PERMITTED = 77
_CONFIG = 78
_INTERRUPTED = 130
_BROKEN_PIPE = 141

# The program that this process is: its messages begin with it.
_this = "queuedriver"


class Command(NamedTuple):
    """Where a command is, and what the list of commands says of it."""

    module: str
    function: str
    line: str


class Program(NamedTuple):
    """A program: its name, the package its commands are in, and what `--help` says around them."""

    name: str
    package: str
    commands: Mapping[str, Command]
    help: str
    exit_codes: str

    def main(self, argv: Sequence[str] | None = None) -> NoReturn:
        """Run one command and exit with its code."""
        _open_closed()
        code = self.run(list(sys.argv[1:] if argv is None else argv))
        try:
            sys.stdout.flush()
        except (OSError, ValueError) as error:
            # A reader that had enough, or a full disk.
            if isinstance(error, OSError):
                code = _ended_by(error)
            _forget_output()
        sys.exit(code)

    def run(self, args: list[str]) -> int:
        """Run one command; its exit code."""
        global _this  # noqa: PLW0603 - so that `say` need not be handed through every command
        _this = self.name
        if sys.getfilesystemencoding() != "utf-8":
            # Names on disk are bytes that all hosts must read alike.
            return _say(f"set PYTHONUTF8=1: names here are {sys.getfilesystemencoding()}", _CONFIG)
        if not args and self._complete not in os.environ:
            sys.stdout = sys.stderr
            self._call(["--help"])
            return 2
        try:
            return self._call(args)
        except typer.TyperException as error:
            context = getattr(error, "ctx", None)
            path = context.command_path if context is not None else self.name
            message = error.format_message().rstrip(".").replace("Value error, ", "")
            return _say(f"{message}; see {path} --help", error.exit_code)
        except (KeyboardInterrupt, typer.Abort) as error:
            # To end the input at a question is to decline.
            declined = isinstance(error.__context__, EOFError)
            return 1 if declined else _INTERRUPTED
        except SystemExit as end:
            # What typer makes of a pipe that nobody reads.
            if isinstance(end.__context__, BrokenPipeError):
                return _ended_by(end.__context__)
            raise
        except OSError as error:
            return _ended_by(error)
        except Exception as error:  # noqa: BLE001 - the top of the command
            return _say(*explain(error))

    @property
    def _complete(self) -> str:
        """What the shell's completion sets while it asks."""
        return f"_{self.name.upper()}_COMPLETE"

    def _call(self, args: list[str]) -> int:
        command = typer.main.get_command(self._app(self._called(args)))
        code = command.main(args, prog_name=self.name, standalone_mode=False)
        return code if isinstance(code, int) else 0

    def _called(self, args: list[str]) -> str:
        """The command that the words name; empty when they name none."""
        if self._complete in os.environ:
            # The words so far, the program's own name first; shells quote them as they like.
            words = os.environ.get("COMP_WORDS", os.environ.get("_TYPER_COMPLETE_ARGS", ""))
            args = words.split()[1:]
        word = next((arg for arg in args if not arg.startswith("-")), "")
        return word if word in self.commands else ""

    def _app(self, called: str) -> typer.Typer:
        """The command that is called; or all of them, for a list."""
        app = typer.Typer(
            cls=Group,
            help=self.help,
            epilog=f"Exit codes: {self.exit_codes}",
            context_settings={"help_option_names": ["-h", "--help"]},
            # Its options have callbacks, and so cost what Plain spares.
            add_completion=not called or self._complete in os.environ,
            rich_markup_mode=None,
            pretty_exceptions_enable=False,
        )
        app.callback()(_program)
        for name, command in self.commands.items():
            if name == called:
                module = importlib.import_module(f"{self.package}.{command.module}")
                function: Callable[..., Any] = getattr(module, command.function)
                app.command(name, cls=Plain)(function)
            elif not called:
                app.command(name, help=command.line)(_listed)
        return app


def _listed() -> None:
    """What stands for a command that is listed and not called."""


def _show_version(wanted: bool) -> None:
    if wanted:
        from queuedriver import __version__

        print(f"{_this} {__version__}")
        raise typer.Exit


def _program(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """What may stand before the command."""


def _ended_by(error: OSError) -> int:
    """An exit code for what the operating system said, in words of its own."""
    if isinstance(error, BrokenPipeError):
        # `queuedriver list … | head` is no mishap.
        _forget_output()
        return _BROKEN_PIPE
    return _say(*explain(error))


def explain(error: Exception) -> tuple[str, int]:
    """Return what to say of an error that is being handled and ends a command, and its exit code;
    what nobody foresaw is a bug of ours, and its traceback is kept."""
    if isinstance(error, QueueError):
        return str(error), error.exit_code
    if isinstance(error, OSError):
        if is_trouble(error):
            return describe(error), _TROUBLE
        if isinstance(error, PermissionError):
            return describe(error), _NOT_PERMITTED
        if error.errno in _NO_SUCH_PATH:
            return describe(error), _NOT_FOUND
    return _save_bug(), _BUG


def describe(error: OSError) -> str:
    """What the operating system said, without its number."""
    where = f": {os.fsdecode(error.filename)}" if error.filename else ""
    return f"{error.strerror}{where}" if error.strerror else str(error)


def say(message: str) -> None:
    """One message of the command's; nothing in it can steer a terminal."""
    from queuedriver.cli.render import escape

    try:
        print(f"{_this}: {escape(message)}", file=sys.stderr, flush=True)
    except (OSError, ValueError):
        # Nobody listens, and that changes nothing.
        pass


def _say(message: str, code: int) -> int:
    say(message)
    return code


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
    from queuedriver.disk.runtime import runtime_directory

    words = traceback.format_exc()
    about = f"{shlex.join(sys.argv)}\nPython {sys.version}\n\n{words}"
    name = f"bug-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}.txt"
    try:
        path = os.path.join(runtime_directory(), name)
        with open(path, "x", encoding="utf-8", errors="backslashreplace") as file:
            file.write(about)
    except (OSError, QueueError):
        return f"this is a bug of {_this}, please report it:\n{words}"
    last = words.rstrip().rpartition("\n")[2]
    return f"this is a bug of {_this}: {last}; please report it with {path}"
