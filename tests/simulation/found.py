"""What the simulation has found in the real code, each mend undone: it has to be found again.

With each goes the schedule that found it, as short as it could be made. The code has changed
since, and a schedule counts its steps; so these are not relied upon to find anything. They must do
no harm.
"""

from collections.abc import Sequence
from contextlib import suppress

from queuedriver import names, operator
from queuedriver.filesystem import Directory
from queuedriver.handoff import Claim, Handoff
from queuedriver.operator import Result
from queuedriver.outputs import Outputs
from queuedriver.queue import Queue
from queuedriver.recovery import Recoverer
from tests.simulation.mutants import Mutant, mutant
from tests.simulation.schedules import Schedule, schedule

FOUND: dict[str, Mutant] = {}
SCHEDULES: dict[str, Schedule] = {}

_write_aside = Directory.write_aside


@mutant((Directory, "write_aside"), kinds={"switch": 1, "cut": 1}, among=FOUND)
def registration_is_not_durable(
    self: Directory, name: str, data: bytes, durable: bool = False
) -> None:
    """A power cut takes the registration of a driver, but not the outputs it was writing. Nobody
    knows whose these are, and nobody ever sweeps them; a queue fed from there is never drained."""
    _write_aside(self, name, data, durable and not self.path.endswith("/drivers"))


SCHEDULES["registration is not durable"] = schedule("durable", (24, "cut", 6))


@mutant(
    (Handoff, "finish_written"), scenes=("one host",), kinds={"crash": 1, "cut": 1}, among=FOUND
)
def who_recovers_trusts_a_commit_that_is_not_safe(
    self: Handoff, item: names.Item, name: str, made_for: Sequence[str] = ()
) -> tuple[str, ...]:
    """A driver dies between its commit and the sync of it. Who recovers publishes, durably; then a
    power cut takes the commit back, and the document is done again."""
    claim = Claim(item.docid, item.attempt, item.token, name)
    written, planned = self._planned(claim)
    finals = tuple(self._publish_for(item.token, one) for one in written)
    for index in {one.queue for one in written}:
        self.targets[index].directory.sync()
    self._finish(claim, planned)
    return finals


SCHEDULES["who recovers trusts a commit that is not safe"] = schedule(
    "one host", (48, "crash", 0), (75, "cut", 3)
)


@mutant((Handoff, "set_aside"), kinds={"lose": 3, "stale": 3}, among=FOUND)
def outputs_of_a_lost_claim_are_deleted(self: Handoff, outputs: Outputs) -> None:
    """The reply to a commit is lost, and then the committed name cannot be seen where it was looked
    for before. The claim seems to have been taken back; it was committed, and its outputs go."""
    outputs.discard()


SCHEDULES["outputs of a lost claim are deleted"] = schedule(
    "durable", (32, "switch", 0), (40, "lose", 0), (40, "stale", 0)
)


@mutant((Recoverer, "forget_ended"), kinds={"reboot": 1, "pause": 1}, among=FOUND)
def records_of_attempts_are_kept(self: Recoverer) -> None:
    """A document is taken back uncharged, and then done. Nothing in its name says that there is a
    record of the first attempt, and it stays for ever."""


SCHEDULES["records of attempts are kept"] = schedule("durable", (20, "reboot", 0))


@mutant((operator, "_from_discarded"), scenes=("given up",), kinds={"switch": 1}, among=FOUND)
def retry_removes_the_next_report(
    queue: Queue, docids: list[str], came: dict[str, Result]
) -> dict[str, str]:
    """A document that is to be tried again is given up again before `retry` has removed its report;
    and what it removes then is the new one."""
    moved = {}
    with suppress(FileNotFoundError):
        discarded = queue.directory.subdirectory(names.DISCARDED)
        for docid in docids:
            discarded.rename_new(docid, names.waiting_name(docid, 0), queue.directory)
            moved[docid] = "it was discarded"
            came[docid] = Result(docid, "done")
        queue.directory.sync()
        for docid in moved:
            discarded.remove(docid + names.REPORT)
    return moved


SCHEDULES["retry removes the next report"] = schedule("given up", (143, "switch", 0))
