"""A pipeline that a Slurm of the tests runs: its file, its queues, and its elements."""

import itertools
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from queuedriver.disk.journal import journal_path, read_events
from queuedriver.errors import LATER
from queuedriver.format import names
from tests.testbed.slurm.cluster import Cluster
from tests.waiting import contents, until

# Seconds: far more than any scene takes, on a machine that does other things too.
PATIENCE = 150.0
QUEUES = ("input", "read", "turned")
# Of the last stage: plain files.
RESULTS = "results"
_FILE = """\
[pipeline]
name = "yard"
root = "queues"
durable = false
grace = "{grace}"

[[stage]]
name = "read"
drivers = 2
call = "stages:read"

[[stage]]
name = "turned"
command = ["{python}", "-S", "{root}/turn.py", "{{input}}", "{{output}}"]

[[stage]]
name = "results"
publish = "{{docid}}.txt"
call = "stages:write"
"""
# Where `watchdogd slurm` starts the elements, as many as the work needs.
BY_THE_WORK = """
[slurm]
nodes = { min = 0, max = 2 }
target = "5 s"
idle = "5 s"
"""
# A document says how long it takes in the first stage, in the second, and in the third; a word that
# begins with `gate` is until the test opens the gate of that name.
_STAGES = """\
import os, time


def rest(word):
    gate = word.startswith("gate")
    while gate and not os.path.exists("{root}/" + word):
        time.sleep(0.02)
    time.sleep(0 if gate else float(word))


def read(document):
    data = document.read()
    rest(data.decode().split()[0])
    return data


def write(document):
    data = document.read()[::-1]
    rest(data.decode().split()[2])
    return data.upper()
"""
_TURN = """\
import sys, time
data = open(sys.argv[1], "rb").read()
time.sleep(float(data.split()[1]))
open(sys.argv[2], "wb").write(data[::-1])
"""
# An element as a person would write it: any number of them may be on one node, and one that Slurm
# starts again is another host, as the first may be there still. It shares the queues with all the
# others; what is a node's own is in a directory of the node.
_ELEMENT = """\
#!/bin/sh
#SBATCH --job-name=yard --requeue --open-mode=append --output={root}/logs/%A_%a.log
#SBATCH --cpus-per-task=2 --mem=500 --signal=B:TERM@{before}
host=${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID
[ "${{SLURM_RESTART_COUNT:-0}}" -eq 0 ] || host=${{host}}r$SLURM_RESTART_COUNT
echo "$SLURMD_NODENAME $host" >> {root}/begun
export WATCHDOGD_STATE={root}/on-$SLURMD_NODENAME/state
exec {python} -m watchdogd run {root}/pipeline.toml --host "$host" "$@"
"""


class Elements:
    """A pipeline in a directory that all nodes share, and the elements that work on it."""

    def __init__(
        self, cluster: Cluster, root: Path, *, grace: str = "3 s", before: int = 5, more: str = ""
    ) -> None:
        self.cluster, self.root = cluster, root
        root.mkdir()
        (root / "logs").mkdir()
        words = {"root": root, "python": sys.executable, "grace": grace, "before": before}
        (root / "pipeline.toml").write_text(_FILE.format(**words) + more)
        (root / "stages.py").write_text(_STAGES.format(**words))
        (root / "turn.py").write_text(_TURN)
        self.script = root / "element.sh"
        self.script.write_text(_ELEMENT.format(**words))
        # What each result is to say.
        self._put: dict[str, bytes] = {}

    def put(self, count: int, *seconds: float | str, name: str = "d") -> None:
        """Submit documents that take so long in each stage; without: hardly any time. Those that
        wait at a `gate` go on after `open_gate`: until then no drain ends."""
        directory = self.root / "queues" / "input"
        directory.mkdir(parents=True, exist_ok=True)
        takes = " ".join(map(str, (*seconds, 0, 0, 0)[:3]))
        for number in range(count):
            docid = f"{name}{number}"
            aside = directory / f".{docid}"
            aside.write_text(f"{takes} {docid}")
            aside.rename(directory / f"{docid}.ready")
            self._put[f"{docid}.txt"] = f"{takes} {docid}".upper().encode()

    def work_for(self, seconds: float, *takes: float) -> None:
        """Have all drivers be at work for so long: there are always documents that wait."""
        ends_at, rounds = time.monotonic() + seconds, itertools.count()
        while time.monotonic() < ends_at:
            self.put(20, *takes, name=f"round{next(rounds)}-")
            self.wait_for_results(len(self._put) - 40)

    def open_gate(self, gate: str = "gate") -> None:
        (self.root / gate).touch()

    def start(self, *words: str, elements: int = 2, options: Sequence[str] = ()) -> int:
        """Let Slurm start elements, with these words for `watchdogd run`; return the job."""
        array = f"--array=0-{elements - 1}"
        script = str(self.script)
        said = self.cluster.slurm("sbatch", "--parsable", array, *options, script, *words)
        return int(said)

    def give_up_the_silent(self) -> None:
        """Say that no driver lives, as an operator may; those that do lose their claims."""
        for queue in QUEUES:
            path = str(self.root / "queues" / queue)
            words = (sys.executable, "-m", "queuedriver", "recover", path, "--lease", "0")
            done = self.cluster.command(*words)
            # Later: one that lives has begun a document at this moment.
            assert done.returncode in (0, LATER), done

    def command(self, *words: str) -> str:
        """Let `watchdogd slurm` do something, where users log in."""
        line = (sys.executable, "-m", "watchdogd", "slurm", *words)
        environ = {"WATCHDOGD_STATE": str(self.root / "state")}
        done = self.cluster.command(*line, environ=environ, cwd=self.root)
        assert done.returncode == 0, (done, self.cluster.trouble())
        return done.stdout + done.stderr

    # What there is to see

    def told_to_run(self) -> int:
        """Return how many elements run, as `watchdogd slurm status` tells."""
        rows = (line.split() for line in self.command("status").splitlines())
        return sum(row[1:2] == ["running"] for row in rows)

    def begun(self) -> list[tuple[str, str]]:
        """Return the node and the name of each element that has begun."""
        path = self.root / "begun"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(node, host) for node, host in map(str.split, lines)]

    def results(self) -> dict[str, bytes]:
        """Return what was published; beside it there may be what is being written."""
        return {name: data for name, data in self._made().items() if names.parse(name) is None}

    def _made(self) -> dict[str, bytes]:
        return contents(self.root / "queues" / RESULTS)

    def wait_until_begun(self, count: int) -> list[tuple[str, str]]:
        """Wait until so many elements have begun, Slurm's second starts included."""
        words = f"{count} elements have begun"
        return until(lambda: len(self.begun()) >= count and self.begun(), words, PATIENCE) or []

    def wait_for_results(self, count: int) -> None:
        words = f"{count} results"
        until(lambda: len(self.results()) >= count, words, PATIENCE)

    def elements(self) -> list[str]:
        """Return the states of the elements that run or wait in Slurm."""
        return self.cluster.slurm("squeue", "--noheader", "--array", "--format=%T").split()

    def wait_until_ended(self, timeout: float = PATIENCE) -> None:
        """Wait until no element runs or waits in Slurm."""
        until(lambda: not self.elements(), "no element is left", timeout)

    def ended_as(self, *jobs: int) -> Counter[str]:
        """Return how many elements are in each state, of these jobs or of all."""
        return Counter(self.cluster.states(*jobs))

    def workers(self) -> set[str]:
        """Return the ids of the drivers that have a document in this moment."""
        found = set()
        for queue in QUEUES:
            for name in contents(self.root / "queues" / queue):
                item = names.parse(name)
                if item is not None and item.token:
                    found.add(names.parse_token(item.token).driver)
        return found

    def states(self) -> Counter[str]:
        """Return how many documents are in each state, all queues together."""
        found: Counter[str] = Counter()
        for queue in QUEUES:
            for name in contents(self.root / "queues" / queue):
                item = names.parse(name)
                found[item.state if item is not None else name] += 1
        return found

    def told(self) -> str:
        """Return what the elements printed."""
        return "".join(
            f"{one.name}:\n{one.read_text()}"
            for one in [
                *self.root.glob("logs/*"),
                *self.root.glob("queues/.watchdogd/logs/slurm/*"),
            ]
        )

    # Promises

    def check_all_came_out_once(self) -> None:
        """Assert that each document is there once, none was charged, and nobody is left."""
        assert self._made() == self._put, self.told()
        assert not self.states(), self.told()
        self.check_none_charged()
        self.check_nobody_left()

    def check_results(self) -> None:
        assert self.results() == self._put, self.told()

    def check_none_charged(self) -> None:
        charged = [
            one
            for queue in QUEUES
            for one in read_events(journal_path(str(self.root / "queues" / queue))).events
            if one.event in ("failed", "discarded") or one.attempt
        ]
        assert not charged, (charged, self.told())
        assert not list(self.root.glob(f"queues/*/{names.DISCARDED}/*"))

    def check_nobody_left(self) -> None:
        """Assert that no process of an element is there, nor an element."""
        nodes = self.cluster.nodes
        until(lambda: not any(map(self.cluster.processes, nodes)), "no process is left")
