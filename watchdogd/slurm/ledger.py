"""Which submissions there were, each once: files below the root, `.watchdogd/slurm/`.

    <N>.json     submission N: of what, and how many; whoever makes it, and nobody else, submits N
    <N>.sh       its script
    <N>.end      what came of it: `job 4711`, or `void`, and how often Slurm had been asked by then;
                 the first word stands
    asked-<K>    Slurm was asked for the Kth time; whoever makes the next one asks
    squeue.json  what it said
    nodes        how many elements there are to be, in place of the file's; nodes-<stage> likewise
    STOP         none is to be there: `watchdogd slurm stop`

All numbers are made by link(2), which one of many can do, on NFS too. A submission without an end
is under way. Its submitter may have died before sbatch, or after; or sbatch may have submitted, and
the answer was lost. N is in each element's comment, so whoever comes next asks squeue for it, and
writes the end; after a while in which nobody has seen it, that is `void`, and an element that
comes all the same sees it, and leaves. No N is begun before the one before has its end. The numbers
of questions tell what was before what, and the file system's clock how long ago: clocks of hosts
differ, and are not compared.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec

from queuedriver.disk.filesystem import Directory
from queuedriver.errors import BadArgument, NotFound
from queuedriver.format.records import read_record
from watchdogd import control
from watchdogd.slurm.elements import Element
from watchdogd.slurm.script import Submission

VOID = "void"
# Seconds after which a submission that nobody has seen was not made: sbatch has given up long ago.
GIVEN_UP = 120.0
# From one question to the next, all watchers together.
ASK_EVERY = 10.0
# Older submissions than so many are of no use to anybody.
_KEPT = 50
_FACTS = "squeue.json"
_STOP = "STOP"
_LIMIT = 16 << 20


class Facts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What Slurm has said last."""

    # Which question this answers, or did not answer.
    question: int = 0
    # When it answered, on the clock of whoever asked.
    at: float = 0.0
    elements: tuple[Element, ...] = ()
    # Why it did not answer since.
    error: str = ""


class End(msgspec.Struct, frozen=True):
    """What came of a submission."""

    word: str
    # How often Slurm had been asked by then: the answers to later questions tell of it.
    asked: int


class Ledger:
    """The directory of one pipeline."""

    def __init__(self, directory: Directory) -> None:
        self.directory = directory

    @staticmethod
    @contextmanager
    def open(root: str, *, create: bool = False) -> "Iterator[Ledger]":
        """Open it; FileNotFoundError where there is none."""
        path = os.path.join(root, control.CONTROL, control.SLURM)
        with below(root, control.SLURM) if create else Directory.open(path, inside=2) as directory:
            yield Ledger(directory)

    # Numbers that only one can make

    def _latest(self, form: str) -> int:
        found = (re.fullmatch(form, name) for name in self.directory.names())
        return max((int(one[1]) for one in found if one), default=0)

    def _make(self, name: str, data: bytes) -> bool:
        """Make a file whole, and tell whether it was us: of many one can."""
        aside = f".aside-{os.getpid()}-{os.urandom(4).hex()}"
        fd = self.directory.fd
        try:
            self.directory.write_new(aside, data)
            with suppress(FileExistsError):
                os.link(aside, name, src_dir_fd=fd, dst_dir_fd=fd)
            # A network file system may have lost the reply to a link that was made.
            return os.stat(aside, dir_fd=fd).st_nlink > 1
        finally:
            self.directory.remove(aside)

    def made_at(self, name: str) -> float:
        """Return when a file was made, on the file system's clock; 0 when it is not there."""
        with suppress(FileNotFoundError):
            return self.directory.status(name).st_mtime
        return 0.0

    def now(self) -> float:
        """Return what time it is on the file system's clock."""
        name = f".clock-{os.getpid()}-{os.urandom(4).hex()}"
        try:
            self.directory.write_new(name, b"")
            return self.made_at(name)
        finally:
            self.directory.remove(name)

    # Submissions

    def latest(self) -> int:
        """Return the number of the latest submission; 0 when there was none."""
        return self._latest(r"([0-9]{1,12})\.json")

    def end_of(self, number: int) -> End | None:
        """Return what came of a submission; None while it is under way."""
        return read_record(self.directory, f"{number}.end", End)

    def begin(self, one: Submission, script: str) -> bool:
        """Begin a submission; tell whether it is ours to make. A crash after this leaves one that
        is under way until somebody has asked Slurm for it."""
        if not self._make(f"{one.number}.json", msgspec.json.encode(one)):
            return False
        self.directory.write_aside(f"{one.number}.sh", script.encode())
        # A crash before this leaves files that nobody reads.
        for end in (".json", ".sh", ".end"):
            self.directory.remove(f"{one.number - _KEPT}{end}")
        return True

    def end(self, number: int, word: str) -> bool:
        """Write down what came of a submission; return whether it was made, by the word that
        stands, which may be another's."""
        self._make(f"{number}.end", msgspec.json.encode(End(word, self.asked())))
        end = self.end_of(number)
        return end is not None and not end.word.startswith(VOID)

    # What Slurm said

    def facts(self) -> Facts:
        """Return what Slurm said last."""
        return read_record(self.directory, _FACTS, Facts, _LIMIT) or Facts()

    def asked(self) -> int:
        """Return how often Slurm has been asked."""
        return self._latest(r"asked-([0-9]{1,12})")

    def may_ask(self, every: float) -> int:
        """Return the number of a question that is ours to ask; 0 when somebody has asked within so
        many seconds."""
        latest = self.asked()
        # A clock that was set back must not keep everybody from asking.
        if latest and 0 <= self.now() - self.made_at(f"asked-{latest}") < every:
            return 0
        if not self._make(f"asked-{latest + 1}", b""):
            return 0
        # One stands at any moment, or a listing might show none, and the first be asked once more.
        self.directory.remove(f"asked-{latest - 1}")
        return latest + 1

    def answer(self, facts: Facts) -> None:
        """Write down what Slurm said, unless somebody has asked since."""
        if facts.question >= self.facts().question:
            self.directory.write_aside(_FACTS, msgspec.json.encode(facts))

    # What people want

    def scaled(self, stage: str) -> int | None:
        """Return how many elements of a group somebody has asked for; None: as the file says."""
        with suppress(FileNotFoundError, BadArgument):
            said = self.directory.read(_nodes(stage), 100)
            return control.parse_number(said.decode(errors="replace"))
        return None

    def scale(self, stage: str, number: int | None) -> None:
        """Say how many elements of a group there are to be."""
        if number is None:
            self.directory.remove(_nodes(stage))
        else:
            self.directory.write_aside(_nodes(stage), f"{number}\n".encode())

    @property
    def stopped(self) -> bool:
        """Return whether no element is to be there."""
        return self.directory.present(_STOP)

    def stop(self, *, stopped: bool) -> None:
        """Say whether elements are to be there."""
        if stopped:
            self.directory.mark(_STOP)
        else:
            self.directory.remove(_STOP)


def below(root: str, place: str) -> Directory:
    """Open a directory of ours below the root, made if it is not there; NotFound where the root is
    not."""
    path = os.path.join(root, control.CONTROL, place)
    try:
        return Directory.open(path, create=True, inside=2 + place.count("/"))
    except FileNotFoundError:
        words = "watchdogd slurm start makes it. Is it mounted here?"
        raise NotFound(f"no directory {root!r}; {words}") from None


def _nodes(stage: str) -> str:
    return f"nodes-{stage}" if stage else "nodes"
