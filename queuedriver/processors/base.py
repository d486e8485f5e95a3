"""What every kind of processor is to a driver."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from queuedriver.document import Document
from queuedriver.errors import BadArgument
from queuedriver.limits import Limits
from queuedriver.outputs import Outputs

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


def check_output(processor: Processor, said: bool) -> None:
    """Raise BadArgument for a processor that has nowhere to put what it writes, unless somebody has
    `said` that there is to be no output.

    A processor may have `writes_output`, for what is lost without one, and `needs_output`, for what
    cannot be done without.
    """
    if getattr(processor, "needs_output", False):
        raise BadArgument(
            f"{processor.name}: {{output}} has nowhere to go; name a queue or a directory by --to"
        )
    if not said and getattr(processor, "writes_output", False):
        raise BadArgument(
            f"{processor.name}: what it writes would be lost, and each document with it; name a "
            "queue or a directory by --to, or say --no-output"
        )
