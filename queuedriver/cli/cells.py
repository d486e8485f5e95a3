"""What the tables of queues, drivers and stages have in common. Pure."""

from collections.abc import Collection, Sequence

from queuedriver.cli.render import Column, table
from queuedriver.format.units import format_duration


def numbers(*titles: str) -> tuple[Column, ...]:
    """Return columns that line up at their ends."""
    return tuple(Column(title, right=True) for title in titles)


# What drivers spent their time on; `shares` are the cells.
SHARES = numbers("WORK", "WAIT", "BLOCK", "OVERHEAD")


def shares(work: int, wait: int, block: int, overhead: int) -> tuple[str, ...]:
    """Return each part in percent of all; nothing where there is nothing."""
    parts = (work, wait, block, overhead)
    total = sum(parts)
    return tuple(f"{part / total:.0%}" if total else "" for part in parts)


def rate(documents: float) -> str:
    """Return documents per second; slow work is counted by the hour, as people would."""
    if not documents:
        return ""
    return f"{documents:.1f}/s" if documents >= 0.1 else f"{documents * 3600:.1f}/h"


def eta(waiting: int, seconds: float | None) -> str:
    """Return when what waits will be done."""
    if not waiting:
        return ""
    return "unknown" if seconds is None else format_duration(seconds)


def told(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    columns_wide: int | None,
    always: Collection[str] = (),
) -> list[str]:
    """Return a table without the columns in which nothing is: lines are long enough."""
    kept = [
        index
        for index, column in enumerate(columns)
        if column.title in always or any(row[index] for row in rows)
    ]
    chosen = [[row[index] for index in kept] for row in rows]
    return table([columns[index] for index in kept], chosen, columns_wide)
