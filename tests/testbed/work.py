"""What guests are asked to do with queues. Every function here runs in a process of its own."""

import contextlib
import ctypes
import os
import signal
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from queuedriver.claims.document import Document
from queuedriver.disk.filesystem import Directory
from queuedriver.disk.journal import read_history
from queuedriver.driving.driver import Driver
from queuedriver.format import names
from queuedriver.operating.queue import Queue
from queuedriver.options import Options
from tests import openings
from tests.testbed.guest import LAB

_IN_MOVED_TO = 0x80


def content(docid: str) -> bytes:
    """What a document says: its own name, over and over, so that a part of it is known for one."""
    return f"{docid}\n".encode() * (1 + zlib.crc32(docid.encode()) % 600)


def put(queue: str, docids: Sequence[str], durable: bool = True) -> int:
    """Submit documents, all of them in one go; how many."""
    with Queue.open(queue, create=True) as opened:
        documents = ((docid, content(docid)) for docid in docids)
        return sum(1 for _ in opened.submit_many(documents, durable=durable))


def put_one(queue: str, docid: str) -> float:
    """Submit a document; return when, by the clock that all guests have."""
    put(queue, [docid])
    return time.time()


def drive(
    inputs: str,
    outputs: str,
    driver: str,
    options: Mapping[str, Any],
    held: str = "",
    written: bool = False,
    takes: float = 0.0,
) -> dict[str, Any]:
    """Be a driver until there is a reason to leave. A file of the lab has all states it was in.
    Documents take so many seconds at most, each another part of that.

    With `held`, each document is kept until there is a file of that name: before its output is
    written, or after (`written`). Where the driver is now, a file `<held>.at` says.
    """

    def process(document: Document) -> Iterator[bytes]:
        shouted = document.read().upper()
        time.sleep(takes * (zlib.crc32(document.docid.encode()) % 100) / 100)
        if written:
            yield shouted
        if held:
            Path(f"{held}.at").touch()
            while not os.path.exists(held):
                time.sleep(0.01)
        if not written:
            yield shouted

    wanted = msgspec.convert(dict(options), Options)
    running = Driver(inputs, process, outputs, id=driver, options=wanted)
    ended = threading.Event()

    def look() -> None:
        seen: set[str] = set()
        with open(states_file(LAB, driver), "w", buffering=1) as file:
            while not ended.wait(0.02):
                if (state := running.progress().state) not in seen:
                    seen.add(state)
                    print(state, file=file)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        left = running.run()
    finally:
        ended.set()
        looking.join()
    return {"word": left.word, "why": left.why, **msgspec.to_builtins(left.counters)}


def states_file(lab: str | Path, driver: str) -> Path:
    return Path(lab, f"states-{driver}")


def wait_for(path: str) -> None:
    while not os.path.exists(path):
        time.sleep(0.01)


def touch(path: str) -> None:
    Path(path).touch()


def signal_to(pid: int, name: str = "SIGTERM") -> None:
    os.kill(pid, signal.Signals[name])


def rename(directory: str, old: str, new: str) -> dict[str, Any]:
    """Rename as the hand-off does; what was said of it, and what was seen."""
    opened = Directory.open(directory)
    try:
        opened.rename(old, new)
        said = True
    except FileNotFoundError:
        said = False
    return {"said": said, "present": opened.present(new), "listed": new in opened.names()}


def listing(directory: str) -> list[str]:
    return sorted(os.listdir(directory)) if os.path.isdir(directory) else []


def states(queue: str) -> dict[str, str]:
    """Each item's name and its state."""
    found = ((name, names.parse(name)) for name in listing(queue))
    return {name: item.state for name, item in found if item is not None}


def registrations(queue: str) -> dict[str, Any]:
    """What the drivers of a queue say of themselves: state, and why."""
    with Queue.open(queue) as opened:
        return {one.id: [one.state, one.why, one.beat] for one in openings.registrations(opened)}


def command(*words: str) -> dict[str, Any]:
    """What `queuedriver` answers to such a command."""
    line = [sys.executable, "-m", "queuedriver", *words]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    return {"exit_code": done.returncode, "said": done.stdout + done.stderr}


def published_at(queue: str, docid: str) -> float:
    """Return when a document was published, by the journals."""
    found = read_history(os.path.join(queue, names.PRIVATE, names.JOURNAL), docid).events
    return next(one.at for one in found if one.event == "published")


def docid_of(name: str) -> str:
    """Of an item, by its name; nothing else is expected where this is asked."""
    item = names.parse(name)
    if item is None:
        raise AssertionError(f"{name!r} is no item")
    return item.docid


def check_whole(queue: str, name: str, *, shouted: bool) -> None:
    """Raise unless an item's file has just the bytes that belong to it."""
    wanted = content(docid_of(name))
    found = Path(queue, name).read_bytes()
    if found != (wanted.upper() if shouted else wanted):
        raise AssertionError(
            f"{queue}/{name} is not what was written: {len(found)} bytes of {len(wanted)}, "
            f"beginning with {found[:40]!r}"
        )


def check_all_whole(queue: str) -> int:
    """The same for all published outputs of a queue; how many there are."""
    published = [name for name in listing(queue) if name.endswith(".ready")]
    for name in published:
        check_whole(queue, name, shouted=True)
    return len(published)


def witness(directory: str, ledger: str) -> None:
    """Note every name that is moved into a directory, from its own file system's kernel."""
    os.makedirs(directory, exist_ok=True)
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.inotify_init1(0)
    if fd < 0 or libc.inotify_add_watch(fd, directory.encode(), _IN_MOVED_TO) < 0:
        raise OSError(ctypes.get_errno(), "inotify", directory)
    with open(ledger, "ab", buffering=0) as notes:
        notes.write(b"#\n")
        while True:
            data, at = os.read(fd, 1 << 16), 0
            while at < len(data):
                length = struct.unpack_from("iIII", data, at)[3]
                name = data[at + 16 : at + 16 + length].rstrip(b"\0")
                notes.write(name + b"\n")
                at += 16 + length


def seen_after(directory: str, name: str, seconds: float) -> float | None:
    """After how many seconds of asking for a name it was there; None if it was not.

    The directory is opened once: whoever goes there by its path again and again may be told, on the
    way, that it has changed, and then looks anew."""
    began = time.monotonic()
    fd = os.open(directory, os.O_RDONLY)
    try:
        while (waited := time.monotonic() - began) < seconds:
            with contextlib.suppress(FileNotFoundError):
                os.stat(name, dir_fd=fd)
                return waited
            time.sleep(0.05)
    finally:
        os.close(fd)
    return None
