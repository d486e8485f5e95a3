"""When a file is taken, by the facts of it and of its past."""

import pytest

from queuedriver.intake.options import IntakeOptions, fill
from queuedriver.intake.rules import (
    BESIDE,
    LONGEST,
    Facts,
    Refused,
    Waits,
    of_age,
    of_name,
    of_size,
    of_writers,
    remember,
    settling,
)

WHOLE = Facts(size=10, mtime_ns=1, ctime_ns=1, inode=1)
OPTIONS = IntakeOptions()


@pytest.mark.parametrize(
    "name",
    [
        *(".doc.pdf.XH5gDC", ".~tmp~/doc.pdf", "a/.hidden/b", "._scan.pdf", ".DS_Store"),
        *(".syncthing.x.tmp", ".in.x.", "x.filepart", "x.part", "x.pdf.ocTransferId123.part"),
        *("x.crdownload", "x.tmp", "~$letter.docx", "Thumbs.db", "@eaDir", "#recycle", "Icon\r"),
        *(".~lock.x.odt#", "x~", "~syncthing~x.tmp", ".goutputstream-1", "X.PART"),
    ],
)
def test_files_in_the_making_are_never_taken(name: str) -> None:
    assert of_name(name, OPTIONS)


@pytest.mark.parametrize("name", ["scan.pdf", "a b", "x.partial.pdf", "part", "Ünï.txt", "-rf"])
def test_other_names_are_wanted(name: str) -> None:
    assert not of_name(name, OPTIONS)


def test_the_glob_that_excludes_is_named() -> None:
    options = IntakeOptions(include=("*.pdf",), exclude=("a*", "b*", "c*"))
    assert of_name("cat.pdf", options) == "excluded by exclude[2], 'c*'"
    assert of_name("dog.txt", options) == "not included by '*.pdf'"
    assert not of_name("sub/dog.pdf", options)


def test_a_glob_with_a_slash_is_of_the_whole_path() -> None:
    options = IntakeOptions(exclude=("old/*",))
    assert of_name("old/a", options)
    assert not of_name("new/a", options)


@pytest.mark.parametrize(
    ("form", "marker"), [("{name}.done", "x.pdf.done"), ("{stem}.ok", "x.ok"), ("_OK", "_OK")]
)
def test_markers_are_no_documents(form: str, marker: str) -> None:
    assert of_name(marker, IntakeOptions(done=form)) == "it tells of other files"
    assert not of_name(marker, OPTIONS)


def test_what_lies_beside_a_file_in_the_making_is_known() -> None:
    beside = [fill(form, "x.pdf") for form in BESIDE]
    assert beside == ["x.pdf.part", "x.pdf.filepart", ".~lock.x.pdf#"]


@pytest.mark.parametrize("field", ["size", "mtime_ns", "ctime_ns", "inode"])
def test_whatever_changes_of_a_file_it_settles_anew(field: str) -> None:
    past = remember(None, WHOLE, 100.0)
    changed = WHOLE._replace(**{field: 7})
    past = remember(past, changed, 104.0)
    assert settling(past, 5.0, 106.0) == Waits("changed 2 s ago, 3 s more", 3.0)
    assert settling(past, 5.0, 109.0) is None


def test_a_write_that_puts_size_and_mtime_back_still_shows() -> None:
    past = remember(None, WHOLE, 100.0)
    assert remember(past, WHOLE._replace(ctime_ns=2), 104.0).since == 104.0


def test_a_file_that_comes_back_after_it_had_looked_settled_settles_for_twice_as_long() -> None:
    past = remember(None, WHOLE, 0.0)
    for times in range(1, 12):
        past = past._replace(looked_settled=True)
        past = remember(past, WHOLE._replace(size=10 + times), 100.0 * times)
        waits = settling(past, 5.0, 100.0 * times)
        assert waits is not None
        assert waits.seconds == min(5.0 * 2**times, LONGEST)


def test_who_settles_for_longer_than_the_bound_is_not_bounded() -> None:
    assert settling(remember(None, WHOLE, 0.0), 2 * LONGEST, 1.5 * LONGEST) is not None


def test_an_empty_file_waits_for_ever_unless_somebody_wants_it() -> None:
    empty = WHOLE._replace(size=0)
    past = remember(None, empty, 0.0)
    assert of_size(past, OPTIONS, 240.0) == Waits("empty for 4 min")
    assert of_size(past, IntakeOptions(min_size=0), 240.0) is None


def test_a_file_that_is_too_small_waits_and_one_that_is_too_large_is_refused() -> None:
    options = IntakeOptions(min_size=5, max_size=20)
    small, whole, large = (remember(None, WHOLE._replace(size=one), 0.0) for one in (4, 10, 21))
    assert isinstance(of_size(small, options, 0.0), Waits)
    assert of_size(whole, options, 0.0) is None
    assert isinstance(of_size(large, options, 0.0), Refused)


def test_age_is_by_the_last_writing() -> None:
    options = IntakeOptions(min_age=60.0, max_age=3600.0)
    assert str(of_age(WHOLE, options, 30.0)).startswith("Waits(why='min_age is 1 min'")
    assert of_age(WHOLE, options, 90.0) is None
    left = of_age(WHOLE, options, 7200.0)
    assert left is not None
    assert left.seconds is None


def test_only_that_somebody_has_it_open_is_believed() -> None:
    past = remember(None, WHOLE, 0.0)
    assert of_writers(past, "some", 30.0, 1000.0) is not None
    assert of_writers(past, "none", 30.0, 5.0) is None
    assert of_writers(past, "unknown", 30.0, 5.0) == Waits("changed 5 s ago, 25 s more", 25.0)
    assert of_writers(past, "unknown", 30.0, 30.0) is None
