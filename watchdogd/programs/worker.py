"""The driver of a stage with a `worker`: it processes what a broker deals, and has no queues."""

from collections.abc import Callable

from queuedriver.doors import worker
from queuedriver.doors.settings import settings_of
from queuedriver.driving.life import Left
from queuedriver.driving.live_status import Board
from queuedriver.format.records import Counters
from queuedriver.processors.base import Processor
from watchdogd.driver_orders import Order


def work(order: Order, board: Board, processor: Processor, say: Callable[[str], None]) -> Left:
    """Process what the broker of a stage deals until told to leave; return how it left."""
    kind = settings_of(order.worker).WorkerSettings
    settings = kind(broker=order.connect, options=order.options).check()
    leave = worker.work(settings, processor, say, board)
    word = "later" if leave.exit_code else "quit"
    board.left(word, leave.why, leave.exit_code)
    return Left(word, leave.why, leave.exit_code, Counters())
