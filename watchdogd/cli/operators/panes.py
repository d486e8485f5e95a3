"""Draws the screen of `top`. Pure: what was seen and a state in, lines out.

A screen has lines that stay, the titles of a table, as many of its rows as there is room for, and
the line of keys. No line is wider than the terminal; only rows that are seen are formatted.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from queuedriver.cli.render import Paint, escape_name, shorten
from queuedriver.format.units import format_count, format_duration, format_instant, format_size
from watchdogd.cli import screen
from watchdogd.cli.operators.navigation import ROWS, Place, Row, State, Wish
from watchdogd.operators.causes import Case, Group, Survey
from watchdogd.operators.history import trend
from watchdogd.operators.meanings import MEANINGS
from watchdogd.operators.sentences import again_in, loudness
from watchdogd.operators.view import SeenDriver, SeenStage, View

_DOCUMENT_COLUMNS = ("DOCUMENT", ">LAST", "~WHY")
# In columns: what is narrower has no tables.
_NARROW = 24
# Before each row: whether it is the one that is selected, also where there are no colours.
_SELECTED, _OTHER = "> ", "  "
# The first that there is room for.
_KEYS = ("? keys", "q quit", "Enter in", "Esc back", "s sort", "/ find", "! amiss", "space hold")
HELP = (
    "Up, Down, PgUp, PgDn   another row; of a text, another part",
    "Enter, Esc             into what is selected: stage, driver, document; and back",
    "s, S                   sort by the next column; the other way round",
    "/                      only rows with these words; Enter keeps, Esc drops them",
    "!                      only what is amiss",
    "space                  hold still: numbers go on, rows stay where they are",
    "p, r                   pause the stage, resume it",
    "R                      restart the driver that is selected, or all of the stage",
    "+, -                   one driver more, or fewer, on each host",
    "d, t                   what was discarded, by cause; have a group tried again",
    "k                      of a driver on this host: what it does, by its stacks",
    "q                      end",
    "",
    "What changes something is asked back, and done when you have typed yes.",
)


class Detail(NamedTuple):
    """Facts of a place besides the view."""

    # Of a driver its log, of a document its way; escaped.
    text: tuple[str, ...] = ()
    survey: Survey | None = None


class Seen(NamedTuple):
    """All there is to draw."""

    view: View
    # How the rate of each stage went.
    trends: Mapping[str, Sequence[float | None]] = {}
    detail: Detail = Detail()


# What rows there are


def driver_key(driver: SeenDriver) -> str:
    """Return by what a driver is told from all others."""
    return f"{driver.name}@{driver.host}"


def rows_of(seen: Seen, place: Place) -> list[Row]:
    """Return what may be shown as rows of a place."""
    survey = seen.detail.survey
    match place.kind:
        case "pipeline":
            return [_stage_row(one) for one in seen.view.stages]
        case "stage":
            return [_driver_row(one) for one in _drivers(seen, place)]
        case "driver":
            document = next((one.document for one in _drivers(seen, place)), "")
            return [Row(document, document, amiss=False, sorts={})] if document else []
        case "causes" if survey:
            return [_group_row(one) for one in survey.groups]
        case "documents" if survey:
            return [_case_row(one) for one in survey.of_group(place.name)]
    return []


def _drivers(seen: Seen, place: Place) -> list[SeenDriver]:
    """Return the drivers of a stage, or the one that is looked at."""
    found = [one for one in screen.at_work(seen.view) if one.stage == place.stage]
    return [one for one in found if place.kind != "driver" or driver_key(one) == place.name]


def _stage_row(stage: SeenStage) -> Row:
    amiss = bool(loudness(stage.state))
    sorts: dict[str, float | str] = {
        "amiss": amiss,
        "waiting": stage.waiting or 0,
        "discarded": stage.discarded or 0,
        "rate": stage.rate,
    }
    return Row(stage.name, f"{stage.name} {stage.state}", amiss, sorts)


def _driver_row(driver: SeenDriver) -> Row:
    amiss = bool(loudness(driver.state)) or not driver.kept
    sorts: dict[str, float | str] = {
        "amiss": amiss,
        # The longest at it first.
        "since": -driver.since if driver.since else -1e18,
        "done": driver.documents,
        "failed": driver.failed,
        "memory": driver.memory,
    }
    text = f"{driver_key(driver)} {driver.state} {driver.document} {driver.why}"
    return Row(driver_key(driver), text, amiss, sorts)


def _group_row(group: Group) -> Row:
    text = f"{group.stage} {group.cause} {group.message} {' '.join(group.docids)}"
    sorts: dict[str, float | str] = {"last": group.last_at, "stage": group.stage}
    return Row(group.key, text, amiss=True, sorts=sorts)


def _case_row(case: Case) -> Row:
    text = f"{case.docid} {case.message}"
    return Row(case.docid, text, amiss=True, sorts={"docid": case.docid})


# Lines


def lines(seen: Seen, state: State, size: os.terminal_size, paint: Paint) -> list[str]:
    """Return the screen, from its first line to its last."""
    wide, high = size
    if wide < _NARROW:
        # Titles and questions are longer than that.
        wider = os.terminal_size((_NARROW, high))
        return [shorten(one, wide) for one in lines(seen, state, wider, Paint())]
    if state.help:
        body = [shorten(one, wide) for one in HELP]
    else:
        above = _lines_above(seen, state, size)
        body = [screen.toned(shorten(text, wide), tone, paint) for text, tone in above]
        left = os.terminal_size((wide, high - 1 - len(above)))
        body += (_rows if state.here.kind in ROWS else _text)(seen, state, left, paint)
    body += [""] * (high - 1 - len(body))
    return [*body[: high - 1], _last_line(seen, state, wide, paint)]


def unseen(seen: Seen, state: State, size: os.terminal_size) -> int:
    """Return how many lines of a text there is no room for."""
    room = size.lines - 1 - len(_lines_above(seen, state, size))
    return max(0, len(seen.detail.text) - max(1, room))


def _lines_above(seen: Seen, state: State, size: os.terminal_size) -> list[tuple[str, screen.Tone]]:
    """Return the lines above the rows or the text; two of these have room, whatever is said."""
    return list(_above(seen, state, size.lines))[: max(0, size.lines - 3)]


def _above(seen: Seen, state: State, high: int) -> Iterator[tuple[str, screen.Tone]]:
    """Yield the lines above the rows or the text."""
    view, here = seen.view, state.here
    if here.kind == "pipeline":
        # Some rows are to have room, whatever there is to say.
        most, said = max(3, high // 2), list(screen.head(view))
        yield from said[:most]
        if len(said) > most:
            more = len(said) - most
            yield f"and {more} more; {view.chosen.command('status')} says all", "loud"
        yield "", "plain"
        return
    trail = " > ".join(filter(None, (view.chosen.pipeline.name, here.stage, _title(here))))
    yield escape_name(f"{trail}  {format_instant(view.at)}"), "title"
    for stage in view.stages:
        if stage.name == here.stage and (why := stage.why or MEANINGS.get(stage.state)):
            text = escape_name(f"{stage.name} is {stage.state}: {why}")
            yield text, loudness(stage.state) or "plain"
    if here.kind == "driver":
        for driver in _drivers(seen, here):
            yield from ((escape_name(text), "plain") for text in _facts(driver, view))
    if here.kind == "causes":
        survey = seen.detail.survey
        yield (survey.words if survey is not None else "reading what was discarded"), "plain"
    yield "", "plain"


def _title(here: Place) -> str:
    return {"stage": "drivers", "causes": "discarded, by cause"}.get(here.kind, here.name)


def _facts(driver: SeenDriver, view: View) -> Iterator[str]:
    """Yield what is known of one driver."""
    since = f" for {format_duration(view.at - driver.since)}" if driver.since else ""
    why = driver.why or (MEANINGS.get(driver.state, "") if loudness(driver.state) else "")
    soon = again_in(driver, view.at)
    again = f"; tried again in {soon}" if soon else ""
    yield f"{driver.state}{since}{': ' + why if why else ''}{again}"
    if driver.document:
        yield f"at hand: {driver.document}"
    parts = [f"process {driver.pid}" if driver.pid else "no process"]
    if driver.memory:
        parts.append(format_size(driver.memory))
    parts += [format_count(driver.documents, "document"), f"{driver.failed:,} failed"]
    parts += [f"{driver.discarded:,} discarded", format_count(driver.restarts, "restart")]
    yield ", ".join(parts)
    if not driver.kept:
        yield "no watchdog keeps it"


def _rows(seen: Seen, state: State, size: os.terminal_size, paint: Paint) -> list[str]:
    """Return the titles and as many rows as there is room for, the selected one among them."""
    order, selected = state.here.order, state.here.selected
    wide, room = size.columns - len(_OTHER), max(1, size.lines - 1)
    at = order.index(selected) if selected in order else 0
    first = max(0, min(at - room // 2, len(order) - room))
    shown = order[first : first + room]
    columns, cells = _table(seen, state.here)
    # One look may be newer than the order.
    rows = {key: cells[key]() for key in shown if key in cells}
    drawn = screen.table(columns, list(rows.values()), wide, Paint())
    titles, *plain = [shorten(line, wide) for line in drawn]
    states = screen.words_of(columns, rows.values())
    return [
        paint.head(_OTHER + titles),
        *(
            paint.chosen(_SELECTED + line)
            if key == selected
            else _OTHER + screen.coloured(line, word, paint)
            for key, line, word in zip(rows, plain, states, strict=True)
        ),
    ]


_Cells = Mapping[str, Callable[[], tuple[str, ...]]]


def _table(seen: Seen, place: Place) -> tuple[Sequence[str], _Cells]:
    """Return the columns of a place, and of each row how to come by its cells."""
    view, survey = seen.view, seen.detail.survey
    if place.kind == "pipeline":
        return screen.TREND_COLUMNS, {one.name: _stage_cells(seen, one) for one in view.stages}
    if place.kind == "stage":
        several = screen.several_hosts(view)
        drivers = {driver_key(one): one for one in _drivers(seen, place)}
        return screen.DRIVER_COLUMNS, {
            key: _driver_cells(one, view, several) for key, one in drivers.items()
        }
    if place.kind == "causes":
        groups = survey.groups if survey is not None else ()
        return screen.CAUSE_COLUMNS, {one.key: _group_cells(one, view.at) for one in groups}
    cases = survey.of_group(place.name) if survey is not None else ()
    return _DOCUMENT_COLUMNS, {one.docid: _case_cells(one, view.at) for one in cases}


def _stage_cells(seen: Seen, stage: SeenStage) -> Callable[[], tuple[str, ...]]:
    def cells() -> tuple[str, ...]:
        return (
            *screen.stage_cells(stage, seen.view),
            trend(seen.trends.get(stage.name, ())),
        )

    return cells


def _driver_cells(driver: SeenDriver, view: View, several: bool) -> Callable[[], tuple[str, ...]]:
    return lambda: screen.driver_cells(driver, view, several_hosts=several)


def _group_cells(group: Group, now: float) -> Callable[[], tuple[str, ...]]:
    return lambda: screen.group_cells(group, now)


def _case_cells(case: Case, now: float) -> Callable[[], tuple[str, ...]]:
    def cells() -> tuple[str, ...]:
        return (
            escape_name(case.docid),
            screen.ago(case.discarded_at, now),
            escape_name(case.message),
        )

    return cells


def _text(seen: Seen, state: State, size: os.terminal_size, paint: Paint) -> list[str]:
    """Return as much of a text as there is room for."""
    text, room, offset = seen.detail.text, max(1, size.lines), state.here.offset
    first = offset
    if state.here.kind == "driver":
        first = max(0, len(text) - offset - room)
    return [shorten(one, size.columns) for one in text[first : first + room]]


# The last line


def _last_line(seen: Seen, state: State, wide: int, paint: Paint) -> str:
    if state.asked is not None:
        end = f"? type yes: {state.answer}"
        return paint.loud(shorten(question(state.asked, seen), max(1, wide - len(end))) + end)
    if state.typing is not None:
        return shorten(f"only rows with: {escape_name(state.typing)}", wide)
    if state.said:
        return paint.loud(shorten(escape_name(state.said), wide))
    here = state.here
    told = []
    if here.kind in ROWS:
        at = here.order.index(here.selected) + 1 if here.selected in here.order else 0
        told.append(f"{at}/{len(here.order)}")
    told += [f"by {here.sort}{' reversed' if here.reverse else ''}"] if here.sort else []
    told += ["only what is amiss"] if state.amiss else []
    told += [f"with {escape_name(state.filter)!r}"] if state.filter else []
    told += ["held still"] if state.held else []
    for one in _KEYS:
        if len("  ".join((*told, one))) <= wide:
            told.append(one)
    return paint.head(shorten("  ".join(told), wide))


def scaled_to(seen: Seen, wish: Wish) -> int:
    """Return how many drivers a stage is to have on each host by a wish."""
    stage = next(one for one in seen.view.stages if one.name == wish.stage)
    hosts = max(1, len(seen.view.chosen.hosts.alive))
    now = stage.scaled if stage.scaled is not None else round(stage.wanted / hosts) or stage.max
    return max(0, now + wish.more)


def question(wish: Wish, seen: Seen) -> str:
    """Say in words what is to be done."""
    stage, name = escape_name(wish.stage), escape_name(wish.name)
    match wish.act:
        case "pause":
            return f"pause {stage}: its drivers finish what they have, and claim nothing more"
        case "resume":
            return f"resume {stage}: its drivers claim documents again"
        case "restart":
            what = name or f"all drivers of {stage}, one after the other"
            return f"restart {what}, after the document at hand"
        case "scale":
            return f"keep {format_count(scaled_to(seen, wish), 'driver')} of {stage} on each host"
    members = seen.detail.survey.of_group(wish.name) if seen.detail.survey is not None else ()
    why = escape_name(members[0].message) if members else ""
    return f"have {format_count(len(members), 'document')} tried again that failed by: {why}"
