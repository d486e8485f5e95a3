"""Makes the pictures of the pages: `python -m tests.tour` writes docs/images/*.png.

A pipeline of four stages on two hosts, as if it had run for two days: its files are real, and so
are the page, the terminal and the browser; only what its watchdogs say was made up, so that the
pictures show the same each time.
"""

import bisect
import html
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from queuedriver.disk.filesystem import Directory
from queuedriver.driving.measurements import BOUNDS, BUCKETS, Counted, Durations
from queuedriver.format import names
from queuedriver.format.records import Attempt, Failure, Report, encode_report
from tests.browser import browser, emulate, until_shown
from tests.cli.pipelines import FAR, driver, publish, report
from tests.watchdogs import PATIENCE
from watchdogd.operators.history import COARSE, Sample, Writer
from watchdogd.report import DriverReport, HostReport, StageReport

IMAGES = Path(__file__).parents[1] / "docs" / "images"
_HOSTS = ("fern", "rose")
_PIPELINE = """
[pipeline]
name = "letters"
root = "queues"

[[stage]]
name = "unpack"
input = "incoming"
output = "pages"
command = "true"

[[stage]]
name = "read"
input = "pages"
output = ["texts", "figures"]
drivers = 4
call = "reading:read"

[[stage]]
name = "translate"
input = "texts"
output = "letters"
drivers = 2
command = "true"

[[stage]]
name = "label"
input = "figures"
output = "labels"
command = "true"
"""
# Of each stage: waiting, at hand, discarded, documents a second, seconds for one, drivers a host.
_STAGES = {
    "unpack": (12, 1, 0, 0.9, 0.3, 1),
    "read": (1240, 7, 14, 0.8, 9.1, 4),
    "translate": (37, 3, 3, 0.8, 3.9, 2),
    "label": (0, 0, 0, 0.3, 0.2, 1),
}
_INPUTS = {"unpack": "incoming", "read": "pages", "translate": "texts", "label": "figures"}
_OUTPUTS = {
    "unpack": ("pages",),
    "read": ("texts", "figures"),
    "translate": ("letters",),
    "label": ("labels",),
}
_TRACE = """Traceback (most recent call last):
  File "/srv/letters/reading.py", line 41, in read
    page = open_page(document.read())
  File "/srv/letters/reading.py", line 23, in open_page
    raise ValueError(f"page {number}: no image in it")
ValueError: page 3: no image in it
"""


def scene(root: Path, now: float) -> Path:
    """Make the pipeline's files; return the path of its file."""
    file = root / "letters.toml"
    file.write_text(_PIPELINE)
    for stage, (waiting, _, discarded, *_) in _STAGES.items():
        queue = root / "queues" / _INPUTS[stage]
        queue.mkdir(parents=True)
        for number in range(waiting):
            (queue / f"letter-{number:05}.pdf.ready").touch()
        for number in range(discarded):
            _discard(queue, f"letter-{9_000 + number}.pdf", number, now)
    for queue_name in ("letters", "labels"):
        (root / "queues" / queue_name).mkdir()
        for number in range(4812 if queue_name == "letters" else 940):
            (root / "queues" / queue_name / f"letter-{number:05}.txt").touch()
    for said in say(file, now):
        _claim(root / "queues", said)
    _history(root / "queues", now)
    log = root / "queues" / ".watchdogd" / "logs" / "rose"
    log.mkdir(parents=True)
    lines = (f"letter-{number:05}.pdf: 4 pages, 212 lines\n" for number in range(40))
    (log / "read-2.log").write_text("".join(lines))
    return file


def say(file: Path, now: float) -> list[HostReport]:
    """Have the watchdogs say what they see at this moment."""
    every = [_said(host, now) for host in _HOSTS]
    # One is of another machine.
    every[0] = msgspec.structs.replace(every[0], identity=FAR, local="")
    return [publish(file, said) for said in every]


def _claim(root: Path, said: HostReport) -> None:
    """Have the documents that drivers have at hand in their queues."""
    for one in said.drivers:
        if one.document:
            token = names.Mint(one.id, "5a17").next(int(one.since * 1e6))
            (root / _INPUTS[one.stage] / names.working_name(one.document, 0, token)).touch()


def _discard(queue: Path, docid: str, number: int, now: float) -> None:
    directory = queue / "discarded"
    directory.mkdir(exist_ok=True)
    (directory / docid).touch()
    at = now - 3600 - 313 * number
    message = f"ValueError: page {number}: no image in it"
    failure = Failure(cause="exception", message=message, traceback=_TRACE)
    if number % 5 == 4:
        failure = Failure(cause="timeout", message="it took longer than 5 min")
    attempt = Attempt(
        docid=docid,
        token="t",
        attempt=0,
        driver="rose-read-2",
        host="rose",
        claimed_at=at - 9,
        ended_at=at,
        counted=True,
        failure=failure,
    )
    said = Report(
        docid=docid,
        queue=str(queue),
        discarded_at=at,
        driver="rose-read-2",
        host="rose",
        failure=failure,
        attempts=(attempt, attempt),
    )
    (directory / f"{docid}.report.json").write_bytes(encode_report(said))


def _said(host: str, now: float) -> HostReport:
    stages = tuple(
        StageReport(
            name=stage,
            inputs=(_INPUTS[stage],),
            outputs=_OUTPUTS[stage],
            wanted=drivers,
            min=drivers,
            max=drivers,
            rate=rate / 2,
            service=service,
            memory=drivers * 610_000_000,
        )
        for stage, (_, _, _, rate, service, drivers) in _STAGES.items()
    )
    drivers = tuple(
        _driver(host, stage, slot, now)
        for stage, (*_, count) in _STAGES.items()
        for slot in range(1, count + 1)
    )
    return report(host, at=now, name="letters", stages=stages, drivers=drivers)


def _driver(host: str, stage: str, slot: int, now: float) -> DriverReport:
    waiting, _, _, _, service, _ = _STAGES[stage]
    name = f"{stage}-{slot}"
    times = {"work": 970 * 3600, "wait": 10 * 3600, "block": 0, "overhead": 20 * 3600}
    if not waiting:
        times |= {"work": 80 * 3600, "wait": 900 * 3600}
    usual: Any = {"documents": 1800 + 37 * slot, "memory": 610_000_000, **times}
    if (host, name) == ("rose", "read-3"):
        why = "8 runs in a row finished nothing; the last: it crashed (exit code 1)"
        ill: Any = {"state": "crash-looped", "why": why, "pid": 0, "until": now + 720}
        return driver(name, host, **usual, **ill, restarts=9)
    if not waiting:
        return driver(name, host, since=now - 3, why="nothing to do", **usual)
    document, since = (
        f"letter-{1300 + 7 * slot + 3 * (host == 'rose'):05}.pdf",
        now - service * slot / 5,
    )
    return driver(name, host, **usual, state="busy", document=document, since=since)


def _history(root: Path, now: float) -> None:
    """Write two days of each stage, with people who bring letters at noon."""
    began_at = now - 2 * 86_400
    with closing(Directory.open(str(root / ".watchdogd"))) as control:
        writers = {host: Writer(host) for host in _HOSTS}
        counted = {stage: _Count() for stage in _STAGES}
        for step in range(0, 2 * 86_400 + 1, COARSE):
            at = began_at + step
            noon = math.exp(-((((at - now) % 86_400 - 50_000) / 12_000) ** 2))
            busy = 0.4 + 0.6 * noon + 0.1 * math.sin(step / 700) + 0.05 * math.sin(step / 130)
            samples = {
                stage: counted[stage].after(COARSE, busy, row) for stage, row in _STAGES.items()
            }
            for writer in writers.values():
                writer.write(control, samples, at, began_at)


class _Count:
    """What a stage has counted so far."""

    def __init__(self) -> None:
        self._documents = 0.0
        self._waits = [0] * BUCKETS
        self._services = [0] * BUCKETS

    def after(self, seconds: int, busy: float, row: tuple[float, ...]) -> Sample:
        """Return what it has counted after so many seconds more."""
        waiting, working, _, rate, service, drivers = row
        before = int(self._documents)
        self._documents += seconds * rate / 2 * busy
        done = int(self._documents) - before
        for counts, took in ((self._waits, 1500 * busy * busy), (self._services, service)):
            at = bisect.bisect(BOUNDS, took)
            counts[at] += done * 3 // 4
            counts[at - 1] += done - done * 3 // 4
        return Sample(
            documents=int(self._documents),
            counted=Counted(Durations(tuple(self._waits)), Durations(tuple(self._services))),
            waiting=int(waiting * (0.2 + busy)),
            working=int(working),
            drivers=int(drivers),
        )


# Pictures


@contextmanager
def _serving(file: Path, environ: dict[str, str]) -> Iterator[str]:
    argv = [sys.executable, "-m", "watchdogd", "serve", str(file), "--port", "0", "--allow-actions"]
    process = subprocess.Popen(argv, env=environ, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        yield lines[2].split()[-1]
    finally:
        process.kill()
        process.communicate()


_SHOTS = {
    "pipeline": ("", "Stages", False, 760),
    "pipeline-dark": ("", "Stages", True, 760),
    "stage": ("stage?name=read", "nearly all took", False, 1000),
    "discarded": ("discarded", "grouped over", False, 470),
    "document": ("doc?d=letter-9003.pdf", "Traceback", False, 860),
}


def picture(one: Any, name: str, height: int) -> None:
    """Keep what is to be seen as a small picture."""
    emulate(one, 1180, height, dark="dark" in name)
    IMAGES.mkdir(exist_ok=True)
    path = IMAGES / f"{name}.png"
    one.save_screenshot(str(path))
    path.write_bytes(_packed(path.read_bytes()))


def _packed(png: bytes) -> bytes:
    """Return the same picture in fewer bytes: browsers are in a hurry when they pack."""
    chunks, at = [], 8
    while at < len(png):
        size = int.from_bytes(png[at : at + 4], "big")
        chunks.append((png[at + 4 : at + 8], png[at + 8 : at + 8 + size]))
        at += 12 + size
    data = zlib.decompress(b"".join(data for kind, data in chunks if kind == b"IDAT"))
    kept = {b"IHDR": dict(chunks)[b"IHDR"], b"IDAT": zlib.compress(data, 9), b"IEND": b""}
    return png[:8] + b"".join(
        len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")
        for kind, data in kept.items()
    )


_COLOURS = {"1": "font-weight:700", "31;1": "color:#ff948b", "33;1": "color:#f2bd63"}


def _terminal(said: str) -> str:
    """Return what a terminal shows as a page."""
    text = html.escape(said)
    for code, style in _COLOURS.items():
        text = text.replace(f"\033[{code}m", f'<span style="{style}">')
    text = text.replace("\033[0m", "</span>")
    look = (
        "margin:0;padding:18px 22px;background:#11151b;color:#e5e9f0;"
        "font:14px/1.45 DejaVu Sans Mono"
    )
    return f'<meta charset="utf-8"><body style="margin:0"><pre style="{look}">{text}</pre>'


def _status(file: Path, environ: dict[str, str]) -> str:
    """Return what `status` writes on a terminal 132 columns wide."""
    line = f"stty cols 132; {sys.executable} -m watchdogd status {file}"
    ran = subprocess.run(
        ["script", "-qec", line, "/dev/null"],
        env=environ,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    said = ran.stdout.replace("\r", "")
    return "$ watchdogd status\n" + said.replace(str(file.parent), "/srv/letters")


def main() -> None:
    """Make all pictures."""
    with tempfile.TemporaryDirectory() as directory, ExitStack() as at_end, browser() as one:
        # What is on the pictures is not to be any directory's.
        root = Path("/srv/letters") if os.access("/srv", os.W_OK) else Path(directory) / "letters"
        root.mkdir()
        at_end.callback(shutil.rmtree, root)
        file = scene(root, time.time())
        environ = {**os.environ, "XDG_RUNTIME_DIR": directory, "WATCHDOGD_STATE": f"{directory}/s"}
        with _serving(file, environ) as address:
            one.get(address)
            until_shown(one, "Stages")
            for name, (path, words, dark, height) in _SHOTS.items():
                emulate(one, 1180, height, dark=dark)
                # What they said before is old by now.
                say(file, time.time())
                one.get(re.sub("#.*", "", address) + path)
                until_shown(one, words)
                picture(one, name, height)
        say(file, time.time())
        page = root / "terminal.html"
        page.write_text(_terminal(_status(file, environ)))
        one.get(page.as_uri())
        picture(one, "terminal", 620)


if __name__ == "__main__":
    main()
