"""What came of it all: each submission exactly once, and nothing left over."""

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from queuedriver.claims.attempts import parse
from queuedriver.format import names
from queuedriver.format.records import Record, Report
from queuedriver.format.settings import Settings
from tests.simulation.disk import Disk, Inode
from tests.simulation.scene import INPUT, ROOT, STUCK, Scene, Submission, entries, find
from tests.simulation.world import Process, Violation

_RETRIES = Settings().retries
# What the system said of a call may cost a claim: it is given back, and made again.
_COSTS_A_CLAIM = ("crash", "pause", "silence", "fail", "reboot", "cut", "stale")
# Each driver may find out for itself; while a disk is full, again and again.
_COSTS_SOME = {"turn": 2, "replace": 4, "away": 4, "fill": 40, "unwritten": 4}
# What will be asked of what has happened.
COUNTED = (*_COSTS_A_CLAIM, *_COSTS_SOME, "lose")
_PLANS = f"{names.PRIVATE}/claims"
_ATTEMPTS = f"{names.PRIVATE}/attempts"
# Three of these are charged like one crash: nobody knows whether the document is to blame. Who is
# silent, or stands still, may also lose what it claims afterwards, until it shows life again.
_STRIKES_ANY = ("silence", "pause")
_STRIKES_AT_HAND = ("reboot", "cut")
# What the directories are called that are, or were, the first output and the second.
_LABELS = {"out": "out", "today": "", "day": "out", "second": "second"}


class Ledger:
    """What is known of the submissions while a run lasts."""

    def __init__(self, submissions: Sequence[Submission]) -> None:
        self.submissions = list(submissions)
        # Whoever submitted these has not been told that it worked, nor that it did not.
        self.unsure: list[Submission] = []
        # How often each was claimed, and was processed, by its content.
        self.claims: Counter[bytes] = Counter()
        self.worked: Counter[bytes] = Counter()
        # How often somebody died with it in hand, by the kind of death.
        self.deaths: Counter[tuple[bytes, str]] = Counter()
        self._holders: dict[bytes, Process] = {}
        self._taken: Counter[bytes] = Counter()

    def claim(self, data: bytes, process: Process) -> None:
        """It was claimed by this process."""
        self.claims[data] += 1
        self._holders[data] = process

    def die(self, process: Process, kind: str, disk: Disk) -> None:
        """A process dies: what it has in hand may be to blame."""
        for name, inode in entries(find(disk, INPUT)).items():
            if name.endswith(".working") and self._holders.get(inode.data) is process:
                self.deaths[inode.data, kind] += 1

    def sure(self, submission: Submission) -> None:
        self.unsure.remove(submission)
        self.submissions.append(submission)

    def state(self) -> object:
        """What will be asked of it."""
        counts = tuple(
            tuple(sorted(one.items())) for one in (self.claims, self.worked, self._taken)
        )
        holders = tuple(sorted((data, one.pid) for data, one in self._holders.items()))
        return counts, holders, tuple(sorted(self.deaths.items())), tuple(self.unsure)

    def take(self, label: str, data: bytes) -> None:
        """An output was consumed."""
        self._taken[_labelled(label, data)] += 1

    def published(self, disk: Disk) -> Counter[bytes]:
        """All outputs that there were, by the queue and their content."""
        found = self._taken.copy()
        for _, label, directory in output_directories(disk):
            for name, inode in entries(directory).items():
                if name.endswith(f".{names.READY}"):
                    found[_labelled(label, inode.data)] += 1
        return found


def output_directories(disk: Disk) -> Iterator[tuple[str, str, Inode]]:
    """All that are outputs, or were: their names, which output each is, and the directories."""
    for name, inode in list(entries(find(disk, ROOT)).items()):
        stem = name.partition(".")[0].partition("-")[0]
        if (label := _LABELS.get(stem)) and inode.entries is not None:
            yield name, label, inode


def left_over(scene: Scene, disk: Disk, happened: Counter[str]) -> list[str]:
    """What nobody may leave behind, but for items that cannot be moved.

    `orphans/` is not looked at: what lies there was written under a claim that was taken back. Nor
    are hidden files that somebody began to write (`.aside-…`, all of `incoming/`), which a crash
    leaves for later drivers to sweep, or `queuedriver check` to name.
    """
    found = []
    for path in (INPUT, *scene.outputs):
        for name, inode in entries(find(disk, path)).items():
            item = names.parse(name)
            if inode.stuck and not (item is not None and item.claimed):
                continue
            if item is not None and (path == INPUT or item.state != names.READY):
                found.append(f"{path}/{name}")
    found += [f"attempts/{name}" for name, ended in _attempts(disk) if not ended]
    if not any(happened[kind] for kind in COUNTED):
        found += kept_for_a_week(disk)
    return found


def kept_for_a_week(disk: Disk) -> list[str]:
    """What may be left where something went wrong: the plan of a claim that was taken back, and the
    report of a document that was not discarded after all."""
    plans = [f"claims/{name}" for name in _inside(disk, _PLANS) if name[0] != "."]
    return plans + [f"attempts/{name}" for name, ended in _attempts(disk) if ended]


def _attempts(disk: Disk) -> list[tuple[str, bool]]:
    """What is remembered of attempts, and whether the document was to be discarded; but for
    documents that stay, as they cannot be moved."""
    noted = entries(find(disk, f"{INPUT}/{_ATTEMPTS}"))
    items = ((names.parse(name), inode) for name, inode in entries(find(disk, INPUT)).items())
    stay = {item.docid for item, inode in items if inode.stuck and item is not None}
    return [
        (name, msgspec.json.decode(inode.data, type=Record).discarded_at > 0)
        for name, inode in noted.items()
        if (file := parse(name)) is not None and file.docid not in stay
    ]


def reckon(disk: Disk, happened: Counter[str], ledger: Ledger) -> None:
    """A Violation unless each submission ended in one way, once."""
    published = ledger.published(disk)
    discarded = _discarded(disk, happened)
    for submission in ledger.submissions:
        if submission.kind in STUCK:
            _see_waiting(disk, submission)
        else:
            _settle(happened, ledger, submission, published, discarded)
    for submission in ledger.unsure:
        # What was never safe may be undone by a power cut, also when somebody had begun with it.
        came = [*submission.outputs(), submission.data]
        undone = happened["cut"] and not any(one in published or one in discarded for one in came)
        if submission.data in ledger.claims and not undone:
            _settle(happened, ledger, submission, published, discarded)
    if strange := [*(+published), *(+discarded)]:
        raise Violation(f"from nowhere: {strange}")


def _settle(
    happened: Counter[str],
    ledger: Ledger,
    submission: Submission,
    published: Counter[bytes],
    discarded: Counter[bytes],
) -> None:
    docid, data = submission
    wanted = submission.outputs()
    have = [published.pop(one, 0) for one in wanted]
    given_up = discarded.pop(data, 0)
    what = f"{docid}: published {have}, discarded {given_up}"
    if given_up > 1 or max(have, default=0) > 1 or (given_up and any(have)):
        raise Violation(f"twice: {what}")
    if not given_up and (0 in have or not (wanted or ledger.worked[data])):
        raise Violation(f"lost: {what}")
    if submission.kind in ("bad", "poison"):
        if not given_up:
            raise Violation(f"not given up: {what}")
        return
    if given_up:
        strikes = sum(ledger.deaths[data, kind] for kind in _STRIKES_AT_HAND)
        strikes += sum(happened[kind] for kind in _STRIKES_ANY)
        if ledger.deaths[data, "crash"] + strikes // 3 <= _RETRIES:
            raise Violation(f"charged without fault: {what}")
    tries = 1 + (submission.kind == "later") + lost_claims(happened)
    if ledger.claims[data] > tries:
        raise Violation(f"tried in vain: {docid} was claimed {ledger.claims[data]} times")


def lost_claims(happened: Counter[str]) -> int:
    """How many claims of one document may have been given up for what has happened. A lease that
    expires may be that of both drivers, of one after the other."""
    some = sum(happened[kind] * claims for kind, claims in _COSTS_SOME.items())
    return some + sum(happened[kind] * (2 if kind == "silence" else 1) for kind in _COSTS_A_CLAIM)


def _see_waiting(disk: Disk, submission: Submission) -> None:
    """A Violation unless an item that cannot be moved is where it was, for whoever mends that."""
    found = [name for name in entries(find(disk, INPUT)) if name.startswith(submission.docid)]
    if len(found) != 1 or found[0].endswith((".working", ".written")):
        raise Violation(f"not left in its place: {submission.docid}, but {found}")


def _discarded(disk: Disk, happened: Counter[str]) -> Counter[bytes]:
    """The contents of what was given up; each has its report beside it."""
    found: Counter[bytes] = Counter()
    aside = entries(find(disk, f"{INPUT}/{names.DISCARDED}"))
    for name, inode in aside.items():
        if name[0] == "." or name.endswith(names.REPORT):
            continue
        found[inode.data] += 1
        report = aside.get(name + names.REPORT)
        if report is None:
            raise Violation(f"no report: {name} was discarded, and nobody says why")
        told = msgspec.json.decode(report.data, type=Report).attempts
        charged = sorted({one.attempt for one in told if one.counted})
        # What is not seen is not told; of the scenes in which documents are discarded one is not
        # durable, and in the other somebody who retries may be killed when all is forgotten.
        retried = name.startswith("bad") and (happened["crash"] or happened["reboot"])
        safe = not (happened["stale"] or happened["cut"] or retried)
        if safe and charged != list(range(_RETRIES + 1)):
            raise Violation(f"{name} was discarded, and its report tells of {charged} alone")
    return found


def _labelled(label: str, data: bytes) -> bytes:
    return label.encode() + b":" + data


def _inside(disk: Disk, path: str) -> Sequence[str]:
    """The names in one of the directories that the input keeps."""
    return list(entries(find(disk, f"{INPUT}/{path}")))
