"""What the killed drivers work on, and what has to come of it whatever happens to them.

A document's kind is the first word of its docid. Which attempts it gets after a crash, and how it
ends, follows from the names that the crash left; `foresee` says what, before anything is recovered.
"""

import fcntl
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from queuedriver.claims.attempts import ATTEMPTS
from queuedriver.claims.document import Document, Output
from queuedriver.driving.driver import Driver
from queuedriver.errors import TryLater
from queuedriver.format import names
from queuedriver.format.records import Record, Report
from queuedriver.options import Options

RETRIES = 1
OUTPUTS = ("out", "second")


class Variant(NamedTuple):
    """Some documents, and how they are driven."""

    docids: Sequence[str]
    options: Options = Options()


def _options(**given: object) -> Options:
    return msgspec.convert({"drain": True, "poll": True, "retries": RETRIES, **given}, Options)


VARIANTS: Mapping[str, Variant] = {
    "one-output": Variant(("good-1", "good-2", "good-3"), _options()),
    "no-output": Variant(("none-1", "none-2"), _options()),
    "several-outputs": Variant(("many-1", "many-2"), _options()),
    "durable": Variant(("good-1", "many-2", "none-3"), _options(durable=True)),
    "batch": Variant(
        ("good-1", "good-2", "many-3", "good-4", "none-5"), _options(batch=4, durable=True)
    ),
    "archive": Variant(("good-1", "none-2", "many-3"), _options(archive="archive")),
    "failing": Variant(("bad-1", "good-2"), _options()),
    "delayed": Variant(("bad-1", "good-2"), _options(retry_delay=3600.0)),
    "later": Variant(("later-1", "good-2"), _options()),
    "mixed": Variant(("good-1", "many-2", "bad-3"), _options()),
    # A document each, for drivers that are killed while they recover.
    "one-good": Variant(("good-1",), _options()),
    "one-many": Variant(("many-1",), _options(durable=True, archive="archive")),
    "one-bad": Variant(("bad-1",), _options()),
}


def process(document: Document) -> list[bytes | Output] | bytes | None:
    """Does what the docid says."""
    kind = document.docid.partition("-")[0]
    # <root>/in/<name>
    root = os.path.dirname(os.path.dirname(document.path))
    with open(os.path.join(root, "tries"), "a") as file:
        file.write(f"{document.docid} {document.attempt}\n")
    if kind == "bad":
        raise ValueError("this one never works")
    if kind == "later" and not os.path.exists(seen := os.path.join(root, document.docid)):
        Path(seen).touch()
        raise TryLater(after=0.0, reason="not the first time")
    if kind == "poison":
        os.kill(os.getpid(), signal.SIGKILL)
    data = output(document.docid, document.attempt, document.read())
    if kind == "none":
        return None
    if kind != "many":
        return data
    return [Output(data), Output(data, docid=f"{document.docid}.x"), Output(data, queue="second")]


def process_batch(documents: Sequence[Document]) -> list[object]:
    """The same for several."""
    return [process(document) for document in documents]


def output(docid: str, attempt: int, content: bytes) -> bytes:
    return f"{docid}, attempt {attempt}: ".encode() + content


# All names below a directory.
Shape = tuple[str, ...]


class Fate(NamedTuple):
    """What has to come of a document: its outputs' attempt, or why it is given up."""

    tries: list[int]
    published: int | None = None
    cause: str = ""


class Scene:
    """Directories for one run."""

    def __init__(self, root: Path, variant: Variant) -> None:
        self.root = root
        self.variant = variant
        self.input = root / "in"
        self.taken = root / "taken"
        for name in ("in", "taken", *OUTPUTS):
            (root / name).mkdir(parents=True)
        self.set_tries([])
        for docid in variant.docids:
            (self.input / f"{docid}.ready").write_bytes(self.content(docid))

    def content(self, docid: str) -> bytes:
        return f"the contents of {docid}\n".encode() * 3

    def driver(self, driver: str) -> Driver:
        options = self.variant.options
        if options.archive:
            options = msgspec.structs.replace(options, archive=str(self.root / options.archive))
        function = process_batch if options.batch > 1 else process
        return Driver(self.input, function, [self.root / name for name in OUTPUTS], id=driver,
                      options=options)  # fmt: skip

    def items(self, directory: str = "in") -> list[tuple[str, names.Item]]:
        listed = sorted(os.listdir(self.root / directory))
        return [(name, item) for name in listed if (item := names.parse(name)) is not None]

    def shape(self) -> Shape:
        """All names below the root, without what differs from run to run."""
        found = []
        for directory, _, files in os.walk(self.root):
            where = os.path.relpath(directory, self.root)
            if "journal" not in where:
                found += [f"{where}/{_plain(name)}" for name in files]
        return tuple(sorted(found))

    def is_unfinished(self, driver: str) -> bool:
        """Whether it left anything to recover."""
        tokens = [item.token for where in ("in", *OUTPUTS) for _, item in self.items(where)]
        tokens += [report.attempts[-1].token for report in self._interrupted().values()]
        return any(names.parse_token(token).driver == driver for token in tokens)

    def starting(self) -> bool:
        """Whether a driver holds the lock that is held while it starts, or has not come to it."""
        lock = self.input / names.PRIVATE / "start.lock"
        if not lock.exists():
            return True
        with open(lock) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def time_passes(self) -> None:
        """Whatever is to be tried later is due."""
        for name, item in self.items():
            if item.state == names.LATER:
                due = names.later_name(item.docid, item.attempt, 1)
                os.rename(self.input / name, self.input / due)

    def consume(self) -> None:
        """Take every output that is visible: it must not become visible again."""
        for output in OUTPUTS:
            for name, item in self.items(output):
                if item.state == names.READY:
                    taken = self.taken / f"{output}-{name}"
                    while taken.exists():
                        taken = taken.with_name(f"{taken.name} again")
                    os.rename(self.root / output / name, taken)

    def foresee(self, before: Mapping[str, Fate] | None = None) -> dict[str, Fate]:
        """What has to come of each document, by the names a crash has left.

        Those that have come to their end, did so as was foreseen `before`.
        """
        found: dict[str, list[names.Item]] = {docid: [] for docid in self.variant.docids}
        for _, item in self.items():
            found[item.docid].append(item)
        self.set_tries([])
        first = Fate([], 0)
        return {
            docid: self._fate(docid, items, before[docid] if before else first)
            for docid, items in found.items()
        }

    def _fate(self, docid: str, items: Sequence[names.Item], before: Fate) -> Fate:
        kind = docid.partition("-")[0]
        reported = {report.docid: report.failure.cause for report in self._reports().values()}
        if not items:
            published = None if docid in reported else before.published
            return Fate([], published, reported.get(docid, ""))
        (item,) = items
        if item.state == names.WRITTEN:
            return Fate([], item.attempt)
        attempt = item.attempt + (item.state == names.WORKING)
        if attempt > RETRIES:
            # Of several who give one document up, the first to write down why is believed.
            return Fate([], None, reported.get(docid, "crashed"))
        if kind == "bad":
            return Fate(list(range(attempt, RETRIES + 1)), None, "exception")
        if kind == "later" and not (self.root / docid).exists():
            return Fate([attempt, attempt], attempt)
        return Fate([attempt], attempt)

    def complaints(self, fates: Mapping[str, Fate]) -> list[str]:
        """What is not as it has to be."""
        self.consume()
        found = [f"left in {where}: {name}" for where in ("in", *OUTPUTS) for name, _ in
                 self.items(where)]  # fmt: skip
        found += _compare("tries", self.tries(), _tries(fates))
        wanted = {
            name: data
            for docid, fate in fates.items()
            if fate.published is not None
            for name, data in self._outputs(docid, fate.published).items()
        }
        found += _compare("outputs", _contents(self.taken), wanted)
        done = [docid for docid, fate in fates.items() if fate.published is not None]
        archived = done if self.variant.options.archive else []
        found += _compare("archive", _contents(self.root / "archive"), self._contents(archived))
        return found + self._complaints_about_discarded(fates)

    def _outputs(self, docid: str, attempt: int) -> dict[str, bytes]:
        data = output(docid, attempt, self.content(docid))
        match docid.partition("-")[0]:
            case "none":
                return {}
            case "many":
                finals = ("out-{}.ready", "out-{}.x.ready", "second-{}.ready")
                return {final.format(docid): data for final in finals}
        return {f"out-{docid}.ready": data}

    def _contents(self, docids: Sequence[str]) -> dict[str, bytes]:
        return {docid: self.content(docid) for docid in docids}

    def tries(self) -> list[str]:
        """Which documents were tried since, with the number of the attempt."""
        return sorted((self.root / "tries").read_text().splitlines())

    def set_tries(self, tries: Sequence[str]) -> None:
        (self.root / "tries").write_text("".join(f"{line}\n" for line in tries))

    def _complaints_about_discarded(self, fates: Mapping[str, Fate]) -> list[str]:
        given_up = {docid: fate for docid, fate in fates.items() if fate.published is None}
        discarded = _contents(self.input / names.DISCARDED)
        reports = self._reports()
        documents = {name: data for name, data in discarded.items() if name not in reports}
        found = _compare("discarded", documents, self._contents(list(given_up)))
        found += _compare(
            "reports", sorted(reports), sorted(one + names.REPORT for one in given_up)
        )
        for docid, fate in given_up.items():
            if (report := reports.get(docid + names.REPORT)) is not None:
                found += _compare(f"cause of {docid}", report.failure.cause, fate.cause)
                # One may be noted twice: by a driver that was given up by mistake while it noted a
                # failure, and by who came after it.
                attempts = sorted({one.attempt for one in report.attempts if one.counted})
                found += _compare(f"attempts of {docid}", attempts, list(range(RETRIES + 1)))
        return found

    def _reports(self) -> dict[str, Report]:
        """By their names, those too that are not beside their documents yet."""
        found = _contents(self.input / names.DISCARDED).items()
        return self._interrupted() | {
            name: msgspec.json.decode(data, type=Report)
            for name, data in found
            if name.endswith(names.REPORT)
        }

    def _interrupted(self) -> dict[str, Report]:
        noted = _contents(self.input / names.PRIVATE / ATTEMPTS)
        return {
            name: msgspec.json.decode(data, type=Report)
            for name, data in noted.items()
            if msgspec.json.decode(data, type=Record).discarded_at
        }

    def remove(self) -> None:
        shutil.rmtree(self.root)


def _tries(fates: Mapping[str, Fate]) -> list[str]:
    return sorted(f"{docid} {attempt}" for docid, fate in fates.items() for attempt in fate.tries)


def _compare(what: str, have: object, want: object) -> list[str]:
    return [] if have == want else [f"{what}: {have}, not {want}"]


def _contents(directory: Path) -> dict[str, bytes]:
    if not directory.is_dir():
        return {}
    found = (one for one in directory.iterdir() if one.is_file())
    # A probe or a write that was interrupted leaves a hidden file.
    hidden = (".aside-", ".probe-")
    return {one.name: one.read_bytes() for one in found if not one.name.startswith(hidden)}


def _plain(name: str) -> str:
    """A name without the tokens and random words in it."""
    for word in name.split("."):
        token = names.parse_token(word)
        if token.serial:
            name = name.replace(word, token.driver)
        if word.startswith(("aside-", "probe-")):
            name = name.replace(word, word[:5])
    return name
