"""Typer's commands, made plainer: quick to start, and with arguments named as people write them."""

from functools import partial
from typing import Any

from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption


class _Sparing:
    """Spares a command pydantic, whose import would be a third of a `put`: typer uses it for texts,
    which need nothing, and for options that were not given."""

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for one in params:
            if isinstance(one, TyperArgument | TyperOption):
                one.process_value = partial(_take, one)  # type: ignore[method-assign]
        return params


def _take(parameter: TyperArgument | TyperOption, ctx: Any, value: Any) -> Any:
    """A parameter's value, from what the command line has for it."""
    missing = value is None or value == ()
    if missing and not parameter.required:
        return None
    if not missing and parameter.callback is None:
        annotation = parameter.type_descriptor.annotation
        if annotation is str:
            return value
        if annotation == list[str]:
            return list(value)
    return type(parameter).process_value(parameter, ctx, value)


class Group(_Sparing, TyperGroup):
    """All commands."""


class Plain(_Sparing, TyperCommand):
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
