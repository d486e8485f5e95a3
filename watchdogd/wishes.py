"""What is asked of a watchdog, by signals and by files. Of what files ask, each thing once, and
nothing that was asked before the watchdog began. Pure."""

from watchdogd.messages import Controls, Request
from watchdogd.signals import Signals

# Serials that are published: whoever asked may be waiting to hear of it.
_MOST_SERVED = 10


class Wishes:
    """What is wished now, and what of it is news."""

    def __init__(self, signals: Signals) -> None:
        # The serials of the latest requests that were dealt with.
        self.served: tuple[str, ...] = ()
        self._signals = signals
        self._controls = Controls()
        # None before the first look: what it finds is none of this watchdog's business.
        self._known: set[Request] | None = None
        self._may_quit = False

    def learn(self, controls: Controls) -> bool:
        """The latest look; whether it found a QUIT that is older than the wish for a watchdog."""
        outdated = self._known is None and bool(controls.quit)
        self._controls = controls
        self._may_quit = self._may_quit or not controls.quit
        if self._known is None:
            self._known = set(controls.requests)
        return outdated

    @property
    def leaving(self) -> str:
        """What says that it is to leave; empty while nothing does."""
        if self._signals.leaving_at:
            return "a signal"
        return "a QUIT file" if self._may_quit and self._controls.quit else ""

    @property
    def hurried(self) -> bool:
        """Whether at once."""
        return self._signals.hurried or (self._may_quit and self._controls.quit == "now")

    def reload(self) -> bool:
        """Whether a signal asks to read the pipeline's file again; once."""
        asked, self._signals.reload = self._signals.reload, False
        return asked

    def news(self) -> list[Request]:
        """Requests that nobody has been told of yet."""
        if self._known is None:
            return []
        found = [one for one in self._controls.requests if one not in self._known]
        # Those that have been removed are forgotten.
        self._known = set(self._controls.requests)
        return found

    def serve(self, *serials: str) -> None:
        """These have been dealt with."""
        self.served = (*self.served, *serials)[-_MOST_SERVED:]
