"""The check: each rule is broken, named, repaired without losing anything, and then at peace."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from queuedriver.check.check import Repair, check, repair
from queuedriver.check.files import Finding
from queuedriver.check.rules import MENDS
from queuedriver.claims.leftovers import DAY, HOUR, WEEK
from queuedriver.claims.liveness import Observer, host_id
from queuedriver.disk.filesystem import Directory
from queuedriver.format import names
from queuedriver.format.records import (
    Attempt,
    Failure,
    Plan,
    Record,
    Registration,
    Report,
    encode_report,
)
from queuedriver.format.settings import Settings, save
from queuedriver.operating.queue import Queue
from tests.disks import Disk
from tests.openings import open_queue

SALT = "5a17"
# What a user would miss.
PRECIOUS = b"precious "


class Place:
    """A queue that is well, with an output; and ways to break it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.queue = Queue.open(root / "in", create=True)
        (root / "out").mkdir()
        save(self.queue.private, Settings(outputs=("../out",)))
        open_queue(self.queue, ()).close()
        self.later = 0.0
        self.put("in/waits.ready")
        self._mint = names.Mint("h-1", SALT)

    def clock(self) -> float:
        return time.time() + self.later

    def put(self, path: str, data: bytes | None = None) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(PRECIOUS + path.encode() if data is None else data)
        return file

    def inside(self, path: str) -> str:
        return f"in/.queuedriver/{path}"

    def token(self) -> str:
        return self._mint.next(time.time_ns() // 1000)

    def register(self, *, alive: bool = False, beat_ago: float = HOUR, **more: object) -> None:
        """A driver of this host: our own process, or one that is gone."""
        me = Observer().me
        usual: dict[str, object] = {
            "id": "h-1",
            "salt": SALT,
            "identity": me if alive else msgspec.structs.replace(me, ticks=1),
            "started_at": 0.0,
            "beat_at": time.time() - beat_ago,
        }
        registration = Registration(**{**usual, **more})  # type: ignore[arg-type]
        self.put(self.inside(f"drivers/{registration.id}.json"), msgspec.json.encode(registration))

    def check(self) -> list[Finding]:
        return check(self.queue, clock=self.clock, pause=0.0)

    def repair(self) -> Repair:
        return repair(self.queue, clock=self.clock, pause=0.0)

    def broken(self) -> set[str]:
        return {one.rule for one in self.check()}

    def tree(self) -> dict[str, bytes | str]:
        """Every name, and what is in it."""
        found: dict[str, bytes | str] = {}
        for directory, inner, files in os.walk(self.root):
            for name in inner + files:
                path = os.path.join(directory, name)
                relative = os.path.relpath(path, self.root)
                if os.path.isfile(path) and not os.path.islink(path):
                    found[relative] = Path(path).read_bytes()
                else:
                    found[relative] = "no file"
        return found

    def treasure(self) -> set[bytes]:
        kept = self.tree().values()
        return {one for one in kept if isinstance(one, bytes) and one.startswith(PRECIOUS)}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.queue.close()


def report(docid: str, token: str = "") -> bytes:
    failure = Failure(cause="exception", message="no good")
    return encode_report(
        Report(
            docid=docid,
            queue="in",
            discarded_at=1.0,
            driver="h-1",
            host="h",
            failure=failure,
            attempts=(attempt(docid, token),) if token else (),
        )
    )


def attempt(docid: str, token: str) -> Attempt:
    return Attempt(
        docid=docid,
        token=token,
        attempt=0,
        driver="h-1",
        host="h",
        claimed_at=1.0,
        ended_at=2.0,
        counted=True,
        failure=Failure(cause="exit", message="exit code 3"),
    )


def process_that_ended() -> int:
    ran = subprocess.Popen([sys.executable, "-c", ""])
    ran.wait()
    return ran.pid


# Ways to break each rule that can be repaired

Break = Callable[[Place], None]


def file_as_discarded(place: Place) -> None:
    (place.root / "in/discarded").rmdir()
    place.put("in/discarded")


def file_as_private(place: Place) -> None:
    (place.root / "in/.queuedriver").rename(place.root / "old")
    place.put("in/.queuedriver")


def file_as_private_part(place: Place) -> None:
    (place.root / place.inside("attempts")).rmdir()
    place.put(place.inside("attempts"))


def dangling_discarded(place: Place) -> None:
    (place.root / "in/discarded").rmdir()
    (place.root / "in/discarded").symlink_to("nowhere")


def damaged_settings(place: Place) -> None:
    place.put(place.inside("settings.json"), b"{")


def missing_output(place: Place) -> None:
    (place.root / "out").rmdir()


def missing_archive(place: Place) -> None:
    save(place.queue.private, Settings(outputs=("../out",), archive="../kept"))


def dead_claim(place: Place) -> None:
    place.register()
    place.put(f"in/doc.{place.token()}.working")


def claim_left_by_a_driver_that_said_goodbye(place: Place) -> None:
    place.register(last_word="quit")
    place.put(f"in/doc.{place.token()}.working")


def committed_claim(place: Place) -> None:
    place.register()
    token = place.token()
    # Its output is what is precious from now on.
    place.put(f"in/doc.{token}.written", b"")
    place.put(f"out/doc.{token}.writing")


def committed_claim_with_a_plan(place: Place) -> None:
    place.register()
    token = place.token()
    place.put(f"in/doc.{token}.written", b"")
    place.put(f"out/part.{token}.writing.xml")
    plan = Plan(((0, f"part.{token}.writing.xml", "part.ready"),))
    place.put(place.inside(f"claims/{token}.json"), msgspec.json.encode(plan))


def damaged_plan(place: Place) -> None:
    place.register()
    token = place.token()
    place.put(f"in/doc.{token}.written", b"")
    place.put(f"out/part 1.{token}.writing")
    place.put(f"out/.queuedriver/orphans/part 2.{token}.writing.xml")
    place.put(place.inside(f"claims/{token}.json"), b"")


def stale_claim(place: Place) -> None:
    place.put("in/doc.7.working")
    place.later = 2 * 3600.0


def stale_claim_of_a_full_token(place: Place) -> None:
    place.put(f"in/doc.{place.token()}.working")
    place.later = 2 * 3600.0


def unfinished_output(place: Place) -> None:
    place.register()
    place.put(f"out/doc.{place.token()}.writing")


def strange_output(place: Place) -> None:
    place.put(f"in/doc.{place.token()}.writing.xml")
    place.later = 2 * DAY


def leftover_plan(place: Place) -> None:
    place.register(last_word="drained")
    plan = msgspec.json.encode(Plan(()))
    place.put(place.inside(f"claims/{place.token()}.json"), plan)
    place.later = WEEK + 60


def leftover_plan_of_a_stranger(place: Place) -> None:
    place.put(place.inside("claims/7.json"), msgspec.json.encode(Plan(())))
    place.later = WEEK + 60


def inode_of(place: Place, path: str) -> int:
    return (place.root / path).stat().st_ino


def noted(place: Place, docid: str, token: str, inode: int) -> None:
    """What is remembered of a document that is not to be discarded."""
    record = Record(docid, (attempt(docid, token),))
    place.put(place.inside(f"attempts/{docid}.{inode}.1.json"), encode_report(record))


def interrupted_discard(place: Place) -> None:
    place.register()
    place.put("in/discarded/doc")
    inode = inode_of(place, "in/discarded/doc")
    place.put(place.inside(f"attempts/doc.{inode}.1.json"), report("doc", place.token()))


def interrupted_discard_of_a_second(place: Place) -> None:
    place.register()
    token = place.token()
    place.put("in/discarded/doc")
    place.put("in/discarded/doc.report.json", report("doc"))
    second = f"in/discarded/{names.second_docid('doc', token)}"
    place.put(second)
    inode = inode_of(place, second)
    place.put(place.inside(f"attempts/doc.{inode}.1.json"), report("doc", token))


def report_of_a_discard_that_was_not(place: Place) -> None:
    place.put(place.inside("attempts/doc.7.1.json"), report("doc", place.token()))
    place.later = WEEK + 60


def damaged_report(place: Place) -> None:
    place.put("in/discarded/doc")
    place.put("in/discarded/doc.report.json")


def no_report(place: Place) -> None:
    place.put("in/discarded/doc")


def no_report_but_attempts(place: Place) -> None:
    place.put("in/discarded/doc")
    noted(place, "doc", place.token(), 7)


def lone_report(place: Place) -> None:
    place.put("in/discarded/doc.report.json", report("doc"))


def leftover_attempt(place: Place) -> None:
    noted(place, "gone", place.token(), 7)
    place.later = WEEK + 60


def submitter_elsewhere_long_ago(place: Place) -> None:
    place.put(place.inside("incoming/elsewhere-1-1-0a1b2c3d"))
    place.later = 2 * DAY


def scrap_of_a_record(place: Place) -> None:
    place.put(place.inside("drivers/.aside-1-0-0a1b2c3d"), b"")
    place.later = DAY + 60


def scraps_of_probes(place: Place) -> None:
    for where in ("in", "in/.queuedriver", "out"):
        place.put(f"{where}/.probe-1", b"")
    place.later = DAY + 60


def old_orphan(place: Place) -> None:
    place.put(place.inside(f"orphans/doc.{place.token()}.writing"), b"")
    place.later = WEEK + 60


def damaged_registration(place: Place) -> None:
    place.put(place.inside("drivers/h-2.json"), b"{}")


def registration_of_another(place: Place) -> None:
    place.register(id="h-3", last_word="quit", beat_ago=1.0)
    os.rename(
        place.root / place.inside("drivers/h-3.json"), place.root / place.inside("drivers/x.json")
    )


def old_registration(place: Place) -> None:
    place.register(beat_ago=WEEK + 60)


def damaged_feed(place: Place) -> None:
    place.put(place.inside("feeds/00000000.json"), b"[")


def missing_feed(place: Place) -> None:
    place.queue.add_feed(str(place.root / "before"))


def symlink_as_item(place: Place) -> None:
    (place.root / "in/link.ready").symlink_to("/etc/hostname")


def directory_as_item(place: Place) -> None:
    place.put("in/dir.failed/inner")


def fifo_as_item(place: Place) -> None:
    os.mkfifo(place.root / "in/fifo.1.later")


def directory_of_an_ended_job(place: Place) -> None:
    place.put(place.inside("jobs/night.7-1/outcomes.1a2b"), b"1 done\n")


REPAIRED: list[tuple[str, Break]] = [
    ("wrong-type", file_as_discarded),
    ("wrong-type", file_as_private),
    ("wrong-type", file_as_private_part),
    ("wrong-type", dangling_discarded),
    ("settings", damaged_settings),
    ("missing-directory", missing_output),
    ("missing-directory", missing_archive),
    ("damaged-registration", damaged_registration),
    ("damaged-registration", registration_of_another),
    ("damaged-plan", damaged_plan),
    ("dead-claim", dead_claim),
    ("dead-claim", claim_left_by_a_driver_that_said_goodbye),
    ("dead-claim", committed_claim),
    ("dead-claim", committed_claim_with_a_plan),
    ("stale-claim", stale_claim),
    ("stale-claim", stale_claim_of_a_full_token),
    ("unfinished-output", unfinished_output),
    ("late-output", strange_output),
    ("leftover-plan", leftover_plan),
    ("leftover-plan", leftover_plan_of_a_stranger),
    ("interrupted-discard", interrupted_discard),
    ("interrupted-discard", interrupted_discard_of_a_second),
    ("leftover-attempt", report_of_a_discard_that_was_not),
    ("damaged-report", damaged_report),
    ("no-report", no_report),
    ("no-report", no_report_but_attempts),
    ("lone-report", lone_report),
    ("leftover-attempt", leftover_attempt),
    ("leftover-incoming", submitter_elsewhere_long_ago),
    ("ended-job", directory_of_an_ended_job),
    ("scrap", scrap_of_a_record),
    ("scrap", scraps_of_probes),
    ("old-orphan", old_orphan),
    ("old-registration", old_registration),
    ("damaged-feed", damaged_feed),
    ("missing-feed", missing_feed),
    ("not-a-file", symlink_as_item),
    ("not-a-file", directory_as_item),
    ("not-a-file", fifo_as_item),
]


@pytest.mark.parametrize(
    ("rule", "break_it"), [pytest.param(*case, id=case[1].__name__) for case in REPAIRED]
)
def test_broken_rule_is_named_repaired_without_loss_and_then_at_peace(
    place: Place, rule: str, break_it: Break
) -> None:
    break_it(place)
    before = place.tree()
    treasure = place.treasure()

    assert rule in place.broken()
    assert place.tree() == before, "a check changes nothing"

    mended, left = place.repair()
    assert rule in {one.rule for one in mended}
    assert not left
    assert not place.broken()
    assert place.treasure() == treasure, "whatever was precious is still somewhere"


def test_every_rule_that_can_be_repaired_is_among_these_cases() -> None:
    # This one has tests of its own below.
    assert {rule for rule, _ in REPAIRED} == MENDS.keys() - {"output-missing"}


def test_queue_that_is_well_has_no_findings(place: Place) -> None:
    place.register(alive=True, beat_ago=1.0)
    token = place.token()
    place.put(f"in/doc.failed.{token}.working")
    place.put(f"out/doc.{token}.writing")
    place.put(place.inside(f"claims/{token}.json"), msgspec.json.encode(Plan(())))
    noted(place, "doc", token, inode_of(place, f"in/doc.failed.{token}.working"))
    place.put("in/discarded/bad")
    place.put("in/discarded/bad.report.json", report("bad"))
    # Its document is not seen in `discarded/`, which proves nothing for a week.
    place.put(place.inside("attempts/gone.7.1.json"), report("gone", token))
    place.put(place.inside(f"incoming/{host_id()}-{os.getpid()}-1-0a1b2c3d"))
    place.put(place.inside("incoming/elsewhere-1-1-0a1b2c3d"))
    place.put(place.inside(f"orphans/x.{token}.writing"))
    place.put("in/young.7.working")
    assert place.check() == []


def test_empty_directory_is_a_queue_that_is_well_and_stays_as_it_is(tmp_path: Path) -> None:
    with Queue.open(tmp_path) as queue:
        assert check(queue) == []
    assert os.listdir(tmp_path) == []


# What becomes of what is repaired


def test_dead_claim_is_charged_and_its_unfinished_output_kept_aside(place: Place) -> None:
    place.register()
    token = place.token()
    place.put(f"in/doc.{token}.working")
    place.put(f"out/doc.{token}.writing")
    place.repair()
    tree = place.tree()
    assert "in/doc.failed" in tree
    assert f"out/.queuedriver/orphans/doc.{token}.writing" in tree


def test_committed_claim_is_published_and_finished(place: Place) -> None:
    committed_claim(place)
    place.repair()
    assert sorted(os.listdir(place.root / "out")) == ["doc.ready"]
    assert not [name for name in os.listdir(place.root / "in") if name.startswith("doc")]


def test_outputs_of_a_damaged_plan_are_all_published(place: Place) -> None:
    damaged_plan(place)
    place.repair()
    published = [name for name in os.listdir(place.root / "out") if name[0] != "."]
    assert sorted(published) == ["part 1.ready", "part 2.ready"]
    assert os.listdir(place.root / place.inside("claims")) == []


def test_interrupted_discard_gets_its_own_report(place: Place) -> None:
    interrupted_discard_of_a_second(place)
    place.repair()
    found = [name for name in os.listdir(place.root / "in/discarded") if "~" in name]
    assert len(found) == 2
    assert max(found).endswith(".report.json")
    assert os.listdir(place.root / place.inside("attempts")) == []


def test_driver_of_another_host_that_shows_no_life_has_fallen_silent(place: Place) -> None:
    there = msgspec.structs.replace(Observer().me, machine="m2", boot="b2", host="far")
    place.register(identity=there, beat_ago=WEEK)
    registration = place.root / place.inside("drivers/h-1.json")
    os.utime(registration, (0, 0))
    (found,) = place.check()
    assert found.rule == "old-registration"
    assert found.message == "h-1 fell silent 7 d ago"


def test_report_that_a_check_writes_tells_what_the_attempts_tell(place: Place) -> None:
    no_report_but_attempts(place)
    place.repair()
    found = place.queue.report("doc")
    assert found is not None
    assert found.failure == Failure(cause="exit", message="exit code 3")
    assert len(found.attempts) == 1


def test_item_that_is_no_file_is_discarded_with_a_report(place: Place) -> None:
    symlink_as_item(place)
    place.repair()
    assert os.readlink(place.root / "in/discarded/link") == "/etc/hostname"
    found = place.queue.report("link")
    assert found is not None
    assert found.failure.cause == "not-a-file"


def test_orphan_that_a_feed_has_still_to_publish_is_kept_however_old(place: Place) -> None:
    token = place.token()
    with Queue.open(place.root / "before", create=True) as feed:
        place.queue.add_feed(feed.path)
    place.put(f"before/doc.{token}.written")
    place.put(place.inside(f"orphans/doc.{token}.writing"))
    place.later = 2 * WEEK
    assert place.broken() == set()


def test_two_orphans_of_one_name_are_both_kept(place: Place) -> None:
    place.put(place.inside("orphans/doc.report.json"), b"older")
    lone_report(place)
    place.repair()
    assert len(os.listdir(place.root / place.inside("orphans"))) == 2


# What is left to people


def test_nothing_is_recovered_while_an_output_is_missing(place: Place) -> None:
    committed_claim(place)
    os.rename(place.root / "out", place.root / "unmounted")
    before = place.tree()
    mended, left = place.repair()
    assert not mended
    assert {one.rule for one in left} == {"missing-directory", "dead-claim"}
    assert place.tree().keys() >= before.keys()
    assert not (place.root / "out").exists()

    os.rename(place.root / "unmounted", place.root / "out")
    assert not place.repair().left
    assert sorted(os.listdir(place.root / "out")) == ["doc.ready"]


def test_settings_that_claims_need_are_not_set_aside(place: Place) -> None:
    dead_claim(place)
    damaged_settings(place)
    mended, left = place.repair()
    assert not mended
    assert {one.rule for one in left} == {"settings", "dead-claim"}
    assert (place.root / place.inside("settings.json")).read_bytes() == b"{"


def test_committed_claim_whose_settings_are_lost_is_left_as_it_is(place: Place) -> None:
    committed_claim(place)
    settings = place.root / place.inside("settings.json")
    kept = settings.read_bytes()
    settings.unlink()
    treasure = place.treasure()
    mended, left = place.repair()
    assert not mended
    assert {one.rule for one in left} == {"settings", "dead-claim"}
    assert place.treasure() == treasure

    settings.write_bytes(kept)
    assert not place.repair().left
    assert sorted(os.listdir(place.root / "out")) == ["doc.ready"]


@pytest.mark.parametrize("name", ["d" * 161 + ".ready", "done.failed", "x.report.json.ready"])
def test_name_that_looks_like_an_item_and_is_none_is_for_people(place: Place, name: str) -> None:
    place.put(f"in/{name}")
    assert place.broken() == {"impossible-name"}
    assert not place.repair().mended
    os.rename(place.root / "in" / name, place.root / "in/shorter.ready")
    assert not place.broken()


def test_discarded_on_another_file_system_is_named(place: Place) -> None:
    (place.root / "in/discarded").rmdir()
    disk = Disk(place.root / "in/discarded", "size=100k")
    try:
        with Queue.open(disk.path.parent) as queue:
            assert [one.rule for one in check(queue, pause=0.0)] == ["other-file-system"]
    finally:
        disk.close()


# Who is alive


def elsewhere_alive(place: Place) -> None:
    """A driver that works on."""
    place.register(id="h-2", alive=True, beat_ago=1.0)


@pytest.mark.parametrize("break_it", [dead_claim, unfinished_output])
def test_what_a_living_driver_is_about_to_recover_is_no_news(place: Place, break_it: Break) -> None:
    break_it(place)
    assert len(place.broken()) == 1
    elsewhere_alive(place)
    # It should have done so by now.
    assert len(place.broken()) == 1
    place.register(beat_ago=5.0)
    assert place.check() == []


def test_what_an_earlier_life_of_a_living_driver_left_is_named(place: Place) -> None:
    place.put(f"in/doc.{place.token()}.working")
    place.register(alive=True, salt="beef", past=(SALT,), beat_ago=1.0)
    (found,) = place.check()
    assert found.rule == "dead-claim"
    assert found.message == "claimed by an earlier life of h-1, which fell silent"


def test_claims_and_outputs_of_living_drivers_break_no_rule(place: Place) -> None:
    elsewhere_alive(place)
    token = names.Mint("h-2", SALT).next(time.time_ns() // 1000)
    place.put(f"in/doc.{token}.working")
    place.put(f"out/doc.{token}.writing")
    place.put(f"in/strange.{place.token()}.writing")
    assert place.check() == []


def test_what_is_only_worth_knowing_is_for_status(place: Place) -> None:
    for name in ("scan.pdf", "twice.ready", "twice.failed", "also.1.later", "QUIT"):
        place.put(f"in/{name}")
    place.put("in/lost.failed_twice", b"")
    assert place.check() == []


def test_a_document_that_was_copied_into_a_closed_queue_is_named(place: Place) -> None:
    place.put("in/done", b"")
    (place.root / "in/waits.ready").unlink()
    assert place.check() == []
    place.put("in/late.ready")
    (found,) = place.check()
    assert (found.rule, found.repair) == ("closed-queue", "")
    assert "1 document waits in a closed queue" in found.message
    elsewhere_alive(place)
    assert place.check() == []


# Committed, and nothing to publish


def committed_for_nothing(place: Place, state: str = "waiting-fs") -> str:
    place.register(alive=True, beat_ago=1.0, state=state)
    token = place.token()
    place.put(f"in/doc.{token}.written")
    return token


def test_committed_document_whose_output_is_missing_is_named_and_discarded_by_repair_alone(
    place: Place,
) -> None:
    committed_for_nothing(place)
    treasure = place.treasure()
    assert place.broken() == {"output-missing"}
    place.repair()
    assert place.check() == []
    assert place.treasure() == treasure
    report = place.queue.report("doc")
    assert report is not None
    assert report.failure.cause == "output-missing"
    assert (place.root / "in/discarded/doc").exists()


def test_what_a_dead_driver_committed_to_a_directory_that_is_gone_is_discarded_by_repair_alone(
    place: Place,
) -> None:
    place.register(output_ids=("4711-another",))
    place.put(f"in/doc.{place.token()}.written")
    (found,) = place.check()
    assert found.rule == "output-missing"
    assert "recover --output" in found.message
    place.repair()
    assert place.check() == []
    report = place.queue.report("doc")
    assert report is not None
    assert report.failure.cause == "output-missing"
    assert (place.root / "in/discarded/doc").exists()


@pytest.mark.parametrize("where", ["out", "out/.queuedriver/orphans"])
def test_committed_document_whose_output_is_there_is_left_to_its_driver(
    place: Place, where: str
) -> None:
    token = committed_for_nothing(place)
    place.put(f"{where}/doc.{token}.writing")
    assert place.check() == []


def test_committed_document_of_a_driver_at_work_is_left_to_it(place: Place) -> None:
    committed_for_nothing(place, state="busy")
    assert place.check() == []


# Items that nobody can move


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("held.ready", "not-movable: held.ready: no driver can claim it: something is mounted on"),
        # Of the queue's own file system, as a volume of a container may be.
        ("discarded", "other-file-system: discarded: "),
    ],
)
def test_what_something_is_mounted_on_is_named(place: Place, name: str, words: str) -> None:
    place.put("in/held.ready")
    if shutil.which("unshare") is None:
        pytest.skip("without unshare(1) nothing can be mounted for this test alone")
    script = 'mount --bind "$1/$3" "$1/$3" || exit 99; "$2" -m queuedriver check "$1"'
    prefix = ["unshare", "--mount", *(["--map-root-user"] if os.geteuid() else [])]
    ran = subprocess.run(
        [*prefix, "sh", "-c", script, "sh", place.queue.path, sys.executable, name],
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode == 99 or "unshare" in ran.stderr:
        pytest.skip("nothing can be mounted here, not even in a namespace of its own")
    assert ran.returncode == 1
    assert f"broken {words}" in ran.stdout


def test_item_whose_claim_would_not_fit_a_file_system_of_short_names(place: Place) -> None:
    class Short(Directory):
        def longest_name(self) -> int:
            return 143

    place.put(f"in/{'d' * 80}.ready")
    with Queue(Short.open(place.queue.path)) as queue:
        (found,) = check(queue, clock=place.clock, pause=0.0)
    assert (found.rule, found.subject) == ("name-too-long", f"{'d' * 80}.ready")


def test_only_what_two_looks_see_is_broken(place: Place) -> None:
    """A driver that discards a document between the two looks of a check breaks no rule."""
    looks = 0

    def clock() -> float:
        nonlocal looks
        looks += 1
        if looks == 1:
            place.put("in/discarded/doc")
        else:
            place.put("in/discarded/doc.report.json", report("doc"))
            place.put("in/discarded/next")
        return time.time()

    assert check(place.queue, clock=clock, pause=0.0) == []
    assert looks == 2
