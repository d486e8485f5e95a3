"""Files steer a pipeline; what they say is understood, or a note says what would be right."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuedriver.disk.filesystem import Directory
from queuedriver.errors import BadArgument, NotFound
from watchdogd import control
from watchdogd.control import (
    parse_number,
    parse_quit,
    parse_request,
    parse_scale,
    request_name,
    scale_name,
)
from watchdogd.helper_messages import Controls, Request

SERIAL = "0605d3a1f2b0c05a17"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "queues"
    (path / ".watchdogd/hosts").mkdir(parents=True)
    return path


@pytest.fixture
def directory(root: Path) -> Iterator[Directory]:
    with Directory.open(root / ".watchdogd") as opened:
        yield opened


# What the files say


@pytest.mark.parametrize(
    ("text", "how", "noted"),
    [("", "drain", 0), ("now", "now", 0), (" now\n", "now", 0), ("NOW!", "drain", 1)],
)
def test_quit_says_how_to_leave(text: str, how: str, noted: int) -> None:
    found, notes = parse_quit(text)
    assert (found, len(notes)) == (how, noted)


@pytest.mark.parametrize(
    ("name", "request_", "host"),
    [
        (f"restart-parse-{SERIAL}", Request("restart", "parse", SERIAL), ""),
        (f"restart-parse-2-{SERIAL}", Request("restart", "parse-2", SERIAL), ""),
        (f"restart-parse-2@rose-{SERIAL}", Request("restart", "parse-2", SERIAL), "rose"),
        (f"restart-parse@a-b.c.org-{SERIAL}", Request("restart", "parse", SERIAL), "a-b.c.org"),
        (f"reload-{SERIAL}", Request("reload", "", SERIAL), ""),
        # What `date +%s` and `date +%s%N` print.
        ("restart-parse-1731942000", Request("restart", "parse", "1731942000"), ""),
        ("reload-1731942000123456789", Request("reload", "", "1731942000123456789"), ""),
    ],
)
def test_request_is_what_its_files_name_says(name: str, request_: Request, host: str) -> None:
    assert parse_request(name) == (request_, host)
    assert request_name(request_, host) == name


@pytest.mark.parametrize(
    "name",
    [
        "restart-parse",
        "restart-parse-2",
        f"restart-{SERIAL}",
        f"reload-parse-{SERIAL}",
        "reload",
        "reload-",
        f"restarted-parse-{SERIAL}",
        f"restart-a\nb-{SERIAL}",
        f"restart-\udcff-{SERIAL}",
        "PAUSE",
        "",
    ],
)
def test_what_asks_for_nothing_is_no_request(name: str) -> None:
    assert parse_request(name) is None


# Targets and hosts as they may be: stages and drivers have no '@', and a name ends in no serial.
_TARGETS = st.from_regex(r"[a-z][a-z0-9_]{0,9}(-[0-9]{1,4})?", fullmatch=True)
_HOSTS = st.just("") | st.from_regex(r"[a-z][a-z0-9.-]{0,20}[a-z]", fullmatch=True)


@given(_TARGETS, _HOSTS, st.from_regex(r"[0-9a-f]{18}", fullmatch=True))
def test_request_is_found_again_in_the_name_it_is_given(
    target: str, host: str, serial: str
) -> None:
    asked = Request("restart", target, serial)
    assert parse_request(request_name(asked, host)) == (asked, host)


@pytest.mark.parametrize(
    "name", ["scale", "scale-", "scale-@rose", "scale-a b", "scale-a=4", "scale-\udcff", "scales-a"]
)
def test_file_of_another_name_is_about_no_stage(name: str) -> None:
    assert parse_scale(name) is None


_STAGES = st.from_regex(r"[a-z][a-z0-9_.-]{0,15}", fullmatch=True)
_PLACES = st.just("") | st.from_regex(r"[a-z][a-z0-9.@-]{0,20}[a-z]", fullmatch=True)


@given(_STAGES, _PLACES)
def test_number_is_about_the_stage_and_the_host_of_its_files_name(stage: str, host: str) -> None:
    assert parse_scale(scale_name(stage, host)) == (stage, host)


@pytest.mark.parametrize(
    ("text", "number"), [("4", 4), (" 0 \n", 0), ("4  # until Monday\n", 4), ("auto", None)]
)
def test_number_is_what_the_file_says(text: str, number: int | None) -> None:
    assert parse_number(text) == number


@given(st.text() | st.sampled_from(["", "-1", "many", "99999", "4 5", "parse=4", "\x1b[2J", "٣"]))
def test_whatever_else_the_file_says_is_explained(text: str) -> None:
    refusal = "it says 4, or auto"
    try:
        number = parse_number(text)
    except BadArgument as error:
        number, refusal = None, str(error)
    assert number is None or 0 <= number <= 9999
    assert "it says 4, or auto" in refusal
    assert refusal.isprintable()


@given(st.text(min_size=1))
def test_hosts_file_is_a_plain_file_name(host: str) -> None:
    name = control.host_file(host)
    assert 0 < len(name) <= 100
    assert name[0] != "."
    assert "/" not in name
    assert name.isascii()


# Reading the directory


def test_empty_directory_says_nothing(directory: Directory) -> None:
    assert control.read(directory, "rose") == Controls()


def test_everything_that_is_said_is_read(root: Path, directory: Directory) -> None:
    here = root / ".watchdogd"
    (here / "PAUSE").touch()
    (here / "QUIT").write_text("now\n")
    (here / "scale-parse").write_text("3\n")
    (here / "scale-scan@lily").write_text("9\n")
    (here / "scale-store").write_text("2\n")
    (here / "scale-scan").write_text("1")
    (here / "scale-store@rose").write_text("5  # for today\n")
    (here / "scale-store@lily").write_text("7\n")
    (here / f"restart-parse-{SERIAL}").touch()
    (here / f"restart-scan@lily-{SERIAL}").touch()
    (here / f"restart-scan@rose-{SERIAL}").touch()
    (here / "reload-1731942000").touch()
    (here / ".aside-1-2-3").touch()
    (here / "landmark").touch()
    quit_ = (here / "QUIT").stat()
    assert control.read(directory, "rose") == Controls(
        paused=True,
        quit="now",
        quit_at=quit_.st_mtime_ns,
        scale={"parse": 3, "scan": 1, "store": 5},
        requests=(
            Request("reload", "", "1731942000"),
            Request("restart", "parse", SERIAL),
            Request("restart", "scan", SERIAL),
        ),
    )


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("restart-parse-2", "touch .watchdogd/restart-parse-2-$(date +%s)"),
        ("reload", "touch .watchdogd/reload-$(date +%s)"),
        ("pause", "no control file"),
        ("scale", "right would be .watchdogd/scale-parse"),
        ("PAUSE.txt", "no control file"),
        ("\udcff\x1b[2J", "\\udcff\\x1b[2J is no control file"),
    ],
)
def test_file_that_says_nothing_is_noted_with_what_would_be_right(
    root: Path, directory: Directory, name: str, hint: str
) -> None:
    (root / ".watchdogd" / name).touch()
    (root / ".watchdogd/PAUSE").touch()
    found = control.read(directory, "rose")
    assert found.paused
    (note,) = found.notes
    assert hint in note
    assert note.isprintable()


@pytest.mark.parametrize("name", ["QUIT", "scale-parse"])
@pytest.mark.parametrize("dressed", ["symlink", "fifo", "socket", "directory", "huge", "binary"])
def test_nothing_that_is_put_there_can_stop_the_helper(
    root: Path, directory: Directory, name: str, dressed: str
) -> None:
    path = root / ".watchdogd" / name
    match dressed:
        case "symlink":
            path.symlink_to("/etc/passwd")
        case "fifo":
            os.mkfifo(path)
        case "socket":
            os.mknod(path, 0o140644)
        case "directory":
            path.mkdir()
        case "huge":
            with open(path, "wb") as file:
                file.truncate(1 << 40)
        case "binary":
            path.write_bytes(b"\xff\0" * 1000)
    (root / ".watchdogd/PAUSE").touch()
    found = control.read(directory, "rose")
    assert found.paused
    assert not found.scale
    if dressed in ("symlink", "socket", "directory"):
        (note,) = found.notes
        assert f"{name} cannot be read" in note
        assert found.quit == ""


def test_directory_full_of_rubbish_is_not_read_to_its_end(root: Path, directory: Directory) -> None:
    for number in range(1200):
        (root / f".watchdogd/rubbish-{number}").touch()
    found = control.read(directory, "rose")
    assert len(found.notes) == 10
    assert "more than 1000" in found.notes[0]


# The moves


def test_what_the_moves_write_is_what_is_read(root: Path, directory: Directory) -> None:
    path = str(root)
    control.pause(path)
    control.scale(path, {"parse": 4, "scan": 2})
    control.scale(path, {"parse": 1}, host="rose")
    control.stop(path)
    asked = [
        control.restart(path, "parse-2", 1_700_000_000_000_000),
        control.restart(path, "scan", 1_700_000_000_000_001, host="rose"),
        control.reload(path, 1_700_000_000_000_002),
    ]
    control.restart(path, "scan", 1_700_000_000_000_003, host="lily")
    found = control.read(directory, "rose")
    assert (found.paused, found.quit) == (True, "drain")
    assert found.scale == {"parse": 1, "scan": 2}
    assert set(found.requests) == set(asked)
    assert not found.notes
    control.resume(path)
    control.stop(path, now=True)
    control.scale(path, {"scan": None})
    found = control.read(directory, "rose")
    assert (found.paused, found.quit) == (False, "now")
    assert found.scale == {"parse": 1}


def test_two_who_change_two_numbers_at_one_moment_do_not_undo_each_other(
    root: Path, directory: Directory
) -> None:
    # Whoever is between his look and his change writes nothing of what the other says.
    before = control.read(directory, "rose").scale
    control.scale(str(root), {"parse": 4})
    control.scale(str(root), {**before, "scan": 2}, host="rose")
    control.scale(str(root), {"parse": 3}, host="lily")
    assert control.read(directory, "rose").scale == {"parse": 4, "scan": 2}
    assert control.read(directory, "lily").scale == {"parse": 3}


@pytest.mark.parametrize(
    ("files", "numbers"),
    [
        ({}, {}),
        ({"scale-parse": "4", "scale-scan": "0"}, {"parse": 4, "scan": 0}),
        ({"scale-parse": "auto"}, {"parse": None}),
        ({"scale-parse@rose": "4"}, {"parse": 4}),
        ({"scale-parse@lily": "4"}, {}),
        # What names the host outdoes what names none.
        ({"scale-parse@rose": "4", "scale-parse": "2"}, {"parse": 4}),
        ({"scale-parse@rose": "auto", "scale-parse": "2"}, {"parse": None}),
        ({"scale-word-count.2": "3"}, {"word-count.2": 3}),
        # What is not understood does not count.
        ({"scale-parse@rose": "many", "scale-parse": "2", "scale-scan": ""}, {"parse": 2}),
    ],
)
def test_each_number_is_a_file(
    root: Path, directory: Directory, files: dict[str, str], numbers: dict[str, int | None]
) -> None:
    for name, text in files.items():
        (root / ".watchdogd" / name).write_text(text)
    assert control.read(directory, "rose").scale == numbers


def test_number_that_is_not_understood_is_noted(root: Path, directory: Directory) -> None:
    (root / ".watchdogd/scale-parse").write_text("parse=4\n")
    (note,) = control.read(directory, "rose").notes
    assert note == ".watchdogd/scale-parse: parse=4 is not understood; it says 4, or auto"


def test_number_for_a_stage_that_there_is_not_is_noted(root: Path, directory: Directory) -> None:
    (root / ".watchdogd/scale-scan").write_text("2\n")
    (root / ".watchdogd/scale-sacn").write_text("1\n")
    # Another host's file may have other stages.
    (root / ".watchdogd/scale-other@lily").write_text("1\n")
    (note,) = control.read(directory, "rose", ["parse", "scan"]).notes
    assert note == ".watchdogd/scale-sacn: no stage is called sacn; there are: parse, scan"
    assert not control.read(directory, "rose").notes


def test_stage_is_paused_where_it_takes_from(root: Path) -> None:
    for name in ("urgent", "normal"):
        (root / name).mkdir()
    control.pause(str(root), ["urgent", "normal"])
    assert os.listdir(root / "urgent") == os.listdir(root / "normal") == ["PAUSE"]
    control.resume(str(root), ["urgent", "normal"])
    assert os.listdir(root / "urgent") == []


def test_pause_of_a_stage_outlasts_that_of_the_whole_pipeline(root: Path) -> None:
    (root / "urgent").mkdir()
    (root / "urgent/PAUSE").write_bytes(control.MARK)
    control.pause(str(root), ["urgent"])
    assert (root / "urgent/PAUSE").read_bytes() == b""


def test_two_requests_at_one_moment_are_two(root: Path) -> None:
    asked = {control.restart(str(root), "parse", 1_700_000_000_000_000) for _ in range(8)}
    # The salt has four digits, so that two may be alike; not all.
    assert len(asked) > 4


def test_move_without_a_root_says_so_and_makes_none(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="mounted"):
        control.pause(str(tmp_path / "queues"))
    with pytest.raises(NotFound, match="no directory"):
        control.pause(str(tmp_path), ["unknown"])
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("number", [-1, 10_000])
def test_number_that_cannot_be_meant_is_refused(root: Path, number: int) -> None:
    with pytest.raises(BadArgument, match="drivers"):
        control.scale(str(root), {"parse": number})
    assert os.listdir(root / ".watchdogd") == ["hosts"]
