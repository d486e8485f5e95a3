"""From a request and what is known to an answer. Pure: no file, no clock, no socket.

Every address is a row of a table; what is not there is not found. A row says what may be asked of
it, how each word of the query is read, and what must be asked of the process that looks: then there
is no answer yet, but a question, and the same request comes again with what that brought.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from hashlib import blake2b
from importlib.resources import files
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from queuedriver.errors import BadArgument, NotFound
from queuedriver.format.records import json_text
from queuedriver.format.units import parse_duration
from watchdogd.operators.batches import Batch
from watchdogd.operators.web import pages, security
from watchdogd.operators.web.page_inputs import Answer, Facts, Question, Site
from watchdogd.operators.web.pages import NotYet, Page, Visit
from watchdogd.operators.web.security import Session

# Of a query and of a form, in characters and in words; a docid may take three for each byte.
_MOST_QUERY = 4096
MOST_BODY = 64 << 10
_MOST_WORDS = 20
_MOST_TEXT = 255
_MOST_DIGITS = 15

_HTML = "text/html; charset=utf-8"
_TEXT = "text/plain; charset=utf-8"
_JSON = "application/json"


class Request(NamedTuple):
    """One request; the names of headers in small letters."""

    method: str
    # As it was sent but for its escapes.
    path: str
    query: str = ""
    headers: Mapping[str, str] = {}
    body: bytes = b""
    # Who sent it, as far as the system says: a user, or an address.
    peer: str = ""
    # What browsers speak at the door it came by.
    scheme: str = "http"


class Response(NamedTuple):
    """An answer; where there is a question, it is to be asked first, and the rest is empty."""

    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    question: Question | None = None
    # A token came that is none of ours.
    wrong_token: bool = False
    # Documents that wait for a yes, with their pipeline.
    pending: tuple[str, Batch] | None = None


class Route(NamedTuple):
    """An address: what it shows, what its words may be, and what it must ask before."""

    page: Callable[[Visit, Any], Page]
    words: Mapping[str, Callable[[str], object]] = {}
    asks: Callable[[Visit], Question | None] | None = None
    # It is shown without that, too, where there is no answer.
    optional: bool = False
    # A form that changes something is sent by POST, and only where there are buttons.
    method: str = "GET"


# Words of a query


def _text(said: str) -> str:
    if len(said) > _MOST_TEXT or "\0" in said:
        raise BadArgument(f"a word has more than {_MOST_TEXT} characters, or a NUL")
    return said


def _time(said: str) -> str:
    """Return how long ago something began, as `2h`; empty: at any time."""
    if said:
        try:
            parse_duration(said)
        except ValueError as error:
            raise BadArgument(str(error)) from None
    return said


def _number(said: str) -> int:
    if not (said.isascii() and said.isdigit() and len(said) <= _MOST_DIGITS):
        raise BadArgument(f"{said[:_MOST_DIGITS]!r} is no number")
    return int(said)


def _drivers(said: str) -> int | None:
    return None if said in ("", "auto") else _number(said)


_OF = {"p": _text}
_ACT = {
    **_OF,
    **dict.fromkeys(("do", "stage", "driver", "host"), _text),
    "number": _drivers,
}
_ASKED = {**_OF, **dict.fromkeys(("stage", "cause", "text", "group"), _text), "since": _time}
_TRIED = {**_ASKED, "docid": _text}
ROUTES: Mapping[str, Route] = {
    "/": Route(pages.overview, _OF),
    "/stage": Route(pages.stage, {**_OF, "name": _text}, pages.stage_question, optional=True),
    "/driver": Route(pages.driver, {**_OF, "name": _text, "host": _text}),
    "/log": Route(
        pages.log,
        {**_OF, "name": _text, "host": _text, "from": _number, "file": _number},
        pages.log_question,
    ),
    "/doc": Route(pages.document, {**_OF, "d": _text}, pages.document_question),
    "/discarded": Route(
        pages.discarded,
        _ASKED,
        lambda visit: visit.question("survey", "stage", "cause", "text", "since"),
    ),
    "/batches": Route(pages.latest_batches, _OF, lambda visit: visit.question("batches")),
    "/batch": Route(pages.batch, {**_OF, "id": _text}, lambda visit: visit.question("batch", "id")),
    "/ask": Route(pages.ask, _ACT, method="POST"),
    "/do": Route(pages.done, _ACT, pages.do_question, method="POST"),
    "/retry": Route(
        pages.ask_retry,
        _TRIED,
        lambda visit: visit.question("prepare", *_TRIED.keys() - _OF.keys(), who=visit.peer),
        method="POST",
    ),
    "/put-back": Route(
        pages.put_back,
        {**_OF, "id": _text, "count": _number},
        pages.put_back_question,
        method="POST",
    ),
    "/stacks": Route(
        pages.stacks,
        {**_OF, "name": _text, "host": _text},
        pages.stacks_question,
        method="POST",
    ),
    "/events": Route(
        pages.events, {**_OF, "since": _time}, lambda visit: visit.question("events", "since")
    ),
    "/states": Route(pages.states, _OF),
    "/metrics": Route(pages.metrics, _OF, lambda visit: visit.question("oldest")),
    "/health": Route(pages.health, _OF),
}
# Where each is for programs, and what it is then.
_FOR_PROGRAMS = {
    f"{path if path != '/' else '/index'}.json": path
    for path, route in ROUTES.items()
    if route.method == "GET"
}
# What every page needs, and nobody must be kept from.
_FILES = {
    "/style.css": "text/css; charset=utf-8",
    "/script.js": "text/javascript; charset=utf-8",
    "/icon.svg": "image/svg+xml",
}
_LOGIN = "/login"


def respond(request: Request, facts: Facts, now: float) -> Response:
    """Return the answer to a request at an instant, in seconds since the epoch."""
    site = facts.site
    if not security.is_called(request.headers.get("host", ""), site):
        return _plain(421, "this page has another name; serve --host NAME lets it be called so")
    if not request.path.startswith(f"{site.prefix}/"):
        return _plain(404, "nothing is here: the address that serve printed has more to it")
    path = request.path.removeprefix(site.prefix)
    allowed = _methods(path)
    if not allowed:
        return _plain(404, "there is no such page")
    if request.method not in allowed:
        return _plain(405, "this cannot be done here", ("Allow", ", ".join(allowed)))
    if path in _FILES:
        return _file(path, request)
    if path == _LOGIN:
        return _enter(request, facts, now)
    return _for_members(path, request, facts, now)


def looks_of(request: Request, site: Site, served: Iterable[str]) -> list[str]:
    """Return the pipelines that the answer shows: nothing else is looked at, or waited for."""
    path = request.path.removeprefix(site.prefix)
    if not (
        security.is_called(request.headers.get("host", ""), site)
        and request.path.startswith(f"{site.prefix}/")
        and _FOR_PROGRAMS.get(path, path) in ROUTES
        and request.method in _methods(path)
        and security.session_of(request.headers, site.keys).role
    ):
        return []
    with suppress(BadArgument):
        if named := dict(_pairs(request.query)).get("p"):
            return [name for name in served if name == named]
    return list(served)


def _methods(path: str) -> tuple[str, ...]:
    """Return what may be done at an address; nothing where there is none."""
    if path == _LOGIN:
        return ("POST",)
    if path in _FILES:
        return ("GET", "HEAD")
    route = ROUTES.get(_FOR_PROGRAMS.get(path, path))
    if route is None:
        return ()
    return ("GET", "HEAD") if route.method == "GET" else (route.method,)


def _for_members(path: str, request: Request, facts: Facts, now: float) -> Response:
    """Answer who has shown a token."""
    session = security.session_of(request.headers, facts.site.keys)
    if "authorization" in request.headers and security.is_shut(facts.wrong_at, now):
        return _shut()
    if not session.role:
        return _stranger(path, request, facts)
    name = _FOR_PROGRAMS.get(path, path)
    route = ROUTES[name]
    form: dict[str, str] = {}
    if route.method == "POST":
        form = _form(request.body)
        if refused := _refused(form.pop("form", ""), session, request, facts):
            return refused
    try:
        words = _words([*_pairs(request.query), *form.items()], route)
        accept = request.headers.get("accept", "")
        live = route.method == "GET"
        visit = Visit(facts, session, words, now, name, request.peer, accept, live)
        question = route.asks(visit) if route.asks and facts.answer is None else None
        if question is not None:
            return Response(question=question)
        answer = facts.answer or Answer()
        if answer.error and not route.optional:
            page = pages.message(visit, answer.status, answer.error)
        else:
            page = route.page(visit, answer.value)
    except BadArgument as error:
        page = pages.message(Visit(facts, session, {}, now, name), 400, str(error))
    except NotFound as error:
        page = pages.message(Visit(facts, session, {}, now, name), 404, str(error))
    except NotYet as error:
        live = route.method == "GET"
        page = pages.message(Visit(facts, session, {}, now, name, live=live), 503, str(error))
    return _shown(page, request, as_json=path in _FOR_PROGRAMS)._replace(pending=page.pending)


def _refused(form: str, session: Session, request: Request, facts: Facts) -> Response | None:
    """Return why a form changes nothing; None where it may."""
    if not (facts.site.acts and session.role == "act"):
        return _plain(403, "nothing can be changed here: see serve --allow-actions")
    if not (
        security.is_from_here(request.headers, request.scheme) and security.brings(form, session)
    ):
        return _plain(403, "the form was not sent by this page; open it anew")
    return None


def _pairs(query: str) -> list[tuple[str, str]]:
    """Return the words of a query; BadArgument for one that is too long."""
    if len(query) > _MOST_QUERY:
        raise BadArgument(f"the address has more than {_MOST_QUERY} characters")
    try:
        return parse_qsl(query, errors="surrogateescape", max_num_fields=_MOST_WORDS)
    except ValueError:
        raise BadArgument(f"the address has more than {_MOST_WORDS} words") from None


def _words(pairs: Iterable[tuple[str, str]], route: Route) -> dict[str, object]:
    """Return the value of each word, read as its row says; BadArgument for any other."""
    found: dict[str, object] = {}
    for key, said in pairs:
        if key not in route.words or key in found:
            raise BadArgument(f"{key[:_MOST_DIGITS]!r} is not asked here, or twice")
        found[key] = route.words[key](said)
    return found


# Who comes in


def _stranger(path: str, request: Request, facts: Facts) -> Response:
    wrong = request.headers.get("authorization", "")[:7].lower() == "bearer "
    if path in _FOR_PROGRAMS or request.method == "HEAD" or wrong:
        answer = _plain(401, "a token is needed: Authorization: Bearer TOKEN")
        return answer._replace(wrong_token=wrong)
    return _shown(pages.login(facts.site), request, as_json=False)


def _enter(request: Request, facts: Facts, now: float) -> Response:
    """Open a session for who brings a token, in a form."""
    site = facts.site
    if not security.is_from_here(request.headers, request.scheme):
        return _plain(403, "the form was not sent by this page")
    if security.is_shut(facts.wrong_at, now):
        return _shut()
    role = security.role_of(_form(request.body).get("token", "").strip(), site.keys)
    if not role:
        page = pages.login(site, wrong=True)
        return _shown(page, request, as_json=False)._replace(wrong_token=True)
    cookie = (
        f"{security.COOKIE}={security.cookie(role, site.keys, facts.nonce)}; "
        f"Path={site.prefix}; HttpOnly; SameSite=Strict"
    )
    secure = "; Secure" if request.scheme == "https" else ""
    to = ("Location", f"{site.prefix}/")
    return _plain(303, "welcome", to, ("Set-Cookie", cookie + secure))


def _form(body: bytes) -> dict[str, str]:
    """Return the words of a form; none of one that cannot be read."""
    if len(body) > MOST_BODY:
        return {}
    try:
        return dict(parse_qsl(body.decode("ascii"), max_num_fields=_MOST_WORDS))
    except ValueError:
        return {}


def _shut() -> Response:
    return _plain(429, "too many wrong tokens; try again in a minute", ("Retry-After", "60"))


# What is sent


def _shown(page: Page, request: Request, *, as_json: bool) -> Response:
    """Return a page, or that it is the one that was seen last."""
    if page.to:
        return _plain(303, "done", ("Location", page.to))
    if as_json:
        return _answer(page.status, json_text(page.document).encode(), _JSON, request)
    if page.text is not None:
        text = page.text.encode(errors="replace")
        return _answer(page.status, text, page.kind or _TEXT, request)
    html = pages.rendered(page).encode(errors="replace")
    return _answer(page.status, html, _HTML, request)


def _answer(status: int, body: bytes, kind: str, request: Request) -> Response:
    tag = f'"{blake2b(body, digest_size=12).hexdigest()}"'
    headers = (("Content-Type", kind), ("ETag", tag), *security.HEADERS)
    if status == 200 and request.headers.get("if-none-match") == tag:
        return Response(304, b"", headers)
    return Response(status, b"" if request.method == "HEAD" else body, headers)


def _plain(status: int, words: str, *more: tuple[str, str]) -> Response:
    kind = ("Content-Type", _TEXT)
    return Response(status, f"{words}\n".encode(), (kind, *more, *security.HEADERS))


def _file(path: str, request: Request) -> Response:
    return _answer(200, _read(path[1:]), _FILES[path], request)


def _read(name: str, kept: dict[str, bytes] = {}) -> bytes:  # noqa: B006 - read once
    if name not in kept:
        kept[name] = files(__package__).joinpath(name).read_bytes()
    return kept[name]
