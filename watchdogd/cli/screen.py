"""How `status` and `top` look. Pure."""

from collections.abc import Iterator, Sequence

from queuedriver.cli import render
from queuedriver.cli.render import SHARES, Paint, escape_name, shares
from queuedriver.format.units import format_duration, format_rate, format_size
from watchdogd.operators.sentences import loudness, sentences_of, standing_line, wanted_words
from watchdogd.operators.view import Result, SeenDriver, SeenStage, View

_STAGE_COLUMNS = (
    *("STAGE", "STATE", ">WAITING", ">WORKING", ">FAILED", ">DISCARDED", ">LATER", ">DRIVERS"),
    *(">RATE", ">TIME", ">MEMORY", *SHARES, "OUTLOOK"),
)
_DRIVER_COLUMNS = (
    *("DRIVER", "HOST", "STATE", ">SINCE", "~AT HAND", ">DONE", ">FAILED", ">DISCARDED"),
    *(">RESTARTS", ">MEMORY", *SHARES),
)
# Columns that stay when there is nothing in them.
_ALWAYS = frozenset(
    {"STAGE", "WAITING", "WORKING", "FAILED", "DISCARDED", "DRIVERS", "DRIVER", "STATE"}
)
# What a narrow terminal does without, the least needed first.
_SPARED = (
    *("OVERHEAD", "BLOCK", "WAIT", "WORK", "MEMORY", "TIME", "RESTARTS", "LATER", "FAILED"),
    *("RATE", "DISCARDED", "DONE", "WORKING"),
)


def lines(view: View, columns: int | None, paint: Paint) -> Iterator[str]:
    """Yield the whole screen."""
    pipeline, hosts = view.chosen.pipeline, view.chosen.hosts
    where = escape_name(f"{pipeline.file}, in {pipeline.root}")
    yield f"{paint.head(escape_name(pipeline.name))}  {where}"
    for host in hosts.seen:
        yield escape_name(standing_line(host, view.at))
    for sentence in sentences_of(view):
        colour = paint.bad if sentence.bad else paint.loud
        yield colour(escape_name(sentence.text))
    yield ""
    watched = bool(view.chosen.hosts.alive)
    yield from _table(_STAGE_COLUMNS, [_stage(one, watched) for one in view.stages], columns, paint)
    yield from map(_result, view.results)
    shown = [one for one in view.drivers if one.pid or one.document or one.state != "stopped"]
    if shown:
        yield ""
        several = (
            len({*(one.host for one in view.drivers), *(one.report.host for one in hosts.seen)}) > 1
        )
        rows = [_driver(one, view.at, several_hosts=several) for one in shown]
        yield from _table(_DRIVER_COLUMNS, rows, columns, paint)


def _table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], wide: int | None, paint: Paint
) -> Iterator[str]:
    """Yield a table with the words for states in colour, and no more columns than fit."""
    drawn = render.table(columns, rows, wide, _ALWAYS)
    for spared in _SPARED:
        if wide is None or max(map(render.width, drawn)) <= wide:
            break
        kept = [index for index, one in enumerate(columns) if one.lstrip(">~") != spared]
        columns = [columns[index] for index in kept]
        rows = [[row[index] for index in kept] for row in rows]
        drawn = render.table(columns, rows, wide, _ALWAYS)
    state = list(columns).index("STATE")
    yield paint.head(drawn[0])
    for row, line in zip(rows, drawn[1:], strict=True):
        word = row[state]
        loud = loudness(word)
        colour = paint.bad if loud == "bad" else paint.loud if loud else str
        # The name before it may have the word in it.
        name, gap, rest = line.partition("  ")
        yield name + gap + (rest.replace(word, colour(word), 1) if word else rest)


def _stage(stage: SeenStage, watched: bool) -> tuple[str, ...]:
    return (
        escape_name(stage.name),
        escape_name(stage.state),
        *(
            "?" if number is None else f"{number:,}"
            for number in (stage.waiting, stage.working, stage.failed, stage.discarded)
        ),
        _count(stage.later or 0),
        f"{stage.drivers}/{wanted_words(stage, watched)}",
        format_rate(stage.rate),
        "" if stage.service is None else format_duration(stage.service),
        format_size(stage.memory) if stage.memory else "",
        *shares(stage.work, stage.wait, stage.block, stage.overhead),
        stage.outlook.sentence,
    )


def _count(number: int) -> str:
    return f"{number:,}" if number else ""


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
        escape_name(driver.state),
        format_duration(now - driver.since) if driver.since else "",
        escape_name(at_hand),
        f"{driver.documents:,}",
        *map(_count, (driver.failed, driver.discarded, driver.restarts)),
        format_size(driver.memory) if driver.memory else "",
        *shares(driver.work, driver.wait, driver.block, driver.overhead),
    )
