"""What roundrobin's consoles show, and how they hear what is typed."""

import os
from collections.abc import Iterator

import pytest

from queuedriver.doors.roundrobin.broker import Worker
from queuedriver.doors.roundrobin.console import PARALLEL, Bulk, Terminal, table


class Ends:
    """A terminal's other ends."""

    def __init__(self) -> None:
        reads, self._keyboard = os.pipe()
        self._screen, writes = os.pipe()
        self.terminal = Terminal(0, reads, writes)
        self._ours = [reads, writes, self._screen]

    def types(self, text: bytes) -> list[list[str]]:
        os.write(self._keyboard, text)
        return list(self.terminal.lines())

    def ends(self) -> list[list[str]]:
        os.close(self._keyboard)
        self._keyboard = -1
        return list(self.terminal.lines())

    def shown(self) -> bytes:
        return os.read(self._screen, 65536)

    def close(self) -> None:
        self.terminal.close()
        for fd in (*self._ours, self._keyboard):
            if fd >= 0:
                os.close(fd)


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = Ends()
    yield made
    made.close()


def test_lines_are_heard_when_they_are_whole_and_never_waited_for(ends: Ends) -> None:
    assert list(ends.terminal.lines()) == []
    assert ends.types(b"bulk") == []
    assert ends.types(b"ping 10\n\nwork") == [["bulkping", "10"], []]
    assert ends.types(b"ers\n\xff\n") == [["workers"], ["�"]]


def test_line_that_never_ends_is_forgotten(ends: Ends) -> None:
    for _ in range(40):
        ends.types(b"x" * 4000)
    assert [len(words[0]) < 70_000 for words in ends.types(b"\n")] == [True]


def test_end_of_the_input_is_quit_and_is_said_once(ends: Ends) -> None:
    assert ends.ends() == [["quit"]]
    assert list(ends.terminal.lines()) == []


def test_words_that_come_by_themselves_leave_the_prompt_below_them(ends: Ends) -> None:
    ends.terminal.say("first")
    ends.terminal.prompt()
    ends.terminal.prompt()
    ends.terminal.say("second")
    ends.types(b"workers\n")
    ends.terminal.say("third")
    ends.terminal.prompt()
    assert ends.shown() == b"first\n> \rsecond\n> third\n> "


def test_table_of_workers_shows_addresses_and_free_slots_and_marks_children() -> None:
    workers = [Worker(b"tcp://h:1:a", 0.0, free=10), Worker(b"tcp://h:1:a.1", 0.0, free=9)]
    assert table(workers) == [
        "worker_table[ 0] = { address = tcp://h:1:a free_slots = 10 }",
        "worker_table[ 1] = { address = tcp://h:1:a.1 free_slots = 9 } (child)",
    ]
    assert table([]) == ["no workers are registered"]


def test_bulk_has_ten_under_way_marks_each_tenth_and_ends_with_a_table() -> None:
    bulk = Bulk("PING", lambda now: (b"", []), 100, single=False)
    most, marks = 0, 0
    while not bulk.over:
        while bulk.more:
            bulk.asked += 1
        most = max(most, bulk.asked - bulk.ended)
        bulk.ended += 1
        bulk.good += bulk.ended != 50
        marks += bulk.at_a_mark()
    assert (most, marks) == (PARALLEL, 10)
    assert bulk.results() == [
        "type\t# total\t# success",
        "----\t-------\t---------",
        "PING\t    100\t       99",
    ]
