"""What may be asked by a button, by whom, and what is written down of it."""

import html
import json
import re
import time
from pathlib import Path

import pytest

pytest.importorskip("jinja2")

from msgspec.structs import replace

from queuedriver.format.names import second_docid
from tests.page_inputs import (
    answered,
    at,
    chosen_in,
    discard,
    facts_of,
    get,
    located,
    member,
    post,
    with_answer,
)
from watchdogd.operators.hosts import Chosen
from watchdogd.operators.log_files import recent_events
from watchdogd.operators.web.page_inputs import Facts
from watchdogd.operators.web.respond import ROUTES, Response, respond

FORMS = sorted(path for path, route in ROUTES.items() if route.method == "POST")


@pytest.fixture
def chosen(tmp_path: Path) -> Chosen:
    return chosen_in(tmp_path)


@pytest.fixture
def facts(chosen: Chosen) -> Facts:
    return facts_of(chosen, acts=True)


def control(chosen: Chosen) -> set[str]:
    return {path.name for path in Path(chosen.pipeline.root, ".watchdogd").iterdir()}


def asked(chosen: Chosen) -> list[tuple[str, str]]:
    """Who asked for what, the newest first."""
    return [(one.who, one.message) for one in recent_events(chosen, 100) if one.event == "asked"]


# Who may


@pytest.mark.parametrize("path", FORMS)
def test_nothing_is_asked_for_whoever_may_not_or_whose_form_is_not_ours(
    path: str, chosen: Chosen, facts: Facts
) -> None:
    may = f"{path}?do=pause&stage=parse" if path in ("/ask", "/do") else path
    refused = [
        # Where there are no buttons; who may look alone; a form of another session, or of nobody.
        respond(post(may), facts_of(chosen), at(facts)),
        respond(post(may, role="read"), facts, at(facts)),
        respond(post(may, {"form": "0" * 32}), facts, at(facts)),
        respond(post(may)._replace(body=b""), facts, at(facts)),
        respond(post(may, origin="http://evil.example"), facts, at(facts)),
        respond(post(may, origin="null"), facts, at(facts)),
        respond(post(may, sec_fetch_site="cross-site"), facts, at(facts)),
        # A program's token opens no forms.
        respond(post(may, cookie="", authorization="Bearer " + "a" * 32), facts, at(facts)),
    ]
    assert [one.status for one in refused] == [403] * len(refused)
    assert not any(one.question for one in refused)
    assert respond(get(may), facts, at(facts)).status == 405


def test_buttons_are_there_for_whoever_may_and_nobody_else(chosen: Chosen, facts: Facts) -> None:
    for path in ("/", "/stage?name=parse", "/driver?name=parse-1"):
        may = answered(get(path, member("act")), facts, chosen)
        look = answered(get(path), facts, chosen)
        none = answered(get(path, member("act")), facts_of(chosen), chosen)
        assert b'method="post"' in may.body
        assert b'method="post"' not in look.body + none.body


# What is done


def test_pause_and_resume_make_and_remove_the_file_and_are_written_down(
    chosen: Chosen, facts: Facts
) -> None:
    queue = Path(chosen.pipeline.path("values"))
    came = answered(post("/do?do=pause&stage=parse"), facts, chosen)
    assert located(came) == "/stage?name=parse"
    assert (queue / "PAUSE").exists()
    answered(post("/do?do=resume&stage=parse"), facts, chosen)
    assert not (queue / "PAUSE").exists()
    answered(post("/do?do=pause"), facts, chosen)
    assert "PAUSE" in control(chosen)
    who = "user 1000 (rose)"
    assert asked(chosen) == [
        (who, "pause the whole pipeline"),
        (who, "resume parse"),
        (who, "pause parse"),
    ]


def test_scale_and_restart_are_asked_back_and_done_on_the_host_that_was_named(
    chosen: Chosen, facts: Facts
) -> None:
    form = {"number": "4", "host": "rose"}
    page = answered(post("/ask?do=scale&stage=parse", form), facts, chosen)
    assert b"Really scale parse to 4 drivers on rose?" in page.body
    assert not {name for name in control(chosen) if name.startswith("scale")}
    answered(post("/do?do=scale&stage=parse&number=4&host=rose"), facts, chosen)
    scale = Path(chosen.pipeline.root, ".watchdogd", "scale-parse@rose")
    assert scale.read_text() == "4\n"
    answered(post("/do?do=scale&stage=parse&number=auto&host=rose"), facts, chosen)
    assert scale.read_text() == "auto\n"
    answered(post("/do?do=restart&driver=parse-2&host=rose"), facts, chosen)
    assert [name for name in control(chosen) if name.startswith("restart-parse-2@rose-")]
    assert asked(chosen)[0][1] == "restart parse-2 on rose"


@pytest.mark.parametrize(
    "words",
    [
        *("do=pause&stage=nothing", "do=restart&driver=../../x", "do=scale&stage=parse&host=evil"),
        *("do=remove&stage=parse", "do=__class__", "do=scale&stage=parse&number=-1", "do="),
        *("do=scale&stage=parse&number=99999", "do=scale"),
        # Nothing wider than it says is done: a driver is not paused, but all would be.
        *("do=pause&driver=parse-1", "do=pause&stage=parse&host=rose", "do=resume&driver=parse-1"),
        "do=scale&stage=parse&driver=parse-1&number=1",
    ],
)
def test_nothing_is_done_to_what_there_is_not(words: str, chosen: Chosen, facts: Facts) -> None:
    before = control(chosen)
    assert answered(post(f"/do?{words}"), facts, chosen).status in (400, 404, 503)
    assert control(chosen) - {"events"} == before - {"events"}


@pytest.mark.parametrize("do", ["pause", "resume", "scale", "restart"])
def test_nothing_is_asked_of_a_stage_that_is_gone_since_the_page_was_drawn(
    do: str, chosen: Chosen, facts: Facts
) -> None:
    before = control(chosen)
    left = tuple(one for one in chosen.pipeline.stages if one.name != "parse")
    now = chosen._replace(pipeline=replace(chosen.pipeline, stages=left))
    number = {"number": "3"} if do == "scale" else {}
    came = answered(post(f"/do?do={do}&stage=parse", number), facts, now)
    assert came.status == 404
    assert b"no stage &#39;parse&#39; in this pipeline" in came.body
    assert control(chosen) == before


# Trying again


def shown(answer: Response) -> str:
    """The batch of a page that asks back."""
    (id,) = re.findall(r"/put-back\?(?:p=\w+&amp;)?id=([0-9a-f-]+)", answer.body.decode())
    return str(id)


def test_group_is_tried_again_as_it_was_shown_and_what_comes_later_is_not(
    chosen: Chosen, facts: Facts
) -> None:
    for number in range(3):
        discard(chosen, f"bad-{number}", f"ValueError: line {number}")
    discard(chosen, "other", "KeyError: no such thing")
    page = json.loads(answered(get("/discarded.json"), facts, chosen).body)
    key = next(one["key"] for one in page["groups"] if one["count"] == 3)
    answer = answered(post(f"/retry?group={key}"), facts, chosen)
    assert b"Try 3 documents again?" in answer.body
    id = shown(answer)
    discard(chosen, "bad-9", "ValueError: line 9")
    came = answered(post(f"/put-back?id={id}"), facts, chosen)
    assert located(came) == f"/batch?id={id}"
    # Whoever says it twice is led there, and nothing is done twice.
    assert located(answered(post(f"/put-back?id={id}"), facts, chosen)) == f"/batch?id={id}"
    assert len(asked(chosen)) == 1
    queue = Path(chosen.pipeline.path("values"))
    assert sorted(one.name for one in queue.glob("*.ready")) == [f"bad-{n}.ready" for n in range(3)]
    said = json.loads(answered(get(f"/batch.json?id={id}"), facts, chosen).body)
    assert (said["who"], said["total"]) == ("user 1000 (rose)", 3)
    assert said["counts"]["waiting"] == 3
    assert asked(chosen)[0][1].startswith("retry 3 documents: of all stages, group ")
    listed = json.loads(answered(get("/batches.json"), facts, chosen).body)
    assert [one["id"] for one in listed["batches"]] == [id]


def test_number_of_many_documents_must_be_typed(chosen: Chosen, facts: Facts) -> None:
    for number in range(101):
        discard(chosen, f"bad-{number}", "ValueError: bad")
    answer = answered(post("/retry"), facts, chosen)
    assert answer.body.count(b"<li>") == 20
    id = shown(answer)
    for words in ({}, {"count": "100"}, {"count": "1"}):
        again = answered(post(f"/put-back?id={id}", words), facts, chosen)
        assert again.status == 400
        assert b"nothing was done" in again.body
    assert not list(Path(chosen.pipeline.path("values")).glob("*.ready"))
    assert located(answered(post(f"/put-back?id={id}", {"count": "101"}), facts, chosen))


def test_only_what_was_discarded_in_the_time_that_was_asked_is_shown_and_tried_again(
    chosen: Chosen, facts: Facts
) -> None:
    discard(chosen, "old.pdf", "no text")
    discard(chosen, "new.pdf", "no text", discarded_at=time.time() - 60)
    told = json.loads(answered(get("/discarded.json?since=1h"), facts, chosen).body)
    assert [one["docid"] for one in told["documents"]] == ["new.pdf"]
    page = answered(get("/discarded?since=1h"), facts, chosen).body.decode()
    assert "since=1h" in page.partition('action="/')[2]
    asks = answered(post("/retry?since=1h"), facts, chosen).body.decode()
    assert "Try 1 document again?" in asks
    assert "new.pdf" in asks
    assert answered(get("/discarded?since=soon"), facts, chosen).status == 400


def test_page_that_a_form_led_to_is_not_asked_for_again(chosen: Chosen, facts: Facts) -> None:
    discard(chosen, "bad.pdf", "no text")
    for form in ("/ask?do=restart&stage=parse", "/retry"):
        page = answered(post(form), facts, chosen).body.decode()
        assert 'id="polling"' not in page
        assert "Look again" not in page
    assert 'id="polling"' in answered(get("/"), facts, chosen).body.decode()


def test_stacks_are_shown_as_text_and_none_of_a_driver_elsewhere(
    chosen: Chosen, facts: Facts
) -> None:
    form = post("/stacks?name=parse-1&host=rose")
    known = with_answer(facts, 'File "<b>work.py"')
    assert "&lt;b&gt;work.py" in respond(form, known, at(facts)).body.decode()
    answer = answered(form, facts, chosen)
    assert answer.status == 404
    assert b"no process on this host" in answer.body


def test_one_document_is_tried_again_from_its_own_page(chosen: Chosen, facts: Facts) -> None:
    discard(chosen, "bad-1", "ValueError: bad")
    discard(chosen, "bad-2", "ValueError: bad")
    answer = answered(post("/retry?stage=parse&docid=bad-1"), facts, chosen)
    id = shown(answer)
    answered(post(f"/put-back?id={id}"), facts, chosen)
    ready = Path(chosen.pipeline.path("values")).glob("*.ready")
    assert [one.name for one in ready] == ["bad-1.ready"]


def test_of_several_documents_of_one_docid_that_is_tried_again_whose_report_is_shown(
    chosen: Chosen, facts: Facts
) -> None:
    newest = second_docid("bad.pdf", "rose-1")
    discard(chosen, "bad.pdf", "ValueError: the first", discarded_at=1_700_000_000.0)
    discard(chosen, newest, "ValueError: the second", discarded_at=1_700_000_100.0)
    page = answered(get("/doc?d=bad.pdf", member("act")), facts, chosen).body.decode()
    assert "the second" in page
    (words,) = re.findall(r'action="/[0-9a-f]+/retry\?([^"]+)"', page)
    listed = answered(post(f"/retry?{html.unescape(words)}"), facts, chosen).body.decode()
    assert f"<li>{newest} " in listed


def test_what_was_never_shown_is_not_put_back(chosen: Chosen, facts: Facts) -> None:
    assert answered(post("/put-back?id=20310501-140000-abcd"), facts, chosen).status == 404


def test_documents_are_put_back_where_they_were_listed_by_whoever_says_yes(
    tmp_path: Path,
) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    one, other = chosen_in(tmp_path / "one"), chosen_in(tmp_path / "other")
    facts = facts_of(one, acts=True)
    facts = facts._replace(pipelines=dict.fromkeys(("one", "other"), facts.pipelines["serif"]))
    for chosen in (one, other):
        discard(chosen, "bad-1", "ValueError: bad")
    id = shown(answered(post("/retry?p=one"), facts, one))
    assert answered(post(f"/put-back?p=other&id={id}"), facts, other).status == 404
    assert not list(Path(other.pipeline.path("values")).glob("*.ready"))
    lily = post(f"/put-back?p=one&id={id}")._replace(peer="user 1001 (lily)")
    assert answered(lily, facts, one).status == 303
    assert asked(one)[0] == ("user 1001 (lily)", "retry 'bad-1': of all stages")


def test_very_many_drivers_are_asked_back_as_such(chosen: Chosen, facts: Facts) -> None:
    few = answered(post("/ask?do=scale&stage=parse&number=4"), facts, chosen)
    many = answered(post("/ask?do=scale&stage=parse&number=9000"), facts, chosen)
    assert b"where a host has" not in few.body
    assert b"start 9,000 drivers for parse, where a host has" in many.body
