"""A file system that fails when a test says so, in a driver's own process."""

import errno
import functools
import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from queuedriver.claims import input_queue
from queuedriver.claims.handoff import Claim
from queuedriver.claims.input_queue import InputQueue
from queuedriver.disk.filesystem import Directory
from queuedriver.driving import driver


def by_steps(claim: Claim) -> bool:
    """Hand nothing over without a look: every document goes by the calls that can be broken."""
    return False


class Renames:
    """Stands for the `os` of who claims: each of its renames is another's."""

    def __init__(self, rename: Callable[[str, str], None]) -> None:
        self._rename = rename

    def rename(self, old: str, new: str, src_dir_fd: int, dst_dir_fd: int) -> None:
        self._rename(old, new)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


@dataclass(frozen=True)
class Fault:
    """While the sign is there, these calls fail; a second sign shows that one did."""

    sign: Path
    calls: tuple[str, ...]
    number: int = errno.EIO
    # Whether the call has done its work when it fails: a reply that was lost.
    done: bool = False

    @property
    def shown(self) -> Path:
        return self.sign.with_suffix(".shown")

    def __call__(self) -> None:
        def fails() -> bool:
            return self.sign.exists()

        def show() -> None:
            self.shown.touch()

        for name in self.calls:
            _break(name, fails, show, lambda: self.done, self.number)


@dataclass(frozen=True)
class EveryNth:
    """Every nth call fails, in turn before and after it has done its work, so many in all."""

    n: int
    times: int
    calls: tuple[str, ...]

    def __call__(self) -> None:
        calls = itertools.count(1)
        failures = itertools.count()
        failed = 0

        def fails() -> bool:
            nonlocal failed
            if failed >= self.times or next(calls) % self.n:
                return False
            failed += 1
            return True

        for name in self.calls:
            _break(name, fails, lambda: None, lambda: bool(next(failures) % 2), errno.EIO)


def _break(
    name: str,
    fails: Callable[[], bool],
    show: Callable[[], None],
    done: Callable[[], bool],
    number: int,
) -> None:
    driver.hand_over = by_steps  # type: ignore[attr-defined]
    method = getattr(Directory, name)

    @functools.wraps(method)
    def broken(*args: Any, **named: Any) -> Any:
        if not fails():
            return method(*args, **named)
        if done():
            method(*args, **named)
        show()
        raise OSError(number, os.strerror(number), args[0].path)

    setattr(Directory, name, broken)
    if name == "rename":
        claim = InputQueue.claim

        @functools.wraps(claim)
        def breakable(queue: InputQueue, *args: Any, **named: Any) -> Any:
            input_queue.os = Renames(queue.directory.rename)  # type: ignore[assignment, attr-defined]
            return claim(queue, *args, **named)

        InputQueue.claim = breakable  # type: ignore[assignment, method-assign]
