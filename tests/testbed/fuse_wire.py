"""The few messages of the FUSE protocol that a pass-through file system needs. Pure.

The kernel's side of it is include/uapi/linux/fuse.h. Spoken is version 7.31, of Linux 5.4: later
kernels leave out what is newer. Nothing beside the kernel is needed, neither libfuse nor a module
of Python's; `/dev/fuse` and the right to mount are.
"""

import enum
import os
import struct
from typing import NamedTuple

VERSION = 7, 31
# Of one write. The buffer of a reader must hold that and the header of the message.
MAX_WRITE = 1 << 16
BUFFER = MAX_WRITE + 4096
ROOT = 1

# What is asked for at the greeting: several writes and listings at once, and writes of more than a
# page. Advisory locks, extended attributes and truncation on open are left to the kernel.
_ASYNC_READ, _BIG_WRITES, _PARALLEL_DIROPS = 1 << 0, 1 << 5, 1 << 18
WISHES = _ASYNC_READ | _BIG_WRITES | _PARALLEL_DIROPS


class Op(enum.IntEnum):
    """What the kernel may ask for; rules of faults use the same words in lower case."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    READLINK = 5
    SYMLINK = 6
    MKDIR = 9
    UNLINK = 10
    RMDIR = 11
    RENAME = 12
    LINK = 13
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    FSYNCDIR = 30
    CREATE = 35
    INTERRUPT = 36
    DESTROY = 38
    BATCH_FORGET = 42
    RENAME2 = 45


class Request(NamedTuple):
    """One message from the kernel; what follows its header is the operation's own."""

    op: int
    unique: int
    node: int
    body: bytes


class Valid(NamedTuple):
    """For how many seconds the kernel may answer from memory: names, attributes, missing names.

    What another mount changes meanwhile is not seen here, as with a network file system's caches.
    """

    entry: float = 0.0
    attributes: float = 0.0
    missing: float = 0.0


_HEADER = struct.Struct("<IIQQIIIHH")
_REPLY = struct.Struct("<IiQ")
_ATTRIBUTES = struct.Struct("<QQQQQQIIIIIIIIII")
_ENTRY = struct.Struct("<QQQQII")
_DIRENT = struct.Struct("<QQII")

# The fixed beginnings of the requests that have one.
FORGET = struct.Struct("<Q")
BATCH = struct.Struct("<II")
BATCH_ONE = struct.Struct("<QQ")
SETATTR = struct.Struct("<IIQQQQQQIIIIIIII")
MKDIR = struct.Struct("<II")
RENAME = struct.Struct("<Q")
RENAME2 = struct.Struct("<QII")
LINK = struct.Struct("<Q")
OPEN = struct.Struct("<II")
READ = struct.Struct("<QQIIQII")
WRITE = struct.Struct("<QQIIQII")
HANDLE = struct.Struct("<Q")
CREATE = struct.Struct("<IIII")

# Which of a SETATTR's values are to be set.
SET_MODE, SET_UID, SET_GID, SET_SIZE, SET_ATIME, SET_MTIME = (1 << bit for bit in range(6))
SET_ATIME_NOW, SET_MTIME_NOW = 1 << 7, 1 << 8


def parse(message: bytes) -> Request:
    _, op, unique, node, _, _, _, _, _ = _HEADER.unpack_from(message)
    return Request(op, unique, node, message[_HEADER.size :])


def reply(unique: int, body: bytes = b"", number: int = 0) -> bytes:
    """An answer; `number` is an errno, and then there is no body."""
    body = b"" if number else body
    return _REPLY.pack(_REPLY.size + len(body), -number, unique) + body


def names(body: bytes) -> list[str]:
    """The file names that a request ends with."""
    return [os.fsdecode(name) for name in body.split(b"\0")[:-1]]


def greeting() -> bytes:
    head = struct.pack("<IIIIHHII", *VERSION, MAX_WRITE, WISHES, 0, 0, MAX_WRITE, 1)
    return head.ljust(64, b"\0")


def attributes(found: os.stat_result) -> bytes:
    seconds, rests = [], []
    for stamp in (found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns):
        whole, rest = divmod(stamp, 1_000_000_000)
        seconds.append(whole)
        rests.append(rest)
    return _ATTRIBUTES.pack(
        found.st_ino,
        found.st_size,
        found.st_blocks,
        *seconds,
        *rests,
        found.st_mode,
        found.st_nlink,
        found.st_uid,
        found.st_gid,
        found.st_rdev,
        found.st_blksize,
        0,
    )


def attributes_reply(found: os.stat_result, valid: Valid) -> bytes:
    return struct.pack("<QII", *_span(valid.attributes), 0) + attributes(found)


def entry(node: int, found: os.stat_result, valid: Valid) -> bytes:
    names_for, names_rest = _span(valid.entry)
    known_for, known_rest = _span(valid.attributes)
    head = _ENTRY.pack(node, 0, names_for, known_for, names_rest, known_rest)
    return head + attributes(found)


def missing(valid: Valid) -> bytes:
    """A name that is not there, to be remembered as such for a while."""
    seconds, rest = _span(valid.missing)
    return _ENTRY.pack(0, 0, seconds, 0, rest, 0) + bytes(_ATTRIBUTES.size)


def opened(handle: int) -> bytes:
    return struct.pack("<QII", handle, 0, 0)


def listed(entries: list[tuple[str, int]], offset: int, room: int) -> bytes:
    """A part of a listing of (name, inode), from an offset on, as much as there is room for."""
    parts = []
    for at in range(offset, len(entries)):
        name = os.fsencode(entries[at][0])
        one = _DIRENT.pack(entries[at][1], at + 1, len(name), 0) + name
        one += bytes(-len(one) % 8)
        if len(one) > room:
            break
        room -= len(one)
        parts.append(one)
    return b"".join(parts)


def filesystem(found: os.statvfs_result) -> bytes:
    return struct.pack(
        "<QQQQQIIII24x",
        found.f_blocks,
        found.f_bfree,
        found.f_bavail,
        found.f_files,
        found.f_ffree,
        found.f_bsize,
        found.f_namemax,
        found.f_frsize,
        0,
    )


def _span(seconds: float) -> tuple[int, int]:
    whole = int(seconds)
    return whole, int((seconds - whole) * 1e9)
