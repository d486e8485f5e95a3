"""Read a pipeline file: all of it, or every mistake in it.

    file → text        what cannot be read at all is one problem
    text → tables      each value by its key: schema.py
    tables → stages    every default filled in
    stages             held against one another: rules.py

A stage that has mistakes becomes one, too, with what is wrong left at its default, so that the
others can be held against it; its table says what is not to be relied upon.
"""

import errno
import os
import re
import stat
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from queuedriver.disk.filesystem import open_fd
from queuedriver.errors import NotFound, NotPermitted, is_trouble, leads_nowhere, trouble
from watchdogd.pipeline import rules
from watchdogd.pipeline.model import BETWEEN_STAGES, Drivers, Host, Kind, Pipeline, Stage
from watchdogd.pipeline.problems import (
    BadPipeline,
    Path,
    Problem,
    Problems,
    Table,
    Wrong,
    nearest,
    places,
)
from watchdogd.pipeline.schema import KINDS, MEANT, SHARED_KEYS, TABLES, Keys, kind_of

# Drivers that stages have on this host, whatever the file says.
Numbers = Mapping[str, int]
NO_NUMBERS: Numbers = MappingProxyType({})
# Where the documents of the first stage are, and all queues, unless the file says otherwise.
FIRST_INPUT = "input"
ROOT = "queues"
# What bounds the queues between stages, and would only block the last stage.
_BETWEEN: dict[str, int | None] = {"max_output_items": BETWEEN_STAGES, "max_output_bytes": None}
# Far more than anybody writes; in bytes. Whatever is larger is another file.
_MAX_SIZE = 1_000_000
_EXAMPLE = "right would be a [[stage]] with a name and a call, a command or a server"
# What tomllib says of common slips, and what helps.
_SYNTAX = {
    "Invalid value": "right would be a text in quotes, a number, true or false",
    "Cannot overwrite a value": "it is there already: right would be each key once in a table",
    "Cannot declare": "it is there already: right would be each table once, [[stage]] but for",
    "Expected '=' after a key": "right would be key = value",
    "Illegal character": "right would be to escape it, or to leave it out",
    "": "right would be TOML, as https://toml.io describes it",
}
_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_HEADERS = {table: f"[{table}]" for table in TABLES} | {
    "stage": "[[stage]]",
    "intake": "[[intake]]",
    "hosts": "[hosts.NAME]",
}


def read(path: str | os.PathLike[str], host: str | None = None) -> Pipeline:
    """Return the pipeline of a file as one host is to run it. BadPipeline has every mistake."""
    return study(path, host)[0]


def study(
    path: str | os.PathLike[str], host: str | None = None, drivers: Numbers = NO_NUMBERS
) -> tuple[Pipeline, Problems]:
    """Read a pipeline; return it, and what takes further problems, with their lines. NotFound for
    `drivers` of a stage that there is not."""
    shown, file = os.fspath(path), os.path.abspath(path)
    try:
        file.encode()
    except UnicodeEncodeError:
        # What names it, settings and registrations, is JSON.
        problem = f"it is in {os.path.dirname(file)!r}, a name that is not UTF-8"
        raise _unreadable(ascii(shown), problem, "move it, or rename that") from None
    data = load_bytes(path)
    try:
        # Some editors begin a file with a mark that is no part of it.
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _unreadable(
            shown,
            f"it is not UTF-8 (byte {data[error.start]:#x})",
            "save it as UTF-8",
            line=data.count(b"\n", 0, error.start) + 1,
            root=_root_of_text(data.decode(errors="replace"), file),
        ) from None
    pipeline, problems = parse(text, shown, file, host, drivers)
    for name in drivers:
        if pipeline.stage(name) is None:
            known = ", ".join(stage.name for stage in pipeline.stages)
            raise NotFound(f"no stage {name!r} in {pipeline.file}; it has: {known}")
    return pipeline, problems


# The file


def load_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return what is in a pipeline file, be that text or not."""
    shown = os.fspath(path)
    try:
        # A pipe would have us wait for whoever writes into it.
        with open_fd(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)) as fd:
            kind = os.fstat(fd).st_mode
            data = os.read(fd, _MAX_SIZE + 1) if stat.S_ISREG(kind) else b""
    except (FileNotFoundError, NotADirectoryError):
        raise _unreadable(shown, "there is no such file", exit_code=NotFound.exit_code) from None
    except PermissionError:
        problem = "it may not be read: permission denied"
        right = "chmod or chown it, or its directories"
        raise _unreadable(shown, problem, right, exit_code=NotPermitted.exit_code) from None
    except OSError as error:
        if leads_nowhere(error):
            raise _unreadable(shown, f"it leads nowhere: {error.strerror}", "correct it") from None
        # So it is with a socket; otherwise a disk that is broken says so.
        if error.errno == errno.ENXIO and not os.path.isfile(path):
            raise _unreadable(shown, "it is not a regular file") from None
        if is_trouble(error):
            raise trouble(error, f"cannot read {shown}") from None
        raise
    if not stat.S_ISREG(kind):
        what = "a directory" if stat.S_ISDIR(kind) else "not a regular file"
        raise _unreadable(shown, f"it is {what}")
    if len(data) > _MAX_SIZE:
        raise _unreadable(shown, f"it is larger than {_MAX_SIZE} bytes")
    return data


def _unreadable(
    shown: str,
    problem: str,
    right: str = "name a pipeline file",
    *,
    root: str | None = None,
    **more: Any,
) -> BadPipeline:
    return BadPipeline([Problem(file=shown, problem=problem, right=right, **more)], root)


# Its text


def parse(
    text: str, shown: str, file: str, host: str | None = None, drivers: Numbers = NO_NUMBERS
) -> tuple[Pipeline, Problems]:
    """Read the pipeline in a text. Problems name the file as it is `shown`; `file` is absolute."""
    if not text.strip():
        raise _unreadable(shown, "it is empty", _EXAMPLE)
    try:
        document = tomllib.loads(text)
    except RecursionError:
        right = "no list has lists in it here"
        raise _unreadable(shown, "it is nested too deeply", right) from None
    except ValueError as error:
        # Of TOML, or of a number with thousands of digits.
        raise _syntax(str(error), text, shown, file) from None
    problems = Problems(shown, text, document)
    pipeline = _pipeline(document, file, host, drivers, problems)
    if problems.found:
        raise BadPipeline(problems.found, pipeline.root)
    return pipeline, problems


def _syntax(message: str, text: str, shown: str, file: str) -> BadPipeline:
    place = _PLACE.search(message)
    lines = text.splitlines() or [""]
    line = int(place[1]) if place and place[1] else len(lines) if place else 0
    said = message[: place.start()] if place else message
    where = f"column {place[2]}" if place and place[2] else "the end"
    source = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    return _unreadable(
        shown,
        f"not TOML at {where}: {said}",
        next(right for word, right in _SYNTAX.items() if said.startswith(word)),
        root=_root_of_text(text, file),
        line=line,
        detail=(source,) if source else (),
    )


def _root_of_text(text: str, file: str) -> str:
    """Return where the queues are by what a text says before its first mistake."""
    said = (value for path, _, value in places(text) if path == ("pipeline", "root"))
    root = next(said, ROOT)
    return _path(os.path.dirname(file), root if isinstance(root, str) else ROOT)


def _path(directory: str, said: str) -> str:
    return os.path.normpath(os.path.join(directory, os.path.expanduser(said)))


# Its tables


def _pipeline(
    document: Mapping[str, Any], file: str, host: str | None, numbers: Numbers, problems: Problems
) -> Pipeline:
    """Return the whole pipeline as one host is to run it, what is wrong left at its default."""
    for key in document:
        if key not in TABLES:
            _add_stranger((key,), document[key], TABLES, problems)
    shared = _table(document.get("pipeline", {}), ("pipeline",), problems)
    tables = _stage_tables(document.get("stage", []), problems)
    room = _table(document.get("host", {}), ("host",), problems).values
    hosts = _host_tables(document.get("hosts", {}), problems)
    slurm = _table(document["slurm"], ("slurm",), problems) if "slurm" in document else None
    stages: list[Stage] = []
    for table in tables:
        _complete(table, shared)
        # What a worker does, its broker publishes.
        before = [pair for pair in zip(stages, tables, strict=False) if not pair[0].worker]
        stages.append(_stage(table, before[-1] if before else None))
    # A host is called by its name, with or without its domain.
    names = (host, host.partition(".")[0]) if host else ()
    there = next((dict(hosts[name]) for name in names if hosts.get(name)), {})
    drivers = there.pop("drivers", {}) | {name: Drivers(n, n) for name, n in numbers.items()}
    taken = {queue for stage in stages for queue in stage.inputs}
    said = shared.values
    # A symbolic link to the file is where the pipeline is, not what it leads to.
    root = _path(os.path.dirname(file), said.get("root", ROOT))
    pipeline = Pipeline(
        name=said.get("name", os.path.splitext(os.path.basename(file))[0]),
        file=file,
        root=root,
        stages=tuple(
            replace(
                stage,
                drivers=drivers.get(stage.name, stage.drivers),
                archive=None if stage.archive is None else _path(root, stage.archive),
                **_bounds(stage, table, said, taken),
            )
            for stage, table in zip(stages, tables, strict=True)
        ),
        host=Host(**{**room, **there}),
        on_event=said.get("on_event", ()),
        metrics=said.get("metrics", ""),
        adopt=said.get("adopt", False),
    )
    rules.check(pipeline, tables)
    if slurm is not None or any("slurm" in table.values for table in tables):
        from watchdogd.pipeline.slurms import with_elements

        pipeline = with_elements(pipeline, tables, slurm)
    intakes: tuple[Stage, ...] = ()
    if "intake" in document:
        from watchdogd.pipeline.intakes import intakes_of

        found = _tables("intake", document["intake"], problems)
        intakes = intakes_of(found, pipeline, drivers)
    _check_drivers(hosts, len(stages), [one.name for one in intakes], problems)
    return replace(pipeline, stages=(*pipeline.stages, *intakes))


def _table(found: Any, path: Path, problems: Problems, within: Keys | None = None) -> Table:
    """Read each value of a table by its key; those of a table `within` another are given."""
    keys = TABLES[str(path[0])] if within is None else within
    table = Table(path, problems)
    if not _is(dict, found, path, problems):
        # Of all its keys nothing is known, and of none of them more is to be said.
        table.bad.update(keys)
        return table
    for key, value in found.items():
        if key not in keys:
            table.bad.add(key)
            _add_stranger((*path, key), value, keys, problems)
            continue
        if not callable(reader := keys[key]):
            inner = _table(value, (*path, key), problems, reader)
            if inner.bad:
                table.bad.add(key)
            else:
                table.values[key] = inner.values
            continue
        try:
            table.values[key] = reader(value)
        except Wrong as wrong:
            table.bad.add(key)
            for one in (wrong, *wrong.others):
                problems.add((*path, key, *one.path), one.problem, one.right, found=one.found)
    return table


def _is(kind: type, found: Any, path: Path, problems: Problems) -> bool:
    """Tell whether a table, or a list of them, is what it is to be; add it when it is not."""
    if isinstance(found, kind):
        return True
    name = "stage.slurm" if path[2:] else str(path[0])
    is_one_of_many = name in ("stage", "hosts", "intake")
    keys = f"the keys of each {name.rstrip('s')}" if is_one_of_many else "its keys"
    right = f"right would be {_HEADERS.get(name, f'[{name}]')} above {keys}"
    if path in (("stage",), ("intake",)) and isinstance(found, dict):
        problems.add(path, f"[{name}] is one table, and not one of many", right)
    else:
        problems.add(path, f"is {kind_of(found)}", right, found=found)
    return False


def _stage_tables(found: Any, problems: Problems) -> list[Table]:
    if found == []:
        problems.add((), "there is no stage", _EXAMPLE)
    return _tables("stage", found, problems)


def _tables(name: str, found: Any, problems: Problems) -> list[Table]:
    """Read each of the tables that there are several of."""
    if not _is(list, found, (name,), problems):
        return []
    return [_table(one, (name, index), problems) for index, one in enumerate(found)]


def _host_tables(found: Any, problems: Problems) -> dict[str, dict[str, Any]]:
    if not _is(dict, found, ("hosts",), problems):
        return {}
    return {name: _table(found[name], ("hosts", name), problems).values for name in found}


def _add_stranger(path: Path, value: Any, known: Iterable[str], problems: Problems) -> None:
    """Add a key that means nothing where it stands, with what was probably meant."""
    key, at_top = str(path[-1]), len(path) == 1
    what = "is no table" if at_top and isinstance(value, dict | list) else "is no key"
    shown = {one: _HEADERS[one] if at_top else one for one in known}
    meant = MEANT.get(key.lower())
    near = meant if meant in shown else nearest(key, shown)
    homes = [
        header
        for table, header in _HEADERS.items()
        if table != "hosts" and TABLES[table] is not known and key in TABLES[table]
    ]
    if near:
        right = f"right would be {shown[near]}"
    elif homes:
        right = f"right would be to write it below {' or '.join(homes)}"
    else:
        right = f"known are {', '.join(shown.values())}"
    problems.add(path, f"{what} that is known here", right)


def _check_drivers(
    hosts: Mapping[str, Mapping[str, Any]], stages: int, intakes: Sequence[str], problems: Problems
) -> None:
    """Add drivers that a host is to have of stages, or of intakes, that there are not."""
    names = [*problems.names.values(), *intakes]
    if len(problems.names) < stages:
        # Of a stage without a name, nobody knows whether it is the one that is meant.
        return
    for host, said in hosts.items():
        for name in said.get("drivers", {}):
            if name not in names:
                near = nearest(name, names)
                known = f"the stages are {', '.join(names) or 'none'}"
                right = f"right would be {near}" if near else known
                problems.add(("hosts", host, "drivers", name), "is no stage", right)


# Its stages


def _complete(table: Table, shared: Table) -> None:
    """Give a stage what [pipeline] says for all; but for the bounds between stages, which a last
    stage does not get from there."""
    ours, own = SHARED_KEYS.keys() - _BETWEEN.keys(), table.values
    env = {**shared.values.get("env", {}), **own.get("env", {})}
    table.bad |= (shared.bad & SHARED_KEYS.keys()) - own.keys()
    table.values = {key: said for key, said in shared.values.items() if key in ours} | own
    if "env" in table.values:
        table.values["env"] = env


def _stage(table: Table, before: tuple[Stage, Table] | None) -> Stage:
    """Return a stage, with everything but what depends on the host and on where the queues are."""
    values = table.values
    if "name" not in values and "name" not in table.bad:
        table.bad.add("name")
        table.add("name", "is missing", 'right would be as in name = "parse"')
    kind = _kind(table)
    # What a stage has under the very name of its key.
    fields = {key: value for key, value in values.items() if key in Stage.__struct_fields__}
    fields.pop("slurm", None)
    has_queues = "worker" not in values and "worker" not in table.bad
    return Stage(
        inputs=_inputs(table, before) if has_queues else (),
        outputs=_outputs(table) if has_queues else (),
        kind=kind,
        work=values.get(kind, ""),
        **{"name": "", **fields},
    )


def _kind(table: Table) -> Kind:
    """Return which of the kinds says what is done."""
    kinds = [kind for kind in KINDS if kind in table.values or kind in table.bad]
    if len(kinds) == 1 or table.bad.issuperset(KINDS):
        return kinds[0]
    table.bad.update(KINDS)
    if not kinds:
        right = 'right would be a call = "module:function", a command = […] or a server = […]'
        table.add("", "does not say what is done to a document", right)
        return "call"
    problem = f"is one too many: {' and '.join(kinds)} each say what is done to a document"
    table.add(kinds[-1], problem, "right would be one of them")
    return kinds[0]


def _inputs(table: Table, before: tuple[Stage, Table] | None) -> tuple[str, ...]:
    """Return the queues it takes from: unless it says so, what the stage before publishes into."""
    if "input" in table.values or "input" in table.bad:
        return tuple(table.values.get("input", ()))
    if before is None:
        return (FIRST_INPUT,)
    outputs = before[0].outputs
    if len(outputs) == 1:
        return outputs
    table.bad.add("input")
    if "output" not in before[1].bad:
        has = f"{len(outputs)} outputs: {', '.join(outputs)}" if outputs else "no output"
        right = f'right would be as in input = "{outputs[0] if outputs else FIRST_INPUT}"'
        table.add("input", f"is missing, and the stage before has {has}", right)
    return ()


def _outputs(table: Table) -> tuple[str, ...]:
    """Return the queues it publishes into: unless it says so, one that is called like the stage."""
    if "output" in table.values:
        return tuple(table.values["output"])
    if "output" not in table.bad and "name" in table.values:
        return (table.values["name"],)
    table.bad.add("output")
    return ()


def _bounds(
    stage: Stage, table: Table, shared: Mapping[str, Any], taken: set[str]
) -> dict[str, int | None]:
    """Return the bounds of the queues behind a stage: none where nobody takes from them."""
    between = bool(stage.outputs) and taken.issuperset(stage.outputs)
    usual = {key: shared.get(key, bound) if between else None for key, bound in _BETWEEN.items()}
    return {key: table.values.get(key, bound) for key, bound in usual.items()}
