"""What people type as a duration or a size, and what they are shown."""

import math
import time
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from queuedriver.format.units import (
    MAX_DURATION,
    MAX_SIZE,
    format_count,
    format_duration,
    format_size,
    parse_duration,
    parse_instant,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        # As $SLURM_JOB_END_TIME has it.
        ("1795107600", 1_795_107_600),
        (" 1795107600.5 ", 1_795_107_600.5),
        ("2031-05-01 14:00+02:00", 1_935_403_200),
        ("2031-05-01T12:00:00Z", 1_935_403_200),
    ],
)
def test_an_instant_is_seconds_since_1970_or_a_date_with_a_time(text: str, seconds: float) -> None:
    assert parse_instant(text) == seconds


def test_an_instant_without_an_offset_is_in_local_time() -> None:
    assert parse_instant("2031-05-01 14:00") == time.mktime((2031, 5, 1, 14, 0, 0, 0, 0, -1))


@pytest.mark.parametrize(
    "text",
    ["", "90", "-1795107600", "1795107600000", "10min", "tomorrow", "2031-13-01", "1e9", "0"],
)
def test_what_is_no_instant_is_refused_with_what_would_be_right(text: str) -> None:
    with pytest.raises(ValueError, match=r"right would be '2031-05-01 14:00', or seconds since"):
        parse_instant(text)


@given(st.text(max_size=30))
def test_any_text_is_an_instant_or_refused(text: str) -> None:
    with suppress(ValueError):
        assert math.isfinite(parse_instant(text))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10min", 600),
        ("1h", 3600),
        ("90", 90),
        ("0", 0),
        ("1.5 h", 5400),
        ("500ms", 0.5),
        ("2 days", 172_800),
        ("3 min 20 s", 200),
        ("1h30m", 5400),
        (" 10 MIN ", 600),
        (".5s", 0.5),
        ("5.", 5),
        ("250 us", 250e-6),
        ("250 µs", 250e-6),
        ("250 \u03bcs", 250e-6),
        ("1 week", 604_800),
        ("20 s\t3 min\n", 200),
    ],
)
def test_a_duration_is_read_as_people_write_it(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "min", "ten min", "1,5 h", "10 parsecs", "1 5 h", "5 h 1", "1e3", "0x10"),
        *(
            "nan",
            "inf",
            "-inf",
            "infinity",
            "10min!",
            "1..5 h",
            ".",
            "1_000",
            "\uff11\uff10 s",
            "\u0663 s",
            "5 s\0",
        ),
        *("-5", "-5 min", "- 5 s", "5 -s", "+5"),
    ],
)
def test_what_is_no_duration_is_refused_with_what_was_given_and_what_is_right(text: str) -> None:
    with pytest.raises(ValueError, match="10 min") as caught:
        parse_duration(text)
    assert repr(text) in str(caught.value)


def test_an_unknown_unit_is_named() -> None:
    with pytest.raises(ValueError, match="no unit 'parsecs'"):
        parse_duration("10 parsecs")


def test_a_negative_duration_is_called_negative() -> None:
    with pytest.raises(ValueError, match="negative"):
        parse_duration("-5 min")


@pytest.mark.parametrize("text", ["5300 weeks", "9" * 20, "9" * 20 + " weeks", "5000 w 300 w"])
def test_no_duration_is_longer_than_a_century(text: str) -> None:
    with pytest.raises(ValueError, match="is longer than 100 years"):
        parse_duration(text)


def test_a_number_of_a_million_digits_is_refused_and_not_repeated_in_full() -> None:
    for parse in (parse_duration, parse_size):
        with pytest.raises(ValueError, match="…") as caught:
            parse("9" * 1_000_000)
        assert len(str(caught.value)) < 200


@given(st.text(max_size=30))
def test_any_text_is_a_duration_or_a_value_error(text: str) -> None:
    try:
        seconds = parse_duration(text)
    except ValueError:
        return
    assert 0 <= seconds <= MAX_DURATION


@given(st.text(alphabet="0123456789.kKmMgGiIbB -", max_size=12))
def test_any_text_is_a_size_or_a_value_error(text: str) -> None:
    try:
        size = parse_size(text)
    except ValueError:
        return
    assert 0 <= size <= MAX_SIZE


@given(st.integers(0, 10**9), st.sampled_from(["ms", "s", "min", "h", "d"]))
def test_space_and_case_do_not_matter(number: int, unit: str) -> None:
    try:
        expected = parse_duration(f"{number}{unit}")
    except ValueError:
        return
    assert parse_duration(f" {number} {unit.upper()} ") == expected


@given(st.floats(0, MAX_DURATION))
@example(1.25)
@example(0.00125)
@example(0.9996)
@example(0.0009996)
@example(9.96)
@example(59.7)
@example(3599.6)
@example(86_399.0)
def test_a_shown_duration_parses_to_what_was_shown(seconds: float) -> None:
    shown = format_duration(seconds)
    again = parse_duration(shown)
    # Half of the last digit shown, in each of the ranges that are shown alike.
    last = next(
        digit
        for below, digit in (
            (0.001, 1e-6),
            (0.01, 1e-4),
            (1.0, 1e-3),
            (10.0, 0.1),
            (3600.0, 1.0),
            (86_400.0, 60.0),
            (math.inf, 3600.0),
        )
        if seconds < below
    )
    assert abs(again - seconds) <= last * 0.501
    assert format_duration(again) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 s"),
        (1e-9, "0 s"),
        (0.00025, "250 us"),
        (0.0014, "1.4 ms"),
        (0.045, "45 ms"),
        (0.99999, "1 s"),
        (3.2, "3.2 s"),
        (3.0, "3 s"),
        (45.4, "45 s"),
        (59.7, "1 min"),
        (200, "3 min 20 s"),
        (3600, "1 h"),
        (3900, "1 h 5 min"),
        (86_399, "1 d"),
        (183_600, "2 d 3 h"),
        (-200, "-3 min 20 s"),
        (-1e-9, "0 s"),
        (math.inf, "unknown"),
        (math.nan, "unknown"),
    ],
)
def test_a_duration_is_shown_with_two_units_at_most(seconds: float, shown: str) -> None:
    assert format_duration(seconds) == shown


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("2GB", 2_000_000_000),
        ("600 MB", 600_000_000),
        ("1GiB", 1 << 30),
        ("1000", 1000),
        ("0", 0),
        ("12 bytes", 12),
        ("1.5 kB", 1500),
        ("1.5 KB", 1500),
        ("0.3 KiB", 307),
        ("2gb", 2_000_000_000),
        (".5 MiB", 524_288),
        ("9223372036854775807", MAX_SIZE),
        ("9.223372036854775807 PB", 9_223_372_036_854_775),
    ],
)
def test_a_size_is_read_as_people_write_it(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "GB",
        "two GB",
        "1,5 GB",
        "3 parsecs",
        "nan",
        "inf",
        "-1",
        "-5 MB",
        "1e9",
        "1 GB 2",
        ".",
    ],
)
def test_what_is_no_size_is_refused_with_what_was_given_and_what_is_right(text: str) -> None:
    with pytest.raises(ValueError, match="600 MB") as caught:
        parse_size(text)
    assert repr(text) in str(caught.value)


def test_a_unit_that_two_camps_read_differently_is_refused_with_both_readings() -> None:
    with pytest.raises(ValueError, match=r"right would be 1\.5 GB or 1\.5 GiB"):
        parse_size("1.5G")
    with pytest.raises(ValueError, match="right would be 10 kB or 10 KiB"):
        parse_size("10 k")


@pytest.mark.parametrize("text", ["9223372036854775808", "10000 PB", "99999999999999999999 TB"])
def test_a_size_no_file_can_have_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="more than a file can hold"):
        parse_size(text)


@given(st.integers(0, MAX_SIZE))
@example(999)
@example(1000)
@example(9_995)
@example(99_950)
@example(999_499)
@example(999_500)
def test_a_shown_size_parses_to_what_was_shown(size: int) -> None:
    shown = format_size(size)
    again = parse_size(shown)
    assert math.isclose(again, size, rel_tol=0.005)
    assert format_size(again) == shown


@given(st.integers(0, MAX_SIZE))
def test_a_plain_number_of_bytes_is_exact(size: int) -> None:
    assert parse_size(str(size)) == size


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (1500, "1.5 kB"),
        (600_000_000, "600 MB"),
        (999_500, "1 MB"),
        (1 << 30, "1.07 GB"),
        (12_345_678, "12.3 MB"),
        (-1500, "-1.5 kB"),
        (10**19, "10000 PB"),
    ],
)
def test_a_size_is_shown_with_three_digits(size: int, shown: str) -> None:
    assert format_size(size) == shown


def test_a_count_agrees_with_its_noun() -> None:
    assert format_count(0, "document") == "0 documents"
    assert format_count(1, "document") == "1 document"
    assert format_count(20_000, "document") == "20,000 documents"
    assert format_count(2, "discarded copy", "discarded copies") == "2 discarded copies"
