"""A Python function, called in the driver's own process.

    def process(document) -> bytes | str | Path | None | Output | Iterable[Output]

With a batch it gets a list of documents and answers with one answer for each, in their order; an
answer that is an exception fails, postpones or discards its document alone.
"""

import importlib
import operator
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from queuedriver.claims.document import Document, Outputs
from queuedriver.claims.outcomes import ANYTHING
from queuedriver.disk.processes import MARKER
from queuedriver.driving.limits import Limits, framed
from queuedriver.errors import ConfigError, ImportFailed, ProcessorFailed, is_trouble, trouble
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
    except ANYTHING as error:  # an iterator is the user's code too
        return error
    return None


def load(reference: str, said: str = "--call") -> CallProcessor:
    """Return the processor that `--call` names: `package.module:function`, or a plug-in's name.
    What was `said` is told in errors.

    Modules are also found in the current directory. ConfigError for what can never work: a module
    that is not there or does not parse, a name that it does not have. Whatever else is raised while
    it is imported, as by a server that does not answer, may not be raised the next time.
    """
    try:
        function = _function(reference) if ":" in reference else _plug_in(reference)
    except (ConfigError, ImportFailed) as error:
        raise type(error)(f"{said} {reference}: {error}") from error.__cause__
    return CallProcessor(function, reference)


def _function(reference: str) -> Any:
    module, _, attributes = reference.partition(":")
    if module.endswith(".py") or os.sep in module:
        name = os.path.basename(module).removesuffix(".py")
        raise ConfigError(f"{module!r} is a file; name its module, as in {name}:{attributes}")
    directory = os.getcwd()
    if directory not in sys.path:
        sys.path.insert(0, directory)
    return _import(module, attributes, f"{directory} and the installed packages")


def _import(module: str, attributes: str, places: str) -> Any:
    """Import a module, which is looked for in `places`, and return what it has by a name."""
    try:
        imported = importlib.import_module(module)
    except (Exception, SystemExit) as error:
        words = f"importing {module!r} failed: {type(error).__name__}: {error}"
        if isinstance(error, ImportError | SyntaxError):
            raise ConfigError(f"{words}; looked in {places}") from error
        if isinstance(error, OSError) and is_trouble(error):
            raise trouble(error, f"importing {module!r}") from error
        raise ImportFailed(words) from error
    try:
        found = operator.attrgetter(attributes)(imported)
    except AttributeError:
        raise ConfigError(f"{module!r} has no {attributes!r}") from None
    if not callable(found):
        raise ConfigError(f"{attributes!r} is a {type(found).__name__}, not callable")
    return found


def _plug_in(name: str) -> Any:
    # Not at the top: most drivers name a module, and should not wait for this import.
    from importlib.metadata import entry_points

    plug_ins = entry_points(group=ENTRY_POINTS)
    if name not in plug_ins.names:
        known = ", ".join(sorted(plug_ins.names)) or "none is installed"
        raise ConfigError(f"neither package.module:function nor a plug-in; plug-ins: {known}")
    found = plug_ins[name]
    return _import(found.module, found.attr, "the installed packages")
