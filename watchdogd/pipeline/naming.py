"""What stages and queues may be called. Pure."""

from typing import Any

from queuedriver.errors import BadArgument
from queuedriver.format.names import check_driver_id
from watchdogd.pipeline.model import MAX_STAGE_NAME
from watchdogd.pipeline.values import Reader, each, kind_of, wrong

# What a file system takes as one name, in bytes.
_MAX_NAME = 255


def stage_name(value: Any) -> str:
    right = (
        f"right would be letters, digits and _, with single - between them, at most "
        f'{MAX_STAGE_NAME}, as in "parse"'
    )
    if not isinstance(value, str):
        wrong(value, f"is {kind_of(value)}", right)
    if len(value) > MAX_STAGE_NAME:
        wrong(value, f"is {len(value)} characters long", right)
    try:
        return check_driver_id(value)
    except BadArgument:
        wrong(value, "cannot be part of a driver's id", right)


def queue(value: Any) -> str:
    """The name of a queue: one directory below the root."""
    right = 'right would be the name of a directory below the root, as in "parsed"'
    if not isinstance(value, str):
        wrong(value, f"is {kind_of(value)}", right)
    problem = ""
    if not value.strip() or not value.isprintable():
        problem = "has control characters in it" if value.strip() else "is empty"
    elif "/" in value:
        problem = "is a path; all queues are next to one another in the root"
    elif value.startswith("."):
        problem = "starts with a dot"
    elif len(value.encode()) > _MAX_NAME:
        problem = f"is longer than the {_MAX_NAME} bytes of a name"
    if problem:
        wrong(value, problem, right)
    return value


def queues(least: int) -> Reader:
    """One queue, or several in a list."""

    def read(value: Any) -> tuple[str, ...]:
        if isinstance(value, str):
            return (queue(value),)
        if not isinstance(value, list):
            wrong(value, f"is {kind_of(value)}", 'right would be "parsed", or ["urgent", "normal"]')
        names = each(enumerate(value), queue)
        if len(names) < least:
            wrong(value, "has nothing in it", 'right would be a queue, as in "input"')
        for at, name in enumerate(names):
            if name in names[:at]:
                wrong(name, "stands there twice", "right would be each queue once", (at,))
        return tuple(names)

    return read
