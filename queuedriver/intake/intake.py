"""One intake from its start to its end: opens the folder and the queue, and turns its watcher."""

import itertools
import math
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager

import msgspec

from queuedriver.claims.document import Target
from queuedriver.claims.liveness import Observer
from queuedriver.disk.filesystem import Directory
from queuedriver.disk.journal import Journal, journal_path, submitter
from queuedriver.disk.mounts import filesystem_type, is_network
from queuedriver.driving.backpressure import BackPressure
from queuedriver.driving.closing import read_controls
from queuedriver.driving.live_status import Board, Totals
from queuedriver.driving.loop import Left
from queuedriver.driving.measurements import FILES, FILTERED
from queuedriver.driving.setup import check_rename, open_named
from queuedriver.driving.signals import ASKING, Signals
from queuedriver.driving.wake import Waker
from queuedriver.errors import ConfigError, NotFound, explained, is_trouble
from queuedriver.format.names import JOURNAL, PRIVATE
from queuedriver.format.records import Counters
from queuedriver.format.settings import DEFAULT_PUBLISH, Publication
from queuedriver.format.units import format_count, format_size
from queuedriver.intake.examining import CONTENTS, Contents
from queuedriver.intake.folder import Folder, leases_answer
from queuedriver.intake.handover import Handover, kept_in
from queuedriver.intake.home import INSIDE, Home, note_told, opened
from queuedriver.intake.ledger import LEDGER, Ledger
from queuedriver.intake.options import REFUSED, IntakeOptions, Told
from queuedriver.intake.watcher import LONGEST_POLL, STAYS, Watcher
from queuedriver.options import Options

# What of a name a watchdog is shown, in characters.
_SHOWN = 40
# After trouble, in seconds.
_TRY_AGAIN = 1.0
# How long hints and files that are due are gathered for one turn, in seconds.
_GATHER = 0.05
# How often it is told what is done, in seconds: to count what waits takes its time, too.
_SHOW_EVERY = 0.5
# How often names are listed, in seconds, where only this host changes them and nobody hints at it.
_UNHINTED_POLL = 1.0
# So many hints are kept: what is beyond them is seen when names are listed.
_MOST_HINTS = 10_000


class Intake(msgspec.Struct, eq=False):
    """Takes what is dropped into a folder, until it is told to leave."""

    folder: str
    queue: str
    options: IntakeOptions
    id: str | None = None
    drain: bool = False
    board: Board | None = None
    # What it turns, once it is there; why that cannot be turned; and what it waits for.
    watcher: Watcher | None = None
    trouble: str = ""
    why: str = ""
    # Names that the kernel hints at: of more than are kept the next listing tells.
    hints: deque[str] = msgspec.field(default_factory=lambda: deque(maxlen=_MOST_HINTS))
    signals: Signals = msgspec.field(default_factory=Signals)

    def run(self, *, last: bool = False) -> Left:
        """Take until told to leave, or, in a drain, until nothing settles any more. `last`: the
        process ends with it."""
        with ExitStack() as at_end:
            at_end.callback(self.signals.close)
            watcher = self.watcher = at_end.enter_context(self.opened())
            at_end.callback(self.signals.restore, last=last)
            self.signals.take(dict.fromkeys(ASKING, lambda *_: self.signals.ask(time.monotonic())))
            if self.board is not None:
                self.board.ready(time.monotonic())
            self._turn_on(watcher)
            left = Left("quit", "it was asked to", 0, self._report()[2])
            if self.signals.leaving_at is None:
                left = left._replace(word="drained", why="nothing is left that settles")
            if self.board is not None:
                self.board.left(left.word, left.why, left.exit_code)
            return left

    @property
    def unnoted(self) -> tuple[str, ...]:
        """Return what could not be noted in the journal, once it has left."""
        unnoted = self.watcher.taker.journal.unnoted if self.watcher is not None else ""
        return (unnoted,) if unnoted else ()

    def _turn_on(self, watcher: Watcher) -> None:
        """Turn the watcher, sleeping in between, until there is a reason to leave."""
        show_at = -math.inf
        waker: Waker | None = None
        with ExitStack() as at_end:
            while self.signals.leaving_at is None:
                if waker is None or waker.paths != watcher.folder.paths:
                    at_end.close()
                    waker = at_end.enter_context(closing(self._waker(watcher.folder.paths)))
                waker.arm()
                due = self._turn(watcher, hinted=waker.hinted)
                if time.monotonic() >= show_at:
                    show_at = time.monotonic() + _SHOW_EVERY
                    self._show(watcher)
                if self.drain and not (self.trouble or watcher.settling):
                    return
                waker.wait(due - time.monotonic())
                # Of one drop there are several hints; and of many files each has an instant.
                time.sleep(_GATHER)
                waker.heed()
                self.signals.clear()

    def _turn(self, watcher: Watcher, *, hinted: bool) -> float:
        """Turn the watcher once; return when the next turn is due."""
        names = [self.hints.popleft() for _ in range(len(self.hints))]
        taker, now = watcher.taker, time.monotonic()
        watcher.longest_poll = LONGEST_POLL if hinted or not taker.told.local else _UNHINTED_POLL
        if names and self.options.recursive:
            # They do not say where.
            watcher.list_soon()
        try:
            for one in (watcher.folder.directory, taker.queue, taker.home.directory):
                if one.moved():
                    # What we hold open is a ghost: nobody drops anything there any more.
                    raise NotFound(f"{one.path} is gone, or another is in its place; start anew")
            self.trouble, due = "", watcher.turn(now, names)
        except OSError as error:
            if not is_trouble(error):
                raise
            self.trouble, due = str(error), now + _TRY_AGAIN
        return due

    def _waker(self, paths: Sequence[str]) -> Waker:
        """Return what is woken by names that come to directories, and by ends of writings."""

        def note(name: str) -> bool:
            self.hints.append(name)
            return True

        fd = self.signals.wake_fd
        return Waker(paths, poll=False, wake_fd=fd, interesting=note, writes=True)

    # What it tells

    def _report(self) -> tuple[str, str, Counters]:
        """Return what it does right now; asked by another thread."""
        watcher = self.watcher
        if watcher is None:
            return "starting", "", Counters()
        counters = Counters(documents=watcher.taken, discarded=watcher.refused)
        return "waiting-fs" if self.trouble else "ready", self.trouble or self.why, counters

    def _show(self, watcher: Watcher) -> None:
        counts, self.why = waiting(watcher)
        if self.board is None:
            return
        state, why, counters = self._report()
        self.board.count(Totals(documents=counters.documents, discarded=counters.discarded))
        self.board.show(state, why)
        self.board.files([counts[one] for one in FILES])
        if (path := watcher.settling) and not watcher.blocked:
            # By this a drain knows that more is to come.
            self.board.began(os.path.basename(path)[:_SHOWN], time.monotonic())

    # What it opens

    @contextmanager
    def opened(self) -> Iterator[Watcher]:
        """Open everything, register, and put the watcher together."""
        options = self.options.check()
        with ExitStack() as at_end:
            folder = open_named(self.folder, at_end, "a folder")
            queue = open_named(self.queue, at_end)
            _check(folder, queue, options)
            home = at_end.enter_context(opened(folder, queue, options, self.id, self._report))
            local = not is_network(filesystem_type(folder.path))
            is_tried = home.directory.status().st_dev == folder.status().st_dev
            with explained(home.directory.path, "a folder"):
                leases = is_tried and leases_answer(home.directory)
                told = Told(queue=queue.path, options=options, leases=leases, local=local)
                note_told(folder, home.directory, told)
            yield put_together(folder, queue, home, told, at_end)


def put_together(
    folder: Directory, queue: Directory, home: Home, told: Told, at_end: ExitStack
) -> Watcher:
    """Return the watcher of a folder that is open, of its kind."""
    options, host = told.options, home.roster.observer.me.host
    copies = at_end.enter_context(queue.subdirectory(INSIDE, create=True))
    journal = Journal(journal_path(queue.path), submitter(host, "intake"), host)
    at_end.callback(journal.close)
    refused = os.path.join(folder.path, options.refused or REFUSED)
    without = {REFUSED, os.path.relpath(refused, folder.path), options.archive.partition("/")[0]}
    files = Folder(folder, options.max_depth if options.recursive else 0, frozenset(without))
    kind, claims, contents = Handover, home.directory, None
    if options.leaves:
        kind = Ledger
        claims = at_end.enter_context(claims.subdirectory(LEDGER, create=True))
    if options.duplicates != "take":
        directory = home.directory.subdirectory(CONTENTS, create=True)
        contents = Contents(at_end.enter_context(directory), options.remember)
    taker = kind(home, files, told, queue, copies, claims, journal)
    return Watcher(taker, contents, _blocked(queue, options, home.roster.observer))


def waiting(watcher: Watcher) -> tuple[Counter[str], str]:
    """Count the files that are not taken, by FILES; return besides what they wait for, in a
    sentence. Of 100,000 that takes some milliseconds."""
    every = itertools.chain(watcher.claims.values(), watcher.files.values())
    counts = Counter(one.waits.state for one in every)
    del counts[STAYS.state]
    parts = [watcher.blocked] if watcher.blocked else []
    if total := counts.total():
        path, waits = next(watcher.waiting())
        words = format_count(total, "file waits", "files wait")
        parts.append(f"{words}, as {path}: {waits.why}")
    if others := watcher.folder.others:
        words = format_count(others, "directory or link", "directories or links")
        parts.append(f"{words} stay")
    counts[FILTERED] = len(watcher.filtered)
    return counts, "; ".join(parts)


def _check(folder: Directory, queue: Directory, options: IntakeOptions) -> None:
    """Raise ConfigError for a folder that cannot be taken from into this queue."""
    real = tuple(map(os.path.realpath, (folder.path, queue.path)))
    if os.path.commonpath(real) in real:
        raise ConfigError(f"{folder.path} and {queue.path} are one inside the other; move one away")
    if folder.present(os.path.join(PRIVATE, JOURNAL)):
        raise ConfigError(f"{folder.path} is a queue itself: its documents are no drops")
    if options.leaves:
        return
    with explained(folder.path, "a folder that may be written; else say --after leave"):
        folder.check_writable()
    for where, role in ((options.archive, "an archive"), (options.refused, "a directory")):
        if where:
            with explained(where, role), kept_in(folder, where) as kept:
                if os.path.samestat(kept.status(), folder.status()):
                    raise ConfigError(f"{where} is the folder itself; name a directory in it")
                check_rename(folder, kept, folder.path)


def _blocked(
    queue: Directory, options: IntakeOptions, observer: Observer
) -> Callable[[int, int], str]:
    """Return what says why the queue takes no more, when so many were taken, and so many more are
    claimed; "" while it does."""
    target = Target(os.path.basename(queue.path), queue, Publication(DEFAULT_PUBLISH))
    limit = Options(max_output_items=options.limit)
    pressure = BackPressure(limit, [target], observer, lambda: 1)

    def why(taken: int, claimed: int) -> str:
        for word, meaning in read_controls(queue).meanings(queue.path):
            return f"{queue.path} is {word}: {meaning}"
        free = queue.room().free_bytes
        if free < options.min_free:
            least = format_size(options.min_free)
            return f"{queue.path} has {format_size(free)} free, less than min_free, {least}"
        if pressure.room(taken) > claimed:
            return ""
        return pressure.full(taken) or "what is claimed enters first"

    return why
