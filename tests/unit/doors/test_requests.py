"""Clients' requests on disk: not done again once answered, and known when they are repeated."""

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from queuedriver.doors import requests as module
from queuedriver.doors.requests import HELD_FOR, KNOWN_FOR, Reply, Requests
from queuedriver.doors.words import Answer, Request
from queuedriver.format import names
from tests.conftest import NOON

if TYPE_CHECKING:
    from tests.conftest import Bench

ASKED = Request(b"client/1", (b"ask", b"\x00what"))
ANSWER = Answer(b"client", (b"", b"answer"))

Life = Callable[[], Requests]
# Whether the client is there.
AWAY: set[bytes] = set()


def send(peer: bytes, frames: tuple[bytes, ...]) -> bool:
    return peer not in AWAY


@pytest.fixture
def life(bench: "Bench") -> Iterator[Life]:
    """Another life of the broker, with the queue as the one before left it."""
    AWAY.clear()
    lives: list[Requests] = []
    salts = itertools.count()

    def begin() -> Requests:
        if lives:
            lives.pop().close()
        mint = names.Mint("b", f"{next(salts):04x}")
        requests = Requests(bench.queue(), mint, send, durable=False)
        requests.load(0.0)
        lives.append(requests)
        return requests

    yield begin
    for one in lives:
        one.close()


def kept(requests: Requests, request: Request = ASKED, now: float = 0.0) -> str:
    docid = requests.keep(request, NOON, now)
    assert isinstance(docid, str)
    return docid


def reply_to(docid: str, request: Request = ASKED) -> Reply:
    return Reply(docid, request.key, ANSWER.peer, ANSWER.frames)


def hold(requests: Requests, docid: str, now: float) -> None:
    AWAY.add(b"client")
    requests.hand_over(reply_to(docid), now)
    AWAY.clear()


def finish(bench: "Bench", docid: str) -> None:
    """As the hand-off does."""
    (bench.root / "in" / f"{docid}.ready").unlink()


def replies(bench: "Bench") -> list[str]:
    return sorted(os.listdir(bench.root / "in/.queuedriver/replies"))


# A request comes


def test_request_is_an_item_of_the_queue_that_any_broker_recognizes(
    bench: "Bench", life: Life
) -> None:
    docid = kept(life())
    assert bench.ls() == [f"{docid}.ready"]
    content = bench.read(f"in/{docid}.ready")
    assert life().recognize(docid, content) == ASKED


def test_name_of_a_request_is_never_too_long(bench: "Bench") -> None:
    mint = names.Mint("x" * names.MAX_DRIVER_ID, "5a17")
    requests = Requests(bench.queue(), mint, send, durable=False)
    docid = kept(requests)
    requests.close()
    assert names.objection(docid) is None
    assert len(names.working_name(docid, names.MAX_RETRIES, mint.next(NOON))) <= 255


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"a document of somebody's",
        b"queuedriver request 1\n",
        b"queuedriver request 1\n\xff",
        # A map that has a key of ours in it, which is no UTF-8; and one without end.
        b"queuedriver request 1\n\x81\xa7service\xa2\xff\xff",
        b"queuedriver request 1\n\x82\xa3key\xc4\x00\xa1x" + b"\x91" * 100_000,
    ],
)
def test_document_that_is_called_like_a_request_is_a_document(life: Life, content: bytes) -> None:
    assert life().recognize("request-1", content) is None
    assert life().recognize("letter-1", content) is None


def test_same_request_again_is_no_second_one(bench: "Bench", life: Life) -> None:
    requests = life()
    docid = kept(requests)
    assert requests.keep(ASKED, NOON, 1.0) is None
    assert bench.ls() == [f"{docid}.ready"]


def test_same_id_of_another_client_is_another_request(bench: "Bench", life: Life) -> None:
    requests = life()
    first = kept(requests)
    second = kept(requests, Request(b"another/1", ASKED.frames))
    assert bench.ls() == sorted([f"{first}.ready", f"{second}.ready"])


def test_request_that_is_repeated_after_a_restart_is_known(bench: "Bench", life: Life) -> None:
    docid = kept(life())
    assert life().keep(ASKED, NOON, 1.0) is None
    # Also while it is claimed.
    working = names.working_name(docid, 0, bench.token())
    os.rename(bench.root / f"in/{docid}.ready", bench.root / "in" / working)
    assert life().keep(ASKED, NOON, 1.0) is None


def test_request_is_known_until_it_is_answered_and_as_long_as_it_is_repeated(life: Life) -> None:
    requests = life()
    docid = kept(requests)
    # A worker may have it for hours.
    assert requests.keep(ASKED, NOON, 11 * KNOWN_FOR) is None
    requests.hand_over(reply_to(docid), 20 * KNOWN_FOR)
    for number in range(1, 20):
        now = 20 * KNOWN_FOR + number * KNOWN_FOR / 2
        assert requests.keep(ASKED, NOON, now) == reply_to(docid)
    assert isinstance(requests.keep(ASKED, NOON, 31 * KNOWN_FOR), str)


def test_request_that_waits_stays_known_however_many_come(
    bench: "Bench", life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_KNOWN", 2)
    requests = life()
    many = [Request(b"%d" % number, ()) for number in range(4)]
    for request in many:
        kept(requests, request)
    assert [requests.keep(request, NOON, 1.0) for request in many] == [None] * 4
    assert len(bench.ls()) == 4


def test_request_in_hand_is_not_forgotten_for_its_own_repetition(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_KNOWN", 2)
    requests = life()
    del requests.waiting[kept(requests)]
    kept(requests, Request(b"another", ()))
    assert requests.keep(ASKED, NOON, 1.0) is None


def test_requests_that_are_over_do_not_pile_up_in_memory(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_KNOWN", 2)
    requests = life()
    kept(requests)
    for number in range(9):
        request = Request(b"%d" % number, (), answered=False)
        requests.finished(kept(requests, request), 0.0)
    assert len(requests._known) == 2
    assert requests.keep(ASKED, NOON, 1.0) is None


def test_request_that_was_discarded_is_done_anew_where_there_is_no_word_for_that(
    life: Life,
) -> None:
    requests = life()
    requests.refused(kept(requests), ASKED, None, 1.0)
    docid = kept(requests)
    requests.refused(docid, ASKED, ANSWER, 2.0)
    assert requests.keep(ASKED, NOON, 3.0) == reply_to(docid)


def test_requests_are_late_that_nobody_has_taken(life: Life) -> None:
    requests = life()
    first, second = kept(requests), kept(requests, Request(b"another/1", ()), 4.0)
    assert requests.late(5.0, 5.0) == [first]
    assert requests.late(9.0, 5.0) == [first, second]
    del requests.waiting[first]
    assert requests.late(9.0, 5.0) == [second]
    # After a restart they wait anew.
    assert life().late(4.0, 5.0) == []


# Its answer


def test_answer_is_sent_again_to_whoever_repeats_the_request(bench: "Bench", life: Life) -> None:
    requests = life()
    docid = kept(requests)
    reply = reply_to(docid)
    requests.write(docid, ASKED, ANSWER)
    finish(bench, docid)
    requests.finished(docid, 1.0)
    requests.hand_over(reply, 1.0)
    assert requests.keep(ASKED, NOON, 2.0) == reply
    assert requests.keep(ASKED, NOON, 3.0) == reply
    assert replies(bench) == []


def test_answer_that_is_too_much_to_remember_is_made_again_when_it_is_asked_for_again(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_REMEMBERED", 5)
    requests = life()
    docid = kept(requests)
    requests.write(docid, ASKED, ANSWER)
    requests.finished(docid, 1.0)
    requests.hand_over(reply_to(docid), 1.0)
    assert isinstance(requests.keep(ASKED, NOON, 2.0), str)


def test_memory_of_answers_is_given_back_when_they_are_forgotten(life: Life) -> None:
    requests = life()
    for number in range(20):
        request = Request(b"%d" % number, ())
        docid = kept(requests, request, now=float(number))
        for _ in range(2):
            requests.hand_over(reply_to(docid, request), float(number))
    assert requests._remembered == 20 * len(b"answer")
    kept(requests, Request(b"last", ()), now=KNOWN_FOR + 100)
    assert requests._remembered == 0


# Crashes: before the answer is kept; before the request is finished; before the answer is sent


def test_request_of_a_broker_that_died_before_the_answer_is_done_again(life: Life) -> None:
    docid = kept(life())
    requests = life()
    assert not requests.is_answered(docid)
    assert b"client" not in requests.held


def test_request_that_is_answered_and_not_finished_is_not_done_again(
    bench: "Bench", life: Life
) -> None:
    requests = life()
    docid = kept(requests)
    requests.write(docid, ASKED, ANSWER)
    requests = life()
    assert requests.is_answered(docid)
    assert requests.keep(ASKED, NOON, 1.0) == reply_to(docid)


def test_answer_stays_until_its_request_is_finished_though_the_client_has_it(
    bench: "Bench", life: Life
) -> None:
    requests = life()
    docid = kept(requests)
    requests.write(docid, ASKED, ANSWER)
    for _ in range(2):
        # The client comes back before any worker: the request has not been claimed yet.
        requests = life()
        requests.look(1.0)
        assert not requests.held
        assert requests.is_answered(docid)
    requests.look(HELD_FOR + 1)
    assert requests.is_answered(docid)
    finish(bench, docid)
    requests.finished(docid, 2.0)
    assert replies(bench) == []


def test_answer_stays_until_it_is_sent_though_its_request_is_finished(
    bench: "Bench", life: Life
) -> None:
    requests = life()
    docid = kept(requests)
    requests.write(docid, ASKED, ANSWER)
    finish(bench, docid)
    requests.finished(docid, 0.0)
    hold(requests, docid, 0.0)
    assert replies(bench) == [docid]
    requests = life()
    # What is asked again meanwhile is not done again.
    assert requests.keep(ASKED, NOON, 1.0) == reply_to(docid)
    assert bench.ls() == []
    requests.look(1.0)
    assert replies(bench) == []


def test_answer_of_a_broker_that_is_no_more_is_held_by_who_finishes_its_request(
    bench: "Bench", life: Life
) -> None:
    requests = life()
    docid = kept(requests)
    other = Requests(bench.queue(), names.Mint("c", "5a18"), send, durable=False)
    other.write(docid, ASKED, ANSWER)
    other.close()
    assert requests.is_answered(docid)
    finish(bench, docid)
    requests.finished(docid, 1.0)
    assert [reply for _, reply in requests.held[b"client"]] == [reply_to(docid)]


def test_answer_that_another_broker_has_given_is_sent_to_whoever_asks_again_here(
    bench: "Bench", life: Life
) -> None:
    docid = kept(life())
    # The next broker knows it from the queue; a second one beside it is the first to claim it.
    requests = life()
    other = Requests(bench.queue(), names.Mint("c", "5a18"), send, durable=False)
    assert requests.keep(ASKED, NOON, 1.0) is None
    other.write(docid, ASKED, ANSWER)
    # A crash of the other just now must leave the answer, even if the client has it.
    reply = requests.keep(ASKED, NOON, 2.0)
    assert reply == reply_to(docid)
    requests.send_again(reply)
    assert replies(bench) == [docid]
    finish(bench, docid)
    other.finished(docid, 2.0)
    hold(other, docid, 2.0)
    other.look(HELD_FOR + 3)
    other.close()
    assert replies(bench) == []
    assert requests.keep(ASKED, NOON, 3.0) == reply
    assert not requests.held
    assert not requests.waiting


# A client that is away


@pytest.mark.parametrize(("away", "found"), [(HELD_FOR - 1, True), (HELD_FOR + 1, False)])
def test_answer_is_held_for_a_minute(bench: "Bench", life: Life, away: float, found: bool) -> None:
    requests = life()
    docid = kept(requests)
    requests.write(docid, ASKED, ANSWER)
    requests.finished(docid, 0.0)
    hold(requests, docid, 0.0)
    AWAY.add(b"client")
    requests.look(away)
    assert (b"client" in requests.held) is found
    assert replies(bench) == ([docid] if found else [])
    AWAY.clear()
    requests.look(away)
    assert not requests.held


# Trouble


@pytest.mark.parametrize("kind", ["garbage", "symlink", "directory", "unreadable"])
def test_what_is_in_the_place_of_an_answer_keeps_no_broker_from_starting(
    bench: "Bench", life: Life, kind: str
) -> None:
    life()
    for place in ("in/.queuedriver/replies/request-1", "in/request-1.ready"):
        path = bench.root / place
        if kind == "garbage":
            path.write_bytes(b"\x91" * 100_000)
        elif kind == "symlink":
            path.symlink_to("/etc/passwd")
        elif kind == "directory":
            path.mkdir()
        else:
            path.write_bytes(msgspec.msgpack.encode(reply_to("request-1")))
            path.chmod(0)
    requests = life()
    if kind != "unreadable" or os.geteuid():
        assert b"client" not in requests.held


def test_request_that_could_not_be_written_down_may_be_brought_again(life: Life) -> None:
    requests = life()
    kept(requests, Request(b"first", ()))
    requests._queue.incoming.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        requests.keep(ASKED, NOON, 1.0)
    del requests._queue.incoming
    assert isinstance(requests.keep(ASKED, NOON, 1.0), str)


def test_after_trouble_directories_that_were_made_anew_are_used(bench: "Bench", life: Life) -> None:
    """A file system that was unmounted, and came back: what is open leads nowhere."""
    requests = life()
    docid = kept(requests)
    private = bench.root / "in/.queuedriver"
    for name in ("replies", "incoming"):
        (private / name).rename(private / f"{name}-gone")
    requests.reopen()
    requests.write(docid, ASKED, ANSWER)
    assert replies(bench) == [docid]
    kept(requests, Request(b"another", ()))
    assert Path(private / "incoming").is_dir()
    assert os.listdir(private / "incoming-gone") == []
