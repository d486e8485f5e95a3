"""The files by which anybody steers a pipeline, from any host: `<root>/.watchdogd/`.

    PAUSE                        no stage claims anything new
    QUIT                         finish what is at hand and leave; with `now` in it: at once
    scale-<stage>                how many drivers: `4`, or `auto`, as the pipeline's file says;
                                 `@host` after the stage: there, whatever is said for all
    restart-<target>-<serial>    once; target: a stage, or a driver such as parse-2; `@host` after
                                 it: there alone
    reload-<serial>              once: read the pipeline's file again
    hosts/<host>.json            what the watchdog of that host says of itself
    logs/<host>/, events/        what it keeps on its host, copied here; what operators asked for
    history/<host>/              what its stages did (operators/history.py)
    batches/<id>.json            documents that an operator has put back together

What the command line does is here too: each of its moves writes or removes one of these. Each
number has a file of its own, so that two people who change two of them at one moment do not undo
each other. A file that says nothing we know is no error: a note tells of it, and the others count.
"""

import errno
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Literal

from queuedriver.claims.liveness import draw_salt
from queuedriver.disk.filesystem import Directory
from queuedriver.driving.closing import set_control
from queuedriver.errors import (
    BadArgument,
    CannotUse,
    NotFound,
    NotPermitted,
    NotRegular,
    is_trouble,
)
from queuedriver.format import names
from queuedriver.format.units import visible
from watchdogd.helper_messages import Controls, Request
from watchdogd.pipeline.model import MAX_DRIVERS

CONTROL = ".watchdogd"
PAUSE = names.PAUSE
QUIT = names.QUIT
HOSTS = "hosts"
LOGS = "logs"
EVENTS = "events"
HISTORY = "history"
BATCHES = "batches"
OUR_DIRECTORIES = (HOSTS, LOGS, EVENTS, HISTORY)
# Random digits by which the root is known again.
LANDMARK = "landmark"
NOW = "now"
SCALE = "scale"
AUTO = "auto"
# What a PAUSE in a queue says that is there because the whole pipeline is paused.
MARK = b"watchdogd\n"

# What was asked of Slurm, and what it said (slurm/submissions.py).
SLURM = "slurm"

_OURS = {*OUR_DIRECTORIES, BATCHES, LANDMARK, SLURM}
# People write these files; more than so much is something else.
_LIMIT = 64 << 10
_MOST_FILES = 1000
_MOST_NOTES = 10
# Of what somebody wrote, in characters.
_MOST_SHOWN = 80

# A serial is microseconds and a salt, as in an N; or what `date +%s` and `date +%s%N` print.
_SERIAL = re.compile(r"[0-9a-f]{10,20}")
_REQUEST = re.compile(
    rf"(?s)(?:restart-(?P<target>[^@]+?)(?:@(?P<host>.+))?|reload)-(?P<serial>{_SERIAL.pattern})"
)
_SCALE = re.compile(rf"(?s){SCALE}-(?P<stage>[^=@\s]+)(?:@(?P<host>.+))?")
_NUMBER = re.compile(rf"[0-9]{{1,4}}|{AUTO}")


# Pure


def parse_scale(name: str) -> tuple[str, str] | None:
    """Return the stage and the host (empty: all) that a file's name is about; None: about none."""
    found = _SCALE.fullmatch(name)
    if found is None or not name.isprintable():
        return None
    return found["stage"], found["host"] or ""


def scale_name(stage: str, host: str = "") -> str:
    """Form the file name that `parse_scale` reads."""
    return f"{SCALE}-{stage}" + (f"@{host}" if host else "")


def parse_number(text: str) -> int | None:
    """Return how many drivers such a file asks for; None: as the pipeline's file says. Raises
    BadArgument for what is neither."""
    said = text.partition("#")[0].strip()
    if not _NUMBER.fullmatch(said):
        what = _shown(said) or "an empty file"
        raise BadArgument(f"{what} is not understood; it says 4, or {AUTO}")
    return None if said == AUTO else int(said)


def parse_request(name: str) -> tuple[Request, str] | None:
    """Return what a file's name asks for, and of which host (empty: all); None where it asks for
    nothing."""
    found = _REQUEST.fullmatch(name)
    if found is None or not name.isprintable():
        return None
    if found["target"] is None:
        return Request("reload", "", found["serial"]), ""
    return Request("restart", found["target"], found["serial"]), found["host"] or ""


def request_name(request: Request, host: str = "") -> str:
    """Form the file name that `parse_request` reads."""
    at = f"@{host}" if host else ""
    target = f"-{request.target}{at}" if request.target else ""
    return f"{request.kind}{target}-{request.serial}"


def host_file(host: str) -> str:
    """Return a host's name as part of a file's name."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", host).lstrip(".")[:100] or "host"


def report_name(host: str) -> str:
    """Return the name of a host's report."""
    return f"{host_file(host)}.json"


def parse_quit(text: str) -> tuple[Literal["drain", "now"], list[str]]:
    """Return how to leave, and what to say of other words."""
    word = text.strip()
    if word == NOW:
        return "now", []
    notes = [f"{CONTROL}/{QUIT}: {_shown(word)} is not understood; it may say {NOW}, or nothing"]
    return "drain", notes if word else []


def _shown(text: str) -> str:
    """Return what anybody may have written, fit for a terminal and for JSON."""
    return visible(text[:_MOST_SHOWN])


def _why_nothing(name: str) -> str:
    """Return what to say of a file that is none of these."""
    shown = f"{CONTROL}/{_shown(name)}"
    if name.startswith(SCALE):
        return f"{shown} names no stage; right would be {CONTROL}/{scale_name('parse')}"
    if name.startswith(("restart-", "reload")):
        return f"{shown} has no serial; touch {shown.rstrip('-')}-$(date +%s)"
    return f"{shown} is no control file"


# Read


def read(directory: Directory, host: str, stages: Collection[str] | None = None) -> Controls:
    """Return all that is said in a control directory, as far as this host goes; `stages` are those
    there are, where that is known. An OSError is only of the file system: what a single file says
    wrong is a note."""
    listed = list(islice(directory.names(), _MOST_FILES + 1))
    notes = []
    if len(listed) > _MOST_FILES:
        notes.append(f"{directory.path} has more than {_MOST_FILES} files; remove what is no use")
    leave: Literal["", "drain", "now"] = ""
    quit_at = 0
    requests = []
    # For each host and for this one: what names the host outdoes what names none.
    numbers: dict[str, dict[str, int | None]] = {"": {}, host: {}}
    for name in sorted(name for name in listed if name[0] != "." and name not in _OURS):
        if asked := parse_request(name):
            request, where = asked
            if where in ("", host):
                requests.append(request)
        elif about := parse_scale(name):
            stage, where = about
            if where in numbers and (text := _text(directory, name, notes)) is not None:
                try:
                    numbers[where][stage] = parse_number(text)
                except BadArgument as error:
                    notes.append(f"{CONTROL}/{name}: {error}")
                if stages is not None and stage not in stages:
                    words = f"no stage is called {_shown(stage)}; there are: {', '.join(stages)}"
                    notes.append(f"{CONTROL}/{_shown(name)}: {words}")
        elif name == QUIT:
            # Before its words: one that takes its place between the two is known by the next look.
            with suppress(FileNotFoundError):
                quit_at = directory.status(name).st_mtime_ns
            if (text := _text(directory, name, notes)) is not None:
                leave, more = parse_quit(text)
                notes += more
        elif name != PAUSE:
            notes.append(_why_nothing(name))
    return Controls(
        paused=PAUSE in listed,
        quit=leave,
        quit_at=quit_at,
        scale=numbers[""] | numbers[host],
        requests=tuple(requests),
        notes=tuple(notes[:_MOST_NOTES]),
    )


def _text(directory: Directory, name: str, notes: list[str]) -> str | None:
    """Return what somebody wrote into a file; None where there is none to be read."""
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
            set_control(directory, PAUSE, wanted=True)


def resume(root: str, queues: Sequence[str] = ()) -> None:
    """Undo `pause`, and what `queuedriver quit` did to a stage's queues. What was paused with the
    whole pipeline, the watchdogs resume with it."""
    for path in queues or [CONTROL]:
        with _opened(root, path) as directory:
            for name in (PAUSE, QUIT) if queues else (PAUSE,):
                set_control(directory, name, wanted=False)


def scale(root: str, wanted: Mapping[str, int | None], host: str | None = None) -> None:
    """Say how many drivers stages are to have, on one host or on each; None: as the pipeline's
    file says. What others say of other stages and hosts at this moment stays."""
    for stage, number in wanted.items():
        if number is not None and not 0 <= number <= MAX_DRIVERS:
            raise BadArgument(f"{stage}={number}: 0 to {MAX_DRIVERS} drivers")
    for stage, number in wanted.items():
        name = scale_name(stage, host or "")
        if number is not None or host:
            # On one host `auto` outdoes what may be said for all.
            _write(root, name, f"{AUTO if number is None else number}\n")
            continue
        with _opened(root, CONTROL) as directory:
            directory.remove(name)
            directory.sync()


def restart(root: str, target: str, now_us: int, host: str = "") -> Request:
    """Ask that a stage's drivers, or one driver, be started anew, on one host or on each."""
    return _ask(root, "restart", target, now_us, host)


def reload(root: str, now_us: int) -> Request:
    """Ask all watchdogs to read their pipeline's file again."""
    return _ask(root, "reload", "", now_us)


def stop(root: str, *, now: bool = False) -> None:
    """Ask all watchdogs to leave: after the documents at hand, or at once."""
    _write(root, QUIT, f"{NOW}\n" if now else "")


def _ask(
    root: str, kind: Literal["restart", "reload"], target: str, now_us: int, host: str = ""
) -> Request:
    # Two at one moment are two.
    request = Request(kind, target, f"{now_us:014x}{draw_salt()}")
    _write(root, request_name(request, host))
    return request


def _write(root: str, name: str, said: str = "") -> None:
    with _opened(root, CONTROL) as opened:
        opened.write_aside(name, said.encode(), durable=True)


@contextmanager
def _opened(root: str, name: str) -> Iterator[Directory]:
    """Open a directory under the root; make that of the control files."""
    path = os.path.join(root, name)
    try:
        ours = name == CONTROL
        directory = Directory.open(path, create=ours, inside=ours)
    except FileNotFoundError:
        words = "watchdogd run makes it. Is it mounted here?"
        raise NotFound(f"no directory {path!r}; {words}") from None
    except NotADirectoryError:
        raise CannotUse(f"{path!r} is not a directory, but a file or a link; remove it") from None
    try:
        yield directory
    except (IsADirectoryError, NotRegular) as error:
        where = os.path.join(path, os.path.basename(os.fsdecode(error.filename)))
        raise CannotUse(f"{where!r} is a directory; remove it by hand") from None
    except PermissionError:
        words = "may not be changed: permission denied; who steers must be able to write in it"
        raise NotPermitted(f"{path} {words}") from None
    finally:
        directory.close()
