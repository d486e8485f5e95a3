"""The page in a real browser: what it shows, what its buttons do, and that nothing complains."""

import itertools
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

pytest.importorskip("jinja2")
pytest.importorskip("waitress")

from tests.browser import (
    browser,
    cells,
    complaints,
    emulate,
    follow,
    look_until_shown,
    press,
    reach,
    text,
    until_shown,
    violations,
)
from tests.waiting import until
from tests.watchdogs import Yard

STAGES = (
    'name = "first"\ninput = "input"\noutput = "middle"\ncall = "stages:shout"',
    'name = "parse"\ninput = "middle"\noutput = "out"\ncall = "work:parse"\ndrivers = 2',
)
WORK = """
from pathlib import Path
HERE = Path(__file__).parent

def parse(document):
    print("parsing", document.docid, flush=True)
    if b"BAD" in document.read() and not (HERE / "mended").exists():
        raise ValueError(f"line {len(document.docid)}: <script>alert(1)</script>")
    return document.read()
"""


class Page:
    """Two watchdogs on one pipeline, a server for it, and a browser that has come in."""

    def __init__(self, yard: Yard, address: str, one: Any) -> None:
        self.yard = yard
        self.address = address
        self.browser = one

    @property
    def base(self) -> str:
        return self.address.partition("#")[0]

    def go(self, path: str = "") -> None:
        self.browser.get(self.base + path)

    def asked(self) -> list[str]:
        """What was asked for by buttons, as the page tells it."""
        self.go("events")
        rows = cells(self.browser, "#events")
        return [row[4] for row in rows if len(row) > 4 and row[3] == "asked"]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with Yard(tmp_path_factory.mktemp("page")) as yard:
        (yard.root / "work.py").write_text(WORK)
        yard.write(*STAGES)
        for number in range(6):
            yard.put(f"doc-{number}.txt")
        for number in range(4):
            yard.put(f"bad-{number}.txt", "bad")
        with browser() as one:
            yard.run(host="rose")
            yard.run(host="fern")
            with serving(yard) as address:
                until(lambda: len(yard.discarded("middle")) == 4, "all that is bad is discarded")
                come_in(one, address)
                yield Page(yard, address, one)


def come_in(one: Any, address: str) -> None:
    """Open the page with its token; until the server has seen something, it asks again itself."""
    one.get(address)
    until(lambda: "Stages" in text(one), f"stages on {address}")


class serving:  # noqa: N801 - it is used as a function
    """A server for a yard, with buttons; the address of whoever may use them."""

    def __init__(self, yard: Yard, name: str = "page") -> None:
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "watchdogd", "serve", str(yard.file), "--port", "0"),
                *("--allow-actions", "--socket", str(yard.root / f"{name}.sock")),
            ],
            env=yard.environ,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> str:
        assert self._process.stdout is not None
        lines = [self._process.stdout.readline() for _ in range(3)]
        found = re.search(r"to act: +(\S+)", lines[2])
        assert found, lines
        return found[1]

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


PAGES = (
    *("", "stage?name=parse", "driver?name=parse-1&host=rose", "discarded", "batches", "events"),
    *("doc?d=bad-1.txt", "log?name=parse-1&host=rose", "doc?d=nothing", "stage?name=nothing"),
)


def test_token_is_not_left_in_the_address_and_nothing_complains(page: Page) -> None:
    assert "#" not in page.browser.current_url
    for path in PAGES:
        page.go(path)
        page.browser.execute_script("return document.readyState")
    said = [one for one in complaints(page.browser) if "nothing" not in one]
    assert said == []


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_everybody_can_use_every_page(page: Page, path: str, dark: bool) -> None:
    emulate(page.browser, 1240, dark=dark)
    page.go(path)
    assert violations(page.browser) == []


@pytest.mark.parametrize("path", PAGES)
def test_page_fits_a_screen_of_320_pixels(page: Page, path: str) -> None:
    emulate(page.browser, 320)
    page.go(path)
    wide = page.browser.execute_script("return document.documentElement.scrollWidth")
    emulate(page.browser, 1240)
    assert wide <= 320


def test_hostile_report_is_text(page: Page) -> None:
    page.go("doc?d=bad-1.txt")
    assert "<script>alert(1)</script>" in text(page.browser)
    page.go("discarded")
    assert "<script>alert(1)</script>" in text(page.browser)


def test_numbers_change_without_a_hand_and_what_is_open_stays(page: Page) -> None:
    page.go("doc?d=bad-0.txt")
    summary = page.browser.find_element("css selector", "summary")
    summary.click()
    page.go("stage?name=first")
    field = page.browser.find_element("id", "number")
    field.send_keys("7")
    before = done(page)
    page.yard.put("more.txt")
    until(lambda: done(page) > before, "the number of documents that were done")
    assert field.get_attribute("value") == "7"
    assert page.browser.switch_to.active_element == field


def done(page: Page) -> int:
    # In one go: what was found a moment ago may have been replaced.
    found = page.browser.execute_script(
        "return [...document.querySelectorAll('#drivers td:nth-of-type(4)')]"
        ".map(one => one.innerText)"
    )
    return sum(int(one.replace(",", "") or 0) for one in found)


def test_what_is_marked_or_in_focus_stays_while_the_rest_goes_on(page: Page) -> None:
    page.go("stage?name=first")
    # Not by a name that may be replaced meanwhile: these very elements are to stay.
    page.browser.execute_script(
        "window.link = document.querySelector('#drivers a'); link.focus();"
        "window.marked = document.querySelector('#facts dt');"
        "getSelection().selectAllChildren(marked);"
    )
    before = done(page)
    page.yard.put("one-more.txt")
    until(lambda: done(page) > before, "the number of documents that were done")
    assert page.browser.execute_script(
        "return link.isConnected && document.activeElement === link && marked.isConnected"
        " && getSelection().toString() === marked.textContent"
    )


# Counts what a page asks for, and knows whether it will ask for more by itself.
WATCHED = """
const due = new Set(), set = window.setTimeout, clear = window.clearTimeout;
let flying = 0;
window.asked = 0;
window.willAsk = () => due.size > 0 || flying > 0;
window.setTimeout = (act, pause) => {
  const id = set(() => { due.delete(id); act(); }, pause);
  due.add(id);
  return id;
};
window.clearTimeout = (id) => { due.delete(id); clear(id); };
const send = XMLHttpRequest.prototype.send, get = window.fetch;
XMLHttpRequest.prototype.send = function () {
  asked += 1; flying += 1;
  this.addEventListener("loadend", () => { flying -= 1; });
  send.apply(this, arguments);
};
window.fetch = async (...words) => {
  asked += 1; flying += 1;
  const said = await get(...words);
  const text = await said.text();
  set(() => { flying -= 1; }, 100);
  return new Response(text, {status: said.status});
};
window.see = (state) => {
  Object.defineProperty(document, "hidden", {value: state !== "visible", configurable: true});
  Object.defineProperty(document, "visibilityState", {value: state, configurable: true});
  document.dispatchEvent(new Event("visibilitychange"));
};
"""


def test_page_that_is_not_to_be_seen_asks_for_nothing(page: Page) -> None:
    one = page.browser
    added = one.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCHED})
    try:
        # It asks for itself, and for a log.
        page.go("driver?name=parse-1&host=rose")
        until_shown(one, "It follows what is printed.")
        until(lambda: one.execute_script("return asked") >= 3, "it asks again and again")
        one.execute_script("see('hidden')")
        until(lambda: not one.execute_script("return willAsk()"), "it will ask for nothing")
        asked = one.execute_script("return asked")
        one.execute_script("see('visible')")
        until(lambda: one.execute_script("return asked") >= asked + 2, "both are asked for again")
    finally:
        one.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)


def test_what_is_shown_is_shown_again_by_its_address(page: Page) -> None:
    one = page.browser
    page.go("discarded")
    reach(one, "//select[@id='stage']/option[.='parse']", lambda option: option.click())
    reach(one, "//select[@id='since']/option[.='1h']", lambda option: option.click())
    reach(one, "//input[@id='text']", lambda field: field.send_keys("bad-1"))
    press(one, "Show")
    for table in ("#groups", "#cases"):
        until(partial(cells, one, table), f"what is in {table}")
        shown, address = cells(one, table), one.current_url
        first = one.current_window_handle
        one.switch_to.new_window("tab")
        one.get(address)
        assert cells(one, table) == shown
        one.close()
        one.switch_to.window(first)
        # Of the group, too, only what has these words.
        assert "bad-1" in text(one)
        assert "bad-2" not in text(one)
        if table == "#groups":
            follow(one, "1")


def test_slip_that_makes_text_into_elements_or_code_runs_nothing(page: Page) -> None:
    page.go()
    # In a task of the page's own: what a debugger evaluates may do more.
    refused = page.browser.execute_async_script(
        """
        const tries = [
          () => { document.body.innerHTML = "<img src=x onerror='window.ran = 1'>"; },
          () => { window.eval("window.ran = 1"); },
          () => { document.createElement("script").src = "https://evil.example/x.js"; },
          () => { document.body.setAttribute("onclick", "window.ran = 1"); },
        ];
        const done = arguments[0];
        setTimeout(() => {
          done(tries.filter((one) => {
            try { one(); } catch { return true; }
            document.body.click();
            return false;
          }).length);
        }, 0);
        """
    )
    assert page.browser.execute_script("return window.ran || 0") == 0
    assert refused == 4
    assert "Stages" in text(page.browser)
    # These complaints were asked for.
    complaints(page.browser)


def test_log_follows_what_is_printed(page: Page) -> None:
    until(lambda: page.yard.drivers().get("parse-1"), "a driver")
    page.go("driver?name=parse-1&host=rose")
    until_shown(page.browser, "It follows what is printed.")
    numbers = itertools.count()

    def says() -> bool:
        # Until it gets one: there are three others.
        page.yard.put(f"said-{next(numbers)}.txt", queue="middle")
        return "parsing said-" in text(page.browser)

    until(says, "it says what it is at")
    page.go("driver?name=parse-1&host=rose&text=No+Such+Words")
    until_shown(page.browser, "It follows what is printed.")
    assert "parsing said-" not in text(page.browser)
    page.go("driver?name=parse-1&host=rose&text=PARSING")
    until_shown(page.browser, "parsing said-")


def test_keyboard_alone_leads_everywhere(page: Page) -> None:
    from selenium.common.exceptions import StaleElementReferenceException
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    def in_focus() -> tuple[str, str, str] | None:
        # What is new may take its place just now.
        with suppress(StaleElementReferenceException):
            now = page.browser.switch_to.active_element
            return now.tag_name, now.accessible_name, now.value_of_css_property("outline-style")
        return None

    page.go()
    seen: list[str] = []
    for _ in range(60):
        ActionChains(page.browser).send_keys(Keys.TAB).perform()
        found = until(in_focus, "what is in focus")
        assert found is not None
        tag, name, outline = found
        seen.append(name)
        assert tag == "body" or outline != "none", name
    wanted = {"Skip to the content", "Discarded", "Find", "Pause all", "parse", "Look again"}
    assert wanted <= set(seen)
    page.go("stage?name=parse")
    reach(page.browser, "//a[.='Discarded']", lambda link: link.send_keys(Keys.ENTER))
    until_shown(page.browser, "grouped over all")


def test_pause_scale_and_restart_are_done_on_two_hosts_and_told_with_who(page: Page) -> None:
    yard = page.yard
    page.go("stage?name=parse")
    press(page.browser, "Pause")
    until_shown(page.browser, "‖ paused")
    press(page.browser, "Resume")
    until(lambda: "‖ paused" not in text(page.browser), "it goes on")
    for host in ("rose", "fern"):
        page.go("stage?name=parse")
        reach(page.browser, "//*[@id='number']", lambda field: field.send_keys("1"))
        reach(page.browser, f"//option[.={host!r}]", lambda option: option.click())
        press(page.browser, "Scale")
        press(page.browser, f"Yes, scale parse to 1 driver on {host}")
        until(partial(yard.count, "scaled", host=host), f"{host} has another number")
        page.go(f"driver?name=parse-1&host={host}")
        before = yard.pid("parse-1", host)
        restarted = partial(_differs, yard, host, before)
        press(page.browser, "Restart")
        press(page.browser, f"Yes, restart parse-1 on {host}")
        until(restarted, "another process")
    said = page.asked()
    # Through 127.0.0.1 the system does not say who it was.
    assert "restart parse-1 on fern, by 127.0.0.1" in said
    assert "scale parse to 1 driver on rose, by 127.0.0.1" in said
    assert "pause parse, by 127.0.0.1" in said


def _differs(yard: Yard, host: str, before: int) -> bool:
    return yard.pid("parse-1", host) != before


def test_group_is_tried_again_and_what_became_of_it_is_told(page: Page) -> None:
    (page.yard.root / "mended").touch()
    page.go("discarded")
    reach(page.browser, "//*[@id='groups']//a", lambda link: link.click())
    press(page.browser, "Try the group again")
    until_shown(page.browser, "Try 4 documents again?")
    press(page.browser, "Yes, try them again")
    until_shown(page.browser, "4 through, 0 failed again, 0 waiting")
    page.go("discarded")
    until_shown(page.browser, "Nothing was discarded")
    assert any(one.startswith("retry 4 documents") for one in page.asked())


def test_without_scripts_all_of_it_works(page: Page) -> None:
    with browser(scripts=False) as plain:
        plain.get(page.base)
        plain.find_element("id", "token").send_keys(page.address.partition("#")[2])
        press(plain, "Come in")
        look_until_shown(plain, "Stages")
        follow(plain, "parse")
        press(plain, "Pause")
        look_until_shown(plain, "Resume")
        press(plain, "Resume")
        look_until_shown(plain, "Pause")
        plain.get(f"{page.base}driver?name=first-1&host=rose")
        look_until_shown(plain, "The end of its log")
        follow(plain, "The end of its log")
        until_shown(plain, "Log of first-1")


def test_name_of_a_stranger_that_leads_here_is_not_answered(page: Page) -> None:
    port = re.search(r":([0-9]+)/", page.address)
    assert port
    rules = "--host-resolver-rules=MAP evil.example 127.0.0.1"
    with browser(rules) as rebound:
        rebound.get(f"http://evil.example:{port[1]}{page.base.partition(port[1])[2]}")
        assert "this page has another name" in text(rebound)
        assert rebound.get_cookies() == []
        # Nor what a page of theirs asks of the name that is ours.
        got = rebound.execute_async_script(
            "const done = arguments[1];"
            "fetch(arguments[0], {credentials: 'include'})"
            ".then(said => said.text()).then(done, error => done('refused'))",
            page.base,
        )
        assert got == "refused"


def test_watchdog_that_is_killed_is_a_red_bar(page: Page) -> None:
    emulate(page.browser, 1240)
    page.go()
    until(lambda: not page.browser.find_elements("css selector", ".bar"), "all is well")
    for host in ("rose", "fern"):
        found = page.yard.status(host)
        assert found
        os.kill(found.pid, signal.SIGKILL)
    until_shown(page.browser, "No watchdog runs: nobody replaces a driver that ends.")
    # In one go: what was found a moment ago may have been replaced.
    colour = page.browser.execute_script(
        "return getComputedStyle(document.querySelector('.bar')).backgroundColor"
    )
    red, green, blue = map(int, re.findall(r"[0-9]+", colour)[:3])
    assert red > 2 * max(green, blue)


def test_server_that_is_gone_is_told_in_words(page: Page) -> None:
    with serving(page.yard, "another") as address:
        come_in(page.browser, address)
    until_shown(page.browser, "not updated since")
