"""What may befall the file system below a front door, and what it costs."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from queuedriver.errors import NotFound
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
        assert door.charged() == {}


def test_output_that_is_moved_away_costs_time_alone(door: Door) -> None:
    door.broker()
    door.bring("doc", "next")
    worker = door.worker()
    dealt = worker.gets_one()
    (door.root / "out").rename(door.root / "moved")
    worker.answers(dealt)
    door.turns()
    assert not (door.root / "out").exists()
    (door.root / "moved").rename(door.root / "out")
    door.until(lambda: answers_all(door, worker), "both are published")
    assert door.leave() == 0
    assert door.account() == []
    assert door.charged() == {}


def test_input_that_is_moved_away_ends_the_broker_and_costs_nothing(door: Door) -> None:
    door.broker()
    door.bring("doc", "next")
    worker = door.worker()
    worker.gets_one()
    (door.root / "in").rename(door.root / "moved")
    door.until(lambda: answers_to_the_end(door, worker), "it ends")
    assert door.ended() == NotFound.exit_code
    assert not (door.root / "in").exists()
    (door.root / "moved").rename(door.root / "in")
    door.broker()
    worker = door.worker("another")
    door.until(lambda: answers_all(door, worker), "both are published")
    assert door.leave() == 0
    assert door.account() == []
    assert door.charged() == {}


def answers_all(door: Door, worker: Worker) -> bool:
    """Answer whatever the worker has; return whether all is published."""
    for dealt in worker.look().in_hand[:]:
        worker.answers(dealt)
    return len(door.published()) == len(door.submitted)


def answers_to_the_end(door: Door, worker: Worker) -> bool:
    """Answer whatever the worker has; return whether the broker has ended."""
    answers_all(door, worker)
    return not door.runs
