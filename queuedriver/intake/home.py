"""The intakes of one folder: where they keep what is theirs, who they are, and who lives.

    FOLDER/.queuedriver-intake/     claims, of a folder that may be written
    QUEUE/.queuedriver/intake/      copies on their way into the queue; and, of a folder that stays
                                    as it is, the ledger of what was taken

In the first of the two that is used is also: `intakes/<id>.json`, where each says that it lives, as
drivers do; `queue`, the landmark of the queue, so that nobody finishes in another queue what was
begun for this one; and `told.json`, by which `queuedriver why` knows the rules. Of a folder that
stays these are in the runtime directory of each host that has an intake of it, by what the folder
is: nothing of it leads to the queue.
"""

import os
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress

import msgspec

from queuedriver.claims import liveness
from queuedriver.claims.liveness import Heartbeat, Observer, Roster, draw_salt
from queuedriver.claims.recovery import life
from queuedriver.disk.filesystem import Directory
from queuedriver.disk.mounts import filesystem_type, is_network
from queuedriver.disk.neighbours import landmark
from queuedriver.disk.runtime import runtime_directory
from queuedriver.driving.setup import await_silence, choose_id, lock_start
from queuedriver.errors import ConfigError, QueueError, explained
from queuedriver.format import names
from queuedriver.format.records import LEASE, Counters, Registration, encode, read_record
from queuedriver.intake.options import IntakeOptions, Told

PRIVATE = ".queuedriver-intake"
# Inside the queue: copies, and the ledger.
INSIDE = os.path.join(names.PRIVATE, "intake")
_INTAKES = "intakes"
_QUEUE = "queue"
_TOLD = "told.json"

Report = Callable[[], tuple[str, str, Counters]]


class Home(msgspec.Struct, eq=False):
    """What the intakes of one folder have in common, as one of them sees it."""

    directory: Directory
    roster: Roster
    mint: names.Mint

    def knows(self, token: str) -> bool:
        """Return whether this N is of an intake of this folder, as far as is known: others bring
        files into the same queue."""
        return self.roster.owner(names.parse_token(token)).registration is not None

    def is_gone(self, token: str, held: Collection[str] = ()) -> bool:
        """Return whether nobody lives who could go on with what has this N; `held` are those that
        we go on with."""
        if life(token) == (self.mint.driver, self.mint.salt):
            # What was made though we were told that it was not.
            return token not in held
        owner = self.roster.owner(names.parse_token(token))
        if owner.registration is None:
            # Nobody knows of it; who would go on with it has had a lease's time to.
            return self.roster.observer.unchanged_for(token, token) > LEASE
        return not owner.alive

    def forget_the_gone(self, tokens: set[str]) -> None:
        """Remove registrations of those who left nothing, and have been gone for a day."""
        kept = {names.parse_token(token).driver for token in tokens}
        for one in list(self.roster.owners.values()):
            said, is_kept = one.registration, one.alive or one.id in kept
            if said is not None and not is_kept and said.beat_at < time.time() - liveness.EXPIRY:
                self.roster.remove(said)


@contextmanager
def opened(
    folder: Directory, queue: Directory, options: IntakeOptions, id: str | None, report: Report
) -> Iterator[Home]:
    """Open the home of a folder's intakes and register; say goodbye at the end."""
    (where, name), (elsewhere, other) = (folder, PRIVATE), (queue, INSIDE)
    if options.leaves:
        (where, name), (elsewhere, other) = (elsewhere, other), (where, name)
    with ExitStack() as at_end:
        with explained(folder.path, "a folder"):
            for one in living(elsewhere, other, of=folder.path):
                # Neither would know what the other has taken.
                raise ConfigError(
                    f"intake {one.id!r} takes from {folder.path} with another --after than "
                    f"{options.after}; stop it first, or say the same"
                )
            directory = at_end.enter_context(where.subdirectory(name, create=True))
            intakes = at_end.enter_context(directory.subdirectory(_INTAKES, create=True))
        roster = Roster(intakes, Observer())
        if id is not None:
            await_silence([roster], id)
        with ExitStack() as locks, explained(directory.path, "a folder"):
            lock_start(directory, locks)
            if not options.leaves:
                _agree(directory, folder, queue)
            home = Home(
                directory, roster, names.Mint(choose_id([roster], id, "intake"), draw_salt())
            )
            beats = Heartbeat(_registration(home, folder, queue), [intakes], report)
            beats.start()
        # What ends by an error of its own leaves claims that others are to recover at once.
        word = liveness.CRASHED
        try:
            yield home
            word = "left"
        finally:
            with suppress(OSError):
                beats.leave(word, "it was asked to")


def _agree(home: Directory, folder: Directory, queue: Directory) -> None:
    """Note which queue this folder is taken into, before the first claim, unless that is done."""
    mark = landmark(queue, create=True)
    with suppress(FileExistsError):
        home.write_first(_QUEUE, mark.encode(), durable=True)
    if home.read(_QUEUE).decode(errors="replace") != mark:
        raise ConfigError(
            f"{folder.path} is taken into another queue than {queue.path}; name that one, mount "
            f"it, or, when nothing is left in {home.path}, remove {home.path}/{_QUEUE}"
        )


def _registration(home: Home, folder: Directory, queue: Directory) -> Registration:
    """Return what an intake says of itself, and of earlier lives of its id."""
    owner = home.roster.named(home.mint.driver)
    last = owner.registration if owner is not None else None
    return Registration(
        id=home.mint.driver,
        salt=home.mint.salt,
        past=((last.salt, *last.past) if last is not None else ())[: liveness.PAST],
        identity=home.roster.observer.me,
        processor="intake",
        inputs=(folder.path,),
        outputs=(queue.path,),
        started_at=time.time(),
        network=is_network(filesystem_type(home.directory.path)),
    )


def note_told(folder: Directory, home: Directory, told: Told) -> None:
    """Note for whoever asks why a file waits what the rules of its folder are."""
    if not told.options.leaves:
        home.write_aside(_TOLD, encode(told))
        return
    # Without it only `why` knows less.
    with suppress(OSError, QueueError), Directory.open(runtime_directory()) as here:
        here.write_aside(_name_of(folder), encode(told))


def told_of(folder: Directory) -> tuple[Told, Directory] | None:
    """Return what the intakes of a folder were told last, and where they keep what is theirs; None
    where nobody knows of any."""
    home = folder.look_into(PRIVATE)
    told = read_record(home, _TOLD, Told) if home is not None else None
    if home is not None and told is not None and living(home):
        return told, home
    # If it was once taken from otherwise, that says nothing.
    with suppress(OSError, QueueError), Directory.open(runtime_directory()) as here:
        if (stays := read_record(here, _name_of(folder), Told)) is not None:
            with Directory.open(stays.queue) as queue:
                return stays, queue.subdirectory(INSIDE)
    return (told, home) if home is not None and told is not None else None


def _name_of(folder: Directory) -> str:
    found = folder.status()
    return f"intake-{found.st_dev}-{found.st_ino}.json"


def living(home: Directory, name: str = "", *, of: str = "") -> list[Registration]:
    """Return what the intakes say that live there; those `of` one folder, if that is said."""
    intakes = home.look_into(os.path.join(name, _INTAKES))
    if intakes is None:
        return []
    with intakes:
        roster = Roster(intakes, Observer())
        roster.refresh()
        said = [one.registration for one in roster.alive if one.registration is not None]
    real = os.path.realpath
    return [one for one in said if not of or real(of) in map(real, one.inputs)]
