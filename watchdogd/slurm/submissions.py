"""Which submissions there were, each once, what Slurm says of them, and what more is submitted;
in files below the root, `.watchdogd/slurm/`.

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
differ, and are not compared. Whoever submits does it in four steps:

    settle    the latest submission has an end, or gets one, or is under way
    begin     the next number: of many who see one need, one makes it
    sbatch    with the number in each element's comment
    end       the job; or `void` when Slurm refused, or when nobody has seen the number in time

Only the answer to a question after the latest end tells how many elements there are: so whoever
decides asks first, then settles the latest number, and begins the next, as nobody else has since.

Slurm is asked once in ten seconds, whoever looks. While it does not answer, what it said last
stands, with its age: that is no error of the pipeline. Those who do not see Slurm are told by the
queues that people submit to.
"""

import math
import os
import re
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from statistics import fmean

import msgspec
from msgspec.structs import replace

from queuedriver.disk.filesystem import Directory
from queuedriver.errors import LATER, BadArgument, NotFound, QueueError, Unreachable
from queuedriver.format.records import encode, read_record
from queuedriver.format.units import format_count, format_duration, visible
from queuedriver.operating.queue import Queue
from watchdogd import control
from watchdogd.driver_ids import digits_of
from watchdogd.host import program
from watchdogd.operators.hosts import read_hosts
from watchdogd.pipeline.model import Drivers, Pipeline
from watchdogd.report import HostReport
from watchdogd.sizes import coming
from watchdogd.slurm import elements, programs
from watchdogd.slurm.elements import Element, Facts, Request, Submission

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
# A submission whose elements have gone so soon, in seconds, is not followed by another at once.
_SHORT = 60.0
# Elements of one array. A cluster takes 1,000 as a rule, and some take less.
_LARGEST = 100
_OTHERS = "somebody else submits at this moment; see watchdogd slurm status"


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

    def begin(self, number: int, script: bytes) -> bool:
        """Begin a submission; tell whether it is ours to make. A crash after this leaves one that
        is under way until somebody has asked Slurm for it."""
        is_ours = self._make(f"{number}.sh", script)
        # A crash before this leaves files that nobody reads.
        for end in (".sh", ".end"):
            self.directory.remove(f"{number - _KEPT}{end}")
        return is_ours

    def end(self, number: int, word: str) -> bool:
        """Write down what came of a submission; return whether it was made, by the word that
        stands, which may be another's."""
        self._make(f"{number}.end", encode(End(word, self.asked())))
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
        is_early = latest and 0 <= self.now() - self.made_at(f"asked-{latest}") < every
        if is_early or not self._make(f"asked-{latest + 1}", b""):
            return False
        # One stands at any moment, or a listing might show none, and the first be asked once more.
        self.directory.remove(f"asked-{latest - 1}")
        # Those that are there may be called as the pipeline was before it was renamed.
        ours = (elements.job_name(self.pipeline, one) for one in elements.requests(self.pipeline))
        names = tuple(sorted({*self.facts().names, *ours}))
        try:
            # Of these names are those that are told since 23.02, and before all there are.
            words = ("squeue", "--json", f"--name={','.join(names)}")
            told = elements.read_elements(programs.call(words, limit), key(self.pipeline))
            facts = Facts(question=latest + 1, at=time.time(), elements=told, names=names)
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
            self.directory.write_aside(_FACTS, encode(facts))
        start = start_of(self.pipeline)
        words = elements.waiting_words(facts, time.time()) or f"{start} has Slurm start some"
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
        """Say how many elements of a group there are to be; None: as the file says."""
        said = control.AUTO if number is None else number
        self.directory.write_aside(_nodes(stage), f"{said}\n".encode())

    @property
    def stopped(self) -> bool:
        """Return whether no element is to be there."""
        return self.directory.present(_STOP)

    def stop(self, *, stopped: bool) -> None:
        """Say whether elements are to be there."""
        (self.directory.mark if stopped else self.directory.remove)(_STOP)


def seen(pipeline: Pipeline) -> Facts:
    """Return what Slurm says, asked now unless somebody has just asked; by whoever may not write
    below the root, what it said last."""
    # Else nothing was ever submitted, or is to be seen.
    with suppress(NotFound, PermissionError, NotADirectoryError), Ledger.open(pipeline) as ledger:
        # Elements that run decide by the answers to what they ask: they come first.
        runs = any(one.state == "running" for one in ledger.facts().elements)
        with suppress(OSError):
            # Who may not write there asks nobody.
            ledger.ask(programs.SOON, ASK_EVERY * (2 if runs else 1))
        return ledger.facts()
    return Facts()


def key(pipeline: Pipeline) -> str:
    """Return by what the elements of a pipeline are known, of whichever host they were submitted,
    and by whatever links."""
    return f"watchdogd-{digits_of(os.path.realpath(pipeline.root), 12)}"


def start_of(pipeline: Pipeline) -> str:
    """Return what to type for elements to come."""
    return f"watchdogd slurm start {shlex.quote(visible(pipeline.file))}"


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


class UnderWay(QueueError):
    """Somebody else submits at this moment, or stops all."""

    exit_code = LATER


# Facts

# Documents of each queue that are to be done and may be claimed; and what watchdogs have said of
# how fast that is done: where some run, those alone.
Workload = tuple[Mapping[str, int], Sequence[HostReport]]


def look(pipeline: Pipeline) -> Workload:
    """Look at all queues, and read what the watchdogs of all hosts have said."""
    found = {}
    for name in pipeline.inputs:
        with suppress(NotFound), Queue.open(pipeline.path(name)) as queue:
            controls = queue.controls()
            if not (controls.paused or controls.quit or queue.stopped()):
                found[name] = queue.listing(time.time()).waiting
    reports = [one.report for one in read_hosts(pipeline.root).seen]
    return found, [one for one in reports if one.state != "stopped"] or reports


def bounds(ledger: Ledger, request: Request) -> Drivers:
    """Return how many elements of a group there are to be: as somebody asked, else by the file."""
    number = ledger.scaled(request.name)
    return request.slurm.nodes if number is None else Drivers(number, number)


def wanted(pipeline: Pipeline, request: Request, limits: Drivers, workload: Workload) -> int:
    """Return how many elements of a group are to be there for all that waits to be done within the
    target: by the documents that may be claimed, those that are still upstream included, and by how
    fast that is done. Where nobody knows how long a document takes, one is to find out."""
    unfinished, reports = workload
    upstream, most = coming(pipeline, unfinished), limits.min
    for stage in pipeline.stages:
        drivers = request.drivers[stage.name]
        documents = sum(unfinished.get(queue, 0) for queue in stage.inputs) + upstream[stage.name]
        if drivers and stage.inputs and documents:
            told = [one for report in reports for one in report.stages if one.name == stage.name]
            working = [one.wanted for one in told if 0 < one.wanted <= drivers] or [drivers]
            takes = [one.service for one in told if one.service is not None] or [0.0]
            seconds = documents * fmean(takes) / fmean(working)
            most = max(most, 1, math.ceil(seconds / request.slurm.target))
    return min(most, limits.max)


def missing(
    ledger: Ledger, facts: Facts, asked: Mapping[str, int]
) -> Iterator[tuple[Request, int]]:
    """Yield how many elements of each group are missing: up to how many were `asked` for of some;
    of none: by the work that waits."""
    workload = ({}, []) if asked else look(ledger.pipeline)
    for request in elements.requests(ledger.pipeline):
        number = asked.get(request.name, 0)
        if not asked:
            number = wanted(ledger.pipeline, request, bounds(ledger, request), workload)
        if (more := number - facts.count(request.name)) > 0:
            yield request, more


def ended_at_once(ledger: Ledger, facts: Facts) -> bool:
    """Return whether a new submission has lost all its elements: others would not stay either."""
    number = ledger.latest()
    age = ledger.now() - ledger.made_at(f"{number}.end")
    # A clock that was set back must not keep everybody from submitting.
    return all(one.number != number for one in facts.elements) and 0 <= age < _SHORT


# Acts


def settle(ledger: Ledger, facts: Facts) -> int:
    """Return the number of the latest submission, which has an end by now. UnderWay while it has
    none, and where it has ended since Slurm was asked: of its elements these facts say nothing."""
    number = ledger.latest()
    end = ledger.end_of(number)
    if not number or (end is not None and end.asked < facts.question):
        return number
    there = next((one.name for one in facts.elements if one.number == number), "")
    asked_at = ledger.made_at(f"asked-{facts.question}")
    given_up = asked_at > ledger.made_at(f"{number}.sh") + GIVEN_UP
    if end is not None or not (there or given_up):
        soon, late = format_duration(ASK_EVERY), format_duration(GIVEN_UP)
        raise UnderWay(
            f"Slurm has not told yet what came of submission {number}; try again in {soon}, or "
            f"{late} when whoever made it has died"
        )
    ledger.end(number, f"job {there.partition('_')[0]}" if there else VOID)
    return number


def submit_missing(
    ledger: Ledger, facts: Facts, chosen: Mapping[str, Submission], asked: Mapping[str, int]
) -> Iterator[str]:
    """Submit what is missing, in arrays that any cluster takes, as it was `chosen` for each group;
    yield what to say of each submission. UnderWay while somebody else submits; what Slurm says
    against a group is raised when all others are submitted."""
    number, refused = settle(ledger, facts), None
    for request, more in missing(ledger, facts, asked):
        one = replace(chosen.get(request.name, Submission()), stage=request.name)
        for first in range(0, more, _LARGEST):
            number += 1
            size = min(_LARGEST, more - first)
            try:
                job = submit(ledger, request, replace(one, number=number, elements=size))
            except programs.Refused as error:
                refused = refused or error
                break
            yield f"submitted {format_count(size, 'element')} for {request.shown}: job {job}"
    if refused is not None:
        raise refused


def submit(ledger: Ledger, request: Request, one: Submission) -> str:
    """Make one submission; return its job."""
    pipeline = ledger.pipeline
    text = os.fsencode(elements.script(pipeline, request, one, key(pipeline), program()))
    # It is Slurm that writes there.
    below(pipeline.root, elements.LOGS).close()
    if not ledger.begin(one.number, text):
        raise UnderWay(_OTHERS)
    try:
        if ledger.stopped:
            # Since somebody has looked: Slurm may have been asked for long.
            raise UnderWay("stopped by watchdogd slurm stop at this moment; nothing is submitted")
        job = programs.submit(text)
    except programs.Silent:
        # It may have been: whoever comes next looks for it.
        raise
    except QueueError as error:
        ledger.end(one.number, f"{VOID} {error}")
        raise
    if not ledger.end(one.number, f"job {job}"):
        # Somebody had given it up, and may have submitted others.
        programs.cancel([job])
        raise UnderWay(_OTHERS)
    element = Element(
        name=f"{job}_[1-{one.elements}]",
        jobs=tuple(f"{job}_{task + 1}" for task in range(one.elements)),
        stage=one.stage,
        number=one.number,
        state="pending",
    )
    # Until Slurm is asked again.
    facts = ledger.facts()
    ledger.note(replace(facts, elements=(*facts.elements, element)))
    return job
