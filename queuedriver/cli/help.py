"""What typer does for a program: its help, the completion of words, and what is wrong with a line.

None of it is on the way of a command that works: `words.py` has read that.
"""

import inspect
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from queuedriver.cli.words import REQUIRED, Row, rows_of
from queuedriver.errors import BadArgument, QueueError
from queuedriver.format.units import format_duration, format_size

if TYPE_CHECKING:
    from queuedriver.cli.program import Program


class WrongUsage(QueueError):
    """A line that cannot be read; typer has said why."""

    exit_code = 2


def answer(program: "Program", args: Sequence[str]) -> int:
    """Draw help, complete words, or raise WrongUsage with what is wrong with a line."""
    try:
        read = make(program, args).main(list(args), prog_name=program.name, standalone_mode=False)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else program.name
        if called := next((arg for arg in args if arg in program.elsewhere), ""):
            words = f"{called} is a command of {program.other}"
            raise WrongUsage(f"{words}; see {program.other} {called} --help") from None
        message = error.format_message().rstrip(".").replace("Value error, ", "")
        raise WrongUsage(f"{message}; see {path} --help") from None
    except typer.Abort as error:
        raise KeyboardInterrupt from error
    except SystemExit as end:
        # What typer makes of a pipe that nobody reads.
        if isinstance(end.__context__, BrokenPipeError):
            raise end.__context__ from None
        raise
    if isinstance(read, dict):
        raise BadArgument(f"this cannot be read; see {program.name} {args[0]} --help")
    return read if isinstance(read, int) else 0


def make(program: "Program", args: Sequence[str]) -> Any:
    """Return typer's command for a program: with the one command that is called, or all."""
    called = _called(program, args)
    app = typer.Typer(
        cls=TyperGroup,
        help=program.help,
        epilog=f"Exit codes: {program.exit_codes}",
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )

    def show_version(wanted: bool) -> None:
        if wanted:
            from queuedriver import __version__

            print(f"{program.name} {__version__}")
            raise typer.Exit

    def top(
        version: Annotated[
            bool,
            typer.Option("--version", help="Print the version.", callback=show_version),
        ] = False,
    ) -> None:
        """Take what may stand before the command."""

    app.callback()(top)
    for name, command in program.commands.items():
        if name == called:
            app.command(name, cls=_Command)(_stand_in(program.function(name)))
        elif not called:
            app.command(name, help=command.line)(lambda: None)
    return typer.main.get_command(app)


def _called(program: "Program", args: Sequence[str]) -> str:
    """Return the command that the words name; empty when they name none."""
    if program.completing:
        # The words so far, the program's own name first; shells quote them as they like.
        words = os.environ.get("COMP_WORDS", os.environ.get("_TYPER_COMPLETE_ARGS", ""))
        args = words.split()[1:]
    word = next((arg for arg in args if not arg.startswith("-")), "")
    return word if word in program.commands else ""


def _stand_in(function: Any) -> Any:
    """Return a function of the same rows in typer's words; it returns the values it is called
    with."""

    def called(**values: Any) -> dict[str, Any]:
        return values

    rows = rows_of(function)
    parameters = [
        inspect.Parameter(
            one.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if one.default is REQUIRED else _shown(one),
            annotation=Annotated[_kind(one), _said(one)],
        )
        for one in rows
    ]
    made: Any = called
    made.__signature__ = inspect.Signature(parameters)
    made.__annotations__ = {one.name: one.annotation for one in parameters}
    made.__doc__ = function.__doc__
    return made


def _kind(one: Row) -> Any:
    if one.choices:
        kind: Any = Literal[one.choices]
    else:
        # What has a unit is a text until it is read.
        kind = list[str] if one.many else str if one.unit else one.kind
    return kind | None if one.default is None else kind


def _shown(one: Row) -> Any:
    if one.unit and one.default is not None:
        return (format_duration if one.unit == "TIME" else format_size)(one.default)
    return one.default


def _said(one: Row) -> Any:
    metavar = one.metavar or None
    if not one.flags:
        return typer.Argument(metavar=metavar, help=one.help)
    flags = ["/".join((*one.flags, *one.off))] if one.off else one.flags
    return typer.Option(*flags, metavar=metavar, help=one.help)


class _Command(TyperCommand):
    """A command whose help names its arguments just as their metavars do."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        arguments = [one for one in self.get_params(ctx) if isinstance(one, TyperArgument)]
        return ["[OPTIONS]", *(_metavar(one) for one in arguments)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        rows: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for one in self.get_params(ctx):
            if isinstance(one, TyperArgument):
                rows["Arguments"].append((_metavar(one), one.help or ""))
            elif (record := one.get_help_record(ctx)) is not None:
                rows["Options"].append(record)
        for title, found in rows.items():
            if found:
                with formatter.section(title):
                    formatter.write_dl(found)


def _metavar(argument: TyperArgument) -> str:
    return argument.metavar or str(argument.name).upper()
