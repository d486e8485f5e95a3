"""The tables of a pipeline file: every value read by its key, every mistake kept."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from watchdogd.pipeline.complaints import Path, Slip, Wrong, nearest
from watchdogd.pipeline.keys import (
    HOST_KEYS,
    MEANT,
    OF_ONE_HOST,
    PIPELINE_KEYS,
    STAGE_KEYS,
)
from watchdogd.pipeline.values import Reader, kind_of

TABLES = ("pipeline", "stage", "host", "hosts")
_STAGE = "right would be [[stage]] above the keys of each stage"


class Table(NamedTuple):
    """What was read of one table."""

    values: dict[str, Any]
    # The keys that are there, but cannot be read.
    bad: frozenset[str]


class Tables(NamedTuple):
    """What was read of a file."""

    pipeline: Table
    stages: tuple[Table, ...]
    host: Table
    hosts: dict[str, Table]
    slips: tuple[Slip, ...]


def read_tables(document: Mapping[str, Any]) -> Tables:
    """Everything in a file, as tomllib has it."""
    reading = _Reading()
    for key in document:
        if key not in TABLES:
            reading.slips.append(_stranger((key,), document[key], TABLES))
    return Tables(
        pipeline=reading.table(document.get("pipeline", {}), ("pipeline",), PIPELINE_KEYS),
        stages=reading.stages(document.get("stage", [])),
        host=reading.table(document.get("host", {}), ("host",), HOST_KEYS),
        hosts=reading.hosts(document.get("hosts", {})),
        slips=tuple(reading.slips),
    )


class _Reading:
    """Reads tables, and gathers what is wrong in any of them."""

    def __init__(self) -> None:
        self.slips: list[Slip] = []

    def stages(self, found: Any) -> tuple[Table, ...]:
        if isinstance(found, list):
            tables = enumerate(found)
            return tuple(self.table(one, ("stage", index), STAGE_KEYS) for index, one in tables)
        if isinstance(found, dict):
            self.slips.append(Slip(("stage",), "[stage] is one table, and not one of many", _STAGE))
        else:
            self.slips.append(Slip(("stage",), f"is {kind_of(found)}", _STAGE, found))
        return ()

    def hosts(self, found: Any) -> dict[str, Table]:
        if isinstance(found, dict):
            return {name: self.table(found[name], ("hosts", name), OF_ONE_HOST) for name in found}
        right = "right would be [hosts.NAME] above the keys of each host"
        self.slips.append(Slip(("hosts",), f"is {kind_of(found)}", right, found))
        return {}

    def table(self, found: Any, path: Path, keys: Mapping[str, Reader]) -> Table:
        if not isinstance(found, dict):
            right = _STAGE if path[0] == "stage" else f"right would be [{path[0]}] above its keys"
            self.slips.append(Slip(path, f"is {kind_of(found)}", right, found))
            # Of all its keys nothing is known, and of none of them more is to be said.
            return Table({}, frozenset(keys))
        values, bad = {}, set()
        for key, value in found.items():
            if key not in keys:
                self.slips.append(_stranger((*path, key), value, keys))
                continue
            try:
                values[key] = keys[key](value)
            except Wrong as error:
                bad.add(key)
                self.slips += [slip.below(*path, key) for slip in error.slips]
        return Table(values, frozenset(bad))


def _stranger(path: Path, value: Any, known: Mapping[str, Reader] | tuple[str, ...]) -> Slip:
    """A key that means nothing where it stands, and what was probably meant."""
    key = str(path[-1])
    what = "is no table" if len(path) == 1 and isinstance(value, dict | list) else "is no key"
    meant = MEANT.get(key.lower())
    near = meant if meant in known else nearest(key, known)
    if near:
        right = f"right would be {_bracketed(near)}" if len(path) == 1 else f"right would be {near}"
    elif home := _home(key, path):
        right = f"right would be to write it below {home}"
    else:
        right = f"known are {', '.join(map(_bracketed, known) if len(path) == 1 else known)}"
    return Slip(path, f"{what} that is known here", right)


def _home(key: str, path: Path) -> str:
    """The table that has such a key."""
    homes = (
        ("[pipeline]", "pipeline", PIPELINE_KEYS),
        ("a [[stage]]", "stage", STAGE_KEYS),
        ("[host]", "host", HOST_KEYS),
    )
    found = (name for name, table, keys in homes if key in keys and path[0] != table)
    return " or ".join(found)


def _bracketed(table: str) -> str:
    return {"stage": "[[stage]]", "hosts": "[hosts.NAME]"}.get(table, f"[{table}]")
