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
_STATUSES = {BadArgument: 400, NotFound: 404, NotYet: 503}


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


class Route(NamedTuple):
    """An address: what it shows, the words that it takes beside `p`, what it must ask before."""

    page: Callable[[Visit, Any], Page]
    words: str = ""
    asks: Callable[[Visit], Question] | None = None
    # A form that changes something is sent by POST, and only where there are buttons.
    method: str = "GET"
    # It is shown without that, too, where there is no answer.
    optional: bool = False


# Words of a query


def _text(said: str) -> str:
    if len(said) > _MOST_TEXT or "\0" in said:
        raise BadArgument(f"a word has more than {_MOST_TEXT} characters, or a NUL")
    return said


def _time(said: str) -> str:
    """Return how long ago something began, as `2h`; empty: at any time."""
    try:
        parse_duration(said or "0s")
    except ValueError as error:
        raise BadArgument(str(error)) from None
    return said


def _number(said: str) -> int:
    if not (said.isascii() and said.isdigit() and len(said) <= _MOST_DIGITS):
        raise BadArgument(f"{said[:_MOST_DIGITS]!r} is no number")
    return int(said)


def _drivers(said: str) -> int | None:
    return None if said in ("", "auto") else _number(said)


# How each is read; all others are text.
_READ: Mapping[str, Callable[[str], object]] = {
    **{"since": _time, "number": _drivers},
    **dict.fromkeys(("from", "file", "count"), _number),
}
_DRIVER, _ACTION = "name host", "do stage driver host number"
_CHOICE = "stage cause text group since"


def _ask(kind: str, **of: str) -> Callable[[Visit], Question]:
    """Return what asks with the words of the address, and with such facts of the visit."""
    return lambda visit: visit.question(
        kind, **{word: getattr(visit, name) for word, name in of.items()}
    )


ROUTES: Mapping[str, Route] = {
    "/": Route(pages.overview),
    "/stage": Route(pages.stage, "name", _ask("history", stage="stage"), optional=True),
    "/driver": Route(pages.driver, f"{_DRIVER} text"),
    "/log": Route(pages.log, f"{_DRIVER} from file text", _ask("piece", driver="driver")),
    "/doc": Route(pages.document, "d", _ask("trace")),
    "/discarded": Route(pages.discarded, _CHOICE, _ask("survey")),
    "/batches": Route(pages.latest_batches, "", _ask("batches")),
    "/batch": Route(pages.batch, "id", _ask("batch")),
    "/events": Route(pages.events, "", _ask("events")),
    "/states": Route(pages.states),
    "/metrics": Route(pages.metrics, "", _ask("metrics", accept="accept")),
    "/health": Route(pages.health),
    "/ask": Route(pages.ask, _ACTION, None, "POST"),
    "/do": Route(pages.done, _ACTION, _ask("act", asked="asked", who="peer"), "POST"),
    "/retry": Route(pages.ask_retry, f"{_CHOICE} docid", _ask("prepare", who="peer"), "POST"),
    "/put-back": Route(pages.put_back, "id count", _ask("put_back", who="peer"), "POST"),
    "/stacks": Route(pages.driver, _DRIVER, _ask("stacks", driver="driver"), "POST"),
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
    path, refused = _path_of(request, facts.site)
    if refused is not None:
        return refused
    if path in _FILES:
        return _answer(200, _read(path[1:]), _FILES[path], request)
    if path == _LOGIN:
        return _enter(request, facts, now)
    return _for_members(path, request, facts, now)


def _path_of(request: Request, site: Site) -> tuple[str, Response | None]:
    """Return the address that is meant; and why nothing is done there, where it is none of ours."""
    path = request.path.removeprefix(site.prefix)
    allowed = _methods(path)
    if not security.is_called(request.headers.get("host", ""), site):
        words = "this page has another name; serve --host NAME lets it be called so"
        return path, _plain(421, words)
    if not request.path.startswith(f"{site.prefix}/"):
        return path, _plain(404, "nothing is here: the address that serve printed has more to it")
    if not allowed:
        return path, _plain(404, "there is no such page")
    if request.method not in allowed:
        return path, _plain(405, "this cannot be done here", ("Allow", ", ".join(allowed)))
    return path, None


def looks_of(request: Request, site: Site, served: Iterable[str]) -> list[str]:
    """Return the pipelines that the answer shows: nothing else is looked at, or waited for."""
    path, refused = _path_of(request, site)
    is_page = _FOR_PROGRAMS.get(path, path) in ROUTES
    if refused or not (is_page and security.session_of(request.headers, site.keys).role):
        return []
    with suppress(BadArgument):
        if named := dict(_pairs(request.query)).get("p"):
            return [name for name in served if name == named]
    return list(served)


def _methods(path: str) -> tuple[str, ...]:
    """Return what may be done at an address; nothing where there is none."""
    route = ROUTES.get(_FOR_PROGRAMS.get(path, path))
    if path == _LOGIN or (route is not None and route.method == "POST"):
        return ("POST",)
    return ("GET", "HEAD") if path in _FILES or route is not None else ()


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
    live, accept = route.method == "GET", request.headers.get("accept", "")
    visit = Visit(facts, session, {}, now, name, request.peer, accept, live)
    try:
        words = _words([*_pairs(request.query), *form.items()], route)
        visit = visit._replace(words=words)
        if route.asks is not None and facts.answer is None:
            return Response(question=route.asks(visit))
        answer = facts.answer or Answer()
        if answer.error and not route.optional:
            page = pages.message(visit, answer.status, answer.error)
        else:
            page = route.page(visit, answer.value)
    except (BadArgument, NotFound, NotYet) as error:
        status = next(_STATUSES[kind] for kind in _STATUSES if isinstance(error, kind))
        page = pages.message(visit._replace(words={}), status, str(error))
    return _shown(page, request, as_json=path in _FOR_PROGRAMS)


def _refused(form: str, session: Session, request: Request, facts: Facts) -> Response | None:
    """Return why a form changes nothing; None where it may."""
    if not (facts.site.acts and session.role == "act"):
        return _plain(403, "nothing can be changed here: see serve --allow-actions")
    from_here = security.is_from_here(request.headers, request.scheme)
    if from_here and security.brings(form, session):
        return None
    return _plain(403, "the form was not sent by this page; open it anew")


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
        if key not in ("p", *route.words.split()) or key in found:
            raise BadArgument(f"{key[:_MOST_DIGITS]!r} is not asked here, or twice")
        found[key] = _READ.get(key, _text)(said)
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
        body, kind = json_text(page.document), "application/json"
    elif page.text is not None:
        body, kind = page.text, page.kind or _TEXT
    else:
        body, kind = pages.rendered(page), _HTML
    return _answer(page.status, body.encode(errors="replace"), kind, request)


def _answer(status: int, body: bytes, kind: str, request: Request) -> Response:
    tag = f'"{blake2b(body, digest_size=12).hexdigest()}"'
    headers = (("Content-Type", kind), ("ETag", tag), *security.HEADERS)
    if status == 200 and request.headers.get("if-none-match") == tag:
        return Response(304, b"", headers)
    return Response(status, b"" if request.method == "HEAD" else body, headers)


def _plain(status: int, words: str, *more: tuple[str, str]) -> Response:
    kind = ("Content-Type", _TEXT)
    return Response(status, f"{words}\n".encode(), (kind, *more, *security.HEADERS))


def _read(name: str, kept: dict[str, bytes] = {}) -> bytes:  # noqa: B006 - read once
    if name not in kept:
        kept[name] = files(__package__).joinpath(name).read_bytes()
    return kept[name]
