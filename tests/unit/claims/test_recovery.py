"""What dead drivers leave is finished or taken back, by anyone at any time; nothing else is."""

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from queuedriver.claims import handoff
from queuedriver.claims.attempts import attempts_of
from queuedriver.claims.leftovers import SWEEP_EVERY
from queuedriver.claims.liveness import CRASHED, EXPIRY, Observer, identify
from queuedriver.claims.recovery import Recoverer
from queuedriver.disk.filesystem import Directory
from queuedriver.disk.journal import Journal, read_events
from queuedriver.disk.processes import MARKER
from queuedriver.disk.runtime import EndedFor, note_crash, note_ending, runtime_directory
from queuedriver.format import names
from queuedriver.format.names import Mint
from queuedriver.format.records import LEASE, Attempt, Event, Identity, Plan, Registration
from queuedriver.format.settings import Settings

if TYPE_CHECKING:
    from tests.conftest import Bench

NOW = 1_700_000_060.0
SALT = "dead"
_mint = Mint("gone", SALT)


def token(driver: str = "gone", salt: str = SALT) -> str:
    serial = names.parse_token(_mint.next(1_700_000_000_000_000)).serial
    return f"{driver}-{serial:014x}{salt}"


@pytest.fixture(scope="module")
def nobody() -> Identity:
    """A process of this host that is no more."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    identity = identify(child.pid)
    child.communicate()
    return identity


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Site:
    """A queue, what is left in it, and who looks after it."""

    def __init__(self, bench: "Bench", **settings: Any) -> None:
        self.bench = bench
        self.clock = Clock()
        self.observer = Observer(self.clock)
        self.queue = bench.open(settings=Settings(**settings))
        self.drivers = bench.directory("in/.queuedriver/drivers")
        self.held: set[str] = set()
        self.recoverer = self.another()

    def another(self, queue: Directory | None = None, who: str = "d") -> Recoverer:
        """One more who recovers, at the same time."""
        self.journal = Journal(str(self.bench.root / "journal"), who, "alpha")
        self.journal.interval = 0.0
        settings, targets = self.queue.settings, self.queue.targets
        one = self.bench.open(settings=settings, targets=targets, directory=queue, driver=who)
        one.journal, one.at_hand = self.journal, self.held
        return Recoverer(one, self.observer, lambda: NOW)

    def register(self, identity: Identity, driver: str = "gone", **more: Any) -> Registration:
        plain = Registration(
            id=driver, salt=SALT, identity=identity, started_at=NOW, beat=1, beat_at=NOW
        )
        registration = msgspec.structs.replace(plain, **more)
        self.drivers.write_aside(f"{driver}.json", msgspec.json.encode(registration))
        return registration

    def claimed(self, docid: str = "doc", attempt: int = 0, token_: str = "") -> str:
        """A claim, with an output half written."""
        token_ = token_ or token()
        self.bench.put(f"in/{names.working_name(docid, attempt, token_)}", docid.encode())
        self.bench.put(f"out/{names.writing_name(docid, token_)}", b"half")
        return token_

    def committed(self, docid: str = "doc", attempt: int = 0, token_: str = "") -> str:
        token_ = token_ or token()
        self.bench.put(f"in/{names.written_name(docid, attempt, token_)}", docid.encode())
        self.bench.put(f"out/{names.writing_name(docid, token_)}", b"whole")
        return token_

    def attempts(self, docid: str = "doc") -> list[Attempt]:
        return list(attempts_of(self.queue.attempts.directory, docid))

    def events(self) -> list[Event]:
        self.journal.flush()
        return read_events(str(self.bench.root / "journal")).events

    def orphans(self) -> list[str]:
        path = self.bench.root / "out/.queuedriver/orphans"
        return sorted(os.listdir(path)) if path.exists() else []


def elsewhere(identity: Identity) -> Identity:
    return msgspec.structs.replace(identity, boot="another", machine="another", host="beta")


def test_hidden_file_among_the_registrations_is_no_driver(bench: "Bench") -> None:
    site = Site(bench)
    for name in ("h-1", ".h-2"):
        site.register(identify(os.getpid()), name)
    assert site.recoverer.drivers(anew=True) == {"h-1"}


# By cause


@pytest.mark.parametrize("last_word", ["", CRASHED])
def test_a_crash_is_charged(bench: "Bench", nobody: Identity, last_word: str) -> None:
    site = Site(bench)
    site.register(nobody, last_word=last_word)
    claim = site.claimed()
    assert site.recoverer.recover() == 1
    assert bench.ls() == ["doc.failed"]
    (attempt,) = site.attempts()
    assert (attempt.failure.cause, attempt.counted, attempt.token) == ("crashed", True, claim)
    assert (attempt.host, attempt.driver) == (nobody.host, "gone")
    assert attempt.claimed_at == names.parse_token(claim).claimed_at
    assert site.recoverer.recover() == 0


def test_the_second_crash_is_the_last(bench: "Bench", nobody: Identity) -> None:
    site = Site(bench)
    site.register(nobody)
    site.claimed()
    site.recoverer.recover()
    os.rename(bench.root / "in/doc.failed", bench.root / f"in/doc.failed.{token()}.working")
    assert site.another().recover() == 1
    assert bench.ls() == []
    report = bench.queue().report("doc")
    assert report is not None
    assert [one.failure.cause for one in report.attempts] == ["crashed", "crashed"]
    assert bench.read("in/discarded/doc") == b"doc"


@pytest.mark.parametrize("stacks", [b"", b"Timeout (0:00:40)!\nThread 1:\n  in process\n"])
def test_a_driver_that_its_hard_limit_ended_left_its_stacks(
    bench: "Bench", nobody: Identity, monkeypatch: pytest.MonkeyPatch, stacks: bytes
) -> None:
    # The directory is the environment's to say.
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(bench.root))
    dump = Path(runtime_directory()) / "x.stacks"
    dump.write_bytes(stacks)
    site = Site(bench)
    site.register(nobody, dump=str(dump))
    site.claimed()
    site.recoverer.recover()
    assert bench.ls() == ["doc.failed"]
    (attempt,) = site.attempts()
    assert attempt.failure.cause == ("hung" if stacks else "crashed")
    assert attempt.failure.stacks == (stacks.decode().strip() or None)
    # They are in the report now; for a crash there never were any.
    assert not dump.exists()


@pytest.mark.parametrize(
    ("cause", "left"), [("hung", "doc.failed"), ("memory", "doc.failed"), ("ended", "doc.ready")]
)
def test_a_driver_that_its_supervisor_ended_is_charged_by_the_reason(
    bench: "Bench",
    nobody: Identity,
    monkeypatch: pytest.MonkeyPatch,
    cause: EndedFor,
    left: str,
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(bench.root))
    dump = Path(runtime_directory()) / "x.stacks"
    dump.touch()
    note_ending(str(dump), cause, "so it was")
    site = Site(bench)
    site.register(nobody, dump=str(dump))
    site.claimed()
    site.recoverer.recover()
    assert bench.ls() == [left]
    (attempt,) = site.attempts()
    assert (attempt.failure.cause, attempt.failure.message) == (cause, "so it was")
    assert attempt.counted is (cause != "ended")


def test_report_of_a_document_whose_driver_ended_by_itself_names_the_signal(
    bench: "Bench", nobody: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(bench.root))
    dump = Path(runtime_directory()) / "x.stacks"
    dump.touch()
    note_crash(str(dump), None, "SIGSEGV")
    site = Site(bench)
    site.register(nobody, dump=str(dump))
    site.claimed()
    site.recoverer.recover()
    (attempt,) = site.attempts()
    assert (attempt.failure.cause, attempt.failure.signal) == ("crashed", "SIGSEGV")
    words = "the driver's process was ended by SIGSEGV while it had the document"
    assert attempt.failure.message == words
    assert attempt.counted


@pytest.mark.parametrize(
    "dump", ["/etc/passwd", "../x.stacks", "../../etc/passwd", "nowhere", "{root}/in/x.stacks"]
)
def test_a_registration_cannot_have_another_file_read_or_removed(
    bench: "Bench", nobody: Identity, monkeypatch: pytest.MonkeyPatch, dump: str
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(bench.root))
    bench.put("x.stacks", b"secret")
    site = Site(bench)
    site.register(nobody, dump=dump.format(root=bench.root))
    site.claimed()
    site.recoverer.recover()
    (attempt,) = site.attempts()
    assert (attempt.failure.cause, attempt.failure.stacks) == ("crashed", None)
    assert bench.read("x.stacks") == b"secret"


def test_a_host_that_went_down_is_not_the_documents_fault_twice(
    bench: "Bench", nobody: Identity
) -> None:
    site = Site(bench)
    site.register(msgspec.structs.replace(nobody, boot="before"))
    site.claimed()
    for strike in (1, 2):
        assert site.another().recover() == 1
        assert bench.ls() == ["doc.ready"]
        assert [one.counted for one in site.attempts()] == strike * [False]
        assert site.attempts()[0].failure.cause == "rebooted"
        # The same file again: strikes are a document's, not a docid's.
        claimed = names.working_name("doc", 0, token())
        (bench.root / "in/doc.ready").rename(bench.root / "in" / claimed)
    assert site.another().recover() == 1
    assert bench.ls() == ["doc.failed"]


@pytest.mark.parametrize("state", ["working", "written"])
def test_of_a_driver_that_processed_one_at_a_time_only_the_newest_claim_is_charged(
    bench: "Bench", nobody: Identity, state: str
) -> None:
    """The others it had finished and not synced, or could not give back."""
    site = Site(bench)
    site.register(nobody)
    site.claimed("innocent-1")
    site.claimed("innocent-2", attempt=1)
    site.claimed("newest") if state == "working" else site.committed("newest")
    site.recoverer.recover()
    newest = ["newest.failed"] if state == "working" else []
    assert bench.ls() == ["innocent-1.ready", "innocent-2.failed", *newest]
    assert site.attempts("innocent-1") == site.attempts("innocent-2") == []


def test_of_a_host_that_went_down_only_the_newest_claim_is_struck(
    bench: "Bench", nobody: Identity
) -> None:
    site = Site(bench)
    site.register(msgspec.structs.replace(nobody, boot="an earlier one"))
    for docid in ("innocent", "newest"):
        site.claimed(docid)
    site.recoverer.recover()
    assert bench.ls() == ["innocent.ready", "newest.ready"]
    assert [len(site.attempts(docid)) for docid in ("innocent", "newest")] == [0, 1]


def test_of_a_batch_any_may_have_ended_the_driver_and_all_are_charged(
    bench: "Bench", nobody: Identity
) -> None:
    site = Site(bench)
    site.register(nobody, batch=8)
    for docid in ("a", "b"):
        site.claimed(docid)
    site.recoverer.recover()
    assert bench.ls() == ["a.failed", "b.failed"]


def test_a_driver_of_another_host_is_lost_after_its_lease_and_not_before(
    bench: "Bench", nobody: Identity
) -> None:
    site = Site(bench)
    them = site.register(elsewhere(nobody), batch=8)
    site.claimed()
    site.committed("ended")
    before = bench.ls(), bench.ls("out")
    assert not site.recoverer.newly_dead()
    for later in (0.0, LEASE - 1):
        site.clock.now = later
        assert site.recoverer.recover() == 0
        assert (bench.ls(), bench.ls("out")) == before
    # Another beat, and its lease begins anew.
    site.register(elsewhere(nobody), beat=2, batch=8)
    assert site.recoverer.recover() == 0
    site.clock.now += LEASE - 1
    assert site.recoverer.recover() == 0
    site.clock.now += 1
    assert site.recoverer.newly_dead()
    assert site.recoverer.recover() == 2
    assert bench.ls() == ["doc.ready"]
    assert bench.ls("out") == ["ended.ready"]
    (attempt,) = site.attempts()
    assert (attempt.failure.cause, attempt.counted, attempt.host) == (
        "lost",
        False,
        them.identity.host,
    )


def test_what_a_driver_left_that_said_goodbye_is_given_back_for_nothing(
    bench: "Bench", nobody: Identity
) -> None:
    site = Site(bench)
    site.register(nobody, last_word="quit")
    site.claimed("a")
    site.claimed("b", attempt=1)
    assert site.recoverer.recover() == 2
    assert bench.ls() == ["a.ready", "b.failed"]
    assert site.attempts("a") == site.attempts("b") == []


def test_a_living_driver_is_left_alone(bench: "Bench") -> None:
    site = Site(bench)
    site.register(identify(os.getpid()))
    site.claimed()
    site.committed("ended")
    before = bench.ls(), bench.ls("out")
    site.clock.now = 100 * LEASE
    assert not site.recoverer.newly_dead()
    assert site.recoverer.recover() == 0
    assert (bench.ls(), bench.ls("out")) == before


def test_what_an_earlier_life_of_an_id_left_is_taken_back(bench: "Bench") -> None:
    site = Site(bench)
    site.register(identify(os.getpid()), past=("0001", "0002"))
    site.claimed("old", token_=token(salt="0002"))
    site.claimed("now")
    now = [name for name in bench.ls() if name.startswith("now.")]
    assert site.recoverer.recover() == 1
    assert bench.ls() == [*now, "old.ready"]
    assert [one.counted for one in site.attempts("old")] == [False]


def test_a_life_that_began_after_we_read_of_it_is_left_alone(
    bench: "Bench", nobody: Identity
) -> None:
    # We read the registration of the last life, which is dead; the next has claimed since.
    site = Site(bench)
    site.register(nobody)
    site.claimed(token_=token(salt="ffff"))
    before = bench.ls(), bench.ls("out")
    site.recoverer.recover()
    assert (bench.ls(), bench.ls("out")) == before


# Committed


@pytest.mark.parametrize("attempt", [0, 1])
def test_what_was_committed_is_published_and_finished(
    bench: "Bench", nobody: Identity, attempt: int
) -> None:
    site = Site(bench)
    site.register(nobody)
    site.committed(attempt=attempt)
    assert site.recoverer.recover() == 1
    assert bench.ls() == []
    assert bench.ls("out") == ["doc.ready"]
    assert bench.read("out/doc.ready") == b"whole"
    assert site.attempts() == []
    assert [event.event for event in site.events()] == ["recovered"]


def test_what_was_committed_is_not_held_up_by_what_was_not(
    bench: "Bench", nobody: Identity
) -> None:
    site = Site(bench)
    site.register(nobody, batch=8)
    for number in range(20):
        site.claimed(f"a{number}")
        site.committed(f"b{number}")
    assert site.recoverer.recover() == 40
    assert bench.ls() == sorted(f"a{number}.failed" for number in range(20))
    assert bench.ls("out") == sorted(f"b{number}.ready" for number in range(20))


# Our own


def test_a_claim_of_ours_that_we_do_not_hold_was_lost_track_of(bench: "Bench") -> None:
    site = Site(bench)
    site.register(identify(os.getpid()), "d", salt="5a17")
    lost, held = token("d", "5a17"), token("d", "5a17")
    site.claimed("lost", token_=lost)
    site.claimed("held", token_=held)
    site.committed("ended", token_=token("d", "5a17"))
    site.held.add(held)
    assert site.recoverer.recover() == 2
    assert bench.ls() == [f"held.{held}.working", "lost.ready"]
    assert site.attempts("lost") == []
    assert bench.ls("out") == ["ended.ready", f"held.{held}.writing"]


def test_claims_that_are_gone_by_now_are_no_trouble(bench: "Bench", nobody: Identity) -> None:
    site = Site(bench)
    site.register(nobody)
    bench.put("in/a.ready")
    site.recoverer.recover([f"a.{token()}.working", f"b.{token()}.written"])
    assert bench.ls() == ["a.ready"]
    assert bench.ls("out") == []
    assert bench.queue().discarded() == []


# Who never registered


@pytest.mark.parametrize("who", ["7", "shell-0605d3a1f2b0c05a17", "1700000000123456789"])
def test_who_never_registered_shows_life_by_touching_its_file(bench: "Bench", who: str) -> None:
    site = Site(bench)
    path = bench.put(f"in/doc.{who}.working")
    for turn in range(4):
        assert site.recoverer.recover() == 0
        site.clock.now += LEASE - 1
        # Its own clock may say what it likes.
        os.utime(path, ns=(turn * 1000, turn * 1000))
    assert site.recoverer.recover() == 0
    site.clock.now += LEASE - 1
    assert site.recoverer.recover() == 0
    site.clock.now += 1
    assert site.recoverer.recover() == 1
    assert bench.ls() == ["doc.ready"]
    assert [one.failure.cause for one in site.attempts()] == ["lost"]


def test_a_bare_number_is_not_the_driver_that_has_it_for_its_id(
    bench: "Bench", nobody: Identity
) -> None:
    site = Site(bench)
    site.register(nobody, "7")
    bench.put("in/doc.7.working")
    site.recoverer.recover()
    assert bench.ls() == ["doc.7.working"]


def test_what_an_unknown_driver_was_writing_is_set_aside_with_its_claim(bench: "Bench") -> None:
    site = Site(bench)
    theirs = site.claimed(token_="7")
    site.claimed("other", token_="8")
    site.recoverer.recover()
    site.clock.now = LEASE / 2
    os.utime(bench.root / "in/other.8.working", ns=(1, 1))
    site.recoverer.recover()
    site.clock.now = LEASE
    assert site.recoverer.recover() == 1
    assert bench.ls() == ["doc.ready", "other.8.working"]
    assert bench.ls("out") == ["other.8.writing"]
    assert site.orphans() == [f"doc.{theirs}.writing"]


# Sweeping


def test_what_a_dead_driver_was_writing_is_set_aside_and_never_deleted(
    bench: "Bench", nobody: Identity
) -> None:
    site = Site(bench)
    site.register(nobody, past=("0001",))
    claim = site.claimed()
    # Left by a crash before the claim was recovered, and by a life before.
    lone, older = token(), token(salt="0001")
    bench.put(f"out/lone.{lone}.writing.xml", b"lone")
    bench.put(f"out/older.{older}.writing", b"older")
    site.recoverer.recover()
    assert bench.ls("out") == []
    assert site.orphans() == sorted(
        [f"doc.{claim}.writing", f"lone.{lone}.writing.xml", f"older.{older}.writing"]
    )
    assert bench.read(f"out/.queuedriver/orphans/lone.{lone}.writing.xml") == b"lone"


def test_nothing_else_is_set_aside(bench: "Bench", nobody: Identity) -> None:
    site = Site(bench)
    site.register(nobody)
    site.register(identify(os.getpid()), "alive", salt="a11e")
    kept = [
        f"a.{token('alive', 'a11e')}.writing",
        f"b.{token('unknown')}.writing",
        f"c.{token(salt='ffff')}.writing",
        "d.7.writing",
        "e.ready",
        "f.failed",
        f"g.{token()}.working",
        "scan.pdf",
        f"h.{token()}.writing.ready",
    ]
    for name in kept:
        bench.put(f"out/{name}")
    site.recoverer.recover()
    assert bench.ls("out") == sorted(kept)
    assert site.orphans() == []


class Blind(Directory):
    """A directory whose first listings miss what is being renamed at that moment."""

    # How many: that of the claims, and the first of the two that tell what is held.
    listings = 2

    def names(self) -> Iterator[str]:
        self.listings -= 1
        for name in super().names():
            if self.listings < 0 or not name.endswith((".working", ".written")):
                yield name


@pytest.mark.parametrize("state", ["working", "written"])
@pytest.mark.parametrize("attempt", [0, 1])
def test_an_output_whose_claim_a_listing_missed_is_not_set_aside(
    bench: "Bench", nobody: Identity, state: str, attempt: int
) -> None:
    site = Site(bench)
    site.register(nobody)
    if state == "working":
        site.claimed(attempt=attempt)
    else:
        site.committed(attempt=attempt)
    before = bench.ls(), bench.ls("out")
    queue = Blind.open(bench.root / "in")
    assert site.another(queue).recover() == 0
    assert (bench.ls(), bench.ls("out")) == before
    assert site.orphans() == []
    assert site.another(queue).recover() == 1
    assert bench.ls("out") == (["doc.ready"] if state == "written" else [])
    queue.close()


class Renamed(Directory):
    """A queue whose first listing misses all that is in it: it is being renamed."""

    listed = 0

    def names(self) -> Iterator[str]:
        self.listed += os.path.basename(self.path) == "in"
        return super().names() if self.listed != 1 else iter(())


def test_records_of_a_document_that_a_listing_missed_are_kept(
    bench: "Bench", nobody: Identity
) -> None:
    site = Site(bench)
    site.register(nobody, batch=8)
    site.claimed("here")
    site.claimed("gone")
    site.recoverer.recover()
    (bench.root / "in/gone.failed").unlink()
    queue = Renamed.open(bench.root / "in")
    site.another(queue).forget_ended()
    queue.close()
    assert [one.attempt for one in site.attempts("here")] == [0]
    assert site.attempts("gone") == []


def test_committed_work_that_was_set_aside_by_mistake_is_published(
    bench: "Bench", nobody: Identity
) -> None:
    site = Site(bench)
    site.register(nobody)
    claim = site.committed()
    writing = f"doc.{claim}.writing"
    os.replace(bench.root / "out" / writing, bench.put(f"out/.queuedriver/orphans/{writing}", b""))
    assert site.recoverer.recover() == 1
    assert bench.ls("out") == ["doc.ready"]
    assert bench.read("out/doc.ready") == b"whole"
    assert site.orphans() == []


def test_a_driver_that_was_given_up_wrongly_and_dies_later_is_swept_again(
    bench: "Bench", nobody: Identity
) -> None:
    site = Site(bench)
    site.register(elsewhere(nobody))
    site.recoverer.recover()
    site.clock.now = LEASE
    assert site.recoverer.newly_dead()
    site.recoverer.recover()
    assert not site.recoverer.newly_dead()
    # It was but slow.
    site.register(elsewhere(nobody), beat=2)
    site.recoverer.recover()
    bench.put(f"out/doc.{token()}.writing")
    site.clock.now = 2 * LEASE
    assert site.recoverer.newly_dead()
    site.recoverer.recover()
    assert bench.ls("out") == []


@pytest.mark.parametrize(("age", "kept"), [(EXPIRY - 60, True), (EXPIRY + 60, False)])
def test_a_dead_registration_is_kept_for_a_day(
    bench: "Bench", nobody: Identity, age: float, kept: bool
) -> None:
    site = Site(bench)
    site.register(nobody, beat_at=NOW - age)
    site.recoverer.recover()
    assert (bench.root / "in/.queuedriver/drivers/gone.json").exists() is kept


def test_registrations_of_hosts_that_vanished_are_removed_by_the_first_who_starts(
    bench: "Bench", nobody: Identity
) -> None:
    site = Site(bench)
    drivers = bench.root / "in/.queuedriver/drivers"
    for number in range(20):
        site.register(elsewhere(nobody), f"gone-{number}", beat_at=NOW - 2 * EXPIRY)
        os.utime(drivers / f"gone-{number}.json", (NOW - 2 * EXPIRY,) * 2)
    bench.put(f"out/doc.{token('gone-3')}.writing")
    # The one that starts says that it is there; it does not wait for the lease of the others.
    site.register(identify(os.getpid()), "d", salt="5a17")
    os.utime(drivers, (NOW, NOW))
    site.recoverer.recover()
    # What was still of one of them is looked after first, and its registration remains for that.
    assert bench.ls("in/.queuedriver/drivers") == ["d.json", "gone-3.json"]
    assert bench.ls("out") == []


# Children


@pytest.mark.parametrize("same_host", [True, False])
def test_only_on_its_own_host_are_the_children_of_a_dead_driver_ended(
    bench: "Bench", nobody: Identity, same_host: bool
) -> None:
    salt = f"{os.getpid() % 65536:04x}"
    child = subprocess.Popen(
        [sys.executable, "-c", "input()"],
        stdin=subprocess.PIPE,
        env={**os.environ, MARKER: f"children-{salt}"},
        start_new_session=True,
    )
    try:
        site = Site(bench)
        identity = nobody if same_host else elsewhere(nobody)
        site.register(identity, "children", salt=salt)
        site.claimed(token_=token("children", salt))
        site.recoverer.recover()
        site.clock.now = LEASE
        assert site.recoverer.recover() == (0 if same_host else 1)
        if same_host:
            assert child.wait() == -9
        else:
            assert child.poll() is None
    finally:
        child.kill()
        child.wait()
        if child.stdin:
            child.stdin.close()


# What nobody can make sense of


def test_an_item_that_cannot_be_recovered_keeps_nobody_from_the_others(
    bench: "Bench", nobody: Identity
) -> None:
    site = Site(bench)
    site.register(nobody, batch=8)
    (bench.root / f"in/a.{token()}.written").mkdir()
    torn = site.committed("b")
    bench.put(f"in/.queuedriver/claims/{torn}.json", b"{")
    forged = site.committed("c")
    plan = Plan(((0, "../in/z.ready", "z.ready"),))
    bench.put(f"in/.queuedriver/claims/{forged}.json", msgspec.json.encode(plan))
    bench.put("in/z.ready")
    site.claimed("x")
    site.committed("y")
    for _ in range(3):
        site.recoverer.recover()
    assert [name[:2] for name in bench.ls()] == ["a.", "b.", "c.", "x.", "z."]
    assert "x.failed" in bench.ls()
    assert "y.ready" in bench.ls("out")
    stuck = [event for event in site.events() if event.event == "stuck"]
    # Once each, however often it is seen.
    assert sorted(event.docid for event in stuck) == ["a", "b", "c"]
    assert all(event.message and "cannot be recovered" in event.message for event in stuck)


# Many at once


@pytest.mark.parametrize("retries", [0, 1])
def test_any_number_may_recover_at_once(bench: "Bench", nobody: Identity, retries: int) -> None:
    site = Site(bench, retries=retries)
    site.register(nobody, batch=8)
    docids = [f"doc{number}" for number in range(15)]
    for docid in docids:
        site.claimed(docid)
        site.committed(f"done-{docid}")
    recoverers = [site.another(who=f"r{number}") for number in range(4)]
    start = threading.Barrier(4)
    failures: list[BaseException] = []

    def recover(recoverer: Recoverer) -> None:
        try:
            start.wait()
            recoverer.recover()
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failures.append(error)

    threads = [threading.Thread(target=recover, args=(one,)) for one in recoverers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert bench.ls("out") == sorted(f"done-{docid}.ready" for docid in docids)
    if retries:
        assert bench.ls() == sorted(f"{docid}.failed" for docid in docids)
        assert all(len(site.attempts(docid)) == 1 for docid in docids)
    else:
        assert bench.ls() == []
        queue = bench.queue()
        assert queue.discarded() == sorted(docids)
        for docid in docids:
            report = queue.report(docid)
            assert report is not None
            assert len(report.attempts) == 1
        # And nothing is left hidden.
        listed = os.listdir(bench.root / "in/discarded")
        assert len(listed) == 2 * len(docids)


def test_a_driver_taken_for_dead_finds_its_claim_gone_and_harms_nobody(
    bench: "Bench", nobody: Identity
) -> None:
    site = Site(bench)
    site.register(elsewhere(nobody))
    claim = bench.claim(site.queue, token=token())
    fd = claim.outputs.open_reserved()
    site.recoverer.recover()
    site.clock.now = LEASE
    assert site.recoverer.recover() == 1
    assert bench.ls() == ["doc.ready"]
    # Another has it, while the first wakes up.
    second = bench.claim(site.queue)
    os.write(fd, b"late")
    os.close(fd)
    handoff.complete(site.queue, [claim])
    assert claim.fate == "revoked"
    assert bench.ls() == [second.name]
    assert bench.ls("out") == []


def test_time_that_a_recoverer_spends_is_no_time_of_the_lease(bench: "Bench") -> None:
    """A listing seen long ago is no proof that a driver has been silent since."""
    site = Site(bench)
    path = bench.put("in/doc.7.working")
    site.recoverer.recover()
    site.clock.now = 10 * LEASE
    # It was seen but once in all this time; and has been touched.
    os.utime(path, ns=(5, 5))
    assert site.recoverer.recover() == 0


def test_recovering_an_empty_queue_is_quick_and_changes_nothing(
    bench: "Bench", nobody: Identity
) -> None:
    site = Site(bench)
    site.register(nobody)
    began_at = time.monotonic()
    assert site.recoverer.recover() == 0
    assert time.monotonic() - began_at < 5.0
    shutil.rmtree(bench.root / "journal", ignore_errors=True)
    assert bench.ls() == bench.ls("out") == []


def test_a_driver_that_runs_for_months_sweeps_what_others_left_now_and_then(
    bench: "Bench", monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(bench)
    now = NOW
    monkeypatch.setattr(site.recoverer, "_clock", lambda: now)
    scrap = bench.put("in/.aside-4711-0-abcdef12")
    os.utime(scrap, (0, 0))
    site.recoverer.recover()
    assert scrap.exists()
    now += SWEEP_EVERY
    site.recoverer.recover()
    assert not scrap.exists()
