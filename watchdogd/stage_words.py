"""The words for a stage, decided in one place for the watchdog and for `status`. Pure.

A stage has the word of the first row whose fact holds. Further rows may hold beside it, and count
all the same: what is paused while it is degraded gets no more drivers.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

if TYPE_CHECKING:
    from watchdogd.events import Kind


class Row(NamedTuple):
    """A fact of a stage: its word, its events, and its meaning for the drivers."""

    word: str
    then: str
    # What the fact comes with, and what it goes with.
    comes: str = "a look at its queues"
    goes: str = "another look"
    # Its drivers stay, and are started; and what waits in its queues is work for more of them.
    drivers: bool = True
    work: bool = True
    # What tells people of it, once.
    event: "Kind | None" = None


ROWS = (
    Row(
        "parting",
        "its drivers leave; then it is forgotten",
        comes="a reload of a file that does not have it",
        goes="a reload of a file that has it again",
        drivers=False,
        work=False,
    ),
    Row(
        "degraded",
        "an event says so, once; its other drivers go on",
        comes="a run of a driver that finished nothing",
        goes="a restart, a reload, or a trial that did well",
        event="degraded",
    ),
    Row(
        "paused",
        "its drivers finish what is at hand, and stay; it gets no more of them",
        comes="a look at its queues and at ``.watchdogd/``",
        work=False,
        event="paused",
    ),
    Row(
        "tripped",
        "its drivers stay, and try one document now and then; it gets no more of them",
        work=False,
        event="stage-tripped",
    ),
    Row(
        "quit",
        "its drivers finish what is at hand, and leave; none is started",
        drivers=False,
        work=False,
    ),
    Row(
        "done",
        "its drivers leave, after five minutes if they took long to load; none is started",
        comes="two looks at its queues that saw no item",
        goes="a look that sees one, or that its queues are open again",
        drivers=False,
        work=False,
        event="drained",
    ),
    Row(
        "late",
        "its drivers leave, each when nothing more fits its time; none is started",
        comes="``--until`` of its watchdog",
        goes="nothing: the watchdog leaves, too, when all its drivers have",
        drivers=False,
        work=False,
    ),
)


class Queue(Protocol):
    """A look at one queue that a stage takes from: the watchdog's, or that of `status`."""

    @property
    def paused(self) -> bool: ...
    @property
    def quit(self) -> bool: ...
    @property
    def tripped(self) -> str: ...


class StageFacts(NamedTuple):
    """The facts that hold of a stage, in the order of the rows. A text says why."""

    # The pipeline's file has it no more.
    parting: bool = False
    # So many of the drivers that it is to have are crash-looped (policy.is_degraded).
    degraded: str = ""
    # There is a PAUSE in all its inputs, or in `.watchdogd/`.
    paused: bool = False
    # It has stopped itself.
    tripped: str = ""
    # There is a QUIT in an input.
    quit: bool = False
    # All its inputs are closed and drained, or a drain is over.
    done: bool = False
    # What a driver would begin now would not be done in time.
    late: str = ""

    def with_inputs(self, inputs: Sequence[Queue | None], *, paused: bool) -> Self:
        """Return these with what a look at each of its inputs shows; None: not there yet. `paused`:
        the whole pipeline is."""
        seen = [one for one in inputs if one is not None]
        return self._replace(
            paused=paused or (0 < len(seen) == len(inputs) and all(one.paused for one in seen)),
            tripped=next((one.tripped for one in seen if one.tripped), ""),
            quit=any(one.quit for one in seen),
        )

    @property
    def word(self) -> tuple[str, str]:
        """Return the word and why; nothing while all is well."""
        for row, fact in self._holding:
            return row.word, fact if isinstance(fact, str) else ""
        return "", ""

    @property
    def news(self) -> list[tuple["Kind", str]]:
        """Return the events that tell of what holds, each with what there is to say."""
        return [
            (row.event, fact if isinstance(fact, str) else "")
            for row, fact in self._holding
            if row.event is not None
        ]

    @property
    def without_drivers(self) -> str:
        """Return why none of its drivers stays, and none is started, as its word or in words for
        people; empty while they do."""
        holding = ((row, fact) for row, fact in self._holding if not row.drivers)
        return next((fact if isinstance(fact, str) else row.word for row, fact in holding), "")

    @property
    def has_work(self) -> bool:
        """Return whether what waits in its queues is work for more drivers."""
        return all(row.work for row, _ in self._holding)

    @property
    def _holding(self) -> list[tuple[Row, object]]:
        """Return the rows whose facts hold."""
        if not any(self):
            # Nearly always, and it is asked several times a turn.
            return []
        return [(row, fact) for row, fact in zip(ROWS, self, strict=True) if fact]
