"""Each step of the hand-off, and what it finds when somebody else was there first."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
import pytest

from queuedriver import names
from queuedriver.errors import FileSystemTrouble, OutputMissing
from queuedriver.filesystem import Directory
from queuedriver.handoff import Claim, Completion, Handoff
from queuedriver.limits import Limits
from queuedriver.mounts import is_local
from queuedriver.outcome import Failure
from queuedriver.outputs import Answer, Output, Outputs
from queuedriver.records import Attempt, Plan, Report
from queuedriver.settings import Settings

if TYPE_CHECKING:
    from tests.conftest import Bench

durably = pytest.mark.parametrize("durable", [False, True], ids=["fast", "durable"])
NOW = 1_700_000_060.0


def written(handoff: Handoff, claim: Claim, answer: Answer = b"result") -> Outputs:
    """The outputs of a claim whose processor has answered."""
    outputs = handoff.outputs(claim)
    limits = Limits()
    outputs.take(answer, limits)
    limits.close()
    return outputs


def serial(claim: Claim) -> str:
    return claim.token.rpartition("-")[2]


def record(claim: Claim, message: str = "bad", inode: int = 0) -> Attempt:
    return Attempt(
        docid=claim.docid,
        token=claim.token,
        attempt=claim.attempt,
        driver="d",
        host="alpha",
        claimed_at=names.parse_token(claim.token).claimed_at,
        ended_at=NOW,
        counted=True,
        failure=Failure(cause="exception", message=message),
        inode=inode,
    )


def report(claim: Claim, message: str = "bad") -> Report:
    attempt = record(claim, message)
    return Report(
        docid=claim.docid,
        queue="in",
        discarded_at=NOW,
        driver="d",
        host="alpha",
        failure=attempt.failure,
        attempts=(attempt,),
    )


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
    handoff = bench.handoff()
    bench.put(f"in/{name}", b"content")
    token = bench.token()
    claim = handoff.claim(name, "doc", attempt, token)
    assert claim is not None
    assert not claim.committed
    assert claim.name == working.format(token)
    assert bench.ls() == [claim.name]
    assert bench.read(f"in/{claim.name}") == b"content"


def test_of_two_who_claim_an_item_one_gets_it(bench: "Bench") -> None:
    handoff = bench.handoff()
    bench.put("in/doc.ready")
    claims = [handoff.claim("doc.ready", "doc", 0, bench.token()) for _ in range(2)]
    assert [claim is not None for claim in claims] == [True, False]


def test_a_claim_whose_reply_was_lost_is_found_by_its_own_name(bench: "Bench") -> None:
    handoff = bench.handoff()
    token = bench.token()
    # The server did it, and asked again it knows of no such item.
    bench.put(f"in/doc.{token}.working")
    claim = handoff.claim("doc.ready", "doc", 0, token)
    assert claim is not None
    assert claim.name == f"doc.{token}.working"


# Complete


@durably
def test_one_output_is_published_and_the_input_gone(bench: "Bench", durable: bool) -> None:
    handoff = bench.handoff(settings=Settings(durable=durable))
    claim = bench.claim(handoff)
    completion = handoff.complete_one(claim, written(handoff, claim))
    assert completion == Completion(claim, ("doc.ready",))
    assert claim.committed
    assert bench.ls() == []
    assert bench.ls("out") == ["doc.ready"]
    assert bench.read("out/doc.ready") == b"result"
    assert plans(bench) == []


@durably
def test_no_output_is_no_more_than_the_end_of_the_input(bench: "Bench", durable: bool) -> None:
    handoff = bench.handoff(settings=Settings(durable=durable))
    for attempt in (0, 1):
        claim = bench.claim(handoff, attempt=attempt)
        completion = handoff.complete_one(claim, written(handoff, claim, None))
        assert completion == Completion(claim, ())
        assert bench.ls() == bench.ls("out") == plans(bench) == []


@durably
def test_many_outputs_go_to_their_queues_and_leave_no_plan(bench: "Bench", durable: bool) -> None:
    handoff = bench.handoff("out", "side", settings=Settings(durable=durable))
    claim = bench.claim(handoff)
    answer: list[bytes | Output] = [
        b"own",
        Output(b"1", docid="p 1", ext="txt"),
        Output(b"2", docid="é", queue="side"),
    ]
    outputs = written(handoff, claim, answer)
    completion = handoff.complete_one(claim, outputs)
    assert completion.published == ("doc.ready", "p 1.ready", "é.ready")
    assert bench.ls() == plans(bench) == []
    assert bench.ls("out") == ["doc.ready", "p 1.ready"]
    assert bench.read("side/é.ready") == b"2"


@durably
def test_a_batch_is_handed_over_together_each_with_its_own_fate(
    bench: "Bench", durable: bool
) -> None:
    handoff = bench.handoff("out", "side", settings=Settings(durable=durable))
    answers: list[Answer] = [
        b"1",
        None,
        Output(b"3", queue="side"),
        b"4",
        [b"5", Output(b"5", "x")],
    ]
    claims = [bench.claim(handoff, f"doc{number}") for number in range(5)]
    work = [
        (one, written(handoff, one, answer)) for one, answer in zip(claims, answers, strict=True)
    ]
    # Somebody took the fourth back meanwhile.
    os.rename(bench.root / "in" / claims[3].name, bench.root / "in/doc3.ready")
    completions = handoff.complete(work)
    assert [one.claim for one in completions] == claims
    assert [one.published for one in completions] == [
        ("doc0.ready",),
        (),
        ("doc2.ready",),
        (),
        ("doc4.ready", "x.ready"),
    ]
    assert [one.revoked for one in completions] == [False, False, False, True, False]
    assert bench.ls() == ["doc3.ready"]
    assert bench.ls("out") == ["doc0.ready", "doc4.ready", "x.ready"]
    assert bench.ls("side") == ["doc2.ready"]
    assert plans(bench) == []


@durably
def test_many_durable_outputs_are_made_safe_together(bench: "Bench", durable: bool) -> None:
    handoff = bench.handoff(settings=Settings(durable=durable))
    claims = [bench.claim(handoff, f"doc{number}") for number in range(10)]
    handoff.complete([(claim, written(handoff, claim)) for claim in claims])
    assert len(bench.ls("out")) == 10


@durably
@pytest.mark.parametrize("answer", [b"result", [b"1", Output(b"2", docid="x")], None])
def test_a_claim_that_was_taken_back_publishes_nothing(
    bench: "Bench", durable: bool, answer: Answer
) -> None:
    handoff = bench.handoff(settings=Settings(durable=durable))
    claim = bench.claim(handoff)
    outputs = written(handoff, claim, answer)
    os.rename(bench.root / "in" / claim.name, bench.root / "in/doc.ready")
    completion = handoff.complete_one(claim, outputs)
    assert completion == Completion(claim, (), revoked=True)
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
    handoff = bench.handoff(settings=Settings(durable=durable))
    claim = bench.claim(handoff)
    outputs = written(handoff, claim, answer)
    os.rename(bench.root / "in" / claim.name, bench.root / "in/doc.ready")
    for name in bench.ls("out"):
        os.replace(bench.root / "out" / name, bench.put(f"out/.queuedriver/orphans/{name}"))
    assert handoff.complete_one(claim, outputs).revoked
    assert bench.ls() == ["doc.ready"]
    assert bench.ls("out") == []
    # With what was set aside: it may be committed all the same, and the file system not say so.
    assert plans(bench) == ([f"{claim.token}.json"] if isinstance(answer, list) else [])


def test_a_durable_commit_of_an_output_that_is_not_there_is_refused(bench: "Bench") -> None:
    handoff = bench.handoff(settings=Settings(durable=True))
    claim = bench.claim(handoff)
    outputs = handoff.outputs(claim)
    outputs.reserve()
    with pytest.raises(FileNotFoundError):
        handoff.complete_one(claim, outputs)
    assert bench.ls() == [claim.name]


@durably
def test_a_commit_whose_reply_was_lost_is_found_by_its_own_name(
    bench: "Bench", durable: bool
) -> None:
    handoff = bench.handoff(settings=Settings(durable=durable))
    claim = bench.claim(handoff)
    outputs = written(handoff, claim)
    done = names.written_name("doc", 0, claim.token)
    os.rename(bench.root / "in" / claim.name, bench.root / "in" / done)
    assert handoff.committed(claim)
    assert handoff.complete_one(claim, outputs).published == ("doc.ready",)
    assert bench.ls() == []


def test_what_a_recoverer_published_and_finished_first_is_not_missed(bench: "Bench") -> None:
    handoff = bench.handoff()
    claim = bench.claim(handoff)
    outputs = written(handoff, claim)
    assert handoff._commit(claim, outputs)
    assert handoff.finish_written(item_of(claim), claim.name) == ("doc.ready",)
    # And now the driver that was thought dead goes on where it stood.
    handoff._publish_ours(claim, outputs.written)
    handoff._finish(claim, planned=False)
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
    handoff = bench.handoff(settings=Settings(durable=durable))
    claim = bench.claim(handoff)
    outputs = written(handoff, claim, answer)
    gone = bench.root / "out" / outputs.written[-1].writing
    commit = handoff._commit

    def commit_and_lose(claim: Claim, outputs: Outputs) -> bool:
        gone.rename(bench.root / "elsewhere")
        return commit(claim, outputs)

    handoff._commit = commit_and_lose  # type: ignore[method-assign]
    with pytest.raises(FileSystemTrouble, match="is gone, and 'doc' is committed"):
        handoff.complete_one(claim, outputs)
    # Nor does a later pass believe it.
    for _ in range(2):
        with pytest.raises(OutputMissing):
            handoff.finish_written(item_of(claim), claim.name)
        assert bench.ls() == [names.written_name("doc", 0, claim.token)]
    (bench.root / "elsewhere").rename(gone)
    handoff.finish_written(item_of(claim), claim.name)
    assert bench.ls() == []
    assert [name for name in bench.ls("out") if not name.endswith(".ready")] == []


@pytest.mark.usefixtures("local")
@pytest.mark.parametrize("lost", [0, 1])
def test_of_a_batch_the_one_whose_output_is_gone_stays(bench: "Bench", lost: int) -> None:
    handoff = bench.handoff()
    claims = [bench.claim(handoff, docid) for docid in ("a", "b")]
    work = [(claim, written(handoff, claim)) for claim in claims]
    (bench.root / "out" / work[lost][1].written[0].writing).unlink()
    with pytest.raises(FileSystemTrouble):
        handoff.complete(work)
    for claim in claims:
        with suppress(OutputMissing):
            handoff.finish_written(item_of(claim), claim.name)
    assert bench.ls() == [claims[lost].name]
    assert bench.ls("out") == [f"{claims[1 - lost].docid}.ready"]


# Names that are taken


def test_a_published_name_that_is_taken_keeps_both(bench: "Bench") -> None:
    handoff = bench.handoff()
    bench.put("out/doc.ready", b"waits")
    claim = bench.claim(handoff)
    completion = handoff.complete_one(claim, written(handoff, claim))
    assert completion.published == (f"doc~{serial(claim)}.ready",)
    assert bench.read("out/doc.ready") == b"waits"
    assert bench.read(f"out/doc~{serial(claim)}.ready") == b"result"


def test_two_outputs_whose_names_are_both_taken_stay_two(bench: "Bench") -> None:
    handoff = bench.handoff()
    for docid in ("page~1", "page~2", "page"):
        bench.put(f"out/{docid}.ready", b"waits")
    claim = bench.claim(handoff)
    answer = [Output(docid.encode(), docid=docid) for docid in ("page~1", "page~2", "page")]
    completion = handoff.complete_one(claim, written(handoff, claim, answer))
    assert len(set(completion.published)) == 3
    assert len(bench.ls("out")) == 6
    assert {bench.read(f"out/{name}") for name in completion.published} == {
        b"page~1",
        b"page~2",
        b"page",
    }


def test_a_bare_number_is_no_serial_and_names_are_found_all_the_same(bench: "Bench") -> None:
    handoff = bench.handoff()
    for _ in range(3):
        bench.put("in/doc.7.working")
        claim = Claim("doc", 0, "7", "doc.7.working")
        assert handoff.release(claim) is not None
    assert len(bench.ls()) == 3
    assert all(names.parse(name) is not None for name in bench.ls())


def test_a_newer_output_replaces_an_older_where_that_was_chosen(bench: "Bench") -> None:
    handoff = bench.handoff(settings=Settings(existing="replace"))
    bench.put("out/doc.ready", b"old")
    claim = bench.claim(handoff)
    assert handoff.complete_one(claim, written(handoff, claim)).published == ("doc.ready",)
    assert bench.ls("out") == ["doc.ready"]
    assert bench.read("out/doc.ready") == b"result"


@pytest.mark.parametrize(
    ("publish", "final", "second"),
    [
        ("{docid}.xml.ready", "doc.xml.ready", "doc.xml~{}.ready"),
        ("{docid}.xml", "doc.xml", "doc.xml~{}"),
        ("{stem}.txt", "doc.txt", "doc.txt~{}"),
    ],
)
def test_outputs_are_published_as_the_template_says(
    bench: "Bench", publish: str, final: str, second: str
) -> None:
    handoff = bench.handoff(settings=Settings(publish=publish))
    for expected in (final, second):
        claim = bench.claim(handoff)
        completion = handoff.complete_one(claim, written(handoff, claim))
        assert completion.published == (expected.format(serial(claim)),)
        # Recovery needs no plan to know.
        assert plans(bench) == []
    assert len(bench.ls("out")) == 2


# Finish what was committed


def committed(
    bench: "Bench", handoff: Handoff, answer: Answer = b"result", attempt: int = 0
) -> Claim:
    """A claim whose driver was killed just after its commit."""
    claim = bench.claim(handoff, attempt=attempt)
    outputs = written(handoff, claim, answer)
    handoff._plan(claim, outputs)
    assert handoff._commit(claim, outputs)
    return claim


@durably
@pytest.mark.parametrize("attempt", [0, 1, 12])
def test_anyone_publishes_and_finishes_what_was_committed(
    bench: "Bench", durable: bool, attempt: int
) -> None:
    handoff = bench.handoff(settings=Settings(durable=durable))
    claim = committed(bench, handoff, attempt=attempt)
    assert bench.ls() == [names.written_name("doc", attempt, claim.token)]
    for _ in range(3):
        # However often, and by however many.
        assert handoff.finish_written(item_of(claim), claim.name) == ("doc.ready",)
    assert bench.ls() == []
    assert bench.ls("out") == ["doc.ready"]


@durably
def test_what_was_committed_with_a_plan_is_published_by_it(bench: "Bench", durable: bool) -> None:
    handoff = bench.handoff("out", "side", settings=Settings(durable=durable))
    answer = [Output(b"1", docid="x", ext="xml"), Output(b"2", queue="side")]
    claim = committed(bench, handoff, answer)
    assert plans(bench) == [f"{claim.token}.json"]
    # What is there by chance is none of its outputs.
    bench.put(f"out/doc.{claim.token}.writing.tmp", b"scratch")
    assert handoff.finish_written(item_of(claim), claim.name) == ("x.ready", "doc.ready")
    assert bench.ls("out") == [f"doc.{claim.token}.writing.tmp", "x.ready"]
    assert bench.ls("side") == ["doc.ready"]
    assert bench.ls() == plans(bench) == []


def test_of_outputs_published_in_part_the_rest_is_published(bench: "Bench") -> None:
    handoff = bench.handoff()
    claim = committed(bench, handoff, [Output(b"1", docid="a"), Output(b"2", docid="b")])
    os.rename(bench.root / f"out/a.{claim.token}.writing", bench.root / "out/a.ready")
    assert handoff.finish_written(item_of(claim), claim.name) == ("a.ready", "b.ready")
    assert bench.ls("out") == ["a.ready", "b.ready"]


@pytest.mark.parametrize("answer", [b"result", Output(b"result", docid="x")])
def test_an_output_that_a_sweeper_moved_aside_is_published_from_there(
    bench: "Bench", answer: Answer
) -> None:
    handoff = bench.handoff()
    claim = committed(bench, handoff, answer)
    (writing,) = bench.ls("out")
    orphan = bench.put(f"out/.queuedriver/orphans/{writing}")
    os.replace(bench.root / "out" / writing, orphan)
    (final,) = handoff.finish_written(item_of(claim), claim.name)
    assert bench.ls("out") == [final]
    assert bench.read(f"out/{final}") == b"result"
    assert not orphan.exists()


def test_an_orphans_name_that_is_taken_keeps_both(bench: "Bench") -> None:
    handoff = bench.handoff()
    claim = committed(bench, handoff)
    (writing,) = bench.ls("out")
    orphan = bench.put(f"out/.queuedriver/orphans/{writing}")
    os.replace(bench.root / "out" / writing, orphan)
    bench.put("out/doc.ready", b"waits")
    assert handoff.finish_written(item_of(claim), claim.name) == (f"doc~{serial(claim)}.ready",)
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
    handoff = bench.handoff()
    claim = committed(bench, handoff, Output(b"1", docid="x"))
    bench.put("in/other.ready")
    plan = plan.replace(b"{}", claim.token.encode())
    bench.put(f"in/.queuedriver/claims/{claim.token}.json", plan)
    bench.put("out/y.ready")
    before = bench.ls(), bench.ls("out"), sorted(os.listdir(bench.root))
    with pytest.raises(msgspec.DecodeError):
        handoff.finish_written(item_of(claim), claim.name)
    assert (bench.ls(), bench.ls("out"), sorted(os.listdir(bench.root))) == before


def test_what_failed_before_is_forgotten_when_it_is_done(bench: "Bench") -> None:
    handoff = bench.handoff()
    for answer in (b"result", None, [Output(b"1", docid="x")]):
        claim = bench.claim(handoff)
        handoff.fail(claim, record(claim, inode=handoff.inode(claim)))
        assert len(attempts(bench)) == 1
        claim = bench.claim(handoff, attempt=1)
        handoff.complete_one(claim, written(handoff, claim, answer))
        assert attempts(bench) == []


# The archive


@durably
@pytest.mark.parametrize("answer", [b"result", None])
def test_a_finished_input_goes_to_the_archive(
    bench: "Bench", durable: bool, answer: Answer
) -> None:
    handoff = bench.handoff(archive="done", settings=Settings(durable=durable))
    tokens = []
    for _ in range(2):
        claim = bench.claim(handoff)
        tokens.append(serial(claim))
        handoff.complete_one(claim, written(handoff, claim, answer))
    assert bench.ls() == []
    assert bench.ls("done") == ["doc", f"doc~{tokens[1]}"]
    assert bench.read("done/doc") == b"content of doc"


def test_a_committed_input_goes_to_the_archive_whoever_finishes_it(bench: "Bench") -> None:
    handoff = bench.handoff(archive="done")
    claim = committed(bench, handoff)
    for _ in range(2):
        handoff.finish_written(item_of(claim), claim.name)
    assert bench.ls("done") == ["doc"]


@pytest.mark.parametrize("answer", [b"result", None])
def test_an_archive_that_was_removed_is_trouble_and_not_a_lost_race(
    bench: "Bench", answer: Answer
) -> None:
    handoff = bench.handoff(archive="done")
    claim = bench.claim(handoff)
    os.rmdir(bench.root / "done")
    with pytest.raises(FileSystemTrouble, match="done"):
        handoff.complete_one(claim, written(handoff, claim, answer))
    assert bench.ls() == [claim.name]
    bench.directory("done")
    for directory in handoff.directories():
        directory.reopen()
    if claim.committed:
        handoff.finish_written(item_of(claim), claim.name)
    else:
        handoff.complete_one(claim, handoff.outputs(claim))
    assert bench.ls("done") == ["doc"]


# Give back


@durably
@pytest.mark.parametrize("attempt", [0, 1, 2])
def test_a_release_goes_back_to_where_the_claim_came_from(
    bench: "Bench", durable: bool, attempt: int
) -> None:
    handoff = bench.handoff(settings=Settings(durable=durable))
    claim = bench.claim(handoff, attempt=attempt)
    assert handoff.release(claim) == "doc"
    assert bench.ls() == [names.waiting_name("doc", attempt)]
    assert handoff.release(claim) is None
    assert bench.ls() == [names.waiting_name("doc", attempt)]


def test_a_postponed_document_keeps_its_attempt_and_its_instant(bench: "Bench") -> None:
    handoff = bench.handoff()
    for attempt, name in [(0, "doc.ff.later"), (2, "doc.failed2.ff.later")]:
        claim = bench.claim(handoff, attempt=attempt)
        assert handoff.postpone(claim, 255) == "doc"
        assert bench.ls() == [name]
        assert handoff.postpone(claim, 255) is None
        (bench.root / "in" / name).unlink()


@durably
def test_a_failure_counts_and_is_recorded(bench: "Bench", durable: bool) -> None:
    handoff = bench.handoff(settings=Settings(durable=durable))
    records = []
    for attempt, name in enumerate(["doc.failed", "doc.failed2", "doc.failed3"]):
        claim = bench.claim(handoff, attempt=attempt)
        records.append(record(claim, f"bad {attempt}"))
        assert handoff.fail(claim, records[-1]) == "doc"
        assert bench.ls() == [name]
        assert handoff.attempts.listed("doc") == records
    claim = bench.claim(handoff, attempt=3)
    assert handoff.fail(claim, record(claim), due=255) == "doc"
    assert bench.ls() == ["doc.failed4.ff.later"]


def test_who_fails_a_claim_second_changes_nothing_of_what_the_first_noted(
    bench: "Bench",
) -> None:
    handoff = bench.handoff()
    claim = bench.claim(handoff)
    assert handoff.fail(claim, record(claim, "first")) == "doc"
    assert handoff.fail(claim, record(claim, "second")) is None
    assert [one.failure.message for one in handoff.attempts.listed("doc")] == ["first"]
    assert bench.ls() == ["doc.failed"]


@pytest.mark.parametrize("step", ["release", "postpone", "fail", "record_release"])
def test_a_name_that_is_taken_keeps_both_and_the_record_follows_its_document(
    bench: "Bench", step: Literal["release", "postpone", "fail", "record_release"]
) -> None:
    handoff = bench.handoff()
    claim = bench.claim(handoff)
    for taken in ("doc.ready", "doc.failed", "doc.ff.later"):
        bench.put(f"in/{taken}", b"another")
    match step:
        case "release":
            docid = handoff.release(claim)
        case "postpone":
            docid = handoff.postpone(claim, 255)
        case "fail":
            docid = handoff.fail(claim, record(claim))
        case _:
            docid = handoff.record_release(claim, record(claim))
    assert docid == f"doc~{serial(claim)}"
    (name,) = set(bench.ls()) - {"doc.ready", "doc.failed", "doc.ff.later"}
    item = names.parse(name)
    assert item is not None
    assert item.docid == docid
    assert bench.read(f"in/{name}") == b"content of doc"
    assert len(bench.ls()) == 4
    if step in ("fail", "record_release"):
        assert len(handoff.attempts.listed(docid)) == 1
        assert handoff.attempts.listed("doc") == []


# Give up


def test_a_discarded_document_is_untouched_and_has_its_report_beside_it(bench: "Bench") -> None:
    handoff = bench.handoff()
    claim = bench.claim(handoff, attempt=1)
    handoff.attempts.write(record(claim, inode=handoff.inode(claim)), durable=False)
    assert handoff.discard(claim, report(claim)) == "doc"
    assert bench.ls() == attempts(bench) == []
    assert sorted(os.listdir(bench.root / "in/discarded")) == ["doc", "doc.report.json"]
    assert bench.read("in/discarded/doc") == b"content of doc"
    assert bench.queue().report("doc") == report(claim)


def test_a_second_document_of_the_name_is_discarded_beside_the_first(bench: "Bench") -> None:
    handoff = bench.handoff()
    first, second = bench.claim(handoff), bench.claim(handoff)
    assert handoff.discard(first, report(first, "1")) == "doc"
    assert handoff.discard(second, report(second, "2")) == f"doc~{serial(second)}"
    queue = bench.queue()
    assert queue.discarded() == ["doc", f"doc~{serial(second)}"]
    reports = [queue.report(docid) for docid in queue.discarded()]
    assert [one.failure.message for one in reports if one is not None] == ["1", "2"]


def test_a_claim_that_was_taken_back_is_not_discarded(bench: "Bench") -> None:
    handoff = bench.handoff()
    claim = bench.claim(handoff)
    handoff.release(claim)
    assert handoff.discard(claim, report(claim)) is None
    assert bench.ls() == ["doc.ready"]
    # Nobody is told of it. It goes with the sweep: not to see a document there proves nothing.
    assert os.listdir(bench.root / "in/discarded") == [f".{claim.token}.report"]


def test_of_many_who_discard_a_claim_at_once_none_leaves_it_without_a_report(
    bench: "Bench",
) -> None:
    handoff = bench.handoff()
    discarded = handoff.discarded
    claim = bench.claim(handoff)
    # One has written its report, and moved the document; then it is slow.
    hidden = f".{claim.token}.report"
    discarded.write_new(hidden, msgspec.json.encode(report(claim, "first")))
    handoff.queue.rename_new(claim.name, "doc", discarded)
    # Another comes, and finds the claim gone.
    assert handoff.discard(claim, report(claim, "second")) is None
    found = bench.queue().report("doc")
    assert found is not None
    assert found.failure.message == "first"
    # The first goes on; and a third comes too late for everything.
    handoff._show_report(hidden, "doc")
    assert handoff.discard(claim, report(claim, "third")) is None
    assert sorted(os.listdir(bench.root / "in/discarded")) == ["doc", "doc.report.json"]
    assert bench.queue().report("doc") == found


def test_a_discard_whose_reply_was_lost_is_explained_all_the_same(bench: "Bench") -> None:
    handoff = bench.handoff()
    bench.put("in/discarded/doc", b"an earlier one")
    bench.put("in/discarded/doc.report.json", b"its reason")
    claim = bench.claim(handoff)
    second = f"doc~{serial(claim)}"
    handoff.queue.rename_new(claim.name, second, handoff.discarded)
    assert handoff.discard(claim, report(claim)) is None
    assert bench.queue().report(second) == report(claim)
    assert bench.read("in/discarded/doc.report.json") == b"its reason"


class Unseen(Directory):
    """What is called `doc` is neither found by its name nor listed."""

    def present(self, name: str) -> bool:
        return name != "doc" and super().present(name)

    def names(self) -> Iterator[str]:
        return (name for name in super().names() if name != "doc")


def test_a_report_is_kept_for_a_document_that_is_discarded_and_not_seen_yet(
    bench: "Bench",
) -> None:
    """The reply to the rename is lost, the name is remembered as missing, the listing is old."""
    handoff = bench.handoff()
    claim = bench.claim(handoff)
    handoff.queue.rename_new(claim.name, "doc", handoff.discarded)
    handoff.discarded.close()
    handoff.discarded = Unseen.open(bench.root / "in/discarded")
    assert handoff.discard(claim, report(claim)) is None
    assert bench.queue().report("doc") is None
    # Whoever comes later, and sees it.
    bench.handoff().settle_report("doc", claim.token)
    assert bench.queue().report("doc") == report(claim)
    assert sorted(os.listdir(bench.root / "in/discarded")) == ["doc", "doc.report.json"]


def test_a_removed_directory_of_the_discarded_is_no_lost_race(bench: "Bench") -> None:
    handoff = bench.handoff()
    claim = bench.claim(handoff)
    os.rmdir(bench.root / "in/discarded")
    with pytest.raises(FileNotFoundError):
        handoff.discard(claim, report(claim))
    assert bench.ls() == [claim.name]
    handoff.discarded.reopen(create=True)
    assert handoff.discard(claim, report(claim)) == "doc"


# Without RENAME_NOREPLACE


def test_where_the_file_system_cannot_refuse_to_replace_nothing_is_replaced_either(
    bench: "Bench",
) -> None:
    """As on NFS: look, then rename."""
    handoff = bench.handoff()
    for directory in (handoff.queue, handoff.discarded, handoff.targets[0].directory):
        directory._noreplace = False
    bench.put("out/doc.ready", b"waits")
    claim = bench.claim(handoff)
    completion = handoff.complete_one(claim, written(handoff, claim))
    assert completion.published == (f"doc~{serial(claim)}.ready",)
    bench.put("in/discarded/doc", b"earlier")
    claim = bench.claim(handoff)
    assert handoff.discard(claim, report(claim)) == f"doc~{serial(claim)}"
    claim = bench.claim(handoff)
    bench.put("in/doc.ready", b"again")
    assert handoff.release(claim) == f"doc~{serial(claim)}"
    assert bench.read("out/doc.ready") == b"waits"
    assert bench.read("in/doc.ready") == b"again"


def test_nothing_is_done_to_names_that_are_others(bench: "Bench", tmp_path: Path) -> None:
    handoff = bench.handoff()
    others = ["scan.pdf", "doc.xml", "doc.8.working", "doc.ready.tmp"]
    for name in others:
        bench.put(f"in/{name}", name.encode())
        bench.put(f"out/{name}", name.encode())
    for step in range(4):
        claim = bench.claim(handoff)
        if step == 0:
            handoff.complete_one(claim, written(handoff, claim))
        elif step == 1:
            handoff.discard(claim, report(claim))
        elif step == 2:
            handoff.fail(claim, record(claim))
        else:
            handoff.release(claim)
    for name in others:
        assert bench.read(f"in/{name}") == bench.read(f"out/{name}") == name.encode()
