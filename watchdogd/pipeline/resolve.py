"""From what a file says to what it means: every default filled in, every stage whole.

A stage that has mistakes becomes one, too, with what is wrong left at its default, so that the
others can be held against it; `bad` says what is not to be relied upon.
"""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from watchdogd.pipeline.complaints import Slip
from watchdogd.pipeline.keys import KINDS, SHARED_KEYS
from watchdogd.pipeline.model import BETWEEN_STAGES, Drivers, Host, Kind, Pipeline, Stage
from watchdogd.pipeline.tables import Table, Tables

# Where the documents of the first stage are, and all queues, unless the file says otherwise.
FIRST_INPUT = "input"
ROOT = "queues"
# What bounds the queues between stages, and would only block the last stage.
_BETWEEN: dict[str, Any] = {"max_output_items": BETWEEN_STAGES, "max_output_bytes": None}


class Draft(NamedTuple):
    """One stage as far as it can be read."""

    stage: Stage
    # The keys that it has, be it from [pipeline]; and those that cannot be relied upon.
    said: frozenset[str]
    bad: frozenset[str]
    slips: tuple[Slip, ...]


def draft_stages(tables: Tables) -> tuple[Draft, ...]:
    """Stages with everything but what depends on the host and on where the queues are."""
    drafts: list[Draft] = []
    for index, table in enumerate(tables.stages):
        drafts.append(_Drafting(table, tables.pipeline).draft(drafts[-1] if index else None))
    taken = {queue for draft in drafts for queue in draft.stage.inputs}
    return tuple(
        _bounded(draft, table, tables.pipeline, taken)
        for draft, table in zip(drafts, tables.stages, strict=True)
    )


class _Drafting:
    """One stage on its way from a table to a draft."""

    def __init__(self, table: Table, pipeline: Table) -> None:
        shared = {key: pipeline.values[key] for key in pipeline.values if key in SHARED_KEYS}
        self._values = {**shared, **table.values}
        if "env" in self._values:
            self._values["env"] = {**shared.get("env", {}), **table.values.get("env", {})}
        self._bad = set(table.bad) | ((pipeline.bad & SHARED_KEYS.keys()) - table.values.keys())
        self._slips: list[Slip] = []

    def draft(self, before: Draft | None) -> Draft:
        if "name" not in self._values and "name" not in self._bad:
            self._miss("name", "is missing", 'right would be as in name = "parse"')
        kind = self._kind()
        values = {
            "name": "",
            "drivers": Drivers(1, 1),
            # What a stage has under the very name of its key.
            **{key: self._values[key] for key in self._values if key in Stage.__struct_fields__},
        }
        inputs, outputs = self._inputs(before), self._outputs()
        work = self._values.get(kind, "")
        stage = Stage(inputs=inputs, outputs=outputs, kind=kind, work=work, **values)
        said, bad = frozenset(self._values), frozenset(self._bad)
        return Draft(stage, said, bad, tuple(self._slips))

    def _miss(self, key: str, problem: str, right: str) -> None:
        self._bad.add(key)
        self._slips.append(Slip((key,), problem, right))

    def _kind(self) -> Kind:
        """Which of the three says what is done."""
        kinds: list[Kind] = [kind for kind in KINDS if kind in self._values or kind in self._bad]
        if len(kinds) == 1 or self._bad.issuperset(KINDS):
            return kinds[0]
        self._bad.update(KINDS)
        if not kinds:
            right = 'right would be a call = "module:function", a command = […] or a server = […]'
            self._slips.append(Slip((), "does not say what is done to a document", right))
            return "call"
        problem = f"is one too many: {' and '.join(kinds)} each say what is done to a document"
        self._slips.append(Slip((kinds[-1],), problem, "right would be one of them"))
        return kinds[0]

    def _inputs(self, before: Draft | None) -> tuple[str, ...]:
        """The queues it takes from: unless it says so, what the stage before it publishes into."""
        if "input" in self._values:
            return tuple(self._values["input"])
        if "input" in self._bad:
            return ()
        if before is None:
            return (FIRST_INPUT,)
        outputs = before.stage.outputs
        if "output" in before.bad:
            self._bad.add("input")
        elif len(outputs) != 1:
            has = f"{len(outputs)} outputs: {', '.join(outputs)}" if outputs else "no output"
            right = f'right would be as in input = "{outputs[0] if outputs else FIRST_INPUT}"'
            self._miss("input", f"is missing, and the stage before has {has}", right)
        else:
            return outputs
        return ()

    def _outputs(self) -> tuple[str, ...]:
        """The queues it publishes into: unless it says so, one that is called like the stage."""
        if "output" in self._values:
            return tuple(self._values["output"])
        if "output" not in self._bad and "name" in self._values:
            return (self._values["name"],)
        self._bad.add("output")
        return ()


def _bounded(draft: Draft, table: Table, pipeline: Table, taken: set[str]) -> Draft:
    """With the bounds of the queues behind it: none where nobody takes from them."""
    outputs = draft.stage.outputs
    between = bool(outputs) and taken.issuperset(outputs)
    bounds = {
        key: table.values.get(key, pipeline.values.get(key, usual) if between else None)
        for key, usual in _BETWEEN.items()
    }
    return draft._replace(stage=msgspec.structs.replace(draft.stage, **bounds))


def resolve(tables: Tables, drafts: tuple[Draft, ...], file: str, host: str | None) -> Pipeline:
    """The whole pipeline as one host is to run it. `file` is absolute."""
    said = tables.pipeline.values
    # A symbolic link to the file is where the pipeline is, not what it leads to.
    directory, name = os.path.split(file)
    root = os.path.normpath(os.path.join(directory, os.path.expanduser(said.get("root", ROOT))))
    there = _of_host(tables.hosts, host)
    drivers = there.pop("drivers", {})
    return Pipeline(
        name=said.get("name", os.path.splitext(name)[0]),
        file=file,
        root=root,
        stages=tuple(_placed(draft.stage, root, drivers) for draft in drafts),
        host=Host(**{**tables.host.values, **there}),
        on_event=_hook(said.get("on_event", ()), directory),
        adopt=said.get("adopt", False),
    )


def _of_host(hosts: Mapping[str, Table], host: str | None) -> dict[str, Any]:
    """What is said of one host, by its name with or without its domain."""
    if host is None:
        return {}
    found = hosts.get(host) or hosts.get(host.partition(".")[0])
    return dict(found.values) if found else {}


def _hook(words: tuple[str, ...], directory: str) -> tuple[str, ...]:
    """The watchdog runs it in no directory of its own, so its path must be whole."""
    if words and os.sep in words[0]:
        return (os.path.join(directory, words[0]), *words[1:])
    return words


def _placed(stage: Stage, root: str, drivers: Mapping[str, Drivers]) -> Stage:
    archive = stage.archive
    if archive is not None:
        archive = os.path.normpath(os.path.join(root, os.path.expanduser(archive)))
    count = drivers.get(stage.name, stage.drivers)
    return msgspec.structs.replace(stage, archive=archive, drivers=count)
