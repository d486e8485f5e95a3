"""What the pages show, and that nothing in a name, a report or a log is obeyed."""

import html
import html.parser
import json
import os
import re
import sys
import time
import unicodedata
from pathlib import Path
from types import FrameType
from urllib.parse import quote

import pytest

pytest.importorskip("jinja2")

from tests.cli.pipelines import driver, make, make_with_intake, publish, report
from tests.disks import nobody
from tests.page_inputs import (
    answered,
    at,
    chosen_in,
    discard,
    facts_of,
    get,
    member,
    post,
    with_answer,
)
from watchdogd.cli.operators.looking import Looking
from watchdogd.cli.pipeline_argument import choose
from watchdogd.operators.history import Moment, Shares
from watchdogd.operators.hosts import Chosen
from watchdogd.operators.log_files import WINDOW, printed
from watchdogd.operators.sentences import MEANINGS
from watchdogd.operators.view import look
from watchdogd.operators.web import graph, pages
from watchdogd.operators.web.page_inputs import Past, Question, Snapshot
from watchdogd.operators.web.respond import ROUTES, respond

HOSTILE = [
    "<script>alert(1)",
    '"><img src=x onerror=alert(1)>.pdf',
    "a&b'c\"d{{7*7}}{% raw %}",
    "\u202egpj.exe",
    "\x1b[31mred\x07",
    "line\nend",
    os.fsdecode(b"no text \xff\xfe"),
    "-rf",
]


# What the templates have themselves.
OURS = {
    tag
    for path in (Path(pages.__file__).parent / "templates").iterdir()
    for tag in re.findall(r"<([a-z0-9]+)", path.read_text())
}


class Elements(html.parser.HTMLParser):
    """The names of elements and of attributes, and all text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.shown: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self.shown += [value or "" for _, value in attrs]

    @property
    def text(self) -> str:
        """Return all text, with a space where there is any."""
        return " ".join(" ".join(self.shown).split())

    def handle_data(self, data: str) -> None:
        self.shown.append(data)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_name_and_report_are_shown_and_never_obeyed(name: str, tmp_path: Path) -> None:
    chosen = chosen_in(
        tmp_path,
        drivers=(driver("parse-1", document=name, why=name),),
        notes=(name,),
        reload_error=name,
    )
    facts = facts_of(chosen)
    if "\n" not in name:
        discard(chosen, name, f"cannot read {name}", traceback=name, stderr_tail=name)
    for path in ("/", "/stage?name=parse", "/driver?name=parse-1", "/discarded", doc(name)):
        answer = answered(get(path), facts, chosen)
        found = Elements(answer.body.decode())
        assert set(found.tags) <= OURS
        assert found.tags.count("script") == 1
        assert not {one for one in found.attributes if one.startswith("on")}
        for text in found.shown:
            assert not [char for char in text if _steers(char)], (path, text)


def _steers(char: str) -> bool:
    return unicodedata.category(char)[0] == "C" and char not in "\n\t"


def doc(name: str) -> str:
    return "/doc?d=" + quote(name, errors="surrogateescape")


def elements(path: str, chosen: Chosen) -> Elements:
    return Elements(answered(get(path), facts_of(chosen), chosen).body.decode())


def test_page_counts_as_status_does(tmp_path: Path) -> None:
    chosen = chosen_in(tmp_path)
    for number in range(3):
        (tmp_path / "queues" / "values" / f"doc-{number}.ready").touch()
    facts = facts_of(chosen)
    page = answered(get("/index.json"), facts, chosen)
    said = json.loads(page.body)
    assert said["version"] == 1
    stages = {one["name"]: one for one in said["stages"]}
    assert stages["parse"]["waiting"] == 3
    shown = " ".join(elements("/", chosen).shown)
    assert "parse-2 is crash-looped: exit code 3" in shown


@pytest.mark.parametrize("path", sorted(one for one in ROUTES if ROUTES[one].method == "GET"))
def test_every_page_is_there_for_programs(path: str, tmp_path: Path) -> None:
    chosen = chosen_in(tmp_path)
    (tmp_path / "queues" / "input" / "doc.ready").touch()
    words = {"/stage": "?name=parse", "/driver": "?name=parse-1", "/doc": "?d=doc"}.get(path, "")
    name = f"{'/index' if path == '/' else path}.json"
    answer = answered(get(f"{name}{words}"), facts_of(chosen), chosen)
    assert json.loads(answer.body)["version"] == 1
    # No driver has a log there, and there is no batch.
    assert answer.status == (404 if path in ("/log", "/batch") else 200)


def test_driver_that_rests_says_why_and_when_it_is_tried_again(tmp_path: Path) -> None:
    until = time.time() + 7200
    resting = driver("parse-1", state="backoff", why="exit code 3", pid=0, until=until)
    chosen = chosen_in(tmp_path, drivers=(resting, driver("parse-2")))
    told = elements("/driver?name=parse-1", chosen).text
    assert "why exit code 3" in told
    assert "tried again in 2 h" in told
    assert "tried again" not in elements("/driver?name=parse-2", chosen).text


def test_group_is_as_large_as_the_list_says_that_leads_to_it(tmp_path: Path) -> None:
    chosen = chosen_in(tmp_path)
    for number in range(4):
        discard(chosen, f"bad-{number}", "no text")
    page = answered(get("/discarded?text=bad-2"), facts_of(chosen), chosen).body.decode()
    address = re.search(r'href="/[0-9a-f]+(/discarded\?[^"]*group=[^"]*)"', page)
    assert address
    group = elements(html.unescape(address[1]), chosen).text
    assert "1 document" in group
    assert "bad-3" not in group


def test_drivers_that_need_somebody_are_those_that_a_sentence_tells_of(tmp_path: Path) -> None:
    states = ("crash-looped", "backoff", "waiting-fs", "ready", "hung", "stopped")
    drivers = tuple(driver(f"parse-{n}", state=state) for n, state in enumerate(states))
    chosen = chosen_in(tmp_path, drivers=drivers)
    page = answered(get("/"), facts_of(chosen), chosen).body.decode()
    said, _, listed = page.partition("Drivers that need somebody")
    somebody = {"parse-0", "parse-1", "parse-4"}
    assert set(re.findall(r"parse-[0-9]", said)) == somebody
    assert set(re.findall(r">(parse-[0-9])<", listed)) == somebody


# Calls, which are the same on a busy machine: 20 ms take some 200,000 of them.
_STAGES, _EACH, _MOST_CALLS = 20, 200, 120_000


def test_page_of_thousands_of_drivers_costs_so_many_calls(tmp_path: Path) -> None:
    names = [f"s{number}" for number in range(_STAGES)]
    stages = [f'[[stage]]\nname = "{name}"\ncall = "m:f"\n' for name in names]
    file = make(tmp_path, '[pipeline]\nname = "many"\nroot = "queues"\n' + "\n".join(stages))
    drivers = [
        driver(f"{name}-{slot}", state="busy", document=f"d{slot}.pdf", documents=slot, work=9)
        for name in names
        for slot in range(1, _EACH + 1)
    ]
    publish(file, report(drivers=tuple(drivers)))
    chosen = choose(str(file))
    facts = facts_of(chosen)
    for path in ("/", "/stage?name=s1", "/driver?name=s1-1"):
        calls = 0

        def count(_: FrameType | None, event: str, __: object) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        known = with_answer(facts, Past(at(facts), [])) if "stage" in path else facts
        respond(get(path), known, at(facts))
        sys.setprofile(count)
        try:
            answer = respond(get(path), known, at(facts))
        finally:
            sys.setprofile(None)
        assert answer.status == 200
        assert calls <= _MOST_CALLS, (path, calls)


def test_word_for_each_state_leads_to_what_it_means(tmp_path: Path) -> None:
    chosen = chosen_in(tmp_path)
    page = answered(get("/driver?name=parse-2"), facts_of(chosen), chosen).body.decode()
    address = re.search(r'href="/[0-9a-f]+(/states)#crash-looped"', page)
    assert address
    page = answered(get(address[1]), facts_of(chosen), chosen).body.decode()
    assert 'id="crash-looped"' in page
    assert MEANINGS["crash-looped"] in page


def test_page_that_has_not_changed_is_not_sent_again(tmp_path: Path) -> None:
    chosen = chosen_in(tmp_path)
    facts = facts_of(chosen)
    first = answered(get("/"), facts, chosen)
    tag = dict(first.headers)["ETag"]
    again = answered(get("/", {**member(), "if-none-match": tag}), facts, chosen, at(facts) + 1)
    assert (again.status, again.body) == (304, b"")


def test_old_facts_are_shown_with_their_age(tmp_path: Path) -> None:
    chosen = chosen_in(tmp_path)
    facts = facts_of(chosen)
    later = answered(get("/"), facts, chosen, at(facts) + 600)
    assert later.status == 200
    assert b"These numbers are 10 min" in later.body
    assert answered(get("/health"), facts, chosen, at(facts) + 600).status == 503


def test_clock_that_was_set_back_makes_no_old_facts_new(tmp_path: Path) -> None:
    chosen = chosen_in(tmp_path)
    facts = facts_of(chosen)
    old = facts.pipelines["serif"]._replace(age=60.0)
    facts = facts._replace(pipelines={"serif": old})
    an_hour_ago = at(facts) - 3600
    assert b"These numbers are 1 min old" in respond(get("/"), facts, an_hour_ago).body
    assert respond(get("/health"), facts, an_hour_ago).status == 503


def test_what_hangs_leaves_the_numbers_that_were_seen_before(tmp_path: Path) -> None:
    chosen = chosen_in(tmp_path)
    (tmp_path / "queues" / "values" / "doc.ready").touch()
    facts = facts_of(chosen)
    hung = facts_of(chosen._replace(hung=True))
    name = chosen.pipeline.name
    seen = facts.pipelines[name]._replace(seen=hung.pipelines[name].seen)
    later = at(facts) + 60
    page = answered(get("/"), facts._replace(pipelines={name: seen}), chosen, later)
    assert b"since then the file system has not answered" in page.body
    old = facts._replace(pipelines={name: seen})
    stage = answered(get("/stage?name=parse"), old, chosen, later)
    assert "<dt>waiting</dt><dd>1</dd>" in stage.body.decode()


def test_page_of_what_was_never_seen_says_so_and_looks_again_by_itself(tmp_path: Path) -> None:
    facts = facts_of(chosen_in(tmp_path))
    name = next(iter(facts.pipelines))
    never = facts._replace(pipelines={name: facts.pipelines[name]._replace(seen=None, full=None)})
    answer = answered(get("/"), never, choose(str(make(tmp_path))))
    assert answer.status == 503
    assert b"has not answered yet" in answer.body
    again = b'<meta http-equiv="refresh"'
    assert again in answer.body
    # What is there says what it is, and goes on by itself as every page does.
    assert again not in answered(get("/"), facts, choose(str(make(tmp_path)))).body
    assert again not in answered(get("/stage?name=none"), facts, choose(str(make(tmp_path)))).body


@pytest.mark.parametrize("gone", ["queues/values", "queues/out"])
def test_directory_that_was_moved_is_not_counted_as_empty(gone: str, tmp_path: Path) -> None:
    chosen = chosen_in(tmp_path)
    values = tmp_path / "queues" / "values"
    (values / "a.ready").write_text("1")
    (tmp_path / "queues" / "out" / "x.html").write_text("1")
    assert numbers_of(chosen)["parse"] == (1, 0)
    (tmp_path / gone).rename(tmp_path / "elsewhere")
    found = numbers_of(chosen)
    assert found["parse" if gone != "queues/out" else "end"] is None
    page = answered(get("/"), facts_of(chosen), chosen).body.decode()
    assert "is not there" in page
    if gone != "queues/out":
        assert "? unknown" in Elements(page).text
        told = answered(get("/metrics"), facts_of(chosen), chosen).body.decode()
        assert 'oldest_waiting_seconds{pipeline="serif",stage="parse"}' not in told
    # Another is put in its place.
    (tmp_path / gone).mkdir()
    (tmp_path / gone / "b.ready").touch()
    (tmp_path / gone / "c.ready").touch()
    if gone == "queues/values":
        assert numbers_of(chosen)["parse"] == (2, 0)


def numbers_of(chosen: Chosen) -> dict[str, object]:
    """What waits in each stage, with what failed before; None where that is unknown. And what is
    there to be collected."""
    view = look(choose(chosen.pipeline.file))
    numbers: dict[str, object] = {
        one.name: None if one.waiting is None else (one.waiting, one.failed) for one in view.stages
    }
    return numbers | {"end": view.results[0].items}


def test_pipelines_file_system_that_is_not_well_is_not_health(tmp_path: Path) -> None:
    chosen = chosen_in(tmp_path, state="waiting-fs", trouble="queues is not there any more")
    answer = answered(get("/health"), facts_of(chosen), chosen)
    assert (answer.status, answer.body) == (503, b"serif: the file system does not answer\n")


def test_file_with_a_mistake_is_not_a_file_system_that_does_not_answer(tmp_path: Path) -> None:
    chosen = chosen_in(tmp_path)
    facts = facts_of(chosen)
    failed = facts.pipelines["serif"]._replace(error="pipeline.toml:3: no such key")
    facts = facts._replace(pipelines={"serif": failed})
    answer = respond(get("/health"), facts, at(facts) + 60)
    assert answer.body == b"serif: not seen: pipeline.toml:3: no such key\n"


def test_page_of_all_pipelines_says_of_each_how_it_is(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    facts = facts_of(chosen_in(tmp_path / "a"), chosen_in(tmp_path / "b"))
    facts = facts._replace(pipelines={**facts.pipelines, "other": facts.pipelines["serif"]})
    shown = respond(get("/"), facts, at(facts)).body.decode()
    assert shown.count("<td>running</td>") == 2
    shown = respond(get("/"), facts, at(facts) + 60).body.decode()
    assert shown.count("<td>not seen: the file system does not answer</td>") == 2


def test_of_thousands_of_drivers_that_are_amiss_some_are_shown_and_how_many_more(
    tmp_path: Path,
) -> None:
    drivers = [driver(f"parse-{n}", state="crash-looped", pid=0) for n in range(1, 504)]
    chosen = chosen_in(tmp_path, drivers=tuple(drivers))
    page = answered(get("/"), facts_of(chosen), chosen).body.decode()
    assert page.count('<tr id="driver-') == 500
    assert "and 3 more drivers" in page


def test_report_of_very_many_attempts_shows_the_latest(tmp_path: Path) -> None:
    chosen = chosen_in(tmp_path)
    discard(chosen, "bad.pdf", "no text", attempts=1000, traceback="x" * 1000)
    page = answered(get("/doc?d=bad.pdf"), facts_of(chosen), chosen).body.decode()
    assert len(page) < 100_000
    assert "Attempt 999" in page
    assert "Attempt 1:" not in page
    assert "989 earlier attempts" in page


def test_curve_of_what_was_never_measured_has_no_most(tmp_path: Path) -> None:
    moment = Moment(1000.0, 60.0, 0.0, 0.0, 0.0, 3, 0, 1, (Shares(0.0, b""),), ())
    told = {one.title: one.top for one in pages.plots(Past(1000.0, [moment]))}
    assert told["waiting"] == "at most 3"
    assert told["done"] == "at most 0"
    assert told["half took less than"] == "nothing so far"


def test_stage_of_which_nobody_wrote_and_one_that_cannot_be_read_say_so(tmp_path: Path) -> None:
    chosen = chosen_in(tmp_path)
    facts = facts_of(chosen)
    never = answered(get("/stage?name=parse"), facts, chosen).body
    assert b"No watchdog has written down what this stage did." in never
    hung = with_answer(facts, error="no answer", status=503)
    now = respond(get("/stage?name=parse"), hung, at(facts))
    assert (now.status, b"What it did cannot be read now." in now.body) == (200, True)


def test_long_report_is_cut_and_says_so(tmp_path: Path) -> None:
    chosen = chosen_in(tmp_path)
    discard(chosen, "doc.pdf", "long", traceback="x" * 500_000)
    page = answered(get("/doc?d=doc.pdf"), facts_of(chosen), chosen).body.decode()
    assert "cut here: 500,000 characters in all" in page
    assert len(page) < 100_000


def test_what_documents_hold_is_never_shown(tmp_path: Path) -> None:
    chosen = chosen_in(tmp_path)
    secret = "what nobody may read"
    (tmp_path / "queues" / "values" / "doc.ready").write_text(secret)
    discard(chosen, "gone.pdf", "bad")
    (tmp_path / "queues" / "values" / "discarded" / "gone.pdf").write_text(secret)
    facts = facts_of(chosen)
    for path in (*ROUTES, "/doc?d=doc", "/doc?d=gone.pdf"):
        assert secret.encode() not in answered(get(path), facts, chosen).body


def test_two_pipelines_are_one_page_each_and_a_page_of_both(tmp_path: Path) -> None:
    made = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        file = make(tmp_path / name)
        file.write_text(file.read_text().replace('"serif"', f'"{name}"'))
        publish(file, report(name=name))
        made.append(choose(str(file)))
    facts = facts_of(*made)
    both = answered(get("/"), facts, made[0]).body.decode()
    assert "?p=one" in both
    assert "?p=two" in both
    assert "<h1>two" in answered(get("/?p=two"), facts, made[1]).body.decode()
    assert answered(get("/?p=three"), facts, made[0]).status == 404


# Logs


def log_of(chosen: Chosen, data: bytes, name: str = "parse-1") -> Path:
    directory = Path(chosen.pipeline.root) / ".watchdogd" / "logs" / "rose"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.log").write_bytes(data)
    return directory / f"{name}.log"


def piece(chosen: Chosen, words: str = "") -> dict[str, object]:
    path = f"/log.json?name=parse-1&host=rose{words}"
    found: dict[str, object] = json.loads(answered(get(path), facts_of(chosen), chosen).body)
    return found


def test_log_is_shown_without_colours_and_with_what_steers_made_visible(tmp_path: Path) -> None:
    chosen = chosen_in(tmp_path)
    log_of(chosen, b"\x1b[31mred\x1b[0m\n 1 %\r 50 %\r100 %\nbell\x07 \xff\n\x1b]0;title\x07x\r\n")
    assert piece(chosen)["data"] == "red\n100 %\nbell\\x07 \\xff\nx\n"


def test_log_comes_in_windows_that_join(tmp_path: Path) -> None:
    chosen = chosen_in(tmp_path)
    lines = "".join(f"line {number} ü\n" for number in range(20_000))
    log_of(chosen, lines.encode())
    text, words = "", "&from=0"
    while True:
        found = piece(chosen, words)
        text += str(found["data"])
        assert len(str(found["data"])) <= WINDOW
        words = f"&from={found['end']}&file={found['inode']}"
        if found["end"] == found["size"]:
            break
    assert text == lines


def test_of_a_log_only_the_lines_with_a_text_are_shown_each_once_and_whole(tmp_path: Path) -> None:
    chosen = chosen_in(tmp_path)
    log_of(chosen, b"one ERROR\ntwo\nan err")
    found = piece(chosen, "&text=Error")
    assert (found["data"], found["end"]) == ("one ERROR\n", 14)
    log_of(chosen, b"one ERROR\ntwo\nan error\n")
    after = piece(chosen, f"&text=Error&from={found['end']}&file={found['inode']}")
    assert (after["data"], after["end"] == after["size"]) == ("an error\n", True)
    page = answered(get("/log?name=parse-1&host=rose&text=two"), facts_of(chosen), chosen)
    assert ">two\n</pre>" in page.body.decode()


def test_line_that_fills_a_window_keeps_nobody_from_what_comes_after_it(tmp_path: Path) -> None:
    chosen = chosen_in(tmp_path)
    log_of(chosen, b"x" * (2 * WINDOW) + b"\nlast\n")
    found = piece(chosen, "&text=last&from=0")
    words, text = f"&text=last&file={found['inode']}", str(found["data"])
    while found["end"] != found["size"]:
        found = piece(chosen, f"{words}&from={found['end']}")
        text += str(found["data"])
    assert text == "last\n"


def test_log_of_a_driver_whose_process_has_ended_says_so(tmp_path: Path) -> None:
    chosen = chosen_in(tmp_path)
    for name, ended in (("parse-1", False), ("parse-2", True)):
        log_of(chosen, b"the end\n", name)
        told = answered(get(f"/log.json?name={name}&host=rose"), facts_of(chosen), chosen)
        assert json.loads(told.body)["ended"] is ended
        # What is not a whole line yet is one when nothing comes any more.
        log_of(chosen, b"a line\nFatal", name)
        told = answered(
            get(f"/log.json?name={name}&host=rose&text=fatal"), facts_of(chosen), chosen
        )
        assert json.loads(told.body)["data"] == ("Fatal\n" if ended else "")


def test_log_that_was_rotated_is_read_from_its_beginning(tmp_path: Path) -> None:
    chosen = chosen_in(tmp_path)
    path = log_of(chosen, b"before the rotation\n")
    found = piece(chosen)
    path.rename(path.with_suffix(".log.1"))
    log_of(chosen, b"after it, and longer than what was before\n")
    after = piece(chosen, f"&from={found['end']}&file={found['inode']}")
    assert after["data"] == "after it, and longer than what was before\n"


def test_log_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    chosen = chosen_in(tmp_path)
    path = log_of(chosen, b"")
    secret = tmp_path / "secret"
    secret.write_text("secret")
    path.unlink()
    path.symlink_to(secret)
    answer = answered(get("/log?name=parse-1&host=rose"), facts_of(chosen), chosen)
    assert answer.status == 404
    assert b"<pre" not in answer.body


def test_log_that_may_be_there_and_cannot_be_read_is_not_said_to_be_none(tmp_path: Path) -> None:
    chosen = chosen_in(tmp_path)
    log_of(chosen, b"")
    # It is below the root, and that does not answer.
    hung = chosen._replace(hung=True)
    answer = answered(get("/log?name=parse-1&host=rose"), facts_of(chosen), hung)
    assert (answer.status, b"does not answer" in answer.body) == (503, True)
    driver = next(one for one in look(chosen).drivers if one.name == "parse-1")
    with nobody():
        refused = Looking(lambda: chosen).answer(Question("serif", "piece", {"driver": driver}))
    assert (refused.status, "Permission denied" in refused.error) == (503, True)


# Drawing


def node(name: str, inputs: str, outputs: str) -> graph.Node:
    return graph.Node(name, tuple(inputs.split()), tuple(outputs.split()))


def test_stages_are_drawn_each_right_of_all_that_lead_to_it() -> None:
    stages = [node("join", "b c", "out"), node("left", "a", "b"), node("right", "b", "c")]
    drawing = graph.draw([*stages, node("first", "in", "a")])
    at = {box.node.name: box.x for box in drawing.boxes}
    assert at["in"] < at["first"] < at["left"] < at["right"] < at["join"] < at["out"]
    assert {(one.start, one.end) for one in drawing.arrows} >= {("left", "join"), ("right", "join")}


def test_circle_of_stages_is_drawn_too() -> None:
    drawing = graph.draw([node("one", "a", "b"), node("two", "b", "a")])
    assert len(drawing.boxes) == 2


def test_nothing_is_drawn_over_anything_else() -> None:
    drawing = graph.draw([node(f"s{one}", "in", f"out-{one}") for one in range(20)])
    places = [(box.x, box.y, box.x + box.width, box.y + box.height) for box in drawing.boxes]
    for index, one in enumerate(places):
        for other in places[index + 1 :]:
            assert (
                one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
            )
        assert 0 <= one[0] < one[2] <= drawing.width
        assert 0 <= one[1] < one[3] <= drawing.height


def test_curve_covers_the_least_and_the_most_of_each_column() -> None:
    day = [(float(at), at % 60 / 60) for at in range(0, 86_400, 10)]
    drawn = graph.curve(day, 0.0, 86_400.0, max(value for _, value in day))
    points = [tuple(map(float, one.split(","))) for one in drawn.split()]
    assert len(points) == 600
    assert all(0 <= x < 300 and 0 <= y <= 60 for x, y in points)
    assert min(y for _, y in points) == 1
    assert graph.curve([], 0.0, 1.0, 0.0) == ""


def test_printed_leaves_what_is_text() -> None:
    assert printed("läuft\n\tja".encode()) == "läuft\n\tja"


def test_an_intake_is_drawn_before_its_queue_and_says_what_it_waits_for(tmp_path: Path) -> None:
    chosen = choose(str(make_with_intake(tmp_path)))
    view = facts_of(chosen).pipelines["serif"].full
    assert view is not None
    drawing = graph.draw([graph.Node(one.name, one.inputs, one.outputs) for one in view.stages])
    assert ("scanner", "values", "input") in [one[1:] for one in drawing.arrows]
    shown = elements("/", chosen).shown
    why = "3 files wait, as a.pdf: empty for 4 s"
    assert f"scanner: waits, {why}" in shown
    shown = elements("/stage?name=scanner", chosen).shown
    assert why in shown
    assert f"takes from {tmp_path}/drops, publishes into input" in shown


def test_how_it_went_is_drawn_of_each_stage_and_of_each_group(tmp_path: Path) -> None:
    chosen = chosen_in(tmp_path)
    now = 1_800_000_000.0
    for number in range(6):
        discard(chosen, f"a{number}", "no text", discarded_at=now + 100 * number)
    discard(chosen, "b", "no page", discarded_at=now)
    shown = [one for one in elements("/discarded", chosen).shown if set(one) <= set("▁▂▃▄▅▆▇█")]
    assert next(one for one in shown if one).count("█") == 6
    facts = facts_of(chosen)
    seen = facts.pipelines["serif"].seen
    assert seen is not None
    snapshot = Snapshot(seen._replace(trends={"parse": (1.0, None, 2.0)}), seen.view)
    facts = facts._replace(pipelines={"serif": snapshot})
    assert "▅ █" in answered(get("/"), facts, chosen).body.decode()


# For scrapers


def test_scraper_that_takes_open_metrics_is_answered_in_them(tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client")
    chosen = chosen_in(tmp_path)
    wants = {**member(), "accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"}
    told = answered(get("/metrics", wants), facts_of(chosen), chosen)
    assert dict(told.headers)["Content-Type"].startswith("application/openmetrics-text")
    assert told.body.endswith(b"# EOF\n")


def test_scraper_with_a_token_is_told_of_all_hosts_and_one_without_nothing(tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client")
    chosen = chosen_in(tmp_path)
    (tmp_path / "queues" / "values" / "doc.ready").touch()
    facts = facts_of(chosen)
    told = answered(get("/metrics", member()), facts, chosen)
    assert told.status == 200
    assert dict(told.headers)["Content-Type"].startswith("text/plain")
    assert b'queue="values",stage="parse",state="ready"} 1.0' in told.body
    assert b"queuedriver_oldest_waiting_seconds{" in told.body
    stranger = answered(get("/metrics", {"host": "localhost:8000"}), facts, chosen)
    assert b"queuedriver_" not in stranger.body
    bearer = {"host": "localhost:8000", "authorization": f"Bearer {facts.site.keys.read}"}
    assert b"queuedriver_watchdog_up{" in answered(get("/metrics", bearer), facts, chosen).body


def test_scraper_is_told_what_to_install_where_metrics_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And does not take it for files that hang, of which 503 tells."""
    chosen = chosen_in(tmp_path)
    # Then it cannot be imported.
    monkeypatch.setitem(sys.modules, "watchdogd.operators.metrics", None)
    told = answered(get("/metrics", member()), facts_of(chosen), chosen)
    assert told.status == 404
    assert b"queuedriver[metrics]" in told.body


def test_what_is_no_file_among_the_events_hides_none_of_the_others(tmp_path: Path) -> None:
    chosen = chosen_in(tmp_path)
    facts = facts_of(chosen, acts=True)
    answered(post("/do?do=pause&stage=parse"), facts, chosen)
    events = Path(chosen.pipeline.root, ".watchdogd", "events")
    (events / "a.jsonl").mkdir()
    os.mkfifo(events / "b.jsonl")
    (events / "c.jsonl").symlink_to("/etc/passwd")
    page = answered(get("/events"), facts, chosen)
    assert page.status == 200
    assert b"pause parse" in page.body


def test_page_of_thousands_of_groups_shows_some_and_says_how_many_more(tmp_path: Path) -> None:
    chosen = chosen_in(tmp_path)
    facts = facts_of(chosen)
    for number in range(503):
        discard(chosen, f"bad-{number}", f"Error{'x' * number}: bad")
    page = answered(get("/discarded"), facts, chosen).body.decode()
    assert page.count("/discarded?group=") == 500
    assert "and 3 more groups" in page


def test_form_on_the_page_of_the_second_of_two_of_one_name_asks_that_one(tmp_path: Path) -> None:
    chosen = chosen_in(tmp_path)
    facts = facts_of(chosen)
    seen = facts.pipelines["serif"]
    facts = facts._replace(pipelines={"serif": seen, "serif 2": seen})
    for path in ("/?p=serif%202", "/discarded?p=serif%202"):
        page = answered(get(path), facts, chosen).body.decode()
        assert 'name="p" value="serif 2"' in page
        assert 'name="p" value="serif"' not in page


def test_stage_that_there_is_not_is_not_all_of_them(tmp_path: Path) -> None:
    chosen = chosen_in(tmp_path)
    discard(chosen, "bad-1", "ValueError: bad")
    facts = facts_of(chosen)
    assert answered(get("/discarded?stage=parse"), facts, chosen).status == 200
    assert answered(get("/discarded?stage=nothing"), facts, chosen).status == 404
