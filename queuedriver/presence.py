"""How a driver, or a broker, comes and goes: its registration, its beats, its last word."""

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from io import FileIO

from queuedriver import names
from queuedriver.beats import BEAT, NETWORK_BEAT, Beats
from queuedriver.lane import Lane
from queuedriver.limits import QUIT_FILE, Limits
from queuedriver.liveness import PAST, Counters, Registration
from queuedriver.mounts import filesystem_type, is_network
from queuedriver.options import Options
from queuedriver.plan import Quit
from queuedriver.queue import Queue
from queuedriver.startup import Crew


def register(
    crew: Crew,
    options: Options,
    processor: str,
    report: Callable[[], tuple[str, str, Counters]],
    limits: Limits,
    dump: FileIO | None = None,
    *,
    broker: bool = False,
) -> Beats:
    """Say that it is there, and go on saying it. Inside `assemble`, so that nobody else does."""
    past = tuple(crew.past)[:PAST]
    registration = Registration(
        id=crew.driver,
        salt=crew.salt,
        past=past,
        identity=crew.observer.me,
        processor=processor,
        inputs=tuple(lane.queue.path for lane in crew.lanes),
        outputs=tuple(target.directory.path for target in crew.targets),
        output_ids=crew.output_ids,
        past_output_ids={
            salt: crew.past[salt] for salt in past if crew.past[salt] != crew.output_ids
        },
        started_at=time.time(),
        dump=os.path.basename(dump.name) if dump is not None else "",
        broker=broker,
    )
    network = any(is_network(filesystem_type(lane.queue.path)) for lane in crew.lanes)
    interval = NETWORK_BEAT if network else BEAT
    directories = [lane.drivers for lane in crew.lanes]

    def look() -> None:
        # The loop looks between documents, and a document may take hours.
        if any(lane.queue.directory.present(names.QUIT) for lane in crew.lanes):
            limits.leave("quit", QUIT_FILE)

    beats = Beats(registration, directories, report, interval, look, options.durable)
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


def say_goodbye(crew: Crew, beats: Beats, end: Quit) -> None:
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
