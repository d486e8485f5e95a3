"""The process beside the watchdog of an element: submits more elements, or lets this one leave.

    python -P -m watchdogd.slurm.attendant WATCHDOG FILE HOST LOCAL

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
from watchdogd.pipeline.read import read
from watchdogd.report import HostReport
from watchdogd.report_file import last_report
from watchdogd.slurm.ledger import Facts, Ledger
from watchdogd.slurm.request import Request, requests
from watchdogd.slurm.scaling import Idle, may_leave
from watchdogd.slurm.script import SUBMISSION, Submission
from watchdogd.slurm.squeue import ask
from watchdogd.slurm.submitting import (
    UnderWay,
    bounds,
    ended_at_once,
    look,
    number_of,
    submit_missing,
    tidy,
)

# From one look to the next, in seconds, spread so that those of many elements do not look together.
_LOOK_EVERY = 3.0
_MANY = 30
# Within so many seconds a watchdog that turns says something new; and until one looks again.
_SAYS_WITHIN = 10.0
_LOOK_AGAIN = 0.1


class Attendant:
    """Looks after one element: the process of its watchdog, the pipeline's file, what the watchdog
    is called, and where it keeps what is this host's."""

    def __init__(self, watchdog: int, file: str, host: str, local: str) -> None:
        self.watchdog, self.file, self.host, self.local = watchdog, file, host, local
        self.pipeline = read(file)
        # What it was submitted as: without number and stage where somebody wrote a script.
        self.own = Submission()
        with suppress(msgspec.DecodeError):
            self.own = msgspec.json.decode(os.environ.get(SUBMISSION, ""), type=Submission)
        self._idle = Idle()
        self._arrived = self._left = False
        # How many elements there are.
        self._count = 0
        self._said = ""

    def run(self) -> None:
        """Look now and then, until the watchdog ends."""
        while os.getppid() == self.watchdog:
            try:
                with Ledger.open(self.pipeline.root, create=True) as ledger:
                    self.turn(ledger)
            except (OSError, QueueError) as error:
                self._say(str(error))
            # A thousand of them look as often as thirty.
            time.sleep(_LOOK_EVERY * max(1.0, self._count / _MANY) * random.uniform(0.8, 1.2))

    def turn(self, ledger: Ledger) -> None:
        """Look once, and act."""
        with suppress(QueueError):
            # One with mistakes changes nothing.
            self.pipeline = read(self.file)
        if not self._arrived:
            self._arrive(ledger)
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
        if ask(ledger, self.pipeline) and report is not None and report.state == "running":
            self._submit(ledger, ledger.facts())
        self._consider(ledger, request, report)

    def _arrive(self, ledger: Ledger) -> None:
        """Note that the submission was made, whatever its submitter has heard of it."""
        job, number = os.environ.get("SLURM_JOB_ID", ""), self.own.number
        if number and not ledger.end(number, f"job {job}"):
            # Others may have been submitted in its place.
            self._leave("its submission had been given up")
        self._arrived = True

    # More

    def _submit(self, ledger: Ledger, facts: Facts) -> None:
        """Submit what is missing, by what Slurm has said this moment."""
        self._count = sum(one.count for one in facts.elements)
        if facts.error:
            self._say(facts.error)
            return
        if not ended_at_once(ledger, facts):
            with suppress(UnderWay):
                submit_missing(self.pipeline, ledger, facts, {self.own.stage: self.own}, self._say)
        tidy(self.pipeline.root, facts.elements, ledger.now())

    # Fewer

    def _consider(self, ledger: Ledger, request: Request, report: HostReport | None) -> None:
        """Leave if there is nothing to do and enough others are there, or if too many are."""
        slurm, idle_for = request.slurm, self._idle.note(report, time.monotonic())
        idle = slurm.idle is not None and idle_for >= slurm.idle
        limits = bounds(ledger, request)
        ours = [one for one in ledger.facts().elements if one.stage == request.name]
        if not may_leave(ours, self.host, limits.min if idle else limits.max):
            return
        if not idle:
            # More than the file says are somebody's wish, until there is nothing to do.
            if ledger.scaled(request.name) is not None:
                self._leave("more elements than there are to be")
            return
        number = number_of(self.pipeline, ledger, request, look(self.pipeline))
        if may_leave(ours, self.host, number):
            self._leave("nothing to do")
        else:
            # Something came meanwhile, or is still upstream: another would be submitted for it.
            self._idle = Idle()

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
