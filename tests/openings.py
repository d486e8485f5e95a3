"""Input queues as those have them open who claim, or recover, in the tests' own process."""

import os

from queuedriver.claims.document import Target
from queuedriver.claims.input_queue import InputQueue
from queuedriver.claims.liveness import Heartbeat, Observer
from queuedriver.claims.recovery import Recoverer
from queuedriver.disk.filesystem import Directory
from queuedriver.disk.journal import Journal
from queuedriver.driving.setup import Opened
from queuedriver.format import names
from queuedriver.format.names import JOURNAL
from queuedriver.format.records import Counters, Registration
from queuedriver.format.settings import Settings
from queuedriver.operating.queue import Queue


def registrations(queue: Queue) -> list[Registration]:
    """What the drivers that registered say of themselves, alive or not."""
    owners = queue.drivers(Observer()).values()
    return [one.registration for one in owners if one.registration is not None]


def opened_with(queue: InputQueue) -> Opened:
    """What a driver or broker finds that registers, without a thread that shows that it lives."""
    mint, observer = queue.mint, Observer()
    said = Registration(id=mint.driver, salt=mint.salt, identity=observer.me, started_at=0.0)
    beats = Heartbeat(said, [queue.drivers], lambda: ("busy", "", Counters()))
    return Opened([queue], queue.targets, mint, observer, {}, (), beats)


def unregistered(found: Opened) -> Heartbeat:
    """Register nobody."""
    return found.beats


def open_queue(
    queue: Queue,
    targets: tuple[Target, ...],
    settings: Settings | None = None,
    *,
    archive: Directory | None = None,
    directory: Directory | None = None,
    observer: Observer | None = None,
    driver: str = "d",
    salt: str = "5a17",
) -> InputQueue:
    """A queue that is open for a driver that did not register; `directory` stands for its own."""
    journal = Journal(os.path.join(queue.private.path, JOURNAL), driver, "alpha")
    one = InputQueue(
        directory or queue.directory,
        queue.private,
        targets,
        settings or Settings(),
        names.Mint(driver, salt),
        journal,
        archive,
    )
    one.recoverer = Recoverer(one, observer or Observer())
    return one
