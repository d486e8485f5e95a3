"""A plain broker and its plain worker: what a front door would be without queuedriver.

    python -m benchmarks.doors_plain broker ADDRESS IN OUT TALK
    python -m benchmarks.doors_plain worker ADDRESS DEPTH TALK
    python -m benchmarks.doors_plain answerer ADDRESS

A ROUTER and DEALERs; for each document the same calls on files as in plain.py, in a straight loop.
TALK is what is said besides documents and results, as some protocols want it: `answers` from the
broker to whatever a worker sends, `offers` of a worker that has sent a result; or `nothing`.
It knows the two control files that a measurement needs, `PAUSE` and `done`, and nothing else: no
crash is recovered from, no worker is ever missed, nothing is noted, and nobody is doubted. The
answerer has no documents: to whatever comes, as the PINGs of pingpong, it says PONG.
"""

import os
import sys
from collections import deque

import zmq

from benchmarks.doors_echo import here
from benchmarks.plain import Serials, docids, read_input, rename_noreplace, write_new

# Names listed at once; milliseconds between two looks at an empty queue.
AHEAD = 100_000
NAP = 10
HELLO, ANSWER = b"hello", b"answer"


def claim(source: int, docid: str, n: str) -> bytes:
    working = f"{docid}.{n}.working"
    os.rename(f"{docid}.ready", working, src_dir_fd=source, dst_dir_fd=source)
    return read_input(source, working)


def complete(source: int, target: int, docid: str, n: str, data: bytes) -> None:
    writing, written = f"{docid}.{n}.writing", f"{docid}.{n}.written"
    write_new(target, writing, data, durable=False)
    os.rename(f"{docid}.{n}.working", written, src_dir_fd=source, dst_dir_fd=source)
    rename_noreplace(target, writing, target, f"{docid}.ready")
    os.unlink(written, dir_fd=source)


def broker(address: str, queues: list[str], talk: str) -> None:
    source, target = (os.open(path, os.O_RDONLY | os.O_DIRECTORY) for path in queues)
    socket = zmq.Context().socket(zmq.ROUTER)
    socket.bind(address)
    serials = Serials("1")
    waiting: deque[str] = deque()
    ready: deque[bytes] = deque()
    dealt: dict[bytes, str] = {}
    while True:
        while socket.poll(0):
            peer, token, data = socket.recv_multipart()
            if token != HELLO:
                complete(source, target, dealt.pop(token), token.decode(), data)
            if token == HELLO or "offers" not in talk:
                ready.append(peer)
                if "answers" in talk:
                    socket.send_multipart((peer, ANSWER, b""))
        if not waiting and not os.path.exists(f"{queues[0]}/PAUSE"):
            waiting.extend(docids(source, AHEAD))
            if not waiting and not dealt and os.path.exists(f"{queues[0]}/done"):
                return
        while waiting and ready:
            docid, n = waiting.popleft(), serials.next()
            data = claim(source, docid, n)
            dealt[n.encode()] = docid
            socket.send_multipart((ready.popleft(), n.encode(), data))
        socket.poll(None if dealt and not (waiting and ready) else NAP)


def worker(address: str, depth: int, talk: str) -> None:
    socket = zmq.Context().socket(zmq.DEALER)
    socket.connect(address)
    for _ in range(depth):
        socket.send_multipart((HELLO, b""))
    new = True
    while True:
        n, data = socket.recv_multipart()
        if n == ANSWER:
            continue
        if new:
            here()
            new = False
        socket.send_multipart((n, data))
        if "offers" in talk:
            socket.send_multipart((HELLO, b""))


def answerer(address: str) -> None:
    socket = zmq.Context().socket(zmq.ROUTER)
    socket.bind(address)
    while True:
        peer, *_ = socket.recv_multipart()
        socket.send_multipart((peer, b"", b"PONG"))


def main() -> None:
    role, address, *rest = sys.argv[1:]
    if role == "answerer":
        answerer(address)
    elif role == "broker":
        broker(address, rest[:2], rest[2])
    else:
        worker(address, int(rest[0]), rest[1])


if __name__ == "__main__":
    main()
