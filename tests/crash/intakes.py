"""Intakes of one folder, killed at random while files are dropped into it; then the account.

    python -m tests.crash.intakes --drops 10000 --kills 200 --seed 11
    python -m tests.crash.intakes --drops 10000 --kills 200 --seed 11 --elsewhere /dev/shm
    python -m tests.crash.intakes --drops 10000 --kills 200 --seed 11 --leave

`--elsewhere`: the folder is there, on another file system than the queue. `--leave`: the folder
stays as it is. Drops are written in two steps with a pause in between, some of them under names
that were taken before, some renamed in. Documents are taken out of the queue as they come. Exit
code 1 if a drop entered twice, half, or not at all, or if anything is left that should not be.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from io import BufferedWriter
from pathlib import Path
from typing import NamedTuple

# Seconds after the last drop in which everything has to be through.
_PATIENCE = 120.0
# How many drops are under way at once, each with a half of it written.
_AT_ONCE = 20
# One in so many is stopped instead of killed, and goes on after a while.
_STOPPED = 4


class Orders(NamedTuple):
    """How many, and where."""

    drops: int
    kills: int
    seed: int
    intakes: int = 3
    leave: bool = False


class Outcome(NamedTuple):
    """What came of it."""

    entered: int
    twice: list[str]
    half: list[str]
    lost: list[str]
    left: list[str]
    kills: int
    stops: int
    seconds: float

    @property
    def complaints(self) -> list[str]:
        found = {"twice": self.twice, "half": self.half, "lost": self.lost, "left": self.left}
        return [f"{word}: {len(some)}, as {some[0]}" for word, some in found.items() if some]


class Scene:
    """A folder, a queue, the intakes between them, and who drops and takes."""

    def __init__(self, orders: Orders, root: Path, elsewhere: Path | None = None) -> None:
        self.orders = orders
        self.folder, self.queue = (elsewhere or root) / "drops", root / "queue"
        self.out = root / "out"
        for path in (self.folder, self.queue, self.out):
            path.mkdir()
        self._random = random.Random(orders.seed)
        self._intakes: dict[int, subprocess.Popen[bytes]] = {}
        self._over = threading.Event()
        self.found: Counter[bytes] = Counter()
        self.kills = self.stops = 0

    def run(self) -> Outcome:
        began = time.monotonic()
        taking = threading.Thread(target=self._take)
        killing = threading.Thread(target=self._kill)
        try:
            for number in range(self.orders.intakes):
                self._begin(number)
            taking.start()
            killing.start()
            wanted = self._drop()
            self._await(wanted)
            killing.join()
            self._await(wanted)
        finally:
            self._over.set()
            for thread in (killing, taking):
                if thread.ident is not None:
                    thread.join()
            for process in self._intakes.values():
                process.terminate()
            for process in self._intakes.values():
                process.wait()
        self._take_all()
        return self._account(wanted, time.monotonic() - began)

    # Intakes

    def _begin(self, number: int) -> None:
        words = [sys.executable, "-P", "-m", "queuedriver", "intake", "--quiet"]
        words += [str(self.folder), str(self.queue), "--id", f"intake-{number}"]
        words += ["--settle", "50ms", "--min-free", "0", "--poll", "100ms"]
        words += ["--after", "leave"] if self.orders.leave else []
        self._intakes[number] = subprocess.Popen(words)

    def _kill(self) -> None:
        """Kill one after the other, each at a moment of its own, and start it anew."""
        chance = random.Random(self.orders.seed + 1)
        while self.kills < self.orders.kills and not self._over.is_set():
            time.sleep(chance.uniform(0.05, 0.6))
            number = chance.randrange(self.orders.intakes)
            process = self._intakes[number]
            if self.stops * _STOPPED < self.kills:
                self.stops += 1
                process.send_signal(signal.SIGSTOP)
                time.sleep(chance.uniform(0.0, 0.5))
                process.send_signal(signal.SIGCONT)
                continue
            process.kill()
            process.wait()
            self.kills += 1
            self._begin(number)

    # Drops

    def _drop(self) -> list[bytes]:
        """Drop files, each with a content of its own; return the contents."""
        wanted: list[bytes] = []
        halves: list[tuple[BufferedWriter, bytes]] = []
        for number in range(self.orders.drops):
            # Names come again when they were taken, unless these are to stay.
            name = f"{number if self.orders.leave else number % 997}-{number // 997}.txt"
            content = b"<%d %s>" % (number, b"x" * self._random.randrange(5000))
            wanted.append(content)
            if number % 3:
                aside = self.folder / f".{name}"
                aside.write_bytes(content)
                aside.rename(self.folder / name)
            else:
                file = (self.folder / name).open("wb")
                file.write(content[: len(content) // 2])
                file.flush()
                halves.append((file, content[len(content) // 2 :]))
            if len(halves) >= _AT_ONCE:
                self._finish(halves)
                self._keep_pace(number)
        self._finish(halves)
        return wanted

    def _keep_pace(self, dropped: int) -> None:
        """Wait until as large a part of the kills has been as of the drops: all under load."""
        until = time.monotonic() + _PATIENCE
        orders = self.orders
        while dropped / orders.drops > (self.kills + 3) / orders.kills:
            if time.monotonic() > until:
                break
            time.sleep(0.01)

    @staticmethod
    def _finish(halves: list[tuple[BufferedWriter, bytes]]) -> None:
        for file, rest in halves:
            file.write(rest)
            file.close()
        halves.clear()

    # Documents

    def _take(self) -> None:
        while not self._over.wait(0.05):
            self._take_all()

    def _take_all(self) -> None:
        for path in list(self.queue.glob("*.ready")):
            with suppress(FileNotFoundError):
                mine = self.out / path.name
                path.rename(mine)
                self.found[mine.read_bytes()] += 1
                mine.unlink()

    def _await(self, wanted: list[bytes]) -> None:
        """Wait until all has entered, and what those that were killed had left is taken up."""
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            if all(one in self.found for one in wanted) and not self._left():
                break
            time.sleep(0.2)

    def _left(self) -> list[str]:
        left = []
        if not self.orders.leave:
            left += [name for name in os.listdir(self.folder) if name[0] != "."]
            home = self.folder / ".queuedriver-intake"
            left += [one for one in os.listdir(home) if one.endswith((".working", ".written"))]
        inside = self.queue / ".queuedriver/intake"
        left += [one for one in os.listdir(inside) if one.endswith(".writing")]
        return left

    def _account(self, wanted: list[bytes], seconds: float) -> Outcome:
        known = set(wanted)
        return Outcome(
            entered=sum(self.found.values()),
            twice=[_shown(one) for one, count in self.found.items() if count > 1],
            half=[_shown(one) for one in self.found if one not in known],
            lost=[_shown(one) for one in wanted if one not in self.found],
            left=self._left(),
            kills=self.kills,
            stops=self.stops,
            seconds=seconds,
        )


def _shown(content: bytes) -> str:
    return repr(content[:30])


def figures(orders: Orders, outcome: Outcome) -> list[str]:
    """What there is to say, a line each."""
    return [
        f"{orders.drops:,} drops, {outcome.entered:,} entered, in {outcome.seconds:.0f} s",
        f"{outcome.kills} times SIGKILL, {outcome.stops} times SIGSTOP",
        f"lost {len(outcome.lost)}, twice {len(outcome.twice)}, half {len(outcome.half)}, "
        f"left over {len(outcome.left)}",
        *outcome.complaints,
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--drops", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--intakes", type=int, default=3)
    parser.add_argument("--leave", action="store_true")
    parser.add_argument("--elsewhere", help="where the folder is made")
    given = parser.parse_args()
    orders = Orders(given.drops, given.kills, given.seed, given.intakes, given.leave)
    roots = [Path(tempfile.mkdtemp())]
    if given.elsewhere:
        roots.append(Path(tempfile.mkdtemp(dir=given.elsewhere)))
    try:
        outcome = Scene(orders, *roots).run()
    finally:
        for root in roots:
            shutil.rmtree(root)
    print(*figures(orders, outcome), sep="\n")
    return 1 if outcome.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
