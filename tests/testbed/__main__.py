"""The long runs by hand: python -m tests.testbed --help"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.testbed import power_cuts
from tests.testbed.lab import SWITCH, Lab, missing
from tests.testbed.nfs import Nfs
from tests.testbed.race import Race

# Cuts between two words on how it goes.
_CHUNK = 10


def _power_cuts(lab: Lab, times: int, seed: int) -> Iterator[str]:
    """Of the disk, amid two stages."""
    guest = power_cuts.guest_with_disk(lab)
    for first in range(0, times, _CHUNK):
        numbers = range(first, min(first + _CHUNK, times))
        yield str(guest.start(power_cuts.cut_disk, len(numbers), seed, first).result(1800.0))


def _host_cuts(lab: Lab, times: int, seed: int) -> Iterator[str]:
    """Of the whole host, amid two stages."""
    yield str(power_cuts.cut_guest(power_cuts.guest_with_disk(lab), times, seed))


def _server_cuts(lab: Lab, times: int, seed: int) -> Iterator[str]:
    """Of an NFS server, amid races of two clients."""
    net = Nfs(lab).start()
    for number in range(times):
        race = Race(net, f"cut-{seed}-{number}", documents=400, durable=bool(number % 2))
        race.start()
        race.wait_for_share(0.2)
        race.cut_power()
        race.restore_power()
        race.finish()
        race.all_came_out_once()
        yield "400 documents, each published once"


def _race(lab: Lab, times: int, seed: int) -> Iterator[str]:
    """Of two NFS clients for so many documents."""
    race = Race(Nfs(lab).start(), f"race-{seed}", documents=times)
    race.run()
    race.all_came_out_once()
    yield f"{times} documents, each published once, {times / race.seconds:.0f} documents/s"


_RUNS: dict[str, Callable[[Lab, int, int], Iterator[str]]] = {
    "power-cuts": _power_cuts,
    "host-cuts": _host_cuts,
    "server-cuts": _server_cuts,
    "race": _race,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.testbed", description=__doc__)
    parser.add_argument("what", choices=_RUNS)
    parser.add_argument("--times", type=int, default=20, help="cuts; of race: documents")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    given = parser.parse_args()
    # Who types this wants them, however long they take.
    os.environ.pop(SWITCH, None)
    if reason := missing():
        print(reason, file=sys.stderr)
        return 1
    # Whoever ends us ends the guests, too; what they wrote is to be removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    directory = Path(tempfile.mkdtemp(prefix="queuedriver-testbed-"))
    began = time.monotonic()
    try:
        with Lab(directory / "lab") as lab:
            for words in _RUNS[given.what](lab, given.times, given.seed):
                print(f"{time.monotonic() - began:6.1f} s: {words}", flush=True)
    finally:
        shutil.rmtree(directory)
    print(f"all is well; seed {given.seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
