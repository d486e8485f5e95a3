"""The pipeline's file read again: who asked for it, and what came of it."""

from typing import NamedTuple

from watchdogd.pipeline.model import Pipeline
from watchdogd.rereading import Read, Rereading

# What a watchdog that runs cannot change of itself.
_FIXED = ("root", "adopt")


class Outcome(NamedTuple):
    """The pipeline as the file has it now, with what people should know of it here, or why it stays
    as it is; and who had asked."""

    pipeline: Pipeline | None
    error: str
    serials: tuple[str, ...]
    notes: tuple[str, ...] = ()


class Renewal:
    """At most one reading at a time. Instants are monotonic, and arguments."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._rereading: Rereading | None = None
        self._serials: list[str] = []
        # A reading that could not even begin.
        self._failed: Read | None = None

    @property
    def fds(self) -> list[int]:
        """To be polled: readable when there is an outcome."""
        return [self._rereading.fd] if self._rereading is not None else []

    def ask(self, file: str, now: float, serial: str = "") -> None:
        """Read the file. One that is being read is read again: it may have changed since."""
        if serial:
            self._serials.append(serial)
        if self._rereading is not None:
            self._rereading.abandon()
            self._rereading = None
        try:
            self._rereading = Rereading(file, self._host, now)
        except OSError as error:
            self._failed = Read(error=f"{file} cannot be read: {error}")

    def outcome(self, current: Pipeline, now: float) -> Outcome | None:
        """What came of it; None while nothing has."""
        read, self._failed = self._failed, None
        if self._rereading is not None:
            read = self._rereading.result(now)
        if read is None:
            return None
        self._rereading = None
        serials = tuple(self._serials)
        self._serials.clear()
        if read.pipeline is None:
            return Outcome(None, read.error, serials)
        for key in _FIXED:
            if getattr(read.pipeline, key) != getattr(current, key):
                error = f"{key} has changed, which takes a restart of the watchdog"
                return Outcome(None, error, serials)
        return Outcome(read.pipeline, "", serials, read.notes)
