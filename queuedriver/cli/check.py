"""`check`: name every broken rule of a queue, and repair what can be repaired."""

import sys
from collections.abc import Iterable

import msgspec

from queuedriver.check import check as checking
from queuedriver.check.files import Finding
from queuedriver.cli.arguments import AS_JSON, QUEUE
from queuedriver.cli.render import escape_name, paint_for, write, write_json
from queuedriver.cli.words import flag
from queuedriver.format.units import format_count
from queuedriver.operating.queue import Queue

_BROKEN = 1


def check(
    queue: str = QUEUE,
    repair: bool = flag("Repair what can be repaired without losing anything."),
    as_json: bool = AS_JSON,
) -> int:
    """Name every broken rule of a queue.

    What dead drivers left, documents without reports and reports without documents, what is
    remembered of documents that are not there any more, items that no driver can move or read.
    Prints nothing when all is well, and exits 1 while a rule is broken. Drivers may run meanwhile:
    only what two looks see is named.

    With --repair: recovers, names, sets aside. Nothing of a document is deleted; what may still be
    wanted is kept in .queuedriver/orphans for 7 days.
    """
    with Queue.open(queue) as opened:
        if repair:
            mended, found = checking.repair(opened)
        else:
            mended, found = [], checking.check(opened)
        if as_json:
            write_json(
                {
                    "queue": opened.path,
                    "clean": not found,
                    "repaired": msgspec.to_builtins(mended),
                    "findings": msgspec.to_builtins(found),
                }
            )
        else:
            _print(mended, found)
    return _BROKEN if found else 0


def _print(mended: list[Finding], found: list[Finding]) -> None:
    paint = paint_for(sys.stdout)
    _print_all("repaired", mended, to_repair=False)
    _print_all(paint.bad("broken"), found)
    if not (mended or found):
        return
    words = [f"{len(mended):,} repaired"] if mended else []
    words.append(f"{format_count(len(found), 'finding')} of {_rules(found)}" if found else "ok")
    mendable = sum(1 for one in found if one.repair)
    if mendable:
        words.append(f"--repair knows what to do about {mendable:,}")
    write("; ".join(words))


def _rules(broken: list[Finding]) -> str:
    return format_count(len({one.rule for one in broken}), "broken rule")


def _print_all(word: str, findings: Iterable[Finding], *, to_repair: bool = True) -> None:
    for one in findings:
        repair = f"; --repair {one.repair}" if one.repair and to_repair else ""
        message = escape_name(one.message + repair)
        write(f"{word} {one.rule}: {escape_name(one.subject)}: {message}")
