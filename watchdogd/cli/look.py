"""`status` and `top`: how a pipeline is going."""

import os
import select
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from queuedriver.claims.liveness import Observer
from queuedriver.cli.render import columns_of, paint_for, width, write_json
from queuedriver.cli.words import flag
from watchdogd.cli.arguments import PIPELINE, PIPELINE_FILE, Chosen, choose, either
from watchdogd.cli.gathering import gather, impatiently
from watchdogd.cli.hosts import read_hosts
from watchdogd.cli.screen import lines
from watchdogd.cli.seen import View
from watchdogd.cli.view import view_of
from watchdogd.cli.words import Typed, words_of

_CODES = {"running": 0, "not running": 3, "unknown": 4}
# Seconds between two looks: at least this, and so long that looking takes a twentieth of the time.
_EVERY = 1.0
_SHARE = 20
# The alternate screen, without a cursor; and back.
_ENTER, _LEAVE = "\033[?1049h\033[?25l", "\033[?25h\033[?1049l"
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\033[H", "\033[K", "\033[J"


def status(
    pipeline: str | None = PIPELINE,
    option: str | None = PIPELINE_FILE,
    as_json: bool = flag("Print for programs.", "--json"),
) -> int:
    """Say how a pipeline is going: its stages, its drivers, and what somebody must look after.

    FAILED are those of the waiting that failed before. DRIVERS are those alive, of those wanted.
    TIME is what one document takes. WORK, WAIT, BLOCK and OVERHEAD are the shares of the drivers'
    time: in the processor, without documents, with full outputs, and all the rest.

    \b
    Exit codes:
      0   a watchdog runs           3   none runs: everything is shown all the same
      4   that cannot be known from here
      66  no such file              78  the file has mistakes, and no watchdog runs
    """
    with impatiently():
        chosen = choose(either(pipeline, option))
        view = view_of(gather(chosen))
    if as_json:
        spoken = [words.text for words in words_of(view, _typed(chosen))]
        write_json({**msgspec.to_builtins(view), "words": spoken})
    else:
        for line in lines(view, _typed(chosen), columns_of(sys.stdout), paint_for(sys.stdout)):
            print(line)
    return _CODES[view.state]


def top(pipeline: str | None = PIPELINE, option: str | None = PIPELINE_FILE) -> int:
    """Show how a pipeline is going, as it goes; q or Ctrl-C ends it.

    Where there is no terminal, it is shown once.
    """
    if not (sys.stdout.isatty() and sys.stdin and sys.stdin.isatty()):
        return status(pipeline, option)
    chosen = choose(either(pipeline, option))
    observer = Observer()
    with _screen() as keys:
        while True:
            began = time.monotonic()
            view = view_of(gather(chosen, observer))
            _draw(view, chosen)
            took = time.monotonic() - began
            if _quits(keys, max(_EVERY, took * _SHARE)):
                return _CODES[view.state]
            chosen = chosen._replace(hosts=read_hosts(chosen.pipeline.root))


def _typed(chosen: Chosen) -> Typed:
    return Typed(chosen.start, chosen.option)


@contextmanager
def _screen() -> Iterator[int]:
    """A screen of its own, and keys as they are hit; afterwards all is as it was."""
    import termios
    import tty

    keys = sys.stdin.fileno()
    before = termios.tcgetattr(keys)
    tty.setcbreak(keys)
    sys.stdout.write(_ENTER)
    try:
        yield keys
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
        termios.tcsetattr(keys, termios.TCSADRAIN, before)


def _draw(view: View, chosen: Chosen) -> None:
    """All in one write, over what was there: nothing flickers."""
    size = shutil.get_terminal_size()
    drawn = list(lines(view, _typed(chosen), size.columns, paint_for(sys.stdout)))
    height = sum(1 + max(0, width(_plain(line)) - 1) // size.columns for line in drawn)
    while len(drawn) > 1 and height >= size.lines:
        height -= 1 + max(0, width(_plain(drawn.pop())) - 1) // size.columns
    text = "".join(f"{line}{_CLEAR_LINE}\r\n" for line in drawn)
    sys.stdout.write(f"{_HOME}{text}{_CLEAR_BELOW}")
    sys.stdout.flush()


def _plain(line: str) -> str:
    """Without what `Paint` put into it."""
    parts = line.split("\033[")
    return parts[0] + "".join(part.partition("m")[2] for part in parts[1:])


def _quits(keys: int, seconds: float) -> bool:
    """Wait for the next look, or for somebody who has seen enough."""
    if not select.select([keys], [], [], seconds)[0]:
        return False
    # Nothing at all: the terminal is gone.
    return os.read(keys, 64)[:1] in (b"q", b"Q", b"")
