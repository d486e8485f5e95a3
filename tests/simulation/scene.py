"""What is played: some documents, who drives them where, and what has to come of each.

A docid begins with what is to become of it:

    good     one output, under its own docid
    many     three outputs in two queues, which takes a plan
    none     nothing, and is done
    bad      its processor fails, always: it is given up
    poison   kills its driver, always: it is given up
    later    is not to be done yet when it is first seen
"""

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import msgspec

from queuedriver.driving.driver import Driver
from queuedriver.format import names, settings
from queuedriver.format.settings import Settings
from queuedriver.operating.queue import Queue
from queuedriver.options import Options
from tests.simulation.disk import Disk, Inode
from tests.simulation.seams import installed
from tests.simulation.world import World

INPUT = "/q/in"
OUTPUTS = ("/q/out", "/q/second")
ARCHIVE = "/q/archive"


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
    # By how much the clocks of two hosts differ, in seconds.
    skew: float = 3600.0


def _options(**given: object) -> Options:
    return Options(drain=True, poll=True, **given)  # type: ignore[arg-type]


SCENES: Mapping[str, Scene] = {
    scene.name: scene
    for scene in (
        Scene("plain", options=_options()),
        Scene("durable", options=_options(durable=True)),
        Scene("one host", options=_options(durable=True), drivers=("A", "A")),
        Scene("plan", ("many-a", "good-b"), _options(durable=True)),
        Scene("again", ("good-a",), _options(durable=True), submitted=("good-a", "good-c")),
        Scene("given up", ("bad-a", "good-b"), _options(durable=True), retried=("bad-a",)),
        Scene("poison", ("poison-a", "good-b"), _options()),
        Scene("batch", ("good-a", "many-b", "none-c"), _options(durable=True, batch=3)),
        Scene("archive", ("none-a", "good-b"), _options(durable=True, archive=ARCHIVE)),
        Scene("later", ("later-a", "good-b"), _options(retry_delay=30.0), skew=0.5),
        Scene("network", ("good-a", "many-b"), _options(durable=True), noreplace=False),
    )
}


class Submission(NamedTuple):
    """One document; no two have the same content."""

    docid: str
    data: bytes

    @property
    def kind(self) -> str:
        return self.docid.partition("-")[0]

    def outputs(self) -> list[bytes]:
        """What is to be published: where, and what."""
        match self.kind:
            case "good" | "later":
                return [b"out:" + output(self.data, 0)]
            case "many":
                where = (b"out:", b"out:", b"second:")
                return [one + output(self.data, index) for index, one in enumerate(where)]
        return []


def initial(docid: str) -> Submission:
    return Submission(docid, f"<{docid}>".encode())


def again(docid: str) -> Submission:
    return Submission(docid, f"<{docid}, put while others run>".encode())


def output(data: bytes, index: int) -> bytes:
    """An output. What is half of it does not end like this."""
    return b"<%d of %s>" % (index, data)


@cache
def template(scene: Scene) -> Disk:
    """The queue when its first driver has been there, and the documents are submitted."""
    disk = Disk()
    world = World(disk, scene.noreplace)

    def act() -> None:
        with Queue.open(INPUT, create=True) as queue:
            Driver(INPUT, bytes, OUTPUTS, id="first", options=scene.options).run()
            for docid in scene.docids:
                queue.submit(docid, initial(docid).data)

    with installed(world):
        process = world.start("setup", world.host("A"), act)
        world.play()
        world.close()
    if isinstance(process.outcome, Exception):
        raise process.outcome
    drivers = find(disk, f"{INPUT}/{names.PRIVATE}/drivers")
    disk.change((drivers, "first.json", None))
    return disk


@cache
def settings_of(scene: Scene) -> Settings:
    """What the first driver has written down."""
    file = find(template(scene), f"{INPUT}/{names.PRIVATE}/{settings.FILE}")
    return msgspec.json.decode(file.data, type=Settings)


def find(disk: Disk, path: str) -> Inode:
    """An inode by its path; an empty directory where there is none."""
    inode = disk.root
    for part in path.strip("/").split("/"):
        inode = entries(inode).get(part) or Inode(0, {})
    return inode


def entries(inode: Inode) -> dict[str, Inode]:
    return inode.entries or {}
