"""What was written down about attempts is found again, each document's its own."""

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuedriver import names, records
from queuedriver.outcome import Failure
from queuedriver.records import Attempt, Attempts, Report

if TYPE_CHECKING:
    from tests.conftest import Bench

TOKEN = "d-0605d3a1f2b0c05a17"


def an_attempt(docid: str = "doc", token: str = TOKEN, message: str = "bad") -> Attempt:
    return Attempt(
        docid=docid,
        token=token,
        attempt=0,
        driver="d",
        host="alpha",
        claimed_at=names.parse_token(token).claimed_at,
        ended_at=2.0,
        counted=True,
        failure=Failure(cause="exception", message=message),
    )


def a_report(message: str = "bad") -> Report:
    return Report(
        docid="doc",
        queue="in",
        discarded_at=3.0,
        driver="d",
        host="alpha",
        failure=Failure(cause="exception", message=message),
        attempts=(an_attempt(message=message),),
    )


def test_attempts_are_found_again_oldest_first(bench: "Bench") -> None:
    attempts = Attempts(bench.directory("attempts"))
    written = [an_attempt(token=bench.token()) for _ in range(5)]
    for one in reversed(written):
        attempts.write(one, durable=False)
    assert attempts.of("doc") == written
    assert attempts.of("other") == []


@pytest.mark.parametrize("durable", [False, True])
def test_the_first_word_on_an_attempt_stands(bench: "Bench", durable: bool) -> None:
    attempts = Attempts(bench.directory("attempts"))
    attempts.write(an_attempt(message="first"), durable)
    attempts.write(an_attempt(message="second"), durable)
    assert [one.failure.message for one in attempts.of("doc")] == ["first"]


def test_documents_whose_names_begin_alike_keep_their_attempts_apart(bench: "Bench") -> None:
    attempts = Attempts(bench.directory("attempts"))
    docids = ["a", "a.b", "a.b.json", f"a.{TOKEN}", "a~1", "a."]
    for docid in docids:
        attempts.write(an_attempt(docid), durable=False)
    for docid in docids:
        assert [one.docid for one in attempts.of(docid)] == [docid]
    attempts.forget("a")
    assert attempts.of("a") == []
    for docid in docids[1:]:
        assert [one.docid for one in attempts.of(docid)] == [docid]


def test_an_attempt_moves_with_its_document_to_another_docid(bench: "Bench") -> None:
    attempts = Attempts(bench.directory("attempts"))
    attempts.write(an_attempt(), durable=False)
    attempts.move("doc", TOKEN, "doc~2")
    attempts.move("doc", TOKEN, "doc~2")
    assert attempts.of("doc") == []
    assert [one.token for one in attempts.of("doc~2")] == [TOKEN]


def test_a_record_says_whose_it_is(bench: "Bench") -> None:
    attempts = Attempts(bench.directory("attempts"))
    attempts.write(an_attempt("a.b c"), durable=False)
    (name,) = bench.ls("attempts")
    assert records.docid_of(name) == "a.b c"


def test_what_is_no_record_of_ours_is_left_out_and_left_alone(bench: "Bench") -> None:
    attempts = Attempts(bench.directory("attempts"))
    attempts.write(an_attempt(), durable=False)
    bench.put("attempts/doc.x.json", b"{")
    bench.put("attempts/doc.y.json", b'{"docid": 7}')
    (bench.root / "attempts/doc.z.json").symlink_to("nowhere")
    (bench.root / "attempts/doc.dir.json").mkdir()
    assert len(attempts.of("doc")) == 1
    assert len(bench.ls("attempts")) == 5


def test_what_json_cannot_hold_is_made_visible(bench: "Bench") -> None:
    attempts = Attempts(bench.directory("attempts"))
    attempts.write(an_attempt(message="caf\udce9"), durable=False)
    (found,) = attempts.of("doc")
    assert found.failure.message == "caf\\udce9"
    report = records.encode_report(a_report("caf\udce9"))
    assert json.loads(report)["failure"]["message"] == "caf\\udce9"


@given(st.text(alphabet=st.characters(), max_size=30))
def test_any_message_is_written_and_read_as_json(message: str) -> None:
    decoded = json.loads(records.encode_report(a_report(message)))
    assert decoded["version"] == 1
    shown = message.encode("utf-8", "backslashreplace").decode()
    assert decoded["attempts"][0]["failure"]["message"] == shown


def test_a_report_is_read_as_it_was_written(bench: "Bench") -> None:
    discarded = bench.directory("discarded")
    assert records.read_report(discarded, "doc") is None
    discarded.write_new("doc.report.json", records.encode_report(a_report()))
    assert records.read_report(discarded, "doc") == a_report()
    bench.put("discarded/doc.report.json", b"nonsense")
    assert records.read_report(discarded, "doc") is None


def test_a_hidden_report_is_no_item_and_no_discarded_document() -> None:
    hidden = records.hidden_report(TOKEN)
    assert hidden.startswith(".")
    assert TOKEN in hidden
    assert names.parse(hidden) is None
