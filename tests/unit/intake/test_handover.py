"""Taking files away from a folder: each drop once, none half, whatever ends an intake."""

import contextlib
import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from queuedriver.claims.handoff import move_aside
from queuedriver.disk.filesystem import Directory, open_fd
from queuedriver.errors import ConfigError
from queuedriver.format import names
from queuedriver.intake.examining import Contents
from queuedriver.intake.handover import Claim, Handover
from queuedriver.intake.rules import facts_of
from queuedriver.intake.watcher import Candidate, Watcher
from tests.intakes import SETTLE, Site, claimed


def claim_of(intake: Watcher, name: str) -> Claim:
    """Claim a drop, and no more."""
    claim = intake.taker.claim(intake.taker.drop(name, name, None))
    assert claim is not None
    return claim


def commit(site: Site, taker: Handover, claim: Claim) -> None:
    """Copy a claim and commit it, and no more."""
    with (site.home / claim.working).open("rb") as file:
        taker._copy(file.fileno(), claim.copy)
        assert taker._commit(claim, file.fileno())


def test_a_drop_that_has_settled_enters_and_is_gone_from_the_folder(any_site: Site) -> None:
    any_site.drop("a.pdf")
    any_site.turn(any_site.intake())
    assert any_site.entered == {"a.pdf": b"whole"}
    assert any_site.left == []
    assert claimed(any_site) == []
    assert list(any_site.inside.iterdir()) == []


def test_a_drop_does_not_enter_while_it_changes(any_site: Site) -> None:
    path, intake = any_site.drop("a", b"1"), any_site.intake()
    for size in range(2, 8):
        any_site.turn(intake, seconds=SETTLE / 2)
        path.write_bytes(b"1" * size)
    assert any_site.entered == {}
    any_site.turn(intake, seconds=8 * SETTLE)
    assert any_site.entered == {"a": b"1111111"}


def test_a_drop_does_not_enter_while_somebody_has_it_open_for_writing(any_site: Site) -> None:
    intake = any_site.intake()
    with any_site.drop("a", b"half").open("ab") as file:
        any_site.turn(intake, times=5)
        assert any_site.why(intake, "a") == "somebody has it open for writing"
        file.write(b" and whole")
    any_site.turn(intake, times=5)
    assert any_site.entered == {"a": b"half and whole"}


def test_who_opened_a_file_before_it_was_claimed_may_write_it_to_its_end(any_site: Site) -> None:
    path, intake = any_site.drop("a", b"half"), any_site.intake()
    claim = claim_of(intake, "a")
    intake.claims[claim] = one = _candidate(any_site)
    with (any_site.home / claim.working).open("ab") as file:
        any_site.turn(intake, times=3)
        assert any_site.entered == {}
        assert one.waits.why == "somebody has it open for writing"
        # Under its name there may be a newer one by now.
        path.write_bytes(b"newer")
        file.write(b" and whole")
    any_site.turn(intake, times=3)
    assert sorted(any_site.entered.values()) == [b"half and whole", b"newer"]


def _candidate(site: Site) -> Candidate:
    return Candidate(site.now)


def test_without_leases_a_claim_stands_still_before_it_enters(any_site: Site) -> None:
    any_site.drop("a", b"half")
    intake = any_site.intake(leases=False)
    any_site.turn(intake, seconds=SETTLE)
    (claim,) = intake.claims
    with (any_site.home / claim.working).open("ab") as file:
        file.write(b" and whole")
    any_site.turn(intake, seconds=SETTLE / 2)
    assert any_site.entered == {}
    any_site.turn(intake, times=3)
    assert any_site.entered == {"a": b"half and whole"}


def test_what_an_intake_had_claimed_when_it_died_is_taken_by_another(any_site: Site) -> None:
    any_site.drop("a")
    first = any_site.intake("one")
    claim_of(first, "a")
    other = any_site.intake("two", "0002")
    any_site.turn(other, times=3)
    assert any_site.entered == {}, "it lives"
    any_site.dies("one")
    any_site.turn(other, times=3)
    assert any_site.entered == {"a": b"whole"}
    assert claimed(any_site) == []


def test_what_an_intake_had_claimed_when_it_died_does_not_enter_a_closed_queue(
    any_site: Site,
) -> None:
    any_site.drop("a")
    claim_of(any_site.intake("one"), "a")
    any_site.dies("one")
    (any_site.queue / "done").touch()
    other = any_site.intake("two", "0002")
    any_site.turn(other, times=3)
    assert any_site.entered == {}
    (any_site.queue / "done").unlink()
    any_site.turn(other, times=3)
    assert any_site.entered == {"a": b"whole"}


def test_what_was_claimed_when_the_queue_was_closed_enters_when_that_is_open_again(
    any_site: Site,
) -> None:
    path, intake = any_site.drop("a", b"half"), any_site.intake()
    claim = claim_of(intake, "a")
    intake.claims[claim] = one = _candidate(any_site)
    with (any_site.home / claim.working).open("ab") as file:
        any_site.turn(intake)
        file.write(b" and whole")
        (any_site.queue / "done").touch()
    any_site.turn(intake, times=3)
    assert any_site.entered == {}
    assert "is closed" in one.waits.why
    (any_site.queue / "done").unlink()
    any_site.turn(intake, times=3)
    assert any_site.entered == {"a": b"half and whole"}
    assert not path.exists()


def test_what_an_intake_had_committed_when_it_died_is_published_once(any_site: Site) -> None:
    any_site.drop("a")
    first = any_site.intake("one")
    commit(any_site, first.taker, claim_of(first, "a"))
    any_site.dies("one")
    others = any_site.intake("two", "0002"), any_site.intake("three", "0003")
    any_site.turn(*others, times=3)
    assert any_site.entered == {"a": b"whole"}
    assert claimed(any_site) == []


def test_who_was_taken_for_dead_publishes_nothing_twice(any_site: Site) -> None:
    any_site.drop("a")
    first = any_site.intake("one")
    claim = claim_of(first, "a")
    any_site.dies("one")
    any_site.turn(any_site.intake("two", "0002"), times=3)
    assert any_site.entered == {"a": b"whole"}
    with pytest.raises(FileNotFoundError):
        first.taker.enter(claim)
    assert any_site.entered == {"a": b"whole"}


def test_a_copy_that_was_never_committed_is_moved_aside_and_not_deleted(site: Site) -> None:
    site.drop("a")
    first = site.intake("one")
    claim = claim_of(first, "a")
    (site.inside / claim.copy).write_bytes(b"ha")
    site.dies("one")
    site.turn(site.intake("two", "0002"), times=3)
    assert site.entered == {"a": b"whole"}
    assert (site.queue / ".queuedriver/orphans" / claim.copy).read_bytes() == b"ha"


@pytest.mark.parametrize("after", ["move", "leave"])
def test_a_copy_that_cannot_be_moved_aside_keeps_nobody_from_taking(site: Site, after: str) -> None:
    site.drop("a")
    token = site.intake("one", after=after).taker.home.mint.next(1)
    copy = f"{'a' if after == 'move' else '0' * 40}.{token}.writing"
    orphans = site.queue / ".queuedriver/orphans"
    orphans.mkdir()
    for where in (site.inside, orphans):
        (where / copy).write_bytes(b"ha")
    site.dies("one", leaves=after == "leave")
    site.turn(site.intake("two", "0002", after=after), times=3)
    assert site.entered == {"a": b"whole"}
    assert (site.inside / copy).exists()


def test_a_commit_whose_copy_was_moved_aside_is_published_all_the_same(site: Site) -> None:
    site.drop("a")
    first = site.intake("one")
    claim = claim_of(first, "a")
    commit(site, first.taker, claim)
    with Directory.open(site.queue) as queue, Directory.open(site.inside) as copies:
        move_aside(queue, copies, claim.copy)
    site.dies("one")
    site.turn(site.intake("two", "0002"), times=2)
    assert site.entered == {"a": b"whole"}


@pytest.mark.parametrize("after", ["move", "leave"])
def test_a_first_try_that_was_moved_aside_is_published_by_nobody(site: Site, after: str) -> None:
    site.drop("a")
    taker, other = site.intake(after=after).taker, site.intake("two", "0002", after=after).taker
    facts = facts_of((site.folder / "a").stat())
    claim = taker.claim(taker.drop("a", "a", facts))
    assert claim is not None
    with taker.place(claim) as (directory, name), open_fd(directory.open_read(name)) as source:
        taker._copy(source, claim.copy)
        # The disk was full; and somebody who could not see the claim has moved that aside.
        move_aside(taker.queue, taker.copies, claim.copy)
        (site.queue / ".queuedriver/orphans" / claim.copy).write_bytes(b"ha")
        os.lseek(source, 0, os.SEEK_SET)
        taker._copy(source, claim.copy)
        assert taker._commit(claim, source)
    taker._publish(claim)
    # Whoever has seen the claim, or its copy, just before, and takes its intake for dead.
    item = names.parse(claim.copy if after == "leave" else claim.written)
    assert item is not None
    other._recover(claim.copy if after == "leave" else claim.written, item)
    assert site.entered == {"a": b"whole"}


def test_orphans_that_may_not_be_looked_into_keep_no_drop_from_entering(
    any_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    # They are another user's.
    (any_site.queue / ".queuedriver/orphans").mkdir(parents=True)
    opened = Directory.subdirectory

    def subdirectory(self: Directory, name: str, create: bool = False) -> Directory:
        if name.endswith("orphans"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
        return opened(self, name, create)

    any_site.drop("a")
    intake = any_site.intake()
    monkeypatch.setattr(Directory, "subdirectory", subdirectory)
    any_site.turn(intake, times=3)
    assert any_site.entered == {"a": b"whole"}


def may_not_be_read(name: str) -> Callable[[Directory, str], int]:
    """Return how files are opened by somebody who may not read the claims of a name."""
    opened = Directory.open_read

    def open_read(self: Directory, wanted: str) -> int:
        if wanted.startswith(f"{name}."):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), wanted)
        return opened(self, wanted)

    return open_read


def test_a_claim_that_may_not_be_read_waits_with_its_reason_and_holds_nobody_up(
    any_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    any_site.drop("a")
    claim_of(any_site.intake("one"), "a")
    any_site.dies("one")
    any_site.drop("b")
    other = any_site.intake("two", "0002")
    with monkeypatch.context() as denied:
        denied.setattr(Directory, "open_read", may_not_be_read("a"))
        any_site.turn(other, times=3)
        assert any_site.entered == {"b": b"whole"}
        (one,) = other.claims.values()
        assert one.waits.why == "cannot be read: Permission denied"
        # No time will help: a drain does not wait for it.
        assert other.settling == ""
    any_site.turn(other, times=3)
    assert set(any_site.entered) == {"a", "b"}


@pytest.mark.parametrize("what", ["link", "directory"])
def test_a_claim_that_turns_out_to_be_no_file_is_refused(site: Site, what: str) -> None:
    site.drop("a")
    site.drop("b")
    intake = site.intake()
    claim = claim_of(intake, "a")
    path = site.home / claim.working
    path.unlink()
    if what == "link":
        path.symlink_to("/etc/hostname")
    else:
        path.mkdir()
    intake.claims[claim] = _candidate(site)
    site.turn(intake, times=3)
    assert site.entered == {"b": b"whole"}
    report = json.loads((site.folder / "refused/a.report.json").read_bytes())
    assert report["why"] == "is not a regular file"


def test_a_claim_that_is_taken_back_while_it_enters_keeps_no_other_from_entering(
    any_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ab":
        any_site.drop(name)
    intake = any_site.intake()
    enter = Handover.enter

    def late(self: Handover, claim: Claim) -> bool:
        if claim.docid == "a":
            taken_back = claim._replace(token=self.home.mint.next(0))
            (any_site.home / claim.working).rename(any_site.home / taken_back.working)
        return enter(self, claim)

    with monkeypatch.context() as others:
        others.setattr(Handover, "enter", late)
        any_site.turn(intake)
    any_site.turn(intake, times=3)
    assert set(any_site.entered) == {"a", "b"}
    assert intake.claims == {}


@pytest.mark.parametrize("after", ["move", "leave"])
@pytest.mark.parametrize("step", ["sync", "entered"])
def test_a_document_that_met_trouble_when_it_had_just_entered_enters_once(
    any_site: Site, monkeypatch: pytest.MonkeyPatch, after: str, step: str
) -> None:
    any_site.drop("a")
    intake = any_site.intake(after=after, duplicates="skip")
    kind = Directory if step == "sync" else Contents
    whole = getattr(kind, step)

    def full(self: Any, *given: str) -> None:
        if any_site.entered and (step == "entered" or self.path == str(any_site.queue)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        whole(self, *given)

    with monkeypatch.context() as disk:
        disk.setattr(kind, step, full)
        for _ in range(30):
            with contextlib.suppress(OSError):
                intake.turn(any_site.now)
            any_site.now += 1.0
    any_site.turn(intake, times=3)
    assert any_site.entered == {"a": b"whole"}
    assert intake.claims == {}
    intake.taker.journal.flush()
    (journal,) = (any_site.queue / ".queuedriver/journal").glob("*.jsonl")
    # Once: as submitted, or, where its claim was taken over, as recovered.
    assert len(journal.read_text().splitlines()) == 1


def test_a_batch_that_meets_trouble_has_synced_what_had_entered_before(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ab":
        site.drop(name)
    intake = site.intake()
    claims = [claim_of(intake, name) for name in "ab"]
    synced: list[str] = []
    monkeypatch.setattr(Directory, "sync", lambda self: synced.append(self.path))
    with contextlib.suppress(OSError), intake.taker.durably(claims):
        assert intake.taker.enter(claims[0])
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    assert str(site.queue) in synced


def test_a_duplicate_that_cannot_be_refused_waits_with_its_reason(site: Site) -> None:
    no_directory = site.folder.parent / "elsewhere"
    no_directory.touch()
    intake = site.intake(duplicates="set-aside", refused=str(no_directory))
    for name in ("a", "b"):
        site.drop(name)
        site.turn(intake, times=3)
    (one,) = intake.claims.values()
    assert one.waits.why == "cannot be taken: Not a directory"
    no_directory.unlink()
    site.turn(intake, times=3)
    assert {path.name for path in no_directory.iterdir()} == {"b", "b.report.json"}


def test_a_newer_drop_of_the_same_name_is_a_document_of_its_own(any_site: Site) -> None:
    intake = any_site.intake()
    for content in (b"first", b"second", b"third"):
        any_site.drop("a.pdf", content)
        any_site.turn(intake, times=2)
    assert sorted(any_site.entered.values()) == [b"first", b"second", b"third"]
    assert all(docid.startswith("a") for docid in any_site.entered)


def test_a_file_with_a_second_name_is_copied_so_that_nobody_writes_the_document(
    site: Site,
) -> None:
    original = site.folder.parent / "original"
    original.write_bytes(b"whole")
    os.link(original, site.folder / "a")
    site.turn(site.intake(), times=2)
    original.write_bytes(b"changed")
    assert site.entered == {"a": b"whole"}


def test_what_was_taken_goes_to_the_archive_where_there_is_one(site: Site) -> None:
    site.drop("sub/a.pdf")
    site.turn(site.intake(after="archive/all", recursive=True, docid="{path}"), times=2)
    assert site.entered == {"sub_a.pdf": b"whole"}
    assert site.left == ["archive/all/a.pdf"]


def test_a_folder_is_taken_into_one_queue_only(tmp_path: Path) -> None:
    from queuedriver.intake.intake import Intake
    from queuedriver.intake.options import IntakeOptions

    for name in ("drops", "one", "other"):
        (tmp_path / name).mkdir()
    options = IntakeOptions(settle=0.001, min_free=0)
    folder = str(tmp_path / "drops")
    Intake(folder, str(tmp_path / "one"), options, drain=True).run()
    with pytest.raises(ConfigError, match="another queue"):
        Intake(folder, str(tmp_path / "other"), options, drain=True).run()
