"""What was written down about attempts is found again, each document's its own."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuedriver.claims.outcomes import Failure
from queuedriver.disk.filesystem import Directory
from queuedriver.format import names, records
from queuedriver.format.records import Attempt, Attempts, Report

if TYPE_CHECKING:
    from tests.conftest import Bench

TOKEN = "d-0605d3a1f2b0c05a17"


def an_attempt(
    docid: str = "doc", token: str = TOKEN, message: str = "bad", **more: Any
) -> Attempt:
    usual: dict[str, Any] = {
        "attempt": 0,
        "driver": "d",
        "host": "alpha",
        "claimed_at": names.parse_token(token).claimed_at,
        "ended_at": 2.0,
        "counted": True,
        "failure": Failure(cause="exception", message=message),
        "inode": 7,
    }
    return Attempt(docid=docid, token=token, **{**usual, **more})


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
    tries = [(0, True), (1, False), (1, False), (1, True), (2, True)]
    written = [
        an_attempt(token=bench.token(), attempt=attempt, counted=counted)
        for attempt, counted in tries
    ]
    for one in reversed(written):
        attempts.write(one, durable=False)
    assert attempts.of("doc", 7, 3) == attempts.listed("doc") == written
    assert bench.ls("attempts") == [
        f"doc.7.{what}.json" for what in ("failed", "failed2", "failed3", "released", "released2")
    ]


def test_attempts_at_other_documents_are_none_of_ours_were_they_of_this_docid(
    bench: "Bench",
) -> None:
    attempts = Attempts(bench.directory("attempts"))
    attempts.write(an_attempt(), durable=False)
    attempts.write(an_attempt(inode=8, counted=False), durable=False)
    assert [one.inode for one in attempts.of("doc", 7, 1)] == [7]
    assert attempts.of("doc", 9, 1) == attempts.of("other", 7, 1) == []
    attempts.forget("doc", 7, 1)
    assert [one.inode for one in attempts.listed("doc")] == [8]


class Counting(Directory):
    """A directory that counts how often it was listed."""

    listings = 0

    def names(self) -> Iterator[str]:
        type(self).listings += 1
        return super().names()


def test_a_failure_costs_the_same_however_many_documents_have_failed(bench: "Bench") -> None:
    attempts = Attempts(Counting.open(bench.directory("attempts").path))
    try:
        for number in range(20):
            one = an_attempt(f"doc{number}", bench.token())
            attempts.write(one, durable=False)
            assert attempts.of(one.docid, 7, 1) == [one]
            attempts.move(one.docid, 7, 1, f"{one.docid}~2")
            attempts.forget(f"{one.docid}~2", 7, 1)
    finally:
        attempts.directory.close()
    assert bench.ls("attempts") == []
    # For records with names as they once were.
    assert Counting.listings == 1


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("durable", [False, True])
def test_the_first_word_on_an_attempt_stands(bench: "Bench", durable: bool, counted: bool) -> None:
    attempts = Attempts(bench.directory("attempts"))
    attempts.write(an_attempt(message="first", counted=counted), durable)
    attempts.write(an_attempt(message="second", counted=counted), durable)
    assert [one.failure.message for one in attempts.of("doc", 7, 1)] == ["first"]
    assert len(bench.ls("attempts")) == 1


def test_the_last_of_several_attempts_that_led_to_one_state_is_the_one_that_did(
    bench: "Bench",
) -> None:
    # Whoever noted the first died, and the claim was given back.
    attempts = Attempts(bench.directory("attempts"))
    attempts.write(an_attempt(token=bench.token(), message="first"), durable=False)
    attempts.write(an_attempt(token=bench.token(), message="second"), durable=False)
    assert [one.failure.message for one in attempts.of("doc", 7, 1)] == ["second"]


def test_an_attempt_that_was_charged_and_taken_back_is_one_that_was_charged(
    bench: "Bench",
) -> None:
    attempts = Attempts(bench.directory("attempts"))
    attempts.write(an_attempt(counted=False), durable=False)
    attempts.write(an_attempt(counted=True), durable=False)
    assert [one.counted for one in attempts.of("doc", 7, 1)] == [True]


def test_documents_whose_names_begin_alike_keep_their_attempts_apart(bench: "Bench") -> None:
    attempts = Attempts(bench.directory("attempts"))
    docids = ["a", "a.b", "a.b.json", f"a.{TOKEN}", "a~1", "a.", "a.7"]
    for docid in docids:
        attempts.write(an_attempt(docid), durable=False)
    for docid in docids:
        assert [one.docid for one in attempts.of(docid, 7, 1)] == [docid]
        assert [one.docid for one in attempts.listed(docid)] == [docid]
    attempts.forget("a", 7, 1)
    assert attempts.docids() == set(docids) - {"a"}
    attempts.forget_all({"a.b", "a."})
    assert attempts.docids() == set(docids) - {"a", "a.b", "a."}


def test_all_attempts_move_with_their_document_to_another_docid(bench: "Bench") -> None:
    attempts = Attempts(bench.directory("attempts"))
    attempts.write(an_attempt(token=bench.token()), durable=False)
    attempts.write(an_attempt(token=bench.token(), counted=False), durable=False)
    attempts.move("doc", 7, 1, "doc~2")
    attempts.move("doc", 7, 1, "doc~2")
    assert attempts.listed("doc") == []
    assert len(attempts.of("doc~2", 7, 1)) == 2


def test_a_record_says_whose_it_is(bench: "Bench") -> None:
    attempts = Attempts(bench.directory("attempts"))
    attempts.write(an_attempt("a.b c"), durable=False)
    (name,) = bench.ls("attempts")
    assert records.docid_of(name) == "a.b c"
    for name in (".aside-1-1-abcdef12", "doc.json", "doc", ".doc.7.failed.json"):
        assert records.docid_of(name) == ""


def test_records_are_found_under_the_names_they_once_had(bench: "Bench") -> None:
    of_ours, of_another, unknown = f"doc.{TOKEN}", "doc.8", "doc.9"
    for name, inode in ((of_ours, 7), (of_another, 3), (unknown, 0)):
        one = an_attempt(token=name.removeprefix("doc."), inode=inode)
        bench.put(f"attempts/{name}.json", msgspec.json.encode(one))
    attempts = Attempts(bench.directory("attempts"))
    attempts.write(an_attempt(token=bench.token(), attempt=1), durable=False)
    found = {one.token for one in attempts.of("doc", 7, 2)}
    assert found == {TOKEN, "9", attempts.of("doc", 7, 2)[-1].token}
    assert len(attempts.listed("doc")) == 4
    assert {records.docid_of(name) for name in bench.ls("attempts")} == {"doc"}
    attempts.forget("doc", 7, 2)
    assert bench.ls("attempts") == []


def test_what_is_no_record_of_ours_is_left_out_and_left_alone(bench: "Bench") -> None:
    attempts = Attempts(bench.directory("attempts"))
    attempts.write(an_attempt(), durable=False)
    bench.put("attempts/doc.7.released.json", b"{")
    (bench.root / "attempts/doc.7.failed2.json").symlink_to("nowhere")
    (bench.root / "attempts/doc.7.failed3.json").mkdir()
    assert len(attempts.of("doc", 7, 3)) == 1
    attempts.write(an_attempt(attempt=2), durable=False)
    attempts.forget("doc", 7, 3)
    assert bench.ls("attempts") == ["doc.7.failed3.json"]


def test_what_json_cannot_hold_is_made_visible(bench: "Bench") -> None:
    attempts = Attempts(bench.directory("attempts"))
    attempts.write(an_attempt(message="caf\udce9"), durable=False)
    (found,) = attempts.of("doc", 7, 1)
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
