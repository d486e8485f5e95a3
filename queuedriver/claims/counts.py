"""How many items of a queue are in each state, and what one pass over it saw. Pure."""

from typing import Self

import msgspec

from queuedriver.format import names
from queuedriver.format.names import Item


class Counts(msgspec.Struct, kw_only=True):
    """How many items of a queue are in each state; `due` are those of `later` whose time has
    come."""

    ready: int = 0
    failed: int = 0
    later: int = 0
    working: int = 0
    written: int = 0
    writing: int = 0
    discarded: int = 0
    failed_twice: int = 0
    due: int = 0
    foreign: int = 0
    # The earliest instant at which something postponed is due; 0 when nothing is.
    next_due: int = 0

    @property
    def waiting(self) -> int:
        """Return how many a driver could claim now."""
        return self.ready + self.failed + self.due

    @property
    def claimed(self) -> int:
        """Return how many drivers have in hand."""
        return self.working + self.written

    @property
    def unfinished(self) -> int:
        """Return how many may still become work here."""
        return self.ready + self.failed + self.later + self.working + self.written + self.writing

    @property
    def only_later(self) -> bool:
        """Return whether nothing can be done yet: another may be at work on what was due."""
        return self.unfinished == self.later > 0 and not self.due

    def see(self, name: str, item: Item | None, now: float) -> None:
        """Count a name. `now` is in seconds since the epoch."""
        if item is None:
            self.foreign += not names.is_reserved(name)
            return
        setattr(self, item.state, getattr(self, item.state) + 1)
        if item.state == names.LATER and item.due <= now:
            self.due += 1
        elif item.state == names.LATER:
            self.next_due = min(self.next_due or item.due, item.due)

    def __add__(self, other: Self) -> Self:
        sums = {one: getattr(self, one) + getattr(other, one) for one in self.__struct_fields__}
        dues = filter(None, (self.next_due, other.next_due))
        return type(self)(**sums | {"next_due": min(dues, default=0)})


class Pass(Counts, kw_only=True):
    """What one pass over a queue saw. A `.ready` name is counted before anybody looks at it more
    closely: that is done when it is tried."""

    # Names of claims.
    claims: list[str] = msgspec.field(default_factory=list)
    # Items that wait, and that this pass left to other drivers.
    left: int = 0
    # Items that the operating system does not let us claim.
    refused: int = 0
    # Names that were given to be tried, those of them that were not to be had, and those of these
    # that others were faster to take.
    given: int = 0
    missed: int = 0
    lost: int = 0

    @property
    def got(self) -> int:
        """Return how many names were to be had."""
        return self.given - self.missed
