"""A driver's process: it reads its order, and drives until it leaves.

    python -P -m watchdogd.programs.driver NAME

It is tied to its watchdog from its first moment: a watchdog that is killed takes its drivers along,
each of which finishes the document at hand within its grace. With adoption they live on, once their
boards say who they are: before, the next watchdog would not find them.
"""

import faulthandler
import signal

if __name__ == "__main__":
    # One that hangs while it loads, be it in our own imports, can be asked where.
    faulthandler.register(signal.SIGUSR2)
    # What the watchdog sends before the driver listens is a wish to leave at once.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

from queuedriver import interpreter

if __name__ == "__main__":
    interpreter.begin_loading()
    interpreter.import_msgspec()

import contextlib
import os
import sys
import threading
import time
from typing import TYPE_CHECKING

import msgspec

from queuedriver.disk.processes import process_ticks, resident_memory
from queuedriver.driving.driver import Driver
from queuedriver.driving.live_status import Board
from queuedriver.driving.loop import Left
from queuedriver.errors import BUG, Disagreement, exit_code_of
from queuedriver.format.records import Counters
from queuedriver.options import Options
from queuedriver.processors.base import Processor, make
from watchdogd.driver_orders import Order, decode
from watchdogd.linux import outlive_parent, set_name
from watchdogd.logs import Rotator
from watchdogd.pipeline.model import Stage

if TYPE_CHECKING:
    from queuedriver.doors.broker import Broker
    from queuedriver.intake.intake import Intake

# How soon a log that has grown too large is rotated.
_ROTATE_EVERY = 2.0


def main() -> None:
    """Be the process that the watchdog starts for one driver."""
    interpreter.end_loading()
    sys.exit(live(decode(sys.stdin.buffer.read())))


def live(order: Order, processor: Processor | None = None) -> int:
    """Do all that a driver process does, from its first moment of its own; return its exit code."""
    set_name(order.name)
    board = Board.open(order.board)
    shared = 0 if processor is None else resident_memory()
    board.sign(os.getpid(), process_ticks(os.getpid()) or 0, shared)
    if not order.parent:
        outlive_parent()
    rotator = Rotator(order.log, order.stage.log_size, order.stage.log_keep)
    rotator.take_over()
    threading.Thread(target=_rotate, args=(rotator,), name="log", daemon=True).start()
    try:
        left = _drive(order, board, processor)
    except Exception as error:  # noqa: BLE001 - the top of a process: whatever is left is a bug
        code = exit_code_of(error)
        if code is None or error.__cause__ is not None:
            # A bug of ours, or what a user's module raised. Late: mostly nothing is amiss.
            import traceback

            traceback.print_exception(error.__cause__ or error)
        if code is not None:
            word = error.last_word if isinstance(error, Disagreement) else "failed"
            return _fail(board, word, str(error), code)
        return _fail(board, "failed", f"a bug of ours: {type(error).__name__}: {error}", BUG)
    _say(f"left, {left.word}: {left.why}")
    return left.exit_code


def _drive(order: Order, board: Board, processor: Processor | None) -> Left:
    interpreter.enter(order.directory)
    stage, options = order.stage, order.options
    if stage.kind == "broker":
        return _deal(order, board)
    if stage.intake is not None:
        from queuedriver.intake.intake import Intake

        told = stage.intake
        return _run(Intake(told.folder, told.queue, told.options, id=order.id, board=board))
    if processor is not None and options.max_memory:
        # What it shares with the others is not of its making.
        largest = options.max_memory + resident_memory()
        options = msgspec.structs.replace(options, max_memory=largest)
    if processor is None:
        processor = make(
            stage.kind, stage.work, said=stage.kind, start_timeout=stage.startup_timeout
        )
    if stage.worker:
        return _work(stage, options, board, processor)
    inputs, outputs = stage.inputs, stage.outputs
    driver = Driver(inputs, processor, outputs, id=order.id, options=options, board=board)
    driver.supervisor = order.parent
    return _run(driver)


# Most stages have neither of these two, and load nothing of a network.


def _deal(order: Order, board: Board) -> Left:
    """Deal the documents of a stage to workers elsewhere; return how it left."""
    from queuedriver.doors.broker import Broker
    from queuedriver.doors.settings import settings_of

    stage, options = order.stage, order.options
    settings = settings_of(str(stage.work)).BrokerSettings(
        input=stage.inputs[0],
        outputs=stage.outputs,
        listen=stage.listen,
        id=order.id,
        # A worker may have a document for so long; what the broker does with it takes no time.
        options=msgspec.structs.replace(options, timeout=None),
        job_timeout=options.timeout,
    )
    left = _run(Broker(settings.check(), _say, board=board))
    board.left(left.word, left.why, left.exit_code)
    return left


def _work(stage: Stage, options: Options, board: Board, processor: Processor) -> Left:
    """Process what the broker of a stage deals, which has no queues itself; return how it left."""
    from queuedriver.doors import worker
    from queuedriver.doors.settings import settings_of

    settings = settings_of(stage.worker).WorkerSettings(broker=stage.connect, options=options)
    leave = worker.work(settings.check(), processor, _say, board)
    word = "later" if leave.exit_code else "quit"
    board.left(word, leave.why, leave.exit_code)
    return Left(word, leave.why, leave.exit_code, Counters())


def _run(one: "Driver | Intake | Broker") -> Left:
    try:
        return one.run(last=True)
    finally:
        for words in one.unnoted:
            _say(words)


def _rotate(rotator: Rotator) -> None:
    while True:
        time.sleep(_ROTATE_EVERY)
        with contextlib.suppress(OSError):
            rotator.rotate_if_large()


def _fail(board: Board, word: str, message: str, code: int) -> int:
    # The driver's own last word stands: it knows better how far it came.
    if not board.read().word:
        board.left(word, message, code)
    _say(message)
    return code


def _say(message: str) -> None:
    """Write a line of the log; nobody is hurt when it cannot be written."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    with contextlib.suppress(OSError, ValueError):
        print(f"{stamp} {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
