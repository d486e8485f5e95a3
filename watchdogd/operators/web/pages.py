"""Makes each page, for people and for programs. Pure.

Whatever a page shows of names, reports and logs is made visible and escaped where it is shown: in
`_visible`, which all that templates print goes through.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import jinja2

from queuedriver.errors import BadArgument, NotFound
from queuedriver.format import units
from queuedriver.format.records import describe_event as describe_step
from queuedriver.format.units import format_duration, format_instant, format_rate, visible
from watchdogd.operators import actions, batches, causes, sentences
from watchdogd.operators.actions import Asked
from watchdogd.operators.batches import Batch, Outcome
from watchdogd.operators.causes import Survey
from watchdogd.operators.history import Moment, trend
from watchdogd.operators.log_files import Piece, printed
from watchdogd.operators.route import Route as Way
from watchdogd.operators.sentences import AMISS, MEANINGS, as_json, loudness
from watchdogd.operators.view import SeenDriver, SeenStage, View
from watchdogd.operators.web.graph import Node, curve, draw
from watchdogd.operators.web.page_inputs import (
    OLD,
    Facts,
    Listed,
    Past,
    Question,
    Seen,
    Site,
    Snapshot,
)
from watchdogd.operators.web.security import Session

# Of a report or a log so much is shown, in characters.
_MOST_SHOWN = 64 << 10
# Seconds after which what a watchdog said is told with its age.
_REPORT_OLD = 30.0
# So many rows are shown of what may be thousands.
_MOST_ROWS = 500
_DAY = 86_400.0
# What may be chosen instead of all there is; an address may say another.
_TIMES = ("10min", "1h", "1d", "7d")
# A line that stands at the top would look like a border.
_HEADROOM = 1.2


# What an action may be asked of: words that it would not heed would have it do more than they say.
_TAKES = {
    **{"pause": "stage", "resume": "stage"},
    **{"scale": "stage host number", "restart": "stage driver host"},
}


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

    @property
    def stage(self) -> SeenStage:
        """Return the stage that is meant, looked up among those that there are."""
        name = self.words.get("name", "")
        for one in self.view.stages:
            if one.name == name:
                return one
        raise NotFound(f"no stage {name!r} in this pipeline")

    @property
    def driver(self) -> SeenDriver:
        """Return the driver that is meant, looked up among those that there are."""
        name, host = self.words.get("name", ""), self.words.get("host", "")
        for one in self.view.drivers:
            if one.name == name and host in ("", one.host):
                return one
        raise NotFound(f"no driver {name!r} on {host or 'any host'}")

    @property
    def asked(self) -> Asked:
        """Return what is to be done, with what the words name looked up among what there is;
        NotFound for what is not, BadArgument for what has nothing to do with it."""
        words = {key: said for key, said in self.words.items() if said not in ("", None)}
        words.pop("p", None)
        do = words.get("do", "")
        if do not in _TAKES:
            raise NotFound("there is no such action")
        if wrong := words.keys() - {"do", *_TAKES[do].split()}:
            raise BadArgument(f"{do} takes no {', '.join(sorted(wrong))}")
        if do == "scale" and "stage" not in words:
            raise NotFound("which stage is to be scaled?")
        known = {
            "stage": [one.name for one in self.view.stages],
            "driver": [one.name for one in self.view.drivers],
            "host": [one.report.host for one in self.view.chosen.hosts.seen],
        }
        for kind, names in known.items():
            if kind in words and words[kind] not in names:
                raise NotFound(f"no {kind} {words[kind]!r} in this pipeline")
        return Asked(**words)

    def question(self, kind: str, **words: object) -> Question:
        """Return what to ask of the process that looks at this pipeline: with the words of the
        address, and others."""
        said = {key: value for key, value in self.words.items() if key != "p"}
        return Question(self.name, kind, {**said, **words})


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


# Each page


def overview(visit: Visit, _: object) -> Page:
    """Show a pipeline, or all where there are several and none is named."""
    if len(visit.facts.pipelines) > 1 and "p" not in visit.words:
        return _pipelines(visit)
    view, latest = visit.view, visit.seen.view
    return _page(
        visit,
        "overview.html",
        as_json(latest),
        drawing=draw([Node(one.name, one.inputs, one.outputs) for one in view.stages]),
        stages={one.name: one for one in view.stages},
        amiss=[one for one in view.drivers if one.kept and one.state in AMISS],
        trends=visit.seen.trends,
        latest=latest,
        results={one.queue: one for one in view.results},
        sentences=list(sentences.sentences_of(latest)),
        standings=[sentences.standing_line(host, latest.at) for host in latest.chosen.hosts.seen],
    )


def _pipelines(visit: Visit) -> Page:
    snapshots = visit.facts.pipelines.items()
    views = {name: one.seen.view if one.seen else None for name, one in snapshots}
    words = {name: _health(one, visit.now) for name, one in snapshots}
    told = {name: as_json(view) if view else None for name, view in views.items()}
    document = {"pipelines": told, "health": words}
    return _page(visit, "pipelines.html", document, about=False, views=views, words=words)


def stage(visit: Visit, past: Past | None) -> Page:
    """Show one stage, its drivers, what it did, where that can be read."""
    found = visit.stage
    drivers = [one for one in visit.view.drivers if one.stage == found.name]
    document = {"stage": found, "drivers": drivers, "history": past.moments if past else None}
    return _page(
        visit,
        "stage.html",
        document,
        stage=found,
        drivers=drivers,
        plots=list(plots(past)) if past else None,
        hosts=[one.report.host for one in visit.seen.view.chosen.hosts.seen],
    )


def driver(visit: Visit, stacks: str | None) -> Page:
    """Show one driver, and its log as it grows; or its stacks, if it was asked for them."""
    found = visit.driver
    more = {"again": sentences.again_in(found, visit.view.at), "asked": visit.words.get("text", "")}
    return _page(visit, "driver.html", {"driver": found}, driver=found, stacks=stacks, **more)


def log(visit: Visit, piece: Piece) -> Page:
    """Show a piece of a log, or its lines that have a text, and where the next one begins."""
    found, asked = visit.driver, visit.words.get("text", "")
    piece = piece.with_text(asked, ended=not found.pid)
    text, known = printed(piece.data), {"driver": found.name, "host": found.host}
    document = {**piece._asdict(), "data": text, **known, "ended": not found.pid}
    return _page(visit, "log.html", document, driver=found, piece=piece, text=text, asked=asked)


def document(visit: Visit, found: Way) -> Page:
    """Show the way of a document through all stages, with what was said against it."""
    return _page(visit, "doc.html", found.as_json(visit.name), found=found)


def discarded(visit: Visit, found: Survey) -> Page:
    """Show what was discarded, in groups of what failed of one thing; or one group."""
    words = ("stage", "cause", "text", "since", "group")
    return _page(
        visit,
        "discarded.html",
        found.as_json(visit.name),
        survey=found,
        group=found.groups[0] if found.groups and visit.words.get("group") else None,
        groups=found.groups[:_MOST_ROWS],
        cases=found.cases[:_MOST_ROWS],
        count=len(found.cases),
        asked={one: visit.words.get(one, "") for one in words},
        times=_TIMES,
        trends=causes.trends(found),
        stages=visit.view.stages,
        causes=sorted({one.cause for one in found.groups})[:_MOST_ROWS],
    )


def latest_batches(visit: Visit, found: list[Batch]) -> Page:
    """Show what was put back, the newest first."""
    return _page(visit, "batches.html", batches.as_json(visit.name, found), batches=found)


def batch(visit: Visit, found: tuple[Batch, Outcome]) -> Page:
    """Show what became of documents that were put back together."""
    one, outcome = found
    fates = outcome.fates[:_MOST_ROWS]
    return _page(visit, "batch.html", outcome.as_json(one), batch=one, outcome=outcome, fates=fates)


# What is asked for


def ask(visit: Visit, _: object) -> Page:
    """Say what would be done, and ask back; very many drivers are asked back as such."""
    asked, chosen = visit.asked, visit.view.chosen
    alive = chosen.hosts.meant(asked.host or None).alive
    many = actions.many_drivers(chosen, [asked]) if alive else ""
    words = {key: said for key, said in asked._asdict().items() if said is not None}
    return _page(visit, "ask.html", {}, what=asked.words, words=words, many=many)


def done(visit: Visit, _: object) -> Page:
    """Lead back to what it was about."""
    words = visit.words
    path = next((one for one in ("driver", "stage") if words.get(one)), "")
    host = words.get("host") if path == "driver" else None
    return Page("", {}, {}, to=_address(visit, f"/{path}", name=words.get(path), host=host))


def ask_retry(visit: Visit, found: Listed) -> Page:
    """Show which documents would be tried again, and ask back; of many their number, too."""
    return _page(visit, "retry.html", {}, listed=found, wrong=False)


def put_back(visit: Visit, found: Listed | None) -> Page:
    """Lead to what becomes of them; or ask for their number once more."""
    if found is not None:
        return _page(visit, "retry.html", {}, 400, listed=found, wrong=True)
    return Page("", {}, {}, to=_address(visit, "/batch", id=visit.words.get("id")))


def events(visit: Visit, found: Any) -> Page:
    """Show what happened last, the newest first."""
    return _page(visit, "events.html", {"events": found}, events=found)


def states(visit: Visit, _: object) -> Page:
    """Say what the word for each state means."""
    return _page(visit, "states.html", {"meanings": MEANINGS}, about=False)


def metrics(visit: Visit, told: tuple[bytes, str]) -> Page:
    """Tell a scraper of a pipeline, on all hosts, as OpenMetrics where it asks for that."""
    text = told[0].decode()
    return Page("", {}, {"text": text}, text=text, kind=told[1])


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
    title, said = _TITLES.get(status, "No answer"), {"error": words}
    return _page(visit, "message.html", said, status, about=False, words=words, title=title)


_TITLES = {400: "Not understood", 403: "Not allowed", 404: "Not found", 503: "Not now"}


def login(site: Site, *, wrong: bool = False) -> Page:
    """Ask for a token."""
    return Page("login.html", {"site": site, "wrong": wrong}, {})


# What all pages have


def _page(
    visit: Visit,
    template: str,
    document: Mapping[str, object],
    status: int = 200,
    *,
    about: bool = True,
    **context: object,
) -> Page:
    """Put a page together: around what is its own, what is known of the pipeline it is about."""
    facts, seen = visit.facts, visit.snapshot.seen if about else None
    around = {
        "address": partial(_address, visit, about=about),
        "path": visit.path,
        "site": facts.site,
        "form": visit.session.form,
        "acts": facts.site.acts and visit.session.role == "act",
        "several": len(facts.pipelines) > 1,
        "live": visit.live,
        "view": visit.view if seen else None,
        "served": visit.name if about else None,
        "bars": list(_bars(visit)) if about else [],
        "watched": bool(seen and seen.view.chosen.hosts.alive),
    }
    return Page(template, {**around, **context}, document, status)


def _address(visit: Visit, path: str, *, about: bool = True, **words: object) -> str:
    """Return the address of a page; what is of one pipeline names it where there are others."""
    given = {key: value for key, value in words.items() if value not in ("", None)}
    if about and len(visit.facts.pipelines) > 1:
        given = {"p": visit.name, **given}
    query = urlencode(given, quote_via=quote, errors="surrogateescape")
    return f"{visit.facts.site.prefix}{path}{'?' if query else ''}{query}"


def _bars(visit: Visit) -> Iterator[str]:
    """Yield what must be known before any number is believed."""
    snapshot = visit.snapshot
    if snapshot.seen is None:
        yield from filter(None, [snapshot.error])
        return
    latest, at = snapshot.seen.view, visit.view.at
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


class Plot(NamedTuple):
    """One figure: a day, and the day before in grey behind it."""

    title: str
    # Points of polygons.
    now: str
    past: str
    # In words, how much it was at most.
    top: str


def plots(past: Past) -> Iterator[Plot]:
    """Yield what is drawn of a stage's past; nothing where nobody wrote it down."""
    for title, value, shown in _PLOTS if past.moments else ():
        samples = [(one.at, found) for one in past.moments if (found := value(one)) is not None]
        until, since = past.until, past.until - _DAY
        top = max((found for _, found in samples), default=0.0)
        told = f"at most {shown(top) or 0}" if samples else "nothing so far"
        now = curve(samples, since, until, top * _HEADROOM)
        before = curve(samples, since - _DAY, since, top * _HEADROOM)
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
        "count": units.format_count,
        "duration": format_duration,
        "instant": format_instant,
        "size": units.format_size,
        "rate": format_rate,
        "cut": _cut,
        "step": describe_step,
        "shape": _shape,
        "loud": loudness,
    }
    environment.globals |= {
        "word": _word,
        "wanted": sentences.wanted_words,
        "trend": trend,
        "meanings": MEANINGS,
        "most_rows": _MOST_ROWS,
    }
    return environment


def rendered(page: Page) -> str:
    """Return a page as HTML."""
    html: str = _environment().get_template(page.template).render(page.context)
    return html
