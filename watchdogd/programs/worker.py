"""The driver of a stage with a `worker`: it processes what a broker deals, and has no queues."""

from collections.abc import Callable

from queuedriver.doors import worker
from queuedriver.doors.settings import settings_of
from queuedriver.driving.live_status import Board
from queuedriver.driving.loop import Left
from queuedriver.format.records import Counters
from queuedriver.options import Options
from queuedriver.processors.base import Processor
from watchdogd.pipeline.model import Stage


def work(
    stage: Stage, options: Options, board: Board, processor: Processor, say: Callable[[str], None]
) -> Left:
    """Process what the broker of a stage deals until told to leave; return how it left."""
    kind = settings_of(stage.worker).WorkerSettings
    settings = kind(broker=stage.connect, options=options).check()
    leave = worker.work(settings, processor, say, board)
    word = "later" if leave.exit_code else "quit"
    board.left(word, leave.why, leave.exit_code)
    return Left(word, leave.why, leave.exit_code, Counters())
