"""One intake from its start to its end: opens the folder and the queue, and turns its watcher."""

import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from types import FrameType

from queuedriver.claims.document import Target
from queuedriver.claims.liveness import Observer
from queuedriver.disk.filesystem import Directory
from queuedriver.disk.journal import Journal, journal_path, submitter
from queuedriver.disk.mounts import filesystem_type, is_network
from queuedriver.driving.backpressure import BackPressure
from queuedriver.driving.closing import read_controls
from queuedriver.driving.live_status import Board, Totals
from queuedriver.driving.loop import Left
from queuedriver.driving.measurements import FILES
from queuedriver.driving.setup import check_rename, open_named
from queuedriver.driving.signals import ASKING, Signals
from queuedriver.driving.wake import Waker
from queuedriver.errors import ConfigError, NotFound, explained, is_trouble
from queuedriver.format.names import JOURNAL, PRIVATE
from queuedriver.format.records import Counters
from queuedriver.format.settings import DEFAULT_PUBLISH, Publication
from queuedriver.format.units import format_size
from queuedriver.intake.duplicates import CONTENTS, Contents
from queuedriver.intake.examining import Examiner
from queuedriver.intake.explaining import note_where
from queuedriver.intake.folder import Folder
from queuedriver.intake.handover import Handover, archive_of, refused_of
from queuedriver.intake.home import INSIDE, Home, Told, opened
from queuedriver.intake.into import Into
from queuedriver.intake.leases import answer
from queuedriver.intake.ledger import LEDGER, Ledger
from queuedriver.intake.options import REFUSED, IntakeOptions
from queuedriver.intake.telling import waiting
from queuedriver.intake.watcher import LONGEST_POLL, Watcher
from queuedriver.options import Options

# What of a name a watchdog is shown, in characters.
_SHOWN = 40
# After trouble, in seconds.
_TRY_AGAIN = 1.0
# How often names are listed, in seconds, where only this host changes them and nobody hints at it.
_UNHINTED_POLL = 1.0
# How long hints and files that are due are gathered for one turn, in seconds.
_GATHER = 0.05
# How often it is told what is done, in seconds: to count what waits takes its time, too.
_SHOW_EVERY = 0.5


class Intake:
    """Takes what is dropped into a folder, until it is told to leave."""

    def __init__(
        self,
        folder: str,
        queue: str,
        options: IntakeOptions,
        *,
        id: str | None = None,
        drain: bool = False,
        board: Board | None = None,
    ) -> None:
        self.options = options.check()
        self.id = ""
        # What could not be noted in the journal, once it has left.
        self.unnoted = ""
        self.watcher: Watcher | None = None
        self._folder, self._queue = folder, queue
        self._wanted_id = id
        self._drain = drain
        self._board = board
        self._trouble = self._why = ""
        self._show_at = -math.inf
        self._local = True
        # What has to stay where it is: the folder, the queue, and the intakes' own.
        self._held: tuple[Directory, ...] = ()
        self._signals = Signals()
        self._hints: deque[str] = deque(maxlen=10_000)

    def run(self, *, last: bool = False) -> Left:
        """Take until told to leave, or, in a drain, until nothing settles any more. `last`: the
        process ends with it."""
        with ExitStack() as at_end:
            at_end.callback(self._signals.close)
            watcher = self.watcher = at_end.enter_context(self._opened())
            at_end.callback(self._signals.restore, last=last)
            self._signals.take(dict.fromkeys(ASKING, self._ask))
            if self._board is not None:
                self._board.ready(time.monotonic())
            self._turn_on(watcher)
            counters = self._report()[2]
            over = self._drain and self._signals.leaving_at is None
            why = "nothing is left that settles" if over else "it was asked to"
            left = Left("drained" if over else "quit", why, 0, counters)
            if self._board is not None:
                self._board.left(left.word, left.why, left.exit_code)
            return left

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        self._signals.ask(time.monotonic())

    def _turn_on(self, watcher: Watcher) -> None:
        """Turn the watcher, sleeping in between, until there is a reason to leave."""
        with ExitStack() as at_end:
            waker = self._waker(watcher, at_end)
            while self._signals.leaving_at is None:
                if waker.paths != watcher.folder.paths:
                    waker = self._waker(watcher, at_end)
                waker.arm()
                due = self._turn(watcher, hinted=waker.hinted)
                if time.monotonic() >= self._show_at:
                    self._show_at = time.monotonic() + _SHOW_EVERY
                    self._show(watcher)
                if self._drain and not (self._trouble or watcher.settling):
                    return
                waker.wait(due - time.monotonic())
                # Of one drop there are several hints; and of many files each has an instant.
                time.sleep(_GATHER)
                waker.heed()
                self._signals.clear()

    def _turn(self, watcher: Watcher, *, hinted: bool) -> float:
        """Turn the watcher once; return when the next turn is due."""
        names = [self._hints.popleft() for _ in range(len(self._hints))]
        watcher.longest_poll = LONGEST_POLL if hinted or not self._local else _UNHINTED_POLL
        if names and self.options.recursive:
            # They do not say where.
            watcher.list_soon()
        now = time.monotonic()
        try:
            for one in self._held:
                if one.moved():
                    # What we hold open is a ghost: nobody drops anything there any more.
                    raise NotFound(f"{one.path} is gone, or another is in its place; start anew")
            due = watcher.turn(now, () if self.options.recursive else names)
        except OSError as error:
            if not is_trouble(error):
                raise
            self._trouble = str(error)
            return now + _TRY_AGAIN
        self._trouble = ""
        return due

    def _waker(self, watcher: Watcher, at_end: ExitStack) -> Waker:
        """Return what is woken by names that come, and by ends of writings, in what is looked
        into now."""

        def note(name: str) -> bool:
            self._hints.append(name)
            return True

        at_end.close()
        fd = self._signals.wake_fd
        waker = Waker(watcher.folder.paths, poll=False, wake_fd=fd, interesting=note, writes=True)
        return at_end.enter_context(closing(waker))

    # What it tells

    def _report(self) -> tuple[str, str, Counters]:
        """Return what it does right now; asked by another thread."""
        watcher = self.watcher
        if watcher is None:
            return "starting", "", Counters()
        state = "waiting-fs" if self._trouble else "ready"
        counters = Counters(documents=watcher.taken, discarded=watcher.refused)
        return state, self._trouble or self._why, counters

    def _show(self, watcher: Watcher) -> None:
        counts, self._why = waiting(watcher)
        if self._board is None:
            return
        state, why, counters = self._report()
        totals = Totals(documents=counters.documents, discarded=counters.discarded)
        self._board.count(totals)
        self._board.show(state, why)
        self._board.files([counts[one] for one in FILES])
        if (path := watcher.settling) and not watcher.blocked:
            # By this a drain knows that more is to come.
            self._board.began(os.path.basename(path)[:_SHOWN], time.monotonic())

    # What it opens

    @contextmanager
    def _opened(self) -> Iterator[Watcher]:
        """Open everything, register, and put the watcher together."""
        options = self.options
        with ExitStack() as at_end:
            folder = open_named(self._folder, at_end, "a folder")
            queue = open_named(self._queue, at_end)
            _check(folder, queue, options)
            home = at_end.enter_context(
                opened(folder, queue, options, self._wanted_id, self._report)
            )
            self.id = home.mint.driver
            self._held = (folder, queue, home.directory)
            self._local = not is_network(filesystem_type(folder.path))
            is_tried = home.directory.status().st_dev == folder.status().st_dev
            with explained(home.directory.path, "a folder"):
                leases = is_tried and answer(home.directory)
                told = Told(queue=queue.path, options=options, leases=leases, local=self._local)
                home.note(told, folder)
            examiner = Examiner(options, leases=leases, local=self._local)
            if options.leaves:
                note_where(folder, queue)
            journal = journal_of(queue, home)
            at_end.callback(self._close, journal)
            yield put_together(folder, queue, home, examiner, journal, at_end)

    def _close(self, journal: Journal) -> None:
        journal.close()
        self.unnoted = journal.unnoted


def journal_of(queue: Directory, home: Home) -> Journal:
    """Return where what the intakes of this host do is noted."""
    host = home.observer.me.host
    return Journal(journal_path(queue.path), submitter(host, "intake"), host)


def put_together(
    folder: Directory,
    queue: Directory,
    home: Home,
    examiner: Examiner,
    journal: Journal,
    at_end: ExitStack,
) -> Watcher:
    """Return the watcher of a folder that is open, of its kind."""
    options = examiner.options
    copies = at_end.enter_context(queue.subdirectory(INSIDE, create=True))
    into = Into(queue, copies, journal, durable=options.durable)
    without = {REFUSED, options.archive.partition("/")[0]}
    files = Folder(folder, options.max_depth if options.recursive else 0, frozenset(without))
    taker: Handover | Ledger
    if options.leaves:
        ledger = at_end.enter_context(home.directory.subdirectory(LEDGER, create=True))
        taker = Ledger(files, home, into, ledger)
    else:
        taker = Handover(files, home, into, options)
    return Watcher(
        files,
        examiner,
        taker,
        into,
        contents=_contents(home, options, at_end),
        blocked=_blocked(queue, options, home.observer),
    )


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
    if form := options.archive:
        with explained(form, "an archive"), archive_of(folder, form) as archive:
            check_rename(folder, archive, folder.path)
    if where := options.refused:
        with explained(where, "a directory"), refused_of(folder, where) as refused:
            check_rename(folder, refused, folder.path)


def _contents(home: Home, options: IntakeOptions, at_end: ExitStack) -> Contents:
    if options.duplicates == "take":
        return Contents(None, 0.0)
    directory = home.directory.subdirectory(CONTENTS, create=True)
    return Contents(at_end.enter_context(directory), options.remember)


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
