"""Draws the screen of `top`. Pure: what was seen and a state in, lines out.

A screen has lines that stay, the titles of a table, as many of its rows as there is room for, and
the line of keys. No line is wider than the terminal; only rows that are seen are formatted.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from queuedriver.cli.render import Paint, escape_name, shorten
from queuedriver.format.units import format_count, format_duration, format_instant, format_size
from watchdogd.cli import screen
from watchdogd.cli.operators.navigation import ROWS, Place, Row, State, Wish
from watchdogd.operators.actions import Asked
from watchdogd.operators.causes import Case, Group, Survey
from watchdogd.operators.history import trend
from watchdogd.operators.sentences import MEANINGS, again_in, loudness
from watchdogd.operators.view import SeenDriver, SeenStage, View

_COLUMNS: Mapping[str, Sequence[str]] = {
    "pipeline": screen.STAGE_COLUMNS,
    "stage": screen.DRIVER_COLUMNS,
    "causes": screen.CAUSE_COLUMNS,
    "documents": screen.CASE_COLUMNS,
}
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
    view, survey = seen.view, seen.detail.survey
    match place.kind:
        case "pipeline":
            return [_stage_row(seen, one) for one in view.stages]
        case "stage":
            several = screen.several_hosts(view)
            return [_driver_row(view, one, several) for one in _drivers(seen, place)]
        case "driver":
            return [Row(one.document, "") for one in _drivers(seen, place) if one.document]
        case "causes" if survey:
            return [_group_row(view, one) for one in survey.groups]
        case "documents" if survey:
            return [_case_row(view, one) for one in survey.of_group(place.name)]
    return []


def _drivers(seen: Seen, place: Place) -> list[SeenDriver]:
    """Return the drivers of a stage, or the one that is looked at."""
    found = [one for one in screen.at_work(seen.view) if one.stage == place.stage]
    return [one for one in found if place.kind != "driver" or driver_key(one) == place.name]


def _stage_row(seen: Seen, one: SeenStage) -> Row:
    amiss = bool(loudness(one.state))
    numbers = {"waiting": one.waiting or 0, "discarded": one.discarded or 0, "rate": one.rate}
    told = trend(seen.trends.get(one.name, ()))
    cells = partial(screen.stage_cells, one, seen.view, told)
    return Row(one.name, f"{one.name} {one.state}", amiss, {"amiss": amiss, **numbers}, cells)


def _driver_row(view: View, one: SeenDriver, several_hosts: bool) -> Row:
    amiss, key = bool(loudness(one.state)) or not one.kept, driver_key(one)
    # The longest at it first.
    sorts = {"amiss": amiss, "since": -one.since if one.since else -1e18, "done": one.documents}
    sorts |= {"failed": one.failed, "memory": one.memory}
    text = f"{key} {one.state} {one.document} {one.why}"
    cells = partial(screen.driver_cells, one, view, several_hosts=several_hosts)
    return Row(key, text, amiss, sorts, cells)


def _group_row(view: View, one: Group) -> Row:
    text = f"{one.stage} {one.cause} {one.message} {' '.join(one.docids)}"
    sorts: dict[str, float | str] = {"last": one.last_at, "stage": one.stage}
    return Row(one.key, text, sorts=sorts, cells=partial(screen.group_cells, one, view.at))


def _case_row(view: View, one: Case) -> Row:
    text, cells = f"{one.docid} {one.message}", partial(screen.case_cells, one, view.at)
    return Row(one.docid, text, sorts={"docid": one.docid}, cells=cells)


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
    columns = _COLUMNS[state.here.kind]
    # One look may be newer than the order.
    rows = {row.key: row for row in rows_of(seen, state.here)}
    there = [key for key in shown if key in rows]
    cells = [rows[key].cells() for key in there]
    titles, *plain = [shorten(line, wide) for line in screen.table(columns, cells, wide, Paint())]
    states = screen.words_of(columns, cells)
    return [
        paint.head(_OTHER + titles),
        *(
            paint.chosen(_SELECTED + line)
            if key == selected
            else _OTHER + screen.coloured(line, word, paint)
            for key, line, word in zip(there, plain, states, strict=True)
        ),
    ]


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


def asked_of(wish: Wish, seen: Seen) -> Asked:
    """Return what is to be done by a wish; a stage has as many drivers on each host."""
    name, _, host = wish.name.rpartition("@")
    asked = Asked(wish.act, wish.stage, name, host)  # type: ignore[arg-type]
    hosts = max(1, len(seen.view.chosen.hosts.alive))
    # The file may have it no more by now.
    for stage in seen.view.stages:
        if wish.act == "scale" and stage.name == wish.stage:
            usual = round(stage.wanted / hosts) or stage.max
            now = usual if stage.scaled is None else stage.scaled
            asked = asked._replace(number=max(0, now + wish.more))
    return asked


def question(wish: Wish, seen: Seen) -> str:
    """Say in words what is to be done."""
    if wish.act != "retry":
        return escape_name(asked_of(wish, seen).words)
    members = seen.detail.survey.of_group(wish.name) if seen.detail.survey is not None else ()
    why = escape_name(members[0].message) if members else ""
    return f"have {format_count(len(members), 'document')} tried again that failed by: {why}"
