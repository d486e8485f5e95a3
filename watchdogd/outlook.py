"""What there is to see of the queues, through eyes that may be silent, and what is told of it."""

from queuedriver.format.units import format_count
from watchdogd.events import Say
from watchdogd.helper import Helper
from watchdogd.messages import Message
from watchdogd.sight import Sight


class Outlook:
    """The eyes and what they have seen. Instants are monotonic, and arguments."""

    def __init__(self, lookout: Helper, say: Say) -> None:
        self.sight = Sight()
        # Whether all was well with the file system when it was last told; None: it never was.
        self.was_well: bool | None = None
        self._lookout = lookout
        self._say = say

    def well(self, now: float) -> bool:
        """Whether the file system of the queues answers, and is well."""
        return self.sight.known and not self.sight.trouble and not self._lookout.lost(now)

    def trouble(self, now: float) -> str:
        """What is wrong with it; empty while it is well."""
        if self._lookout.lost(now):
            return f"{self._lookout.brief.pipeline.root} does not answer"
        return self.sight.trouble

    def answered(self, now: float) -> bool:
        """Whether there is any answer: what was seen, or that nothing can be."""
        return self.sight.heard or self._lookout.lost(now)

    def listen(self, now: float) -> bool:
        """Take what the eyes have said, and tell of it; whether they have looked."""
        looked = False
        for message in self._lookout.receive(now):
            looked = self._take(message) or looked
        well = self.well(now)
        if well != self.was_well and self.answered(now):
            if not well:
                self._say("waiting-fs", self.trouble(now))
            elif self.was_well is not None:
                self._say("fs-well")
            self.was_well = well
        return looked

    def listen_to_the_end(self, patience: float) -> None:
        """Wait for the eyes' farewell, and take what they say before it."""
        for message in self._lookout.hear_out(patience):
            if message.snapshot is not None:
                self.sight.take(message.snapshot)

    def _take(self, message: Message) -> bool:
        if message.note:
            self._say("note", message.note)
        for one in message.recovered:
            what = f"{format_count(one.claims, 'claim')} of {one.queue}"
            gone = "".join(f"; {docid!r} is discarded" for docid in one.discarded)
            self._say("recovered", what + gone, queue=one.queue, count=one.claims)
        if message.snapshot is None:
            return False
        for queue, count in self.sight.take(message.snapshot).items():
            what = f"{format_count(count, 'document')} of {queue}"
            self._say("discarded", what, queue=queue, count=count)
        return True
