"""The files by which anybody steers a pipeline, from any host: `<root>/.watchdogd/`.

    PAUSE                        no stage claims anything new
    QUIT                         finish what is at hand and leave; with `now` in it: at once
    scale-<stage>, scale         how many drivers (scaling.py)
    restart-<target>-<serial>    once; target: a stage, or a driver such as parse-2; `@host` after
                                 it: there alone
    reload-<serial>              once: read the pipeline's file again
    hosts/<host>.json            what the watchdog of that host says of itself
    logs/<host>/, events/        what it keeps on its host, copied here

What the command line does is here too: each of its moves writes or removes one of these. A file
that says nothing we know is no error: a note tells of it, and the others count.
"""

import errno
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Literal

from queuedriver.claims.liveness import draw_salt
from queuedriver.disk.filesystem import Directory
from queuedriver.errors import BadArgument, CannotUse, NotFound, NotRegular, is_trouble
from queuedriver.format import names
from watchdogd.messages import Controls, Request
from watchdogd.scaling import (
    MOST_DRIVERS,
    SCALE,
    form_name,
    form_number,
    parse_name,
    strangers,
    visible,
    wanted_here,
)

CONTROL = ".watchdogd"
PAUSE = names.PAUSE
QUIT = names.QUIT
HOSTS = "hosts"
LOGS = "logs"
EVENTS = "events"
OUR_DIRECTORIES = (HOSTS, LOGS, EVENTS)
# Random digits by which the root is known again.
LANDMARK = "landmark"
NOW = "now"
# What a PAUSE in a queue says that is there because the whole pipeline is paused.
MARK = b"watchdogd\n"

_OURS = {*OUR_DIRECTORIES, LANDMARK}
# People write these files; more than so much is something else.
_LIMIT = 64 << 10
_MOST_FILES = 1000
_MOST_NOTES = 10

# A serial is microseconds and a salt, as in an N; or what `date +%s` and `date +%s%N` print.
_SERIAL = re.compile(r"[0-9a-f]{10,20}")
_REQUEST = re.compile(
    rf"(?s)(?:restart-(?P<target>[^@]+?)(?:@(?P<host>.+))?|reload)-(?P<serial>{_SERIAL.pattern})"
)


# Pure


def parse_request(name: str) -> tuple[Request, str] | None:
    """What a file's name asks for, and of which host (empty: all); None when it asks nothing."""
    found = _REQUEST.fullmatch(name)
    if found is None or not name.isprintable():
        return None
    if found["target"] is None:
        return Request("reload", "", found["serial"]), ""
    return Request("restart", found["target"], found["serial"]), found["host"] or ""


def request_name(request: Request, host: str = "") -> str:
    """The inverse."""
    at = f"@{host}" if host else ""
    target = f"-{request.target}{at}" if request.target else ""
    return f"{request.kind}{target}-{request.serial}"


def form_serial(now_us: int, salt: str) -> str:
    """The serial of a request; none is ever used twice."""
    return f"{now_us:014x}{salt}"


def host_file(host: str) -> str:
    """A host's name as part of a file's name."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", host).lstrip(".")[:100] or "host"


def parse_quit(text: str) -> tuple[Literal["drain", "now"], list[str]]:
    """How to leave."""
    word = text.strip()
    if word == NOW:
        return "now", []
    notes = [f"{CONTROL}/{QUIT}: {visible(word)} is not understood; it may say {NOW}, or nothing"]
    return "drain", notes if word else []


def _why_nothing(name: str) -> str:
    """What to say of a file that is none of these."""
    shown = f"{CONTROL}/{visible(name)}"
    if name.startswith(("restart-", "reload")):
        return f"{shown} has no serial; touch {shown.rstrip('-')}-$(date +%s)"
    return f"{shown} is no control file"


# Read


def read(directory: Directory, host: str, stages: Collection[str] | None = None) -> Controls:
    """All that is said in a control directory, as far as this host goes; `stages` are those there
    are, where that is known. An OSError is only of the file system: what a single file says wrong
    is a note."""
    listed = list(islice(directory.names(), _MOST_FILES + 1))
    notes = []
    if len(listed) > _MOST_FILES:
        notes.append(f"{directory.path} has more than {_MOST_FILES} files; remove what is no use")
    seen = {name for name in listed if name[0] != "." and name not in _OURS}
    asked = {name: found for name in sorted(seen) if (found := parse_request(name))}
    scales = {name: about[1] for name in sorted(seen) if (about := parse_name(name))}
    known = {PAUSE, QUIT, SCALE, *asked, *scales}
    notes += [_why_nothing(name) for name in sorted(seen - known)]
    leave: Literal["", "drain", "now"] = ""
    if QUIT in seen and (text := _text(directory, QUIT, notes)) is not None:
        leave, more = parse_quit(text)
        notes += more
    texts = {
        name: text
        for name in [*([SCALE] if SCALE in seen else []), *scales]
        if scales.get(name, "") in ("", host)
        and (text := _text(directory, name, notes)) is not None
    }
    lines = texts.pop(SCALE, "")
    numbers, more = wanted_here(texts, lines, host)
    notes += [f"{CONTROL}/{one}" for one in more]
    if stages is not None:
        notes += [f"{CONTROL}/{one}" for one in strangers(numbers, stages)]
    return Controls(
        paused=PAUSE in seen,
        quit=leave,
        scale=numbers,
        requests=tuple(request for request, where in asked.values() if where in ("", host)),
        notes=tuple(notes[:_MOST_NOTES]),
    )


def _text(directory: Directory, name: str, notes: list[str]) -> str | None:
    """A file that somebody wrote; None when there is none to be read."""
    try:
        return directory.read(name, _LIMIT).decode(errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        if is_trouble(error) and error.errno != errno.ENXIO:
            raise
        notes.append(f"{CONTROL}/{name} cannot be read: {error.strerror}")
        return None


# The moves of the command line


def pause(root: str, queues: Sequence[str] = ()) -> None:
    """Pause the whole pipeline, or a stage: the queues that it takes from."""
    for path in queues or [CONTROL]:
        with _opened(root, path) as directory:
            directory.write_aside(PAUSE, b"", durable=True)


def resume(root: str, queues: Sequence[str] = ()) -> None:
    """Undo `pause`, and what `queuedriver quit` did to a stage's queues. What was paused with the
    whole pipeline, the watchdogs resume with it."""
    for path in queues or [CONTROL]:
        with _opened(root, path) as directory:
            directory.remove(PAUSE)
            if queues:
                directory.remove(QUIT)
            directory.sync()


def scale(root: str, wanted: Mapping[str, int | None], host: str | None = None) -> None:
    """Say how many drivers stages are to have, on one host or on each; None: as the pipeline's
    file says. What others say of other stages and hosts at this moment stays."""
    for stage, number in wanted.items():
        if number is not None and not 0 <= number <= MOST_DRIVERS:
            raise BadArgument(f"{stage}={number}: 0 to {MOST_DRIVERS} drivers")
    with _opened(root, CONTROL) as directory:
        for stage, number in wanted.items():
            name = form_name(stage, host or "")
            # Where something else may be said, for all hosts or in the lines of `scale`, that must
            # not count here either.
            if number is None and not host and not directory.present(SCALE):
                directory.remove(name)
                directory.sync()
            else:
                directory.write_aside(name, form_number(number).encode(), durable=True)


def restart(root: str, target: str, now_us: int, host: str = "") -> Request:
    """Ask that a stage's drivers, or one driver, be started anew, on one host or on each."""
    return _ask(root, Request("restart", target, form_serial(now_us, draw_salt())), host)


def reload(root: str, now_us: int) -> Request:
    """Ask all watchdogs to read their pipeline's file again."""
    return _ask(root, Request("reload", "", form_serial(now_us, draw_salt())))


def stop(root: str, *, now: bool = False) -> None:
    """Ask all watchdogs to leave: after the documents at hand, or at once."""
    with _opened(root, CONTROL) as directory:
        directory.write_aside(QUIT, f"{NOW}\n".encode() if now else b"", durable=True)


def _ask(root: str, request: Request, host: str = "") -> Request:
    with _opened(root, CONTROL) as directory:
        directory.write_aside(request_name(request, host), b"", durable=True)
    return request


@contextmanager
def _opened(root: str, name: str) -> Iterator[Directory]:
    """A directory under the root; that of the control files is made."""
    path = os.path.join(root, name)
    if not os.path.isdir(root if name == CONTROL else path):
        raise NotFound(f"no directory {path!r}; watchdogd run makes it. Is it mounted here?")
    try:
        directory = Directory.open(path, create=True, inside=name == CONTROL)
    except NotADirectoryError:
        raise CannotUse(f"{path!r} is not a directory, but a file or a link; remove it") from None
    try:
        yield directory
    except (IsADirectoryError, NotRegular) as error:
        where = os.path.join(path, os.path.basename(os.fsdecode(error.filename)))
        raise CannotUse(f"{where!r} is a directory; remove it by hand") from None
    finally:
        directory.close()
