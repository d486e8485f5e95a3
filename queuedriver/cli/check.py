"""`check`: name every broken rule of a queue, and repair what can be repaired."""

import sys
from collections.abc import Iterator, Sequence

from queuedriver.check import check as checking
from queuedriver.check.files import Finding
from queuedriver.cli.arguments import AS_JSON, QUEUE
from queuedriver.cli.render import escape_name, paint_for, write_json
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
        mended, found = checking.repair(opened) if repair else ([], checking.check(opened))
        if as_json:
            told = {"repaired": mended, "findings": found}
            write_json({"queue": opened.path, "clean": not found, **told})
        elif mended or found:
            print(*_lines(mended, found), sep="\n")
    return _BROKEN if found else 0


def _lines(mended: Sequence[Finding], found: Sequence[Finding]) -> Iterator[str]:
    for one in mended:
        yield f"repaired {one.rule}: {escape_name(f'{one.subject}: {one.message}')}"
    broken = paint_for(sys.stdout).bad("broken")
    for one in found:
        repair = f"; --repair {one.repair}" if one.repair else ""
        yield f"{broken} {one.rule}: {escape_name(f'{one.subject}: {one.message}{repair}')}"
    words = [f"{len(mended):,} repaired"] if mended else []
    rules = format_count(len({one.rule for one in found}), "broken rule")
    words.append(f"{format_count(len(found), 'finding')} of {rules}" if found else "ok")
    if mendable := sum(1 for one in found if one.repair):
        words.append(f"--repair knows what to do about {mendable:,}")
    yield "; ".join(words)
