"""Taking copies from a folder that stays as it is: each drop once, none half."""

import contextlib
import errno
import json
import os
import shutil
from pathlib import Path

import pytest

from queuedriver.claims.leftovers import DAY
from queuedriver.disk.filesystem import Directory
from queuedriver.intake import ledger
from queuedriver.intake.examining import why
from queuedriver.intake.handover import Claim
from queuedriver.intake.home import note_told
from queuedriver.intake.ledger import Ledger
from queuedriver.intake.rules import Facts, facts_of
from queuedriver.intake.watcher import Watcher
from tests.intakes import SETTLE, Site


def claim_of(site: Site, intake: Watcher, name: str = "a") -> Claim:
    """Claim a drop as it is now, and no more."""
    claim = intake.taker.claim(intake.taker.drop(name, name, facts(site, name)))
    assert claim is not None
    return claim


def facts(site: Site, name: str) -> Facts:
    found = facts_of(os.stat(site.folder / name))
    assert found is not None
    return found


def test_a_drop_enters_once_and_stays(any_site: Site) -> None:
    any_site.drop("a")
    intake = any_site.intake(after="leave", leases=False)
    any_site.turn(intake, times=6)
    assert any_site.entered == {"a": b"whole"}
    assert any_site.left == ["a"]
    assert intake.taken == 1


def test_whoever_starts_later_knows_what_was_taken(any_site: Site) -> None:
    any_site.drop("a")
    any_site.turn(any_site.intake(after="leave"), times=3)
    for path in any_site.queue.glob("*.ready"):
        path.unlink()
    any_site.turn(any_site.intake("two", "0002", after="leave"), times=3)
    assert any_site.entered == {}


def test_a_file_that_was_written_again_is_another_drop(any_site: Site) -> None:
    intake = any_site.intake(after="leave")
    for content in (b"first", b"again"):
        any_site.drop("a", content)
        any_site.turn(intake, seconds=5 * SETTLE, times=4)
    assert sorted(any_site.entered.values()) == [b"again", b"first"]


def test_a_file_that_is_written_again_after_a_day_does_not_wait_for_a_day(site: Site) -> None:
    intake = site.intake(after="leave")
    site.drop("a", b"first")
    site.turn(intake, times=3)
    site.turn(intake, seconds=86400.0)
    site.drop("a", b"again")
    site.turn(intake, seconds=5 * SETTLE, times=4)
    intake.taker.journal.flush()
    (journal,) = (site.queue / ".queuedriver/journal").glob("*.jsonl")
    assert '"stuck"' not in journal.read_text()
    assert sorted(site.entered.values()) == [b"again", b"first"]


def test_of_two_intakes_one_takes_a_drop(any_site: Site) -> None:
    any_site.drop("a")
    both = [any_site.intake(id, after="leave") for id in ("one", "two")]
    any_site.turn(*both, times=4)
    assert any_site.entered == {"a": b"whole"}
    assert sum(one.taken for one in both) == 1


def test_a_file_that_changed_while_it_was_copied_does_not_enter(any_site: Site) -> None:
    any_site.drop("a", b"half")
    intake = any_site.intake(after="leave")
    claim = claim_of(any_site, intake)
    any_site.drop("a", b"half and whole")
    with pytest.raises(FileNotFoundError):
        intake.taker.enter(claim)
    assert any_site.entered == {}
    any_site.turn(intake, times=3)
    assert any_site.entered == {"a": b"half and whole"}


def test_what_a_dead_intake_has_won_is_published(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.drop("a")
    one = site.intake("one", after="leave")
    with monkeypatch.context() as dead:
        dead.setattr(Ledger, "_publish", lambda *_: None)
        assert one.taker.enter(claim_of(site, one))
    assert site.entered == {}
    site.dies("one", leaves=True)
    site.turn(site.intake("two", "0002", after="leave"), times=3)
    assert site.entered == {"a": b"whole"}


def test_what_a_dead_intake_has_not_won_it_can_never_win(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.drop("a")
    one = site.intake("one", after="leave")
    decide = Ledger._set
    others: list[Watcher] = []

    def late(self: Ledger, claim: Claim) -> bool:
        monkeypatch.undo()
        site.dies("one", leaves=True)
        others.append(site.intake("two", "0002", after="leave"))
        site.turn(*others, times=3)
        return decide(self, claim)

    monkeypatch.setattr(Ledger, "_set", late)
    with pytest.raises(FileNotFoundError):
        one.taker.enter(claim_of(site, one))
    assert others[0].taken == 1
    assert site.entered == {"a": b"whole"}


def remembered(site: Site) -> set[str]:
    """Return the paths of files that the ledger knows."""
    entries = (site.inside / "ledger").iterdir()
    return {json.loads(path.read_bytes())["path"] for path in entries}


def sweep(site: Site, intake: Watcher, *, days: int = 31) -> None:
    """Let an intake look through all of its ledger, so many days after what is in there was
    taken."""
    for path in (site.inside / "ledger").iterdir():
        taken = path.stat().st_mtime - days * DAY
        os.utime(path, (taken, taken))
    for _ in range(16):
        intake.taker.sweep()


@pytest.fixture
def numbered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file system that has a number of its own, wherever the tests run."""
    if not os.statvfs(tmp_path).f_fsid:
        pytest.skip("this file system has no number")
    monkeypatch.setattr(ledger, "filesystem_type", lambda _: "ext4")


def take(site: Site, intake: Watcher, *paths: str) -> None:
    for path in paths:
        site.drop(path, path.encode())
    site.turn(intake, times=3)
    assert remembered(site) >= set(paths)


@pytest.mark.usefixtures("numbered")
def test_what_was_taken_and_is_gone_from_the_folder_is_forgotten(any_site: Site) -> None:
    intake = any_site.intake(after="leave", recursive=True, docid="{path}")
    take(any_site, intake, "a", "b", "sub/c", "sub/d")
    (any_site.folder / "a").unlink()
    (any_site.folder / "sub/c").unlink()
    sweep(any_site, intake, days=29)
    assert remembered(any_site) == {"a", "b", "sub/c", "sub/d"}
    sweep(any_site, intake)
    assert remembered(any_site) == {"b", "sub/d"}
    any_site.dies(leaves=True)
    (any_site.folder / "b").unlink()
    other = any_site.intake("two", "0002", after="leave", recursive=True, docid="{path}")
    sweep(any_site, other)
    assert remembered(any_site) == {"sub/d"}
    any_site.turn(other, times=3)
    assert len(any_site.entered) == 4


@pytest.mark.usefixtures("numbered")
@pytest.mark.parametrize("what", ["drops", "drops/sub"])
def test_what_may_come_back_with_its_file_system_is_not_taken_twice(site: Site, what: str) -> None:
    intake = site.intake(after="leave", recursive=True, docid="{path}")
    take(site, intake, "sub/a", "b")
    site.dies(leaves=True)
    place, elsewhere = site.folder.parent / what, site.folder.parent / "elsewhere"
    # As what is below a mount point while nothing is mounted there.
    place.rename(elsewhere)
    place.mkdir()
    other = site.intake("two", "0002", after="leave", recursive=True, docid="{path}")
    take(site, other, "sub/c", "d")
    sweep(site, other)
    assert remembered(site) >= {"sub/a", "sub/c", "d"}
    site.dies("two", leaves=True)
    shutil.rmtree(place)
    elsewhere.rename(place)
    site.turn(site.intake("three", "0003", after="leave", recursive=True, docid="{path}"), times=4)
    assert sorted(site.entered) == ["b", "d", "sub_a", "sub_c"]


@pytest.mark.usefixtures("numbered")
def test_another_disk_in_the_place_of_one_is_known_by_its_number(site: Site) -> None:
    take(site, site.intake(after="leave"), "a", "b")
    site.dies(leaves=True)
    elsewhere = site.folder.parent / "elsewhere"
    site.folder.rename(elsewhere)
    site.folder.mkdir()
    # As the first directory of each disk of a kind, it has the same number.
    for path in (site.inside / "ledger").iterdir():
        said = json.loads(path.read_bytes())
        said |= {"within": site.folder.stat().st_ino, "place": said["place"] + "0"}
        path.write_text(json.dumps(said))
    other = site.intake("two", "0002", after="leave")
    take(site, other, "c")
    sweep(site, other)
    assert remembered(site) == {"a", "b", "c"}


@pytest.fixture
def unnumbered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without a number of its own."""
    monkeypatch.setattr(ledger, "filesystem_type", lambda _: "xfs")


@pytest.mark.usefixtures("unnumbered")
def test_without_a_number_of_the_file_system_another_file_that_is_there_lets_one_be_forgotten(
    any_site: Site,
) -> None:
    take(any_site, any_site.intake(after="leave"), "a", "b")
    any_site.dies(leaves=True)
    (any_site.folder / "a").unlink()
    other = any_site.intake("two", "0002", after="leave")
    take(any_site, other, "c")
    sweep(any_site, other, days=29)
    assert remembered(any_site) == {"a", "b", "c"}
    sweep(any_site, other)
    assert remembered(any_site) == {"b", "c"}
    any_site.turn(other, times=3)
    assert len(any_site.entered) == 3


@pytest.mark.usefixtures("unnumbered")
@pytest.mark.parametrize("recognised", [False, True])
def test_without_a_number_another_disk_in_the_place_of_one_is_known_by_its_files(
    site: Site, recognised: bool
) -> None:
    take(site, site.intake(after="leave"), "a", "b")
    site.dies(leaves=True)
    elsewhere = site.folder.parent / "elsewhere"
    site.folder.rename(elsewhere)
    site.folder.mkdir()
    if recognised:
        # Of the other disk something was taken, too, and is there.
        take(site, site.intake("two", "0002", after="leave"), "d")
        site.dies("two", leaves=True)
    for path in (site.inside / "ledger").iterdir():
        # As the first directory of each disk of a kind, it has the same inode.
        said = json.loads(path.read_bytes())
        path.write_text(json.dumps({**said, "within": site.folder.stat().st_ino}))
    other = site.intake("three", "0003", after="leave")
    take(site, other, "c")
    sweep(site, other)
    assert remembered(site) >= {"a", "b", "c"}


@pytest.mark.usefixtures("numbered")
def test_a_file_that_stays_is_taken_once_though_its_path_is_no_text(site: Site) -> None:
    name = os.fsdecode(b"a.\xff")
    intake = site.intake(after="leave", docid="{stem}")
    site.drop(name)
    site.turn(intake, times=3)
    sweep(site, intake)
    site.dies(leaves=True)
    site.turn(site.intake("two", "0002", after="leave", docid="{stem}"), times=3)
    assert site.entered == {"a": b"whole"}


@pytest.mark.usefixtures("numbered")
def test_what_the_ledger_has_forgotten_takes_no_memory(site: Site) -> None:
    intake = site.intake(after="leave")
    take(site, intake, "a", "b")
    (site.folder / "a").unlink()
    sweep(site, intake)
    assert isinstance(intake.taker, Ledger)
    assert intake.taker.known.keys() == {path.name for path in (site.inside / "ledger").iterdir()}


def test_a_drain_sweeps_another_part_of_the_ledger_than_the_one_before(site: Site) -> None:
    parts = set()
    for number in range(64):
        taker = site.intake(f"i{number}", after="leave").taker
        assert isinstance(taker, Ledger)
        parts.add(taker.parts % 16)
    assert len(parts) > 1


def test_a_file_that_changes_while_it_is_copied_leaves_nothing_in_memory(site: Site) -> None:
    site.drop("a", b"half")
    intake = site.intake(after="leave")
    claim = claim_of(site, intake)
    site.drop("a", b"half and whole")
    with pytest.raises(FileNotFoundError):
        intake.taker.enter(claim)
    assert intake.taker.begun == set()


@pytest.mark.parametrize("becomes", ["open", "gone"])
def test_a_copy_that_was_decided_enters_whatever_becomes_of_its_file(
    any_site: Site, monkeypatch: pytest.MonkeyPatch, becomes: str
) -> None:
    path = any_site.drop("a")
    intake = any_site.intake(after="leave", duplicates="skip")

    def broken(*_: object) -> str:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as disk:
        disk.setattr(Ledger, "_publish", broken)
        for _ in range(30):
            with contextlib.suppress(OSError):
                intake.turn(any_site.now)
            any_site.now += 1.0
    assert len(intake.claims) == 1
    with path.open("ab") as writer:
        if becomes == "open":
            writer.write(b", and more")
            writer.flush()
        else:
            path.unlink()
        any_site.turn(intake, times=2)
        assert any_site.entered == {"a": b"whole"}
    # What it was when it was copied is known, and not what it is now.
    any_site.drop("b")
    any_site.turn(intake, times=3)
    assert "b" not in any_site.entered


def test_a_duplicate_is_skipped_and_not_refused(site: Site) -> None:
    intake = site.intake(after="leave", duplicates="skip")
    for name in ("a", "b"):
        site.drop(name)
        site.turn(intake, times=3)
    assert site.entered == {"a": b"whole"}
    assert site.left == ["a", "b"]
    assert intake.refused == 0
    intake.taker.journal.flush()
    (journal,) = (site.queue / ".queuedriver/journal").glob("*.jsonl")
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    noted = [(one["event"], one["docid"]) for one in events]
    assert noted == [("submitted", "a"), ("skipped", "b")]


def test_why_says_of_a_duplicate_that_it_is_one_and_of_which(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    intake = site.intake(after="leave", duplicates="skip", max_size=10)
    note_told(intake.folder.directory, intake.taker.home.directory, intake.taker.told)
    for name, content in (("a", b"whole"), ("b", b"whole"), ("c", b"much too large")):
        site.drop(name, content)
        site.turn(intake, times=3)
    with Directory.open(site.folder) as folder:
        said = {name: why(folder, name) for name in "abc"}
    assert said["a"] == "entered as a"
    assert said["b"] == "skipped: its content entered before, as a"
    assert said["c"].startswith("refused: 14 B is more than max_size")


def test_why_goes_by_the_intake_that_lives_where_a_folder_was_taken_from_otherwise_before(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    for id, after in (("one", "move"), ("two", "leave")):
        intake = site.intake(id, after=after)
        note_told(intake.folder.directory, intake.taker.home.directory, intake.taker.told)
        site.drop(id)
        site.turn(intake, times=3)
        site.dies("one")
    with Directory.open(site.folder) as folder:
        assert why(folder, "two") == "entered as two"
