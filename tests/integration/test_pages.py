"""What the documentation's pages show works as shown."""

import ast
import doctest
import inspect
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TypeGuard, get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from queuedriver.format import names
from watchdogd import policy, report

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# A block of Python, or of a session at its prompt, with what it prints.
_PYTHON = re.compile(
    r"^\.\. code-block:: python\n\n(?P<code>(?:    .*\n|\n)+)|^(?P<session>>>> (?:.+\n)+)", re.M
)
# A file with its name, or commands with what they print.
_SHELL = re.compile(
    r"^\.\. code-block:: (?:\w+\n   :caption: (?P<file>.+)|console)\n\n(?P<text>(?:   .*\n|\n)+)",
    re.M,
)


# The expressions that say how names are parsed.
_NAMES = re.compile(r"^    (?P<what>[A-Zaceflrgw][A-Za-z-]+|N) +(?P<expression>\S.*)$", re.M)
_PIECES = (
    "a b-.",
    "~",
    "\n",
    "7",
    "0",
    "5f",
    "xml",
    "done",
    "report.json",
    "x-00065a0000000a1234",
    *("ready", "failed", "failed1", "failed2", "failed10", "failed_twice"),
    *("working", "written", "writing", "later"),
)


def python_of(page: str) -> str:
    """All Python of a page, in its order, as one session."""
    lines = []
    for shown in _PYTHON.finditer((DOCS / page).read_text()):
        if shown["session"]:
            lines.append(shown["session"])
        else:
            # One example of a session is one statement.
            lines.append(f">>> exec({textwrap.dedent(shown['code'])!r}, globals())\n")
    return "\n".join(lines)


def test_python_of_the_library_page_does_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/a.ready").write_text("hello")
    session = doctest.DocTestParser().get_doctest(
        python_of("library.rst"), {}, "library.rst", None, None
    )
    assert len(session.examples) > 20
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.REPORT_NDIFF)
    told: list[str] = []
    runner.run(session, out=told.append)
    assert not runner.failures, "".join(told)
    assert (tmp_path / "loud/a.ready").read_text() == "HELLO"


def test_sessions_of_the_processors_page_print_what_the_page_shows(tmp_path: Path) -> None:
    environ = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    # The command, and python3, as they are in the environment that runs this.
    (tmp_path / "bin").mkdir()
    for name, arguments in (("queuedriver", "-m queuedriver"), ("python3", "")):
        script = tmp_path / "bin" / name
        path = f"PYTHONPATH='{ROOT}' exec '{sys.executable}' {arguments}"
        script.write_text(f'#!/bin/sh\n{path} "$@"\n')
        script.chmod(0o755)
    ran = 0
    for shown in _SHELL.finditer((DOCS / "processors.rst").read_text()):
        text = textwrap.dedent(shown["text"]).strip() + "\n"
        if shown["file"]:
            (tmp_path / shown["file"]).write_text(text)
            continue
        for command in re.split(r"^\$ ", text, flags=re.M)[1:]:
            line, _, printed = command.partition("\n")
            found = subprocess.run(
                ["sh", "-c", line],
                cwd=tmp_path,
                env=environ,
                capture_output=True,
                text=True,
                check=False,
            )
            assert (found.stdout + found.stderr).strip() == printed.strip(), line
            ran += 1
    assert ran > 15


def words_of_drivers() -> set[str]:
    """Every state that the policy gives a driver."""
    calls = (one for one in ast.walk(ast.parse(inspect.getsource(policy))) if _is_rest(one))
    said = {word for call in calls for word in _words(call.args[0])}
    shown = {state for state, _ in policy._STATES.values()}
    return said | shown | {"backoff", "crash-looped"}


def _words(node: ast.expr) -> list[str]:
    """What an expression may be, as far as it says so."""
    if isinstance(node, ast.IfExp):
        return _words(node.body) + _words(node.orelse)
    return [str(node.value)] if isinstance(node, ast.Constant) else []


def _is_rest(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Rest"


def test_page_on_states_has_a_section_for_each_state_of_a_driver() -> None:
    page = (DOCS / "states.rst").read_text()
    words = words_of_drivers()
    assert words >= {"starting", "ready", "busy", "draining", "stopped", "hung", "unkillable"}
    for word in (*words, "lost"):
        assert f"\n{word}\n{'~' * len(word)}\n" in page


def test_page_on_states_tells_of_each_word_of_documents_stages_and_watchdogs() -> None:
    page = (DOCS / "states.rst").read_text()
    documents = (*names.STATES, names.DISCARDED)
    stages = ("degraded", "paused", "quit", "done")
    watchdogs = {*get_args(report.State), *get_args(report.Standing)} - {"alive"}
    for word in (*documents, *stages, *watchdogs):
        assert f"\n``{word}``  " in page


def rows() -> dict[str, re.Pattern[str]]:
    """The rows of the page, in its order."""
    page = (DOCS / "queue-on-disk.rst").read_text()
    block = page.partition("has to match::")[2].partition("The first row")[0]
    parts: dict[str, str] = {}
    found: dict[str, re.Pattern[str]] = {}
    for shown in _NAMES.finditer(block):
        expression = shown["expression"].replace(" | ", "|")
        for name, part in reversed(parts.items()):
            expression = re.sub(rf"\b{name}\b", lambda _, part=part: f"(?:{part})", expression)
        if shown["what"].isupper():
            parts[shown["what"]] = expression
        else:
            found[shown["what"]] = re.compile(f"(?s){expression}")
    return found


ROWS = rows()


def says(name: str) -> tuple[str, str] | None:
    """Which row of the page a name is in, and what is before that row's fixed parts."""
    for row, expression in ROWS.items():
        if match := expression.fullmatch(name):
            return row, match[1]
    return None


@given(st.lists(st.sampled_from(_PIECES), min_size=1, max_size=7).map(".".join))
@example("a.failed.1.working")
@example("a.7.writing.xml")
@example("a.failed2.5f.later")
def test_names_are_parsed_as_the_page_on_the_queue_says(name: str) -> None:
    assert set(ROWS) == {"ready", "claimed", "later", "given-up", "failed", "writing"}
    item, said = names.parse(name), says(name)
    row_of = {"working": "claimed", "written": "claimed", "failed_twice": "given-up"}
    if item is not None:
        assert said == (row_of.get(item.state, item.state), item.docid)
    elif said is not None:
        # What is left cannot be a docid, or the extension is the word of a state.
        row, docid = said
        state_word = row == "writing" and says(f"a{name[name.rindex('.') :]}") is not None
        state_word |= name.endswith((".working", ".written", ".later", ".writing"))
        objection = names.objection(docid)
        assert objection is not None or state_word
        if objection == "it looks like an item in a state":
            assert says(docid) is not None
