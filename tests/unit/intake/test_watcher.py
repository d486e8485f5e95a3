"""What an intake takes, what it leaves, and what it says of what waits."""

import contextlib
import errno
import hashlib
import itertools
import json
import os
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from queuedriver.claims import leftovers
from queuedriver.claims.leftovers import SWEEP_EVERY
from queuedriver.disk.filesystem import Directory
from queuedriver.intake import watcher
from queuedriver.intake.examining import examine
from queuedriver.intake.intake import Intake, waiting
from queuedriver.intake.options import IntakeOptions, Told
from tests.intakes import SETTLE, Site


def test_hidden_files_directories_and_links_stay(site: Site) -> None:
    site.drop(".hidden")
    site.drop("sub/a")
    (site.folder / "link").symlink_to("/etc/hostname")
    intake = site.intake()
    site.turn(intake, times=2)
    assert site.entered == {}
    assert "2 directories or links stay" in waiting(intake)[1]


def test_sub_directories_are_taken_from_where_that_was_asked_for(site: Site) -> None:
    site.drop("a/b/c.pdf")
    site.drop("a/b/d/too-deep.pdf")
    site.drop("refused/old.pdf")
    site.drop(".trash/x.pdf")
    site.turn(site.intake(recursive=True, max_depth=2, docid="{path}"), times=2)
    assert site.entered == {"a_b_c.pdf": b"whole"}


def test_a_file_from_a_clock_that_is_ahead_is_taken_like_any_other(site: Site) -> None:
    future = time.time() + 10 * 365 * 86400
    os.utime(site.drop("a"), (future, future))
    intake = site.intake()
    site.turn(intake, times=2)
    assert site.entered == {"a": b"whole"}
    os.utime(site.drop("b"), (future, future))
    waits = site.intake("two", "0002", min_age=3600.0)
    site.turn(waits, times=2)
    left = waits.files["b"].waits.seconds
    assert left is not None
    assert left <= 3600.0


def test_an_empty_file_waits_for_ever(site: Site) -> None:
    site.drop("a", b"")
    intake = site.intake()
    site.turn(intake, times=20)
    assert site.entered == {}
    assert site.why(intake, "a").startswith("empty for")


def test_a_file_waits_while_a_sibling_says_that_it_is_written(site: Site) -> None:
    site.drop("a.pdf")
    part = site.drop("a.pdf.part")
    intake = site.intake()
    site.turn(intake, times=3)
    assert site.why(intake, "a.pdf") == "a.pdf.part is beside it: it is being written"
    part.unlink()
    site.turn(intake, times=3)
    assert site.entered == {"a.pdf": b"whole"}


def test_a_file_waits_for_its_marker_which_goes_with_it(site: Site) -> None:
    site.drop("a.pdf")
    intake = site.intake(done="{name}.done")
    site.turn(intake, times=3)
    assert site.why(intake, "a.pdf") == "waits for a.pdf.done"
    site.drop("a.pdf.done", b"")
    site.turn(intake, times=3)
    assert site.entered == {"a.pdf": b"whole"}
    assert site.left == []


def test_files_that_are_not_taken_are_counted_by_what_becomes_of_them(site: Site) -> None:
    for name in ("a", ".hidden", "b.part"):
        site.drop(name)
    site.drop("empty", b"")
    intake = site.intake(done="{name}.done", stuck_after=3 * SETTLE)
    site.turn(intake)
    assert waiting(intake)[0] == {"settling": 1, "waiting_marker": 1, "filtered": 2}
    site.turn(intake, times=4)
    assert waiting(intake)[0] == {"stuck": 2, "filtered": 2}
    site.drop("a.done", b"")
    (site.folder / "b.part").unlink()
    site.turn(intake, times=3)
    assert set(site.entered) == {"a"}
    assert waiting(intake)[0] == {"stuck": 1, "filtered": 1}


def test_a_file_that_was_taken_and_stays_is_not_counted(site: Site) -> None:
    site.drop("a")
    intake = site.intake(after="leave")
    site.turn(intake, times=3)
    assert set(site.entered) == {"a"}
    assert not waiting(intake)[0].total()


def test_a_marker_of_a_directory_stays(site: Site) -> None:
    site.drop("a")
    site.drop("_SUCCESS", b"")
    site.turn(site.intake(done="_SUCCESS"), times=3)
    assert site.entered == {"a": b"whole"}
    assert site.left == ["_SUCCESS"]


@pytest.mark.parametrize(
    ("complete", "half", "rest"),
    [
        ("pdf", b"%PDF-1.4 half", b" ... %%EOF\n"),
        ("jpeg", b"\xff\xd8 half", b"\xff\xd9"),
        ("grep -q whole", b"half", b" and whole"),
    ],
)
def test_a_file_waits_for_its_end(site: Site, complete: str, half: bytes, rest: bytes) -> None:
    site.drop("a", half)
    intake = site.intake(complete=f"sh -c '{complete} \"$0\" || exit 75'")
    if complete in ("pdf", "jpeg"):
        intake = site.intake(complete=complete)
    site.turn(intake, times=4)
    assert site.entered == {}
    assert site.why(intake, "a").startswith(("pdf has no end", "jpeg has no end", "complete says"))
    site.drop("a", half + rest)
    site.turn(intake, seconds=8 * SETTLE, times=4)
    assert site.entered == {"a": half + rest}


def test_a_zip_without_its_directory_is_not_whole(site: Site) -> None:
    with zipfile.ZipFile(site.folder / "a.zip", "w") as file:
        file.writestr("x", "content")
    whole = (site.folder / "a.zip").read_bytes()
    site.drop("b.zip", whole[:-30])
    intake = site.intake(complete="zip")
    site.turn(intake, times=3)
    assert site.entered == {"a.zip": whole}
    assert site.why(intake, "b.zip") == "zip has no end"


def test_what_a_command_refuses_is_kept_with_a_report(site: Site) -> None:
    site.drop("a.pdf", b"rubbish")
    intake = site.intake(complete="sh -c 'echo no pdf at all; exit 1'")
    site.turn(intake, times=3)
    assert site.entered == {}
    assert site.left == ["refused/a.pdf", "refused/a.pdf.report.json"]
    report = json.loads((site.folder / "refused/a.pdf.report.json").read_bytes())
    assert report["why"] == "complete says 1: no pdf at all"
    assert report["file"] == str(site.folder / "a.pdf")


@pytest.mark.parametrize("manifest", ["SHA256SUMS", "{name}.sha256"])
def test_a_file_waits_until_it_is_what_its_manifest_says(site: Site, manifest: str) -> None:
    site.drop("a", b"half")
    intake = site.intake(manifest=manifest)
    listed = manifest.replace("{name}", "a")
    site.turn(intake, times=3)
    assert site.why(intake, "a") == f"waits for {listed}"
    digest = hashlib.sha256(b"whole").hexdigest()
    site.drop(listed, f"{digest} *a\n".encode())
    site.turn(intake, times=4)
    assert site.why(intake, "a") == f"is not what {listed} says"
    site.drop("a", b"whole")
    site.turn(intake, seconds=8 * SETTLE, times=4)
    assert site.entered == {"a": b"whole"}


def test_a_manifest_may_name_its_files_as_seen_from_its_directory(site: Site) -> None:
    site.drop("a")
    digest = hashlib.sha256(b"whole").hexdigest()
    site.drop("SHA256SUMS", f"{digest}  ./a\n".encode())
    site.turn(site.intake(manifest="SHA256SUMS"), times=3)
    assert site.entered == {"a": b"whole"}


def test_a_command_that_says_not_yet_is_asked_again_after_10_s(site: Site) -> None:
    site.drop("a")
    asked = site.folder.parent / "asked"
    intake = site.intake(complete=f"sh -c 'echo >> {asked}; exit 75'", settle=1.0)
    for _ in range(60):
        intake.turn(site.now)
        site.now += 0.5
    assert len(asked.read_text().splitlines()) == 3


def test_a_drain_waits_for_a_file_that_somebody_has_for_now(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.drop("a")
    intake = site.intake()

    def busy(self: Directory, name: str) -> int:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), name)

    with monkeypatch.context() as scanner:
        scanner.setattr(Directory, "open_read", busy)
        site.turn(intake, times=3)
        assert site.why(intake, "a") == "cannot be read: Device or resource busy"
        assert intake.settling == "a"
    site.turn(intake, times=3)
    assert site.entered == {"a": b"whole"}


def test_a_folder_that_is_empty_from_the_start_is_listed_ever_more_seldom(site: Site) -> None:
    intake, waited = site.intake(), []
    for _ in range(6):
        intake.turn(site.now)
        waited.append(round(intake.list_at - site.now, 1))
        site.now = intake.list_at
    assert waited == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_where_the_kernel_gives_no_hints_names_are_listed_every_second(tmp_path: Path) -> None:
    for name in ("drops", "queue"):
        (tmp_path / name).mkdir()
    intake = Intake(str(tmp_path / "drops"), str(tmp_path / "queue"), IntakeOptions())
    with intake.opened() as watcher:
        watcher.taker.told = msgspec.structs.replace(watcher.taker.told, local=True)
        for _ in range(8):
            watcher.list_soon()
            due = intake._turn(watcher, hinted=False)
        assert due - time.monotonic() <= 1.0


@pytest.mark.parametrize("manifest", ["SHA256SUMS", "{name}.sha256"])
def test_a_manifest_that_comes_is_read_at_once(site: Site, manifest: str) -> None:
    site.drop("a")
    intake = site.intake(manifest=manifest)
    for _ in range(30):
        intake.list_soon()
        intake.turn(site.now)
        site.now += 1.0
    digest = hashlib.sha256(b"whole").hexdigest()
    site.drop(manifest.replace("{name}", "a"), f"{digest} *a\n".encode())
    intake.list_soon()
    intake.turn(site.now)
    assert site.entered == {"a": b"whole"}


def test_a_name_that_cannot_be_a_docid_is_refused(site: Site) -> None:
    site.drop("a.ready")
    site.drop("x" * 200)
    site.turn(site.intake(), times=2)
    assert site.entered == {}
    assert {one for one in site.left if not one.endswith(".json")} == {
        "refused/a.ready",
        "refused/" + "x" * 200,
    }


def test_a_refused_file_has_its_report_or_stays_and_says_that_its_name_is_too_long(
    site: Site,
) -> None:
    intake = site.intake()
    # A second one of its name gets a serial.
    for _ in range(2):
        site.drop("x" * 220 + ".pdf")
        site.turn(intake, times=3)
    name = "é" * 120 + ".pdf"
    site.drop(name)
    site.turn(intake, times=3)
    reports = sorted((site.folder / "refused").glob("*.report.json"))
    files = [Path(str(path).removesuffix(".report.json")) for path in reports]
    assert len(files) == 2
    assert sorted(site.folder.glob("refused/*.pdf")) == files
    assert [one for one in site.left if "/" not in one] == [name]
    assert site.why(intake, name) == "cannot be taken: File name too long"


def test_what_was_refused_is_not_taken_from_where_sub_directories_are(site: Site) -> None:
    bad = site.folder / "sub" / "bad"
    site.drop("sub/a.ready")
    intake = site.intake(recursive=True, refused=str(bad), docid="{path}")
    site.turn(intake, times=4)
    assert site.entered == {}
    assert intake.refused == 1
    assert {path.name for path in bad.iterdir()} == {"a.ready", "a.ready.report.json"}


@pytest.mark.parametrize("after", ["move", "leave"])
def test_what_was_listed_before_a_listing_failed_is_taken(
    site: Site, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    for name in "abc":
        site.drop(name)
    intake = site.intake(after=after)
    scan = Directory.scan

    @contextlib.contextmanager
    def torn(self: Directory) -> Iterator[Iterator["os.DirEntry[str]"]]:
        def first_two(entries: Iterator["os.DirEntry[str]"]) -> Iterator["os.DirEntry[str]"]:
            yield from itertools.islice(entries, 2)
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        with scan(self) as entries:
            yield first_two(entries) if self.path == str(site.folder) else entries

    with monkeypatch.context() as disk:
        disk.setattr(Directory, "scan", torn)
        with pytest.raises(OSError, match="Input/output error"):
            intake.turn(site.now)
    site.turn(intake, times=3)
    assert set(site.entered) == set("abc")


@pytest.mark.parametrize("after", ["move", "leave"])
def test_what_met_a_full_disk_is_taken_when_there_is_room_again(
    site: Site, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    intake = site.intake(after=after)
    site.drop("a")
    with monkeypatch.context() as disk:
        disk.setattr(type(intake.taker), "claim", full)
        with pytest.raises(OSError, match="No space left"):
            site.turn(intake)
    site.turn(intake, times=3)
    assert site.entered == {"a": b"whole"}


def test_a_claim_that_cannot_be_read_keeps_no_other_from_entering(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    intake = site.intake()

    def torn(told: Told, home: Directory, name: str, *seen: Any, **known: Any) -> Any:
        if name.startswith("a."):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return examine(told, home, name, *seen, **known)

    monkeypatch.setattr(watcher, "examine", torn)
    for name in "ab":
        site.drop(name)
    for _ in range(40):
        with contextlib.suppress(OSError):
            intake.turn(site.now)
        site.now += 1.0
    assert site.entered == {"b": b"whole"}


def test_a_file_that_cannot_be_moved_to_the_refused_ones_stays_and_says_why(site: Site) -> None:
    no_directory = site.folder.parent / "elsewhere"
    no_directory.touch()
    site.drop("a.ready")
    intake = site.intake(refused=str(no_directory))
    site.turn(intake, times=3)
    assert site.entered == {}
    assert site.left == ["a.ready"]
    assert site.why(intake, "a.ready") == "cannot be taken: Not a directory"
    # No time will help: a drain does not wait for it.
    assert intake.settling == ""
    no_directory.unlink()
    site.turn(intake, times=3)
    assert {path.name for path in no_directory.iterdir()} == {"a.ready", "a.ready.report.json"}


@pytest.mark.parametrize("after", ["move", "leave"])
def test_a_file_whose_name_is_no_text_is_refused_and_keeps_no_other_from_entering(
    site: Site, after: str
) -> None:
    name = os.fsdecode(b"caf\xe9.pdf")
    site.drop(name)
    site.drop("a")
    intake = site.intake(after=after)
    site.turn(intake, times=2)
    assert site.entered == {"a": b"whole"}
    assert intake.refused == 1
    if after == "move":
        report = json.loads((site.folder / f"refused/{name}.report.json").read_bytes())
        assert report["why"] == "cannot be a docid: it is not valid UTF-8"
        assert report["file"] == f"{site.folder}/caf\\udce9.pdf"


@pytest.mark.parametrize(("duplicates", "left"), [("skip", []), ("set-aside", ["refused/b"])])
def test_content_that_entered_before_does_not_enter_again(
    site: Site, duplicates: str, left: list[str]
) -> None:
    intake = site.intake(duplicates=duplicates)
    for name in ("a", "b"):
        site.drop(name)
        site.turn(intake, times=3)
    assert site.entered == {"a": b"whole"}
    assert [one for one in site.left if not one.endswith(".json")] == left


def test_two_drops_of_one_content_at_once_are_one(site: Site) -> None:
    site.drop("a")
    site.drop("b")
    site.turn(site.intake(duplicates="skip"), times=3)
    assert list(site.entered.values()) == [b"whole"]


def test_content_is_known_for_a_while_only(site: Site) -> None:
    intake = site.intake(duplicates="skip", remember=1e-9)
    for name in ("a", "b"):
        site.drop(name)
        site.turn(intake, times=3)
    assert set(site.entered) == {"a", "b"}


def test_content_that_is_remembered_no_longer_is_no_file_any_more(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However many there are.
    monkeypatch.setattr(leftovers, "_NAMES", 1)
    intake = site.intake(duplicates="skip", remember=3600.0)
    for name in ("new", *"12345"):
        site.drop(name, name.encode())
    site.turn(intake, times=3)
    remembered = site.home / "contents"
    new, *old = (hashlib.sha256(name).hexdigest() for name in (b"new", *map(str.encode, "12345")))
    two_hours_ago = (remembered / new).stat().st_mtime - 7200
    for name in old:
        os.utime(remembered / name, (two_hours_ago, two_hours_ago))
    site.turn(intake, seconds=SWEEP_EVERY, times=2)
    assert [path.name for path in remembered.iterdir()] == [new]


def test_nothing_is_taken_while_the_queue_holds_as_much_as_it_may(site: Site) -> None:
    intake = site.intake(limit=2)
    for name in "abcd":
        site.drop(name)
    site.turn(intake, times=3)
    taken = set(site.entered)
    assert 2 <= len(taken) < 4
    assert "queue holds 2 items or more" in waiting(intake)[1]
    for path in site.queue.glob("*.ready"):
        path.unlink()
    site.turn(intake, times=3)
    assert set(site.entered) | taken == set("abcd")


def test_nothing_is_taken_while_the_disk_of_the_queue_is_nearly_full(site: Site) -> None:
    intake = site.intake(min_free=1 << 62)
    site.drop("a")
    site.turn(intake, times=3)
    assert site.entered == {}
    assert "less than min_free" in waiting(intake)[1]


def test_nothing_is_taken_into_a_queue_that_is_closed(site: Site) -> None:
    intake = site.intake()
    site.drop("a")
    (site.queue / "done").touch()
    site.turn(intake, times=3)
    assert site.entered == {}
    assert "is closed" in waiting(intake)[1]
    (site.queue / "done").unlink()
    site.turn(intake, times=3)
    assert site.entered == {"a": b"whole"}


def test_a_file_that_waits_for_long_is_told_of_once_and_goes_on_waiting(site: Site) -> None:
    intake = site.intake(stuck_after=60.0)
    site.drop("a", b"")
    site.turn(intake, times=20)
    intake.taker.journal.flush()
    journal = (site.queue / ".queuedriver/journal").glob("*.jsonl")
    told = [line for path in journal for line in path.read_text().splitlines() if "stuck" in line]
    assert len(told) == 1
    assert "empty for" in told[0]
    site.drop("a", b"whole")
    site.turn(intake, times=3)
    assert site.entered == {"a": b"whole"}


def test_a_full_folder_is_not_opened_file_by_file_while_nothing_changes(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(300):
        site.drop(f"{number}.txt")
    intake = site.intake(include=("*.pdf",))
    site.turn(intake)
    monkeypatch.setattr(intake.folder.directory.__class__, "open_read", None)
    site.turn(intake, times=5)
    assert intake.files == {}


def test_what_is_looked_at_in_one_turn_is_bounded(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "_AT_ONCE", 7)
    for number in range(50):
        site.drop(f"{number}.txt")
    intake = site.intake()
    intake.turn(site.now)
    assert sum(one.past is not None for one in intake.files.values()) == 7
    site.turn(intake, times=40)
    assert len(site.entered) == 50


def test_files_that_wait_are_looked_at_the_more_seldom_the_more_there_are(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "_A_SECOND", 10)
    for number in range(300):
        site.drop(f"{number}.pdf")
    intake = site.intake(done="{name}.done")
    site.turn(intake, times=3)
    looks = []

    def counted(*given: Any, claimed: bool = False, **known: Any) -> Any:
        if not claimed:
            looks.append(given[2])
        return examine(*given, claimed=claimed, **known)

    monkeypatch.setattr(watcher, "examine", counted)
    for _ in range(60):
        site.now += 1.0
        intake.turn(site.now)
    assert len(looks) <= 2.5 * 10 * 60
    # And at once when its marker comes.
    site.drop("7.pdf.done", b"")
    looks.clear()
    intake.list_soon()
    intake.turn(site.now)
    assert looks == ["7.pdf"]
    assert set(site.entered) == {"7.pdf"}


def test_what_was_taken_and_stays_is_looked_at_by_a_single_call(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(50):
        site.drop(f"{number}.pdf", f"{number}".encode())
    intake = site.intake(after="leave")
    site.turn(intake, times=3)
    assert intake.taken == 50
    monkeypatch.setattr(watcher, "examine", None)
    site.turn(intake, seconds=120.0, times=3)
