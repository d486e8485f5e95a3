"""What a driver may be told: each option with its default, its unit and its help. Pure.

Command lines (`cli/settings.py`) and the watchdog's pipeline file are read by these rows.
"""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, get_type_hints

import msgspec

from queuedriver.errors import ConfigError
from queuedriver.format.names import DEFAULT_PUBLISH, MAX_RETRIES
from queuedriver.format.units import MAX_DURATION


class Said(NamedTuple):
    """How an option is said: its help, and what its value may be."""

    help: str
    # TIME: a duration in seconds. WHEN: seconds since the epoch. SIZE: bytes. N: a whole number.
    # Anything else stands for a text.
    unit: str = ""
    # The smallest value; None: any above 0.
    least: int | None = None
    most: int | None = None
    # The flags by which it is given on a command line; None: its name; empty: its place.
    flags: tuple[str, ...] | None = None

    def objection(self, value: float) -> str:
        """Return the allowed range where `value` is outside it; else ""."""
        if self.unit == "TIME" and value > MAX_DURATION:
            return "at most 100 years"
        if self.least is None:
            return "" if value > 0 else "more than 0"
        if self.least <= value and (self.most is None or value <= self.most):
            return ""
        return f"at least {self.least}" if self.most is None else f"{self.least} to {self.most}"


_TIMEOUT = Said("How long a document may take, as in 10min.", "TIME")


class StageOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of `queuedriver run` and of each stage of a pipeline file alike."""

    retries: Annotated[
        int, Said("How often a document is tried again after it failed.", "N", 0, MAX_RETRIES - 1)
    ] = 1
    retry_delay: Annotated[float, Said("How long to wait before that.", "TIME", 0)] = 0.0
    trip_after: Annotated[
        int, Said("Stop after so many failures in a row for one cause; 0: never.", "N", 0)
    ] = 20
    hard_after: Annotated[float, Said("How much later it is ended if it hangs.", "TIME", 0)] = 30.0
    grace: Annotated[float, Said("How long it may take once asked to leave.", "TIME", 0)] = 60.0
    order: Annotated[
        Literal["fair", "age", "name"],
        Said("In which order; age and name cost a full listing each time."),
    ] = "fair"
    batch: Annotated[int, Said("How many documents a call gets, as a list.", "N", 1)] = 1
    publish: Annotated[str, Said("Names of outputs; {docid} and {stem} may be used.", "NAME")] = (
        DEFAULT_PUBLISH
    )
    existing: Annotated[
        Literal["keep", "replace"], Said("What becomes of an output of the same name.")
    ] = "keep"
    max_output_items: Annotated[
        int | None, Said("Claim nothing while so much waits in an output.", "N", 1)
    ] = None
    max_output_bytes: Annotated[int | None, Said("The same in bytes, as in 1GB.", "SIZE")] = None
    max_documents: Annotated[
        int | None, Said("Leave, to be started anew, after about N.", "N", 1)
    ] = None
    max_age: Annotated[float | None, Said("The same after a while.", "TIME")] = None
    max_memory: Annotated[int | None, Said("The same when it uses more memory.", "SIZE")] = None
    archive: Annotated[
        str | None, Said("Keep finished inputs there; else they are deleted.", "DIR")
    ] = None
    poll: Annotated[bool, Said("Never rely on inotify.")] = False


class Options(StageOptions, frozen=True, kw_only=True):
    """How a driver drives; times in seconds, sizes in bytes."""

    drain: Annotated[bool, Said("Leave when the queue is empty; it stays open for more.")] = False
    no_output: Annotated[
        bool, Said("There is none: what a command writes to stdout is not wanted.")
    ] = False
    # Whether what is still being written into the queue counts as something left in it.
    await_writing: bool = True
    # For how long a driver stays when its queue is done, which may be reopened, in seconds.
    linger: float = 0.0
    # The soft limit of one document (or batch); its hard one comes `hard_after` later.
    timeout: Annotated[float | None, _TIMEOUT] = None
    # By the time of day: whoever ends it then, as a cluster does, knows no other clock of ours.
    until: Annotated[
        float | None, Said("Be gone by then, and claim nothing that would take longer.", "WHEN")
    ] = None
    durable: Annotated[
        bool | None, Said("Make every promise hold over a power cut; else as its other drivers do.")
    ] = None

    def check(self) -> "Options":
        """Return the options themselves; ConfigError for what cannot be meant."""
        check_ranges(self)
        if self.batch > 1 and not self.retries:
            raise ConfigError(
                "--batch needs --retries 1 or more: when a batch crashes its driver, each of its "
                "documents is tried again alone to find out which did it"
            )
        return self


def check_ranges(options: msgspec.Struct) -> None:
    """Raise ConfigError for a number that is outside its range."""
    for name, (_, said) in rows(type(options)).items():
        value = getattr(options, name)
        is_number = isinstance(value, int | float) and said.unit
        if is_number and (objection := said.objection(value)):
            flag = said.flags[-1] if said.flags else f"--{name.replace('_', '-')}"
            raise ConfigError(f"{flag} {value}: {objection}")


@cache
def rows(options: type[msgspec.Struct]) -> Mapping[str, tuple[Any, Said]]:
    """Return each option that can be said, with its type and how; its own before the inherited."""
    hints = get_type_hints(options, include_extras=True)
    names = dict.fromkeys((*options.__annotations__, *options.__struct_fields__))
    said = ((name, getattr(hints[name], "__metadata__", ())) for name in names)
    return {name: (hints[name].__origin__, rest[0]) for name, rest in said if rest}
