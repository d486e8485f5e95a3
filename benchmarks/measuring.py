"""Samples, taken in rounds: every contender once per round, so that a busy minute hits all alike.

A ratio is taken within a round and the median of the rounds' ratios is reported, with the lowest
and the highest: on a shared machine absolute times drift by more than contenders differ.
"""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.checkout import Checkout
from benchmarks.places import Place

HERE = Path(__file__).parent
ROOT = HERE.parent
STAGECYCLE = HERE / ".build" / "stagecycle"
# One command must not hang the whole run; the slowest honest one takes a minute or two.
TIMEOUT = 900.0


class Failed(Exception):
    """A contender did not work; the message is its last words."""


@dataclass(frozen=True)
class Sample:
    """What one run of one contender told."""

    ns_per_document: float
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Contender:
    """Something to measure. `prepare` is not measured; both get the same new, empty directory."""

    name: str
    measure: Callable[[Path], Sample]
    prepare: Callable[[Path], None] = lambda directory: None
    # Measured at the end of each round, so that the others are close together in time.
    slow: bool = False
    # The tree of queuedriver that it runs; None: it runs none of ours.
    tree: Path | None = None


@dataclass
class Results:
    """Samples per contender, one per round; what failed, with its reason."""

    samples: dict[str, list[Sample]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def median_us(self, name: str) -> float:
        return statistics.median(s.ns_per_document for s in self.samples[name]) / 1000

    def ratios(self, name: str, yardstick: str) -> list[float]:
        pairs = zip(self.samples[name], self.samples[yardstick], strict=True)
        return [ours.ns_per_document / theirs.ns_per_document for ours, theirs in pairs]

    def facts(self, name: str, fact: str) -> list[Any]:
        return [sample.facts[fact] for sample in self.samples[name]]

    def __contains__(self, name: str) -> bool:
        return name in self.samples


def beside(contenders: Sequence[Contender], against: Checkout | None) -> list[Contender]:
    """Add to each contender of ours the one of another commit; return all."""
    if against is None:
        return list(contenders)
    found = []
    for one in contenders:
        found.append(one)
        if one.tree is not None:
            found.append(replace(one, name=against.name_of(one.name), tree=against.tree))
    return found


def interleave(contenders: Iterable[Contender], rounds: int, place: Place) -> Results:
    """Measure each contender once per round, beginning with another one each round."""
    results = Results()
    alive = list(contenders)
    for turn in range(rounds):
        for contender in _order(alive, turn):
            directory = place.directory / "work"
            directory.mkdir()
            try:
                contender.prepare(directory)
                place.settle()
                with running(contender.tree):
                    sample = contender.measure(directory)
                results.samples.setdefault(contender.name, []).append(sample)
            except Failed as failure:
                results.failures[contender.name] = str(failure)
            finally:
                remove(directory)
        for name in results.failures:
            results.samples.pop(name, None)
        alive = [contender for contender in alive if contender.name not in results.failures]
        if not alive:
            break
    return results


def _order(contenders: list[Contender], turn: int) -> list[Contender]:
    start = turn % len(contenders)
    rotated = contenders[start:] + contenders[:start]
    return sorted(rotated, key=lambda contender: contender.slow)


_tree = ROOT


@contextlib.contextmanager
def running(tree: Path | None) -> Iterator[None]:
    """Let what is started meanwhile run the queuedriver of this tree."""
    global _tree  # noqa: PLW0603 - one contender is measured at a time
    before, _tree = _tree, tree or ROOT
    try:
        yield
    finally:
        _tree = before


def environ() -> dict[str, str]:
    """Return the environment in which Python finds the tree that is being measured first."""
    return {**os.environ, "PYTHONPATH": str(_tree)}


def run(*command: str | Path, **options: Any) -> str:
    """The stdout of a command that must succeed."""
    words = [str(word) for word in command]
    options.setdefault("cwd", _tree)
    try:
        done = subprocess.run(
            words,
            capture_output=True,
            check=False,
            text=True,
            env=environ(),
            timeout=TIMEOUT,
            **options,
        )
    except OSError as error:
        raise Failed(f"{words[0]}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise Failed(f"did not end within {TIMEOUT:.0f} s") from None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no words"])[-1]
        raise Failed(f"exit {done.returncode}: {last}")
    return str(done.stdout)


def sample(*command: str | Path) -> Sample:
    """Run a program that answers with one line of JSON, as stagecycle.c does."""
    facts = json.loads(run(*command))
    return Sample(facts["ns_per_document"], facts)


def module(name: str, *words: str | int | Path) -> Sample:
    """Run a module of this package that answers the same way."""
    return sample(sys.executable, "-m", f"benchmarks.{name}", *(str(word) for word in words))


def stagecycle(*words: str | int | Path) -> Sample:
    return sample(STAGECYCLE, *(str(word) for word in words))


def make_queue(directory: Path, items: int = 0, size: int = 1024) -> Path:
    """A queue with so many items, not yet known to any driver."""
    (directory / ".queuedriver" / "incoming").mkdir(parents=True)
    if items:
        stagecycle("fill", directory, items, size)
    return directory


def remove(directory: Path) -> None:
    """With rm: listing a million names here would make this process as large."""
    run("rm", "-rf", directory)


def machine() -> str:
    """What this was measured on, for the head of the report."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        "unknown processor",
    )
    version = ".".join(map(str, sys.version_info[:3]))
    build = "optimised build" if optimised() else "built without --enable-optimizations"
    load = os.getloadavg()[0]
    return (
        f"{os.cpu_count()} × {model}, Linux {os.uname().release}, Python {version} "
        f"({sys.executable}; {build}), load at the start {load:.1f}"
    )


def optimised() -> bool:
    """Return whether this interpreter was built with profile-guided optimisation."""
    return "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
