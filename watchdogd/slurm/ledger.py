"""Which submissions there were, each once, and what Slurm says of them: files below the root,
`.watchdogd/slurm/`.

    <N>.sh       submission N, as its script; whoever makes it, and nobody else, submits N
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

Slurm is asked once in ten seconds, whoever looks. While it does not answer, what it said last
stands, with its age: that is no error of the pipeline. Those who do not see Slurm are told by the
queues that people submit to.
"""

import os
import re
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec
from msgspec.structs import replace

from queuedriver.disk.filesystem import Directory
from queuedriver.errors import BadArgument, NotFound, QueueError, Unreachable
from queuedriver.format.records import read_record
from queuedriver.operating.queue import Queue
from watchdogd import control
from watchdogd.pipeline.model import Pipeline
from watchdogd.slurm import programs
from watchdogd.slurm.elements import Facts, key_of, read_elements, waiting_words
from watchdogd.slurm.request import job_name, requests

VOID = "void"
# Seconds after which a submission that nobody has seen was not made: sbatch has given up long ago.
GIVEN_UP = 120.0
# From one question to the next, all watchers together.
ASK_EVERY = 10.0
_LOOK_EVERY = 0.5
# Older submissions than so many are of no use to anybody.
_KEPT = 50
_FACTS = "squeue.json"
_STOP = "STOP"


class End(msgspec.Struct, frozen=True):
    """What came of a submission."""

    word: str
    # How often Slurm had been asked by then: the answers to later questions tell of it.
    asked: int


class Ledger:
    """The directory of one pipeline."""

    def __init__(self, directory: Directory, pipeline: Pipeline) -> None:
        self.directory, self.pipeline = directory, pipeline

    @staticmethod
    @contextmanager
    def open(pipeline: Pipeline, *, create: bool = False) -> "Iterator[Ledger]":
        """Open it; NotFound where there is none."""
        with below(pipeline.root, control.SLURM, create=create) as directory:
            yield Ledger(directory, pipeline)

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
        return self._latest(r"([0-9]{1,12})\.sh")

    def end_of(self, number: int) -> End | None:
        """Return what came of a submission; None while it is under way."""
        return read_record(self.directory, f"{number}.end", End)

    def begin(self, number: int, script: str) -> bool:
        """Begin a submission; tell whether it is ours to make. A crash after this leaves one that
        is under way until somebody has asked Slurm for it."""
        if not self._make(f"{number}.sh", script.encode()):
            return False
        # A crash before this leaves files that nobody reads.
        for end in (".sh", ".end"):
            self.directory.remove(f"{number - _KEPT}{end}")
        return True

    def end(self, number: int, word: str) -> bool:
        """Write down what came of a submission; return whether it was made, by the word that
        stands, which may be another's."""
        self._make(f"{number}.end", msgspec.json.encode(End(word, self.asked())))
        end = self.end_of(number)
        return end is not None and not end.word.startswith(VOID)

    # What Slurm says

    def facts(self) -> Facts:
        """Return what Slurm said last."""
        return read_record(self.directory, _FACTS, Facts) or Facts()

    def asked(self) -> int:
        """Return how often Slurm has been asked."""
        return self._latest(r"asked-([0-9]{1,12})")

    def ask(self, limit: float = programs.LIMIT, every: float = ASK_EVERY) -> bool:
        """Ask Slurm, unless somebody has within so many seconds; return whether it was us."""
        latest = self.asked()
        # A clock that was set back must not keep everybody from asking.
        if latest and 0 <= self.now() - self.made_at(f"asked-{latest}") < every:
            return False
        if not self._make(f"asked-{latest + 1}", b""):
            return False
        # One stands at any moment, or a listing might show none, and the first be asked once more.
        self.directory.remove(f"asked-{latest - 1}")
        # Those that are there may be called as the pipeline was before it was renamed.
        names = {one.job_name for one in self.facts().elements} - {""}
        names |= {job_name(self.pipeline, one) for one in requests(self.pipeline)}
        try:
            # Of these names are those that are told since 23.02, and before all there are.
            words = ("squeue", "--json", f"--name={','.join(sorted(names))}")
            elements = read_elements(programs.call(words, limit), key(self.pipeline))
            facts = Facts(question=latest + 1, at=time.time(), elements=tuple(elements))
        except (QueueError, ValueError) as error:
            facts = replace(self.facts(), question=latest + 1, error=str(error))
        self.note(facts)
        return True

    def ask_anew(self) -> Facts:
        """Return what Slurm says from now on: wait until one may ask. Unreachable when it does not
        answer."""
        ends_at, asked = time.monotonic() + ASK_EVERY + programs.LIMIT, self.asked()
        while time.monotonic() < ends_at:
            self.ask()
            facts = self.facts()
            if facts.question > asked:
                if facts.error:
                    raise Unreachable(facts.error)
                return facts
            time.sleep(_LOOK_EVERY)
        raise Unreachable("Slurm has not answered; try again")

    def note(self, facts: Facts) -> None:
        """Write down what Slurm said, unless somebody has asked since; and for `put` and `why` what
        that means while no driver is alive: what waits, or what to type."""
        if facts.question >= self.facts().question:
            self.directory.write_aside(_FACTS, msgspec.json.encode(facts))
        start = start_of(self.pipeline)
        words = waiting_words(facts, time.time()) or f"{start} has Slurm start some"
        if self.stopped:
            words = f"stopped by watchdogd slurm stop; {start} goes on"
        for name in self.pipeline.sources:
            # A queue that is not there yet, or not ours to write in, tells less.
            with suppress(QueueError, OSError), Queue.open(self.pipeline.path(name)) as queue:
                if queue.notice() != words:
                    queue.set_notice(words)

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


def seen(pipeline: Pipeline) -> Facts:
    """Return what Slurm says, asked now unless somebody has just asked; by whoever may not write
    below the root, what it said last."""
    facts = Facts()
    # Else nothing was ever submitted, or is to be seen.
    with suppress(NotFound, PermissionError, NotADirectoryError), Ledger.open(pipeline) as ledger:
        # Elements that run decide by the answers to what they ask: they come first.
        runs = any(one.state == "running" for one in ledger.facts().elements)
        with suppress(OSError):
            # Who may not write there asks nobody.
            ledger.ask(programs.SOON, ASK_EVERY * (2 if runs else 1))
        facts = ledger.facts()
    return facts


def key(pipeline: Pipeline) -> str:
    """Return by what the elements of a pipeline are known."""
    return key_of(os.path.realpath(pipeline.root))


def start_of(pipeline: Pipeline) -> str:
    """Return what to type for elements to come."""
    return f"watchdogd slurm start {shlex.quote(pipeline.file)}"


def below(root: str, place: str, *, create: bool = True) -> Directory:
    """Open a directory of ours below the root, made if that is wanted; NotFound where it is not
    there, or the root is not."""
    path = os.path.join(root, control.CONTROL, place)
    try:
        return Directory.open(path, create, inside=2 + place.count("/"))
    except FileNotFoundError:
        words = "watchdogd slurm start makes it. Is it mounted here?"
        raise NotFound(f"no directory {root!r}; {words}") from None


def _nodes(stage: str) -> str:
    return f"nodes-{stage}" if stage else "nodes"
