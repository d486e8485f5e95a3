"""A struct of settings as a command line: what may be said, and what was said as a struct."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from queuedriver.cli.words import BY_NAME, REQUIRED, Row
from queuedriver.errors import BadArgument, ConfigError
from queuedriver.format.settings import check_publish
from queuedriver.options import Options, rows

if TYPE_CHECKING:
    from queuedriver.doors.settings import Settings

Told = TypeVar("Told", bound="Settings")
Command = TypeVar("Command", bound=Callable[..., int])


def rows_of(settings: "type[Settings]") -> tuple[Row, ...]:
    """Return the rows of settings, and of the options of a driver that they have, too."""
    return (*option_rows(settings), *option_rows(Options, settings.driving))


def option_rows(
    options: type[msgspec.Struct], only: Collection[str] | None = None
) -> Iterator[Row]:
    """Yield a row for each option of a struct that can be said."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(options)}
    for name, (kind, said) in rows(options).items():
        if only is None or name in only:
            default = REQUIRED if defaults[name] is msgspec.NODEFAULT else defaults[name]
            flags = BY_NAME if said.flags is None else said.flags
            yield Row(said.help, said.unit, default, flags).of(name, kind)


def checked(options: Options) -> Options:
    """Return the options themselves; what cannot be meant was a slip of the command line."""
    try:
        check_publish(options.publish)
        return options.check()
    except ConfigError as error:
        raise BadArgument(str(error)) from None


def settings_of(settings: type[Told], told: dict[str, Any]) -> Told:
    """Return what was told as settings; BadArgument for what cannot be meant."""
    driving = {name: told.pop(name) for name in settings.driving}
    try:
        options = checked(Options(**driving))
        return msgspec.convert({**told, "options": options}, settings).check()
    except ConfigError as error:
        raise BadArgument(str(error)) from None


def exits(*codes: int, of: Mapping[int, str], words: str = "") -> Callable[[Command], Command]:
    """Return a decorator that ends the help of one of several commands with words that they have in
    common, and with what its exit codes mean."""
    lines = [f"     {code:<4}{of[code]}" for code in codes]
    lines[0] = lines[0].replace("    ", "exit", 1)
    ending = "\n".join(["", words, "", "\b", *lines])

    def end(command: Command) -> Command:
        command.__doc__ = f"{command.__doc__}\n{ending}"
        return command

    return end
