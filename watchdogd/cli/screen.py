"""What `status` and `top` show of a pipeline, line by line. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from queuedriver.cli import render
from queuedriver.cli.render import SHARES, Paint, escape_name, shares
from queuedriver.format.units import format_duration, format_rate, format_size
from watchdogd.operators.sentences import loudness, sentences_of, standing_line, wanted_words
from watchdogd.operators.view import Result, SeenDriver, SeenStage, View

if TYPE_CHECKING:
    from watchdogd.operators.causes import Case, Group

# How a stage's rate went lately, in `top`.
TREND = "TREND"
STAGE_COLUMNS = (
    *("STAGE", "STATE", ">WAITING", ">WORKING", ">FAILED", ">DISCARDED", ">LATER", ">DRIVERS"),
    *(">RATE", ">TIME", ">MEMORY", *SHARES, "OUTLOOK", f"~{TREND}"),
)
DRIVER_COLUMNS = (
    *("DRIVER", "HOST", "STATE", ">SINCE", "~AT HAND", ">DONE", ">FAILED", ">DISCARDED"),
    *(">RESTARTS", ">MEMORY", *SHARES),
)
Tone = Literal["title", "plain", "bad", "loud"]
CAUSE_COLUMNS = ("GROUP", "STAGE", ">COUNT", ">FIRST", ">LAST", "~WHY")
CASE_COLUMNS = ("DOCUMENT", ">LAST", "~WHY")
# Others go before a name has less room than this, in characters.
_TELLING = 16
# Columns that stay when there is nothing in them.
_ALWAYS = frozenset(
    {"STAGE", "WAITING", "WORKING", "FAILED", "DISCARDED", "DRIVERS", "DRIVER", "STATE"}
)
# What a narrow terminal does without, or "~" has less of, the least needed first.
_SPARED = (
    *("OVERHEAD", "BLOCK", "WAIT", "WORK", "MEMORY", f"~{TREND}", "TIME", "RESTARTS", "LATER"),
    *("FAILED", "WORKING", TREND, "RATE", "DISCARDED", "DONE", "FIRST", "LAST"),
)


def lines(view: View, columns: int | None, paint: Paint) -> Iterator[str]:
    """Yield all there is to see, without an end: for `status`."""
    yield from (toned(text, tone, paint) for text, tone in head(view))
    yield ""
    rows = [stage_cells(one, view) for one in view.stages]
    yield from table(STAGE_COLUMNS, rows, columns, paint)
    yield from map(result_line, view.results)
    if shown := at_work(view):
        yield ""
        drivers = [driver_cells(one, view, several_hosts=several_hosts(view)) for one in shown]
        yield from table(DRIVER_COLUMNS, drivers, columns, paint)


def head(view: View) -> Iterator[tuple[str, Tone]]:
    """Yield which pipeline it is, how its watchdogs are, and what must be said before numbers."""
    pipeline = view.chosen.pipeline
    where = f"{pipeline.file}, in {pipeline.root}"
    yield escape_name(f"{pipeline.name}  {where}"), "title"
    for host in view.chosen.hosts.seen:
        yield escape_name(standing_line(host, view.at)), "plain"
    for sentence in sentences_of(view):
        yield escape_name(sentence.text), "bad" if sentence.bad else "loud"


def toned(text: str, tone: Tone, paint: Paint) -> str:
    """Return a line in its colour."""
    if tone == "title":
        name, gap, rest = text.partition("  ")
        return paint.head(name) + gap + rest
    return {"bad": paint.bad, "loud": paint.loud}.get(tone, str)(text)


def at_work(view: View) -> list[SeenDriver]:
    """Return the drivers that there is something to say of."""
    return [one for one in view.drivers if one.pid or one.document or one.state != "stopped"]


def several_hosts(view: View) -> bool:
    """Return whether drivers must be told apart by their hosts."""
    hosts = {one.report.host for one in view.chosen.hosts.seen}
    return len(hosts | {one.host for one in view.drivers}) > 1


# Tables


def table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], wide: int | None, paint: Paint
) -> list[str]:
    """Return a table, its titles first, with the words for states in colour, and no more columns
    than fit."""
    kept = _fitting(columns, rows, wide)
    columns = [columns[index] for index in kept]
    rows = [[row[index] for index in kept] for row in rows]
    if wide is not None and f"~{TREND}" in columns:
        rows = _shortened(columns, rows, wide)
    first, *drawn = render.table(columns, rows, wide)
    states = words_of(columns, rows)
    pairs = zip(drawn, states, strict=True)
    return [paint.head(first), *(coloured(line, word, paint) for line, word in pairs)]


def words_of(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the state that each row has a word for; empty where the table has none."""
    at = columns.index("STATE") if "STATE" in columns else None
    return ["" if at is None else row[at] for row in rows]


def _fitting(columns: Sequence[str], rows: Sequence[Sequence[str]], wide: int | None) -> list[int]:
    """Return which columns are shown: those with something in them, without the least needed where
    there is no room for all."""
    titles = [column.lstrip(">~") for column in columns]
    least = []
    for index, column in enumerate(columns):
        needed = max((render.width(row[index]) for row in rows), default=0)
        if column[0] == "~" and titles[index] != TREND:
            needed = min(needed, _TELLING)
        least.append(max(needed, len(titles[index])) if needed or titles[index] in _ALWAYS else 0)
    surplus = (
        0 if wide is None else sum(one + render.GAP for one in least if one) - render.GAP - wide
    )
    for spared in _SPARED:
        if surplus <= 0:
            break
        index = titles.index(spared.lstrip("~")) if spared.lstrip("~") in titles else -1
        if index >= 0 and least[index]:
            # What is after "~" gives way, and is there.
            left = max(len(TREND), least[index] - surplus) if spared[0] == "~" else 0
            surplus -= least[index] - left + (0 if left else render.GAP)
            least[index] = left
    return [index for index, needed in enumerate(least) if needed]


def _shortened(columns: Sequence[str], rows: Sequence[Sequence[str]], wide: int) -> list[list[str]]:
    """Return the rows with as much of each trend, its end, as there is room for."""
    at = columns.index(f"~{TREND}")
    others = (
        max([len(column.lstrip(">~")), *(render.width(row[index]) for row in rows)])
        for index, column in enumerate(columns)
        if index != at
    )
    room = max(wide - sum(others) - render.GAP * (len(columns) - 1), len(TREND))
    return [[*row[:at], row[at][-room:], *row[at + 1 :]] for row in rows]


def coloured(line: str, word: str, paint: Paint) -> str:
    """Return a row with the word for its state in colour."""
    loud = loudness(word)
    colour = paint.bad if loud == "bad" else paint.loud if loud else str
    # The name before it may have the word in it.
    name, gap, rest = line.partition("  ")
    return name + gap + (rest.replace(word, colour(word), 1) if word else rest)


# Cells


def stage_cells(stage: SeenStage, view: View, trend: str = "") -> tuple[str, ...]:
    """Return a stage's row; in `top` with how its rate went."""
    watched = bool(view.chosen.hosts.alive)
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
        trend,
    )


def group_cells(group: "Group", now: float) -> tuple[str, ...]:
    """Return the row of a group of discarded documents, with the newest of them."""
    newest = f"({group.docids[0]})" if group.count == 1 else f"(as {group.docids[0]})"
    names = group.key, escape_name(group.stage), f"{group.count:,}"
    why = f"{group.cause}: {group.message}  {newest}"
    return *names, ago(group.first_at, now), ago(group.last_at, now), escape_name(why)


def case_cells(case: "Case", now: float) -> tuple[str, ...]:
    """Return the row of one discarded document."""
    why = escape_name(f"{case.cause}: {case.message}")
    return escape_name(case.docid), ago(case.discarded_at, now), why


def ago(at: float, now: float) -> str:
    """Return how long ago something was; empty where nobody knows when."""
    return f"{format_duration(now - at)} ago" if at else ""


def _count(number: int) -> str:
    return f"{number:,}" if number else ""


def result_line(result: Result) -> str:
    """Return a line for what is to be collected."""
    return f"→ {escape_name(result.queue)}  {result.words}"


def driver_cells(driver: SeenDriver, view: View, *, several_hosts: bool) -> tuple[str, ...]:
    """Return a driver's row."""
    at_hand = driver.document
    if driver.why:
        at_hand = f"{at_hand} ({driver.why})" if at_hand else driver.why
    if not driver.kept:
        at_hand = f"{at_hand}; no watchdog keeps it" if at_hand else "no watchdog keeps it"
    return (
        escape_name(driver.name),
        escape_name(driver.host) if several_hosts else "",
        escape_name(driver.state),
        format_duration(view.at - driver.since) if driver.since else "",
        escape_name(at_hand),
        f"{driver.documents:,}",
        *map(_count, (driver.failed, driver.discarded, driver.restarts)),
        format_size(driver.memory) if driver.memory else "",
        *shares(driver.work, driver.wait, driver.block, driver.overhead),
    )
