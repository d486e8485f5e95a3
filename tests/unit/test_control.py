"""Files steer a pipeline; what they say is understood, or a note says what would be right."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuedriver.errors import BadArgument, NotFound
from queuedriver.filesystem import Directory
from watchdogd import control
from watchdogd.control import parse_quit, parse_request, parse_scale, request_name, rescaled
from watchdogd.snapshot import Controls, Request

SERIAL = "0605d3a1f2b0c05a17"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "queues"
    (path / ".watchdogd/hosts").mkdir(parents=True)
    return path


@pytest.fixture
def directory(root: Path) -> Iterator[Directory]:
    with closing(Directory.open(root / ".watchdogd")) as opened:
        yield opened


# What the files say


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
        # What names the host outdoes what names none, in whichever order.
        ("parse=4@rose\nparse=2", {"parse": 4}),
        ("parse=2\nparse=auto@rose", {"parse": None}),
        ("parse=2\nparse=7@lily", {"parse": 2}),
        ("word-count.2=3", {"word-count.2": 3}),
    ],
)
def test_scale_says_how_many_drivers_each_stage_has_on_this_host(
    text: str, numbers: dict[str, int | None]
) -> None:
    assert parse_scale(text, "rose") == (numbers, [])


@pytest.mark.parametrize(
    "line", ["parse", "parse=", "parse=-1", "parse=many", "=4", "parse=4@", "parse=99999", "a b=1"]
)
def test_line_that_is_not_understood_is_noted_and_the_others_count(line: str) -> None:
    numbers, notes = parse_scale(f"scan=1\n{line}\nstore=2", "rose")
    assert numbers == {"scan": 1, "store": 2}
    (note,) = notes
    assert line in note
    assert "stage=4" in note


@given(st.text())
def test_whatever_stands_in_scale_nothing_breaks(text: str) -> None:
    numbers, notes = parse_scale(text, "rose")
    assert all(number is None or number >= 0 for number in numbers.values())
    assert all(note.isprintable() for note in notes)


@pytest.mark.parametrize(
    ("wanted", "host", "after"),
    [
        ({"parse": 5}, None, "# ours\nscan=1\nparse=2@lily\nparse=5\n"),
        ({"parse": None}, None, "# ours\nscan=1\nparse=2@lily\n"),
        ({"parse": 7}, "lily", "# ours\nparse=4\nscan=1\nparse=7@lily\n"),
        ({"parse": None}, "lily", "# ours\nparse=4\nscan=1\nparse=auto@lily\n"),
        ({"store": 3, "scan": 2}, None, "# ours\nparse=4\nparse=2@lily\nstore=3\nscan=2\n"),
    ],
)
def test_other_numbers_leave_the_rest_of_scale_as_it_is(
    wanted: dict[str, int | None], host: str | None, after: str
) -> None:
    assert rescaled("# ours\nparse=4\nscan=1\nparse=2@lily\n", wanted, host) == after


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
    (here / "scale").write_text("parse=3\nscan=9@lily\n")
    (here / f"restart-parse-{SERIAL}").touch()
    (here / f"restart-scan@lily-{SERIAL}").touch()
    (here / f"restart-scan@rose-{SERIAL}").touch()
    (here / "reload-1731942000").touch()
    (here / ".aside-1-2-3").touch()
    (here / "landmark").touch()
    assert control.read(directory, "rose") == Controls(
        paused=True,
        quit="now",
        scale={"parse": 3},
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


@pytest.mark.parametrize("name", ["QUIT", "scale"])
@pytest.mark.parametrize("dressed", ["symlink", "fifo", "socket", "directory", "huge", "binary"])
def test_nothing_that_is_put_there_can_stop_the_eyes(
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


def test_stage_is_paused_where_it_takes_from(root: Path) -> None:
    for name in ("urgent", "normal"):
        (root / name).mkdir()
    control.pause(str(root), ["urgent", "normal"])
    assert os.listdir(root / "urgent") == os.listdir(root / "normal") == ["PAUSE"]
    control.resume(str(root), ["urgent", "normal"])
    assert os.listdir(root / "urgent") == []


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
