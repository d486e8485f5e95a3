"""Tasks a second through fuq, beside a plain socket server that makes the same file calls.

    python -m benchmarks.doors_tasks broker ADDRESS IN OUT
    python -m benchmarks.doors_tasks worker ADDRESS LOGS

are the plain ones: lengths and JSON over TCP, one task at a time for each worker. A task is a file
of the queue; each runs the same program, with a log of its own, as fuq's do.
"""

import contextlib
import json
import os
import selectors
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from statistics import median

from benchmarks import measuring
from benchmarks.doors import WORKERS, free_addresses, last_words, running
from benchmarks.doors_plain import claim, complete
from benchmarks.measuring import Contender, Failed, Sample
from benchmarks.places import Place
from benchmarks.plain import Serials, docids
from benchmarks.scale import Scale
from benchmarks.table import Group, Table

TITLE = "Tasks of one job through fuq"
LEAD = (
    "A job of {tasks:,} tasks for {workers} clients with one processor each on the same host; a "
    "task runs /bin/true with a log of its own. Median of {rounds} rounds, not synced, from the "
    "start of the first task to the publishing of the last result. speed = tasks a second, ours "
    "over the plain one's."
)
NOTES = (
    "The plain one is a straight loop around sockets and the calls of plain.py, with as many plain "
    "workers that start the same program by subprocess.Popen, in the same environment. What a task "
    "is costs both most of all: a process and a log.",
)
PROGRAM = "/bin/true"
# That of fuq's tasks: what a program loads for its language costs more than all else it does here.
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "FUQ_TASK": "1"}
_LENGTH = struct.Struct("<I")
_SETTLED = 3.0
_NAP = 0.01


def measure(scale: Scale, places: list[Place]) -> Table:
    tasks = scale.documents // 4
    group = Group("")
    notes: set[str] = set()
    ours = Contender("ours", _ours(tasks), _prepare, tree=measuring.ROOT)
    chosen = measuring.beside([Contender("plain", _plain(tasks), _prepare), ours], scale.against)
    for place in places:
        results = measuring.interleave(chosen, scale.long_rounds, place)
        notes |= {f"{name} failed: {why}" for name, why in results.failures.items()}
        for one in chosen[1:]:
            if "plain" in results and one.name in results:
                speeds = [1 / ratio for ratio in results.ratios(one.name, "plain")]
                rates = [f"{1e6 / results.median_us(name):,.0f}" for name in ("plain", one.name)]
                range_ = f"({min(speeds):.2f}-{max(speeds):.2f})"
                group.rows.append([place.name, one.name, *rates, f"{median(speeds):.2f}", range_])
    lead = LEAD.format(tasks=tasks, workers=WORKERS, rounds=scale.long_rounds)
    columns = ["place", "whose", "plain /s", "its /s", "speed", "(min-max)"]
    return Table(TITLE, lead, columns, [group], [*NOTES, *sorted(notes)])


def _prepare(directory: Path) -> None:
    for name in ("in", "out"):
        measuring.make_queue(directory / name)


def _plain(tasks: int) -> Callable[[Path], Sample]:
    def measured(directory: Path) -> Sample:
        measuring.stagecycle("fill", directory / "in", tasks, 256)
        address = free_addresses(1)[0]
        here = ("benchmarks.doors_tasks",)
        broker = [*here, "broker", address, str(directory / "in"), str(directory / "out")]
        with tempfile.TemporaryDirectory() as logs:
            return _run(directory, tasks, broker, [*here, "worker", address, logs])

    return measured


def _ours(tasks: int) -> Callable[[Path], Sample]:
    def measured(directory: Path) -> Sample:
        queues = str(directory / "in"), str(directory / "out")
        address = free_addresses(1)[0]
        submit = [sys.executable, "-m", "queuedriver", "fuq", "submit", queues[0]]
        measuring.run(*submit, "-n", str(tasks), "--name", "t", "--", "task")
        broker = ["queuedriver", "broker", "fuq", queues[0], "--to", queues[1], "--drain"]
        with tempfile.TemporaryDirectory() as logs:
            worker = ["queuedriver", "worker", "fuq", address, "--nproc", "1", "--quiet"]
            worker += ["--allow", f"task={PROGRAM}", "--root", logs, "--log-root", logs]
            return _run(directory, tasks, [*broker, "--listen", address, "--quiet"], worker)

    return measured


def _run(directory: Path, tasks: int, broker: list[str], worker: list[str]) -> Sample:
    pause = directory / "in" / "PAUSE"
    pause.touch()
    with (
        tempfile.TemporaryDirectory() as aside,
        running(broker, aside, 1) as brokers,
        running(worker, aside, WORKERS),
    ):
        # Longer than a client takes to start and to connect.
        time.sleep(_SETTLED)
        pause.unlink()
        try:
            brokers[0].wait(measuring.TIMEOUT)
        except subprocess.TimeoutExpired:
            raise Failed(f"the broker did not end in {measuring.TIMEOUT:.0f} s") from None
        if brokers[0].returncode != 0:
            raise Failed(last_words(brokers[0]))
    results = [
        (entry.stat().st_ctime, json.loads(Path(entry.path).read_bytes()))
        for entry in os.scandir(directory / "out")
        if entry.name.endswith(".ready")
    ]
    done = [(at, one) for at, one in results if "task" in one]
    if len({one["task"] for _, one in done}) != tasks or len(done) != tasks:
        raise Failed(f"{len(done)} of {tasks} tasks have a result")
    began = min(one["started"] for _, one in done)
    return Sample((max(at for at, _ in done) - began) * 1e9 / tasks)


# The plain ones


def send(sock: socket.socket, value: dict[str, object]) -> None:
    data = json.dumps(value).encode()
    sock.sendall(_LENGTH.pack(len(data)) + data)


def receive(sock: socket.socket) -> dict[str, object]:
    (length,) = _LENGTH.unpack(_exactly(sock, _LENGTH.size))
    value: dict[str, object] = json.loads(_exactly(sock, length))
    return value


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        if not (more := sock.recv(size - len(data))):
            raise EOFError
        data += more
    return data


def broker(address: str, queues: list[str]) -> None:
    source, target = (os.open(path, os.O_RDONLY | os.O_DIRECTORY) for path in queues)
    serials = Serials("1")
    waiting = deque(docids(source, 1_000_000))
    tasks = len(waiting)
    number = done = 0
    dealt: dict[str, str] = {}
    selector = selectors.DefaultSelector()
    listener = socket.create_server(("127.0.0.1", int(address.rpartition(":")[2])))
    selector.register(listener, selectors.EVENT_READ)

    def deal(sock: socket.socket) -> None:
        nonlocal number
        if waiting:
            docid, n = waiting.popleft(), serials.next()
            claim(source, docid, n)
            number += 1
            dealt[n] = docid
            send(sock, {"n": n, "task": number, "command": PROGRAM})

    idle: list[socket.socket] = []
    while done < tasks:
        if idle and not os.path.exists(f"{queues[0]}/PAUSE"):
            for sock in idle:
                deal(sock)
            idle.clear()
        for key, _ in selector.select(_NAP if idle else None):
            if key.fileobj is listener:
                sock, _ = listener.accept()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                selector.register(sock, selectors.EVENT_READ)
                idle.append(sock)
            elif isinstance(key.fileobj, socket.socket):
                result = receive(key.fileobj)
                n = str(result["n"])
                complete(source, target, dealt.pop(n), n, json.dumps(result).encode())
                done += 1
                deal(key.fileobj)


def worker(address: str, logs: str) -> None:
    while True:
        with contextlib.suppress(OSError):
            sock = socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])))
            break
        time.sleep(0.05)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            task = receive(sock)
            started = time.time()
            path = os.path.join(logs, f"t_{task['task']}.log")
            log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            process = subprocess.Popen(
                [str(task["command"]), str(task["task"])],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=ENVIRONMENT,
                process_group=0,
            )
            os.close(log)
            code = process.wait()
            send(sock, {**task, "success": not code, "started": started, "exit_code": code})


def main() -> None:
    role, address, *rest = sys.argv[1:]
    if role == "broker":
        broker(address, rest)
    else:
        worker(address, rest[0])


if __name__ == "__main__":
    main()
