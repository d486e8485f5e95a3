"""`status` and `top`: how a pipeline is going."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from threading import Timer

from queuedriver.claims.liveness import Observer
from queuedriver.cli.arguments import AS_JSON
from queuedriver.cli.program import say
from queuedriver.cli.render import Paint, columns_of, paint_for, size_of_terminal, width, write_json
from queuedriver.errors import ConfigError
from watchdogd.cli.arguments import PIPELINE, PIPELINE_FILE, either
from watchdogd.cli.pipeline_argument import choose
from watchdogd.cli.screen import lines
from watchdogd.operators.sentences import sentences_of
from watchdogd.operators.view import View, look

_CODES = {"running": 0, "not running": 3, "unknown": 4}
# A file system that has not answered by then may not do so for long.
_PATIENCE = 3.0
# Seconds between two looks: at least this, and so long that looking takes a twentieth of the time.
_EVERY = 1.0
_SHARE = 20
# The alternate screen, without a cursor; and back.
_ENTER, _LEAVE = "\033[?1049h\033[?25l", "\033[?25h\033[?1049l"
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\033[H", "\033[K", "\033[J"


def status(
    pipeline: str | None = PIPELINE,
    option: str | None = PIPELINE_FILE,
    as_json: bool = AS_JSON,
) -> int:
    """Show how a pipeline is going: its stages, its drivers, what somebody must look after.

    FAILED are those of the waiting that failed before. DRIVERS are those alive, of those wanted.
    TIME is what one document takes. WORK, WAIT, BLOCK and OVERHEAD are the shares of the drivers'
    time: in the processor, without documents, with full outputs, and all the rest.

    \b
    Exit codes:
      0   a watchdog runs
      1   one runs, but a stage with documents to do has crash-looped drivers only
      3   none runs: everything is shown all the same
      4   that cannot be known from here, or it is there and does not turn
      66  no such file              78  the file has mistakes, and no watchdog runs
    """
    # For whoever does not know what is waited for.
    slow = Timer(_PATIENCE, say, ["the file system is slow to answer, or does not; still waiting"])
    slow.daemon = True
    slow.start()
    try:
        view = look(choose(either(pipeline, option), hung_too=True))
    finally:
        slow.cancel()
    if as_json:
        _print_json(view)
    else:
        for line in lines(view, columns_of(sys.stdout), paint_for(sys.stdout)):
            print(line)
    return _code(view)


def top(
    pipeline: str | None = PIPELINE,
    option: str | None = PIPELINE_FILE,
    as_json: bool = AS_JSON,
) -> int:
    """Show how a pipeline is going, as it goes; q or Ctrl-C ends it.

    Where there is no terminal, it is shown once. With --json each look is a line, wherever it goes.
    """
    terminal = sys.stdout.isatty() and sys.stdin and sys.stdin.isatty()
    if not (terminal or as_json):
        return status(pipeline, option, as_json=False)
    given = either(pipeline, option)
    chosen = choose(given, hung_too=True)
    observer = Observer()
    with nullcontext(list[int]()) if as_json else _screen() as keys:
        while True:
            began = time.monotonic()
            view = look(chosen, observer)
            if as_json:
                _print_json(view, indent=None)
                sys.stdout.flush()
            else:
                _draw(view)
            took = time.monotonic() - began
            if _quits(keys, max(_EVERY, took * _SHARE)):
                return _code(view)
            # While somebody writes the file, it is as it was.
            with suppress(ConfigError):
                chosen = choose(given, hung_too=True)


def _code(view: View) -> int:
    return _CODES[view.chosen.hosts.state] or bool(view.stuck)


def _print_json(view: View, indent: int | None = 2) -> None:
    write_json({**view.as_json(), "words": [one.text for one in sentences_of(view)]}, indent)


@contextmanager
def _screen() -> Iterator[list[int]]:
    """Enter a screen of its own, with keys as they are hit; afterwards all is as it was."""
    import termios
    import tty

    keys = sys.stdin.fileno()
    before = termios.tcgetattr(keys)
    tty.setcbreak(keys)
    sys.stdout.write(_ENTER)
    try:
        yield [keys]
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
        termios.tcsetattr(keys, termios.TCSADRAIN, before)


def _draw(view: View) -> None:
    """Draw all in one write, over what was there: nothing flickers."""
    size = size_of_terminal()
    drawn = list(lines(view, size.columns, paint_for(sys.stdout)))
    # Colours take no room.
    plain = lines(view, size.columns, Paint())
    heights = [1 + max(0, width(line) - 1) // size.columns for line in plain]
    while len(drawn) > 1 and sum(heights[: len(drawn)]) >= size.lines:
        drawn.pop()
    text = "".join(f"{line}{_CLEAR_LINE}\r\n" for line in drawn)
    sys.stdout.write(f"{_HOME}{text}{_CLEAR_BELOW}")
    sys.stdout.flush()


def _quits(keys: list[int], seconds: float) -> bool:
    """Wait for the next look, or for somebody who has seen enough; return whether one has."""
    import select

    if not select.select(keys, [], [], seconds)[0]:
        return False
    # Nothing at all: the terminal is gone.
    return os.read(keys[0], 64)[:1] in (b"q", b"Q", b"")
