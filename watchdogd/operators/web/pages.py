"""Makes each page, for people and for programs. Pure.

Whatever a page shows of names, reports and logs is made visible and escaped where it is shown: in
`_visible`, which all that templates print goes through.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import jinja2
import msgspec

from queuedriver.errors import NotFound
from queuedriver.format.event import describe as describe_step
from queuedriver.format.units import (
    format_count,
    format_duration,
    format_instant,
    format_rate,
    format_size,
    visible,
)
from watchdogd.operators import batches, causes
from watchdogd.operators.batches import Batch, Outcome
from watchdogd.operators.causes import Survey
from watchdogd.operators.history import Moment, trend
from watchdogd.operators.log_files import WINDOW, Piece
from watchdogd.operators.meanings import MEANINGS
from watchdogd.operators.route import Route as Way
from watchdogd.operators.sentences import AMISS, again_in, as_json, loudness, wanted_words
from watchdogd.operators.textfile import NOT_INSTALLED
from watchdogd.operators.view import SeenDriver, SeenStage, View
from watchdogd.operators.web.actions import action_of, very_many
from watchdogd.operators.web.graph import Curve, Node, curve, draw
from watchdogd.operators.web.page_inputs import OLD, Facts, Past, Question, Seen, Site, Snapshot
from watchdogd.operators.web.security import Session

# Of a report or a log so much is shown, in characters.
_MOST_SHOWN = 64 << 10
# Seconds after which what a watchdog said is told with its age.
_REPORT_OLD = 30.0
# So many rows are shown of what may be thousands.
_MOST_ROWS = 500
# Of more documents than so many their number is to be typed.
_MANY = 100
_DAY = 86_400.0
# What may be chosen instead of all there is; an address may say another.
_TIMES = ("10min", "1h", "1d", "7d")
# A line that stands at the top would look like a border.
_HEADROOM = 1.2


class Visit(NamedTuple):
    """One request for a page: who asks, the facts, and the words of the address."""

    facts: Facts
    session: Session
    words: Mapping[str, Any]
    now: float
    # The page that was asked for, and by whom.
    path: str
    peer: str = ""
    # What it takes for an answer, as it says.
    accept: str = ""
    # Whether its address shows it again; that of a form does not.
    live: bool = True

    @property
    def name(self) -> str:
        """Return the pipeline that is meant: the first where none is named. NotFound for one that
        is not served."""
        served = self.facts.pipelines
        name: str = self.words.get("p") or next(iter(served))
        if name not in served:
            raise NotFound("no such pipeline is served here")
        return name

    @property
    def snapshot(self) -> Snapshot:
        return self.facts.pipelines[self.name]

    @property
    def seen(self) -> Seen:
        """Return what was seen last; NotYet when that is nothing."""
        found = self.snapshot.seen
        if found is None:
            raise NotYet(self.snapshot.error)
        return found

    @property
    def view(self) -> View:
        """Return the view that numbers are taken from."""
        return self.snapshot.full or self.seen.view

    def question(self, kind: str, *asked: str, **words: object) -> Question:
        """Return what to ask of the process that looks at this pipeline: with words of the address,
        and others."""
        words |= {key: self.words.get(key, "") for key in asked}
        return Question(self.name, kind, tuple(words.items()))


class NotYet(Exception):
    """Nothing has been seen of a pipeline; why, where that is known."""


class Block(str):
    """Text of several lines."""

    __slots__ = ()


class Page(NamedTuple):
    """A page: a template with what it shows, or plain text; and the same for programs."""

    template: str
    context: Mapping[str, Any]
    document: Mapping[str, object]
    status: int = 200
    text: str | None = None
    # The content type of that; empty: plain text.
    kind: str = ""
    # Where to go instead.
    to: str = ""
    # Documents that wait for a yes, with their pipeline.
    pending: tuple[str, Batch] | None = None


# Each page


def overview(visit: Visit, _: object) -> Page:
    """Show a pipeline, or all where there are several and none is named."""
    if len(visit.facts.pipelines) > 1 and "p" not in visit.words:
        return _pipelines(visit)
    view = visit.view
    stages = {one.name: one for one in view.stages}
    drawing = draw([Node(one.name, one.inputs, one.outputs) for one in view.stages])
    amiss = [one for one in view.drivers if one.kept and one.state in AMISS]
    more = {"drawing": drawing, "stages": stages, "amiss": amiss, "watched": _is_watched(visit)}
    more["trends"] = visit.seen.trends
    more["paused"] = visit.seen.view.controls.paused
    results = {one.queue: one for one in view.results}
    return _page(visit, "overview.html", {**more, "results": results}, as_json(visit.seen.view))


def _pipelines(visit: Visit) -> Page:
    snapshots = visit.facts.pipelines
    views = {name: one.seen.view if one.seen else None for name, one in snapshots.items()}
    words = {name: _health(one, visit.now) for name, one in snapshots.items()}
    document = {
        "pipelines": {name: as_json(view) if view else None for name, view in views.items()},
        "health": words,
    }
    return _page(visit, "pipelines.html", {"views": views, "words": words}, document, about=False)


def stage_question(visit: Visit) -> Question:
    """Ask for the past of a stage."""
    return visit.question("history", stage=_stage(visit).name)


def _stage(visit: Visit) -> SeenStage:
    """Return the stage that is meant, looked up among those that there are."""
    name = visit.words.get("name", "")
    for one in visit.view.stages:
        if one.name == name:
            return one
    raise NotFound(f"no stage {name!r} in this pipeline")


def stage(visit: Visit, past: Past | None) -> Page:
    """Show one stage, its drivers, what it did, where that can be read."""
    found = _stage(visit)
    drivers = [one for one in visit.view.drivers if one.stage == found.name]
    document = {"stage": found, "drivers": drivers, "history": past.moments if past else None}
    more = {"stage": found, "drivers": drivers[:_MOST_ROWS], "left_out": drivers[_MOST_ROWS:]}
    more |= {"plots": list(plots(past)) if past else None, "watched": _is_watched(visit)}
    hosts = [one.report.host for one in visit.seen.view.chosen.hosts.seen]
    return _page(visit, "stage.html", {**more, "hosts": hosts}, document)


def driver(visit: Visit, _: object, stacks: str | None = None) -> Page:
    """Show one driver, and its log as it grows."""
    found = _driver(visit)
    more = {"driver": found, "stacks": stacks, "again": again_in(found, visit.view.at)}
    return _page(visit, "driver.html", more, {"driver": found})


def stacks_question(visit: Visit) -> Question:
    """Ask a driver for its stacks."""
    found = _driver(visit)
    return visit.question("stacks", name=found.name, host=found.host)


def stacks(visit: Visit, found: str) -> Page:
    """Show one driver with its stacks."""
    return driver(visit, None, found)


def _driver(visit: Visit) -> SeenDriver:
    """Return the driver that is meant, looked up among those that there are."""
    name, host = visit.words.get("name", ""), visit.words.get("host", "")
    for one in visit.view.drivers:
        if one.name == name and host in ("", one.host):
            return one
    raise NotFound(f"no driver {name!r} on {host or 'any host'}")


def log_question(visit: Visit) -> Question:
    """Ask for a piece of a driver's log."""
    found = _driver(visit)
    start, file = visit.words.get("from"), visit.words.get("file", 0)
    return visit.question("piece", host=found.host, driver=found.name, start=start, inode=file)


def log(visit: Visit, piece: Piece) -> Page:
    """Show a piece of a log, and where the next one begins."""
    found = _driver(visit)
    text = printed(piece.data)
    document = {**piece._asdict(), "data": text, "driver": found.name, "host": found.host}
    before = max(0, piece.start - WINDOW)
    more = {"driver": found, "piece": piece, "text": text, "before": before}
    return _page(visit, "log.html", more, document)


def document_question(visit: Visit) -> Question:
    """Ask for the way of a document."""
    return visit.question("trace", text=visit.words.get("d", ""))


def document(visit: Visit, found: Way) -> Page:
    """Show the way of a document through all stages, with what was said against it."""
    return _page(visit, "doc.html", {"found": found}, found.as_json(visit.name))


def discarded(visit: Visit, found: Survey) -> Page:
    """Show what was discarded, in groups of what failed of one thing; or one group."""
    key = visit.words.get("group", "")
    cases = found.of_group(key) if key else found.cases
    group = next((one for one in found.groups if one.key == key), None)
    words = ("stage", "cause", "text", "since", "group")
    asked = {one: visit.words.get(one, "") for one in words}
    more: dict[str, Any] = {
        "survey": found,
        "groups": found.groups[:_MOST_ROWS],
        "group": group,
        "cases": cases[:_MOST_ROWS],
        "asked": asked,
        "times": _TIMES,
        "trends": causes.trends(found),
    }
    known = sorted({one.cause for one in found.groups})[:_MOST_ROWS]
    more |= {"stages": visit.view.stages, "causes": known}
    document = {"pipeline": visit.name, **found.as_json(), "documents": cases}
    return _page(visit, "discarded.html", {**more, "count": len(cases)}, document)


def latest_batches(visit: Visit, found: list[Batch]) -> Page:
    """Show what was put back, the newest first."""
    return _page(visit, "batches.html", {"batches": found}, batches.as_json(visit.name, found))


def batch(visit: Visit, found: tuple[Batch, Outcome]) -> Page:
    """Show what became of documents that were put back together."""
    one, outcome = found
    document = outcome.as_json(one)
    more = {"batch": one, "outcome": outcome, "fates": outcome.fates[:_MOST_ROWS]}
    return _page(visit, "batch.html", more, document)


# What is asked for


def ask(visit: Visit, _: object) -> Page:
    """Say what would be done, and ask back."""
    action = action_of(visit.view, visit.words)
    words = {key: said for key, said in visit.words.items() if said not in ("", None)}
    if "number" in visit.words and visit.words["number"] is None:
        words["number"] = "auto"
    many = very_many(visit.view, visit.words)
    context = {"what": action.words(visit.words), "words": words, "many": many}
    return _page(visit, "ask.html", context, {})


def do_question(visit: Visit) -> Question:
    """Ask that it be done."""
    action_of(visit.view, visit.words)
    said = {key: value for key, value in visit.words.items() if key not in ("do", "p")}
    return visit.question("act", do=visit.words["do"], words=said, who=visit.peer)


def done(visit: Visit, _: object) -> Page:
    """Lead back to what it was about."""
    words = visit.words
    if words.get("driver"):
        to = ("/driver", {"name": words["driver"], "host": words.get("host")})
    elif words.get("stage"):
        to = ("/stage", {"name": words["stage"]})
    else:
        to = ("/", {})
    return Page("", {}, {}, to=_address(visit, to[0], **to[1]))


def ask_retry(visit: Visit, found: Batch) -> Page:
    """Show which documents would be tried again, and ask back; of many their number, too."""
    page = _page(visit, "retry.html", {"batch": found, "asks": _asks(found), "wrong": False}, {})
    return page._replace(pending=(visit.name, found))


def _asks(batch: Batch) -> bool:
    return len(batch.documents) > _MANY


def put_back_question(visit: Visit) -> Question | None:
    """Ask that the documents that were shown be put back; nothing where their number is wrong."""
    found = _pending(visit)
    if _asks(found) and visit.words.get("count") != len(found.documents):
        return None
    # Whoever says yes did it, not who listed them.
    return visit.question("put_back", batch=msgspec.structs.replace(found, who=visit.peer))


def _pending(visit: Visit) -> Batch:
    found = visit.facts.pending.get((visit.name, visit.words.get("id", "")))
    if found is None:
        raise NotFound("these documents were listed too long ago; list them anew")
    return found


def put_back(visit: Visit, id: str | None) -> Page:
    """Lead to what becomes of them; or ask for their number once more."""
    if id is None:
        found = _pending(visit)
        return _page(visit, "retry.html", {"batch": found, "asks": True, "wrong": True}, {}, 400)
    return Page("", {}, {}, to=_address(visit, "/batch", id=id))


def events(visit: Visit, found: Any) -> Page:
    """Show what happened last, the newest first."""
    more = {"since": visit.words.get("since", ""), "times": _TIMES}
    return _page(visit, "events.html", {"events": found, **more}, {"events": found})


def states(visit: Visit, _: object) -> Page:
    """Say what the word for each state means."""
    return _page(visit, "states.html", {"meanings": MEANINGS}, {"meanings": MEANINGS}, about=False)


def metrics(visit: Visit, oldest: Mapping[str, float]) -> Page:
    """Tell a scraper of a pipeline, on all hosts, as OpenMetrics where it asks for that."""
    try:
        # The library is an extra of its own, and takes a tenth of a second to load.
        from watchdogd.operators.metrics import exposition
    except ImportError:
        raise NotFound(NOT_INSTALLED) from None
    told, kind = exposition(visit.seen.view, oldest, visit.accept)
    text = told.decode()
    return Page("", {}, {"text": text}, text=text, kind=kind)


def health(visit: Visit, _: object) -> Page:
    """Say in a word whether all is well: 200 where a watchdog runs and nothing is stuck."""
    served = {name: _health(one, visit.now) for name, one in visit.facts.pipelines.items()}
    if "p" in visit.words:
        served = {visit.name: served[visit.name]}
    well = all(word == "running" for word in served.values())
    text = "".join(f"{visible(name)}: {word}\n" for name, word in served.items())
    document = {"well": well, "pipelines": served}
    return Page("", {}, document, 200 if well else 503, text)


def _health(snapshot: Snapshot, now: float) -> str:
    if snapshot.seen is None or max(now - snapshot.seen.view.at, snapshot.age) > OLD:
        return f"not seen: {snapshot.error or 'the file system does not answer'}"
    view = snapshot.seen.view
    if view.stuck:
        return f"stuck: {', '.join(map(visible, view.stuck))}"
    alive = view.chosen.hosts.alive
    if view.chosen.hung or (alive and all(one.report.trouble for one in alive)):
        return "the file system does not answer"
    return view.chosen.hosts.state


def message(visit: Visit, status: int, words: str) -> Page:
    """Say why there is no such page."""
    context = {"status": status, "words": words, "title": _TITLES.get(status, "No answer")}
    return _page(visit, "message.html", context, {"error": words}, status, about=False)


_TITLES = {400: "Not understood", 403: "Not allowed", 404: "Not found", 503: "Not now"}


def login(site: Site, *, wrong: bool = False) -> Page:
    """Ask for a token."""
    return Page("login.html", {"site": site, "wrong": wrong}, {})


# What all pages have


def _page(
    visit: Visit,
    template: str,
    context: Mapping[str, Any],
    document: Mapping[str, object],
    status: int = 200,
    *,
    about: bool = True,
) -> Page:
    """Put a page together: around what is its own, what is known of the pipeline it is about."""
    facts = visit.facts
    several = len(facts.pipelines) > 1
    around: dict[str, Any] = {
        "address": partial(_address, visit, about=about),
        "path": visit.path,
        "site": facts.site,
        "form": visit.session.form,
        "acts": facts.site.acts and visit.session.role == "act",
        "several": several,
        "pipelines": list(facts.pipelines),
        "view": None,
        "live": visit.live,
    }
    if about:
        around |= _about(visit)
    return Page(template, {**around, **context}, document, status)


def _address(visit: Visit, path: str, *, about: bool = True, **words: object) -> str:
    """Return the address of a page; what is of one pipeline names it where there are others."""
    given = {key: value for key, value in words.items() if value not in ("", None)}
    if about and len(visit.facts.pipelines) > 1:
        given = {"p": visit.name, **given}
    query = urlencode(given, quote_via=quote, errors="surrogateescape")
    return f"{visit.facts.site.prefix}{path}{'?' if query else ''}{query}"


def _about(visit: Visit) -> dict[str, Any]:
    """Return what every page says of its pipeline."""
    snapshot = visit.snapshot
    if snapshot.seen is None:
        return {"view": None, "bars": [snapshot.error] if snapshot.error else []}
    latest = snapshot.seen.view
    return {
        "view": visit.view,
        "served": visit.name,
        "bars": list(_bars(visit, snapshot, latest)),
        "sentences": snapshot.seen.words,
        "standings": snapshot.seen.standings,
        "state": latest.chosen.hosts.state,
    }


def _bars(visit: Visit, snapshot: Snapshot, latest: View) -> Any:
    """Yield what must be known before any number is believed."""
    at = visit.view.at
    if (age := max(visit.now - at, snapshot.age)) > OLD:
        hung = "since then the file system has not answered"
        words = hung if latest.chosen.hung else "a newer look has not been answered yet"
        yield f"These numbers are {format_duration(age)} old, of {format_instant(at)}: {words}."
    if snapshot.error:
        yield f"The latest look failed: {snapshot.error}"
    if latest.chosen.hosts.state != "running":
        yield {
            "not running": "No watchdog runs: nobody replaces a driver that ends.",
            "unknown": "Whether a watchdog runs cannot be known from here.",
        }[latest.chosen.hosts.state]
    for host in latest.chosen.hosts.alive:
        age = latest.at - host.report.at
        if age > _REPORT_OLD:
            yield f"The report of {host.report.host} is {format_duration(age)} old."


def _is_watched(visit: Visit) -> bool:
    return bool(visit.seen.view.chosen.hosts.alive)


class Plot(NamedTuple):
    """One figure: a day, and the day before in grey behind it."""

    title: str
    now: Curve
    past: Curve
    # In words, how much it was at most.
    top: str


def plots(past: Past) -> Iterator[Plot]:
    """Yield what is drawn of a stage's past; nothing where nobody wrote it down."""
    for title, value, shown in _PLOTS if past.moments else ():
        samples = [(one.at, found) for one in past.moments if (found := value(one)) is not None]
        until, since = past.until, past.until - _DAY
        top = max((found for _, found in samples), default=0.0)
        told = f"at most {shown(top) or 0}" if samples else "nothing so far"
        now = curve(samples, since, until, top=top * _HEADROOM)
        before = curve(samples, since - _DAY, since, top=top * _HEADROOM)
        yield Plot(title, now, before, told)


_PLOTS: tuple[tuple[str, Callable[[Moment], float | None], Callable[[float], str]], ...] = (
    ("waiting", lambda one: one.waiting, lambda top: f"{top:,.0f}"),
    ("done", lambda one: one.done, format_rate),
    ("failed and discarded", lambda one: one.failed + one.discarded, format_rate),
    ("half waited less than", lambda one: one.wait(0.5), format_duration),
    ("nearly all waited less than", lambda one: one.wait(0.95), format_duration),
    ("half took less than", lambda one: one.service(0.5), format_duration),
    ("nearly all took less than", lambda one: one.service(0.95), format_duration),
    ("drivers", lambda one: one.drivers, lambda top: f"{top:,.0f}"),
)


# How it is shown


def printed(data: bytes) -> str:
    """Return what a program printed, as text to be read: colours are left out, of a line that was
    written over only what stood there last is left."""
    import re

    text = re.sub(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))", "", _decoded(data))
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(visible(line.rstrip("\r").rpartition("\r")[2], "\t") for line in lines)


def _decoded(data: bytes) -> str:
    return data.decode(errors="backslashreplace")


def _visible(value: object) -> object:
    """Return what a template prints, made visible; in what has several lines their ends stay."""
    if isinstance(value, Block):
        return visible(value, "\n\t")
    # What the templates made themselves is another kind of text, and escaped already.
    return visible(value) if type(value) is str else value


def _cut(text: str | None) -> Block:
    """Return a long text as far as it is shown, and how much that leaves out."""
    text = text or ""
    if len(text) <= _MOST_SHOWN:
        return Block(text)
    return Block(f"{text[:_MOST_SHOWN]}\n… cut here: {len(text):,} characters in all")


_WORDS = {"": "●", "loud": "◆", "bad": "▲"}
_SHAPES = {"paused": "‖", "done": "✓", "quit": "■", "idle": "○", "unknown": "?"}


def _word(stage: SeenStage) -> str:
    """Return what a stage is called that needs no word of its own."""
    if stage.files is not None and stage.waiting and not stage.state:
        return "waits"
    if stage.waiting is None and not stage.state:
        return "unknown"
    return stage.state or ("done" if stage.done else "at work" if stage.working else "idle")


def _shape(word: str) -> str:
    """Return a sign for a state, which says it without colours."""
    return _SHAPES.get(word) or _WORDS[loudness(word)]


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("watchdogd.operators.web"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "count": format_count,
        "duration": format_duration,
        "instant": format_instant,
        "size": format_size,
        "rate": format_rate,
        "cut": _cut,
        "step": describe_step,
        "shape": _shape,
        "loud": loudness,
    }
    environment.globals |= {
        "word": _word,
        "wanted": wanted_words,
        "trend": trend,
        "meanings": MEANINGS,
    }
    return environment


def rendered(page: Page) -> str:
    """Return a page as HTML."""
    html: str = _environment().get_template(page.template).render(page.context)
    return html
