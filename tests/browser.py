"""A real browser, driven from tests: Debian's chromium, one for each file of tests."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import until

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
_PATIENCE = 30.0


@contextmanager
def browser(*words: str, scripts: bool = True) -> Iterator[Any]:
    """A browser without a window; skips where none is installed."""
    webdriver = pytest.importorskip("selenium.webdriver")
    if not (BROWSER and DRIVER):
        pytest.skip("no chromium and chromedriver: apt-get install chromium chromium-driver")
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    # Named, so that nothing is looked for and fetched.
    options.binary_location = BROWSER
    usual = ("--headless=new", "--disable-dev-shm-usage", "--window-size=1240,900")
    root = ("--no-sandbox",) if not os.getuid() else ()
    for word in (*usual, *root, "--hide-scrollbars", "--force-prefers-reduced-motion", *words):
        options.add_argument(word)
    if not scripts:
        options.add_experimental_option(
            "prefs", {"profile.managed_default_content_settings.javascript": 2}
        )
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    one = webdriver.Chrome(options=options, service=Service(DRIVER))
    one.set_page_load_timeout(_PATIENCE)
    one.set_script_timeout(_PATIENCE)
    try:
        yield one
    finally:
        one.quit()


def complaints(one: Any) -> list[str]:
    """What the browser had to say since it was asked last: of scripts, and of what it refused."""
    return [entry["message"] for entry in one.get_log("browser")]


def violations(one: Any) -> list[str]:
    """What keeps people from using a page, by the rules of axe."""
    package = pytest.importorskip("axe_core_python")
    script = Path(package.__file__).with_name("axe.min.js").read_text()
    # As the debugger does it, past what a page may run.
    one.execute_script(script)
    found = one.execute_async_script(
        "const done = arguments[0]; axe.run(document, {resultTypes: ['violations']}).then(done);"
    )
    return [
        f"{rule['id']}: {node['html'][:120]} {node['failureSummary'][:200]}"
        for rule in found["violations"]
        for node in rule["nodes"]
    ]


def text(one: Any) -> str:
    """All that is to be read on the page."""
    shown: str = one.execute_script("return document.body.innerText")
    return shown


def until_shown(one: Any, words: str) -> None:
    """Wait for words to stand on the page."""
    until(lambda: words in text(one), f"{words!r} on {one.current_url}: {text(one)[:2000]}")


def look_until_shown(one: Any, words: str) -> None:
    """Wait for words to stand on the page, which without scripts stays as it is until somebody
    looks again."""

    def is_shown() -> bool:
        if words in text(one):
            return True
        follow(one, "Look again")
        return False

    until(is_shown, f"{words!r} on {one.current_url}: {text(one)[:2000]}")


def press(one: Any, title: str) -> None:
    """Press the button of a title, as soon as there is one, and wait for the page it leads to."""
    _until_another(
        one,
        lambda: reach(one, f"//button[normalize-space()={title!r}]", lambda button: button.click()),
    )


def follow(one: Any, words: str) -> None:
    """Follow the link of these words, as soon as there is one, to the page it leads to."""
    link = f"//a[normalize-space()={words!r}]"
    _until_another(one, lambda: reach(one, link, lambda link: link.click()))


def _until_another(one: Any, act: Callable[[], object]) -> None:
    """Do something that leads to another page, and wait for that: where one goes next would keep
    it from coming."""
    from selenium.common.exceptions import StaleElementReferenceException

    page = one.find_element("tag name", "html")
    act()

    def is_gone() -> bool:
        try:
            return not page.is_enabled()
        except StaleElementReferenceException:
            return True

    until(is_gone, f"another page than {one.current_url}")


def reach(one: Any, xpath: str, act: Callable[[Any], object]) -> None:
    """Do something with an element, as soon as there is one."""
    from selenium.common.exceptions import StaleElementReferenceException

    def is_done() -> bool:
        # What is new may take its place just now.
        with suppress(StaleElementReferenceException):
            for element in one.find_elements("xpath", xpath):
                act(element)
                return True
        return False

    until(is_done, f"{xpath} on {one.current_url}")


def cells(one: Any, table: str) -> list[list[str]]:
    """What the cells of a table's rows say, all at one moment."""
    rows: list[list[str]] = one.execute_script(
        "return [...document.querySelectorAll(arguments[0] + ' tr')].map("
        "row => [...row.querySelectorAll('td')].map(cell => cell.innerText))",
        table,
    )
    return rows


def emulate(one: Any, width: int, height: int = 800, *, dark: bool = False) -> None:
    """Show the page as on a screen so wide, for people who like it dark."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    one.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    one.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
