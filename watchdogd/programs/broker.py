"""The driver of a stage with a `broker`: its documents are processed by workers elsewhere."""

from collections.abc import Callable

from msgspec.structs import replace

from queuedriver.doors.broker import Broker
from queuedriver.doors.settings import settings_of
from queuedriver.driving.live_status import Board
from queuedriver.driving.loop import Left
from watchdogd.driver_orders import Order


def deal(order: Order, board: Board, say: Callable[[str], None]) -> Left:
    """Deal the documents of a stage until told to leave; return how it left."""
    stage, options = order.stage, order.options
    settings = settings_of(str(stage.work)).BrokerSettings(
        input=stage.inputs[0],
        outputs=stage.outputs,
        listen=stage.listen,
        id=order.id,
        # A worker may have a document for so long; what the broker does with it takes no time.
        options=replace(options, timeout=None),
        job_timeout=options.timeout,
    )
    broker = Broker(settings.check(), say, board=board)
    try:
        left = broker.run(last=True)
    finally:
        for words in broker.unnoted:
            say(words)
    board.left(left.word, left.why, left.exit_code)
    return left
