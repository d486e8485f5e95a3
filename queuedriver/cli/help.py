"""What typer does for a program: its help, the completion of words, and what is wrong with a line.

None of it is on the way of a command that works: `words.py` has read that.
"""

import importlib
import inspect
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperArgument, TyperCommand

from queuedriver.cli.words import Row, rows_of
from queuedriver.errors import BadArgument
from queuedriver.format.units import format_duration, format_size

if TYPE_CHECKING:
    from queuedriver.cli.program import Command, Program


def answer(program: "Program", args: Sequence[str]) -> int:
    """Draw help, complete words, or raise BadArgument with what is wrong with a line."""
    try:
        read = make(program, args).main(list(args), prog_name=program.name, standalone_mode=False)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else program.name
        others = importlib.import_module(f"{program.other}.cli").COMMANDS.keys()
        elsewhere = next((arg for arg in args if arg in others - program.commands.keys()), "")
        if elsewhere and not _called(program, args):
            words = f"{elsewhere} is a command of {program.other}"
            raise BadArgument(f"{words}; see {program.other} {elsewhere} --help") from None
        message = error.format_message().rstrip(".").replace("Value error, ", "")
        raise BadArgument(f"{message}; see {path} --help") from None
    except typer.Abort as error:
        raise KeyboardInterrupt from error
    except SystemExit as end:
        # What typer makes of a pipe that nobody reads.
        if isinstance(end.__context__, BrokenPipeError):
            raise end.__context__ from None
        raise
    if isinstance(read, dict):
        path = " ".join((program.name, *_called(program, args)))
        raise BadArgument(f"this cannot be read; see {path} --help")
    return read if isinstance(read, int) else 0


def make(program: "Program", args: Sequence[str]) -> Any:
    """Return typer's command for a program: with the one command that is called, or all."""
    called = _called(program, args)
    app = typer.Typer(
        help=program.help,
        epilog=f"Exit codes: {program.exit_codes}",
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode=None,
    )

    @app.callback()
    def top(
        version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    ) -> None:
        """Take what may stand before the command."""

    _add(app, program, program.commands, called)
    return typer.main.get_command(app)


def _add(
    app: typer.Typer, program: "Program", commands: "Mapping[str, Command]", called: Sequence[str]
) -> None:
    """Add the commands to an app: the one that is called with its words, or the lines of all."""
    for name, command in commands.items():
        if called and name != called[0]:
            continue
        if command.commands:
            group = typer.Typer(help=command.line, rich_markup_mode=None)
            _add(group, program, command.commands, called[1:])
            app.add_typer(group, name=name)
        elif called:
            app.command(name, cls=_Command)(_stand_in(program.function(command)))
        else:
            app.command(name, help=command.line)(lambda: None)


def _called(program: "Program", args: Sequence[str]) -> Sequence[str]:
    """Return the words that call a command; none when they name none."""
    if program.completing:
        # The words so far, the program's own name first; shells quote them as they like.
        words = os.environ.get("COMP_WORDS", os.environ.get("_TYPER_COMPLETE_ARGS", ""))
        args = words.split()[1:]
    named = [arg for arg in args if not arg.startswith("-")]
    _, rest = program.find(named)
    return named[: len(named) - len(rest)]


def _stand_in(function: Any) -> Any:
    """Return a function of the same rows in typer's words; it returns the values it is called
    with."""

    def called(**values: Any) -> dict[str, Any]:
        return values

    made: Any = called
    made.__signature__ = inspect.Signature([_parameter(row) for row in rows_of(function)])
    made.__annotations__ = {}
    made.__doc__ = function.__doc__
    return made


def _parameter(row: Row) -> inspect.Parameter:
    """Return a row as typer wants it. What has a unit is a text until it is read."""
    default = row.default
    kind: Any = list[str] if row.many else str if row.unit else row.kind
    if row.choices:
        kind = Literal[row.choices]
    if default is None:
        kind |= None
    elif row.unit:
        default = format_duration(default) if row.unit == "TIME" else format_size(default)
    given: Any = typer.Argument(default, metavar=row.metavar, help=row.help)
    if row.flags:
        flags = ["/".join((*row.flags, *row.off))] if row.off else row.flags
        given = typer.Option(default, *flags, metavar=row.metavar or None, help=row.help)
    kept = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(row.name, kept, default=given, annotation=kind)


class _Command(TyperCommand):
    """A command whose help names its arguments just as their metavars do."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return ["[OPTIONS]", *(metavar for metavar, _ in self._arguments(ctx))]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        found = self.get_params(ctx)
        options = [one.get_help_record(ctx) for one in found if not isinstance(one, TyperArgument)]
        for title, rows in (("Arguments", self._arguments(ctx)), ("Options", options)):
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def _arguments(self, ctx: Any) -> list[tuple[str, str]]:
        found = [one for one in self.get_params(ctx) if isinstance(one, TyperArgument)]
        return [(one.metavar or "", one.help or "") for one in found]
