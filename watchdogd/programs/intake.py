"""The driver of an intake: it takes what is dropped into a folder."""

from collections.abc import Callable

from queuedriver.driving.live_status import Board
from queuedriver.driving.loop import Left
from queuedriver.intake import intake
from watchdogd.driver_orders import Order
from watchdogd.pipeline.model import Intake


def take(order: Order, told: Intake, board: Board, say: Callable[[str], None]) -> Left:
    """Take from a folder until told to leave; return how it left."""
    one = intake.Intake(told.folder, told.queue, told.options, id=order.id, board=board)
    try:
        return one.run(last=True)
    finally:
        if one.unnoted:
            say(one.unnoted)
