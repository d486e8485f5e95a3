"""How `status` and `top` look. Pure."""

from collections.abc import Iterator, Sequence

from queuedriver.cli.render import Column, Paint, escape_name, table
from queuedriver.units import format_duration, format_size
from watchdogd.cli.seen import AMISS, Result, SeenDriver, SeenStage, View
from watchdogd.cli.words import Typed, standing_line, words_of

_STAGE_COLUMNS = (
    Column("STAGE"),
    Column("STATE"),
    Column("WAITING", right=True),
    Column("WORKING", right=True),
    Column("FAILED", right=True),
    Column("DISCARDED", right=True),
    Column("LATER", right=True),
    Column("DRIVERS", right=True),
    Column("RATE", right=True),
    Column("TIME", right=True),
    Column("MEMORY", right=True),
    Column("WORK", right=True),
    Column("WAIT", right=True),
    Column("BLOCK", right=True),
    Column("OVERHEAD", right=True),
    Column("ETA", right=True),
)
_DRIVER_COLUMNS = (
    Column("DRIVER"),
    Column("HOST"),
    Column("STATE"),
    Column("SINCE", right=True),
    Column("AT HAND", elastic=True),
    Column("DONE", right=True),
    Column("FAILED", right=True),
    Column("DISCARDED", right=True),
    Column("RESTARTS", right=True),
    Column("MEMORY", right=True),
    Column("WORK", right=True),
    Column("WAIT", right=True),
    Column("BLOCK", right=True),
    Column("OVERHEAD", right=True),
)
# Columns that stay when there is nothing in them.
_ALWAYS = frozenset(
    {"STAGE", "WAITING", "WORKING", "FAILED", "DISCARDED", "DRIVERS", "DRIVER", "STATE"}
)
_LOUD_STATES = frozenset({"paused", "quit", "waiting-fs", "backoff", "blocked", "silent"})
_BAD_STATES = frozenset({"degraded", *AMISS, "lost", "dead"} - _LOUD_STATES)


def lines(view: View, typed: Typed, columns: int | None, paint: Paint) -> Iterator[str]:
    """The whole screen."""
    yield f"{paint.head(escape_name(view.name))}  {escape_name(f'{view.file}, in {view.root}')}"
    for watchdog in view.watchdogs:
        yield escape_name(standing_line(watchdog, view.at))
    for words in words_of(view, typed):
        colour = paint.bad if words.bad else paint.loud
        yield colour(escape_name(words.text))
    yield ""
    yield from _table(_STAGE_COLUMNS, [_stage(one) for one in view.stages], columns, paint)
    yield from (_result(one) for one in view.results)
    shown = [one for one in view.drivers if one.pid or one.document or one.state != "stopped"]
    if shown:
        yield ""
        hosts = {one.host for one in view.drivers} | {one.host for one in view.watchdogs}
        rows = [_driver(one, view.at, several_hosts=len(hosts) > 1) for one in shown]
        yield from _table(_DRIVER_COLUMNS, rows, columns, paint)


def _table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], wide: int | None, paint: Paint
) -> Iterator[str]:
    """Without the columns in which nothing is: lines are long enough."""
    told = [
        index
        for index, column in enumerate(columns)
        if column.title in _ALWAYS or any(row[index] for row in rows)
    ]
    chosen = [tuple(row[index] for index in told) for row in rows]
    drawn = table([columns[index] for index in told], chosen, wide)
    state = [column.title for column in columns].index("STATE")
    yield paint.head(drawn[0])
    for row, line in zip(rows, drawn[1:], strict=True):
        word = row[state]
        colour = paint.bad if word in _BAD_STATES else paint.loud if word in _LOUD_STATES else str
        # The name before it may have the word in it.
        name, gap, rest = line.partition("  ")
        yield name + gap + (rest.replace(word, colour(word), 1) if word else rest)


def _stage(stage: SeenStage) -> tuple[str, ...]:
    return (
        escape_name(stage.name),
        stage.state,
        *(f"{n:,}" for n in (stage.waiting, stage.working, stage.failed, stage.discarded)),
        f"{stage.later:,}" if stage.later else "",
        f"{stage.drivers}/{_wanted(stage)}",
        _rate(stage.rate),
        "" if stage.service is None else format_duration(stage.service),
        format_size(stage.memory) if stage.memory else "",
        *_shares(stage),
        _eta(stage),
    )


def _wanted(stage: SeenStage) -> str:
    """How many drivers it is to have; while no watchdog says, what the file says."""
    if stage.wanted or stage.drivers:
        return str(stage.wanted)
    return str(stage.min) if stage.min == stage.max else f"{stage.min}–{stage.max}"


def _eta(stage: SeenStage) -> str:
    if not stage.waiting:
        return ""
    return "unknown" if stage.eta is None else format_duration(stage.eta)


def _rate(rate: float) -> str:
    if not rate:
        return ""
    # Slow work is counted by the hour, as people would.
    return f"{rate:.1f}/s" if rate >= 0.1 else f"{rate * 3600:.1f}/h"


def _result(result: Result) -> str:
    parts = []
    if result.items or not result.files:
        parts.append(f"{result.items:,} to collect")
    if result.files:
        parts.append(f"{result.files:,} {'file' if result.files == 1 else 'files'}")
    return f"→ {escape_name(result.queue)}  {', '.join(parts)}"


def _driver(driver: SeenDriver, now: float, *, several_hosts: bool) -> tuple[str, ...]:
    at_hand = driver.document
    if driver.why:
        at_hand = f"{at_hand} ({driver.why})" if at_hand else driver.why
    if not driver.kept:
        at_hand = f"{at_hand}; no watchdog keeps it" if at_hand else "no watchdog keeps it"
    return (
        escape_name(driver.name),
        escape_name(driver.host) if several_hosts else "",
        driver.state,
        format_duration(now - driver.since) if driver.since else "",
        escape_name(at_hand),
        f"{driver.documents:,}",
        f"{driver.failed:,}" if driver.failed else "",
        f"{driver.discarded:,}" if driver.discarded else "",
        f"{driver.restarts:,}" if driver.restarts else "",
        format_size(driver.memory) if driver.memory else "",
        *_shares(driver),
    )


def _shares(one: SeenStage | SeenDriver) -> tuple[str, ...]:
    parts = (one.work, one.wait, one.block, one.overhead)
    total = sum(parts)
    return tuple(f"{part / total:.0%}" if total else "" for part in parts)
