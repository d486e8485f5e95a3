"""The hand-off as a straight loop over os.*: what Python itself costs, without queuedriver.

    python -m benchmarks.plain submit QUEUE N [-d]
    python -m benchmarks.plain claim QUEUE N
    python -m benchmarks.plain cycle IN OUT N [-d]

The same system calls in the same order as stagecycle.c, and the same line of JSON as answer.
"""

import argparse
import ctypes
import json
import os
import stat
import time

OUTPUT = b"x" * 1024
RENAME_NOREPLACE = 1
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
CREATE = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC

_renameat2 = ctypes.CDLL(None, use_errno=True).renameat2


class Serials:
    """Forms N: the microsecond, never the same twice, and four digits drawn at the start."""

    def __init__(self, driver_id: str) -> None:
        self._id = driver_id
        self._salt = os.urandom(2).hex()
        self._last = 0

    def next(self) -> str:
        self._last = max(time.time_ns() // 1000, self._last + 1)
        return f"{self._id}-{self._last:014x}{self._salt}"


def rename_noreplace(source_dir: int, source: str, target_dir: int, target: str) -> None:
    if _renameat2(
        source_dir, os.fsencode(source), target_dir, os.fsencode(target), RENAME_NOREPLACE
    ):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), target)


def write_new(directory: int, name: str, data: bytes, durable: bool) -> None:
    fd = os.open(name, CREATE, 0o666, dir_fd=directory)
    os.write(fd, data)
    if durable:
        os.fsync(fd)
    os.close(fd)


def submit(queue: int, count: int, durable: bool) -> None:
    incoming = os.open(".queuedriver/incoming", os.O_RDONLY | os.O_DIRECTORY, dir_fd=queue)
    serials = Serials("1")
    for number in range(count):
        aside = f"doc{number:07d}.{serials.next()}.writing"
        write_new(incoming, aside, OUTPUT, durable)
        rename_noreplace(incoming, aside, queue, f"doc{number:07d}.ready")
        if durable:
            os.fsync(queue)
            os.fsync(incoming)
    os.close(incoming)


def docids(queue: int, count: int) -> list[str]:
    return [name[:-6] for name in os.listdir(queue) if name.endswith(".ready")][:count]


def claim_and_finish(queue: int, count: int) -> None:
    serials = Serials("1")
    for docid in docids(queue, count):
        working = f"{docid}.{serials.next()}.working"
        os.rename(f"{docid}.ready", working, src_dir_fd=queue, dst_dir_fd=queue)
        os.unlink(working, dir_fd=queue)


def read_input(queue: int, working: str) -> bytes:
    fd = os.open(working, READ, dir_fd=queue)
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(working)
    data = os.read(fd, status.st_size)
    os.close(fd)
    return data


def cycle(source: int, target: int, count: int, durable: bool) -> None:
    serials = Serials("1")
    for docid in docids(source, count):
        n = serials.next()
        working, written = f"{docid}.{n}.working", f"{docid}.{n}.written"
        writing = f"{docid}.{n}.writing"
        os.rename(f"{docid}.ready", working, src_dir_fd=source, dst_dir_fd=source)
        read_input(source, working)
        write_new(target, writing, OUTPUT, durable)
        if durable:
            os.fsync(target)
        os.rename(working, written, src_dir_fd=source, dst_dir_fd=source)
        if durable:
            os.fsync(source)
        rename_noreplace(target, writing, target, f"{docid}.ready")
        if durable:
            os.fsync(target)
        os.unlink(written, dir_fd=source)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", choices=["submit", "claim", "cycle"])
    parser.add_argument("queue", nargs="+")
    parser.add_argument("count", type=int)
    parser.add_argument("-d", "--durable", action="store_true")
    words = parser.parse_args()
    fds = [os.open(path, os.O_RDONLY | os.O_DIRECTORY) for path in words.queue]
    started = time.perf_counter_ns()
    if words.workload == "submit":
        submit(fds[0], words.count, words.durable)
    elif words.workload == "claim":
        claim_and_finish(fds[0], words.count)
    else:
        cycle(fds[0], fds[1], words.count, words.durable)
    spent = time.perf_counter_ns() - started
    print(
        json.dumps({"documents": words.count, "ns": spent, "ns_per_document": spent / words.count})
    )


if __name__ == "__main__":
    main()
