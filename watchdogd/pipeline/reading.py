"""Reads a pipeline file: all of it, or every mistake in it.

file  →  text        what cannot be read at all is one complaint
text  →  tables      tables.py: each value by its key
tables → stages      resolve.py: defaults filled in
stages               rules.py within each, graph.py among them
"""

import errno
import os
import re
import stat
import tomllib
from collections.abc import Iterator
from typing import Any, NamedTuple

from queuedriver.errors import is_trouble, trouble
from watchdogd.pipeline import graph, rules
from watchdogd.pipeline.complaints import (
    BadPipeline,
    Complaint,
    Path,
    Slip,
    denied,
    missing,
    nearest,
)
from watchdogd.pipeline.keys import SHARED_KEYS
from watchdogd.pipeline.model import Pipeline
from watchdogd.pipeline.positions import find_lines
from watchdogd.pipeline.resolve import Draft, draft_stages, resolve
from watchdogd.pipeline.source import Source
from watchdogd.pipeline.tables import Tables, read_tables

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
}
_SHARED = {(key,) for key in SHARED_KEYS}
_USUAL = "right would be TOML, as https://toml.io describes it"
_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


class Study(NamedTuple):
    """A pipeline, and the file that it was read from, for those who have more to complain of."""

    pipeline: Pipeline
    source: Source


def read(path: str | os.PathLike[str], host: str | None = None) -> Pipeline:
    """The pipeline of a file as one host is to run it. BadPipeline names every mistake."""
    return study(path, host).pipeline


def study(path: str | os.PathLike[str], host: str | None = None) -> Study:
    """The same, with the places of everything in the file."""
    shown, absolute = os.fspath(path), os.path.abspath(path)
    try:
        absolute.encode()
    except UnicodeEncodeError:
        # What names it, settings and registrations, is JSON.
        problem = f"is in {os.path.dirname(absolute)!r}, a name that is not UTF-8"
        raise _unreadable(ascii(shown), problem, "move it, or rename that") from None
    return parse(load(path), shown, absolute, host)


def load(path: str | os.PathLike[str]) -> str:
    """The text of a pipeline file."""
    return _decode(load_bytes(path), os.fspath(path))


def load_bytes(path: str | os.PathLike[str]) -> bytes:
    """What is in it, be that text or not."""
    shown = os.fspath(path)
    try:
        # A pipe would have us wait for whoever writes into it.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            kind = os.fstat(fd).st_mode
            data = os.read(fd, _MAX_SIZE + 1) if stat.S_ISREG(kind) else b""
        finally:
            os.close(fd)
    except (FileNotFoundError, NotADirectoryError):
        raise BadPipeline([missing(shown)]) from None
    except PermissionError:
        raise BadPipeline([denied(shown)]) from None
    except OSError as error:
        if error.errno == errno.ENXIO and not os.path.isfile(path):
            # So it is with a socket; otherwise a disk that is broken says so.
            raise _unreadable(shown, "is not a regular file", "name a pipeline file") from None
        if error.errno in (errno.ELOOP, errno.ENAMETOOLONG):
            raise _unreadable(shown, f"leads nowhere: {error.strerror}", "correct it") from None
        if is_trouble(error):
            raise trouble(error, f"cannot read {shown}") from None
        raise
    if not stat.S_ISREG(kind):
        what = "a directory" if stat.S_ISDIR(kind) else "not a regular file"
        raise _unreadable(shown, f"is {what}", "name a pipeline file")
    if len(data) > _MAX_SIZE:
        raise _unreadable(shown, f"is larger than {_MAX_SIZE} bytes", "name a pipeline file")
    return data


def _decode(data: bytes, shown: str) -> str:
    try:
        # Some editors begin a file with a mark that is no part of it.
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problem = f"is not UTF-8 (byte {data[error.start]:#x})"
        raise _unreadable(shown, problem, "save it as UTF-8", line) from None
    if not text.strip():
        raise _unreadable(shown, "is empty", _EXAMPLE)
    return text


def _unreadable(shown: str, problem: str, right: str, line: int = 0) -> BadPipeline:
    return BadPipeline([Complaint(file=shown, line=line, problem=f"it {problem}", right=right)])


def parse(text: str, shown: str, file: str, host: str | None = None) -> Study:
    """The pipeline in a text; complaints name the file as it is `shown`, and `file` is absolute."""
    document = _parse_toml(text, shown)
    tables = read_tables(document)
    drafts = draft_stages(tables)
    source = Source(shown, _lines(text, len(drafts)), _names(document))
    pipeline = resolve(tables, drafts, file, host)
    slips = [*tables.slips, *_slips(tables, drafts, source), *graph.archive_slips(pipeline)]
    if slips:
        raise BadPipeline(source.complaints(slips))
    return Study(pipeline, source)


def _slips(tables: Tables, drafts: tuple[Draft, ...], source: Source) -> Iterator[Slip]:
    """What is wrong with values that can each be read."""
    if not drafts and not any(slip.path == ("stage",) for slip in tables.slips):
        yield Slip((), "there is no stage", _EXAMPLE)
    for index, draft in enumerate(drafts):
        for slip in (*draft.slips, *rules.slips_of(draft.stage, draft.said, draft.bad)):
            yield slip.below("stage", index)
    agreed = ["existing" in one.said and one.stage.existing == "keep" for one in drafts]
    yield from graph.slips_of([draft.stage for draft in drafts], agreed)
    if len(source.names) < len(drafts):
        # Of a stage without a name, nobody knows whether it is the one that is meant.
        return
    for host, table in tables.hosts.items():
        for name in table.values.get("drivers", {}):
            if name not in source.names.values():
                near = nearest(name, source.names.values())
                known = ", ".join(source.names.values()) or "none"
                right = f"right would be {near}" if near else f"the stages are {known}"
                yield Slip(("hosts", host, "drivers", name), "is no stage", right)


def _lines(text: str, stages: int) -> dict[Path, int]:
    """Where everything is. What a stage does not say itself is where it is said for all."""
    lines = find_lines(text)
    for path in [path for path in lines if path[0] == "pipeline" and path[1:2] in _SHARED]:
        for index in range(stages):
            lines.setdefault(("stage", index, *path[1:]), lines[path])
    return lines


def _names(document: dict[str, Any]) -> dict[int, str]:
    stages = document.get("stage")
    if not isinstance(stages, list):
        return {}
    named = ((index, one.get("name")) for index, one in enumerate(stages) if isinstance(one, dict))
    return {index: name for index, name in named if isinstance(name, str)}


def _parse_toml(text: str, shown: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise _unreadable(shown, "is nested too deeply", "no list has lists in it here") from None
    except ValueError as error:
        # Of TOML, or of a number with thousands of digits.
        raise BadPipeline([_syntax(str(error), text, shown)]) from None


def _syntax(message: str, text: str, shown: str) -> Complaint:
    place = _PLACE.search(message)
    lines = text.splitlines() or [""]
    line = int(place[1]) if place and place[1] else len(lines) if place else 0
    said = message[: place.start()] if place else message
    where = f"column {place[2]}" if place and place[2] else "the end"
    source = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    right = next((right for word, right in _SYNTAX.items() if said.startswith(word)), _USUAL)
    return Complaint(
        file=shown,
        line=line,
        problem=f"not TOML at {where}: {said}",
        right=right,
        detail=(source,) if source else (),
    )
