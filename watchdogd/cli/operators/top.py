"""`top`: a pipeline as it goes, and what is done about it. The terminal, the looks and the moves;
what a key does is in navigation, and what is drawn in panes."""

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from queuedriver.claims.liveness import Observer
from queuedriver.cli import render
from queuedriver.cli.program import explain
from queuedriver.cli.render import Paint, escape_name
from queuedriver.cli.words import flag
from queuedriver.cli.words import option as an_option
from queuedriver.errors import ConfigError, NotFound, QueueError
from queuedriver.format.units import format_count
from watchdogd.cli import screen, trace
from watchdogd.cli.arguments import PIPELINE, PIPELINE_FILE, either
from watchdogd.cli.operators.navigation import Place, State, Wish, arrange, keys_of, press
from watchdogd.cli.operators.panes import Detail, Seen, asked_of, lines, rows_of, unseen
from watchdogd.cli.pipeline_argument import choose, stage_named
from watchdogd.cli.status import exit_code, print_json, status
from watchdogd.operators import actions, batches, causes, history
from watchdogd.operators.hosts import Chosen, no_answer
from watchdogd.operators.log_files import printed, read_piece, stacks_of
from watchdogd.operators.route import follow
from watchdogd.operators.view import look, pause_after

# How the rates of stages went is read anew after so many seconds.
_TRENDS_EVERY = 10.0
# The alternate screen, without a cursor; and back.
_ENTER, _LEAVE = b"\033[?1049h\033[?25l", b"\033[?25h\033[?1049l"
_HOME, _CLEAR_LINE = "\033[H", "\033[K"


def top(
    pipeline: str | None = PIPELINE,
    option: str | None = PIPELINE_FILE,
    every: float | None = an_option("TIME", "Print a look so often, one below the other."),
    as_json: bool = flag("Print for programs, a look on a line.", "--json"),
) -> int:
    """Show how a pipeline is going, as it goes, and steer it; `?` names the keys, q ends it.

    With --every each look is printed below the one before, for a file or to be read aloud. Where
    there is no terminal, or a plain one (TERM=dumb), it is shown once.
    """
    given = either(pipeline, option)
    terminal = sys.stdout.isatty() and sys.stdin and sys.stdin.isatty()
    if as_json or every is not None:
        return _print(given, every or 0.0, as_json)
    if not terminal or os.environ.get("TERM") == "dumb":
        return status(pipeline, option, as_json=False)
    with _screen() as keys:
        return _Live(given, keys).run()


def _print(given: str | None, every: float, as_json: bool) -> int:
    """Print looks until somebody has seen enough."""
    observer, chosen = Observer(), choose(given, hung_too=True)
    while True:
        began = time.monotonic()
        view = look(chosen, observer)
        if as_json:
            print_json(view, indent=None)
        else:
            print("\n".join([*screen.lines(view, render.columns_of(sys.stdout), Paint()), ""]))
        sys.stdout.flush()
        time.sleep(max(every, pause_after(time.monotonic() - began)))
        # While somebody writes the file, or puts another in its place, it is as it was.
        with suppress(ConfigError):
            chosen = choose(given, hung_too=True)


@contextmanager
def _screen() -> Iterator[list[int]]:
    """Enter a screen of its own, with keys as they are hit; yield what to wait at for those, and
    for another size of the terminal. Afterwards, and while it is stopped by Ctrl-Z, all is as it
    was."""
    import termios
    import tty

    keys, shown = sys.stdin.fileno(), sys.stdout.fileno()
    before = termios.tcgetattr(keys)

    def enter() -> None:
        tty.setcbreak(keys)
        os.write(shown, _ENTER)

    def leave() -> None:
        os.write(shown, _LEAVE)
        termios.tcsetattr(keys, termios.TCSADRAIN, before)

    def stop(*_: object) -> None:
        leave()
        os.kill(os.getpid(), signal.SIGSTOP)
        enter()

    resized, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    # Before the first size is asked for.
    signal.signal(signal.SIGWINCH, lambda *_: None)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGTSTP, stop)
    enter()
    try:
        yield [keys, resized]
    finally:
        leave()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        os.close(resized)
        os.close(wakes)


class _Live:
    """Somebody at a terminal, and what was seen last."""

    def __init__(self, given: str | None, inputs: Sequence[int]) -> None:
        self._given = given
        self._keys, self._resized = inputs
        self._observer = Observer()
        self._chosen = choose(given, hung_too=True)
        self._state = State()
        self._seen = Seen(look(self._chosen, self._observer))
        # On the monotonic clock: when it is looked again, at what the place has besides, at trends.
        self._look_at = self._detail_at = self._trends_at = 0.0
        self._place: Place | None = None
        # What a driver said of its stacks.
        self._stacks: tuple[str, ...] = ()

    def run(self) -> int:
        """Look, draw and do what keys say, until somebody has seen enough."""
        while not self._state.over:
            if time.monotonic() >= self._look_at:
                self._look()
            self._fill()
            self._arrange()
            self._draw()
            for key in self._wait():
                self._state = press(self._state, key, time.monotonic())
                if self._state.wish is not None:
                    self._carry_out(self._state.wish)
                self._arrange()
        return exit_code(self._seen.view)

    def _arrange(self) -> None:
        rows = rows_of(self._seen, self._state.here)
        hidden = unseen(self._seen, self._state, _size())
        self._state = arrange(self._state, rows, hidden, time.monotonic())

    # Look

    def _look(self) -> None:
        began = time.monotonic()
        try:
            # While somebody writes the file, or puts another in its place, it is as it was.
            with suppress(ConfigError):
                self._chosen = choose(self._given, hung_too=True)
            self._seen = self._seen._replace(view=look(self._chosen, self._observer))
            if began >= self._trends_at and not self._chosen.hung:
                self._trends_at = began + _TRENDS_EVERY
                self._seen = self._seen._replace(trends=history.trends(self._seen.view))
        except (QueueError, OSError) as error:
            # What was seen last stays: it says of when it is.
            self._state = self._state._replace(said=explain(error)[0])
        now = time.monotonic()
        self._look_at = now + pause_after(now - began)

    def _fill(self) -> None:
        """Look at what a place has besides the view: anew after a while, but not while somebody is
        asked about it."""
        here, began = self._state.here, time.monotonic()
        place = Place(here.kind, here.name, here.stage)
        if place != self._place:
            self._place, self._stacks, self._detail_at = place, (), 0.0
        if began < self._detail_at or self._state.asked is not None:
            return
        try:
            detail = _detail(self._chosen, place, self._stacks)
        except (QueueError, OSError) as error:
            detail = Detail((escape_name(explain(error)[0]),))
        self._seen = self._seen._replace(detail=detail)
        now = time.monotonic()
        self._detail_at = now + pause_after(now - began)

    # Do

    def _carry_out(self, wish: Wish) -> None:
        """Do what was wished; what came of it is said in the last line."""
        try:
            if wish.act == "stacks":
                name, _, host = wish.name.rpartition("@")
                stacks = stacks_of(self._chosen, host, name)
                self._stacks, said = ("", *map(escape_name, stacks.splitlines())), ""
            else:
                said = _done(self._chosen, self._seen, wish)
        except (QueueError, OSError) as error:
            said = explain(error)[0]
        self._state = self._state._replace(wish=None, said=said)
        self._look_at = self._detail_at = 0.0

    # The terminal

    def _draw(self) -> None:
        """Draw all in one write, over what was there: nothing flickers."""
        size = _size()
        drawn = lines(self._seen, self._state, size, render.paint_for(sys.stdout))
        sys.stdout.write(_HOME + "\r\n".join(line + _CLEAR_LINE for line in drawn))
        sys.stdout.flush()

    def _wait(self) -> list[str]:
        """Wait for keys, another size, or the next look."""
        import select

        left = max(0.0, self._look_at - time.monotonic())
        ready = select.select([self._keys, self._resized], [], [], left)[0]
        if self._resized in ready:
            os.read(self._resized, 64)
        return keys_of(os.read(self._keys, 64)) if self._keys in ready else []


def _size() -> os.terminal_size:
    """Return the size of the terminal as it is now, whatever it was at the start."""
    with suppress(OSError):
        size = os.get_terminal_size(sys.stdout.fileno())
        if size.columns and size.lines:
            return size
    return render.size_of_terminal()


def _detail(chosen: Chosen, place: Place, stacks: tuple[str, ...]) -> Detail:
    """Look at what a place has besides the view. A log is on this host, or is not read."""
    if chosen.hung and place.kind not in ("pipeline", "stage", "driver"):
        raise no_answer(chosen.given)
    if place.kind == "trace":
        return Detail(tuple(trace.lines(follow(chosen, place.name), Paint())))
    if place.kind == "driver":
        name, _, host = place.name.rpartition("@")
        return Detail((*_log(chosen, host, name), *stacks))
    if place.kind in ("causes", "documents"):
        stages = [stage_named(chosen, place.stage)] if place.stage else []
        return Detail(survey=causes.survey(chosen.pipeline, stages))
    return Detail()


def _log(chosen: Chosen, host: str, driver: str) -> list[str]:
    """Return the end of what a driver has printed, or that there is nothing."""
    try:
        data = read_piece(chosen, host, driver, None).data
    except NotFound as error:
        return [escape_name(str(error))]
    return printed(data).splitlines()


# Moves


def _done(chosen: Chosen, seen: Seen, wish: Wish) -> str:
    """Do something, and return what is to be said of it."""
    if chosen.hung:
        raise no_answer(chosen.given)
    if wish.act == "retry":
        return _retried(chosen, seen, wish.name)
    asked = asked_of(wish, seen)
    told = actions.carry_out(chosen, [asked], actions.operator())
    return "; ".join(told) or f"{asked.words}: done"


def _retried(chosen: Chosen, seen: Seen, group: str) -> str:
    """Have a group tried again, as it was when it was asked for."""
    survey = seen.detail.survey
    cases = survey.of_group(group) if survey is not None else ()
    if not cases:
        raise NotFound(f"group {group} is not discarded any more")
    words = f"of stage {cases[0].stage}, group {group}: {cases[0].common}"
    batch = batches.of_cases(cases, actions.operator(), words, time.time())
    came = actions.put_back(chosen, batch)
    count = sum(one.came == "done" for _, one in came.results)
    said = f"batch {batch.id}: {format_count(count, 'document')} tried again"
    return "; ".join((said, *came.told))
