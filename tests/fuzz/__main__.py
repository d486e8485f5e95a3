"""python -m tests.fuzz TARGET [--minutes N] [--seed N]: look for bytes that break a promise.

With atheris (pip install atheris) it is the coverage of the code that guides the search; without
it, samples are mutated at random, the same for the same seed. Bytes that break a promise are kept
in a file, and `python -m tests.fuzz TARGET --replay FILE` reads them again. TARGET may be `all`:
each in turn, in its share of the time.
"""

import argparse
import importlib
import importlib.util
import random
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from tests.fuzz.promise import Target


def main() -> int:
    given = _arguments()
    found = importlib.util.find_spec("atheris") is not None
    if not found:
        print("atheris is not installed: mutating samples at random", file=sys.stderr)
    guided = found and not (given.plain or given.replay or given.target == "all")
    atheris: Any = importlib.import_module("atheris") if guided else None
    ours = atheris.instrument_imports(include=["queuedriver", "watchdogd"]) if guided else None
    with ours or nullcontext():
        from tests.fuzz.files import clean_up
        from tests.fuzz.targets import TARGETS
    names = list(TARGETS) if given.target == "all" else [given.target]
    if unknown := set(names) - set(TARGETS):
        print(f"no target {unknown.pop()!r}; there are: all, {', '.join(TARGETS)}", file=sys.stderr)
        return 2
    try:
        if given.replay:
            TARGETS[given.target].read(Path(given.replay).read_bytes())
            print("no promise is broken by it")
            return 0
        if guided:
            return _guided(atheris, given.target, TARGETS[given.target], given.minutes)
        minutes = given.minutes / len(names)
        return max(
            _at_random(name, TARGETS[name], minutes, given.seed, given.runs) for name in names
        )
    finally:
        clean_up()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("target", metavar="TARGET")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--runs", type=int, help="end after so many, however long they take")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--replay", metavar="FILE")
    parser.add_argument("--plain", action="store_true", help="at random, even with atheris")
    return parser.parse_args()


def _at_random(name: str, target: Target, minutes: float, seed: int, most: int | None) -> int:
    from tests.fuzz.mutate import mutated

    draw = random.Random(seed)
    began_at = time.monotonic()
    runs, took = 0, 0.0
    while took < minutes * 60 if most is None else runs < most:
        data = mutated(target.samples, draw)
        runs += 1
        try:
            target.read(data)
        except BaseException:
            with tempfile.NamedTemporaryFile(prefix=f"fuzz-{name}-", delete=False) as file:
                file.write(data)
            print(f"run {runs} of seed {seed}: python -m tests.fuzz {name} --replay {file.name}")
            raise
        took = time.monotonic() - began_at
    besides = f"; {target.counted()}" if target.counted else ""
    print(f"{name}: {runs:,} runs, {runs / took:,.0f} a second, no promise broken{besides}")
    return 0


def _guided(atheris: Any, name: str, target: Target, minutes: float) -> int:
    with tempfile.TemporaryDirectory() as corpus:
        for number, sample in enumerate(target.samples):
            (Path(corpus) / str(number)).write_bytes(sample)
        prefix = f"{tempfile.gettempdir()}/fuzz-{name}-"
        told = [f"-max_total_time={round(minutes * 60)}", f"-artifact_prefix={prefix}", corpus]
        atheris.Setup(["fuzz", *told], target.read)
        # Does not return: it leaves with an exit code that says whether anything was found.
        atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
