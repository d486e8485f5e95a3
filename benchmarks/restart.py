"""From a driver's death to its successor's first document: watchdogd, and other supervisors."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from benchmarks import measuring, pipelines
from benchmarks.measuring import Contender, Failed, Results, Sample
from benchmarks.places import Place
from benchmarks.restart_peers import PEERS, Peer, kept
from benchmarks.scale import Scale
from benchmarks.table import Group, Table

TITLE = "Crash to replacement"
LEAD = (
    "From kill -9 of a driver with a document at hand to the first line of the processor in its "
    "successor, {crashes} crashes in each of {rounds} rounds; and what a supervisor takes to start "
    "next to nothing, a shell that writes the time. A life lasts a second and "
    "a random part of the time between two looks of its supervisor. Each successor is checked: "
    "it is another process, and begins with another document. × watchdogd is within the rounds."
)
MODEL = 200 << 20
LOAD = 2.0
PRELOADED = "watchdogd, preload, the model"
ANEW = "watchdogd"
UNTIL_STARTED = "watchdogd, until one is started"
MODEL_ANEW = "watchdogd, the model loaded anew"
DRIVER = "{peer}, queuedriver run"
SHELL = "{peer}, a shell"
PROCESS = "benchmarks.restart_child:process"
SHELL_WORDS = 'echo "$(date +%s%N) $$ $$" >>"$RESTART_BEGUN"\nexec sleep 1000000\n'
SHELL_CHILD = "sh child"
# The shortest life: supervisord takes a child that ends in its first second for one that cannot
# start. Beyond it a random part of this, or of what lies between two looks of a peer.
LIFE = 1.1
PHASE = 0.5
# What has become of a supervisor that does not restart.
ENDED = "it ended when its child did"


def measure(scale: Scale, places: list[Place]) -> Table:
    columns = ["supervisor and child", "place", "median ms", "fastest", "slowest", "× watchdogd"]
    group = Group("")
    notes = {
        f"The model takes {LOAD:g} s to load and has {MODEL >> 20} MB. Elsewhere the processor "
        "imports nothing of note: a driver's own start is all there is.",
        f"{UNTIL_STARTED}: to the event that says so, for it keeps drivers and not any program.",
        *(f"{peer.name}: {peer.note}." for peer in PEERS.values()),
    }
    for place in places:
        chosen = contenders(scale.crashes)
        results = measuring.interleave(chosen, scale.crash_rounds, place)
        for contender in chosen:
            cells = _cells(results, contender.name)
            group.rows.append([contender.name, place.name, *cells])
            if contender.name == ANEW and ANEW in results:
                cells = _times([t for times in results.facts(ANEW, "started") for t in times])
                group.rows.append([UNTIL_STARTED, place.name, *cells, "-"])
        failures = {name: why for name, why in results.failures.items() if why != ENDED}
        notes |= {f"{name} failed: {why}" for name, why in failures.items()}
    lead = LEAD.format(crashes=scale.crashes, rounds=scale.crash_rounds)
    return Table(TITLE, lead, columns, [group], sorted(notes))


def contenders(crashes: int) -> list[Contender]:
    def ours(*, preload: bool, model: bool) -> Callable[[Path], Sample]:
        return lambda directory: by_watchdogd(directory, crashes, preload=preload, model=model)

    def theirs(peer: str, command: str) -> Callable[[Path], Sample]:
        return lambda directory: by_peer(PEERS[peer], directory, crashes, command)

    program = Path(sys.executable).parent / "queuedriver"
    driver = f"{program} run queues/input --id 1 --call {PROCESS}"
    return [
        Contender(PRELOADED, ours(preload=True, model=True)),
        Contender(ANEW, ours(preload=False, model=False)),
        Contender(MODEL_ANEW, ours(preload=False, model=True)),
        *(
            Contender(words.format(peer=peer), theirs(peer, command))
            for words, command in ((DRIVER, driver), (SHELL, SHELL_CHILD))
            for peer in ("supervisord", "circus")
        ),
        Contender(SHELL.format(peer="honcho"), theirs("honcho", SHELL_CHILD)),
    ]


class Lives:
    """The file to which each document, or each shell, adds a line when it begins."""

    def __init__(
        self, file: Path, lines_of_a_life: int, keeper: subprocess.Popen[bytes], phase: float
    ) -> None:
        self.file = file
        self.lines_of_a_life = lines_of_a_life
        self.keeper = keeper
        self.phase = phase
        self.ended = 0

    def lines(self) -> list[list[str]]:
        """When in ns, the process, and what it began with."""
        return [line.split() for line in self.file.read_text().splitlines()]

    def crash(self) -> tuple[int, int]:
        """Kill the one that lives, when it has for long enough; when that was, and when its
        successor began, in ns."""
        before = self.lines_of_a_life * (self.ended + 1)
        self._wait(before, "a life that can be ended")
        time.sleep(LIFE + random.uniform(0, self.phase))
        pid = self.lines()[-1][1]
        killed_at = time.time_ns()
        os.kill(int(pid), signal.SIGKILL)
        self.ended += 1
        self._wait(before + 1, "a successor")
        lines = self.lines()
        if lines[before][1] == pid:
            raise Failed("the driver has survived SIGKILL")
        if len({begun for _, _, begun in lines}) != len(lines):
            raise Failed("a document was begun twice")
        return killed_at, int(lines[before][0])

    def _wait(self, count: int, what: str) -> None:
        gone = self.keeper.poll
        pipelines.until(lambda: len(self.lines()) >= count or gone() is not None, what)
        if len(self.lines()) < count:
            raise Failed(ENDED)


def by_watchdogd(directory: Path, crashes: int, *, preload: bool, model: bool) -> Sample:
    loaded = "preload = true\n" if preload else ""
    stage = f'name = "one"\ncall = "{PROCESS}"\ntimeout = "1 h"\n{loaded}'
    pipelines.write(directory, [stage])
    with pipelines.watched(directory, more=_environ(directory, crashes, model=model)) as watchdog:
        lives = Lives(directory / "begun", 2, watchdog.process, PHASE)
        crashed = [lives.crash() for _ in range(crashes)]
        pipelines.until(lambda: len(watchdog.events("restarted")) >= crashes, "the events")
        restarted = [float(str(event["at"])) for event in watchdog.events("restarted")]
    pairs = zip(restarted, crashed, strict=True)
    return _sample(crashed, started=[at - killed_at / 1e9 for at, (killed_at, _) in pairs])


def by_peer(peer: Peer, directory: Path, crashes: int, command: str) -> Sample:
    (directory / "queues" / "input").mkdir(parents=True)
    (directory / "child").write_text(SHELL_WORDS)
    environ = pipelines.environ(directory, _environ(directory, crashes))
    with kept(peer, directory, command, environ) as keeper:
        lines = 1 if command == SHELL_CHILD else 2
        lives = Lives(directory / "begun", lines, keeper, peer.period)
        return _sample([lives.crash() for _ in range(crashes)])


def _environ(directory: Path, crashes: int, *, model: bool = False) -> dict[str, str]:
    queue = directory / "queues" / "input"
    # Each life begins two, and those that are begun by one that is killed come back at the end.
    for number in range(2 * crashes + 8):
        pipelines.put(queue, f"doc{number}")
    loaded = {"RESTART_MODEL": str(MODEL), "RESTART_LOAD": str(LOAD)} if model else {}
    (directory / "begun").touch()
    return {"RESTART_BEGUN": str(directory / "begun"), **loaded}


def _sample(crashed: list[tuple[int, int]], **facts: list[float]) -> Sample:
    times = [(began_at - killed_at) / 1e9 for killed_at, began_at in crashed]
    return Sample(1e9 * median(times), {"times": times, **facts})


def _cells(results: Results, name: str) -> list[str]:
    if name not in results:
        return ["never" if results.failures[name] == ENDED else "failed", "-", "-", "-"]
    cells = _times([seconds for times in results.facts(name, "times") for seconds in times])
    if name == ANEW or ANEW not in results:
        return [*cells, "-"]
    return [*cells, f"{median(results.ratios(name, ANEW)):.2f}"]


def _times(seconds: list[float]) -> list[str]:
    return [f"{1000 * one:.0f}" for one in (median(seconds), min(seconds), max(seconds))]
