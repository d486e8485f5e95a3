"""A protocol's table: a row says where an event leads, and a missing one whose mistake it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuedriver.doors.table import Row, Table
from queuedriver.errors import LocalProtocolError, RemoteProtocolError

WORDS = st.sampled_from(["a", "b", "c", "d"])
ROWS = st.lists(
    st.builds(Row, WORDS, WORDS, st.sampled_from(["", "full"]), st.just("acts"), WORDS),
    max_size=20,
    unique_by=lambda row: (row.state, row.event, row.when),
)


@given(ROWS, WORDS, WORDS, st.sampled_from(["", "full"]))
def test_table_leads_where_its_row_does_and_says_whose_mistake_a_missing_one_is(
    rows: list[Row], state: str, event: str, when: str
) -> None:
    table = Table("of a test", rows)
    found = [row.to for row in rows if (row.state, row.event, row.when) == (state, event, when)]
    if found:
        assert [table.step(state, event, when)] == found
        assert [table.own_step(state, event, when)] == found
    else:
        with pytest.raises(RemoteProtocolError, match=event):
            table.step(state, event, when)
        with pytest.raises(LocalProtocolError, match="of a test"):
            table.own_step(state, event, when)
    assert table.allows(state, event) == any(
        (one.state, one.event) == (state, event) for one in rows
    )


@given(ROWS)
def test_every_state_is_named_once_in_the_order_of_the_rows(rows: list[Row]) -> None:
    states = Table("t", rows).states
    assert len(set(states)) == len(states)
    assert set(states) == {row.state for row in rows} | {row.to for row in rows}
    if rows:
        assert states[0] == rows[0].state


def test_two_rows_for_one_cell_are_refused() -> None:
    rows = [Row("a", "x", "", "one thing", "b"), Row("a", "x", "", "another", "c")]
    with pytest.raises(ValueError, match="two rows"):
        Table("t", rows)
