"""What drivers are called, and where a watchdog keeps what is its own on this host.

Nothing here is below the root of a pipeline: a watchdog must go on while that does not answer.

    <state>/<root>-<hash>/    logs, events.jsonl, boards, orders
    <chosen>/<hash>.lock      one watchdog for each host and root

<chosen> is the state directory that was chosen, <state> the same but where that may hang (below).
Both are those of a root on a host, whatever the pipeline is called: under another name it is kept
by the next watchdog all the same, which must find the drivers of the one before.
"""

import os
import pwd
import re
from collections.abc import Callable
from contextlib import closing, suppress
from functools import cache
from importlib import import_module
from typing import Any

from queuedriver.claims.liveness import host_id
from queuedriver.disk.mounts import UNKNOWN, filesystem_type, is_network, mounted_by_name
from queuedriver.disk.processes import process_ticks
from queuedriver.format.names import MAX_DRIVER_ID
from watchdogd.pipeline.model import MAX_DRIVERS, MAX_STAGE_NAME

STATE_VARIABLE = "WATCHDOGD_STATE"
BOARDS = "boards"
LOGS = "logs"
_OF_ROOT = "/var/lib/watchdogd"
_IN_HOME = ".local/state"
# A driver id is `<host>-<stage>-<slot>`: 10 for the host, 16 for the stage, 4 for the slot.
_MAX_HOST = MAX_DRIVER_ID - MAX_STAGE_NAME - len(str(MAX_DRIVERS)) - 2
_TELLING = 4


def state_directory(kind_of: Callable[[str], str] = filesystem_type) -> str:
    """Return where all watchdogs of this user keep their state on this host: what was chosen, or,
    where that is on a network mount, the runtime directory. A watchdog must not wait for a network,
    nor show in memory what a server may take away."""
    chosen = chosen_directory()
    if not may_hang(kind_there(chosen, kind_of)):
        return chosen
    from queuedriver.disk.runtime import runtime_directory

    runtime = runtime_directory()
    return chosen if may_hang(kind_of(runtime)) else os.path.join(runtime, "watchdogd")


def kind_there(path: str, kind_of: Callable[[str], str] = filesystem_type) -> str:
    """Return the kind of file system that a directory is on, or would be if it were made. Who has
    to wait for it to tell that need not touch it: what is mounted there says so too."""
    mounted = mounted_by_name(path)
    if may_hang(mounted):
        # Late: most are on a disk of this host.
        from watchdogd.host import answers

        if not answers(lambda: kind_of(existing(path))):
            return mounted
    return kind_of(existing(path))


def may_hang(kind: str) -> bool:
    """Return whether whoever uses such a file system may have to wait for a network."""
    return kind != UNKNOWN and is_network(kind)


def existing(path: str) -> str:
    """Return the path itself, or the nearest above it that is there."""
    while not os.path.lexists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path


def chosen_directory() -> str:
    """Return where this user wants the state to be on this host."""
    if chosen := os.environ.get(STATE_VARIABLE):
        return os.path.abspath(chosen)
    if os.getuid() == 0:
        return _OF_ROOT
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser(os.path.join("~", _IN_HOME))
    return os.path.join(base, "watchdogd")


def state_of(user: str) -> str | None:
    """Return where the watchdogs that this user starts by hand keep theirs; None without a home."""
    if chosen := os.environ.get(STATE_VARIABLE):
        return os.path.abspath(chosen)
    try:
        found = pwd.getpwuid(int(user)) if user.isdecimal() else pwd.getpwnam(user)
    except KeyError:
        return None
    if found.pw_uid == 0:
        return _OF_ROOT
    if not os.path.isdir(found.pw_dir):
        return None
    return os.path.join(found.pw_dir, _IN_HOME, "watchdogd")


def local_directory(root: str, host: str) -> str:
    """Return where one watchdog keeps what is of one pipeline. The end of the root's path,
    `data-queues`, tells people; the hash tells two apart."""
    parts = os.path.realpath(root).split(os.sep)
    end = "-".join(part for part in parts[-2:] if part)
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", end)[-40:].strip(".-") or "root"
    return os.path.join(state_directory(), f"{plain}-{_key(root, host)}")


def lock_path(root: str, host: str) -> str:
    """Return the file whose lock a watchdog holds. Not in the runtime directory: that of a login
    and that of a service differ, and these two must meet."""
    return os.path.join(chosen_directory(), f"{_key(root, host)}.lock")


def _key(root: str, host: str) -> str:
    # By whatever links it was reached, it is one root.
    return digits_of(f"{os.path.realpath(root)}\0{host}", 10)


def digits_of(text: str, count: int) -> str:
    """Return so many digits that tell a text from others."""
    digits: str = _sha256()(text.encode(errors="surrogateescape")).hexdigest()
    return digits[:count]


@cache
def _sha256() -> Any:
    """Return Python's own function, where it has one: hashlib takes that of OpenSSL, and 4 MB of
    memory with it."""
    for module in ("_sha2", "_sha256"):
        with suppress(ImportError):
            return import_module(module).sha256
    return import_module("hashlib").sha256


def driver_id(host: str, stage: str, slot: int) -> str:
    """Return the id of one driver: no other stage, slot or host has the same."""
    return f"{short_host(host)}-{short_name(stage, slot)}"


def short_name(stage: str, slot: int) -> str:
    """Return what people call a driver: `parse-2`."""
    return f"{stage}-{slot}"


def stage_of(name: str) -> tuple[str, int] | None:
    """Return the stage and the number of a driver that people call so; None when it is no such
    name."""
    stage, _, number = name.rpartition("-")
    return (stage, int(number)) if stage and number.isdecimal() else None


def load_name(stage: str) -> str:
    """Return what people call the process that loads for all drivers of a stage."""
    return f"{stage}-load"


def short_host(host: str) -> str:
    """Return a host's name in a driver id. One that is too long keeps its beginning and a few
    digits that tell it from others that begin alike."""
    plain = host_id(host)
    if len(plain) <= _MAX_HOST and plain == host:
        return plain
    digits = digits_of(host, _TELLING)
    return f"{plain[: _MAX_HOST - _TELLING - 1].rstrip('_-')}_{digits}"


def board_path(local: str, driver: str) -> str:
    """Return the file in which a driver shows what it does."""
    return os.path.join(local, BOARDS, f"{driver}.board")


def log_path(local: str, name: str) -> str:
    """Return the file that what is called so prints to."""
    return os.path.join(local, LOGS, f"{name}.log")


def slots_with_boards(local: str, host: str) -> list[tuple[str, int]]:
    """Return the stages and numbers of the slots that have, or had, a driver here."""
    board = re.compile(rf"{re.escape(short_host(host))}-(.+)-([1-9][0-9]*)\.board")
    try:
        names = os.listdir(os.path.join(local, BOARDS))
    except FileNotFoundError:
        # No driver was started yet, or somebody has removed it.
        return []
    found = map(board.fullmatch, names)
    return sorted((one[1], int(one[2])) for one in found if one is not None)


def dump_of(local: str, pid: int) -> str:
    """Return where the stacks of a driver go; empty when no driver has this pid."""
    # Late: for a watchdog that was killed.
    from queuedriver.driving.live_status import Board
    from queuedriver.errors import ConfigError

    for name in os.listdir(os.path.join(local, BOARDS)):
        path = os.path.join(local, BOARDS, name)
        with suppress(OSError, ConfigError), closing(Board.open(path)) as board:
            glimpse = board.read()
            if glimpse.pid == pid and glimpse.ticks == process_ticks(pid):
                return glimpse.dump
    return ""
