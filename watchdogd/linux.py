"""What a process asks of the Linux kernel for itself: a name, a parent, and others' orphans.

subreaper   orphans among its descendants become its children, rather than init's
pdeathsig   the signal that it gets when its parent dies; kept over exec, lost over fork. The parent
            is a *thread*: the one that started a process must live as long as its own process
huge page   2 MB of memory with one entry in the tables, instead of 512
"""

import ctypes
import math
import os
import select
import signal
from collections.abc import Mapping, MutableMapping

from queuedriver.disk.filesystem import libc

# From linux/prctl.h.
_SET_PDEATHSIG = 1
_SET_NAME = 15
_SET_CHILD_SUBREAPER = 36
# Where glibc is told that what malloc gets from the kernel is to come in huge pages (glibc 2.35).
_TUNABLES = "GLIBC_TUNABLES"
_HUGE_MALLOC = "glibc.malloc.hugetlb"
# From malloc.h.
_ARENA_MAX, _MMAP_THRESHOLD = -8, -3
# In bytes: what is larger is given back when it is not used any more.
_LARGE = 128 << 10
# Bytes that the kernel keeps of a name.
_NAME = 15


def become_subreaper() -> None:
    """Make orphans below this process its children from now on, for it to reap."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int, number: signal.Signals = signal.SIGTERM) -> None:
    """Get this signal when the parent dies; SystemExit when that has happened already."""
    _prctl(_SET_PDEATHSIG, number)
    # A parent that died before the call above sends nothing any more.
    if os.getppid() != parent:
        raise SystemExit(f"process {parent}, which wanted this one, has died; leaving")


def outlive_parent() -> None:
    """Get no signal any more when the parent dies."""
    _prctl(_SET_PDEATHSIG, 0)


def await_orphanhood(parent: int) -> None:
    """Return once this process has another parent than this one."""
    if os.getppid() != parent:
        return
    try:
        pidfd = os.pidfd_open(parent)
    except ProcessLookupError:
        # It has just ended; its children are given away before its number is free.
        return
    try:
        # Only while it is still our parent is that number surely its own.
        if os.getppid() == parent:
            is_readable(pidfd, math.inf)
    finally:
        os.close(pidfd)


def is_readable(fd: int, patience: float = 0.0) -> bool:
    """Return whether there is something to read, or comes within so many seconds. Of a process's
    pidfd: whether it has ended."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(None if math.isinf(patience) else patience * 1000))


def set_name(name: str) -> None:
    """Tell `ps -o comm` and `top` what to call this process; what does not fit is cut off."""
    _prctl(_SET_NAME, os.fsencode(name)[:_NAME])


def share_one_arena() -> None:
    """Let all threads of this process take memory from one place, before they begin: glibc gives
    each thread a place of its own, which keeps what it once took. What is large has none in it,
    however often there is such. A C library that knows no such thing does as it does."""
    if mallopt := getattr(libc(), "mallopt", None):
        mallopt(_ARENA_MAX, 1)
        mallopt(_MMAP_THRESHOLD, _LARGE)


def return_unused_memory() -> None:
    """Give back to the kernel what the C library keeps of what was needed to load and is not needed
    any more; another library does as it does."""
    if trim := getattr(libc(), "malloc_trim", None):
        trim(0)


def change_environment(name: str, value: str) -> None:
    """Give a variable of this process another value of the same length; in `/proc/self/environ`
    too, which shows the memory that the process began with."""
    getenv = libc().getenv
    getenv.restype = ctypes.c_void_p
    before, now = os.environb.get(os.fsencode(name), b""), os.fsencode(value)
    if len(before) == len(now) and (at := getenv(os.fsencode(name))):
        ctypes.memmove(at, now, len(now))
    os.environ[name] = value


def with_huge_pages(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment whose program gets huge pages as it fills its memory, where the kernel
    and the C library know them, and nobody has said otherwise.

    To fill 1 GB takes 0.1 s so, and 0.5 s in small pages. A fork copies one entry for each page,
    and the end of a process, before anybody can hear of it, takes each one back: with 4 GB that is
    130 ms in small pages, and 2 ms in huge ones. What is written to is copied in small ones.
    """
    tunables = environ.get(_TUNABLES, "")
    if _HUGE_MALLOC in tunables:
        return dict(environ)
    return {**environ, _TUNABLES: f"{tunables}:{_HUGE_MALLOC}=1".lstrip(":")}


def drop_huge_pages(environ: MutableMapping[str, str]) -> None:
    """Undo `with_huge_pages` in the program itself: what it starts is not meant."""
    tunables = environ.pop(_TUNABLES, "").removesuffix(f"{_HUGE_MALLOC}=1").removesuffix(":")
    if tunables:
        environ[_TUNABLES] = tunables


def _prctl(option: int, argument: int | bytes) -> None:
    word = argument if isinstance(argument, bytes) else ctypes.c_ulong(argument)
    if libc().prctl(option, word, *(ctypes.c_ulong(0),) * 3):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
