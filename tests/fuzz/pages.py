"""What the page in the browser is asked: requests of anybody, in four parts with NULs between."""

import atexit
import functools
import tempfile
from pathlib import Path

from tests.fuzz.promise import Target, check
from tests.page_inputs import (
    KEYS,
    LOCAL,
    PREFIX,
    answered,
    chosen_in,
    discard,
    facts_of,
    member,
    post,
)
from watchdogd.operators.hosts import Chosen
from watchdogd.operators.web.page_inputs import Facts
from watchdogd.operators.web.respond import ROUTES, Request, respond
from watchdogd.operators.web.security import HEADERS

_PARTS = 4
_STATUSES = {200, 303, 304, 400, 401, 403, 404, 405, 421, 429, 503}
_SAMPLES = (
    *(
        f"GET\0{path}\0name=parse&host=rose&d=doc.pdf&from=0&id=20310501-140000-abcd\0"
        for path in ROUTES
    ),
    "GET\0/stage\0name=parse\0",
    "GET\0/driver.json\0name=parse-1\0",
    "GET\0/doc\0d=bad.pdf\0",
    "GET\0/discarded\0stage=parse&cause=exception&text=line\0",
    "POST\0/login\0\0token=" + KEYS.read,
    "POST\0/do\0do=pause&stage=parse\0",
    "POST\0/ask\0do=scale&stage=parse\0number=4&host=rose",
    "POST\0/retry\0stage=parse\0",
)


@functools.cache
def _scene() -> tuple[Chosen, Facts]:
    directory = tempfile.TemporaryDirectory()
    atexit.register(directory.cleanup)
    chosen = chosen_in(Path(directory.name))
    discard(chosen, "bad.pdf", "ValueError: line 3", traceback="Traceback")
    return chosen, facts_of(chosen, acts=True)


def _requests(data: bytes) -> list[Request]:
    """The same request of a stranger, of somebody who has come in, and as a form."""
    parts = data.decode("latin-1").split("\0", _PARTS - 1)
    method, path, query, body = (*parts, *[""] * _PARTS)[:_PARTS]
    form = post("/", {"x": body}).body.replace(b"x=", b"", 1)
    return [
        Request(method, path, query, {"host": path, "cookie": body}, data),
        Request(method, PREFIX + path, query, {**LOCAL, "cookie": body, "origin": query}, data),
        Request(method, PREFIX + path, query, {**member(), "accept": body}, data),
        Request(method, PREFIX + path, query, {**member("act"), "if-none-match": body}, form),
        Request("POST", PREFIX + path, query, {**member("act")}, form + b"&" + body.encode()),
    ]


def _read(data: bytes) -> None:
    chosen, facts = _scene()
    for request in _requests(data):
        answer = answered(request, facts, chosen)
        check(answer.status in _STATUSES, answer.status)
        check(set(HEADERS) <= set(answer.headers), request)
        if "cookie" not in request.headers or request.headers["cookie"] == "":
            check(b"bad.pdf" not in answer.body, request)
        # Who may only look, and who sends no form, changes nothing.
        first = respond(request, facts, 0.0)
        if request.method != "POST" and first.question is not None:
            check(first.question.kind not in ("act", "prepare", "put_back", "stacks"), request)
        check(first.question is None or "cookie" in request.headers, request)


PAGES = {"page": Target(_read, tuple(one.encode() for one in _SAMPLES))}
