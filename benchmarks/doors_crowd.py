"""Many idle workers in one process; benchmarks/doors_idle.py starts some of these.

    python -m benchmarks.doors_crowd PROTOCOL ADDRESS COUNT

Each has a session and a socket of its own, the very ones of `queuedriver worker`; only the threads
of ZeroMQ are shared, and the loop. They start one after another within a second, as workers do that
nobody has put in step. A line is written to stdout when the broker has answered all of them; if one
is ever told to do anything but to wait, that ends the process.
"""

import heapq
import os
import resource
import select
import sys
import time
from unittest import mock

import zmq

from queuedriver.doors.settings import settings_of
from queuedriver.doors.transports.base import Joined, Message
from queuedriver.doors.words import Effects, Say, Send

# Seconds within which they start.
SPREAD = 1.0


class Seat:
    """One worker."""

    def __init__(self, protocol: str, address: str, number: int) -> None:
        name = f"crowd-{os.getpid()}-{number}"
        told = settings_of(protocol).WorkerSettings(broker=address)
        # A worker of fuq goes by no name, and begins when its connection is made.
        is_fuq = protocol == "fuq"
        self._session = told.session(1 if is_fuq else name)
        self._transport = told.transport() if is_fuq else told.transport(name)
        self._begins = not is_fuq
        self.fds = self._transport.fds()
        self.heard = 0

    def start(self, now: float) -> float:
        if self._begins:
            self._carry_out(self._session.start(now, time.time()))
        return self.hear(now)

    def hear(self, now: float) -> float:
        """Take in what came and what time brought; when to look again, whatever comes."""
        while True:
            for arrival in self._transport.arrivals():
                if isinstance(arrival, Message):
                    self.heard += 1
                    self._carry_out(self._session.hear(b"", arrival.frames, now, time.time()))
                elif isinstance(arrival, Joined):
                    self._carry_out(self._session.joined(b"", now))
            at = self._session.next_tick_at()
            if at is not None and at <= now:
                self._carry_out(self._session.tick(now, time.time()))
            elif not self._transport.pending():
                break
        instants = (self._session.next_tick_at(), self._transport.next_tick_at())
        if self._transport.next_tick_at() is not None:
            self._transport.tick(now)
        return min((one for one in instants if one is not None), default=now + 3600)

    def _carry_out(self, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self._transport.send(effect.peer, effect.frames)
            elif not isinstance(effect, Say):
                sys.exit(f"an idle worker was to {type(effect).__name__}: {effect}")


def sit(protocol: str, address: str, count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 8 * count + 100)), hard))
    context = zmq.Context()
    # Each has one for frames, and two by which it learns that it is connected.
    context.set(zmq.MAX_SOCKETS, 3 * count + 10)
    with mock.patch.object(zmq, "Context", return_value=context):
        seats = [Seat(protocol, address, number) for number in range(count)]
    poll = select.epoll()
    by_fd = {fd: number for number, seat in enumerate(seats) for fd in seat.fds}
    # A descriptor of ZeroMQ's stays readable while there is nothing to be had.
    edge = 0 if protocol == "fuq" else select.EPOLLET
    for fd in by_fd:
        poll.register(fd, select.EPOLLIN | edge)
    began = time.monotonic()
    ticks = [(began + SPREAD * number / count, number) for number in range(count)]
    due = dict(enumerate(at for at, _ in ticks))
    started: set[int] = set()
    told = False
    while True:
        now = time.monotonic()
        look = set()
        while ticks and ticks[0][0] <= now:
            at, number = heapq.heappop(ticks)
            if due[number] == at:
                look.add(number)
        wait = max(0.0, ticks[0][0] - now) if ticks else 1.0
        look |= {by_fd[fd] for fd, _ in poll.poll(0 if look else wait)}
        for number in look:
            seat, now = seats[number], time.monotonic()
            if number in started:
                at = seat.hear(now)
            elif now >= due[number]:
                started.add(number)
                at = seat.start(now)
            else:
                continue
            if at != due[number]:
                due[number] = at
                heapq.heappush(ticks, (at, number))
        if not told and all(seat.heard for seat in seats):
            told = True
            print("all are there", flush=True)


if __name__ == "__main__":
    sit(sys.argv[1], sys.argv[2], int(sys.argv[3]))
