"""Work for `queuedriver broker pingpong`. Needs pyzmq only: python worker.py tcp://HOST:PORT"""

import sys

import zmq


def answer(document: bytes) -> list[bytes]:
    if not document.isascii():
        return [b"", b"ERROR", b"1", b"it is not ASCII"]  # The document is tried once more.
    return [b"", b"", document.upper()]


socket = zmq.Context().socket(zmq.DEALER)
socket.connect(sys.argv[1])
frames: list[bytes] = []
silent = 0
while frames != [b"", b"EXIT"]:
    if not frames:
        # After three seconds of silence the broker may have forgotten this worker.
        socket.send_multipart([b"", b"PING" if silent % 3 else b"READY"])
    elif frames != [b"", b"PONG"]:
        socket.send_multipart(answer(frames[-1]))
    frames = socket.recv_multipart() if socket.poll(1000) else []
    silent = 0 if frames else silent + 1
