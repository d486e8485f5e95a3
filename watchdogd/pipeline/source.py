"""A pipeline file as its complaints speak of it: which line a place in its tables is. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from watchdogd.pipeline.complaints import NOTHING, Complaint, Path, Slip, show


class Source(NamedTuple):
    """Where everything is in a file."""

    # As its reader named it.
    file: str
    lines: Mapping[Path, int]
    # What stages are called, by their places; those whose name cannot be read are not there.
    names: Mapping[int, str]

    def complaints(self, slips: Iterable[Slip]) -> tuple[Complaint, ...]:
        """The slips as their author is told them, in the order of the file."""
        told = [self._complaint(slip) for slip in slips]
        return tuple(sorted(told, key=lambda one: (one.line, one.where, one.key)))

    def _complaint(self, slip: Slip) -> Complaint:
        where, key = self._table(slip.path)
        return Complaint(
            file=self.file,
            line=self._line(slip.path),
            where=where,
            key=_dotted(key),
            found="" if slip.found is NOTHING else show(slip.found),
            problem=slip.problem,
            right=slip.right,
            exit_code=slip.exit_code,
            detail=slip.detail,
        )

    def _line(self, path: Path) -> int:
        """Of the place itself, or else of the nearest above it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 0)

    def _table(self, path: Path) -> tuple[str, Path]:
        """The table that a place is in, for people, and its key there."""
        match path:
            case ("stage", int(index), *key):
                name = self.names.get(index)
                return f'stage "{name}"' if name else f"stage {index + 1}", tuple(key)
            case ("hosts", str(name), *key):
                return f"[hosts.{name}]", tuple(key)
            case ("pipeline" | "host" as table, *key):
                return f"[{table}]", tuple(key)
        return "", path


def _dotted(key: Iterable[Any]) -> str:
    text = ""
    for part in key:
        text += f"[{part + 1}]" if isinstance(part, int) else f".{part}" if text else part
    return text
