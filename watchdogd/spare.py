"""A spare: a fork of the template that waits for its order, and is a driver from then on.

    template --fork--> middle --fork--> spare
    waits for both     ends at once     becomes the watchdog's child; then waits

It sends the watchdog its pidfd, so that its pid need not be trusted, and one end of a socket of its
own, over which its order comes: no driver waits for the template, where two forks with 4 GB loaded
take long, for copying page tables. A spare whose socket is closed leaves.

A fork must not be handed what is its template's own: a lock that is held, a buffer to be written
twice, a clean-up to be made, the next random numbers.
"""

import atexit
import contextlib
import os
import signal
import socket
import sys
import warnings
import weakref
from typing import NoReturn

import msgspec

from queuedriver.driving.recycling import resident_memory
from watchdogd import linux

# Bytes of one message: half of what a socket holds by default, and far more than an order has.
LIMIT = 100_000
_BUG, _LATER = 70, 75
# What draws random numbers from a state that a fork would share. `random` itself knows of forks.
_SEEDS = (("numpy.random", "seed"), ("torch", "seed"))


class Parked(msgspec.Struct, frozen=True, tag="parked"):
    """A spare waits; with its pidfd and its socket. `memory` is what it has before it begins."""

    pid: int
    memory: int


class NotForked(msgspec.Struct, frozen=True, tag="not-forked"):
    """There is no spare this time. The exit code says whether another try is of use."""

    why: str
    exit_code: int


class _Kin(msgspec.Struct):
    """Of an order: whose child the driver is to be. 0: nobody's, it outlives its watchdog."""

    parent: int


def make_spare(control: socket.socket, stage: str, watchdog: int) -> bytes | None:
    """Fork a spare. None in the template, which has told the watchdog what came of it; in the spare
    its order, or nothing when there is none to come."""
    # The spare's words pass through the template: so there is one answer to each wish, even when
    # the spare dies while it speaks.
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        middle = _fork_away(theirs)
    except OSError as error:
        theirs.send(_not_forked(error))
        middle = 0
    if middle:
        ours.close()
        control.close()
        return _await_order(_park(theirs, stage, watchdog, middle))
    theirs.close()
    with ours:
        # Nothing comes once both the middle and the spare have ended without a word.
        message, fds, _, _ = socket.recv_fds(ours, LIMIT, 2, socket.MSG_CMSG_CLOEXEC)
    nothing = msgspec.json.encode(NotForked("the fork ended before it was ready", _BUG))
    # Without a watchdog, the next look at the socket says so.
    with contextlib.suppress(BrokenPipeError):
        socket.send_fds(control, [message or nothing], fds)
    for fd in fds:
        os.close(fd)
    return None


def _not_forked(error: OSError) -> bytes:
    return msgspec.json.encode(NotForked(f"fork: {error.strerror}", _LATER))


def _fork_away(theirs: socket.socket) -> int:
    """In the grandchild its parent, which is about to end; here 0."""
    _flush()
    with warnings.catch_warnings():
        # Threads of native code have been told of, in more words.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child:
        with contextlib.suppress(ChildProcessError):
            # What was loaded may have chosen not to be told of its children.
            os.waitpid(child, 0)
        return 0
    middle = os.getpid()
    is_grandchild = False
    try:
        is_grandchild = os.fork() == 0
    except OSError as error:
        theirs.send(_not_forked(error))
    finally:
        if not is_grandchild:
            os._exit(0)
    return middle


def _park(theirs: socket.socket, stage: str, watchdog: int, middle: int) -> socket.socket:
    """Become the watchdog's child and tell it; the socket over which the order comes."""
    linux.await_orphanhood(middle)
    linux.die_with_parent(watchdog)
    os.setpgid(0, 0)
    _begin_anew()
    linux.set_name(f"spare {stage}")
    orders, sender = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.getpid()
    pidfd = os.pidfd_open(pid)
    parked = msgspec.json.encode(Parked(pid, resident_memory()))
    with theirs, sender:
        socket.send_fds(theirs, [parked], [pidfd, sender.fileno()])
    os.close(pidfd)
    return orders


def _await_order(orders: socket.socket) -> bytes:
    with orders:
        try:
            order = orders.recv(LIMIT)
        except ConnectionResetError:
            return b""
    if order and not msgspec.json.decode(order, type=_Kin).parent:
        linux.outlive_parent()
    return order


def _begin_anew() -> None:
    """Give up what is the template's, and take one's own."""
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


def end(code: int) -> NoReturn:
    """End this process as the interpreter does, but destroy no objects: that takes long with
    gigabytes of them, and what they clean up may be the template's."""
    try:
        atexit._run_exitfuncs()
        _flush()
    finally:
        os._exit(code)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        # Closed, or None, or a disk that is full.
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()
