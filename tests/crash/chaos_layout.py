"""What is wanted of a run of the chaos, and its directory: the pipeline's file and its programs."""

import shutil
import sys
from pathlib import Path
from typing import NamedTuple

from tests.crash import chaos_stages
from tests.crash.chaos_stages import SCRIPT

_PIPELINE = """\
[pipeline]
name = "chaos"
root = "queues"
durable = {durable}
adopt = {adopt}
retries = {retries}
grace = "1 s"
max_unhealthy = 100000

[[stage]]
name = "one"
call = "chaos_stages:one"
preload = true
drivers = {one}

[[stage]]
name = "two"
command = ["./two.sh", "{{input}}", "{{output}}", "{{docid}}", "{{attempt}}"]
drivers = {{ min = {two}, max = {more} }}

[[stage]]
name = "three"
server = ["{python}", "chaos_stages.py"]
publish = "{{docid}}.xml"
batch = {batch}
drivers = {three}
"""


class Orders(NamedTuple):
    """What is wanted of a run."""

    documents: int = 20_000
    drivers: int = 8
    # There are faults for so long, and longer if it takes that for so many of them to be SIGKILL;
    # and how long it is from one to the next, on average, while anything is done.
    seconds: float = 600.0
    kills: int = 0
    every: float = 0.2
    seed: int = 7
    # With few, documents would be discarded that did nothing but be there when drivers were killed.
    retries: int = 6
    adopt: bool = False
    # Both hosts in one pid namespace: each sees the processes of the other.
    together: bool = False
    durable: bool = False
    # Of the last stage: how many documents are handed over together.
    batch: int = 1


def lay_out(place: Path, orders: Orders) -> None:
    """All that is there before anything runs."""
    for name in ("records", "run", "state", "queues/input"):
        (place / name).mkdir(parents=True)
    one, two, three = split(orders.drivers // 2)
    text = _PIPELINE.format(
        durable=str(orders.durable).lower(),
        adopt=str(orders.adopt).lower(),
        retries=orders.retries,
        batch=orders.batch,
        one=one,
        two=two,
        # One that the watchdog gives and takes, as the work goes.
        more=two + 1,
        three=three,
        python=sys.executable,
    )
    (place / "pipeline.toml").write_text(text)
    shutil.copy(chaos_stages.__file__, place / "chaos_stages.py")
    script = place / "two.sh"
    script.write_text(SCRIPT)
    script.chmod(0o755)


def split(drivers: int) -> tuple[int, int, int]:
    """How many drivers of one host each stage gets: one at least, and the command the most."""
    more = max(0, drivers - 3)
    return 1 + more // 3, 1 + more - 2 * (more // 3), 1 + more // 3
