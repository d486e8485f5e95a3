"""One function says of each error whether another try is of use; a watchdog goes by that."""

import errno

import pytest

from queuedriver.errors import (
    BadArgument,
    ConfigError,
    Disagreement,
    FileSystemTrouble,
    IdHeld,
    ImportFailed,
    NotFound,
    NotPermitted,
    exit_code_of,
)
from watchdogd.children import code_of


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BadArgument("x"), 2),
        (NotFound("x"), 66),
        (IdHeld("x"), 69),
        (ImportFailed("x"), 70),
        (FileSystemTrouble(errno.EIO, "x"), 74),
        (OSError(errno.EIO, "x"), 74),
        (OSError(errno.ENOSPC, "x"), 74),
        (OSError(errno.EMFILE, "x"), 75),
        (BlockingIOError(errno.EAGAIN, "x"), 75),
        (PermissionError(errno.EACCES, "x"), 77),
        (NotPermitted("x"), 77),
        (ConfigError("x"), 78),
        (Disagreement("x"), 78),
        # Nobody foresaw these. A file that is missing is none of the queues.
        (FileNotFoundError(errno.ENOENT, "x"), None),
        (ConnectionRefusedError(errno.ECONNREFUSED, "x"), None),
        (ValueError("x"), None),
        (SystemExit(3), None),
    ],
)
def test_error_tells_whether_another_try_is_of_use(error: BaseException, code: int | None) -> None:
    assert exit_code_of(error) == code


@pytest.mark.parametrize(
    ("number", "code"),
    [(errno.EACCES, 70), (errno.ENOENT, 70), (errno.EIO, 74), (errno.ENOMEM, 75)],
)
def test_start_that_fails_is_tried_again_whatever_the_reason(number: int, code: int) -> None:
    assert code_of(OSError(number, "x")) == code
