"""What a stage does to a document, as the file says it: a function, or a program and its words."""

import re
from collections.abc import Sequence
from typing import Any, NoReturn

from queuedriver.errors import ConfigError
from queuedriver.format.settings import check_publish
from queuedriver.processors.command import Template
from queuedriver.processors.program import split_command
from watchdogd.pipeline.values import each, kind_of, wrong

_CALL = 'right would be "package.module:function", or the name of a plug-in'
_FUNCTION = 'right would be "package.module:function"'
_WORDS = 'right would be as in ["pdftotext", "{input}", "{output}"]'
# What a hook may be told of an event.
EVENT_FIELDS = ("event", "stage", "driver", "message", "host")
_FIELD = re.compile(r"\{(\w+)\}")


def call(value: Any) -> str:
    """`package.module:function`, or a plug-in's name."""
    return _reference(value, _CALL) if ":" in str(value) else _plug_in(value)


def preload(value: Any) -> bool | str:
    """Whether to load in one parent; or a function that loads more."""
    return value if isinstance(value, bool) else _reference(value, f"{_FUNCTION}, true or false")


def _plug_in(value: Any) -> str:
    if not isinstance(value, str):
        wrong(value, f"is {kind_of(value)}", _CALL)
    if not value.strip() or not value.isprintable():
        wrong(value, "names nothing", _CALL)
    return value


def _reference(value: Any, right: str) -> str:
    if not isinstance(value, str):
        wrong(value, f"is {kind_of(value)}", right)
    module, _, attributes = value.partition(":")
    if module.endswith(".py"):
        meant = module.removesuffix(".py").strip("./").replace("/", ".")
        wrong(value, "names a file", f'right would be the module, "{meant}:{attributes}"')
    parts = [*module.split("."), *attributes.split(".")]
    if not all(part.isidentifier() for part in parts):
        wrong(value, "names no function", right)
    return value


def command(value: Any) -> tuple[str, ...]:
    """A program and its words, with places for each document's own."""
    words = program(value)
    try:
        Template(words)
    except ConfigError as error:
        _objects(value, error)
    return words


def program(value: Any) -> tuple[str, ...]:
    """A program and its words. A text is split as a shell would, and not run by one."""
    if isinstance(value, list):
        value = each(enumerate(value), _word)
    elif not isinstance(value, str):
        wrong(value, f"is {kind_of(value)}", _WORDS)
    try:
        return tuple(split_command(value))
    except ConfigError as error:
        _objects(value, error)


def _word(value: Any) -> str:
    if not isinstance(value, str):
        wrong(value, f"is {kind_of(value)}", f'right would be a text, as in "{value}"')
    return value


def publish(value: Any) -> str:
    """Under which names outputs become visible."""
    right = (
        'right would be "{docid}.ready", or "{stem}.txt" in a directory that no stage takes from'
    )
    if not isinstance(value, str):
        wrong(value, f"is {kind_of(value)}", right)
    try:
        return check_publish(value)
    except ConfigError as error:
        objection = str(error).removeprefix(f"--publish {value!r}").lstrip(": ")
        problem, _, better = objection.partition("; ")
        wrong(value, f"cannot work: {problem}", better or right)


def hook(value: Any) -> tuple[str, ...]:
    """A program to run for each event."""
    words = program(value)
    for word in words:
        for field in _FIELD.findall(word):
            if field not in EVENT_FIELDS:
                known = ", ".join(f"{{{one}}}" for one in EVENT_FIELDS)
                wrong(value, f"has {{{field}}}, which is not known", f"known are {known}")
    return words


def output_queues(words: Sequence[str]) -> set[str | None]:
    """The output queues that a command names; None among them: it has a plain `{output}`."""
    return {slot["queue"] for slot in Template(words).outputs.values()}


def _objects(value: Any, error: ConfigError) -> NoReturn:
    text = str(error).replace(f"the command {value!r}", "it")
    problem, _, better = text.partition("; ")
    wrong(value, f"cannot work: {problem}", better or _WORDS)
