"""Queues that are directories: drop files in, run drivers, get every document out exactly once."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from queuedriver.claims.document import Document, Output, Outputs
    from queuedriver.driving.driver import Driver
    from queuedriver.driving.limits import Limits
    from queuedriver.driving.loop import Left
    from queuedriver.errors import (
        AlreadyThere,
        BadArgument,
        BadDocid,
        CannotUse,
        ConfigError,
        Disagreement,
        FileSystemTrouble,
        IdHeld,
        Interrupted,
        NotFound,
        NotPermitted,
        PermanentError,
        ProcessorFailed,
        QueueClosed,
        QueueError,
        TryLater,
    )
    from queuedriver.format.records import Failure
    from queuedriver.operating.queue import Queue
    from queuedriver.options import Options
    from queuedriver.processors.base import Processor

__version__ = "0.1.0"

__all__ = [
    "AlreadyThere",
    "BadArgument",
    "BadDocid",
    "CannotUse",
    "ConfigError",
    "Disagreement",
    "Document",
    "Driver",
    "Failure",
    "FileSystemTrouble",
    "IdHeld",
    "Interrupted",
    "Left",
    "Limits",
    "NotFound",
    "NotPermitted",
    "Options",
    "Output",
    "Outputs",
    "PermanentError",
    "Processor",
    "ProcessorFailed",
    "Queue",
    "QueueClosed",
    "QueueError",
    "TryLater",
]

# Where each name is from that is no error. It is imported when it is first asked for: a `put` must
# not pay for a driver's imports.
_HOME_OF = {
    "Document": "queuedriver.claims.document",
    "Driver": "queuedriver.driving.driver",
    "Failure": "queuedriver.format.records",
    "Left": "queuedriver.driving.loop",
    "Limits": "queuedriver.driving.limits",
    "Options": "queuedriver.options",
    "Output": "queuedriver.claims.document",
    "Outputs": "queuedriver.claims.document",
    "Processor": "queuedriver.processors.base",
    "Queue": "queuedriver.operating.queue",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'queuedriver' has no attribute {name!r}")
    found = getattr(import_module(_HOME_OF.get(name, "queuedriver.errors")), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
