"""What a page is drawn from, in tests: pipelines on real files, looked at once; and requests."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from queuedriver.format.records import Attempt, Failure, Report, encode_report
from tests.cli.pipelines import driver, make, publish, report
from watchdogd.cli.operators.looking import Looking
from watchdogd.cli.pipeline_argument import choose
from watchdogd.operators.hosts import Chosen
from watchdogd.operators.web import security
from watchdogd.operators.web.page_inputs import Answer, Facts, Keys, Question, Site, Snapshot
from watchdogd.operators.web.respond import Request, Response, respond

KEYS = Keys("r" * 32, "a" * 32)
PREFIX = security.prefix_of(KEYS)
NONCE = "0123456789abcdef"
LOCAL = {"host": "localhost:8000"}
_LOOKING: dict[str, Looking] = {}


def chosen_in(directory: Path, **fields: Any) -> Chosen:
    """A pipeline with a watchdog that lives, and two drivers."""
    file = make(directory)
    drivers = (
        driver("parse-1", state="busy", document="doc.pdf", documents=3, work=900, wait=100),
        driver("parse-2", state="crash-looped", why="exit code 3", pid=0),
    )
    publish(file, report(**{"drivers": drivers, **fields}))
    return choose(str(file))


def facts_of(*chosen: Chosen, acts: bool = False, **site: Any) -> Facts:
    """What is known of pipelines after a look at each."""
    served = {}
    for one in chosen:
        answer = _answer(Question("", "look"), one)
        served[one.pipeline.name] = Snapshot().after(answer)
    return Facts(Site(KEYS, PREFIX, acts=acts, **site), served, NONCE)


def _answer(question: Question, chosen: Chosen) -> Answer:
    """What the process that looks at a pipeline says; it remembers what it listed."""
    looking = _LOOKING.setdefault(chosen.pipeline.root, Looking(lambda: chosen))
    looking._choose = lambda: chosen
    return looking.answer(question)


def at(facts: Facts) -> float:
    """A moment after the latest look."""
    return max((one.seen.view.at for one in facts.pipelines.values() if one.seen), default=0.0) + 1


def member(role: str = "read") -> dict[str, str]:
    """The headers of somebody who has come in."""
    cookie = security.cookie(role, KEYS, NONCE)
    return {**LOCAL, "cookie": f"{security.COOKIE}={cookie}"}


def get(path: str, headers: Mapping[str, str] | None = None, method: str = "GET") -> Request:
    """A request for an address below the prefix."""
    path, _, query = path.partition("?")
    return Request(method, PREFIX + path, query, member() if headers is None else headers)


def post(path: str, words: Mapping[str, str] = {}, role: str = "act", **more: str) -> Request:
    """A form that was sent from a page of ours by somebody who has come in."""
    said = {name.replace("_", "-"): value for name, value in more.items()}
    headers = {**member(role), "origin": f"http://{LOCAL['host']}", **said}
    form = security.session_of(headers, KEYS).form
    path, _, query = path.partition("?")
    body = urlencode({"form": form, **words}).encode()
    return Request("POST", PREFIX + path, query, headers, body, "user 1000 (rose)")


def answered(request: Request, facts: Facts, chosen: Chosen, now: float | None = None) -> Response:
    """The answer, after what had to be asked for it."""
    now = at(facts) if now is None else now
    response = respond(request, facts, now)
    if response.question is None:
        return response
    answer = _answer(response.question, chosen)
    return respond(request, facts._replace(answer=answer), now)


def located(response: Response) -> str:
    """Where an answer leads, below the prefix."""
    assert response.status == 303, response.body
    return dict(response.headers)["Location"].removeprefix(PREFIX)


def with_answer(facts: Facts, value: object = None, error: str = "", status: int = 200) -> Facts:
    return facts._replace(answer=Answer(value, error, status))


def discard(
    chosen: Chosen,
    docid: str,
    message: str,
    queue: str = "values",
    discarded_at: float = 1_700_000_000.0,
    attempts: int = 1,
    **more: str,
) -> None:
    """A document that was discarded, with its report."""
    directory = Path(chosen.pipeline.path(queue)) / "discarded"
    directory.mkdir(exist_ok=True)
    failure = Failure(cause="exception", message=message, **more)  # type: ignore[arg-type]
    attempt = Attempt(
        docid=docid,
        token="t",
        attempt=0,
        driver="d",
        host="h",
        claimed_at=1.0,
        ended_at=2.0,
        counted=True,
        failure=failure,
    )
    said = Report(
        docid=docid,
        queue=queue,
        discarded_at=discarded_at,
        driver="d",
        host="h",
        failure=failure,
        attempts=(attempt,) * attempts,
    )
    (directory / docid).write_text("content")
    (directory / f"{docid}.report.json").write_bytes(encode_report(said))
