"""How many drivers operators want; what they write is understood, or a note says what is right."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdogd.scaling import (
    Numbers,
    form_name,
    form_number,
    parse_name,
    strangers,
    wanted_here,
)


@pytest.mark.parametrize(
    ("files", "numbers"),
    [
        ({}, {}),
        ({"scale-parse": "4"}, {"parse": 4}),
        ({"scale-parse": " 4 \n", "scale-scan": "0\n"}, {"parse": 4, "scan": 0}),
        ({"scale-parse": "4  # until Monday\n"}, {"parse": 4}),
        ({"scale-parse": "auto"}, {"parse": None}),
        ({"scale-parse@rose": "4"}, {"parse": 4}),
        ({"scale-parse@lily": "4"}, {}),
        # What names the host outdoes what names none.
        ({"scale-parse@rose": "4", "scale-parse": "2"}, {"parse": 4}),
        ({"scale-parse@rose": "auto", "scale-parse": "2"}, {"parse": None}),
        ({"scale-word-count.2": "3"}, {"word-count.2": 3}),
    ],
)
def test_each_number_is_a_file(files: dict[str, str], numbers: Numbers) -> None:
    assert wanted_here(files, "", "rose") == (numbers, [])


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("", {}),
        ("parse=4", {"parse": 4}),
        ("parse=4\nscan=0\n", {"parse": 4, "scan": 0}),
        (" parse = 4 \r\n\n# a word\nscan=2 # and another", {"parse": 4, "scan": 2}),
        ("parse=4\nparse=5", {"parse": 5}),
        ("parse=auto", {"parse": None}),
        ("parse=4@rose", {"parse": 4}),
        ("parse=4@lily", {}),
        ("parse=4@rose\nparse=2", {"parse": 4}),
        ("parse=2\nparse=auto@rose", {"parse": None}),
        ("word-count.2=3", {"word-count.2": 3}),
    ],
)
def test_numbers_may_be_lines_of_one_file(text: str, numbers: Numbers) -> None:
    assert wanted_here({}, text, "rose") == (numbers, [])


@pytest.mark.parametrize(
    ("files", "lines", "numbers"),
    [
        ({"scale-parse": "4"}, "parse=2\nscan=1", {"parse": 4, "scan": 1}),
        ({"scale-parse": "auto"}, "parse=2", {"parse": None}),
        ({"scale-parse@rose": "4"}, "parse=2@rose", {"parse": 4}),
        # The host comes first, wherever it is said.
        ({"scale-parse": "4"}, "parse=2@rose", {"parse": 2}),
    ],
)
def test_file_of_a_stage_outdoes_the_line_about_it(
    files: dict[str, str], lines: str, numbers: Numbers
) -> None:
    assert wanted_here(files, lines, "rose") == (numbers, [])


@pytest.mark.parametrize(
    "line", ["parse", "parse=", "parse=-1", "parse=many", "=4", "parse=4@", "parse=99999", "a b=1"]
)
def test_line_that_is_not_understood_is_noted_and_the_others_count(line: str) -> None:
    numbers, (note,) = wanted_here({}, f"scan=1\n{line}\nstore=2", "rose")
    assert numbers == {"scan": 1, "store": 2}
    assert line in note
    assert "stage=4" in note


@pytest.mark.parametrize("text", ["", "-1", "many", "99999", "4 5", "parse=4", "\x1b[2J"])
def test_file_that_is_not_understood_is_noted_and_the_others_count(text: str) -> None:
    numbers, (note,) = wanted_here({"scale-parse": text, "scale-scan": "1"}, "", "rose")
    assert numbers == {"scan": 1}
    assert note.startswith("scale-parse: ")
    assert "it says 4, or auto" in note
    assert note.isprintable()


@given(st.text(), st.text())
def test_whatever_stands_there_nothing_breaks(text: str, lines: str) -> None:
    numbers, notes = wanted_here({"scale-parse": text}, lines, "rose")
    assert all(number is None or number >= 0 for number in numbers.values())
    assert all(note.isprintable() for note in [*notes, *strangers(numbers, ["parse"])])


@pytest.mark.parametrize(
    "name", ["scale", "scale-", "scale-@rose", "scale-a b", "scale-a=4", "scale-\udcff", "scales-a"]
)
def test_file_of_another_name_is_about_no_stage(name: str) -> None:
    assert parse_name(name) is None


_STAGES = st.from_regex(r"[a-z][a-z0-9_.-]{0,15}", fullmatch=True)
_HOSTS = st.just("") | st.from_regex(r"[a-z][a-z0-9.@-]{0,20}[a-z]", fullmatch=True)


@given(_STAGES, _HOSTS, st.none() | st.integers(0, 9999))
def test_what_is_written_is_what_is_read(stage: str, host: str, number: int | None) -> None:
    name = form_name(stage, host)
    assert parse_name(name) == (stage, host)
    assert wanted_here({name: form_number(number)}, "", host or "rose") == ({stage: number}, [])


def test_stages_that_there_are_not_are_named_with_those_that_there_are() -> None:
    assert strangers({"parse": 1, "prase": 2}, ["parse", "scan"]) == [
        "scale: no stage is called prase; there are: parse, scan"
    ]
    assert len(strangers(map(str, range(100)), [])) == 5
