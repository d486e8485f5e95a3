"""What the simulation has found in the real code, each mend undone: it has to be found again.

With each goes the schedule that found it, as short as it could be made. The code has changed
since, and a schedule counts its steps; so these are not relied upon to find anything. They must do
no harm.
"""

from contextlib import suppress
from typing import Any

from tests.simulation.broken_calls import (
    COMMITTED,
    Rename,
    memory,
    orphans,
    private,
    renames,
    syncs,
    token_of,
)
from tests.simulation.disk import Inode
from tests.simulation.kernel import Kernel
from tests.simulation.mutants import Mutant, _claims, mutant, of
from tests.simulation.scene import INPUT, entries, find
from tests.simulation.schedules import Schedule, schedule

FOUND: dict[str, Mutant] = {}
SCHEDULES: dict[str, Schedule] = {}

_unlink = Kernel.unlink


@mutant(syncs, kinds={"switch": 1, "cut": 1}, among=FOUND)
def registration_is_not_durable(kernel: Kernel, inode: Inode) -> bool:
    """A power cut takes the registration of a driver, but not the outputs it was writing. Nobody
    knows whose these are, and nobody ever sweeps them; a queue fed from there is never drained."""
    drivers = private(kernel.disk, "drivers")
    return inode is not drivers and inode not in entries(drivers).values()


SCHEDULES["registration is not durable"] = schedule("durable", (24, "cut", 6))


def _sync_after_own_commits(instead: Any) -> Any:
    def renamed(rename: Rename) -> None:
        rename()
        if rename.new.endswith(COMMITTED):
            memory(rename.kernel)["committed", rename.pid] = True

    return [*renames(renamed), *syncs(instead)]


@mutant(_sync_after_own_commits, scenes=("one host",), kinds={"crash": 1, "cut": 1}, among=FOUND)
def who_recovers_trusts_a_commit_that_is_not_safe(kernel: Kernel, inode: Inode) -> bool:
    """A driver dies between its commit and the sync of it. Who recovers publishes, durably; then a
    power cut takes the commit back, and the document is done again."""
    own = memory(kernel).pop(("committed", kernel.pid), False)
    return bool(own) or inode is not find(kernel.disk, INPUT)


SCHEDULES["who recovers trusts a commit that is not safe"] = schedule(
    "one host", (48, "crash", 0), (75, "cut", 3)
)


@mutant(renames, pattern=[(0, "lose", 0), (0, "stale", 0)], among=FOUND)
def outputs_of_a_lost_claim_are_deleted(rename: Rename) -> None:
    """The reply to a commit is lost, and then the committed name cannot be seen where it was looked
    for before. The claim seems to have been taken back; it was committed, and its outputs go."""
    claims = _claims(rename)
    given_up = any(rename.target is one for one in orphans(rename.kernel.disk))
    if given_up and claims.get(token_of(rename.old)) == rename.pid:
        rename.removing()
    else:
        rename()


SCHEDULES["outputs of a lost claim are deleted"] = schedule(
    "durable", (32, "switch", 0), (40, "lose", 0), (40, "stale", 0)
)


@mutant(of((Kernel, "unlink")), kinds={"reboot": 1, "pause": 1}, among=FOUND)
def records_of_attempts_are_kept(self: Kernel, path: str, *, dir_fd: int | None = None) -> None:
    """A document is taken back uncharged, and then done. Nothing in its name says that there is a
    record of the first attempt, and it stays for ever."""
    if path[0] == "." or self._parent(path, dir_fd)[0] is not private(self.disk, "attempts"):
        _unlink(self, path, dir_fd=dir_fd)


SCHEDULES["records of attempts are kept"] = schedule("durable", (20, "reboot", 0))


@mutant(renames, scenes=("given up",), kinds={"switch": 1}, among=FOUND)
def retry_removes_the_next_report(rename: Rename) -> None:
    """A document that is to be tried again is given up again before `retry` has taken its report;
    and what it takes then is the new one."""
    kept = memory(rename.kernel)
    discarded = find(rename.kernel.disk, f"{INPUT}/discarded")
    if rename.source is not discarded:
        rename()
    elif rename.old.endswith(".report.json"):
        kept["report", rename.pid] = rename
    else:
        rename()
        if (report := kept.pop(("report", rename.pid), None)) is not None:
            with suppress(FileNotFoundError):
                report()


SCHEDULES["retry removes the next report"] = schedule("given up", (143, "switch", 0))
