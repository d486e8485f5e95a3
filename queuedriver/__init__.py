"""Queues that are directories: drop files in, run drivers, get every document out exactly once."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from queuedriver.claims.document import Document
    from queuedriver.claims.outputs import Output, Outputs
    from queuedriver.driving.driver import Driver
    from queuedriver.driving.limits import Limits
    from queuedriver.driving.loop import Left
    from queuedriver.errors import (
        AlreadyThere,
        BadArgument,
        BadDocid,
        CannotUse,
        ConfigError,
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

# Where each name is from. It is imported when it is first asked for: a `put` must not pay for a
# driver's imports.
_HOME_OF = {
    "AlreadyThere": "queuedriver.errors",
    "BadArgument": "queuedriver.errors",
    "BadDocid": "queuedriver.errors",
    "CannotUse": "queuedriver.errors",
    "ConfigError": "queuedriver.errors",
    "Document": "queuedriver.claims.document",
    "Driver": "queuedriver.driving.driver",
    "Failure": "queuedriver.format.records",
    "FileSystemTrouble": "queuedriver.errors",
    "IdHeld": "queuedriver.errors",
    "Interrupted": "queuedriver.errors",
    "Left": "queuedriver.driving.loop",
    "Limits": "queuedriver.driving.limits",
    "NotFound": "queuedriver.errors",
    "NotPermitted": "queuedriver.errors",
    "Options": "queuedriver.options",
    "Output": "queuedriver.claims.outputs",
    "Outputs": "queuedriver.claims.outputs",
    "PermanentError": "queuedriver.errors",
    "Processor": "queuedriver.processors.base",
    "ProcessorFailed": "queuedriver.errors",
    "Queue": "queuedriver.operating.queue",
    "QueueClosed": "queuedriver.errors",
    "QueueError": "queuedriver.errors",
    "TryLater": "queuedriver.errors",
}


def __getattr__(name: str) -> Any:
    try:
        home = _HOME_OF[name]
    except KeyError:
        raise AttributeError(f"module 'queuedriver' has no attribute {name!r}") from None
    found = getattr(import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
