"""A pipeline: stages joined by queues, as a file describes it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from watchdogd.pipeline.complaints import BadPipeline, Complaint
    from watchdogd.pipeline.model import Pipeline, Stage
    from watchdogd.pipeline.reading import Study, read, study

__all__ = ["BadPipeline", "Complaint", "Pipeline", "Stage", "Study", "read", "study"]

# Whoever needs the model must not pay for the reader's imports.
_HOME_OF = {
    "BadPipeline": "complaints",
    "Complaint": "complaints",
    "Pipeline": "model",
    "Stage": "model",
    "Study": "reading",
    "read": "reading",
    "study": "reading",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
