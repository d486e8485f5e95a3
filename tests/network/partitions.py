"""Workers and their broker that are cut off from each other again and again; then the account.

    python -m tests.network.partitions pingpong --cuts 20 --seed 7

Three hosts (network namespaces: it takes root and iproute2): a broker, and two of workers. Cables
are pulled at random, also the broker's, for a moment or until everybody has noticed. Then
everything must drain by itself, within DRAINS of the last heal. No document may be lost or come out
twice; a cut costs what was at hand beyond it an attempt, of which there are plenty, and nothing
else. Exit code 1, and the directory stays, otherwise.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from queuedriver.doors.transports.curve import make_keys
from tests.network.doors import PROTOCOLS, open_doors
from tests.network.hosts import Hosts

# Workers on each host, and what a document takes in seconds.
WORKERS = 2
WORK = 0.02
WAITING = 300
# Seconds that a cable is out: too short to be noticed, and longer than ZeroMQ's heartbeats and all
# patience of the protocols.
CUTS = ((0.1, 1.0), (3.0, 8.0))
# Seconds between two cuts.
CALM = (0.0, 4.0)
# Seconds after the last heal until nothing of WAITING is left.
DRAINS = 5.0
RETRIES = 99 - 1


def make_all_keys(place: Path) -> Path:
    """Of a broker, and of all workers together."""
    for side in ("broker", "worker"):
        make_keys(str(place / side))
    shutil.copy(place / "worker/own.key", place / "broker/authorized/worker.key")
    shutil.copy(place / "broker/own.key", place / "worker/broker.key")
    return place


def run(protocol: str, cuts: int, seed: int, place: Path, hosts: Hosts) -> list[str]:
    """What is wrong in the end."""
    chance = random.Random(seed)
    keys = make_all_keys(place / "keys")
    secured = protocol != "fuq"
    queues = place / "queues"
    queues.mkdir()
    with open_doors(queues, protocol, hosts.endpoint(1)) as doors:
        curve = str(keys / "broker") if secured else None
        broker = doors.broker(host=hosts.name(1), curve=curve, retries=RETRIES)
        curve = str(keys / "worker") if secured else None
        for host in (2, 3) * WORKERS:
            doors.worker(WORK, host=hosts.name(host), curve=curve)
        doors.bring_many(WAITING)
        doors.wait_for_outputs(1)
        for cut in range(cuts):
            if cut:
                time.sleep(chance.uniform(*CALM))
            doors.bring_many(max(0, WAITING - doors.to_come()))
            host = chance.choice((1, 2, 2, 3, 3))
            hosts.cut(host)
            time.sleep(chance.uniform(*chance.choice(CUTS)))
            doors.bring_many(max(0, WAITING - doors.to_come()))
            hosts.heal(host)
        healed_at = time.monotonic()
        doors.wait_until_empty()
        draining = time.monotonic() - healed_at
        broker.signal()
        assert broker.ended() == 0, doors.said()
        complaints = doors.account()
        discarded, noted = doors.discarded(), doors.noted()
        print(
            f"{protocol}, seed {seed}: {cuts} cuts, documents {len(doors.submitted):,}, outputs "
            f"{len(doors.outputs()):,}, discarded {len(discarded)}, drained in {draining:.1f} s"
        )
        print(f"journals: {', '.join(f'{word} {noted[word]:,}' for word in sorted(noted))}")
    if draining > DRAINS:
        complaints.append(f"{WAITING} documents were gone {draining:.1f} s after the last heal")
    # The broker's cable cuts off everybody.
    if noted["failed"] > cuts * 2 * WORKERS:
        complaints.append(f"{noted['failed']} attempts were charged by {cuts} cuts")
    return complaints + [f"{docid} is discarded" for docid in discarded]


def main() -> int:
    parser = argparse.ArgumentParser(prog="partitions", description=__doc__.partition("\n")[0])
    parser.add_argument("protocol", choices=PROTOCOLS)
    parser.add_argument("--cuts", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="partitions-"))
    with Hosts() as hosts:
        complaints = run(given.protocol, given.cuts, given.seed, place, hosts)
    for line in complaints:
        print(line)
    print(f"{len(complaints)} complaints")
    if complaints:
        print(f"everything is kept in {place}")
        return 1
    shutil.rmtree(place)
    return 0


if __name__ == "__main__":
    sys.exit(main())
