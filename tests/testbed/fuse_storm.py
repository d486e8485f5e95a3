"""A storm: drivers of two stages on a file system that fails, lies and stalls at random.

    python -m tests.testbed.fuse_storm --minutes 5 --seed 1

Each run submits some documents, starts the drivers, and changes the weather every moment until
nobody should need more of it. Then all faults stop, and everything is counted: what was lost, what
came twice or half-written, and what was charged though it was not its fault. A run is replayed by
its seed as far as the machine allows: the same faults are offered, and the drivers race.
"""

import argparse
import contextlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from queuedriver.format import names
from queuedriver.operating.queue import Queue
from tests.testbed.fuse_ground import Options
from tests.testbed.fuse_mount import Faulty, missing
from tests.testbed.fuse_rules import Rule
from tests.testbed.fuse_wire import Valid

DRIVERS = 3
# Each of several blocks, lest a short write be a whole one.
TEXT = "Some Text that is long enough to be cut in two. " * 200
# Seconds of one weather, and how long the documents may take once all is well again.
_SPELL = 0.1, 0.6
_CALM = 120.0

_TROUBLE = ("EIO", "ESTALE", "ENOSPC", "EDQUOT", "EROFS", "ETIMEDOUT")
_LIES = ("EIO", "ENOENT", "ESTALE", "ETIMEDOUT")
_CHANGES = ("rename", "unlink", "create", "write", "fsync", "fsyncdir", "flush", "mkdir")
_LOOKS = ("lookup", "getattr", "open", "read", "opendir", "readdir", "statfs")


class Climate(NamedTuple):
    """What does not change during one run."""

    hosts: int
    options: Options
    durable: bool


class Reckoning(NamedTuple):
    """What a run came to. `faults` and `restarts` tell that there was a storm."""

    faults: int
    restarts: int
    lost: tuple[str, ...]
    twice: tuple[str, ...]
    broken: tuple[str, ...]
    charged: tuple[str, ...]
    left: tuple[str, ...]

    @property
    def well(self) -> bool:
        return not (self.lost or self.twice or self.broken or self.charged or self.left)


# Pure


def climate(dice: random.Random) -> Climate:
    lazy = Valid(*(dice.choice((0.0, 0.3)) for _ in range(3)))
    options = Options(valid=lazy, noreplace=dice.random() < 0.7)
    return Climate(dice.choice((1, 2)), options, dice.random() < 0.5)


def weather(dice: random.Random) -> list[Rule]:
    """What goes wrong for the next moment; now and then nothing does."""
    rules = []
    for _ in range(dice.choice((0, 1, 2, 4))):
        kind = dice.randrange(8)
        chance = dice.choice((0.02, 0.1, 0.5, 1.0))
        if kind < 2:
            op = dice.choice(("rename", "unlink", "create", "mkdir"))
            rules.append(Rule(op, error=dice.choice(_LIES), after=True, chance=min(chance, 0.3)))
        elif kind < 5:
            op = dice.choice((*_CHANGES, *_LOOKS, "*"))
            rules.append(Rule(op, error=dice.choice(_TROUBLE), chance=min(chance, 0.5)))
        elif kind == 5:
            rules.append(Rule("write", short=True, chance=chance))
        elif kind == 6:
            seconds = dice.choice((0.1, 0.5))
            # What a host has done itself, it sees: so it is with every cache that we know of.
            rules.append(Rule("readdir|lookup", hide=seconds, foreign=True))
        else:
            hold = dice.random() < 0.3
            rules.append(Rule("*", hold=hold, delay=0.0 if hold else 0.05, chance=chance))
    return rules


def documents(count: int) -> dict[str, str]:
    """Docids and their texts: nearly all good, some of two outputs, some that always fail."""
    words = ("bad", "many", "many", *["good"] * 17)
    docids = (f"{words[number % len(words)]}-{number}" for number in range(count))
    return {docid: f"{docid} {TEXT}" for docid in docids}


def results(submitted: Mapping[str, str]) -> dict[str, str]:
    """What is to come of them, and with which contents."""
    expected: dict[str, str] = {}
    for docid, text in submitted.items():
        word = docid.partition("-")[0]
        if word == "many":
            expected |= {f"{docid}-{part}.xml": text.upper() for part in "ab"}
        elif word != "bad":
            expected[f"{docid}.xml"] = text.upper()
    return expected


def reckon(
    submitted: Mapping[str, str],
    found: Mapping[str, str],
    charges: Mapping[str, int],
    left: Sequence[str],
    faults: int = 0,
    restarts: int = 0,
) -> Reckoning:
    """Compare what came of the documents with what was to come of them."""
    expected = results(submitted)
    bad = {docid for docid in submitted if docid.startswith("bad-")}
    twice = [name for name in found if name not in expected]
    twice += [docid for docid in charges if f"{docid}.xml" in found]
    return Reckoning(
        faults,
        restarts,
        lost=tuple(sorted((expected.keys() - found.keys()) | (bad - charges.keys()))),
        twice=tuple(sorted(twice)),
        broken=tuple(sorted(n for n, text in found.items() if expected.get(n, text) != text)),
        charged=tuple(sorted(d for d, n in charges.items() if d not in bad or n != 2)),
        left=tuple(left),
    )


# The drivers


class Crew:
    """Drivers, each started again when it ends though nobody asked it to."""

    def __init__(self, log: Path) -> None:
        self._log = log.open("ab")
        self._commands: list[list[str]] = []
        self._running: list[subprocess.Popen[bytes]] = []
        self.restarts = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running:
            process.kill()
            process.wait()
        self._log.close()

    def add(self, *words: str) -> None:
        self._commands.append([sys.executable, "-m", "queuedriver", "run", *words])
        self._running.append(self._start(self._commands[-1]))

    def look(self) -> None:
        for index, process in enumerate(self._running):
            if process.poll() is not None:
                self.restarts += 1
                self._running[index] = self._start(self._commands[index])

    def leave(self) -> None:
        for process in self._running:
            process.terminate()
        for process in self._running:
            process.wait(_CALM)

    def _start(self, command: list[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            cwd=Path(__file__).parents[2],
        )


def _start(crew: Crew, hosts: Sequence[Faulty], durable: bool) -> None:
    kept = "--durable" if durable else "--no-durable"
    does = ("--call", "tests.testbed.fuse_processors:obey", kept, "--quiet")
    for number in range(DRIVERS):
        host = hosts[number % len(hosts)].path
        path, middle, out = (str(host / name) for name in ("in", "mid", "out"))
        crew.add(path, "--to", middle, "--id", f"one-{number}", *does)
        publish = ("--publish", "{docid}.xml")
        crew.add(middle, "--to", out, "--id", f"two-{number}", *publish, *does)


# A run


def run(root: Path, seed: int, count: int = 300, seconds: float = 20.0) -> Reckoning:
    """One storm. OSError or AssertionError when the machine, not the queue, is to blame."""
    dice = random.Random(seed)
    where = climate(dice)
    submitted = documents(count)
    backing = root / "backing"
    for name in ("in", "mid", "out"):
        (backing / name).mkdir(parents=True)
    with contextlib.ExitStack() as at_end:
        crew = at_end.enter_context(Crew(root / "drivers.log"))
        hosts = [
            at_end.enter_context(Faulty(backing, root / f"host-{number}", where.options))
            for number in range(where.hosts)
        ]
        # What is held must be let go before the drivers can be ended.
        at_end.callback(_heal, hosts)
        _start(crew, hosts, where.durable)
        waiting = list(submitted.items())
        faults, ends_at = 0, time.monotonic() + seconds
        # On a slow machine the drivers are there late.
        while (time.monotonic() < ends_at or not faults) and (waiting or _left(backing)):
            # Little by little, lest all be done before the storm has come up.
            for docid, text in _taken(waiting, dice.randrange(1 + count // 10)):
                _submit(backing / "in", docid, text)
            for host in hosts:
                faults += sum(host.fail(*weather(dice), seed=dice.getrandbits(32)).hits)
            time.sleep(dice.uniform(*_SPELL))
            crew.look()
        faults += _heal(hosts)
        for docid, text in waiting:
            _submit(backing / "in", docid, text)
        _await_calm(backing, crew)
        crew.leave()
        restarts = crew.restarts
    charges = _charges(backing / "in") | _charges(backing / "mid")
    return reckon(submitted, _found(backing / "out"), charges, _left(backing), faults, restarts)


def _taken(waiting: list[tuple[str, str]], count: int) -> list[tuple[str, str]]:
    taken, waiting[:] = waiting[:count], waiting[count:]
    return taken


def _heal(hosts: Sequence[Faulty]) -> int:
    return sum(sum(host.heal().hits) for host in hosts)


def _submit(queue: Path, docid: str, text: str) -> None:
    (queue / f".{docid}").write_text(text)
    (queue / f".{docid}").rename(queue / f"{docid}.ready")


def _await_calm(backing: Path, crew: Crew) -> None:
    ends_at = time.monotonic() + _CALM
    while _left(backing) and time.monotonic() < ends_at:
        crew.look()
        time.sleep(0.05)


# Looks, past the mounts


def _left(backing: Path) -> list[str]:
    """Items that wait or are claimed, and outputs that are not finished."""
    return [
        f"{queue}/{name}"
        for queue in ("in", "mid")
        for name in sorted(os.listdir(backing / queue))
        if names.parse(name) is not None
    ]


def _found(out: Path) -> dict[str, str]:
    return {one.name: one.read_text() for one in out.glob("[!.]*.xml") if one.is_file()}


def _charges(queue: Path) -> dict[str, int]:
    """How often each discarded document was charged, as its last attempt says; 0 without any."""
    with Queue.open(queue) as opened:
        reports = {docid: opened.report(docid) for docid in opened.discarded()}
    return {
        docid: report.attempts[-1].attempt + 1 if report else 0 for docid, report in reports.items()
    }


# The command


def _runs(first: int, minutes: float) -> Iterator[int]:
    ends_at = time.monotonic() + minutes * 60
    seed = first
    while time.monotonic() < ends_at:
        yield seed
        seed += 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.testbed.fuse_storm")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1, help="of the first run; then one more each")
    parser.add_argument("--documents", type=int, default=300)
    asked = parser.parse_args()
    if words := missing():
        print(words, file=sys.stderr)
        return 1
    total = dict.fromkeys(("faults", "restarts", "lost", "twice", "broken", "charged", "left"), 0)
    for count, seed in enumerate(_runs(asked.seed, asked.minutes), 1):
        directory = Path(tempfile.mkdtemp(prefix=f"storm-{seed}-"))
        found = run(directory, seed, asked.documents)
        for word, value in found._asdict().items():
            total[word] += value if isinstance(value, int) else len(value)
        if found.well:
            shutil.rmtree(directory)
        else:
            print(f"seed {seed}: {found}; it is kept in {directory}", flush=True)
        words = ", ".join(f"{value} {word}" for word, value in total.items())
        print(f"{count} runs, {count * asked.documents} documents: {words}", flush=True)
    return int(any(total[word] for word in ("lost", "twice", "broken", "charged", "left")))


if __name__ == "__main__":
    sys.exit(main())
