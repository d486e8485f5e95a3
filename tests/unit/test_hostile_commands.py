"""No name and no content of a document is ever run, nor taken for an option of a program."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from queuedriver.driving.driver import Driver
from queuedriver.operating.queue import Queue
from queuedriver.options import Options
from queuedriver.processors.base import Processor
from queuedriver.processors.command import CommandProcessor
from queuedriver.processors.server import ServerProcessor
from tests.cli.processes import ENVIRON, command
from watchdogd import events
from watchdogd.cli.unit import unit_of
from watchdogd.events import Event
from watchdogd.pipeline.model import Pipeline

# Each of these would leave a file called `ran` in the current directory, or do something worse.
NASTY = [
    "$(touch ran)",
    "`touch ran`",
    "; touch ran",
    "| touch ran",
    "& touch ran &",
    "x\ntouch ran\n",
    "' ; touch ran ; '",
    '" ; touch ran ; "',
    "${IFS}touch${IFS}ran",
    "%(touch ran)",
    "{input}",
    "{output}",
    "{docid}",
    "-rf",
    "--help",
    "--version",
    "-",
    "--",
    "@file",
    "~root",
    "*",
    "a b  c",
    "$HOME",
    "\\",
    "=cmd|'touch ran'!A1",
]
CONTENT = b"$(touch ran); `touch ran`\n| touch ran\n"
# Says what it was given, word by word.
SAY = "import json, sys; print(json.dumps(sys.argv[1:]))"
# The same for a server that stays, which also obeys.
SERVE = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    with open(asked["output"], "w") as file:
        json.dump([asked["docid"], asked["input"]], file)
    print(json.dumps({"ok": True}), flush=True)
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory, in which any file is a sign that something was run."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


def drive(place: Path, processor: Processor) -> dict[str, bytes]:
    """What a processor makes of documents with such names, by docid."""
    with Queue.open(place / "in", create=True) as queue:
        for docid in NASTY:
            queue.submit(docid, CONTENT, durable=False)
    left = Driver(place / "in", processor, place / "out", options=Options(drain=True)).run()
    assert (left.exit_code, left.counters.documents) == (0, len(NASTY))
    found = {path.name.removesuffix(".ready"): path for path in (place / "out").glob("*.ready")}
    assert set(found) == set(NASTY)
    assert os.listdir() == []
    return {docid: path.read_bytes() for docid, path in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize("as_text", [False, True], ids=["words", "text"])
def test_command_gets_a_name_as_one_word_and_runs_none(place: Path, as_text: bool) -> None:
    words = [
        sys.executable,
        "-c",
        SAY,
        "{input}",
        "--id={docid}",
        "{docid}",
        "{attempt}",
        "x{docid}y",
    ]
    given: Sequence[str] = words if not as_text else shlex.join(words)
    for docid, said in drive(place, CommandProcessor(given)).items():
        path, option, alone, attempt, amid = json.loads(said)
        # Never an option, whatever the document is called.
        assert path.startswith(f"{place}/in/{docid}.")
        assert (option, alone, attempt, amid) == (f"--id={docid}", docid, "0", f"x{docid}y")


@pytest.mark.slow
def test_output_path_is_never_an_option(place: Path) -> None:
    script = 'import json, sys; json.dump(sys.argv[1:], open(sys.argv[1], "w"))'
    said = drive(place, CommandProcessor([sys.executable, "-c", script, "{output.txt}"]))
    for docid, words in said.items():
        for path in json.loads(words):
            assert path.startswith(f"{place}/out/{docid}.")


def test_content_reaches_a_command_as_it_is(place: Path) -> None:
    assert set(drive(place, CommandProcessor(["cat"])).values()) == {CONTENT}


def test_shell_script_that_takes_words_runs_none_of_them(place: Path) -> None:
    script = 'cat -- "$1" > "$2"'
    processor = CommandProcessor(["sh", "-c", script, "sh", "{input}", "{output}"])
    assert set(drive(place, processor).values()) == {CONTENT}


@pytest.mark.parametrize("as_text", [False, True], ids=["words", "text"])
def test_server_gets_a_name_as_text_and_runs_none(place: Path, as_text: bool) -> None:
    words = [sys.executable, "-c", SERVE]
    given: Sequence[str] = words if not as_text else shlex.join(words)
    for docid, said in drive(place, ServerProcessor(given)).items():
        asked, path = json.loads(said)
        assert asked == docid
        assert path.startswith(f"{place}/in/{docid}.")


@pytest.mark.slow
def test_hook_gets_each_field_as_part_of_one_word(place: Path) -> None:
    words = [sys.executable, "-c", SAY, "--message={message}", "{event}", "{stage}"]
    for text in NASTY:
        event = Event(at=1.0, host="rose", event="discarded", stage="parse", message=text)
        said = subprocess.run(
            events.words(words, event), capture_output=True, check=True, text=True
        ).stdout
        assert json.loads(said) == [f"--message={text}", "discarded", "parse"]
    assert os.listdir() == []


@pytest.mark.parametrize("name", NASTY)
def test_unit_holds_a_path_as_one_word(name: str) -> None:
    """As systemd reads it: quotes, backslashes and dollars mean themselves."""
    path = f"/srv/{name.replace('/', '')}/pipeline.toml"
    pipeline = Pipeline(name="serif", file=path, root=os.path.dirname(path), stages=())
    if not name.isprintable():
        with pytest.raises(Exception, match="cannot stand in a unit"):
            unit_of(pipeline, "me", ["/usr/bin/watchdogd"])
        return
    unit = unit_of(pipeline, "me", ["/usr/bin/watchdogd"])
    (start,) = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
    # Without what systemd itself would replace, its quoting is that of a shell's double quotes.
    plain = start.removeprefix("ExecStart=").replace("%%", "%").replace("$$", "$")
    assert shlex.split(plain) == ["/usr/bin/watchdogd", "run", path]
    assert unit.count("\n") == unit_of(
        Pipeline(name="serif", file="/a/b", root="/a", stages=()), "me", ["/usr/bin/watchdogd"]
    ).count("\n")


@pytest.mark.slow
def test_docids_on_stdin_are_docids_and_nothing_else(place: Path) -> None:
    with Queue.open(place / "in", create=True) as queue:
        for docid in NASTY:
            queue.submit(docid, CONTENT, durable=False)
    lines = [docid for docid in NASTY if "\n" not in docid]
    stdin = "\n".join(lines).encode()
    asked = command("discard", place / "in", "-", "--reason", "$(touch ran)", stdin=stdin)
    assert asked.code == 0, asked.err
    asked = command("retry", place / "in", "-", stdin=stdin)
    assert asked.code == 0, asked.err
    with Queue.open(place / "in") as queue:
        assert {item.docid for _, item in queue.items()} == set(NASTY)
    assert os.listdir() == []


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["bash", "zsh"])
@pytest.mark.parametrize("program", ["queuedriver", "watchdogd"])
def test_completion_runs_nothing_of_what_lies_about(place: Path, program: str, shell: str) -> None:
    for name in NASTY:
        Path(name.replace("/", "")).write_bytes(CONTENT)
        Path(f"{name}.toml").write_bytes(CONTENT)
    before = sorted(os.listdir())
    for words in ("status $(touch ran)", "retry `touch ran` -"):
        asked = {
            f"_{program.upper()}_COMPLETE": f"complete_{shell}",
            "COMP_WORDS": f"{program} {words}",
            "COMP_CWORD": "1",
            "_TYPER_COMPLETE_ARGS": f"{program} {words}",
        }
        subprocess.run(
            [sys.executable, "-m", program],
            env={**ENVIRON, **asked},
            capture_output=True,
            check=False,
            timeout=60,
        )
    assert sorted(os.listdir()) == before
