"""The intakes of one folder, and who of them is there."""

import os

import msgspec
import pytest

from queuedriver.errors import CannotUse
from queuedriver.format.records import Registration
from queuedriver.intake.handover import Handover
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
    home = site.intake("two", "0002")._taker.home
    home.roster.refresh()
    site.intake("one", "0003")
    home.forget_the_gone(set())
    assert (site.home / "intakes/one.json").exists()


def test_an_intake_waits_for_the_silence_of_a_former_life_of_its_id_and_takes_over(
    site: Site,
) -> None:
    site.drop("a")
    taker = site.intake("one", "0001")._taker
    assert isinstance(taker, Handover)
    assert taker.claim("a", "a") is not None
    path = site.home / "intakes/one.json"
    said = msgspec.json.decode(path.read_bytes(), type=Registration)
    # In a container that is gone: its process cannot be seen from here.
    unseen = msgspec.structs.replace(said.identity, namespace=said.identity.namespace + 1)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(said, identity=unseen, lease=0.5)))
    options = IntakeOptions(settle=0.001, min_free=0)
    one = Intake(str(site.folder), str(site.queue), options, id="one", drain=True)
    assert one.run().word == "drained"
    assert site.entered == {"a": b"whole"}


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
