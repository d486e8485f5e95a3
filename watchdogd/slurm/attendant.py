"""The process beside the watchdog of an element: submits more elements, or lets this one leave.

    python -P -m watchdogd.slurm.attendant    a Post on stdin

It may wait for the file system of the queues, for Slurm or for nobody: the watchdog waits for none
of that, starts another one when this ends, and takes it along when it leaves. Of the attendants of
all elements the one that may ask Slurm decides, about every ten seconds, whether more are needed;
each decides for itself whether it may leave.
"""

import os
import random
import signal
import sys
import time
from contextlib import suppress

import msgspec

from queuedriver.errors import QueueError
from queuedriver.format.records import decode
from watchdogd.pipeline.read import read
from watchdogd.report import HostReport
from watchdogd.report_file import last_report
from watchdogd.slurm.elements import Element
from watchdogd.slurm.ledger import VOID, Ledger, Submission
from watchdogd.slurm.request import Request, requests
from watchdogd.slurm.scaling import Idle, may_leave
from watchdogd.slurm.squeue import ask, waiting_words
from watchdogd.slurm.submitting import (
    bounds,
    look,
    needs,
    nothing_runs,
    notice,
    number_of,
    serve,
    settle,
    tidy,
)

# From one look to the next, in seconds, spread so that those of many elements do not look together.
_LOOK_EVERY = 3.0
_MANY = 30
# A submission whose elements have gone so soon, in seconds, is not followed by another at once.
_SHORT = 60.0


class Post(msgspec.Struct, frozen=True, kw_only=True):
    """What an attendant is for."""

    watchdog: int
    file: str
    host: str
    local: str
    # How watchdogd is started, in the scripts.
    program: tuple[str, ...]
    # The submission that the element is of, and its own job; 0 of one that was submitted by hand.
    number: int
    job: str


class Attendant:
    """Looks after one element."""

    def __init__(self, post: Post) -> None:
        self.post = post
        self.pipeline = read(post.file)
        # What it was submitted as.
        self.own = Submission(number=post.number)
        self._idle = Idle()
        self._arrived = self._left = False
        # How many elements there are.
        self._others = 0
        self._said = ""

    def run(self) -> None:
        """Look now and then, until the watchdog ends."""
        while os.getppid() == self.post.watchdog:
            try:
                with Ledger.open(self.pipeline.root, create=True) as ledger:
                    self.turn(ledger)
            except (OSError, QueueError) as error:
                self._say(str(error))
            # A thousand of them look as often as thirty.
            time.sleep(_LOOK_EVERY * max(1.0, self._others / _MANY) * random.uniform(0.8, 1.2))

    def turn(self, ledger: Ledger) -> None:
        """Look once, and act."""
        with suppress(QueueError):
            # One with mistakes changes nothing.
            self.pipeline = read(self.post.file)
        if not self._arrived:
            self._arrive(ledger)
        request = self._request()
        if request is None or self._left:
            return
        if ledger.stopped:
            self._leave("watchdogd slurm stop")
        elif not self.own.chosen.drain:
            report = last_report(self.post.local)
            if ask(ledger, self.pipeline) and report is not None and report.state == "running":
                self._decide(ledger)
            self._consider(ledger, request, report)

    def _arrive(self, ledger: Ledger) -> None:
        """Note that the submission was made, whatever its submitter has heard of it."""
        if self.post.number:
            stands = ledger.end(self.post.number, f"job {self.post.job}")
            self.own = ledger.submission(self.post.number) or self.own
            if stands.startswith(VOID):
                # Others may have been submitted in its place.
                self._leave("its submission had been given up")
        if not ledger.stopped:
            notice(self.pipeline, "")
        self._arrived = True

    def _request(self) -> Request | None:
        """Return the group of this element; None where the file has none like it by now."""
        return next((one for one in requests(self.pipeline) if one.name == self.own.stage), None)

    # More

    def _decide(self, ledger: Ledger) -> None:
        """Submit what is missing, by what Slurm has said this moment."""
        latest, facts = ledger.latest(), ledger.facts()
        self._others = sum(one.count for one in facts.elements)
        if facts.error:
            self._say(facts.error)
            return
        if latest.now - latest.ended_at < _SHORT and latest.number not in {
            one.number for one in facts.elements
        }:
            return
        settled = settle(ledger, facts)
        if settled is not None:
            missing = needs(self.pipeline, ledger, facts)
            own, program = self.own.chosen, self.post.program
            for need, job in serve(self.pipeline, ledger, missing, settled, program, own):
                self._say(f"submitted {need.elements} more for {need.request.shown}: {job.end}")
        there = {one.host for one in facts.elements}
        ledger.forget_gone(there)
        tidy(self.pipeline.root, there, latest.now)

    # Fewer

    def _consider(self, ledger: Ledger, request: Request, report: HostReport | None) -> None:
        """Leave if there is nothing to do and enough others are there, or if too many are."""
        slurm, idle_for = request.slurm, self._idle.see(report, time.monotonic())
        idle = slurm.idle is not None and idle_for >= slurm.idle
        elements = ledger.facts().elements
        here = [one.host for one in elements if one.stage == request.name and _runs(one)]
        number, leaving = ledger.leaving()
        if self.post.host in leaving:
            # An attendant before this one has said so, and ended.
            self._leave("it has said so")
        if not idle and ledger.scaled(request.name) is None:
            # More than the file says are somebody's wish, until there is nothing to do.
            return
        limits = bounds(ledger, request)
        if self.post.host not in here or not may_leave(
            here, leaving, self.post.host, limits, idle=idle
        ):
            return
        # Of several who see the same, one makes the number; the others look again.
        if not ledger.leave(number + 1, self.post.host):
            return
        last = not {one.host for one in elements if _runs(one)} - {*leaving, self.post.host}
        if last:
            # First this, then the look: who submits looks at it afterwards.
            words = waiting_words(ledger.facts(), time.time()) or nothing_runs(self.pipeline)
            notice(self.pipeline, words)
        left = len({*here} - {*leaving, self.post.host})
        if idle and left < number_of(self.pipeline, ledger, request, look(self.pipeline)):
            # Something came meanwhile, or is still upstream: another would be submitted for it.
            if last:
                notice(self.pipeline, "")
            ledger.forget_leaving(number + 1)
            self._idle = Idle()
            return
        self._leave("nothing to do" if idle else "more elements than there are to be")

    def _leave(self, why: str) -> None:
        """Tell the watchdog to leave, once: a second signal would have documents given back."""
        report = last_report(self.post.local)
        leaves = report is not None and report.state in ("stopping", "stopped")
        if not (self._left or leaves) and os.getppid() == self.post.watchdog:
            self._left = True
            self._say(f"{self.post.host} leaves: {why}")
            os.kill(self.post.watchdog, signal.SIGTERM)

    def _say(self, words: str) -> None:
        if words != self._said:
            self._said = words
            print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {words}", file=sys.stderr, flush=True)


def _runs(element: Element) -> bool:
    return element.state == "running"


def main() -> None:
    """Look after the element whose post is on stdin."""
    Attendant(decode(sys.stdin.buffer.read(), Post)).run()


if __name__ == "__main__":
    main()
