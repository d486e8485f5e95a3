"""The template of a stage: it loads once, and drivers are its forks.

    python -P -m watchdogd.programs.template STAGE

Its stdin is a socket to the watchdog. The first message says what to load; each one after it is the
order of a driver. It runs one thread, and no code of the user's once it is loaded. When the socket
is closed, it leaves.

    template --fork--> middle --fork--> driver
    waits for both     ends at once     becomes the watchdog's child, says so, and drives

A driver that cannot say that it is there leaves: nobody would know it. A fork must not be handed
what is its template's own: a lock that is held, a buffer to be written twice, a clean-up to be
made, the next random numbers.
"""

import faulthandler
import signal

if __name__ == "__main__":
    # One that hangs while it loads, be it in our own imports, can be asked where.
    faulthandler.register(signal.SIGUSR2)

from queuedriver import interpreter

if __name__ == "__main__":
    interpreter.import_msgspec()

import atexit
import contextlib
import gc
import os
import socket
import sys
import threading
import time
import traceback
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import NoReturn

import msgspec

from queuedriver.disk.processes import resident_memory
from queuedriver.errors import BUG, LATER, ConfigError, QueueError, exit_code_of
from queuedriver.format.units import format_count
from queuedriver.processors.call import CallProcessor, load
from watchdogd import linux
from watchdogd.children import LIFE
from watchdogd.driver_orders import LIMIT, Answer, Came, Failed, Fork, Load, Loaded, Unfit

# Seconds for threads that were told to end.
_ENDING = 1.0
# What draws random numbers from a state that a fork would share. `random` itself knows of forks.
_SEEDS = (("numpy.random", "seed"), ("torch", "seed"))
# From a driver to its template: the watchdog has been told.
_DONE = b"!"

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
    """Be the template's process, and in time each of its drivers'."""
    code = BUG
    try:
        control = _take_control()
        code = _be_template(control, live or _driver())
    except SystemExit as leaving:
        if isinstance(leaving.code, str):
            print(leaving.code, file=sys.stderr)
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:  # noqa: BLE001 - the top of a process, and none may go on as another's
        traceback.print_exc()
    finally:
        # What the objects of a fork would clean up may be its template's.
        interpreter.leave(code)


def _driver() -> Live:
    # Before the user's modules, which may be called like some of those that this brings along.
    from watchdogd.driver_orders import decode
    from watchdogd.programs.driver import live

    return lambda order, processor: live(decode(order), processor)


def _take_control() -> socket.socket:
    """Our stdin is not for whatever is loaded to read."""
    control = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return control


def _be_template(control: socket.socket, live: Live) -> int:
    told = msgspec.json.decode(control.recv(LIMIT), type=Load)
    # While it loads it may be deaf to all else, and has nothing to clean up; then its socket tells.
    linux.die_with_parent(told.watchdog, signal.SIGKILL)
    linux.set_name(f"load {told.stage}")
    try:
        processor = _prepare(told)
        _check_threads(told.stage)
        linux.die_with_parent(told.watchdog)
    except Exception as error:  # noqa: BLE001 - a user's modules, and whatever they raise
        traceback.print_exception(error)
        why, code = _verdict(error)
        _say(control, Unfit(why))
        return code
    _say(control, Loaded(_shared_memory()))
    while (asked := _next(control)) is not None:
        if _fork_driver(control, asked, told.watchdog):
            return _drive(bytes(asked.order), processor, live)
    return 0


def _drive(order: bytes, processor: CallProcessor, live: Live) -> int:
    code = live(order, processor)
    # As at the end of any program: threads that are no daemons are waited for.
    threading._shutdown()  # type: ignore[attr-defined]
    return code


def _next(control: socket.socket) -> Fork | None:
    try:
        data = control.recv(LIMIT)
    except ConnectionResetError:
        # The watchdog closed it with something unread.
        return None
    return msgspec.json.decode(data, type=Fork) if data else None


def _say(control: socket.socket, answer: Answer) -> None:
    # Without a watchdog, the next look at the socket says so.
    with contextlib.suppress(BrokenPipeError):
        control.send(msgspec.json.encode(answer))


# Loading


def _prepare(told: Load) -> Forked:
    """Load all that drivers have in common."""
    linux.drop_huge_pages(os.environ)
    interpreter.enter(told.directory)
    loaded = load(told.call, said="call")
    named = [told.call if ":" in told.call else loaded.function.__module__]
    if told.function:
        load(told.function, said="preload").function()
        named.append(told.function)
    # A driver imports it when it first waits, and it takes a while.
    with contextlib.suppress(ImportError):
        import watchdog.observers.inotify  # noqa: F401
    # Its thread is not there in a fork, which would wait for it for ever.
    faulthandler.cancel_dump_traceback_later()
    # What a collection in a driver does not visit, it does not copy.
    gc.collect()
    gc.freeze()
    modules = dict.fromkeys(reference.partition(":")[0] for reference in named)
    hooks = [getattr(sys.modules.get(name), "after_fork", None) for name in modules]
    return Forked(loaded, [hook for hook in hooks if callable(hook)])


def _check_threads(stage: str) -> None:
    """Raise ConfigError for Python's threads; say of others that they are there."""
    until = time.monotonic() + _ENDING
    others = [one for one in threading.enumerate() if one is not threading.main_thread()]
    for thread in others:
        thread.join(max(0.0, until - time.monotonic()))
    names = [repr(thread.name) for thread in others if thread.is_alive()]
    # Those that were not started by `threading` have no names.
    count = max(len(names), len(sys._current_frames()) - 1)
    if count:
        raise ConfigError(
            f"loading left {format_count(count, 'thread')} of Python's running "
            f"({', '.join(names) or 'unnamed'}), which drivers would not have, and what they hold "
            "locked would stay locked: end them before the module is imported or the preload "
            "function returns, start them in after_fork(), or set preload = false"
        )
    if count := len(os.listdir("/proc/self/task")) - 1:
        print(
            f"{stage}: loading left {format_count(count, 'thread')} of native code running, which "
            "drivers do not have: if they hang, have the library use one thread, load it in "
            "after_fork(), or set preload = false",
            file=sys.stderr,
        )


def _verdict(error: Exception) -> tuple[str, int]:
    """Return what went wrong in a line, and the exit code for it."""
    code = exit_code_of(error)
    if isinstance(error, QueueError):
        return str(error), error.exit_code
    words = f"{type(error).__name__}: {error}"
    return (f"loading failed: {words}", BUG) if code is None else (words, code)


def _shared_memory() -> int:
    """Return the bytes of memory that forks will share."""
    try:
        with open("/proc/self/smaps_rollup") as file:
            sizes = dict(line.split()[:2] for line in file)
        return int(sizes["Pss:"]) * 1024
    except (OSError, KeyError):
        # A kernel without, or a /proc that hides it.
        return resident_memory()


# Forking


def _fork_driver(control: socket.socket, asked: Fork, watchdog: int) -> bool:
    """Fork a driver; return True in the driver, and False here, where of one that has ended before
    it said that it is there, that is said."""
    waiting, telling = os.pipe()
    try:
        middle = _fork_away()
    except OSError as error:
        middle = 0
        _say(control, Failed(asked.serial, f"fork: {error.strerror}", LATER))
        os.write(telling, _DONE)
    if middle:
        os.close(waiting)
        _become_driver(control, asked, watchdog, middle)
        # A template that has ended meanwhile is of no concern to a driver that is there.
        with contextlib.suppress(BrokenPipeError):
            os.write(telling, _DONE)
        os.close(telling)
        return True
    os.close(telling)
    # Nothing comes when the driver, which has the other end, has ended.
    if not os.read(waiting, len(_DONE)):
        _say(control, Failed(asked.serial, "the fork ended before it was ready", BUG))
    os.close(waiting)
    return False


def _fork_away() -> int:
    """Fork twice; return in the grandchild its parent, which is about to end, and 0 here."""
    interpreter.flush()
    with warnings.catch_warnings():
        # Threads of native code have been told of, in more words.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child:
        # What was loaded may have chosen not to be told of its children.
        with contextlib.suppress(ChildProcessError):
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if code > 0:
                raise OSError(code, os.strerror(code))
        return 0
    middle, code = os.getpid(), 0
    is_grandchild = False
    try:
        is_grandchild = os.fork() == 0
    except OSError as error:
        code = error.errno or BUG
    finally:
        if not is_grandchild:
            os._exit(code)
    return middle


def _become_driver(control: socket.socket, asked: Fork, watchdog: int, middle: int) -> None:
    """Become the watchdog's child, and tell it; give up what is the template's, and take one's
    own."""
    linux.await_orphanhood(middle)
    linux.die_with_parent(watchdog)
    # What it starts ends with it, not with its template; known by that before anybody knows of it.
    linux.change_environment(LIFE, asked.life)
    os.setpgid(0, 0)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    # As multiprocessing does: what was registered so far is for the template to clean up. A
    # temporary directory of its would be taken from all by the first driver that leaves.
    atexit._clear()
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        finalizer.atexit = False
    weakref.finalize._registered_with_atexit = False  # type: ignore[attr-defined]
    for name, function in _SEEDS:
        if (module := sys.modules.get(name)) is not None:
            getattr(module, function)()
    try:
        control.send(msgspec.json.encode(Came(asked.serial, os.getpid())))
    except ConnectionError:
        raise SystemExit("nobody waits for this driver any more") from None
    control.close()


if __name__ == "__main__":
    main()
