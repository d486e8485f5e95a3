"""The command `queuedriver`: finds the command that is called, runs it, and says how it ended.

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
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple, NoReturn

import typer

from queuedriver.cli.plain import Group, Plain
from queuedriver.errors import QueueError, is_trouble

PROGRAM = "queuedriver"
# What the shell's completion sets while it asks; the name follows from PROGRAM.
_COMPLETE = "_QUEUEDRIVER_COMPLETE"

# What a path says that leads nowhere.
_NO_SUCH_PATH = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)

_NOT_FOUND = 66
_BUG = 70
_TROUBLE = 74
_NOT_PERMITTED = 77
_CONFIG = 78
_INTERRUPTED = 130
_BROKEN_PIPE = 141


class Command(NamedTuple):
    """Where a command is, and what the list of commands says of it."""

    module: str
    function: str
    line: str


COMMANDS = {
    "put": Command("put", "put", "Submit files to a queue."),
    "run": Command("run", "run", "Drive a processor over queues."),
    "get": Command("get", "get", "Collect what a queue holds as plain files, each exactly once."),
    "status": Command("look", "status", "Count the documents, and say what the drivers do."),
    "list": Command("look", "list_items", "List the documents of a queue."),
    "show": Command("look", "show", "Show all that is known of a document."),
    "why": Command("look", "why", "Say in a sentence why a document is where it is."),
    "history": Command("look", "history", "Tell what happened to a document, and when."),
    "retry": Command("operate", "retry", "Let documents be tried again, as if never tried."),
    "discard": Command("operate", "discard", "Set waiting documents aside."),
    "pause": Command("operate", "pause", "Let the drivers of a queue claim nothing new."),
    "resume": Command("operate", "resume", "Undo pause and quit."),
    "quit": Command("operate", "quit", "Let the drivers of a queue leave."),
    "close": Command("operate", "close", "Say that nothing more will be submitted."),
    "recover": Command("operate", "recover", "Take back what dead drivers left."),
    "check": Command("check", "check", "Name every broken rule of a queue; repair on request."),
}


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit with its code."""
    code = run(list(sys.argv[1:] if argv is None else argv))
    try:
        sys.stdout.flush()
    except (OSError, ValueError, AttributeError) as error:
        # A reader that had enough, a full disk, or a stdout that was closed from the start.
        if isinstance(error, OSError):
            code = _ended_by(error)
        _forget_output()
    sys.exit(code)


def run(args: list[str]) -> int:
    """Run one command; its exit code."""
    if sys.getfilesystemencoding() != "utf-8":
        # Names on disk are bytes that all hosts must read alike.
        return _say(f"set PYTHONUTF8=1: names here are {sys.getfilesystemencoding()}", _CONFIG)
    if not args and _COMPLETE not in os.environ:
        sys.stdout = sys.stderr
        _call(["--help"])
        return 2
    try:
        return _call(args)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else PROGRAM
        message = error.format_message().rstrip(".").replace("Value error, ", "")
        return _say(f"{message}; see {path} --help", error.exit_code)
    except QueueError as error:
        return _say(str(error), error.exit_code)
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
    except Exception:  # noqa: BLE001 - the top of the command: whatever is left is a bug of ours
        return _say(_save_bug(), _BUG)


def _call(args: list[str]) -> int:
    command = typer.main.get_command(_app(_called(args)))
    code = command.main(args, prog_name=PROGRAM, standalone_mode=False)
    return code if isinstance(code, int) else 0


def _called(args: list[str]) -> str:
    """The command that the words name; empty when they name none."""
    if _COMPLETE in os.environ:
        # The words so far, the program's own name first; shells quote them as they like.
        args = os.environ.get("COMP_WORDS", os.environ.get("_TYPER_COMPLETE_ARGS", "")).split()[1:]
    word = next((arg for arg in args if not arg.startswith("-")), "")
    return word if word in COMMANDS else ""


def _app(called: str) -> typer.Typer:
    """The command that is called; or all of them, for a list."""
    app = typer.Typer(
        cls=Group,
        help="Queues that are directories, and the drivers of documents through them.",
        epilog="Exit codes: 0 done, 1 some documents failed, 2 usage, 65 bad document, 66 not "
        "found, 69 id held, 70 bug, 73 cannot create, 74 file system, 75 later, 77 permission, "
        "78 configuration, 128+n signal n.",
        context_settings={"help_option_names": ["-h", "--help"]},
        # Its options have callbacks, and so cost what Plain spares.
        add_completion=not called or _COMPLETE in os.environ,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(_program)
    for name, command in COMMANDS.items():
        if name == called:
            module = importlib.import_module(f"queuedriver.cli.{command.module}")
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

        print(f"{PROGRAM} {__version__}")
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
    words = describe(error)
    if is_trouble(error):
        return _say(words, _TROUBLE)
    if isinstance(error, PermissionError):
        return _say(words, _NOT_PERMITTED)
    if error.errno in _NO_SUCH_PATH:
        return _say(words, _NOT_FOUND)
    return _say(_save_bug(), _BUG)


def describe(error: OSError) -> str:
    """What the operating system said, without its number."""
    where = f": {os.fsdecode(error.filename)}" if error.filename else ""
    return f"{error.strerror}{where}" if error.strerror else str(error)


def say(message: str) -> None:
    """One message of the command's; nothing in it can steer a terminal."""
    from queuedriver.cli.render import escape

    try:
        print(f"{PROGRAM}: {escape(message)}", file=sys.stderr, flush=True)
    except (OSError, ValueError):
        # Nobody listens, and that changes nothing.
        pass


def _say(message: str, code: int) -> int:
    say(message)
    return code


def _forget_output() -> None:
    """Let what is still buffered go nowhere, or the interpreter complains of it at its end."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None and not stream.closed:
            os.dup2(null, stream.fileno())
    os.close(null)


def _save_bug() -> str:
    """Keep the traceback for whoever mends it; what to say of it."""
    from queuedriver.runtime import runtime_directory

    words = traceback.format_exc()
    about = f"{shlex.join(sys.argv)}\nPython {sys.version}\n\n{words}"
    name = f"bug-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}.txt"
    try:
        path = os.path.join(runtime_directory(), name)
        with open(path, "x", encoding="utf-8", errors="backslashreplace") as file:
            file.write(about)
    except (OSError, QueueError):
        return f"this is a bug of {PROGRAM}, please report it:\n{words}"
    last = words.rstrip().rpartition("\n")[2]
    return f"this is a bug of {PROGRAM}: {last}; please report it with {path}"
