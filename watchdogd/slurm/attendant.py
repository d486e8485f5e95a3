"""The process beside the watchdog of an element: submits more elements, or lets this one leave.

    python -P -m watchdogd.slurm.attendant WATCHDOG FILE HOST LOCAL

It may wait for the file system of the queues, for Slurm or for nobody: the watchdog waits for none
of that, starts another one when this ends, and takes it along when it leaves. Of the attendants of
all elements the one that may ask Slurm decides, about every ten seconds, whether more are needed;
each decides for itself whether it may leave.
"""

import fcntl
import os
import random
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress

import msgspec

from queuedriver.disk.filesystem import open_fd
from queuedriver.errors import NotFound, QueueError
from watchdogd import control
from watchdogd.children import Child, Children
from watchdogd.pipeline.model import HOUR
from watchdogd.pipeline.read import read
from watchdogd.report import HostReport, last_report
from watchdogd.slurm import elements, submissions
from watchdogd.slurm.elements import Element, Request, Submission, requests
from watchdogd.slurm.submissions import Ledger

# What elements have said is kept so long after they have ended.
_WEEK = 7 * 24 * HOUR
# From one look to the next, in seconds, spread so that those of many elements do not look together.
LOOK_EVERY = 3.0
_MANY = 30
# Within so many seconds a watchdog that turns says something new; and until one looks again.
_SAYS_WITHIN = 10.0
_LOOK_AGAIN = 0.1
# Seconds from one start of an attendant to the next.
_START_EVERY = 10.0
# What a driver says while it has nothing to do.
_AT_REST = frozenset({"ready", "stopped"})
# How many documents were done when the drivers began to rest, None while some do not; and since
# when that is so.
Rest = tuple[int | None, float]
_AT_WORK: Rest = (None, 0.0)


def may_leave(there: Iterable[Element], own: str, number: int) -> bool:
    """Return whether an element may leave, of those that run in its group, when so many are to
    stay. Those that began first leave: everybody who sees the same decides the same."""
    running = sorted(
        (one.starts_at, one.number, one.host) for one in there if one.state == "running"
    )
    return own in (host for _, _, host in running[: max(0, len(running) - number)])


def rest_of(report: HostReport | None, before: Rest, now: float) -> Rest:
    """Return since when the drivers of an element have had nothing to do, by what its watchdog says
    and by what was so `before`."""
    if report is None or any(one.state not in _AT_REST or one.document for one in report.drivers):
        return None, now
    done = sum(one.documents + one.failed for one in report.drivers)
    return before if done == before[0] else (done, now)


def pause(there: Iterable[Element]) -> float:
    """Return how many seconds it is until the next look: a thousand that run look as often as
    thirty."""
    return LOOK_EVERY * max(1.0, sum(one.state == "running" for one in there) / _MANY)


class Attendant:
    """Looks after one element: the process of its watchdog, the pipeline's file, what the watchdog
    is called, and where it keeps what is this host's."""

    def __init__(self, watchdog: int, file: str, host: str, local: str) -> None:
        self.watchdog, self.file, self.host, self.local = watchdog, file, host, local
        self.pipeline = read(file)
        # What it was submitted as: without number and stage where somebody wrote a script.
        self.own = msgspec.json.decode(os.environ.get(elements.SUBMISSION, "{}"), type=Submission)
        self._rest = _AT_WORK
        self._arrived = self._left = False
        self._said = ""

    def run(self) -> None:
        """Look now and then, until the watchdog ends."""
        seconds = LOOK_EVERY
        while os.getppid() == self.watchdog:
            try:
                with Ledger.open(self.pipeline, create=True) as ledger:
                    self.turn(ledger)
                    seconds = pause(ledger.facts().elements)
            except (OSError, QueueError) as error:
                self._say(str(error))
            time.sleep(seconds * random.uniform(0.8, 1.2))

    def turn(self, ledger: Ledger) -> None:
        """Look once, and act."""
        with suppress(QueueError):
            # One with mistakes changes nothing.
            self.pipeline = ledger.pipeline = read(self.file)
        if self.own.number and not self._arrived:
            # Whatever its submitter has heard of it: it was made.
            if not ledger.end(self.own.number, f"job {os.environ.get('SLURM_JOB_ID', '')}"):
                # Others may have been submitted in its place.
                self._leave("its submission had been given up")
            self._arrived = True
        if self._left:
            return
        if ledger.stopped:
            self._leave("watchdogd slurm stop")
            return
        request = next((one for one in requests(self.pipeline) if one.name == self.own.stage), None)
        if request is None or self.own.drain:
            # The file has no stages like its own by now, or it leaves when all is through.
            return
        report = last_report(self.local)
        if ledger.ask() and report is not None and report.state == "running":
            self._submit(ledger)
        self._consider(ledger, request, report)

    # More

    def _submit(self, ledger: Ledger) -> None:
        """Submit what is missing, by what Slurm has said this moment."""
        facts = ledger.facts()
        if facts.error:
            self._say(facts.error)
            return
        if not submissions.ended_at_once(ledger, facts):
            with suppress(submissions.UnderWay):
                own = {self.own.stage: self.own}
                for words in submissions.submit_missing(ledger, facts, own, {}):
                    self._say(words)
        tidy(self.pipeline.root, facts.elements, ledger.now())

    # Fewer

    def _consider(self, ledger: Ledger, request: Request, report: HostReport | None) -> None:
        """Leave if there is nothing to do and enough others are there, or if too many are."""
        now, idle = time.monotonic(), request.slurm.idle
        self._rest = rest_of(report, self._rest, now)
        is_idle = idle is not None and now - self._rest[1] >= idle
        limits = submissions.bounds(ledger, request)
        ours = [one for one in ledger.facts().elements if one.stage == request.name]
        if is_idle and may_leave(ours, self.host, limits.min):
            work = submissions.look(self.pipeline)
            number = submissions.wanted(self.pipeline, request, limits, work)
            if may_leave(ours, self.host, number):
                self._leave("nothing to do")
            else:
                # Something came meanwhile, or is still upstream: another would be submitted for it.
                self._rest = _AT_WORK
        elif ledger.scaled(request.name) is not None and may_leave(ours, self.host, limits.max):
            # More than the file says are somebody's wish, until there is nothing to do.
            self._leave("more elements than there are to be")

    def _leave(self, why: str) -> None:
        """Tell the watchdog to leave, once: a second signal would have documents given back."""
        ends_at, before = time.monotonic() + _SAYS_WITHIN, last_report(self.local)
        # It may have been told by others, and not have said so yet.
        while (report := last_report(self.local)) == before and time.monotonic() < ends_at:
            time.sleep(_LOOK_AGAIN)
        leaves = report is not None and report.state in ("stopping", "stopped")
        if not (self._left or leaves) and os.getppid() == self.watchdog:
            self._left = True
            self._say(f"{self.host} leaves: {why}")
            os.kill(self.watchdog, signal.SIGTERM)

    def _say(self, words: str) -> None:
        if words != self._said:
            self._said = words
            print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {words}", file=sys.stderr, flush=True)


def tidy(root: str, there: Iterable[Element], now: float) -> None:
    """Remove what elements that are not `there` have left below the root; `now` is the file
    system's. Of some nobody may have told Slurm's last word: what still runs writes it anew."""
    # By their hosts; logs, which Slurm names, by the job and task (elements.py).
    named = {name for one in there for name in (one.host, *one.jobs)}
    for place in (*control.OUR_DIRECTORIES, elements.LOGS):
        kept = HOUR if place == control.HOSTS else _WEEK
        # Never made, or removed by others meanwhile.
        gone = suppress(NotFound, FileNotFoundError)
        with gone, submissions.below(root, place, create=False) as directory:
            for name in list(directory.names()):
                host = name.partition(".")[0]
                is_left = elements.is_element(host) and host not in named
                if is_left and now - directory.status(name).st_mtime > kept:
                    directory.remove_all(name)


class AttendantChild:
    """The attendant as a child of its watchdog, started anew when it ends; nobody waits for it."""

    def __init__(self, file: str, host: str, local: str, children: Children) -> None:
        words = ("-P", "-m", "watchdogd.slurm.attendant", str(os.getpid()), file, host, local)
        self._argv = (sys.executable, *words)
        self._children = children
        self._child: Child | None = None
        self._start_at = 0.0

    def start_missing(self, now: float) -> None:
        """Start an attendant if there is none, and the last start was a while ago."""
        if now < self._start_at or (self._child is not None and self._child.exit is None):
            return
        self._start_at = now + _START_EVERY
        # What it says belongs beside what the watchdog says: into the element's log.
        with suppress(OSError), open_fd(fcntl.fcntl(sys.stderr, fcntl.F_DUPFD_CLOEXEC, 3)) as log:
            self._child = self._children.start(
                self._argv, os.environ, output=log, directory="/", tied=True
            )


def main() -> None:
    """Look after the element that the words say."""
    watchdog, file, host, local = sys.argv[1:]
    try:
        attendant = Attendant(int(watchdog), file, host, local)
    except (OSError, QueueError) as error:
        # Somebody is at work on the file: the next one may read it.
        sys.exit(str(error))
    attendant.run()


if __name__ == "__main__":
    main()
