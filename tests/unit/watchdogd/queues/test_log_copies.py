"""Logs and events are copied whole, in order, and across rotations, to where all can see them."""

import os
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from queuedriver.disk.filesystem import Directory
from watchdogd.logs import rotate
from watchdogd.queues.log_copies import Copies


class Place:
    """A watchdog's local directory, and the control directory that all see."""

    def __init__(self, root: Path) -> None:
        self.local = root / "local"
        (self.local / "logs").mkdir(parents=True)
        self.control = root / ".watchdogd"
        self.control.mkdir()
        self.log = self.local / "logs/parse-1.log"
        self.copy = self.control / "logs/rose/parse-1.log"
        self.made = Copies(str(self.local), "rose")

    def turn(self, times: int = 1) -> None:
        with Directory.open(self.control) as directory:
            for _ in range(times):
                self.made.turn(directory)

    def write(self, text: str) -> None:
        with open(self.log, "a") as file:
            file.write(text)

    def rotate(self) -> None:
        rotate(str(self.log), keep=5)

    def start_anew(self) -> None:
        self.made = Copies(str(self.local), "rose")

    def copies(self) -> dict[str, str]:
        return {one.name: one.read_text() for one in self.copy.parent.iterdir()}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_what_is_new_is_appended_to_the_copies(place: Place) -> None:
    place.write("one\n")
    (place.local / "events.jsonl").write_text("{}\n")
    place.turn()
    place.write("two\n")
    place.turn()
    assert place.copies() == {"parse-1.log": "one\ntwo\n"}
    assert (place.control / "events/rose.jsonl").read_text() == "{}\n"


def test_copy_is_rotated_when_the_log_was(place: Place) -> None:
    place.write("one\n")
    place.turn()
    place.write("two\n")
    place.rotate()
    place.write("three\n")
    place.turn(times=3)
    assert place.copies() == {"parse-1.log.1": "one\ntwo\n", "parse-1.log": "three\n"}


def test_what_is_still_written_to_a_rotated_log_is_copied(place: Place) -> None:
    place.write("one\n")
    with open(place.log, "a") as old:
        place.rotate()
        place.write("two\n")
        place.turn()
        print("late", file=old)
    place.turn(times=3)
    assert place.copies() == {"parse-1.log.1": "one\nlate\n", "parse-1.log": "two\n"}


def test_log_that_was_rotated_more_than_once_meanwhile_is_copied_whole(place: Place) -> None:
    place.write("1\n")
    place.turn()
    for number in range(2, 5):
        place.rotate()
        place.write(f"{number}\n")
    place.turn(times=10)
    assert place.copies() == {
        "parse-1.log.3": "1\n",
        "parse-1.log.2": "2\n",
        "parse-1.log.1": "3\n",
        "parse-1.log": "4\n",
    }


def test_log_at_hand_is_copied_to_its_end_and_what_is_gone_is_left_out(place: Place) -> None:
    place.write("0\n")
    place.turn()
    place.write("end\n")
    for number in range(1, 9):
        place.rotate()
        place.write(f"{number}\n")
    place.turn(times=20)
    # Five rotated copies are kept here as they are there. Of 1 and 2 nobody knows any more, and of
    # the first, which was, only as long as there is room.
    assert place.copies() == {
        **{f"parse-1.log.{8 - number}": f"{number}\n" for number in range(3, 8)},
        "parse-1.log": "8\n",
    }


def test_log_that_was_rotated_out_of_existence_is_copied_to_its_end(place: Place) -> None:
    place.write("one\n")
    place.turn()
    place.write("two\n")
    place.log.unlink()
    place.write("three\n")
    place.turn(times=3)
    assert place.copies() == {"parse-1.log.1": "one\ntwo\n", "parse-1.log": "three\n"}


def test_other_file_with_the_same_inode_is_not_taken_for_the_one_at_hand(place: Place) -> None:
    place.write("one\n")
    place.turn()
    place.start_anew()
    # As if it were another file: the same inode, and nothing else.
    with open(place.log, "r+") as file:
        file.write("two\nthree\n")
    place.turn(times=3)
    assert place.copies() == {"parse-1.log.1": "one\n", "parse-1.log": "two\nthree\n"}


def test_next_helper_goes_on_where_the_last_one_was(place: Place) -> None:
    place.write("one\n")
    place.turn()
    place.start_anew()
    place.write("two\n")
    place.turn()
    place.rotate()
    place.start_anew()
    place.write("three\n")
    place.turn(times=3)
    assert place.copies() == {"parse-1.log.1": "one\ntwo\n", "parse-1.log": "three\n"}


def test_log_that_somebody_emptied_is_begun_anew(place: Place) -> None:
    place.write("one\n" * 10)
    place.turn()
    place.log.write_text("two\n")
    place.turn(times=2)
    assert place.copies() == {"parse-1.log.1": "one\n" * 10, "parse-1.log": "two\n"}


def test_copies_that_somebody_removed_are_made_again(place: Place) -> None:
    place.write("one\n")
    place.turn()
    shutil.rmtree(place.copy.parent)
    place.write("two\n")
    place.turn()
    assert place.copies() == {"parse-1.log": "one\ntwo\n"}


def test_copies_of_an_earlier_life_are_kept_beside_the_new(place: Place) -> None:
    place.copy.parent.mkdir(parents=True)
    place.copy.write_text("before\n")
    place.write("after\n")
    place.turn()
    assert place.copies() == {"parse-1.log.1": "before\n", "parse-1.log": "after\n"}


def test_turn_copies_so_much_and_the_next_the_rest(place: Place) -> None:
    text = "x" * 600_000
    place.write(text)
    place.turn()
    assert 0 < place.copy.stat().st_size < len(text)
    place.turn(times=3)
    assert place.copies() == {"parse-1.log": text}


def test_copy_that_cannot_be_written_is_said_and_hinders_no_other(place: Place) -> None:
    place.write("one\n")
    (place.control / "logs").mkdir()
    (place.control / "logs/rose").touch()
    (place.local / "events.jsonl").write_text("{}\n")
    place.turn()
    (why,) = place.made.amiss.values()
    assert "logs/rose/parse-1.log cannot be written: Not a directory" in why
    assert (place.control / "events/rose.jsonl").read_text() == "{}\n"
    (place.control / "logs/rose").unlink()
    place.turn()
    assert not place.made.amiss
    assert place.copies() == {"parse-1.log": "one\n"}


@pytest.mark.parametrize("dressed", ["symlink", "directory", "fifo"])
def test_what_is_in_the_way_of_a_copy_is_moved_out_of_it(
    place: Place, tmp_path: Path, dressed: str
) -> None:
    place.write("one\n")
    place.copy.parent.mkdir(parents=True)
    match dressed:
        case "symlink":
            place.copy.symlink_to(tmp_path / "elsewhere")
        case "directory":
            place.copy.mkdir()
        case "fifo":
            os.mkfifo(place.copy)
    place.turn()
    assert not (tmp_path / "elsewhere").exists()
    assert place.copy.read_text() == "one\n"
    assert os.path.lexists(f"{place.copy}.1")


def test_nothing_to_copy_is_no_trouble(place: Place) -> None:
    shutil.rmtree(place.local)
    place.turn()
    assert os.listdir(place.control) == []


def test_log_that_is_gone_is_forgotten(place: Place) -> None:
    place.write("one\n")
    place.turn()
    place.log.unlink()
    place.turn()
    assert os.listdir(place.local / "copying") == []


def test_crash_before_the_copy_was_rotated_puts_nothing_into_another_files_copy(
    place: Place,
) -> None:
    place.write("of the first\n")
    place.turn()
    place.rotate()
    place.write("of the second, which is longer\n")
    # The next file is at hand, and the copy is still that of the one before.
    os.link(place.log, place.local / "copying/aside")
    os.replace(place.local / "copying/aside", place.local / "copying/parse-1.log")
    place.start_anew()
    place.turn(times=3)
    assert place.copies() == {
        "parse-1.log.1": "of the first\n",
        "parse-1.log": "of the second, which is longer\n",
    }


def test_log_that_ends_as_the_one_before_it_is_not_taken_for_that(place: Place) -> None:
    # As a driver that fails at each start leaves them.
    for _ in range(3):
        place.write("the same\n" * 100)
        place.turn()
        place.start_anew()
        place.rotate()
    place.write("the same\n" * 200)
    place.turn(times=10)
    sizes = {name: len(text) for name, text in place.copies().items()}
    assert sizes == {
        "parse-1.log.3": 900,
        "parse-1.log.2": 900,
        "parse-1.log.1": 900,
        "parse-1.log": 1800,
    }


def test_nothing_is_read_or_written_for_a_log_that_was_copied_to_its_end(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write("one\n")
    place.turn(times=2)
    monkeypatch.setattr(os, "open", lambda *_, **__: pytest.fail("something is opened"))
    with closing(Directory(str(place.control), os.dup(0))) as directory:
        place.made.turn(directory)


def test_log_that_was_copied_to_its_end_costs_one_look_at_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"parse-{number}.log" for number in range(32)]
    for name in names:
        (place.local / "logs" / name).write_text("one\n")
    place.turn(times=3)
    looks: list[str] = []
    stat = os.stat

    def count(path: str, **more: bool) -> os.stat_result:
        looks.append(os.path.basename(path))
        return stat(path, **more)

    monkeypatch.setattr(os, "stat", count)
    place.turn()
    assert sorted(looks) == sorted(["events.jsonl", *names])
