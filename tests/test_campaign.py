"""What is random and long: `sh tests/run campaign`; or each by its own command.

Their figures go into `docs/reliability.rst`.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# What each is, and its command.
CAMPAIGN = {
    "a million schedules": "tests.simulation --schedules 1000000 --seed 0",
    "20,000 schedules of intakes": "tests.simulation --intakes --schedules 20000 --seed 0",
    "all pairs of kills": "tests.simulation --exhaustive 2 --kinds crash",
    "chaos of 20,000 documents": "tests.crash.chaos --documents 20000 --drivers 8 --minutes 7 "
    "--kills 1000 --every 0.2 --seed 7",
    "200 intakes killed": "tests.crash.intakes --drops 10000 --kills 200 --seed 11",
    "200 intakes killed, two file systems": "tests.crash.intakes --drops 10000 --kills 200 "
    "--seed 12 --elsewhere /dev/shm",
    "200 intakes killed, a folder that stays": "tests.crash.intakes --drops 10000 --kills 200 "
    "--seed 13 --leave",
    "500 drivers of a watchdog": "tests.crash.crowd --stages 20 --each 25",
    "a million frames": "tests.fuzz frames --runs 1200 --seed 9",
    "files of strangers": "tests.fuzz all --minutes 10 --seed 9",
    "200 power cuts": "tests.testbed power-cuts --times 200 --seed 11",
    "20 power cuts of a host": "tests.testbed host-cuts --times 20",
    "20 power cuts of a server": "tests.testbed server-cuts --times 20",
    "a race of two hosts": "tests.testbed race --times 5000",
    "a storm of faulty files": "tests.testbed.fuse_storm --minutes 5 --seed 1",
    "100 brokers killed, pingpong": "tests.network.kills pingpong --kills 100 --seed 11",
    "100 brokers killed, roundrobin": "tests.network.kills roundrobin --kills 100 --seed 11",
    "100 brokers killed, scale0": "tests.network.kills scale0 --kills 100 --seed 11",
    "100 brokers killed, fuq": "tests.network.kills fuq --kills 100 --seed 11",
    "brokers and workers killed, pingpong": "tests.network.kills pingpong --kills 30 --workers-too",
    "brokers and workers killed, roundrobin": "tests.network.kills roundrobin --kills 30 "
    "--workers-too",
    "brokers and workers killed, scale0": "tests.network.kills scale0 --kills 30 --workers-too",
    "brokers and workers killed, fuq": "tests.network.kills fuq --kills 30 --workers-too",
    "20 cuts, pingpong": "tests.network.partitions pingpong --cuts 20",
    "20 cuts, roundrobin": "tests.network.partitions roundrobin --cuts 20",
    "20 cuts, scale0": "tests.network.partitions scale0 --cuts 20",
    "20 cuts, fuq": "tests.network.partitions fuq --cuts 20",
}


@pytest.mark.campaign
@pytest.mark.parametrize("name", CAMPAIGN)
def test_no_promise_is_broken_in(name: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", *CAMPAIGN[name].split()], cwd=ROOT, text=True, check=False
    )
    assert ran.returncode == 0, f"python -m {CAMPAIGN[name]}"
