"""A protocol is a table: in which state which event leads where. Data, and pure.

A state machine looks its next state up with `step`; a missing cell is the peer's mistake. The
pages of the protocols print the same rows.
"""

from collections.abc import Sequence
from typing import NamedTuple

from queuedriver.errors import LocalProtocolError, RemoteProtocolError


class Row(NamedTuple):
    """One line of a transition table."""

    state: str
    event: str
    # What tells this row from another of the same state and event; empty when there is one.
    when: str
    # What is done, in words.
    action: str
    to: str
    # Not in the protocol's own description: added here.
    ours: bool = False


class Table:
    """The rows of one role of one protocol."""

    def __init__(self, title: str, rows: Sequence[Row]) -> None:
        self.title = title
        self.rows = tuple(rows)
        self._cells = {(row.state, row.event, row.when): row for row in self.rows}
        if len(self._cells) < len(self.rows):
            raise ValueError(f"{title}: two rows for one state, event and condition")

    @property
    def states(self) -> tuple[str, ...]:
        """Every state, in the order in which the rows name them."""
        named = (state for row in self.rows for state in (row.state, row.to))
        return tuple(dict.fromkeys(named))

    def step(self, state: str, event: str, when: str = "") -> str:
        """The next state after what the peer did; RemoteProtocolError where it may not do that."""
        row = self._cells.get((state, event, when))
        if row is None:
            raise RemoteProtocolError(f"{event} is not allowed now ({state})")
        return row.to

    def own_step(self, state: str, event: str, when: str = "") -> str:
        """The same after what we did ourselves."""
        row = self._cells.get((state, event, when))
        if row is None:
            raise LocalProtocolError(f"{self.title}: no {event} {when} in {state}")
        return row.to

    def allows(self, state: str, event: str) -> bool:
        """Whether there is a row, whatever its condition."""
        return any((row.state, row.event) == (state, event) for row in self.rows)
