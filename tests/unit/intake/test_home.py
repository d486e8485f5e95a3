"""The intakes of one folder, and who of them is there."""

import errno
import os

import msgspec
import pytest

from queuedriver.disk.filesystem import Directory
from queuedriver.errors import CannotUse, ConfigError, FileSystemTrouble
from queuedriver.format.records import Registration
from queuedriver.intake.intake import Intake
from queuedriver.intake.options import IntakeOptions
from tests.intakes import Site


def test_who_left_nothing_and_has_been_gone_for_a_day_is_forgotten(site: Site) -> None:
    site.intake("one")
    site.dies("one")
    site.turn(site.intake("two", "0002"))
    assert [path.name for path in (site.home / "intakes").iterdir()] == ["two.json"]


def test_who_has_come_back_since_one_looked_is_not_forgotten(site: Site) -> None:
    site.intake("one")
    site.dies("one")
    home = site.intake("two", "0002").taker.home
    home.roster.refresh()
    site.intake("one", "0003")
    home.forget_the_gone(set())
    assert (site.home / "intakes/one.json").exists()


def test_an_intake_waits_for_the_silence_of_a_former_life_of_its_id_and_takes_over(
    site: Site,
) -> None:
    site.drop("a")
    taker = site.intake("one", "0001").taker
    assert taker.claim(taker.drop("a", "a", None)) is not None
    path = site.home / "intakes/one.json"
    said = msgspec.json.decode(path.read_bytes(), type=Registration)
    # In a container that is gone: its process cannot be seen from here.
    unseen = msgspec.structs.replace(said.identity, namespace=said.identity.namespace + 1)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(said, identity=unseen, lease=0.5)))
    options = IntakeOptions(settle=0.001, min_free=0)
    one = Intake(str(site.folder), str(site.queue), options, id="one", drain=True)
    assert one.run().word == "drained"
    assert site.entered == {"a": b"whole"}


@pytest.mark.parametrize("option", ["after", "refused"])
def test_where_files_are_to_go_for_good_is_tried_before_any_is_taken(
    site: Site, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    site.drop("a")
    (site.folder / "kept").symlink_to(site.queue)
    where = {"after": "kept/all", "refused": str(site.folder / "kept/all/x")}[option]
    options = IntakeOptions(settle=0.001, min_free=0, **{option: where})  # type: ignore[arg-type]
    if option == "after":
        with pytest.raises(CannotUse, match="is not a directory, so not an archive"):
            Intake(str(site.folder), str(site.queue), options, drain=True).run()
        (site.folder / "kept").unlink()

    rename_over = Directory.rename_over

    def across(self: Directory, old: str, new: str, to: Directory | None = None) -> None:
        if to is not None:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        rename_over(self, old, new)

    monkeypatch.setattr(Directory, "rename_over", across)
    with pytest.raises(ConfigError, match="is on another file system than"):
        Intake(str(site.folder), str(site.queue), options, drain=True).run()
    assert site.left == ["a"]


def test_what_is_refused_does_not_go_where_it_would_be_taken_from_again(site: Site) -> None:
    options = IntakeOptions(settle=0.001, min_free=0, refused=str(site.folder))
    with pytest.raises(ConfigError, match="is the folder itself"):
        Intake(str(site.folder), str(site.queue), options, drain=True).run()


@pytest.mark.parametrize("lives", ["move", "leave"])
def test_a_folder_is_taken_from_and_left_as_it_is_by_nobody_at_once(site: Site, lives: str) -> None:
    site.intake("one", after=lives)
    after = "leave" if lives == "move" else "move"
    options = IntakeOptions(settle=0.001, min_free=0, after=after)
    with pytest.raises(ConfigError, match=f"'one' takes from .* with another --after than {after}"):
        Intake(str(site.folder), str(site.queue), options, drain=True).run()


@pytest.mark.parametrize("step", ["write_first", "write_aside", "open_new"])
def test_a_disk_that_is_full_at_the_start_is_named(
    site: Site, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Directory, step, full)
    with pytest.raises(FileSystemTrouble, match=str(site.folder)):
        Intake(str(site.folder), str(site.queue), IntakeOptions(min_free=0), drain=True).run()


def test_a_lock_that_cannot_be_held_is_told_with_what_to_do(site: Site) -> None:
    (site.home / "start.lock").mkdir(parents=True)
    one = Intake(str(site.folder), str(site.queue), IntakeOptions(min_free=0), drain=True)
    with pytest.raises(CannotUse, match="lock cannot be locked: Is a directory; remove it"):
        one.run()


def test_a_folder_that_no_registration_could_name_is_refused(site: Site) -> None:
    folder = os.fsdecode(os.fsencode(site.folder) + b"\xff")
    os.mkdir(folder)
    with pytest.raises(CannotUse, match="is not valid UTF-8; rename it"):
        Intake(folder, str(site.queue), IntakeOptions(min_free=0), drain=True).run()
