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
from watchdogd.report_file import last_report
from watchdogd.slurm.asking import ask, waiting_words
from watchdogd.slurm.elements import Element
from watchdogd.slurm.ledger import VOID, Facts, Ledger, Submission
from watchdogd.slurm.request import Request, requests
from watchdogd.slurm.scaling import Idle, may_leave
from watchdogd.slurm.submitting import (
    bounds,
    look,
    needs,
    nothing_runs,
    notice,
    settle,
    submit,
)

# From one look to the next, in seconds, spread so that those of many elements do not look together.
_LOOK_EVERY = 3.0
# So long before its time is over, whatever an element has at hand is given back.
_HURRY_BEFORE = 8.0


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
    # When its time is over; 0 while nobody has said so.
    ends_at: float = 0.0


class Attendant:
    """Looks after one element. Instants are in seconds since the epoch, as Slurm has them."""

    def __init__(self, post: Post) -> None:
        self.post = post
        self.pipeline = read(post.file)
        # What it was submitted as.
        self.own = Submission(number=post.number)
        self._idle = Idle()
        # Signals that were sent, so that none is sent twice for one cause.
        self._told: set[str] = set()
        self._said = ""

    def run(self) -> None:
        """Look now and then, until the watchdog ends."""
        while os.getppid() == self.post.watchdog:
            try:
                with Ledger.open(self.pipeline.root, create=True) as ledger:
                    self.turn(ledger)
            except (OSError, QueueError) as error:
                self._say(str(error))
            time.sleep(_LOOK_EVERY * random.uniform(0.8, 1.2))

    def turn(self, ledger: Ledger) -> None:
        """Look once, and act."""
        with suppress(QueueError):
            # One with mistakes changes nothing.
            self.pipeline = read(self.post.file)
        self._hurry(ledger.facts())
        if "arrived" not in self._told:
            self._arrive(ledger)
        request = self._request()
        if request is None or "leave" in self._told:
            return
        if ledger.stopped:
            self._leave("leave", "watchdogd slurm stop")
        elif not self.own.chosen.drain:
            if ask(ledger, self.pipeline):
                self._decide(ledger)
            self._consider(ledger, request)

    def _arrive(self, ledger: Ledger) -> None:
        """Note that the submission was made, whatever its submitter has heard of it."""
        if self.post.number:
            stands = ledger.end(self.post.number, f"job {self.post.job}")
            self.own = ledger.submission(self.post.number) or self.own
            if stands.startswith(VOID):
                # Others may have been submitted in its place.
                self._leave("leave", "its submission had been given up")
        if not ledger.stopped:
            notice(self.pipeline, "")
        self._told.add("arrived")

    def _request(self) -> Request | None:
        """Return the group of this element; None where the file has none like it by now."""
        return next((one for one in requests(self.pipeline) if one.name == self.own.stage), None)

    # More

    def _decide(self, ledger: Ledger) -> None:
        """Submit what is missing, by what Slurm has said this moment."""
        latest, facts = ledger.latest(), ledger.facts()
        if facts.error or facts.asked_at <= (latest.ended_at or latest.began_at):
            if facts.error:
                self._say(facts.error)
            return
        settled = settle(ledger, facts)
        for need in needs(self.pipeline, ledger, facts) if settled else ():
            if settled is not None:
                settled = submit(
                    self.pipeline, ledger, settled, need, self.post.program, self.own.chosen
                )
        ledger.forget_gone([one.host for one in facts.elements])

    # Fewer

    def _consider(self, ledger: Ledger, request: Request) -> None:
        """Leave if there is nothing to do and enough others are there, or if too many are."""
        report, slurm = last_report(self.post.local), request.slurm
        idle_for = self._idle.see(report, time.monotonic())
        idle = slurm.idle is not None and idle_for >= slurm.idle
        elements = ledger.facts().elements
        here = [one.host for one in elements if one.stage == request.name and _runs(one)]
        number, leaving = ledger.leaving()
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
        if idle and any(look(self.pipeline, request).values()):
            notice(self.pipeline, "")
            ledger.forget_leaving(number + 1)
            self._idle = Idle()
            return
        self._leave("leave", "nothing to do" if idle else "more elements than there are to be")

    # The end

    def _hurry(self, facts: Facts) -> None:
        """Have the watchdog leave before its time is over, and at last at once."""
        own = (one.ends_at for one in facts.elements if one.host == self.post.host)
        ends_at = next(own, 0.0) or self.post.ends_at
        if ends_at and time.time() > ends_at - _HURRY_BEFORE - _LOOK_EVERY:
            self._leave("leave", "its time is over")
            self._leave("hurry", "its time is over")

    def _leave(self, how: str, why: str) -> None:
        if how not in self._told and os.getppid() == self.post.watchdog:
            self._told.add(how)
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
