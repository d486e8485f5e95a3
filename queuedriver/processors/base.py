"""Processors of every kind, as a driver sees them."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from queuedriver.claims.document import Document, Outputs
from queuedriver.driving.limits import Limits
from queuedriver.errors import ConfigError


@runtime_checkable
class Processor(Protocol):
    """Turns one document into outputs. One that starts nothing inherits that."""

    name: str

    def start(self, marker: str) -> None:
        """Start what it needs, once, before the first claim. ConfigError when it can never work."""
        return

    def process(self, document: Document, outputs: Outputs, limits: Limits) -> None:
        """Process one document: return when done, the outputs registered; raise when not."""

    def stop(self) -> None:
        """End what it started: the driver leaves. Must not raise for a child that is gone."""
        return


@runtime_checkable
class BatchProcessor(Processor, Protocol):
    """Turns several documents into outputs in one call. Others get a batch one by one."""

    def process_batch(
        self, batch: Sequence[tuple[Document, Outputs]], limits: Limits
    ) -> list[BaseException | None]:
        """Process several documents; return for each None when done, or what went wrong."""


def make(kind: str, work: str | Sequence[str], said: str = "--call", **settings: Any) -> Processor:
    """Return the processor that a kind and its words name. Only its module is imported. What was
    `said` of a call is told in errors."""
    if kind == "call" and isinstance(work, str):
        from queuedriver.processors.call import load

        return load(work, said)
    if kind == "command":
        from queuedriver.processors.command import CommandProcessor

        return CommandProcessor(work)
    if kind == "server":
        from queuedriver.processors.server import ServerProcessor

        return ServerProcessor(work, **settings)
    raise ConfigError(f"no kind of processor is called {kind!r}; there are call, command, server")
