"""Taking copies from a folder that stays as it is: each drop once, none half."""

import json
import os

from queuedriver.disk.filesystem import Directory
from queuedriver.intake.explaining import why
from queuedriver.intake.folder import facts_of
from queuedriver.intake.home import Told
from queuedriver.intake.ledger import Ledger
from queuedriver.intake.rules import Facts
from queuedriver.intake.watcher import Watcher
from tests.intakes import SETTLE, Site


def ledger(intake: Watcher) -> Ledger:
    taker = intake._taker
    assert isinstance(taker, Ledger)
    return taker


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


def test_of_two_intakes_one_takes_a_drop(any_site: Site) -> None:
    any_site.drop("a")
    both = [any_site.intake(id, after="leave") for id in ("one", "two")]
    any_site.turn(*both, times=4)
    assert any_site.entered == {"a": b"whole"}
    assert sum(one.taken for one in both) == 1


def test_a_file_that_changed_while_it_was_copied_does_not_enter(any_site: Site) -> None:
    any_site.drop("a", b"half")
    intake = any_site.intake(after="leave")
    before = facts(any_site, "a")
    any_site.drop("a", b"half and whole")
    assert not ledger(intake).take("a", "a", before, ask=True)
    assert any_site.entered == {}
    any_site.turn(intake, times=3)
    assert any_site.entered == {"a": b"half and whole"}


def test_what_a_dead_intake_has_won_is_published(site: Site) -> None:
    site.drop("a")
    taker = ledger(site.intake("one", after="leave"))
    publish, taker._into.publish = taker._into.publish, lambda *_: None  # type: ignore[method-assign]
    taker.take("a", "a", facts(site, "a"), ask=True)
    assert site.entered == {}
    taker._into.publish = publish  # type: ignore[method-assign]
    site.dies("one", leaves=True)
    site.turn(site.intake("two", "0002", after="leave"), times=3)
    assert site.entered == {"a": b"whole"}


def test_what_a_dead_intake_has_not_won_it_can_never_win(site: Site) -> None:
    site.drop("a")
    taker = ledger(site.intake("one", after="leave"))
    decide = taker._set
    others: list[Watcher] = []

    def late(key: str, token: str) -> bool:
        site.dies("one", leaves=True)
        others.append(site.intake("two", "0002", after="leave"))
        site.turn(*others, times=3)
        return decide(key, token)

    taker._set = late  # type: ignore[method-assign]
    assert not taker.take("a", "a", facts(site, "a"), ask=True)
    assert others[0].taken == 1
    assert site.entered == {"a": b"whole"}


def test_a_duplicate_is_skipped_and_not_refused(site: Site) -> None:
    intake = site.intake(after="leave", duplicates="skip")
    for name in ("a", "b"):
        site.drop(name)
        site.turn(intake, times=3)
    assert site.entered == {"a": b"whole"}
    assert site.left == ["a", "b"]
    assert intake.refused == 0
    intake._into.journal.flush()
    (journal,) = (site.queue / ".queuedriver/journal").glob("*.jsonl")
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    noted = [(one["event"], one["docid"]) for one in events]
    assert noted == [("submitted", "a"), ("skipped", "b")]


def test_why_says_of_a_duplicate_that_it_is_one_and_of_which(site: Site) -> None:
    intake = site.intake(after="leave", duplicates="skip", max_size=10)
    intake._taker.home.note(
        Told(queue=str(site.queue), options=intake._examiner.options, leases=True, local=True)
    )
    for name, content in (("a", b"whole"), ("b", b"whole"), ("c", b"much too large")):
        site.drop(name, content)
        site.turn(intake, times=3)
    with Directory.open(site.folder) as folder, Directory.open(site.inside) as home:
        said = {name: why(folder, home, name) for name in "abc"}
    assert said["a"] == "entered as a"
    assert said["b"] == "skipped as a duplicate: its content entered before, as a"
    assert said["c"].startswith("refused: 14 B is more than max_size")
