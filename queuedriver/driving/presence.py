"""How a driver, or a broker, comes and goes: its registration, its beats, its last word."""

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from io import FileIO

from queuedriver.claims.heartbeat import Heartbeat
from queuedriver.claims.lane import Lane
from queuedriver.claims.liveness import PAST, Counters, Registration
from queuedriver.disk.mounts import filesystem_type, is_network
from queuedriver.driving.limits import QUIT_FILE, Limits
from queuedriver.driving.plan import Quit
from queuedriver.driving.startup import Crew
from queuedriver.format import names
from queuedriver.operating.queue import Queue
from queuedriver.options import Options


def register(
    crew: Crew,
    options: Options,
    processor: str,
    report: Callable[[], tuple[str, str, Counters]],
    limits: Limits,
    dump: FileIO | None = None,
    *,
    broker: bool = False,
) -> Heartbeat:
    """Say that it is there, and go on saying it. Inside `assemble`, so that nobody else does."""
    network = any(is_network(filesystem_type(lane.queue.path)) for lane in crew.lanes)
    registration = Registration(
        id=crew.driver,
        salt=crew.salt,
        past=crew.past[:PAST],
        identity=crew.observer.me,
        processor=processor,
        inputs=tuple(lane.queue.path for lane in crew.lanes),
        outputs=tuple(target.directory.path for target in crew.targets),
        started_at=time.time(),
        dump=os.path.basename(dump.name) if dump is not None else "",
        broker=broker,
        network=network,
        batch=options.batch,
    )
    directories = [lane.drivers for lane in crew.lanes]

    def look() -> None:
        # The loop looks between documents, and a document may take hours.
        if any(lane.queue.directory.present(names.QUIT) for lane in crew.lanes):
            limits.leave("quit", QUIT_FILE)

    durable = any(lane.handoff.settings.durable for lane in crew.lanes)
    beats = Heartbeat(registration, directories, report, look, durable)
    beats.start()
    return beats


def cascade(crew: Crew) -> None:
    """Our inputs are done: so is an output all of whose feeds are."""
    now = time.time()
    for target in crew.targets:
        if target.publication.is_queue:
            with Queue.open(target.directory.path) as output:
                output.close_if_fed(now)


def forget_ended(lanes: Sequence[Lane]) -> None:
    """Nothing is left to be done: nor is there anything to remember of it."""
    with contextlib.suppress(OSError):
        for lane in lanes:
            lane.recoverer.forget_ended()


def say_goodbye(crew: Crew, beats: Heartbeat, end: Quit) -> None:
    """The last word, so that nobody takes our absence for a crash; on a file system that is not
    well, it has to be noticed without."""
    with contextlib.suppress(OSError):
        beats.leave(end.word, end.why)
    beats.stop()
    for lane in crew.lanes:
        lane.close()
        if lane.handoff.archive is not None:
            lane.handoff.archive.close()
    for target in crew.targets:
        target.directory.close()
