"""What control files ask of a watchdog: each thing once, and nothing from before it began. Pure."""

from typing import Literal

from watchdogd.messages import Controls, Request


class Requests:
    """What was asked for by the last look at the control files."""

    def __init__(self) -> None:
        # How to leave; empty while nothing asks for that.
        self.quit: Literal["", "drain", "now"] = ""
        # There is a QUIT from before this watchdog, whose start is the later wish.
        self.outdated = False
        # None before the first look.
        self._known: set[Request] | None = None

    def news(self, controls: Controls) -> list[Request]:
        """Return the requests that the look before did not find; of the first look none."""
        asked, before = set(controls.requests), self._known
        self.outdated = bool(controls.quit) and (before is None or self.outdated)
        self.quit = "" if self.outdated else controls.quit
        # Those that have been removed are forgotten.
        self._known = asked
        return [one for one in controls.requests if before is not None and one not in before]
