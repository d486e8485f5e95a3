"""What may befall the file system below a front door, and what it costs."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from tests.contract.door_peers import Worker
from tests.contract.door_scene import Door
from tests.disks import Disk


@contextmanager
def disk_of(door: Door) -> Iterator[Disk]:
    """Put the queues on a small file system of their own."""
    with closing(Disk(door.beside / "disk", "size=1m")) as disk:
        door.move_to(disk.path)
        try:
            yield disk
        finally:
            door.end()


def test_full_disk_costs_time_alone(door: Door) -> None:
    with disk_of(door) as disk:
        door.broker()
        door.bring("doc")
        worker = door.worker()
        dealt = worker.gets("doc")
        disk.fill()
        worker.answers(dealt)
        door.turns()
        assert door.published() == []
        disk.empty()
        door.until(lambda: answers_all(door, worker), "it is published")
        assert door.leave() == 0
        assert door.charges("doc") == 0


def test_output_that_is_moved_away_costs_time_alone(door: Door) -> None:
    moved_away_and_back(door, "out")


def test_input_that_is_moved_away_costs_time_alone(door: Door) -> None:
    moved_away_and_back(door, "in")


def moved_away_and_back(door: Door, queue: str) -> None:
    door.broker()
    door.bring("doc", "next")
    worker = door.worker()
    dealt = worker.gets_one()
    (door.root / queue).rename(door.root / "moved")
    worker.answers(dealt)
    door.turns()
    assert not (door.root / queue).exists()
    (door.root / "moved").rename(door.root / queue)
    door.until(lambda: answers_all(door, worker), "both are published")
    assert door.leave() == 0
    assert door.account() == []
    assert [door.charges(docid) for docid in ("doc", "next")] == [0, 0]


def answers_all(door: Door, worker: Worker) -> bool:
    """Answer whatever the worker has; return whether all is published."""
    for dealt in worker.look().in_hand[:]:
        worker.answers(dealt)
    return len(door.published()) == len(door.submitted)
