"""What every target keeps: a value, or one of our errors; nothing that steers a terminal."""

import unicodedata
from collections.abc import Callable, Iterable
from typing import NamedTuple


class Target(NamedTuple):
    """One thing that reads bytes which others may have written.

    `read` returns, whatever the bytes are; an exception of any kind breaks the promise. Errors of
    ours that are an answer to such bytes it catches itself, each by its name.
    """

    read: Callable[[bytes], None]
    # What such bytes look like when all is well; mutations begin with them.
    samples: tuple[bytes, ...]
    # What there is to say of all the runs, besides their number.
    counted: Callable[[], str] | None = None


def check_shown(lines: Iterable[str]) -> None:
    """Fail where a line that a person is shown has in it what a terminal obeys."""
    for line in lines:
        harmful = [char for char in line if unicodedata.category(char)[0] == "C"]
        harmful = [char for char in harmful if char not in "\n\t"]
        assert not harmful, f"{harmful!r} in {line!r}"


def check(promise: bool, words: object) -> None:
    """Fail where this is not so."""
    assert promise, words


def check_error(error: Exception, *words: str) -> None:
    """Fail where an error does not name what it is about."""
    text = str(error)
    assert any(word in text for word in words), f"{text!r} names none of {words}"
