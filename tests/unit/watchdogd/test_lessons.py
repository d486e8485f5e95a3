"""How long documents take is learned from the journal, in pieces."""

import os
from pathlib import Path

from queuedriver.disk.journal import Journal
from watchdogd.lessons import Lessons


def journal(queue: Path, driver: str = "a", max_bytes: int = 1 << 20) -> Journal:
    directory = queue / ".queuedriver/journal"
    directory.mkdir(parents=True, exist_ok=True)
    made = Journal(str(directory), driver, "rose")
    made.max_bytes = max_bytes
    return made


def note(where: Journal, *seconds: float, event: str = "published") -> None:
    for one in seconds:
        where.note(event, "doc", seconds=one)
    where.flush()


def learn(*queues: Path) -> Lessons:
    lessons = Lessons([str(queue) for queue in queues])
    lessons.learn()
    return lessons


def test_documents_that_went_well_are_learned_from_and_no_others(tmp_path: Path) -> None:
    ours = journal(tmp_path)
    note(ours, 1.0, 2.0)
    note(ours, 3.0, event="finished")
    note(ours, 100.0, event="failed")
    ours.note("published", "without")
    ours.close()
    assert learn(tmp_path).durations == [1.0, 2.0, 3.0]


def test_only_what_is_new_is_read(tmp_path: Path) -> None:
    ours = journal(tmp_path)
    note(ours, 1.0)
    lessons = learn(tmp_path)
    lessons.learn()
    note(ours, 2.0)
    lessons.learn()
    assert lessons.durations == [1.0, 2.0]
    ours.close()


def test_line_that_is_still_being_written_is_read_once_it_is_whole(tmp_path: Path) -> None:
    ours = journal(tmp_path)
    note(ours, 1.0)
    ours.close()
    path = tmp_path / ".queuedriver/journal/a.jsonl"
    line = path.read_bytes()
    with open(path, "ab") as file:
        file.write(line[:20])
    lessons = learn(tmp_path)
    assert lessons.durations == [1.0]
    with open(path, "ab") as file:
        file.write(line[20:])
    lessons.learn()
    assert lessons.durations == [1.0, 1.0]


def test_of_a_long_journal_its_end_will_do(tmp_path: Path) -> None:
    ours = journal(tmp_path)
    note(ours, *(float(number) for number in range(5000)))
    ours.close()
    assert learn(tmp_path).durations == [float(number) for number in range(4800, 5000)]


def test_rotated_journal_is_followed(tmp_path: Path) -> None:
    ours = journal(tmp_path, max_bytes=1)
    note(ours, 1.0)
    lessons = learn(tmp_path)
    note(ours, 2.0)
    lessons.learn()
    assert lessons.durations == [1.0, 2.0]
    assert len(os.listdir(tmp_path / ".queuedriver/journal")) == 2
    ours.close()


def test_all_drivers_of_all_queues_of_a_stage_teach_it(tmp_path: Path) -> None:
    for queue, driver, seconds in (("x", "a", 1.0), ("x", "b", 2.0), ("y", "a", 3.0)):
        ours = journal(tmp_path / queue, driver)
        note(ours, seconds)
        ours.close()
    assert learn(tmp_path / "x", tmp_path / "y").durations == [1.0, 2.0, 3.0]


def test_what_is_no_journal_is_no_trouble(tmp_path: Path) -> None:
    assert learn(tmp_path, tmp_path / "nowhere").durations == []
    directory = tmp_path / ".queuedriver/journal"
    directory.mkdir(parents=True)
    (directory / "a.jsonl").write_bytes(b"\xff\xfe\nrubbish\n{}\n" + b"x" * 100_000)
    (directory / "b.jsonl").symlink_to("/etc/passwd")
    (directory / "c.jsonl").mkdir()
    os.mkfifo(directory / "d.jsonl")
    lessons = learn(tmp_path)
    lessons.learn()
    assert lessons.durations == []
