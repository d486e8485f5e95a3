"""What a driver may be told, as one frozen value. Pure."""

from typing import Literal

import msgspec

from queuedriver.errors import ConfigError
from queuedriver.format.names import DEFAULT_PUBLISH, MAX_RETRIES


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How a driver drives; times in seconds, sizes in bytes."""

    # Leave when the queue is empty, rather than wait for more.
    drain: bool = False
    # Whether what is still being written into the queue counts as something left in it.
    await_writing: bool = True
    # How often a document is tried again after its first failure, and after which delay.
    retries: int = 1
    retry_delay: float = 0.0
    # The soft limit of one document (or batch); its hard one comes `hard_after` later.
    timeout: float | None = None
    hard_after: float = 30.0
    # How long the document at hand may go on once the driver is asked to leave.
    grace: float = 60.0
    order: Literal["fair", "age", "name"] = "fair"
    # How many documents one call of the processor gets.
    batch: int = 1
    publish: str = DEFAULT_PUBLISH
    existing: Literal["keep", "replace"] = "keep"
    # Claim nothing while an output queue holds this much; None: no limit.
    max_output_items: int | None = None
    max_output_bytes: int | None = None
    # Leave to be started anew after so much, so that leaks do not add up.
    max_documents: int | None = None
    max_age: float | None = None
    max_memory: int | None = None
    # Whether every promise also holds over a power cut.
    durable: bool = False
    # Where finished inputs go; None: they are deleted.
    archive: str | None = None
    # Never rely on inotify.
    poll: bool = False

    def check(self) -> "Options":
        """The options themselves, or ConfigError for what cannot be meant."""
        if not 0 <= self.retries <= MAX_RETRIES - 1:
            raise ConfigError(f"--retries {self.retries}: 0 to {MAX_RETRIES - 1}")
        if self.batch < 1:
            raise ConfigError(f"--batch {self.batch}: at least 1")
        if self.batch > 1 and not self.retries:
            raise ConfigError(
                "--batch needs --retries 1 or more: when a batch crashes its driver, each of its "
                "documents is tried again alone to find out which did it"
            )
        for name in ("timeout", "max_output_items", "max_documents", "max_age", "max_memory"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ConfigError(f"--{name.replace('_', '-')} {value}: more than 0")
        for name in ("hard_after", "grace", "retry_delay"):
            if getattr(self, name) < 0:
                raise ConfigError(f"--{name.replace('_', '-')}: 0 or more")
        return self
