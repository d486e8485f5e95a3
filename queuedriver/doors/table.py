"""A protocol is a table: in which state which event leads where. Data, and pure.

A session keeps the state of each of its peers, and looks the next one up with `step`; a missing row
is the peer's mistake, or (`own_step`) ours. A row without an event is followed at once. The pages
of the protocols print the same rows.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from queuedriver.errors import LocalProtocolError, RemoteProtocolError

# As a row's next state: the one it has been in.
SAME = "="
# The condition of the row that is followed where no other one's holds.
ELSE = "else"


class Row(NamedTuple):
    """One line of a transition table."""

    # One state, or several: "listed | busy".
    state: str
    # Empty: a step that is taken at once.
    event: str
    # What tells this row from another of the same state and event; empty when there is one.
    when: str
    # What is done, in words.
    action: str
    to: str
    # Not in the protocol's own description: added here.
    ours: bool = False


ours = partial(Row, ours=True)


class Table:
    """The rows of one role of one protocol."""

    # How often each row was stepped, by state, event and condition, for a test that wants to know.
    stepped: Counter[tuple[str, str, str]] | None = None

    def __init__(self, title: str, rows: Sequence[Row]) -> None:
        self.title = title
        self.rows = tuple(rows)
        self.cells = {
            (state, row.event, row.when): state if row.to == SAME else row.to
            for row in self.rows
            for state in row.state.split(" | ")
        }
        if len(self.cells) < sum(len(row.state.split(" | ")) for row in self.rows):
            raise ValueError(f"{title}: two rows for one state, event and condition")
        # States that nobody stays in.
        passed = (state for state, event, when in self.cells if not event and when in ("", ELSE))
        self._passed = frozenset(passed)

    def step(self, state: str, event: str, when: str = "", then: str = "") -> str:
        """Return the next state after what the peer did; RemoteProtocolError where it may not do
        that. `then` is the condition that holds of the rows without an event that follow."""
        to = self.cells.get((state, event, when))
        if to is None:
            raise RemoteProtocolError(f"{event} is not allowed now ({state})")
        if self.stepped is not None:
            self.stepped[state, event, when] += 1
        return self.rest(to, then) if to in self._passed else to

    def own_step(self, state: str, event: str, when: str = "", then: str = "") -> str:
        """Return the next state after what we did ourselves; LocalProtocolError where we may not
        do that."""
        try:
            return self.step(state, event, when, then)
        except RemoteProtocolError:
            raise LocalProtocolError(f"{self.title}: no {event} {when} in {state}") from None

    def rest(self, state: str, then: str = "") -> str:
        """Return where a state leads by rows without an event."""
        while state in self._passed:
            when = then
            if (state, "", when) not in self.cells:
                when = "" if (state, "", "") in self.cells else ELSE
            if self.stepped is not None:
                self.stepped[state, "", when] += 1
            state = self.cells[state, "", when]
        return state
