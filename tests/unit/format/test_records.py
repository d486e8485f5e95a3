"""What is written down in JSON is read as it was written."""

import json
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from queuedriver.format import names, records
from queuedriver.format.records import Attempt, Failure, Report

if TYPE_CHECKING:
    pass

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


@given(st.text(alphabet=st.characters(), max_size=30))
def test_any_message_is_written_and_read_as_json(message: str) -> None:
    decoded = json.loads(records.encode_report(a_report(message)))
    assert decoded["version"] == 1
    shown = message.encode("utf-8", "backslashreplace").decode()
    assert decoded["attempts"][0]["failure"]["message"] == shown
