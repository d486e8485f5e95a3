"""The template of a stage: `python -m watchdogd.preload` loads once, and drivers are its forks.

Its stdin is a socket to the watchdog. The first message says what to load; each one after it asks
for a spare (see spare.py). It runs one thread, and no code of the user's once it is loaded. When
the socket is closed, it leaves.
"""

import contextlib
import faulthandler
import gc
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import NoReturn

import msgspec

from queuedriver.driving.recycling import resident_memory
from queuedriver.errors import BUG, ConfigError, QueueError, exit_code_of
from queuedriver.processors.call import CallProcessor, load
from watchdogd import kernel
from watchdogd.spare import LIMIT, end, make_spare

# Seconds for threads that were told to end.
_ENDING = 1.0


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What a template is told first."""

    stage: str
    # Where the pipeline's file is: modules are found there.
    directory: str
    # What is done to documents: `package.module:function`, or a plug-in.
    call: str
    # A function that loads more, if any: `package.module:function`.
    function: str = ""
    # The pid of whoever wants it.
    watchdog: int
    # What its environment, and that of its forks, has besides the watchdog's own.
    env: dict[str, str]
    # The request for another one than there was; empty: none.
    restart: str = ""


class Loaded(msgspec.Struct, frozen=True, tag="loaded"):
    """It is ready to fork. Time in seconds, memory in bytes."""

    loaded_in: float
    rss: int
    pss: int
    # What a user had better know.
    note: str


class Unfit(msgspec.Struct, frozen=True, tag="unfit"):
    """It will end now, and why; its exit code says whether to try again."""

    why: str


# What a driver does with its order, until its exit code.
Live = Callable[[bytes, CallProcessor], int]


class Forked(CallProcessor):
    """The loaded function in a driver; what forks must not share is opened anew at its start."""

    def __init__(self, loaded: CallProcessor, hooks: Sequence[Callable[[], object]] = ()) -> None:
        super().__init__(loaded.function, loaded.name)
        self._hooks = hooks

    def start(self, marker: str) -> None:
        super().start(marker)
        for hook in self._hooks:
            hook()


def main(live: Live | None = None) -> NoReturn:
    """The template's process, and in time each of its drivers'."""
    code = BUG
    try:
        control = _take_control()
        code = _be_template(control, live or _hand())
    except SystemExit as leaving:
        if isinstance(leaving.code, str):
            print(leaving.code, file=sys.stderr)
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:  # noqa: BLE001 - the top of a process, and none may go on as another's
        traceback.print_exc()
    finally:
        end(code)


def _hand() -> Live:
    # Before the user's modules, which may be called like some of those that this brings along.
    from watchdogd.hand import live as drive
    from watchdogd.orders import decode

    return lambda order, processor: drive(decode(order), processor)


def _take_control() -> socket.socket:
    """Our stdin is not for whatever is loaded to read."""
    control = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return control


def _be_template(control: socket.socket, live: Live) -> int:
    order = msgspec.json.decode(control.recv(LIMIT), type=Load)
    kernel.die_with_parent(order.watchdog)
    kernel.set_name(f"load {order.stage}")
    # One that hangs can be asked where.
    faulthandler.register(signal.SIGUSR2)
    began_at = time.monotonic()
    try:
        processor = _prepare(order)
        note = _check_threads()
    except Exception as error:  # noqa: BLE001 - a user's modules, and whatever they raise
        traceback.print_exception(error)
        why, code = _verdict(error)
        control.send(msgspec.json.encode(Unfit(why)))
        return code
    if note:
        print(f"{order.stage}: {note}", file=sys.stderr)
    loaded = Loaded(time.monotonic() - began_at, *_memory(), note)
    control.send(msgspec.json.encode(loaded))
    return _serve(control, order, processor, live)


def _serve(control: socket.socket, order: Load, processor: CallProcessor, live: Live) -> int:
    """Fork a spare for each message; in a spare, drive."""
    while _asked(control):
        given = make_spare(control, order.stage, order.watchdog)
        if given is not None:
            return _drive(given, processor, live) if given else 0
    return 0


def _drive(order: bytes, processor: CallProcessor, live: Live) -> int:
    code = live(order, processor)
    # As at the end of any program: threads that are no daemons are waited for.
    threading._shutdown()  # type: ignore[attr-defined]
    return code


def _asked(control: socket.socket) -> bool:
    try:
        return bool(control.recv(LIMIT))
    except ConnectionResetError:
        # The watchdog closed it with something unread.
        return False


def _prepare(order: Load) -> Forked:
    """Load all that drivers have in common."""
    os.chdir(order.directory)
    sys.path.insert(0, order.directory)
    loaded = load(order.call, said="call")
    named = [order.call if ":" in order.call else loaded.function.__module__]
    if order.function:
        load(order.function, said="preload").function()
        named.append(order.function)
    # A driver imports it when it first waits, and it takes a while.
    with contextlib.suppress(ImportError):
        import watchdog.observers.inotify  # noqa: F401
    # Its thread is not there in a fork, which would wait for it for ever.
    faulthandler.cancel_dump_traceback_later()
    # What a collection in a driver does not visit, it does not copy.
    gc.collect()
    gc.freeze()
    kernel.collapse_memory()
    modules = dict.fromkeys(reference.partition(":")[0] for reference in named)
    hooks = [getattr(sys.modules.get(name), "after_fork", None) for name in modules]
    return Forked(loaded, [hook for hook in hooks if callable(hook)])


def _check_threads() -> str:
    """ConfigError for Python's threads; what there is to say of others."""
    until = time.monotonic() + _ENDING
    others = [one for one in threading.enumerate() if one is not threading.main_thread()]
    for thread in others:
        thread.join(max(0.0, until - time.monotonic()))
    names = [repr(thread.name) for thread in others if thread.is_alive()]
    # Those that were not started by `threading` have no names.
    count = max(len(names), len(sys._current_frames()) - 1)
    if count:
        raise ConfigError(
            f"loading left {_threads(count)} of Python's running ({', '.join(names) or 'unnamed'}),"
            " which drivers would not have, and what they hold locked would stay locked: end them "
            "before the module is imported or the preload function returns, start them in "
            "after_fork(), or set preload = false"
        )
    tasks = [task for task in os.listdir("/proc/self/task") if int(task) != os.getpid()]
    if not tasks:
        return ""
    return (
        f"loading left {_threads(len(tasks))} of native code running ({_commands(tasks)}), which "
        "drivers do not have: if they hang, have the library use one thread, load it in "
        "after_fork(), or set preload = false"
    )


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def _commands(tasks: Sequence[str]) -> str:
    found = set()
    for task in tasks:
        # It may have ended just now.
        with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/comm") as file:
            found.add(repr(file.read().strip()))
    return ", ".join(sorted(found))


def _verdict(error: Exception) -> tuple[str, int]:
    """What went wrong in a line, and the exit code for it."""
    code = exit_code_of(error)
    if isinstance(error, QueueError):
        return str(error), error.exit_code
    words = f"{type(error).__name__}: {error}"
    return (f"loading failed: {words}", BUG) if code is None else (words, code)


def _memory() -> tuple[int, int]:
    """RSS and PSS."""
    try:
        with open("/proc/self/smaps_rollup") as file:
            sizes = dict(line.split()[:2] for line in file)
        return int(sizes["Rss:"]) * 1024, int(sizes["Pss:"]) * 1024
    except (OSError, KeyError):
        # A kernel without, or a /proc that hides it.
        return resident_memory(), resident_memory()


if __name__ == "__main__":
    main()
