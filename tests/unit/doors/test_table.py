"""A protocol's table: a row says where an event leads, and a missing one whose mistake it is."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuedriver.doors.table import ELSE, SAME, Row, Table
from queuedriver.errors import LocalProtocolError, RemoteProtocolError

WORDS = st.sampled_from(["a", "b", "c", "d"])
CONDITIONS = st.sampled_from(["", "full"])
ROWS = st.lists(
    st.builds(Row, WORDS, WORDS, CONDITIONS, st.just("acts"), WORDS | st.just(SAME)),
    max_size=20,
    unique_by=lambda row: (row.state, row.event, row.when),
)


@given(ROWS, WORDS, WORDS, CONDITIONS)
def test_table_leads_where_its_row_does_and_says_whose_mistake_a_missing_one_is(
    rows: list[Row], state: str, event: str, when: str
) -> None:
    table = Table("of a test", rows)
    found = [row.to for row in rows if (row.state, row.event, row.when) == (state, event, when)]
    if found:
        to = state if found == [SAME] else found[0]
        assert table.step(state, event, when) == to
        assert table.own_step(state, event, when) == to
    else:
        with pytest.raises(RemoteProtocolError, match=event):
            table.step(state, event, when)
        with pytest.raises(LocalProtocolError, match="of a test"):
            table.own_step(state, event, when)


def test_row_of_several_states_is_a_row_of_each() -> None:
    table = Table("t", [Row("a | b", "x", "", "acts", "c"), Row("b | c", "y", "", "acts", SAME)])
    assert [table.step(state, "x") for state in "ab"] == ["c", "c"]
    assert [table.step(state, "y") for state in "bc"] == ["b", "c"]
    with pytest.raises(RemoteProtocolError):
        table.step("a", "y")


@pytest.mark.parametrize("state", ["a", "b | a"])
def test_two_rows_for_one_cell_are_refused(state: str) -> None:
    rows = [Row("a", "x", "", "one thing", "b"), Row(state, "x", "", "another", "c")]
    with pytest.raises(ValueError, match="two rows"):
        Table("t", rows)


# Rows without an event


CHAIN = Table(
    "a chain",
    [
        Row("begin", "", "", "greet", "waits"),
        Row("waits", "told", "", "", "choose"),
        Row("choose", "", "it may", "do it", "waits"),
        Row("choose", "", ELSE, "do nothing", "rest"),
        Row("rest", "told", "", "", "end"),
        Row("end", "", "", "leave", "the end"),
    ],
)


def test_rows_without_an_event_are_followed_at_once_by_the_condition_that_holds() -> None:
    assert CHAIN.rest("begin") == "waits"
    assert CHAIN.step("waits", "told") == "rest"
    assert CHAIN.step("waits", "told", then="it may") == "waits"
    assert CHAIN.own_step("rest", "told") == "the end"
    assert CHAIN.rest("the end") == "the end"


def test_table_counts_its_rows_when_somebody_asks_for_it() -> None:
    table = Table("t", CHAIN.rows)
    table.step("waits", "told")
    assert table.stepped is None
    table.stepped = Counter()
    table.step("waits", "told")
    table.step("waits", "told", then="it may")
    with pytest.raises(RemoteProtocolError):
        table.step("rest", "other")
    assert table.stepped == {
        ("waits", "told", ""): 2,
        ("choose", "", ELSE): 1,
        ("choose", "", "it may"): 1,
    }
