"""What every kind of processor is to a driver."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from queuedriver.claims.document import Document
from queuedriver.claims.outputs import Outputs
from queuedriver.driving.limits import Limits

# In the environment of every child, with "<driver id>-<salt>": so whoever recovers a dead driver on
# this host finds its children, those included that left its process group.
MARKER = "QUEUEDRIVER_DRIVER"


@runtime_checkable
class Processor(Protocol):
    """Turns one document into outputs."""

    name: str

    def start(self, marker: str) -> None:
        """Once, before the first claim. ConfigError when it can never work."""

    def process(self, document: Document, outputs: Outputs, limits: Limits) -> None:
        """Return when done, the outputs registered; raise when not."""

    def process_batch(
        self, batch: Sequence[tuple[Document, Outputs]], limits: Limits
    ) -> list[BaseException | None]:
        """Several documents in one call: for each, None when done, or what went wrong."""

    def stop(self) -> None:
        """The driver leaves. Must not raise for a child that is gone."""
