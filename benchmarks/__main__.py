"""python -m benchmarks: measure the chosen workloads in the chosen places, print a table each."""

import argparse
import contextlib
import dataclasses
import os
import signal
import sys
import time
from collections.abc import Callable

from benchmarks import (
    alternatives,
    backlog,
    balance,
    balance_virtual,
    checkout,
    command,
    crowd,
    doors,
    doors_idle,
    doors_tasks,
    doors_turns,
    idle,
    kills,
    loading,
    many,
    measuring,
    nfs,
    overhead,
    page,
    pipeline,
    places,
    preload,
    restart,
    single,
    start,
)
from benchmarks.places import Place
from benchmarks.scale import QUICK, Scale
from benchmarks.table import Table


def _measure_nodes(scale: Scale, where: list[Place]) -> Table:
    # What it simulates with may be missing, and no other workload needs it.
    from benchmarks import nodes

    return nodes.measure(scale, where)


WORKLOADS: dict[str, Callable[[Scale, list[Place]], Table]] = {
    "submit": lambda scale, where: single.measure("submit", scale, where),
    "claim": lambda scale, where: single.measure("claim", scale, where),
    "cycle": lambda scale, where: single.measure("cycle", scale, where),
    "durable": lambda scale, where: single.measure("durable", scale, where),
    "many": many.measure,
    "nfs": nfs.measure,
    "backlog": backlog.measure,
    "idle": idle.measure,
    "command": command.measure,
    "start": start.measure,
    "preload": preload.measure_crashes,
    "sharing": preload.measure_memory,
    "restart": restart.measure,
    "overhead": overhead.measure,
    "crowd": crowd.measure,
    "kills": kills.measure,
    "loading": loading.measure,
    "pipeline": pipeline.measure,
    "balance": balance.measure,
    "balance-virtual": balance_virtual.measure,
    "nodes": _measure_nodes,
    "page": page.measure,
    "alternatives": alternatives.measure,
    "doors": doors.measure,
    "tasks": doors_tasks.measure,
    "turns": doors_turns.measure,
    "idle-workers": doors_idle.measure,
}


# Which can measure another commit beside this one.
BESIDE = (
    *("submit", "claim", "cycle", "durable", "many", "backlog", "command", "start"),
    *("crowd", "kills", "loading", "pipeline", "tasks"),
)


def words() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks/run", description="Measure queuedriver beside C, Python and its peers."
    )
    parser.add_argument(
        "workload",
        nargs="*",
        metavar="WORKLOAD",
        help=f"which to measure (default: all): {', '.join(WORKLOADS)}",
    )
    parser.add_argument("--place", action="append", choices=places.PLACES, help="default: both")
    parser.add_argument("--quick", action="store_true", help="small sizes: does it work at all")
    parser.add_argument("--rounds", type=int, help="interleaved repetitions")
    parser.add_argument("--documents", type=int, help="per sample, one process")
    parser.add_argument(
        "--against",
        metavar="COMMIT",
        help=f"another commit of ours, measured in the same rounds: {', '.join(BESIDE)}",
    )
    parser.add_argument("--rst", action="store_true", help="print reStructuredText")
    chosen = parser.parse_args()
    if unknown := [name for name in chosen.workload if name not in WORKLOADS]:
        parser.error(f"no workload {unknown[0]!r}; there are: {', '.join(WORKLOADS)}")
    asked = chosen.workload or WORKLOADS
    if chosen.against and (alone := [name for name in asked if name not in BESIDE]):
        parser.error(f"--against: {alone[0]} measures this commit alone; name others")
    return chosen


def scale_of(chosen: argparse.Namespace) -> Scale:
    scale = QUICK if chosen.quick else Scale()
    if chosen.against:
        scale = dataclasses.replace(scale, against=checkout.lay_out(chosen.against))
    if chosen.rounds:
        scale = dataclasses.replace(scale, rounds=chosen.rounds, long_rounds=chosen.rounds)
    if chosen.documents:
        scale = dataclasses.replace(scale, documents=chosen.documents)
    return scale


def main() -> None:
    chosen = words()
    try:
        scale = scale_of(chosen)
    except checkout.NoCommit as reason:
        sys.exit(f"benchmarks: --against {chosen.against}: {reason}")
    # A kill must unmount the loop device too.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    print(measuring.machine(), flush=True)
    with contextlib.ExitStack() as stack:
        where = []
        for name in chosen.place or places.PLACES:
            try:
                where.append(stack.enter_context(places.open_place(name)))
            except places.Unavailable as reason:
                print(reason, flush=True)
        if not where:
            sys.exit("benchmarks: nowhere to measure")
        for name in chosen.workload or WORKLOADS:
            began = time.monotonic()
            try:
                table = WORKLOADS[name](scale, where)
            except measuring.Failed as failure:
                sys.exit(f"benchmarks: {name} could not be set up: {failure}")
            spent = time.monotonic() - began
            table.notes.append(f"Took {spent:.0f} s; load average then {os.getloadavg()[0]:.1f}.")
            print(table.rst() if chosen.rst else table.text(), flush=True)


if __name__ == "__main__":
    main()
