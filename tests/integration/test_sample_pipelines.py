"""The sample pipelines run as they are, and do what their README says."""

import gzip
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from queuedriver import PermanentError, Queue
from sample_queues.classifier import language_server, letters
from sample_queues.newsroom import newsroom
from tests.cli.processes import ENVIRON
from tests.cli.queues import PATIENCE, Called

SAMPLES = Path(__file__).parents[2] / "sample_queues"
STORIES = sorted((SAMPLES / "newsroom/stories").iterdir())
TORN = "railway"


class Sample:
    """A pipeline of its own, as somebody would copy it."""

    def __init__(self, name: str, root: Path) -> None:
        self.directory = root / name
        queues = ("queues", "one-queue", "cluster", "dropped", "drops")
        ours = shutil.ignore_patterns(*queues, "__pycache__")
        shutil.copytree(SAMPLES / name, self.directory, ignore=ours)
        self._environ = {**ENVIRON, "WATCHDOGD_STATE": str(root / "state")}

    def submit(self, queue: str, documents: dict[str, Path]) -> None:
        with Queue.open(self.directory / queue, create=True) as opened:
            # They enter as the iterator is consumed.
            assert len(list(opened.submit_many(documents.items()))) == len(documents)

    def drain(self, file: str = "pipeline.toml") -> Called:
        ran = subprocess.run(
            [sys.executable, "-m", "watchdogd", "run", file, "--drain"],
            cwd=self.directory,
            env=self._environ,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        return Called(ran.returncode, ran.stdout, ran.stderr)

    def started(self) -> list[str]:
        """The drivers that the watchdog started, each time."""
        (events,) = self.directory.parent.glob("state/*/events.jsonl")
        lines = [json.loads(line) for line in events.read_text().splitlines()]
        return sorted(line["driver"] for line in lines if line["event"] == "started")

    def ls(self, directory: str) -> list[str]:
        """What a person sees there."""
        names = os.listdir(self.directory / directory)
        return sorted(
            name for name in names if name[0] != "." and name not in ("done", "discarded")
        )

    def read(self, path: str) -> bytes:
        return (self.directory / path).read_bytes()

    def reason(self, queue: str, docid: str) -> str:
        """Why a document was discarded."""
        with Queue.open(self.directory / queue) as opened:
            assert opened.discarded() == [docid]
            report = opened.report(docid)
            assert report is not None
            return report.failure.message


def command(directory: Path, *words: str | Path, stdin: bytes = b"") -> bytes:
    """What one of a sample's commands prints."""
    return subprocess.run(
        words, cwd=directory, input=stdin, stdout=subprocess.PIPE, check=True
    ).stdout


# Newsroom


def test_newsroom_has_four_queues_and_one_three_and_two_drivers_between_them(
    tmp_path: Path,
) -> None:
    sample = Sample("newsroom", tmp_path)
    sample.submit("queues/input", {story.name: story for story in STORIES})
    ran = sample.drain()
    assert ran.code == 1, ran.err
    assert sample.ls("queues/output") == [f"{s.name}.xml" for s in STORIES if s.name != TORN]
    assert {"values-1", "parse-1", "parse-2", "parse-3", "output-1", "output-2"} == set(
        sample.started()
    )
    bridge = ET.fromstring(sample.read("queues/output/bridge.xml"))
    assert bridge.findtext("headline") == "Harbour bridge to close for nine weeks"
    assert [one.text for one in bridge.iter("name")] == ["Saltmarsh", "Ines Calloway"]
    reason = sample.reason("queues/input", TORN)
    assert "it was cut off on the wire: 92 words were sent, 56 arrived" in reason


def test_one_queue_has_three_interchangeable_drivers(tmp_path: Path) -> None:
    sample = Sample("newsroom", tmp_path)
    whole = [story for story in STORIES if story.name != TORN]
    documents = {f"doc{number}": story for number, story in enumerate(whole, 1)}
    sample.submit("one-queue/input", documents)
    ran = sample.drain("one-queue.toml")
    assert ran.code == 0, ran.err
    assert sample.ls("one-queue/output") == sorted(f"{docid}.xml" for docid in documents)
    assert sample.started() == ["output-1", "output-2", "output-3"]


def test_stories_that_are_copied_into_a_folder_go_through(tmp_path: Path) -> None:
    sample = Sample("newsroom", tmp_path)
    whole = [story for story in STORIES if story.name != TORN]
    (sample.directory / "drops").mkdir()
    for story in whole:
        shutil.copy(story, sample.directory / "drops")
    ran = sample.drain("drops.toml")
    assert ran.code == 0, ran.err
    assert sample.ls("dropped/output") == [f"{story.name}.xml" for story in whole]
    assert sample.ls("drops") == []
    assert sample.started() == ["intake-1", "output-1"]


def test_pipeline_of_a_cluster_runs_as_well_on_one_host(tmp_path: Path) -> None:
    sample = Sample("newsroom", tmp_path)
    sample.submit("cluster/input", {story.name: story for story in STORIES})
    ran = sample.drain("cluster.toml")
    assert ran.code == 1, ran.err
    assert sample.ls("cluster/output") == [f"{s.name}.xml" for s in STORIES if s.name != TORN]


@pytest.mark.parametrize(
    ("wire", "why"),
    [
        (b"\xff\xfe", "no text"),
        (b"Headline: Rain\nFrom: Here\nWords: 1\n\nRain.\n", "no header Filed"),
        (
            b"Headline: Rain\nFiled: now\nFrom: Here\nWords: 3\n\nRain.\n",
            "3 words were sent, 1 arrived",
        ),
    ],
)
def test_story_that_is_not_whole_is_refused_for_good(wire: bytes, why: str) -> None:
    with pytest.raises(PermanentError, match=why):
        newsroom.read(wire)


def test_values_of_a_story_are_found_with_their_kinds() -> None:
    story = newsroom.read((SAMPLES / "newsroom/stories/bridge").read_bytes())
    found = {(one["kind"], one["text"]) for one in story["values"]}
    assert {("money", "4.2 million crowns"), ("share", "60 per cent"), ("time", "5:30")} <= found


# Archive


def test_archive_packs_logs_without_persons_and_counts_each_day(tmp_path: Path) -> None:
    sample = Sample("archive", tmp_path)
    logs = sorted((SAMPLES / "archive/logs").iterdir())
    sample.submit("queues/input", {log.name: log for log in logs})
    ran = sample.drain()
    assert ran.code == 1, ran.err
    whole = [log.name for log in logs if log.name != "moss-2031-03-04.log.gz"]
    assert sample.ls("queues/archive") == whole
    assert sample.ls("queues/days") == [name.replace(".log.gz", ".txt") for name in whole]
    sums = [f"../sums/{name}" for name in sample.ls("queues/sums")]
    checked = command(sample.directory / "queues/archive", "sha256sum", "-c", *sums)
    assert checked.count(b": OK\n") == len(whole)
    log = gzip.decompress(sample.read(f"queues/archive/{whole[0]}"))
    assert b"192.0.0.0 - - [03/Mar/2031" in log
    assert b"192.0.2" not in log
    reason = sample.reason("queues/input", "moss-2031-03-04.log.gz")
    assert reason.endswith("exit code 65: gzip: stdin: unexpected end of file")


def test_anonymised_log_has_no_hosts_users_or_mail_addresses() -> None:
    line = b'%s - %s [03/Mar/2031:00:06:38 +0000] "GET /a?mail=%s HTTP/1.1" 200 5\n'
    log = line % (b"192.0.2.7", b"ines", b"ines%40post.example")
    log += line % (b"2001:db8:1::7", b"-", b"piet@post.example")
    said = command(SAMPLES / "archive", "sed", "-E", "-f", "anonymise.sed", stdin=log)
    assert said == line % (b"192.0.0.0", b"-", b"someone") + line % (
        b"2001:db8::",
        b"-",
        b"someone",
    )


def test_summary_of_a_day_has_its_numbers_and_the_pages_wanted_most() -> None:
    line = '192.0.0.0 - - [0%d/Mar/2031:00:00:00 +0000] "GET %s HTTP/1.1" %d 1000 "-" "x"\n'
    log = line % (3, "/b", 200) + line % (3, "/a?q=1", 404) + line % (3, "/a", 200)
    said = command(
        SAMPLES / "archive", "awk", "-f", "day.awk", stdin=(log + line % (4, "/", 200)).encode()
    )
    assert said.decode().splitlines() == [
        "03/Mar/2031  3 requests, 1 errors, 3 kB",
        "     2  /a",
        "     1  /b",
        "04/Mar/2031  1 requests, 0 errors, 1 kB",
        "     1  /",
    ]


def test_log_with_lines_that_are_none_is_refused_for_good(tmp_path: Path) -> None:
    (tmp_path / "log.gz").write_bytes(gzip.compress(b"this is not the way\n"))
    ran = subprocess.run(
        [SAMPLES / "archive/unpack.sh", tmp_path / "log.gz", tmp_path / "log"],
        capture_output=True,
        check=False,
    )
    assert ran.returncode == 65
    assert b"this line is not that of a log" in ran.stderr


# Classifier


def test_classifier_sends_each_letter_to_the_desk_that_speaks_its_language(tmp_path: Path) -> None:
    sample = Sample("classifier", tmp_path)
    written = sorted((SAMPLES / "classifier/letters").iterdir())
    sample.submit("queues/input", {letter.name: letter for letter in written})
    ran = sample.drain()
    assert ran.code == 1, ran.err
    desks = {desk: sample.ls(f"queues/{desk}") for desk in ("de", "en", "es", "fr", "it", "nl")}
    assert desks == {
        "de": ["0301-uhr.txt", "0304-leiter.txt"],
        "en": ["0301-drum.txt", "0304-piano.txt", "0306-window.txt"],
        "es": ["0302-sombrero.txt"],
        "fr": ["0302-parapluie.txt", "0306-lampe.txt"],
        "it": ["0303-forno.txt"],
        "nl": ["0303-fiets.txt"],
    }
    assert sample.ls("queues/by-hand") == ["0305-codes.ready"]
    assert sample.reason("queues/input", "0305-thanks").endswith("was quoted, or a signature")


def test_letter_is_what_somebody_wrote_and_nothing_else() -> None:
    letter = "Subject: x\n\nDear all,\n> you wrote\nfine.\n-- \nAda\n"
    assert letters.text_of(letter) == "Dear all, fine.\n"
    page = "Content-Type: text/html\n\n<p>Salt &amp; <b>pepper</b></p>"
    assert letters.text_of(page) == "Salt & pepper\n"


def model(sentences: Sequence[tuple[str, str]]) -> language_server.Model:
    return language_server.Model({name: [text] for name, text in sentences}, order=2, weight=0.1)


def test_model_is_sure_of_what_it_has_learned_and_says_when_it_is_not() -> None:
    learned = model([("en", "the thing that they thought"), ("es", "la casa de los abuelos")])
    language, certainty = learned.guess("the other thing")
    assert language == "en"
    assert certainty > 0.95
    assert learned.guess("77")[1] < 0.95
