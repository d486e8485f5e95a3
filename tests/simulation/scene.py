"""What is played: some documents, who drives them where, and what has to come of each.

A docid begins with what is to become of it:

    good     one output, under its own docid
    many     three outputs in two queues, which takes a plan
    none     nothing, and is done
    bad      its processor fails, always: it is given up
    poison   kills its driver, always: it is given up
    later    is not to be done yet when it is first seen
    tool     a program of its own writes the output, by its path, and reads the document by its path
    path     the output is written elsewhere, and its path is the answer
    large    as `tool`, and takes some megabytes; where these do not fit it tidies up, and fails

Some are items that the system will not move, whoever asks; they stay, and the others go through:

    busy     a file that something is mounted on
    lower    a directory of a lower layer
    theirs   another user's file, in a sticky directory
    locked   another user's directory: it can be renamed where it is, and cannot be moved elsewhere
    long     a name that leaves no room for what a claim adds to it

And some are jobs, for brokers (`jobs.py`): each of their tasks comes out once.

    job      three tasks, of which the second fails
    killer   two tasks, of which the second ends its client, always: it is discarded
"""

import errno
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from queuedriver import Options
from queuedriver.format import names
from queuedriver.jobs.jobfile import JobFile, encode
from tests.simulation import product
from tests.simulation.disk import Disk, Inode
from tests.simulation.seams import installed
from tests.simulation.world import World

ROOT = "/q"
INPUT = "/q/in"
OUTPUTS = ("/q/out", "/q/second")
ARCHIVE = "/q/archive"
# A symlink that leads to another directory each day.
TODAY = "/q/today"
# What the system says of an item that it will not move, and whether that is a directory.
STUCK: Mapping[str, tuple[int, bool]] = {
    "busy": (errno.EBUSY, False),
    "lower": (errno.EXDEV, True),
    "theirs": (errno.EPERM, False),
    "locked": (errno.EACCES, True),
    "long": (0, False),
}
# What a large output takes of the disk.
LARGE = 4 << 20


class JobKind(NamedTuple):
    """What becomes of a job's tasks."""

    tasks: int
    # Those that fail, and those that end their clients.
    failing: frozenset[int] = frozenset()
    lost: frozenset[int] = frozenset()


JOBS: Mapping[str, JobKind] = {
    "job": JobKind(3, failing=frozenset({2})),
    "killer": JobKind(2, lost=frozenset({2})),
}


class Scene(NamedTuple):
    """What is to be done, and by whom."""

    name: str
    docids: tuple[str, ...] = ("good-a", "good-b")
    options: Options = Options()
    # On which hosts there are drivers, and watchdogs.
    drivers: tuple[str, ...] = ("A", "B")
    watchdogs: tuple[str, ...] = ("A", "B")
    # What is submitted while the drivers run: the same docid may be there already.
    submitted: tuple[str, ...] = ()
    # What an operator wishes to be tried again.
    retried: tuple[str, ...] = ()
    # Whether the file system knows RENAME_NOREPLACE.
    noreplace: bool = True
    # Whether one sync serves all of a file system.
    syncs_as_one: bool = False
    # By how much the clocks of two hosts differ, in seconds.
    skew: float = 3600.0
    # Whether the first output is a symlink that is turned.
    turned: bool = False
    # How likely kinds of interruptions are that happen in such scenes alone.
    also: tuple[tuple[str, int], ...] = ()

    @property
    def of_jobs(self) -> bool:
        return kind_of(self.docids[0]) in JOBS

    @property
    def outputs(self) -> tuple[str, ...]:
        if self.of_jobs:
            return OUTPUTS[:1]
        return (TODAY, *OUTPUTS[1:]) if self.turned else OUTPUTS


def _options(**given: object) -> Options:
    return Options(drain=True, poll=True, **given)  # type: ignore[arg-type]


SCENES: Mapping[str, Scene] = {
    scene.name: scene
    for scene in (
        Scene("plain", options=_options()),
        Scene("durable", options=_options(durable=True)),
        Scene("synced as one", options=_options(durable=True), syncs_as_one=True),
        Scene("one host", options=_options(durable=True), drivers=("A", "A")),
        Scene("plan", ("many-a", "good-b"), _options(durable=True)),
        Scene("again", ("good-a",), _options(durable=True), submitted=("good-a", "good-c")),
        Scene("given up", ("bad-a", "good-b"), _options(durable=True), retried=("bad-a",)),
        Scene("poison", ("poison-a", "good-b"), _options()),
        Scene("batch", ("good-a", "many-b", "none-c"), _options(durable=True, batch=3)),
        Scene("archive", ("none-a", "good-b"), _options(durable=True, archive=ARCHIVE)),
        Scene("later", ("later-a", "good-b"), _options(retry_delay=30.0), skew=0.5),
        Scene("network", ("good-a", "many-b"), _options(durable=True), noreplace=False),
        # Programs that are given paths.
        Scene("tools", ("tool-a", "path-b"), _options(durable=True)),
        # One docid again and again, in the lowest inode that is free.
        Scene("reused", ("good-a",), _options(), submitted=("good-a", "good-a", "good-a")),
        # Somebody moves and turns directories.
        Scene("turned", ("good-a", "tool-b"), _options(), turned=True, also=(("turn", 40),)),
        Scene("replaced", ("good-a", "tool-b"), _options(), also=(("replace", 40),)),
        Scene("replaced plan", ("many-a",), _options(durable=True), also=(("replace", 40),)),
        Scene("away", ("good-a", "tool-b"), _options(), also=(("away", 40),)),
        # Room for some, and not for others.
        Scene("full", ("good-a", "many-b"), _options(durable=True), also=(("fill", 40),)),
        Scene("full of large", ("large-a", "good-b"), _options(), also=(("fill", 40),)),
        # What is written does not always get to the disk, which says so once.
        *(
            Scene(
                f"unwritten{how}",
                docids,
                _options(durable=True),
                syncs_as_one=bool(how),
                also=(("unwritten", 20), ("cut", 20)),
            )
            for how, docids in (
                ("", ("good-a", "many-b", "good-c")),
                (" as one", ("good-a", "good-b", "good-c")),
            )
        ),
        # Items that the system will not move.
        *(Scene(kind, (f"{kind}-a", "good-b", "good-c"), _options()) for kind in STUCK),
        # Brokers, and jobs of some tasks.
        Scene("jobs", ("job-a",), _options()),
        Scene("durable jobs", ("job-a",), _options(durable=True)),
        Scene("jobs on one host", ("job-a",), _options(), drivers=("A", "A")),
        Scene("killers", ("killer-a",), _options()),
        Scene("cancelled jobs", ("job-a",), _options(), also=(("cancel", 40),)),
    )
}


def kind_of(docid: str) -> str:
    return docid.partition("-")[0]


class Submission(NamedTuple):
    """One document; no two have the same content."""

    docid: str
    data: bytes

    @property
    def kind(self) -> str:
        return kind_of(self.docid)

    def outputs(self) -> list[bytes]:
        """What is to be published: where, and what."""
        match self.kind:
            case "good" | "later" | "tool" | "path" | "large":
                return [b"out:" + output(self.data, 0)]
            case "many":
                where = (b"out:", b"out:", b"second:")
                return [one + output(self.data, index) for index, one in enumerate(where)]
        return []


def initial(docid: str) -> Submission:
    if (kind := JOBS.get(kind_of(docid))) is not None:
        return Submission(docid, encode(JobFile("sim", docid, kind.tasks)))
    return Submission(docid, f"<{docid}>".encode())


def again(docid: str, number: int) -> Submission:
    return Submission(docid, f"<{docid}, put while others run, {number}>".encode())


def output(data: bytes, index: int) -> bytes:
    """An output. What is half of it does not end like this."""
    return b"<%d of %s>" % (index, data)


@cache
def template(scene: Scene) -> Disk:
    """The queue when its first driver has been there, and the documents are submitted."""
    disk = Disk()
    disk.change((disk.root, "tmp", disk.new(directory=True)))
    world = World(disk, scene.noreplace)

    def act() -> None:
        with product.make(INPUT, scene.outputs, "first", scene.options) as queue:
            for docid in scene.docids:
                if kind_of(docid) in STUCK:
                    _put_stuck(disk, docid)
                else:
                    queue.submit(docid, initial(docid).data)

    if scene.turned:
        day = disk.new(directory=True)
        disk.change((disk.root, ROOT[1:], disk.new(directory=True)))
        disk.change((find(disk, ROOT), "day-0", day))
        disk.change((find(disk, ROOT), TODAY.rpartition("/")[2], disk.new(target=f"{ROOT}/day-0")))
    with installed(world):
        process = world.start("setup", world.host("A"), act)
        world.play()
        world.close()
    if isinstance(process.outcome, Exception):
        raise process.outcome
    drivers = find(disk, f"{INPUT}/{names.PRIVATE}/drivers")
    disk.change((drivers, "first.json", None))
    return disk


def _put_stuck(disk: Disk, docid: str) -> None:
    """An item that cannot be moved; with a name as long as they may be, if that is the reason."""
    number, directory = STUCK[kind_of(docid)]
    item = disk.new(directory)
    item.data, item.stuck = b"" if directory else initial(docid).data, number
    name = names.waiting_name(docid, 0)
    if kind_of(docid) == "long":
        name = docid + "x" * (255 - len(name)) + ".ready"
    disk.change((find(disk, INPUT), name, item))


def find(disk: Disk, path: str) -> Inode:
    """An inode by its path; an empty directory where there is none."""
    inode = disk.root
    for part in path.strip("/").split("/"):
        inode = entries(inode).get(part) or Inode(0, {})
        if inode.target is not None:
            inode = find(disk, inode.target)
    return inode


def entries(inode: Inode) -> dict[str, Inode]:
    return inode.entries or {}
