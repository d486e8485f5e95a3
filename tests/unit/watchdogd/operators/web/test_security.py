"""Whom the page answers: each rule of docs/security.rst, in both directions."""

import re
from pathlib import Path

import pytest

pytest.importorskip("jinja2")

from tests.page_inputs import (
    KEYS,
    LOCAL,
    NONCE,
    PREFIX,
    answered,
    at,
    chosen_in,
    facts_of,
    get,
    member,
)
from watchdogd.operators.hosts import Chosen
from watchdogd.operators.web import respond as respond_module
from watchdogd.operators.web import security
from watchdogd.operators.web.page_inputs import Facts
from watchdogd.operators.web.respond import Request, Response, respond

ADDRESSES = sorted(respond_module.ROUTES)


@pytest.fixture
def chosen(tmp_path: Path) -> Chosen:
    return chosen_in(tmp_path)


@pytest.fixture
def facts(chosen: Chosen) -> Facts:
    return facts_of(chosen)


def header(response: Response, name: str) -> str:
    return dict(response.headers).get(name, "")


def login(token: str, facts: Facts, scheme: str = "http", **headers: str) -> Response:
    request = Request(
        "POST",
        f"{PREFIX}/login",
        headers={**LOCAL, **headers},
        body=f"token={token}".encode(),
        scheme=scheme,
    )
    return respond(request, facts, at(facts))


# Host


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:8000", "LOCALHOST:1", "127.0.0.1:80", "127.1.2.3", "[::1]:80"],
)
def test_page_is_answered_under_the_names_of_this_host(host: str, facts: Facts) -> None:
    assert respond(get("/", {**member(), "host": host}), facts, at(facts)).status == 200


@pytest.mark.parametrize(
    "host",
    [
        *("", "evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.nip.io"),
        *("localhost:8000, evil.example", "localhost:8000:1", "localhost@evil.example", "0.0.0.0"),
        *("[::1].evil.example", "192.168.0.7:8000", "localhost\n", "localhost:123456"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "DELETE"])
def test_no_other_name_is_answered_whatever_is_asked(host: str, method: str, facts: Facts) -> None:
    for path in (*ADDRESSES, "/login", "/style.css", "/nothing"):
        request = get(path, {**member(), "host": host}, method)
        assert respond(request, facts, at(facts)).status == 421


def test_name_that_was_given_is_one_of_ours_and_nothing_like_it(chosen: Chosen) -> None:
    facts = facts_of(chosen, hosts=("rose.example",))
    for host, status in (
        ("rose.example", 200),
        ("rose.example.evil", 421),
        ("Rose.example:1", 421),
    ):
        assert respond(get("/", {**member(), "host": host}), facts, at(facts)).status == status


def test_name_is_ours_in_capitals_or_not(chosen: Chosen) -> None:
    facts = facts_of(chosen, hosts=("Rose.Example",))
    # Browsers send small letters, whatever somebody typed.
    for host in ("rose.example", "ROSE.example"):
        assert respond(get("/", {**member(), "host": host}), facts, at(facts)).status == 200


# Addresses


def test_every_address_is_a_row_of_the_table_and_its_methods_are_all_there_are(
    facts: Facts, chosen: Chosen
) -> None:
    for path in ADDRESSES:
        allowed = respond_module.ROUTES[path].method
        for method in (
            "GET",
            "HEAD",
            "POST",
            "PUT",
            "DELETE",
            "OPTIONS",
            "TRACE",
            "CONNECT",
            "get",
        ):
            answer = answered(get(path, method=method), facts, chosen)
            right = (allowed, "HEAD") if allowed == "GET" else (allowed,)
            assert (answer.status == 405) == (method not in right), (path, method)


@pytest.mark.parametrize(
    "path",
    [
        *("/../etc/passwd", "//", "/stage/", "/Stage", "/stage%00", "/style.css/..", "/.json"),
        *("/log/../log", "/templates/base.html", "/respond.py", "/style.css.json", "/login.json"),
    ],
)
def test_nothing_but_the_table_is_found(path: str, facts: Facts) -> None:
    assert respond(get(path), facts, at(facts)).status == 404


@pytest.mark.parametrize("path", ["/", "", "/health", "/login", f"{PREFIX}x/", PREFIX.upper()])
def test_nothing_is_outside_of_the_prefix(path: str, facts: Facts) -> None:
    answer = respond(Request("GET", path, headers=member()), facts, at(facts))
    assert answer.status == 404
    assert PREFIX.encode() not in answer.body


@pytest.mark.parametrize(
    "query",
    [
        *("nothing=1", "name=parse&name=parse", "name=" + "x" * 300, "name=%00", "name"),
        *("&".join(f"a{number}=1" for number in range(100)), "name=" + "%41" * 2000),
    ],
)
def test_word_that_is_not_asked_or_too_long_is_not_understood(query: str, facts: Facts) -> None:
    assert respond(get(f"/stage?{query}"), facts, at(facts)).status in (400, 404)


@pytest.mark.parametrize("number", ["-1", "1e9", "9" * 400, "0x10", "²", "1 "])
def test_no_number_but_of_digits_and_of_a_few(number: str, facts: Facts, chosen: Chosen) -> None:
    request = get(f"/log?name=parse-1&host=rose&from={number}")
    assert answered(request, facts, chosen).status == 400


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", "parse-1/..", ".", "%2e%2e", "parse", "nobody-1"]
)
def test_log_is_of_a_driver_that_there_is_and_no_path(
    name: str, facts: Facts, chosen: Chosen
) -> None:
    assert answered(get(f"/log?name={name}&host=rose"), facts, chosen).status == 404


# Tokens


@pytest.mark.parametrize("path", ADDRESSES)
def test_nobody_sees_anything_without_a_token_on_loopback_either(path: str, facts: Facts) -> None:
    answer = respond(get(path, LOCAL), facts, at(facts))
    assert answer.question is None
    assert b"serif" not in answer.body
    assert b"Token" in answer.body or answer.status in (401, 405)
    if respond_module.ROUTES[path].method == "GET":
        assert respond(get(f"{path.rstrip('/') or '/index'}.json", LOCAL), facts, 0).status == 401


def test_token_opens_a_session_whose_cookie_goes_nowhere_else(facts: Facts) -> None:
    answer = login(KEYS.read, facts)
    assert (answer.status, header(answer, "Location")) == (303, f"{PREFIX}/")
    name, *attributes = header(answer, "Set-Cookie").split("; ")
    assert set(attributes) == {f"Path={PREFIX}", "HttpOnly", "SameSite=Strict"}
    assert KEYS.read not in name
    page = respond(get("/", {**LOCAL, "cookie": name}), facts, at(facts))
    assert b"serif" in page.body


def test_program_shows_its_token_itself(facts: Facts) -> None:
    headers = {**LOCAL, "authorization": f"Bearer {KEYS.read}"}
    assert respond(get("/index.json", headers), facts, at(facts)).status == 200
    headers["authorization"] = "Bearer wrong"
    answer = respond(get("/index.json", headers), facts, at(facts))
    assert (answer.status, answer.wrong_token) == (401, True)


@pytest.mark.parametrize(
    "cookie",
    [
        *("", "read", "read..", f"read.{NONCE}.", f"read.{NONCE}.{'0' * 32}", "act.x.y"),
        security.cookie("read", KEYS, NONCE).replace("read", "act"),
        security.cookie("read", KEYS, NONCE).replace(NONCE, NONCE[::-1]),
        security.cookie("read", KEYS._replace(read="x" * 32), NONCE),
        "\xff" * 50,
    ],
)
def test_session_cannot_be_made_up(cookie: str, facts: Facts) -> None:
    headers = {**LOCAL, "cookie": f"{security.COOKIE}={cookie}"}
    assert b"serif" not in respond(get("/", headers), facts, at(facts)).body


@pytest.mark.parametrize(
    "others",
    [
        *(
            'a={"x": 1}; {}',
            "path=/; {}",
            "a b; {}; expires",
            'x=a"b c; {}',
            "\xfc=1;{}",
            "{}; x[0]",
        ),
        # Somebody else's of the same name.
        *("queuedriver=act.0.0; {}", "{}; queuedriver=act.0.0"),
    ],
)
def test_cookies_of_whatever_else_is_open_on_this_host_throw_nobody_out(
    others: str, facts: Facts
) -> None:
    cookie = others.replace("{}", member()["cookie"])
    assert respond(get("/index.json", {**LOCAL, "cookie": cookie}), facts, at(facts)).status == 200


def test_ten_wrong_tokens_in_a_minute_shut_the_door_and_nobody_is_thrown_out(
    facts: Facts,
) -> None:
    now = at(facts)
    assert login("wrong", facts).wrong_token
    nine, ten = facts._replace(wrong_at=(now,) * 9), facts._replace(wrong_at=(now,) * 10)
    assert login(KEYS.read, nine).status == 303
    assert login(KEYS.read, ten).status == 429
    bearer = {**LOCAL, "authorization": f"Bearer {KEYS.read}"}
    assert respond(get("/", bearer), ten, now).status == 429
    assert respond(get("/"), ten, now).status == 200
    later = ten._replace(wrong_at=(now - 61,) * 10)
    assert login(KEYS.read, later).status == 303


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 303),
        ({"origin": "http://localhost:8000", "sec-fetch-site": "same-origin"}, 303),
        ({"origin": "null"}, 403),
        ({"origin": "http://localhost:9000"}, 403),
        ({"origin": "https://localhost:8000"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
    ],
)
def test_form_of_another_page_is_refused(
    headers: dict[str, str], status: int, facts: Facts
) -> None:
    assert login(KEYS.read, facts, **headers).status == status


def test_behind_a_proxy_forms_come_from_where_browsers_are(chosen: Chosen) -> None:
    facts = facts_of(chosen, hosts=("page.example",))
    there = {"host": "page.example", "scheme": "https"}
    assert login(KEYS.read, facts, **there, origin="https://page.example").status == 303
    assert login(KEYS.read, facts, **there, origin="http://page.example").status == 403
    assert "; Secure" in header(login(KEYS.read, facts, **there), "Set-Cookie")
    # The same server's socket is reached without the proxy.
    answer = login(KEYS.read, facts, origin="http://localhost:8000")
    assert answer.status == 303
    assert "; Secure" not in header(answer, "Set-Cookie")


def test_clock_that_was_set_back_shuts_nobody_out(facts: Facts) -> None:
    later = facts._replace(wrong_at=(at(facts) + 3600,) * 10)
    assert login(KEYS.read, later).status == 303


# Every answer


def test_every_answer_tells_browsers_to_run_nothing_but_our_script(
    facts: Facts, chosen: Chosen
) -> None:
    requests = [
        *(get(path) for path in (*ADDRESSES, "/style.css", "/nothing")),
        get("/", LOCAL),
        get("/", {"host": "evil.example"}),
        get("/", method="PUT"),
        Request("POST", f"{PREFIX}/login", headers=LOCAL),
        Request("GET", "/"),
    ]
    for request in requests:
        answer = answered(request, facts, chosen)
        headers = dict(answer.headers)
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; ")
        assert "unsafe" not in policy
        assert "require-trusted-types-for 'script'" in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "same-origin"
        assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert headers["Cache-Control"] == "no-store"


TEMPLATES = Path(respond_module.__file__).parent / "templates"


@pytest.mark.parametrize("template", sorted(TEMPLATES.iterdir()), ids=lambda path: path.name)
def test_no_template_lets_anything_through_unescaped_or_has_script_or_style_in_it(
    template: Path,
) -> None:
    text = template.read_text()
    assert not re.search(r"\|\s*safe|Markup|autoescape|style=|\son[a-z]+=|javascript:", text)
    assert not re.search(
        r"<script(?! src=\"\{\{ site\.prefix \}\}/script\.js\" defer></script>)", text
    )
    # What begins an attribute ends it: a value without quotes would end at a space.
    assert not re.search(r"=\{\{", re.sub(r"\{%.*?%\}", "", text))


def test_own_script_is_small_and_makes_no_text_into_elements() -> None:
    script = (TEMPLATES.parent / "script.js").read_text()
    assert len(script) <= 10_000
    for sink in (
        "innerHTML",
        "outerHTML",
        "insertAdjacent",
        "document.write",
        "eval(",
        "DOMParser",
    ):
        assert sink not in script
