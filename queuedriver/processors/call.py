"""A Python function, called in the driver's own process.

    def process(document) -> bytes | str | Path | None | Output | Iterable[Output]

With a batch it gets a list of documents and answers with one answer for each, in their order; an
answer that is an exception fails, postpones or discards its document alone.
"""

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from queuedriver.claims.document import Document
from queuedriver.claims.outputs import Outputs
from queuedriver.disk.processes import MARKER
from queuedriver.driving.limits import Limits, framed
from queuedriver.errors import ConfigError, Interrupted, ProcessorFailed
from queuedriver.format.records import Failure

ENTRY_POINTS = "queuedriver.processors"


class CallProcessor:
    """Calls a function for each document."""

    def __init__(self, function: Callable[..., Any], name: str = "") -> None:
        self.function = framed(function)
        self.name = name or getattr(function, "__qualname__", None) or repr(function)

    def start(self, marker: str) -> None:
        # For the programs that the function runs.
        os.environ[MARKER] = marker

    def stop(self) -> None:
        os.environ.pop(MARKER, None)

    def process(self, document: Document, outputs: Outputs, limits: Limits) -> None:
        outputs.take(limits.run(self.function, document), limits)

    def process_batch(
        self, batch: Sequence[tuple[Document, Outputs]], limits: Limits
    ) -> list[BaseException | None]:
        documents = [document for document, _ in batch]
        answers = limits.run(lambda: list(self.function(documents)))
        if len(answers) != len(batch):
            message = f"a batch of {len(batch)} documents got {len(answers)} answers"
            raise ProcessorFailed(Failure(cause="bad-answer", message=message))
        return [
            _take(answer, outputs, limits)
            for answer, (_, outputs) in zip(answers, batch, strict=True)
        ]


def _take(answer: Any, outputs: Outputs, limits: Limits) -> BaseException | None:
    if isinstance(answer, BaseException):
        return answer
    try:
        outputs.take(answer, limits)
    except (Exception, Interrupted) as error:  # noqa: BLE001 - an iterator is the user's code too
        return error
    return None


def load(reference: str, said: str = "--call") -> CallProcessor:
    """The processor that `--call` names: `package.module:function`, or a plug-in's name. What was
    `said` is told in errors.

    Modules are also found in the current directory. What cannot be imported can never work.
    """
    if ":" not in reference:
        return CallProcessor(_plug_in(reference, said), reference)
    module_name, _, attributes = reference.partition(":")
    directory = os.getcwd()
    if directory not in sys.path:
        sys.path.insert(0, directory)
    try:
        found: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"{said} {reference}: importing {module_name!r} failed: "
            f"{type(error).__name__}: {error}; looked in {directory} and the installed packages"
        ) from error
    for attribute in attributes.split("."):
        if not hasattr(found, attribute):
            raise ConfigError(f"{said} {reference}: {module_name!r} has no {attributes!r}")
        found = getattr(found, attribute)
    if not callable(found):
        raise ConfigError(
            f"{said} {reference}: {attributes!r} is a {type(found).__name__}, not callable"
        )
    return CallProcessor(found, reference)


def _plug_in(name: str, said: str) -> Callable[..., Any]:
    # Not at the top: most drivers name a module, and should not wait for this import.
    from importlib.metadata import entry_points

    plug_ins = entry_points(group=ENTRY_POINTS)
    if name not in plug_ins.names:
        known = ", ".join(sorted(plug_ins.names)) or "none is installed"
        raise ConfigError(
            f"{said} {name}: neither package.module:function nor a plug-in; plug-ins: {known}"
        )
    try:
        function: Callable[..., Any] = plug_ins[name].load()
    except Exception as error:
        raise ConfigError(f"{said} {name}: the plug-in does not import: {error}") from error
    return function
