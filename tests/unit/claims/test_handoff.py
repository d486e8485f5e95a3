"""Each step of the hand-off, and what it finds when somebody else was there first."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from queuedriver.claims import handoff
from queuedriver.claims.attempts import attempts_of
from queuedriver.claims.charging import charge, give_back
from queuedriver.claims.document import Answer, Output
from queuedriver.claims.handoff import Claim, finish_written, hand_over
from queuedriver.claims.input_queue import InputQueue
from queuedriver.disk.filesystem import Directory
from queuedriver.disk.mounts import is_local
from queuedriver.driving.limits import Limits
from queuedriver.errors import FileSystemTrouble, OutputMissing
from queuedriver.format import names
from queuedriver.format.records import Attempt, Failure, Plan
from queuedriver.format.settings import Settings

if TYPE_CHECKING:
    from tests.conftest import Bench

durably = pytest.mark.parametrize("durable", [False, True], ids=["fast", "durable"])
NOW = 1_700_000_060.0
BAD = Failure(cause="exception", message="bad")
NEVER = Failure(cause="permanent", message="never", permanent=True)


def write(claim: Claim, answer: Answer = b"result") -> Claim:
    """A claim whose processor has answered."""
    limits = Limits()
    claim.outputs.take(answer, limits)
    limits.close()
    return claim


def complete(claim: Claim, answer: Answer = b"result") -> tuple[str, tuple[str, ...]]:
    """Hand a claim over, in whichever way is its own; what became of it, and what is visible."""
    write(claim, answer)
    if not (claim.outputs.blind and hand_over(claim)):
        handoff.complete(claim.of, [claim])
    return claim.fate, claim.published


def serial(claim: Claim) -> str:
    return claim.token.rpartition("-")[2]


def messages(queue: InputQueue, docid: str = "doc") -> list[str]:
    """What is remembered of the attempts at a document."""
    found = attempts_of(queue.attempts.directory, docid)
    return [one.failure.message for one in found]


def item_of(claim: Claim) -> names.Item:
    item = names.parse(claim.name)
    assert item is not None
    return item


def plans(bench: "Bench") -> list[str]:
    return bench.ls("in/.queuedriver/claims")


def attempts(bench: "Bench") -> list[str]:
    return bench.ls("in/.queuedriver/attempts")


# Claim


@pytest.mark.parametrize(
    ("name", "attempt", "working"),
    [
        ("doc.ready", 0, "doc.{}.working"),
        ("doc.failed", 1, "doc.failed.{}.working"),
        ("doc.failed7", 7, "doc.failed7.{}.working"),
        ("doc.65535b00.later", 0, "doc.{}.working"),
        ("doc.failed.65535b00.later", 1, "doc.failed.{}.working"),
    ],
)
def test_a_claim_takes_the_item_and_keeps_its_attempt(
    bench: "Bench", name: str, attempt: int, working: str
) -> None:
    queue = bench.open()
    bench.put(f"in/{name}", b"content")
    (claim,) = queue.claim([name])
    assert (claim.docid, claim.attempt, claim.committed) == ("doc", attempt, False)
    assert claim.name == working.format(claim.token)
    assert bench.ls() == [claim.name]
    assert bench.read(f"in/{claim.name}") == b"content"


def test_of_two_who_claim_an_item_one_gets_it(bench: "Bench") -> None:
    queue = bench.open()
    bench.put("in/doc.ready")
    assert [len(list(queue.claim(["doc.ready"]))) for _ in range(2)] == [1, 0]
    assert queue.lost_races == 1


class Deaf(Directory):
    """On a network file system: renames are done, and their replies are lost."""

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        # Asked again by the kernel, the server knows of no such item.
        raise FileNotFoundError(old)


def test_a_claim_whose_reply_was_lost_is_found_by_its_own_name(bench: "Bench") -> None:
    bench.put("in/doc.ready")
    queue = bench.open(directory=Deaf.open(bench.root / "in"))
    (claim,) = queue.claim(["doc.ready"])
    assert bench.ls() == [claim.name]


# Complete


@durably
def test_one_output_is_published_and_the_input_gone(bench: "Bench", durable: bool) -> None:
    queue = bench.open(settings=Settings(durable=durable))
    claim = bench.claim(queue)
    assert complete(claim) == ("published", ("doc.ready",))
    assert claim.committed
    assert bench.ls() == []
    assert bench.ls("out") == ["doc.ready"]
    assert bench.read("out/doc.ready") == b"result"
    assert plans(bench) == []


@durably
def test_no_output_is_no_more_than_the_end_of_the_input(bench: "Bench", durable: bool) -> None:
    queue = bench.open(settings=Settings(durable=durable))
    for attempt in (0, 1):
        claim = bench.claim(queue, attempt=attempt)
        assert complete(claim, None) == ("finished", ())
        assert bench.ls() == bench.ls("out") == plans(bench) == []


@durably
def test_many_outputs_go_to_their_queues_and_leave_no_plan(bench: "Bench", durable: bool) -> None:
    queue = bench.open("out", "side", settings=Settings(durable=durable))
    claim = bench.claim(queue)
    answer: list[bytes | Output] = [
        b"own",
        Output(b"1", docid="p 1", ext="txt"),
        Output(b"2", docid="é", queue="side"),
    ]
    assert complete(claim, answer)[1] == ("doc.ready", "p 1.ready", "é.ready")
    assert bench.ls() == plans(bench) == []
    assert bench.ls("out") == ["doc.ready", "p 1.ready"]
    assert bench.read("side/é.ready") == b"2"


@durably
def test_a_batch_is_handed_over_together_each_with_its_own_fate(
    bench: "Bench", durable: bool
) -> None:
    queue = bench.open("out", "side", settings=Settings(durable=durable))
    answers: list[Answer] = [
        b"1",
        None,
        Output(b"3", queue="side"),
        b"4",
        [b"5", Output(b"5", "x")],
    ]
    claims = [bench.claim(queue, f"doc{number}") for number in range(5)]
    for claim, answer in zip(claims, answers, strict=True):
        write(claim, answer)
    # Somebody took the fourth back meanwhile.
    os.rename(bench.root / "in" / claims[3].name, bench.root / "in/doc3.ready")
    handoff.complete(queue, claims)
    assert [(one.fate, one.published) for one in claims] == [
        ("published", ("doc0.ready",)),
        ("finished", ()),
        ("published", ("doc2.ready",)),
        ("revoked", ()),
        ("published", ("doc4.ready", "x.ready")),
    ]
    assert bench.ls() == ["doc3.ready"]
    assert bench.ls("out") == ["doc0.ready", "doc4.ready", "x.ready"]
    assert bench.ls("side") == ["doc2.ready"]
    assert plans(bench) == []


@durably
def test_many_durable_outputs_are_made_safe_together(bench: "Bench", durable: bool) -> None:
    queue = bench.open(settings=Settings(durable=durable))
    claims = [bench.claim(queue, f"doc{number}") for number in range(10)]
    handoff.complete(queue, [write(claim) for claim in claims])
    assert len(bench.ls("out")) == 10


@durably
@pytest.mark.parametrize("answer", [b"result", [b"1", Output(b"2", docid="x")], None])
def test_a_claim_that_was_taken_back_publishes_nothing(
    bench: "Bench", durable: bool, answer: Answer
) -> None:
    queue = bench.open(settings=Settings(durable=durable))
    claim = bench.claim(queue)
    write(claim, answer)
    os.rename(bench.root / "in" / claim.name, bench.root / "in/doc.ready")
    handoff.complete(queue, [claim])
    assert (claim.fate, claim.published) == ("revoked", ())
    assert not claim.committed
    assert bench.ls() == ["doc.ready"]
    assert bench.ls("out") == []
    # With what was set aside: it may be committed all the same, and the file system not say so.
    assert plans(bench) == ([f"{claim.token}.json"] if isinstance(answer, list) else [])


@durably
@pytest.mark.parametrize("answer", [b"result", [b"1", Output(b"2", docid="x")]])
def test_a_claim_that_was_taken_back_and_swept_publishes_nothing_either(
    bench: "Bench", durable: bool, answer: Answer
) -> None:
    queue = bench.open(settings=Settings(durable=durable))
    claim = bench.claim(queue)
    write(claim, answer)
    os.rename(bench.root / "in" / claim.name, bench.root / "in/doc.ready")
    for name in bench.ls("out"):
        os.replace(bench.root / "out" / name, bench.put(f"out/.queuedriver/orphans/{name}"))
    handoff.complete(queue, [claim])
    assert claim.fate == "revoked"
    assert bench.ls() == ["doc.ready"]
    assert bench.ls("out") == []
    # With what was set aside: it may be committed all the same, and the file system not say so.
    assert plans(bench) == ([f"{claim.token}.json"] if isinstance(answer, list) else [])


def test_a_durable_commit_of_an_output_that_is_not_there_is_refused(bench: "Bench") -> None:
    queue = bench.open(settings=Settings(durable=True))
    claim = bench.claim(queue)
    claim.outputs.reserve()
    with pytest.raises(FileNotFoundError):
        handoff.complete(queue, [claim])
    assert bench.ls() == [claim.name]


@durably
def test_a_commit_whose_reply_was_lost_is_found_by_its_own_name(
    bench: "Bench", durable: bool
) -> None:
    queue = bench.open(settings=Settings(durable=durable))
    claim = bench.claim(queue)
    write(claim)
    done = names.written_name("doc", 0, claim.token)
    os.rename(bench.root / "in" / claim.name, bench.root / "in" / done)
    assert handoff.committed(queue, claim)
    handoff.complete(queue, [claim])
    assert claim.published == ("doc.ready",)
    assert bench.ls() == []


def test_what_a_recoverer_published_and_finished_first_is_not_missed(bench: "Bench") -> None:
    queue = bench.open()
    claim = bench.claim(queue)
    handoff.commit(queue, write(claim))
    assert finish_written(queue, item_of(claim), claim.name) == ("doc.ready",)
    # And now the driver that was thought dead goes on where it stood.
    handoff.publish(queue, claim)
    handoff.finish(queue, claim)
    assert bench.ls("out") == ["doc.ready"]
    assert bench.ls() == []


@pytest.fixture
def local(tmp_path: Path) -> None:
    """Elsewhere the reply to a rename may be lost."""
    if not is_local(tmp_path.stat().st_dev):
        pytest.skip("the directory for temporary files is on no local file system")


@durably
@pytest.mark.usefixtures("local")
@pytest.mark.parametrize("answer", [b"result", [b"1", Output(b"2", docid="x")]])
def test_what_we_committed_is_not_believed_to_be_published_while_its_output_is_gone(
    bench: "Bench", durable: bool, answer: Answer
) -> None:
    queue = bench.open(settings=Settings(durable=durable))
    claim = write(bench.claim(queue), answer)
    gone = bench.root / "out" / claim.outputs.written[-1].writing
    handoff.write_plan(queue, claim)
    handoff.commit(queue, claim)
    gone.rename(bench.root / "elsewhere")
    with pytest.raises(FileSystemTrouble, match="nobody has published it"):
        handoff.publish(queue, claim)
    # Nor does a later pass believe it.
    for _ in range(2):
        with pytest.raises(OutputMissing):
            finish_written(queue, item_of(claim), claim.name)
        assert bench.ls() == [names.written_name("doc", 0, claim.token)]
    (bench.root / "elsewhere").rename(gone)
    finish_written(queue, item_of(claim), claim.name)
    assert bench.ls() == []
    assert [name for name in bench.ls("out") if not name.endswith(".ready")] == []


@pytest.mark.usefixtures("local")
@pytest.mark.parametrize("lost", [0, 1])
def test_of_a_batch_the_one_whose_output_is_gone_stays(bench: "Bench", lost: int) -> None:
    queue = bench.open()
    claims = [write(bench.claim(queue, docid)) for docid in ("a", "b")]
    (bench.root / "out" / claims[lost].outputs.written[0].writing).unlink()
    with pytest.raises(FileSystemTrouble):
        handoff.complete(queue, claims)
    for claim in claims:
        with suppress(OutputMissing, FileNotFoundError):
            finish_written(queue, item_of(claim), claim.name)
    assert bench.ls() == [claims[lost].name]
    assert bench.ls("out") == [f"{claims[1 - lost].docid}.ready"]


# Names that are taken


def test_a_published_name_that_is_taken_keeps_both(bench: "Bench") -> None:
    queue = bench.open()
    bench.put("out/doc.ready", b"waits")
    claim = bench.claim(queue)
    assert complete(claim)[1] == (f"doc~{serial(claim)}.ready",)
    assert bench.read("out/doc.ready") == b"waits"
    assert bench.read(f"out/doc~{serial(claim)}.ready") == b"result"


def test_two_outputs_whose_names_are_both_taken_stay_two(bench: "Bench") -> None:
    queue = bench.open()
    for docid in ("page~1", "page~2", "page"):
        bench.put(f"out/{docid}.ready", b"waits")
    claim = bench.claim(queue)
    answer = [Output(docid.encode(), docid=docid) for docid in ("page~1", "page~2", "page")]
    _, published = complete(claim, answer)
    assert len(set(published)) == 3
    assert len(bench.ls("out")) == 6
    assert {bench.read(f"out/{name}") for name in published} == {
        b"page~1",
        b"page~2",
        b"page",
    }


def test_a_bare_number_is_no_serial_and_names_are_found_all_the_same(bench: "Bench") -> None:
    queue = bench.open()
    for _ in range(3):
        bench.put("in/doc.7.working")
        claim = queue.claim_of(names.Item("doc", names.WORKING, token="7"), "doc.7.working")
        assert give_back(claim, "leaving") == "released"
    assert len(bench.ls()) == 3
    assert all(names.parse(name) is not None for name in bench.ls())


def test_a_newer_output_replaces_an_older_where_that_was_chosen(bench: "Bench") -> None:
    queue = bench.open(settings=Settings(existing="replace"))
    bench.put("out/doc.ready", b"old")
    claim = bench.claim(queue)
    assert complete(claim)[1] == ("doc.ready",)
    assert bench.ls("out") == ["doc.ready"]
    assert bench.read("out/doc.ready") == b"result"


def test_an_output_that_is_a_link_to_the_one_it_replaces_leaves_nothing_unfinished(
    bench: "Bench",
) -> None:
    """A rename of one name of a file to another of its names does nothing, and says it did."""
    queue = bench.open(settings=Settings(existing="replace"))
    old = bench.put("out/doc.ready", b"result")
    claim = bench.claim(queue)
    os.link(old, claim.outputs.reserve())
    handoff.complete(queue, [claim])
    assert claim.published == ("doc.ready",)
    assert bench.ls("out") == ["doc.ready"]
    assert bench.read("out/doc.ready") == b"result"


@pytest.mark.parametrize(
    ("publish", "final", "second"),
    [
        ("{docid}.xml.ready", "doc.xml.ready", "doc~{}.xml.ready"),
        ("{docid}.xml", "doc.xml", "doc~{}.xml"),
        ("{stem}.txt", "doc.txt", "doc~{}.txt"),
    ],
)
def test_outputs_are_published_as_the_template_says(
    bench: "Bench", publish: str, final: str, second: str
) -> None:
    queue = bench.open(settings=Settings(publish=publish))
    for expected in (final, second):
        claim = bench.claim(queue)
        assert complete(claim)[1] == (expected.format(serial(claim)),)
        # Recovery needs no plan to know.
        assert plans(bench) == []
    assert len(bench.ls("out")) == 2


# Finish what was committed


def committed(
    bench: "Bench", queue: InputQueue, answer: Answer = b"result", attempt: int = 0
) -> Claim:
    """A claim whose driver was killed just after its commit."""
    claim = bench.claim(queue, attempt=attempt)
    handoff.write_plan(queue, write(claim, answer))
    handoff.commit(queue, claim)
    assert claim.committed
    return claim


@durably
@pytest.mark.parametrize("attempt", [0, 1, 12])
def test_anyone_publishes_and_finishes_what_was_committed(
    bench: "Bench", durable: bool, attempt: int
) -> None:
    queue = bench.open(settings=Settings(durable=durable))
    claim = committed(bench, queue, attempt=attempt)
    assert bench.ls() == [names.written_name("doc", attempt, claim.token)]
    for _ in range(3):
        # However often, and by however many.
        assert finish_written(queue, item_of(claim), claim.name) == ("doc.ready",)
    assert bench.ls() == []
    assert bench.ls("out") == ["doc.ready"]


@durably
def test_what_was_committed_with_a_plan_is_published_by_it(bench: "Bench", durable: bool) -> None:
    queue = bench.open("out", "side", settings=Settings(durable=durable))
    answer = [Output(b"1", docid="x", ext="xml"), Output(b"2", queue="side")]
    claim = committed(bench, queue, answer)
    assert plans(bench) == [f"{claim.token}.json"]
    # What is there by chance is none of its outputs.
    bench.put(f"out/doc.{claim.token}.writing.tmp", b"scratch")
    assert finish_written(queue, item_of(claim), claim.name) == ("x.ready", "doc.ready")
    assert bench.ls("out") == [f"doc.{claim.token}.writing.tmp", "x.ready"]
    assert bench.ls("side") == ["doc.ready"]
    assert bench.ls() == plans(bench) == []


def test_of_outputs_published_in_part_the_rest_is_published(bench: "Bench") -> None:
    queue = bench.open()
    claim = committed(bench, queue, [Output(b"1", docid="a"), Output(b"2", docid="b")])
    os.rename(bench.root / f"out/a.{claim.token}.writing", bench.root / "out/a.ready")
    assert finish_written(queue, item_of(claim), claim.name) == ("a.ready", "b.ready")
    assert bench.ls("out") == ["a.ready", "b.ready"]


@pytest.mark.parametrize("answer", [b"result", Output(b"result", docid="x")])
def test_an_output_that_a_sweeper_moved_aside_is_published_from_there(
    bench: "Bench", answer: Answer
) -> None:
    queue = bench.open()
    claim = committed(bench, queue, answer)
    (writing,) = bench.ls("out")
    orphan = bench.put(f"out/.queuedriver/orphans/{writing}")
    os.replace(bench.root / "out" / writing, orphan)
    (final,) = finish_written(queue, item_of(claim), claim.name)
    assert bench.ls("out") == [final]
    assert bench.read(f"out/{final}") == b"result"
    assert not orphan.exists()


def test_an_orphans_name_that_is_taken_keeps_both(bench: "Bench") -> None:
    queue = bench.open()
    claim = committed(bench, queue)
    (writing,) = bench.ls("out")
    orphan = bench.put(f"out/.queuedriver/orphans/{writing}")
    os.replace(bench.root / "out" / writing, orphan)
    bench.put("out/doc.ready", b"waits")
    assert finish_written(queue, item_of(claim), claim.name) == (f"doc~{serial(claim)}.ready",)
    assert bench.read("out/doc.ready") == b"waits"


@pytest.mark.parametrize(
    "plan",
    [
        b"",
        b"{",
        b'{"outputs": 7}',
        msgspec.json.encode(Plan(((0, "../in/other.ready", "x.ready"),))),
        msgspec.json.encode(Plan(((0, "x.{}.writing", "../../x.ready"),))),
        msgspec.json.encode(Plan(((0, "x.{}.writing", ".x"),))),
        msgspec.json.encode(Plan(((0, "x.{}.writing", "y.7.working"),))),
        msgspec.json.encode(Plan(((0, "x.{}.written", "y.ready"),))),
        msgspec.json.encode(Plan(((0, "x.7.writing", "y.ready"),))),
        msgspec.json.encode(Plan(((0, "y.ready", "x.ready"),))),
    ],
)
def test_a_damaged_or_forged_plan_moves_nothing(bench: "Bench", plan: bytes) -> None:
    queue = bench.open()
    claim = committed(bench, queue, Output(b"1", docid="x"))
    bench.put("in/other.ready")
    plan = plan.replace(b"{}", claim.token.encode())
    bench.put(f"in/.queuedriver/claims/{claim.token}.json", plan)
    bench.put("out/y.ready")
    before = bench.ls(), bench.ls("out"), sorted(os.listdir(bench.root))
    with pytest.raises(msgspec.DecodeError):
        finish_written(queue, item_of(claim), claim.name)
    assert (bench.ls(), bench.ls("out"), sorted(os.listdir(bench.root))) == before


def test_what_failed_before_is_forgotten_when_it_is_done(bench: "Bench") -> None:
    queue = bench.open()
    for answer in (b"result", None, [Output(b"1", docid="x")]):
        claim = bench.claim(queue)
        charge(claim, BAD, NOW)
        assert len(attempts(bench)) == 1
        claim = bench.claim(queue, attempt=1)
        complete(claim, answer)
        assert attempts(bench) == []


# The archive


@durably
@pytest.mark.parametrize("answer", [b"result", None])
def test_a_finished_input_goes_to_the_archive(
    bench: "Bench", durable: bool, answer: Answer
) -> None:
    queue = bench.open(archive="done", settings=Settings(durable=durable))
    tokens = []
    for _ in range(2):
        claim = bench.claim(queue)
        tokens.append(serial(claim))
        complete(claim, answer)
    assert bench.ls() == []
    assert bench.ls("done") == ["doc", f"doc~{tokens[1]}"]
    assert bench.read("done/doc") == b"content of doc"


def test_a_committed_input_goes_to_the_archive_whoever_finishes_it(bench: "Bench") -> None:
    queue = bench.open(archive="done")
    claim = committed(bench, queue)
    for _ in range(2):
        finish_written(queue, item_of(claim), claim.name)
    assert bench.ls("done") == ["doc"]


@pytest.mark.parametrize("answer", [b"result", None])
def test_an_archive_that_was_removed_is_trouble_and_not_a_lost_race(
    bench: "Bench", answer: Answer
) -> None:
    queue = bench.open(archive="done")
    claim = bench.claim(queue)
    os.rmdir(bench.root / "done")
    with pytest.raises(FileSystemTrouble, match="done"):
        complete(claim, answer)
    assert bench.ls() == [claim.name]
    bench.directory("done")
    queue.reopen()
    if claim.committed:
        finish_written(queue, item_of(claim), claim.name)
    else:
        handoff.complete(queue, [claim])
    assert bench.ls("done") == ["doc"]


# Give back


@durably
@pytest.mark.parametrize("attempt", [0, 1, 2])
def test_a_release_goes_back_to_where_the_claim_came_from(
    bench: "Bench", durable: bool, attempt: int
) -> None:
    queue = bench.open(settings=Settings(durable=durable))
    claim = bench.claim(queue, attempt=attempt)
    assert handoff.rename_back(queue, claim, attempt) == "doc"
    assert bench.ls() == [names.waiting_name("doc", attempt)]
    assert handoff.rename_back(queue, claim, attempt) is None
    assert bench.ls() == [names.waiting_name("doc", attempt)]


def test_a_postponed_document_keeps_its_attempt_and_its_instant(bench: "Bench") -> None:
    queue = bench.open()
    for attempt, name in [(0, "doc.ff.later"), (2, "doc.failed2.ff.later")]:
        claim = bench.claim(queue, attempt=attempt)
        assert handoff.rename_back(queue, claim, attempt, 255) == "doc"
        assert bench.ls() == [name]
        assert handoff.rename_back(queue, claim, attempt, 255) is None
        (bench.root / "in" / name).unlink()


@durably
def test_a_failure_counts_and_is_recorded(bench: "Bench", durable: bool) -> None:
    queue = bench.open(settings=Settings(durable=durable, retries=5))
    for attempt, name in enumerate(["doc.failed", "doc.failed2", "doc.failed3"]):
        claim = bench.claim(queue, attempt=attempt)
        failure = Failure(cause="exception", message=f"bad {attempt}")
        assert charge(claim, failure, NOW) == "failed"
        assert bench.ls() == [name]
        assert messages(queue) == [f"bad {number}" for number in range(attempt + 1)]


def test_who_fails_a_claim_second_changes_nothing_of_what_the_first_noted(
    bench: "Bench",
) -> None:
    queue = bench.open()
    claim = bench.claim(queue)
    again = queue.claim_of(item_of(claim), claim.name)
    for one, message, fate in ((claim, "first", "failed"), (again, "second", "revoked")):
        assert charge(one, Failure(cause="exception", message=message), NOW) == fate
    assert messages(queue) == ["first"]
    assert bench.ls() == ["doc.failed"]


@pytest.mark.parametrize("step", ["release", "postpone", "fail", "strike"])
def test_a_name_that_is_taken_keeps_both_and_what_is_remembered_follows_its_document(
    bench: "Bench", step: str
) -> None:
    queue = bench.open()
    claim = bench.claim(queue)
    for taken in ("doc.ready", "doc.failed", "doc.ff.later"):
        bench.put(f"in/{taken}", b"another")
    match step:
        case "release":
            give_back(claim, "leaving")
        case "postpone":
            give_back(claim, "busy", 255)
        case "fail":
            charge(claim, BAD, NOW)
        case _:
            charge(claim, BAD, NOW, doubted=True)
    docid = f"doc~{serial(claim)}"
    (name,) = set(bench.ls()) - {"doc.ready", "doc.failed", "doc.ff.later"}
    item = names.parse(name)
    assert item is not None
    assert item.docid == docid
    assert bench.read(f"in/{name}") == b"content of doc"
    assert len(bench.ls()) == 4
    if step in ("fail", "strike"):
        assert messages(queue, docid) == ["bad"]
        assert messages(queue) == []


# Discard


def test_a_discarded_document_is_untouched_and_has_its_report_beside_it(bench: "Bench") -> None:
    queue = bench.open()
    claim = bench.claim(queue, attempt=1)
    assert charge(claim, NEVER, NOW) == "discarded"
    assert bench.ls() == attempts(bench) == []
    assert sorted(os.listdir(bench.root / "in/discarded")) == ["doc", "doc.report.json"]
    assert bench.read("in/discarded/doc") == b"content of doc"
    report = bench.queue().report("doc")
    assert report is not None
    assert [one.token for one in report.attempts] == [claim.token]


def test_a_claim_that_was_taken_back_is_not_discarded(bench: "Bench") -> None:
    queue = bench.open()
    claim = bench.claim(queue)
    again = queue.claim_of(item_of(claim), claim.name)
    handoff.rename_back(queue, claim, 0)
    assert charge(again, NEVER, NOW) == "revoked"
    assert bench.ls() == ["doc.ready"]
    assert os.listdir(bench.root / "in/discarded") == []


def test_a_discard_whose_reply_was_lost_counts(bench: "Bench") -> None:
    class Deafened(Directory):
        """The rename is done, and its reply is lost."""

        __slots__ = ()

        def rename_new(self, old: str, new: str, to: Directory | None = None) -> None:
            super().rename_new(old, new, to)
            raise FileNotFoundError(old)

    queue = bench.open()
    claim = bench.claim(queue)
    queue.directory.__class__ = Deafened
    assert charge(claim, NEVER, NOW) == "discarded"
    assert sorted(os.listdir(bench.root / "in/discarded")) == ["doc", "doc.report.json"]


class Unseen(Directory):
    """What is called `doc` is neither found by its name nor listed."""

    def status(self, name: str = ".") -> os.stat_result:
        if name == "doc":
            raise FileNotFoundError(2, "remembered as missing", name)
        return super().status(name)

    def names(self) -> Iterator[str]:
        return (name for name in super().names() if name != "doc")


def test_a_report_is_kept_for_a_document_that_is_discarded_and_not_seen_yet(
    bench: "Bench",
) -> None:
    """The reply to the rename is lost, the name is remembered as missing, the listing is old."""
    queue = bench.open()
    claim = bench.claim(queue)
    attempt = Attempt(
        docid="doc",
        token=claim.token,
        attempt=0,
        driver="d",
        host="alpha",
        claimed_at=NOW - 1,
        ended_at=NOW,
        counted=True,
        failure=NEVER,
    )
    queue.attempts.note(claim.inode(), attempt, discarded_from="in")
    queue.directory.rename_new(claim.name, "doc", queue.discarded)
    queue.attempts.discarded = unseen = Unseen.open(bench.root / "in/discarded")
    queue.attempts.settle()
    unseen.close()
    assert os.listdir(bench.root / "in/discarded") == ["doc"]
    # Whoever comes later, and sees it.
    bench.open().attempts.settle()
    assert sorted(os.listdir(bench.root / "in/discarded")) == ["doc", "doc.report.json"]


def test_a_removed_directory_of_the_discarded_is_no_lost_race(bench: "Bench") -> None:
    queue = bench.open()
    claim = bench.claim(queue)
    os.rmdir(bench.root / "in/discarded")
    with pytest.raises(FileSystemTrouble, match="discarded"):
        charge(claim, NEVER, NOW)
    assert bench.ls() == [claim.name]


# Without RENAME_NOREPLACE


def test_where_the_file_system_cannot_refuse_to_replace_nothing_is_replaced_either(
    bench: "Bench",
) -> None:
    """As on NFS: look, then rename."""
    queue = bench.open()
    for directory in (queue.directory, queue.discarded, queue.targets[0].directory):
        directory._noreplace = False
    bench.put("out/doc.ready", b"waits")
    claim = bench.claim(queue)
    assert complete(claim)[1] == (f"doc~{serial(claim)}.ready",)
    bench.put("in/discarded/doc", b"earlier")
    claim = bench.claim(queue)
    charge(claim, NEVER, NOW)
    assert bench.queue().discarded() == ["doc", f"doc~{serial(claim)}"]
    claim = bench.claim(queue)
    bench.put("in/doc.ready", b"again")
    assert handoff.rename_back(queue, claim, 0) == f"doc~{serial(claim)}"
    assert bench.read("out/doc.ready") == b"waits"
    assert bench.read("in/doc.ready") == b"again"


def test_nothing_is_done_to_names_that_are_others(bench: "Bench", tmp_path: Path) -> None:
    queue = bench.open()
    others = ["scan.pdf", "doc.xml", "doc.8.working", "doc.ready.tmp"]
    for name in others:
        bench.put(f"in/{name}", name.encode())
        bench.put(f"out/{name}", name.encode())
    for step in range(4):
        claim = bench.claim(queue)
        if step == 0:
            complete(claim)
        elif step == 1:
            charge(claim, NEVER, NOW)
        elif step == 2:
            charge(claim, BAD, NOW)
        else:
            give_back(claim, "leaving")
    for name in others:
        assert bench.read(f"in/{name}") == bench.read(f"out/{name}") == name.encode()
